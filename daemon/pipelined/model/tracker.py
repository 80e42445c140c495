# SPDX-License-Identifier: Apache-2.0
"""Runs, time lines and totals, from what each sweep read. Pure: knows no BPF, HTTP or Prometheus.

Totals grow by what each run grew since the sweep before, under the signature that the
run had then; so they never go back, whatever a run turns out to be, and a run that ended
between two sweeps is in them whole. A run has its own name always; which names have totals of their
own is the ledger's business (`ledger`), for Prometheus alone.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import islice
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

from pipelined.kernel.layout import COUNTERS
from pipelined.kernel.records import (
    NO_READAHEAD,
    NS,
    Group,
    StageRecord,
    decode_functions,
    decode_readahead,
    joined,
)
from pipelined.model.cpu_accounts import CpuAccounts
from pipelined.model.enclosing import Enclosing, around
from pipelined.model.flow import flows
from pipelined.model.ledger import Ledger
from pipelined.model.short_runs import ShortRuns
from pipelined.model.signature import Order, arrange
from pipelined.model.started import Started
from pipelined.model.sums import (
    OTHER_PLACE,
    READ_BYTES,
    WRITTEN_BYTES,
    SeenStage,
    StageSums,
    Sums,
    grow,
    grow_flow,
    grow_functions,
    grow_modes,
)
from pipelined.model.surroundings import Lived, Reading, surroundings
from pipelined.model.timeline import NOTED, Moment, Track
from pipelined.runs import (
    LEVELS,
    STATES,
    Flow,
    PipeEnd,
    Place,
    Run,
    Series,
    Stage,
    StageCounters,
    Surroundings,
    Timeline,
)
from pipelined.starter import Starter

__all__ = ["Finished", "Model", "SeriesUse", "StartedRuns", "Totals"]

#: Seconds from the end of a pipeline's last process until the run is counted as finished: for one
#: with a pipe whose other end is not known, and for one without.
_GRACE, _GRACE_CLOSED = 1.0, 0.1

#: Seconds from a pipeline's start until its live run is shown and counted. Until then its stages
#: are still being forked and exec'd, and its signature is not the final one.
_STARTING = 0.1

#: Bytes that the time lines of all live runs may take together, and that of one run.
_TRACKS_BYTES, _TRACK_BYTES = 6 << 20, 256 << 10

#: So many of the runs that ended last keep their time line.
_TRACKED = 50

#: Shorter runs have no surroundings (seconds). They are looked for among what lives and so many of
#: the runs that ended last.
_SURROUNDED, _OTHERS = 0.25, 200

#: Counters that a view shows as they are: bytes, calls, sleeps, processes.
_PLAIN_COUNTERS = tuple(
    name for name in COUNTERS if not name.endswith("_ns") and name != "exec_failures"
)

# Signatures repeat: a host runs the same jobs over and over.
_arrange = lru_cache(maxsize=256)(arrange)


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all runs of one pipeline, finished and live."""

    runs: int
    active: int
    outermost: str | None
    """Of a nested pipeline: the one that its last run lay in, and that none encloses."""
    run_seconds: float
    last_run_seconds: float | None
    last_run_end: float | None
    last_usual_ratio: float | None
    """Wall time of the run that was stored last, as a multiple of what is usual; None: unknown."""
    levels: tuple[float, ...]
    disk_overlapped_seconds: float
    disk_alone_seconds: float
    stages: Mapping[Place, StageCounters]


class SeriesUse(NamedTuple):
    """How much of the budget of series is in use, and what is left out of it."""

    budget: int
    used: int
    folded: int
    """Pipelines that ran lately and have no series of their own."""
    heaviest_folded_seconds: float
    """Run time of the heaviest of them, halved every `ledger.HALF_LIFE`."""


class StartedRuns(NamedTuple):
    """What a process has started (`Starter`)."""

    finished: int
    """How many of its runs have ended, ever."""
    runs: list[Run]
    """Those that were asked for and are still kept, the first to end first; then the live ones."""


class Finished(NamedTuple):
    """A run that has ended. Most are too short to be of interest, so the rest is made on demand."""

    wall_seconds: float
    make: Callable[[], tuple[Run, Timeline]]
    """The run and its time line; may be called in any thread."""
    series: Series
    end: float
    """Unix time."""
    cpu_seconds: float
    not_overlapped_seconds: float
    """Of the wall time, that with at most one stage on CPU."""
    read_bytes: int
    written_bytes: int
    """By all stages: what goes through a pipe is written by one and read by the next."""


class _Facts(NamedTuple):
    user_ns: int
    system_ns: int
    arguments: str | None


@dataclass(slots=True, eq=False)
class _Sighting:
    """A run as one sweep saw it; a `Run` is made of it on demand."""

    group: Group
    series: Series
    edges: tuple[tuple[int, int], ...]
    """(writer, reader) as indexes into the group's stages by start."""
    records: tuple[StageRecord, ...]
    """The group's stages by start."""
    facts: tuple[_Facts, ...]
    """For each of `records`, what it does not contain."""
    flows: tuple[Flow, ...]
    """For each of `records`."""
    enclosing: Enclosing | None
    track: Track | None
    """None of a run that no sweep saw live, and once it is forgotten."""
    forgotten: bool = False
    """Its time line is no longer kept."""
    end_ns: int | None = None
    """Set when its last stage has ended: the run may not be finished yet."""
    before: Reading | None = None
    """As in `_Seen`."""
    surroundings: Surroundings | None = None
    """Of a run that has ended. Those of a live one are found on demand."""
    run: Run | None = None


@dataclass(slots=True)
class _Seen:
    """A run as of the sweep before: what has been counted of it, so that only growth is."""

    sighting: _Sighting | None = None
    enclosing: Enclosing | None = None
    """Kept when the records of the enclosing run are given back first."""
    clock: list[int] = field(default_factory=list)
    track: Track | None = None
    before: Reading | None = None
    """The accounts of the host before it began, as far as that is known."""
    ended: bool = False
    surroundings: Surroundings | None = None
    """As of the first sweep after its end."""
    finished: bool = False


class Model:
    """Takes in the groups of each sweep; returns runs and totals."""

    def __init__(
        self,
        *,
        max_series: int | None = None,
        series_of: Callable[[Totals], int] = lambda _: 0,
        recent_runs: int,
        unit_of: Callable[[int], str],
        unix: float,
        arguments_of: Callable[[int], str | None] | None = None,
        exec_failures: bool = False,
        pipe_bytes: bool = False,
        pending_tiers: Collection[str] | None = None,
        on_finished: Callable[[Finished], object] | None = None,
        accounts: CpuAccounts | None = None,
        home: Path | None = None,
    ) -> None:
        """`max_series` bounds the totals (`ledger`); `series_of`: as how many series they count.

        `unit_of` names a cgroup id; `exec_failures`, `pipe_bytes`: hooks that count them are
        attached. `unix` (seconds) turns stamps of CLOCK_MONOTONIC into Unix time. `on_finished` is
        called for each run that ends, in the middle of a sweep: it has to be quick. `pending_tiers`
        are those whose hooks may still be attached (`hooks_attached`); None: no hook will follow.
        `accounts` are those of the host's CPUs; `home` is the cgroup in which runs begin, if that
        is known.
        """
        self._max_series = max_series
        self._unit_of = unit_of
        self._unix = unix
        self._arguments_of = arguments_of
        self._exec_failures = exec_failures
        self._pipe_bytes = pipe_bytes
        self._tiers = tuple(sorted(pending_tiers or ()))
        self._complete_ns = 0.0 if pending_tiers is None else math.inf
        self._on_finished = on_finished
        self._accounts = accounts
        self._home = home
        self._reading: Reading | None = None
        self._track_bytes = _TRACK_BYTES
        self._ledger: Ledger[Sums] = Ledger(
            max_series, new=Sums, cost=lambda sums: series_of(self._totals(sums))
        )
        self._now = 0.0
        self._runs: dict[int, _Seen] = {}
        self._stages: dict[tuple[int, int], SeenStage] = {}
        self._live: list[_Sighting] = []
        self._ended: list[_Sighting] = []
        """Their stages have ended, but they are not finished: another stage may still join."""
        self._lived_before: list[_Sighting] = []
        self._conversations: list[Group] = []
        self._recent: deque[_Sighting] = deque(maxlen=recent_runs)
        self._started: Started[_Sighting] = Started()
        self._short = ShortRuns()
        self.ended_runs = 0
        """How many runs are finished, ever."""

    def hooks_attached(
        self, now: float, tiers: Collection[str], *, exec_failures: bool, pipe_bytes: bool
    ) -> None:
        """All hooks are attached at monotonic time `now` (seconds), of the optional `tiers` these.

        Figures of these tiers are partial for a stage that began before, and in no totals.
        """
        self._tiers = tuple(sorted(tiers))
        self._complete_ns = now / NS
        self._exec_failures = exec_failures
        self._pipe_bytes = pipe_bytes

    def compared(self, series: Series, usual_ratio: float | None) -> None:
        """A run of the pipeline took so many times as long as usual; None: that is not known.

        It is not noted of a pipeline without totals of its own.
        """
        if (sums := self._ledger.own(series)) is not None:
            sums.last_usual_ratio = usual_ratio

    def update(
        self, groups: Sequence[Group], now: float, *, settle: bool | Starter = False
    ) -> list[StageRecord]:
        """Take in a sweep that began at monotonic time `now` (seconds).

        What ended before it began, it has seen whole; not so what ended while it read.
        A run whose last stage has ended is live no more. It is finished (counted, and passed to
        `on_finished`) some time later, as a stage that has not been met yet may still join it; with
        `settle` it is finished at once, or so are those of one starter. Returns the stages that are
        over and counted: their records can be given back.
        """
        by_stage = {stage.index: group for group in groups for stage in group.stages}
        over: list[StageRecord] = []
        self._track_bytes = min(_TRACK_BYTES, _TRACKS_BYTES // (len(self._live) or 1))
        self._lived_before, self._live, self._ended = [*self._live, *self._ended], [], []
        before, self._reading = self._reading, self._read(now, self._home)
        self._conversations = []
        self._now = now
        self._started.forget(now)
        for _, sums in self._ledger.accounts():
            sums.active = 0
        for group in groups:
            ended = all(stage.ended for stage in group.stages)
            age = now - NS * max(stage.end_ns for stage in group.stages)
            over_now = ended and age >= (_GRACE_CLOSED if group.closed else _GRACE)
            at_once = settle is True or (settle is not False and settle in group.starters)
            finished = over_now or (ended and at_once)
            starting = now - NS * group.clock.start_ns < _STARTING
            if group.conversation and not ended:
                self._conversations.append(group)
            if group.is_run:
                seen = self._runs.setdefault(group.root, _Seen(before=before or self._reading))
                outer = around(group, by_stage)
                if outer or group.stages[0].outer in by_stage:
                    seen.enclosing = self._enclosing(outer, by_stage) if outer else None
                # what a stage of a pipeline starts is that stage, and not alone
                apart = (
                    len(group.stages) > 1
                    or seen.enclosing is None
                    or seen.enclosing.alone
                    or not group.starters <= seen.enclosing.starters  # that is around the starter
                )
                if apart and (finished or at_once or not starting):
                    self._take_in(group, seen, ended, finished)
            # what is inside a stage that has retired leaves it by the next sweep
            if over_now and not any(stage.live for stage in group.stages):
                over.extend(group.stages)
                self._runs.pop(group.root, None)
        for stage in over:
            self._stages.pop((stage.index, stage.generation), None)
        # what was merged into another run is none of its own any more
        for root in self._runs.keys() - {group.root for group in groups}:
            del self._runs[root]
        self._ledger.settle(now)
        return over

    def runs(self) -> list[Run]:
        """Live runs, then those that ended lately; newest start first in each."""
        return [
            run
            for sightings in (self._live, [*self._ended, *self._recent])
            for run in sorted(map(self._run, sightings), key=lambda run: -run.start)
        ]

    def started(self, starter: Starter, after: int) -> StartedRuns:
        """The runs that a process started: finished ones but the first `after`, and live ones."""
        finished = self._started.after(starter, after)
        live = [sighting for sighting in self._live if starter in sighting.group.starters]
        runs = [self._run(sighting) for sighting in (*finished, *live)]
        return StartedRuns(self._started.count(starter), runs)

    def conversations(self) -> list[Run]:
        """Stages that talk to each other or to their parent, as if they were runs; in no totals."""
        return sorted(map(self._conversation, self._conversations), key=lambda run: -run.start)

    @property
    def live(self) -> int:
        """How many live runs are shown and counted."""
        return len(self._live)

    def timeline(self, run_id: str) -> Timeline | None:
        """The time line of a live or recent run; None for others, and once it is forgotten."""
        for sighting in (*self._live, *self._ended, *self._recent):
            if not sighting.forgotten and self._run_id(sighting.group) == run_id:
                return self._timeline(sighting, sighting.track)
        return None

    def short_runs(self) -> Mapping[str, int]:
        """How many runs of less than `SHORT` ended in the last minute, by signature."""
        return self._short.counted(self._now)

    def totals(self) -> dict[Series, Totals]:
        """Everything counted so far, by series."""
        return {series: self._totals(sums) for series, sums in self._ledger.accounts()}

    def series_use(self) -> SeriesUse:
        """How much of the budget is in use; a budget of 0 is none."""
        return SeriesUse(self._max_series or 0, self._ledger.used, *self._ledger.folded(self._now))

    # -- counting

    def _take_in(self, group: Group, seen: _Seen, ended: bool, finished: bool) -> None:
        if seen.finished:
            return
        sighting, nested = seen.sighting, seen.enclosing is not None
        if sighting is None or sighting.group is not group or sighting.series.nested != nested:
            if not (finished or seen.track):
                seen.track = Track()
                seen.before = self._joined(seen.before, group)
            sighting = seen.sighting = self._sight(group, seen)
            if seen.track and not finished:
                seen.track.add(_moment(group, sighting.records), self._track_bytes)
        sighting.before = seen.before
        if sighting.enclosing != seen.enclosing:
            sighting.enclosing, sighting.run = seen.enclosing, None
        sums, own = self._ledger.account(sighting.series)
        if own and sighting.enclosing:
            sums.outermost = sighting.enclosing.outermost
        seen.ended = seen.ended and ended
        if not ended:
            sums.active += 1
            self._live.append(sighting)
            return
        if sighting.end_ns is None:
            sighting.end_ns, sighting.run = max(stage.end_ns for stage in group.stages), None
        if not seen.ended:
            seen.ended, seen.surroundings = True, self._around(sighting, seen.before)
        sighting.surroundings = seen.surroundings
        if not finished:
            self._ended.append(sighting)
            return
        seen.finished = True
        self.ended_runs += 1
        self._recent.append(sighting)
        if starters := group.starters:
            # without its time line, which is large and which nobody asks for
            kept = replace(sighting, track=None, forgotten=True)
            self._started.add(starters, kept, self._now)
        if len(self._recent) > _TRACKED:
            old = self._recent[-1 - _TRACKED]
            old.track, old.forgotten = None, True
        sums.runs += 1
        wall = NS * sum(_clock(group))
        self._short.add(sighting.series.pipeline, wall, self._now)
        if own:
            sums.last_run_seconds = wall
            sums.last_run_end = NS * sighting.end_ns + self._unix
        if self._on_finished:
            make = partial(self._made, sighting, seen.track)
            end = NS * sighting.end_ns + self._unix
            self._on_finished(_finished(sighting, wall, end, make))

    def _read(self, now: float, group: Path | None) -> Reading | None:
        """The accounts of the host, with those of one cgroup."""
        if self._accounts is None:
            return None
        throttled = self._accounts.throttled(group) if group else None
        return Reading(now, self._accounts.busy(), group, throttled)

    def _joined(self, before: Reading | None, group: Group) -> Reading | None:
        """The accounts before a run that is seen live, with those of the cgroup that it is in."""
        live = next((stage for stage in group.stages if stage.live), None)
        if self._accounts is None or before is None or live is None:
            return before
        found = self._accounts.group(live.pid, live.cgroup)
        if found is None or found == before.group:
            return before
        return before._replace(group=found, throttled=self._accounts.throttled(found))

    def _around(self, sighting: _Sighting, before: Reading | None) -> Surroundings | None:
        """What surrounds a run that is live or has just ended; None if it is too short to say.

        The others are named once it has ended: to look for those of each of many live runs at each
        look at them would cost too much.
        """
        after, lived = self._reading, _lived(sighting, self._now)
        if before is None or after is None or NS * sum(_clock(sighting.group)) < _SURROUNDED:
            return None
        if self._accounts and before.group and before.group != after.group:
            throttled = self._accounts.throttled(before.group)
            after = after._replace(group=before.group, throttled=throttled)
        others = () if sighting.end_ns is None else self._others(sighting)
        return surroundings(lived, before, after, others)

    def _others(self, sighting: _Sighting) -> Iterator[Lived]:
        """Other runs that lived at the last sweep, or ended since or shortly before.

        Those that enclose this one are none: what they used is also what this one did.
        """
        recent = islice(reversed(self._recent), _OTHERS)
        found = {self._run_id(of.group): of for of in (*self._lived_before, *recent)}
        found.pop(self._run_id(sighting.group), None)
        outer = sighting.enclosing
        while outer:
            of = found.pop(outer.run, None)
            outer = of.enclosing if of else None
        yield from (_lived(of, self._now) for of in found.values() if not of.series.nested)

    def _enclosing(self, outer: Group, by_stage: Mapping[int, Group]) -> Enclosing:
        last = outer
        while further := around(last, by_stage):
            last = further
        pipeline = self._signature(outer)
        outermost = pipeline if last is outer else self._signature(last)
        alone = len(outer.stages) == 1
        return Enclosing(self._run_id(outer), pipeline, outermost, alone, outer.starters)

    def _signature(self, group: Group) -> str:
        seen = self._runs.get(group.root)
        known = seen.sighting if seen else None
        return known.series.pipeline if known else _shape(group)[2].signature

    def _sight(self, group: Group, seen: _Seen) -> _Sighting:
        """Count what a run has grown since it was seen last."""
        records, edges, order = _shape(group)
        series = Series(order.signature, seen.enclosing is not None, self._unit(records))
        sums, own = self._ledger.account(series)
        stages = [self._seen_stage(stage) for stage in records]
        flowed = self._flows(records, edges)
        before = sum(seen.clock)
        grow(sums.clock, seen.clock, _clock(group))
        self._ledger.ran(series, NS * (sum(seen.clock) - before), self._now)
        for i, position in zip(order.sequence, order.positions, strict=True):
            place = (position, records[i].command) if own else OTHER_PLACE
            total = sums.stages.get(place)
            if total is None:
                total = sums.stages[place] = StageSums()
            grow(total.counted, stages[i].counted, records[i].counted)
            grow_modes(total, stages[i])
            grow_flow(total, stages[i], flowed[i])
            if self._began_early(records[i]):
                continue
            if records[i].functions:
                grow_functions(total, stages[i], records[i].functions)
            if now := records[i].readahead:
                total.readahead = total.readahead or [0] * len(now)
                if now is not NO_READAHEAD:
                    grow(total.readahead, stages[i].readahead, now)
        facts = tuple([_facts(stage, seen) for stage, seen in zip(records, stages, strict=True)])
        return _Sighting(group, series, edges, records, facts, flowed, seen.enclosing, seen.track)

    def _unit(self, records: Sequence[StageRecord]) -> str:
        """Of stages by their start: the job of the first that has one, else the first's cgroup."""
        jobs = [record.job for record in records if record.job]
        if jobs:
            from pipelined.model.jobs import unit_of_job  # a host without jobs needs no names

            if units := [unit for job in jobs if (unit := unit_of_job(job))]:
                return units[0]
        return self._unit_of(records[0].cgroup)

    def _flows(
        self, records: Sequence[StageRecord], edges: Sequence[tuple[int, int]]
    ) -> tuple[Flow, ...]:
        counted = [self._pipe_bytes and not self._began_early(record) for record in records]
        return flows(records, edges, counted)

    def _seen_stage(self, stage: StageRecord) -> SeenStage:
        key = (stage.index, stage.generation)
        seen = self._stages.get(key)
        if seen is None:
            known = self._arguments_of(stage.pid) if self._arguments_of and stage.live else None
            seen = self._stages[key] = SeenStage(known)
        return seen

    def _began_early(self, stage: StageRecord) -> bool:
        """Whether it began after the observation, and before the optional hooks were attached."""
        return stage.start_ns < self._complete_ns and not stage.partial

    # -- one run

    def _run(self, sighting: _Sighting) -> Run:
        if sighting.run:
            return sighting.run
        group, records = sighting.group, sighting.records
        order = _arrange(tuple(stage.command for stage in records), sighting.edges)
        place = {i: at for at, i in enumerate(order.sequence)}
        levels = len(LEVELS)
        clock = [NS * max(0, ns) for ns in _clock(group)]
        end = sighting.end_ns
        sighting.run = Run(
            id=self._run_id(group),
            series=sighting.series,
            start=NS * group.clock.start_ns + self._unix,
            end=None if end is None else NS * end + self._unix,
            wall_seconds=sum(clock),
            partial=any(stage.partial for stage in records),
            levels=tuple(a + b for a, b in zip(clock[:levels], clock[levels:], strict=True)),
            disk_overlapped_seconds=sum(clock[levels + 1 :]),
            disk_alone_seconds=clock[levels],
            stages=tuple(
                self._stage(records[i], position, sighting.facts[i], sighting.flows[i])
                for i, position in zip(order.sequence, order.positions, strict=True)
            ),
            endpoints=group.endpoints,
            parent=sighting.enclosing.run if sighting.enclosing else None,
            parent_pipeline=sighting.enclosing.pipeline if sighting.enclosing else None,
            edges=tuple(sorted((place[a], place[b]) for a, b in sighting.edges)),
            partial_tiers=self._tiers if any(map(self._began_early, records)) else (),
            surroundings=self._around(sighting, sighting.before)
            if end is None
            else sighting.surroundings,
        )
        return sighting.run

    def _conversation(self, group: Group) -> Run:
        records, edges, order = _shape(group)
        facts = []
        for stage in records:
            seen = SeenStage(None, list(stage.counted))
            grow_modes(StageSums(), seen)
            facts.append(_facts(stage, seen))
        series = Series(order.signature, False, self._unit(records))
        flowed = self._flows(records, edges)
        return self._run(_Sighting(group, series, edges, records, tuple(facts), flowed, None, None))

    def _made(self, sighting: _Sighting, track: Track | None) -> tuple[Run, Timeline]:
        return self._run(sighting), self._timeline(sighting, track)

    def _timeline(self, sighting: _Sighting, track: Track | None) -> Timeline:
        group, records = sighting.group, sighting.records
        order = _arrange(tuple(stage.command for stage in records), sighting.edges).sequence
        start = NS * group.clock.start_ns + self._unix
        pids = [records[i].pid for i in order]
        return (track or Track()).timeline(start, _moment(group, records), order, pids)

    def _stage(self, record: StageRecord, position: int, facts: _Facts, flow: Flow) -> Stage:
        # two CPUs may credit a few negative nanoseconds before the positive ones land
        counted = [max(0, value) for value in record.counted]
        counters = self._counters(counted, facts.user_ns, facts.system_ns, flow, record)
        if self._began_early(record):
            counters["exec_failures"] = None
        return Stage(
            position=position,
            command=record.command,
            pid=record.pid,
            start=NS * record.start_ns + self._unix,
            end=NS * record.end_ns + self._unix if record.ended else None,
            ends=tuple(
                PipeEnd(end.pipe, end.side, end.sleeps, NS * end.asleep_ns) for end in record.ends
            ),
            arguments=facts.arguments,
            **counters,
        )

    def _counters(
        self,
        counted: Sequence[int],
        user_ns: int,
        system_ns: int,
        flow: Flow,
        tiers: StageRecord | StageSums,
    ) -> dict[str, Any]:
        """The fields of `StageCounters`; `tiers` has the values of the optional tiers."""
        values = dict(zip((*STATES, *COUNTERS), counted, strict=True))
        return {
            "states": {state: NS * values[state] for state in STATES},
            "user_seconds": NS * user_ns,
            "system_seconds": NS * system_ns,
            "exec_failures": values["exec_failures"] if self._exec_failures else None,
            "children_cpu_seconds": NS * values["children_cpu_ns"],
            "children_lifetime_seconds": NS * values["children_life_ns"],
            "flow": flow,
            "functions": decode_functions(tiers.functions) if tiers.functions else None,
            "readahead": decode_readahead(tiers.readahead) if tiers.readahead else None,
            **{name: values[name] for name in _PLAIN_COUNTERS},
        }

    def _run_id(self, group: Group) -> str:
        first = min(group.stages, key=lambda stage: (stage.start_ns, stage.index))
        return f"{int((NS * group.clock.start_ns + self._unix) * 1000)}-{first.pid}"

    # -- sums

    def _totals(self, sums: Sums) -> Totals:
        levels = len(LEVELS)
        clock = [NS * ns for ns in sums.clock]
        return Totals(
            runs=sums.runs,
            active=sums.active,
            outermost=sums.outermost,
            run_seconds=sum(clock),
            last_run_seconds=sums.last_run_seconds,
            last_run_end=sums.last_run_end,
            last_usual_ratio=sums.last_usual_ratio,
            levels=tuple(a + b for a, b in zip(clock[:levels], clock[levels:], strict=True)),
            disk_overlapped_seconds=sum(clock[levels + 1 :]),
            disk_alone_seconds=clock[levels],
            stages={
                place: StageCounters(
                    **self._counters(
                        stage.counted,
                        stage.user_ns,
                        stage.system_ns,
                        stage.flowed(),
                        stage,
                    )
                )
                for place, stage in sums.stages.items()
            },
        )


def _finished(
    sighting: _Sighting, wall: float, end: float, make: Callable[[], tuple[Run, Timeline]]
) -> Finished:
    """A run that ended at `end` (Unix time), and what is cheap to know of it."""
    alone, disk = sighting.group.clock.alone_ns, sighting.group.clock.disk_ns
    cpu = read = written = 0
    for record in sighting.records:
        counted = record.counted
        cpu += counted[0]
        read += counted[READ_BYTES]
        written += counted[WRITTEN_BYTES]
    idle_or_one = alone[0] + alone[1] + disk[0] + disk[1]
    return Finished(
        wall, make, sighting.series, end, NS * cpu, NS * idle_or_one, max(0, read), max(0, written)
    )


def _lived(sighting: _Sighting, now: float) -> Lived:
    """What of a run matters to others; `now` is monotonic (seconds).

    One that was live when it was seen is taken to have gone on as before.
    """
    cpu, queue = (NS * sum(r.counted[state] for r in sighting.records) for state in (0, 1))
    start = NS * sighting.group.clock.start_ns
    if sighting.end_ns is None:
        seen = NS * sum(_clock(sighting.group))
        cpu *= (now - start) / seen if seen > 0 else 0.0
        return Lived(sighting.series.pipeline, start, now, cpu, queue)
    return Lived(sighting.series.pipeline, start, NS * sighting.end_ns, cpu, queue)


def _moment(group: Group, records: Sequence[StageRecord]) -> Moment:
    """What the time line notes of a sweep."""
    values = array("q", map(add, group.clock.alone_ns, group.clock.disk_ns))
    for record in records:
        values.extend(record.counted[:NOTED])
    return Moment(tuple([(stage.index, stage.generation) for stage in records]), values)


def _clock(group: Group) -> list[int]:
    return [*group.clock.alone_ns, *group.clock.disk_ns]


def _facts(stage: StageRecord, seen: SeenStage) -> _Facts:
    """What a run shows of a stage in addition to its record.

    Its CPU time may be less than was seen: stages that were inside it have left it, and taken
    theirs along. Sums over runs keep what they had.
    """
    cpu = max(0, stage.counted[0])
    system = min(seen.system_ns, cpu)
    return _Facts(cpu - system, system, seen.arguments)


def _shape(
    group: Group,
) -> tuple[tuple[StageRecord, ...], tuple[tuple[int, int], ...], Order]:
    """The group's stages by start, their edges as in `_Sighting`, and how they are arranged."""
    records = tuple(sorted(group.stages, key=lambda stage: (stage.root_start_ns, stage.index)))
    place = {stage.index: i for i, stage in enumerate(records)}
    edges = {(place[a], place[b]) for a, b in (*joined(records), *group.slot_edges)}
    ordered = tuple(sorted(edges))
    return records, ordered, _arrange(tuple([stage.command for stage in records]), ordered)
