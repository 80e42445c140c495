# SPDX-License-Identifier: Apache-2.0
"""Finished runs: stored in the background, listed, searched and read back."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import MISSING, replace
from pathlib import Path
from typing import Any

import pytest

from pipelined.analysis.machine import Host
from pipelined.analysis.sentence import brief
from pipelined.config.state_directory import default_directory, service_directory
from pipelined.errors import UserError
from pipelined.history import writer as module
from pipelined.history.database import Store
from pipelined.history.files import FILE_NAME
from pipelined.history.history import History, NoSuchRunError
from pipelined.history.moments import moment
from pipelined.history.rows import Summary
from pipelined.history.writer import HistoryStats
from pipelined.runs import Flow, Run, Series, Timeline
from pipelined.runs.codec import members, written
from unit.denied import deny
from unit.invented import START, make_ended, make_finished, make_inside, make_timeline
from unit.waiting import PATIENCE, wait_until

HOST = Host(cores=2, l2_bytes=1 << 20)


@pytest.fixture
def open_history(tmp_path: Path) -> Iterator[Callable[..., History]]:
    """Makes histories in one directory, and closes them at the end."""
    made: list[History] = []

    def make(**given: Any) -> History:
        values: dict[str, Any] = {"host": HOST, "max_age": 1e12}
        made.append(History(tmp_path / "state", **values | given))
        return made[-1]

    yield make
    for history in made:
        history.sink.close()


@pytest.fixture
def store_runs(open_history: Callable[..., History]) -> Callable[..., History]:
    """Stores runs, and returns a history to read them from."""

    def store(*runs: Run, **given: Any) -> History:
        history = open_history(**given)
        for run in runs:
            history.sink.put(make_finished(run))
        write(history)
        return history

    return store


def write(history: History) -> None:
    """Write everything that is queued."""
    history.sink.start()
    history.sink.close(PATIENCE)


# -- storing and finding


def test_a_run_comes_back_with_its_time_line(store_runs: Callable[..., History]) -> None:
    run = make_ended(1)
    stored = store_runs(run, show_arguments=True).run(run.id)
    assert stored.run == run
    assert stored.timeline == make_timeline(run)


def test_a_list_says_of_a_run_what_the_run_says_itself(store_runs: Callable[..., History]) -> None:
    run = make_inside(make_ended(0), 1)
    first = replace(run.stages[0], flow=Flow(5, 0, 0, 0, exact=False))
    run = replace(run, stages=(first, *run.stages[1:]))
    history = store_runs(run)
    (row,) = map(written, history.runs())
    both = row.keys() & written(run).keys() - {"outcome", "identity"}  # texts of objects
    own = {key: value for key, value in written(run).items() if key in both}
    assert {key: row[key] for key in both} == own
    unset = {
        member.keys[0]
        for member in members(Summary)
        if member.default is not MISSING and own.get(member.keys[0], MISSING) == member.default
    }
    assert not unset, "the run of this test is to have something there, or a column may lack it"


def test_command_lines_are_not_stored_unless_asked_for(
    store_runs: Callable[..., History],
) -> None:
    stored = store_runs(make_ended(1)).run("last")
    assert [stage.arguments for stage in stored.run.stages] == [None, None]


def test_a_list_has_the_figures_of_each_run(store_runs: Callable[..., History]) -> None:
    (summary,) = store_runs(make_ended(1, overlapping=0.25, partial=True)).runs()
    described = written(summary)
    assert described["id"] == make_ended(1).id
    assert described["pipeline"] == "cat|sort"
    assert described["partial"] is True
    assert described["wall_seconds"] == 1.0
    assert described["cores_used"] == 0.75
    assert described["overlap_ratio"] == 0.25
    assert described["cache_state"] == "cold"
    assert described["bottleneck"] == brief(make_ended(1))


def test_runs_are_found_by_pipeline_command_and_time(store_runs: Callable[..., History]) -> None:
    history = store_runs(make_ended(1), make_ended(2, "seq|wc"), make_ended(3))

    def starts(**given: Any) -> list[float]:
        return [summary.start - START for summary in history.runs(**given)]

    assert starts() == [3, 2, 1]
    assert starts(limit=1) == [3]
    assert starts(pipeline="seq|wc") == [2]
    assert starts(command="sort") == [3, 1]
    assert starts(since=START + 2, until=START + 3) == [2]
    assert starts(before=make_ended(3).id) == [2, 1]


def test_runs_are_found_by_finding(
    store_runs: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Barrier:
        id = "barrier"
        expected_seconds = 0.0

    monkeypatch.setattr(
        module, "findings", lambda run, host: (Barrier,) if run.pipeline == "cat|sort" else ()
    )
    history = store_runs(make_ended(1), make_ended(2, "seq|wc"))
    assert [summary.findings for summary in history.runs(finding="barrier")] == [("barrier",)]


def test_a_run_is_named_by_its_id_a_beginning_of_it_or_last(
    store_runs: Callable[..., History],
) -> None:
    history = store_runs(make_ended(1, wall=100.0), make_ended(2))
    assert history.run(make_ended(2).id).run.id == make_ended(2).id
    assert history.run(make_ended(2).id[:-2]).run.id == make_ended(2).id
    assert history.run("last").run.id == make_ended(1).id


def test_an_id_of_no_run_is_refused(store_runs: Callable[..., History]) -> None:
    with pytest.raises(NoSuchRunError, match=r"^there is no run 99; pipelined runs lists"):
        store_runs(make_ended(1)).run("99")


def test_an_id_of_several_runs_is_refused(store_runs: Callable[..., History]) -> None:
    history = store_runs(*[make_ended(number) for number in range(1, 6)])
    with pytest.raises(NoSuchRunError, match=r"^several runs begin with 17: (\S+, ){2}\S+ …; give"):
        history.run("17")


def test_a_whole_id_wins_over_ids_that_begin_with_it(store_runs: Callable[..., History]) -> None:
    history = store_runs(make_ended(1, id="1-1"), make_ended(2, id="1-10"))
    assert history.run("1-1").run.id == "1-1"


def test_a_history_without_a_run_has_no_last(store_runs: Callable[..., History]) -> None:
    with pytest.raises(NoSuchRunError, match=r"^the history has no run yet"):
        store_runs().run("last")


def test_a_run_in_an_unknown_form_is_an_error(store_runs: Callable[..., History]) -> None:
    history = store_runs(make_ended(1))
    with sqlite3.connect(history.directory / FILE_NAME) as connection:
        connection.execute("UPDATE details SET run = x'00'")
    connection.close()
    with pytest.raises(UserError, match=r"^run \S+ is stored in a form that this version cannot"):
        history.run("last")


# -- writing


def test_a_run_is_stored_while_the_daemon_runs(open_history: Callable[..., History]) -> None:
    history = open_history()
    history.sink.start()
    history.sink.put(make_finished(make_ended(1)))
    wait_until(lambda: history.stats().runs == 1)
    assert len(history.runs()) == 1
    assert (history.stats().size_bytes or 0) > 4096


def test_each_stored_run_is_reported_with_how_long_it_took_compared_with_others(
    open_history: Callable[..., History],
) -> None:
    compared: list[tuple[Series, float | None]] = []
    history = open_history(compared=lambda *given: compared.append(given))
    runs = [make_ended(number) for number in range(5)]
    for run in [*runs, make_ended(5, wall=3.0)]:
        history.sink.put(make_finished(run))
    write(history)
    assert compared == [(runs[0].series, ratio) for ratio in (*[None] * 5, 3.0)]


def test_runs_that_cannot_be_stored_are_not_as_the_one_before_them(
    open_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alert reads how long the last run took: it may not go on for one that was as usual."""
    compared: list[tuple[Series, float | None]] = []
    history = open_history(compared=lambda *given: compared.append(given))

    def full(_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(module.Store, "trim", full)
    writer: Any = history.sink._writer
    runs = [make_finished(make_ended(number)) for number in range(2)]
    assert writer.write(runs, last=False).taken == 0
    assert compared[-1:] == [(runs[0].series, None)]


def test_a_batch_that_has_used_its_cpu_time_leaves_the_shorter_runs_to_the_next(
    open_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.0)
    monkeypatch.setattr(module, "SAVED", 1e9)
    history = open_history()
    for number, wall in enumerate((2.0, 1.0, 3.0)):
        history.sink.put(make_finished(make_ended(number, wall=wall)))
    history.sink.start()
    wait_until(lambda: history.stats().runs == 3)
    with closing(sqlite3.connect(history.directory / FILE_NAME)) as connection:
        stored = connection.execute("SELECT wall FROM runs ORDER BY key").fetchall()
    assert stored == [(3.0,), (2.0,), (1.0,)]


def test_a_run_that_takes_long_to_store_does_not_crowd_out_what_waits(
    open_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has room for nothing else; the jobs of the next seconds are not dropped for it."""
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.0)
    monkeypatch.setattr(module, "SAVED", 0.0)
    monkeypatch.setattr(module.HistoryWriter, "_described", slowly(module.HistoryWriter._described))
    writer: Any = open_history().sink._writer
    written = writer.write([make_finished(make_ended(number)) for number in range(30)], last=False)
    assert (written.taken, written.pause) == (1, module.LONGEST_PAUSE)
    assert written.room == module.LEAST


def slowly(described: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Takes a twentieth of a second of CPU more."""

    def describe(*given: Any) -> Iterator[Any]:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        yield from described(*given)

    return describe


def test_a_run_that_was_queued_before_the_start_is_stored(
    open_history: Callable[..., History],
) -> None:
    history = open_history()
    history.sink.put(make_finished(make_ended(1)))
    write(history)
    assert len(history.runs()) == 1


def test_if_more_runs_end_than_it_takes_the_longest_are_stored(
    open_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAVED", 1e9)  # however much CPU time a run takes here
    history = open_history()
    spare = 20
    for number in range(module.QUEUE + spare):
        history.sink.put(make_finished(make_ended(number, wall=1.0 + number % 7)))
    history.sink.put(make_finished(make_ended(9999, wall=500.0)))

    assert history.sink.dropped == spare + 1
    write(history)
    kept = history.runs(limit=10_000)
    assert len(kept) == module.QUEUE
    assert max(summary.wall for summary in kept) == 500.0
    assert min(summary.wall for summary in kept) == 1.0
    longest = range(6, module.QUEUE + spare, 7)
    assert sum(summary.wall == 7.0 for summary in kept) == len(longest)
    counted = history.counted()
    assert (counted.runs, counted.stored) == (module.QUEUE + spare + 1, module.QUEUE)
    assert not counted.all_stored


def test_a_burst_is_stored_within_seconds_and_nothing_of_it_is_dropped(
    open_history: Callable[..., History],
) -> None:
    history = open_history()
    for number in range(module.QUEUE):
        history.sink.put(make_finished(make_ended(number)))
    history.sink.start()
    wait_until(lambda: history.stats().runs == module.QUEUE)
    assert history.sink.dropped == 0


def test_writing_pauses_for_its_share_of_a_cpu_but_not_for_long(
    open_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With next to no share, what the next batch can take is written all the same."""
    monkeypatch.setattr(module, "SAVED", 0.0)
    monkeypatch.setattr(module, "SHARE", 1e-9)
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.05)
    history = open_history()
    for number in range(2 * module.BATCH):
        history.sink.put(make_finished(make_ended(number)))
    history.sink.start()
    wait_until(lambda: history.stats().runs == 2 * module.BATCH)
    assert history.sink.dropped == 0


def test_what_cannot_be_written_soon_does_not_wait_and_the_longest_runs_do(
    open_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that is killed loses no more than waits."""
    monkeypatch.setattr(module, "SAVED", 0.0)
    monkeypatch.setattr(module, "SHARE", 1e-9)
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.5)
    history = open_history()
    for number in range(module.QUEUE):
        history.sink.put(make_finished(make_ended(number, wall=1.0 + number)))
    history.sink.start()
    wait_until(lambda: history.stats().runs == 2 * module.BATCH)
    assert history.sink.dropped == module.QUEUE - 2 * module.BATCH
    walls = [summary.wall for summary in history.runs(limit=module.QUEUE)]
    assert min(walls) == 1.0 + module.QUEUE - 2 * module.BATCH
    assert history.counted().runs == module.QUEUE


def test_a_run_that_cannot_be_described_is_counted_and_the_others_stored(
    open_history: Callable[..., History], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> tuple[Run, Timeline]:
        raise ZeroDivisionError("what a run")

    history = open_history()
    history.sink.put(make_finished(make_ended(2))._replace(make=fail))
    history.sink.put(make_finished(make_ended(1)))
    write(history)
    assert len(history.runs()) == 1
    assert history.sink.dropped == 1
    assert "what a run" in caplog.text


def test_a_directory_that_cannot_be_written_is_logged_once_and_tried_again(
    open_history: Callable[..., History], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (tmp_path / "state").touch()
    history = open_history(retry=0.01)
    history.sink.start()
    history.sink.put(make_finished(make_ended(1)))
    wait_until(lambda: history.stats().errors >= 3)
    assert history.stats().runs is None
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "cannot be written: file exists; pipelines are still observed" in caplog.text

    (tmp_path / "state").unlink()
    wait_until(lambda: history.stats().runs == 1)
    assert history.sink.dropped == 0
    history.sink.close()
    assert "can be written again" in caplog.text


def test_after_its_file_is_removed_a_new_history_begins(
    open_history: Callable[..., History], caplog: pytest.LogCaptureFixture
) -> None:
    history = open_history()
    history.sink.start()
    history.sink.put(make_finished(make_ended(1)))
    wait_until(lambda: history.stats().runs == 1)
    for file in history.directory.iterdir():
        file.unlink()

    history.sink.put(make_finished(make_ended(2)))

    wait_until(lambda: [run.start for run in readable(history)] == [START + 2])
    assert "was removed; a new one begins" in caplog.text


def test_a_daemon_whose_history_cannot_be_made_reports_why(
    open_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Store:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "Store", refuse)
    history = open_history()
    history.sink.start()
    wait_until(lambda: history.stats().errors == 1)
    for ask in (history.runs, lambda: history.run("last"), lambda: history.run("17")):
        with pytest.raises(UserError, match=r"state cannot be written: no space left on device$"):
            ask()


def test_a_daemon_that_is_about_to_make_its_history_has_no_run_yet(
    open_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, go_on = threading.Event(), threading.Event()

    def open_slowly(*given: Any, **options: Any) -> Store:
        opened.set()
        go_on.wait(PATIENCE)
        return Store(*given, **options)

    monkeypatch.setattr(module, "Store", open_slowly)
    history = open_history()
    history.sink.start()
    opened.wait(PATIENCE)
    try:
        assert history.runs() == []
        with pytest.raises(NoSuchRunError, match=r"^the history has no run yet"):
            history.run("last")
    finally:
        go_on.set()


def test_only_the_first_of_two_daemons_writes(
    open_history: Callable[..., History], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = open_history(), open_history()
    first.sink.start()
    wait_until(lambda: first.stats().runs == 0)
    second.sink.start()
    wait_until(lambda: second.stats().errors == 1)
    assert second.stats() == HistoryStats(None, None, 1)
    assert second.sink.dropped == 0
    wait_until(lambda: "another daemon writes there" in caplog.text)


def readable(history: History) -> list[Summary]:
    """The runs, or none while there is no file to read them from."""
    try:
        return history.runs()
    except UserError:
        return []


# -- the roll-up


def test_every_run_is_counted_by_pipeline(store_runs: Callable[..., History]) -> None:
    history = store_runs(*[make_ended(n) for n in range(3)], make_ended(4, "seq|wc", wall=9.0))
    first, second = history.rollup()
    assert (first.series.pipeline, first.sums.runs, first.sums.wall) == ("seq|wc", 1, 9.0)
    run = make_ended(0)
    assert (second.sums.runs, second.sums.wall) == (3, 3.0)
    assert second.sums.cpu == pytest.approx(3 * run.cpu_seconds)
    assert second.sums.not_overlapped == pytest.approx(3 * sum(run.levels[:2]))
    assert second.sums.examined == 3


def test_nested_runs_are_counted_apart(store_runs: Callable[..., History]) -> None:
    job = make_ended(1, "job.sh|tee", wall=100.0)
    inner = [make_inside(job, n, "seq|sort") for n in (10, 20, 30)]
    counted = store_runs(job, *inner).counted()
    assert (counted.runs, counted.stored, counted.most_frequent) == (1, 1, "job.sh|tee")
    assert (counted.nested, counted.stored_nested, counted.all_stored) == (3, 3, True)


def test_a_nested_run_is_listed_with_the_run_that_encloses_it(
    store_runs: Callable[..., History],
) -> None:
    job = make_ended(1, "job.sh|tee", wall=100.0)
    history = store_runs(make_inside(job, 10, "seq|sort"), make_ended(20))
    other, inner = history.runs()
    assert (other.parent, other.parent_pipeline) == (None, None)
    assert (inner.parent, inner.parent_pipeline) == (job.id, "job.sh|tee")
    assert history.run(inner.id).run.parent_pipeline == "job.sh|tee"


def test_counted_runs_are_those_of_whole_hours(store_runs: Callable[..., History]) -> None:
    hour = 3600 - START % 3600  # from START to the next full hour
    history = store_runs(make_ended(1), make_ended(int(hour) + 9), make_ended(int(hour) + 5000))
    assert history.counted(since=START + hour + 600).runs == 2
    assert history.counted(since=START + hour + 600).start == START + hour
    assert history.counted(until=START + hour + 600).runs == 2
    assert history.counted(until=START + hour).runs == 1
    assert history.counted(pipeline="seq|wc").most_frequent is None
    assert history.counted(unit="-").most_frequent == "cat|sort"


def test_a_run_is_counted_once_however_often_writing_fails(
    open_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    history = open_history(retry=0.01)
    failures = [sqlite3.OperationalError("disk full")] * 2

    def add(store: Store, runs: Any) -> list[Summary]:
        if failures:
            raise failures.pop()
        return original(store, runs)

    def count(store: Store, pending: Any) -> None:
        if len(failures) == 2:
            raise failures.pop()
        counting(store, pending)

    original, counting = Store.add, Store.count
    monkeypatch.setattr(Store, "add", add)
    monkeypatch.setattr(Store, "count", count)
    history.sink.put(make_finished(make_ended(1)))
    history.sink.start()
    wait_until(lambda: history.stats().runs == 1)
    assert history.stats().errors == 2
    assert history.counted().runs == 1


# -- where, and when


def test_an_exception_loses_neither_runs_nor_sums(
    open_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = [ZeroDivisionError("what a store")]
    opened = module.HistoryWriter._opened

    def open_store(self: module.HistoryWriter) -> Store:
        if failures:
            raise failures.pop()
        return opened(self)

    monkeypatch.setattr(module.HistoryWriter, "_opened", open_store)
    history = open_history()
    history.sink.put(make_finished(make_ended(1)))
    write(history)
    assert [row.sums.runs for row in history.rollup()] == [1]
    assert (len(history.runs()), history.sink.dropped) == (1, 0)
    assert history.stats().errors == 1


def test_a_file_that_cannot_be_looked_at_loses_neither_runs_nor_sums(
    open_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [PermissionError(13, "Permission denied")]
    size = vars(Store)["size_bytes"].fget

    def size_bytes(store: Store) -> int:
        if failures:
            raise failures.pop()
        return int(size(store))

    monkeypatch.setattr(Store, "size_bytes", property(size_bytes))
    history = open_history(retry=0.01)
    history.sink.start()
    for number in (1, 2):
        history.sink.put(make_finished(make_ended(number)))
    wait_until(lambda: history.stats().runs == 2)
    history.sink.close(PATIENCE)
    assert sum(row.sums.runs for row in history.rollup()) == 2
    assert (history.stats().errors, history.sink.dropped) == (1, 0)


def test_sums_that_cannot_be_counted_keep_no_others_from_it(
    open_history: Callable[..., History], caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite has no number of 2^63 bytes."""
    history = open_history()
    history.sink.put(make_finished(make_ended(1, "good|sort")))
    bad = make_finished(make_ended(2, "bad|sort"))._replace(written_bytes=1 << 63)
    history.sink.put(bad)
    write(history)
    assert [row.series.pipeline for row in history.rollup()] == ["good|sort"]
    assert len(history.runs()) == 2
    assert history.stats().errors == 1
    assert "the sums of bad|sort are lost (runs: 1)" in caplog.text


@pytest.mark.parametrize(
    ("environment", "directory"),
    [
        ({}, "/var/lib/pipelined"),
        ({"STATE_DIRECTORY": ""}, "/var/lib/pipelined"),
        ({"STATE_DIRECTORY": "/var/lib/private/p"}, "/var/lib/private/p"),
        ({"STATE_DIRECTORY": "/a:/b"}, "/a"),
    ],
)
def test_the_directory_is_the_one_that_systemd_gives(
    environment: dict[str, str], directory: str
) -> None:
    assert default_directory(environment) == Path(directory)


@pytest.mark.parametrize(
    ("text", "environment", "directory"),
    [
        (None, {}, "/var/lib/pipelined"),
        ("", {}, "/var/lib/pipelined"),
        ("state-directory = '/srv/p'\n", {}, "/srv/p"),
        ("state-directory = '/srv/p'\n", {"STATE_DIRECTORY": "/a"}, "/a"),
        ("state-directory = 1\n", {}, "/var/lib/pipelined"),
    ],
)
def test_commands_read_the_history_that_the_service_writes(
    tmp_path: Path, text: str | None, environment: dict[str, str], directory: str
) -> None:
    file = tmp_path / "pipelined.toml"
    if text is not None:
        file.write_text(text)
    assert service_directory(environment, file) == Path(directory)


def test_a_directory_that_may_not_be_searched_names_no_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has passwords and keys."""
    deny(monkeypatch, Path("/etc/pipelined"))
    assert service_directory({}) == Path("/var/lib/pipelined")


def test_moments_are_written_as_people_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert moment("2h", lambda: START) == START - 7200
    assert moment("30d", lambda: START) == START - 30 * 86400
    assert moment("2026-11-21T03:00:00+00:00") == 1795230000.0
    assert moment("2026-11-21 03:00Z") == 1795230000.0
    assert moment("2026-11-21 03:00") - moment("2026-11-21") == 3 * 3600
    assert moment("1795230000.5") == 1795230000.5


@pytest.mark.parametrize("text", ["", "yesterday", "2 h", "-2h", "2026-13-01", "nan", "inf"])
def test_text_that_is_not_a_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a moment such as 2h"):
        moment(text)
