# SPDX-License-Identifier: Apache-2.0
"""A run: one life of a pipeline.

A run that is still live carries the values of the latest sweep; a finished run carries its final
ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pipelined.runs.fields import (
    ByLevel,
    Bytes,
    CacheState,
    Cpus,
    Group,
    Inline,
    Key,
    OneOf,
    Ratio,
    Seconds,
    Side,
    UnixTime,
    computed,
)
from pipelined.runs.flow import input_of
from pipelined.runs.identity import Identity
from pipelined.runs.spans import ParentSpan, span_id_of, trace_id_of
from pipelined.runs.stage import (
    INCOMPLETE,
    OUTCOMES,
    Place,
    Readahead,
    Stage,
    total_readahead,
)

__all__ = [
    "FAILURES",
    "Edge",
    "Endpoint",
    "OtherPipeline",
    "Outcome",
    "Run",
    "Series",
    "Surroundings",
]

#: Why a run has failed, the gravest last: a stage exited with a code that is a failure, a signal
#: killed one, or the kernel did as memory had run out.
FAILURES = ("exit", "signal", "out_of_memory")

#: Stamps of one clock are not further (seconds) from what passed between them.
_ONE_CLOCK = 1.0

DISK_WAIT = Group("disk_wait_seconds", "DiskWait", "Time in which a stage waited for disk.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The labels shared by every series of a pipeline."""

    pipeline: str
    """Signature, such as `cat|awk|sort`."""
    nested: bool
    """The pipeline runs inside a stage of another one."""
    unit: str
    """Job, container, systemd unit or cgroup; `-` if there is none."""


class Edge(NamedTuple):
    """Which stage writes to which, by index into `stages`, from 0."""

    writer: int
    """Stage that writes to the pipe."""
    reader: int
    """Stage that reads from it."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A process at an outer end of the pipeline that is no stage."""

    command: str
    """Command name."""
    side: Side
    """What it does with its pipe."""


@dataclass(frozen=True, slots=True)
class OtherPipeline:
    """Another run on the host."""

    pipeline: str
    """Signature."""
    cpu_seconds: Seconds
    """Its mean CPU use, for the time that both lived."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else was on the host while the run lived."""

    others_cores: Annotated[Cpus | None, Key("others_cores_used")]
    """CPUs that all but the run kept busy, and those that the hypervisor took, on average. Null
    also if a stage had lived by itself for long before the run was one."""
    throttled_seconds: Seconds | None
    """How long CPU limits of its cgroup, and of those around it, held tasks back in that time,
    summed over CPUs."""
    pipelines: tuple[OtherPipeline, ...] = ()
    """If a tenth of the run was spent waiting for a free CPU: up to three other pipelines, busiest
    first. None of a run that is live."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a run has succeeded."""

    result: Annotated[str, OneOf(OUTCOMES)]
    """`failed`: a stage did; `interrupted`: SIGINT, SIGTERM or SIGHUP ended a stage, and is not
    known to come from a process of the run; `unknown`: nobody saw how a stage ended."""
    stages: tuple[int, ...] = ()
    """The stages that it is so for, by index into `stages`; empty if it has succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run: one life of a pipeline."""

    id: str
    """[Unique in a fleet](CONCEPTS.md#identity), sortable by start."""
    series: Annotated[Series, Inline()]
    parent: str | None = None
    """`id` of the enclosing run; null if it lies in no other."""
    parent_pipeline: str | None = None
    """Its signature."""
    partial: bool
    """It was already running when observation began, or while no daemon ran."""
    unwatched_seconds: Seconds = 0.0
    """Of `wall_seconds`, the time in which no daemon ran. Times in states and levels, bytes and
    calls do not have it."""
    ended_unwatched: bool = False
    """It ended while no daemon ran: `end_timestamp_seconds` is when it was last seen alive."""
    partial_tiers: tuple[str, ...] = ()
    """Optional tiers whose hooks were attached only after the run began: figures of these tiers
    lack the time before."""
    start: Annotated[UnixTime, Key("start_timestamp_seconds")]
    """Start of the first stage."""
    end: Annotated[UnixTime | None, Key("end_timestamp_seconds")]
    """Exit of the last stage; null while the run is live."""
    outcome: Outcome | None = None
    """Whether it has [succeeded](CONCEPTS.md#outcome); null while the run is live."""
    wall_seconds: Seconds
    """From start to end, or to now."""
    levels: Annotated[ByLevel, Key("level_seconds")]
    """Time by number of stages on CPU at once; adds up to `wall_seconds` without
    `unwatched_seconds`."""
    disk_overlapped_seconds: Annotated[Seconds, Key(DISK_WAIT, "overlapped")]
    """While another stage was on CPU."""
    disk_alone_seconds: Annotated[Seconds, Key(DISK_WAIT, "alone")]
    """While none was."""
    stages: tuple[Stage, ...]
    """In data order."""
    edges: tuple[Edge, ...] = ()
    """Which stage writes to which."""
    endpoints: tuple[Endpoint, ...] = ()
    """Processes at the outer ends that are no stages, such as the shell of `x=$(a | b)`."""
    identity: Identity | None = None
    """[Whose run it is](#identity), and of which start of which job."""
    parent_span: ParentSpan | None = None
    """[What it is below in its trace](TRACES.md#which-trace); null if it begins one."""
    exported: bool = False
    """Its daemon was started with `--traces-exported`: finished runs are sent as traces, so a store
    [has `trace_id`](TRACES.md#from-a-number-to-the-run)."""
    surroundings: Surroundings | None = None
    """What else was on the host while the run lived. Null for runs shorter than 0.25 s."""

    @property
    def result(self) -> str:
        """Of its outcome; ``unknown`` without one."""
        return self.outcome.result if self.outcome else "unknown"

    @property
    def complete(self) -> bool:
        """It has done what it had to do, as far as that is known."""
        return self.result not in INCOMPLETE

    @property
    def watched_seconds(self) -> float:
        """Wall time without `unwatched_seconds`: what times in states and levels are shares of."""
        return self.wall_seconds - self.unwatched_seconds

    @property
    def clock_was_set(self) -> bool:
        """Whether the host's clock was set while it lived, or the host suspended: then its stamps,
        and those of its stages, are of two clocks. Not seen in a run that is live or partial."""
        if self.end is None or self.partial:
            return False
        return abs(self.end - self.start - self.wall_seconds) > _ONE_CLOCK

    @property
    def pipeline(self) -> str:
        return self.series.pipeline

    @property
    def nested(self) -> bool:
        """It lies in a stage of another run."""
        return self.series.nested

    @property
    @computed
    def live(self) -> bool:
        """A stage of the run is alive."""
        return self.end is None

    @property
    @computed
    def trace_id(self) -> str:
        """The trace that it is in: 32 hexadecimal digits."""
        return trace_id_of(self.id, self.parent_span)

    @property
    def span_id(self) -> str:
        """Its span in the trace: 16 hexadecimal digits."""
        return span_id_of(self.id)

    @property
    def sampled(self) -> bool:
        """Whether its trace is recorded: as whoever began that has decided."""
        return self.parent_span is None or self.parent_span.sampled

    @property
    def stored_trace_id(self) -> str | None:
        """Its trace, if a store of traces has it: what is shown to people."""
        return self.trace_id if self.exported and self.sampled else None

    def by_place(self, indexes: Iterable[int] | None = None) -> dict[Place, list[int]]:
        """Indexes into `stages` by position and command, in data order.

        Parallel branches of one command share a place. With `indexes`, only of those stages.
        """
        places: dict[Place, list[int]] = {}
        for index in range(len(self.stages)) if indexes is None else indexes:
            places.setdefault(self.stages[index].place, []).append(index)
        return places

    @property
    @computed
    def cpu_seconds(self) -> Seconds:
        """CPU time of all stages."""
        return sum(stage.cpu_seconds for stage in self.stages)

    @property
    @computed
    def cores_used(self) -> Cpus:
        """CPU time of all stages, divided by the wall time that was watched."""
        return self.cpu_seconds / self.watched_seconds if self.watched_seconds > 0 else 0.0

    @property
    @computed
    def overlap(self) -> Annotated[Ratio | None, Key("overlap_ratio")]:
        """Of the time with a stage on CPU, the share with two or more."""
        busy = sum(self.levels[1:])
        return sum(self.levels[2:]) / busy if busy > 0 else None

    @property
    def _fed(self) -> set[int]:
        """Stages that another one of the run writes to; the others are its first ones."""
        return {edge.reader for edge in self.edges}

    @property
    @computed
    def input_bytes(self) -> Bytes | None:
        """What its first stages took in, [its input](CONCEPTS.md#the-input-of-a-run)."""
        return input_of([stage.flow for stage in self.stages], self._fed)

    @property
    @computed
    def input_exact(self) -> bool:
        """False: `input_bytes` is an upper bound."""
        fed = self._fed
        flows = [stage.flow for at, stage in enumerate(self.stages) if at not in fed]
        return all(
            flow.exact or not flow.pipe_in
            if flow.pipe_in is not None
            else not (flow.input_is_bound and flow.input_files)
            for flow in flows
        )

    @property
    def disk_wait_seconds(self) -> float:
        return self.disk_overlapped_seconds + self.disk_alone_seconds

    @property
    def readahead(self) -> Readahead | None:
        """The stages' sum; None if the `readahead` tier is off."""
        return total_readahead(self.stages)

    @property
    @computed
    def io_overlap(self) -> Annotated[Ratio | None, Key("io_overlap_ratio")]:
        """Of the time waiting for disk, the share in which another stage was on CPU."""
        waits = self.disk_wait_seconds
        return self.disk_overlapped_seconds / waits if waits > 0 else None

    @property
    @computed
    def cache_state(self) -> CacheState | None:
        """Whether the files' pages were in the page cache before; null if the `readahead` tier is
        off or too few were read."""
        return self.readahead.cache_state if self.readahead else None
