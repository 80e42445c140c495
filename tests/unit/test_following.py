# SPDX-License-Identifier: Apache-2.0
"""Whoever follows the stored runs gets each of them once, in order, and the number of the rest.

Whatever happens to the file meanwhile: runs are removed, the writer is killed, the power fails, a
backup is restored, a file is set aside.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelined.history import following
from pipelined.history import openings as module
from pipelined.history.archive import Archive
from pipelined.history.database import Store
from pipelined.history.files import FILE_NAME, LOG
from pipelined.history.following import NOW, OLDEST, FinishedPage, as_cursor, read_page
from pipelined.history.packing import pack
from pipelined.history.rows import Details, Summary
from pipelined.runs.codec import written
from unit.invented import make_ended
from unit.test_database import DAY, details
from unit.test_database import NOW as TIME


def made(number: int, **given: Any) -> Details:
    """A run that can be read back, of about 400 to 4,000 bytes."""
    found = details(number, **given)
    return replace(found, run=pack({"id": found.row.id}), timeline=bytes(400 + number % 10 * 400))


def ids(page: FinishedPage) -> list[str]:
    return [json.loads(text)["id"] for text in page.runs]


def read(directory: Path, after: str = OLDEST, limit: int = 100) -> FinishedPage:
    return read_page(Archive(directory), after, limit, secrets=False)


def name(number: int) -> str:
    return details(number).row.id


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state"


def open_store(directory: Path, **given: Any) -> Store:
    values: dict[str, Any] = {"max_age": 30 * DAY, "max_bytes": 256_000_000, "clock": lambda: TIME}
    return Store(directory, **values | given)


def remove(directory: Path, *numbers: int) -> None:
    """Remove stored runs as the writer does."""
    with closing(sqlite3.connect(directory / FILE_NAME, isolation_level=None)) as connection:
        for number in numbers:
            (key,) = connection.execute(
                "DELETE FROM runs WHERE id = ? RETURNING key", (name(number),)
            ).fetchone()
            connection.execute("DELETE FROM details WHERE key = ?", (key,))


# -- single claims


def test_runs_come_in_the_order_of_storing_and_not_of_their_starts(directory: Path) -> None:
    with open_store(directory) as store:
        store.add([made(5)])
        store.add([made(1, end=TIME + 100)])
        first = read(directory, limit=1)
        assert (ids(first), first.more, first.missing) == ([name(5)], True, 0)
        second = read(directory, first.next)
        assert (ids(second), second.more, second.missing) == ([name(1)], False, 0)
        assert read(directory, second.next) == FinishedPage([], second.next)


def test_each_run_has_the_cursor_of_its_own_place(directory: Path) -> None:
    with open_store(directory) as store:
        store.add([made(1), made(2), made(3)])
        cursors = [json.loads(text)["cursor"] for text in read(directory).runs]
        assert [ids(read(directory, cursor)) for cursor in cursors] == [
            [name(2), name(3)],
            [name(3)],
            [],
        ]


def test_runs_that_are_removed_are_counted_wherever_they_were(directory: Path) -> None:
    with open_store(directory) as store:
        store.add([made(number) for number in range(6)])
        start = read(directory, limit=1).next
        remove(directory, 1, 3, 5)
        page = read(directory, start)
        assert (ids(page), page.missing) == ([name(2), name(4)], 3)
        assert read(directory, page.next).missing == 0


def test_the_key_of_the_last_run_is_not_given_again_when_it_is_removed(directory: Path) -> None:
    with open_store(directory) as store:
        store.add([made(1), made(2)])
        seen = read(directory).next
        remove(directory, 1, 2)
        store.add([made(3)])
        page = read(directory, seen)
        assert (ids(page), page.missing, page.restarted) == ([name(3)], 0, False)
        remove(directory, 3)
    with open_store(directory) as store:
        store.add([made(4)])
        page = read(directory, seen)
        assert (ids(page), page.missing, page.restarted) == ([name(4)], 1, False)


def test_now_is_the_place_after_the_last_run_also_if_that_is_removed(directory: Path) -> None:
    with open_store(directory) as store:
        store.add([made(1)])
        remove(directory, 1)
        now = read(directory, NOW)
        assert (now.runs, now.more, now.missing) == ((), False, 0)
        store.add([made(2)])
        assert ids(read(directory, now.next)) == [name(2)]


def test_a_history_without_a_run_has_a_place_to_begin_at(directory: Path) -> None:
    with open_store(directory) as store:
        empty = [read(directory, after).next for after in (NOW, OLDEST)]
        store.add([made(1)])
        assert [ids(read(directory, after)) for after in empty] == [[name(1)]] * 2


def test_a_run_that_is_stored_twice_has_one_place(directory: Path) -> None:
    with open_store(directory) as store:
        store.add([made(1), made(2)])
        store.add([made(2), made(3)])
        page = read(directory)
        assert (ids(page), page.missing) == ([name(1), name(2), name(3)], 0)


def test_what_was_rolled_back_leaves_no_gap(directory: Path) -> None:
    unfit = replace(made(2), run={"not": "bytes"})  # type: ignore[arg-type]
    with open_store(directory) as store:
        for before in (0, 1):
            with pytest.raises(sqlite3.Error):
                store.add([made(before), unfit])
            store.add([made(before)])
        page = read(directory)
        assert (ids(page), page.missing) == ([name(0), name(1)], 0)
    with open_store(directory):
        assert read(directory, page.next) == FinishedPage([], page.next)


def test_a_cursor_of_a_file_that_was_removed_begins_anew(directory: Path) -> None:
    with open_store(directory) as store:
        store.add([made(1), made(2)])
        seen = read(directory).next
    (directory / FILE_NAME).unlink()
    with open_store(directory) as store:
        page = read(directory, seen)
        assert (page.runs, page.missing, page.restarted) == ([], None, True)
        store.add([made(3), made(4), made(5)])
        page = read(directory, seen, limit=1)
        assert (ids(page), page.more, page.missing, page.restarted) == ([name(3)], True, None, True)


def test_a_restored_backup_is_noticed_even_when_as_many_runs_were_stored_since(
    directory: Path, tmp_path: Path
) -> None:
    with open_store(directory) as store:
        store.add([made(1)])
        at_backup = read(directory).next
    shutil.copy(directory / FILE_NAME, tmp_path / "copy.db")
    with open_store(directory) as store:
        store.add([made(2), made(3)])
        after_it = read(directory).next
    shutil.copy(tmp_path / "copy.db", directory / FILE_NAME)
    with open_store(directory) as store:
        store.add([made(4), made(5), made(6)])
        page = read(directory, after_it)
        assert page.restarted
        assert ids(page) == [name(1), name(4), name(5), name(6)]
        page = read(directory, at_backup)
        assert not page.restarted
        assert ids(page) == [name(4), name(5), name(6)]


def test_a_page_ends_when_it_is_long_but_has_a_run(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MOST_TEXT", 300)  # one run has about 200
    with open_store(directory) as store:
        store.add([made(number) for number in range(5)])
        sizes, after = [], OLDEST
        while True:
            page = read(directory, after)
            sizes.append(len(page.runs))
            after = page.next
            if not page.more:
                break
    assert sizes == [2, 2, 1]


def test_a_run_that_cannot_be_read_is_missing_and_holds_nobody_up(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(directory) as store:
        store.add([made(1), replace(made(2), run=b"garbage"), made(3)])
        first = read(directory, limit=2)
        assert (ids(first), first.more, first.missing) == ([name(1)], True, 1)
        assert ids(read(directory, first.next)) == [name(3)]
    assert "1 stored runs cannot be read and are left out; key 2: " in caplog.text


def test_only_what_another_version_stored_is_read_and_written_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("it need not be read")

    monkeypatch.setattr(following, "read", refuse)
    with open_store(directory) as store:
        store.add([replace(made(1), run=pack(written(make_ended(1))))])
    assert read(directory).missing == 0
    monkeypatch.setattr(module, "stored_form", lambda: "another form")
    with open_store(directory) as store:
        store.add([replace(made(2), run=pack(written(make_ended(2))))])
    page = read(directory)
    assert (ids(page), page.missing) == ([name(1)], 1)


def test_openings_are_bounded_and_every_stored_run_keeps_a_place(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    cursors = []
    for number in range(8):
        with open_store(directory) as store:
            store.add([replace(made(number), run=pack(written(make_ended(number))))])
            cursors.append(read(directory, NOW).next)
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection:
        assert connection.execute("SELECT count(*) FROM openings").fetchone() == (3,)
    assert [read(directory, cursor).restarted for cursor in cursors] == [True] * 5 + [False] * 3
    first = read(directory, limit=1)
    page = read(directory, first.next)
    assert (ids(first) + ids(page), page.restarted) == ([name(n) for n in range(8)], False)


def test_an_opening_without_a_run_takes_no_row(directory: Path) -> None:
    for _ in range(5):
        open_store(directory).close()
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection:
        assert connection.execute("SELECT count(*) FROM openings").fetchone() == (1,)


@pytest.mark.parametrize(
    "text", ["", "7", "0123456789abcdef", "0123456789ABCDEF.1", "x.1", "newest"]
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"is neither a cursor, which is next of an earlier answer"
    ):
        as_cursor(text)


def test_a_page_is_read_through_the_keys(directory: Path) -> None:
    open_store(directory).close()
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {following._AFTER}", (1, 2)).fetchall()
    assert all("SEARCH" in row[3] and "PRIMARY KEY" in row[3] for row in plan), plan


# -- all at once


class Host:
    """A directory with a history, what happens to it, and what really was stored."""

    def __init__(self, place: Path, seed: int) -> None:
        self.numbers = random.Random(seed)
        self.place = place
        self.directory = place / "0"
        self.now = TIME
        self.files = 0
        """How many times a new file was begun."""
        self.given: list[str] = []
        """Ids in the order in which they got their places, in the past of the present file."""
        self.backup: tuple[Path, list[str], int] | None = None
        self.runs = 0
        self.copies = 0
        self.store = self.open()

    def open(self) -> Store:
        return open_store(
            self.directory,
            max_age=600.0,
            max_bytes=1_000_000,
            clock=lambda: self.now,
            monotonic=lambda: self.now,
        )

    def stored(self) -> set[str]:
        with closing(sqlite3.connect(self.directory / FILE_NAME)) as connection:
            return {run for (run,) in connection.execute("SELECT id FROM runs")}

    def step(self) -> None:
        events = [self.end_runs] * 8 + [self.pass_time, self.trim, self.reopen, self.kill]
        events += [self.cut_power, self.back_up, self.restore, self.lose_file]
        self.numbers.choice(events)()

    def end_runs(self) -> None:
        ended = []
        for _ in range(self.numbers.choice([1, 3, 60])):
            self.runs += 1
            seconds = self.now - TIME - self.numbers.random()
            ended.append(
                made(self.runs, start=TIME + seconds, end=self.now, wall=self.numbers.random())
            )
        rows: list[Summary] = self.store.add(ended)
        self.given += [row.id for row in rows]

    def pass_time(self) -> None:
        self.now += self.numbers.choice([1.0, 100.0, 300.0])

    def trim(self) -> None:
        self.store.trim()

    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()

    def kill(self) -> None:
        """What is on disk and in the page cache survives: the log as it is, without its index."""
        self._continue_with(FILE_NAME, FILE_NAME + LOG)

    def cut_power(self) -> None:
        """The log was not on disk: what had not been written back is gone."""
        self._continue_with(FILE_NAME)
        self.given = self.given[: self._last()]

    def back_up(self) -> None:
        self.copies += 1
        file = self.place / f"backup-{self.copies}.db"
        source = sqlite3.connect(self.directory / FILE_NAME)
        with closing(source), closing(sqlite3.connect(file)) as target:
            source.backup(target)
        self.backup = file, list(self.given), self.files

    def restore(self) -> None:
        if self.backup is None:
            return
        self.store.close()
        file, given, self.files = self.backup
        shutil.copy(file, self.directory / FILE_NAME)
        self.given = list(given)
        self.store = self.open()

    def lose_file(self) -> None:
        self.store.close()
        if self.numbers.random() < 0.5:
            (self.directory / FILE_NAME).unlink()
        else:  # it is set aside
            (self.directory / FILE_NAME).write_bytes(b"garbage\n" * 1000)
        self.store = self.open()
        self.files += 1000  # no number that a restored file has
        self.given = []

    def _continue_with(self, *names: str) -> None:
        old, self.copies = self.directory, self.copies + 1
        self.directory = self.place / str(self.copies)
        self.directory.mkdir()
        for each in names:
            if (old / each).exists():
                shutil.copy(old / each, self.directory / each)
        self.store.close()
        self.store = self.open()

    def _last(self) -> int:
        with closing(sqlite3.connect(self.directory / FILE_NAME)) as connection:
            return int(connection.execute("SELECT max(last) FROM openings").fetchone()[0])


class Follower:
    """Reads on where it left off, and holds each page against what really was stored."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.cursor = read(host.directory, NOW).next
        self.past, self.file = list(host.given), host.files
        """What had its place before the cursor, and in which file."""
        self.seen = 0
        self.missing = 0
        self.restarts = 0

    def step(self) -> None:
        host, given, stored = self.host, self.host.given, self.host.stored()
        page = read(host.directory, self.cursor, host.numbers.choice([1, 2, 7, 1000]))
        at = len(self.past)
        same_past = self.file == host.files and self.past == given[:at]
        assert page.restarted == (not same_past)
        if page.restarted:
            assert page.missing is None
            at = next((n for n, run in enumerate(given) if run in stored), len(given))
            self.restarts += 1
        else:
            assert page.missing is not None
            self.missing += page.missing
        rest = [run for run in given[at:] if run in stored]
        assert ids(page) == rest[: len(page.runs)]
        assert page.more == (len(page.runs) < len(rest))
        end = given.index(ids(page)[-1]) + 1 if page.more else len(given)
        if not page.restarted:
            assert page.missing == end - at - len(page.runs)
        self.seen += len(page.runs)
        self.cursor, self.past, self.file = page.next, given[:end], host.files


@pytest.mark.parametrize("seed", range(12))
def test_a_follower_gets_every_run_once_and_in_order(seed: int, tmp_path: Path) -> None:
    host = Host(tmp_path, seed)
    with closing(host.store):
        followers = [Follower(host) for _ in range(3)]
    host.store = host.open()
    for _ in range(60):
        host.step()
        for follower in followers:
            if host.numbers.random() < 0.4:
                follower.step()
    host.store.close()
    assert host.runs > 100
    assert sum(follower.seen for follower in followers) > 50
    assert sum(follower.restarts for follower in followers) > 0
