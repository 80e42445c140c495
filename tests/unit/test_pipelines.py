# SPDX-License-Identifier: Apache-2.0
"""PipelinesSummary over a time: their sums, percentiles, trends, findings and last runs."""

from __future__ import annotations

import contextlib
import math
import re
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelined.answers.lists import TopFinding
from pipelined.history.archive import Archive
from pipelined.history.conditions import Period
from pipelined.history.database import Store
from pipelined.history.history import History
from pipelined.history.pipeline_query import SORTS
from pipelined.history.pipelines import (
    NO_PIPELINES,
    PipelinesSummary,
    PipelineSummary,
    read_pipelines,
)
from pipelined.history.rollup import HOUR, Pending, other
from pipelined.history.rows import Details, Summary
from pipelined.history.tables import Pipelines, Rollup
from pipelined.model.ledger import OTHER
from pipelined.runs import Series
from pipelined.runs.codec import written
from unit.observed import HOST

#: The hour in which the first runs end.
FIRST = 470_000
NOW = FIRST * HOUR + 1.0
DAY = 24


def stored(number: float, **given: Any) -> Details:
    """A run that ended `number` hours after NOW."""
    values: dict[str, Any] = {
        "id": f"{int((NOW + number * HOUR) * 1000)}-1",
        "pipeline": "cat|sort",
        "nested": False,
        "unit": "job.service",
        "partial": False,
        "end": NOW + number * HOUR,
        "wall": 10.0,
        "cores": 0.5,
        "overlap": None,
        "cache": None,
        "bottleneck": "sort: CPU 97 %",
        "findings": (),
        "read_bytes": 1000,
    }
    values |= {name: given[name] for name in given if name != "gains"}
    values["id"] += f"-{values['pipeline']}-{values['nested']}-{values['unit']}"
    row = Summary(**{"start": values["end"] - values["wall"]} | values)
    return Details(row, ("cat",), b"", b"", given.get("gains", {}))


@pytest.fixture
def store_runs(tmp_path: Path) -> Callable[..., Archive]:
    """Counts all of these runs and stores those that are not in `only_counted`."""

    def make(*runs: Details, only_counted: tuple[Details, ...] = ()) -> Archive:
        with Store(tmp_path, max_age=1e12, max_bytes=256_000_000, clock=lambda: NOW) as store:
            pending = Pending(500)
            for run in (*runs, *only_counted):
                series = Series(pipeline=run.row.pipeline, nested=run.row.nested, unit=run.row.unit)
                pending.sums(series, run.row.end).count(
                    run.row.wall, run.row.wall / 2, run.row.wall / 4, 1000, 2000, run.row.outcome
                )
            store.count(pending)
            store.add(runs)
        return Archive(tmp_path)

    return make


def read(archive: Archive, **given: Any) -> PipelinesSummary:
    """All pipelines of the first week, unless given."""
    values: dict[str, Any] = {"search": None, "sort": "wall", "limit": 50}
    period = given.pop("period", Period(FIRST, FIRST + 7 * DAY))
    return read_pipelines(archive, period, **values | given)


def only(archive: Archive, **given: Any) -> PipelineSummary:
    (found,) = read(archive, **given).listed
    return found


def names(found: PipelinesSummary) -> list[str]:
    return [one.pipeline for one in found.listed]


def test_a_pipeline_has_the_sums_of_all_its_runs(store_runs: Callable[..., Archive]) -> None:
    found = only(store_runs(stored(0), stored(1, wall=30.0), only_counted=(stored(2),)))
    assert found.series == Series(pipeline="cat|sort", nested=False, unit="job.service")
    sums = found.sums
    assert (sums.runs, sums.wall, sums.cpu, sums.not_overlapped) == (3, 50.0, 25.0, 12.5)
    assert (sums.read_bytes, sums.written_bytes, sums.longest) == (3000, 6000, 30.0)
    assert sums.examined == 2


def test_failures_are_those_of_all_runs(store_runs: Callable[..., Archive]) -> None:
    runs = [stored(n, outcome=outcome) for n, outcome in enumerate(("failed", "succeeded"))]
    counted = (stored(2, outcome="failed"), stored(3, outcome="interrupted"), stored(4))
    sums = only(store_runs(*runs, only_counted=counted)).sums
    assert (sums.runs, sums.failed, sums.interrupted, sums.unknown) == (5, 2, 1, 1)
    assert sums.failed_share == 0.5


def test_pipelines_that_failed_as_often_are_in_the_order_of_their_time(
    store_runs: Callable[..., Archive],
) -> None:
    archive = store_runs(
        stored(0, pipeline="a|short", outcome="failed"),
        stored(0, pipeline="a|long", outcome="failed", wall=90.0),
        stored(0, pipeline="a|well", outcome="succeeded", wall=900.0),
    )
    assert names(read(archive, sort="failures")) == ["a|long", "a|short", "a|well"]


def test_only_the_hours_that_are_asked_for_count(store_runs: Callable[..., Archive]) -> None:
    archive = store_runs(stored(0), stored(1), stored(2), stored(3))
    found = read(archive, period=Period(FIRST + 1, FIRST + 3))
    assert (found.start, found.end) == ((FIRST + 1) * HOUR, (FIRST + 3) * HOUR)
    (one,) = found.listed
    assert one.sums.runs == 2
    assert one.last is not None and one.last.end == NOW + 2 * HOUR


def test_percentiles_are_exact_if_every_run_is_stored(store_runs: Callable[..., Archive]) -> None:
    runs = [stored(n / 100, wall=1.0 + n) for n in range(100)]
    found = only(store_runs(*runs))
    assert (found.exact, found.median, found.p95) == (True, 50.0, 95.0)


def test_percentiles_are_within_a_factor_of_2_if_not(store_runs: Callable[..., Archive]) -> None:
    runs = [stored(n / 100, wall=1.0 + n) for n in range(100)]
    found = only(store_runs(*runs[:99], only_counted=(runs[99],)))
    assert not found.exact
    assert found.median is not None and 25 <= found.median <= 100
    assert found.p95 is not None and 47 <= found.p95 <= 190


def test_runs_that_are_counted_under_other_make_no_percentile_exact(
    store_runs: Callable[..., Archive],
) -> None:
    """The longest of them stay stored: they would stand for runs of the hours that are left."""
    long = [stored(n / 100, wall=10.0) for n in range(40)]
    short = [stored(1 + n / 100, wall=0.01) for n in range(28)]
    archive = store_runs(*long, *short[:2], only_counted=tuple(short[2:]))
    assert only(archive).exact is False
    with contextlib.closing(sqlite3.connect(archive._path, isolation_level=None)) as connection:
        Rollup(connection, 1e9)._fold(FIRST, [1], Pipelines(connection).key(other(nested=False)))
    found = next(one for one in read(archive).listed if not one.merged)
    assert (found.sums.runs, found.exact) == (28, False)
    assert found.median is not None and found.median < 0.02


@pytest.mark.parametrize(
    ("hours", "step", "bars"),
    [(12, 1, 12), (48, 1, 48), (7 * DAY, DAY, 7), (90 * DAY, 7 * DAY, 13)],
)
def test_a_trend_has_at_most_48_bars(
    store_runs: Callable[..., Archive], hours: int, step: int, bars: int
) -> None:
    found = read(store_runs(stored(0)), period=Period(FIRST, FIRST + hours))
    assert found.step == step * HOUR
    assert len(found.listed[0].trend) == bars


@pytest.mark.parametrize(
    ("since", "until", "bars"),
    [(-(10**15), None, None), (None, 10**15, None), (FIRST - 100, FIRST + 3, 3), (10**9, None, 0)],
)
def test_a_trend_has_no_bars_before_the_first_run_nor_after_now(
    store_runs: Callable[..., Archive], since: int | None, until: int | None, bars: int | None
) -> None:
    found = read(store_runs(stored(0)), period=Period(since, until))
    if bars == 0:
        assert found == NO_PIPELINES
        return
    assert found.start == FIRST * HOUR
    assert found.end is not None and found.end <= time.time() + HOUR
    assert len(found.listed[0].trend) == (bars or math.ceil((found.end - NOW) / found.step))


def test_the_input_is_the_median_of_the_runs_that_did_all_they_had_to(
    store_runs: Callable[..., Archive],
) -> None:
    found = only(
        store_runs(
            *(stored(n, input_bytes=size) for n, size in enumerate((100, 400, 200))),
            stored(4, input_bytes=1, outcome="failed"),
            stored(5, input_bytes=1, partial=True),
            stored(6),
        )
    )
    assert (found.median_input, found.input_rate) == (200, 700 / 30.0)


def test_without_a_known_input_there_is_none(store_runs: Callable[..., Archive]) -> None:
    found = only(store_runs(stored(0)))
    assert (found.median_input, found.input_rate) == (None, None)


def test_a_trend_has_the_runs_of_each_day(store_runs: Callable[..., Archive]) -> None:
    archive = store_runs(stored(0), stored(23, wall=20.0), stored(25, wall=40.0), stored(150))
    trend = only(archive).trend
    assert [bar.start for bar in trend] == [(FIRST + DAY * n) * HOUR for n in range(7)]
    assert [(bar.runs, bar.wall) for bar in trend] == [
        *((2, 30.0), (1, 40.0)),
        *[(0, 0.0)] * 4,
        (1, 10.0),
    ]
    assert [bar.mean for bar in trend][:3] == [15.0, 40.0, 0.0]


def test_the_bottleneck_is_that_of_most_of_the_time(store_runs: Callable[..., Archive]) -> None:
    found = only(
        store_runs(
            stored(0, wall=30.0, bottleneck="sort: CPU 97 %"),
            stored(1, wall=30.0, bottleneck="sort: CPU 60 %"),
            *(stored(2 + n, wall=10.0, bottleneck="cat: disk 50 %") for n in range(3)),
            stored(9, wall=10.0, bottleneck="-"),
        )
    )
    assert (found.bottleneck, found.bottleneck_share) == ("sort: CPU", 0.6)


def test_a_pipeline_without_a_bottleneck_has_none(store_runs: Callable[..., Archive]) -> None:
    found = only(store_runs(stored(0, bottleneck="-")))
    assert (found.bottleneck, found.bottleneck_share) == (None, None)


def test_the_top_finding_is_the_one_that_is_expected_to_save_most(
    store_runs: Callable[..., Archive],
) -> None:
    found = only(
        store_runs(
            stored(0, findings=("barrier", "cold-run"), gains={"barrier": 4.0}),
            stored(1, findings=("cold-run", "ceiling"), gains={"ceiling": 6.0}),
            stored(2, findings=("barrier",), gains={"barrier": 3.0}),
        )
    )
    assert found.finding == TopFinding("barrier", runs=2, expected=7.0)


def test_of_findings_without_a_gain_the_most_frequent_is_first(
    store_runs: Callable[..., Archive],
) -> None:
    archive = store_runs(
        stored(0, findings=("cold-run",)), stored(1, findings=("cold-run", "failed-execs"))
    )
    assert only(archive).finding == TopFinding("cold-run", runs=2, expected=0.0)


def test_the_last_run_has_its_usual(store_runs: Callable[..., Archive]) -> None:
    last = only(store_runs(*(stored(n) for n in range(5)), stored(6, wall=20.0))).last
    assert last is not None
    assert (last.wall, last.usual, last.slower) == (20.0, 10.0, True)


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("wall", "a|long"),
        ("runs", "a|frequent"),
        ("failures", "a|broken"),
        ("slower", "a|slow"),
        ("cpu", "a|long"),
    ],
)
def test_pipelines_are_sorted(store_runs: Callable[..., Archive], sort: str, first: str) -> None:
    archive = store_runs(
        stored(0, pipeline="a|long", wall=5000.0),
        *(stored(n / 10, pipeline="a|frequent", wall=1.0) for n in range(20)),
        *(stored(n, pipeline="a|slow") for n in range(5)),
        stored(6, pipeline="a|slow", wall=30.0),
        *(stored(n, pipeline="a|broken", outcome="failed") for n in range(2)),
    )
    assert names(read(archive, sort=sort))[0] == first
    assert sort in SORTS


def test_the_first_of_all_that_match_are_listed(store_runs: Callable[..., Archive]) -> None:
    archive = store_runs(*(stored(0, pipeline=f"a|b{n}", wall=1.0 + n) for n in range(5)))
    found = read(archive, limit=2)
    assert (names(found), found.matching) == (["a|b4", "a|b3"], 5)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("SORT", ["cat|sort"]),
        ("night", ["seq|wc"]),
        ("c", ["cat|sort", "seq|wc"]),
        ("%", []),
    ],
)
def test_pipelines_are_searched_by_a_part_of_their_name_or_unit(
    store_runs: Callable[..., Archive], search: str, found: list[str]
) -> None:
    archive = store_runs(stored(0), stored(1, pipeline="seq|wc", unit="nightly.service", wall=1.0))
    assert names(read(archive, search=search)) == found


def test_a_nested_pipeline_is_under_the_one_that_encloses_it(
    store_runs: Callable[..., Archive],
) -> None:
    inside = {"nested": True, "parent_pipeline": "job.sh|tee"}
    archive = store_runs(
        stored(0, pipeline="cat|sort", wall=200.0),
        stored(1, pipeline="job.sh|tee", wall=100.0),
        stored(1, pipeline="seq|wc", wall=90.0, **inside),
        stored(1, pipeline="seq|wc", wall=80.0, unit="other.service", **inside),
    )
    lines = [(line.run.pipeline, line.depth, line.inside) for line in read(archive).lines]
    assert lines == [
        ("cat|sort", 0, ""),
        ("job.sh|tee", 0, ""),
        ("seq|wc", 1, ""),
        ("seq|wc", 0, "in job.sh|tee"),
    ]


def test_pipelines_that_lie_in_each_other_are_all_listed(
    store_runs: Callable[..., Archive],
) -> None:
    archive = store_runs(
        stored(0, pipeline="a|b", nested=True, parent_pipeline="c|d"),
        stored(1, pipeline="c|d", nested=True, parent_pipeline="a|b"),
        stored(2, pipeline="e|f", nested=True, parent_pipeline="e|f"),
    )
    found = read(archive)
    assert sorted(line.run.pipeline for line in found.lines) == ["a|b", "c|d", "e|f"]


def test_what_was_merged_is_listed_without_a_bottleneck(store_runs: Callable[..., Archive]) -> None:
    found = only(store_runs(only_counted=(stored(0, pipeline=OTHER, unit="-"),)))
    assert found.merged
    assert (found.bottleneck, found.finding, found.last, found.exact) == (None, None, None, False)


def test_what_was_merged_is_not_the_most_frequent_pipeline(
    store_runs: Callable[..., Archive],
) -> None:
    merged = [stored(n / 100, pipeline=OTHER, unit="-") for n in range(3)]
    assert store_runs(only_counted=(*merged, stored(0))).most_frequent(Period()) == "cat|sort"


def test_a_history_in_which_nothing_is_counted_has_no_pipelines(
    store_runs: Callable[..., Archive],
) -> None:
    assert read(store_runs(), period=Period()) == NO_PIPELINES


def test_all_that_is_kept_ends_with_this_hour(store_runs: Callable[..., Archive]) -> None:
    archive, before = store_runs(stored(0)), time.time()
    found = read(archive, period=Period())
    assert found.start == FIRST * HOUR
    assert found.end is not None and before < found.end <= time.time() + HOUR


def test_runs_of_a_clock_that_was_ahead_count_only_up_to_a_later_time(
    store_runs: Callable[..., Archive], tmp_path: Path
) -> None:
    ago = (time.time() - NOW) / HOUR
    store_runs(stored(ago - 1), stored(ago + 365 * DAY, wall=99.0))
    history = History(tmp_path, host=HOST)
    week = time.time() - 7 * DAY * HOUR
    found = history.pipelines(since=week)
    (one,) = found.listed
    assert (one.sums.runs, found.step) == (1, HOUR)
    assert found.end is not None and abs(found.end - time.time()) <= HOUR
    assert one.last is not None and one.last.wall == 10.0
    assert [job.sums.runs for job in history.jobs(since=week).listed] == [1]
    (one,) = history.pipelines(since=week, until=time.time() + 400 * DAY * HOUR).listed
    assert one.sums.runs == 2


def test_single_runs_are_found_through_an_index(
    store_runs: Callable[..., Archive], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many other runs are stored: a page is to take no longer for them."""
    archive = store_runs(*(stored(n) for n in range(6)))
    asked: list[str] = []

    def open_traced() -> sqlite3.Connection:
        connection = original()
        connection.set_trace_callback(asked.append)
        return connection

    original = archive._open
    monkeypatch.setattr(archive, "_open", open_traced)
    read(archive, sort="slower")
    monkeypatch.undo()
    steps = [
        row[3]
        for statement in asked
        for row in archive._read(f"EXPLAIN QUERY PLAN {statement}", ())
        if re.search(r"\bruns", row[3])
    ]
    assert len(steps) >= 5  # of the last runs, twice, and of the percentiles
    for step in steps:
        assert "SEARCH" in step, step
        assert "(pipeline=? AND end>? AND end<?)" in step or "(rowid=?)" in step, step


def test_the_same_as_json(store_runs: Callable[..., Archive]) -> None:
    run = stored(0, findings=("barrier",), gains={"barrier": 4.0})
    found = read(store_runs(run), period=Period(FIRST, FIRST + 2))
    assert written(found) == {
        "start_timestamp_seconds": FIRST * HOUR,
        "end_timestamp_seconds": (FIRST + 2) * HOUR,
        "trend_step_seconds": HOUR,
        "matching_pipelines": 1,
        "pipelines": [
            {
                "pipeline": "cat|sort",
                "nested": False,
                "unit": "job.service",
                "parent_pipeline": None,
                "runs": 1,
                "examined_runs": 1,
                "failed_runs": 0,
                "interrupted_runs": 0,
                "unknown_runs": 1,
                "failed_ratio": None,
                "input_bytes": 0,
                "input_runs": 0,
                "wall_seconds": 10.0,
                "cpu_seconds": 5.0,
                "not_overlapped_seconds": 2.5,
                "read_bytes": 1000,
                "written_bytes": 2000,
                "longest_wall_seconds": 10.0,
                "median_wall_seconds": 10.0,
                "p95_wall_seconds": 10.0,
                "exact_percentiles": True,
                "median_input_bytes": None,
                "input_bytes_per_second": None,
                "trend": [
                    {"start_timestamp_seconds": FIRST * HOUR, "runs": 1, "wall_seconds": 10.0},
                    {"start_timestamp_seconds": (FIRST + 1) * HOUR, "runs": 0, "wall_seconds": 0.0},
                ],
                "bottleneck": "sort: CPU",
                "bottleneck_ratio": 1.0,
                "top_finding": {
                    "id": "barrier",
                    "runs": 1,
                    "expected_seconds": 4.0,
                    "bound_seconds": 4.0,
                },
                "last_run": written(run.row),
            }
        ],
    }
    assert replace(found, listed=()).lines == []
