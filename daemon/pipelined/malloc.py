# SPDX-License-Identifier: Apache-2.0
"""Keep glibc's malloc from holding on to freed memory."""

from __future__ import annotations

import ctypes

__all__ = ["hold_little", "trim"]

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8

#: Bytes: what is larger gets pages of its own, which go back when it is freed, and no more than
#: this stays free at the end of the heap. glibc begins with it, but raises it to the size of the
#: largest block that was freed.
_THRESHOLD = 128 << 10

_libc = ctypes.CDLL(None)


def hold_little() -> None:
    """Make all threads share one heap, and return what is freed of it soon.

    To be called before the first thread starts. Python runs one thread at a time, so a heap for
    each only holds more freed memory: `trim` shrinks the first heap alone. Does nothing if malloc
    is not glibc's.
    """
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_ARENA_MAX, 1)
        _libc.mallopt(_M_MMAP_THRESHOLD, _THRESHOLD)
        _libc.mallopt(_M_TRIM_THRESHOLD, _THRESHOLD)


def trim() -> None:
    """Return free memory to the kernel, if malloc is glibc's."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(ctypes.c_size_t(0))
