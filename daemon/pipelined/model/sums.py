# SPDX-License-Identifier: Apache-2.0
"""Sums over runs, and what they grow by from one sweep to the next.

All in the units of the records: nanoseconds, bytes, calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import add, sub
from typing import NamedTuple

from pipelined.model.ledger import OTHER
from pipelined.records.stage import COUNTERS
from pipelined.runs import FAILURES, LEVELS, STATES, Flow, Place

__all__ = [
    "OTHER_PLACE",
    "READ_BYTES",
    "WRITTEN_BYTES",
    "EndedRun",
    "SeenStage",
    "StageSums",
    "Sums",
    "add_once",
    "grow",
    "grow_flow",
    "grow_functions",
    "grow_modes",
]

OTHER_PLACE: Place = (0, OTHER)

#: Runs are counted nearly in the order of their ends: one to which more stages could have joined up
#: to a second later (seconds). An end before that is by a clock that was set back since.
_NEARLY = 2.0

#: What a `Flow` counts.
_FLOWS = 4
_COUNTED = len(STATES) + len(COUNTERS)
_USER, _SYSTEM, READ_BYTES, WRITTEN_BYTES = (
    len(STATES) + COUNTERS.index(name)
    for name in ("user_ns", "system_ns", "read_bytes", "written_bytes")
)


@dataclass(slots=True)
class StageSums:
    """What grows under one place in a pipeline, in the units of the records."""

    counted: list[int] = field(default_factory=lambda: [0] * _COUNTED)
    user_ns: int = 0
    system_ns: int = 0
    functions: list[int] = field(default_factory=list)
    """As in the record; the last value is not a sum, but the pipe written to last."""
    readahead: list[int] = field(default_factory=list)
    flow: list[int] = field(default_factory=lambda: [0] * _FLOWS)
    """Through pipes in and out, and the rest read and written, as in `Flow`."""
    bounded: bool = False
    """Some of `flow` are bounds."""

    def flowed(self) -> Flow:
        pipe_in, pipe_out, file_read, file_written = self.flow
        return Flow(pipe_in, pipe_out, file_read, file_written, not self.bounded)

    def fold(self, other: StageSums) -> None:
        self.counted = list(map(add, self.counted, other.counted))
        self.user_ns += other.user_ns
        self.system_ns += other.system_ns
        self.flow = list(map(add, self.flow, other.flow))
        self.bounded |= other.bounded
        if other.functions:
            *counted, slots = self.functions or [0] * len(other.functions)
            self.functions = [*map(add, counted, other.functions), other.functions[-1] or slots]
        if other.readahead:
            readahead = self.readahead or [0] * len(other.readahead)
            self.readahead = list(map(add, readahead, other.readahead))

    def grown(self) -> bool:
        """Whether anything is counted: a run that is counted late may have stages that were over
        before."""
        return any(map(any, (self.counted, self.flow, self.functions, self.readahead)))

    def filled(self) -> int:
        """How many values are not 0, and one more."""
        tiers = (self.counted, self.functions, self.readahead, self.flow)
        return 1 + sum([len(values) - values.count(0) for values in tiers])


class EndedRun(NamedTuple):
    """One of the runs that were counted, and the trace that it is in."""

    run_id: str
    trace_id: str
    wall_seconds: float
    end: float
    """Unix time."""


@dataclass(slots=True)
class Sums:
    """What grows under one series; nanoseconds. An account of the ledger."""

    runs: int = 0
    active: int = 0
    outermost: str | None = None
    last_run_seconds: float | None = None
    last_run_end: float | None = None
    last_complete_end: float | None = None
    """Of the last run that has neither failed nor was interrupted, as far as that is known."""
    failed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAILURES, 0))
    """Runs that have failed, by the gravest reason."""
    last_failed_end: dict[str, float] = field(default_factory=dict)
    """When the last of them ended, by reason."""
    traced: EndedRun | None = None
    """The last run whose trace a store has, by its end; None if there is no such store."""
    failed_traced: dict[str, EndedRun] = field(default_factory=dict)
    """The last such run that has failed, by reason."""
    interrupted: int = 0
    last_usual_ratio: float | None = None
    clock: list[int] = field(default_factory=lambda: [0] * (2 * len(LEVELS)))
    """By level, while no stage waited for disk; then by level, while one did."""
    stages: dict[Place, StageSums] = field(default_factory=dict)

    def ended(
        self,
        result: str,
        failure: str | None,
        wall: float,
        end: float,
        traced: EndedRun | None = None,
    ) -> None:
        """A run has ended with this result, and if it has failed for this reason.

        `traced` is that run, if a store has its trace.
        """
        self.runs += 1
        if not _is_later(self.last_run_end, end):
            self.last_run_seconds, self.last_run_end = wall, end
        if traced is not None:
            self.traced = _last(self.traced, traced)
            if failure is not None:
                self.failed_traced[failure] = _last(self.failed_traced.get(failure), traced)
        if failure is not None:
            self.failed[failure] += 1
            if not _is_later(self.last_failed_end.get(failure), end):
                self.last_failed_end[failure] = end
        elif result == "interrupted":
            self.interrupted += 1
        elif not _is_later(self.last_complete_end, end):
            self.last_complete_end = end

    def fold(self, other: Sums) -> None:
        """Add all of it under `OTHER`, of which no run is the last one."""
        self.runs += other.runs
        for reason, runs in other.failed.items():
            self.failed[reason] += runs
        self.interrupted += other.interrupted
        self.active += other.active
        self.clock = list(map(add, self.clock, other.clock))
        for stage in other.stages.values():
            self.stages.setdefault(OTHER_PLACE, StageSums()).fold(stage)

    def counted(self) -> bool:
        stages = self.stages.values()
        return bool(self.runs or any(self.clock) or any(stage.grown() for stage in stages))

    def filled(self) -> tuple[int, bool]:
        """How many values are not 0, but for the one that may be unknown again."""
        levels = len(self.clock) - self.clock.count(0)
        stages = sum([stage.filled() for stage in self.stages.values()])
        known = (
            self.runs or None,
            self.outermost,
            self.last_run_end,
            self.last_complete_end,
            self.interrupted or None,
        )
        whole = len(known) - known.count(None) + len(self.last_failed_end)
        return levels + stages + whole, self.last_usual_ratio is None


def _last(counted: EndedRun | None, run: EndedRun) -> EndedRun:
    """The one that ended last."""
    return counted if counted and _is_later(counted.end, run.end) else run


def _is_later(counted: float | None, end: float) -> bool:
    """Whether a run that is counted already ended later (both Unix times)."""
    return counted is not None and end < counted <= end + _NEARLY


@dataclass(slots=True)
class SeenStage:
    """The figures that a stage had when last seen; it may move to another run when runs merge."""

    arguments: str | None
    counted: list[int] = field(default_factory=list)
    user_ns: int = 0
    system_ns: int = 0
    functions: list[int] = field(default_factory=list)
    readahead: list[int] = field(default_factory=list)
    flow: list[int] = field(default_factory=list)


def grow(total: list[int], before: list[int], now: Sequence[int]) -> None:
    """Add to `total` how much each value exceeds the largest one seen, which is `before`.

    An empty `before`: none was seen.
    """
    grown = list(map(sub, now, before)) if before else now
    if min(grown) < 0:
        grown = [max(0, growth) for growth in grown]
    total[:] = map(add, total, grown)
    before[:] = map(add, before, grown) if before else grown


def grow_modes(total: StageSums, seen: SeenStage) -> None:
    """Split the exact CPU time of a stage by the kernel's ticks, and add to `total`.

    Neither part goes back: as cputime_adjust in kernel/sched/cputime.c.
    """
    cpu = seen.counted[0]
    system = min(max(_system_share(seen.counted), seen.system_ns), cpu - seen.user_ns)
    total.system_ns += system - seen.system_ns
    total.user_ns += cpu - system - seen.user_ns
    seen.system_ns, seen.user_ns = system, cpu - system


def _system_share(counted: Sequence[int]) -> int:
    """How much of a stage's CPU time was the kernel's, by the ticks alone."""
    ticks = counted[_SYSTEM]
    return counted[0] * ticks // (counted[_USER] + ticks) if ticks else 0


def add_once(total: StageSums, counted: Sequence[int], flow: Flow) -> tuple[int, int]:
    """Add a stage that was never seen before and will not be seen again, as of a short run.

    What `grow`, `grow_modes` and `grow_flow` add of a new `SeenStage`, in a third of their time.
    Returns its user and system time.
    """
    if min(counted) < 0:
        counted = [max(0, value) for value in counted]
    total.counted[:] = map(add, total.counted, counted)
    system = _system_share(counted)
    user = counted[0] - system
    total.user_ns += user
    total.system_ns += system
    sums = total.flow
    sums[0] += flow.pipe_in or 0
    sums[1] += flow.pipe_out or 0
    sums[2] += flow.file_read or 0
    sums[3] += flow.file_written or 0
    total.bounded |= not flow.exact
    return user, system


def grow_flow(total: StageSums, seen: SeenStage, now: Flow) -> None:
    """Add what is known of `now`.

    While a run is live its stages are read one after the other, so that what one wrote may be
    missing yet beside what the next has read. Then the latter counts as read from files, at most
    what moved during one sweep.
    """
    parts = (now.pipe_in, now.pipe_out, now.file_read, now.file_written)
    grow(total.flow, seen.flow, [part or 0 for part in parts])
    total.bounded |= not now.exact


def grow_functions(total: StageSums, seen: SeenStage, now: Sequence[int]) -> None:
    *counted, slots = total.functions or [0] * len(now)
    grow(counted, seen.functions, now[:-1])
    total.functions = [*counted, now[-1] or slots]
