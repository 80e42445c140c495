# SPDX-License-Identifier: Apache-2.0
"""Counting: what each run has grown since it was seen last goes to the totals of its series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from pipelined.model.containers import Place
from pipelined.model.coverage import Coverage
from pipelined.model.flow import flows
from pipelined.model.jobs import unit_of_job
from pipelined.model.ledger import Ledger
from pipelined.model.sighting import Facts, Seen, Shape, Sighting, clock_of, facts_of, shape_of
from pipelined.model.sums import (
    SeenStage,
    StageSums,
    Sums,
    add_once,
    grow,
    grow_flow,
    grow_functions,
    grow_modes,
)
from pipelined.records.process import Process
from pipelined.records.stage import NS, Group, StageRecord
from pipelined.records.tiers import NO_READAHEAD
from pipelined.runs import Flow, Series

__all__ = ["Growth"]

_UNKNOWN = Facts(0, 0, None)


class Growth:
    """What has been counted of each stage, so that only growth is."""

    def __init__(
        self,
        ledger: Ledger[Sums],
        coverage: Coverage,
        *,
        unit_of: Callable[[int], str],
        arguments_of: Callable[[Process], str | None] | None = None,
        place_of: Callable[[int], Place | None] = lambda _: None,
    ) -> None:
        """`unit_of` names a cgroup id, `place_of` finds its container.

        `arguments_of` finds the command line of a process.
        """
        self._ledger = ledger
        self._coverage = coverage
        self._unit_of = unit_of
        self._arguments_of = arguments_of
        self._place_of = place_of
        self._stages: dict[tuple[int, int], SeenStage] = {}

    def resume(self, group: Group) -> None:
        """Count of what an earlier daemon has counted only what it will have grown."""
        shape, nowhere = shape_of(group), StageSums()
        for stage, flow in zip(shape.records, self._flows(shape), strict=True):
            seen = self._seen(stage)
            seen.counted = list(stage.counted)
            grow_modes(nowhere, seen)
            grow_flow(nowhere, seen, flow)
            if stage.functions:
                grow_functions(nowhere, seen, stage.functions)
            seen.readahead = list(stage.readahead)

    def sight(self, group: Group, seen: Seen, now: float, *, over: bool) -> tuple[Sighting, Sums]:
        """Count what a run has grown since it was seen last; `now` is monotonic (seconds).

        With `over` its stages will be forgotten before they are seen again. Also returns the
        account that it was added to.
        """
        shape = shape_of(group)
        records = shape.records
        series = self._series(shape, nested=seen.enclosing is not None)
        sums = self._ledger.account(series)
        facts: list[Facts] = [_UNKNOWN] * len(records)
        flowed = self._flows(shape)
        grow(sums.clock, seen.clock, clock_of(group))
        before, seen.weighed_ns = seen.weighed_ns, sum(seen.clock)
        self._ledger.ran(series, NS * (seen.weighed_ns - before), now)
        for i, position in zip(shape.order.sequence, shape.order.positions, strict=True):
            record = records[i]
            place = (position, record.command)
            total = sums.stages.get(place)
            if total is None:
                total = sums.stages[place] = StageSums()
            stage = None
            if over and _key(record) not in self._stages:
                user, system = add_once(total, record.counted, flowed[i])
                facts[i] = Facts(user, system, None)
            else:
                stage = self._seen(record)
                grow(total.counted, stage.counted, record.counted)
                grow_modes(total, stage)
                grow_flow(total, stage, flowed[i])
                facts[i] = facts_of(record, stage)
            if self._coverage.misses_begin_of(record):
                continue
            if record.functions:
                grow_functions(total, stage or SeenStage(None), record.functions)
            if counted := record.readahead:
                total.readahead = total.readahead or [0] * len(counted)
                if counted is not NO_READAHEAD:
                    grow(total.readahead, stage.readahead if stage else [], counted)
        kept = tuple(facts)
        sighting = Sighting(group, series, shape, kept, flowed, seen.enclosing, seen.track)
        sighting.place = self._place(shape)
        return sighting, sums

    def apart(self, group: Group) -> Sighting:
        """A group that is in no totals, as if it were a run."""
        shape = shape_of(group)
        facts = []
        for stage in shape.records:
            seen = SeenStage(None, list(stage.counted))
            grow_modes(StageSums(), seen)
            facts.append(facts_of(stage, seen))
        series = self._series(shape, nested=False)
        sighting = Sighting(group, series, shape, tuple(facts), self._flows(shape), None, None)
        sighting.place = self._place(shape)
        return sighting

    def forget(self, over: Iterable[StageRecord]) -> None:
        """These stages are over and counted."""
        for stage in over:
            self._stages.pop(_key(stage), None)

    def _seen(self, stage: StageRecord) -> SeenStage:
        key = _key(stage)
        seen = self._stages.get(key)
        if seen is None:
            known = self._arguments_of(stage.root) if self._arguments_of and stage.live else None
            seen = self._stages[key] = SeenStage(known)
        return seen

    def _series(self, shape: Shape, *, nested: bool) -> Series:
        return _series(shape.order.signature, nested, self._unit(shape.records))

    def _unit(self, records: Sequence[StageRecord]) -> str:
        """Of stages by their start: the job of the first that has one, else the first's cgroup."""
        for record in records:
            if record.job and (unit := unit_of_job(record.job)):
                return unit
        return self._unit_of(records[0].cgroup)

    def _place(self, shape: Shape) -> Place | None:
        """The container of the first stage in data order that is in one."""
        places = (self._place_of(shape.records[i].cgroup) for i in shape.order.sequence)
        return next((place for place in places if place), None)

    def _flows(self, shape: Shape) -> tuple[Flow, ...]:
        counted = [self._coverage.counts_pipes_of(each) for each in shape.records]
        return flows(shape.records, shape.edges, counted)


def _key(stage: StageRecord) -> tuple[int, int]:
    return stage.index, stage.generation


@lru_cache(maxsize=256)
def _series(pipeline: str, nested: bool, unit: str) -> Series:
    """Most often one that there is: equal ones compare faster if they are the same object."""
    return Series(pipeline=pipeline, nested=nested, unit=unit)
