# SPDX-License-Identifier: Apache-2.0
"""Runs and totals, from what each sweep read. Pure: knows no BPF, HTTP or Prometheus.

Totals grow by what each run grew since the sweep before, under the signature that the
run had then; so they never go back, whatever a run turns out to be, and a run that ended
between two sweeps is in them whole. A run has its own name always; which names have totals of their
own is the ledger's business (`ledger`), for Prometheus alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from pipelined.model.containers import Place
from pipelined.model.coverage import Coverage
from pipelined.model.enclosing import Around, Enclosing, around, is_whole
from pipelined.model.growth import Growth
from pipelined.model.identities import Identities, traced
from pipelined.model.ledger import Ledger
from pipelined.model.neighbours import Neighbours
from pipelined.model.short_runs import ShortRuns
from pipelined.model.sighting import (
    Finished,
    Seen,
    Shape,
    Sighting,
    clock_of,
    end_of,
    finished_run,
    moment_of,
    shape_of,
)
from pipelined.model.started import KEPT, Started
from pipelined.model.sums import Sums
from pipelined.model.timeline import STEP_NS, Track
from pipelined.model.views import Totals, Views
from pipelined.model.watched import Watched
from pipelined.records.process import Process
from pipelined.records.stage import NS, Group, StageRecord
from pipelined.runs import Run, Series, Surroundings, Timeline
from pipelined.starter import Starter

__all__ = ["Budget", "Lookups", "Model", "SeriesUse", "StartedRuns"]

#: Seconds from the end of a pipeline's last process until the run is counted as finished: for one
#: with a pipe whose other end is not known, and for one without.
_GRACE, _GRACE_CLOSED = 1.0, 0.1

#: Seconds from a pipeline's start until its live run is shown and counted. Until then its stages
#: are still being forked and exec'd, and its signature is not the final one.
_STARTING = 0.1

#: Bytes that the time lines of all live runs may take together, and that of one run.
_TRACKS_BYTES, _TRACK_BYTES = 6 << 20, 256 << 10

#: How many of the runs that ended last keep their time line.
_TRACKED = 50


class Lookups(NamedTuple):
    """What the host says of what a record names by a number."""

    unit_of: Callable[[int], str]
    """The name of a cgroup id."""
    arguments_of: Callable[[Process], str | None] | None = None
    """The command line of a live process; None if nobody may see them."""
    place_of: Callable[[int], Place | None] = lambda _: None
    """The container of a cgroup id."""


class Budget(NamedTuple):
    """How many series the totals may take (`ledger`)."""

    max_series: int | None = None
    """None: any number."""
    series_of: Callable[[Totals], int] = lambda _: 0
    """As how many series the totals of a pipeline are exported."""


class SeriesUse(NamedTuple):
    """How much of the budget of series is in use, `(other)` included, and what is in that."""

    budget: int
    used: int
    folded: int
    """Pipelines since the start without series of their own."""
    heaviest_folded_seconds: float
    """Run time of the heaviest of them, halved every `ledger.HALF_LIFE`."""


class StartedRuns(NamedTuple):
    """What a process has started (`Starter`)."""

    finished: int
    """How many of its runs have ended, ever."""
    runs: list[Run]
    """Runs that were asked for and are kept, in the order of their ends; then the live ones."""


class Model:
    """Takes in the groups of each sweep; returns runs and totals."""

    def __init__(
        self,
        watched: Watched,
        lookups: Lookups,
        *,
        recent_runs: int,
        coverage: Coverage | None = None,
        budget: Budget | None = None,
        neighbours: Neighbours | None = None,
        harmless: Mapping[str, Collection[int]] = MappingProxyType({}),
        identities: Identities | None = None,
        exported: bool = False,
        step_ns: int = STEP_NS,
        on_finished: Callable[[Finished], object] | None = None,
        is_stored: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Keep the `recent_runs` that ended last.

        `harmless` are the exit codes by command that are no failures. Without `identities` runs
        have no identity. `exported`: they are sent as traces. No point of a time line is
        shorter than `step_ns`.
        `on_finished` is called for each run that ends, in the middle of a sweep: it has to be
        quick. `is_stored` is asked for a run that ended unwatched, by its id: whether an earlier
        daemon has stored it. That one saw it end, and has counted it.
        """
        self._watched = watched
        self.coverage = coverage or Coverage()
        """Since when the hooks are attached that count."""
        self._budget = budget = budget or Budget()
        self._neighbours = neighbours or Neighbours()
        self._on_finished = on_finished
        self._is_stored = is_stored
        self._views = views = Views(
            watched, self.coverage, self._around, harmless, identities, exported=exported
        )
        self._ledger: Ledger[Sums] = Ledger(
            budget.max_series, new=Sums, cost=lambda sums: budget.series_of(views.totals(sums))
        )
        self._growth = Growth(self._ledger, self.coverage, **lookups._asdict())
        self._track_bytes = _TRACK_BYTES
        self._step_ns = step_ns
        self._runs: dict[int, Seen] = {}
        self._live: list[Sighting] = []
        self._ended: list[Sighting] = []
        """Their stages have ended, but they are not finished: another stage may still join."""
        self._conversations: list[Group] = []
        self._unfinished: list[Group] = []
        self._recent: deque[Sighting] = deque(maxlen=recent_runs)
        self._started: Started[Sighting] = Started()
        self._short = ShortRuns()
        self.ended_runs = 0
        """How many runs are finished, ever."""

    def resume(self, groups: Iterable[Group]) -> None:
        """These groups lived when an earlier daemon ended, and were as they are.

        What they had counted is in their runs, and in no totals. To be called before `update`.
        """
        for group in groups:
            self._growth.resume(group)
            if group.is_run:
                track = Track(self._step_ns)
                unwatched = self._watched.until_last_gap(group.clock.start_ns)
                track.resume(moment_of(group, shape_of(group).records, unwatched))
                self._runs[group.root] = Seen(clock=clock_of(group), track=track)

    def compared(self, series: Series, usual_ratio: float | None) -> None:
        """A run of the pipeline took this many times as long as usual; None: that is not known.

        It is not noted of a pipeline without totals of its own.
        """
        if (sums := self._ledger.own(series)) is not None:
            sums.last_usual_ratio = usual_ratio
            self._ledger.settle(self._views.now)

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
        gone: set[int] = set()
        self._track_bytes = min(_TRACK_BYTES, _TRACKS_BYTES // (len(self._live) or 1))
        self._neighbours.sweep(now, [*self._live, *self._ended])
        self._live, self._ended = [], []
        self._conversations, self._unfinished = [], []
        self._views.now = now
        self._started.forget(now)
        self._ledger.begin()
        # what was restored may have figures of tiers, which can be read once their hooks are tried
        tiers_pending = self.coverage.pending
        # in the order of their ends, as they are counted, kept and passed on
        for group in sorted(groups, key=end_of):
            ended = all(stage.ended for stage in group.stages)
            age = now - NS * end_of(group)
            waits = ended and tiers_pending and any(stage.partial for stage in group.stages)
            grace = _GRACE_CLOSED if group.closed else _GRACE
            over_now = ended and not waits and age >= grace
            at_once = settle is True or (settle is not False and settle in group.starters)
            finished = over_now or (ended and at_once)
            # what is inside a stage that has retired leaves it by the next sweep
            last = over_now and not any(stage.live for stage in group.stages)
            # seen before it is counted it would get no account of its own: it does nothing more
            starting = waits or now - NS * group.clock.start_ns < _STARTING
            if group.conversation and not ended:
                self._conversations.append(group)
            if group.is_run:
                seen = self._runs.get(group.root)
                if seen is None:
                    seen = self._runs[group.root] = Seen(before=self._neighbours.begun())
                outer = around(group, by_stage)
                if seen.enclosing is None or is_whole(group, by_stage):
                    within = {group.root}
                    seen.enclosing = self._enclosing(outer, by_stage, within) if outer else None
                # what a stage of a pipeline starts is that stage, and not alone
                apart = (
                    len(group.stages) > 1
                    or seen.enclosing is None
                    or seen.enclosing.alone
                    or not group.starters <= seen.enclosing.starters  # that is around the starter
                )
                if apart and (finished or at_once or not starting):
                    self._take_in(group, seen, ended, finished, last)
                finished = finished or seen.finished
            if not (finished or starting):
                self._unfinished.append(group)
            if last:
                over.extend(group.stages)
                gone.add(group.root)
        self._growth.forget(over)
        # what was merged into another run is none of its own any more; all that only here, as the
        # sweep after one that fails half-way must know what was finished
        for root in self._runs.keys() - ({group.root for group in groups} - gone):
            del self._runs[root]
        self._ledger.settle(now)
        dated = chain(groups, (sighting.group for sighting in self._recent))
        self._watched.forget(group.clock.start_ns for group in dated)
        return over

    def unfinished(self) -> list[Group]:
        """What the next daemon has to know if this one ends now; not what has only just begun."""
        return self._unfinished

    def runs(self) -> list[Run]:
        """Live runs, then those that ended lately; newest start first in each."""
        return [
            run
            for sightings in (self._live, [*self._ended, *self._recent])
            for run in sorted(map(self._views.run, sightings), key=lambda run: -run.start)
        ]

    def started(self, starter: Starter, after: int) -> StartedRuns:
        """The runs that a process started: finished ones but the first `after`, and live ones, of
        many those that began first: the outer ones are among them."""
        finished = self._started.after(starter, after)
        its = (sighting for sighting in self._live if starter in sighting.group.starters)
        live = nsmallest(KEPT, its, key=lambda sighting: sighting.group.clock.start_ns)
        runs = [self._views.run(sighting) for sighting in (*finished, *live)]
        return StartedRuns(self._started.count(starter), runs)

    def conversations(self) -> list[Run]:
        """Stages that talk to each other or to their parent, as if they were runs; in no totals."""
        found = [self._views.run(self._growth.apart(group)) for group in self._conversations]
        return sorted(found, key=lambda run: -run.start)

    @property
    def live(self) -> int:
        """How many live runs are shown and counted."""
        return len(self._live)

    def timeline(self, run_id: str) -> Timeline | None:
        """The time line of a live or recent run; None for others, and once it is forgotten."""
        for sighting in (*self._live, *self._ended, *self._recent):
            if not sighting.forgotten and self._views.run_id(sighting.group) == run_id:
                return self._views.timeline(sighting, sighting.track)
        return None

    def short_runs(self) -> Mapping[str, int]:
        """How many runs of less than `SHORT` ended in the last minute, by signature."""
        return self._short.counted(self._views.now)

    def totals(self) -> dict[Series, Totals]:
        """Everything counted so far, by series."""
        return {series: self._views.totals(sums) for series, sums in self._ledger.accounts()}

    def series_use(self) -> SeriesUse:
        """How much of the budget `totals` use; a budget of 0 is none."""
        folded = self._ledger.folded(self._views.now)
        return SeriesUse(self._budget.max_series or 0, self._ledger.used, *folded)

    def _take_in(self, group: Group, seen: Seen, ended: bool, finished: bool, last: bool) -> None:
        if seen.finished:
            return
        sighting, nested = seen.sighting, seen.enclosing is not None
        if sighting is None or sighting.group is not group or sighting.series.nested != nested:
            if not (finished or seen.track):
                seen.track = Track(self._step_ns)
                self._neighbours.met_live(seen, group)
            sighting, sums = self._growth.sight(group, seen, self._views.now, over=last)
            seen.sighting = sighting
            if seen.track and not finished:
                unwatched = self._views.unwatched_ns(sighting)
                moment = moment_of(group, sighting.shape.records, unwatched)
                seen.track.add(moment, self._track_bytes)
        else:
            sums = self._ledger.account(sighting.series)
        sighting.before = seen.before
        if sighting.enclosing != seen.enclosing:
            sighting.enclosing, sighting.run = seen.enclosing, None
        if sighting.enclosing:
            sums.outermost = sighting.enclosing.outermost
        seen.ended = seen.ended and ended
        if not ended:
            sums.active += 1
            self._live.append(sighting)
            return
        if sighting.end_ns is None:
            sighting.end_ns, sighting.run = end_of(group), None
        if not seen.ended:
            seen.ended, seen.surroundings = True, self._around(sighting)
        sighting.surroundings = seen.surroundings
        if finished:
            self._finish(sighting, seen, sums, sighting.end_ns)
        else:
            self._ended.append(sighting)

    def _finish(self, sighting: Sighting, seen: Seen, sums: Sums, end_ns: int) -> None:
        seen.finished = True
        unmet = any(stage.unmet for stage in sighting.group.stages)
        gaps = self._watched.gaps
        # an earlier daemon saw it end just before it was saved, and may have stored it since
        seen_to_end = bool(gaps) and end_ns <= gaps[-1].begin_ns
        if (unmet or seen_to_end) and self._is_stored(self._views.run_id(sighting.group)):
            return
        self.ended_runs += 1
        self._recent.append(sighting)
        if users := sighting.group.users:
            # without its time line, which is large and which nobody asks for
            kept = replace(sighting, track=None, forgotten=True)
            self._started.add(users, kept, self._views.now)
        if len(self._recent) > _TRACKED:
            old = self._recent[-1 - _TRACKED]
            old.track, old.forgotten = None, True
        wall, end = self._views.wall_seconds(sighting), self._views.ended(end_ns)
        self._short.add(sighting.series.pipeline, wall, self._views.now)
        outcome = self._views.outcome(sighting)
        failure = self._views.failure(sighting, outcome)
        traced_run = self._views.traced(sighting, wall, end)
        sums.ended(outcome.result, failure, wall, end, traced_run)
        if self._on_finished:
            make = partial(self._made, sighting, seen.track)
            self._on_finished(finished_run(sighting, wall, end, outcome.result, make))

    def _made(self, sighting: Sighting, track: Track | None) -> tuple[Run, Timeline]:
        return self._views.run(sighting), self._views.timeline(sighting, track)

    def _around(self, sighting: Sighting) -> Surroundings | None:
        return self._neighbours.around(
            sighting, self._recent, lambda of: self._views.run_id(of.group)
        )

    def _enclosing(
        self, stage: Around, by_stage: Mapping[int, Group], within: Set[int]
    ) -> Enclosing:
        """What encloses a run in this stage; `within` are the roots of that run and those between.

        A stage that was found late began after what it encloses: two runs could lie in each other.
        """
        outer = stage.group
        further = around(outer, by_stage)
        within = within | {outer.root}
        if further and further.group.root in within:
            further = None
        beyond = self._enclosing(further, by_stage, within) if further else None
        shape = self._shape(outer)
        pipeline, own = shape.order.signature, traced(shape.in_order)
        return Enclosing(
            run=self._views.run_id(outer),
            pipeline=pipeline,
            outermost=beyond.outermost if beyond else pipeline,
            alone=len(outer.stages) == 1,
            starters=outer.starters,
            span=self._views.span_below(outer, stage.stage, beyond, own),
            traced=own,
        )

    def _shape(self, group: Group) -> Shape:
        """As it was seen last."""
        seen = self._runs.get(group.root)
        return seen.sighting.shape if seen and seen.sighting else shape_of(group)
