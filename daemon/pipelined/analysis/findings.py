# SPDX-License-Identifier: Apache-2.0
"""What keeps a run from being faster, what to try, and what that could save at most.

Pure functions of a `Run` and the `Host` it was on. A rule says nothing unless its numbers are
large enough to matter (`MIN_WALL`, `WORTH_SHARE`, `WORTH_SECONDS`) and speak for one story.
docs/FINDINGS.md has a section for each id: what it means, when it fires, when to ignore it.

Every gain is an upper bound in seconds of wall time, from the run's own counters; where a number
that was measured on other machines comes in, its constant says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pipelined.analysis.bottleneck import (
    BARRIERS,
    LARGE,
    STORM,
    Bottleneck,
    Graph,
    bottleneck,
    joined,
    share,
    stage_label,
)
from pipelined.analysis.machine import Host
from pipelined.runs import Readahead, Run, Stage
from pipelined.wording import data_size, duration, listing, mean_size, percent

__all__ = ["DOCUMENTATION", "SEVERITIES", "Evidence", "Finding", "findings"]

#: The page with a section for each id; the id is its anchor.
DOCUMENTATION = "docs/FINDINGS.md"

#: The most severe first.
SEVERITIES = ("warning", "advice", "note")

#: A shorter run than this is mostly the starting of its programs (seconds).
MIN_WALL = 0.1
#: A gain below this share of the run, or below these seconds, is not worth a change.
WORTH_SHARE = 0.05
WORTH_SECONDS = 0.010

#: Less than this from or to a stage is no data, but libraries, locales and small talk (bytes).
BULK = 1 << 20
#: Faults on mapped files that had to wait: the libraries of a cold program make some dozens.
BULK_FAULTS = 256
#: A shorter wait for disk than this is no story of its own (share of the run) ...
DISK_NOTABLE = 0.10
#: ... and the disk is the limit only from this on.
DISK_LIMIT = 0.40
#: Fewer waits than this are no turns: one slow answer of a disk is an accident.
TURNS = 16
#: A stage whose children took this share of its CPU seconds leaves its reading to them.
BY_CHILDREN = 0.5
#: Waits for late pages that exceed the others this many times are the story of the reader.
LATE_DOMINATES = 2.0
#: A lower share than this of what came from disk was read ahead: read-ahead did not work.
LOW_COVERAGE = 0.5
#: A lower share than this of what was read ahead was used.
LOW_ACCURACY = 0.5
#: Larger reads than the usual read-ahead window of 128 KiB, with room (bytes).
LARGE_READ = 256 << 10

#: Smaller reads or writes than this cost more by the call than by the byte (docs/REPORT.md).
SMALL_CALL = 1024
#: What one small read or write takes at most (seconds): 0.3 to 1 µs where it was measured.
CALL_SECONDS = 2e-6
#: What a pipe holds unless it was told otherwise (bytes, pipe(7)).
PIPE_CAPACITY = 64 << 10
#: Writer and reader each wait this share of the run for the other: they take turns.
IN_TURN = 0.10
#: Of the system time of a copier, what copying from outside the cache adds at most: a third to a
#: half was measured (dd of a cached file into a pipe, 4 to 16 MiB against 256 KiB).
OUT_OF_CACHE = 0.5

#: Who spends a larger share of his CPU time in user mode does more than copy (dd conv=…).
COPYING = 0.25

#: A stage on CPU for this share of the run is the ceiling, if others wait for it.
CEILING = 0.90
#: On this many CPUs it is parallel already.
PARALLEL = 1.05
#: A stage asleep on an empty pipe for this share of the run is idle.
IDLE = 0.90
#: A stage that passes on a lower share of its input than this shrinks the data.
SHRINKS = 0.5
#: Less output than this is a result (a count, a sum), not lines passed on (bytes).
PASSED_ON = 4096
#: Children that live longer than this do work of their own (mean, seconds).
SHORT_LIFE = 0.050

#: Using a lower share of the CPUs, a pipeline lacks them because of others, or of a limit.
SATURATED = 0.8

#: Copy their input to their output, and no more, if both are of one size.
COPIERS = frozenset({"buffer", "cat", "dd", "mbuffer", "pv"})
#: Treat, or can treat, each line by itself.
BY_LINE = frozenset(
    {"awk", "cut", "egrep", "fgrep", "gawk", "grep", "jq", "mawk", "perl", "rg", "sed", "tr"}
)
SHELLS = frozenset({"ash", "bash", "busybox", "dash", "ksh", "sh", "zsh"})
#: The same work on several CPUs.
PARALLEL_KIN: Mapping[str, str] = {
    "bzip2": "lbzip2",
    "gzip": "pigz",
    "sort": "sort --parallel=N with LC_ALL=C",
    "xz": "xz -T0",
    "zstd": "zstd -T0",
}

_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Evidence:
    """A number that a finding stands on."""

    name: str
    value: float
    unit: str
    """``seconds``, ``bytes``, ``ratio`` (0 to 1), ``pages``, ``calls`` or ``count``."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to mend in a pipeline, or to know of a run."""

    id: str
    """Stable; also the anchor of its section in docs/FINDINGS.md."""
    severity: str
    """One of `SEVERITIES`: ``warning`` (change something), ``advice`` (worth trying), ``note``
    (know this when you read the numbers)."""
    sentence: str
    """What is wrong, with its numbers."""
    advice: str
    """What to do, beginning with ``Try:``; empty of a pure note."""
    stages: tuple[int, ...]
    """Indexes into `Run.stages`; empty when the whole run is meant."""
    evidence: tuple[Evidence, ...]
    gain_seconds: float | None = None
    """At most this much of the wall time could be saved; None: not known."""
    gain_reason: str = ""
    """How that bound was computed; empty without one."""


def findings(run: Run, host: Host) -> tuple[Finding, ...]:
    """What there is to say of `run`: most severe first, then by gain.

    Nothing of a run below `MIN_WALL`. Of a partial run only what stands on times: its bytes,
    calls and pages may be of another time than its seconds. A finding that tells the story of
    another one less exactly is left out.
    """
    if run.wall_seconds < MIN_WALL or not run.stages:
        return ()
    case = _Case(run, host, joined(run), bottleneck(run), _parts(run))
    rules = _OF_TIMES if run.partial else (*_OF_TIMES, *_OF_WHOLE_RUNS)
    found = [finding for rule in rules for finding in rule(case)]
    kept = [finding for finding in found if not any(_hides(other, finding) for other in found)]
    return tuple(sorted(kept, key=_rank))


@dataclass(frozen=True, slots=True)
class _Part:
    """A stage, or the parallel branches of one name, which a rule takes together."""

    run: Run
    indexes: tuple[int, ...]

    @property
    def stages(self) -> list[Stage]:
        return [self.run.stages[index] for index in self.indexes]

    @property
    def name(self) -> str:
        return stage_label(self.run, self.indexes)

    @property
    def command(self) -> str:
        return self.stages[0].command

    @property
    def readahead(self) -> Readahead | None:
        found = [stage.readahead for stage in self.stages if stage.readahead]
        return sum(found[1:], found[0]) if found else None

    def sum(self, value: Callable[[Stage], float]) -> float:
        return sum(map(value, self.stages))

    def mean_read(self) -> float:
        return _ratio(self.sum(lambda s: s.read_bytes), self.sum(lambda s: s.read_calls))

    def mean_write(self) -> float:
        return _ratio(self.sum(lambda s: s.written_bytes), self.sum(lambda s: s.write_calls))


@dataclass(frozen=True, slots=True)
class _Case:
    """What every rule looks at."""

    run: Run
    host: Host
    graph: Graph
    bottleneck: Bottleneck | None
    parts: tuple[_Part, ...]

    @property
    def wall(self) -> float:
        return self.run.wall_seconds

    def worth(self, seconds: float) -> bool:
        """Whether so many seconds of the run are worth a change."""
        return seconds >= max(WORTH_SHARE * self.wall, WORTH_SECONDS)

    def copies_files(self, part: _Part) -> bool:
        """The part stands in front, reads files, and passes on what it read."""
        stages, readahead = part.stages, part.readahead
        if part.command not in COPIERS or len(stages) > 1 or readahead is None:
            return False
        written = stages[0].written_bytes
        return (
            not self.graph.before[part.indexes[0]]
            and len(self.graph.after[part.indexes[0]]) == 1
            and written >= max(BULK, 0.9 * stages[0].read_bytes)
            and readahead.read_pages * _PAGE >= 0.9 * written
            and stages[0].user_seconds <= COPYING * stages[0].cpu_seconds
        )


# -- disk and page cache


def _disk_not_overlapped(case: _Case) -> Iterator[Finding]:
    """A stage computes and waits by turns for pages that nobody had asked for before."""
    run = case.run
    computing = sum(run.levels[1:]) - run.disk_overlapped_seconds
    for part in case.parts:
        readahead = part.readahead
        if readahead is None or not _reads_from_disk(readahead):
            continue
        # a reader in front of these has no computing to wait for, or a pipe's worth of it
        if part.command in COPIERS | BARRIERS or _by_children(part):
            continue
        # what one reads beside its stdin is a table, or its own program: none in front can bring it
        if any(case.graph.before[index] for index in part.indexes):
            continue
        if _unasked_waits(readahead) < TURNS:
            continue
        stalled = min(_unasked(readahead), run.disk_alone_seconds)
        cpu = part.sum(lambda stage: stage.cpu_seconds)
        gain = min(stalled, cpu, computing)
        if not case.worth(gain):
            continue
        name = part.name
        covered = (readahead.coverage or 0.0) >= LOW_COVERAGE
        # cat writes more at a time than a pipe holds: without read-ahead it takes turns as well
        reader = "cat FILE" if covered else "dd bs=32k if=FILE"
        yield Finding(
            "disk-not-overlapped",
            "warning",
            f"{name} computed {duration(cpu)} and waited {duration(stalled)} for disk by turns: "
            "no stage was on CPU while it waited.",
            f"Try: a reader in front ({reader} | {part.command}), so that the disk works while "
            f"{part.command} computes"
            + ("." if covered else "; or a larger read-ahead for that disk (read_ahead_kb)."),
            part.indexes,
            (
                Evidence("stalled alone, not read ahead", stalled, "seconds"),
                Evidence("on CPU", cpu, "seconds"),
                Evidence("pages not read ahead", readahead.pages["miss"], "pages"),
                *_shares(readahead),
            ),
            gain,
            "the least of its waiting with no stage on CPU, of its CPU seconds, and of the "
            "run's CPU time without disk waits",
        )


def _readahead_useless(case: _Case) -> Iterator[Finding]:
    """A reader stands still for pages that read-ahead did not bring in."""
    for part in case.parts:
        readahead = part.readahead
        if readahead is None or not _reads_from_disk(readahead):
            continue
        coverage = readahead.coverage
        stalled = min(readahead.stalls["miss"].alone_seconds, case.run.disk_alone_seconds)
        # sort and its like ask for all that they have room for: ahead of that there is nothing
        if coverage is None or coverage >= LOW_COVERAGE or part.command in BARRIERS:
            continue
        if stalled < DISK_NOTABLE * case.wall or not case.worth(stalled):
            continue
        mean = part.mean_read()
        if mean >= LARGE_READ:
            advice = (
                "Try: smaller blocks than the read-ahead window of that disk (read_ahead_kb), "
                "such as 64 KiB; or a larger window."
            )
        else:
            advice = (
                "Try: switch read-ahead on, if read_ahead_kb of that disk is 0 or the program "
                "asks for none (POSIX_FADV_RANDOM). Else the files are tiny or the reads jump: "
                "read several files at a time (xargs -P), or in the order in which they lie on "
                "disk."
            )
        yield Finding(
            "readahead-useless",
            "advice",
            f"{part.name} waited {duration(stalled)} for disk with no stage on CPU; read-ahead "
            f"brought in {percent(coverage)} of what came from there.",
            advice,
            part.indexes,
            (
                Evidence("stalled alone, not read ahead", stalled, "seconds"),
                Evidence("mean read", mean, "bytes"),
                *_shares(readahead),
            ),
            stalled,
            "its waiting for pages that were not read ahead, with no stage on CPU",
        )


def _readahead_wasted(case: _Case) -> Iterator[Finding]:
    """A reader waits for a disk that reads what nobody uses."""
    for part in case.parts:
        readahead = part.readahead
        if readahead is None or not readahead.inserted_pages:
            continue
        wasted = readahead.pages["wasted"]
        unused = wasted / readahead.inserted_pages
        waited = sum(stalls.alone_seconds for stalls in readahead.stalls.values())
        waited = min(waited, case.run.disk_alone_seconds)
        gain = waited * wasted / (readahead.inserted_pages + readahead.pages["miss"])
        if wasted * _PAGE < BULK or unused <= 1 - LOW_ACCURACY or not case.worth(gain):
            continue
        yield Finding(
            "readahead-wasted",
            "advice",
            f"{part.name} waited {duration(waited)} for disk with no stage on CPU, and "
            f"{percent(unused)} of what was read ahead for it ({data_size(wasted * _PAGE)}) was "
            "never used.",
            "Try: a smaller read-ahead for that disk (read_ahead_kb), or "
            "posix_fadvise(POSIX_FADV_RANDOM) in the program.",
            part.indexes,
            (
                Evidence("stalled alone", waited, "seconds"),
                Evidence("read ahead and never used", wasted, "pages"),
                *_shares(readahead),
            ),
            gain,
            "the wasted pages' part of the pages read, of its waiting with no stage on CPU",
        )


def _readahead_late(case: _Case) -> Iterator[Finding]:
    """Read-ahead asked in time, and the disk could not keep up."""
    for part in case.parts:
        readahead = part.readahead
        if readahead is None or not _reads_from_disk(readahead):
            continue
        late = min(readahead.stalls["late"].alone_seconds, case.run.disk_alone_seconds)
        enough = late >= DISK_LIMIT * case.wall and case.worth(late)
        if not enough or late < LATE_DOMINATES * _unasked(readahead):
            continue
        rate = _from_disk(readahead) / case.wall
        yield Finding(
            "readahead-late",
            "advice",
            f"{part.name} waited {duration(late)}, {percent(late / case.wall)} of the run, for "
            "pages that were on their way: read-ahead was at work, and the disk gave it "
            f"{data_size(rate)} a second.",
            "Try: fewer bytes from that disk (compressed input), or a faster one; a larger "
            "read-ahead (read_ahead_kb) if it is slow to answer rather than to deliver.",
            part.indexes,
            (
                Evidence("stalled alone, read ahead too late", late, "seconds"),
                Evidence("from disk", _from_disk(readahead), "bytes"),
                *_shares(readahead),
            ),
        )


def _cold_run(case: _Case) -> Iterator[Finding]:
    """The run had to wait for a disk that another run may not need."""
    readahead = case.run.readahead
    if readahead is None or not _reads_from_disk(readahead):
        return
    state, warm = readahead.cache_state, readahead.warm_share
    if state not in ("cold", "mixed") or warm is None:
        return
    read = data_size(_from_disk(readahead))
    alike = "cold" if state == "cold" else "warm as that"
    yield Finding(
        "cold-run",
        "note",
        f"The page cache was {state}: {read} came from disk, and {percent(warm)} of the pages "
        f"read were there before. Compare this run only with others as {alike}.",
        "",
        (),
        (
            Evidence("from disk", _from_disk(readahead), "bytes"),
            Evidence("warm pages", warm, "ratio"),
        ),
    )


# -- reading and writing


def _reader_costs(case: _Case) -> Iterator[Finding]:
    """A leading copier that waits for nothing its reader would have waited for."""
    for part in case.parts:
        readahead = part.readahead
        if readahead is None or not case.copies_files(part):
            continue
        stage = part.stages[0]
        cpu, stalled = stage.cpu_seconds, readahead.stall_seconds
        # what waiting it takes off its reader may be worth more than it costs
        if not case.worth(cpu) or case.worth(stalled):
            continue
        (reader,) = case.graph.after[part.indexes[0]]
        then = stage_label(case.run, (reader,))
        command = case.run.stages[reader].command
        evidence = (
            Evidence("on CPU", cpu, "seconds"),
            Evidence("copied", stage.written_bytes, "bytes"),
            Evidence("stalled", stalled, "seconds"),
            *_shares(readahead),
        )
        size = data_size(stage.written_bytes)
        if readahead.cache_state == "warm":
            yield Finding(
                "reader-costs",
                "advice",
                f"{part.name} only copied {size}, which were in memory, into the pipe: "
                f"{duration(cpu)} of CPU.",
                f"Try: {command} … FILE or {command} … < FILE, without {part.command}. Only for "
                f"several files is it needed, if {command} takes none.",
                (*part.indexes, reader),
                evidence,
                min(case.wall, cpu + case.run.stages[reader].system_seconds),
                f"its CPU seconds, and those of {then} in the kernel, where it reads the pipe",
            )
        elif readahead.cache_state is not None:
            yield Finding(
                "reader-costs",
                "note",
                f"{part.name} copied {size} from disk into the pipe for {duration(cpu)} of CPU and "
                f"hardly waited: {then} may do as well without it, or wait more.",
                f"Try: both ways from a cold cache (pipelined compare --cold FILE 'cat FILE | "
                f"{command} …' '{command} … FILE').",
                (*part.indexes, reader),
                evidence,
            )


def _large_writes(case: _Case) -> Iterator[Finding]:
    """Writes that do not fit into the pipe: writer and reader take turns."""
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
        # with one CPU for both they take turns whatever the blocks are, and so with a slow disk
        queued = writer.states["runqueue"] + reader.states["runqueue"]
        could = min(writer.cpu_seconds, reader.cpu_seconds) - sum(run.levels[2:]) - queued
        for_it = empty * wall - writer.states["disk"] - writer.states["pipe_empty"]
        gain = min(full * wall, for_it, could)
        if min(full, empty) < IN_TURN or not case.worth(gain):
            continue
        name, other = stage_label(run, (index,)), stage_label(run, (reading,))
        blocks = "bs=32k" if writer.command == "dd" else "32 KiB"
        yield Finding(
            "large-writes",
            "warning",
            f"{name} wrote {mean_size(mean, 1)} at a time into a pipe of "
            f"{mean_size(capacity, 1)}: it waited {percent(full)} of the run for {other}, and "
            f"{other} {percent(empty)} for it.",
            f"Try: smaller blocks ({blocks}), or a larger pipe (F_SETPIPE_SZ).",
            (index, reading),
            (
                Evidence("mean write", mean, "bytes"),
                Evidence("capacity of the pipe", capacity, "bytes"),
                Evidence("writer at a full pipe", full * wall, "seconds"),
                Evidence("reader at an empty pipe", empty * wall, "seconds"),
                Evidence("in the run queue", queued, "seconds"),
                Evidence("two stages on CPU", sum(run.levels[2:]), "seconds"),
            ),
            gain,
            "the least of the writer's wait, of the reader's less what the writer itself waited "
            "for input, and of the CPU seconds that could have overlapped but did not",
        )


def _small_calls(case: _Case) -> Iterator[Finding]:
    """Reads or writes so small that the calls cost more than the data."""
    for part in case.parts:
        reads, writes = _own_small(case, part)
        system = part.sum(lambda stage: stage.system_seconds)
        gain = min(system, (reads + writes) * CALL_SECONDS, case.wall)
        if not case.worth(gain):
            continue
        made = []
        if reads:
            made.append(f"{reads:,} reads of {mean_size(part.mean_read(), 1)}")
        if writes:
            made.append(f"{writes:,} writes of {mean_size(part.mean_write(), 1)}")
        yield Finding(
            "small-calls",
            "warning",
            f"{part.name} made {listing(made)} on average: the calls cost more than the data.",
            _larger_calls(part.command, reads > writes),
            part.indexes,
            (
                Evidence("small reads", reads, "calls"),
                Evidence("small writes", writes, "calls"),
                Evidence("in the kernel", system, "seconds"),
            ),
            gain,
            f"the lesser of its system time and {duration(CALL_SECONDS)} for each call",
        )


def _cache_sized(case: _Case) -> Iterator[Finding]:
    """A copier whose block is out of the cache again before it is written."""
    level2 = case.host.l2_bytes
    if level2 is None:
        return
    for part in case.parts:
        block = max(part.mean_read(), part.mean_write())
        system = part.sum(lambda stage: stage.system_seconds)
        if part.command not in COPIERS or block <= level2 / 2:
            continue
        if not any(case.graph.after[index] for index in part.indexes):
            continue  # nobody touches the block again
        gain = OUT_OF_CACHE * system * (1 - level2 / 2 / block)
        if not case.worth(gain):
            continue
        blocks = "bs=128k" if part.command == "dd" else "128 KiB"
        yield Finding(
            "cache-sized",
            "advice",
            f"{part.name} moved blocks of {mean_size(block, 1)}, over half of this machine's "
            f"second-level cache ({mean_size(level2, 1)}): what it read may have left the cache "
            "when it was written.",
            f"Try: smaller blocks ({blocks}).",
            part.indexes,
            (
                Evidence("mean block", block, "bytes"),
                Evidence("second-level cache", level2, "bytes"),
                Evidence("in the kernel", system, "seconds"),
            ),
            gain,
            "half of its system time, which is what copying from outside the cache added when "
            "measured, for the part of a block that exceeds half of the cache",
        )


# -- who works and who waits


def _ceiling(case: _Case) -> Iterator[Finding]:
    """One stage computes all the time, on one CPU, and the others wait for it."""
    found, run = case.bottleneck, case.run
    if found is None or found.kind != "cpu" or len(found.stages) > 1:
        return
    if not CEILING <= found.cpu_share <= PARALLEL or not (found.waiters or found.ended):
        return
    (index,) = found.stages
    cpu = run.stages[index].cpu_seconds
    others = [stage for other, stage in enumerate(run.stages) if other != index]
    second = max(others, key=lambda stage: stage.cpu_seconds)
    free = max(1.0, case.host.cores - (run.cpu_seconds - cpu) / case.wall)
    gain = cpu - max(min(second.cpu_seconds, cpu), cpu / free)
    if not case.worth(gain):
        return
    kin = PARALLEL_KIN.get(found.command)
    if found.command == "xargs":
        kin = "several processes at a time (xargs -P)"
    yield Finding(
        "ceiling",
        "advice",
        f"{stage_label(run, found.stages)} was on CPU {percent(found.cpu_share)} of the run and "
        f"the others waited for it; the next busiest, {second.command}, took "
        f"{duration(second.cpu_seconds)} of CPU.",
        f"Try: {kin}."
        if kin
        else "Try: split its work over two stages (sed -e A -e B is sed A | sed B), or over "
        "several of it (split -n r/4 --filter CMD, parallel --pipe).",
        found.stages,
        (
            Evidence("on CPU", cpu, "seconds"),
            Evidence("next busiest stage on CPU", second.cpu_seconds, "seconds"),
            Evidence("CPUs that it could use", free, "count"),
        ),
        gain,
        "its CPU seconds, less those of the next busiest stage or, if more, an even share on "
        f"each of the {free:.1f} CPUs that the others leave",
    )


def _idle_stage(case: _Case) -> Iterator[Finding]:
    """A filter sleeps behind a busy stage, and throws away most of what that makes."""
    run = case.run
    for index, before in enumerate(case.graph.before):
        if len(before) != 1:
            continue
        stage, (source,) = run.stages[index], tuple(before)
        heavy = run.stages[source]
        passed = _passed_on(stage)
        if passed is None or not {stage.command, heavy.command} <= BY_LINE:
            continue
        waited = share(stage, "pipe_empty", case.wall)
        gain = heavy.cpu_seconds * (1 - passed)
        if waited < IDLE or not case.worth(gain):
            continue
        yield Finding(
            "idle-stage",
            "advice",
            f"{stage_label(run, (index,))} slept {percent(waited)} of the run and passed on "
            f"{percent(passed)} of what {stage_label(run, (source,))} took "
            f"{duration(heavy.cpu_seconds)} of CPU to make.",
            f"Try: put {stage.command} before {heavy.command}, if it does not need what "
            f"{heavy.command} makes of a line.",
            (source, index),
            (
                Evidence("asleep on an empty pipe", waited, "ratio"),
                Evidence("passed on", passed, "ratio"),
                Evidence("stage before it on CPU", heavy.cpu_seconds, "seconds"),
            ),
            min(gain, case.wall),
            "the CPU seconds of the stage before it, for the share that is thrown away",
        )


def _barrier(case: _Case) -> Iterator[Finding]:
    """A stage that writes nothing before it has read all, and a stage behind that shrinks."""
    found, run = case.bottleneck, case.run
    if found is None or not found.barrier:
        return
    behind = sorted(set().union(*(case.graph.after[index] for index in found.stages)))
    names = listing([stage_label(run, (index,)) for index in behind])
    waited = min(run.stages[index].states["pipe_empty"] for index in behind)
    part = _Part(run, found.stages)
    cpu = part.sum(lambda stage: stage.cpu_seconds)
    passed = _passed_on(run.stages[behind[0]]) if len(behind) == 1 else None
    gain = 0.0 if passed is None else min(cpu * (1 - passed), case.wall)
    sentence = (
        f"{part.name} wrote nothing before it had read all its input; {names} waited "
        f"{duration(waited)}."
    )
    evidence = (
        Evidence("readers at an empty pipe", waited, "seconds"),
        Evidence("on CPU", cpu, "seconds"),
    )
    if passed is None or not case.worth(gain):
        if case.worth(waited):
            yield Finding("barrier", "note", sentence, "", (*found.stages, *behind), evidence)
        return
    yield Finding(
        "barrier",
        "advice",
        sentence,
        f"Try: put {run.stages[behind[0]].command} before {found.command}, if it takes each line "
        f"by itself. It passes on {percent(passed)} of the bytes.",
        (*found.stages, *behind),
        (*evidence, Evidence("passed on", passed, "ratio")),
        gain,
        f"the CPU seconds of {found.command}, for the share that would not reach it",
    )


def _more_stages_than_cores(case: _Case) -> Iterator[Finding]:
    """More threads of the run want a CPU than there are."""
    run, wall = case.run, case.wall
    queued = sum(stage.states["runqueue"] for stage in run.stages)
    wanted = (run.cpu_seconds + queued) / wall
    longest = max(share(stage, "runqueue", wall) for stage in run.stages)
    busiest = max(stage.cpu_seconds for stage in run.stages)
    gain = min(longest * wall, wall - busiest)
    saturated = run.cores_used >= SATURATED * case.host.cores
    if wanted <= case.host.cores or not saturated or longest < LARGE or not case.worth(gain):
        return
    yield Finding(
        "more-stages-than-cores",
        "advice",
        f"The pipeline could use {wanted:.1f} CPUs on average and there are {case.host.cores}: "
        f"its stages waited {duration(queued)} for a free one.",
        "Try: fewer at a time: join light stages (sed A | sed B is sed -e A -e B), lower "
        "xargs -P; or more CPUs.",
        (),
        (
            Evidence("in the run queue", queued, "seconds"),
            Evidence("CPUs wanted", wanted, "count"),
            Evidence("CPUs", case.host.cores, "count"),
        ),
        gain,
        "the longest wait of one stage, but no more than what is left beside the busiest one",
    )


# -- processes


def _fork_storm(case: _Case) -> Iterator[Finding]:
    """Many short-lived children: starting them is the work."""
    for part in case.parts:
        exited = int(part.sum(lambda stage: stage.exited_children))
        lived = part.sum(lambda stage: stage.children_lifetime_seconds)
        if exited < STORM or lived / exited > SHORT_LIFE:
            continue
        cpu = part.sum(lambda stage: stage.cpu_seconds)
        gain = min(cpu, sum(case.run.levels[1:]))
        if not case.worth(gain):
            continue
        if part.command == "xargs":
            advice = "Try: more arguments at a time (xargs -n 1000, without -I)"
        elif part.command in SHELLS:
            advice = "Try: one awk in place of the loop"
        else:
            advice = "Try: more work for each process"
        yield Finding(
            "fork-storm",
            "warning",
            f"{part.name} started {exited:,} processes that lived {duration(lived / exited)} "
            f"each; with their starting they took {duration(cpu)} of CPU.",
            f"{advice}, or a few long-lived workers (split -n r/4 --filter CMD, "
            "parallel --pipe CMD).",
            part.indexes,
            (
                Evidence("children", exited, "count"),
                Evidence("mean lifetime of a child", lived / exited, "seconds"),
                Evidence("children on CPU", part.sum(lambda s: s.children_cpu_seconds), "seconds"),
                Evidence("waiting for children", part.sum(lambda s: s.states["child"]), "seconds"),
            ),
            gain,
            "the CPU seconds of the stage and its children, but no more than the time in which "
            "any stage was on CPU",
        )


def _failed_execs(case: _Case) -> Iterator[Finding]:
    """A program is looked for along PATH again and again."""
    for part in case.parts:
        failed = int(part.sum(lambda stage: stage.exec_failures or 0))
        execs = int(part.sum(lambda stage: stage.execs))
        if failed < STORM or failed < execs:
            continue
        yield Finding(
            "failed-execs",
            "note",
            f"{failed:,} of {failed + execs:,} execs in {part.name} failed: a program was looked "
            "for in one directory of PATH after another.",
            "Try: the program's full path (xargs /usr/bin/gzip), or a shorter PATH.",
            part.indexes,
            (
                Evidence("failed execs", failed, "count"),
                Evidence("execs", execs, "count"),
            ),
        )


_Rule = Callable[[_Case], Iterator[Finding]]

_OF_TIMES: tuple[_Rule, ...] = (
    _disk_not_overlapped,
    _readahead_late,
    _ceiling,
    _barrier,
    _more_stages_than_cores,
    _fork_storm,
    _failed_execs,
)
_OF_WHOLE_RUNS: tuple[_Rule, ...] = (
    _readahead_useless,
    _readahead_wasted,
    _cold_run,
    _reader_costs,
    _large_writes,
    _small_calls,
    _cache_sized,
    _idle_stage,
)

#: Which findings tell the story of others about the same stage more exactly.
_HIDES: Mapping[str, frozenset[str]] = {
    "disk-not-overlapped": frozenset({"readahead-useless"}),
    "readahead-wasted": frozenset({"readahead-late", "readahead-useless"}),
    "reader-costs": frozenset({"ceiling", "cache-sized"}),
    "large-writes": frozenset({"cache-sized"}),
    "small-calls": frozenset({"ceiling"}),
    "idle-stage": frozenset({"ceiling"}),
    "barrier": frozenset({"ceiling", "idle-stage"}),
    "fork-storm": frozenset({"ceiling"}),
}


def _hides(one: Finding, other: Finding) -> bool:
    """Whether `other` need not be told beside `one`, which is no less severe."""
    return (
        other.id in _HIDES.get(one.id, ())
        and not set(one.stages).isdisjoint(other.stages)
        and SEVERITIES.index(one.severity) <= SEVERITIES.index(other.severity)
    )


def _rank(finding: Finding) -> tuple[int, float]:
    return SEVERITIES.index(finding.severity), -(finding.gain_seconds or 0.0)


def _parts(run: Run) -> tuple[_Part, ...]:
    places: dict[tuple[int, str], list[int]] = {}
    for index, stage in enumerate(run.stages):
        places.setdefault((stage.position, stage.command), []).append(index)
    return tuple(_Part(run, tuple(indexes)) for indexes in places.values())


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _from_disk(readahead: Readahead) -> int:
    """Bytes that a reader had from disk."""
    pages = sum(readahead.pages[name] for name in ("hit", "late", "miss"))
    return pages * _PAGE + readahead.direct_bytes


def _reads_from_disk(readahead: Readahead) -> bool:
    """More than what starting a program takes."""
    return _from_disk(readahead) >= BULK or readahead.faults["miss"] >= BULK_FAULTS


def _unasked(readahead: Readahead) -> float:
    """Seconds asleep, with no stage on CPU, for what was asked for only when it was needed."""
    stalls = readahead.stalls
    seconds = stalls["miss"].alone_seconds
    if readahead.direct_bytes > _from_disk(readahead) / 2:
        seconds += stalls["other"].alone_seconds
    return seconds


def _unasked_waits(readahead: Readahead) -> int:
    """How many sleeps those seconds are, at most."""
    stalls = readahead.stalls
    waits = stalls["miss"].alone + stalls["miss"].overlapped
    if readahead.direct_bytes > _from_disk(readahead) / 2:
        waits += stalls["other"].alone + stalls["other"].overlapped
    return waits


def _by_children(part: _Part) -> bool:
    """Whether it is its children that work."""
    cpu = part.sum(lambda stage: stage.cpu_seconds)
    return part.sum(lambda stage: stage.children_cpu_seconds) >= BY_CHILDREN * cpu > 0


def _shares(readahead: Readahead) -> Iterator[Evidence]:
    """The terms of docs/CONCEPTS.md, as far as they are known."""
    for name, value in (
        ("coverage", readahead.coverage),
        ("timeliness", readahead.timeliness),
        ("accuracy", readahead.accuracy),
        ("warm pages", readahead.warm_share),
    ):
        if value is not None:
            yield Evidence(name, value, "ratio")


def _pipe_write(stage: Stage) -> tuple[float, int]:
    """Mean write of a stage to its pipe, and what that holds (bytes)."""
    functions = stage.functions
    if functions is not None and functions.pipe_writes.mean is not None:
        return functions.pipe_writes.mean, functions.pipe_capacity_bytes or PIPE_CAPACITY
    return _ratio(stage.written_bytes, stage.write_calls), PIPE_CAPACITY


def _passed_on(stage: Stage) -> float | None:
    """Of its input, what a line-by-line stage that shrinks it passes on; None: no such stage."""
    passed = _ratio(stage.written_bytes, stage.read_bytes)
    shrinks = stage.read_bytes >= BULK and passed <= SHRINKS
    shrinks = shrinks and stage.written_bytes >= PASSED_ON
    return passed if shrinks and stage.command in BY_LINE else None


def _small(part: _Part) -> tuple[int, int]:
    """Reads and writes of a part, where they are small on average."""
    reads = part.sum(lambda s: s.read_calls) if part.mean_read() < SMALL_CALL else 0
    writes = part.sum(lambda s: s.write_calls) if part.mean_write() < SMALL_CALL else 0
    return int(reads), int(writes)


def _own_small(case: _Case, part: _Part) -> tuple[int, int]:
    """Those that are its own doing: not a reader's of what a writer writes piece by piece."""
    reads, writes = _small(part)
    writers = set().union(*(case.graph.before[index] for index in part.indexes))
    pieces = sum(_small(_Part(case.run, (index,)))[1] for index in writers)
    if reads > 2 * pieces:
        return reads, writes
    return 0, writes if writes > 2 * pieces else 0


def _larger_calls(command: str, reading: bool) -> str:
    if command == "dd":
        return "Try: larger blocks (bs=64k)."
    if reading and command in SHELLS:
        return "Try: awk in place of the shell's read, which reads a pipe byte by byte."
    if reading:
        return "Try: a larger buffer for what it reads (64 KiB)."
    return (
        "Try: no flush after each line: without fflush(), grep --line-buffered, sed -u, "
        "stdbuf -oL, python -u."
    )
