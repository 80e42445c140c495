# SPDX-License-Identifier: Apache-2.0
"""Bring single files into the page cache, or drop them from it; no other file is affected.

`evict` and `fill` return how much of the file is cached afterwards, by mincore(2): the kernel
keeps pages that a process has mapped, and a tmpfs keeps its files nowhere else. Both take long for
many or large files: a signal that is held meanwhile ends them as it does a measurement.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pipelined.errors import UserError, why
from pipelined.run.child import stop_if_asked

__all__ = ["evict", "files_below", "fill"]

#: Bytes of a file that are mapped at once.
_WINDOW = 1 << 30
#: Bytes of a file that are read at once.
_READ = 1 << 20
#: Pages that are being read cannot be dropped, so dropping is tried this many times.
_ATTEMPTS = 20
#: Seconds between the attempts.
_PAUSE = 0.01


def files_below(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The files among `paths`, and all regular files below the directories among them.

    Raises UserError for a path that does not exist, or is neither file nor directory.
    """
    found: dict[Path, None] = {}
    for path in paths:
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise _unusable(path, why(error)) from None
        if stat.S_ISDIR(mode):
            inside = [
                Path(directory, name) for directory, _, names in os.walk(path) for name in names
            ]
            found.update((file, None) for file in sorted(inside) if os.path.isfile(file))
        elif stat.S_ISREG(mode):
            found[path] = None
        else:
            raise _unusable(path, "not a regular file")
    return tuple(found)


def _unusable(path: Path, reason: str) -> UserError:
    return UserError(
        f"cannot cache or evict {path}: {reason}", "name files, or directories of them"
    )


def evict(path: Path) -> float:
    """Write a file to disk and drop its pages; returns the share of it that is still cached."""
    with _opened(path) as descriptor:
        # A file that cannot be synced, as on some read-only file systems, has nothing to write.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
        for _ in range(_ATTEMPTS):
            stop_if_asked()
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            if not (left := _share(descriptor)):
                break
            time.sleep(_PAUSE)
        return left


def fill(path: Path) -> float:
    """Read a file into the page cache; returns the share of it that is cached then.

    For an empty file this is 1, and `evict` returns 0.
    """
    with _opened(path) as descriptor:
        while os.read(descriptor, _READ):
            stop_if_asked()
        return _share(descriptor) if os.fstat(descriptor).st_size else 1.0


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _may_see_pages(path, descriptor)
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UserError(
            f"cannot cache or evict {path}: {why(error)}",
            "name files that can be read",
        ) from None


def _may_see_pages(path: Path, descriptor: int) -> None:
    """Raises UserError if mincore would say that all pages are cached, since Linux 5.2."""
    mine = os.geteuid() in (0, os.fstat(descriptor).st_uid)
    if not mine and not os.access(path, os.W_OK):
        raise UserError(
            f"cannot see how much of {path} is cached: it is another user's, and read-only for you",
            "copy it, or run this as root",
        )


def _share(descriptor: int) -> float:
    """The share of a file's pages that are in the page cache; 0 for an empty file."""
    size = os.fstat(descriptor).st_size
    pages = -(-size // mmap.PAGESIZE)
    cached = sum(
        _cached_pages(descriptor, start, min(_WINDOW, size - start))
        for start in range(0, size, _WINDOW)
    )
    return cached / pages if pages else 0.0


def _cached_pages(descriptor: int, start: int, length: int) -> int:
    """How many pages of a part of a file are cached. It is mapped for that, but not read."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
    ]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, start)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        states = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
        if libc.mincore(address, length, states):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        # Only the lowest bit of each byte is defined.
        return sum(state & 1 for state in states.raw)
    finally:
        libc.munmap(address, length)
