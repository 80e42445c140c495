# SPDX-License-Identifier: Apache-2.0
"""Sums of every run by pipeline and hour: what they are, and that nothing is ever lost of them."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelined.analysis.sentence import bottleneck_label
from pipelined.history.migrations import migrate
from pipelined.history.rollup import BOUNDS, HOUR, Pending, Sums
from pipelined.history.tables import ROLLUP_ROW_BYTES, SUMMED, Rollup
from pipelined.model.ledger import OTHER
from pipelined.runs import OUTCOMES, Series

#: Runs as (pipeline, nested, hour in which it ended, wall seconds).
runs = st.lists(
    st.tuples(
        st.integers(0, 30).map(lambda number: f"cat|tool{number}"),
        st.booleans(),
        st.integers(0, 5),
        st.floats(0.0, 1e5),
    ),
    max_size=80,
)


def examine(sums: Sums, findings: Iterable[str]) -> None:
    """As the archive counts the findings of one of the runs."""
    sums.examined += 1
    for finding in findings:
        sums.findings[finding] = sums.findings.get(finding, 0) + 1


def pending(counted: Iterable[tuple[str, bool, int, float]], most: int = 1000) -> Pending:
    found = Pending(most)
    for pipeline, nested, hour, wall in counted:
        sums = found.sums(Series(pipeline=pipeline, nested=nested, unit="u"), hour * HOUR + 1.0)
        outcome, size = OUTCOMES[int(wall) % len(OUTCOMES)], int(wall) if wall > 1 else None
        sums.count(wall, wall / 2, wall / 4, 10, 20, outcome, size)
        examine(sums, ["barrier"] if wall > 1 else [])
    return found


def by_hour(counted: Iterable[tuple[str, bool, int, float]]) -> dict[tuple[int, bool], Sums]:
    """What ran, by hour and whether it was nested."""
    found: dict[tuple[int, bool], Sums] = defaultdict(Sums)
    for one in counted:
        for (hour, series), sums in pending([one]).rows.items():
            found[hour, series.nested].add(sums)
    return found


def assert_equal(found: Sums, expected: Sums) -> None:
    assert found.cells == pytest.approx(expected.cells)
    assert found.findings == expected.findings


# -- the sums


def test_a_run_is_counted_with_its_figures() -> None:
    sums = Sums()
    sums.count(2.0, 1.5, 0.5, 100, 200)
    sums.count(0.003, 0.002, 0.001, 1, 2)
    assert (sums.runs, sums.wall, sums.cpu, sums.not_overlapped) == (2, 2.003, 1.502, 0.501)
    assert (sums.read_bytes, sums.written_bytes, sums.longest) == (101, 202, 2.0)
    assert sum(sums.durations) == 2


def test_inputs_are_added_up_as_far_as_they_are_known() -> None:
    sums = Sums()
    assert sums.mean_input is None
    for size in (100, None, 0, 200):
        sums.count(2.0, 1.5, 0.5, 100, 200, input_bytes=size)
    assert (sums.runs, sums.input_runs, sums.input_bytes, sums.mean_input) == (4, 3, 300, 100.0)


@given(st.lists(st.floats(BOUNDS[0] / 2, BOUNDS[-1]), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_within_a_factor_of_2(walls: list[float], share: float) -> None:
    sums = Sums()
    for wall in walls:
        sums.count(wall, 0.0, 0.0, 0, 0)
    exact = sorted(walls)[max(0, math.ceil(share * len(walls) - 1e-9) - 1)]
    found = sums.within(share)
    assert found is not None
    assert exact / 2 * (1 - 1e-9) <= found <= exact * 2 * (1 + 1e-9)


def test_sums_are_added_figure_by_figure() -> None:
    one, other = Sums(), Sums()
    one.count(2.0, 1.5, 0.5, 100, 200)
    examine(one, ["barrier"])
    other.count(0.003, 0.002, 0.001, 1, 2)
    other.count(0.003, 0.002, 0.001, 1, 2)
    examine(other, ["barrier", "cold-run"])
    examine(other, ["barrier"])
    one.add(other)
    assert one.cells[:8] == (3, 2.006, 1.504, 0.502, 102, 204, 2.0, 3)
    assert {place: runs for place, runs in enumerate(one.durations) if runs} == {1: 2, 6: 1}
    assert one.findings == {"barrier": 3, "cold-run": 1}


def test_runs_are_counted_by_their_outcome() -> None:
    sums, other = Sums(), Sums()
    for outcome in ("succeeded", "succeeded", "succeeded", "failed", "interrupted", "unknown"):
        sums.count(2.0, 1.5, 0.5, 100, 200, outcome)
    other.count(2.0, 1.5, 0.5, 100, 200, "failed")
    sums.add(other)
    assert (sums.runs, sums.failed, sums.interrupted, sums.unknown) == (7, 2, 1, 1)


def test_the_share_of_failures_is_one_of_the_runs_whose_outcome_is_known() -> None:
    assert Sums(runs=5, failed=1, interrupted=2, unknown=1).failed_share == 0.25
    assert Sums(runs=5, unknown=5).failed_share is None


def test_the_longest_of_short_runs_is_short() -> None:
    sums = Sums()
    sums.count(0.003, 0.002, 0.001, 1, 2)
    assert (sums.longest, sums.wall) == (0.003, 0.003)


def test_sums_are_read_from_the_cells_that_they_have() -> None:
    sums = Sums()
    sums.count(2.0, 1.5, 0.5, 100, 200)
    examine(sums, [])
    assert Sums.read(sums.cells) == sums
    without = Sums.read(sums.cells[:8])
    assert without.durations == [0] * (len(BOUNDS) + 1)
    assert without.cells[:8] == sums.cells[:8]


def test_a_bound_belongs_to_the_bucket_below_it() -> None:
    sums = Sums()
    for bound in BOUNDS:
        sums.count(bound, 0.0, 0.0, 0, 0)
    assert sums.durations == [1] * len(BOUNDS) + [0]
    sums.count(BOUNDS[-1] * 1.001, 0.0, 0.0, 0, 0)
    assert sums.durations[-1] == 1


def test_buckets_go_from_1_ms_to_3_days_each_4_times_the_one_before() -> None:
    assert BOUNDS[0] == 0.001
    assert 3 * 86400 < BOUNDS[-1] < 4 * 86400
    assert all(after == 4 * before for before, after in pairwise(BOUNDS))


def test_half_the_runs_did_not_exceed_the_middle_of_their_bucket() -> None:
    sums = Sums()
    for wall in (0.003, 0.003, 10.0, 10.0):
        sums.count(wall, 0.0, 0.0, 0, 0)
    assert sums.within(0.5) == 0.002
    assert sums.within(0.51) == 0.001 * 4**7 / 2
    assert sums.within(1.0) == 0.001 * 4**7 / 2
    sums.count(400_000.0, 0.0, 0.0, 0, 0)
    assert sums.within(1.0) == 400_000.0


def test_no_runs_have_no_quantile() -> None:
    assert Sums().within(0.5) is None


@given(runs, st.integers(2, 20))
def test_merging_what_waits_loses_nothing(
    counted: list[tuple[str, bool, int, float]], most: int
) -> None:
    found: dict[tuple[int, bool], Sums] = defaultdict(Sums)
    for (hour, series), sums in pending(counted, most).rows.items():
        found[hour, series.nested].add(sums)
    expected = by_hour(counted)
    assert found.keys() == expected.keys()
    for key in expected:
        assert_equal(found[key], expected[key])


def rows_of(waiting: Pending) -> set[tuple[int, str, bool]]:
    return {(hour, series.pipeline, series.nested) for hour, series in waiting.rows}


def test_half_of_the_rows_are_merged_when_one_more_would_be_too_many() -> None:
    counted = [(f"a|{number}", False, 0, 1.0 + number) for number in range(4)]
    assert len(pending(counted, most=4).rows) == 4
    waiting = pending([*counted, ("a|new", True, 0, 0.1)], most=4)
    assert rows_of(waiting) == {
        *((0, "a|2", False), (0, "a|3", False)),
        *((0, OTHER, False), (0, "a|new", True)),
    }


def test_what_could_not_be_written_is_added_to_what_waits() -> None:
    waiting = pending([("a|b", False, 0, 1.0), ("a|c", False, 0, 3.0)], most=3)
    waiting.add(pending([("a|b", False, 0, 2.0), ("a|d", False, 1, 2.0)]))
    assert rows_of(waiting) == {(0, "a|b", False), (0, "a|c", False), (1, "a|d", False)}
    assert waiting.rows[0, Series(pipeline="a|b", nested=False, unit="u")].runs == 2
    waiting.add(pending([("a|e", True, 2, 0.5)]))
    assert len(waiting.rows) == 4, "one row for each of three pipelines that were merged"
    assert rows_of(waiting) >= {(2, OTHER, True), (1, OTHER, False)}


def test_hours_are_those_of_unix_time() -> None:
    series = Series(pipeline="a|b", nested=False, unit="u")
    waiting = Pending(10)
    for end in (3_599.9 + 3600 * 470_000, 3600.0 * 470_001):
        waiting.sums(series, end)
    assert [hour for hour, _ in waiting.rows] == [470_000, 470_001]


def test_an_hour_is_that_in_which_the_run_ended() -> None:
    waiting, series = Pending(10), Series(pipeline="a|b", nested=False, unit="u")
    for end in (0.0, HOUR - 0.1, float(HOUR), 2 * HOUR + 1.0):
        waiting.sums(series, end).count(1.0, 0.0, 0.0, 0, 0)
    assert {hour: sums.runs for (hour, _), sums in waiting.rows.items()} == {0: 2, 1: 1, 2: 1}


def test_the_lightest_of_what_waits_are_merged() -> None:
    waiting = pending([("nightly|gzip", False, 0, 3600.0)], most=10)
    for number in range(1000):
        waiting.sums(Series(pipeline=f"a|{number}", nested=False, unit="u"), 1.0).count(
            0.002, 0.0, 0.0, 0, 0
        )
    assert len(waiting.rows) <= 11
    assert (0, Series(pipeline="nightly|gzip", nested=False, unit="u")) in waiting.rows
    assert waiting.rows[0, Series(pipeline=OTHER, nested=False, unit="-")].runs > 900


@pytest.mark.parametrize(
    ("brief", "label"),
    [
        ("sort: CPU 97 %", "sort: CPU"),
        ("sort: CPU 146 % of one CPU", "sort: CPU"),
        ("sort (stage 2): full pipe <1 %", "sort (stage 2): full pipe"),
        ("4 × bash: children 60 %", "bash: children"),
        ("sort (pid 71, one of 2): disk 60 %", "sort: disk"),
        ("-", "-"),
    ],
)
def test_a_bottleneck_is_counted_without_what_differs_from_run_to_run(
    brief: str, label: str
) -> None:
    assert bottleneck_label(brief) == label


# -- the tables


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    migrate(connection)
    yield connection
    connection.close()


def read(connection: sqlite3.Connection) -> dict[tuple[int, str, bool], Sums]:
    """All rows, by hour, pipeline and whether it is nested."""
    found = {}
    rows = connection.execute(
        f"SELECT hour, p.key, p.pipeline, nested, {', '.join(f'r.{name}' for name in SUMMED)}"
        " FROM rollup AS r JOIN pipelines AS p ON p.key = r.pipeline"
    ).fetchall()
    for hour, key, pipeline, nested, *cells in rows:
        sums = found[hour, pipeline, bool(nested)] = Sums.read(cells)
        sums.findings = dict(
            connection.execute(
                "SELECT finding, runs FROM rollup_findings WHERE hour = ? AND pipeline = ?",
                (hour, key),
            )
        )
    return found


@settings(max_examples=50, deadline=None)
@given(st.lists(runs, max_size=4), st.integers(3000, 20_000))
def test_merging_rows_loses_nothing(
    written: list[list[tuple[str, bool, int, float]]], max_bytes: int
) -> None:
    connection = sqlite3.connect(":memory:")
    migrate(connection)
    rollup = Rollup(connection, max_bytes)
    for counted in written:
        rollup.add(pending(counted).rows)
        rollup.trim(0)

    found: dict[tuple[int, bool], Sums] = defaultdict(Sums)
    for (hour, _, nested), sums in read(connection).items():
        found[hour, nested].add(sums)
    expected = by_hour(one for counted in written for one in counted)
    assert found.keys() == expected.keys()
    for key in expected:
        assert_equal(found[key], expected[key])
    connection.close()


def test_the_rows_of_an_hour_that_used_least_time_are_merged(
    connection: sqlite3.Connection,
) -> None:
    rollup = Rollup(connection, 20_000)
    for number in range(50):
        light = [(f"echo|tool{10 * number + n}", False, 7, 0.002) for n in range(10)]
        rollup.add(pending([*light, ("zcat|sort", False, 7, 8.0)]).rows)
        rollup.trim(0)
    found = read(connection)
    assert found[7, "zcat|sort", False].runs == 50
    assert found[7, OTHER, False].runs > 300
    assert len(found) < 120


def test_rows_that_are_too_old_are_removed_with_their_names(connection: sqlite3.Connection) -> None:
    rollup = Rollup(connection, 1_000_000)
    rollup.add(pending([("a|b", False, 3, 2.0), ("a|c", False, 4, 2.0)]).rows)
    rollup.trim(4)
    connection.execute("DELETE FROM pipelines WHERE stored = 0 AND hours = 0")
    assert list(read(connection)) == [(4, "a|c", False)]
    assert connection.execute("SELECT pipeline FROM pipelines").fetchall() == [("a|c",)]
    assert connection.execute("SELECT count(*) FROM rollup_findings").fetchone() == (1,)


def test_hours_go_oldest_first_if_not_even_one_row_of_each_fits(
    connection: sqlite3.Connection,
) -> None:
    rollup = Rollup(connection, 1000)
    rollup.add(pending([("a|b", False, hour, 1.0) for hour in range(100)]).rows)
    rollup.trim(0)
    hours = [hour for hour, _, _ in read(connection)]
    assert hours == list(range(100 - len(hours), 100))
    assert len(hours) > 3


def test_findings_of_a_run_whose_row_was_merged_are_counted(connection: sqlite3.Connection) -> None:
    rollup = Rollup(connection, 1_000_000)
    rollup.add(pending([(OTHER, True, 1, 0.5)]).rows)
    connection.execute("UPDATE pipelines SET unit = '-'")
    rollup.examine(1, 99, True, [("cold-run", 2.5)])
    rollup.add_bottleneck(1, 99, "sort: CPU", 0.5)
    sums = read(connection)[1, OTHER, True]
    assert (sums.examined, sums.findings) == (2, {"cold-run": 1})
    assert connection.execute("SELECT seconds FROM rollup_findings").fetchall() == [(2.5,)]
    assert connection.execute("SELECT * FROM rollup_bottlenecks").fetchall() == []


def test_a_row_takes_about_as_much_as_it_is_counted_for(connection: sqlite3.Connection) -> None:
    rollup = Rollup(connection, 1e12)
    hours, pipelines = range(470_000, 470_050), 100
    for hour in hours:
        rollup.add(pending([(f"cat|tool{n}", False, hour, 9.1 * n) for n in range(pipelines)]).rows)
        for key in range(1, pipelines + 1):
            rollup.examine(hour, key, False, [("barrier", 1.5)])
            rollup.add_bottleneck(hour, key, "sort: CPU", 9.1)
    tables = connection.execute(
        "SELECT sum(pgsize) FROM dbstat WHERE name GLOB 'rollup*' AND aggregate = TRUE"
    ).fetchone()
    rows = len(hours) * pipelines
    assert 0.6 * ROLLUP_ROW_BYTES < tables[0] / rows < 1.15 * ROLLUP_ROW_BYTES
