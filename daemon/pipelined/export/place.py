# SPDX-License-Identifier: Apache-2.0
"""The place in the order of finished runs, kept in a file: it outlives a stop and a crash."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pipelined.errors import UserError, why

__all__ = ["Place", "open_place"]

_FILE, _LOCK = "cursor", "lock"


class Place:
    """A cursor in a file."""

    def __init__(self, directory: Path, check: Callable[[str], object]) -> None:
        """`check` raises ValueError for a text that is no cursor."""
        self._path = directory / _FILE
        self._check = check

    def read(self) -> str | None:
        """The cursor; None if none was saved. Raises UserError."""
        try:
            if cursor := self._path.read_text().strip():
                self._check(cursor)
            return cursor or None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            reason = why(error) if isinstance(error, OSError) else "it is damaged"
            raise UserError(
                f"cannot read {self._path}: {reason}",
                "remove it to begin anew: runs that were sent are then sent again",
            ) from None

    def save(self, cursor: str) -> None:
        """After a crash the file has this cursor or the one before. Raises UserError."""
        temporary = self._path.with_suffix(".new")
        try:
            with temporary.open("w") as file:
                file.write(f"{cursor}\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            raise UserError(
                f"cannot write {self._path}: {why(error)}",
                "give --state-directory a directory that this user may write",
            ) from None


@contextlib.contextmanager
def open_place(directory: Path, check: Callable[[str], object] = str) -> Iterator[Place]:
    """The place of this directory, which is made if it is missing; for one process at a time.

    `check` is as for `Place`. Raises UserError.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / _LOCK).open("w")
    except OSError as error:
        raise UserError(
            f"cannot use {directory}: {why(error)}",
            "give --state-directory a directory that this user may write",
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                f"another sender uses {directory}", "give each its own --state-directory"
            ) from None
        yield Place(directory, check)
