# SPDX-License-Identifier: Apache-2.0
"""Lists of runs for people: their order, nested runs under the run that encloses them, equal ones
in one line.

Pure, and for everything that is listed: live runs, recent ones, rows of the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, Protocol, TypeVar

__all__ = ["Line", "first_lines", "in_order", "largest_first", "nested_lines"]


class Listed(Protocol):
    """What a list has to know of a run."""

    @property
    def id(self) -> str: ...
    @property
    def pipeline(self) -> str: ...
    @property
    def nested(self) -> bool: ...
    @property
    def parent(self) -> str | None: ...
    @property
    def parent_pipeline(self) -> str | None: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float | None: ...
    @property
    def complete(self) -> bool: ...


L = TypeVar("L", bound=Listed)
_Key = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class Line(Generic[L]):
    """One line of a list."""

    run: L
    """The longest of the runs that the line stands for."""
    runs: int = 1
    """How many runs it stands for: finished runs of one pipeline inside the same run."""
    depth: int = 0
    """In how many lines it lies."""
    incomplete: int = 0
    """How many of its runs have failed or were interrupted."""

    @property
    def of_several(self) -> str:
        """``2 of 12 did not succeed``; empty for a line of one run, and if all did."""
        if self.runs == 1 or not self.incomplete:
            return ""
        return f"{self.incomplete:,} of {self.runs:,} did not succeed"

    @property
    def times(self) -> str:
        """``12 × `` if the line stands for 12 runs; empty for one."""
        return f"{self.runs:,} × " if self.runs > 1 else ""

    @property
    def inside(self) -> str:
        """Where a nested run lies whose enclosing run is in no line above: ``in job.sh|tee``."""
        if self.depth or not self.run.nested:
            return ""
        return f"in {self.run.parent_pipeline or 'another pipeline'}"


def in_order(runs: Iterable[L]) -> tuple[list[L], list[L]]:
    """Live runs, the one that runs longest first; then those that ended, the latest end first.

    A live run keeps its place when another begins, and comes before all that it encloses.
    """
    listed = list(runs)
    live = [run for run in listed if run.end is None]
    ended = [run for run in listed if run.end is not None]
    return sorted(live, key=_start), sorted(ended, key=_latest_end)


def _start(run: Listed) -> tuple[float, str]:
    return run.start, run.id


def _latest_end(run: Listed) -> tuple[float, str]:
    return -(run.end or 0.0), run.id


def nested_lines(runs: Iterable[L], *, grouped: bool = True) -> list[Line[L]]:
    """The runs as lines: each is followed by the lines inside it; otherwise in the given order.

    If they are `grouped`, finished nested runs of one pipeline inside the same run are one line,
    in the place of the first of them. So are those inside the runs that such a line stands for.
    A nested run whose enclosing run is not among `runs` has depth 0.
    """

    def key(run: L, depth: int) -> _Key:
        # All of a depth above 0 lie in the same line.
        return _key(run, grouped, "" if depth else run.parent)

    return [
        Line(max(members, key=_length), len(members), depth, _incomplete(members))
        for members, depth in _groups(runs, key, list)
    ]


def largest_first(
    runs: Iterable[L], size: Callable[[L], float]
) -> list[tuple[Line[L], Sequence[L]]]:
    """All runs of one pipeline in the same place as one line each, with the runs in it.

    The line with the largest sum of `size` comes first, each followed by the lines inside it. The
    run of a line is that of the largest size.
    """

    def key(run: L, depth: int) -> _Key:
        return None if depth else run.parent_pipeline, run.pipeline

    def ordered(groups: Iterable[list[L]]) -> list[list[L]]:
        return sorted(groups, key=lambda members: -sum(map(size, members)))

    return [
        (Line(max(members, key=size), len(members), depth, _incomplete(members)), members)
        for members, depth in _groups(runs, key, ordered)
    ]


def _groups(
    runs: Iterable[L],
    key: Callable[[L, int], _Key],
    ordered: Callable[[Iterable[list[L]]], list[list[L]]],
) -> list[tuple[list[L], int]]:
    """Runs with the same key in the same place, and their depth; those inside follow each.

    `key` is given a run and its depth; `ordered` puts the groups of one place in order.
    """
    listed = list(runs)
    ids = {run.id for run in listed}
    outermost: list[L] = []
    inside: dict[str, list[L]] = {}
    for run in listed:
        if run.parent is None or run.parent not in ids or run.parent == run.id:
            outermost.append(run)
        else:
            inside.setdefault(run.parent, []).append(run)
    found: list[tuple[list[L], int]] = []

    def add(these: Iterable[L], depth: int) -> None:
        alike: dict[_Key, list[L]] = {}
        for run in these:
            alike.setdefault(key(run, depth), []).append(run)
        for members in ordered(alike.values()):
            found.append((members, depth))
            add((run for outer in members for run in inside.get(outer.id, ())), depth + 1)

    add(outermost, 0)
    return found


def first_lines(runs: Sequence[L], most: int, *, grouped: bool = True) -> Sequence[L]:
    """The first of `runs`, as long as they are at most `most` lines."""
    seen: set[_Key] = set()
    for number, run in enumerate(runs):
        seen.add(_key(run, grouped, run.parent))
        if len(seen) > most:
            return runs[:number]
    return runs


def _key(run: Listed, grouped: bool, parent: str | None) -> _Key:
    """Equal for runs that are in one line."""
    alone = not grouped or parent is None or run.end is None
    return (None, run.id) if alone else (parent, run.pipeline)


def _incomplete(runs: Iterable[Listed]) -> int:
    return sum(not run.complete for run in runs)


def _length(run: Listed) -> float:
    return inf if run.end is None else run.end - run.start
