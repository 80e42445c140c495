# SPDX-License-Identifier: Apache-2.0
"""What is known of a run: the values every view (metrics, API, report, top) draws from.

Units: seconds (float), bytes, counts. Time stamps are Unix time. A run that is still
live carries the values of the latest sweep; a finished run carries its final ones.
Nothing here knows BPF, HTTP or Prometheus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "FILL_EDGES",
    "LEVELS",
    "SIZE_EDGES",
    "STATES",
    "TIME_EDGES",
    "Endpoint",
    "Functions",
    "Histogram",
    "PipeEnd",
    "Run",
    "Series",
    "Stage",
    "StageCounters",
]

#: States of a thread, in the order of the kernel side's `enum thread_state`
#: (bpf/pipelined.h). Their seconds add up to the lifetimes of a stage's threads.
STATES = (
    "cpu",
    "runqueue",
    "pipe_empty",
    "pipe_full",
    "disk",
    "child",
    "lock",
    "poll",
    "net",
    "sleep",
    "stopped",
    "other",
)

#: Labels of the levels; the last one gathers everything from 8 on.
LEVELS = ("0", "1", "2", "3", "4", "5", "6", "7", "8+")


#: Upper edges of histograms, inclusive: bytes, seconds (2^10 to 2^34 ns), and how full a pipe was.
SIZE_EDGES = tuple(2**n for n in range(21))
TIME_EDGES = tuple(2**n / 1e9 for n in range(10, 35))
FILL_EDGES = tuple(n / 8 for n in range(9))


@dataclass(frozen=True, slots=True)
class Series:
    """The labels shared by every series of a pipeline."""

    pipeline: str
    """Signature, for example ``cat|awk|sort``, or ``(other)`` past the bound."""
    nested: bool
    """True when the pipeline lies inside a stage of another one."""
    unit: str
    """Normalised systemd unit or cgroup, ``-`` when there is none."""


@dataclass(frozen=True, slots=True)
class PipeEnd:
    """One end of one pipe as a stage holds it."""

    pipe: str
    """Identity of the pipe within the host's uptime, ``device:inode``."""
    side: str
    """``read`` or ``write``."""
    sleeps: int
    """How often a thread of the stage fell asleep on this end."""
    seconds: float
    """How long the stage's threads slept on this end."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A process at the outer end of a pipeline that is no stage of it (``x=$(a | b)``)."""

    command: str
    side: str
    """What it does with its pipe: ``read`` or ``write``."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often a value lay in each bucket, and the sum of all values."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    """By bucket: above the edge before, up to its own; a last one, if any, is past all edges."""
    sum: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count else None

    def within(self, share: float) -> float | None:
        """The lowest edge that at least this share of the values does not exceed; None: none."""
        left = share * self.count
        for edge, count in zip(self.edges, self.counts, strict=False):
            left -= count
            if self.count and left <= 0:
                return edge
        return None


@dataclass(frozen=True, slots=True)
class Functions:
    """What the `functions` tier says of a stage."""

    pipe_writes: Histogram
    """Bytes of each write to a pipe, as the program asked for them."""
    pipe_reads: Histogram
    """Bytes that each read of a pipe returned."""
    file_reads: Histogram
    """Bytes that each read of a file returned."""
    file_read_seconds: Histogram
    pipe_fill: Histogram
    """How full the pipe was when each write to it began, 0 to 1."""
    pipe_capacity_bytes: int | None
    """Of the pipe written to last; None before the first write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCounters:
    """What is counted of a stage, in one run or over all runs of its place in a pipeline."""

    states: Mapping[str, float]
    """Seconds by state (every name of `STATES`), summed over the stage's threads."""
    user_seconds: float
    system_seconds: float
    read_bytes: int
    written_bytes: int
    read_calls: int
    write_calls: int
    sleeps_empty: int
    sleeps_full: int
    forks: int
    execs: int
    exec_failures: int | None
    """None where no hook can see failed execs."""
    exited_children: int
    children_cpu_seconds: float
    children_lifetime_seconds: float
    functions: Functions | None = None
    """None where the `functions` tier is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(StageCounters):
    """One stage of one run."""

    position: int
    """From 1; parallel branches of one name share a position."""
    command: str
    pid: int
    """Process id of the stage's root."""
    start: float
    end: float | None
    ends: tuple[PipeEnd, ...] = ()
    arguments: str | None = None
    """Command line; only filled when the daemon was started with --show-arguments."""

    @property
    def cpu_seconds(self) -> float:
        return self.states["cpu"]

    @property
    def lifetime_seconds(self) -> float:
        """Sum of the lifetimes of the stage's threads: every second is in one state."""
        return sum(self.states.values())


@dataclass(frozen=True, slots=True)
class Run:
    """One life of a pipeline."""

    id: str
    """Unique on this host, sortable by start."""
    series: Series
    start: float
    end: float | None
    """None while the run is live."""
    wall_seconds: float
    partial: bool
    """True when the pipeline was already running when observation began."""
    levels: tuple[float, ...]
    """Seconds at each level, as in `LEVELS`; they add up to wall_seconds."""
    disk_overlapped_seconds: float
    """A stage waits for disk while another one is on CPU."""
    disk_alone_seconds: float
    """A stage waits for disk and no stage is on CPU."""
    stages: tuple[Stage, ...]
    """In topological order, by position."""
    endpoints: tuple[Endpoint, ...] = ()
    parent: str | None = None
    """Id of the run whose stage this run lies in."""
    edges: tuple[tuple[int, int], ...] = field(default=())
    """Pairs of indexes into `stages`: writer, reader."""

    @property
    def pipeline(self) -> str:
        return self.series.pipeline

    @property
    def live(self) -> bool:
        return self.end is None

    @property
    def cpu_seconds(self) -> float:
        return sum(stage.cpu_seconds for stage in self.stages)

    @property
    def cores_used(self) -> float:
        """CPU seconds per second of wall time, (user + sys) / real."""
        return self.cpu_seconds / self.wall_seconds if self.wall_seconds > 0 else 0.0

    @property
    def overlap(self) -> float | None:
        """Time at level >= 2 as a share of the time at level >= 1; None if never on CPU."""
        busy = sum(self.levels[1:])
        return sum(self.levels[2:]) / busy if busy > 0 else None

    @property
    def disk_wait_seconds(self) -> float:
        return self.disk_overlapped_seconds + self.disk_alone_seconds

    @property
    def io_overlap(self) -> float | None:
        """Share of the disk waiting that another stage's computing hid; None without waits."""
        waits = self.disk_wait_seconds
        return self.disk_overlapped_seconds / waits if waits > 0 else None
