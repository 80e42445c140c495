# SPDX-License-Identifier: Apache-2.0
"""Wait for a signal that is blocked, for some time."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Arrived", "wait_for_signal"]

#: `si_code` of a signal from the kernel, such as those of the terminal (asm-generic/siginfo.h).
_SI_KERNEL = 0x80
#: Bytes of sigset_t, and of siginfo_t, in glibc and musl.
_SIZE = 128

_libc = ctypes.CDLL(None, use_errno=True)


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Info(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("number", "error", "code")),
        ("rest", ctypes.c_byte * (_SIZE - 3 * ctypes.sizeof(ctypes.c_int))),
    )


class Arrived(NamedTuple):
    """A signal that has come, and is pending no more."""

    number: int
    by_kernel: bool
    """The terminal's, which its other processes get as well; else a process sent it."""


def wait_for_signal(signals: Iterable[int], timeout: float) -> Arrived | None:
    """The next of these signals, which are blocked; None if none came within `timeout` seconds.

    `signal.sigtimedwait` does not do: if the process is stopped, or frozen, until the time is
    over, it returns what happens to be on the stack (signalmodule.c of CPython; seen with 3.11).
    """
    wanted, info = ctypes.create_string_buffer(_SIZE), _Info()
    for number in signals:
        _libc.sigaddset(wanted, number)
    end = time.monotonic() + timeout
    while True:
        left = _Time(int(timeout), int(timeout % 1 * 1e9))
        if _libc.sigtimedwait(wanted, ctypes.byref(info), ctypes.byref(left)) != -1:
            return Arrived(info.number, info.code == _SI_KERNEL)
        error = ctypes.get_errno()
        if error == errno.EAGAIN:
            return None
        if error != errno.EINTR:
            raise OSError(error, os.strerror(error))
        timeout = max(0.0, end - time.monotonic())
