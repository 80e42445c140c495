# SPDX-License-Identifier: Apache-2.0
"""Decode the bytes of the kernel side's maps, which layout.py describes, into records."""

from __future__ import annotations

from array import array
from ctypes import sizeof
from functools import lru_cache
from struct import Struct

from pipelined.kernel import layout
from pipelined.kernel.layout import offset_of, struct_of
from pipelined.records.process import Process
from pipelined.records.stage import (
    COUNTERS,
    ChildRecord,
    EndRecord,
    Job,
    Peer,
    PipelineRecord,
    StageRecord,
    place_of,
)
from pipelined.records.tiers import NO_READAHEAD
from pipelined.runs import FAMILIES
from pipelined.starter import Starter

__all__ = ["RawStage", "decode_pipeline", "decode_stage", "text"]

#: The bytes of a stage's record, those of its functions, of its readahead and of its children.
#: Functions and readahead are empty if their tiers are off.
RawStage = tuple[bytes, bytes, bytes, bytes]

_STAGE = struct_of(
    layout.Stage,
    "word",
    "pipeline.alias",
    "start_ns",
    "end_ns",
    "root.start_ns",
    "root.pid",
    "parent.start_ns",
    "parent.pid",
    "starter.start_ns",
    "starter.pid",
    "starter.uid",
    "cgroup",
    "live",
    "generation",
    "flags",
    "exit_status",
    "user",
    "instance",
    "peer",
    "comm",
    "ends",
    "job.source",
    "job.text",
)
#: The bytes of what a stage counts, which is one after the other (tests/unit/test_layout.py).
_COUNTED = slice(offset_of(layout.Stage, "time_ns"), struct_of(layout.Stage, COUNTERS[-1]).size)
_CLOCK = struct_of(layout.Stage, "pipeline.time_ns", "pipeline.start_ns")
_END = struct_of(layout.PipeEnd, "pipe", "side_and_flags", "sleeps", "asleep_ns")
_NO_INODE = bytes(8)
_FUNCTIONS = Struct(f"={sizeof(layout.Functions) // 8}Q")
_READAHEAD = Struct(f"={sizeof(layout.ReadaheadCounters) // 8}Q")
_CHILD = Struct(f"={layout.COMM_LEN}sQQQ")

_PARTIAL = layout.STAGE_PARTIAL | layout.STAGE_RESUMED
_SIDES = ("read", "write")
#: With the second of these flags the root no longer has the end as its stdin or stdout.
_OWN = layout.END_STANDARD | layout.END_LEFT
#: The two of the network (AF_INET and AF_INET6 of Linux).
_FAMILIES = dict(zip((2, 10), FAMILIES, strict=True))
_NOWHERE: frozenset[str] = frozenset()

_SLEEPS_EMPTY, _SLEEPS_FULL = map(place_of, ("sleeps_empty", "sleeps_full"))

#: What most stages of a storm of short processes read through the page cache.
_NO_READAHEAD = bytes(sizeof(layout.ReadaheadCounters))
#: What most stages have started.
_NO_CHILDREN = bytes(sizeof(layout.Children))


def decode_stage(raw: RawStage, index: int) -> StageRecord:
    """The stage whose bytes `raw` holds; `index` is its place in all arrays."""
    record, functions, readahead, children = raw
    # Assigned one by one: to call the class with 20 keywords would take a third longer.
    stage = StageRecord.__new__(StageRecord)
    (
        word,
        stage.alias,
        stage.start_ns,
        stage.end_ns,
        root_start_ns,
        root_pid,
        parent_start_ns,
        parent_pid,
        starter_start_ns,
        starter_pid,
        stage.starter_uid,
        stage.cgroup,
        stage.live,
        stage.generation,
        flags,
        stage.exit_status,
        user,
        stage.instance,
        peer,
        comm,
        slots,
        job_source,
        job_text,
    ) = _STAGE.unpack_from(record)
    stage.fingerprint = hash(raw)
    stage.index = index
    stage.root = Process(root_pid, root_start_ns)
    stage.parent = Process(parent_pid, parent_start_ns)
    stage.outer = word >> layout.WORD_OUTER_SHIFT & layout.INDEX_MASK
    stage.retired = word & layout.WORD_RETIRED != 0
    stage.partial = flags & _PARTIAL != 0
    stage.unmet = flags & layout.STAGE_UNMET != 0
    stage.converses = flags & layout.STAGE_CONVERSES != 0
    stage.alone = flags & layout.STAGE_ALONE != 0
    stage.command = text(comm)
    stage.counted = counted = array("q", record[_COUNTED])
    stage.borrows = _NOWHERE
    stage.splices = flags & layout.STAGE_SPLICES != 0
    stage.encloses = flags & layout.STAGE_ENCLOSES != 0
    stage.late = False
    stage.starter = Starter.of(starter_pid, starter_start_ns) if starter_pid else None
    stage.job = Job(job_source, job_text.split(b"\0", 1)[0]) if job_source else None
    stage.uid = user - 1 if user else None
    stage.variables = None
    stage.peer = _peer(peer) if peer else None
    ends = []
    for key, side_and_flags, sleeps, asleep_ns in _END.iter_unpack(slots):
        if key.startswith(_NO_INODE):
            break
        if side_and_flags & layout.END_BORROWED:
            # the shell that was forked for `>(gzip > f)` had it before its redirection
            if not side_and_flags & layout.END_LEFT:
                side = (side_and_flags >> layout.END_BORROWED_SHIFT & layout.END_SIDE_MASK) - 1
                stage.borrows |= {_SIDES[side]}
            continue
        side = (side_and_flags & layout.END_SIDE_MASK) - 1
        if side < 0:  # it is being filled
            continue
        joined = side_and_flags & layout.END_JOINED != 0
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
    stage.children = () if children == _NO_CHILDREN else _children(children)
    return stage


def _peer(peer: int) -> Peer:
    family, port = divmod(peer, 1 << layout.PEER_FAMILY_SHIFT)
    return Peer(_FAMILIES[family], port)


def _children(places: bytes) -> tuple[ChildRecord, ...]:
    """By name, once each; those that found no place come last, without one."""
    *named, rest = _CHILD.iter_unpack(places)
    found: dict[str, ChildRecord] = {}
    for name, longest_ns, count, cpu_ns in named:
        if not (longest_ns and (count or cpu_ns)):  # free, or all was taken back
            continue
        child = ChildRecord(text(name), count, cpu_ns, longest_ns)
        before = found.get(child.command or "")
        found[child.command or ""] = before.plus(child) if before else child
    _, longest_ns, count, cpu_ns = rest
    if count or cpu_ns:
        return (*found.values(), ChildRecord(None, count, cpu_ns, longest_ns))
    return tuple(found.values())


def decode_pipeline(stage: bytes) -> PipelineRecord:
    """The pipeline record inside a stage's record."""
    *times, start = _CLOCK.unpack_from(stage)
    return PipelineRecord(tuple(times[::2]), tuple(times[1::2]), start)


@lru_cache(maxsize=256)
def text(comm: bytes) -> str:
    """A command name, as the kernel keeps it; what cuts a long one at a blank leaves that off."""
    return comm.split(b"\0", 1)[0].rstrip(b" ").decode(errors="backslashreplace")
