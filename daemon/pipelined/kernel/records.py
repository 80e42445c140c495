# SPDX-License-Identifier: Apache-2.0
"""Decode the kernel side's map records.

The layouts are those of bpf/pipelined.h. tests/kernel/test_layout.py compares them.
Counters stay integers here, in the kernel side's units (nanoseconds, bytes, calls): the
model adds them up many times before anybody reads one.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from pipelined.runs import (
    FILL_EDGES,
    LEVELS,
    PAGE_CLASSES,
    SIZE_EDGES,
    STALL_CLASSES,
    STATES,
    TIME_EDGES,
    Endpoint,
)

__all__ = [
    "CONTROL",
    "COUNTERS",
    "FUNCTIONS",
    "HISTOGRAMS",
    "LOST_KINDS",
    "NO_READAHEAD",
    "NS",
    "PIPE",
    "PIPELINE",
    "PIPE_END",
    "PIPE_KEY",
    "READAHEAD",
    "STAGE",
    "STAGE_ENDS",
    "EndRecord",
    "Group",
    "PipelineRecord",
    "StageRecord",
    "decode_pipeline",
    "decode_stage",
]

#: Seconds.
NS = 1e-9

#: What could not be recorded, in the order of `enum lost_kind`.
LOST_KINDS = ("tasks", "stages", "pipes", "ends", "updates", "readahead")

#: What a stage counts after its nanoseconds by state, in the order of `struct stage`.
COUNTERS = (
    "user_ns",
    "system_ns",
    "read_bytes",
    "written_bytes",
    "read_calls",
    "write_calls",
    "sleeps_empty",
    "sleeps_full",
    "forks",
    "execs",
    "exec_failures",
    "exited_children",
    "children_cpu_ns",
    "children_life_ns",
)

#: Histograms of `struct functions` in their order: field of `runs.Functions`, edges, number of
#: buckets, and the value of 1 in the record's sum.
HISTOGRAMS: tuple[tuple[str, tuple[float, ...], int, float], ...] = (
    ("pipe_writes", SIZE_EDGES, len(SIZE_EDGES) + 1, 1),
    ("pipe_reads", SIZE_EDGES, len(SIZE_EDGES) + 1, 1),
    ("file_reads", SIZE_EDGES, len(SIZE_EDGES) + 1, 1),
    ("file_read_seconds", TIME_EDGES, len(TIME_EDGES) + 1, NS),
    ("pipe_fill", FILL_EDGES, len(FILL_EDGES), 2**-16),
)

#: Pipe ends that a stage remembers.
STAGE_ENDS = 8

_CLOCKS = 2 * len(LEVELS)

# Signed: two CPUs may credit a few negative nanoseconds before the positive ones land.
_COUNTED = f"{len(STATES) + len(COUNTERS)}q"
PIPELINE = Struct(f"=QQ{_CLOCKS}qQ")
PIPE_END = Struct("=QIIQQ")
_STAGE = f"{_COUNTED}7Q6I16s{STAGE_ENDS * PIPE_END.size}s"
STAGE = Struct(f"=Q{PIPELINE.size}s{_STAGE}")
FUNCTIONS = Struct(f"={sum(buckets + 1 for _, _, buckets, _ in HISTOGRAMS) + 1}Q")
PIPE_KEY = Struct("=QII")
PIPE = Struct("=16Q4I16s")
READAHEAD = Struct(f"={len(PAGE_CLASSES) + 2 + 5 * len(STALL_CLASSES)}Q")
CONTROL = Struct("=QQQQIIQQQ")

#: The same, but of the pipeline only the alias.
_STAGE_AND_ALIAS = Struct(f"=Q8xQ{PIPELINE.size - 16}x{_STAGE}")
_STAGE_PARTIAL = 1
_STAGE_ALONE = 16
_END_SIDE_MASK = 3
_END_JOINED = 4
_END_BORROWED = 8
_SLEEPS = len(STATES) + COUNTERS.index("sleeps_empty")
_READ_BYTES = len(STATES) + COUNTERS.index("read_bytes")
_FORKS = len(STATES) + COUNTERS.index("forks")

#: A program in no pipeline counts once its calls have read as much as a pipe holds: the libraries
#: and settings that most programs begin with are less.
READS_ALONE = 65536

#: What most stages of a storm of short processes read through the page cache.
NO_READAHEAD = (0,) * (READAHEAD.size // 8)
_NO_READAHEAD = bytes(READAHEAD.size)


@dataclass(slots=True, eq=False)
class EndRecord:
    """One pipe end of a stage."""

    key: bytes
    """Of the pipe, as in the `pipes` map."""
    side: str
    joined: bool
    sleeps: int
    asleep_ns: int

    @property
    def pipe(self) -> str:
        inode, device, _ = PIPE_KEY.unpack(self.key)
        return f"{device:x}:{inode}"


@dataclass(slots=True, eq=False)
class StageRecord:
    """A stage as the kernel side has it; stamps are nanoseconds of CLOCK_MONOTONIC."""

    index: int
    outer: int
    alias: int
    """Index of the stage into whose pipeline its own was merged, or 0."""
    counted: list[int]
    """By state as in `STATES`, then as in `COUNTERS`."""
    start_ns: int
    end_ns: int
    root_start_ns: int
    cgroup: int
    live: int
    generation: int
    pid: int
    parent_pid: int
    partial: bool
    alone: bool
    """Made for its name, or for `pipelined run`; its pipes, if any, lead outside."""
    command: str
    ends: tuple[EndRecord, ...]
    borrows: bool = False
    """It uses a pipe of the stage around it."""
    functions: tuple[int, ...] = ()
    """The values of `struct functions`; empty where that tier is off."""
    readahead: tuple[int, ...] = ()
    """The values of `struct readahead`; empty where that tier is off."""
    raw: tuple[bytes, ...] = ()
    """What this was decoded from."""


@dataclass(slots=True, eq=False)
class PipelineRecord:
    """A pipeline's clock: nanoseconds by level and by "any stage waiting for disk"."""

    alone_ns: tuple[int, ...]
    """By level, while no stage waited for disk."""
    disk_ns: tuple[int, ...]
    """By level, while one did."""
    start_ns: int


@dataclass(slots=True, eq=False)
class Group:
    """Stages that share a pipeline's clock; most of those with one stage are no pipeline (yet)."""

    root: int
    clock: PipelineRecord
    stages: tuple[StageRecord, ...]
    closed: bool = False
    """Both ends of every pipe are known: nobody else can join."""
    endpoints: tuple[Endpoint, ...] = ()
    slot_edges: tuple[tuple[int, int], ...] = ()
    """(writer, reader) record indexes of edges that the stages' own ends do not tell."""

    @property
    def is_run(self) -> bool:
        """Joined stages, or one that reads by itself and has others do nothing."""
        stage = self.stages[0]
        return len(self.stages) > 1 or (
            stage.alone and stage.counted[_READ_BYTES] >= READS_ALONE and not stage.counted[_FORKS]
        )


def decode_stage(raw: tuple[bytes, bytes, bytes], index: int) -> StageRecord:
    """The stage that `raw` holds: its record, those of its functions and of its readahead.

    The latter two are empty where their tiers are off; `index` is its place in all arrays.
    """
    record, functions, readahead = raw
    fields = _STAGE_AND_ALIAS.unpack_from(record)
    word, alias, *counted = fields[: 2 + len(STATES) + len(COUNTERS)]
    start, end, _, root_start, _, cgroup = fields[-15:-9]
    live, generation, pid, parent_pid, _, flags, _, comm, slots = fields[-9:]
    ends = []
    borrows = False
    for inode, device, side, sleeps, asleep in PIPE_END.iter_unpack(slots):
        if not inode:
            break
        borrows |= bool(side & _END_BORROWED)
        if side & _END_SIDE_MASK:
            key = PIPE_KEY.pack(inode, device, 0)
            writes = side & _END_SIDE_MASK == 2
            joined = bool(side & _END_JOINED)
            ends.append(EndRecord(key, "write" if writes else "read", joined, sleeps, asleep))
            counted[_SLEEPS + writes] += sleeps
    return StageRecord(
        index,
        word >> 32 & 0x3FFFF,
        alias,
        counted,
        start,
        end,
        root_start,
        cgroup,
        live,
        generation,
        pid,
        parent_pid,
        bool(flags & _STAGE_PARTIAL),
        bool(flags & _STAGE_ALONE),
        comm.split(b"\0", 1)[0].decode(errors="backslashreplace"),
        tuple(ends),
        borrows,
        FUNCTIONS.unpack(functions) if functions else (),
        _unpack_readahead(readahead),
        raw,
    )


def _unpack_readahead(record: bytes) -> tuple[int, ...]:
    if record == _NO_READAHEAD:
        return NO_READAHEAD
    return READAHEAD.unpack(record) if record else ()


def decode_pipeline(stage: bytes) -> PipelineRecord:
    """The pipeline record inside a raw stage record."""
    _, _, *times, start = PIPELINE.unpack_from(stage, 8)
    return PipelineRecord(tuple(times[::2]), tuple(times[1::2]), start)
