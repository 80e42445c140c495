# SPDX-License-Identifier: Apache-2.0
"""The file that finished runs are stored in: SQLite with a write-ahead log (WAL).

A run is a row of its own as long as there is room (`tables.Ranking` chooses which), and every
run is in the sums of its hour (`tables.Rollup`). One process writes (`Store`);
a lock on the directory keeps others from writing. Any number of processes read (`archive`), also
while it writes and after it has ended. A process that is killed loses what it had not committed,
and leaves a file that opens. This module handles rows and bytes; `history` makes them from runs.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipelined.analysis.sentence import bottleneck_label
from pipelined.history.aging import Aging
from pipelined.history.files import (
    FILE_NAME,
    LOG,
    Disruption,
    OpenFiles,
    Reason,
    set_aside,
    sizes,
)
from pipelined.history.migrations import MIGRATIONS
from pipelined.history.opening import UnfitError, lock, open_file
from pipelined.history.openings import Numbering
from pipelined.history.rollup import HOUR, Pending
from pipelined.history.rows import COLUMNS, Details, Summary, insertion
from pipelined.history.tables import ROLLUP_ROW_BYTES, Pipelines, Ranked, Ranking, Rollup
from pipelined.history.usual import is_slower, usual
from pipelined.runs import Series

__all__ = ["LogFullError", "Store"]

#: The write-ahead log takes at most this part (a quarter) of the size limit, and these bytes.
_LOG_SHARE, _LOG_BYTES = 4, 4 << 20
#: Index of the log, which readers and the writer share (bytes).
_LOG_INDEX_BYTES = 32 << 10
#: A transaction takes at most about this part of the log.
_BATCH_SHARE = 16
#: The roll-up takes at most the first part of the size limit, or up to the second one if it needs
#: that to have two rows for each hour.
_ROLLUP_SHARE, _ROLLUP_MOST = 0.15, 0.25
#: While the files are too large, 1/_MAKE_ROOM of the runs is removed at a time, at most
#: _MOST_REMOVED.
_MAKE_ROOM, _MOST_REMOVED = 50, 100
#: A run that is stored already is left as it is.
_INSERT = f"{insertion('runs', ('key', *COLUMNS, 'commands'))} ON CONFLICT (id) DO NOTHING"
#: What identifies runs is a row as long as a run refers to it.
_INSERT_IDENTITY = "INSERT INTO identities (identity) VALUES (?) ON CONFLICT DO NOTHING"
_IDENTITIES_OF = (
    "SELECT DISTINCT identity FROM runs WHERE key IN (SELECT value FROM json_each(?))"
    " AND identity IS NOT NULL"
)
_DELETE_IDENTITY = (
    "DELETE FROM identities WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM runs WHERE identity = ?1)"
)
_IDENTITY = COLUMNS.index("identity")

log = logging.getLogger(__name__)


class LogFullError(OSError):
    """A reader that does not end keeps the log from being written back."""


class Store(contextlib.AbstractContextManager["Store"]):
    """The file, open for its only writer, in one thread."""

    def __init__(
        self,
        directory: Path,
        *,
        max_age: float,
        max_bytes: int,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        migrations: Sequence[str] = MIGRATIONS,
    ) -> None:
        """Open or create the file. Runs that ended more than `max_age` seconds ago are removed, but
        not many at once (`Aging`).

        All files together stay within `max_bytes`. A file that is damaged, or that a newer
        version wrote, is set aside. Raises OSError or sqlite3.Error if the directory cannot be
        written.
        """
        self.path = directory / FILE_NAME
        self.rows = 0
        self.set_aside: Disruption | None = None
        """What kept the file from being used; None if there was none, or it is the one in use."""
        self._clock = clock
        self._log_bytes = min(_LOG_BYTES, max_bytes // _LOG_SHARE)
        self._max_bytes = max_bytes - self._log_bytes - _LOG_INDEX_BYTES
        self._most_log_bytes = max_bytes
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        with contextlib.ExitStack() as undo:
            self._lock = lock(directory)
            undo.callback(os.close, self._lock)
            try:
                self._connection = open_file(self.path, self._log_bytes, migrations)
            except UnfitError as error:
                self.set_aside = self._set_aside(error.reason, str(error))
                self._connection = open_file(self.path, self._log_bytes, migrations)
            undo.callback(self._connection.close)
            mode = self._connection.execute("PRAGMA journal_mode").fetchone()[0]
            self._files = OpenFiles(self.path, with_log=mode == "wal")
            self.rows = self._number("SELECT count(*) FROM runs")
            self._numbering = Numbering(self._connection)
            self._pipelines = Pipelines(self._connection)
            self._ranking = Ranking(self._connection)
            needed = 2 * ROLLUP_ROW_BYTES * max_age / HOUR
            self._rollup = Rollup(
                self._connection,
                max(self._max_bytes * _ROLLUP_SHARE, min(self._max_bytes * _ROLLUP_MOST, needed)),
            )
            self._aging = Aging(max_age, self._oldest(), clock, monotonic)
            self.trim()
            # What the trim freed, and the log of a migration, are given back now.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            undo.pop_all()

    def count(self, pending: Pending) -> None:
        """Add sums to the roll-up: all of them, or none if it raises.

        Raises LogFullError if nothing can be written before a reader ends, or sqlite3.Error.
        """
        self._check_log()
        with self._transaction():
            self._rollup.add(pending.rows)

    def add(self, runs: Iterable[Details]) -> list[Summary]:
        """Store runs, and make room for them. A run that is stored already is left as it is.

        They are in the roll-up by then (`count`), but for their findings and bottlenecks. Returns
        the rows that were stored, with what is usual for each. Raises sqlite3.Error if they cannot
        be stored; some of them may be stored nevertheless.
        """
        stored: list[Summary] = []
        for batch in _batches(runs, self._log_bytes // _BATCH_SHARE):
            batch.sort(key=lambda details: details.row.end)  # each is compared with those before
            with self._transaction():
                rows = [row for details in batch if (row := self._insert(details))]
                self._numbering.save()
                self.rows += len(rows)
                while self._make_room():
                    pass
            self._shrink()
            stored += rows
        return stored

    def trim(self) -> None:
        """Remove what is too old or too much."""
        limit = self._aging.limit()
        with self._transaction():
            self._rollup.trim(int(limit // HOUR))
            self._pipelines.forget()
        surplus = True
        while surplus:  # in small transactions, which fit in the log
            with self._transaction():
                surplus = self._remove_old(limit) or self._make_room()
        self._shrink()

    def disrupted(self) -> Reason | None:
        """What has happened to the files since they were opened; None: they are in their places."""
        return self._files.disrupted()

    @property
    def size_bytes(self) -> int:
        """Size of the files on disk."""
        return sum(sizes(self.path).values())

    def close(self) -> Disruption | None:
        """Write the log back, and release the lock.

        If something has happened to the files, what is in them is saved as far as it is known to
        belong together, and what is in their places is left as it is. Returns what happened.
        """
        try:
            reason = self.disrupted()
            return None if reason is None else self._give_up(reason)
        finally:
            try:
                self._connection.close()
            finally:
                os.close(self._lock)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _give_up(self, reason: Reason) -> Disruption:
        """See that SQLite, when it closes these files, damages none; report what happened."""
        match reason:
            case Reason.LOG_REMOVED:  # we still have it open
                lost = "no run is lost" if self._write_back() else "what could not be saved is lost"
                what = f"the log of {self.path} was removed; {lost}"
            case Reason.LOG_REPLACED:  # to apply both to the database would damage it
                return self._set_aside(reason, "another program has written to it")
            # SQLite neither writes back nor removes the log of a database that is not at its path.
            case Reason.DATABASE_REMOVED:
                self._files.remove_log()
                what = f"the history in {self.path.parent} was removed; a new one begins"
            case _:
                self._files.remove_log()
                what = f"{self.path} was replaced by another file, which is used from now on"
        return self._disruption(reason, what)

    def _write_back(self) -> bool:
        """Write the whole log into the database; False if that fails, or a reader prevents it."""
        try:
            checkpoint = self._connection.execute("PRAGMA wal_checkpoint(FULL)")
            busy, logged, written_back = checkpoint.fetchone()
        except sqlite3.Error:
            return False
        return not busy and logged == written_back

    def _set_aside(self, reason: Reason, why: str) -> Disruption:
        aside = set_aside(self.path, reason, self._clock())
        return self._disruption(
            reason,
            f"{self.path} cannot be used ({why}): set aside as {aside.name}; a new history begins",
        )

    def _disruption(self, reason: Reason, what: str) -> Disruption:
        log.warning("%s", what)
        return Disruption(reason, self._clock(), what)

    # -- writing

    def _check_log(self) -> None:
        """Raises LogFullError if the log is as large as it may be, and cannot be written back.

        That takes a reader that began long ago: SQLite keeps all that was written since.
        """
        if sizes(self.path)[LOG] <= self._most_log_bytes:
            return
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if sizes(self.path)[LOG] > self._most_log_bytes:
            raise LogFullError(
                errno.EBUSY, f"a program that reads {FILE_NAME} does not end, and its log is full"
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        rows = self.rows
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self.rows = rows
            # A full disk may have rolled it back already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._numbering.load()
            self._rollup.load()
            raise

    def _insert(self, details: Details) -> Summary | None:
        """Insert a run. Returns its row; None if the run is stored already."""
        row = details.row
        pipeline = self._pipelines.key(
            Series(pipeline=row.pipeline, nested=row.nested, unit=row.unit)
        )
        # Of a partial run a part of its time is not known; one that failed has not done its work.
        read_bytes = row.read_bytes if row.complete and not row.partial else None
        if read_bytes is not None:
            row = self._with_usual(row, pipeline, read_bytes)
        if row.identity:
            self._connection.execute(_INSERT_IDENTITY, (row.cells[_IDENTITY],))
        key, hour = self._numbering.next, int(row.end // HOUR)
        inserted = self._connection.execute(
            _INSERT,
            (key, *row.cells, json.dumps(details.commands)),
        )
        if not inserted.rowcount:
            return None
        self._numbering.take()
        self._connection.execute(
            "INSERT INTO details VALUES (?, ?, ?)", (key, details.run, details.timeline)
        )
        ranked = Ranked(pipeline, row.end, key, row.wall, details.size)
        input_bytes = None if read_bytes is None else row.input_bytes
        self._ranking.enter(ranked, row.cache, read_bytes, input_bytes)
        gains = [(finding, details.gains.get(finding, 0.0)) for finding in row.findings]
        self._rollup.examine(hour, pipeline, row.nested, gains)
        self._rollup.add_bottleneck(hour, pipeline, bottleneck_label(row.bottleneck), row.wall)
        return row

    def _with_usual(self, row: Summary, pipeline: int, read_bytes: int) -> Summary:
        """The row, with what is usual for such a run, and for one whatever its input."""
        alike = self._ranking.comparable(pipeline, row.end, row.cache, read_bytes, row.input_bytes)
        before = self._ranking.inputs(pipeline, row.end)
        usually = usual(alike)
        return replace(
            row,
            usual=usually,
            slower=is_slower(row.wall, usually),
            usual_input=usual([size for size, _ in before]),
            usual_any_input=usual([wall for _, wall in before]),
        )

    def _oldest(self) -> float | None:
        """When the oldest run ended that is stored or counted (Unix time)."""
        oldest = self._connection.execute(
            "SELECT min(oldest) FROM (SELECT min(end) AS oldest FROM runs"
            f" UNION ALL SELECT {HOUR} * min(hour) FROM rollup)"
        )
        found: float | None = oldest.fetchone()[0]
        return found

    def _remove_old(self, limit: float) -> bool:
        """Remove some of the runs that ended before `limit`. Returns whether there were any."""
        old = self._ranking.ended_before(limit, _MOST_REMOVED)
        self._remove(old)
        return bool(old)

    def _make_room(self) -> bool:
        """Remove some of the runs of least worth if the size is above its limit.

        Returns whether it was.
        """
        if not self.rows or self._used_bytes() <= self._max_bytes:
            return False
        most = min(_MOST_REMOVED, max(1, self.rows // _MAKE_ROOM))
        self._remove(self._ranking.least_worth(self.rows, most))
        return True

    def _remove(self, runs: Sequence[Ranked]) -> None:
        keys = [(run.run,) for run in runs]
        self._connection.executemany("DELETE FROM details WHERE key = ?", keys)
        listed = json.dumps([run.run for run in runs])
        identities = self._connection.execute(_IDENTITIES_OF, (listed,)).fetchall()
        self._connection.executemany("DELETE FROM runs WHERE key = ?", keys)
        self._connection.executemany(_DELETE_IDENTITY, identities)
        self._ranking.leave(runs)
        self.rows -= len(runs)

    def _used_bytes(self) -> int:
        pages = self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")
        return pages * self._number("PRAGMA page_size")

    def _shrink(self) -> None:
        """Free unused pages. A file within its size limit keeps them for the next runs."""
        size = self._number("PRAGMA page_count") * self._number("PRAGMA page_size")
        if size > self._max_bytes:
            # `execute` would free a single page; a script is stepped to its end.
            self._connection.executescript("PRAGMA incremental_vacuum")

    def _number(self, statement: str) -> int:
        return int(self._connection.execute(statement).fetchone()[0])


def _batches(runs: Iterable[Details], size: int) -> Iterator[list[Details]]:
    """Runs in lists of about `size` bytes: each list is a transaction, and must fit in the log."""
    batch: list[Details] = []
    held = 0
    for run in runs:
        batch.append(run)
        held += run.size
        if held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
