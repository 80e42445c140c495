# SPDX-License-Identifier: Apache-2.0
"""What is known about a run: the values that every view (metrics, API, report, top) shows.

Units: seconds (float), bytes, counts. Time stamps are Unix time. A run that is still
live carries the values of the latest sweep; a finished run carries its final ones.
Nothing here knows BPF, HTTP or Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipelined.states import STATE_TABLE

__all__ = [
    "FILL_EDGES",
    "HISTOGRAMS",
    "LEVELS",
    "NO_FLOW",
    "PAGE_CLASSES",
    "SIZE_EDGES",
    "STALL_CLASSES",
    "STATES",
    "TIME_EDGES",
    "Endpoint",
    "Flow",
    "Functions",
    "Histogram",
    "HistogramKind",
    "OtherPipeline",
    "PipeEnd",
    "Place",
    "Point",
    "Readahead",
    "Run",
    "Series",
    "Stage",
    "StageCounters",
    "StagePoint",
    "Stalls",
    "Surroundings",
    "Timeline",
    "state_shares",
    "total_flow",
    "total_readahead",
]

#: The names of the states of a thread, in the kernel side's order.
STATES = tuple(state.name for state in STATE_TABLE)

#: Labels of the levels; the last one gathers everything from 8 on.
LEVELS = ("0", "1", "2", "3", "4", "5", "6", "7", "8+")

#: What became of pages, in the order of the kernel side's `enum page_class`. All but the last
#: one add up to the pages that were read.
PAGE_CLASSES = ("warm", "hit", "late", "miss", "wasted")

#: By the page that ended a wait, or that a fault was for: brought in by that very read or
#: fault; brought in ahead of it; the rest. In the order of `enum stall_class`.
STALL_CLASSES = ("miss", "late", "other")

#: Where a stage stands in its pipeline: its position and its command.
Place = tuple[int, str]

#: With fewer pages of input than this the state of the cache is not known.
_MIN_PAGES = 64

#: A run in which more than this share of the pages was, or was not, in the cache is of one kind.
_ONE_KIND = 0.95

#: Upper edges of histograms, inclusive: bytes, seconds (2^10 to 2^34 ns), and how full a pipe was.
SIZE_EDGES = tuple(2**n for n in range(21))
TIME_EDGES = tuple(2**n / 1e9 for n in range(10, 35))
FILL_EDGES = tuple(n / 8 for n in range(9))


@dataclass(frozen=True, slots=True)
class HistogramKind:
    """One of the histograms that the `functions` tier counts."""

    field: str
    """Of `Functions`."""
    name: str
    """In the API; with the prefix `pipelined_`, of its metric."""
    edges: tuple[float, ...]
    record: str
    """Its field in the kernel side's `struct functions`."""
    unit: float = 1
    """What 1 in the kernel side's sum is worth."""
    overflow: bool = True
    """Whether a last bucket counts the values above all edges."""

    @property
    def buckets(self) -> int:
        return len(self.edges) + self.overflow


#: All histograms, in the order of the kernel side's `struct functions`.
HISTOGRAMS = (
    HistogramKind("pipe_writes", "pipe_write_size_bytes", SIZE_EDGES, "pipe_writes"),
    HistogramKind("pipe_reads", "pipe_read_size_bytes", SIZE_EDGES, "pipe_reads"),
    HistogramKind("file_reads", "file_read_size_bytes", SIZE_EDGES, "file_reads"),
    HistogramKind(
        "file_read_seconds", "file_read_seconds", TIME_EDGES, "file_read_time", unit=1e-9
    ),
    HistogramKind(
        "pipe_fill", "pipe_fill_ratio", FILL_EDGES, "pipe_fill", unit=2**-16, overflow=False
    ),
)


@dataclass(frozen=True, slots=True)
class Series:
    """The labels shared by every series of a pipeline."""

    pipeline: str
    """Signature, for example ``cat|awk|sort``, or ``(other)`` past the bound."""
    nested: bool
    """True when the pipeline lies inside a stage of another one."""
    unit: str
    """Job, container, normalised systemd unit or cgroup; ``-`` when there is none."""


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
    """A process at the outer end of a pipeline that is not a stage of it (``x=$(a | b)``)."""

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
    """What the `functions` tier counts for a stage."""

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


@dataclass(frozen=True, slots=True)
class Stalls:
    """Sleeps of a reader for disk."""

    alone: int
    """How often, while no stage of the pipeline was on CPU for most of it."""
    overlapped: int
    alone_seconds: float
    """How long, with no stage of the pipeline on CPU."""
    overlapped_seconds: float

    @property
    def count(self) -> int:
        return self.alone + self.overlapped

    @property
    def seconds(self) -> float:
        return self.alone_seconds + self.overlapped_seconds


@dataclass(frozen=True, slots=True)
class Readahead:
    """What the `readahead` tier counts for a stage: pages of 4 KiB, and the waits for them."""

    pages: Mapping[str, int]
    """By class (every name of `PAGE_CLASSES`)."""
    inserted_pages: int
    """Read ahead of what the stage's reads asked for: what became of them is hit, late, wasted,
    or not known yet."""
    direct_bytes: int
    """Read past the page cache (O_DIRECT)."""
    faults: Mapping[str, int]
    """Faults on mapped files by class (every name of `STALL_CLASSES`)."""
    stalls: Mapping[str, Stalls]
    """By class (every name of `STALL_CLASSES`)."""
    not_input_pages: int = 0
    """Of the warm ones: those of files that the run wrote itself, and of programs and libraries."""

    @property
    def read_pages(self) -> int:
        """Pages that reads consumed: all classes but `wasted`."""
        return sum(self.pages.values()) - self.pages["wasted"]

    @property
    def stall_seconds(self) -> float:
        return sum(stalls.seconds for stalls in self.stalls.values())

    @property
    def overlapped_seconds(self) -> float:
        """Of the stall seconds, those in which a stage of the pipeline was on CPU."""
        return sum(stalls.overlapped_seconds for stalls in self.stalls.values())

    @property
    def stall_count(self) -> int:
        return sum(stalls.count for stalls in self.stalls.values())

    @property
    def coverage(self) -> float | None:
        """Share of the pages that had to come from disk which readahead brought in."""
        return _ratio(self._ahead, self._ahead + self.pages["miss"])

    @property
    def timeliness(self) -> float | None:
        """Share of the pages that readahead brought in for use which were there in time."""
        return _ratio(self.pages["hit"], self._ahead)

    @property
    def accuracy(self) -> float | None:
        """Share of the pages that readahead brought in which were used."""
        return _ratio(self._ahead, self.inserted_pages)

    @property
    def warm_share(self) -> float | None:
        """Share of the input's pages that were in the cache before; None if too few were read."""
        read = self.read_pages - self.not_input_pages
        return (self.pages["warm"] - self.not_input_pages) / read if read >= _MIN_PAGES else None

    @property
    def cache_state(self) -> str | None:
        """`cold`, `warm` or `mixed`; None if too little was read."""
        share = self.warm_share
        if share is None:
            return None
        return "warm" if share > _ONE_KIND else "cold" if share < 1 - _ONE_KIND else "mixed"

    @property
    def _ahead(self) -> int:
        return self.pages["hit"] + self.pages["late"]

    def __add__(self, other: Readahead) -> Readahead:
        return Readahead(
            {name: self.pages[name] + other.pages[name] for name in PAGE_CLASSES},
            self.inserted_pages + other.inserted_pages,
            self.direct_bytes + other.direct_bytes,
            {name: self.faults[name] + other.faults[name] for name in STALL_CLASSES},
            {
                name: Stalls(
                    a.alone + b.alone,
                    a.overlapped + b.overlapped,
                    a.alone_seconds + b.alone_seconds,
                    a.overlapped_seconds + b.overlapped_seconds,
                )
                for name, a, b in (
                    (name, self.stalls[name], other.stalls[name]) for name in STALL_CLASSES
                )
            },
            self.not_input_pages + other.not_input_pages,
        )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes that a stage took from pipes and passed on through them, and the rest that it moved."""

    pipe_in: int | None
    """None: it has no pipe there, or (see `splices`) what went through is not known."""
    pipe_out: int | None
    file_read: int | None
    """From files, sockets and terminals; never below 0. None if it is not known."""
    file_written: int | None
    exact: bool
    """False: `pipe_in` and `pipe_out` are upper bounds, the others lower ones."""
    splices: bool = False
    """It moves bytes within the kernel, which the accounting of read and write does not see."""

    @property
    def taken(self) -> int | None:
        """What it took in: from its pipes, or from files if it has none to read from."""
        return self.file_read if self.pipe_in is None else self.pipe_in

    @property
    def passed_on(self) -> int | None:
        """What it passed on: through its pipes, or to files if it has none to write to."""
        return self.file_written if self.pipe_out is None else self.pipe_out

    def __add__(self, other: Flow) -> Flow:
        return Flow(
            _sum_known(self.pipe_in, other.pipe_in),
            _sum_known(self.pipe_out, other.pipe_out),
            _sum_known(self.file_read, other.file_read),
            _sum_known(self.file_written, other.file_written),
            self.exact and other.exact,
            self.splices or other.splices,
        )


def _sum_known(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


NO_FLOW = Flow(None, None, None, None, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCounters:
    """What is counted for a stage, in one run or over all runs of its place in a pipeline."""

    states: Mapping[str, float]
    """Seconds by state (every name of `STATES`), summed over the stage's threads."""
    user_seconds: float
    system_seconds: float
    read_bytes: int
    """By read-like calls, from whatever (`task->ioac.rchar`), and spliced if that is counted."""
    written_bytes: int
    read_calls: int
    write_calls: int
    sleeps_empty: int
    sleeps_full: int
    forks: int
    execs: int
    exec_failures: int | None
    """None if no hook can see failed execs."""
    exited_children: int
    children_cpu_seconds: float
    children_lifetime_seconds: float
    flow: Flow = NO_FLOW
    functions: Functions | None = None
    """None if the `functions` tier is off."""
    readahead: Readahead | None = None
    """None if the `readahead` tier is off."""


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
    def place(self) -> Place:
        """Position and command: what parallel branches have in common."""
        return self.position, self.command

    @property
    def cpu_seconds(self) -> float:
        return self.states["cpu"]

    @property
    def lifetime_seconds(self) -> float:
        """Sum of the lifetimes of the stage's threads: every second is in one state."""
        return sum(self.states.values())


def total_flow(stages: Iterable[Stage]) -> Flow:
    """The sum over some stages: at least one."""
    first, *others = (stage.flow for stage in stages)
    return sum(others, first)


def total_readahead(stages: Iterable[Stage]) -> Readahead | None:
    """The sum over some stages; None where the `readahead` tier is off."""
    found = [stage.readahead for stage in stages if stage.readahead]
    return sum(found[1:], found[0]) if found else None


@dataclass(frozen=True, slots=True)
class OtherPipeline:
    """A run that shared the host with this one."""

    pipeline: str
    cpu_seconds: float
    """While both lived, at its mean rate."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else used, or kept from the run, the CPUs of the host."""

    others_cores: float | None
    """CPUs that everything but the run, and the hypervisor, kept busy: the mean over the sweeps
    around it. None if it is not known."""
    throttled_seconds: float | None
    """How long the CPU limit of a cgroup held its tasks back; None if it is not known."""
    pipelines: tuple[OtherPipeline, ...] = ()
    """The busiest others, busiest first; of a finished run that waited for a CPU."""


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
    """Id of the enclosing run, in a stage of which this run lies; None if it is in no other."""
    parent_pipeline: str | None = None
    """Signature of the enclosing run."""
    edges: tuple[tuple[int, int], ...] = field(default=())
    """Pairs of indexes into `stages`: writer, reader."""
    partial_tiers: tuple[str, ...] = ()
    """Optional tiers whose hooks were attached only after the run had begun."""
    surroundings: Surroundings | None = None
    """None while it is live, and if nothing is known of them."""

    @property
    def pipeline(self) -> str:
        return self.series.pipeline

    @property
    def nested(self) -> bool:
        """It lies in a stage of another run."""
        return self.series.nested

    @property
    def live(self) -> bool:
        return self.end is None

    def by_place(self, indexes: Iterable[int] | None = None) -> dict[Place, list[int]]:
        """Indexes into `stages` by position and command, in data order.

        Parallel branches of one command share a place. With `indexes`, only of those stages.
        """
        places: dict[Place, list[int]] = {}
        for index in range(len(self.stages)) if indexes is None else indexes:
            places.setdefault(self.stages[index].place, []).append(index)
        return places

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
    def readahead(self) -> Readahead | None:
        """The stages' sum; None if the `readahead` tier is off."""
        return total_readahead(self.stages)

    @property
    def io_overlap(self) -> float | None:
        """Share of the disk waiting that another stage's computing hid; None without waits."""
        waits = self.disk_wait_seconds
        return self.disk_overlapped_seconds / waits if waits > 0 else None


@dataclass(frozen=True, slots=True)
class StagePoint:
    """What one stage did in a point."""

    states: Mapping[str, float]
    """Seconds by state (names of `STATES`), summed over its threads; only those above 0."""
    read_bytes: int
    written_bytes: int
    pid: int = 0
    """Process id of the stage's root; 0 if it is not known."""


@dataclass(frozen=True, slots=True)
class Point:
    """What happened in a run between two moments (Unix time, seconds)."""

    start: float
    end: float
    levels: tuple[float, ...]
    """Seconds at each of `LEVELS`; they add up to `end` - `start`."""
    stages: tuple[StagePoint, ...]
    """One for each of `Run.stages`, in that order, also before the stage was there."""


#: The course of a run: points that follow each other without a gap (model/timeline.py).
Timeline = tuple[Point, ...]


def state_shares(stage: StagePoint, seconds: float) -> dict[str, float]:
    """Shares of a stage's time in a point of so many seconds, by state (every name of `STATES`).

    They are shares of its threads' time together if that is more. What is left to 1 is the time in
    which the stage did not live.
    """
    whole = max(seconds, sum(stage.states.values()))
    return {state: stage.states.get(state, 0.0) / whole if whole > 0 else 0.0 for state in STATES}
