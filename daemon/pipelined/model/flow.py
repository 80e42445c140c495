# SPDX-License-Identifier: Apache-2.0
"""What flows through the pipes of a run's stages, and what else they move. Pure.

With the `functions` tier the kernel side counts the bytes at a stage's own pipe ends. Without it
there is only the task accounting (`task->ioac`: rchar, wchar), which adds up pipes, files, sockets
and terminals. Then the flow is bounded from both ends of each pipe: a reader takes no more than it
read in all, and no more than its writers wrote in all; a writer passes on no more than it wrote,
and no more than its readers read and the pipes still hold.

Bytes that splice moves are in no task's accounting. A stage that splices bounds nothing: its
neighbours do. It is known by its sleeps in that call, or by a contradiction: it wrote nothing, and
its reader got something.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pipelined.records.stage import COUNTERS, STAGE_ENDS, StageRecord
from pipelined.records.tiers import PIPE_IN, PIPE_OUT
from pipelined.runs import STATES, Flow

__all__ = ["flows"]

_READ, _WRITTEN = (len(STATES) + COUNTERS.index(name) for name in ("read_bytes", "written_bytes"))

#: What a pipe holds by default (bytes, pipe(7)): it may have been written and never read.
_CAPACITY = 65536
#: A reader with this number of sleeps on its pipes, and of bytes, got some of them there: it sleeps
#: once to find the end of a pipe that nobody has written to.
_SLEEPS, _GOT = 2, 65536


class _Pipes(NamedTuple):
    """A stage's pipes at one side."""

    held: int
    known: bool
    """The stages at all their other ends are known."""
    sleeps: int


def flows(
    records: Sequence[StageRecord], edges: Sequence[tuple[int, int]], counted: Sequence[bool]
) -> tuple[Flow, ...]:
    """For each stage of a run what flowed through it; `edges` are (writer, reader) in `records`.

    `counted`: for each, whether the kernel side counted every byte at the ends of pipes.
    """
    sources, sinks = zip(*map(_pipes, records), strict=True)
    read = [max(0, record.counted[_READ]) for record in records]
    written = [max(0, record.counted[_WRITTEN]) for record in records]
    splices = [record.splices for record in records]
    for writer, reader in edges:
        got = sources[reader].sleeps >= _SLEEPS and read[reader] >= _GOT
        if not written[writer] and (sinks[writer].sleeps or got):
            splices[writer] = True
    may_read: list[float] = [*read]
    may_write: list[float] = [*written]
    for at, unseen in enumerate(splices):
        if unseen:
            may_read[at] = may_write[at] = math.inf
    offered = [0.0 if pipes.known else math.inf for pipes in sources]
    accepted = [pipes.held * _CAPACITY if pipes.known else math.inf for pipes in sinks]
    for writer, reader in edges:
        offered[reader] += may_write[writer]
        accepted[writer] += may_read[reader]
    found = []
    for at, record in enumerate(records):
        exact = counted[at] and _from_the_start(record)
        if exact:
            taken, passed = float(record.functions[PIPE_IN]), float(record.functions[PIPE_OUT])
        else:
            taken = min(may_read[at], offered[at])
            passed = min(may_write[at], accepted[at])
        unseen = splices[at] and not exact
        pipe_in = int(taken) if _is_used(sources[at], taken) else None
        pipe_out = int(passed) if _is_used(sinks[at], passed) else None
        found.append(
            Flow(
                pipe_in=pipe_in,
                pipe_out=pipe_out,
                file_read=None if unseen else max(0, read[at] - (pipe_in or 0)),
                file_written=None if unseen else max(0, written[at] - (pipe_out or 0)),
                exact=exact,
                splices=unseen,
            )
        )
    return tuple(found)


def _is_used(pipes: _Pipes, flowed: float) -> bool:
    """Whether `flowed` bytes are to be reported of these pipes.

    One that joins no other stage, and was not used, is a shell's that was still open in its child.
    """
    return bool(pipes.held) and flowed < math.inf and (flowed > 0 or pipes.known)


def _pipes(record: StageRecord) -> tuple[_Pipes, _Pipes]:
    """Those that it reads from, and those that it writes to."""
    reads = writes = reads_slept = writes_slept = 0
    reads_known = writes_known = True
    for end in record.ends:
        if not end.own:
            continue
        if end.side == "read":
            reads += 1
            reads_known = reads_known and end.joined
            reads_slept += end.sleeps
        else:
            writes += 1
            writes_known = writes_known and end.joined
            writes_slept += end.sleeps
    if record.borrows:
        if "read" in record.borrows:
            reads, reads_known = reads + 1, False
        if "write" in record.borrows:
            writes, writes_known = writes + 1, False
    return _Pipes(reads, reads_known, reads_slept), _Pipes(writes, writes_known, writes_slept)


def _from_the_start(record: StageRecord) -> bool:
    """Whether every byte at the stage's pipe ends was counted, if bytes are."""
    full = len(record.ends) >= STAGE_ENDS  # it may have more, which are not known
    return bool(record.functions) and not (record.partial or record.late or full)
