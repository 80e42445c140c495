# SPDX-License-Identifier: Apache-2.0
"""Decode the kernel side's map records; nanoseconds end here.

The layouts are those of bpf/pipelined.h. tests/kernel/test_layout.py compares them.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from struct import Struct

from .runs import LEVELS, STATES, Endpoint

__all__ = [
    "CONTROL",
    "LOST_KINDS",
    "PIPE",
    "PIPELINE",
    "PIPE_END",
    "PIPE_KEY",
    "STAGE",
    "Group",
    "PipelineRecord",
    "StageRecord",
    "decode_pipeline",
    "decode_stage",
]

NS = 1e-9

#: What could not be recorded, in the order of `enum lost_kind`.
LOST_KINDS = ("tasks", "stages", "pipelines", "pipes", "ends", "updates")

_STAGE_ENDS = 8
_STATES = len(STATES)
_USAGE = 14  # user_ns … children_life_ns

STAGE = Struct(f"={1 + _STATES + _USAGE + 6}Q6I16s" + "QIIQQ" * _STAGE_ENDS)
PIPELINE = Struct(f"=2Q{2 * len(LEVELS)}Q2Q4I")
PIPE_KEY = Struct("=QII")
PIPE_END = Struct("=QIIQQ")
PIPE = Struct("=16I4I16s")
CONTROL = Struct("=QQII")

STAGE_PARTIAL = 1
_END_SIDE_MASK = 3
_END_JOINED = 4


@dataclass(frozen=True, slots=True)
class EndRecord:
    """One pipe end of a stage."""

    inode: int
    device: int
    side: str
    joined: bool
    sleeps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StageRecord:
    """A stage as the kernel side has it; times in seconds, stamps on CLOCK_MONOTONIC."""

    index: int
    pipeline: int
    outer: int
    times: tuple[float, ...]
    user: float
    system: float
    read_bytes: int
    written_bytes: int
    read_calls: int
    write_calls: int
    sleeps_empty: int
    sleeps_full: int
    forks: int
    execs: int
    exec_failures: int
    exited_children: int
    children_cpu: float
    children_life: float
    start: float
    end: float
    cgroup: int
    live: int
    generation: int
    pid: int
    parent_pid: int
    root_start: float
    partial: bool
    command: str
    ends: tuple[EndRecord, ...]


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """A pipeline's clock: seconds by level and by "any stage waiting for disk"."""

    times: tuple[tuple[float, float], ...]
    start: float
    end: float
    live: int
    alias: int


@dataclass(frozen=True, slots=True)
class Group:
    """Stages that share a pipeline's clock; one stage alone is no pipeline (yet)."""

    root: int
    clock: PipelineRecord
    stages: tuple[StageRecord, ...]
    endpoints: tuple[Endpoint, ...] = ()
    slot_edges: tuple[tuple[int, int], ...] = ()
    """(writer, reader) record indexes of edges that the stages' own ends do not tell."""

    @property
    def joined(self) -> bool:
        return len(self.stages) > 1


def decode_stage(buffer: mmap.mmap | bytes, index: int) -> StageRecord:
    """The stage record at `index` of the mapped `stages` array."""
    raw = STAGE.unpack_from(buffer, index * STAGE.size)
    word = raw[0]
    usage = raw[1 + _STATES :]
    tail = usage[_USAGE:]
    live, generation, pid, parent_pid, _, flags, comm = tail[6:13]
    ends = []
    for i in range(_STAGE_ENDS):
        inode, device, side, sleeps, asleep = tail[13 + 5 * i : 18 + 5 * i]
        if inode and side:
            ends.append(
                EndRecord(
                    inode,
                    device,
                    "write" if side & _END_SIDE_MASK == 2 else "read",
                    bool(side & _END_JOINED),
                    sleeps,
                    asleep * NS,
                )
            )
    return StageRecord(
        index=index,
        pipeline=word >> 28 & 0x3FFFF,
        outer=word >> 46,
        times=tuple([_signed(value) * NS for value in raw[1 : 1 + _STATES]]),
        user=usage[0] * NS,
        system=usage[1] * NS,
        read_bytes=usage[2],
        written_bytes=usage[3],
        read_calls=usage[4],
        write_calls=usage[5],
        sleeps_empty=usage[6],
        sleeps_full=usage[7],
        forks=usage[8],
        execs=usage[9],
        exec_failures=usage[10],
        exited_children=usage[11],
        children_cpu=usage[12] * NS,
        children_life=usage[13] * NS,
        start=tail[0] * NS,
        end=tail[1] * NS,
        cgroup=tail[5],
        live=live,
        generation=generation,
        pid=pid,
        parent_pid=parent_pid,
        root_start=tail[3] * NS,
        partial=bool(flags & STAGE_PARTIAL),
        command=comm.split(b"\0", 1)[0].decode(errors="backslashreplace"),
        ends=tuple(ends),
    )


def decode_pipeline(buffer: mmap.mmap | bytes, index: int) -> PipelineRecord:
    """The pipeline record at `index` of the mapped `pipelines` array."""
    raw = PIPELINE.unpack_from(buffer, index * PIPELINE.size)
    levels = 2 * len(LEVELS)
    times = raw[2 : 2 + levels]
    start, end, alias = raw[2 + levels : 5 + levels]
    return PipelineRecord(
        times=tuple(
            [
                (_signed(a) * NS, _signed(b) * NS)
                for a, b in zip(times[::2], times[1::2], strict=True)
            ]
        ),
        start=start * NS,
        end=end * NS,
        live=raw[0] >> 32,
        alias=alias,
    )


def _signed(value: int) -> int:
    # Two CPUs may credit a few negative nanoseconds before the positive ones land.
    return value - (1 << 64) if value >> 63 else value
