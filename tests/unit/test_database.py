# SPDX-License-Identifier: Apache-2.0
"""The file of the history: what it stores, how it stays within its limits, what it survives."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelined.errors import UserError
from pipelined.history.archive import _LISTED, Archive, NoHistoryError, Period
from pipelined.history.database import Store
from pipelined.history.files import FILE_NAME
from pipelined.history.migrations import MIGRATIONS, migrate
from pipelined.history.packing import pack
from pipelined.history.rollup import HOUR, Pending
from pipelined.history.rows import COLUMNS, Details, Summary
from pipelined.history.run_order import as_place, order, place, stretches
from pipelined.history.run_query import Query, searched
from pipelined.runs import Series, trace_id_of
from pipelined.runs.codec import written
from unit.invented import make_ended, make_inside

NOW = 1_700_000_000.0
DAY = 86400.0
ROOMY = 256_000_000


def identities(directory: Path) -> int:
    """How many there are in the file."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection:
        return int(connection.execute("SELECT count(*) FROM identities").fetchone()[0])


def details(number: int, *, size: int = 1000, **given: Any) -> Details:
    """A run that started `number` seconds after NOW, with bulk that does not compress."""
    commands = given.pop("commands", ("cat", "sort"))
    values: dict[str, Any] = {
        "id": f"{int((NOW + number) * 1000)}-{number}",
        "pipeline": "cat|sort",
        "nested": False,
        "unit": "-",
        "start": NOW + number,
        "end": NOW + number + 1,
        "wall": 1.0,
        "partial": False,
        "cores": 0.5,
        "overlap": None,
        "cache": "warm",
        "bottleneck": "sort: CPU 97 %",
        "findings": (),
    }
    bulk = random.Random(number).randbytes(size)
    return Details(Summary(**values | given), commands, bulk, bulk[::-1])


def add(store: Store, *runs: Details) -> None:
    """Count runs and store them, as the daemon does."""
    pending = Pending(500)
    for run in runs:
        sums = pending.sums(
            Series(pipeline=run.row.pipeline, nested=run.row.nested, unit=run.row.unit), run.row.end
        )
        sums.count(run.row.wall, 1.0, 0.5, 100, 200)
    store.count(pending)
    store.add(runs)
    store.trim()


def open_store(directory: Path, **given: Any) -> Store:
    values: dict[str, Any] = {"max_age": 30 * DAY, "max_bytes": ROOMY, "clock": lambda: NOW}
    return Store(directory, **values | given)


@pytest.fixture
def filled(tmp_path: Path) -> Archive:
    with open_store(tmp_path) as store:
        store.add(
            [
                details(1, findings=("barrier", "cold-run")),
                details(2, pipeline="seq|wc", commands=("seq", "wc"), partial=True),
                details(3, unit="nightly.service", overlap=0.25, nested=True),
            ]
        )
    return Archive(tmp_path)


def numbers(rows: list[Summary]) -> list[int]:
    return [round(row.start - NOW) for row in rows]


# -- what it stores


def test_a_run_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    stored = details(7, findings=("barrier",), partial=True, overlap=0.5)
    with open_store(tmp_path) as store:
        store.add([stored])
        archive = Archive(tmp_path)
        assert archive.rows(Query(), 10) == [stored.row]
        assert archive.details(stored.row.id) == (stored.run, stored.timeline)


def test_runs_are_listed_newest_start_first(filled: Archive) -> None:
    assert numbers(filled.rows(Query(), 10)) == [3, 2, 1]
    assert numbers(filled.rows(Query(), 2)) == [3, 2]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (Query(pipeline="seq|wc"), [2]),
        (Query(pipeline="seq"), []),
        (Query(unit="nightly.service"), [3]),
        (Query(finding="barrier"), [1]),
        (Query(finding="barr"), []),
        (Query(command="cat"), [3, 1]),
        (Query(since=NOW + 2), [3, 2]),
        (Query(until=NOW + 2), [1]),
        (Query(command="cat", until=NOW + 2), [1]),
        (Query(min_duration=1.0), [3, 2, 1]),
        (Query(min_duration=1.01), []),
        (Query(top_level=True), [2, 1]),
        (Query(slower=True), []),
        (Query(failed=True), []),
        (Query(interrupted=True), []),
        (Query(failed=True, interrupted=True, command="cat"), []),
        (Query(before=details(3).row.id), [2, 1]),
    ],
)
def test_a_list_has_the_runs_that_match(filled: Archive, query: Query, found: list[int]) -> None:
    assert numbers(filled.rows(query, 10)) == found


def test_runs_that_are_hidden_are_counted_up_to_a_bound(filled: Archive) -> None:
    assert filled.hidden(Query(), 10) == 0
    assert filled.hidden(Query(top_level=True), 10) == 1
    assert filled.hidden(Query(min_duration=2.0, before="0"), 10) == 3
    assert filled.hidden(Query(min_duration=2.0, command="cat"), 10) == 2
    assert filled.hidden(Query(min_duration=2.0), 2) == 2


@pytest.mark.parametrize(
    "query",
    [
        Query(),
        Query(min_duration=10.0),
        Query(top_level=True, slower=True),
        Query(failed=True),
        Query(failed=True, interrupted=True),
        Query(since=NOW, until=NOW + 1, before="1"),
        Query(before="9"),
    ],
)
def test_a_list_goes_through_the_index(filled: Archive, query: Query) -> None:
    where, values = searched(query)
    connection = sqlite3.connect(filled._path)
    for within, places in stretches(query.get("before"), "start", NOW):
        plan = connection.execute(
            f"EXPLAIN QUERY PLAN SELECT * FROM {_LISTED} WHERE {where} AND {within}"
            f" ORDER BY {order('start')}",
            (*values, *places),
        ).fetchall()
        (step,) = (row[3] for row in plan)
        assert step.startswith("SEARCH runs USING INDEX runs_listed (id"), step
    connection.close()


def test_a_list_continues_after_a_run_that_was_removed(filled: Archive) -> None:
    assert numbers(filled.rows(Query(before=f"{int((NOW + 2.5) * 1000)}-99"), 10)) == [2, 1]


#: Wall seconds of runs by number; two of them took equally long.
WALLS = {1: 2.5, 2: 40.0, 3: 0.1, 4: 40.0, 5: 1e-05}


@pytest.fixture
def of_some_length(tmp_path: Path) -> Archive:
    with open_store(tmp_path) as store:
        store.add([details(number, wall=wall) for number, wall in WALLS.items()])
    return Archive(tmp_path)


def test_runs_are_listed_longest_first_and_of_equal_ones_the_newer(of_some_length: Archive) -> None:
    assert numbers(of_some_length.rows(Query(sort="wall"), 10)) == [4, 2, 1, 3, 5]
    assert numbers(of_some_length.rows(Query(sort="wall", until=NOW + 4), 2)) == [2, 1]
    assert numbers(of_some_length.rows(Query(sort="start"), 2)) == [5, 4]


def test_the_longest_come_page_by_page_each_once(of_some_length: Archive) -> None:
    seen, query = [], Query(sort="wall")
    while found := of_some_length.rows(query, 1):
        seen += numbers(found)
        before = place(found[-1], "wall")
        assert as_place("wall")(before) == before
        query = Query(sort="wall", before=before)
    assert seen == [4, 2, 1, 3, 5]


def test_the_longest_continue_after_a_run_that_was_removed(of_some_length: Archive) -> None:
    before = place(replace(details(3).row, wall=3.0), "wall")
    assert numbers(of_some_length.rows(Query(sort="wall", before=before), 10)) == [1, 3, 5]


@pytest.mark.parametrize(
    ("sort", "text"),
    [
        *(("wall", text) for text in ("1763-1", "40.0", "40.0:", ":1763-1", "long:1", "nan:1")),
        *(("start", text) for text in ("40.0:1763-1", "zzz", "1763/1")),
    ],
)
def test_a_place_in_another_order_is_refused(sort: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"is not the next of an answer with sort={sort}"):
        as_place(sort)(text)


@pytest.mark.parametrize(
    "query", [Query(), Query(since=NOW, top_level=True), Query(before="40.0:1"), Query(failed=True)]
)
def test_the_longest_are_found_in_the_index_alone(
    of_some_length: Archive, monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    """Whole rows are ten times as large: only those that are listed are read."""
    asked: list[str] = []

    def open_traced() -> sqlite3.Connection:
        connection = original()
        connection.set_trace_callback(asked.append)
        return connection

    original = of_some_length._open
    monkeypatch.setattr(of_some_length, "_open", open_traced)
    of_some_length.rows(Query(sort="wall", **query), 10)
    monkeypatch.undo()
    (statement,) = (text for text in asked if " FROM runs " in text)
    plan = [row[3] for row in of_some_length._read(f"EXPLAIN QUERY PLAN {statement}", ())]
    steps = [step for step in plan if re.match(r"(SCAN|SEARCH) runs", step)]
    assert {re.sub(r" \(.*", "", step) for step in steps} == {
        "SEARCH runs USING INTEGER PRIMARY KEY",
        "SCAN runs USING COVERING INDEX runs_listed",
    }


def test_the_last_run_is_the_one_that_ended_last(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add([details(1, end=NOW + 100), details(2)])
    assert Archive(tmp_path).last() == details(1).row.id


def in_a_year() -> int:
    """The number of a run that starts in a year."""
    return int(time.time() - NOW + 365 * DAY)


@pytest.fixture
def ahead(tmp_path: Path) -> Archive:
    """Of two of four runs the clock was a year ahead."""
    with open_store(tmp_path) as store:
        store.add([details(number) for number in (1, in_a_year(), in_a_year() + 9, 2)])
    return Archive(tmp_path)


def test_a_run_of_a_clock_that_was_ahead_is_the_last_one_only_if_there_is_no_other(
    ahead: Archive, tmp_path: Path
) -> None:
    assert ahead.last() == details(2).row.id
    with open_store(tmp_path / "another") as store:
        store.add([details(in_a_year())])
    assert Archive(tmp_path / "another").last() is not None


@pytest.mark.parametrize("most", [1, 3, 9])
def test_runs_of_a_clock_that_was_ahead_are_listed_last_each_once(
    ahead: Archive, most: int
) -> None:
    seen: list[Summary] = []
    while found := ahead.rows(Query(before=seen[-1].id) if seen else Query(), most):
        seen += found
    later = in_a_year()
    assert numbers(seen)[:2] == [2, 1]
    assert numbers(seen)[2:] == [pytest.approx(number, abs=5) for number in (later + 9, later)]


def test_runs_of_a_clock_that_was_ahead_are_found_by_their_time(ahead: Archive) -> None:
    assert len(ahead.rows(Query(since=time.time()), 10)) == 2
    assert numbers(ahead.rows(Query(until=time.time()), 10)) == [2, 1]


def test_ids_are_found_by_their_beginning(filled: Archive) -> None:
    assert filled.ids(details(2).row.id[:13], 10) == [details(2).row.id]
    assert len(filled.ids("17", 2)) == 2
    assert filled.ids("17%", 10) == []


def test_a_run_is_stored_once(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add([details(1)])
        store.add([details(1), details(2)])
        assert store.rows == 2
    assert numbers(Archive(tmp_path).rows(Query(), 10)) == [2, 1]


def test_what_was_stored_is_there_after_opening_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add([details(1)])
    with open_store(tmp_path) as store:
        assert store.rows == 1


# -- what is usual


def repeated(first: int, count: int, **given: Any) -> list[Details]:
    """Runs of one pipeline, one after the other, each of 10 s and 1 MB unless given."""
    values: dict[str, Any] = {"wall": 10.0, "read_bytes": 1_000_000}
    return [details(n, **values | given) for n in range(first, first + count)]


def last_of(store: Store, *runs: Details) -> tuple[float | None, bool | None]:
    """What the last of these runs usually takes, and whether it was slower."""
    row = store.add(runs)[-1]
    return row.usual, row.slower


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, (10.0, False)),
        ({"wall": 14.9}, (10.0, False)),
        ({"wall": 15.1}, (10.0, True)),
        ({"wall": 1.0}, (10.0, False)),
        ({"wall": 15.1, "cache": "cold"}, (None, None)),
        ({"wall": 15.1, "read_bytes": 500_000}, (10.0, True)),
        ({"wall": 15.1, "read_bytes": 499_999}, (None, None)),
        ({"wall": 15.1, "read_bytes": 2_000_001}, (None, None)),
        ({"wall": 15.1, "unit": "other.service"}, (None, None)),
        ({"wall": 15.1, "nested": True}, (None, None)),
        ({"wall": 15.1, "pipeline": "cat|tac"}, (None, None)),
        ({"wall": 15.1, "partial": True}, (None, None)),
        ({"wall": 15.1, "outcome": "failed"}, (None, None)),
        ({"wall": 15.1, "outcome": "interrupted"}, (None, None)),
        ({"wall": 15.1, "outcome": "unknown"}, (10.0, True)),
    ],
)
def test_a_run_is_compared_with_those_that_had_the_same_to_do(
    tmp_path: Path, given: dict[str, Any], found: tuple[float | None, bool | None]
) -> None:
    with open_store(tmp_path) as store:
        store.add(repeated(0, 5))
        assert last_of(store, *repeated(10, 1, **given)) == found


@pytest.mark.parametrize(
    ("size", "found"),
    [(1_500_000, (10.0, True)), (1_500_001, (None, None)), (None, (10.0, True))],
)
def test_a_run_is_compared_with_those_of_about_its_input(
    tmp_path: Path, size: int | None, found: tuple[float | None, bool | None]
) -> None:
    with open_store(tmp_path) as store:
        store.add(repeated(0, 5, input_bytes=1_000_000))
        assert last_of(store, *repeated(10, 1, wall=15.1, input_bytes=size)) == found


def test_a_run_of_another_input_is_compared_with_the_usual_input_and_not_marked(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path) as store:
        store.add(repeated(0, 5, input_bytes=1_000_000))
        larger = {"wall": 51.0, "read_bytes": 6_000_000, "input_bytes": 6_000_000}
        (row,) = store.add(repeated(10, 1, **larger))
    assert (row.usual, row.slower) == (None, None)
    assert row.against_usual[2:] == (6.0, 5.1)


def test_it_is_marked_once_there_are_five_of_its_input(tmp_path: Path) -> None:
    larger = {"wall": 51.0, "read_bytes": 6_000_000, "input_bytes": 6_000_000}
    with open_store(tmp_path) as store:
        store.add(repeated(0, 20, input_bytes=1_000_000))
        store.add(repeated(20, 5, **larger))
        (row,) = store.add(repeated(30, 1, **larger | {"wall": 102.0}))
    assert (row.usual, row.slower, row.against_usual.other_input) == (51.0, True, 6.0)


def test_of_a_run_that_has_not_done_all_no_usual_input_is_looked_for(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add(repeated(0, 5, input_bytes=1_000_000))
        (row,) = store.add(repeated(10, 1, input_bytes=9_000_000, partial=True))
    assert (row.usual_input, row.against_usual.other_input) == (None, None)


def test_a_run_has_a_usual_once_five_are_stored_before_it(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        runs = repeated(0, 6)
        usually = [row.usual for row in store.add(reversed(runs))]
    assert usually == [None] * 5 + [10.0]
    assert [row.usual for row in Archive(tmp_path).rows(Query(), 10)] == [10.0] + [None] * 5


@pytest.mark.parametrize(
    "given",
    [{"partial": True}, {"outcome": "failed"}, {"outcome": "interrupted"}],
    ids=["seen in part", "failed", "interrupted"],
)
def test_runs_that_have_not_done_all_are_not_compared_with(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    with open_store(tmp_path) as store:
        store.add(repeated(0, 5, **given))
        assert last_of(store, *repeated(10, 1)) == (None, None)


def test_what_is_usual_follows_the_last_thirty_runs(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add([*repeated(0, 50), *repeated(50, 15, wall=20.0)])
        assert last_of(store, *repeated(70, 1)) == (15.0, False)
        store.add(repeated(80, 15, wall=20.0))
        assert last_of(store, *repeated(100, 1)) == (20.0, False)


def test_short_runs_are_slower_only_by_more_than_a_second(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add(repeated(0, 5, wall=0.01))
        assert last_of(store, *repeated(10, 1, wall=1.0)) == (0.01, False)
        assert last_of(store, *repeated(11, 1, wall=1.02)) == (0.01, True)


def test_runs_that_were_slower_than_usual_are_found(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add([*repeated(0, 5), *repeated(10, 1, wall=20.0), *repeated(20, 1)])
    assert numbers(Archive(tmp_path).rows(Query(slower=True), 10)) == [10]


def test_what_is_usual_is_found_through_an_index(tmp_path: Path) -> None:
    statements: list[str] = []
    with open_store(tmp_path) as store:
        store.add(repeated(0, 5))
        store._connection.set_trace_callback(statements.append)
        store.add(repeated(10, 1))
        store._connection.set_trace_callback(None)
        (asked,) = (text for text in statements if text.startswith("SELECT wall FROM"))
        plan = store._connection.execute(f"EXPLAIN QUERY PLAN {asked}").fetchall()
    assert any("USING PRIMARY KEY (pipeline=? AND end<?)" in row[3] for row in plan), plan


# -- limits


def test_old_runs_are_removed(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add([details(1), details(1000)])
    with open_store(tmp_path, max_age=60, clock=lambda: NOW + 900) as store:
        assert store.rows == 1
    assert numbers(Archive(tmp_path).rows(Query(), 10)) == [1000]


def test_the_files_stay_within_their_size(tmp_path: Path) -> None:
    largest = 0
    with open_store(tmp_path, max_bytes=1_000_000) as store:
        for number in range(0, 1500, 10):
            add(store, *(details(n, size=200 * (n % 40)) for n in range(number, number + 10)))
            largest = max(largest, store.size_bytes)
    assert largest <= 1_000_000
    assert len(Archive(tmp_path).rows(Query(), 10_000)) > 30


def test_a_long_run_outlives_any_number_of_short_ones(tmp_path: Path) -> None:
    with open_store(tmp_path, max_bytes=1_000_000) as store:
        add(store, details(0, pipeline="seq|sort", wall=8.0, size=15_000))
        for number in range(1, 3001, 50):
            add(
                store,
                *(details(n, pipeline="echo|tr", wall=0.002) for n in range(number, number + 50)),
            )
        assert store.rows < 500
    archive = Archive(tmp_path)
    assert numbers(archive.rows(Query(pipeline="seq|sort"), 10)) == [0]
    assert numbers(archive.rows(Query(), 3)) == [3000, 2999, 2998]
    assert {row.series.pipeline: row.sums.runs for row in archive.rollup(Period())} == {
        "seq|sort": 1,
        "echo|tr": 3000,
    }
    assert archive.stored(Period(pipeline="echo|tr")) == (store.rows - 1, 0)


def test_a_nightly_run_outlives_thousands_of_different_pipelines(tmp_path: Path) -> None:
    random_numbers = random.Random(1)
    with open_store(tmp_path, max_bytes=1_000_000) as store:
        for number in range(0, 6000, 50):
            nightly = details(
                number,
                pipeline="pg_dump|zstd",
                wall=3600.0,
                size=10_000,
                id=f"{int((NOW + number) * 1000)}-x",
            )
            short = (
                details(n, pipeline=f"grep|tool{random_numbers.randrange(2000)}", wall=0.002)
                for n in range(number, number + 50)
            )
            add(store, *([nightly] if number % 1500 == 0 else []), *short)
        latest = Archive(tmp_path).rows(Query(), store.rows // 10)
        assert numbers(latest) == [5999 - n for n in range(len(latest))]
        assert len(latest) > 10
    found = numbers(Archive(tmp_path).rows(Query(pipeline="pg_dump|zstd"), 10))
    assert found == [4500, 3000, 1500, 0]


@settings(max_examples=10, deadline=None)
@given(st.integers(), st.integers(1, 50))
def test_every_pipeline_keeps_its_longest_and_its_latest_run(seed: int, pipelines: int) -> None:
    numbers_of = random.Random(seed)
    longest: dict[str, Summary] = {}
    latest: dict[str, Summary] = {}
    with tempfile.TemporaryDirectory() as name:
        with open_store(Path(name), max_bytes=1_000_000) as store:
            for number in range(0, 1500, 50):
                batch = []
                for n in range(number, number + 50):
                    pipeline = f"cat|{int(pipelines * numbers_of.random() ** 2)}"
                    wall = 10.0 ** numbers_of.uniform(-3, 3)
                    batch.append(details(n, size=500, pipeline=pipeline, wall=wall))
                    row = latest[pipeline] = batch[-1].row
                    longest[pipeline] = max(row, longest.get(pipeline, row), key=lambda r: r.wall)
                add(store, *batch)
            assert store.rows < 1000
        kept = {row.id for row in Archive(Path(name)).rows(Query(), 10_000)}
    assert {row.id for row in (*longest.values(), *latest.values())} <= kept


def test_old_hours_are_removed_from_the_rollup(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        add(store, details(1), details(2 * HOUR))
    with open_store(tmp_path, max_age=60, clock=lambda: NOW + 2 * HOUR + 2) as store:
        assert store.rows == 1
    assert [row.sums.runs for row in Archive(tmp_path).rollup(Period())] == [1]


def test_a_clock_that_is_ahead_for_some_minutes_does_not_empty_the_history(tmp_path: Path) -> None:
    begin, passed = (NOW // HOUR + 20_000) * HOUR, 0.0  # after 2025, as `Aging` has it
    with open_store(tmp_path) as store:
        add(store, *(details(int(begin - NOW) + hour * HOUR) for hour in range(100)))
    wrong = begin + 400 * DAY
    with open_store(tmp_path, clock=lambda: wrong + passed, monotonic=lambda: passed) as store:
        left = [store.rows]
        for _ in range(2):
            passed += 60.0
            store.trim()
            left.append(store.rows)
    assert left == [99, 97, 95]
    assert sum(row.sums.runs for row in Archive(tmp_path).rollup(Period())) == 95


def test_a_smaller_limit_shrinks_the_file(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add(details(n) for n in range(2000))
        assert store.size_bytes > 4_000_000
    with open_store(tmp_path, max_bytes=1_000_000) as store:
        assert 0 < store.rows < 2000
    assert (tmp_path / FILE_NAME).stat().st_size < 1_000_000


def test_a_run_that_is_larger_than_the_limit_leaves_an_empty_history(tmp_path: Path) -> None:
    with open_store(tmp_path, max_bytes=1_000_000) as store:
        store.add([details(1, size=600_000)])
        assert store.rows == 0
        store.add([details(2)])
        assert store.rows == 1


# -- what it survives


def test_what_a_killed_process_had_committed_survives(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        store = open_store(tmp_path)
        for number in range(100):
            store.add([details(number)])
        store._connection.execute("BEGIN")
        store._insert(details(1000))
        os.write(writing, b"!")
        os.kill(os.getpid(), 9)
    os.read(reading, 1)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)

    with open_store(tmp_path) as store:
        assert store.rows == 100
    assert not list(tmp_path.glob("*.damaged-*"))


def test_a_file_that_is_not_a_database_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database at all\n" * 500)

    with open_store(tmp_path) as store:
        store.add([details(1)])

    (aside,) = tmp_path.glob("*.damaged-*")
    assert aside.name == "history.db.damaged-20231114T221320Z"
    assert aside.read_bytes().startswith(b"not a database")
    assert f"set aside as {aside.name}" in caplog.text
    assert numbers(Archive(tmp_path).rows(Query(), 10)) == [1]


def test_a_file_with_damaged_pages_is_set_aside(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add(details(n) for n in range(200))
    with (tmp_path / FILE_NAME).open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"\xff" * 20 * 4096)

    with open_store(tmp_path) as store:
        assert store.rows == 0
    assert len(list(tmp_path.glob("*.damaged-*"))) == 1


def test_a_file_of_a_newer_version_is_set_aside(tmp_path: Path) -> None:
    newer = (*MIGRATIONS, "ALTER TABLE runs ADD COLUMN color TEXT")
    with open_store(tmp_path, migrations=newer) as store:
        store.add([details(1)])

    with open_store(tmp_path) as store:
        assert store.rows == 0
    (aside,) = tmp_path.glob("*.newer-*")
    assert sqlite3.connect(aside).execute("SELECT count(*) FROM runs").fetchone() == (1,)


def test_a_file_of_an_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add([details(1)])
    newer = (*MIGRATIONS, "ALTER TABLE runs ADD COLUMN color TEXT DEFAULT 'red'")

    with open_store(tmp_path, migrations=newer) as store:
        assert store.rows == 1
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    assert connection.execute("SELECT color FROM runs").fetchall() == [("red",)]
    assert connection.execute("PRAGMA user_version").fetchone() == (len(newer),)
    connection.close()


def test_a_file_of_the_first_version_is_read_and_written(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        migrate(connection, MIGRATIONS[:1])
        connection.execute(
            "INSERT INTO runs VALUES (1, '1700000001000-1', 'cat|sort', 0, '-', 1700000001.0,"
            " 1700000002.0, 1.0, 1, 0.5, NULL, 'warm', 'sort: CPU 97 %', '[\"barrier\"]',"
            ' \'["cat", "sort"]\')'
        )
        connection.execute("INSERT INTO details VALUES (1, x'01', x'02')")
    connection.close()

    with open_store(tmp_path) as store:
        store.add([details(2)])
    archive = Archive(tmp_path)
    old = details(1, partial=True, findings=("barrier",)).row
    assert archive.rows(Query(command="sort"), 10) == [details(2).row, old]
    assert archive.details(old.id) == (b"\1", b"\2")


def test_runs_of_the_first_version_are_rolled_up_once(tmp_path: Path) -> None:
    runs = [make_ended(n, wall=2.0 + n, overlapping=0.5) for n in range(3)]
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        migrate(connection, MIGRATIONS[:1])
        for key, run in enumerate(runs):
            connection.execute(
                "INSERT INTO runs VALUES (?, ?, ?, 1, 'u', ?, ?, ?, 0, 0.5, NULL, NULL, '-', ?, ?)",
                (
                    *(key, run.id, run.pipeline, run.start, run.end, run.wall_seconds),
                    *('["barrier"]' if key else "[]", "[]"),
                ),
            )
            packed = pack(written(run)) if key else b"unknown"
            connection.execute("INSERT INTO details VALUES (?, ?, x'02')", (key, packed))
    connection.close()

    for _ in range(2):
        with open_store(tmp_path, max_age=1e12) as store:
            assert store.rows == 3

    (found,) = Archive(tmp_path).rollup(Period())
    assert found.series == Series(pipeline="cat|sort", nested=True, unit="u")
    assert (found.sums.runs, found.sums.wall, found.sums.longest) == (3, 9.0, 4.0)
    # Of the first run only its columns can be read: half a CPU for two seconds.
    assert found.sums.cpu == pytest.approx(1.0 + 2 * runs[1].cpu_seconds)
    assert found.sums.not_overlapped == pytest.approx(sum(sum(run.levels[:2]) for run in runs[1:]))
    assert (found.sums.examined, found.sums.findings) == (3, {"barrier": 2})
    assert Archive(tmp_path).bottlenecks(Period(), [1]) == {1: {"-": 9.0}}
    assert Archive(tmp_path).stored(Period()) == (0, 3)


def test_runs_of_an_older_version_are_compared_with(tmp_path: Path) -> None:
    runs = [make_ended(n, wall=10.0) for n in range(5)]
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        migrate(connection, MIGRATIONS[:3])
        connection.execute(
            "INSERT INTO pipelines (pipeline, nested, unit) VALUES ('cat|sort', 0, '-')"
        )
        for key, run in enumerate(runs):
            connection.execute(
                "INSERT INTO runs VALUES (?, ?, ?, 0, '-', ?, ?, 10, 0, 1, NULL, 'warm',"
                " 'sort: CPU 97 %', '[]', '[]', NULL, NULL)",
                (key, run.id, run.pipeline, run.start, run.end),
            )
            packed = pack(written(run))
            connection.execute("INSERT INTO details VALUES (?, ?, x'02')", (key, packed))
            connection.execute(
                "INSERT INTO runs_of_pipelines VALUES (1, ?, ?, 10, 1000)", (run.end, key)
            )
    connection.close()

    read = sum(stage.read_bytes for stage in runs[0].stages)
    with open_store(tmp_path, max_age=1e12) as store:
        assert last_of(store, *repeated(100, 1, wall=16.0, read_bytes=read)) == (10.0, True)
    rows = Archive(tmp_path).rows(Query(), 10)
    assert [row.read_bytes for row in rows] == [read] * 6
    assert [row.slower for row in rows] == [True] + [None] * 5


def test_nested_runs_of_an_older_version_get_the_name_of_the_run_around_them(
    tmp_path: Path,
) -> None:
    job = make_ended(0, "job.sh|tee", wall=100.0)
    runs = [job, make_inside(job, 1), make_inside(replace(job, id="removed"), 2)]
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        migrate(connection, MIGRATIONS[:1])
        for key, run in enumerate(runs):
            connection.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, '-', ?, ?, 1, 0, 1, NULL, NULL, '-', ?, ?)",
                (key, run.id, run.pipeline, run.nested, run.start, run.end, "[]", "[]"),
            )
            old = written(run)
            del old["parent_pipeline"]  # a key that older versions did not know
            connection.execute("INSERT INTO details VALUES (?, ?, x'02')", (key, pack(old)))
    connection.close()

    open_store(tmp_path, max_age=1e12).close()
    rows = Archive(tmp_path).rows(Query(), 10)
    assert [(row.parent, row.parent_pipeline) for row in rows] == [
        ("removed", None),
        (job.id, "job.sh|tee"),
        (None, None),
    ]


def test_runs_of_the_first_version_make_room_like_others(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # as a daemon made it
        migrate(connection, MIGRATIONS[:1])
        for key in range(1000):
            connection.execute(
                "INSERT INTO runs VALUES (?, ?, 'a|b', 0, '-', ?, ?, ?, 0, 0.5, NULL, NULL, '-',"
                " '[]', '[]')",
                (key, str(key), NOW + key, NOW + key, 8.0 if key == 3 else 0.1),
            )
            connection.execute("INSERT INTO details VALUES (?, zeroblob(1500), x'02')", (key,))
    connection.close()

    with open_store(tmp_path, max_bytes=1_000_000) as store:
        assert 100 < store.rows < 900
        assert store.size_bytes < 1_000_000
    kept = numbers(Archive(tmp_path).rows(Query(), 1000))
    assert {3, 999, 998} <= set(kept)


def test_the_table_has_the_columns_of_a_row(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(runs)")}
    connection.close()
    assert columns == {"key", "commands", *COLUMNS}


def test_only_one_process_writes(tmp_path: Path) -> None:
    with open_store(tmp_path), pytest.raises(OSError, match="another daemon writes there"):
        open_store(tmp_path)
    with open_store(tmp_path):
        pass


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        open_store(tmp_path / "file" / "state")


def test_after_an_error_runs_are_complete_or_absent(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.add([details(1)])
        store._connection.execute(
            "CREATE TEMP TRIGGER full BEFORE INSERT ON details WHEN new.key = 3"
            " BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
        with pytest.raises(sqlite3.Error, match="disk full"):
            store.add([details(2), details(3)])
        assert store.rows == 1
    assert numbers(Archive(tmp_path).rows(Query(), 10)) == [1]


# -- reading


def test_reading_needs_no_writer_and_changes_nothing(filled: Archive, tmp_path: Path) -> None:
    before = (tmp_path / FILE_NAME).read_bytes()
    filled.rows(Query(), 10)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_directory_without_a_history_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^there is no history in {tmp_path}; .*serve makes one"):
        Archive(tmp_path).rows(Query(), 10)


def test_a_reader_never_sees_a_file_that_is_half_made(tmp_path: Path) -> None:
    read: list[int] = []
    failures: list[UserError] = []

    def read_until_made(archive: Archive) -> None:
        while True:
            try:
                read.append(len(archive.rows(Query(), 10)))
                return
            except NoHistoryError:
                continue
            except UserError as error:
                # a writer that gets no CPU holds its lock for longer than a reader waits
                if "locked" in error.message:
                    continue
                failures.append(error)
                return

    for number in range(40):
        directory = tmp_path / str(number)
        reader = threading.Thread(target=read_until_made, args=[Archive(directory)])
        reader.start()
        open_store(directory).close()
        reader.join()

    assert (read, failures) == ([0] * 40, [])


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database at all\n" * 500)
    with pytest.raises(UserError, match=r"^cannot read .*history.db: file is not a database"):
        Archive(tmp_path).rows(Query(), 10)


def test_a_file_of_another_version_is_an_error(tmp_path: Path) -> None:
    open_store(tmp_path, migrations=(*MIGRATIONS, "CREATE TABLE more (a)")).close()
    with pytest.raises(UserError, match=r"history.db is of a newer version of pipelined"):
        Archive(tmp_path).rows(Query(), 10)


def test_a_file_that_is_about_to_be_converted_is_an_error(tmp_path: Path) -> None:
    open_store(tmp_path, migrations=MIGRATIONS[:-1]).close()
    with pytest.raises(UserError, match=r"an older version of pipelined; a daemon after its upgr"):
        Archive(tmp_path).rows(Query(), 10)


def test_a_run_that_is_not_stored_has_no_details(filled: Archive) -> None:
    assert filled.details("1-1") is None


# What identifies runs

ID = "3f2a9c81b0d4" + "5e" * 26
IDENTITIES: dict[int, dict[str, str]] = {
    1: {"user": "app", "uid": "1000", "SLURM_JOB_ID": "4711"},
    2: {"user": "root", "uid": "0", "container": ID, "container_name": "etl", "image": "etl:1.4"},
    3: {"user": "app", "uid": "1000", "BUILD_URL": "http://ci/?a=b", "trace": "4bf9"},
    4: {},
    5: {"user": "app", "uid": "1000", "SLURM_JOB_ID": "4711"},
    6: {"user": "4711", "pod": "etl-0", "namespace": "batch", "SLURM_ARRAY_TASK_ID": "etl"},
}


@pytest.fixture
def identified(tmp_path: Path) -> Archive:
    with open_store(tmp_path) as store:
        add(store, *(details(number, identity=of) for number, of in IDENTITIES.items()))
    return Archive(tmp_path)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("SLURM_JOB_ID=4711", [5, 1]),
        ("4711", [6, 5, 1]),
        ("user=app", [5, 3, 1]),
        ("app", [5, 3, 1]),
        ("uid=0", [2]),
        ("user=4711", [6]),
        ("uid=app", []),
        (f"container={ID}", [2]),
        ("container=3f2a9c81b0d4", [2]),
        ("3f2a9c81b0d4", [2]),
        ("3f2a9c81b0d", []),
        ("container=etl", [2]),
        ("etl", [6, 2]),
        ("image=etl:1.4", [2]),
        ("pod=etl-0", [6]),
        ("namespace=batch", [6]),
        ("trace=4bf9", [3]),
        ("BUILD_URL=http://ci/?a=b", [3]),
        ("http://ci/?a=b", [3]),
        ("APP", []),
        ("%", []),
        ("=", []),
    ],
)
def test_runs_are_found_by_what_identifies_them(
    identified: Archive, text: str, numbers: list[int]
) -> None:
    found = identified.rows(Query(identity=text), 10)
    assert [int(row.id.partition("-")[2]) for row in found] == numbers


def test_a_list_says_what_identifies_each_run(identified: Archive) -> None:
    found = identified.rows(Query(), 10)
    assert {int(row.id.partition("-")[2]): row.identity for row in found} == IDENTITIES


def test_other_conditions_count_too(identified: Archive) -> None:
    assert len(identified.rows(Query(identity="user=app", since=NOW + 2), 10)) == 2
    assert identified.hidden(Query(identity="app", min_duration=2.0), 10) == 3


def test_equal_ones_are_stored_once_and_go_with_the_last_run(tmp_path: Path) -> None:
    later = NOW + 40 * DAY
    with open_store(tmp_path) as store:
        add(store, *(details(number, identity=of) for number, of in IDENTITIES.items()))
        add(store, details(5000, identity=IDENTITIES[2]))
        assert identities(tmp_path) == 4
    with open_store(tmp_path, clock=lambda: NOW + 30 * DAY + 4000) as store:
        assert store.rows == 1
    assert identities(tmp_path) == 1
    with open_store(tmp_path, clock=lambda: later) as store:
        assert store.rows == 0
    assert identities(tmp_path) == 0


def test_an_identity_outlives_one_of_its_runs(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        add(store, details(1, identity=IDENTITIES[1]), details(5000, identity=IDENTITIES[1]))
    with open_store(tmp_path, clock=lambda: NOW + 30 * DAY + 4000) as store:
        assert store.rows == 1
    (row,) = Archive(tmp_path).rows(Query(identity="4711"), 10)
    assert row.identity == IDENTITIES[1]


@pytest.mark.parametrize("given", [{}, {"trace_id": "4bf9" * 8}], ids=["its own", "a job's"])
def test_a_trace_is_read_as_it_was_stored(tmp_path: Path, given: dict[str, str]) -> None:
    run = details(1, **given)
    with open_store(tmp_path) as store:
        add(store, run)
    (row,) = Archive(tmp_path).rows(Query(), 10)
    assert row.trace_id == run.row.trace_id == given.get("trace_id", trace_id_of(run.row.id))


def test_a_trace_that_follows_from_the_run_takes_no_place(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        add(store, details(1))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert connection.execute("SELECT trace_id FROM runs").fetchall() == [(None,)]
