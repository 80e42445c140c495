# SPDX-License-Identifier: Apache-2.0
"""Where each rule begins and ceases to fire, at the figures that docs/FINDINGS.md names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipelined.analysis.finding import Finding
from pipelined.analysis.machine import Costs, Host
from pipelined.analysis.rewriting import Script
from pipelined.analysis.rules.rule import BULK, PAGE, Case
from pipelined.runs import NO_FLOW, Flow, Run, Stalls, Surroundings
from unit.test_findings import (
    HOST,
    MB,
    RULES_BY_ID,
    barrier,
    beside,
    blocks_of,
    ceiling_at,
    chained,
    copied,
    counting,
    crowded,
    filtered_late,
    in_turn,
    make_stage,
    pages,
    run_of,
    sorting,
    storm,
)

TWO = Host(2, None)


def found_by(id: str, run: Run, host: Host = HOST) -> list[Finding]:
    """What the rule itself finds, hidden by others or not."""
    return list(RULES_BY_ID[id](Case.of(run, host)))


def figures(finding: Finding) -> dict[str, float]:
    return {evidence.name: evidence.value for evidence in finding.evidence}


def with_stage(run: Run, index: int, **given: Any) -> Run:
    """The run with other fields of one stage, or seconds by state."""
    stage = run.stages[index]
    states = {**stage.states, **{n: given.pop(n) for n in list(given) if n in stage.states}}
    changed = replace(stage, states=states, **given)
    return replace(run, stages=(*run.stages[:index], changed, *run.stages[index + 1 :]))


def reading(seconds: float = 6.0, cpu: float = 4.0, **given: Any) -> Run:
    """awk alone, which waits for disk for these seconds."""
    reader = {"miss": 20_000, "misses": (seconds, 0.0)} | given
    stage = make_stage(1, "awk", (80, 0.001), cpu=cpu, disk=seconds, readahead=pages(**reader))
    return run_of([stage], overlapping=0)


def stalling(waits: int) -> Run:
    run = reading()
    stalls = {"miss": Stalls(waits - 6, 6), "late": Stalls(99, 99), "other": Stalls(99, 99)}
    return with_stage(run, 0, readahead=replace(run.stages[0].readahead, stalls=stalls))


def late(seconds: float, missed: float = 0.0) -> Run:
    reader = pages(hit=20_000, lates=(seconds, 0.0), misses=(missed, 0.0))
    return run_of([make_stage(1, "wc", cpu=0.3, disk=seconds, readahead=reader)])


def wasted(unused: int, used: int) -> Run:
    reader = pages(hit=used, wasted=unused, lates=(4.0, 0.0))
    return run_of([make_stage(1, "x", cpu=0.1, disk=4.0, readahead=reader)])


def copying(written: int, read_pages: int = 20_000, read: int = 80 * MB) -> Run:
    run = copied(pages(warm=read_pages))
    return with_stage(
        run,
        0,
        written_bytes=written,
        read_bytes=read,
        flow=Flow(None, written, read, 0, exact=True),
    )


def flushed(reads: int, mean: int, pieces: int = 0) -> Run:
    """bash reads so many pieces of this size; what feeds it wrote `pieces` small ones."""
    seq = make_stage(1, "seq", (0, 4), (0, pieces or 1), cpu=0.1)
    bash = make_stage(2, "bash", cpu=9.0, system_seconds=6.0)
    bash = replace(bash, read_bytes=reads * mean, read_calls=reads)
    return run_of([seq, bash])


def shrinking(passed: int, taken: int = 80 * MB) -> Run:
    return with_stage(
        filtered_late(),
        1,
        read_bytes=taken,
        written_bytes=passed,
        flow=Flow(taken, passed, 0, 0, exact=True),
    )


def queueing(longest: float) -> Run:
    """Six stages that want 6 CPUs, of which one waits longest."""
    return run_of(
        [make_stage(n, "xz", cpu=6.5, runqueue=longest if n == 1 else 2.4) for n in range(1, 7)]
    )


def spilled(to_files: int, waited: float = 1.5) -> Run:
    flow = Flow(80 * MB, 80 * MB, to_files, to_files, exact=True)
    return sorting(written=120, flow=flow, disk=waited)


#: Rule, what the figure is, what makes a run of it, one at which the rule fires, one at which not.
BOUNDS: list[tuple[str, str, Callable[[Any], Run], Any, Any]] = [
    ("disk-not-overlapped", "waits", stalling, 16, 15),
    ("disk-not-overlapped", "seconds of waiting", reading, 0.5, 0.49),
    ("disk-not-overlapped", "seconds of CPU", lambda cpu: reading(cpu=cpu), 0.5, 0.49),
    (
        "disk-not-overlapped",
        "share that children took",
        lambda cpu: with_stage(reading(), 0, children_cpu_seconds=cpu),
        1.9,
        2.0,
    ),
    (
        "disk-not-overlapped",
        "faults",
        lambda faults: reading(miss=0, faults={"miss": faults, "late": 0, "other": 0}),
        256,
        255,
    ),
    (
        "disk-not-overlapped",
        "pages from disk",
        lambda count: reading(miss=count),
        BULK // PAGE,
        BULK // PAGE - 1,
    ),
    ("readahead-useless", "coverage", lambda hit: reading(hit=hit, miss=1000), 999, 1000),
    ("readahead-useless", "seconds of waiting", reading, 1.0, 0.99),
    (
        "readahead-wasted",
        "pages never used",
        lambda count: wasted(count, 10),
        BULK // PAGE,
        BULK // PAGE - 1,
    ),
    ("readahead-wasted", "share never used", lambda count: wasted(count, 1000), 1001, 1000),
    ("readahead-late", "seconds of waiting", late, 4.0, 3.99),
    ("readahead-late", "other waits", lambda seconds: late(6.0, seconds), 3.0, 3.01),
    ("reader-costs", "bytes passed on of those taken", copying, 72 * MB, 72 * MB - 1),
    ("reader-costs", "bytes", lambda size: copying(size, read=size), BULK, BULK - 1),
    (
        "reader-costs",
        "pages of what was passed on",
        lambda count: copying(80 * MB, count),
        17_579,
        17_578,
    ),
    ("reader-costs", "CPU seconds in user mode", lambda user: copied(user_seconds=user), 0.5, 0.51),
    ("reader-costs", "CPU seconds", lambda cpu: copied(cpu=cpu), 0.5, 0.49),
    ("large-writes", "mean write", lambda mean: in_turn(mean=mean), 64_000 + 1600, 32_000),
    ("large-writes", "writer at a full pipe", lambda full: in_turn(pipe_full=full), 1.0, 0.99),
    (
        "large-writes",
        "reader at an empty pipe",
        lambda empty: with_stage(in_turn(), 1, pipe_empty=empty),
        1.0,
        0.99,
    ),
    (
        "large-writes",
        "bytes",
        lambda size: with_stage(in_turn(), 0, written_bytes=size, write_calls=1),
        BULK,
        BULK - 1,
    ),
    ("small-calls", "mean read", lambda mean: flushed(4_000_000, mean), 1023, 1024),
    ("small-calls", "calls", lambda calls: flushed(calls, 1), 250_000, 249_999),
    (
        "small-calls",
        "pieces that another one writes",
        lambda pieces: flushed(2_000_000, 1, pieces),
        999_999,
        1_000_000,
    ),
    ("cache-sized", "block", blocks_of, 1 << 20, 1 << 19),
    ("ceiling", "CPU", lambda cpu: with_stage(ceiling_at("gzip"), 1, cpu=cpu), 9.0, 8.99),
    (
        "ceiling",
        "several CPUs",
        lambda cpu: with_stage(ceiling_at("gzip"), 1, cpu=cpu),
        10.5,
        10.51,
    ),
    (
        "ceiling",
        "CPU, or waiting for one",
        lambda queue: with_stage(ceiling_at("gzip"), 1, cpu=5.0, runqueue=queue),
        4.0,
        3.99,
    ),
    ("idle-stage", "bytes passed on", shrinking, 4096, 4095),
    ("idle-stage", "share passed on", shrinking, 40 * MB, 40 * MB + 1),
    ("idle-stage", "bytes taken", lambda size: shrinking(4096, size), BULK, BULK - 1),
    ("idle-stage", "asleep", lambda empty: filtered_late(pipe_empty=empty, cpu=0.1), 9.0, 8.99),
    (
        "idle-stage",
        "asleep, but for waits for a CPU",
        lambda empty: filtered_late(pipe_empty=empty, runqueue=5.0),
        4.5,
        4.49,
    ),
    (
        "barrier",
        "seconds of readers",
        lambda cpu: with_stage(barrier(written=79), 1, cpu=cpu),
        7.1,
        0.5,
    ),
    ("more-stages-than-cores", "longest wait", queueing, 2.5, 2.49),
    ("more-stages-than-cores", "CPUs used of those there are", crowded, 3.21, 3.19),
    ("cpu-contention", "CPUs of others", beside, 2.58, 2.56),
    ("cpu-contention", "wait of a stage", lambda queue: beside(3.2, runqueue=queue), 1.0, 0.99),
    ("cpu-limit", "seconds held back", lambda seconds: beside(None, seconds), 1.0, 0.99),
    (
        "cpu-limit",
        "wait of a stage",
        lambda queue: with_stage(beside(None, 5.0, runqueue=queue), 0, runqueue=0.0),
        1.0,
        0.99,
    ),
    ("join-stages", "CPU seconds of both", lambda cpu: chained("sed", "sed", cpu=cpu), 2.5, 2.51),
    (
        "join-stages",
        "share that grep passes on",
        lambda passes: chained("grep", "awk", passes=passes),
        40,
        39,
    ),
    ("grep-count", "bytes counted", lambda size: counting(size / MB), BULK, BULK - 1),
    ("sort-spills", "bytes to files", spilled, BULK, BULK - 1),
    ("sort-spills", "waiting for disk", lambda seconds: spilled(40 * MB, seconds), 0.5, 0.49),
    ("sort-locale", "CPU", lambda cpu: sorting(cpu=cpu), 5.0, 4.99),
    (
        "sort-locale",
        "CPU, or waiting for one",
        lambda queue: sorting(cpu=4.0, runqueue=queue),
        1.0,
        0.99,
    ),
    ("sort-locale", "in user mode", lambda user: sorting(user_seconds=user), 0.5, 0.49),
    ("count-in-hash", "share kept", lambda kept: sorting(kept=kept), 8.0, 8.1),
    ("count-in-hash", "CPU", lambda cpu: sorting(kept=0.1, cpu=cpu), 2.5, 2.49),
    (
        "fork-storm",
        "children",
        lambda count: storm(exited_children=count, children_lifetime_seconds=1.0),
        100,
        99,
    ),
    ("fork-storm", "their life", lambda lived: storm(lived=lived), 0.05, 0.0501),
    ("fork-storm", "CPU", lambda cpu: storm(cpu=cpu), 0.5, 0.48),
    ("failed-execs", "failures", lambda count: storm(exec_failures=count, execs=1), 100, 99),
    (
        "failed-execs",
        "failures beside successes",
        lambda count: storm(exec_failures=count, execs=3001),
        3001,
        3000,
    ),
]


@pytest.mark.parametrize(
    ("id", "made", "fires", "ceases"),
    [(id, made, fires, ceases) for id, _, made, fires, ceases in BOUNDS],
    ids=[f"{id}: {figure}" for id, figure, *_ in BOUNDS],
)
def test_a_rule_fires_from_its_figure_on(
    id: str, made: Callable[[Any], Run], fires: Any, ceases: Any
) -> None:
    host = TWO if id == "join-stages" else HOST
    assert found_by(id, made(fires), host)
    assert not found_by(id, made(ceases), host)


def test_two_cpus_are_enough_for_writer_and_reader_at_a_time() -> None:
    assert found_by("large-writes", in_turn(), TWO)


@pytest.mark.parametrize(("file", "tried"), [("f", "dd if=f bs=32k | tr a b"), ("/dev/nst0", "")])
def test_a_tape_is_not_read_in_smaller_blocks(file: str, tried: str) -> None:
    script = Script(f"dd if={file} bs=1M | tr a b")
    (found,) = RULES_BY_ID["large-writes"](Case.of(in_turn(), HOST, script))
    assert found.command.partition("tr a b' ")[2].strip("'") == tried
    assert "(bs=32k; " in found.advice and "; from a tape write ibs=OLD obs=32k)" in found.advice


def test_a_gain_is_worth_it_from_5_percent_and_10_ms_on() -> None:
    long = Case.of(run_of([make_stage(1, "awk")], 10.0), HOST)
    assert (long.worth(0.5), long.worth(0.49)) == (True, False)
    short = Case.of(run_of([make_stage(1, "awk")], 0.1), HOST)
    assert (short.worth(0.010), short.worth(0.009)) == (True, False)


# -- the figures of a finding


def test_the_figures_of_stages_that_take_turns() -> None:
    run = in_turn(runqueue=0.25)
    (found,) = found_by("large-writes", with_stage(run, 1, runqueue=0.5))
    assert figures(found) == {
        "mean write": pytest.approx(80 * MB / 76),
        "capacity of the pipe": 65536,
        "writer at a full pipe": 4.0,
        "reader at an empty pipe": 4.5,
        "waiting for a free CPU": 0.75,
        "woken with no stage on CPU": 0.0,
        "two stages on CPU": pytest.approx(0.3),
    }
    assert found.gain_seconds == pytest.approx(4.0 - 0.3 - 0.75)


def test_what_a_wake_up_takes_is_no_wait_for_a_cpu_that_others_use() -> None:
    costs = Costs(fork_seconds=1e-4, program_seconds=1e-3, call_seconds=1e-6, switch_seconds=1e-5)
    run = with_stage(in_turn(runqueue=0.25, sleeps_full=50_000), 1, runqueue=0.5)
    run = with_stage(run, 1, sleeps_empty=20_000)
    (found,) = found_by("large-writes", run, replace(HOST, costs=costs))
    # 70,000 wake-ups take 0.7 s of the 0.75 s in the queue, and go with the turns
    assert figures(found)["woken with no stage on CPU"] == pytest.approx(0.7)
    assert found.gain_seconds == pytest.approx(4.0 - 0.3 - 0.05 + 0.7)


def test_smaller_writes_stay_in_the_cache_too() -> None:
    (found,) = found_by("large-writes", in_turn(mean=1 << 21, system_seconds=2.0))
    # three quarters of a block of 2 MiB exceed half of a cache of 1 MiB
    assert found.gain_seconds == pytest.approx(3.7 + 2.0 * 3 / 4, rel=0.01)
    assert found.likely_seconds == pytest.approx(3.7 / 2 + 0.5 * 2.0 * 3 / 4, rel=0.01)


def test_smaller_blocks_of_a_copier_end_the_turns_too() -> None:
    turns = replace(blocks_of(4 << 20), levels=(5.0, 5.0, 0, 0, 0, 0, 0, 0, 0))
    (found,) = found_by("cache-sized", with_stage(turns, 0, pipe_full=1.5))
    # dd waited 1.5 s for wc, which waited for it: neither worked while the other one did
    assert found.gain_seconds == pytest.approx(3.0 * 7 / 8 + 1.5, rel=0.01)


def test_what_the_writer_waited_for_is_no_gain_of_smaller_writes() -> None:
    (found,) = found_by("large-writes", in_turn(disk=1.5, pipe_empty=0.5))
    assert found.gain_seconds == pytest.approx(4.5 - 1.5 - 0.5)


def test_the_figures_of_a_wait_for_a_cpu() -> None:
    (found,) = found_by("cpu-contention", beside(3.2))
    assert figures(found) == {
        "longest wait for a free CPU": pytest.approx(4.6),
        "cost of that at most": pytest.approx(4.6),
        "CPUs used by others": 3.2,
        "CPUs wanted": pytest.approx(0.63 + 0.55),
        "CPUs": 4,
    }
    (found,) = found_by("cpu-limit", beside(None, 5.0))
    assert figures(found) == {
        "held back by the limit": 5.0,
        "longest wait for a free CPU": pytest.approx(4.6),
        "CPUs used": pytest.approx(0.63),
    }
    assert found.stages == (1,)


def test_a_wait_for_a_cpu_is_no_more_than_what_the_busiest_stage_leaves() -> None:
    waits = with_stage(beside(None, 5.0, cpu=6.0, runqueue=4.0), 0, runqueue=4.6)
    (found,) = found_by("cpu-limit", waits)
    assert found.gain_seconds == pytest.approx(4.0)


def test_the_busiest_stage_takes_less_time_on_all_the_cpus_that_it_wanted() -> None:
    """It used 1.2 CPUs and waited for another 0.8."""
    (limit,) = found_by("cpu-limit", beside(None, 9.0, cpu=12.0, runqueue=8.0))
    assert limit.gain_seconds == pytest.approx(10.0 - 6.0)
    (others,) = found_by("cpu-contention", beside(2.7, cpu=12.0, runqueue=8.0))
    assert figures(others)["cost of that at most"] == pytest.approx(10.0 - 6.0)


def test_a_pipeline_that_wants_all_cpus_itself_blames_no_others() -> None:
    around = Surroundings(1.0, None, ())
    assert not found_by("cpu-contention", replace(crowded(), surroundings=around))
    assert found_by("cpu-contention", replace(crowded(3.1), surroundings=around))


def test_the_figures_of_too_many_stages() -> None:
    (found,) = found_by("more-stages-than-cores", crowded())
    assert figures(found) == {
        "waiting for a free CPU": pytest.approx(21.0),
        "CPUs wanted": pytest.approx(6.0),
        "CPUs": 4,
    }
    assert not found_by("more-stages-than-cores", crowded(), Host(6, None))


def test_the_figures_of_a_ceiling() -> None:
    (found,) = found_by("ceiling", ceiling_at("zstd", runqueue=0.98))
    assert figures(found) == {
        "on CPU": 9.8,
        "next busiest stage on CPU": 2.0,
        "CPUs that it could use": pytest.approx(3.75),
    }
    # with its waits for a CPU, a tenth of its CPU time
    assert found.gain_seconds == pytest.approx(1.1 * (9.8 - 9.8 / 3.75))


def test_the_figures_of_a_filter_behind_a_busy_stage() -> None:
    (found,) = found_by("idle-stage", filtered_late())
    assert figures(found) == {
        "asleep on an empty pipe": pytest.approx(0.96),
        "passed on": pytest.approx(2 / 80),
        "stage before it on CPU": 9.7,
    }


def test_the_figures_of_a_barrier() -> None:
    (found,) = found_by("barrier", barrier())
    assert figures(found) == {
        "readers at an empty pipe": 9.0,
        "on CPU": 7.1,
        "passed on": pytest.approx(0.09),
    }
    assert found.stages == (1, 2)
    (note,) = found_by("barrier", barrier(written=79))
    assert figures(note) == {"readers at an empty pipe": 9.0, "on CPU": 7.1}


def test_the_figures_of_stages_to_join() -> None:
    (found,) = found_by("join-stages", chained("sed", "sed"), TWO)
    assert figures(found) == {"on CPU": 3.0, "waiting for a free CPU": 13.0, "CPUs": 2}
    assert "could use 3.1 CPUs where there are 2" in found.sentence
    assert "one sed for all" in found.advice
    assert "if each script is s/x/y/ without newlines, or /x/d" in found.advice
    (grep,) = found_by("join-stages", chained("grep", "awk"), TWO)
    assert grep.advice == (
        "Try: awk '/PATTERN/ { … }', without grep, if grep has one input and no options, PATTERN "
        "is letters and digits, and awk has neither NR nor getline."
    )
    assert found_by("join-stages", chained("sed", "sed", cpu=4.5), Host(1, None)), "all of the run"
    assert not found_by("join-stages", chained("sed", "sed", cpu=5.5), Host(1, None))


def test_the_figures_of_lines_that_grep_could_count() -> None:
    (found,) = found_by("grep-count", counting())
    assert figures(found) == {"wc on CPU": 2.0, "grep in the kernel": 1.0}
    assert "and grep prints whole matching lines of one input, no others." in found.advice


def test_the_figures_of_a_sort() -> None:
    run = sorting(written=160, system_seconds=1.5, disk=1.0)
    (found,) = found_by("sort-spills", run)
    assert figures(found) == {
        "written to temporary files": 80 * MB,
        "in the kernel": 1.5,
        "waiting for disk": 1.0,
    }
    (found,) = found_by("sort-locale", sorting())
    assert figures(found) == {"in user mode": 6.5, "on CPU": 7.0}


def test_the_figures_of_a_storm() -> None:
    (found,) = found_by("fork-storm", storm())
    assert figures(found) == {
        "children": 3000,
        "mean lifetime of a child": pytest.approx(0.002),
        "children on CPU": 5.0,
        "waiting for children": 6.0,
    }
    (found,) = found_by("failed-execs", storm(exec_failures=6000))
    assert figures(found) == {"failed execs": 6000, "execs": 3001}


def test_the_figures_of_small_calls_and_large_blocks() -> None:
    (found,) = found_by("small-calls", flushed(4_000_000, 1))
    assert figures(found) == {"small reads": 4_000_000, "small writes": 0, "in the kernel": 6.0}
    (found,) = found_by("cache-sized", blocks_of(4 << 20))
    assert figures(found) == {
        "mean block": pytest.approx(800 * MB / 190),
        "second-level cache": 1 << 20,
        "in the kernel": 3.0,
    }


def test_the_figures_of_the_disk() -> None:
    (found,) = found_by("disk-not-overlapped", reading())
    wanted = {"stalled alone, not read ahead": 6.0, "on CPU": 4.0, "pages not read ahead": 20_000}
    assert wanted.items() <= figures(found).items()
    (found,) = found_by("readahead-late", late(6.0))
    assert figures(found)["from disk"] == 20_000 * PAGE
    assert "waited 6.0 s, 60 % of the run" in found.sentence
    (found,) = found_by("readahead-useless", reading())
    assert figures(found)["mean read"] == pytest.approx(80 * MB / 1220, rel=1e-3)


def test_direct_reads_count_as_not_asked_for_if_they_are_most_of_what_came_from_disk() -> None:
    def direct(share_of_bytes: float) -> Run:
        read = 20_000 * PAGE
        reader = pages(
            miss=round(read * (1 - share_of_bytes)) // PAGE,
            others=(6.0, 0.0),
            direct_bytes=round(read * share_of_bytes),
        )
        stage = make_stage(1, "db", (80, 0), cpu=4.0, disk=6.0, readahead=reader)
        return run_of([stage], overlapping=0)

    assert found_by("disk-not-overlapped", direct(0.75))
    assert not found_by("disk-not-overlapped", direct(0.5))


@pytest.mark.parametrize(
    ("command", "reads", "advice"),
    [
        ("dd", True, "larger blocks (bs=64k; count=, skip= and seek= are in blocks)"),
        ("dd", False, "larger blocks (bs=64k; count=, skip= and seek= are in blocks)"),
        ("bash", True, "awk in place of the shell's read"),
        ("wc", True, "a larger buffer for what it reads"),
        ("bash", False, "awk in place of the loop"),
        ("grep", False, "grep without --line-buffered, nor stdbuf"),
        ("sed", False, "sed without -u, nor stdbuf"),
        ("mawk", False, 'mawk without fflush() and system(""), nor stdbuf'),
        ("python3", False, "python3 without -u, PYTHONUNBUFFERED and print(flush=True), nor"),
        ("jq", False, "no flush after each line in jq, nor stdbuf -oL before it; or, if it"),
    ],
)
def test_what_to_try_against_small_calls(command: str, reads: bool, advice: str) -> None:
    calls = (4_000_000, 0) if reads else (0, 4_000_000)
    stage = make_stage(2, command, (4, 0) if reads else (0, 4), calls, cpu=9.0, system_seconds=6.0)
    run = run_of([make_stage(1, "x", (0, 4), cpu=0.1), stage, make_stage(3, "y", cpu=0.1)])
    (found,) = found_by("small-calls", run)
    assert found.advice.startswith(f"Try: {advice}")


@pytest.mark.parametrize(
    ("command", "way", "keep"),
    [
        ("bash", "done < FILE at the end of the loop", ""),
        ("awk", "awk … < FILE", " Keep it only for several files."),
        ("x", "x … < FILE", " Keep it for several files, or if x asks what it reads."),
    ],
)
def test_how_a_reader_does_without_its_copier(command: str, way: str, keep: str) -> None:
    (found,) = found_by("reader-costs", with_stage(copied(), 1, command=command))
    assert found.advice == f"Try: {way}, without cat.{keep}"


@pytest.mark.parametrize(
    ("command", "keep"),
    [
        ("bash", "only if it has count=, skip= or conv="),
        ("awk", "only if it has count=, skip= or conv="),
        ("x", "if it has count=, skip= or conv=, or if x asks what it reads"),
    ],
)
def test_a_dd_that_reads_a_part_of_its_file_is_kept(command: str, keep: str) -> None:
    (found,) = found_by("reader-costs", with_stage(copied(command="dd"), 1, command=command))
    assert found.advice.endswith(f", without dd. Keep it {keep}.")


def test_the_reason_of_a_gain_names_the_cpus_that_it_is_spread_over() -> None:
    (spread,) = found_by("ceiling", ceiling_at("zstd"))
    assert "an even share on each of the 3.8 CPUs" in spread.gain_reason
    (faster,) = found_by("ceiling", ceiling_at("gzip"))
    assert "CPUs that the others leave, of 70 % of them" in faster.gain_reason
    (other,) = found_by("ceiling", ceiling_at("bash"))
    assert "even share" not in other.gain_reason


def test_a_sort_and_uniq_alone_could_save_all_their_time() -> None:
    run = sorting(kept=0.1)
    alone = replace(run, stages=run.stages[1:], edges=run.edges[:1])
    (found,) = found_by("count-in-hash", replace(alone, wall_seconds=7.9))
    assert found.gain_seconds == pytest.approx(7.4)
    short = replace(alone, wall_seconds=7.2)
    assert found_by("count-in-hash", short)[0].gain_seconds == pytest.approx(7.2)


def test_a_sed_alone_is_no_chain() -> None:
    assert not found_by("join-stages", chained("sed", "tr"), TWO)
    assert not found_by("join-stages", chained("tr", "sed"), TWO)


@pytest.mark.parametrize(("cpu", "severity"), [(0.55, "advice"), (0.54, "note")])
def test_what_would_not_reach_a_barrier_has_to_be_worth_it(cpu: float, severity: str) -> None:
    """awk passes on 9 %: the rest of the CPU time could be saved."""
    run = with_stage(barrier(), 1, cpu=cpu, disk=7.1)
    (found,) = found_by("barrier", run)
    assert found.severity == severity


def test_as_many_workers_are_advised_as_have_a_cpu_each() -> None:
    run = with_stage(ceiling_at("xargs"), 0, cpu=8.0)
    assert "xargs -P 4" in found_by("ceiling", with_stage(run, 2, cpu=1.0))[0].advice
    assert "xargs -P 3" in found_by("ceiling", with_stage(run, 2, cpu=8.0))[0].advice
    assert "xargs -P 2" in found_by("ceiling", ceiling_at("xargs"), TWO)[0].advice


def test_what_was_read_in_vain_waited_no_longer_than_the_run_did() -> None:
    run = replace(wasted(19_000, 1000), disk_alone_seconds=2.0)
    (found,) = found_by("readahead-wasted", run)
    assert figures(found)["stalled alone"] == 2.0
    assert found.gain_seconds == pytest.approx(2.0 * 19 / 20)


def test_joined_stages_save_all_but_the_busiest_one() -> None:
    run = with_stage(chained("sed", "sed"), 0, cpu=0.6)
    (found,) = found_by("join-stages", run, TWO)
    assert found.gain_seconds == pytest.approx(0.6)


def test_grep_saves_the_time_of_wc_and_its_own_for_writing() -> None:
    a_quarter = with_stage(counting(20), 0, user_seconds=8.0)
    (found,) = found_by("grep-count", a_quarter)
    # wc, grep in the kernel, and what it did in user mode for the quarter that it wrote
    assert found.gain_seconds == pytest.approx(2.0 + 1.0 + 8.0 / 4)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("tar c d | xz | ssh h", "xz -T0, which works on all CPUs"),
        ("tar c d | xz -9k | ssh h", "xz -T0, which works on all CPUs"),
        ("tar c d | xz -T2 | ssh h", "a lower level, such as -1; it cannot use more CPUs"),
        ("tar c d | xz --threads=2 | ssh h", "a lower level, such as -1; it cannot use more CPUs"),
        ("tar c d | xz -9 -d | ssh h", "xz -T0 (5.4 or newer)"),
        ("tar c d | xz --decompress | ssh h", "xz -T0 (5.4 or newer)"),
        ("tar c d | xz -d -T2 | ssh h", "a format that is faster to read; it cannot use more"),
    ],
)
def test_what_makes_a_codec_faster_depends_on_its_options(text: str, advice: str) -> None:
    (found,) = RULES_BY_ID["ceiling"](Case.of(ceiling_at("xz"), HOST, Script(text)))
    assert found.advice.startswith(f"Try: {advice}")


@pytest.mark.parametrize(("size", "severity"), [(391, "advice"), (393, "note")])
def test_dividing_the_input_pays_from_25_ns_for_a_byte_on(size: int, severity: str) -> None:
    run = with_stage(ceiling_at("grep"), 1, read_bytes=size * MB, flow=NO_FLOW)
    assert [found.severity for found in found_by("ceiling", run)] == [severity]
