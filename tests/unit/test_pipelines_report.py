# SPDX-License-Identifier: Apache-2.0
"""PipelinesSummary over a time at the prompt: `pipelined pipelines`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelined import cli
from pipelined.analysis.machine import Host
from pipelined.answers.lists import TopFinding
from pipelined.history.history import History
from pipelined.history.pipelines import PipelinesSummary, PipelineSummary, TrendBar
from pipelined.history.rollup import Sums
from pipelined.history.rows import Summary
from pipelined.model.ledger import OTHER
from pipelined.runs import Outcome, Series
from pipelined.terminal.pipelines_report import pipelines_lines
from unit.invented import START, make_ended, make_finished, make_inside

DAY = 86400.0
LAST = Summary(
    id="1700000000000-4711",
    pipeline="zcat|sort",
    nested=False,
    unit="nightly.service",
    start=START,
    end=START + 720.0,
    wall=720.0,
    partial=False,
    cores=0.9,
    overlap=0.08,
    cache="warm",
    bottleneck="sort: CPU 71 %",
    findings=("barrier",),
    usual=240.0,
    slower=True,
)
PIPELINE = PipelineSummary(
    series=Series(pipeline="zcat|sort", nested=False, unit="nightly.service"),
    parent_pipeline=None,
    sums=Sums(runs=1400, wall=3000.0, cpu=2700.0, not_overlapped=2400.0, examined=7),
    median=240.0,
    p95=600.0,
    exact=True,
    trend=tuple(TrendBar(START + DAY * n, int(n < 6), 100.0 * (n + 1) * (n < 6)) for n in range(7)),
    bottleneck="sort: CPU",
    bottleneck_share=0.8,
    finding=TopFinding("barrier", 7, 120.0),
    last=LAST,
)


def found(*listed: PipelineSummary, step: float = DAY) -> PipelinesSummary:
    return PipelinesSummary(START, START + 7 * DAY, step, len(listed), listed)


def text(*listed: PipelineSummary, width: int = 240, **given: Any) -> str:
    lines = pipelines_lines(found(*listed), width, START + 7 * DAY, **given)
    return "\n".join(line.plain for line in lines)


def test_a_line_describes_a_pipeline() -> None:
    heading, line, *_ = text(PIPELINE).splitlines()
    assert heading.split("  ")[0] == "pipeline"
    for shown in (
        "zcat|sort",
        "nightly.service",
        "1,400",
        "50 min 0 s",
        "45 min 0 s",
        "40 min 0 s (80 %)",
        "4 min 0 s",
        "10 min 0 s",
        "▂▃▅▆▇█",
        "12 min 0 s, ▲ slower: 3.0 × usual",
        "sort: CPU (80 %)",
        "barrier ~ 2 min 0 s",
    ):
        assert shown in line, shown


def test_what_is_not_known_is_a_dash() -> None:
    unknown = replace(
        PIPELINE,
        series=Series(pipeline=OTHER, nested=False, unit="-"),
        median=None,
        p95=None,
        bottleneck=None,
        finding=None,
        last=None,
    )
    line = text(unknown).splitlines()[1]
    assert line.split().count("-") == 6


def test_where_no_run_is_stored_any_more_the_input_is_the_mean_of_all() -> None:
    sums = replace(PIPELINE.sums, input_bytes=12_000_000, input_runs=4)
    assert "  mean 3.0 MB  " in text(replace(PIPELINE, sums=sums))


def test_the_input_has_a_column_if_one_is_known() -> None:
    known = replace(PIPELINE, median_input=134e6, input_rate=12e6)
    heading, line, *words = text(known).splitlines()
    assert "input" in heading
    assert "134 MB (12.0 MB/s)" in line
    assert "Input: of half of the runs no more" in " ".join(words)
    assert "input" not in text(PIPELINE).lower()


def test_a_column_that_does_not_fit_is_not_explained() -> None:
    heading, *rest = text(replace(PIPELINE, median_input=134e6), width=80).splitlines()
    assert "trend" not in heading
    assert "input" not in heading
    assert "Trend" not in " ".join(rest)
    assert "Input" not in " ".join(rest)


def test_failures_have_their_share_of_the_runs_whose_outcome_is_known() -> None:
    failed = replace(PIPELINE, sums=replace(PIPELINE.sums, failed=30, unknown=1100))
    words = "Failed: the share is one of the runs whose outcome is known."
    for width in (80, 240):
        heading, *rows = text(failed, PIPELINE, width=width).splitlines()
        assert "failed" in heading
        assert "30 (10 %)" in rows[0]
        assert words in " ".join(rows)
    all_known = replace(PIPELINE, sums=replace(PIPELINE.sums, failed=14))
    assert "14 (1 %)" in text(all_known)
    assert words not in text(all_known)
    assert "failed" not in text(PIPELINE).lower()


def test_estimated_percentiles_are_marked() -> None:
    shown = text(replace(PIPELINE, exact=False))
    assert "≈ 4 min 0 s" in shown
    assert "≈: within a factor of 2, as not every run is read." in shown
    assert "≈" not in text(PIPELINE)


def test_neighbouring_bars_of_a_long_trend_are_one_column() -> None:
    bars = tuple(TrendBar(START + DAY * n, 1, 1.0 + (n >= 30)) for n in range(40))
    shown = text(replace(PIPELINE, trend=bars))
    assert "▅" * 10 + "█" * 4 in shown
    assert "a column is 3 days" in shown


def test_a_nested_pipeline_is_indented() -> None:
    inner = replace(
        PIPELINE,
        series=Series(pipeline="seq|wc", nested=True, unit="nightly.service"),
        parent_pipeline="zcat|sort",
    )
    lines = text(PIPELINE, inner).splitlines()
    assert lines[2].startswith("└ seq|wc  ")


@pytest.mark.parametrize("width", [60, 80, 100, 160, 240])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_line_fits(width: int, ascii_only: bool) -> None:
    long = replace(
        PIPELINE, series=Series(pipeline="|".join(["größe"] * 40), nested=False, unit="u" * 200)
    )
    failed = replace(PIPELINE, sums=replace(PIPELINE.sums, failed=1399, unknown=1))
    lines = text(PIPELINE, long, failed, width=width, ascii_only=ascii_only).splitlines()
    assert all(len(line) <= width for line in lines)
    assert all(line.isascii() for line in lines) or not ascii_only


# -- the command


@pytest.fixture
def pipelined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What `pipelined pipelines` prints of a few runs."""
    history = History(tmp_path, host=Host(2, None), max_age=1e12)
    job = make_ended(5, "job.sh|tee", wall=600.0)
    for run in (make_ended(1), make_ended(2, "seq|wc"), make_ended(3), job, make_inside(job, 6)):
        history.sink.put(make_finished(run))
    history.sink.start()
    history.sink.close(20)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PIPELINED_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))

    def run(*words: str) -> str:
        assert cli._guarded(["pipelines", "--since", str(START), *words]) == 0
        return capsys.readouterr().out

    return run


def names(printed: str) -> list[str]:
    return [line.split("  ")[0] for line in printed.splitlines()[1:] if "|" in line]


def test_pipelines_are_listed_by_total_time(pipelined: Callable[..., str]) -> None:
    assert names(pipelined()) == ["job.sh|tee", "└ seq|sort", "cat|sort", "seq|wc"]


def test_pipelines_are_searched_and_sorted(pipelined: Callable[..., str]) -> None:
    assert names(pipelined("WC")) == ["seq|wc"]
    assert names(pipelined("--sort", "runs", "--pipeline", "cat|sort")) == ["cat|sort"]
    assert names(pipelined("--sort", "runs"))[0] == "cat|sort"


def test_pipelines_that_fail_come_first(pipelined: Callable[..., str], tmp_path: Path) -> None:
    history = History(tmp_path, host=Host(2, None), max_age=1e12)
    failed = replace(make_ended(8, "seq|wc"), outcome=Outcome("failed", (0,)))
    history.sink.put(make_finished(failed))
    history.sink.start()
    history.sink.close(20)
    printed = pipelined("--sort", "failures")
    assert names(printed)[0] == "seq|wc"
    assert "1 (100 %)" in printed.splitlines()[1]


def test_it_says_when_there_are_more(pipelined: Callable[..., str]) -> None:
    assert pipelined("--limit", "2").splitlines()[-1] == "There are 4: --limit 4"


def test_it_does_not_advise_more_than_a_daemon_lists(
    pipelined: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = History.pipelines
    monkeypatch.setattr(History, "pipelines", lambda self, **of: asked(self, **of | {"limit": 2}))
    assert pipelined("--limit", "9").splitlines()[-1] == (
        "There are 4: a daemon lists 2 at most; root can read its history"
    )


def test_pipelines_as_json_are_those_of_the_api(pipelined: Callable[..., str]) -> None:
    described = json.loads(pipelined("--json"))
    assert described["matching_pipelines"] == 4
    assert [one["runs"] for one in described["pipelines"]] == [1, 2, 1, 1]


def test_pipelines_that_fit_nothing_say_so(pipelined: Callable[..., str]) -> None:
    assert pipelined("none-such") == "no pipeline matches\n"
    assert pipelined("--until", str(START - 7200)) == "no run in this time\n"


def test_jobs_are_listed_and_printed_as_the_api_has_them(pipelined: Callable[..., str]) -> None:
    (job,) = json.loads(pipelined("--by", "job", "--json"))["jobs"]
    assert (job["unit"], job["runs"], job["pipelines"]) == ("-", 4, 3)
    line = pipelined("--by", "job").splitlines()[1]
    assert line.split()[:2] == ["-", "4"]
    assert line.endswith("job.sh|tee")


def test_jobs_have_no_usual_to_be_sorted_by(
    pipelined: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._guarded(["pipelines", "--by", "job", "--sort", "slower"]) == 2
    assert "--by job does not go with --sort slower" in capsys.readouterr().err
