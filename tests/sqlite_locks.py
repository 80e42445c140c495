# SPDX-License-Identifier: Apache-2.0
"""Who holds the locks by which other programs see that a SQLite database is in use.

Run as a program, since a process does not see its own locks, and loses them by looking:

    python tests/sqlite_locks.py history.db
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
from pathlib import Path

__all__ = ["holders"]

#: The bytes of the database of which whoever has it open locks some, and the byte of the log's
#: index that whoever has that open locks (https://www.sqlite.org/src/file/src/os_unix.c).
_SHARED_FIRST, _SHARED_SIZE = 0x40000000 + 2, 510
_INDEX_OPEN = 128

#: `struct flock`: type, whence, start, length, process.
_LOCK = struct.Struct("hhqqi4x")


def holders(database: Path) -> tuple[int, int]:
    """Processes that hold the locks on the database and on the index of its log; 0: nobody."""
    asked = subprocess.run(
        [sys.executable, __file__, database], check=True, capture_output=True, text=True
    )
    on_database, on_index = map(int, asked.stdout.split())
    return on_database, on_index


def _holder(path: str, first: int, size: int) -> int:
    """The process that keeps others from locking these bytes; 0: none, or there is no file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, size, 0)
    kind, _, _, _, process = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    os.close(file)
    return 0 if kind == fcntl.F_UNLCK else process


if __name__ == "__main__":
    print(
        _holder(sys.argv[1], _SHARED_FIRST, _SHARED_SIZE),
        _holder(f"{sys.argv[1]}-shm", _INDEX_OPEN, 1),
    )
