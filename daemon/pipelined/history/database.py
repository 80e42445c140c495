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
import fcntl
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pipelined.analysis.sentence import bottleneck_label
from pipelined.history.migrations import MIGRATIONS, ROLLED_UP, WITH_PARENTS, WITH_USUAL
from pipelined.history.packing import stored_figures, stored_parent
from pipelined.history.rollup import HOUR, Pending
from pipelined.history.tables import ROLLUP_ROW_BYTES, Pipelines, Ranked, Ranking, Rollup
from pipelined.history.usual import is_slower, usual
from pipelined.runs import Series

__all__ = [
    "BUSY_TIMEOUT",
    "COLUMNS",
    "COLUMN_LIST",
    "FILE_NAME",
    "Details",
    "Row",
    "Store",
    "is_damage",
]

FILE_NAME = "history.db"

#: The write-ahead log takes at most a quarter of the size limit, and at most so many bytes.
_LOG_SHARE, _LOG_BYTES = 4, 4 << 20
#: Index of the log, which readers and the writer share (bytes).
_LOG_INDEX_BYTES = 32 << 10
#: A transaction takes at most about this part of the log.
_BATCH_SHARE = 16
#: The roll-up takes at most the first part of the size limit, or up to the second one if it needs
#: that to have two rows for each hour.
_ROLLUP_SHARE, _ROLLUP_MOST = 0.15, 0.25
#: While the files are too large, one run in so many is removed at a time, and at most so many.
_MAKE_ROOM, _MOST_REMOVED = 50, 100
#: What a run takes beside its bulk, with its places in the indexes (bytes).
_ROW_BYTES = 650
#: Rows of the roll-up that are collected before they are written, when a file is migrated.
_MIGRATED_ROWS = 500
#: Page cache of a connection (KiB): rows are written once and seldom read.
_CACHE_KIB = 512
#: How long to wait for another connection's lock (seconds).
BUSY_TIMEOUT = 2.0

#: How the type of a column differs between Python and SQLite: what it is written and read as.
_BOOLEAN: dict[str, Callable[[Any], Any]] = {"read": bool}
_MAYBE: dict[str, Callable[[Any], Any]] = {
    "read": lambda cell: None if cell is None else bool(cell)
}
_WORDS: dict[str, Callable[[Any], Any]] = {
    "write": json.dumps,
    "read": lambda text: tuple(json.loads(text)),
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Row:
    """What is listed of a run: one field per column of the table `runs`, which has its name."""

    id: str
    pipeline: str
    nested: bool = field(metadata=_BOOLEAN)
    unit: str
    partial: bool = field(metadata=_BOOLEAN)
    start: float
    end: float
    wall: float
    cores: float
    overlap: float | None
    cache: str | None
    bottleneck: str
    findings: tuple[str, ...] = field(metadata=_WORDS)
    """Ids of its findings, as of when it was stored."""
    parent: str | None = None
    """Id of the enclosing run, whose row may be gone or still to come."""
    parent_pipeline: str | None = None
    read_bytes: int | None = None
    """By all stages; None if an older version stored it in a form that cannot be read."""
    usual: float | None = None
    """Wall seconds that such a run usually took before it (`usual`); None: not known."""
    slower: bool | None = field(default=None, metadata=_MAYBE)
    """It was far from that; None: not known."""

    @property
    def usual_ratio(self) -> float | None:
        """How many times as long as usual it took; None: not known."""
        return self.wall / self.usual if self.usual else None

    @classmethod
    def read(cls, cells: Sequence[Any]) -> Row:
        """The row of the cells that SQLite returned for `COLUMN_LIST`."""
        named = zip(_FIELDS, cells, strict=True)
        return cls(*(_convert(column, "read", cell) for column, cell in named))

    @property
    def cells(self) -> list[object]:
        """The cells of `COLUMN_LIST` as SQLite takes them."""
        return [_convert(column, "write", getattr(self, column.name)) for column in _FIELDS]


_FIELDS = fields(Row)
#: The names of a row's columns.
COLUMNS = tuple(column.name for column in _FIELDS)
COLUMN_LIST = ", ".join(COLUMNS)


@dataclass(frozen=True, slots=True)
class Details:
    """A run as it is stored: its row, and the bulk as bytes that the caller makes and reads."""

    row: Row
    commands: tuple[str, ...]
    run: bytes
    timeline: bytes
    bounds: Mapping[str, float] = field(default_factory=dict)
    """By id of a finding, what it could save at most (seconds), as far as that is known."""

    @property
    def size(self) -> int:
        """What it takes in the file, about (bytes)."""
        return len(self.run) + len(self.timeline) + _ROW_BYTES


class _UnfitError(Exception):
    """The file cannot be used; `kind` is the word that its new name gets."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Store(contextlib.AbstractContextManager["Store"]):
    """The file, open for its only writer, in one thread."""

    def __init__(
        self,
        directory: Path,
        *,
        max_age: float,
        max_bytes: int,
        clock: Callable[[], float] = time.time,
        migrations: Sequence[str] = MIGRATIONS,
    ) -> None:
        """Open or create the file. Runs that ended more than `max_age` seconds ago are removed.

        All files together stay within `max_bytes`. A file that is damaged, or that a newer
        version wrote, is set aside. Raises OSError or sqlite3.Error if the directory cannot be
        written.
        """
        self.path = directory / FILE_NAME
        self.rows = 0
        self._max_age = max_age
        self._clock = clock
        self._migrations = migrations
        self._log_bytes = min(_LOG_BYTES, max_bytes // _LOG_SHARE)
        self._max_bytes = max_bytes - self._log_bytes - _LOG_INDEX_BYTES
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        with contextlib.ExitStack() as undo:
            self._lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            undo.callback(os.close, self._lock)
            self._take_lock(directory)
            try:
                self._connection = self._connect()
            except _UnfitError as error:
                self._set_aside(error)
                self._connection = self._connect()
            undo.callback(self._connection.close)
            self._inode = os.stat(self.path).st_ino
            self.rows = self._number("SELECT count(*) FROM runs")
            self._pipelines = Pipelines(self._connection)
            self._ranking = Ranking(self._connection)
            needed = 2 * ROLLUP_ROW_BYTES * max_age / HOUR
            self._rollup = Rollup(
                self._connection,
                max(self._max_bytes * _ROLLUP_SHARE, min(self._max_bytes * _ROLLUP_MOST, needed)),
            )
            self.trim()
            # What the trim freed, and the log of a migration, are given back now.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            undo.pop_all()

    def count(self, pending: Pending) -> None:
        """Add sums to the roll-up: all of them, or none if it raises sqlite3.Error."""
        with self._transaction():
            self._rollup.add(pending.rows)

    def add(self, runs: Iterable[Details]) -> list[Row]:
        """Store runs, and make room for them. A run that is stored already is left as it is.

        They are in the roll-up by then (`count`), but for their findings and bottlenecks. Returns
        the rows that were stored, with what is usual for each. Raises sqlite3.Error if they cannot
        be stored; some of them may be stored nevertheless.
        """
        stored: list[Row] = []
        for batch in _batches(runs, self._log_bytes // _BATCH_SHARE):
            batch.sort(key=lambda details: details.row.end)  # each is compared with those before
            with self._transaction():
                rows = [row for details in batch if (row := self._insert(details))]
                self.rows += len(rows)
                while self._make_room():
                    pass
            self._shrink()
            stored += rows
        return stored

    def trim(self) -> None:
        """Remove what is too old or too much."""
        with self._transaction():
            self._rollup.trim(int((self._clock() - self._max_age) // HOUR))
            self._pipelines.forget()
        surplus = True
        while surplus:  # in small transactions, which fit in the log
            with self._transaction():
                surplus = self._remove_old() or self._make_room()
        self._shrink()

    @property
    def exists(self) -> bool:
        """False if somebody has removed or replaced the file: nobody can read it any more."""
        try:
            return os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            return False

    @property
    def size_bytes(self) -> int:
        """Size of the files on disk."""
        size = 0
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                size += os.stat(f"{self.path}{suffix}").st_size
        return size

    def close(self) -> None:
        """Write the log back, and release the lock."""
        try:
            self._connection.close()
        finally:
            os.close(self._lock)

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- opening

    def _take_lock(self, directory: Path) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OSError(error.errno, "another daemon writes there", str(directory)) from None

    def _connect(self) -> sqlite3.Connection:
        """A connection to an undamaged file of this version. Raises _UnfitError."""
        # Readable by the group that an administrator may give it; the log inherits the mode.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640))
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT, isolation_level=None)
        try:
            self._prepare(connection)
            self._migrate(connection)
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise _UnfitError("damaged", found.splitlines()[-1])
        except sqlite3.DatabaseError as error:
            connection.close()
            if not is_damage(error):
                raise
            raise _UnfitError("damaged", str(error)) from None
        except _UnfitError:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        page = connection.execute("PRAGMA page_size").fetchone()[0]
        for pragma in (
            "auto_vacuum = INCREMENTAL",  # only has an effect before the first table is made
            "journal_mode = WAL",
            # The log is synced before it is written back: a power cut may cost the last runs.
            "synchronous = NORMAL",
            f"wal_autocheckpoint = {self._log_bytes // 2 // page}",
            f"journal_size_limit = {self._log_bytes // 2}",
            f"cache_size = -{_CACHE_KIB}",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()

    def _migrate(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        known = len(self._migrations)
        if version > known:
            raise _UnfitError("newer", f"its version is {version}, this program knows {known}")
        if version == known:
            return
        # In one transaction: no reader sees a file between two versions.
        connection.execute("BEGIN IMMEDIATE")
        for number in range(version, known):
            for statement in self._migrations[number].split(";"):
                connection.execute(statement)
        # What fills the tables knows them as they are now.
        if version < ROLLED_UP:
            self._roll_up(connection)
        if version < WITH_PARENTS:
            _enter_parents(connection)
        if version < WITH_USUAL:
            self._compare(connection)
        connection.execute(f"PRAGMA user_version = {known}")
        connection.execute("COMMIT")

    def _roll_up(self, connection: sqlite3.Connection) -> None:
        """Enter the runs that an older version stored in the tables that it did not have."""
        pipelines, ranking = Pipelines(connection), Ranking(connection)
        rollup = Rollup(connection, self._max_bytes)
        pending = Pending(2 * _MIGRATED_ROWS)
        stored = connection.execute(
            "SELECT key, pipeline, nested, unit, end, wall, cores, findings, run,"
            " length(run) + length(timeline) FROM runs JOIN details USING (key) ORDER BY end"
        )
        for key, pipeline, nested, unit, end, wall, cores, found, run, size in stored:
            series = Series(pipeline, bool(nested), unit)
            ranking.enter(Ranked(pipelines.key(series), end, key, wall, size + _ROW_BYTES))
            sums = pending.sums(series, end)
            sums.count(wall, *(stored_figures(run) or (cores * wall, 0.0, 0, 0)))
            sums.examine(json.loads(found))
            if len(pending.rows) >= _MIGRATED_ROWS:
                rollup.add(pending.rows)
                pending = Pending(2 * _MIGRATED_ROWS)
        rollup.add(pending.rows)

    def _compare(self, connection: sqlite3.Connection) -> None:
        """Enter what later runs are compared with, and the bottlenecks, of runs stored before."""
        pipelines = Pipelines(connection)
        rollup = Rollup(connection, self._max_bytes)
        stored = connection.execute(
            "SELECT key, pipeline, nested, unit, end, wall, partial, cache, bottleneck, run"
            " FROM runs JOIN details USING (key)"
        )
        for key, pipeline, nested, unit, end, wall, partial, cache, bottleneck, run in stored:
            its = pipelines.key(Series(pipeline, bool(nested), unit))
            figures = stored_figures(run)
            read_bytes = figures[2] if figures else None
            connection.execute("UPDATE runs SET read_bytes = ? WHERE key = ?", (read_bytes, key))
            connection.execute(
                "UPDATE runs_of_pipelines SET cache = ?, read_bytes = ?"
                " WHERE pipeline = ? AND end = ? AND run = ?",
                (cache, None if partial else read_bytes, its, end, key),
            )
            rollup.add_bottleneck(int(end // HOUR), its, bottleneck_label(bottleneck), wall)

    def _set_aside(self, reason: _UnfitError) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._clock()))
        aside = self.path.with_name(f"{FILE_NAME}.{reason.kind}-{stamp}")
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{self.path}{suffix}", f"{aside}{suffix}")
        log.warning(
            "%s cannot be used (%s): set aside as %s; a new history begins",
            self.path,
            reason,
            aside.name,
        )

    # -- writing

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
            self._rollup.load()
            raise

    def _insert(self, details: Details) -> Row | None:
        """Insert a run. Returns its row; None if the run is stored already."""
        row = details.row
        pipeline = self._pipelines.key(Series(row.pipeline, row.nested, row.unit))
        # Of a partial run a part of its time is not known.
        read_bytes = None if row.partial else row.read_bytes
        if read_bytes is not None:
            usually = usual(self._ranking.comparable(pipeline, row.end, row.cache, read_bytes))
            row = replace(row, usual=usually, slower=is_slower(row.wall, usually))
        cells = (*row.cells, json.dumps(details.commands))
        inserted = self._connection.execute(
            f"INSERT INTO runs ({COLUMN_LIST}, commands) VALUES ({', '.join('?' * len(cells))})"
            " ON CONFLICT (id) DO NOTHING",
            cells,
        )
        if not inserted.rowcount:
            return None
        key, hour = inserted.lastrowid or 0, int(row.end // HOUR)
        self._connection.execute(
            "INSERT INTO details VALUES (?, ?, ?)", (key, details.run, details.timeline)
        )
        ranked = Ranked(pipeline, row.end, key, row.wall, details.size)
        self._ranking.enter(ranked, row.cache, read_bytes)
        bounds = [(finding, details.bounds.get(finding, 0.0)) for finding in row.findings]
        self._rollup.examine(hour, pipeline, row.nested, bounds)
        self._rollup.add_bottleneck(hour, pipeline, bottleneck_label(row.bottleneck), row.wall)
        return row

    def _remove_old(self) -> bool:
        """Remove some of the runs that are too old. Returns whether there were any."""
        old = self._ranking.ended_before(self._clock() - self._max_age, _MOST_REMOVED)
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
        self._connection.executemany("DELETE FROM runs WHERE key = ?", keys)
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


def _enter_parents(connection: sqlite3.Connection) -> None:
    """Fill the columns of nested runs that an older version stored, as far as it is known."""
    connection.create_function("stored_parent", 1, stored_parent, deterministic=True)
    connection.execute(
        "UPDATE runs SET parent ="
        " (SELECT stored_parent(run) FROM details WHERE details.key = runs.key) WHERE nested"
    )
    connection.execute(
        "UPDATE runs SET parent_pipeline ="
        " (SELECT pipeline FROM runs AS outer_run WHERE outer_run.id = runs.parent) WHERE nested"
    )


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


def _convert(column: Field[Any], direction: str, value: object) -> Any:
    convert = column.metadata.get(direction)
    return convert(value) if convert else value


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is damaged, or no database."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte of an extended code
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
