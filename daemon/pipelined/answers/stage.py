# SPDX-License-Identifier: Apache-2.0
"""A stage of a run."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from pipelined.answers.fields import (
    ByPageClass,
    ByState,
    Bytes,
    CacheState,
    Count,
    CountByClass,
    Keys,
    Pages,
    Ratio,
    Seconds,
    Side,
    UnixTime,
)
from pipelined.runs import STALL_CLASSES

__all__ = [
    "BucketJson",
    "FileBytesJson",
    "FunctionsJson",
    "HistogramJson",
    "PipeBytesJson",
    "PipeEndJson",
    "PipeSleepsJson",
    "ReadaheadJson",
    "StageJson",
    "StallSecondsJson",
    "StallsJson",
]

# `in` cannot be the name of a field.
PipeBytesJson = TypedDict(
    "PipeBytesJson",
    {
        "in": Annotated[
            Bytes | None,
            "[Taken from its pipes](CONCEPTS.md#what-flows); null if it has none there, or if that "
            "is not known.",
        ],
        "out": Annotated[Bytes | None, "Passed on through its pipes, likewise."],
        "exact": Annotated[bool, "They were counted; else they are upper bounds."],
    },
)


PipeBytesJson.__doc__ = "What went through the pipes of a stage."


class FileBytesJson(TypedDict):
    """What a stage moved beside its pipes: from and to files, sockets and terminals."""

    read: Bytes | None
    """At least so much, unless `exact`; null if the stage splices and that is not counted."""
    written: Bytes | None
    """Likewise."""


class PipeSleepsJson(TypedDict):
    """How often a thread of the stage fell asleep on a pipe."""

    empty: Count
    """In a read of an empty pipe."""
    full: Count
    """In a write to a full pipe."""


class BucketJson(TypedDict):
    """One bucket of a histogram."""

    le: float | None
    """Inclusive upper bound; the lower one is half of it, for a fill ratio an eighth less. Null:
    above the last bound."""
    count: Count
    """Values in this bucket."""


class HistogramJson(TypedDict):
    """How often a value lay in each bucket."""

    count: Count
    """Number of calls."""
    sum: float
    """Sum of their values."""
    buckets: list[BucketJson]
    """Those that are not empty."""


class FunctionsJson(TypedDict):
    """What the `functions` tier counts for a stage."""

    pipe_capacity_bytes: Bytes | None
    """Capacity of the pipe that the stage wrote to last; null before its first write."""
    pipe_write_size_bytes: HistogramJson
    """Bytes of each write to a pipe, as requested."""
    pipe_read_size_bytes: HistogramJson
    """Bytes that each read of a pipe returned."""
    file_read_size_bytes: HistogramJson
    """Bytes that each read of a file returned."""
    file_read_seconds: HistogramJson
    """How long each read of a file took."""
    pipe_fill_ratio: HistogramJson
    """How full the pipe was when each write began."""


class StallSecondsJson(TypedDict):
    """Time asleep for disk while reading files."""

    overlapped: Seconds
    """While another stage was on CPU."""
    alone: Seconds
    """While none was."""


class StallsJson(TypedDict):
    """Sleeps for disk while reading files."""

    overlapped: Count
    """While another stage was on CPU for most of it."""
    alone: Count
    """The others."""


class ReadaheadJson(TypedDict):
    """What the `readahead` tier counts for a stage. [CONCEPTS.md](CONCEPTS.md#readahead) defines
    the classes."""

    stall_seconds: Annotated[dict[str, StallSecondsJson], Keys(STALL_CLASSES)]
    """Time asleep for disk while reading files, by the class of the page that ended the wait."""
    stalls: Annotated[dict[str, StallsJson], Keys(STALL_CLASSES)]
    """How often, likewise."""
    pages: ByPageClass
    """Pages of files; `wasted` ones were read ahead and never consumed."""
    read_pages: Pages
    """Pages that reads consumed: all but `wasted`."""
    not_input_pages: Pages
    """Of the `warm` ones: those of files that the run wrote itself, and of programs and
    libraries."""
    inserted_pages: Pages
    """Pages read ahead."""
    coverage_ratio: Ratio | None
    """(hit + late) / (hit + late + miss)."""
    timeliness_ratio: Ratio | None
    """hit / (hit + late)."""
    accuracy_ratio: Ratio | None
    """(hit + late) / inserted."""
    warm_ratio: Ratio | None
    """warm / read, both without `not_input_pages`; null if too few were read."""
    cache_state: CacheState | None
    """By the warm ratio; null if too few were read."""
    direct_read_bytes: Bytes
    """Read past the page cache (O_DIRECT)."""
    file_faults: CountByClass
    """Page faults on mapped files, by class."""


class PipeEndJson(TypedDict):
    """One end of a pipe that the stage slept on."""

    pipe: str
    """Which pipe: `device:inode`."""
    side: Side
    """Which end."""
    sleeps: Count
    """How often threads of the stage slept on it."""
    sleep_seconds: Seconds
    """How long."""


class StageJson(TypedDict):
    """A stage: a process and its descendants."""

    position: int
    """Place in the pipeline from 1; parallel branches of one command share it."""
    command: str
    """Name of the program, as the kernel keeps it."""
    pid: int
    """Process id of the stage's root."""
    start_timestamp_seconds: UnixTime
    """When it started."""
    end_timestamp_seconds: UnixTime | None
    """When it ended; null while it lives."""
    lifetime_seconds: Seconds
    """Sum of the lifetimes of the stage's threads."""
    state_seconds: ByState
    """Their time by [state](METRICS.md#stages); adds up to `lifetime_seconds`."""
    user_seconds: Seconds
    """CPU time in user mode."""
    system_seconds: Seconds
    """CPU time in the kernel."""
    read_bytes: Bytes
    """Bytes that read calls returned, from whatever they read."""
    written_bytes: Bytes
    """Bytes that write calls wrote, wherever to."""
    pipe_bytes: PipeBytesJson
    """What went through its pipes."""
    file_bytes: FileBytesJson
    """What it moved beside them."""
    splices: bool
    """It moves bytes with `splice` or `tee`, which are not counted: its neighbours bound what it
    passed on."""
    read_calls: Count
    """Read-like system calls."""
    write_calls: Count
    """Write-like system calls."""
    pipe_sleeps: PipeSleepsJson
    """How often a thread fell asleep on a pipe."""
    forks: Count
    """Processes and threads that were started."""
    execs: Count
    """Programs executed."""
    exec_failures: Count | None
    """Failed execs; null if no hook could see them from the stage's start."""
    exited_children: Count
    """Started processes that have exited."""
    exited_children_cpu_seconds: Seconds
    """Sum of their CPU times."""
    exited_children_lifetime_seconds: Seconds
    """Sum of their lifetimes."""
    functions: FunctionsJson | None
    """Null if the tier is off, or its hooks were not attached yet when the stage ended."""
    readahead: ReadaheadJson | None
    """Likewise."""
    pipe_ends: list[PipeEndJson]
    """The pipes that the stage slept on."""
    arguments: NotRequired[str | None]
    """Command line; only with `--show-arguments`."""
