# SPDX-License-Identifier: Apache-2.0
"""Rules about reading and writing: the size of calls and blocks, and copies that nobody needs."""

from __future__ import annotations

from collections.abc import Iterator

from pipelined.analysis.awk_text import feeds_command
from pipelined.analysis.bottleneck import share
from pipelined.analysis.dd import (
    IN_BLOCKS,
    in_smaller_blocks,
    input_file,
    with_blocks,
    with_larger_blocks,
)
from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.finding import Evidence, Finding, Rewrite
from pipelined.analysis.rewriting import files, flushing_less, in_place_of_cat
from pipelined.analysis.rules.faster import LOOP_IN_AWK, with_other_input
from pipelined.analysis.rules.rule import (
    BULK,
    NOT_JOINED,
    PAGE,
    Case,
    Part,
    bytes_in,
    bytes_out,
    is_shell,
    ratio,
    readahead_evidence,
    with_waits,
)
from pipelined.analysis.sentence import stage_label
from pipelined.command_names import AWKS, COPIERS, FILTERS, WALKERS
from pipelined.runs import Stage
from pipelined.wording import data_size, duration, listing, mean_size, percent

__all__ = ["cache_sized", "large_writes", "reader_costs", "small_calls"]

#: A program that spends a larger share of its CPU time in user mode does more than copy
#: (dd conv=…).
COPYING = 0.25

#: Smaller reads or writes than this cost more by the call than by the byte (docs/REPORT.md).
SMALL_CALL = 1024
#: Upper bound of the cost of one small read or write (seconds); 0.3 to 1 µs were measured.
CALL_SECONDS = 2e-6
#: Programs that read a file with as few calls as they can ...
_WHOLE_FILES = frozenset({*(COPIERS - {"dd"}), *FILTERS, *WALKERS})
#: ... and those that start others for files.
_STARTERS = frozenset({"find", "parallel", "xargs"})
#: The default capacity of a pipe (bytes, pipe(7)).
PIPE_CAPACITY = 64 << 10
#: Writer and reader each wait this share of the run for the other: they take turns.
IN_TURN = 0.10
#: Of the time in which writer and reader could overlap, they do for this share (measured).
OVERLAPPED = 0.5
#: Of its copying, this share goes if blocks fit the cache (measured: 0.2 to 0.36 of a dd's between
#: files and a pipe, 0.85 of one between pipes).
MISSED = 0.5
#: How a copier is given blocks that fit the CPU cache.
SMALLER_BLOCKS = {
    "buffer": "-s 128k",
    "dd": in_smaller_blocks("128k"),
    "mbuffer": "-s 128k",
    "pv": "-B 128k",
}


def reader_costs(case: Case) -> Iterator[Finding]:
    """A copier comes first and saves its reader no wait for disk."""
    for part in case.parts:
        readahead = part.readahead
        if readahead is None or not _copies_files(case, part):
            continue
        stage = part.stages[0]
        cpu, stalled = stage.cpu_seconds, readahead.all_stall_seconds
        # what it waits, its reader need not: that may be worth more than the copy costs
        if not case.worth(cpu) or case.worth(stalled):
            continue
        (reader,) = case.graph.after[part.indexes[0]]
        then = stage_label(case.run, (reader,))
        command = case.run.stages[reader].command
        evidence = (
            Evidence("on CPU", cpu, "seconds"),
            Evidence("copied", bytes_out(stage), "bytes"),
            Evidence("stalled", stalled, "seconds"),
            *readahead_evidence(readahead),
        )
        size = data_size(bytes_out(stage))
        if readahead.cache_state == "warm" and _takes_small_pieces(case.run.stages[reader]):
            mean = mean_size(Part(case.run, (reader,)).mean_read(), 1)
            yield Finding(
                id="reader-costs",
                severity="note",
                sentence=f"{part.name} copied {size}, which was in memory, into the pipe for "
                f"{duration(cpu)} of CPU. {then} read {mean} at a time: so many reads may take "
                "longer on the file than on the pipe.",
                advice=f"Try: {command} … < FILE, or keep {part.command}. Larger reads in "
                f"{command} gain more.",
                stages=(*part.indexes, reader),
                evidence=evidence,
                rewrite=_without_copier_in_front(case, reader),
            )
        elif readahead.cache_state == "warm":
            if case.pipeline and in_place_of_cat(case.pipeline) is None:
                continue  # what it reads, its reader could not
            rewrite = _without_copier_in_front(case, reader)
            known = rewrite is not None and rewrite.command != ""
            yield Finding(
                id="reader-costs",
                severity="advice",
                sentence=f"{part.name} only copied {size}, which was in memory, into the pipe: "
                f"{duration(cpu)} of CPU.",
                advice=_without_copier(part.command, case.run.stages[reader], known=known)
                + (_no_longer_joined(case) if known else ""),
                stages=(*part.indexes, reader),
                evidence=evidence,
                likely_seconds=_without_copy(case, part.indexes[0], reader),
                likely_reason=f"its CPU seconds, and those of {then} in the kernel, less half of "
                "its own there, which reading the file takes; as far as nothing else worked "
                "meanwhile",
                gain_seconds=min(
                    case.wall,
                    with_waits(stage, cpu)
                    + with_waits(case.run.stages[reader], case.run.stages[reader].system_seconds),
                ),
                gain_reason=f"its CPU seconds, and those of {then} in the kernel, where it reads "
                "the pipe, with the waits for a CPU among them",
                rewrite=rewrite,
            )
        elif readahead.cache_state is not None:
            rewrite = _without_copier_in_front(case, reader, cold=True)
            yield Finding(
                id="reader-costs",
                severity="note",
                sentence=f"{part.name} copied {size} from disk into the pipe for {duration(cpu)} "
                f"of CPU and hardly waited: {then} may do as well without it, or wait more.",
                advice="Try: both ways from a cold cache (pipelined compare --cold FILE "
                f"'cat FILE | {command} …' '{command} … < FILE')." + _no_longer_joined(case)
                if command in FILTERS and (rewrite is None or rewrite.command)
                else f"Try: {command} … < FILE, or keep {part.command}.",
                stages=(*part.indexes, reader),
                evidence=evidence,
                rewrite=rewrite,
            )


def _takes_small_pieces(reader: Stage) -> bool:
    """Whether it is a program of which only that is known."""
    mean = ratio(reader.read_bytes, reader.read_calls)
    known = reader.command in FILTERS or is_shell(reader)
    return not known and 0 < mean < SMALL_CALL


def _without_copy(case: Case, copier: int, reader: int) -> float:
    """The copier goes; its reader reads the file, as one half of the copying was, not the pipe."""
    stage, system = case.run.stages[copier], case.run.stages[reader].system_seconds
    gone = max(0.0, system - stage.system_seconds / 2)
    return saved_if_gone(case, {copier: stage.cpu_seconds, reader: gone})


def _without_copier(copier: str, reader: Stage, *, known: bool) -> str:
    """What to do instead of `copier`; `known`: the command to try says the rest."""
    command = reader.command
    needed = "if it has count=, skip= or conv=" if copier == "dd" else "for several files"
    if is_shell(reader):
        keep = f" Keep it only {needed}." if copier == "dd" else ""
        return f"Try: done < FILE at the end of the loop, without {copier}.{keep}"
    if known:
        return f"Try: {command} with the file itself, without {copier}."
    when = (
        f"only {needed}" if command in FILTERS else f"{needed}, or if {command} asks what it reads"
    )
    return f"Try: {command} … < FILE, without {copier}. Keep it {when}."


def _no_longer_joined(case: Case) -> str:
    """What else changes if the reader opens the files itself, and these are several."""
    new = in_place_of_cat(case.pipeline) if case.pipeline else None
    return f" {NOT_JOINED}" if new and new.commands[0].source is None else ""


def _without_copier_in_front(case: Case, reader: int, *, cold: bool = False) -> Rewrite | None:
    """The pipeline whose reader opens the files itself; `cold`: to compare with these on disk."""
    if case.pipeline is None:
        return None
    first = case.pipeline.commands[0]
    source = (first.source,) if first.source else ()
    names = (files(first) or input_file(first) or source) if cold else ()
    return with_other_input(case, reader, in_place_of_cat(case.pipeline), names)


def _copies_files(case: Case, part: Part) -> bool:
    """Whether the part comes first, reads files, and passes on what it read."""
    readahead, index = part.readahead, part.indexes[0]
    if part.command not in COPIERS or len(part.indexes) > 1 or readahead is None:
        return False
    stage = case.run.stages[index]
    return (
        not case.graph.before[index]
        and len(case.graph.after[index]) == 1
        and bytes_out(stage) >= max(BULK, 0.9 * bytes_in(stage))
        and readahead.read_pages * PAGE >= 0.9 * bytes_out(stage)
        and stage.user_seconds <= COPYING * stage.cpu_seconds
    )


def large_writes(case: Case) -> Iterator[Finding]:
    """Writes do not fit into the pipe, so that writer and reader take turns."""
    run, wall = case.run, case.wall
    if case.host.cores < 2:
        return
    for index, readers in enumerate(case.graph.after):
        writer = run.stages[index]
        mean, capacity = _pipe_write(writer)
        if mean < capacity or writer.written_bytes < BULK or len(readers) != 1:
            continue
        (reading,) = readers
        reader = run.stages[reading]
        full, empty = share(writer, "pipe_full", wall), share(reader, "pipe_empty", wall)
        turns, woken = _in_turn(case, index, reading)
        if min(full, empty) < IN_TURN or not case.worth(turns):
            continue
        missed = _missed(case, writer.system_seconds, mean)
        gain = min(wall, turns + woken + missed)
        name, other = stage_label(run, (index,)), stage_label(run, (reading,))
        blocks = in_smaller_blocks("32k") if writer.command == "dd" else "32 KiB"
        yield Finding(
            id="large-writes",
            severity="warning",
            sentence=f"{name} wrote {mean_size(mean, 1)} at a time into a pipe of "
            f"{mean_size(capacity, 1)}: it waited {percent(full)} of the run for {other}, and "
            f"{other} {percent(empty)} for it.",
            advice=f"Try: smaller blocks ({blocks}), or a larger pipe (F_SETPIPE_SZ).",
            stages=(index, reading),
            evidence=(
                Evidence("mean write", mean, "bytes"),
                Evidence("capacity of the pipe", capacity, "bytes"),
                Evidence("writer at a full pipe", full * wall, "seconds"),
                Evidence("reader at an empty pipe", empty * wall, "seconds"),
                Evidence("waiting for a free CPU", _queued(writer, reader), "seconds"),
                Evidence("woken with no stage on CPU", woken, "seconds"),
                Evidence("two stages on CPU", sum(run.levels[2:]), "seconds"),
            ),
            likely_seconds=(turns + woken) * OVERLAPPED + missed * MISSED,
            likely_reason="half of what both could have done at once: while both work, each waits "
            f"for the other less often; and {percent(MISSED)} of what the cache could spare",
            gain_seconds=gain,
            gain_reason="the least of the writer's wait, of the reader's less what the writer "
            "itself waited for input, and of the CPU seconds that could have overlapped but did "
            "not; with the wake-ups that no stage worked in, and the writer's seconds in the "
            "kernel for the part of a block that exceeds half of the cache",
            rewrite=_other_blocks(case, index, "32k"),
        )


def _in_turn(case: Case, writing: int, reading: int) -> tuple[float, float]:
    """Seconds in which only one of the two worked and both could have, and those in which one of
    them was woken while no stage worked."""
    run = case.run
    writer, reader = run.stages[writing], run.stages[reading]
    queued = _queued(writer, reader)
    costs = case.host.costs
    # each sleep ends in a wait for a CPU, however many are free
    wakes = (writer.sleeps_full + reader.sleeps_empty) * (costs.switch_seconds if costs else 0.0)
    woken = min(queued, wakes)
    # on one CPU, or behind a slow disk, they take turns whatever the size of the blocks
    overlapped = sum(run.levels[2:]) + queued - woken
    could = min(writer.cpu_seconds, reader.cpu_seconds) - overlapped
    for_it = reader.states["pipe_empty"] - writer.states["disk"] - writer.states["pipe_empty"]
    turns = max(0.0, min(writer.states["pipe_full"], for_it, could))
    return turns, min(woken, run.levels[0]) if turns else 0.0


def _queued(*stages: Stage) -> float:
    return sum(stage.states["runqueue"] for stage in stages)


def _missed(case: Case, system: float, block: float) -> float:
    """Seconds in the kernel, of `system`, for the part of a block that exceeds half of the cache
    of a CPU: at most all of them."""
    level2 = case.host.l2_bytes
    return system * max(0.0, 1 - level2 / 2 / block) if level2 else 0.0


def small_calls(case: Case) -> Iterator[Finding]:
    """Reads or writes are so small that the calls cost more than the data."""
    for part in case.parts:
        reads, writes = _own_small(case, part)
        system = part.sum(lambda stage: stage.system_seconds)
        if not case.worth(min(system, (reads + writes) * CALL_SECONDS)):
            continue
        made = []
        if reads:
            made.append(f"{reads:,} reads of {mean_size(part.mean_read(), 1)}")
        if writes:
            made.append(f"{writes:,} writes of {mean_size(part.mean_write(), 1)}")
        words = case.words(part.indexes[0])
        fewer = with_larger_blocks(words, "64k") if words else None
        if words and fewer is None and (writes >= reads or words.program == "sed"):
            fewer = flushing_less(words)
        new = case.rewritten(part.indexes[0], fewer)
        yield Finding(
            id="small-calls",
            severity="warning",
            sentence=f"{part.name} made {listing(made)} on average: the calls cost more than the "
            f"data{_taken_in_pieces(case, part) if writes > reads else ''}.",
            advice=_behind_awk(case, part, reads > writes)
            or _larger_calls(part.stages[0], reads > writes),
            stages=part.indexes,
            evidence=(
                Evidence("small reads", reads, "calls"),
                Evidence("small writes", writes, "calls"),
                Evidence("in the kernel", system, "seconds"),
            ),
            likely_seconds=_without_calls(case, part, reads, writes),
            likely_reason="the CPU seconds of the loop, but for the twentieth that awk takes"
            if is_shell(part.stages[0])
            else "the CPU seconds that it, and what takes its pieces one by one, spent in the "
            "kernel, and its seconds in user mode that so many calls take on this host",
            gain_seconds=min(case.wall, part.busy_seconds),
            gain_reason="its seconds on CPU or waiting for one: what it computes for each piece "
            "goes with the calls",
            rewrite=case.attempt(new),
        )


def _without_calls(case: Case, part: Part, reads: int, writes: int) -> float:
    """What goes with the small calls of a part: in a shell the loop, else what the calls take."""
    if is_shell(part.stages[0]):
        return saved_if_gone(
            case,
            {at: case.run.stages[at].cpu_seconds * (1 - LOOP_IN_AWK) for at in part.indexes},
        )
    call = case.host.costs.call_seconds if case.host.costs else 0.0
    each = call * (reads + writes) / len(part.indexes)
    gone = {}
    for index in part.indexes:
        stage = case.run.stages[index]
        gone[index] = min(stage.cpu_seconds, stage.system_seconds + min(stage.user_seconds, each))
        for reader in case.graph.after[index]:
            if _small(Part(case.run, (reader,)))[0]:
                gone[reader] = case.run.stages[reader].system_seconds
    return saved_if_gone(case, gone)


def cache_sized(case: Case) -> Iterator[Finding]:
    """The block of a copier leaves the CPU cache before it is written."""
    level2 = case.host.l2_bytes
    if level2 is None:
        return
    for part in case.parts:
        block = max(part.mean_read(), part.mean_write())
        system = part.sum(lambda stage: stage.system_seconds)
        if part.command not in COPIERS or block <= level2 / 2:
            continue
        if not any(case.graph.after[index] for index in part.indexes):
            continue  # no stage reads the block
        missed = _missed(case, system, block)
        likely = saved_if_gone(case, {i: missed * MISSED / len(part.indexes) for i in part.indexes})
        if not case.worth(likely):
            continue  # who waits for another stage may copy as it likes
        yield Finding(
            id="cache-sized",
            severity="advice",
            sentence=f"{part.name} moved blocks of {mean_size(block, 1)}, over half of this "
            f"machine's second-level cache ({mean_size(level2, 1)}): what it read may have left "
            "the cache when it was written.",
            advice=f"Try: smaller blocks "
            f"({SMALLER_BLOCKS.get(part.command, 'dd bs=128k in its place')}).",
            stages=part.indexes,
            evidence=(
                Evidence("mean block", block, "bytes"),
                Evidence("second-level cache", level2, "bytes"),
                Evidence("in the kernel", system, "seconds"),
            ),
            likely_seconds=likely,
            likely_reason=f"{percent(MISSED)} of its seconds in the kernel, for the part of a "
            "block that exceeds half of the cache, as far as nothing else worked meanwhile",
            gain_seconds=min(case.wall, missed + _around(case, part)),
            gain_reason="its seconds in the kernel, for the part of a block that exceeds half of "
            "the cache; with those in which it and a neighbour worked in turn and could have at "
            "once",
            rewrite=_other_blocks(case, part.indexes[0], "128k"),
        )


def _around(case: Case, part: Part) -> float:
    """Seconds in which a copier's neighbours wait for one another because its blocks are large."""
    before, after = case.graph.before, case.graph.after
    pairs = [(other, at) for at in part.indexes for other in before[at]]
    pairs += [(at, other) for at in part.indexes for other in after[at]]
    return sum(sum(_in_turn(case, *pair)) for pair in pairs)


def _other_blocks(case: Case, index: int, size: str) -> Rewrite | None:
    """Other blocks of ``dd``."""
    words = case.words(index)
    return case.attempt(case.rewritten(index, with_blocks(words, size) if words else None))


def _pipe_write(stage: Stage) -> tuple[float, int]:
    """Mean size of a stage's writes to its pipe, and the pipe's capacity (bytes)."""
    functions = stage.functions
    if functions is not None and functions.pipe_writes.mean is not None:
        return functions.pipe_writes.mean, functions.pipe_capacity_bytes or PIPE_CAPACITY
    return ratio(stage.written_bytes, stage.write_calls), PIPE_CAPACITY


def _small(part: Part) -> tuple[int, int]:
    """Count of reads and of writes of a part; 0 if they are not small on average."""
    reads = part.sum(lambda s: s.read_calls) if part.mean_read() < SMALL_CALL else 0
    writes = part.sum(lambda s: s.write_calls) if part.mean_write() < SMALL_CALL else 0
    return int(reads), int(writes)


def _own_small(case: Case, part: Part) -> tuple[int, int]:
    """`_small` without what small files cause, or a writer that writes piece by piece."""
    reads, writes = _small(part)
    if reads or writes:
        reads, writes = _but_for_files(case, part, reads, writes)
    writers = set().union(*(case.graph.before[index] for index in part.indexes))
    pieces = sum(_small(Part(case.run, (index,)))[1] for index in writers)
    if reads > 2 * pieces:
        return reads, writes
    return 0, writes if writes > 2 * pieces else 0


def _but_for_files(case: Case, part: Part, reads: int, writes: int) -> tuple[int, int]:
    """Small reads and writes without those of small files: each takes a read for its bytes and one
    that finds its end, and is passed on by a write.

    They are not counted without the readahead tier, nor on tmpfs: what programs that are known to
    read all of a file at once did with files is not judged.
    """
    readahead, command = part.readahead, part.command
    files = readahead.files if readahead else None
    reads = reads if reads - 2 * (files or 0) > reads / 2 else 0
    writes = writes if writes - (files or 0) > writes / 2 else 0
    piped = any(case.graph.before[index] for index in part.indexes) or any(
        end.side == "read" for stage in part.stages for end in stage.ends
    )
    whole = command in _WHOLE_FILES and not piped
    whole |= command in _STARTERS and files is None
    passed_on = whole and command not in FILTERS
    return 0 if whole else reads, 0 if passed_on else writes


def _behind_awk(case: Case, part: Part, reading: bool) -> str:
    """What to try if an awk prints to a command that it has started: gawk then writes each line at
    once, with or without ``fflush``. Empty if it does not."""
    command, words = part.command, case.seen(part.indexes[0])
    if reading or command not in AWKS or words is None or not feeds_command(words):
        return ""
    return (
        f"Try: {command} '…' | CMD, with the command behind it in place of print | \"CMD\": to one "
        "that it starts itself, gawk writes each line at once."
    )


def _larger_calls(stage: Stage, reading: bool) -> str:
    command = stage.command
    if command == "dd":
        return f"Try: larger blocks (bs=64k{IN_BLOCKS})."
    if reading and is_shell(stage):
        return "Try: awk in place of the shell's read, which reads a pipe byte by byte."
    if reading and command != "sed":  # which reads little only with -u
        return "Try: a larger buffer for what it reads (64 KiB)."
    if is_shell(stage):
        return "Try: awk in place of the loop: the shell writes what each echo prints by itself."
    flushes = {
        "grep": "grep without --line-buffered",
        "sed": "sed without -u",
        **dict.fromkeys(AWKS, f'{command} without fflush() and system("")'),
    }.get(command)
    if command.startswith("python"):
        flushes = f"{command} without -u, PYTHONUNBUFFERED and print(flush=True)"
    if flushes is None:
        return (
            f"Try: no flush after each line in {command}, nor stdbuf -oL before it; or, if it "
            "always writes so, another program."
        )
    return f"Try: {flushes}, nor stdbuf -oL before it: it then writes larger pieces."


def _taken_in_pieces(case: Case, part: Part) -> str:
    """A clause on the stages that read small pieces because this one writes them."""
    readers = set().union(*(case.graph.after[index] for index in part.indexes))
    names = [
        stage_label(case.run, (i,)) for i in sorted(readers) if _small(Part(case.run, (i,)))[0]
    ]
    return f", and {listing(names)} took them one by one" if names else ""
