# SPDX-License-Identifier: Apache-2.0
"""Decode the kernel side's map records, whose bytes layout.py describes.

Counters stay integers here, in the kernel side's units (nanoseconds, bytes, calls): the
model adds them up many times before anybody reads one.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import MutableSequence, Sequence
from ctypes import sizeof
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from pipelined.kernel import layout
from pipelined.kernel.layout import COUNTERS, struct_of, words_of
from pipelined.runs import (
    HISTOGRAMS,
    PAGE_CLASSES,
    STALL_CLASSES,
    STATES,
    Endpoint,
    Functions,
    Histogram,
    Readahead,
    Stalls,
)
from pipelined.starter import Starter

__all__ = [
    "NO_READAHEAD",
    "NS",
    "PIPE_IN",
    "PIPE_KEY",
    "PIPE_OUT",
    "EndRecord",
    "Group",
    "Job",
    "PipelineRecord",
    "RawStage",
    "StageRecord",
    "decode_functions",
    "decode_pipeline",
    "decode_readahead",
    "decode_stage",
    "is_conversation",
    "joined",
    "text",
]

#: Seconds.
NS = 1e-9

#: The bytes of a stage's record, those of its functions and those of its readahead. The latter two
#: are empty if their tiers are off.
RawStage = tuple[bytes, bytes, bytes]

PIPE_KEY = struct_of(layout.PipeKey, "inode", "device", "zero")

_STAGE = struct_of(
    layout.Stage,
    "word",
    "pipeline.alias",
    "start_ns",
    "end_ns",
    "root_start_ns",
    "cgroup",
    "starter.start_ns",
    "starter.pid",
    "live",
    "generation",
    "pid",
    "parent_pid",
    "flags",
    "comm",
    "ends",
    "job.source",
    "job.text",
)
_COUNTED = struct_of(layout.Stage, "time_ns", *COUNTERS)
_CLOCK = struct_of(layout.Stage, "pipeline.time_ns", "pipeline.start_ns")
_END = struct_of(layout.PipeEnd, "inode", "device", "side_and_flags", "sleeps", "asleep_ns")
_FUNCTIONS = Struct(f"={sizeof(layout.Functions) // 8}Q")
_READAHEAD = Struct(f"={sizeof(layout.ReadaheadCounters) // 8}Q")

_SIDES = ("read", "write")
#: With the second of these flags the root no longer has the end as its stdin or stdout.
_OWN = layout.END_STANDARD | layout.END_LEFT
_NOWHERE: frozenset[str] = frozenset()

# Places among those values.
_HISTOGRAMS = tuple(
    (
        kind,
        words_of(layout.Functions, f"{kind.record}.counts"),
        words_of(layout.Functions, f"{kind.record}.sum").start,
    )
    for kind in HISTOGRAMS
)
_PIPE_SLOTS = words_of(layout.Functions, "pipe_slots").start
PIPE_IN, PIPE_OUT = (
    words_of(layout.Functions, name).start for name in ("pipe_in_bytes", "pipe_out_bytes")
)
_PAGES, _FAULTS, _STALLS, _STALL_NS = (
    words_of(layout.ReadaheadCounters, name) for name in ("pages", "faults", "stalls", "stall_ns")
)
_INSERTED, _DIRECT_BYTES, _NOT_INPUT = (
    words_of(layout.ReadaheadCounters, name).start
    for name in ("inserted", "direct_bytes", "not_input")
)

_CPU = STATES.index("cpu")
_SLEEPS_EMPTY, _SLEEPS_FULL, _READ_BYTES, _FORKS = (
    len(STATES) + COUNTERS.index(name)
    for name in ("sleeps_empty", "sleeps_full", "read_bytes", "forks")
)

#: A program in no pipeline counts once its calls have read as much as a pipe holds: the libraries
#: and settings that most programs begin with are less.
READS_ALONE = 65536
#: Or once it has been on CPU for so long: what starts most programs takes less (nanoseconds).
COMPUTES_ALONE = 100_000_000

#: What most stages of a storm of short processes read through the page cache.
NO_READAHEAD = (0,) * (sizeof(layout.ReadaheadCounters) // 8)
_NO_READAHEAD = bytes(sizeof(layout.ReadaheadCounters))

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True, eq=False)
class EndRecord:
    """One pipe end of a stage."""

    key: bytes
    """The pipe's key in the `pipes` map."""
    side: str
    joined: bool
    own: bool
    """It is joined, or the root's stdin or stdout: no pipe to a child, such as that of `$(…)`."""
    sleeps: int
    asleep_ns: int

    @property
    def pipe(self) -> str:
        inode, device, _ = PIPE_KEY.unpack(self.key)
        return f"{device:x}:{inode}"


class Job(NamedTuple):
    """What the kernel side knows of a job (bpf/jobs.bpf.h): `model.jobs` makes a name of it."""

    source: int
    """What the text is: ``JOB_…`` of layout.py."""
    text: bytes


@dataclass(slots=True, eq=False)
class StageRecord:
    """The record of a stage; time stamps are nanoseconds of CLOCK_MONOTONIC."""

    index: int
    outer: int
    alias: int
    """Index of the stage into whose pipeline its own was merged, or 0."""
    counted: MutableSequence[int]
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
    """Made for its name, or for `pipelined run`; its pipes, if any, lead outside the stages."""
    command: str
    ends: tuple[EndRecord, ...]
    converses: bool = False
    """Its parent is at the other end of both its stdin and its stdout."""
    retired: bool = False
    """It is over, though threads or inner stages of it may live: they are about to leave it."""
    borrows: frozenset[str] = frozenset()
    """At which sides (``read``, ``write``) it uses a pipe of the stage around it."""
    splices: bool = False
    """It was asleep in splice or tee."""
    late: bool = False
    """It may have used a pipe before that was known to be its own."""
    starter: Starter | None = None
    """The `pipelined run` above it that has no observer of its own; None of most stages."""
    job: Job | None = None
    """The job that it is a part of; None of most stages outside one."""
    functions: tuple[int, ...] = ()
    """The values of `struct functions`; empty if that tier is off."""
    readahead: tuple[int, ...] = ()
    """The values of `struct readahead`; empty if that tier is off."""
    fingerprint: int = 0
    """`hash` of what this was decoded from: another value means that the record has changed."""

    @property
    def ended(self) -> bool:
        """It is over: `end_ns` is final."""
        return bool(self.end_ns) and (self.retired or not self.live)


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
    """Both ends of every pipe are known: no other stage can join."""
    endpoints: tuple[Endpoint, ...] = ()
    slot_edges: tuple[tuple[int, int], ...] = ()
    """(writer, reader) record indexes of edges that are missing in the stages' own ends."""
    conversation: bool = False
    """Its pipes lead both ways (`is_conversation`)."""

    @property
    def starters(self) -> frozenset[Starter]:
        """Who started it: of two with a FIFO between them each started a part."""
        return frozenset(stage.starter for stage in self.stages if stage.starter)

    @property
    def is_run(self) -> bool:
        """Several joined stages, or a single one that reads or computes and has forked nothing."""
        stage = self.stages[0]
        if self.conversation:
            return False
        if len(self.stages) > 1:
            return True
        counted = stage.counted
        works = counted[_READ_BYTES] >= READS_ALONE or counted[_CPU] >= COMPUTES_ALONE
        return stage.alone and works and not counted[_FORKS]


def decode_stage(raw: RawStage, index: int) -> StageRecord:
    """The stage whose bytes `raw` holds; `index` is its place in all arrays."""
    record, functions, readahead = raw
    # Assigned one by one: to call the class with 20 keywords would take a third longer.
    stage = StageRecord.__new__(StageRecord)
    (
        word,
        stage.alias,
        stage.start_ns,
        stage.end_ns,
        stage.root_start_ns,
        stage.cgroup,
        starter_start_ns,
        starter_pid,
        stage.live,
        stage.generation,
        stage.pid,
        stage.parent_pid,
        flags,
        comm,
        slots,
        job_source,
        job_text,
    ) = _STAGE.unpack_from(record)
    stage.fingerprint = hash(raw)
    stage.index = index
    stage.outer = word >> layout.WORD_OUTER_SHIFT & layout.INDEX_MASK
    stage.retired = bool(word & layout.WORD_RETIRED)
    stage.partial = bool(flags & layout.STAGE_PARTIAL)
    stage.converses = bool(flags & layout.STAGE_CONVERSES)
    stage.alone = bool(flags & layout.STAGE_ALONE)
    stage.command = text(comm)
    stage.counted = counted = array("q", _COUNTED.unpack_from(record))
    stage.borrows = _NOWHERE
    stage.splices = bool(flags & layout.STAGE_SPLICES)
    stage.late = False
    stage.starter = Starter.of(starter_pid, starter_start_ns) if starter_pid else None
    stage.job = Job(job_source, job_text.split(b"\0", 1)[0]) if job_source else None
    ends = []
    for inode, device, side_and_flags, sleeps, asleep_ns in _END.iter_unpack(slots):
        if not inode:
            break
        if side_and_flags & layout.END_BORROWED:
            side = (side_and_flags >> layout.END_BORROWED_SHIFT & layout.END_SIDE_MASK) - 1
            stage.borrows |= {_SIDES[side]}
            continue
        side = (side_and_flags & layout.END_SIDE_MASK) - 1
        if side < 0:  # it is being filled
            continue
        key = PIPE_KEY.pack(inode, device, 0)
        joined = bool(side_and_flags & layout.END_JOINED)
        own = joined or side_and_flags & _OWN == layout.END_STANDARD
        if own and side_and_flags & layout.END_LATE:
            stage.late = True
        ends.append(EndRecord(key, _SIDES[side], joined, own, sleeps, asleep_ns))
        counted[_SLEEPS_FULL if side == layout.SIDE_WRITE else _SLEEPS_EMPTY] += sleeps
    stage.ends = tuple(ends)
    stage.functions = _FUNCTIONS.unpack(functions) if functions else ()
    if readahead == _NO_READAHEAD:
        stage.readahead = NO_READAHEAD
    else:
        stage.readahead = _READAHEAD.unpack(readahead) if readahead else ()
    return stage


def joined(stages: Sequence[StageRecord]) -> set[tuple[int, int]]:
    """Which of these stages a pipe joins, (writer, reader) by index, by the ends they remember."""
    writers: dict[bytes, list[int]] = {}
    readers: dict[bytes, list[int]] = {}
    for stage in stages:
        for end in stage.ends:
            if end.joined:
                ends = writers if end.side == "write" else readers
                ends.setdefault(end.key, []).append(stage.index)
    return {
        (writer, reader)
        for key, found in writers.items()
        for writer in found
        for reader in readers.get(key, ())
        if reader != writer
    }


def is_conversation(stages: Sequence[StageRecord]) -> bool:
    """Whether stages talk to each other, or one to its parent, and pass nothing on.

    That is so if between any two stages that a pipe joins (`joined`) another one leads back. A
    chain of three or more that leads back to its first stage is a pipeline.
    """
    if len(stages) == 1:
        return stages[0].converses
    edges = joined(stages)
    return bool(edges) and all((reader, writer) in edges for writer, reader in edges)


def decode_pipeline(stage: bytes) -> PipelineRecord:
    """The pipeline record inside a stage's record."""
    *times, start = _CLOCK.unpack_from(stage)
    return PipelineRecord(tuple(times[::2]), tuple(times[1::2]), start)


def decode_functions(values: Sequence[int]) -> Functions:
    """What the values of a `struct functions`, or sums of several, amount to."""
    histograms = {
        kind.field: Histogram(kind.edges, tuple(values[counts]), values[total] * kind.unit)
        for kind, counts, total in _HISTOGRAMS
    }
    return Functions(**histograms, pipe_capacity_bytes=values[_PIPE_SLOTS] * _PAGE or None)


def decode_readahead(values: Sequence[int]) -> Readahead:
    """What the values of a `struct readahead`, or sums of several, amount to."""
    stalls, stall_ns = values[_STALLS], values[_STALL_NS]
    return Readahead(
        pages=dict(zip(PAGE_CLASSES, values[_PAGES], strict=True)),
        inserted_pages=values[_INSERTED],
        direct_bytes=values[_DIRECT_BYTES],
        faults=dict(zip(STALL_CLASSES, values[_FAULTS], strict=True)),
        stalls=_stalls(stalls, stall_ns) if any(stalls) or any(stall_ns) else _NO_STALLS,
        not_input_pages=values[_NOT_INPUT],
    )


def _stalls(stalls: Sequence[int], stall_ns: Sequence[int]) -> dict[str, Stalls]:
    return {
        name: Stalls(
            alone=stalls[at],
            overlapped=stalls[at + 1],
            alone_seconds=NS * stall_ns[at],
            overlapped_seconds=NS * stall_ns[at + 1],
        )
        for at, name in zip(range(0, len(stalls), 2), STALL_CLASSES, strict=True)
    }


#: Most stages never wait for a read: one object for all of them.
_NO_STALLS = _stalls([0] * 2 * len(STALL_CLASSES), [0] * 2 * len(STALL_CLASSES))


def text(comm: bytes) -> str:
    """A command name, as the kernel keeps it."""
    return comm.split(b"\0", 1)[0].decode(errors="backslashreplace")
