# SPDX-License-Identifier: Apache-2.0
"""The history at the prompt: `pipelined runs` and `pipelined show`."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelined import cli
from pipelined.analysis.finding import Finding
from pipelined.analysis.machine import Host
from pipelined.history.counted_runs import CountedRuns
from pipelined.history.database import Store
from pipelined.history.files import FILE_NAME
from pipelined.history.history import History
from pipelined.history.rows import Summary
from pipelined.nesting import nested_lines
from pipelined.runs import LEVELS, Exit, Outcome, Point, Run, StagePoint, Timeline
from pipelined.terminal.history_report import counted_line, run_table, time_lines, when
from unit.invented import (
    START,
    make_ended,
    make_finished,
    make_inside,
    make_stage,
    make_timeline,
)

WIDTHS = (60, 80, 100, 118, 160)
SUMMARY = Summary(
    id="1700000000000-4711",
    pipeline="zcat|sort|awk|uniq",
    nested=False,
    unit="-",
    start=START,
    end=START + 5.6,
    wall=5.6,
    partial=False,
    cores=0.9,
    overlap=0.08,
    cache="warm",
    bottleneck="sort: CPU 71 %",
    findings=("barrier", "cold-run"),
)


def table(
    *summaries: Summary, width: int = 160, now: float = START, ascii_only: bool = False
) -> str:
    lines = run_table(nested_lines(summaries), width, now, ascii_only=ascii_only)
    return "\n".join(line.plain for line in lines)


# -- the list


def test_a_line_describes_a_run() -> None:
    heading, line = table(SUMMARY).splitlines()
    assert heading.split() == [
        "run",
        "started",
        "pipeline",
        "wall",
        "cores",
        "overlap",
        "cache",
        "bottleneck",
        "findings",
    ]
    for text in (
        SUMMARY.id,
        "zcat|sort|awk|uniq",
        "5.6 s",
        "0.9",
        "8 %",
        "warm",
        "sort: CPU 71 %",
    ):
        assert text in line
    assert line.endswith("barrier, cold-run")


USERS = [
    replace(SUMMARY, id="1700000000000-4711-5f3c9a01", identity={"uid": "0", "user": "root"}),
    replace(SUMMARY, id="1700000000001-4712-5f3c9a01", identity={"uid": "7", "user": "app"}),
]


def test_runs_of_different_users_have_a_column_for_the_user() -> None:
    heading, *lines = table(*USERS).splitlines()
    assert heading.split()[:4] == ["run", "started", "pipeline", "user"]
    at = heading.index("user")
    assert [line[at:].split()[0] for line in lines] == ["root", "app"]
    assert table(USERS[0], replace(USERS[1], identity=USERS[0].identity)).split()[3] == "wall"


def test_what_tells_runs_apart_gets_room_after_bottleneck_and_overlap() -> None:
    shown = {width: set(table(*USERS, width=width).splitlines()[0].split()) for width in WIDTHS}
    assert "user" not in shown[80]
    assert {"bottleneck", "overlap"} <= shown[118]
    assert ("user" in shown[118], "cores" in shown[118]) == (True, False)
    assert {"user", "cores", "cache"} <= shown[160]


def test_findings_are_shortened_only_for_signatures_and_what_tells_runs_apart() -> None:
    many = [replace(row, findings=("count-in-hash", "cpu-contention", "barrier")) for row in USERS]
    for width, tells in ((100, False), (118, False), (130, True), (160, True)):
        heading, first, _ = table(*many, width=width).splitlines()
        shortened = width in (100, 130)
        assert ("user" in heading.split(), first.endswith("…")) == (tells, shortened)
    alike = [replace(row, identity=USERS[0].identity) for row in many]
    assert table(*alike, width=130).endswith("cpu-contention, barrier")


def test_findings_are_shortened_before_a_signature_is() -> None:
    names = ("fork-storm", "small-calls", "cpu-contention")
    row = replace(SUMMARY, id="1795768985759-442-95beae63", findings=names)
    row = replace(row, pipeline="zcat|awk|sort|uniq|sort")
    _, line = table(row, width=100).splitlines()
    assert "zcat|awk|sort|uniq" in line
    assert line.endswith("fork-storm, small-calls, cpu-…")
    assert table(row, width=140).endswith("fork-storm, small-calls, cpu-contention")


def test_runs_of_different_jobs_have_a_column_for_the_unit() -> None:
    names = ("nightly.job", "evil\x1b[2J" + "x" * 99)
    units = [replace(SUMMARY, id=f"1700000000000-{name[:4]}", unit=name) for name in names]
    heading, *lines = table(*units).splitlines()
    assert heading.split()[:4] == ["run", "started", "pipeline", "unit"]
    at = heading.index("unit")
    assert [line[at:].split()[0][:9] for line in lines] == ["nightly.j", "evil?[2Jx"]
    assert "unit" not in table(*units, width=80)
    assert "unit" not in table(units[0], replace(units[1], unit=names[0]))


def test_what_identifies_a_run_cannot_send_control_codes() -> None:
    evil = replace(USERS[1], identity={"SLURM_JOB_ID": "1\x1b[2J"})
    assert "1?[2J" in table(USERS[0], evil)
    long = replace(USERS[1], identity={"BUILD_TAG": "nightly-42" * 9})
    assert "~" in table(USERS[0], long, ascii_only=True)


def test_a_run_of_another_input_than_usual_says_so_first() -> None:
    larger = replace(
        SUMMARY, wall=51.0, input_bytes=6_000_000, usual_input=1e6, usual_any_input=10.0
    )
    assert "  6.0 × the usual input in 5.1 × the usual time, barrier" in table(larger)
    assert "usual" not in table(replace(larger, input_bytes=1_400_000))


def test_a_run_that_is_slower_than_those_of_its_input_says_both() -> None:
    larger = replace(SUMMARY, wall=9.0, usual=4.0, slower=True, input_bytes=600, usual_input=1e6)
    assert "<0.1 × the usual input, for that ▲ slower: 2.2 × usual" in table(larger)


def test_the_input_has_a_column_if_one_is_known() -> None:
    sized = replace(SUMMARY, id="1", input_bytes=134_000_000)
    heading, known, unknown = table(sized, SUMMARY).splitlines()
    at = heading.index("  input") + len("  input")
    assert (known[:at].split()[-2:], unknown[:at].split()[-1]) == (["134", "MB"], "-")
    bound = table(replace(SUMMARY, input_bytes=134_000_000, input_exact=False))
    assert "≤ 134 MB" in bound


def test_a_run_that_was_seen_in_part_is_marked() -> None:
    assert table(replace(SUMMARY, partial=True, findings=())).endswith("  partial")
    assert "partial, barrier" in table(replace(SUMMARY, partial=True))


def test_a_run_that_is_far_from_its_usual_is_marked() -> None:
    slow = replace(SUMMARY, wall=9.0, usual=4.0, slower=True)
    assert table(slow).endswith("  ▲ slower: 2.2 × usual, barrier, cold-run")
    assert "! slower: 2.2 x usual" in table(slow, ascii_only=True)
    assert "usual" not in table(replace(slow, wall=5.0, slower=False))


def test_what_is_not_known_is_a_dash() -> None:
    line = table(replace(SUMMARY, overlap=None, cache=None, findings=())).splitlines()[1]
    assert line.split()[-1] == "-"
    assert line.count(" - ") == 2


@pytest.mark.parametrize(
    ("later", "shape"),
    [(60.0, "dd:dd:dd"), (3 * 86400.0, "dd-dd dd:dd"), (400 * 86400.0, "dddd-dd-dd")],
)
def test_the_start_is_as_long_as_it_has_to_be(later: float, shape: str) -> None:
    line = table(SUMMARY, now=START + later).splitlines()[1].removeprefix(SUMMARY.id).strip()
    digits = "".join("d" if character.isdigit() else character for character in line)
    assert digits.startswith(shape + "  ")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_line_of_the_list_fits(width: int, ascii_only: bool) -> None:
    long = replace(SUMMARY, pipeline="|".join(["größe"] * 40), findings=("barrier",) * 9)
    text = table(SUMMARY, long, width=width, ascii_only=ascii_only)
    assert all(len(line) <= width for line in text.splitlines())
    assert text.isascii() or not ascii_only
    assert SUMMARY.id in text


def test_a_nested_run_stands_indented_under_the_one_that_encloses_it() -> None:
    job = replace(SUMMARY, id="1700000000000-1", pipeline="job.sh|tee")
    inner = replace(
        SUMMARY, pipeline="seq|sort", nested=True, parent=job.id, parent_pipeline="job.sh|tee"
    )
    many = [replace(inner, id=f"170000000100{n}-7", pipeline="sort|uniq") for n in range(3)]
    for ascii_only, mark in ((False, "└"), (True, "`")):
        below = table(*many, inner, job, ascii_only=ascii_only).splitlines()[2:]
        names = [re.split(r"  +", line)[2] for line in below]
        assert names == [
            f"{mark} 3 x sort|uniq" if ascii_only else f"{mark} 3 × sort|uniq",
            f"{mark} seq|sort",
        ]
    assert "  seq|sort in job.sh|tee  " in table(inner)


def test_names_cannot_harm_the_terminal() -> None:
    assert "\x1b" not in table(replace(SUMMARY, pipeline="a\x1b[2J|b", bottleneck="a\x1b[2J: x"))


def test_runs_that_are_only_counted_stand_below_the_list() -> None:
    counted = CountedRuns(START, 13_845, 345, 0.002, "echo|tr|wc")
    line = counted_line(counted, START).plain
    assert line.startswith("Of 13,845 runs that ended since ")
    assert line.endswith(
        "345 are stored and 13,500 only counted. Half of all took at most about 2.0 ms;"
        " the most frequent pipeline is echo|tr|wc"
    )
    assert counted_line(replace(counted, start=None), START).plain.startswith(
        "Of 13,845 runs that ended, 345"
    )
    until = 3600 * (START // 3600) + 60
    before = counted_line(replace(counted, start=None), START, until=until).plain
    assert before.startswith(f"Of 13,845 runs that ended before {when(until + 3540, START)}, 345")


@pytest.mark.parametrize("start", [-3.6e15, 3.6e15])
def test_a_date_that_no_calendar_has_is_shown_by_one_that_it_has(start: float) -> None:
    counted = CountedRuns(start, 9, 9, 1.0, "sort|wc")
    assert re.match(
        r"Of 9 runs that ended since \d{4}-\d\d-\d\d,", counted_line(counted, START).plain
    )


def test_nested_runs_are_counted_apart_below_the_list() -> None:
    counted = CountedRuns(START, 9, 9, 1.0, "job.sh|tee", nested=1_300, stored_nested=300)
    assert counted_line(counted, START).plain.endswith(
        "is job.sh|tee. Not among these: 1,300 nested runs, of which 300 are stored and 1,000"
        " only counted"
    )


# -- over time


def drawn(run: Run, timeline: Timeline, *, width: int = 100, ascii_only: bool = False) -> list[str]:
    return [line.plain for line in time_lines(run, timeline, width, ascii_only=ascii_only)]


def test_each_stage_has_a_line_and_all_of_them_have_one() -> None:
    run = make_ended(1)
    _, level, cat, sort = drawn(run, make_timeline(run, 4))
    assert level.split()[0] == "level"
    assert cat.strip().startswith("1 cat")
    assert sort.strip().startswith("2 sort")
    assert sort.endswith("max 0.5")


def test_a_bar_is_high_where_the_stage_was_on_cpu() -> None:
    run = make_ended(1, wall=2.0)
    first, second = make_timeline(run, 2)
    idle = replace(first, stages=tuple(replace(stage, states={}) for stage in first.stages))
    busy = replace(
        second, stages=tuple(replace(stage, states={"cpu": 1.0}) for stage in second.stages)
    )
    cat = drawn(run, (idle, busy))[2]
    bars = cat.removeprefix("  1 cat   ").removesuffix("  max 1.0")
    assert bars == " " * 30 + "█" * 30


def test_a_finding_has_a_line_with_when_it_shows() -> None:
    run = make_ended(1, wall=4.0)
    busy, waits = StagePoint({"cpu": 1.0}, 0, 0), StagePoint({"disk": 1.0}, 0, 0)
    levels = (0.0, 1.0, *[0.0] * (len(LEVELS) - 2))
    timeline = tuple(
        Point(run.start + n, run.start + n + 1, levels, (waits if n == 1 else busy, busy))
        for n in range(4)
    )
    found = Finding(
        id="readahead-late", severity="advice", sentence="", advice="", stages=(0,), evidence=()
    )
    for ascii_only, mark in ((False, "━"), (True, "=")):
        lines = time_lines(run, timeline, 100, [found], ascii_only=ascii_only)
        blank = " " * 15
        expected = f"  readahead-late  {blank}{mark * 15}{blank * 2}  1 cat"
        assert lines[-1].plain == expected


def test_a_short_stretch_has_a_mark_and_none_is_past_the_end() -> None:
    run = make_ended(1, wall=300.0)
    busy, waits = StagePoint({"cpu": 1.0}, 0, 0), StagePoint({"disk": 1.0}, 0, 0)
    timeline = tuple(
        Point(run.start + n, run.start + n + 1, (1.0,) * len(LEVELS), (stage, busy))
        for n, stage in enumerate([busy] * 293 + [waits] * 7)
    )
    found = Finding(
        id="readahead-late", severity="advice", sentence="", advice="", stages=(0,), evidence=()
    )
    last = time_lines(run, timeline, 60, [found])[-1].plain
    assert last.count("━") == 1
    assert last.endswith("━  1 cat")


def test_points_of_any_length_keep_their_sum() -> None:
    run = make_ended(1, wall=7.0)
    for count in (2, 3, 59, 61, 300):
        cat = drawn(run, make_timeline(run, count))[2]
        assert cat.endswith("max 0.0")


def test_one_point_is_no_time_line() -> None:
    run = make_ended(1)
    assert drawn(run, make_timeline(run)) == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_line_over_time_fits(width: int, ascii_only: bool) -> None:
    run = make_ended(1, "|".join(["größe-und-länge"] * 30))
    lines = drawn(run, make_timeline(run, 50), width=width, ascii_only=ascii_only)
    assert all(len(line) <= width for line in lines)
    assert all(line.isascii() for line in lines) or not ascii_only
    assert len(lines) == 2 + 8


@pytest.mark.parametrize("width", WIDTHS)
def test_a_finding_at_a_stage_whose_name_is_wide_fits(width: int) -> None:
    run = make_ended(1, "cat|処理処理処理", wall=4.0)
    waits, busy = StagePoint({"disk": 1.0}, 0, 0), StagePoint({"cpu": 1.0}, 0, 0)
    levels = (0.0, 1.0, *[0.0] * (len(LEVELS) - 2))
    points = (Point(run.start + n, run.start + n + 1, levels, (busy, waits)) for n in range(4))
    found = Finding(
        id="readahead-late", severity="advice", sentence="", advice="", stages=(1,), evidence=()
    )
    lines = time_lines(run, tuple(points), width, [found])
    assert "━" in lines[-1].plain
    assert max(line.cell_len for line in lines) <= width


def test_only_the_busiest_of_many_stages_are_drawn() -> None:
    stages = [make_stage(n, f"stage{n}", cpu=n / 100) for n in range(1, 13)]
    run = replace(make_ended(1), stages=tuple(stages))
    lines = drawn(run, make_timeline(run, 2))
    assert [line.split()[0] for line in lines[2:]] == [str(n) for n in range(5, 13)]


# -- the commands


def record(directory: Path, *runs: Run) -> Path:
    history = History(directory, host=Host(2, None), max_age=1e12)
    for run in runs:
        history.sink.put(make_finished(run))
    history.sink.start()
    history.sink.close(20)
    return directory


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    runs = (make_ended(1), make_ended(2, "seq|wc", partial=True), make_ended(3))
    return record(tmp_path / "state", *runs)


@pytest.fixture
def pipelined(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What a command prints; it ends with the given status."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PIPELINED_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STATE_DIRECTORY", str(recorded))

    def run(*words: str, status: int = 0) -> str:
        assert cli._guarded(list(words)) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return run


def test_runs_lists_the_newest_first(pipelined: Callable[..., str]) -> None:
    lines = pipelined("runs").splitlines()[1:]
    assert [line.split()[0] for line in lines] == [make_ended(n).id for n in (3, 2, 1)]


def test_runs_says_when_there_are_more(pipelined: Callable[..., str]) -> None:
    assert pipelined("runs", "--limit", "2").splitlines()[-1] == "There are more: --limit 4"
    assert "more" not in pipelined("runs", "--limit", "3")


def test_many_equal_runs_inside_one_do_not_hide_the_others(
    pipelined: Callable[..., str], recorded: Path
) -> None:
    job = make_ended(10, "job.sh|tee", wall=600.0)
    inner = [make_inside(job, n, "sort|uniq") for n in range(20, 170)]
    record(recorded, job, *inner)
    lines = pipelined("runs", "--limit", "5").splitlines()[1:]
    assert ["└ 150 × sort|uniq" in line for line in lines] == [False, True, False, False, False]
    assert [job.id, *[make_ended(n).id for n in (3, 2, 1)]] == [
        line.split()[0] for line in lines if "uniq" not in line
    ]


def test_runs_of_one_pipeline_have_a_line_each(
    pipelined: Callable[..., str], recorded: Path
) -> None:
    job = make_ended(10, "job.sh|tee", wall=600.0)
    record(recorded, job, *[make_inside(job, n, "sort|uniq") for n in range(20, 30)])
    lines = pipelined("runs", "--pipeline", "sort|uniq").splitlines()[1:]
    assert len(lines) == 10
    assert all("sort|uniq in job.sh|tee" in line for line in lines)


def test_runs_lists_the_longest_first_each_in_its_own_line(
    pipelined: Callable[..., str], recorded: Path
) -> None:
    job = make_ended(10, "job.sh|tee", wall=600.0)
    inner = [make_inside(job, n, "sort|uniq", wall=float(n)) for n in (20, 21, 22)]
    record(recorded, job, make_ended(40, "zcat|wc", wall=21.5), *inner)
    lines = pipelined("runs", "--sort", "wall", "--limit", "5").splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [
        make_ended(n).id for n in (10, 22, 40, 21, 20)
    ]
    assert ["sort|uniq in job.sh|tee" in line for line in lines[1:-1]] == [
        *(False, True, False, True, True)
    ]
    assert lines[-1] == "There are more: --limit 10"
    listed = json.loads(pipelined("runs", "--sort", "wall", "--limit", "5", "--json"))
    assert [run["wall_seconds"] for run in listed["runs"]] == [600.0, 22.0, 21.5, 21.0, 20.0]
    assert listed["next"] == f"20.0:{inner[0].id}"
    whole = pipelined("runs", "--sort", "wall", "--top-level").splitlines()[1:]
    assert [line.split()[0] for line in whole] == [make_ended(n).id for n in (10, 40, 3, 2, 1)]


def test_the_default_order_can_be_named(pipelined: Callable[..., str]) -> None:
    assert pipelined("runs", "--sort", "start") == pipelined("runs")


def test_a_history_without_a_run_says_so_in_every_order(
    pipelined: Callable[..., str], tmp_path: Path
) -> None:
    empty = str(record(tmp_path / "empty"))
    assert pipelined("runs", "--sort", "wall", "--state-directory", empty) == "no run yet\n"


def test_runs_filters(pipelined: Callable[..., str]) -> None:
    filtered = json.loads(pipelined("runs", "--command", "wc", "--json"))
    assert [run["pipeline"] for run in filtered["runs"]] == ["seq|wc"]
    since = json.loads(pipelined("runs", "--since", str(START + 2), "--limit", "1", "--json"))
    assert [run["id"] for run in since["runs"]] == [make_ended(3).id]
    assert since["next"] == make_ended(3).id


def test_runs_are_filtered_by_duration_level_and_what_is_usual(
    pipelined: Callable[..., str], recorded: Path
) -> None:
    job = make_ended(50, "job.sh|tee", wall=600.0)
    usual = [make_ended(n, "zcat|sort", wall=2.0) for n in range(10, 30, 4)]
    record(recorded, job, make_inside(job, 60), *usual, make_ended(40, "zcat|sort", wall=5.0))

    def ids(*words: str) -> list[str]:
        return [run["id"] for run in json.loads(pipelined("runs", *words, "--json"))["runs"]]

    assert ids("--min-duration", "1m") == [job.id]
    assert make_inside(job, 60).id not in ids("--top-level")
    assert ids("--slower") == [make_ended(40).id]
    assert ids("--failed") == []
    assert "▲ slower: 2.5 × usual" in pipelined("runs", "--slower")


def test_runs_that_have_failed_are_marked_and_found(
    pipelined: Callable[..., str], recorded: Path
) -> None:
    def ended(number: int, result: str, **given: Any) -> Run:
        run = make_ended(number, wall=30.0)
        first, second = run.stages
        stages = (first, replace(second, exit=Exit(**given)))
        return replace(run, stages=stages, outcome=Outcome(result, (1,)))

    failed, stopped = ended(50, "failed", code=3), ended(60, "interrupted", signal="SIGINT")
    record(recorded, failed, stopped)

    def ids(*words: str) -> list[str]:
        return [run["id"] for run in json.loads(pipelined("runs", *words, "--json"))["runs"]]

    assert ids("--interrupted") == [stopped.id]
    assert ids("--failed", "--interrupted") == [stopped.id, failed.id]
    (found,) = json.loads(pipelined("runs", "--failed", "--json"))["runs"]
    assert (found["id"], found["outcome"], found["failure"]) == (
        failed.id,
        "failed",
        "sort: exit 3",
    )
    assert "failed (sort: exit 3)" in pipelined("runs")
    assert "interrupted (sort: SIGINT)" in pipelined("runs")
    assert "Failed: sort exited with 3 after" in pipelined("show", failed.id)
    assert "Try:" not in pipelined("show", failed.id)


def test_runs_that_fit_nothing_say_so(pipelined: Callable[..., str]) -> None:
    assert pipelined("runs", "--unit", "no.service") == "no finished run matches\n"
    assert json.loads(pipelined("runs", "--unit", "no.service", "--json"))["runs"] == []


def test_a_finding_that_is_not_known_may_be_misspelled(pipelined: Callable[..., str]) -> None:
    nothing = "no finished run matches"
    assert pipelined("runs", "--finding", "tac-reads-on") == (
        f"{nothing}; no finding has the id 'tac-reads-on': did you mean reads-on?\n"
    )
    assert pipelined("runs", "--finding", "zzz") == (
        f"{nothing}; no finding has the id 'zzz': see docs/FINDINGS.md\n"
    )
    assert pipelined("runs", "--finding", "reads-on") == f"{nothing}\n"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("runs", "--since", "soon"), 2, "--since: 'soon' is not a moment such as 2h"),
        (("runs", "--limit", "0"), 2, "--limit"),
        (("runs", "--sort", "cpu"), 2, "--sort"),
        (("runs", "--min-duration", "long"), 2, "--min-duration: 'long' is not a duration such"),
        (("pipelines", "--since", "soon"), 2, "--since: 'soon' is not a moment such as 2h"),
        (("pipelines", "--sort", "name"), 2, "--sort"),
        (("pipelines", "--state-directory", "/none"), 1, "there is no history in /none"),
        (("runs", "--state-directory", "/none"), 1, "there is no history in /none"),
        (("show", "99"), 1, "there is no run 99; pipelined runs lists"),
        (("show", "17"), 1, "several runs begin with 17"),
    ],
)
def test_a_mistake_is_one_line(
    pipelined: Callable[..., str], words: tuple[str, ...], status: int, message: str
) -> None:
    printed = pipelined(*words, status=status)
    assert message in printed
    assert printed.count("\n") == 1


def test_a_history_that_may_not_be_read_is_one_line(
    pipelined: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", refuse)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    printed = pipelined("runs", status=1)
    assert printed.endswith("history.db: permission denied; run it as root\n")
    assert printed.count("\n") == 1


def test_show_prints_the_report(pipelined: Callable[..., str]) -> None:
    report = pipelined("show", make_ended(2).id)
    assert report.startswith("seq|wc   1.0 s wall")
    assert "partial" in report.splitlines()[0]
    # how many events the daemon lost meanwhile is not recorded
    assert "lost" not in report


def test_show_says_how_a_run_compares_with_its_usual_before_the_verdict(
    recorded: Path, pipelined: Callable[..., str]
) -> None:
    usual = [make_ended(n, "zcat|sort", wall=2.0) for n in range(10, 30, 4)]
    record(recorded, *usual, make_ended(40, "zcat|sort", wall=5.0))
    headline, words, empty, *_ = pipelined("show").splitlines()
    assert headline.startswith("zcat|sort   5.0 s wall")
    assert (words, empty) == ("  ▲ slower: 2.5 × usual", "")
    assert " usual" not in pipelined("show", usual[0].id)


def test_show_takes_the_last_run_if_none_is_named(pipelined: Callable[..., str]) -> None:
    assert pipelined("show") == pipelined("show", make_ended(3).id)


def test_show_as_json_is_the_api(pipelined: Callable[..., str]) -> None:
    described = json.loads(pipelined("show", "last", "--json"))
    assert described["id"] == make_ended(3).id
    assert isinstance(described["findings"], list)
    assert len(described["timeline"]) == 1
    assert "arguments" not in described["stages"][0]


def test_a_directory_can_be_named(
    pipelined: Callable[..., str], recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STATE_DIRECTORY")
    assert make_ended(3).id in pipelined("runs", "--state-directory", str(recorded))


def test_reading_works_beside_a_writer(pipelined: Callable[..., str], recorded: Path) -> None:
    with Store(recorded, max_age=1e12, max_bytes=1 << 30) as store:
        assert store.rows == 3
        assert make_ended(3).id in pipelined("runs")
        assert (recorded / f"{FILE_NAME}-wal").exists()
