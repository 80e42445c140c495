# SPDX-License-Identifier: Apache-2.0
"""A stage of a run: where its time went, what it moved, and what the optional tiers counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pipelined.runs.children import Child
from pipelined.runs.fields import (
    PAGE_CLASSES,
    STALL_CLASSES,
    ByPageClass,
    ByState,
    Bytes,
    CacheState,
    Count,
    CountByClass,
    Group,
    Inline,
    Key,
    Keys,
    OneOf,
    Pages,
    Ratio,
    Seconds,
    Secret,
    Side,
    UnixTime,
    computed,
)
from pipelined.runs.flow import NO_FLOW, Flow

__all__ = [
    "CUT",
    "FAMILIES",
    "FILL_EDGES",
    "HISTOGRAMS",
    "INCOMPLETE",
    "OUTCOMES",
    "SIZE_EDGES",
    "TIME_EDGES",
    "Bucket",
    "Exit",
    "Functions",
    "Histogram",
    "HistogramKind",
    "PipeEnd",
    "Place",
    "Readahead",
    "Stage",
    "StageCounters",
    "StallSeconds",
    "Stalls",
    "total_flow",
    "total_readahead",
]

#: What a stage or a run that has ended may be.
OUTCOMES = ("succeeded", "failed", "interrupted", "unknown")
#: Those of one that has not done what it had to do.
INCOMPLETE = ("failed", "interrupted")

#: What stands behind a command line that is not known to its end. No word ends so: it were quoted.
CUT = " …"

#: Address families of the network.
FAMILIES = ("ipv4", "ipv6")

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

PIPE_SLEEPS = Group(
    "pipe_sleeps", "PipeSleeps", "How often a thread of the stage fell asleep on a pipe."
)


class HistogramKind(NamedTuple):
    """One of the histograms that the `functions` tier counts."""

    field: str
    """Of `Functions`."""
    name: str
    """In the API; with the prefix `pipelined_`, of its metric."""
    edges: tuple[float, ...]
    overflow: bool = True
    """Whether a last bucket counts the values above all edges."""

    @property
    def buckets(self) -> int:
        return len(self.edges) + self.overflow


#: All histograms, in the order of the kernel side's `struct functions`.
HISTOGRAMS = (
    HistogramKind("pipe_writes", "pipe_write_size_bytes", SIZE_EDGES),
    HistogramKind("pipe_reads", "pipe_read_size_bytes", SIZE_EDGES),
    HistogramKind("file_reads", "file_read_size_bytes", SIZE_EDGES),
    HistogramKind("file_read_seconds", "file_read_seconds", TIME_EDGES),
    HistogramKind("pipe_fill", "pipe_fill_ratio", FILL_EDGES, overflow=False),
)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket of a histogram."""

    le: float | None
    """Inclusive upper bound; the lower one is half of it, for a fill ratio an eighth less. Null:
    above the last bound."""
    count: Count
    """Values in this bucket."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often a value lay in each bucket."""

    buckets: tuple[Bucket, ...]
    """The buckets that are not empty."""
    sum: float
    """Sum of all values."""

    @classmethod
    def of(cls, edges: Sequence[float], counts: Iterable[int], sum: float) -> Histogram:
        """By bucket: up to each edge from the one before; a last one, if any, is past all edges."""
        bounds = (*edges, None)
        found = (Bucket(le, count) for le, count in zip(bounds, counts, strict=False) if count)
        return cls(tuple(found), sum)

    @property
    @computed
    def count(self) -> Count:
        """Number of calls."""
        return sum(bucket.count for bucket in self.buckets)

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count else None

    def up_to(self, edge: float) -> int:
        """How many values are in buckets up to this edge."""
        return sum(b.count for b in self.buckets if b.le is not None and b.le <= edge)

    def within(self, share: float) -> float | None:
        """The lowest edge that at least this share of the values does not exceed; None: none."""
        left = share * self.count
        for bucket in self.buckets:
            left -= bucket.count
            if left <= 0:
                return bucket.le
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """What the `functions` tier counts for a stage."""

    pipe_capacity_bytes: Bytes | None
    """Capacity of the pipe that the stage wrote to last; null before its first write."""
    pipe_writes: Annotated[Histogram, Key("pipe_write_size_bytes")]
    """Bytes of each write to a pipe, as requested."""
    pipe_reads: Annotated[Histogram, Key("pipe_read_size_bytes")]
    """Bytes that each read of a pipe returned."""
    file_reads: Annotated[Histogram, Key("file_read_size_bytes")]
    """Bytes that each read of a file returned."""
    file_read_seconds: Histogram
    """How long each read of a file took."""
    pipe_fill: Annotated[Histogram, Key("pipe_fill_ratio")]
    """How full the pipe was when each write began."""


class StallSeconds(NamedTuple):
    """Time asleep for disk while reading files."""

    overlapped: Seconds = 0.0
    """While another stage was on CPU."""
    alone: Seconds = 0.0
    """While none was."""


class Stalls(NamedTuple):
    """Sleeps for disk while reading files."""

    overlapped: Count = 0
    """While another stage was on CPU for most of it."""
    alone: Count = 0
    """All other sleeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readahead:
    """What the `readahead` tier counts for a stage. [CONCEPTS.md](CONCEPTS.md#readahead) defines
    the classes."""

    stall_seconds: Annotated[Mapping[str, StallSeconds], Keys(STALL_CLASSES)]
    """Time asleep for disk while reading files, by the class of the page that ended the wait."""
    stalls: Annotated[Mapping[str, Stalls], Keys(STALL_CLASSES)]
    """How often, by the same classes."""
    pages: ByPageClass
    """Pages of files; `wasted` ones were read ahead and never consumed."""
    not_input_pages: Pages = 0
    """Of the `warm` ones: those of files that the run wrote itself, and of programs and
    libraries."""
    files: Annotated[Count | None, Key("files_read")] = None
    """Files, without programs and libraries, of which reads took in the begin."""
    inserted_pages: Pages
    """Pages read ahead."""
    direct_bytes: Annotated[Bytes, Key("direct_read_bytes")]
    """Read past the page cache (O_DIRECT)."""
    faults: Annotated[CountByClass, Key("file_faults")]
    """Page faults on mapped files, by class."""

    @property
    @computed
    def read_pages(self) -> Pages:
        """Pages that reads consumed: all but `wasted`."""
        return sum(self.pages.values()) - self.pages["wasted"]

    @property
    @computed
    def coverage(self) -> Annotated[Ratio | None, Key("coverage_ratio")]:
        """(hit + late) / (hit + late + miss)."""
        return _ratio(self._ahead, self._ahead + self.pages["miss"])

    @property
    @computed
    def timeliness(self) -> Annotated[Ratio | None, Key("timeliness_ratio")]:
        """hit / (hit + late)."""
        return _ratio(self.pages["hit"], self._ahead)

    @property
    @computed
    def accuracy(self) -> Annotated[Ratio | None, Key("accuracy_ratio")]:
        """(hit + late) / inserted."""
        return _ratio(self._ahead, self.inserted_pages)

    @property
    @computed
    def warm_share(self) -> Annotated[Ratio | None, Key("warm_ratio")]:
        """warm / read, both without `not_input_pages`; null if too few were read."""
        read = self.read_pages - self.not_input_pages
        return (self.pages["warm"] - self.not_input_pages) / read if read >= _MIN_PAGES else None

    @property
    @computed
    def cache_state(self) -> CacheState | None:
        """By the warm ratio; null if too few were read."""
        share = self.warm_share
        if share is None:
            return None
        return "warm" if share > _ONE_KIND else "cold" if share < 1 - _ONE_KIND else "mixed"

    @property
    def all_stall_seconds(self) -> float:
        return sum(map(sum, self.stall_seconds.values()))

    @property
    def overlapped_seconds(self) -> float:
        """Of the stall seconds, those in which a stage of the pipeline was on CPU."""
        return sum(split.overlapped for split in self.stall_seconds.values())

    @property
    def stall_count(self) -> int:
        return sum(map(sum, self.stalls.values()))

    @property
    def _ahead(self) -> int:
        return self.pages["hit"] + self.pages["late"]

    def __add__(self, other: Readahead) -> Readahead:
        return Readahead(
            stall_seconds={
                name: StallSeconds(*map(sum, zip(a, other.stall_seconds[name], strict=True)))
                for name, a in self.stall_seconds.items()
            },
            stalls={
                name: Stalls(*map(sum, zip(a, other.stalls[name], strict=True)))
                for name, a in self.stalls.items()
            },
            pages={name: self.pages[name] + other.pages[name] for name in PAGE_CLASSES},
            not_input_pages=self.not_input_pages + other.not_input_pages,
            files=None if self.files is None or other.files is None else self.files + other.files,
            inserted_pages=self.inserted_pages + other.inserted_pages,
            direct_bytes=self.direct_bytes + other.direct_bytes,
            faults={name: self.faults[name] + other.faults[name] for name in STALL_CLASSES},
        )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True)
class PipeEnd:
    """One end of a pipe that the stage slept on."""

    pipe: str
    """Which pipe: `device:inode`."""
    side: Side
    """Which end."""
    sleeps: Count
    """How often threads of the stage slept on it."""
    seconds: Annotated[Seconds, Key("sleep_seconds")]
    """How long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process has ended, as its parent sees it in `wait`."""

    code: int | None = None
    """Exit code; null if a signal killed it."""
    signal: str | None = None
    """Name of the signal that killed it, such as `SIGKILL`; null if it exited."""
    core_dumped: bool = False
    """It left a core dump."""
    out_of_memory: bool = False
    """The kernel killed it because memory had run out, on the host or in its cgroup."""
    from_inside: bool = False
    """Of SIGINT, SIGTERM or SIGHUP, also in the exit code of a shell: a process of the run sent it,
    and nobody outside did. False too if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCounters:
    """What is counted for a stage, in one run or over all runs of its place in a pipeline."""

    states: Annotated[ByState, Key("state_seconds")]
    """Time of its threads by [state](METRICS.md#stages); adds up to `lifetime_seconds`."""
    user_seconds: Seconds
    """CPU time in user mode."""
    system_seconds: Seconds
    """CPU time in the kernel."""
    read_bytes: Bytes
    """Bytes that read calls returned, from whatever they read."""
    written_bytes: Bytes
    """Bytes that write calls wrote, wherever to."""
    flow: Annotated[Flow, Inline()] = NO_FLOW
    read_calls: Count
    """Read-like system calls."""
    write_calls: Count
    """Write-like system calls."""
    sleeps_empty: Annotated[Count, Key(PIPE_SLEEPS, "empty")]
    """In a read of an empty pipe."""
    sleeps_full: Annotated[Count, Key(PIPE_SLEEPS, "full")]
    """In a write to a full pipe."""
    forks: Count
    """Processes that were started."""
    execs: Count
    """Programs executed."""
    exec_failures: Count | None
    """Failed execs; null if no hook could see them from the stage's start."""
    exited_children: Count
    """Started processes that have exited."""
    children_cpu_seconds: Annotated[Seconds, Key("exited_children_cpu_seconds")]
    """Sum of their CPU times."""
    children_lifetime_seconds: Annotated[Seconds, Key("exited_children_lifetime_seconds")]
    """Sum of their lifetimes."""
    functions: Functions | None = None
    """Null if the tier is off, or its hooks were not attached yet when the stage ended."""
    readahead: Readahead | None = None
    """Null for the same reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(StageCounters):
    """A stage: a process and its descendants."""

    position: int
    """Place in the pipeline from 1; parallel branches of one command share it."""
    command: str
    """Name of the program, as the kernel keeps it."""
    pid: int
    """Process id of the stage's root."""
    start: Annotated[UnixTime, Key("start_timestamp_seconds")]
    """When it started."""
    end: Annotated[UnixTime | None, Key("end_timestamp_seconds")]
    """When the last of its processes ended, its root maybe earlier; null while one lives."""
    exit: Exit | None = None
    """How its root process has ended; null while that lives, or if nobody saw its end."""
    outcome: Annotated[str, OneOf(OUTCOMES)] | None = None
    """What that end means: `succeeded` too after a harmless exit code, or by SIGPIPE if its reader
    was done; `unknown` if nobody saw it. Null while the root process lives."""
    ends: Annotated[tuple[PipeEnd, ...], Key("pipe_ends")] = ()
    """The pipes that the stage slept on."""
    children: tuple[Child, ...] = ()
    """Its processes but the root that have exited, by command: those with the most CPU time, and
    the others added up."""
    peer_port: int | None = None
    """Port of the peer of the network connection that it waited for last; not which host."""
    peer_family: Annotated[str, OneOf(FAMILIES)] | None = None
    """Address family of that connection."""
    arguments: Annotated[str | None, Secret()] = None
    """Command line; only with `--show-arguments`. Of more than 4,096 bytes the first, and ` …`."""

    @classmethod
    def from_older(cls, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """A version that did not count pipes apart from files: all may have gone through pipes."""
        if "pipe_bytes" in answer:
            return answer
        pipes = {"in": answer["read_bytes"], "out": answer["written_bytes"], "exact": False}
        files = {"read": None, "written": None}
        return {**answer, "pipe_bytes": pipes, "file_bytes": files}

    @property
    def place(self) -> Place:
        """Position and command: what parallel branches have in common."""
        return self.position, self.command

    @property
    def whole_arguments(self) -> str | None:
        """Its command line, unless it is not known to its end."""
        cut = self.arguments is None or self.arguments.endswith(CUT)
        return None if cut else self.arguments

    @property
    def cpu_seconds(self) -> float:
        return self.states["cpu"]

    @property
    @computed
    def own_cpu_seconds(self) -> Seconds:
        """CPU time of its root and of what still runs: all but `exited_children_cpu_seconds`."""
        return max(0.0, self.cpu_seconds - self.children_cpu_seconds)

    @property
    @computed
    def lifetime_seconds(self) -> Seconds:
        """Sum of the lifetimes of the stage's threads."""
        return sum(self.states.values())


def total_flow(stages: Iterable[Stage]) -> Flow:
    """The sum over some stages: at least one."""
    first, *others = (stage.flow for stage in stages)
    return sum(others, first)


def total_readahead(stages: Iterable[Stage]) -> Readahead | None:
    """The sum over some stages; None where the `readahead` tier is off."""
    found = [stage.readahead for stage in stages if stage.readahead]
    return sum(found[1:], found[0]) if found else None
