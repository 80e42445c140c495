# SPDX-License-Identifier: Apache-2.0
"""Findings on invented runs: what is reported, what is not claimed, and nothing on healthy runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelined.analysis.finding import SEVERITIES, Finding, Rewrite
from pipelined.analysis.findings import MIN_WALL, RULES, findings
from pipelined.analysis.machine import Host
from pipelined.analysis.rewriting import COUNT, Script
from pipelined.analysis.rules.rule import WORTH_SECONDS, WORTH_SHARE, Case
from pipelined.runs import (
    NO_FLOW,
    SIZE_EDGES,
    Child,
    Exit,
    Flow,
    OtherPipeline,
    PipeEnd,
    Readahead,
    Run,
    Stage,
    Stalls,
    StallSeconds,
    Surroundings,
)
from unit.invented import START, make_functions, make_histogram, make_readahead, make_run
from unit.invented import make_stage as make_live_stage

MB = 1_000_000
HOST = Host(cores=4, l2_bytes=1 << 20)
USELESS = "readahead-useless"
RULES_BY_ID = {rule.id: rule.check for rule in RULES}
SEVERITIES_BY_ID = {rule.id: rule.severity for rule in RULES}


def make_stage(
    position: int,
    command: str,
    /,
    data: tuple[float, float] = (0, 0),
    calls: tuple[int, int] = (0, 0),
    **given: Any,
) -> Stage:
    """A stage that has ended; `data` in MB and `calls`: read and written."""
    command = given.pop("command", command)
    values: dict[str, Any] = {
        "end": START + 10,
        "read_bytes": int(data[0] * MB),
        "written_bytes": int(data[1] * MB),
        "read_calls": calls[0] or int(data[0] * MB / 65536),
        "write_calls": calls[1] or int(data[1] * MB / 32768),
    }
    return make_live_stage(position, command, **values | given)


def pages(
    *, warm: int = 0, hit: int = 0, late: int = 0, miss: int = 0, wasted: int = 0, **given: Any
) -> Readahead:
    """A reader of these pages; seconds alone and overlapped in `misses`, `lates`, `others`."""
    stalls, stall_seconds = {}, {}
    for key, name in (("misses", "miss"), ("lates", "late"), ("others", "other")):
        alone, overlapped = given.pop(key, (0.0, 0.0))
        stalls[name] = Stalls(100 if overlapped else 0, 100 if alone else 0)
        stall_seconds[name] = StallSeconds(overlapped, alone)
    values: dict[str, Any] = {
        "pages": {"warm": warm, "hit": hit, "late": late, "miss": miss, "wasted": wasted},
        "inserted_pages": hit + late + wasted,
        "direct_bytes": 0,
        "faults": {"miss": 0, "late": 0, "other": 0},
        "stalls": stalls,
        "stall_seconds": stall_seconds,
    }
    return make_readahead(**values | given)


WARM = pages(warm=20_000)


def run_of(
    stages: Sequence[Stage], wall: float = 10.0, *, overlapping: float = 0.5, **given: Any
) -> Run:
    """A finished run; the stalls of its readers are its waits for disk."""
    readers = [stage.readahead for stage in stages if stage.readahead]
    alone = sum(s.alone for reader in readers for s in reader.stall_seconds.values())
    hidden = sum(reader.overlapped_seconds for reader in readers)
    values = {
        "end": START + wall,
        "disk_alone_seconds": min(wall, alone),
        "disk_overlapped_seconds": min(wall, hidden),
    }
    return make_run(stages, wall, overlapping=overlapping, **values | given)


def ids_of(run: Run, host: Host = HOST) -> list[str]:
    return [finding.id for finding in findings(run, host)]


def find(run: Run, id: str, host: Host = HOST) -> Finding:
    (found,) = [finding for finding in findings(run, host) if finding.id == id]
    return found


# -- disk and page cache


@pytest.fixture
def by_turns() -> Run:
    """awk alone on a disk without read-ahead: 4 s of computing, 6 s of waiting."""
    reader = pages(miss=20_000, misses=(6.0, 0.0))
    awk = make_stage(1, "awk", (80, 0.001), cpu=4.0, disk=6.0, readahead=reader)
    return run_of([awk], overlapping=0)


def test_computing_and_waiting_by_turns_asks_for_a_reader(by_turns: Run) -> None:
    found = find(by_turns, "disk-not-overlapped")
    assert found.severity == "warning"
    assert found.sentence == (
        "awk computed 4.0 s and waited 6.0 s for disk by turns: no stage was on CPU while it "
        "waited."
    )
    assert found.advice.startswith("Try: a reader in front (dd bs=32k if=FILE | awk …)")
    assert found.stages == (0,)


@pytest.mark.parametrize(
    ("text", "unpacked"),
    [
        ("gzip -1 < f > f.gz", "gzip -dc"),
        ("gzip -1 < f | md5sum", None),
        ("gzip -1n < f | md5sum", ""),
        ("gzip -dc < f | md5sum", ""),
    ],
)
def test_a_gzip_that_gets_a_pipe_is_compared_without_the_time_that_it_stored(
    text: str, unpacked: str | None, by_turns: Run
) -> None:
    (awk,) = by_turns.stages
    stages = [replace(awk, command="gzip"), make_stage(2, "md5sum", (1, 0), cpu=0.1)]
    run = run_of(stages[: 1 + text.count("|")], overlapping=0)
    (found,) = RULES_BY_ID["disk-not-overlapped"](Case.of(run, HOST, Script(text)))
    assert found.advice.startswith("Try: a reader in front (dd bs=32k if=FILE | gzip …)")
    assert (found.rewrite and found.rewrite.unpacked) == unpacked


def test_one_slow_answer_of_a_disk_is_no_taking_of_turns() -> None:
    reader = pages(hit=20_000, miss=1, misses=(3.0, 0.0))
    once = replace(reader, stalls=reader.stalls | {"miss": Stalls(alone=1)})
    run = run_of([make_stage(1, "awk", (80, 0.001), cpu=6.0, disk=3.0, readahead=once)])
    assert "disk-not-overlapped" not in ids_of(run)


def test_a_stage_whose_children_read_needs_no_reader() -> None:
    reader = pages(miss=20_000, misses=(6.0, 0.0))
    given: dict[str, Any] = {"exited_children": 2, "children_cpu_seconds": 3.9}
    xargs = make_stage(1, "xargs", (80, 80), cpu=4.0, disk=6.0, readahead=reader, **given)
    assert "disk-not-overlapped" not in ids_of(run_of([xargs], overlapping=0))
    advice = find(run_of([xargs], overlapping=0), USELESS).advice
    assert "xargs -n 100 -P 4 cat > /dev/null" in advice


def test_the_gain_of_a_reader_in_front_is_at_most_all_waiting_for_disk(by_turns: Run) -> None:
    assert find(by_turns, "disk-not-overlapped").gain_seconds == pytest.approx(6.0)
    (awk,) = by_turns.stages
    short = replace(awk, readahead=pages(miss=20_000, misses=(1.0, 0.0)))
    waits = run_of([short], 5.0).disk_alone_seconds
    assert find(run_of([short], 5.0), "disk-not-overlapped").gain_seconds == pytest.approx(waits)


def test_what_another_stage_computes_meanwhile_is_overlapped_already() -> None:
    reader = pages(miss=20_000, misses=(0.2, 5.8))
    stages = [
        make_stage(1, "awk", (80, 80), cpu=3.5, disk=6.0, readahead=reader),
        make_stage(2, "gzip", (80, 8), cpu=8.0, pipe_empty=2.0),
    ]
    assert "disk-not-overlapped" not in ids_of(run_of(stages))


def test_a_leading_copier_gets_no_advice_to_put_another_one_in_front() -> None:
    reader = pages(miss=20_000, misses=(4.0, 0.0))
    stages = [
        make_stage(1, "cat", (80, 80), cpu=2.0, disk=4.0, pipe_full=1.0, readahead=reader),
        make_stage(2, "awk", (80, 1), cpu=4.0, pipe_empty=5.0),
    ]
    assert ids_of(run_of(stages))[0] == "readahead-useless"


def test_no_reader_in_front_can_bring_what_is_read_beside_a_pipe() -> None:
    """A Python that starts for the first time, with its modules on disk."""
    modules = pages(warm=200, miss=400, misses=(0.3, 0.0))
    stages = [
        make_stage(1, "curl", (0.1, 0.1), cpu=0.1),
        make_stage(2, "python3", (2, 0), cpu=0.5, disk=0.3, pipe_empty=0.2, readahead=modules),
    ]
    assert "disk-not-overlapped" not in ids_of(run_of(stages, 1.0, overlapping=0))
    assert "disk-not-overlapped" in ids_of(run_of(stages[1:], 1.0, overlapping=0))


def test_a_sort_that_reads_all_before_it_computes_cannot_overlap_the_two() -> None:
    reader = pages(miss=20_000, misses=(4.0, 0.0))
    run = run_of([make_stage(1, "sort", (80, 80), cpu=6.0, disk=4.0, readahead=reader)])
    assert ids_of(run) == ["sort-locale", "cold-run"]


def test_a_stage_without_the_readahead_tier_is_not_judged_by_its_disk_waits() -> None:
    awk = make_stage(1, "awk", (80, 0), cpu=4.0, disk=6.0)
    assert ids_of(run_of([awk], disk_alone_seconds=6.0)) == []


def test_loading_a_cold_program_is_no_reading_of_data() -> None:
    small = pages(miss=100, misses=(0.3, 0.0), faults={"miss": 80, "late": 9, "other": 20})
    assert ids_of(run_of([make_stage(1, "awk", cpu=0.6, disk=0.3, readahead=small)], 1.0)) == []


def test_mapped_files_count_by_their_faults() -> None:
    mapped = pages(misses=(0.5, 0.0), faults={"miss": 5000, "late": 0, "other": 0})
    run = run_of([make_stage(1, "rg", cpu=0.5, disk=0.5, readahead=mapped)], 1.0)
    assert ids_of(run) == ["disk-not-overlapped"]


def test_direct_reads_are_not_read_ahead() -> None:
    direct = pages(others=(0.5, 0.0), direct_bytes=80 * MB)
    run = run_of([make_stage(1, "db", (80, 0), cpu=0.5, disk=0.5, readahead=direct)], 1.0)
    assert "disk-not-overlapped" in ids_of(run)


@pytest.fixture
def bound_by_the_disk() -> Run:
    """awk on 20 MB/s: read-ahead asks in time, and the disk cannot deliver."""
    reader = pages(hit=17_600, late=100, miss=1, lates=(3.2, 0.0))
    return run_of([make_stage(1, "awk", (72, 0), cpu=0.3, disk=3.2, readahead=reader)], 3.7)


def test_a_disk_that_cannot_keep_up_is_not_blamed_on_the_job(bound_by_the_disk: Run) -> None:
    assert ids_of(bound_by_the_disk) == ["readahead-late", "cold-run"]
    found = find(bound_by_the_disk, "readahead-late")
    assert "the disk gave it 19.6 MB a second" in found.sentence
    assert "in front" not in found.advice
    assert found.gain_seconds is None and found.gain_reason == ""


def test_jumping_reads_make_read_ahead_useless() -> None:
    reader = pages(miss=20_000, misses=(9.0, 0.0))
    waits = {"cpu": 0.3, "system_seconds": 0.2, "runqueue": 0.1, "disk": 9.0}
    found = find(run_of([make_stage(1, "lookup", readahead=reader, **waits)]), USELESS)
    assert "0 % of the pages from there had been read ahead (coverage)" in found.sentence
    assert found.gain_seconds == pytest.approx(9.0 + 0.2 + 0.1)


def test_blocks_larger_than_the_window_are_distinguished_from_jumps() -> None:
    reader = pages(hit=2_000, miss=18_000, misses=(5.0, 0.0))
    dd = make_stage(1, "dd", (80, 80), (80, 80), cpu=0.1, disk=5.0, readahead=reader)
    wc = make_stage(2, "wc", (80, 0), cpu=0.1, pipe_empty=5.0)
    run = run_of([dd, wc])
    assert "smaller blocks" in find(run, USELESS).advice
    for text, new, cold in (
        ("dd if=f bs=8M | wc -l", "dd if=f bs=64k | wc -l", ("f",)),
        ("dd bs=8M count=9 if=f | wc -l", None, None),
    ):
        (found,) = (one for one in findings(run, HOST, Script(text)) if one.id == USELESS)
        way = found.rewrite
        assert (way.new if way else None, way.cold if way else None) == (new, cold)


def test_reading_ahead_what_nobody_uses_is_wasted() -> None:
    reader = pages(hit=1_000, wasted=19_000, miss=1_000, misses=(2.0, 0.0), lates=(2.0, 0.0))
    waits = {"cpu": 0.1, "system_seconds": 0.1, "runqueue": 0.2, "disk": 4.0}
    run = run_of([make_stage(1, "sampler", (8, 0), readahead=reader, **waits)])
    found = find(run, "readahead-wasted")
    assert "95 % of what was read ahead for it (77.8 MB)" in found.sentence
    assert found.gain_seconds == pytest.approx((4.0 + 0.1 + 0.2) * 19 / 21)


def test_a_cold_run_is_to_be_compared_with_cold_ones(bound_by_the_disk: Run) -> None:
    found = find(bound_by_the_disk, "cold-run")
    assert (found.severity, found.advice) == ("note", "")
    assert "Compare this run only with other cold runs." in found.sentence


def test_a_half_warm_run_reports_its_share() -> None:
    half = pages(warm=5_000, hit=5_000)
    found = find(run_of([make_stage(1, "wc", (40, 0), cpu=1.0, readahead=half)], 1.0), "cold-run")
    assert "mixed" in found.sentence and "50 % of the pages" in found.sentence


def test_a_warm_run_has_no_such_note() -> None:
    assert ids_of(run_of([make_stage(1, "wc", (80, 0), cpu=1.0, readahead=WARM)], 1.0)) == []


# -- reading and writing


def copied(readahead: Readahead | None = WARM, **given: Any) -> Run:
    """cat, which takes 2 of 10 s of CPU, and awk behind it."""
    values: dict[str, Any] = {"cpu": 2.0, "user_seconds": 0.0, "readahead": readahead}
    cat = make_stage(1, "cat", (80, 80), pipe_full=7.0, **values | given)
    return run_of([cat, make_stage(2, "awk", (80, 0), cpu=8.5, pipe_empty=1.0)])


def test_a_reader_in_front_of_a_warm_file_only_costs() -> None:
    run = copied()
    cat, awk = run.stages
    run = replace(run, stages=(cat, replace(awk, system_seconds=0.5)))
    found = find(run, "reader-costs")
    assert found.severity == "advice"
    assert "80.0 MB, which was in memory" in found.sentence
    assert "awk … < FILE, without cat" in found.advice
    assert found.gain_seconds == pytest.approx(cat.cpu_seconds + 0.5)


def cold_attempt(text: str) -> Rewrite | None:
    """What is tried with the files of a copier on disk."""
    first, second = copied(pages(hit=19_900, miss=100)).stages
    first = replace(first, command=text.split()[0])
    run = run_of([first, replace(second, command="wc")])
    (found,) = RULES_BY_ID["reader-costs"](Case.of(run, HOST, Script(text)))
    return found.rewrite


@pytest.mark.parametrize("text", ["cat f | wc -l", "cat < f | wc -l", "dd if=f bs=1M | wc -l"])
def test_a_reader_is_tried_with_the_file_on_disk(text: str) -> None:
    rewrite = cold_attempt(text)
    assert rewrite is not None and (rewrite.new, rewrite.cold) == ("wc -l < f", ("f",))


def compressed(text: str) -> Run:
    """copied(), with the commands of `text` in place of its own."""
    commands = [one.split()[0] for one in text.split(" | ")]
    (cat, awk), rest = copied().stages, commands[2:]
    awk = replace(awk, command=commands[1])
    return run_of([cat, awk, *(make_stage(n, name) for n, name in enumerate(rest, 3))])


@pytest.mark.parametrize(
    ("text", "new", "unpacked"),
    [
        ("cat f | gzip -1", "gzip -1 < f", "gzip -dc"),
        ("cat f | pigz", "pigz < f", "pigz -dc"),
        ("cat f | gzip -1n", "gzip -1n < f", ""),
        ("cat f | gzip --no-name", "gzip --no-name < f", ""),
        ("cat f | gzip -d", "gzip -d < f", ""),
        ("cat f | xz", "xz < f", ""),
        ("cat f | gzip | md5sum", "", ""),
        ("cat f | gzip -n | md5sum", "gzip -n < f | md5sum", ""),
        ("cat f | gzip -d | md5sum", "gzip -d < f | md5sum", ""),
    ],
)
def test_gzip_stores_the_time_of_a_file_and_none_of_a_pipe(
    text: str, new: str, unpacked: str
) -> None:
    (found,) = RULES_BY_ID["reader-costs"](Case.of(compressed(text), HOST, Script(text)))
    assert ("gzip with the file itself" in found.advice) == ("gzip" in found.command)
    rewrite = found.rewrite
    assert (rewrite.new, rewrite.unpacked) == (new, unpacked) if rewrite else not new


@pytest.mark.parametrize("disk", [WARM, pages(hit=19_900, miss=100)], ids=["memory", "disk"])
@pytest.mark.parametrize(
    ("text", "several"),
    [
        ("cat dump.part.* | sort", True),
        ("cat a b | grep x", True),
        ("cat a | sort", False),
        ("cat < a | sort", False),
        ("dd if=a bs=1M | sort", False),
    ],
)
def test_what_cat_does_between_two_files_their_reader_does_not(
    text: str, several: bool, disk: Readahead
) -> None:
    first, *rest = compressed(text).stages
    run = run_of([replace(first, command=text.split()[0], readahead=disk), *rest])
    (found,) = RULES_BY_ID["reader-costs"](Case.of(run, HOST, Script(text)))
    opened = several and found.command != ""  # which files to have on disk only the shell knows
    assert found.command or "*" in text
    assert found.advice.endswith("is then no longer joined to the next one.") == opened


def test_one_run_of_a_cold_file_does_not_show_whether_its_reader_paid() -> None:
    found = find(copied(pages(hit=19_900, miss=100)), "reader-costs")
    assert found.severity == "note"
    assert "may do as well without it, or wait more" in found.sentence
    assert found.gain_seconds is None


@pytest.mark.parametrize(
    ("command", "calls", "severity"),
    [
        ("python3", 800_000, "note"),
        ("python3", 1_000, "advice"),
        ("sed", 800_000, "advice"),
        ("bash", 80_000_000, "advice"),
    ],
)
def test_an_unknown_reader_of_small_pieces_may_do_better_with_the_pipe(
    command: str, calls: int, severity: str
) -> None:
    run = copied()
    reader = replace(run.stages[1], command=command, read_calls=calls)
    found = find(replace(run, stages=(run.stages[0], reader)), "reader-costs")
    assert found.severity == severity
    assert (found.gain_seconds is None) == (severity == "note")


@pytest.mark.parametrize(
    "text", ["cat f | tee copy | wc -l", "cat f | psql db", "cat f | sponge g"]
)
def test_a_reader_that_may_overwrite_the_file_is_not_named_with_it(text: str) -> None:
    (found,) = RULES_BY_ID["reader-costs"](Case.of(compressed(text), HOST, Script(text)))
    name = text.split()[3]
    assert found.advice == (
        f"Try: {name} … < FILE, without cat. Keep it for several files, or if {name} asks what it "
        "reads."
    )
    assert found.command == ""


@pytest.mark.parametrize("disk", [WARM, pages(hit=19_900, miss=100)], ids=["memory", "disk"])
@pytest.mark.parametrize("script", [None, Script("cat f | psql")])
def test_a_reader_that_may_change_something_is_not_run_again_and_again(
    disk: Readahead, script: Script | None
) -> None:
    run = copied(disk)
    reader = replace(run.stages[1], command="psql", read_calls=800_000)
    case = Case.of(replace(run, stages=(run.stages[0], reader)), HOST, script)
    (found,) = RULES_BY_ID["reader-costs"](case)
    assert found.severity == "note"
    assert found.advice.startswith("Try: psql … < FILE, or keep cat.")
    assert "compare" not in found.advice + found.command


def test_a_filter_from_disk_is_tried_both_ways() -> None:
    found = find(copied(pages(hit=19_900, miss=100)), "reader-costs")
    assert found.advice == (
        "Try: both ways from a cold cache "
        "(pipelined compare --cold FILE 'cat FILE | awk …' 'awk … < FILE')."
    )


@pytest.mark.parametrize(
    "run",
    [
        copied(pages(miss=20_000, misses=(0.5, 5.0))),
        copied(user_seconds=1.5),
        copied(None),
        copied(cpu=0.2),
        copied(pages(warm=100)),
        copied(written_bytes=40 * MB),
        copied(command="zcat"),
    ],
    ids=[
        "it waited for disk in awk's place",
        "it computes (dd conv=ucase)",
        "the readahead tier is off",
        "it costs next to nothing",
        "it reads no file",
        "it passes on half",
        "it is no copier",
    ],
)
def test_a_reader_that_may_be_of_use_is_left_alone(run: Run) -> None:
    assert "reader-costs" not in ids_of(run)


def in_turn(mean: int = 1 << 20, **given: Any) -> Run:
    """dd and tr, 4 s of CPU each, of which hardly any at once."""
    values = {"cpu": 4.0, "pipe_full": 4.0, "calls": (80, 80 * MB // mean)}
    dd = make_stage(1, "dd", (80, 80), **values | given)
    tr = make_stage(2, "tr", (80, 80), cpu=4.0, pipe_empty=4.5)
    return run_of([dd, tr], levels=(2.0, 7.7, 0.3, 0, 0, 0, 0, 0, 0))


def test_writes_larger_than_the_pipe_make_both_sides_take_turns() -> None:
    found = find(in_turn(), "large-writes")
    assert found.severity == "warning"
    assert "a pipe of 64 KiB: it waited 40 % of the run for tr, and tr 45 % for it" in (
        found.sentence
    )
    assert "bs=32k" in found.advice
    assert found.gain_seconds == pytest.approx(4.0 - 0.3)


def test_the_functions_tier_knows_the_pipe_better() -> None:
    functions = replace(
        make_functions(),
        pipe_writes=make_histogram(SIZE_EDGES, *[1 << 18] * 300),
        pipe_capacity_bytes=1 << 20,
    )
    assert "large-writes" not in ids_of(in_turn(functions=functions))
    small_pipe = replace(functions, pipe_capacity_bytes=1 << 12)
    assert "a pipe of 4 KiB" in find(in_turn(functions=small_pipe), "large-writes").sentence


@pytest.mark.parametrize(
    ("run", "host"),
    [
        (in_turn(mean=1 << 15), HOST),
        (in_turn(), Host(1, None)),
        (in_turn(runqueue=4.0), HOST),
        (in_turn(disk=4.4), HOST),
        (in_turn(pipe_full=0.5), HOST),
        (replace(in_turn(), levels=(0, 6, 4, 0, 0, 0, 0, 0, 0)), HOST),
    ],
    ids=["small blocks", "one CPU", "CPU taken", "slow disk", "writer at ease", "overlapping"],
)
def test_turns_for_another_reason_are_no_large_writes(run: Run, host: Host) -> None:
    assert "large-writes" not in ids_of(run, host)


def test_a_shell_that_reads_byte_by_byte_should_be_awk() -> None:
    bash = make_stage(2, "bash", (4, 1), (4_000_000, 200_000), cpu=9.0, system_seconds=6.0)
    run = run_of([make_stage(1, "cat", (4, 4), cpu=0.1, pipe_full=9.0), bash])
    found = find(run, "small-calls")
    assert found.sentence.startswith(
        "bash made 4,000,000 reads of 1 B and 200,000 writes of 5 B on average"
    )
    assert found.advice.startswith("Try: awk in place of the shell's read")
    assert found.gain_seconds == pytest.approx(9.0)  # all that it computes


def flushing() -> list[Stage]:
    """awk that flushes each line, and wc that reads what it gets."""
    awk = make_stage(1, "awk", (80, 80), (0, 1_600_000), cpu=9.0, system_seconds=4.0)
    wc = make_stage(2, "wc", (80, 0), (1_200_000, 1), cpu=3.0, system_seconds=2.0, pipe_empty=6.0)
    return [awk, wc]


def test_the_stage_that_flushes_each_line_is_reported_and_not_its_reader() -> None:
    found = find(run_of(flushing()), "small-calls")
    assert found.stages == (0,)
    assert "1,600,000 writes of 50 B" in found.sentence
    assert "wc took them one by one" in found.sentence
    assert found.advice.startswith("Try: awk without fflush()")
    assert found.gain_seconds == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("awk", "advice"),
    [
        ("""awk '{ print $1 | "sort" }' f""", "Try: awk '…' | CMD"),
        ("""awk '{ print $1; fflush() }' f""", "Try: awk without fflush()"),
        ("""awk '{ "date" | getline d; print d; fflush() }'""", "Try: awk without fflush()"),
        ("awk -f p.awk f", "Try: awk without fflush()"),
    ],
)
def test_what_awk_prints_to_is_put_behind_it(awk: str, advice: str) -> None:
    run = run_of(flushing())
    run = replace(run, stages=(replace(run.stages[0], arguments=awk), *run.stages[1:]))
    assert find(run, "small-calls").advice.startswith(advice)


def test_a_sed_that_reads_a_pipe_byte_by_byte_is_unbuffered() -> None:
    ends = (PipeEnd("0:7", "read", 9, 1.0),)
    given: dict[str, Any] = {"cpu": 8.0, "system_seconds": 6.0, "ends": ends}
    sed = make_stage(
        2, "sed", (80, 80), (80_000_000, 1_600_000), arguments="sed -u s/a/b/", **given
    )
    run = run_of([make_stage(1, "cat", (80, 80), cpu=0.1), sed, make_stage(3, "wc", cpu=0.1)])
    assert find(run, "small-calls").advice.startswith("Try: sed without -u")
    text = Script("cat f | sed -u s/a/b/ | wc")
    (rewrite,) = (one.rewrite for one in findings(run, HOST, text) if one.id == "small-calls")
    assert rewrite is not None and rewrite.new == "cat f | sed s/a/b/ | wc"


@pytest.mark.parametrize("name", ["bash", "w.sh", "w"])
def test_a_loop_of_a_shell_has_the_same_advice_however_it_was_started(name: str) -> None:
    ends = (PipeEnd("0:7", "read", 9, 1.0),)
    loop = make_stage(2, name, (4, 4), (4_000_000, 9), cpu=9.0, system_seconds=6.0, ends=ends)
    run = run_of([make_stage(1, "seq", (0, 4), cpu=0.1), loop, make_stage(3, "wc", cpu=0.1)])
    assert "awk in place of the shell's read" in find(run, "small-calls").advice


@pytest.mark.parametrize("name", ["wc", "python3", "hexer"])
def test_other_programs_that_read_little_are_no_shells(name: str) -> None:
    size = 100 if name == "hexer" else 1
    ends = (PipeEnd("0:7", "read", 9, 1.0),)
    stage = make_stage(
        2, name, (4 * size, 4), (4_000_000, 9), cpu=9.0, system_seconds=6.0, ends=ends
    )
    run = run_of([make_stage(1, "seq", (0, 4), cpu=0.1), stage, make_stage(3, "wc", cpu=0.1)])
    assert "a larger buffer for what it reads" in find(run, "small-calls").advice


def test_a_stage_that_only_passes_pieces_on_is_not_reported_either() -> None:
    awk, wc = flushing()
    cat = replace(wc, command="cat", written_bytes=80 * MB, write_calls=1_200_000)
    assert find(run_of([awk, cat, replace(wc, position=3)]), "small-calls").stages == (0,)


def test_small_calls_cannot_cost_what_they_are_too_few_for() -> None:
    fork_heavy = make_stage(2, "bash", (1, 0), (2_000, 2_000), cpu=9.0, system_seconds=6.0)
    run = run_of([make_stage(1, "seq", (0, 1), cpu=0.1), fork_heavy])
    assert "small-calls" not in ids_of(run)


def small_files(command: str = "cat", *, files: int | None = 30_000, size: int = 600) -> Run:
    """A reader of as many files, or of a file, in reads of the same size; wc behind it."""
    data, calls = 30_000 * size / MB, (60_000, 30_000)
    readahead = pages(warm=30_000, files=files)
    reader = make_stage(
        1, command, (data, data), calls, cpu=0.9, system_seconds=0.8, readahead=readahead
    )
    wc = make_stage(2, "wc", (data, 0), (30_000, 1), cpu=0.1, pipe_empty=0.8)
    return run_of([reader, wc], 1.0)


@pytest.mark.parametrize("command", ["cat", "grep", "x"])
def test_small_files_are_no_small_reads(command: str) -> None:
    assert "small-calls" not in ids_of(small_files(command))


@pytest.mark.parametrize("command", ["x", "dd"])
def test_small_reads_of_a_few_files_are_reported(command: str) -> None:
    assert "60,000 reads of 300 B" in find(small_files(command, files=3), "small-calls").sentence


@pytest.mark.parametrize(
    ("command", "reported"),
    [("cat", False), ("grep", False), ("xargs", False), ("tar", False), ("x", True), ("dd", True)],
)
def test_where_files_are_not_counted_a_reader_of_whole_files_is_not_accused(
    command: str, reported: bool
) -> None:
    run = small_files(command, files=None)
    quiet = replace(run.stages[0], write_calls=1)  # grep prints what it finds
    assert ("small-calls" in ids_of(replace(run, stages=(quiet, run.stages[1])))) == reported
    without = replace(quiet, readahead=None)
    assert ("small-calls" in ids_of(replace(run, stages=(without, run.stages[1])))) == reported


@pytest.mark.parametrize("command", ["cat", "grep", "tar"])
def test_files_of_tmpfs_are_not_counted_and_are_no_small_reads(command: str) -> None:
    quiet = replace(small_files(command, files=1).stages[0], write_calls=1)
    assert "small-calls" not in ids_of(run_of([quiet, small_files().stages[1]], 1.0))


def test_a_program_that_flushes_is_accused_where_files_are_not_counted() -> None:
    found = find(small_files("awk", files=None), "small-calls")
    assert "reads" not in found.sentence and "30,000 writes of 600 B" in found.sentence


def starting_cat(*, cats: int = 6, cpu: float = 0.8, **given: Any) -> Run:
    """xargs, with as many cat that take so much CPU, and grep behind it."""
    children = (Child("cat", cats, cpu, 0.2),)
    values: dict[str, Any] = {"files": 30_000, "warm": 45_000, **given}
    xargs = make_stage(
        1,
        "xargs",
        (120, 120),
        (60_000, 30_000),
        cpu=0.85,
        system_seconds=0.75,
        children=children,
        forks=cats,
        readahead=pages(**values),
    )
    grep = make_stage(2, "grep", (120, 1), cpu=0.2, system_seconds=0.1, pipe_empty=0.7)
    return run_of([xargs, grep], 1.0, overlapping=0.1)


def test_cat_takes_longer_to_open_a_file_than_what_reads_behind_it() -> None:
    found = find(starting_cat(), "small-files")
    assert found.severity == "advice"
    assert "30,000 files, which were in memory, of 6.1 kB on average" in found.sentence
    assert "27 µs for each" in found.sentence
    assert "tail -q -n +1 in place of cat" in found.advice
    assert found.likely_seconds == pytest.approx(0.4, abs=0.1)
    assert found.gain_seconds == pytest.approx(0.8)


def test_the_reader_behind_cat_can_open_the_files() -> None:
    text = "find . -print0 | xargs -0 cat | grep x | sort"
    xargs, grep = starting_cat().stages
    stages = [
        make_stage(1, "find", (0, 1), cpu=0.01),
        replace(xargs, position=2),
        replace(grep, position=3),
        make_stage(4, "sort", (1, 1), cpu=0.01, pipe_empty=0.9),
    ]
    run = run_of(stages, 1.0, overlapping=0.1)
    (found,) = [f for f in findings(run, HOST, Script(text)) if f.id == "small-files"]
    assert found.advice.startswith("Try: grep for the files, in place of cat.")
    assert found.rewrite is not None
    assert found.rewrite.new == "find . -print0 | xargs -0 grep -h x | sort"
    assert found.stages == (1, 2)
    # the less grep and cat overlapped, the more is gained
    in_turn = run_of(stages, 1.0, overlapping=0.0)
    (more,) = [f for f in findings(in_turn, HOST, Script(text)) if f.id == "small-files"]
    assert more.likely_seconds and found.likely_seconds
    assert more.likely_seconds > found.likely_seconds


@pytest.mark.parametrize(
    "run",
    [
        starting_cat(files=900),
        starting_cat(files=None),
        starting_cat(files=5_000),
        starting_cat(cpu=0.09),
        starting_cat(cats=30_000),
        starting_cat(others=(0.5, 0.0)),
        small_files("md5sum"),
        small_files("cat"),
    ],
    ids=[
        "few",
        "not counted",
        "they are large",
        "another program reads them",
        "a process for each",
        "they come from disk",
        "it is no cat",
        "without the text: reader-costs",
    ],
)
def test_cat_is_not_to_blame_if(run: Run) -> None:
    assert "small-files" not in ids_of(run)


def blocks_of(block: int, command: str = "dd", waits: float = 0.0) -> Run:
    """A copier that waits so long for its reader."""
    calls, cpu = 800 * MB // block, {"cpu": 3.0, "pipe_full": waits}
    copier = make_stage(1, command, (800, 800), (calls, calls), system_seconds=3.0, **cpu)
    wc = make_stage(2, "wc", (800, 0), cpu=3.0 + waits, pipe_empty=max(0.0, 6.0 - waits))
    return run_of([copier, wc], overlapping=0.6)


def test_a_block_over_half_of_the_second_level_cache_leaves_it_before_it_is_written() -> None:
    found = find(blocks_of(4 << 20), "cache-sized")
    assert "blocks of 4.0 MiB" in found.sentence or "blocks of 4 MiB" in found.sentence
    assert found.gain_seconds == pytest.approx(3.0 * 7 / 8, rel=0.01)


@pytest.mark.parametrize(
    ("run", "host"),
    [
        (blocks_of(4 << 17), HOST),
        (blocks_of(4 << 20), Host(4, None)),
        (blocks_of(4 << 20), Host(4, 32 << 20)),
        (blocks_of(4 << 20, "sort"), HOST),
        (replace(blocks_of(4 << 20), stages=blocks_of(4 << 20).stages[:1]), HOST),
        (blocks_of(4 << 20, waits=7.0), HOST),
    ],
    ids=[
        *("half", "cache unknown", "a larger cache", "who does not only copy", "nobody reads it"),
        "its reader is busier",
    ],
)
def test_what_fits_the_cache_is_left_alone(run: Run, host: Host) -> None:
    assert "cache-sized" not in ids_of(run, host)


# -- who works and who waits


def ceiling_at(command: str, last: str = "ssh", **given: Any) -> Run:
    stages = [
        make_stage(1, "tar", (80, 80), cpu=2.0, pipe_full=8.0),
        make_stage(2, command, (80, 8), cpu=9.8, pipe_empty=0.2, **given),
        make_stage(3, last, (8, 8), cpu=0.5, pipe_empty=9.0),
    ]
    return run_of(stages)


def test_one_busy_stage_is_the_ceiling_up_to_the_next_busiest_one() -> None:
    found = find(ceiling_at("gzip"), "ceiling")
    assert found.severity == "advice"
    assert found.advice.startswith("Try: pigz, which writes the same format on all CPUs")
    # another program, which may take less CPU
    assert found.gain_seconds == pytest.approx(7.8)
    # 4 CPUs, of which the others use a quarter: an even share is 2.6 s
    same = find(ceiling_at("zstd"), "ceiling")
    assert same.gain_seconds == pytest.approx(9.8 - 9.8 / 3.75)
    assert find(ceiling_at("zstd"), "ceiling", Host(99, None)).gain_seconds == pytest.approx(7.8)


def test_the_bound_of_a_program_that_is_faster_by_itself_and_parallel_counts_both() -> None:
    found = find(ceiling_at("gzip"), "ceiling", Host(2, None))
    free = 2 - 2.5 / 10
    assert found.gain_seconds == pytest.approx(9.8 - 0.7 * 9.8 / free)


def test_bzip2_is_not_replaced_to_decompress_where_few_cpus_are_free() -> None:
    run = ceiling_at("bzip2", written_bytes=200 * MB)
    assert "lbzip2" in find(run, "ceiling").advice
    few = find(run, "ceiling", Host(2, None))
    assert "lbzip2" not in few.advice and "zstd" in few.advice


def test_a_ceiling_without_parallel_kin_is_to_be_split() -> None:
    assert "sed A | sed B, if B takes as long as A" in find(ceiling_at("sed"), "ceiling").advice


@pytest.mark.parametrize(
    ("scripts", "split"),
    [
        (r"-e 's/\(.*\) \(.*\)/\2 \1/' -e 's/some/any/'", False),
        (r"-e 's/\(.*\) \(.*\)/\2 \1/' -e 's/[0-9]/x/g'", True),
        (r"'s/\(.*\) \(.*\)/\2 \1/'", False),
    ],
    ids=["one is cheap", "both are costly", "there is one"],
)
def test_a_sed_is_two_stages_only_if_both_have_much_to_do(scripts: str, split: bool) -> None:
    script = Script(f"tar c d | sed {scripts} | ssh h cat")
    (found,) = RULES_BY_ID["ceiling"](Case.of(ceiling_at("sed"), HOST, script))
    assert "parallel --pipe" in found.advice
    assert ("sed A | sed B" in found.advice) == split


@pytest.mark.parametrize(
    ("command", "text", "advised"),
    [
        ("grep", "grep -i a", True),
        ("grep", "grep -c a", False),
        ("grep", "grep -n a", False),
        ("sed", "sed s/a/b/", True),
        ("sed", r"sed -e 1d -e 's/\(..\)x/\1/g'", False),
        ("sed", "sed -n '$='", False),
        ("cut", "cut -f 1", True),
        ("cut", "cut -z -f 1", False),
    ],
)
def test_only_what_takes_each_line_by_itself_is_given_parts(
    command: str, text: str, advised: bool
) -> None:
    script = Script(f"tar c d | {text} | ssh h cat")
    (found,) = RULES_BY_ID["ceiling"](Case.of(ceiling_at(command), HOST, script))
    assert bool(found.advice) == advised
    assert ("parallel --pipe" in found.advice) == advised


def test_processes_at_once_are_advised_under_the_conditions_that_they_need() -> None:
    advice = find(ceiling_at("xargs"), "ceiling").advice
    assert "with an -n that leaves some for each" in advice
    assert "if CMD prints nothing, or a line at a time" in advice


def test_a_ceiling_that_other_advice_than_more_cpus_raises_is_bound_by_the_next_stage() -> None:
    assert find(ceiling_at("bash"), "ceiling").gain_seconds == pytest.approx(7.8)


def test_a_shell_that_starts_what_computes_has_no_loop_to_replace() -> None:
    assert find(ceiling_at("bash", children_cpu_seconds=4.0), "ceiling").advice
    assert not find(ceiling_at("bash", children_cpu_seconds=6.0), "ceiling").advice


def test_what_takes_no_more_cpu_than_dividing_is_not_to_be_divided() -> None:
    assert "parallel --pipe -k" in find(ceiling_at("grep"), "ceiling").advice
    found = find(ceiling_at("grep", read_bytes=1_000 * MB), "ceiling")
    assert (found.severity, found.advice) == ("note", "")


def test_without_a_free_cpu_there_is_no_higher_ceiling() -> None:
    assert ids_of(ceiling_at("gzip"), Host(1, None)) == []


def test_what_runs_in_parallel_already_is_no_ceiling() -> None:
    stages = [
        make_stage(1, "tar", (80, 80), cpu=2.0, pipe_full=8.0),
        make_stage(2, "xz", (80, 8), cpu=30.0, pipe_empty=0.2),
    ]
    assert ids_of(run_of(stages)) == []


def filtered_late(**given: Any) -> Run:
    """sed works on what grep then throws away."""
    values: dict[str, Any] = {"cpu": 0.3, "pipe_empty": 9.6}
    sed = make_stage(1, "sed", (80, 80), cpu=9.7)
    return run_of([sed, make_stage(2, "grep", (80, 2), **values | given)])


def test_an_idle_filter_behind_a_busy_stage_should_stand_in_front() -> None:
    assert ids_of(filtered_late()) == ["idle-stage"]
    found = find(filtered_late(), "idle-stage")
    assert found.advice.startswith("Try: put grep before sed")
    assert found.gain_seconds == pytest.approx(9.7 * 78 / 80)
    crowded = filtered_late(pipe_empty=4.7, runqueue=5.0)
    assert "idle-stage" in ids_of(crowded)


@pytest.mark.parametrize(
    "given",
    [{"command": "wc"}, {"written_bytes": 70 * MB}, {"written_bytes": 9}, {"pipe_empty": 5.0}],
    ids=["a sum", "it passes on most", "a count", "not idle"],
)
def test_an_idle_stage_that_cannot_move_is_harmless(given: dict[str, Any]) -> None:
    assert "idle-stage" not in ids_of(filtered_late(**given))


def test_no_filter_can_stand_before_the_decoder_of_its_input() -> None:
    zcat = make_stage(1, "zcat", (8, 80), cpu=9.7)
    grep = make_stage(2, "grep", (80, 2), cpu=0.3, pipe_empty=9.6)
    assert "idle-stage" not in ids_of(run_of([zcat, grep]))


def barrier(behind: str = "awk", written: float = 7.2) -> Run:
    """The design's example: sort in front of what shrinks its data."""
    stages = [
        make_stage(1, "zcat", (4, 80), cpu=1.0, pipe_full=6.0, end=START + 7),
        make_stage(2, "sort", (80, 80), cpu=7.1, pipe_empty=1.0),
        make_stage(3, behind, (80, written), cpu=0.5, pipe_empty=9.0),
        make_stage(4, "uniq", (written, 0.2), cpu=0.1, pipe_empty=9.8),
    ]
    return run_of(stages, overlapping=0.1)


def test_what_shrinks_the_data_belongs_before_the_barrier() -> None:
    found = find(barrier(), "barrier")
    assert found.sentence == (
        "sort had to read all of its input before it wrote (a barrier); awk waited 9.0 s."
    )
    assert found.advice == (
        "Try: put awk before sort, if it takes each line by itself and passes on lines as they are "
        "(uniq behind it needs the order of sort) and sort has neither -u nor -m. It passes on 9 % "
        "of the bytes. What awk does with a line is not known here."
    )
    assert found.gain_seconds == pytest.approx(7.1 * 0.91)


def barrier_advice(text: str, run: Run | None = None, locale: str | None = "C") -> str:
    """What is advised at a barrier whose pipeline is `text`."""
    found = findings(run or barrier(), HOST, Script(text, locale=locale))
    (advice,) = (one.advice for one in found if one.id == "barrier")
    return advice


@pytest.mark.parametrize(
    "awk",
    ["$1!=u||$2-t>1800{ s++; u=$1; t=$2 } { print s }", "!n[$0]++", "NR % 10 == 0", "{ print $3 }"],
    ids=["sessions", "first lines", "each tenth line", "another field before uniq"],
)
def test_what_would_have_another_result_before_the_barrier_is_not_put_there(awk: str) -> None:
    assert barrier_advice(f"zcat f | sort -k1,1 -k2,2n | awk '{awk}' | uniq -c") == ""


@pytest.mark.parametrize("options", ["-u", "-k1,1 -u", "--uniq", "-m", "--merge", "-c", "--ch"])
def test_nothing_is_put_before_a_sort_that_drops_lines(options: str) -> None:
    assert barrier_advice(f"zcat f | sort {options} | awk '/x/' | uniq -c") == ""


@pytest.mark.parametrize(
    ("waits", "condition"),
    [
        ("sort", "sort has neither -u nor -m"),
        ("shuf", "shuf has no -n"),
        ("tac", "tac has no -s"),
        ("sponge", ""),
    ],
)
def test_that_a_barrier_passes_on_all_lines_is_a_condition_without_its_text(
    waits: str, condition: str
) -> None:
    first, second, *rest = barrier().stages

    def advice(written: float, **ended: Any) -> str:
        size = int(written * MB)
        flow = replace(second.flow, pipe_out=size)
        stage = replace(second, command=waits, written_bytes=size, flow=flow, **ended)
        return find(replace(barrier(), stages=(first, stage, *rest)), "barrier").advice

    assert advice(80).startswith("Try: put ")
    assert (f"and {condition}. It" in advice(80)) == bool(condition)
    # fewer bytes: it has dropped some, unless it cannot
    assert bool(advice(79)) == (not condition)
    assert advice(79.3)
    # not all of them yet, or its reader had enough
    assert advice(40, end=None) and advice(40, exit=Exit(signal="SIGPIPE"))


@pytest.mark.parametrize("options", ["-u -k1,1", "-s -k1,1", "-sk1,1", "-c", "-m"])
def test_a_sort_behind_may_need_the_order_of_the_one_in_front(options: str) -> None:
    run = replace(
        barrier(), stages=(*barrier().stages[:3], replace(barrier().stages[3], command="sort"))
    )
    text = "zcat f | sort -k1,1 -k3,3nr | awk '{ print $1, $3 }' | sort"
    assert barrier_advice(f"{text} {options}", run) == ""
    for any_order in ("", " -rnk2", " -t: -k 2 -k1r", " -u"):
        assert barrier_advice(f"{text}{any_order}", run).startswith("Try: put awk before sort.")


@pytest.mark.parametrize(
    ("last", "condition"),
    [
        ("uniq", "passes on lines as they are (uniq behind it needs the order of sort)"),
        ("wc", "sort has neither"),
        ("grep", "the order of the result does not matter"),
    ],
)
def test_branches_behind_a_mover_are_followed_once(last: str, condition: str) -> None:
    run = diamonds(barrier("grep").stages[:3], "tr", last, 80)
    (found,) = RULES_BY_ID["barrier"](Case.of(run, HOST))
    assert re.search(f"^Try: put grep before sort, if .*{re.escape(condition)}", found.advice)


def test_what_is_put_before_a_barrier_may_be_in_a_circle() -> None:
    stages = [replace(stage, command="tr") for stage in barrier("grep").stages[3:]]
    run = replace(
        barrier("grep"),
        stages=(*barrier("grep").stages[:3], *stages),
        edges=((0, 1), (1, 2), (2, 3), (3, 2)),
    )
    assert "put grep before sort" in find(run, "barrier").advice


@pytest.mark.parametrize("options", ["-s ,", "-bs ,", "-r -s ,", "--sep=,", "--before"])
def test_nothing_is_put_before_a_tac_that_turns_other_pieces_than_lines(options: str) -> None:
    tac = replace(barrier().stages[1], command="tac")
    run = replace(barrier(), stages=(barrier().stages[0], tac, *barrier().stages[2:]))
    assert barrier_advice(f"zcat f | tac {options} | awk '/x/' | uniq -c", run) == ""
    assert barrier_advice("zcat f | tac | awk '/x/' | uniq -c", run)


def test_what_makes_one_line_of_several_is_not_put_before_a_sort() -> None:
    last = replace(barrier(), stages=barrier().stages[:3], edges=barrier().edges[:2])
    assert barrier_advice("zcat f | sort | awk '{ printf \"%s,\", $1 }'", last) == ""
    assert barrier_advice("zcat f | sort | awk '{ printf \"%s\\n\", $1 }'", last)


def test_what_the_text_decides_is_no_condition() -> None:
    alone = "Try: put awk before sort. It passes on 9 % of the bytes."
    assert barrier_advice("zcat f | sort -k2 | awk '$3 > 5' | uniq -c") == alone
    mixed = replace(
        barrier(), stages=(*barrier().stages[:3], replace(barrier().stages[3], command="shuf"))
    )
    assert barrier_advice("zcat f | sort | awk '{ print $3 }' | shuf", mixed) == alone
    last = replace(barrier(), stages=barrier().stages[:3], edges=barrier().edges[:2])
    ordered = "if the order of the result does not matter. It passes on 9 % of the bytes."
    assert barrier_advice("zcat f | sort | awk '{ print $3 }'", last) == (
        f"Try: put awk before sort, {ordered}"
    )


@pytest.mark.parametrize(
    ("text", "locale", "advised"),
    [
        ("sort | awk '{ print $1 }'", "C", ", if no line begins with a blank."),
        ("sort | awk '{ print $1 }'", "POSIX", ", if no line begins with a blank."),
        ("sort | cut -d ' ' -f 1", "C.UTF-8", ", if no line has a tab."),
        ("sort | cut -f1", "C", "."),
        ("sort | cut -c-5", "C", "."),
        ("LC_ALL=C sort | cut -f1", "en_US.UTF-8", "."),
        # WEB-01 and web-01 come by turns, by what stands behind them
        ("sort | awk '{ print $1 }'", "en_US.UTF-8", None),
        ("sort | awk '{ print $1 }'", None, None),
        ("sort | cut -c-5", "en_US.UTF-8", None),
        ("LC_ALL=en_US.UTF-8 sort | cut -f1", "C", None),
        # LC_ALL may be set
        ("LC_COLLATE=C sort | cut -f1", "en_US.UTF-8", None),
        # db:1 comes behind db-2:1
        ("sort | cut -d: -f1", "C", None),
        ("sort | awk -F: '{ print $1 }'", "C", None),
        ("sort | awk '{ print $1 }' FS=:", "C", None),
        ("sort -k2,2nr | awk '{ print $1 }'", "C", None),
        # selecting lines changes nothing of their order
        ("sort -k2,2nr | awk '$3 > 5'", "en_US.UTF-8", "."),
    ],
)
def test_the_begin_of_lines_is_in_order_only_if_sort_compares_bytes_and_no_separator(
    text: str, locale: str | None, advised: str | None
) -> None:
    mover = text.split(" | ")[1].split()[0]
    advice = barrier_advice(f"zcat f | {text} | uniq -c", barrier(mover), locale)
    put = f"Try: put {mover} before sort"
    assert advice == ("" if advised is None else f"{put}{advised} It passes on 9 % of the bytes.")


@pytest.mark.parametrize(
    ("waits", "mover", "advised"),
    [
        ("tac", "grep -o 'x[0-9]'", None),
        ("tac", "awk '{ print $1; print $2 }'", None),
        ("tac", r"sed 's/,/\n/g'", None),
        ("tac", "sed s/a/b/", "."),
        ("tac", "cut -d: -f 3", "."),
        ("tac", "grep -v x", "."),
        ("shuf", "cut -d: -f 3", "."),
        ("sponge", "grep -o 'x[0-9]'", "."),
    ],
)
def test_what_makes_several_lines_of_one_is_not_put_before_a_tac(
    waits: str, mover: str, advised: str | None
) -> None:
    run = barrier(mover.split()[0])
    run = replace(
        run, stages=(run.stages[0], replace(run.stages[1], command=waits), *run.stages[2:])
    )
    advice = barrier_advice(f"zcat f | {waits} | {mover} | uniq -c", run)
    put = f"Try: put {mover.split()[0]} before {waits}"
    assert advice == ("" if advised is None else f"{put}{advised} It passes on 9 % of the bytes.")


@pytest.mark.parametrize(
    ("waits", "last", "condition"),
    [
        # sort -k2,2nr t | awk '{ print $1 }' | tail -20: the key is cut off
        ("sort", "tail", "passes on lines as they are (tail behind it needs the order of sort)"),
        ("tac", "tail", "passes on lines as they are (tail behind it needs the order of tac)"),
        ("sort", "sort", "the later sort has none of -s, -u, -m and -R"),
        ("sort", "wc", ""),
        ("sponge", "tail", ""),
    ],
)
def test_without_the_text_the_order_that_is_needed_behind_is_a_condition(
    waits: str, last: str, condition: str
) -> None:
    first, second, third, fourth = barrier().stages
    stages = (first, replace(second, command=waits), third, replace(fourth, command=last))
    case = Case.of(replace(barrier(), stages=stages), HOST)
    (found,) = RULES_BY_ID["barrier"](case)
    ordered = f" and {condition}" if condition else ""
    assert found.advice.startswith(
        f"Try: put awk before {waits}, if it takes each line by itself{ordered}"
    )
    assert ("as they are" in found.advice) == ("as they are" in condition)


def test_a_program_in_a_file_may_keep_something_from_line_to_line() -> None:
    last = replace(barrier(), stages=barrier().stages[:3], edges=barrier().edges[:2])
    assert "if it takes each line by itself and the order" in barrier_advice(
        "zcat f | sort | awk -f sum.awk", last
    )


def test_what_counts_lines_is_not_put_before_another_filter() -> None:
    for text in ("sed 1d f | grep x", "sed s/a/b/ f | grep -n x"):
        assert "idle-stage" not in [one.id for one in findings(filtered_late(), HOST, Script(text))]
    (known,) = findings(filtered_late(), HOST, Script("sed s/a/b/ f | grep 1"))
    assert known.advice == (
        "Try: put grep before sed, if grep does not need what sed makes of a line."
    )
    assert "if both take each line by itself and grep" in find(filtered_late(), "idle-stage").advice


@pytest.mark.parametrize(
    "run", [barrier("uniq", 20), barrier(written=79)], ids=["uniq", "no shrink"]
)
def test_a_barrier_that_nothing_can_be_put_before_is_a_note(run: Run) -> None:
    found = find(run, "barrier")
    assert (found.severity, found.advice, found.gain_seconds) == ("note", "", None)


def crowded(cores_busy: float = 3.9) -> Run:
    cpu = cores_busy * 10 / 6
    return run_of([make_stage(n, "xz", cpu=cpu, runqueue=10 - cpu) for n in range(1, 7)])


def test_more_busy_stages_than_cpus_wait_in_the_run_queue() -> None:
    found = find(crowded(), "more-stages-than-cores")
    assert "could use 6.0 CPUs on average and there are 4" in found.sentence
    assert found.gain_seconds == pytest.approx(3.5)


def test_a_run_that_lacks_cpus_because_of_others_gets_no_advice_to_use_fewer() -> None:
    assert ids_of(crowded(cores_busy=2.0)) == []


def beside(others: float | None, throttled: float | None = None, **given: Any) -> Run:
    """gzip waits 4.6 of 10 s for a CPU, while other programs use `others` CPUs."""
    values: dict[str, Any] = {"cpu": 5.2, "runqueue": 4.6}
    stages = [
        make_stage(1, "tar", (80, 80), cpu=1.0, pipe_full=8.0, runqueue=0.9),
        make_stage(2, "gzip", (80, 8), **values | given),
        make_stage(3, "wc", (8, 0), cpu=0.1, pipe_empty=9.8),
    ]
    around = Surroundings(others, throttled, (OtherPipeline("zcat|sort", 31.0),))
    return replace(run_of(stages), surroundings=around)


def test_a_wait_for_cpus_that_others_use_is_not_blamed_on_the_pipeline() -> None:
    assert "more-stages-than-cores" not in ids_of(beside(3.2))
    found = find(beside(3.2), "cpu-contention")
    assert found.sentence == (
        "gzip waited 46 % of the run for a free CPU: the pipeline used 0.6 of 4 CPUs, programs "
        "outside it 3.2. The busiest pipelines among them: zcat|sort (31.0 s of CPU)."
    )
    assert found.notice == (
        "The host was busy: gzip waited 46 % of the run for a CPU that others used (busiest: "
        "zcat|sort), which cost at most 4.6 s of 10.0 s."
    )


def test_a_busy_host_is_a_remark_and_outranks_no_advice() -> None:
    others = findings(beside(3.2), HOST)
    found = find(beside(3.2), "cpu-contention")
    assert (found.severity, found.advice, found.gain_seconds) == ("note", "", None)
    assert others[0].id == "ceiling" and others[0].advice


@pytest.mark.parametrize(
    "run",
    [beside(None), beside(0.1), beside(1.5), beside(3.5, runqueue=0.5, cpu=9.3)],
    ids=["not known", "nobody", "CPUs are left: the wake-ups take long", "it hardly waits"],
)
def test_no_others_are_blamed_without_evidence(run: Run) -> None:
    assert "cpu-contention" not in ids_of(run)


def test_the_limit_of_a_cgroup_explains_a_wait_better_than_others_do() -> None:
    assert "cpu-contention" not in ids_of(beside(3.2, 5.0))
    found = find(beside(3.2, 5.0), "cpu-limit")
    assert "held its tasks back for 5.0 s, summed over CPUs; gzip waited 46 %" in found.sentence
    assert found.notice == "A CPU limit held the run back: gzip waited 46 % of it for a CPU."
    assert "cpu-limit" not in ids_of(beside(3.2, 0.2))


def test_a_compressor_whose_cpu_others_took_is_still_the_ceiling() -> None:
    found = find(beside(3.2), "ceiling")
    assert "on CPU 52 % of the run, and waited 46 % for a free one" in found.sentence


def chained(*commands: str, cpu: float = 1.5, passes: float = 80) -> Run:
    """Stages of `cpu` seconds of CPU each, and two heavy ones, on CPUs that they fight for."""
    stages = [
        make_stage(n, command, (80, passes), cpu=cpu, runqueue=5.0, pipe_empty=3.0)
        for n, command in enumerate(commands, 1)
    ]
    heavy = [
        make_stage(n, "python3", (80, 80), cpu=seconds, runqueue=9.0 - seconds)
        for n, seconds in enumerate((8.0, 7.0), len(stages) + 1)
    ]
    return run_of([*stages, *heavy])


@pytest.mark.parametrize("commands", [("sed", "sed", "sed"), ("grep", "mawk")])
def test_stages_that_one_process_can_do_are_joined_if_cpus_are_short(
    commands: tuple[str, ...],
) -> None:
    two = Host(2, None)
    assert "more-stages-than-cores" not in ids_of(chained(*commands), two)
    found = find(chained(*commands), "join-stages", two)
    # no less than one of them takes, and the run than its busiest stage
    assert found.gain_seconds == pytest.approx(min(1.5 * (len(found.stages) - 1), 2.0))
    assert "join-stages" not in ids_of(chained(*commands), Host(8, None))


@pytest.mark.parametrize(
    ("text", "joins"),
    [
        ("sed s/a/b/ | sed s/c/d/", True),
        ("sed -n /a/p | sed s/c/d/", False),
        ("sed 1d | sed 1d", False),
        ("grep a | mawk '{ print $1 }'", True),
        ("grep -vFf list | mawk '{ print $1 }'", False),
        ("grep -o a | mawk '{ print $1 }'", False),
    ],
)
def test_stages_are_joined_only_if_one_does_the_same(text: str, joins: bool) -> None:
    commands = [command.split()[0] for command in text.split(" | ")]
    script = Script(f"{text} | python3 a.py | python3 b.py")
    ids = [found.id for found in findings(chained(*commands), Host(2, None), script)]
    assert ("join-stages" in ids) == joins


def test_stages_that_would_be_the_bottleneck_as_one_are_left_apart() -> None:
    two = Host(2, None)
    assert find(chained("sed", "sed", "sed", cpu=2.0), "join-stages", two).stages == (0, 1)
    assert "join-stages" not in ids_of(chained("sed", "sed", cpu=3.0), two)


def test_a_grep_that_keeps_work_from_awk_is_left_alone() -> None:
    assert "join-stages" not in ids_of(chained("grep", "awk", passes=20), Host(2, None))


def counting(kept: float = 80, *, reader: str = "wc", cpu: float = 9.0) -> Run:
    grep = make_stage(1, "grep", (80, kept), cpu=cpu, system_seconds=1.0)
    wc = make_stage(2, reader, (kept, 0), cpu=2.0, pipe_empty=7.0, written_bytes=9)
    return run_of([grep, wc])


def test_grep_can_count_what_it_finds() -> None:
    found = find(counting(), "grep-count")
    assert found.sentence == "grep wrote 80.0 MB for wc to count: 3.0 s of CPU."
    assert "if wc counts lines (wc -l)" in found.advice
    assert "grep-count" not in ids_of(counting(0.5))
    assert "grep-count" not in ids_of(counting(reader="sed"))


# -- sort


def sorting(
    *,
    written: float = 80,
    flow: Flow = NO_FLOW,
    kept: float = 60,
    after: str = "uniq",
    **given: Any,
) -> Run:
    """A sort of 80 MB that takes 7 of 10 s of CPU, and what reads it."""
    values: dict[str, Any] = {"cpu": 7.0, "user_seconds": 6.5, "system_seconds": 0.5}
    cat = make_stage(1, "zcat", (8, 80), cpu=1.0, pipe_full=5.0, end=START + 6)
    sort = make_stage(2, "sort", (written, written), pipe_empty=2.0, flow=flow, **values | given)
    return run_of([cat, sort, make_stage(3, after, (80, kept), cpu=0.4, pipe_empty=9.0)])


def test_a_sort_that_spills_is_given_more_memory() -> None:
    run = sorting(written=160, system_seconds=1.5, disk=1.0, runqueue=0.2)
    found = find(run, "sort-spills")
    assert found.sentence == (
        "sort wrote 80.0 MB to temporary files, and read them again to merge them; it was in the "
        "kernel for 1.5 s and waited 1.0 s for disk."
    )
    assert "sort -S 512M" in found.advice
    assert found.gain_seconds == pytest.approx(2.7)


def test_the_memory_is_for_what_a_sort_was_given_and_not_for_what_it_read_again() -> None:
    run = sorting(written=160, disk=1.5)
    cat, sort, uniq = run.stages
    cut_short = replace(sort, read_bytes=81 * MB)  # head closed the pipe: nothing was merged
    run = replace(run, stages=(cat, cut_short, replace(uniq, read_bytes=MB)))
    assert "sort -S 512M" in find(run, "sort-spills").advice
    alone = replace(run, stages=(sort, uniq), edges=((0, 1),))
    assert "sort -S 512M" in find(alone, "sort-spills").advice


def test_what_goes_to_files_is_known_better_with_the_flow_of_pipes() -> None:
    spilling = Flow(80 * MB, 80 * MB, 40 * MB, 40 * MB, exact=True)
    found = find(sorting(written=120, flow=spilling, disk=1.5), "sort-spills")
    assert "wrote 40.0 MB" in found.sentence
    last = Flow(80 * MB, None, 40 * MB, 120 * MB, exact=True)  # its result goes to a file too
    found = find(sorting(written=120, flow=last, disk=1.5), "sort-spills")
    assert "wrote 40.0 MB" in found.sentence


@pytest.mark.parametrize(
    "run",
    [
        sorting(disk=1.5),
        sorting(written=160, system_seconds=1.5),
        sorting(written=160, disk=1.5, flow=Flow(80 * MB, 80 * MB, 0, 0, exact=True)),
        sorting(written=160, disk=1.5, command="tac"),
    ],
    ids=["it fits", "its files stay in memory", "other pipes", "no sort"],
)
def test_other_sorts_do_not_spill(run: Run) -> None:
    assert "sort-spills" not in ids_of(run)


@pytest.mark.parametrize(
    ("text", "locale", "severity"),
    [
        ("zcat f | sort | uniq", "en_US.UTF-8", "advice"),
        ("zcat f | LC_ALL=de_DE sort | uniq", "C", "advice"),
        ("zcat f | sort | uniq", "C.UTF-8", "advice"),
        ("zcat f | sort -t : -k 2,3r | uniq", "C.utf8", "advice"),
        ("zcat f | LC_ALL=C.UTF-8 sort -fu | uniq", "C", "advice"),
        ("zcat f | sort -n | uniq", "C.UTF-8", None),
        ("zcat f | sort -t : -k 2,3rn | uniq", "C.UTF-8", None),
        ("zcat f | sort -rk2n | uniq", "C.UTF-8", None),
        ("zcat f | sort --version-sort | uniq", "C.UTF-8", None),
        # 1,000 and 1.5 are other numbers in C, and months have other names
        ("zcat f | sort -rn | uniq", "en_US.UTF-8", None),
        ("zcat f | sort -nu | uniq", "en_US.UTF-8", None),
        ("zcat f | sort -M | uniq", "de_DE.UTF-8", None),
        ("zcat f | sort -t : -k 2h | uniq", "en_US.UTF-8", None),
        ("zcat f | sort -n | uniq", None, None),
        ("zcat f | sort | uniq", "C", None),
        ("zcat f | sort | uniq", "POSIX", None),
        ("zcat f | sort | uniq", "C.ISO-8859-1", None),
        ("zcat f | LC_ALL=C sort | uniq", "en_US.UTF-8", None),
        ("zcat f | env LC_ALL=C sort | uniq", None, None),
        ("zcat f | sort | uniq", None, "note"),
        ("./job.sh", "en_US.UTF-8", "note"),
        ("./job.sh", "C.UTF-8", "note"),
        ("./job.sh", "C", None),
    ],
)
def test_the_locale_of_a_sort_is_looked_up_where_it_is_known(
    text: str, locale: str | None, severity: str | None
) -> None:
    found = findings(sorting(), HOST, Script(text, locale=locale))
    assert [f.severity for f in found if f.id == "sort-locale"] == ([severity] if severity else [])


@pytest.mark.parametrize(("line", "condition"), [(None, True), ("sort -k 2", False)])
def test_that_a_sort_compares_no_numbers_is_a_condition_if_its_words_are_not_known(
    line: str | None, condition: bool
) -> None:
    text = f"zcat f | {line} | uniq" if line else ""
    (found,) = (
        f
        for f in findings(sorting(), HOST, Script(text) if text else None)
        if f.id == "sort-locale"
    )
    assert ("it sorts no numbers or months" in found.advice) == condition
    assert found.advice.endswith("and it does not run so already.")


@pytest.mark.parametrize("reader", ["comm", "join"])
@pytest.mark.parametrize("between", ["", "uniq | "])
def test_what_pairs_sorted_lines_needs_the_locale_of_the_sort(reader: str, between: str) -> None:
    first, sort, last = sorting().stages
    last = replace(last, command=reader)
    stages = [first, sort, *([make_stage(3, "uniq", (80, 60))] if between else []), last]
    text = Script(f"zcat f | sort | {between}{reader} - g", locale="en_US.UTF-8")
    (found,) = (f for f in findings(run_of(stages), HOST, text) if f.id == "sort-locale")
    assert found.advice.startswith(f"Try: LC_ALL=C sort and LC_ALL=C {reader}, which")
    assert found.rewrite is None, "of sort alone"


def test_what_is_sorted_again_before_it_is_paired_may_come_in_another_order() -> None:
    names = enumerate(("sort", "join"), 4)
    stages = [*sorting().stages, *(make_stage(n, name, (60, 60)) for n, name in names)]
    text = Script("zcat f | sort | uniq -c | sort -k2 | join - g", locale="en_US.UTF-8")
    (found,) = (f for f in findings(run_of(stages), HOST, text) if f.id == "sort-locale")
    assert found.stages == (1,) and "join" not in found.advice and found.rewrite is not None


def diamonds(first: Sequence[Stage], command: str, last: str, count: int) -> Run:
    """Behind the first stages `count` times two stages that read from one and write to one."""
    stages = list(first)
    edges = [(at - 1, at) for at in range(1, len(stages))]
    for _ in range(count):
        at = len(stages)
        stages += [make_stage(at + n, command, (60, 60)) for n in (1, 1, 2)]
        edges += [(at - 1, at), (at - 1, at + 1), (at, at + 2), (at + 1, at + 2)]
    stages.append(make_stage(len(stages) + 1, last, (60, 60)))
    return run_of(stages, edges=(*edges, (len(stages) - 2, len(stages) - 1)))


def test_behind_a_sort_stages_may_write_in_a_circle() -> None:
    names = enumerate(("cat", "grep", "join"), 3)
    stages = [*sorting().stages[:2], *(make_stage(n, name, (60, 60)) for n, name in names)]
    edges = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 2))
    found = find(run_of(stages, edges=edges), "sort-locale")
    assert found.advice.startswith("Try: LC_ALL=C sort and LC_ALL=C join, which")


@pytest.mark.parametrize("again", ["uniq", "sort"])
def test_branches_behind_a_sort_are_followed_once(again: str) -> None:
    run = diamonds(sorting().stages[:2], again, "join", 80)
    (found, *_) = (one for one in findings(run, HOST) if one.id == "sort-locale")
    assert ("LC_ALL=C join" in found.advice) == (again != "sort")


def test_in_the_order_of_code_points_bytes_are_the_same_order_for_less() -> None:
    def found(locale: str) -> Finding:
        script = Script("zcat f | sort | uniq", locale=locale)
        return next(f for f in findings(sorting(), HOST, script) if f.id == "sort-locale")

    language, code_points = found("en_US.UTF-8"), found("C.UTF-8")
    assert language.rewrite is not None and language.rewrite.reordered
    assert code_points.rewrite is not None and not code_points.rewrite.reordered
    assert code_points.advice.endswith("bytes: C.UTF-8 has the same order.")
    assert language.likely_seconds is not None and code_points.likely_seconds is not None
    assert code_points.likely_seconds == pytest.approx(0.6 * language.likely_seconds)
    assert "45 % of its CPU seconds" in code_points.likely_reason


def test_in_the_order_of_code_points_a_sort_has_to_save_enough() -> None:
    def ids(user: float) -> list[str]:
        script = Script("zcat f | sort | uniq", locale="C.UTF-8")
        return [found.id for found in findings(sorting(user_seconds=user), HOST, script)]

    assert "sort-locale" in ids(1.12)
    assert "sort-locale" not in ids(1.11)


def started_with(run: Run, *lines: str) -> Run:
    """The run, with what its stages were started with."""
    stages = [replace(stage, arguments=line) for stage, line in zip(run.stages, lines, strict=True)]
    return replace(run, stages=tuple(stages))


def test_what_stages_were_started_with_is_known_where_the_text_is_no_plain_pipeline() -> None:
    script = Script("(cat f; cat g) | …")

    def ids(run: Run, *lines: str) -> set[str]:
        return {finding.id for finding in findings(started_with(run, *lines), HOST, script)}

    assert "grep-count" in ids(counting(), "grep -v x", "wc -l")
    assert "grep-count" not in ids(counting(), "grep -o x", "wc -l")
    assert "grep-count" not in ids(counting(), "grep x", "wc -c")
    assert "count-in-hash" in ids(sorting(kept=0.1), "zcat f", "sort", "uniq -c")
    assert "count-in-hash" not in ids(sorting(kept=0.1), "zcat f", "sort", "uniq -d")


def test_lines_that_repeat_are_counted_in_a_hash() -> None:
    found = find(sorting(kept=0.1), "count-in-hash")
    assert found.gain_seconds == pytest.approx(7.4)
    assert "of which uniq kept <1 %" in found.sentence
    assert "count-in-hash" not in ids_of(sorting(kept=20))
    assert "count-in-hash" not in ids_of(sorting(kept=0.1, after="tr"))
    assert "count-in-hash" not in ids_of(sorting(kept=0.1, cpu=2.0))


@pytest.mark.parametrize(
    ("uniq", "words"),
    [("uniq -c", "awk '{ n[$0]++ }"), ("uniq", "awk '!n[$0]++'"), ("uniq -d", None)],
)
def test_what_uniq_is_for_decides_what_replaces_it(uniq: str, words: str | None) -> None:
    advice = [
        found.advice
        for found in findings(sorting(kept=0.1), HOST, Script(f"zcat f | sort | {uniq}"))
        if found.id == "count-in-hash"
    ]
    assert [words in text for text in advice if words] == ([True] if words else [])
    assert bool(advice) == bool(words)


@pytest.mark.parametrize(
    ("sort", "in_order"),
    [
        ("sort -rn", True),
        ("sort", True),
        ("sort -k1,1", True),
        ("sort -s -k1,1", False),
        ("sort -rn - x", False),
        (None, False),
    ],
)
def test_counts_come_in_the_same_order_if_all_of_the_line_is_sorted_by(
    sort: str | None, in_order: bool
) -> None:
    stages = sorting(kept=0.1).stages
    text = "zcat f | sort | uniq -c"
    if sort:
        stages = (*stages, make_stage(4, "sort", (0.1, 0.1), cpu=0.1, pipe_empty=9.0))
        text += f" | {sort}"
    (found,) = (f for f in findings(run_of(stages), HOST, Script(text)) if f.id == "count-in-hash")
    assert ("may come in another order" in found.advice) is not in_order
    assert found.rewrite is not None
    assert found.rewrite.reordered is not in_order


@pytest.mark.parametrize(
    ("locale", "awk", "takes"),
    [
        ("C", "mawk", 0.3),
        ("C.UTF-8", "mawk", 0.2),
        ("en_US.UTF-8", "mawk", 0.1),
        ("C", "gawk", 0.45),
        (None, "", 0.2),
    ],
)
def test_a_hash_saves_the_more_the_longer_it_takes_to_compare(
    locale: str | None, awk: str, takes: float
) -> None:
    def likely(kept: float) -> float:
        script = Script("zcat f | sort | uniq", locale=locale, awk=awk)
        run = sorting(kept=kept)
        return next(
            f for f in findings(run, HOST, script) if f.id == "count-in-hash"
        ).expected_seconds

    # 7 s of sort and 0.4 s of uniq
    assert likely(0.0) == pytest.approx(7 * (1 - takes) + 0.4)
    assert likely(4.0) == pytest.approx(7 * (1 - takes * 1.75) + 0.4)


def test_what_a_hash_would_hardly_save_is_not_advised() -> None:
    def ids(locale: str) -> list[str]:
        stages = sorting(kept=7.9).stages
        run = run_of([*stages[:2], replace(stages[2], states={**stages[2].states, "cpu": 0.1})])
        script = Script("zcat f | sort | uniq", locale=locale, awk="gawk")
        return [found.id for found in findings(run, HOST, script)]

    assert "count-in-hash" in ids("C.UTF-8")
    assert "count-in-hash" not in ids("C")


# -- processes


def storm(command: str = "xargs", lived: float = 0.002, **given: Any) -> Run:
    values: dict[str, Any] = {
        "cpu": 6.0,
        "child": 6.0,
        "forks": 3000,
        "execs": 3001,
        "exited_children": 3000,
        "children_cpu_seconds": 5.0,
        "children_lifetime_seconds": 3000 * lived,
    }
    seq = make_stage(1, "seq", (0, 0.02), cpu=0.01)
    return run_of([seq, make_stage(2, command, **values | given)])


def test_many_short_lived_children_are_a_storm() -> None:
    found = find(storm(), "fork-storm")
    assert found.severity == "warning"
    assert "xargs started 3,000 processes that lived 2.0 ms each" in found.sentence
    assert found.advice.startswith("Try: more arguments at a time")
    assert found.gain_seconds == pytest.approx(6.0)


def test_a_storm_may_cost_its_waits_for_a_cpu_too_but_no_more_than_the_run() -> None:
    assert find(storm(runqueue=1.0), "fork-storm").gain_seconds == pytest.approx(7.0)
    assert find(storm(cpu=30.0), "fork-storm").gain_seconds == pytest.approx(10.0)


def test_a_loop_of_the_shell_should_be_one_program() -> None:
    assert "one awk in place of the loop" in find(storm("bash"), "fork-storm").advice


@pytest.mark.parametrize(
    "run",
    [storm(lived=0.5), storm(exited_children=50), storm(cpu=0.1)],
    ids=["children that work", "a few", "children that wait"],
)
def test_other_children_are_no_storm(run: Run) -> None:
    assert "fork-storm" not in ids_of(run)


def test_failed_execs_are_noted_where_a_hook_sees_them() -> None:
    assert "failed-execs" not in ids_of(storm(exec_failures=None))
    found = find(storm(exec_failures=6000), "failed-execs")
    assert found.severity == "note"
    assert found.sentence.startswith("6,000 of 9,001 execs in xargs failed")


# -- advice that can be followed


@pytest.mark.parametrize("command", ["tar", "find", "python3"])
def test_what_opens_its_files_itself_gets_no_reader_in_front(command: str) -> None:
    reader = pages(hit=20_000, miss=20_000, misses=(6.0, 0.0))
    run = run_of([make_stage(1, command, cpu=4.0, disk=6.0, readahead=reader)], overlapping=0)
    advice = find(run, "disk-not-overlapped").advice
    assert "into memory first" in advice and "a reader in front" not in advice


def test_a_grep_through_folders_gets_no_reader_in_front() -> None:
    reader = pages(hit=20_000, miss=20_000, misses=(6.0, 0.0))
    grep = make_stage(1, "grep", (80, 1), cpu=4.0, disk=6.0, readahead=reader)
    run = run_of([grep, make_stage(2, "sort", (1, 1), pipe_empty=9.0)], overlapping=0)

    def advice(text: str) -> str:
        found = findings(run, HOST, Script(text))
        return next(one.advice for one in found if one.id == "disk-not-overlapped")

    assert "a reader in front (cat FILE | grep …)" in advice("grep x f | sort")
    assert "into memory first" in advice("grep -r x . | sort")


@pytest.mark.parametrize(
    ("command", "written", "words", "not_words"),
    [
        ("gzip", 8, "pigz", "rapidgzip"),
        ("gzip", 800, "pigz does not decompress in parallel", "which writes"),
        ("zcat", 800, "pigz does not decompress in parallel", "which writes"),
        ("gunzip", 8, "rapidgzip does", "which writes"),
        ("xz", 8, "xz -T0, which works on all CPUs", "blocks"),
        ("xz", 800, "if the file has several blocks", "all CPUs"),
        ("zstd", 8, "zstd -T0", "lower"),
        ("pigz", 800, "it cannot use more CPUs", "-1"),
        ("bzip2", 800, "lbzip2, which decompresses on all CPUs", "pigz"),
        ("tr", 80, "parallel --pipe -k", "split"),
    ],
)
def test_a_ceiling_is_raised_by_what_the_stage_can_do(
    command: str, written: float, words: str, not_words: str
) -> None:
    run = ceiling_at(command, written_bytes=int(written * MB))
    (advice,) = (f.advice for c in [Case.of(run, HOST)] for f in RULES_BY_ID["ceiling"](c))
    assert words in advice and not_words not in advice


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_of_formats_that_are_fast_to_read_no_other_one_is_advised(codec: str) -> None:
    found = find(ceiling_at(codec, written_bytes=800 * MB), "ceiling")
    assert (found.severity, found.advice, found.likely_seconds) == ("note", "", None)


def test_what_is_likely_of_bzip2_is_that_of_what_is_advised() -> None:
    run = ceiling_at("bzip2", written_bytes=200 * MB)
    in_parallel, other_format = find(run, "ceiling"), find(run, "ceiling", Host(2, None))
    assert "an even share on each of the 3.8 CPUs" in in_parallel.likely_reason
    assert "lbzip2" not in other_format.advice
    assert "a format that is faster to read" in other_format.likely_reason
    assert other_format.likely_seconds == pytest.approx(9.8 * 0.75)


def test_what_a_codec_does_is_read_from_its_options_if_they_are_known() -> None:
    run = ceiling_at("gzip", written_bytes=70 * MB)  # of data that hardly shrinks

    def advice(text: str) -> str:
        found = findings(run, HOST, Script(text))
        return next(one.advice for one in found if one.id == "ceiling")

    assert "pigz does not decompress" in advice("tar c d | gzip -dc | ssh host x")
    assert "on all CPUs" in advice("tar c d | gzip -9 | ssh host x")


@pytest.mark.parametrize("command", ["awk", "wc", "uniq", "python3"])
def test_a_ceiling_that_nothing_is_known_to_raise_is_a_note(command: str) -> None:
    found = find(ceiling_at(command), "ceiling")
    assert (found.severity, found.advice, found.gain_seconds) == ("note", "", None)


def test_names_from_ls_are_handed_over_many_at_a_time() -> None:
    run = storm("bash")
    run = replace(run, stages=(replace(run.stages[0], command="ls"), run.stages[1]))
    advice = find(run, "fork-storm").advice
    assert r"xargs -d '\n' CMD (behind -print0, xargs -0 CMD) in place of the loop" in advice
    assert r"in place of -I, which takes a whole line, xargs -d '\n' -n 1000" in (
        find(storm("xargs"), "fork-storm").advice
    )
    assert "-exec CMD {} +" in find(storm("find"), "fork-storm").advice
    for starter in ("find", "xargs"):
        advice = find(storm(starter), "fork-storm").advice
        assert advice.endswith(". With grep -h and head -q no file names are printed.")


def test_parts_of_the_input_become_larger_not_more_for_each() -> None:
    run = storm("parallel")
    run = replace(
        run, stages=(run.stages[0], replace(run.stages[1], arguments="parallel --pipe -k sort"))
    )
    assert find(run, "fork-storm").advice == "Try: larger blocks (parallel --pipe --block 10M)."


#: Text of a pipeline, its run, the finding, and the other pipeline that it ends with.
COMMANDS = {
    "reader": ("cat big | awk '{x}'", copied(), "reader-costs", "awk '{x}' < big"),
    "readers": ("cat a b | awk '{x}'", copied(), "reader-costs", "awk '{x}' a b"),
    "hash": (
        "zcat f | sort | uniq -c",
        sorting(kept=0.1),
        "count-in-hash",
        f"zcat f | {COUNT} | sort -k2",
    ),
    "locale": (
        "zcat 'my f' | sort -r | uniq",
        sorting(),
        "sort-locale",
        "zcat 'my f' | LC_ALL=C sort -r | uniq",
    ),
    "spill": (
        "zcat f | sort -n | uniq",
        sorting(written=160, disk=1.5),
        "sort-spills",
        "zcat f | sort -S 512M -n | uniq",
    ),
    "ceiling": (
        "tar c dir | xz -dc | wc -c",
        ceiling_at("xz", "wc"),
        "ceiling",
        "tar c dir | xz -T0 -dc | wc -c",
    ),
    "idle": ("sed s/a/b/ f | grep 1", filtered_late(), "idle-stage", "grep 1 f | sed s/a/b/"),
    "barrier": (
        "zcat f | LC_ALL=C sort | awk '{ print $1 }' | uniq",
        barrier(),
        "barrier",
        "zcat f | awk '{ print $1 }' | LC_ALL=C sort | uniq",
    ),
    "grep": ("grep x f | wc -l", counting(), "grep-count", "grep -c x f"),
    "xargs": ("seq 9 | xargs -n1 stat", storm(), "fork-storm", "seq 9 | xargs -n 1000 stat"),
    "parallel": (
        "seq 9 | parallel md5sum",
        storm("parallel"),
        "fork-storm",
        r"seq 9 | xargs -r -d '\n' -P 4 -n 1 md5sum",
    ),
    "dd": ("dd if=f bs=1M | tr a b", in_turn(), "large-writes", "dd if=f bs=32k | tr a b"),
    "small dd": (
        "dd if=f bs=512 | awk '{x}' | wc",
        run_of(
            [make_stage(1, "dd", (400, 400), (800_000, 800_000), cpu=9.0, system_seconds=8.0)]
            + [make_stage(n, name, cpu=0.5) for n, name in ((2, "awk"), (3, "wc"))]
        ),
        "small-calls",
        "dd if=f bs=64k | awk '{x}' | wc",
    ),
    "flush": (
        "stdbuf -oL awk '{x}' f | wc",
        run_of(flushing()),
        "small-calls",
        "awk '{x}' f | wc",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_finding_ends_with_the_command_that_tries_it(name: str) -> None:
    text, run, id, other = COMMANDS[name]
    (found,) = (f for f in findings(run, HOST, Script(text, locale="de_DE")) if f.id == id)
    reordered = ["--match", "lines"] if name in ("barrier", "hash", "locale", "parallel") else []
    assert shlex.split(found.command) == ["pipelined", "compare", *reordered, text, other]


@pytest.mark.parametrize("name", COMMANDS)
def test_without_the_text_or_with_another_one_there_is_no_command(name: str) -> None:
    text, run, _, _ = COMMANDS[name]
    for script in (None, Script(f"{text}; true"), Script(f"{text} | tee log")):
        assert not any(found.command for found in findings(run, HOST, script))


def packing() -> Run:
    """tar and gzip, which comes last."""
    run = ceiling_at("gzip")
    return replace(run, stages=run.stages[:2], edges=run.edges[:1])


def test_what_is_compressed_is_compared_by_what_is_in_it() -> None:
    found = findings(packing(), HOST, Script("tar c dir | gzip -9 > f.gz"))
    (command,) = (one.command for one in found if one.id == "ceiling")
    assert shlex.split(command)[2:] == [
        "tar c dir | gzip -9 | gzip -dc",
        "tar c dir | pigz -9 | gzip -dc",
    ]


def test_what_reads_compressed_bytes_would_get_others() -> None:
    found = findings(ceiling_at("gzip", "wc"), HOST, Script("tar c dir | gzip -9 | wc -c"))
    (ceiling,) = (one for one in found if one.id == "ceiling")
    assert "pigz" in ceiling.advice and ceiling.command == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("xz -0 -T1", "xz -0 -T0"),
        ("xz -T 1 -9", "xz -T0 -9"),
        ("xz --threads=1", "xz -T0"),
        ("xz -9", "xz -T0 -9"),
        ("xz -T2", None),
        ("xz -T1 --format=lzma", None),
    ],
)
def test_a_compressor_that_is_to_use_one_cpu_is_given_all(old: str, new: str | None) -> None:
    run = ceiling_at("xz", written_bytes=8 * MB)
    run = replace(run, stages=run.stages[:2], edges=run.edges[:1])
    (found,) = RULES_BY_ID["ceiling"](Case.of(run, HOST, Script(f"tar c dir | {old} > f.xz")))
    assert (found.rewrite.new if found.rewrite else None) == (new and f"tar c dir | {new}")
    assert found.rewrite is None or found.rewrite.unpacked == "xz -dc"


def spread_out(command: str, then: str = "md5sum", **given: Any) -> Rewrite | None:
    """What the ceiling at this command, behind `find`, is advised to be."""
    program = command.split()[0]
    values: dict[str, Any] = {"read_bytes": 15_000, "written_bytes": 49_000, "write_calls": 1_000}
    stages = [
        make_stage(1, "find", (0, 0), cpu=0.1),
        make_stage(2, program, (0, 0), cpu=9.8, pipe_empty=0.2, **values | given),
        make_stage(3, then.split()[0], (8, 8), cpu=0.1, pipe_empty=9.9),
    ]
    script = Script(f"find d | {command} | {then}")
    (found,) = RULES_BY_ID["ceiling"](Case.of(run_of(stages), HOST, script))
    return found.rewrite


def test_xargs_gets_several_processes_where_only_the_order_of_lines_may_change() -> None:
    sums = spread_out("xargs -d , md5sum", "sort -k 2")
    assert sums is not None and " | xargs -d , -n 62 -P 4 md5sum | " in sums.new
    assert not sums.reordered
    for then in ("sort -s -k 1,1", "sort f", "tail"):
        sums = spread_out("xargs md5sum", then)
        assert sums is not None and sums.reordered
    # what these write at once is mixed in the middle of lines
    assert spread_out("xargs cat", "sort") is None
    assert spread_out("xargs md5sum", "sort", read_bytes=80 * MB) is None
    # so does busybox with its sums, which it writes in pieces of 4 KiB
    assert spread_out("xargs md5sum", "sort", write_calls=12) is None


def test_xargs_that_starts_several_processes_is_not_advised_to() -> None:
    for options, advised in (("-0", True), ("-0 -n 9 -P 2", False), ("-P 1", True)):
        script = Script(f"tar c d | xargs {options} md5sum | ssh h x")
        (found,) = RULES_BY_ID["ceiling"](Case.of(ceiling_at("xargs"), HOST, script))
        assert bool(found.advice) == advised
        assert found.severity == ("advice" if advised else "note")


def test_a_filter_gets_two_stages_or_parts_of_its_input() -> None:
    size = {"read_bytes": 80 * MB, "written_bytes": 80 * MB}
    two = spread_out(r"sed -e 's/\(a\)/\1/' -e 's/[ab]/c/g'", **size)
    assert two is not None
    assert two.new == r"find d | sed 's/\(a\)/\1/' | sed 's/[ab]/c/g' | md5sum"
    one = spread_out("tr a b", **size)
    assert one is not None
    assert one.new == "find d | parallel --pipe -k --block 4M 'tr a b' | md5sum"
    assert not one.reordered
    assert spread_out("sed 3d", **size) is None


def test_a_grep_is_not_divided_as_it_would_speak_of_binary_data_once_for_each_part() -> None:
    run = ceiling_at("grep")
    (found,) = RULES_BY_ID["ceiling"](Case.of(run, HOST, Script("tar c d | grep a | ssh h x")))
    assert "parallel" in found.advice and found.rewrite is None


def test_neighbours_that_replace_characters_are_one_where_cpus_lack() -> None:
    stages = [make_stage(n, "tr", cpu=6.5, runqueue=3.5) for n in range(1, 7)]
    chain = " | ".join(["tr a b", "tr b c", "tr -d x", "tr c d", "tr d e", "tr e f"])
    for text, new in (
        (chain, "tr ab cc | tr -d x | tr cde fff"),
        (" | ".join(["tr -s a"] * 6), None),
    ):
        (found,) = RULES_BY_ID["more-stages-than-cores"](
            Case.of(run_of(stages), HOST, Script(text))
        )
        assert (found.rewrite.new if found.rewrite else None) == new


def test_what_sends_or_writes_is_not_offered_to_be_run_again() -> None:
    script = Script("tar c dir | gzip -9 | ssh host x")
    (found,) = (one for one in findings(ceiling_at("gzip"), HOST, script) if one.id == "ceiling")
    assert "pigz" in found.advice and found.command == ""


def test_what_a_reader_cannot_take_keeps_its_cat() -> None:
    wc = replace(copied(), stages=(copied().stages[0], replace(copied().stages[1], command="wc")))
    for text in ("cat a b | wc -l", "cat *.log | wc -l", "cat -n a | wc -l", "cat a | wc"):
        assert "reader-costs" not in [f.id for f in findings(wc, HOST, Script(text))]
    assert "reader-costs" in [f.id for f in findings(wc, HOST, Script("cat a | wc -l"))]


# -- what holds for all


HEALTHY: dict[str, Run] = {
    "two equal stages": run_of(
        [
            make_stage(1, "sed", (80, 80), cpu=9.6, pipe_full=0.4),
            make_stage(2, "tr", (80, 80), cpu=9.7, pipe_empty=0.3),
        ],
        overlapping=0.9,
    ),
    "decoder and filter": run_of(
        [
            make_stage(1, "zcat", (8, 80), cpu=8.5, pipe_full=1.0),
            make_stage(2, "grep", (80, 1), cpu=6.0, pipe_empty=3.0),
        ],
        overlapping=0.5,
    ),
    "a wait for each window on a fast disk": run_of(
        [
            make_stage(
                1,
                "mawk",
                (72, 0),
                (17_700, 1),
                cpu=0.29,
                system_seconds=0.03,
                disk=0.01,
                readahead=pages(warm=19_000, late=800, miss=1, lates=(0.01, 0.0)),
            )
        ],
        0.31,
    ),
    "a reader that hides the disk": run_of(
        [
            make_stage(
                1,
                "cat",
                (80, 80),
                cpu=0.8,
                user_seconds=0.0,
                disk=3.0,
                pipe_full=6.0,
                readahead=pages(warm=19_500, miss=600, misses=(0.2, 2.8)),
            ),
            make_stage(2, "mawk", (80, 80), cpu=8.8, pipe_empty=0.5),
            make_stage(3, "gzip", (80, 8), cpu=8.9, pipe_empty=0.5),
        ],
        overlapping=0.9,
    ),
    "following a log": run_of(
        [
            make_stage(1, "tail", (1, 1), (9_000, 9_000), cpu=0.1, poll=9.9),
            make_stage(2, "grep", (1, 0.01), (9_000, 200), cpu=0.1, pipe_empty=9.9),
        ]
    ),
    "a few workers": run_of(
        [
            make_stage(1, "seq", (0, 8), cpu=0.5, pipe_full=9.0),
            make_stage(2, "split", (8, 8), cpu=1.0, pipe_full=8.0, forks=3),
            *(make_stage(3, "bash", (3, 3), cpu=9.0, pid=900 + n) for n in range(3)),
        ],
        overlapping=0.9,
    ),
    "from another machine": run_of(
        [
            make_stage(1, "ssh", (80, 80), (5_000, 5_000), net=9.0, cpu=1.0),
            make_stage(2, "tar", (80, 80), pipe_empty=9.0, cpu=1.0),
        ]
    ),
    "children that work": run_of(
        [
            make_stage(1, "find", (1, 1), cpu=0.2, pipe_full=9.0),
            make_stage(
                2,
                "xargs",
                (80, 8),
                cpu=30.0,
                child=9.9,
                forks=200,
                exited_children=200,
                children_lifetime_seconds=40.0,
            ),
        ]
    ),
    "a short sort of a long stream": run_of(
        [
            make_stage(1, "grep", (80, 4), cpu=8.5),
            make_stage(2, "sort", (4, 4), cpu=0.6, pipe_empty=9.0),
            make_stage(3, "uniq", (4, 0.1), cpu=0.1, pipe_empty=9.8),
        ]
    ),
    "a compressor that is not the limit": run_of(
        [
            make_stage(1, "mysqldump", (0, 80), cpu=3.0, net=6.5),
            make_stage(2, "gzip", (80, 8), cpu=5.0, pipe_empty=4.9),
        ]
    ),
    "a compressor on all CPUs": run_of(
        [
            make_stage(1, "tar", (80, 80), cpu=2.0, pipe_full=7.0),
            make_stage(2, "zstd", (80, 8), cpu=33.0, pipe_empty=0.2),
        ]
    ),
    "a few lines are counted": run_of(
        [
            make_stage(1, "grep", (80, 0.2), cpu=8.0),
            make_stage(2, "wc", (0.2, 0), cpu=0.01, pipe_empty=9.9),
        ]
    ),
    "wake-ups that take their time": replace(
        run_of(
            [
                make_stage(1, "dd", (80, 80), cpu=4.0, runqueue=2.0, pipe_full=3.5),
                make_stage(2, "tr", (80, 80), cpu=5.0, runqueue=2.5, pipe_empty=2.0),
            ]
        ),
        surroundings=Surroundings(0.4, 0.0),
    ),
    "a busy host that leaves it its CPU": replace(
        run_of(
            [
                make_stage(1, "cat", (1, 1), cpu=0.2, pipe_full=9.0),
                make_stage(2, "python3", (1, 1), cpu=8.1, runqueue=0.3, net=1.4, pipe_empty=0.2),
            ],
            overlapping=0.1,
        ),
        surroundings=Surroundings(3.0, 0.0),
    ),
    "seds with a CPU each": run_of(
        [make_stage(n, "sed", (80, 80), cpu=9.0, runqueue=0.2) for n in (1, 2, 3)],
        overlapping=0.9,
    ),
    "grep that spares awk its work": run_of(
        [
            make_stage(1, "grep", (80, 8), cpu=6.0, pipe_full=3.0),
            make_stage(2, "awk", (8, 1), cpu=7.0, pipe_empty=2.0),
        ]
    ),
    "find, and one process for many files": run_of(
        [
            make_stage(1, "find", (1, 2), cpu=0.5, disk=2.0),
            make_stage(2, "xargs", (80, 1), cpu=6.0, child=9.0, forks=4, exited_children=4),
        ]
    ),
    "a download": run_of(
        [
            make_stage(1, "curl", (80, 80), cpu=0.8, poll=9.0),
            make_stage(2, "tar", (80, 0), cpu=1.2, pipe_empty=8.5, written_bytes=200 * MB),
        ]
    ),
    "processes in a list": run_of(
        [
            make_stage(1, "ps", (2, 0.05), cpu=0.12),
            make_stage(2, "grep", (0.05, 0.001), cpu=0.01, pipe_empty=0.12),
            make_stage(3, "awk", (0.001, 0.001), cpu=0.01, pipe_empty=0.12),
        ],
        0.14,
    ),
    "the first lines": run_of(
        [
            make_stage(1, "zcat", (0.1, 0.2), cpu=0.08),
            make_stage(2, "head", (0.1, 0.01), cpu=0.01, pipe_empty=0.1),
        ],
        0.12,
    ),
    "a reader before a slow network": run_of(
        [
            make_stage(1, "tar", (80, 80), cpu=0.8, pipe_full=9.0, readahead=WARM),
            make_stage(2, "ssh", (80, 80), cpu=1.5, net=8.0),
        ]
    ),
}

#: Those of which the text is known, and makes the difference.
HEALTHY_TEXTS: dict[str, Run] = {
    "zcat f | LC_ALL=C sort -n | uniq": sorting(),
    "zcat f | sort | uniq -d": sorting(kept=0.1, user_seconds=0.3),
    "cat a b | wc": replace(
        copied(), stages=(copied().stages[0], replace(copied().stages[1], command="wc"))
    ),
    "grep -o x f | wc -l": counting(cpu=8.0),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_pipeline_has_no_findings(name: str) -> None:
    assert findings(HEALTHY[name], HOST) == ()


@pytest.mark.parametrize("text", HEALTHY_TEXTS)
def test_a_pipeline_that_cannot_do_better_gets_no_advice(text: str) -> None:
    found = findings(HEALTHY_TEXTS[text], HOST, Script(text))
    assert [one.id for one in found if one.advice] == []


def test_a_sort_that_has_little_to_do_is_only_noted() -> None:
    stages = [
        make_stage(1, "cat", (40, 40), cpu=0.023, pipe_full=0.53, readahead=WARM),
        make_stage(2, "awk", (40, 11), cpu=0.2, pipe_full=0.34),
        make_stage(3, "sort", (11, 11), cpu=0.44, pipe_empty=0.19),
        make_stage(4, "uniq", (11, 6), cpu=0.022, pipe_empty=0.62),
    ]
    found = findings(run_of(stages, 0.65, overlapping=0.07), HOST)
    assert {(one.id, one.severity) for one in found} == {
        ("barrier", "note"),
        ("sort-locale", "note"),
    }


def teeing(**given: Any) -> Run:
    """tee, which waits for the disk of its file, between zcat and awk."""
    stages = [
        make_stage(1, "zcat", (20, 80), cpu=1.0, pipe_full=8.0),
        make_stage(2, "tee", (80, 160), **{"cpu": 0.2, "disk": 7.0} | given),
        make_stage(3, "awk", (80, 1), cpu=1.5, pipe_empty=8.0),
    ]
    return run_of(stages)


def test_what_reads_a_tee_waits_for_its_disk() -> None:
    found = find(teeing(runqueue=0.5), "tee-waits")
    assert found.stages == (1, 2)
    assert "waited 7.0 s, 70 % of the run" in found.sentence
    assert found.gain_seconds == pytest.approx(7.5)
    assert found.likely_seconds == pytest.approx(7.0, abs=0.5)


@pytest.mark.parametrize(
    "run",
    [
        teeing(disk=0.9),
        teeing(command="dd"),
        replace(teeing(), stages=teeing().stages[:2], edges=teeing().edges[:1]),
    ],
    ids=["it hardly waits", "no tee", "nobody reads it"],
)
def test_no_other_wait_for_disk_is_that_of_a_tee(run: Run) -> None:
    assert "tee-waits" not in ids_of(run)


def silly() -> Run:
    """Eleven stages of which six are not needed."""
    stages = [
        make_stage(1, "gzip", (20, 100), cpu=1.0),
        make_stage(2, "gzip", (100, 30), cpu=2.0),
        make_stage(3, "gzip", (30, 100), cpu=1.0),
        make_stage(4, "sort", (100, 100), cpu=3.0),
        make_stage(5, "grep", (100, 20), cpu=0.2),
        make_stage(6, "sort", (20, 20), cpu=0.8),
        make_stage(7, "cut", (20, 10), cpu=0.1),
        make_stage(8, "cat", (10, 10), cpu=1.2),
        make_stage(9, "sort", (10, 10), cpu=0.5),
        make_stage(10, "uniq", (10, 1), cpu=0.6),
        make_stage(11, "wc", (1, 0.001), cpu=0.1),
    ]
    return run_of(stages)


#: Runs with findings for which the text has to be known.
ILL_TEXTS = [
    (
        run_of([make_stage(1, "sed", (100, 100), cpu=9.0), make_stage(2, "wc", (100, 0))]),
        Script("sed 's/[a-z]*//' f | wc", characters="C.UTF-8"),
    ),
    (
        run_of([make_stage(1, "gzip", (20, 100), cpu=9.0), make_stage(2, "sed", (100, 0.001))]),
        Script("zcat f | sed -n 5p"),
    ),
]

#: At least one run for each other finding.
ILL = {
    "silly": silly(),
    "counted": run_of(
        [make_stage(1, "sort", (100, 100), cpu=6.0), make_stage(2, "wc", (100, 0), cpu=0.2)]
    ),
    "slow file": teeing(),
    "by turns": run_of(
        [make_stage(1, "awk", cpu=4.0, disk=6.0, readahead=pages(miss=20_000, misses=(6.0, 0)))],
        overlapping=0,
    ),
    "late": run_of(
        [make_stage(1, "wc", cpu=0.3, disk=9.0, readahead=pages(hit=20_000, lates=(9.0, 0)))]
    ),
    "jumping": run_of(
        [make_stage(1, "x", cpu=0.3, disk=9.5, readahead=pages(miss=20_000, misses=(9.5, 0)))]
    ),
    "wasted": run_of(
        [
            make_stage(
                1, "x", cpu=0.1, disk=4.0, readahead=pages(hit=900, wasted=19_000, lates=(4.0, 0))
            )
        ]
    ),
    "copied": copied(),
    "in turn": in_turn(),
    "flushing": run_of(flushing()),
    "large blocks": blocks_of(4 << 20),
    "many files": starting_cat(),
    "ceiling": ceiling_at("gzip"),
    "filtered late": filtered_late(),
    "barrier": barrier(),
    "crowded": crowded(),
    "storm": storm(exec_failures=6000),
    "contended": beside(3.2),
    "limited": beside(3.2, 5.0),
    "joinable": replace(chained("sed", "sed", "sed", "sed", "sed"), wall_seconds=8.5),
    "counting": counting(),
    "spilling": sorting(written=160, disk=1.5),
    "repeating": sorting(kept=0.1),
}


@pytest.mark.parametrize(
    ("ill", "id"),
    [
        ("copied", "reader-costs"),
        ("flushing", "small-calls"),
        ("ceiling", "ceiling"),
        ("filtered late", "idle-stage"),
        ("barrier", "barrier"),
        ("storm", "fork-storm"),
        ("counting", "grep-count"),
        ("repeating", "count-in-hash"),
    ],
)
def test_without_the_work_its_waits_for_a_cpu_are_gone_too(ill: str, id: str) -> None:
    run = ILL[ill]
    waiting = replace(
        run,
        stages=tuple(
            replace(stage, states={**stage.states, "runqueue": 0.01 * stage.cpu_seconds})
            for stage in run.stages
        ),
    )
    gain = find(run, id).gain_seconds
    assert gain is not None
    assert find(waiting, id).gain_seconds == pytest.approx(min(1.01 * gain, run.wall_seconds))


def scaled(run: Run, factor: float) -> Run:
    """The same shares in another time."""
    return replace(
        run,
        wall_seconds=run.wall_seconds * factor,
        levels=tuple(seconds * factor for seconds in run.levels),
        stages=tuple(
            replace(stage, states={name: s * factor for name, s in stage.states.items()})
            for stage in run.stages
        ),
    )


@pytest.mark.parametrize("name", ILL)
def test_a_gain_is_bounded_and_worth_it(name: str) -> None:
    run = ILL[name]
    assert ids_of(run)
    for found in findings(run, HOST):
        if found.gain_seconds is not None:
            least = max(WORTH_SHARE * run.wall_seconds, WORTH_SECONDS)
            assert least <= found.gain_seconds <= run.wall_seconds
            assert found.gain_reason
        else:
            assert not found.gain_reason


@pytest.mark.parametrize("name", ILL)
def test_every_finding_has_its_evidence(name: str) -> None:
    for found in findings(ILL[name], HOST):
        assert found.severity in SEVERITIES
        assert found.severity in SEVERITIES_BY_ID[found.id].split(" or ")
        assert found.sentence.endswith(".")
        assert not found.advice or found.advice.startswith("Try: ")
        assert found.severity == "note" or found.advice
        assert found.evidence
        assert set(found.stages) <= set(range(len(ILL[name].stages)))


@pytest.mark.parametrize("name", ILL)
def test_the_most_severe_comes_first_then_what_is_expected_to_save_most(name: str) -> None:
    ranks = [
        (SEVERITIES.index(found.severity), -found.expected_seconds)
        for found in findings(ILL[name], HOST)
    ]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("name", ILL)
def test_a_short_run_has_no_findings(name: str) -> None:
    run = ILL[name]
    assert ids_of(scaled(run, 0.9 * MIN_WALL / run.wall_seconds)) == []


PARTIAL = {
    "disk-not-overlapped",
    "readahead-late",
    "ceiling",
    "barrier",
    "more-stages-than-cores",
    "fork-storm",
    "failed-execs",
    "cpu-contention",
    "cpu-limit",
    "join-stages",
    "tee-waits",
}


@pytest.mark.parametrize("name", ILL)
def test_a_partial_run_has_only_findings_that_rest_on_times(name: str) -> None:
    whole, partial = set(ids_of(ILL[name])), set(ids_of(replace(ILL[name], partial=True)))
    assert whole & PARTIAL <= partial <= PARTIAL


def test_rules_that_rest_on_times_hold_for_partial_runs() -> None:
    assert {rule.id for rule in RULES if rule.of_partial_runs} == PARTIAL
    page = Path(__file__).parents[2].joinpath("docs/FINDINGS.md").read_text()
    (listed,) = re.findall(r"A \*partial\* run has only ([^.]*), which rest on times", page)
    assert set(re.findall(r"[a-z-]+", listed)) - {"and"} == PARTIAL, "docs/FINDINGS.md"


def test_nothing_is_concluded_from_partial_readahead() -> None:
    rest_on_it = {"disk-not-overlapped", "readahead-late", "readahead-useless", "readahead-wasted"}
    rest_on_it |= {"cold-run", "reader-costs", "small-files"}
    raised = {name: set(ids_of(run)) for name, run in ILL.items()}
    assert rest_on_it <= set().union(*raised.values())
    for run in ILL.values():
        assert not rest_on_it & set(ids_of(replace(run, partial_tiers=("readahead",))))


def test_parallel_branches_are_reported_once() -> None:
    bash = make_stage(
        2, "bash", (1, 0.1), (1_000_000, 20_000), cpu=2.0, system_seconds=1.0, pipe_empty=1.0
    )
    seq = make_stage(1, "seq", (0, 4), cpu=0.1)
    run = run_of([seq, *(replace(bash, pid=n) for n in range(4))])
    found = find(run, "small-calls")
    assert found.stages == (1, 2, 3, 4)
    assert found.sentence.startswith("4 × bash made 4,000,000 reads of 1 B")


def test_every_finding_has_a_section_in_the_documentation() -> None:
    page = Path(__file__).parents[2].joinpath("docs/FINDINGS.md").read_text()
    sections = {line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")}
    about_all = {
        "How a finding is made",
        "What is likely",
        "When a finding shows",
        "The command to try",
        "Which commands treat each line by itself",
        "What has no finding",
        "Followed",
    }
    assert {rule.id for rule in RULES} == sections - about_all, "rules, and sections of FINDINGS"


def test_every_rule_finds_something_and_only_findings_of_its_id() -> None:
    cases = [Case.of(run, HOST) for run in ILL.values()]
    cases += [Case.of(run, HOST, script) for run, script in ILL_TEXTS]
    for rule in RULES:
        found = {found.id for case in cases for found in rule.check(case)}
        assert found == {rule.id}, f"ILL, or ILL_TEXTS, is to have a run with {rule.id}"
    reported = {one.id for case in cases for one in findings(case.run, HOST, case.script)}
    assert {rule.id for rule in RULES} == reported, "others hide it in every run of ILL"


def test_a_rule_hides_only_findings_that_exist() -> None:
    assert set().union(*(rule.hides for rule in RULES)) <= {rule.id for rule in RULES}


# -- the machine


def sysfs(root: Path, online: str, caches: dict[str, tuple[str, str]]) -> Path:
    cpus = root / "devices/system/cpu"
    cpus.mkdir(parents=True)
    (cpus / "online").write_text(online)
    for name, (level, size) in caches.items():
        cache = cpus / "cpu0/cache" / name
        cache.mkdir(parents=True)
        (cache / "level").write_text(level)
        (cache / "size").write_text(size)
    return root


def test_a_host_is_read_from_sysfs(tmp_path: Path) -> None:
    caches = {"index0": ("1\n", "48K\n"), "index2": ("2\n", "2048K\n"), "index3": ("3\n", "32M\n")}
    assert Host.read(sysfs(tmp_path, "0-3,6\n", caches)) == Host(5, 2 << 20)


def test_a_host_that_reports_nothing_has_one_cpu_and_no_known_cache(tmp_path: Path) -> None:
    assert Host.read(tmp_path) == Host(1, None)
    assert Host.read(sysfs(tmp_path / "odd", "", {"index2": ("2\n", "huge\n")})) == Host(1, None)
