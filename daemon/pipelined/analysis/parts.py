# SPDX-License-Identifier: Apache-2.0
"""What the runs of one command add up to: a line for alike runs, and how much of its time they
cover.

Pure. Runs may overlap in time, and nested ones lie in another: seconds that are covered count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from pipelined.analysis.bottleneck import STORM
from pipelined.analysis.finding import SEVERITIES, Finding
from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Host
from pipelined.analysis.repeated import run_again
from pipelined.analysis.rewriting import Script
from pipelined.analysis.rules.cpus import COST
from pipelined.analysis.rules.processes import SHORT_LIFE, started_share
from pipelined.analysis.rules.rule import WORTH_SHARE
from pipelined.analysis.script_lines import ScriptFile
from pipelined.analysis.sentence import bottleneck_label, brief, main_bottleneck
from pipelined.nesting import Line, largest_first
from pipelined.runs import Run
from pipelined.wording import duration, listing

__all__ = ["Advice", "Part", "Parts"]

#: The finding of a stage that starts many short-lived processes, and of many short alike runs.
_STORM_ID = "fork-storm"
#: The finding of a run from which other work on the host took CPUs.
_BUSY_ID = "cpu-contention"
#: So many other pipelines are named in the sentence about it.
_NAMED = 3
#: Programs that start others for arguments: there is no loop.
_STARTERS = frozenset({"find", "parallel", "xargs"})
#: The clocks of the command and of its runs may differ by this (seconds).
_CLOCKS = 0.1
#: A run may begin this long after its command has ended: what that left behind (seconds).
_LATER = 10.0

_Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Advice:
    """What to try in alike runs."""

    id: str
    """Of the finding."""
    text: str
    """Of the longest run that has it; begins with ``Try:``."""
    runs: int
    """How many runs have the finding."""
    likely: float | None
    """Seconds that it is likely to save in all of them; None if that is not known."""
    bound: float | None
    """Seconds that it could save at most in all of them, no more than one of them was alive; None
    if that is not known."""

    @property
    def expected(self) -> float:
        """Its rank among others: what is likely, else the bound, else 0."""
        return (self.bound if self.likely is None else self.likely) or 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """Alike runs of a command: all runs of one pipeline, or of one program, in the same place."""

    line: Line[Run]
    """How it is listed; its run is the longest."""
    wall_seconds: float
    """Of all its runs together: more than passed if they ran at the same time."""
    cpu_seconds: float
    bottleneck: str | None
    """What held its runs back for most of their time, as ``sort: CPU``; None: not known."""
    bottleneck_share: float | None
    """Share of that time."""
    advice: Advice | None
    incomplete: tuple[Run, ...] = ()
    """Those of its runs that have failed or were interrupted, the longest first."""
    lines: tuple[int, ...] = ()
    """Numbers of the lines of the script that it may be, from 1; empty: none is certain to be."""

    @property
    def longest(self) -> Run:
        return self.line.run


@dataclass(frozen=True, slots=True)
class Parts:
    """All runs of a command."""

    parts: tuple[Part, ...]
    """The one with the most wall time first, each followed by those that lie in it."""
    outermost_runs: int
    """How many runs lie in no other."""
    covered_seconds: float
    """Of the command's wall time, that in which a run was alive."""
    alive_seconds: float
    """How long a run was alive, also after the command's end."""
    cpu_seconds: float
    """Of all runs."""
    notice: str = ""
    """A sentence for the top of the report, if other work on the host took CPUs from runs."""
    repeated: str = ""
    """A sentence on a command that several lines of the script begin with, where once would do."""

    @classmethod
    def of(
        cls,
        runs: Sequence[Run],
        start: float,
        wall: float,
        host: Host,
        script_of: Callable[[Run], Script | None] = Script.of_arguments,
        file: ScriptFile | None = None,
    ) -> Parts:
        """The parts of a command that began at `start` (Unix time) and took `wall` seconds.

        It ran on `host`; `script_of` is what is known of one of its runs, and `file` the script
        that it ran.
        """
        grouped = largest_first(runs, _wall)
        outermost = [run for line, members in grouped if not line.depth for run in members]
        spans = [_span(run) for run in outermost]
        found = {run.id: findings(run, host, script_of(run)) for run in runs}
        parts: list[Part] = []
        for line, members in grouped:
            advice = _best(members, found)
            if advice is None and not _in_storm(parts, line.depth):
                advice = _fewer_runs(
                    line, members, spans, wall, host, _started_by(parts, line.depth)
                )
            parts.append(
                Part(
                    line,
                    sum(map(_wall, members)),
                    _cpu(members),
                    *_bottleneck(members),
                    advice,
                    tuple(sorted((run for run in members if not run.complete), key=_shortness)),
                    file.lines_of(members) if file else (),
                )
            )
        covered = _covered(spans, start, wall)
        notice = _notice(outermost, found, wall)
        alive = _union(spans, -inf, inf)
        again = run_again(runs, wall, file)
        return cls(tuple(parts), len(outermost), covered, alive, _cpu(outermost), notice, again)


def _wall(run: Run) -> float:
    return run.wall_seconds


def _shortness(run: Run) -> tuple[float, float]:
    return -run.wall_seconds, run.start


def _cpu(runs: Iterable[Run]) -> float:
    return sum(run.cpu_seconds for run in runs)


def _bottleneck(runs: Iterable[Run]) -> tuple[str | None, float | None]:
    """What held the runs back for most of their time, and for how much of it."""
    walls: dict[str, float] = {}
    for run in runs:
        label = bottleneck_label(brief(run))
        walls[label] = walls.get(label, 0.0) + run.wall_seconds
    return main_bottleneck(walls)


def _span(run: Run) -> _Interval:
    return run.start, run.start + run.wall_seconds


def _covered(spans: Sequence[_Interval], start: float, wall: float) -> float:
    """How much of the command's time lies in one of the intervals, in seconds."""
    end = start + wall
    if all(start - _CLOCKS <= begin <= end + _LATER for begin, _ in spans):
        return _union(spans, start, end)
    # A daemon's clock was set before the host's own was set anew, or slept.
    return min(wall, _union(spans, -inf, inf))


def _union(spans: Iterable[_Interval], start: float, end: float) -> float:
    """The length of all intervals together between two moments; what overlaps counts once."""
    total, reached = 0.0, start
    for begin, stop in sorted(spans):
        total += max(0.0, min(stop, end) - max(begin, reached))
        reached = max(reached, min(stop, end))
    return total


def _notice(runs: Sequence[Run], found: Mapping[str, Sequence[Finding]], wall: float) -> str:
    """What other work on the host cost the outermost runs of a command of `wall` seconds."""
    held = [(run, one) for run in runs for one in found[run.id] if one.id == _BUSY_ID]
    if not held:
        return ""
    cost = sum(figure.value for _, one in held for figure in one.evidence if figure.name == COST)
    alive = _union([_span(run) for run, _ in held], -inf, inf)
    own = {run.pipeline for run in runs}
    around = [run.surroundings.pipelines for run, _ in held if run.surroundings]
    busiest = [pipelines[0].pipeline for pipelines in around if pipelines]
    named = [name for name in dict.fromkeys(busiest) if name not in own][:_NAMED]
    who = f" (busiest: {listing(named)})" if named else ""
    which = (
        "the run" if len(runs) == 1 else f"{len(held):,} of the {len(runs):,} runs inside no other"
    )
    return (
        f"The host was busy: {which} waited for CPUs that others used{who}, which cost at most "
        f"{duration(min(cost, alive, wall))} of {duration(wall)}."
    )


def _best(runs: Sequence[Run], by_run: Mapping[str, Sequence[Finding]]) -> Advice | None:
    """The most severe finding with advice; of several the one that could save most in all runs."""
    found: dict[str, list[tuple[Run, Finding]]] = {}
    for run in runs:
        for finding in by_run[run.id]:
            if finding.advice:
                found.setdefault(finding.id, []).append((run, finding))
    if not found:
        return None
    ranked = [(_severity(having), _advice(having)) for having in found.values()]
    return min(ranked, key=lambda one: (one[0], -one[1].expected))[1]


def _severity(having: Iterable[tuple[Run, Finding]]) -> int:
    return min(SEVERITIES.index(finding.severity) for _, finding in having)


def _advice(having: Sequence[tuple[Run, Finding]]) -> Advice:
    """One finding of several runs."""
    _, longest = max(having, key=lambda one: _wall(one[0]))
    likely = [f.likely_seconds for _, f in having if f.likely_seconds is not None]
    most = [f.gain_seconds for _, f in having if f.gain_seconds is not None]
    # runs at the same time save no more than the time in which they ran
    alive = _union([_span(run) for run, _ in having], -inf, inf)
    # and are likely to save the same share of it as of their own
    at_once = min(1.0, alive / sum(_wall(run) for run, _ in having))
    return Advice(
        longest.id,
        longest.advice,
        len(having),
        sum(likely) * at_once if likely else None,
        min(sum(most), alive) if most else None,
    )


def _in_storm(parts: Sequence[Part], depth: int) -> bool:
    """Whether a part around the next one, which is so deep, is advised to start less."""
    for part in reversed(parts):
        if part.line.depth < depth:
            if part.advice and part.advice.id == _STORM_ID:
                return True
            depth = part.line.depth
    return False


def _started_by(parts: Sequence[Part], depth: int) -> str:
    """The program with arguments for others in the part around the next one, which is so deep;
    empty if there is none."""
    around = next((part for part in reversed(parts) if part.line.depth < depth), None)
    commands = [stage.command for stage in around.longest.stages] if around else []
    return next((command for command in commands if command in _STARTERS), "")


def _fewer_runs(
    line: Line[Run],
    runs: Sequence[Run],
    outermost: Sequence[_Interval],
    wall: float,
    host: Host,
    starter: str,
) -> Advice | None:
    """What to try if there are many short runs: starting their programs is most of the work.

    The bound is the time from the first to the last of them, with what the shell did in between,
    but without that in which only other runs were alive.
    """
    spans = [_span(run) for run in runs]
    took = sum(map(_wall, runs))
    if len(runs) < STORM or took > SHORT_LIFE * len(runs) or took < WORTH_SHARE * wall:
        return None
    start, end = min(spans)[0], max(stop for _, stop in spans)
    own = _union(spans, start, end)
    between = 0.0 if line.depth else end - start - _union(outermost, start, end)
    bound = min(wall, own + between)
    likely = None
    if host.costs:
        started = sum(len(run.stages) + sum(stage.forks for stage in run.stages) for run in runs)
        likely = bound * started_share(_cpu(runs), host.costs.program_seconds * started)
    return Advice(
        _STORM_ID,
        f"Try: one program for many arguments of {starter}, in place of a pipeline for each."
        if starter
        else "Try: one awk in place of the loop, or one program that treats all lines.",
        len(runs),
        likely,
        bound,
    )
