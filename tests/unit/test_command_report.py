# SPDX-License-Identifier: Apache-2.0
"""The report of a whole command: when it has one, its words, its table, what is in full."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from pipelined.analysis.machine import Costs, Host
from pipelined.analysis.rewriting import Script
from pipelined.analysis.script_lines import ScriptFile
from pipelined.run.child import Ended
from pipelined.run.profile import Profile, report_order
from pipelined.runs import Exit, OtherPipeline, Outcome, Run, Series, Surroundings
from pipelined.terminal import command_report
from pipelined.terminal.command_report import write_report
from unit.invented import (
    START,
    make_barrier,
    make_inside,
    make_run,
    make_stage,
    make_timeline,
)

NIGHTLY = ("./nightly.sh", "--full")


@pytest.fixture(autouse=True)
def a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its CPUs and costs are those of no real one."""
    costs = Costs(
        fork_seconds=0.0002, program_seconds=0.0008, call_seconds=3e-7, switch_seconds=4e-6
    )
    monkeypatch.setattr(command_report, "this_host", lambda: Host(2, 1 << 20, costs))


def make(number: int, at: float, wall: float, pipeline: str = "echo|cut", **given: Any) -> Run:
    stages = [
        make_stage(n, command, cpu=wall * (0.9 if n == 1 else 0.1), pipe_empty=wall * 0.1)
        for n, command in enumerate(pipeline.split("|"), 1)
    ]
    values: dict[str, Any] = {
        "id": f"{1000 * number}-{number}",
        "start": START + at,
        "end": START + at + wall,
    }
    return make_run(stages, wall, **values | given)


def a_sort(at: float = 0.9, wall: float = 1.4) -> Run:
    stage = make_stage(1, "sort", cpu=wall, read_bytes=1 << 24, read_calls=500)
    return make_run([stage], wall, id="2000-2", start=START + at, end=START + at + wall)


def nightly() -> list[Run]:
    """A pipeline, a sort on its own, and a loop."""
    loop = [make(n, 2.3 + n * 0.006, 0.00475) for n in range(3, 403)]
    return [make(1, 0.0, 0.9, "zcat|awk|sort"), a_sort(), *loop]


def report(
    *runs: Run,
    wall: float,
    cpu: float = 1.0,
    width: int = 100,
    lost: Mapping[str, int] | None = None,
    encoding: str = "utf-8",
    status: int = 0,
    **given: Any,
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n")
    values: dict[str, Any] = {
        "arguments": NIGHTLY,
        "lost": lost or {"stages": 0, "runs": 0},
    } | given
    found = Profile(ended=Ended(status, START, wall, cpu), runs=tuple(report_order(runs)), **values)
    write_report(found, Console(file=file, width=width))
    file.flush()
    return raw.getvalue().decode(encoding)


def table(text: str) -> list[str]:
    """The lines of the table of parts, with what to try, but not the heading."""
    lines = text.splitlines()
    begin = next(n for n, line in enumerate(lines) if line.split()[:2] == ["part", "wall"])
    return lines[begin + 1 : lines.index("", begin)]


# -- over time


def test_a_run_that_was_seen_over_time_has_lanes_below_its_report() -> None:
    run = make(1, 0.0, 1.0, "cat|awk")
    text = report(run, wall=1.05, timelines={run.id: make_timeline(run, 40)})
    over_time = text[text.index("  over time:") :].splitlines()
    assert [line.split()[:2] for line in over_time[2:4]] == [["1", "cat"], ["2", "awk"]]


def test_a_run_of_one_point_has_no_lanes() -> None:
    run = make(1, 0.0, 1.0, "cat|awk")
    assert "over time" not in report(run, wall=1.05, timelines={run.id: make_timeline(run, 1)})


# -- when there is one


@pytest.mark.parametrize(("took", "wall"), [(1.0, 1.05), (1.0, 1.49), (10.0, 11.1)])
def test_one_pipeline_has_the_report_of_a_run_and_nothing_else(took: float, wall: float) -> None:
    text = report(make(1, 0.0, took, "cat|awk"), wall=wall)
    assert text.startswith("cat|awk   ")
    assert "share" not in text


def test_a_pipeline_with_one_inside_has_both_reports_and_no_table() -> None:
    outer = make(1, 0.0, 2.0, "job.sh|tee")
    text = report(outer, make_inside(outer, 1, wall=1.0), wall=2.0)
    assert text.startswith("job.sh|tee   2.0 s wall")
    assert "share" not in text
    assert "\ncat|sort" not in text
    assert "\nseq|sort   1.0 s wall" in text


@pytest.mark.parametrize("wall", [1.41, 6.0])
def test_a_pipeline_that_was_a_part_of_the_command_is_reported_as_one(wall: float) -> None:
    text = report(make(1, 0.1, 0.9, "cat|awk"), wall=wall)
    assert text.startswith("./nightly.sh --full   ")
    assert "1 run covers 0.90 s, " in text
    assert "\ncat|awk   0.90 s wall" in text
    assert "In full" not in text  # all of them are


def test_the_bottleneck_of_several_runs_is_that_of_most_of_their_time() -> None:
    waiting = make_stage(1, "echo", cpu=0.1, runqueue=0.9)
    outlier = make_run(
        [waiting, make_stage(2, "cut", pipe_empty=1.0)],
        1.0,
        id="o",
        start=START + 9.0,
        end=START + 10.0,
    )
    loop = [make(n, n * 0.5, 0.4) for n in range(10)]
    (row,) = [line for line in table(report(*loop, outlier, wall=10.0)) if "11 ×" in line]
    assert row.endswith("echo: CPU (80 %)")


def test_two_pipelines_one_after_the_other_are_parts() -> None:
    text = report(make(1, 0.0, 1.0, "cat|awk"), make(2, 1.0, 1.0, "cat|sed"), wall=2.0)
    assert text.startswith("./nightly.sh --full   2.0 s wall")


def test_a_command_without_runs_has_one_line_with_what_it_took() -> None:
    text = report(wall=2.1, cpu=2.0)
    assert text.startswith("pipelined: no pipeline seen: in 2.1 s with 2.0 s of CPU no two ")
    assert text.count("\n") == 1


# -- the first lines


def test_the_first_line_is_of_the_command() -> None:
    first = report(*nightly(), wall=4.9, cpu=5.4).splitlines()[0]
    assert first == "./nightly.sh --full   4.9 s wall   5.4 s CPU   1.1 cores used   0 lost"


def test_a_command_for_a_shell_is_named_as_it_was_given() -> None:
    text = "sort a\nsort b"
    given = {"arguments": ("bash", "-c", text), "script": Script(text)}
    assert report(*nightly(), wall=4.9, **given).startswith("sort a sort b   4.9 s wall")
    given = {"arguments": ("zsh", "-c", text), "script": None}
    assert report(*nightly(), wall=4.9, **given).startswith("zsh -c 'sort a sort b'   4.9 s wall")


def test_a_long_command_has_a_line_of_its_own() -> None:
    first, second, *_ = report(*nightly(), wall=4.9, width=60, arguments=("x" * 99,)).splitlines()
    assert first == "x" * 59 + "…"
    assert second.startswith("  4.9 s wall   1.0 s CPU")


def test_control_codes_of_the_command_do_not_reach_the_terminal() -> None:
    assert report(*nightly(), wall=4.9, arguments=("a\x1b[2Jb",)).startswith("'a?[2Jb'   ")


def test_what_the_runs_cover_and_the_rest_add_up() -> None:
    text = " ".join(report(*nightly(), wall=4.9, cpu=5.4).split())
    assert "402 runs cover 4.2 s, 86 % of the wall time." in text
    # on CPU: 0.99 s in the pipeline, 1.4 s in sort, 1.9 s in the loop
    assert "The rest, 0.70 s with 1.1 s of CPU: the shell, " in text
    assert "at the same time" not in text


def test_runs_at_the_same_time_are_named_as_such() -> None:
    runs = [make(1, 0.0, 2.0, "cat|awk"), make(2, 0.0, 2.0, "cat|sed")]
    text = " ".join(report(*runs, wall=2.0).split())
    assert "2 runs cover 2.0 s, 100 % of the wall time." in text
    assert "Some ran at the same time: together they took 4.0 s." in text


def test_cpu_of_what_was_not_waited_for_makes_no_negative_rest() -> None:
    assert "The rest, 0.60 s with 0 s of CPU:" in " ".join(
        report(*nightly(), wall=4.8, cpu=0.5).split()
    )


def test_runs_that_were_not_kept_are_counted_and_are_no_lost_events() -> None:
    text = report(*nightly(), wall=4.9, lost={"stages": 0, "runs": 2345})
    assert "0 lost" in text.splitlines()[0]
    assert "2,345 more runs were not kept" in " ".join(text.split())


def test_lost_events_are_counted() -> None:
    assert "7 lost" in report(*nightly(), wall=4.9, lost={"stages": 7}).splitlines()[0]


# -- what failed


def killed(run: Run, result: str = "failed") -> Run:
    """The run, whose last stage was killed."""
    exit_ = Exit(signal="SIGKILL" if result == "failed" else "SIGTERM")
    last = replace(run.stages[-1], exit=exit_, outcome=result)
    outcome = Outcome(result, (len(run.stages) - 1,))
    return replace(run, stages=(*run.stages[:-1], last), outcome=outcome)


def test_a_part_that_failed_is_marked() -> None:
    first, sort, *loop = nightly()
    for width in (60, 80, 100):
        text = report(killed(first), sort, *loop, wall=4.9, width=width)
        (row,) = [line for line in table(text) if line.startswith("  zcat|")]
        assert "failed (sort: SIGKILL)"[: 60 if width > 60 else 12] in row
        assert all(len(line) <= width for line in text.splitlines())
    assert "outcome" not in report(first, sort, *loop, wall=4.9)


def test_of_several_runs_those_that_failed_are_counted_and_one_is_named() -> None:
    first, sort, *loop = nightly()
    loop[5:8] = [killed(loop[5]), killed(loop[6]), killed(loop[7], "interrupted")]
    lines = table(report(first, sort, *loop, wall=4.9))
    index = next(n for n, line in enumerate(lines) if "400 ×" in line)
    assert "2 failed, 1 interrupted" in lines[index]
    assert lines[index + 1].strip() == "Failed: cut: SIGKILL, run 8000-8 and 2 more"
    assert "Try: one awk" in lines[index + 2]


def test_the_exit_status_of_the_command_is_said_if_it_is_not_0() -> None:
    first = report(*nightly(), wall=4.9, cpu=5.4, status=3).splitlines()[0]
    assert first.startswith("./nightly.sh --full   exit status 3   4.9 s wall")
    said = "pipelined: the command's exit status is 137"
    assert report(make(1, 0.0, 1.0), wall=1.0, status=137).splitlines()[-1] == said
    assert report(wall=1.0, status=137).splitlines()[-1] == said
    assert "exit status" not in report(make(1, 0.0, 1.0), wall=1.0)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (126, "as a shell does if a command cannot be run"),
        (127, "as a shell does if a command is not found"),
    ],
)
def test_that_a_command_was_not_run_is_said_first(status: int, words: str) -> None:
    said = f"pipelined: the command's exit status is {status} ({words})"
    for text in (
        report(make(1, 0.0, 1.0), wall=1.0, status=status),
        report(wall=1.0, status=status),
    ):
        assert text.splitlines()[0] == said
        assert text.count("exit status") == 1


# -- the table


def test_parts_are_ranked_with_their_share_and_bottleneck() -> None:
    rows = [line.split() for line in table(report(*nightly(), wall=4.9)) if "Try" not in line]
    names = ["400 × echo|cut", "sort", "zcat|awk|sort"]
    found = [" ".join(row) for row in rows if row[0] in ("400", "sort", "zcat|awk|sort")]
    assert [any(line.startswith(name) for line in found) for name in names] == [True] * 3
    assert found[0].startswith("400 × echo|cut 1.9 s 39 % 1.9 s 4.8 ms")
    assert found[1] == "sort 1.4 s 29 % 1.4 s 1.4 s sort: CPU 100 %"
    assert found[2].startswith("zcat|awk|sort 0.90 s 18 % ")


def test_parts_have_the_lines_of_the_script() -> None:
    text = "#!/bin/sh\nzcat f | awk 1 | sort\nsort g\n"
    found = report(*nightly(), wall=4.9, file=ScriptFile(Script(text)))
    assert found.count(" line ") == 1
    rows = [line.split() for line in found.splitlines()]
    assert ["zcat|awk|sort", "2", "0.90", "s"] in [row[:4] for row in rows]
    assert ["sort", "3", "1.4", "s"] in [row[:4] for row in rows]
    assert ["echo|cut", "1.9", "s"] in [row[2:5] for row in rows]  # a loop
    often = text + "zcat f | awk 1 | sort\n" * 3
    found = report(*nightly(), wall=4.9, file=ScriptFile(Script(often)))
    rows = [line.split() for line in found.splitlines()]
    assert ["zcat|awk|sort", "2,", "4,", "…", "0.90", "s"] in [row[:6] for row in rows]


def test_a_command_that_several_lines_begin_with_is_named_before_the_parts() -> None:
    lines = [f"zcat f | {reader}" for reader in ("wc", "sort", "uniq")]
    file = ScriptFile(Script("\n".join(lines)))
    runs = [make(n, float(n), 1.0, line.replace(" f | ", "|")) for n, line in enumerate(lines)]
    for encoding in ("utf-8", "ascii"):
        text = report(*runs, wall=3.0, encoding=encoding, file=file)
        said = text.index(
            "  zcat f ran 3 times (lines 1, 2 and 3) and used 2.7 s of CPU. Try: run it"
        )
        assert text.index("3 runs cover") < said < text.index("\n  part ")
    assert "run it" not in report(*runs, wall=3.0)


def on_a_busy_host(number: int, at: float) -> Run:
    stages = [
        make_stage(1, "cat", cpu=0.1, pipe_full=0.9),
        make_stage(2, "sort", cpu=0.2, runqueue=0.5, pipe_empty=0.3),
    ]
    around = Surroundings(1.9, None, (OtherPipeline("tar|xz", 0.9),))
    run = make(number, at, 1.0, "cat|sort")
    return replace(run, stages=tuple(stages), surroundings=around)


def test_that_the_host_was_busy_is_said_once_for_all_runs() -> None:
    text = report(on_a_busy_host(1, 0.0), on_a_busy_host(2, 1.0), make(3, 2.0, 1.0), wall=3.0)
    assert " ".join(text.split()).count("The host was busy") == 1
    assert (
        "The host was busy: 2 of the 3 runs inside no other waited for CPUs that others used "
        "(busiest: tar|xz), which cost at most 1.0 s of 3.0 s."
    ) in " ".join(text.split())


def test_on_a_quiet_host_nothing_is_said_of_it() -> None:
    assert "busy" not in report(make(1, 0.0, 1.0), make(2, 1.0, 1.0), wall=2.0)


def test_what_to_try_stands_below_its_part_with_what_it_is_likely_to_save() -> None:
    lines = table(report(*nightly(), wall=4.9))
    loop, sort = (
        next(n for n, line in enumerate(lines) if name in line) for name in ("echo", "  sort")
    )
    tried = " ".join(" ".join(lines[loop + 1 : sort]).split())
    assert tried == (
        "Try: one awk in place of the loop, or one program that treats all lines."
        " Likely saves 0.81 s of 4.9 s. [fork-storm]"
    )
    assert lines[sort + 1].strip().startswith("Try: ")


def test_a_gain_in_some_of_the_runs_says_in_how_many() -> None:
    runs = [make_barrier(1, 0.0, 1.0), make_barrier(2, 1.0, 0.05)]
    tried = " ".join(" ".join(table(report(*runs, wall=1.1))).split())
    assert re.search(r"Likely saves \d\d ms of 1\.1 s in 1 of 2 runs\. \[barrier\]", tried)


def test_nested_parts_are_indented_under_theirs() -> None:
    outer = make(1, 0.0, 2.0, "bash|tee")
    place: dict[str, Any] = {
        "parent": outer.id,
        "series": Series(pipeline="seq|sort", nested=True, unit="-"),
    }
    inner = [make(n, 0.0, 0.5, "seq|sort", **place) for n in range(2, 5)]
    rows = [line for line in table(report(outer, *inner, wall=2.0)) if "Try" not in line]
    assert rows[0].startswith("  bash|tee   ")
    assert any(row.startswith("  └ 3 × seq|sort") and "75 %" in row for row in rows)


def test_a_long_table_is_cut_and_says_so() -> None:
    runs = [make(n, n, 1.0, f"command-{n}|cat") for n in range(50)]
    rows = table(report(*runs, wall=50.0))
    assert rows[-1] == "  30 more parts; --json has them"
    assert len([row for row in rows if "command-" in row]) == 20


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_every_line_fits_the_width(width: int, encoding: str) -> None:
    long = [make(n, 5 + n, 1.0, f"größe-with-a-name-{n}|another|third") for n in range(9)]
    text = report(*nightly(), *long, wall=16.0, width=width, encoding=encoding)
    assert max(map(len, text.splitlines())) <= width
    names = [row for row in table(text) if row.startswith("  gr")]
    assert len(names) == 9
    assert all("%" in row for row in names)


def test_a_terminal_without_utf8_gets_ascii() -> None:
    assert "  400 x echo|cut" in report(*nightly(), wall=4.9, encoding="ascii")


# -- in full


def test_the_longest_runs_follow_in_full_with_their_ids() -> None:
    text = report(*nightly(), wall=4.9)
    words = "In full: the longest run of sort and zcat|awk|sort. --json has all 402.\n"
    full = text[text.index(words) :]
    assert [line.split()[1] for line in full.splitlines() if line.startswith("  run ")] == [
        "2000-2",
        "1000-1",
    ]
    assert "lost" not in full  # of the whole command, and above


def test_of_many_long_runs_three_are_in_full() -> None:
    runs = [make(n, n, 1.0 + n / 10, f"cat|awk{n}") for n in range(1, 8)]
    text = report(*runs, wall=12.0)
    assert [line.split()[0] for line in text.splitlines() if " cores used   overlap" in line] == [
        "cat|awk7",
        "cat|awk6",
        "cat|awk5",
    ]


def test_the_longest_run_is_in_full_however_short_it_is() -> None:
    runs = [make(n, n * 0.01, 0.002 if n != 7 else 0.003) for n in range(1, 50)]
    text = report(*runs, wall=9.0)
    assert [line.split()[1] for line in text.splitlines() if line.startswith("  run ")] == [
        "7000-7"
    ]
