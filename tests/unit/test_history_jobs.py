# SPDX-License-Identifier: Apache-2.0
"""Jobs over a time: what the pipelines of each cost together, and as lines at the prompt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelined.history.archive import Archive
from pipelined.history.conditions import Period
from pipelined.history.database import Store
from pipelined.history.jobs import NO_JOBS, JobsSummary, JobSummary, read_jobs
from pipelined.history.pipeline_query import JOB_SORTS
from pipelined.history.rollup import HOUR, Pending, Sums
from pipelined.model.ledger import OTHER
from pipelined.runs import Series
from pipelined.terminal.jobs_report import jobs_lines

#: The hour in which the runs end.
FIRST = 470_000
NOW = FIRST * HOUR + 1.0

#: Pipeline, unit, nested, wall seconds and outcome of each run.
RUNS = (
    ("zcat|sort", "nightly.service", False, 60.0, "failed"),
    ("zcat|sort", "nightly.service", False, 30.0, "succeeded"),
    ("cat|wc", "nightly.service", False, 10.0, "succeeded"),
    ("sort|uniq", "nightly.service", True, 500.0, "failed"),
    ("tar|gzip", "backup.service", False, 90.0, "succeeded"),
    ("ls|wc", "-", False, 1.0, "succeeded"),
)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    with Store(tmp_path, max_age=1e12, max_bytes=256_000_000, clock=lambda: NOW) as store:
        pending = Pending(500)
        for pipeline, unit, nested, wall, outcome in RUNS:
            series = Series(pipeline=pipeline, nested=nested, unit=unit)
            # the backup computes all the time, the others a tenth of it
            cpu = wall if unit.startswith("backup") else wall / 10
            size = None if wall == 30.0 else 500
            pending.sums(series, NOW).count(wall, cpu, wall / 4, 1000, 2000, outcome, size)
        store.count(pending)
    return Archive(tmp_path)


def read(archive: Archive, **given: Any) -> JobsSummary:
    values: dict[str, Any] = {"search": None, "sort": "wall", "limit": 50}
    period = given.pop("period", Period(FIRST, FIRST + 24))
    return read_jobs(archive, period, **values | given)


def units(found: JobsSummary) -> list[str]:
    return [one.unit for one in found.listed]


def test_a_job_has_the_sums_of_its_pipelines_that_lie_in_no_other(archive: Archive) -> None:
    job = read(archive).listed[0]
    assert (job.unit, job.pipelines) == ("nightly.service", 2)
    assert (job.sums.runs, job.sums.wall, job.sums.cpu) == (3, 100.0, 10.0)
    assert (job.sums.failed, job.sums.longest) == (1, 60.0)
    assert (job.sums.input_bytes, job.sums.input_runs) == (1000, 2)
    assert (job.costliest, job.costliest_share) == ("zcat|sort", 0.9)


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("wall", "nightly.service"),
        ("cpu", "backup.service"),
        ("not-overlapped", "nightly.service"),
        ("runs", "nightly.service"),
        ("failures", "nightly.service"),
    ],
)
def test_they_are_sorted_by_what_is_asked(archive: Archive, sort: str, first: str) -> None:
    assert sort in JOB_SORTS
    assert units(read(archive, sort=sort))[0] == first


def test_the_rest_is_known_to_be_there(archive: Archive) -> None:
    found = read(archive, limit=2)
    assert (units(found), found.more) == (["nightly.service", "backup.service"], True)
    assert not read(archive, limit=3).more


def test_a_search_adds_up_the_pipelines_that_have_it(archive: Archive) -> None:
    assert units(read(archive, search="NIGHTLY")) == ["nightly.service"]
    (job,) = read(archive, search="cat|wc").listed
    assert (job.unit, job.pipelines, job.sums.wall) == ("nightly.service", 1, 10.0)


def test_a_unit_or_pipeline_alone_can_be_asked_for(archive: Archive) -> None:
    assert units(read(archive, period=Period(FIRST, unit="backup.service"))) == ["backup.service"]
    assert units(read(archive, period=Period(FIRST, pipeline="ls|wc"))) == ["-"]


def test_of_a_time_without_runs_there_is_nothing(archive: Archive) -> None:
    assert read(archive, period=Period(FIRST + 24, FIRST + 25)).listed == ()
    assert read(archive, period=Period(0, 1)) == NO_JOBS


def test_runs_that_are_not_counted_apart_are_of_no_job(tmp_path: Path) -> None:
    """Three rows are too many for what waits: those that used least time are merged."""
    with Store(tmp_path, max_age=1e12, max_bytes=256_000_000, clock=lambda: NOW) as store:
        pending = Pending(2)
        for unit, wall, outcome in (
            ("nightly.service", 0.3, "failed"),
            ("-", 5.0, "succeeded"),
            ("backup.service", 90.0, "succeeded"),
        ):
            series = Series(pipeline="tar|gzip", nested=False, unit=unit)
            pending.sums(series, NOW).count(wall, 0.0, 0.0, 0, 0, outcome)
        store.count(pending)
    found = read(Archive(tmp_path), sort="failures")
    failed = {one.unit: (one.sums.failed, one.merged) for one in found.listed}
    assert failed == {OTHER: (1, True), "backup.service": (0, False), "-": (0, False)}
    assert "other jobs may lack these runs" in found.caveat
    assert not read(Archive(tmp_path), search="backup").caveat


def job(unit: str = "nightly.service", pipelines: int = 2, **sums: Any) -> JobSummary:
    counted = Sums(runs=3, wall=100.0, cpu=50.0, not_overlapped=75.0, **sums)
    return JobSummary(
        unit=unit, pipelines=pipelines, sums=counted, costliest="zcat|sort", costliest_share=0.9
    )


@pytest.fixture
def text() -> Callable[..., str]:
    def shown(*listed: JobSummary, width: int = 120, **given: Any) -> str:
        found = JobsSummary(NOW, NOW + HOUR, False, listed)
        return "\n".join(line.plain for line in jobs_lines(found, width, NOW, **given))

    return shown


def test_a_line_describes_a_job(text: Callable[..., str]) -> None:
    heading, line, *words = text(job()).splitlines()
    assert heading.split() == (
        ["unit", "runs", "total", "CPU", "not", "overlapped", "pipelines", "most", "time", "in"]
    )
    for part in ("nightly.service", "1 min 40 s", "50.0 s", "75.0 s (75 %)", "90 % zcat|sort"):
        assert part in line, part
    assert "Nested runs are not added" in " ".join(words)


def test_the_only_pipeline_of_a_job_has_no_share(text: Callable[..., str]) -> None:
    assert "%" not in text(job(pipelines=1)).splitlines()[1].split("(75 %)")[1]


def test_failed_runs_have_a_column_if_there_are_any(text: Callable[..., str]) -> None:
    assert "1 (33 %)" in text(job(failed=1))
    assert "failed" not in text(job())


def test_the_input_is_that_of_all_runs_and_marked_if_some_are_not_known(
    text: Callable[..., str],
) -> None:
    shown = text(job(input_bytes=12_000_000, input_runs=3))
    assert "  12.0 MB  " in shown
    assert "≥" not in shown
    partly = text(job(input_bytes=12_000_000, input_runs=2))
    assert "  ≥ 12.0 MB  " in partly
    assert "of a part of the runs the input is not known" in partly
    assert "input" not in text(job())


def test_what_is_not_counted_apart_is_explained_if_there_is_any(text: Callable[..., str]) -> None:
    assert "other jobs may lack these runs" in text(job(unit=OTHER)).replace("\n", " ")
    assert OTHER not in text(job())


@pytest.mark.parametrize("width", [40, 80, 200])
def test_lines_fit_their_width(text: Callable[..., str], width: int) -> None:
    assert max(map(len, text(job(unit="u" * 60), job(), width=width).splitlines())) <= width
