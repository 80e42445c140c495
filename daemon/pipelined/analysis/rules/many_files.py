# SPDX-License-Identifier: Apache-2.0
"""The rule about ``cat`` on very many files: what it costs for each of them."""

from __future__ import annotations

from collections.abc import Iterator

from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.finding import Evidence, Finding
from pipelined.analysis.many_files import TAIL, opened_by_reader, with_tail
from pipelined.analysis.rules.rule import NOT_JOINED, PAGE, Case, Part, ratio, with_waits
from pipelined.analysis.sentence import stage_label
from pipelined.runs import Readahead
from pipelined.wording import data_size, duration

__all__ = ["small_files"]

#: Fewer files than this are not many.
MANY = 1000
#: Files of more pages than these cost by the byte.
SMALL_PAGES = 4
#: A cat for fewer files than these is a process for each (fork-storm).
EACH = 20
#: Other programs take this share of what cat takes to open, read and close a small file (measured).
OPENED = 0.5


def small_files(case: Case) -> Iterator[Finding]:
    """``cat`` passes on very many small files that are in memory."""
    for part in case.parts:
        readahead = part.readahead
        cats = _cats(part)
        if readahead is None or cats is None or not _many(readahead):
            continue
        files, (index,) = readahead.files or 0, part.indexes
        started, cpu = cats
        readers = case.graph.after[index]
        if started * EACH > files or len(readers) != 1 or case.worth(readahead.all_stall_seconds):
            continue
        (reading,) = readers
        reader = case.run.stages[reading]
        opened = opened_by_reader(case.pipeline, index) if case.pipeline else None
        new = opened or (with_tail(case.pipeline, index) if case.pipeline else None)
        if case.pipeline and new is None:
            continue  # what cat does here nothing else does, or its reader could (reader-costs)
        if not case.pipeline and part.command == "cat" and not case.graph.before[index]:
            continue  # reader-costs
        gone = {index: cpu * (1 - OPENED)}
        likely = saved_if_gone(case, gone)
        most = with_waits(part.stages[0], cpu)
        if opened:
            gone[reading] = reader.system_seconds
            most += with_waits(reader, reader.system_seconds)
            likely = max(0.0, saved_if_gone(case, gone) - _no_longer_at_once(case, gone))
        if not case.worth(likely):
            continue
        size = data_size(readahead.read_pages * PAGE / files)
        cat = "it" if part.command == "cat" else "its cat"
        behind = stage_label(case.run, (reading,))
        yield Finding(
            id="small-files",
            severity="advice",
            sentence=f"{part.name} read {files:,} files, which were in memory, of {size} on "
            f"average: {duration(cpu)} of CPU, {duration(cpu / files)} for each. For each {cat} "
            "asks the kernel for a new buffer of 128 KiB.",
            advice=f"Try: {reader.command} for the files, in place of cat. {NOT_JOINED}"
            if opened
            else f"Try: {TAIL} in place of cat, which prints the same.",
            stages=(index, reading) if opened else (index,),
            evidence=(
                Evidence("files read", files, "count"),
                Evidence("cat on CPU", cpu, "seconds"),
                Evidence("for each file", cpu / files, "seconds"),
                Evidence("stalled", readahead.all_stall_seconds, "seconds"),
            ),
            likely_seconds=likely,
            likely_reason="half of the CPU seconds of cat"
            + (
                f", and those of {behind} in the kernel, where it reads the pipe; less the time in "
                "which both worked at once"
                if opened
                else ", as far as nothing else worked meanwhile"
            ),
            gain_seconds=min(case.wall, most),
            gain_reason="the CPU seconds of cat"
            + (f", and those of {behind} in the kernel, where it reads the pipe" if opened else ""),
            rewrite=case.attempt(new),
        )


def _many(readahead: Readahead) -> bool:
    """Whether it is very many files, and small ones."""
    files = readahead.files or 0
    return files >= MANY and readahead.read_pages <= SMALL_PAGES * files


def _cats(part: Part) -> tuple[int, float] | None:
    """How many ``cat`` a stage is or has started, and their CPU seconds; None if it has not."""
    if len(part.indexes) > 1:
        return None
    (stage,) = part.stages
    if part.command == "cat":
        return 1, stage.cpu_seconds
    cats = [child for child in stage.children if child.command == "cat"]
    cpu = sum(child.cpu_seconds for child in cats)
    # an xargs that is older than the report's run has children that nobody saw
    if part.command not in ("find", "xargs") or ratio(cpu, stage.cpu_seconds) < OPENED:
        return None
    return sum(child.exited for child in cats), cpu


def _no_longer_at_once(case: Case, gone: dict[int, float]) -> float:
    """Seconds in which two of the stages worked at once that become one."""
    left = [case.run.stages[at].cpu_seconds - seconds for at, seconds in gone.items()]
    return max(0.0, min(sum(case.run.levels[2:]), *left))
