# SPDX-License-Identifier: Apache-2.0
"""The history's file is opened to be written: alone, undamaged, and in this version's schema."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from pipelined.history.files import FILE_NAME, Reason, refusal
from pipelined.history.migrations import migrate

__all__ = ["BUSY_TIMEOUT", "UnfitError", "is_damage", "lock", "open_file", "primary_code"]

#: Page cache of a connection (KiB): rows are written once and seldom read.
_CACHE_KIB = 512
#: How long to wait for another connection's lock (seconds).
BUSY_TIMEOUT = 2.0


class UnfitError(Exception):
    """The file cannot be used."""

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def lock(directory: Path) -> int:
    """A descriptor of the directory: until it is closed, no other process gets one.

    Raises OSError if another one has it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise
        raise OSError(error.errno, "another daemon writes there", str(directory)) from None
    return descriptor


def open_file(path: Path, log_bytes: int, migrations: Sequence[str]) -> sqlite3.Connection:
    """A connection to an undamaged file of this version, which is made if there is none.

    `log_bytes`: how large its log may become. Raises UnfitError if the file is damaged or of a
    newer version, OSError or sqlite3.Error if it cannot be written.
    """
    _create(path)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None)
    try:
        _prepare(connection, log_bytes)
        _refuse_newer(connection, len(migrations))
        migrate(connection, migrations)
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise UnfitError(Reason.DAMAGED, found.splitlines()[-1])
    except sqlite3.DatabaseError as error:
        connection.close()
        if not is_damage(error):
            raise
        raise UnfitError(Reason.DAMAGED, str(error)) from None
    except UnfitError:
        connection.close()
        raise
    return connection


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is damaged, or no database."""
    return primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's code without what extends it; 0 if the error is the module's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _create(path: Path) -> None:
    """Make an empty file if there is none. Raises OSError if it cannot be written."""
    refused = refusal(path, os.R_OK | os.W_OK)
    if refused is None:
        return
    if not isinstance(refused, FileNotFoundError):
        raise refused
    # Readable by the group that an administrator may give it; the log inherits the mode.
    # Nobody has it open until it gets its name. What stands in its place, maybe a link, is no file
    # of ours.
    empty = path.with_name(f"{FILE_NAME}.new")
    empty.unlink(missing_ok=True)
    os.close(os.open(empty, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640))
    os.rename(empty, path)


def _prepare(connection: sqlite3.Connection, log_bytes: int) -> None:
    page = connection.execute("PRAGMA page_size").fetchone()[0]
    for pragma in (
        "auto_vacuum = INCREMENTAL",  # only has an effect before the first table is made
        "journal_mode = WAL",
        # The log is synced before it is written back: a power cut may cost the last runs.
        "synchronous = NORMAL",
        f"wal_autocheckpoint = {log_bytes // 2 // page}",
        f"journal_size_limit = {log_bytes // 2}",
        f"cache_size = -{_CACHE_KIB}",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _refuse_newer(connection: sqlite3.Connection, known: int) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > known:
        raise UnfitError(Reason.NEWER, f"its version is {version}, this program knows {known}")
