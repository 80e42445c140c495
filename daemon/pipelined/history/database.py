# SPDX-License-Identifier: Apache-2.0
"""The file that finished runs are stored in: SQLite with a write-ahead log (WAL).

One process writes (`Store`); a lock on the directory keeps others from writing. Any number of
processes read (`Archive`), also while it writes and after it has ended. A process that is killed
loses what it had not committed, and leaves a file that opens. This module handles rows and bytes;
`history` makes them from runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipelined.errors import UserError, why

__all__ = [
    "COLUMNS",
    "FILE_NAME",
    "MIGRATIONS",
    "Archive",
    "Details",
    "NoHistoryError",
    "Query",
    "Row",
    "Store",
]

FILE_NAME = "history.db"

#: The statements that lead from each version of the schema to the next; `PRAGMA user_version` is
#: the number of those that a file has had. Files exist, so none is ever edited: a column that is
#: added to `Row` comes into the table by a new one. What is listed and searched is in one table,
#: the bulk, which is read for one run at a time, in another.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE runs (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        pipeline TEXT NOT NULL,
        nested INTEGER NOT NULL,
        unit TEXT NOT NULL,
        start REAL NOT NULL,
        end REAL NOT NULL,
        wall REAL NOT NULL,
        partial INTEGER NOT NULL,
        cores REAL NOT NULL,
        overlap REAL,
        cache TEXT,
        bottleneck TEXT NOT NULL,
        findings TEXT NOT NULL,
        commands TEXT NOT NULL
    );
    CREATE INDEX runs_by_end ON runs (end);
    CREATE TABLE details (key INTEGER PRIMARY KEY, run BLOB NOT NULL, timeline BLOB NOT NULL);
    """,
)

#: The write-ahead log takes at most a quarter of the size limit, and at most so many bytes.
_LOG_SHARE, _LOG_BYTES = 4, 4 << 20
#: Index of the log, which readers and the writer share (bytes).
_LOG_INDEX_BYTES = 32 << 10
#: While the files are too large, one run in so many is removed at a time, the oldest first.
_MAKE_ROOM = 50
#: Page cache of a connection (KiB): rows are written once and seldom read.
_CACHE_KIB = 512
#: How long to wait for another connection's lock (seconds).
_BUSY_TIMEOUT = 2.0

#: How the type of a column differs between Python and SQLite: what it is written and read as.
_BOOLEAN: dict[str, Callable[[Any], Any]] = {"read": bool}
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

    @classmethod
    def read(cls, cells: Sequence[Any]) -> Row:
        """The row of the cells that SQLite returned for `_COLUMNS`."""
        named = zip(_FIELDS, cells, strict=True)
        return cls(*(_convert(column, "read", cell) for column, cell in named))

    @property
    def cells(self) -> list[object]:
        """The cells of `_COLUMNS` as SQLite takes them."""
        return [_convert(column, "write", getattr(self, column.name)) for column in _FIELDS]


_FIELDS = fields(Row)
#: The names of a row's columns.
COLUMNS = tuple(column.name for column in _FIELDS)
_COLUMNS = ", ".join(COLUMNS)


@dataclass(frozen=True, slots=True)
class Details:
    """A run as it is stored: its row, and the bulk as bytes that the caller makes and reads."""

    row: Row
    commands: tuple[str, ...]
    run: bytes
    timeline: bytes

    @property
    def size(self) -> int:
        return len(self.run) + len(self.timeline)


@dataclass(frozen=True, slots=True)
class Query:
    """Which runs to list: those that match every field that is given."""

    pipeline: str | None = None
    """Exactly this signature."""
    unit: str | None = None
    finding: str | None = None
    """Id of one of its findings."""
    command: str | None = None
    """Command name of one of its stages."""
    since: float | None = None
    """Started then or later (Unix time)."""
    until: float | None = None
    """Started before."""
    before: str | None = None
    """Listed after the run with this id, which may be gone."""


class NoHistoryError(UserError):
    """There is no file to read, or it is not made yet."""


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
            self.trim()
            undo.pop_all()

    def add(self, runs: Iterable[Details]) -> None:
        """Store runs, and make room for them. A run that is stored already is left as it is.

        Raises sqlite3.Error if they cannot be stored; some of them may be stored nevertheless.
        """
        for batch in _batches(runs, self._log_bytes // 4):
            with self._transaction():
                self.rows += sum(map(self._insert, batch))
                self._remove_surplus()
            self._shrink()

    def trim(self) -> None:
        """Remove the runs that are too old or too many."""
        with self._transaction():
            self._remove_surplus()
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
        connection = sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT, isolation_level=None)
        try:
            self._prepare(connection)
            self._migrate(connection)
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise _UnfitError("damaged", found.splitlines()[-1])
        except sqlite3.DatabaseError as error:
            connection.close()
            if not _is_damage(error):
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
        for number in range(version, known):
            connection.executescript(
                f"BEGIN IMMEDIATE; {self._migrations[number]};"
                f" PRAGMA user_version = {number + 1}; COMMIT;"
            )

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
            raise

    def _insert(self, details: Details) -> int:
        """Insert a run. Returns the number of rows inserted: 0 if the run is stored already."""
        cells = (*details.row.cells, json.dumps(details.commands))
        inserted = self._connection.execute(
            f"INSERT INTO runs ({_COLUMNS}, commands) VALUES ({', '.join('?' * len(cells))})"
            " ON CONFLICT (id) DO NOTHING",
            cells,
        )
        if inserted.rowcount:
            self._connection.execute(
                "INSERT INTO details VALUES (?, ?, ?)",
                (inserted.lastrowid, details.run, details.timeline),
            )
        return inserted.rowcount

    def _remove_surplus(self) -> None:
        """Remove the oldest runs until age and size are within their limits."""
        self._remove("end < ?", self._clock() - self._max_age)
        while self.rows and self._used_bytes() > self._max_bytes:
            oldest = "key IN (SELECT key FROM runs ORDER BY key LIMIT ?)"
            self._remove(oldest, max(1, self.rows // _MAKE_ROOM))

    def _remove(self, which: str, value: float) -> None:
        """Remove the runs for which the condition `which`, with `value` in it, is true."""
        execute = self._connection.execute
        # In this order: the condition reads the rows.
        execute(f"DELETE FROM details WHERE key IN (SELECT key FROM runs WHERE {which})", (value,))
        self.rows -= execute(f"DELETE FROM runs WHERE {which}", (value,)).rowcount

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


class Archive:
    """The file, for readers. Every method raises UserError if it cannot be read."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def rows(self, query: Query, limit: int) -> list[Row]:
        """The runs that match, newest start first."""
        conditions = {
            "pipeline = ?": query.pipeline,
            "unit = ?": query.unit,
            "EXISTS (SELECT 1 FROM json_each(findings) WHERE value = ?)": query.finding,
            "EXISTS (SELECT 1 FROM json_each(commands) WHERE value = ?)": query.command,
            "start >= ?": query.since,
            "start < ?": query.until,
            # Ids begin with the start, so they are in its order.
            "id < ?": query.before,
        }
        given = {test: value for test, value in conditions.items() if value is not None}
        where = " AND ".join(given) or "1"
        rows = self._read(
            f"SELECT {_COLUMNS} FROM runs WHERE {where} ORDER BY id DESC LIMIT ?",
            (*given.values(), limit),
        )
        return [Row.read(cells) for cells in rows]

    def last(self) -> str | None:
        """Id of the run that ended last; None if there is no run."""
        rows = self._read("SELECT id FROM runs ORDER BY end DESC LIMIT 1", ())
        return str(rows[0][0]) if rows else None

    def ids(self, prefix: str, limit: int) -> list[str]:
        """Ids that begin with `prefix`, in order: one that equals it comes first."""
        rows = self._read(
            "SELECT id FROM runs WHERE id >= ? AND substr(id, 1, ?) = ? ORDER BY id LIMIT ?",
            (prefix, len(prefix), prefix, limit),
        )
        return [str(row[0]) for row in rows]

    def details(self, run_id: str) -> tuple[bytes, bytes] | None:
        """`Details.run` and `Details.timeline` of the run; None if it is not stored."""
        rows = self._read(
            "SELECT run, timeline FROM details JOIN runs USING (key) WHERE id = ?", (run_id,)
        )
        return (bytes(rows[0][0]), bytes(rows[0][1])) if rows else None

    def _read(self, statement: str, values: Sequence[object]) -> Sequence[tuple[Any, ...]]:
        try:
            with contextlib.closing(self._open()) as connection:
                return connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise UserError(
                f"cannot read {self._path}: {error}",
                "the daemon sets a damaged file aside when it starts" if _is_damage(error) else "",
            ) from None

    def _open(self) -> sqlite3.Connection:
        try:
            os.close(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            raise self._no_history() from None
        except OSError as error:
            raise UserError(
                f"cannot read {self._path}: {why(error)}",
                "run it as root" if isinstance(error, PermissionError) else "",
            ) from None
        uri = f"file:{quote(str(self._path.absolute()))}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT, isolation_level=None)
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.OperationalError:
            connection.close()
            # A reader that may not write here cannot make the index that all users of a log share.
            # Without a log there is no writer, and the file is complete without one.
            if os.path.exists(f"{self._path}-wal"):
                raise
            connection = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != len(MIGRATIONS):
            connection.close()
            if not version:  # the daemon is just making it
                raise self._no_history()
            age = "a newer" if version > len(MIGRATIONS) else "an older"
            raise UserError(
                f"{self._path} is of {age} version of pipelined",
                "use the version of the daemon that writes it",
            )
        return connection

    def _no_history(self) -> NoHistoryError:
        return NoHistoryError(
            f"there is no history in {self._path.parent}",
            "pipelined serve makes one; --state-directory names its directory",
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


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte of an extended code
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
