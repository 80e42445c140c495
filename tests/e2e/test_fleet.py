# SPDX-License-Identifier: Apache-2.0
"""The dashboards on a simulated fleet of 20 hosts: how much tables answer, and what they rank.

tests/fleet makes the fleet; `python -m fleet.measure` is the same with 1,000 hosts.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dashboard_files import FILES, Query, load, queries
from fleet.answers import answers, filled, near
from fleet.hosts import SLOWER
from fleet.storage import Fleet, stored
from prometheus_server import Prometheus

ROWS = 50
#: Bytes that the answer to a query of a table may have: it goes to the browser.
LARGEST = 300_000
EVERYTHING = {"left_out": "()"}

QUERIES = [query for file in FILES for query in queries(load(file))]


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(size=20, ends=int(time.time()) // 60 * 60, minutes=60)


@pytest.fixture(scope="module")
def prometheus(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with stored(fleet, tmp_path_factory.mktemp("fleet")) as server:
        yield server


def column(table: str, heading: str) -> Query:
    """The query of a column."""
    for file in FILES:
        board = load(file)
        for query in queries(board):
            title, _, letter = query.place.rpartition(" (")
            if not title.startswith(table):
                continue
            (panel,) = (p for p in _panels(board) if p["title"] == title)
            renamed = panel["transformations"][-1]["options"]["renameByName"]
            if renamed.get(f"Value #{letter.removesuffix(')')}") == heading:
                return query
    raise AssertionError((table, heading))


def _panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def answered(
    prometheus: Prometheus, fleet: Fleet, query: Query, chosen: Mapping[str, str] = {}
) -> list[tuple[dict[str, str], float]]:
    """Labels and values, the highest first."""
    chosen = {**chosen, **near(prometheus, query, fleet, chosen)}
    found = prometheus.query(filled(query, fleet, chosen), fleet.ends)
    values = [(each["metric"], float(each["value"][1])) for each in found]
    return sorted(values, key=lambda each: -each[1])


def test_a_table_answers_with_50_rows_and_300_kb_at_most(
    prometheus: Prometheus, fleet: Fleet
) -> None:
    found = [one for one in answers(prometheus, fleet, **EVERYTHING) if one.kind == "table"]
    assert {str(one.query): one.series for one in found if one.series > ROWS} == {}
    assert {str(one.query): one.size for one in found if one.size > LARGEST} == {}
    assert sum(one.series == ROWS for one in found) > 10  # there are more


def test_a_table_says_how_many_pipelines_there_are(prometheus: Prometheus, fleet: Fleet) -> None:
    (count,) = (query for query in QUERIES if query.place == "variable ran")
    ((_, shown),) = answered(prometheus, fleet, count, EVERYTHING)
    assert shown == sum(len(host.jobs) for host in fleet.hosts)


def test_what_a_column_reads_of_the_rows_hosts_and_pipelines_leaves_no_row_out(
    prometheus: Prometheus, fleet: Fleet
) -> None:
    run_time = column("Pipelines that ran", "Run time")
    every = prometheus.query(filled(run_time, fleet, {}), fleet.ends)
    longest = sorted((float(each["value"][1]) for each in every), reverse=True)
    assert [value for _, value in answered(prometheus, fleet, run_time)] == longest


def test_jobs_only_leaves_out_what_people_type(prometheus: Prometheus, fleet: Fleet) -> None:
    runs = column("Jobs", "Runs")
    units = {labels["unit"] for labels, _ in answered(prometheus, fleet, runs)}
    every = {labels["unit"] for labels, _ in answered(prometheus, fleet, runs, EVERYTHING)}
    assert every - units == {"session.scope", "user@.service"}
    assert len(units) > 10


def test_the_order_of_pipelines_has_those_that_ran_for_the_first_time_in_their_place(
    prometheus: Prometheus, fleet: Fleet
) -> None:
    first = {"unit": "team0.-ranking.job"}
    (order,) = (query for query in QUERIES if "pipelined_nested_info" in query.expr)
    placed = answered(prometheus, fleet, order, first)
    assert len(placed) == 7  # each ran once, and had ended before it was scraped
    of_one = column("Pipelines that ran", "Run time")
    run_time = {
        labels["instance"]: value for labels, value in answered(prometheus, fleet, of_one, first)
    }
    assert [run_time[labels["instance"]] for labels, _ in placed] == sorted(
        run_time.values(), reverse=True
    )


def test_a_job_has_the_run_time_of_all_hosts(prometheus: Prometheus, fleet: Fleet) -> None:
    of_one = column("Pipelines that ran", "Run time")
    of_all = column("Jobs", "Run time")
    backup = {"unit": "backup.service"}
    ((_, total),) = answered(prometheus, fleet, of_all, backup)
    each = answered(prometheus, fleet, of_one, backup)
    assert len(each) == fleet.size
    assert total == pytest.approx(sum(value for _, value in each))


def test_the_slowest_host_of_a_job_is_the_one_with_the_slow_disk(
    prometheus: Prometheus, fleet: Fleet
) -> None:
    ((labels, _),) = answered(
        prometheus, fleet, column("Jobs", "Its last run"), {"unit": "backup.service"}
    )
    assert labels["instance"] == "host0013:9905"


def test_a_job_that_became_slower_says_how_much_and_since_when(
    prometheus: Prometheus, fleet: Fleet
) -> None:
    times = {
        labels["unit"]: value
        for labels, value in answered(prometheus, fleet, column("Jobs", "× usual"))
    }
    since = {
        labels["unit"]: (fleet.ends - value / 1000) / 86400
        for labels, value in answered(prometheus, fleet, column("Jobs", "Since"))
    }
    assert times["backup.service"] == pytest.approx(SLOWER, rel=0.05)
    assert times["logrotate.service"] == pytest.approx(1, rel=0.05)
    assert 4 < since["backup.service"] <= 5.1
    assert {unit for unit in since if "mysql" not in unit} == {"backup.service"}


def test_the_change_of_such_a_job_is_marked_once_in_its_graph(
    prometheus: Prometheus, fleet: Fleet
) -> None:
    (marks,) = (query for query in QUERIES if query.place == "Run times over two weeks (B)")
    expr = filled(marks, fleet, {"__interval_ms": "3600000", "__range": "14d"})
    end = fleet.ends // 3600 * 3600  # of the days before there are full hours
    parameters = {"query": expr, "start": end - 12 * 86400, "end": end, "step": 3600}
    found = prometheus.get(f"/api/v1/query_range?{urllib.parse.urlencode(parameters)}")["result"]
    (marked,) = (one["values"] for one in found if one["metric"]["unit"] == "backup.service")
    assert len(marked) == 1


def test_runs_that_are_not_stored_are_said_beside_figures_that_lack_nothing(
    prometheus: Prometheus, fleet: Fleet
) -> None:
    itself = {q.place: q for q in QUERIES if q.dashboard == "Pipelined / Itself"}
    ((_, figures),) = answered(prometheus, fleet, itself["Missing in figures (A)"])
    ((_, stored_not),) = answered(prometheus, fleet, itself["Runs not in the history (A)"])
    assert figures == 0
    assert stored_not > 1000
