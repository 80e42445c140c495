# SPDX-License-Identifier: Apache-2.0
"""What `pipelined improve` tries and what came of it. Pure.

A `Way` is a pipeline to try in place of another one, from the rewrite of a finding. What was tried,
and what the ways that won gained in all, is an `Improvement`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pipelined.analysis.comparison import OUTPUTS, Comparison, compare_trials
from pipelined.analysis.comparison_reasons import Trial
from pipelined.analysis.comparison_rows import Figure
from pipelined.analysis.finding import Finding, Rewrite
from pipelined.analysis.shell_text import Pipeline, parse
from pipelined.analysis.side_effects import unsafe
from pipelined.runs import Run
from pipelined.runs.fields import Count, OneOf, Seconds, Unwritten

__all__ = [
    "ENDINGS",
    "OUTCOMES",
    "ImprovedPart",
    "Improvement",
    "Measured",
    "NotTried",
    "ScriptImprovement",
    "Tried",
    "Way",
    "compared",
    "may_be_tried",
    "moved",
    "ways",
]

#: What can come of a way.
OUTCOMES = ("won", "faster", "not-faster", "undecided", "output", "failed")
#: Why nothing more is tried.
ENDINGS = ("nothing-to-try", "nothing-left", "budget", "interrupted")


@dataclass(frozen=True, slots=True)
class Way:
    """A pipeline to try, or the one that is to be improved."""

    text: str
    """For a shell."""
    finding: str = ""
    """Id of the finding that advises it."""
    advice: str = ""
    rewrite: Rewrite | None = None
    reordered: bool = False
    """The order of its lines may be another one than that of the original."""
    unpacked: str = ""
    """What this command makes of its output has to be the same. Else empty."""
    cold: tuple[str, ...] = ()
    """Files that it reads from disk, as words for a shell."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A pipeline that was tried in place of another one."""

    command: str
    """As it was run."""
    instead_of: str
    """The command that it was measured against."""
    finding: str
    """Id of the finding that advised it."""
    advice: str
    """Of the finding."""
    outcome: Annotated[str, OneOf(OUTCOMES)]
    """`won`: it is part of the command to use; `faster`, but another one was still faster;
    `not-faster`; `undecided`: the rounds were too few, or did not agree; `output`: it printed
    something else; `failed`."""
    detail: str
    """What it printed, or how it failed; else empty."""
    rounds: Count
    """In which both were measured."""
    ratio: Figure | None
    """Its wall time over that of the other one, round by round; null if nothing was measured."""
    seconds: Seconds | None
    """Its wall time less that of the other one; the median over the rounds."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A command as it was measured, in turn with another one."""

    command: str
    """For a shell."""
    trials: tuple[Trial, ...]
    """Round by round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """What was tried to make a pipeline faster, and the command to use."""

    original: str
    """The pipeline as it was given."""
    command: str
    """The command to use: the original one, if nothing won."""
    outputs: Annotated[str, OneOf(OUTPUTS)]
    """How alike the outputs of both are."""
    unpacked: str
    """Both compress, and what this command makes of their outputs is the same. Else empty."""
    ended: Annotated[str, OneOf(ENDINGS)]
    """Why nothing more was tried: no finding of the first run has another way; none is left; the
    budget was used up; or it was interrupted."""
    error_line: str
    """The last line that the original printed on stderr in its first run; else empty."""
    executions: Count
    """How often a command was run, in all."""
    wall_seconds: Seconds
    """What all of that took."""
    tried: tuple[Tried, ...]
    """In the order in which they were tried; those that won build on each other."""
    measured: tuple[Measured, ...]
    """The original and the command to use, in turn; empty if nothing won, or if there was no time
    left for it."""
    first_run: Annotated[Run | None, Unwritten()] = None
    """The original as it ran first."""

    @property
    def steps(self) -> tuple[Tried, ...]:
        """What won."""
        return tuple(tried for tried in self.tried if tried.outcome == "won")

    @property
    def lost(self) -> tuple[Tried, ...]:
        """What did not."""
        return tuple(tried for tried in self.tried if tried.outcome != "won")

    @property
    def interrupted(self) -> bool:
        return self.ended == "interrupted"

    @property
    def comparison(self) -> Comparison | None:
        """Of the original and the command to use; None if they were not measured in turn."""
        return compared(self.measured, self.outputs) if self.measured else None


@dataclass(frozen=True, slots=True)
class ImprovedPart:
    """A pipeline of a script that was run by itself."""

    line: Count
    """Where it begins in the script."""
    seconds: Seconds
    """Of all its runs in the script."""
    improvement: Improvement
    """What was tried."""


@dataclass(frozen=True, slots=True)
class NotTried:
    """A pipeline of a script that was not run by itself."""

    pipeline: str
    """As it is written, or its signature."""
    line: Count | None
    """Where it begins in the script; null if that is not certain."""
    seconds: Seconds
    """Of all its runs in the script."""
    reason: str
    """Why."""


@dataclass(frozen=True, slots=True)
class ScriptImprovement:
    """What was tried to make the costliest pipelines of a script faster."""

    script: str
    """Name of its file."""
    wall_seconds: Seconds
    """Of the script, in the one time that it ran."""
    diff: str
    """The script with what won, as a patch; empty if nothing won."""
    pipelines: tuple[ImprovedPart, ...]
    """What was run by itself, the most seconds first."""
    not_tried: tuple[NotTried, ...]
    """What was not, the most seconds first."""

    @property
    def interrupted(self) -> bool:
        return any(part.improvement.interrupted for part in self.pipelines)


def compared(measured: Iterable[Measured], outputs: str) -> Comparison:
    """The commands side by side."""
    sides = tuple(measured)
    return compare_trials(
        [side.command for side in sides], [side.trials for side in sides], outputs=outputs
    )


def ways(found: Iterable[Finding], base: Way) -> list[Way]:
    """What the findings of a run of `base` advise to run in its place."""
    return [
        _way(base, rewrite, rewrite.new, finding.id, finding.advice)
        for finding in found
        if (rewrite := finding.rewrite) is not None
    ]


def moved(way: Way, base: Way) -> Way | None:
    """A way to change another pipeline, applied to `base`.

    The commands that it changes have to stand in `base` exactly once, one after the other. None if
    they do not.

    >>> rewrite = Rewrite(old="cat f | grep a | sort", new="grep a < f | sort")
    >>> moved(Way(rewrite.new, rewrite=rewrite), Way("cat f | grep a | LC_ALL=C sort")).text
    'grep a < f | LC_ALL=C sort'
    """
    rewrite, target = way.rewrite, parse(base.text)
    if rewrite is None or target is None:
        return None
    old, new = parse(rewrite.old), parse(rewrite.new)
    if old is None or new is None:
        return None
    texts = [[command.text for command in one.commands] for one in (old, new, target)]
    before, after, there = texts
    begin = _alike(before, after)
    end = _alike(before[begin:][::-1], after[begin:][::-1])
    changed = before[begin : len(before) - end]
    places = [
        at
        for at in range(len(there) - len(changed) + 1)
        if changed and there[at : at + len(changed)] == changed
    ]
    if len(places) != 1:
        return None
    at = places[0]
    put = new.commands[begin : len(after) - end]
    rest = target.commands[at + len(changed) :]
    text = Pipeline((*target.commands[:at], *put, *rest)).text
    return _way(base, rewrite, text, way.finding, way.advice)


def may_be_tried(way: Way) -> bool:
    """Whether it is a pipeline that is not known to change anything."""
    parsed = parse(way.text)
    return parsed is not None and not unsafe(parsed)


def _way(base: Way, rewrite: Rewrite, text: str, finding: str, advice: str) -> Way:
    """What was accepted for `base` is accepted for what builds on it."""
    return Way(
        text,
        finding,
        advice.removeprefix("Try: "),
        rewrite,
        base.reordered or rewrite.reordered,
        base.unpacked or rewrite.unpacked,
        base.cold or rewrite.cold,
    )


def _alike(one: list[str], other: list[str]) -> int:
    """How many items both have in common at their begin."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
