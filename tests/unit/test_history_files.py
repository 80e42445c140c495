# SPDX-License-Identifier: Apache-2.0
"""The history's files while a daemon has them open: locked, backed up, removed, replaced, held."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from pipelined import sinks
from pipelined.history import history as module
from pipelined.history.database import Store
from pipelined.history.files import FILE_NAME, OpenFiles, Reason
from pipelined.history.history import History
from pipelined.starter import boot_id
from pipelined.web.app import create_app
from sqlite_locks import holders
from unit.invented import START, make_ended, make_finished
from unit.observed import HOST, FakeObserver, run
from unit.waiting import wait_until

#: What the documented backup does, in another process.
BACKUP = """
import sqlite3, sys
source, target = sqlite3.connect(sys.argv[1]), sqlite3.connect(sys.argv[2])
source.backup(target)
source.close()
target.close()
"""


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    """A history that is written, has one run, and looks after its files often."""
    monkeypatch.setattr(sinks, "LOOK_EVERY", 0.02)
    history = History(tmp_path / "state", host=HOST, max_age=1e12, retry=0.02)
    with history.sink:
        store(history, 0)
        yield history


def store(history: History, *numbers: int) -> None:
    """Store runs, and wait until they can be read."""
    for number in numbers:
        history.sink.put(make_finished(make_ended(number)))
    wait_until(lambda: {START + number for number in numbers} <= starts(history))


def starts(history: History) -> set[float]:
    """When the stored runs began; none while it cannot be read."""
    try:
        return {summary.start for summary in history.runs(limit=10_000)}
    except module.UserError:
        return set()


def database(history: History) -> Path:
    return history.directory / FILE_NAME


def beside(history: History, suffix: str) -> Path:
    return Path(f"{database(history)}{suffix}")


def counted(history: History) -> dict[str, int]:
    return {reason: count for reason, count in history.stats().disruptions.items() if count}


def intact(file: Path) -> bool:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))


def back_up(history: History, copy: Path) -> None:
    subprocess.run([sys.executable, "-c", BACKUP, database(history), copy], check=True)


# -- locks


def test_reading_leaves_the_writer_its_locks(history: History) -> None:
    for read in (
        history.check,
        history.runs,
        lambda: history.hidden(most=10, min_duration=5.0),
        history.pipelines,
        history.rollup,
        history.counted,
        lambda: history.run("last"),
        lambda: history.ids("17"),
    ):
        read()
        assert holders(database(history)) == (os.getpid(), os.getpid())


def test_no_request_takes_the_writer_its_locks(history: History) -> None:
    observer: Any = FakeObserver(run(1, live=False), run(2))
    app = create_app(observer, host=HOST, history=history)
    client: FlaskClient = app.test_client()
    stored, ended = make_ended(0).id, run(1).id
    asked = {
        "pages.run": [f"/run/{stored}", "/run/last", "/run/none"],
        "pages.compare": [f"/compare?a={stored}&b={ended}"],
        "pages.compare_as_json": [f"/api/v1/compare?a={stored}&b={ended}"],
        "history.run": [f"/api/v1/runs/{stored}", "/api/v1/runs/last", "/api/v1/runs/17"],
        "history.runs": ["/api/v1/runs?limit=1", "/api/v1/runs?min_duration=1h"],
        "started.started": [f"/api/v1/started?by={boot_id()}:1:1"],
        "static": ["/static/page.css"],
    }
    for rule in app.url_map.iter_rules():
        for path in asked.get(rule.endpoint, [rule.rule]):
            with client.get(path) as answer:
                assert answer.status_code == (404 if path == "/run/none" else 200), path
                if answer.is_streamed:
                    next(iter(answer.iter_encoded()), None)
            assert holders(database(history)) == (os.getpid(), os.getpid()), path


def test_a_history_that_is_opened_again_leaves_readers_their_locks(
    history: History, tmp_path: Path
) -> None:
    with sqlite3.connect(database(history)) as reader:
        reader.execute("SELECT count(*) FROM runs").fetchone()
        history.sink.close()
        again = Store(history.directory, max_age=1e12, max_bytes=1 << 28)
        assert holders(database(history))[0] == os.getpid()
        again.close()
        assert holders(database(history))[0] == os.getpid()
    reader.close()
    assert holders(database(history)) == (0, 0)


# -- backups


def test_backups_under_load_lose_nothing(history: History, tmp_path: Path) -> None:
    log = beside(history, "-wal").stat().st_ino
    for number in range(1, 11):
        history.sink.put(make_finished(make_ended(number)))
        copy = tmp_path / "copy.db"
        back_up(history, copy)
        history.runs(limit=1)
        assert intact(copy)
    store(history, 11)
    assert beside(history, "-wal").stat().st_ino == log
    assert starts(history) == {START + number for number in range(12)}
    assert intact(database(history))
    assert counted(history) == {}


# -- files that are removed or replaced


def test_a_database_that_is_removed_is_counted_and_begun_anew(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    database(history).unlink()
    wait_until(lambda: counted(history) == {"database_removed": 1})
    store(history, 1)
    assert starts(history) == {START + 1}
    assert intact(database(history))
    assert caplog.messages == [f"the history in {history.directory} was removed; a new one begins"]


def test_files_that_are_all_removed_are_counted_once(history: History) -> None:
    for suffix in ("", "-wal", "-shm"):
        beside(history, suffix).unlink()
    wait_until(lambda: counted(history))
    store(history, 1)
    assert starts(history) == {START + 1}
    assert counted(history) == {"database_removed": 1}


def test_a_copy_that_takes_its_place_is_the_history(history: History, tmp_path: Path) -> None:
    back_up(history, tmp_path / "copy.db")
    store(history, 1, 2, 3)
    os.rename(tmp_path / "copy.db", database(history))
    wait_until(lambda: counted(history) == {"database_replaced": 1})
    store(history, 4)
    # What the log of the former database had would be among them, or damage, had it been applied.
    assert starts(history) == {START, START + 4}
    assert intact(database(history))


def test_a_copy_with_a_log_of_its_own_keeps_that(history: History, tmp_path: Path) -> None:
    back_up(history, tmp_path / "copy.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "copy.db")) as other:
        other.execute("UPDATE runs SET unit = 'in-its-log'")
        other.commit()
        for suffix in ("-wal", ""):
            shutil.copy(f"{tmp_path / 'copy.db'}{suffix}", f"{tmp_path / 'moved'}{suffix}")
    for suffix in ("-wal", ""):
        os.rename(f"{tmp_path / 'moved'}{suffix}", beside(history, suffix))
    wait_until(lambda: "database_replaced" in counted(history))
    store(history, 1)
    assert [run.unit for run in history.runs()] == ["-", "in-its-log"]
    assert intact(database(history))


@pytest.mark.parametrize("removed", [["-wal"], ["-shm"], ["-wal", "-shm"]])
def test_no_run_is_lost_with_the_log(
    history: History, removed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    store(history, 1, 2, 3)
    for suffix in removed:
        beside(history, suffix).unlink()
    wait_until(lambda: counted(history) == {"log_removed": 1})
    store(history, 4)
    assert starts(history) == {START + number for number in range(5)}
    assert intact(database(history))
    assert caplog.messages == [f"the log of {database(history)} was removed; no run is lost"]


def test_an_empty_log_that_a_reader_has_made_changes_nothing(history: History) -> None:
    store(history, 1)
    beside(history, "-wal").unlink()
    beside(history, "-wal").touch()
    wait_until(lambda: counted(history) == {"log_removed": 1})
    store(history, 2)
    assert starts(history) == {START, START + 1, START + 2}


def test_a_database_with_two_logs_is_set_aside(history: History, tmp_path: Path) -> None:
    back_up(history, tmp_path / "copy.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "copy.db")) as other:
        other.execute("UPDATE runs SET unit = 'in-its-log'")
        other.commit()
        shutil.copy(tmp_path / "copy.db-wal", tmp_path / "log")
    os.rename(tmp_path / "log", beside(history, "-wal"))
    wait_until(lambda: counted(history) == {"log_replaced": 1})
    store(history, 1)
    assert starts(history) == {START + 1}
    (aside,) = history.directory.glob("history.db.log-replaced-*Z")
    assert Path(f"{aside}-wal").stat().st_size


def test_a_daemon_that_stops_leaves_no_log_beside_a_copy(history: History, tmp_path: Path) -> None:
    back_up(history, tmp_path / "copy.db")
    with Store(tmp_path / "other", max_age=1e12, max_bytes=1 << 28) as store:
        os.rename(tmp_path / "copy.db", store.path)
    assert not Path(f"{store.path}-wal").exists()


def test_a_damaged_file_that_is_set_aside_is_counted(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database\n" * 1000)
    history = History(tmp_path, host=HOST)
    with history.sink:
        wait_until(lambda: counted(history) == {Reason.DAMAGED: 1})
        shown = history.disruption()
        assert shown
        assert "set aside as history.db.damaged-" in shown.what
        assert history.disruption(lambda: shown.time + module.SHOW_DISRUPTION) is None


# -- a reader that does not end


def test_a_reader_that_does_not_end_neither_loses_runs_nor_fills_the_disk(tmp_path: Path) -> None:
    most = 1_000_000
    with contextlib.ExitStack() as stack:
        history = History(tmp_path, host=HOST, max_age=1e12, max_bytes=most, retry=0.02)
        stack.enter_context(history.sink)
        store(history, 0)  # the file is there from here on
        reader = stack.enter_context(contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)))
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
        number = 0
        while not history.stats().errors:
            number += 1
            store_or_fail(history, number)
        assert (history.stats().size_bytes or 0) < 2.5 * most
        history.sink.put(make_finished(make_ended(number + 1)))
        reader.rollback()
        wait_until(lambda: {START + number, START + number + 1} <= starts(history))
        assert counted(history) == {}
    assert intact(tmp_path / FILE_NAME)


def store_or_fail(history: History, number: int) -> None:
    history.sink.put(make_finished(make_ended(number)))
    wait_until(lambda: START + number in starts(history) or history.stats().errors)


# -- what cannot be found out


def test_a_directory_that_cannot_be_looked_at_does_not_end_the_writing(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(files: OpenFiles) -> Reason | None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(OpenFiles, "disrupted", fail)
        wait_until(lambda: history.stats().errors)
    store(history, 1)
    assert counted(history) == {}


def test_a_new_database_is_made_through_no_link(tmp_path: Path) -> None:
    state, other = tmp_path / "state", tmp_path / "other"
    state.mkdir()
    (state / f"{FILE_NAME}.new").symlink_to(other)
    with Store(state, max_age=1e9, max_bytes=10_000_000):
        assert not (state / FILE_NAME).is_symlink() and not other.exists()


def test_a_database_without_a_log_has_none_that_is_removed(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch()
    files = OpenFiles(tmp_path / FILE_NAME, with_log=False)
    assert files.disrupted() is None
    (tmp_path / FILE_NAME).unlink()
    assert files.disrupted() is Reason.DATABASE_REMOVED
