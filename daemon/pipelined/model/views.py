# SPDX-License-Identifier: Apache-2.0
"""What others see of the model: runs, time lines and totals, made of records and sums."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from pipelined.model.coverage import Coverage
from pipelined.model.enclosing import Enclosing, parent_span
from pipelined.model.identities import Identities, traced
from pipelined.model.outcome import EndedStage, exit_of, failure_of, outcome_of, stage_outcomes
from pipelined.model.sighting import Facts, Sighting, clock_of, moment_of
from pipelined.model.sums import EndedRun, StageSums, Sums
from pipelined.model.timeline import Track
from pipelined.model.watched import Watched
from pipelined.records.stage import COUNTERS, EXIT_SEEN, NS, Group, StageRecord
from pipelined.records.tiers import functions_of, readahead_of
from pipelined.runs import (
    LEVELS,
    STATES,
    Child,
    Edge,
    Endpoint,
    Exit,
    Flow,
    Outcome,
    ParentSpan,
    PipeEnd,
    Place,
    Run,
    Stage,
    StageCounters,
    Surroundings,
    Timeline,
    Trace,
    children_by_command,
    stage_span_id,
    trace_id_of,
)

__all__ = ["Totals", "Views"]

#: Counters that a view shows as they are: bytes, calls, sleeps, processes.
_PLAIN_COUNTERS = tuple(
    name for name in COUNTERS if not name.endswith("_ns") and name != "exec_failures"
)


_SUCCEEDED = Outcome("succeeded")


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
    last_complete_end: float | None
    """Of the last run that has neither failed nor was interrupted, as far as that is known."""
    failed: Mapping[str, int]
    """Runs that have failed, by the gravest reason: `runs.FAILURES`."""
    last_failed_end: Mapping[str, float]
    """When the last of them ended, by reason; none that never happened."""
    traced: EndedRun | None
    """The last run whose trace a store has."""
    failed_traced: Mapping[str, EndedRun]
    """The last such run that has failed, by reason."""
    interrupted: int
    last_usual_ratio: float | None
    """Wall time of the run that was stored last, as a multiple of what is usual; None: unknown."""
    levels: tuple[float, ...]
    disk_overlapped_seconds: float
    disk_alone_seconds: float
    stages: Mapping[Place, StageCounters]


class Views:
    """Makes what is asked for; keeps nothing but what a sighting keeps."""

    def __init__(
        self,
        watched: Watched,
        coverage: Coverage,
        around: Callable[[Sighting], Surroundings | None],
        harmless: Mapping[str, Collection[int]],
        identities: Identities | None = None,
        *,
        exported: bool = False,
    ) -> None:
        """`around` finds what surrounds a live run; `harmless` as in `outcome_of`.

        `exported`: finished runs are sent as traces.
        """
        self._watched = watched
        self._coverage = coverage
        self._around = around
        self._harmless = harmless
        self._identities = identities
        self._exported = exported
        self.now = 0.0
        """Monotonic time of the last sweep (seconds)."""

    def run_id(self, group: Group) -> str:
        first = min(group.stages, key=lambda stage: (stage.start_ns, stage.index))
        began = int(self._watched.unix_time(group.clock.start_ns) * 1000)
        where = f"-{self._identities.mark}" if self._identities else ""
        return f"{began:013d}-{first.root.pid}{where}"

    def span_below(
        self, group: Group, stage: StageRecord, enclosing: Enclosing | None, own: Trace | None
    ) -> ParentSpan:
        """The span of a stage of a run, for what is inside it.

        `enclosing` is around that run, `own` what its environment says.
        """
        run = self.run_id(group)
        above = parent_span(own, enclosing)
        start = self._watched.unix_time(stage.start_ns)
        return ParentSpan(
            trace_id_of(run, above),
            stage_span_id(run, stage.root.pid, start),
            above.sampled if above else True,
        )

    def traced(self, sighting: Sighting, wall: float, end: float) -> EndedRun | None:
        """A run that has ended, if a store has its trace."""
        if not self._exported:
            return None
        span = parent_span(traced(sighting.shape.in_order), sighting.enclosing)
        if span is not None and not span.sampled:
            return None
        run = self.run_id(sighting.group)
        return EndedRun(run, trace_id_of(run, span), wall, end)

    def wall_seconds(self, sighting: Sighting) -> float:
        return NS * (sum(clock_of(sighting.group)) + self.unwatched_ns(sighting))

    def unwatched_ns(self, sighting: Sighting) -> int:
        end = self.now / NS if sighting.end_ns is None else sighting.end_ns
        return self._watched.unwatched_ns(sighting.group.clock.start_ns, end)

    def ended(self, end_ns: int) -> float:
        """The end of a run, or of a stage, as Unix time."""
        return self._watched.unix_time(end_ns)

    def outcome(self, sighting: Sighting) -> Outcome:
        """The outcome of a run that has ended."""
        records = sighting.shape.records
        if all(record.exit_status == EXIT_SEEN for record in records):  # most runs
            return _SUCCEEDED
        return outcome_of(*self._ended(sighting), self._harmless)

    def failure(self, sighting: Sighting, outcome: Outcome) -> str | None:
        """Why the run has failed (`FAILURES`); None if that is not its `outcome`."""
        if outcome.result != "failed":
            return None
        ended, _, _ = self._ended(sighting)
        return failure_of(ended[index] for index in outcome.stages)

    def _ended(
        self, sighting: Sighting
    ) -> tuple[list[EndedStage], list[tuple[int, int]], tuple[Endpoint, ...]]:
        """How the stages have ended, in data order; how they are joined; who else has a pipe."""
        records, edges, order = sighting.shape
        place = {i: at for at, i in enumerate(order.sequence)}
        ended = [
            EndedStage(records[i].command, exit_of(records[i].exit_status)) for i in order.sequence
        ]
        return ended, [(place[a], place[b]) for a, b in edges], sighting.group.endpoints

    def run(self, sighting: Sighting) -> Run:
        if sighting.run:
            return sighting.run
        group, shape = sighting.group, sighting.shape
        records, order = shape.records, shape.order
        ended, edges, endpoints = self._ended(sighting)
        outcomes = stage_outcomes(ended, edges, endpoints, self._harmless)
        clock = [NS * max(0, ns) for ns in clock_of(group)]
        end, unwatched = sighting.end_ns, NS * self.unwatched_ns(sighting)
        stages = tuple(
            self._stage(
                records[i], position, sighting.facts[i], sighting.flows[i], its_exit, outcome
            )
            for i, position, (_, its_exit), outcome in zip(
                order.sequence, order.positions, ended, outcomes, strict=True
            )
        )
        identity = self._identities.of(shape.in_order, sighting.place) if self._identities else None
        sighting.run = Run(
            id=self.run_id(group),
            series=sighting.series,
            start=self._watched.unix_time(group.clock.start_ns),
            end=None if end is None else self.ended(end),
            wall_seconds=sum(clock) + unwatched,
            partial=any(stage.partial for stage in records),
            **_by_level(clock),
            stages=stages,
            endpoints=endpoints,
            parent=sighting.enclosing.run if sighting.enclosing else None,
            parent_pipeline=sighting.enclosing.pipeline if sighting.enclosing else None,
            edges=tuple(sorted(starmap(Edge, edges))),
            outcome=None if end is None else self.outcome(sighting),
            partial_tiers=self._coverage.partial_tiers(records),
            surroundings=self._around(sighting) if end is None else sighting.surroundings,
            identity=identity,
            parent_span=parent_span(identity.trace if identity else None, sighting.enclosing),
            exported=self._exported,
            unwatched_seconds=unwatched,
            ended_unwatched=any(stage.unmet and stage.end_ns == end for stage in records),
        )
        return sighting.run

    def timeline(self, sighting: Sighting, track: Track | None) -> Timeline:
        group, records = sighting.group, sighting.shape.records
        order = sighting.shape.order.sequence
        start = self._watched.unix_time(group.clock.start_ns)
        pids = [records[i].root.pid for i in order]
        moment = moment_of(group, records, self.unwatched_ns(sighting))
        return (track or Track()).timeline(start, moment, order, pids)

    def totals(self, sums: Sums) -> Totals:
        clock = [NS * ns for ns in sums.clock]
        return Totals(
            runs=sums.runs,
            active=sums.active,
            outermost=sums.outermost,
            run_seconds=sum(clock),
            last_run_seconds=sums.last_run_seconds,
            last_run_end=sums.last_run_end,
            last_complete_end=sums.last_complete_end,
            failed=dict(sums.failed),
            last_failed_end=dict(sums.last_failed_end),
            traced=sums.traced,
            failed_traced=dict(sums.failed_traced),
            interrupted=sums.interrupted,
            last_usual_ratio=sums.last_usual_ratio,
            **_by_level(clock),
            stages={
                place: StageCounters(
                    **self._counters(
                        stage.counted, stage.user_ns, stage.system_ns, stage.flowed(), stage
                    )
                )
                for place, stage in sums.stages.items()
                if stage.grown()
            },
        )

    def _stage(
        self,
        record: StageRecord,
        position: int,
        facts: Facts,
        flow: Flow,
        its_exit: Exit | None,
        outcome: str,
    ) -> Stage:
        # two CPUs may credit a few negative nanoseconds before the positive ones land
        counted = [max(0, value) for value in record.counted]
        counters = self._counters(counted, facts.user_ns, facts.system_ns, flow, record)
        if self._coverage.misses_begin_of(record):
            counters["exec_failures"] = None
        return Stage(
            position=position,
            command=record.command,
            pid=record.root.pid,
            start=self._watched.unix_time(record.start_ns),
            end=self.ended(record.end_ns) if record.ended else None,
            ends=tuple(
                PipeEnd(end.pipe, end.side, end.sleeps, NS * end.asleep_ns) for end in record.ends
            ),
            exit=its_exit,
            outcome=outcome if its_exit or record.ended else None,
            children=_children(record, counters["states"]["cpu"]),
            peer_port=record.peer.port if record.peer else None,
            peer_family=record.peer.family if record.peer else None,
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
            "exec_failures": values["exec_failures"] if self._coverage.exec_failures else None,
            "children_cpu_seconds": NS * values["children_cpu_ns"],
            "children_lifetime_seconds": NS * values["children_life_ns"],
            "flow": flow,
            "functions": functions_of(tiers.functions) if tiers.functions else None,
            "readahead": readahead_of(tiers.readahead) if tiers.readahead else None,
            **{name: values[name] for name in _PLAIN_COUNTERS},
        }


def _children(record: StageRecord, cpu_seconds: float) -> tuple[Child, ...]:
    if not record.children:
        return ()
    children = (
        Child(name, count, NS * max(0, cpu_ns), NS * longest_ns)
        for name, count, cpu_ns, longest_ns in record.children
    )
    return children_by_command(children, cpu_seconds)


def _by_level(clock: Sequence[float]) -> dict[str, Any]:
    """Of seconds by level without and with a stage that waits for disk, the fields of a run."""
    levels = len(LEVELS)
    return {
        "levels": tuple(a + b for a, b in zip(clock[:levels], clock[levels:], strict=True)),
        "disk_overlapped_seconds": sum(clock[levels + 1 :]),
        "disk_alone_seconds": clock[levels],
    }
