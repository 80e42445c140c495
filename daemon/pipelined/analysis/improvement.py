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
from pipelined.analysis.shell_text import Command, Pipeline, in_common, parse
from pipelined.analysis.side_effects import unsafe
from pipelined.command_names import BARRIERS
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
    "together",
    "ways",
]

#: What can come of a way.
OUTCOMES = ("won", "faster", "not-faster", "undecided", "output", "failed", "status")
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
    """A pipeline that was to be tried in place of another one."""

    command: str
    """For a shell."""
    instead_of: str
    """The command in whose place."""
    finding: str
    """Id of the finding that advised it; of several, with commas."""
    advice: str
    """Of the finding."""
    outcome: Annotated[str, OneOf(OUTCOMES)]
    """`won`: it is part of the command to use; `faster`, but another one was still faster;
    `not-faster`; `undecided`: the rounds were too few, or did not agree; `output`: it printed
    something else; `failed`; `status`: it was not run, as the script goes by the exit status,
    which may be another one."""
    detail: str
    """What it printed, how it failed, or when its exit status changes; else empty."""
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
    prints: bool
    """Whether the original printed anything. If not, nothing shows that the others do its work."""
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
        """What was run and did not."""
        return tuple(tried for tried in self.tried if tried.outcome not in ("won", "status"))

    @property
    def kept_back(self) -> tuple[Tried, ...]:
        """What was not run for its exit status."""
        return tuple(tried for tried in self.tried if tried.outcome == "status")

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
    interrupted: bool = False
    """Ctrl-C ended it before its end."""


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

    The commands that it changes have to stand in `base` exactly once, one after the other; where a
    sort is left out or moved, before the same commands: these made it superfluous. None if they do
    not.

    >>> rewrite = Rewrite(old="cat f | grep a | sort", new="grep a < f | sort")
    >>> moved(Way(rewrite.new, rewrite=rewrite), Way("cat f | grep a | LC_ALL=C sort")).text
    'grep a < f | LC_ALL=C sort'
    """
    rewrite, target, change = way.rewrite, parse(base.text), _change(way)
    if rewrite is None or target is None or change is None:
        return None
    before, begin, end, put = change
    there = [command.text for command in target.commands]
    changed, behind = before[begin:end], before[end:]
    places = [
        at
        for at in range(len(there) - len(changed) + 1)
        if changed and there[at : at + len(changed)] == changed
    ]
    if len(places) != 1:
        return None
    at = places[0]
    if _moves_barrier(changed, put) and there[at + len(changed) :] != behind:
        return None
    rest = target.commands[at + len(changed) :]
    text = Pipeline((*target.commands[:at], *put, *rest)).text
    return _way(base, rewrite, text, way.finding, way.advice)


def together(some: Iterable[Way], base: Way) -> Way | None:
    """All of these ways to change `base` at once, as far as they change other commands of it.

    None if fewer than two do.

    >>> some = [Rewrite(old="cat f | sort | wc", new=new) for new in ("sort f | wc", "cat f | wc")]
    >>> some += [Rewrite(old="cat f | sort | wc", new="cat f | sort | wc -l")]
    >>> together([Way(one.new, rewrite=one) for one in some], Way("cat f | sort | wc")).text
    'sort f | wc -l'
    """
    target = parse(base.text)
    if target is None:
        return None
    there, taken = target.commands, list[tuple[int, int, Way, tuple[Command, ...]]]()
    for way in some:
        change = _change(way)
        if change is None or change[0] != [command.text for command in there]:
            continue
        _, begin, end, put = change
        if all(end <= first or last <= begin for first, last, _, _ in taken):
            taken.append((begin, end, way, put))
    if len(taken) < 2:
        return None
    commands = list(there)
    for begin, end, _, put in sorted(taken, key=lambda one: one[:2], reverse=True):
        commands[begin:end] = put
    rewrites = [way.rewrite for _, _, way, _ in taken if way.rewrite]
    text = Pipeline(tuple(commands)).text
    rewrite = Rewrite(
        old=base.text,
        new=text,
        reordered=any(one.reordered for one in rewrites),
        unpacked=next((one.unpacked for one in rewrites if one.unpacked), ""),
        cold=rewrites[0].cold,
    )
    findings = dict.fromkeys(way.finding for _, _, way, _ in taken)
    advice = dict.fromkeys(way.advice.removesuffix(".") for _, _, way, _ in taken)
    return _way(base, rewrite, text, ", ".join(findings), f"together: {'; '.join(advice)}.")


def may_be_tried(way: Way) -> bool:
    """Whether it is a pipeline that is not known to change anything."""
    parsed = parse(way.text)
    return parsed is not None and not unsafe(parsed)


def _change(way: Way) -> tuple[list[str], int, int, tuple[Command, ...]] | None:
    """The commands of the pipeline that a way changes; from which to before which it changes them;
    and what stands there then. None if that is not known."""
    rewrite = way.rewrite
    old, new = (parse(rewrite.old), parse(rewrite.new)) if rewrite else (None, None)
    if old is None or new is None:
        return None
    begin, end = in_common(old, new)
    before = [command.text for command in old.commands]
    return before, begin, len(before) - end, new.commands[begin : len(new.commands) - end]


def _moves_barrier(changed: list[str], put: tuple[Command, ...]) -> bool:
    """Whether a change leaves out a sort or the like, or puts it in another place."""
    parsed = parse(" | ".join(changed))
    old = [command.program for command in parsed.commands] if parsed else []
    return old != [command.program for command in put] and not BARRIERS.isdisjoint(old)


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
