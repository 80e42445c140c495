# SPDX-License-Identifier: Apache-2.0
"""The files of the history, and what can happen to them while they are in use.

No code but SQLite opens one of them as long as this process may have it open: closing any
descriptor of a file drops all locks that the process has on it (POSIX), and the next program that
opens the database then takes itself for its only user, and removes the log. So files are only
looked at by their paths here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = [
    "DATABASE",
    "FILE_NAME",
    "INDEX",
    "LOG",
    "Disruption",
    "OpenFiles",
    "Reason",
    "refusal",
    "set_aside",
    "sizes",
]

FILE_NAME = "history.db"

#: What follows `FILE_NAME`: of the database, of its write-ahead log, and of the log's index.
DATABASE, LOG, INDEX = "", "-wal", "-shm"


class Reason(StrEnum):
    """What happened to the files; the label `reason` of the metric."""

    DATABASE_REMOVED = "database_removed"
    DATABASE_REPLACED = "database_replaced"
    LOG_REMOVED = "log_removed"
    """The log or its index was removed, or replaced by an empty file."""
    LOG_REPLACED = "log_replaced"
    """By that of another writer."""
    DAMAGED = "damaged"
    NEWER = "newer"


@dataclass(frozen=True, slots=True)
class Disruption:
    """The files were removed, replaced or set aside, and what that means."""

    reason: Reason
    time: float
    """When it was noticed (Unix time)."""
    what: str
    """What happened, and what became of the runs: a sentence without its full stop."""


class OpenFiles:
    """The files of a database as SQLite has just opened them.

    Methods raise OSError if it cannot be found out which files are there.
    """

    def __init__(self, path: Path, *, with_log: bool) -> None:
        """Without a log, which some file systems do not allow, there is only the database."""
        self._path = path
        suffixes = (DATABASE, LOG, INDEX) if with_log else (DATABASE,)
        self._identities = {suffix: self._identity(suffix) for suffix in suffixes}

    def disrupted(self) -> Reason | None:
        """What has happened to them since; None: they are in their places."""
        for suffix in self._identities:
            if self._in_place(suffix):
                continue
            removed = self._identity(suffix) is None
            if suffix == DATABASE:
                return Reason.DATABASE_REMOVED if removed else Reason.DATABASE_REPLACED
            empty = suffix == INDEX or removed or not sizes(self._path)[LOG]
            return Reason.LOG_REMOVED if empty else Reason.LOG_REPLACED
        return None

    def remove_log(self) -> None:
        """Remove the log of a database that is gone: SQLite would apply it to the next one."""
        for suffix in self._identities:
            if suffix != DATABASE and self._in_place(suffix):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self._path}{suffix}")

    def _in_place(self, suffix: str) -> bool:
        identity = self._identity(suffix)
        return identity is not None and identity == self._identities[suffix]

    def _identity(self, suffix: str) -> tuple[int, int] | None:
        """Device and inode of the file at this path; None if there is none."""
        try:
            found = os.stat(f"{self._path}{suffix}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino


def sizes(path: Path) -> dict[str, int]:
    """Bytes of each file of the database at `path`, by what follows its name."""
    found = dict.fromkeys((DATABASE, LOG, INDEX), 0)
    for suffix in found:
        with contextlib.suppress(FileNotFoundError):
            found[suffix] = os.stat(f"{path}{suffix}").st_size
    return found


def set_aside(path: Path, reason: Reason, now: float) -> Path:
    """Give the files of the database at `path` another name, which has the reason and the time."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    aside = path.with_name(f"{path.name}.{reason.replace('_', '-')}-{stamp}")
    for suffix in (LOG, INDEX, DATABASE):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{suffix}", f"{aside}{suffix}")
    return aside


def refusal(path: Path, mode: int) -> OSError | None:
    """Why the file cannot be opened to be read, or written too (`os.R_OK`, `os.W_OK`).

    None: nothing is known against it.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        return error
    if stat.S_ISDIR(found.st_mode):
        return _error(errno.EISDIR, path)
    if os.access(path, mode, effective_ids=True):
        return None
    read_only = mode & os.W_OK and os.statvfs(path).f_flag & os.ST_RDONLY
    return _error(errno.EROFS if read_only else errno.EACCES, path)


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
