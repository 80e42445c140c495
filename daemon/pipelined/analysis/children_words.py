# SPDX-License-Identifier: Apache-2.0
"""In words: which programs ran inside a stage, and which of them had its CPU time."""

from __future__ import annotations

from collections.abc import Sequence

from pipelined.runs import Child, Stage, children_by_command
from pipelined.wording import duration, listing, percent

__all__ = ["busiest", "inside"]

#: A child is named in the verdict if it had this share of the stage's CPU time.
_MOST = 0.25
#: The verdict names at most this many.
_NAMED = 2


def inside(stages: Sequence[Stage]) -> str | None:
    """What ran inside parallel stages of one name, and what the CPU time was spent by.

    ``gzip ×12 1.93 s (98 %, longest 0.31 s), sh ×12 0.02 s (1 %, longest 0.33 s); itself 0.01 s``.
    None if no child has exited.
    """
    children = _together(stages)
    if not children:
        return None
    own = sum(stage.own_cpu_seconds for stage in stages)
    alive = sum(max(0, stage.forks - stage.exited_children) for stage in stages if not stage.end)
    own_words = f"itself and {alive:,} that still run" if alive else "itself"
    return f"{', '.join(map(_words, children))}; {own_words} {duration(own)}"


def busiest(stages: Sequence[Stage]) -> str:
    """The children that had most of the CPU time of these stages; empty if none had a quarter.

    ``its children sed (300) and date (300) had 45 % and 31 % of its CPU time``
    """
    named = [
        (child.command, child.exited, child.cpu_share)
        for child in _together(stages)
        if child.command and child.exited and (child.cpu_share or 0.0) >= _MOST
    ][:_NAMED]
    if not named:
        return ""
    whose = "their" if len(stages) > 1 else "its"
    names = listing([f"{command} ({exited:,})" for command, exited, _ in named])
    shares = listing([percent(share or 0.0) for _, _, share in named])
    return f"{whose} children {names} had {shares} of {whose} CPU time"


def _together(stages: Sequence[Stage]) -> tuple[Child, ...]:
    children = (child for stage in stages for child in stage.children)
    return children_by_command(children, sum(stage.cpu_seconds for stage in stages))


def _words(child: Child) -> str:
    name = child.command or "others"
    share = f"{percent(child.cpu_share)}, " if child.cpu_share is not None else ""
    longest = f"({share}longest {duration(child.longest_seconds)})"
    return f"{name} ×{child.exited:,} {duration(child.cpu_seconds)} {longest}"
