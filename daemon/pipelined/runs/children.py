# SPDX-License-Identifier: Apache-2.0
"""What ran inside a stage: its processes but the root, by command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pipelined.runs.fields import Count, Key, Ratio, Seconds

__all__ = ["NAMED", "Child", "children_by_command"]

#: So many commands are named; the others are added up.
NAMED = 8


@dataclass(frozen=True, slots=True)
class Child:
    """Processes of a stage, all but its root, that have one command and have exited."""

    command: str | None
    """Name of the program, as the kernel keeps it; of a script that of the script. Null: all other
    ones, added up."""
    exited: Count
    """How many have exited."""
    cpu_seconds: Seconds
    """Sum of their CPU times."""
    longest_seconds: Seconds
    """The longest life."""
    cpu_share: Annotated[Ratio | None, Key("cpu_ratio")] = None
    """Their part of the stage's CPU time; null if that has none."""


def children_by_command(children: Iterable[Child], cpu_seconds: float) -> tuple[Child, ...]:
    """One for each command, those with the most CPU time first, and the rest added up last.

    `cpu_seconds` is the stage's. What has no command is a part of the rest.
    """
    found: dict[str | None, list[Child]] = {}
    for child in children:
        found.setdefault(child.command, []).append(child)
    rest = found.pop(None, [])
    order = sorted(found, key=lambda name: (-_cpu(found[name]), -_exited(found[name]), name or ""))
    for name in order[NAMED:]:
        rest += found[name]
    named = [_added(name, found[name], cpu_seconds) for name in order[:NAMED]]
    return (*named, _added(None, rest, cpu_seconds)) if rest else tuple(named)


def _cpu(alike: Iterable[Child]) -> float:
    return sum(child.cpu_seconds for child in alike)


def _exited(alike: Iterable[Child]) -> int:
    return sum(child.exited for child in alike)


def _added(command: str | None, alike: list[Child], cpu_seconds: float) -> Child:
    cpu, longest = _cpu(alike), max(child.longest_seconds for child in alike)
    share = min(1.0, cpu / cpu_seconds) if cpu_seconds else None
    return Child(command, _exited(alike), cpu, longest, share)
