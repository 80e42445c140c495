# SPDX-License-Identifier: Apache-2.0
"""Keep glibc's malloc from holding on to freed memory."""

from __future__ import annotations

import ctypes

__all__ = ["trim", "use_one_arena"]

# From glibc's malloc.h.
_M_ARENA_MAX = -8

_libc = ctypes.CDLL(None)


def use_one_arena() -> None:
    """Make all threads share one heap; call it before the first of them starts.

    Python runs one thread at a time, so a heap for each only holds more freed memory: `trim`
    shrinks the first heap alone. Does nothing if malloc is not glibc's.
    """
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_ARENA_MAX, 1)


def trim() -> None:
    """Return free memory to the kernel, if malloc is glibc's."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(ctypes.c_size_t(0))
