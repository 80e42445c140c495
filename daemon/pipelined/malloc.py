# SPDX-License-Identifier: Apache-2.0
"""What the C library's malloc keeps of memory that was given back to it."""

from __future__ import annotations

import ctypes

__all__ = ["trim", "use_one_arena"]

# From glibc's malloc.h.
_M_ARENA_MAX = -8

_libc = ctypes.CDLL(None)


def use_one_arena() -> None:
    """Have all threads share one heap, from before the first of them starts.

    Python lets one of them run at a time. A heap for each would only add to what is kept: `trim`
    does not give back the end of any but the first. No use where malloc is not glibc's.
    """
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_ARENA_MAX, 1)


def trim() -> None:
    """Give what is free back to the kernel, where malloc is glibc's."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(ctypes.c_size_t(0))
