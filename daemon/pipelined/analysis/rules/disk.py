# SPDX-License-Identifier: Apache-2.0
"""Rules about the disk and the page cache."""

from __future__ import annotations

from collections.abc import Iterator

from pipelined.analysis.dd import IN_BLOCKS, input_file, with_blocks
from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.finding import Evidence, Finding
from pipelined.analysis.rewriting import with_reader_in_front
from pipelined.analysis.rules.faster import with_other_input
from pipelined.analysis.rules.rule import BULK, PAGE, Case, Part, ratio, readahead_evidence
from pipelined.command_names import BARRIERS, COPIERS, FILTERS, WALKERS
from pipelined.runs import Readahead
from pipelined.wording import data_size, duration, percent

__all__ = [
    "cold_run",
    "disk_not_overlapped",
    "readahead_late",
    "readahead_useless",
    "readahead_wasted",
]

#: Fewer faults on mapped files that had to wait are the start of a program: the libraries of a cold
#: one cause some dozens.
BULK_FAULTS = 256
#: A shorter wait for disk is not reported (share of the run) ...
DISK_NOTABLE = 0.10
#: ... and the disk is the limit only from this share on.
DISK_LIMIT = 0.40
#: Computing and waiting alternate only with at least this many waits: one slow answer of a disk is
#: an accident.
TURNS = 16
#: If its children took this share of a stage's CPU seconds, it is they that read.
BY_CHILDREN = 0.5
#: Waits for late pages explain a reader if they exceed its other waits this many times.
LATE_DOMINATES = 2.0
#: Read-ahead did not work if it brought in a lower share of what came from disk.
LOW_COVERAGE = 0.5
#: Read-ahead was wasted if a lower share of its pages was used.
LOW_ACCURACY = 0.5
#: Larger reads than the usual read-ahead window of 128 KiB, with room (bytes).
LARGE_READ = 256 << 10
#: What a reader in front asks for at a time: `dd bs=32k`, and `cat` (bytes).
READER = {"dd bs=32k": 32 << 10, "cat": 128 << 10}


def disk_not_overlapped(case: Case) -> Iterator[Finding]:
    """A stage alternates between computing and waiting for pages that were not read ahead."""
    run = case.run
    computing = sum(run.levels[1:]) - run.disk_overlapped_seconds
    for part in case.parts:
        readahead = part.readahead
        if readahead is None or not _reads_from_disk(readahead):
            continue
        # copiers and barriers compute little, or not before they have read all
        if part.command in COPIERS | BARRIERS or _by_children(part):
            continue
        # what it reads beside its stdin is a table or its own program: no reader in front helps
        if any(case.graph.before[index] for index in part.indexes):
            continue
        if _unrequested_waits(readahead) < TURNS:
            continue
        stalled = min(_unrequested(readahead), run.disk_alone_seconds)
        cpu = part.sum(lambda stage: stage.cpu_seconds)
        if not case.worth(min(stalled, cpu, computing)):
            continue
        name = part.name
        covered = (readahead.coverage or 0.0) >= LOW_COVERAGE
        # cat writes more at a time than a pipe holds: without read-ahead it would take turns too
        reader = "cat" if covered else "dd bs=32k"
        front = with_reader_in_front(case.pipeline, reader) if case.pipeline else None
        new, names = front or (None, ())
        takes = part.command in FILTERS and (case.pipeline is None or front is not None)
        yield Finding(
            id="disk-not-overlapped",
            severity="warning",
            sentence=f"{name} computed {duration(cpu)} and waited {duration(stalled)} for disk by "
            "turns: no stage was on CPU while it waited.",
            advice=_reading(part.command, reader, takes=takes)
            + (", if each file ends in a newline" if len(names) > 1 else "")
            + ("." if covered else "; or a larger read-ahead for that disk (read_ahead_kb)."),
            stages=part.indexes,
            evidence=(
                Evidence("stalled alone, not read ahead", stalled, "seconds"),
                Evidence("on CPU", cpu, "seconds"),
                Evidence("pages not read ahead", readahead.pages["miss"], "pages"),
                *readahead_evidence(readahead),
            ),
            likely_seconds=_hidden(case, part, computing, READER[reader]),
            likely_reason="its waiting for disk, less the waits that larger requests spare, as far "
            "as it can compute meanwhile, less the calls and wake-ups that the pipe costs",
            # a reader in front also asks for more at a time, and each wait ends in one for a CPU
            gain_seconds=min(case.wall, run.disk_alone_seconds + part.system_and_queue_seconds),
            gain_reason="all waiting for disk with no stage on CPU, and its seconds in the kernel "
            "or waiting for a CPU: a reader in front hides waits, and asks for more at a time",
            rewrite=with_other_input(case, part.indexes[0], new, names),
        )


def _hidden(case: Case, part: Part, computing: float, request: int) -> float:
    """Seconds of waiting that go with a reader in front, which asks for `request` bytes at once.

    A wait brought so many bytes as the disk gave for each: larger requests need fewer waits. For
    each request the reader in front reads, writes and wakes what follows it.
    """
    readahead, stalled = part.readahead, case.run.disk_alone_seconds
    waits = readahead.stall_count if readahead else 0
    got = ratio(_from_disk(readahead), waits) if readahead else 0.0
    left = stalled * min(1.0, max(got, PAGE) / request)
    requests = (_from_disk(readahead) if readahead else 0) / request
    costs = case.host.costs
    each = 2 * costs.call_seconds + costs.switch_seconds if costs else 0.0
    return max(0.0, stalled - left + min(left, computing) - requests * each)


def _reading(command: str, reader: str, *, takes: bool) -> str:
    """How `command` gets its data while it computes; `takes`: from its standard input too."""
    if takes:
        file = "FILE" if reader == "cat" else "if=FILE"
        return (
            f"Try: a reader in front ({reader} {file} | {command} …), so that the disk works while "
            f"{command} computes"
        )
    if command in WALKERS:
        return (
            "Try: its files into memory first, several at a time, if they fit (find DIR -type f "
            "-print0 | xargs -0 -P 4 cat > /dev/null)"
        )
    return (
        f"Try: its files into memory first, if they fit (cat FILE > /dev/null); or cat FILE | "
        f"{command}, if it reads one file from its beginning to its end and can take it so"
    )


def readahead_useless(case: Case) -> Iterator[Finding]:
    """A reader sleeps for pages that read-ahead did not bring in."""
    for part in case.parts:
        readahead = part.readahead
        if readahead is None or not _reads_from_disk(readahead):
            continue
        coverage = readahead.coverage
        stalled = min(readahead.stall_seconds["miss"].alone, case.run.disk_alone_seconds)
        # sort and its like ask for as much as they have room for: there is nothing to read ahead
        if coverage is None or coverage >= LOW_COVERAGE or part.command in BARRIERS:
            continue
        if stalled < DISK_NOTABLE * case.wall or not case.worth(stalled):
            continue
        mean, words = part.mean_read(), case.words(part.indexes[0])
        new = None
        if mean >= LARGE_READ:
            new = with_blocks(words, "64k") if words else None
            advice = (
                "Try: smaller blocks than the read-ahead window of that disk (read_ahead_kb), "
                f"such as 64 KiB{f' (bs=64k{IN_BLOCKS})' if part.command == 'dd' else ''}; or a "
                "larger window."
            )
        else:
            advice = (
                "Try: switch read-ahead on, if read_ahead_kb of that disk is 0 or the program "
                "asks for none (POSIX_FADV_RANDOM). Else the files are tiny or the reads jump: "
                "bring several files at a time into memory first (xargs -n 100 -P 4 cat > "
                "/dev/null), or read them in the order in which they lie on disk."
            )
        yield Finding(
            id="readahead-useless",
            severity="advice",
            sentence=f"{part.name} waited {duration(stalled)} for disk with no stage on CPU; "
            f"{percent(coverage)} of the pages from there had been read ahead (coverage).",
            advice=advice,
            stages=part.indexes,
            evidence=(
                Evidence("stalled alone, not read ahead", stalled, "seconds"),
                Evidence("mean read", mean, "bytes"),
                *readahead_evidence(readahead),
            ),
            likely_seconds=_unread(case, part, stalled, 1.0),
            likely_reason="its waiting for pages that were not read ahead, and half of its seconds "
            "in the kernel",
            gain_seconds=min(case.wall, stalled + part.system_and_queue_seconds),
            gain_reason="its waiting for pages that were not read ahead, with no stage on CPU, and "
            "its seconds in the kernel and waiting for a CPU, since each of these waits has a call "
            "and a wake-up",
            rewrite=case.attempt(
                case.rewritten(part.indexes[0], new), cold=input_file(words) if words else ()
            ),
        )


def readahead_wasted(case: Case) -> Iterator[Finding]:
    """A reader waits while the disk reads pages that nobody uses."""
    for part in case.parts:
        readahead = part.readahead
        if readahead is None or not readahead.inserted_pages:
            continue
        wasted = readahead.pages["wasted"]
        unused = wasted / readahead.inserted_pages
        waited = sum(split.alone for split in readahead.stall_seconds.values())
        waited = min(waited, case.run.disk_alone_seconds)
        gain = waited * wasted / (readahead.inserted_pages + readahead.pages["miss"])
        if wasted * PAGE < BULK or unused <= 1 - LOW_ACCURACY or not case.worth(gain):
            continue
        yield Finding(
            id="readahead-wasted",
            severity="advice",
            sentence=f"{part.name} waited {duration(waited)} for disk with no stage on CPU, and "
            f"{percent(unused)} of what was read ahead for it ({data_size(wasted * PAGE)}) was "
            "never used.",
            advice="Try: a smaller read-ahead for that disk (read_ahead_kb), or "
            "posix_fadvise(POSIX_FADV_RANDOM) in the program.",
            stages=part.indexes,
            evidence=(
                Evidence("stalled alone", waited, "seconds"),
                Evidence("read ahead and never used", wasted, "pages"),
                *readahead_evidence(readahead),
            ),
            likely_seconds=_unread(case, part, waited, gain / waited),
            likely_reason="the wasted pages' part of the pages read, of its waiting with no stage "
            "on CPU and of half of its seconds in the kernel",
            gain_seconds=min(case.wall, (waited + part.system_and_queue_seconds) * gain / waited),
            gain_reason="the wasted pages' part of the pages read, of its waiting with no stage on "
            "CPU and of its seconds in the kernel and waiting for a CPU",
        )


def _unread(case: Case, part: Part, waited: float, share: float) -> float:
    """What goes with this share of a reader's waits, and of the calls and wake-ups they took."""
    each = share / len(part.indexes)
    return saved_if_gone(
        case,
        {index: case.run.stages[index].system_seconds * share / 2 for index in part.indexes},
        dict.fromkeys(part.indexes, waited * each),
    )


def readahead_late(case: Case) -> Iterator[Finding]:
    """Read-ahead asked in time, but the disk could not keep up."""
    for part in case.parts:
        readahead = part.readahead
        if readahead is None or not _reads_from_disk(readahead):
            continue
        late = min(readahead.stall_seconds["late"].alone, case.run.disk_alone_seconds)
        enough = late >= DISK_LIMIT * case.wall and case.worth(late)
        if not enough or late < LATE_DOMINATES * _unrequested(readahead):
            continue
        rate = _from_disk(readahead) / case.wall
        yield Finding(
            id="readahead-late",
            severity="advice",
            sentence=f"{part.name} waited {duration(late)}, {percent(late / case.wall)} of the "
            "run, for pages that were on their way: read-ahead was at work, and the disk gave it "
            f"{data_size(rate)} a second.",
            advice="Try: fewer bytes from that disk (compressed input), or a faster one; a larger "
            "read-ahead (read_ahead_kb) if it is slow to answer rather than to deliver.",
            stages=part.indexes,
            evidence=(
                Evidence("stalled alone, read ahead too late", late, "seconds"),
                Evidence("from disk", _from_disk(readahead), "bytes"),
                *readahead_evidence(readahead),
            ),
        )


def cold_run(case: Case) -> Iterator[Finding]:
    """The run read from disk what another run may find in the page cache."""
    readahead = case.readahead
    if readahead is None or not _reads_from_disk(readahead):
        return
    state, warm = readahead.cache_state, readahead.warm_share
    if state not in ("cold", "mixed") or warm is None:
        return
    read = data_size(_from_disk(readahead))
    alike = "other cold runs" if state == "cold" else "runs that are as warm"
    yield Finding(
        id="cold-run",
        severity="note",
        sentence=f"The page cache was {state}: {read} came from disk, and {percent(warm)} of the "
        f"pages read were there before. Compare this run only with {alike}.",
        advice="",
        stages=(),
        evidence=(
            Evidence("from disk", _from_disk(readahead), "bytes"),
            Evidence("warm pages", warm, "ratio"),
        ),
    )


def _from_disk(readahead: Readahead) -> int:
    """Bytes that a reader got from disk."""
    pages = sum(readahead.pages[name] for name in ("hit", "late", "miss"))
    return pages * PAGE + readahead.direct_bytes


def _reads_from_disk(readahead: Readahead) -> bool:
    """Whether a reader got more from disk than what starting a program takes."""
    return _from_disk(readahead) >= BULK or readahead.faults["miss"] >= BULK_FAULTS


def _unrequested(readahead: Readahead) -> float:
    """Seconds asleep, with no stage on CPU, for what was requested only when it was needed."""
    stalled = readahead.stall_seconds
    seconds = stalled["miss"].alone
    if readahead.direct_bytes > _from_disk(readahead) / 2:
        seconds += stalled["other"].alone
    return seconds


def _unrequested_waits(readahead: Readahead) -> int:
    """Upper bound of the number of sleeps in those seconds."""
    stalls = readahead.stalls
    waits = sum(stalls["miss"])
    if readahead.direct_bytes > _from_disk(readahead) / 2:
        waits += sum(stalls["other"])
    return waits


def _by_children(part: Part) -> bool:
    """Whether it is the part's children that work."""
    cpu = part.sum(lambda stage: stage.cpu_seconds)
    return part.sum(lambda stage: stage.children_cpu_seconds) >= BY_CHILDREN * cpu > 0
