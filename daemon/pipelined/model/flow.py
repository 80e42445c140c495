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
from dataclasses import replace

from pipelined.records.stage import COUNTERS, STAGE_ENDS, StageRecord
from pipelined.records.tiers import PIPE_IN, PIPE_OUT, PIPE_READS, PIPE_WRITES, cached_bytes
from pipelined.runs import STATES, Flow

__all__ = ["flows"]

_READ, _WRITTEN = (len(STATES) + COUNTERS.index(name) for name in ("read_bytes", "written_bytes"))

#: What a pipe holds by default (bytes, pipe(7)): it may have been written and never read.
_CAPACITY = 65536
#: A reader with this number of sleeps on its pipes, and of bytes, got some of them there: it sleeps
#: once to find the end of a pipe that nobody has written to.
_SLEEPS, _GOT = 2, 65536
#: What a program reads to start, libraries and locales, is less (bytes).
_START = 65536
#: Of what a sort of a pipe reads from files, a lower share than this was written by the run: it was
#: given files beside the pipe.
_MOST = 0.9
#: Any number of bytes.
_ANY = math.inf
#: A run of more stages may lack writers or readers of its pipes: two parts of which one would be
#: larger than this together are not joined (MAX_PIPELINE_STAGES in bpf/topology.bpf.h).
_WHOLE = 128


#: A stage's pipes at one side: how many it holds, whether the stages at all their other ends are
#: known, and how often it slept on them. No class: to make one takes a tenth of `flows`.
_Pipes = tuple[int, bool, int]


def flows(
    records: Sequence[StageRecord], edges: Sequence[tuple[int, int]], counted: Sequence[bool]
) -> tuple[Flow, ...]:
    """For each stage of a run what flowed through it; `edges` are (writer, reader) in `records`.

    `counted`: for each, whether the kernel side counted every byte at the ends of pipes.
    """
    sources, sinks = zip(*map(_pipes, records), strict=True)
    read = [_positive(record.counted[_READ]) for record in records]
    written = [_positive(record.counted[_WRITTEN]) for record in records]
    splices = [record.splices for record in records]
    for writer, reader in edges:
        if not written[writer]:
            slept, reader_slept = sinks[writer][2], sources[reader][2]
            if slept or (reader_slept >= _SLEEPS and read[reader] >= _GOT):
                splices[writer] = True
    may_read: Sequence[float] = read
    may_write: Sequence[float] = written
    if any(splices):
        may_read = [_ANY if unseen else it for unseen, it in zip(splices, read, strict=True)]
        may_write = [_ANY if unseen else it for unseen, it in zip(splices, written, strict=True)]
    whole = len(records) <= _WHOLE
    offered = [0 if known and whole else _ANY for _, known, _ in sources]
    accepted = [held * _CAPACITY if known and whole else _ANY for held, known, _ in sinks]
    for writer, reader in edges:
        offered[reader] += may_write[writer]
        accepted[writer] += may_read[reader]
    found = []
    for at, record in enumerate(records):
        exact = counted[at] and _from_the_start(record)
        if exact:
            taken, passed = float(record.functions[PIPE_IN]), float(record.functions[PIPE_OUT])
        else:
            taken, passed = may_read[at], may_write[at]
            if offered[at] < taken:
                taken = offered[at]
            if accepted[at] < passed:
                passed = accepted[at]
        unseen = splices[at] and not exact
        inner_read, inner_written = _inner(record, exact)
        pipe_in, pipe_out = _reported(sources[at], taken), _reported(sinks[at], passed)
        file_read = file_written = None
        if not unseen:
            file_read = _positive(read[at] - (pipe_in or 0) - (inner_read or 0))
            file_written = _positive(written[at] - (pipe_out or 0) - (inner_written or 0))
        flow = Flow(pipe_in, pipe_out, file_read, file_written, exact, unseen)
        temporary = _temporary(record, flow) if record.command == "sort" else 0
        if temporary != 0 or inner_read != 0:
            flow = replace(
                flow, inner_read=inner_read, inner_written=inner_written, temporary=temporary
            )
        found.append(flow)
    return tuple(found)


def _inner(record: StageRecord, exact: bool) -> tuple[int | None, int | None]:
    """What passed between the stage's own processes, read and written; None if that is not known.

    The kernel side counts what each read of a pipe returned, and what each write asked for.
    """
    if not record.encloses:
        return 0, 0
    if not exact:
        return None, None
    values = record.functions
    return (
        _positive(values[PIPE_READS] - values[PIPE_IN]),
        _positive(values[PIPE_WRITES] - values[PIPE_OUT]),
    )


def _temporary(record: StageRecord, flow: Flow) -> int | None:
    """What a sort wrote to temporary files and read back; None if that is not known.

    Beside a pipe it writes nothing else, or reads nothing else. From file to file the pages show it
    that it found in files which the run had written.
    """
    if flow.file_read is None or flow.file_written is None:
        return 0
    most = min(flow.file_read, flow.file_written)
    if flow.pipe_out is not None:
        return most
    if most < _START:
        return 0
    cached, own = cached_bytes(record.readahead) if record.readahead else (0, 0)
    seen = not record.partial and cached + _START >= flow.file_read
    if flow.pipe_in is not None and not (seen and own < _MOST * flow.file_read):
        return most
    if not seen:
        return None
    if own < _START:
        return 0
    # of its pages it read less than all, and some of what it read came from no page
    least = own - (cached + _START - flow.file_read)
    return min(most, least) if least > 0 else None


def _positive(number: int) -> int:
    return number if number > 0 else 0


def _reported(pipes: _Pipes, flowed: float) -> int | None:
    """Of `flowed` bytes through these pipes, what is reported; None: nothing.

    A pipe that joins no other stage, and was not used, is a shell's that was still open in its
    child.
    """
    held, known, _ = pipes
    return int(flowed) if held and flowed < _ANY and (flowed > 0 or known) else None


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
    return (reads, reads_known, reads_slept), (writes, writes_known, writes_slept)


def _from_the_start(record: StageRecord) -> bool:
    """Whether every byte at the stage's pipe ends was counted, if bytes are."""
    full = len(record.ends) >= STAGE_ENDS  # it may have more, which are not known
    return bool(record.functions) and not (record.partial or record.late or full)
