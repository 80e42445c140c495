# SPDX-License-Identifier: Apache-2.0
"""A stage, a pipeline's clock and a group of stages, as one sweep reads them.

Counters stay integers here, in the kernel side's units (nanoseconds, bytes, calls): the model adds
them up many times before anybody reads one.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence, Sequence, Set
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from pipelined.records.process import Process
from pipelined.runs import STATES, Endpoint
from pipelined.starter import Starter

__all__ = [
    "COMPUTES_ALONE",
    "COUNTERS",
    "EXIT_OOM",
    "EXIT_SEEN",
    "EXIT_STOPPED_INSIDE",
    "EXIT_STOPPED_OUTSIDE",
    "JOB_COMMAND",
    "JOB_PROGRAM",
    "JOB_TEXT",
    "JOB_VARIABLE",
    "NO_JOB",
    "NS",
    "PIPE_KEY",
    "READS_ALONE",
    "STAGE_ENDS",
    "ChildRecord",
    "EndRecord",
    "Gap",
    "Group",
    "Job",
    "Peer",
    "PipelineRecord",
    "StageRecord",
    "is_conversation",
    "joined",
    "place_of",
]

#: Seconds.
NS = 1e-9

#: What a stage counts after its nanoseconds by state, in this order.
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

# How a process has ended, beside what wait() says: it was seen; the kernel killed it when memory
# had run out. And who had sent it, or what it had started, SIGHUP, SIGINT or SIGTERM: a process of
# its run, somebody else.
EXIT_SEEN = 1 << 16
EXIT_OOM = 1 << 17
EXIT_STOPPED_INSIDE = 1 << 18
EXIT_STOPPED_OUTSIDE = 1 << 19

#: What tells pipes apart: inode, device, and which of those that had this inode it is.
PIPE_KEY = Struct("=QII")

#: How many pipe ends a stage remembers.
STAGE_ENDS = 8

# What the text of a job is, and the longest one, with the byte that ends it.
NO_JOB = 0
JOB_VARIABLE = 1
JOB_COMMAND = 2
JOB_PROGRAM = 3
JOB_TEXT = 120


def place_of(name: str) -> int:
    """Where a state's time, or a counter, is in `StageRecord.counted`.

    >>> place_of("cpu"), place_of("user_ns") == len(STATES)
    (0, True)
    """
    return STATES.index(name) if name in STATES else len(STATES) + COUNTERS.index(name)


_CPU, _READ_BYTES, _FORKS = map(place_of, ("cpu", "read_bytes", "forks"))

#: A program in no pipeline counts once its calls have read as much as a pipe holds: the libraries
#: and settings that most programs begin with are less.
READS_ALONE = 65536
#: A program in no pipeline also counts once it has been on CPU for this time (nanoseconds): most
#: programs take less to start.
COMPUTES_ALONE = 100_000_000


class Gap(NamedTuple):
    """A time in which nobody watched: nanoseconds of CLOCK_MONOTONIC."""

    begin_ns: int
    end_ns: int
    unix: float
    """What makes Unix time of stamps up to its begin: the wall clock may be set meanwhile."""


@dataclass(slots=True, eq=False)
class EndRecord:
    """One pipe end of a stage."""

    key: bytes
    """Of the pipe: `PIPE_KEY`."""
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
    """What the text is: one of ``JOB_…``."""
    text: bytes


class Peer(NamedTuple):
    """The other end of a network connection."""

    family: str
    """One of `FAMILIES`."""
    port: int


class ChildRecord(NamedTuple):
    """Processes of a stage, all but its root, that have one name and have ended."""

    command: str | None
    """None: those that found no place any more, whatever their names."""
    exited: int
    cpu_ns: int
    """Of threads of theirs that ended, also before the process."""
    longest_ns: int
    """The longest life; 1 if no process has ended yet, but a thread has."""

    def plus(self, other: ChildRecord) -> ChildRecord:
        """Both together, under the name of this one."""
        return ChildRecord(
            self.command,
            self.exited + other.exited,
            self.cpu_ns + other.cpu_ns,
            max(self.longest_ns, other.longest_ns),
        )


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
    root: Process
    parent: Process
    """The process that forked the root."""
    cgroup: int
    live: int
    generation: int
    """How often the record had been given back: with `index` it names this stage for ever."""
    partial: bool
    """A part of its life was not watched: it is older than the observation, or was resumed."""
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
    encloses: bool = False
    """A stage inside it was made for a pipe: bytes pass between its processes."""
    unmet: bool = False
    """It was resumed, and no thread of it was met since: if it has ended, nobody saw when."""
    late: bool = False
    """It may have used a pipe before that was known to be its own."""
    exit_status: int = 0
    """How its root has ended: wait()'s status and ``EXIT_…``; without `EXIT_SEEN` nobody saw it."""
    starter: Starter | None = None
    """The `pipelined run` above it that has no observer of its own; None of most stages."""
    starter_uid: int = 0
    """The real user id of that process when it forked; 0 if there is none."""
    job: Job | None = None
    """The job that it is a part of; None of most stages outside one."""
    uid: int | None = None
    """The effective user id of what names it; None: not known."""
    instance: int = 0
    """What `variables` has is the record of this number; 0 if there is none."""
    peer: Peer | None = None
    """Of the network socket that it waited for last; None: it has waited for none whose peer is
    known."""
    variables: Mapping[str, str] | None = None
    """Those of its environment that identify the instance of its job, by name."""
    functions: tuple[int, ...] = ()
    """What that tier counts (`tiers.FUNCTIONS`); empty if it is off."""
    readahead: tuple[int, ...] = ()
    """What that tier counts (`tiers.READAHEAD`); empty if it is off."""
    children: tuple[ChildRecord, ...] = ()
    """What ran in it; those without a name come last."""
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
    joins: Set[tuple[int, int]] | None = None
    """What `joined` returns for its stages, if that is known."""

    @property
    def starters(self) -> frozenset[Starter]:
        """Who started it: of two with a FIFO between them each started a part."""
        return frozenset(stage.starter for stage in self.stages if stage.starter)

    @property
    def users(self) -> Mapping[Starter, int]:
        """The user id of each of `starters`."""
        return {stage.starter: stage.starter_uid for stage in self.stages if stage.starter}

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


def is_conversation(
    stages: Sequence[StageRecord], edges: Set[tuple[int, int]] | None = None
) -> bool:
    """Whether stages talk to each other, or one to its parent, and pass nothing on.

    `edges` is what `joined` returns for them, if that is known.
    That is so if between any two stages that a pipe joins (`joined`) another one leads back. A
    chain of three or more that leads back to its first stage is a pipeline.
    """
    if len(stages) == 1:
        return stages[0].converses
    if edges is None:
        edges = joined(stages)
    return bool(edges) and all((reader, writer) in edges for writer, reader in edges)
