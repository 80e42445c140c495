# SPDX-License-Identifier: Apache-2.0
"""The terminal report: its lines, its widths, its plain and its coloured form."""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Host
from pipelined.analysis.rewriting import Script
from pipelined.runs import (
    PAGE_CLASSES,
    STATES,
    Child,
    Container,
    Endpoint,
    Exit,
    Identity,
    OtherPipeline,
    Outcome,
    ParentSpan,
    Pod,
    Run,
    Series,
    Stage,
    Stalls,
    StallSeconds,
    Surroundings,
    Trace,
)
from pipelined.terminal.drawing import bar, printable_run, shorten
from pipelined.terminal.run_report import TRIED, lines, render
from pipelined.wording import data_size, mean_size, printable
from unit import invented
from unit.invented import START, make_functions, make_readahead

MB = 1_000_000


def make_stage(
    position: int,
    command: str,
    data: tuple[int, int] = (0, 0),
    calls: tuple[int, int] = (0, 0),
    **states: float,
) -> Stage:
    return invented.make_stage(
        position,
        command,
        end=START + sum(states.values()),
        read_bytes=data[0],
        written_bytes=data[1],
        read_calls=calls[0],
        write_calls=calls[1],
        **states,
    )


@pytest.fixture
def run() -> Run:
    """The pipeline of the design's example: sort is a barrier in the middle."""
    stages = (
        make_stage(
            1, "zcat", (3_600_000, 96_900_000), (110, 2957), cpu=0.6, pipe_full=3.5, runqueue=0.1
        ),
        make_stage(
            2, "sort", (96_900_000, 96_900_000), (1480, 23650), cpu=4.0, pipe_empty=0.6, disk=1.0
        ),
        make_stage(3, "awk", (96_900_000, 8_400_000), (1480, 2050), cpu=0.3, pipe_empty=5.3),
        make_stage(4, "uniq", (8_400_000, 200_000), (130, 50), cpu=0.1, pipe_empty=5.5),
    )
    return invented.make_run(
        stages,
        5.6,
        id="7-1",
        end=START + 5.6,
        levels=(0.34, 4.82, 0.39, 0.05, 0, 0, 0, 0, 0),
        disk_overlapped_seconds=0.4,
        disk_alone_seconds=0.6,
    )


def text_of(
    run: Run,
    width: int = 100,
    lost: int = 0,
    *,
    ascii_only: bool = False,
    host: Host | None = None,
) -> str:
    found = lines(run, lost, width, ascii_only=ascii_only, host=host)
    return "\n".join(line.plain for line in found)


HOST = Host(cores=4, l2_bytes=1 << 20)


def unwrapped(text: str) -> str:
    """The text with each fact on one line."""
    return re.sub(r"\n {10}(?! )", " ", text)


def branches(run: Run, count: int) -> Run:
    filters = [replace(make_stage(5, "bash", cpu=5.0), pid=900 + n) for n in range(count)]
    return replace(run, stages=(*run.stages, *filters))


def test_the_first_line_holds_signature_and_headline_figures(run: Run) -> None:
    assert text_of(run).splitlines()[0] == (
        "zcat|sort|awk|uniq   5.6 s wall   0.9 cores used   overlap 8 %   0 lost"
    )


def test_a_busy_host_is_named_directly_below_the_headline(run: Run) -> None:
    sort = replace(run.stages[1], states={**run.stages[1].states, "cpu": 1.6, "runqueue": 2.4})
    others = Surroundings(3.5, None, (OtherPipeline("tar|xz", 9.0),))
    busy = replace(run, stages=(run.stages[0], sort, *run.stages[2:]), surroundings=others)
    headline, notice, cost, empty, verdict, *_ = text_of(busy, host=Host(4, None)).splitlines()
    assert headline.startswith("zcat|sort|awk|uniq   5.6 s wall")
    assert notice == (
        "  The host was busy: sort waited 43 % of the run for a CPU that others used "
        "(busiest: tar|xz), which"
    )
    assert cost == "  cost at most 2.4 s of 5.6 s."
    assert (empty, verdict.lstrip()[:4]) == ("", "sort")
    assert "busy" not in text_of(run, host=Host(4, None))


def test_pipes_and_files_are_reported_if_functions_are_hooked(run: Run) -> None:
    assert "  pipes" not in text_of(run) and "  files" not in text_of(run)
    first, *rest = run.stages
    text = text_of(replace(run, stages=(replace(first, functions=make_functions()), *rest)))
    assert (
        "pipes   half of the writes of zcat up to 4 KiB, into a pipe of 64 KiB that was 52 % full "
        "on average\n"
    ) in unwrapped(text)
    assert "files   half of the reads of zcat up to 128 B, 99 % of them within 0.27 s" in text


def test_the_verdict_comes_before_the_table(run: Run) -> None:
    text = text_of(run)
    assert 0 < text.index("sort is the bottleneck") < text.index("longest wait")


def test_what_to_try_comes_right_under_the_verdict(run: Run) -> None:
    text = text_of(run, host=HOST)
    assert (
        "Try: put awk before sort, if it takes each line by itself and passes on lines as they are "
        "(uniq behind it needs the order of sort) and sort has neither -u nor -m. It passes on 9 % "
        "of the bytes. What awk does with a line is not known here. Likely saves 0.37 s of 5.6 s. "
        "[barrier]"
    ) in " ".join(text.split())
    assert text.index("sort is the bottleneck") < text.index("Try:") < text.index("longest wait")


def test_a_bound_that_is_nearly_all_of_the_run_is_not_shown(run: Run) -> None:
    advised = " ".join(text_of(replace(run, wall_seconds=4.0), host=HOST).split())
    assert "[barrier]" in advised and "at most" not in advised


def test_the_command_to_try_stands_on_a_line_of_its_own_that_is_not_broken(run: Run) -> None:
    script = Script(f"zcat {'long/' * 30}f.gz | sort | awk '{{ print $1 }}' | uniq", locale="C")
    shown = lines(run, 0, 80, host=HOST, script=script)
    (line,) = [line.plain.strip() for line in shown if "pipelined compare" in line.plain]
    assert line in [found.command for found in findings(run, HOST, script)]
    assert shlex.split(line)[-2] == script.text


def test_a_command_that_the_terminal_cannot_print_is_not_shown(run: Run) -> None:
    script = Script("zcat grün.gz | sort | awk '{ print $1 }' | uniq", locale="C")
    assert "grün" in "\n".join(x.plain for x in lines(run, 0, 80, host=HOST, script=script))
    plain = lines(run, 0, 80, host=HOST, script=script, ascii_only=True)
    assert not any("pipelined compare" in line.plain for line in plain)


def test_without_a_machine_nothing_is_tried(run: Run) -> None:
    assert "Try:" not in text_of(run)


def test_only_the_first_findings_say_what_to_try(run: Run) -> None:
    storm = {"exited_children": 500, "children_lifetime_seconds": 1.0}
    many = replace(run, stages=tuple(replace(stage, **storm) for stage in run.stages))
    assert sum(finding.advice != "" for finding in findings(many, HOST)) > TRIED
    assert text_of(many, host=HOST).count("Try:") == TRIED


def test_names_in_what_to_try_cannot_send_control_codes(run: Run) -> None:
    first, sort, awk, last = run.stages
    evil = replace(awk, command="awk", pid=1), replace(last, command="un\x1biq")
    assert "\x1b" not in text_of(replace(run, stages=(first, sort, *evil)), host=HOST)


def test_a_row_shows_where_a_stages_time_went(run: Run) -> None:
    row = next(line for line in text_of(run, 120).splitlines() if line.startswith("  1  zcat"))
    assert "0.60 s" in row and "pipe full 62 %" in row
    assert row.split()[-8:] == ["3.6", "MB", "96.9", "MB", "32", "KiB", "32", "KiB"]


@pytest.mark.parametrize("width", range(60, 201, 7))
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_line_fits_the_width(run: Run, width: int, ascii_only: bool) -> None:
    wide = replace(
        branches(run, 9),
        endpoints=tuple(Endpoint(f"endpoint-{n}", "read") for n in range(9)),
        parent="1763200000123-42",
        series=Series(
            pipeline="a-long-name|" * 20 + "end",
            nested=True,
            unit="some-long-unit-name@.service" * 3,
        ),
        partial=True,
    )
    shown = lines(wide, 123_456, width, ascii_only=ascii_only, host=HOST)
    assert max(line.cell_len for line in shown) <= width


@pytest.mark.parametrize(
    ("width", "present", "absent"),
    [
        (60, ["cpu", "longest wait"], ["out", "mean"]),
        (80, ["in", "out"], ["mean read"]),
        (100, ["in", "out", "mean read", "mean write"], []),
    ],
)
def test_columns_give_way_below_100(
    run: Run, width: int, present: list[str], absent: list[str]
) -> None:
    heading = next(line for line in text_of(run, width).splitlines() if "command" in line)
    assert all(title in heading for title in present)
    assert not any(title in heading for title in absent)


def test_the_bar_grows_with_the_width(run: Run) -> None:
    assert text_of(run, 160).count("░") > text_of(run, 100).count("░") > 0


def test_forks_show_only_where_there_are_any(run: Run) -> None:
    assert "forks" not in text_of(run, 160)
    storm = replace(run, stages=(replace(run.stages[0], forks=3000), *run.stages[1:]))
    heading = next(line for line in text_of(storm, 160).splitlines() if "command" in line)
    assert heading.endswith("forks") and "3,000" in text_of(storm, 160)


def test_the_legend_names_only_states_that_appear(run: Run) -> None:
    text = text_of(run)
    assert "▚ disk" in text and "▄ child" not in text


def test_a_stage_that_ended_early_leaves_its_bar_blank(run: Run) -> None:
    assert "blank: not alive" in text_of(run)


def test_levels_stop_at_the_highest_one_reached(run: Run) -> None:
    levels = next(line for line in text_of(run).splitlines() if line.startswith("  level"))
    assert levels.split("   ")[1:] == [
        "0 ▁ 6 %",
        "1 ▇ 86 %",
        "2 ▁ 7 %",
        "3 ▁ 1 %",
        "(stages on CPU at once)",
    ]


def test_disk_waits_have_seconds_and_overlap(run: Run) -> None:
    assert (
        "a stage waited for 1.0 s, 18 % of the run; during 40 % of that time another stage was "
        "computing"
    ) in unwrapped(text_of(run))


def reading(run: Run, **readahead: object) -> str:
    """The report of a run whose first stage reads files, each fact on one line."""
    first = replace(run.stages[0], readahead=make_readahead(**readahead))
    return unwrapped(text_of(replace(run, stages=(first, *run.stages[1:]))))


def test_what_a_reader_waited_for_is_said_in_words_with_the_term_behind(run: Run) -> None:
    stalls = {"miss": Stalls(alone=9), "late": Stalls(overlapped=3), "other": Stalls()}
    seconds = {
        "miss": StallSeconds(alone=0.3),
        "late": StallSeconds(overlapped=0.1),
        "other": StallSeconds(),
    }
    assert (
        "  stalls  zcat waited 0.40 s in 12 stalls, 7 % of the run: 0.30 s for pages that were not "
        "read ahead (miss), 0.10 s for pages that were on their way (late); during 25 % of that "
        "time another stage was computing\n"
    ) in reading(run, stalls=stalls, stall_seconds=seconds)


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ({"warm": 900}, "zcat read from memory (warm)"),
        (
            {"hit": 90, "late": 8, "miss": 2},
            "zcat read from disk (cold): 98 % of the pages had been read ahead (coverage), 92 % of "
            "these in time (timeliness); 49 % of what was read ahead was used (accuracy)",
        ),
        (
            {"warm": 100, "hit": 98, "miss": 2},
            "zcat read from disk, 50 % from memory (mixed): 98 % of the pages from disk had been "
            "read ahead (coverage), 100 % of these in time (timeliness); 49 % of what was read "
            "ahead was used (accuracy)",
        ),
    ],
)
def test_where_pages_came_from_is_said_in_words_with_the_term_behind(
    run: Run, pages: dict[str, int], words: str
) -> None:
    every = dict.fromkeys(PAGE_CLASSES, 0) | pages
    assert f"  cache   {words}" in reading(run, pages=every, inserted_pages=200).splitlines()


@pytest.mark.parametrize(("files", "words"), [(3, "read"), (None, "read"), (2_000, "2,000 files")])
def test_how_many_files_were_read_is_said_if_there_are_several(
    run: Run, files: int | None, words: str
) -> None:
    every = dict.fromkeys(PAGE_CLASSES, 0) | {"warm": 900}
    assert f"{words} from memory (warm)" in reading(run, pages=every, files=files)


def test_readers_of_one_name_are_distinctions_and_branches_that_read_alike_are_one(
    run: Run,
) -> None:
    warm = make_readahead(pages={**dict.fromkeys(PAGE_CLASSES, 0), "warm": 900})
    first, *rest = run.stages
    two = [replace(first, readahead=warm, pid=pid) for pid in (7, 8)]
    last = replace(rest[-1], command=first.command, readahead=warm)
    text = text_of(replace(run, stages=(*two, *rest[:-1], last)))
    assert "2 × zcat (stage 1) read from memory (warm); zcat (stage 4) read from" in unwrapped(text)


def test_a_wait_for_disk_that_rounds_to_nothing_is_not_explained(run: Run) -> None:
    short = replace(run, disk_alone_seconds=0.001, disk_overlapped_seconds=0.0)
    assert text_of(short).endswith(
        "  disk    a stage waited for 1.0 ms, <1 % of the run\n  run     7-1"
    )
    alone = replace(run, disk_alone_seconds=1.0, disk_overlapped_seconds=0.0)
    assert text_of(alone).endswith(
        "18 % of the run; no other stage was computing meanwhile\n  run     7-1"
    )


def test_no_disk_wait_is_reported(run: Run) -> None:
    quiet = replace(run, disk_alone_seconds=0.0, disk_overlapped_seconds=0.0)
    assert "  disk    no stage waited for it" in text_of(quiet)


def test_endpoints_parent_and_unit_are_reported(run: Run) -> None:
    placed = replace(
        run,
        endpoints=(Endpoint("bash", "read"), Endpoint("make", "write")),
        parent="7-0",
        series=replace(run.series, nested=True, unit="cron.service"),
    )
    text = text_of(placed)
    assert "input from make; output to bash" in text
    assert "a stage of run 7-0" in text and "cron.service" in text
    named = text_of(replace(placed, parent_pipeline="job.sh|tee"))
    assert "a stage of job.sh|tee, run 7-0" in named


def test_the_headline_names_partial_tiers(run: Run) -> None:
    late = replace(run, partial_tiers=("functions", "readahead"))
    assert "   functions and readahead partial" in text_of(late)


def test_a_live_partial_run_says_both(run: Run) -> None:
    first = text_of(replace(run, end=None, partial=True)).splitlines()[0]
    assert "5.6 s so far" in first and "partial" in first


def test_losses_are_counted_in_the_first_line(run: Run) -> None:
    assert text_of(run, lost=1234).splitlines()[0].endswith("1,234 lost")


def test_many_parallel_branches_become_one_row(run: Run) -> None:
    text = text_of(branches(run, 12))
    assert "bash ×12" in text and text.count("  5  bash") == 1


def test_a_few_parallel_branches_keep_their_rows(run: Run) -> None:
    assert text_of(branches(run, 3)).count("  5  bash") == 3


def test_long_command_names_are_cut(run: Run) -> None:
    stages = (replace(run.stages[0], command="a-very-long-command-name"), *run.stages[1:])
    assert "  1  a-very-long-com…  " in text_of(replace(run, stages=stages))


def test_names_cannot_send_control_codes(run: Run) -> None:
    stages = (replace(run.stages[0], command="x\x1b[2J\n\x07"), *run.stages[1:])
    text = text_of(replace(run, stages=stages))
    assert "\x1b" not in text and "x?[2J??" in text


def test_names_of_others_cannot_send_control_codes_either(run: Run) -> None:
    """Of children, of the enclosing pipeline, and of those of other users."""
    odd = "x\x1b]0;y\x07\nforged"
    child = Child(odd, 40, 0.9, 0.1)
    found = printable_run(
        replace(
            run,
            stages=(replace(run.stages[0], children=(child,)), *run.stages[1:]),
            parent_pipeline=odd,
            surroundings=Surroundings(1.0, None, (OtherPipeline(odd, 1.0),)),
        ),
        False,
    )
    names = (found.stages[0].children[0].command, found.parent_pipeline)
    assert {*names, found.surroundings and found.surroundings.pipelines[0].pipeline} == {
        "x?]0;y??forged"
    }


def test_wide_characters_keep_the_columns(run: Run) -> None:
    stages = (replace(run.stages[0], command="日本語"), *run.stages[1:])
    shown = lines(replace(run, stages=stages), 0, 100)
    rows = [line for line in shown if line.plain.startswith(("  1  ", "  2  "))]
    assert len({row.cell_len for row in rows}) == 1


@pytest.mark.parametrize("wall", [0.0, 0.0003])
def test_a_run_without_measured_time_renders(run: Run, wall: float) -> None:
    empty = tuple(
        replace(stage, states=dict.fromkeys(STATES, 0.0), read_calls=0, write_calls=0)
        for stage in run.stages
    )
    blank = replace(run, wall_seconds=wall, stages=empty, levels=(0.0,) * 9)
    assert "nothing measured" in text_of(blank)


def test_a_run_without_stages_renders(run: Run) -> None:
    assert "No verdict" in text_of(replace(run, stages=(), edges=()))


def print_to(encoding: str, run: Run, *, terminal: bool, **known: Any) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    environment = {"TERM": "xterm-256color", "COLUMNS": "100"}
    console = Console(file=file, force_terminal=terminal, _environ=environment)
    render(run, console, 0, **known)
    file.flush()
    return raw.getvalue().decode(encoding)


def test_an_ascii_console_gets_ascii_only(run: Run) -> None:
    text = print_to("ascii", run, terminal=False)
    assert "#" in text and "D disk" in text


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_the_command_to_try_is_printed_with_its_tabs(run: Run, encoding: str) -> None:
    script = Script("zcat 'a\tb.gz' | sort | awk\t'{ print $1 }' | uniq", locale="C")
    (command,) = [found.command for found in findings(run, HOST, script) if found.command]
    text = print_to(encoding, run, terminal=True, host=HOST, script=script)
    assert command.count("\t") == 4
    assert f"       {command}\n" in text


def test_a_file_gets_no_control_codes(run: Run) -> None:
    assert "\x1b" not in print_to("utf-8", run, terminal=False)


def test_a_terminal_gets_colours(run: Run) -> None:
    assert "\x1b[32m" in print_to("utf-8", run, terminal=True)


def test_no_color_takes_the_colours_but_not_the_words(run: Run) -> None:
    file = io.StringIO()
    environment = {"TERM": "xterm-256color", "COLUMNS": "100", "NO_COLOR": "1"}
    render(run, Console(file=file, force_terminal=True, _environ=environment), 0)
    assert "\x1b[32m" not in file.getvalue() and "sort is the bottleneck" in file.getvalue()


def test_no_line_in_a_file_ends_in_blanks(run: Run) -> None:
    text = print_to("utf-8", run, terminal=False)
    assert all(line == line.rstrip() for line in text.splitlines())


def test_the_cells_of_a_full_bar_add_up() -> None:
    states = dict.fromkeys(STATES, 1.0)
    for width in range(1, 60):
        assert bar(states, 12.0, width, False).plain.count(" ") == 0


def test_a_bar_is_as_wide_as_asked_whatever_the_rounding() -> None:
    for share in (0.0, 0.03, 0.5, 0.97, 1.0):
        assert bar({"cpu": share}, 1.0, 11, False).cell_len == 11


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (8_400_000, "8.4 MB"), (2.5e11, "250 GB")],
)
def test_amounts_of_data_are_decimal(count: float, text: str) -> None:
    assert data_size(count) == text


@pytest.mark.parametrize(
    ("count", "calls", "text"),
    [
        (0, 0, "-"),
        (5, 0, "-"),
        (100, 1, "100 B"),
        (4096, 1, "4 KiB"),
        (1536, 1, "1.5 KiB"),
        (1 << 20, 32, "32 KiB"),
        (1 << 20, 1, "1 MiB"),
    ],
)
def test_mean_sizes_are_binary(count: int, calls: int, text: str) -> None:
    assert mean_size(count, calls) == text


def test_shortening_keeps_what_fits() -> None:
    assert (shorten("awk", 3), shorten("sponge", 4)) == ("awk", "spo…")


def test_printable_replaces_undecodable_bytes() -> None:
    assert printable("a\udcffb") == "a?b"


# -- how stages ended


def failed(run: Run, *ends: tuple[Exit, str]) -> Run:
    """The run, whose stages have ended so."""
    stages = tuple(
        replace(stage, exit=ended, outcome=outcome)
        for stage, (ended, outcome) in zip(run.stages, ends, strict=True)
    )
    return replace(run, stages=stages, outcome=Outcome("failed", (1,)))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_stage_that_did_not_succeed_shows_how_it_ended(run: Run, width: int) -> None:
    run = failed(
        run,
        (Exit(signal="SIGPIPE"), "succeeded"),
        (Exit(signal="SIGKILL", out_of_memory=True), "failed"),
        (Exit(code=3), "failed"),
        (Exit(signal="SIGTERM"), "interrupted"),
    )
    shown = lines(run, 0, width)
    table = [line for line in shown if re.match(r"  [1-4#] ", line.plain)]
    heading, *rows = (line.plain.split() for line in table)
    assert heading[:3] == ["#", "command", "ended"]
    assert [" ".join(row[2:5]) for row in rows][1:] == [
        "out of memory",
        f"exit 3 {rows[2][4]}",
        f"SIGTERM {rows[3][3]} {rows[3][4]}",
    ]
    assert "SIGPIPE" not in table[1].plain
    assert all(line.cell_len <= width for line in shown)


def test_of_parallel_branches_it_shows_how_many_ended_so(run: Run) -> None:
    ends = [(Exit(code=3), "failed")] * 4 + [(Exit(code=0), "succeeded")]
    branches = [replace(make_stage(2, "gzip", cpu=1.0), pid=pid) for pid in range(5)]
    text = "\n".join(
        line.plain for line in lines(failed(replace(run, stages=tuple(branches)), *ends), 0, 100)
    )
    assert re.search(r"gzip ×5  4 × exit 3 ", text)


def test_the_table_of_a_run_in_which_all_succeeded_is_not_wider(run: Run) -> None:
    ends = [(Exit(code=0), "succeeded")] * 4
    well = replace(failed(run, *ends), outcome=Outcome("succeeded"))
    assert [line.plain for line in lines(well, 0, 80)] == [line.plain for line in lines(run, 0, 80)]


# Whose run it is

TRACE = Trace("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True)
WHOLE = Identity(
    host="web-3",
    boot_id="b007",
    uid=1000,
    user="app",
    container=Container("docker", "3f2a9c81b0d4" + "5e" * 26, "etl", "etl:1.4"),
    invocation_id="ab" * 16,
    variables={"SLURM_JOB_ID": "4711"},
    trace=TRACE,
)


def second_line(run: Run, width: int = 200, *, own: bool = False, ascii_only: bool = False) -> str:
    return lines(run, 0, width, own=own, ascii_only=ascii_only)[1].plain


def test_the_line_below_the_headline_says_whose_run_it_is(run: Run) -> None:
    assert second_line(replace(run, identity=WHOLE)) == (
        "  user app · host web-3 · container etl (etl:1.4) · SLURM_JOB_ID 4711 ·"
        " invocation abababab… · trace 4bf92f35…"
    )
    bare = Identity(host="web-3", boot_id="b007", uid=4711)
    assert second_line(replace(run, identity=bare)) == "  user uid 4711 · host web-3"
    unnamed = replace(WHOLE.container, name=None, image=None) if WHOLE.container else None
    assert "· container 3f2a9c81b0d4 ·" in second_line(
        replace(run, identity=replace(WHOLE, container=unnamed))
    )
    pod = Pod("etl-0-x7k2p", "batch", "main", "web-3")
    in_pod = replace(WHOLE, container=unnamed, pod=pod)
    assert "· pod batch/etl-0-x7k2p · container main ·" in second_line(
        replace(run, identity=in_pod)
    )


def test_ones_own_run_says_of_what_job_it_is_and_nothing_else(run: Run) -> None:
    assert second_line(replace(run, identity=WHOLE), own=True) == (
        "  container etl (etl:1.4) · SLURM_JOB_ID 4711 · trace 4bf92f35…"
    )
    # a terminal of a desktop is a unit of systemd, too
    session = Identity(host="web-3", boot_id="b007", uid=0, user="root", invocation_id="ab" * 16)
    assert second_line(replace(run, identity=session), own=True) == second_line(run)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_what_identifies_a_run_is_broken_between_two_facts(run: Run, width: int) -> None:
    long = replace(WHOLE, variables={"BUILD_URL": "https://ci.example.org/" + "x" * 200})
    shown = lines(replace(run, identity=long), 0, width)
    assert max(line.cell_len for line in shown) <= width
    assert any("BUILD_URL https://ci.example" in line.plain for line in shown)


def test_a_value_of_the_environment_cannot_write_to_the_terminal(run: Run) -> None:
    evil = replace(WHOLE, variables={"BUILD_TAG": "x\x1b[2Jü"})
    assert "BUILD_TAG x?[2Jü" in second_line(replace(run, identity=evil))
    assert "BUILD_TAG x?[2J?" in second_line(replace(run, identity=evil), ascii_only=True)


# Its trace

LONGEST = "1763809200123-4194303-5f3c9a01"


def exported(run: Run, **given: Any) -> Run:
    return replace(run, id=LONGEST, exported=True, **given)


def test_the_trace_stands_beside_the_id_of_the_run_within_80_columns(run: Run) -> None:
    found = exported(run)
    last = lines(found, 0, 80)[-1]
    assert last.plain == f"  run     {LONGEST}  trace {found.trace_id}"
    assert last.cell_len <= 80


def test_on_a_narrow_terminal_the_trace_is_on_a_line_of_its_own(run: Run) -> None:
    *_, first, second = lines(exported(run), 0, 60)
    assert first.plain == f"  run     {LONGEST}"
    assert second.plain == f"          trace {exported(run).trace_id}"


def test_a_trace_that_no_store_has_is_not_shown(run: Run) -> None:
    assert lines(replace(run, id=LONGEST), 0, 80)[-1].plain == f"  run     {LONGEST}"
    unsampled = ParentSpan(TRACE.trace_id, TRACE.parent_span_id, False)
    shown = lines(exported(run, parent_span=unsampled), 0, 80)
    assert shown[-1].plain == f"  run     {LONGEST}"


def test_the_trace_of_a_job_is_shown_once(run: Run) -> None:
    job = ParentSpan(TRACE.trace_id, TRACE.parent_span_id, True)
    text = text_of(exported(run, identity=WHOLE, parent_span=job), 80)
    assert text.count("trace") == 1
    assert f"trace {TRACE.trace_id}" in text
