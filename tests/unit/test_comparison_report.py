# SPDX-License-Identifier: Apache-2.0
"""The terminal report of a comparison: its lines, its widths, its plain form."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from pipelined.analysis.comparison import Comparison, compare_runs, compare_trials
from pipelined.analysis.comparison_reasons import Trial
from pipelined.runs import Run
from pipelined.terminal.comparison_report import lines, progress, render
from unit import invented
from unit.invented import START, make_readahead, make_stage

MB = 1_000_000


def make_run(wall: float) -> Run:
    """Of cat and awk, which wait for disk half of the time."""
    data = {"read_bytes": 72 * MB, "written_bytes": 72 * MB}
    stages = [
        make_stage(1, "cat", cpu=wall / 10, disk=wall / 2, readahead=make_readahead(), **data),
        make_stage(2, "awk", cpu=wall / 4, pipe_empty=wall * 3 / 4),
    ]
    return invented.make_run(
        stages, wall, id=f"17-{wall}", end=START + wall, disk_alone_seconds=wall / 2
    )


def make_comparison(*walls: float, name: str = "cat log | awk '{ n++ }'") -> Comparison:
    """Of commands that each took this long, 2.5 % more in every round."""
    trials = []
    for wall in walls:
        runs = [make_run(wall * factor) for factor in (1, 1.025, 1.05, 1.075, 1.1)]
        trials.append([Trial(run.wall_seconds, run.cpu_seconds, run) for run in runs])
    return compare_trials([name] * len(walls), trials)


def text_of(comparison: Comparison, width: int = 100, *, ascii_only: bool = False) -> str:
    return "\n".join(line.plain for line in lines(comparison, width, ascii_only=ascii_only))


def line_of(text: str, name: str) -> str:
    """The last line that begins with this name, its columns one blank apart."""
    (*_, line) = (line for line in text.splitlines() if line.strip().startswith(f"{name} "))
    return " ".join(line.split())


def test_commands_verdict_and_reasons_come_first() -> None:
    shown = text_of(make_comparison(2.0, 1.0)).splitlines()
    assert shown[:4] == [
        "A  cat log | awk '{ n++ }'",
        "B  cat log | awk '{ n++ }'",
        "",
        "  B wins: it took 0.50 of A's wall time in each round, 1.1 s against 2.1 s.",
    ]
    assert shown[4].startswith(
        "  Why: 0.53 s less waiting for disk while no stage computed (mostly cat); "
    )


def test_a_row_has_medians_spread_and_ratio() -> None:
    assert line_of(text_of(make_comparison(2.0, 1.0)), "wall") == (
        "wall 2.1 s (2.0–2.2 s) 1.1 s (1.0–1.1 s) 0.50"
    )


def test_one_run_has_no_spread() -> None:
    assert "(" not in line_of(text_of(compare_runs(make_run(2.0), make_run(1.0))), "wall")


def test_runs_have_their_ids() -> None:
    assert text_of(compare_runs(make_run(2.0), make_run(1.0))).startswith("A  cat|awk   run 17-2.0")


def test_what_is_nought_on_all_sides_has_no_line() -> None:
    shown = text_of(make_comparison(2.0, 1.0))
    assert "pipe empty" in shown
    assert "network" not in shown and "forks" not in shown


def test_what_only_one_side_has_has_a_line() -> None:
    a, b = make_run(2.0), make_run(1.0)
    b = replace(b, stages=tuple(replace(stage, forks=3000) for stage in b.stages))
    assert line_of(text_of(compare_runs(a, b)), "forks") == "forks 0 6,000 -"


def test_terms_stand_behind_plain_words_where_all_fits() -> None:
    comparison = make_comparison(2.0, 1.0)
    assert "    no stage on CPU (level 0)  " in text_of(comparison, 200)
    assert "    no stage on CPU  " in text_of(comparison, 80)


def test_ratios_are_not_cropped_at_80_columns() -> None:
    (head, *_) = (
        line for line in text_of(make_comparison(2.0, 1.0), 80).splitlines() if "B/A" in line
    )
    assert head.rstrip().endswith("B/A")


def test_stages_stand_side_by_side() -> None:
    assert line_of(text_of(make_comparison(2.0, 1.0)), "awk") == (
        "awk 0.53 s pipe empty 1.6 s 0.26 s pipe empty 0.79 s"
    )


def test_caveats_are_notes() -> None:
    comparison = replace(make_comparison(2.0, 1.0), caveats=("a first one", "another one"))
    assert "  Note: a first one.\n  Note: another one.\n" in text_of(comparison)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("sides", [2, 3, 8])
def test_every_line_fits(width: int, sides: int) -> None:
    walls = [1.0 + index for index in range(sides)]
    shown = lines(make_comparison(*walls, name="x" * 300), width)
    assert max(line.cell_len for line in shown) <= width


@pytest.mark.parametrize("width", [60, 100, 200])
def test_no_side_is_left_out(width: int) -> None:
    shown = text_of(make_comparison(*[1.0 + index for index in range(8)]), width)
    heads = [line.split() for line in shown.splitlines() if line.split()[:1] == ["A"]]
    named = {word for head in heads for word in head if len(word) == 1}
    assert named >= set("ABCDEFGH")


def test_without_utf8_nothing_but_ascii_is_printed() -> None:
    assert text_of(make_comparison(2.0, 1.0, name="größe…"), ascii_only=True).isascii()


def test_a_command_cannot_harm_the_terminal() -> None:
    assert "\x1b" not in text_of(make_comparison(2.0, 1.0, name="echo '\x1b[2J'"))


def test_a_stage_named_in_the_reasons_cannot_harm_the_terminal() -> None:
    comparison = replace(make_comparison(2.0, 1.0), why="less disk wait (mostly x\x1b[2J)")
    assert "(mostly x?[2J)" in text_of(comparison)


def test_it_is_printed_as_it_is() -> None:
    file = io.StringIO()
    render(make_comparison(2.0, 1.0), Console(file=file, width=100))
    assert file.getvalue() == text_of(make_comparison(2.0, 1.0)) + "\n"


def test_no_terminal_no_progress() -> None:
    file = io.StringIO()
    with progress(Console(file=file), 2) as advance:
        advance("A in round 1")
        advance("B in round 1")
    assert file.getvalue() == ""


def test_progress_says_what_runs_and_how_much_is_done() -> None:
    file = io.StringIO()
    with progress(Console(file=file, force_terminal=True, width=100), 2) as advance:
        advance("A in round 1")
        advance("B in round 1")
    assert "B in round 1" in file.getvalue()
    assert "1/2" in file.getvalue()
