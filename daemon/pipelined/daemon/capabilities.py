# SPDX-License-Identifier: Apache-2.0
"""Gives up the capabilities that are needed only to load and attach BPF programs.

Capabilities belong to a thread, and a new thread inherits those of the thread that starts it. So
what must run without them is started from a thread that has given them up (`started_without`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["CAP_BPF", "KEPT", "drop", "map_access_needs_bpf", "permitted", "started_without"]

T = TypeVar("T")

# From linux/capability.h.
_CAP_CHOWN = 0
_CAP_DAC_OVERRIDE = 1
_CAP_NET_BIND_SERVICE = 10
CAP_BPF = 39
_VERSION_3 = 0x20080522

# From linux/prctl.h.
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

#: The capabilities that are kept if held, as a set of bits; the unit in deploy/systemd grants none.
#: They matter to root, who starts the daemon by hand. Without CAP_DAC_OVERRIDE it could not write
#: the history that the service made under its own user; without CAP_CHOWN SQLite could not give
#: its files to that user (a killed daemon leaves some behind). CAP_NET_BIND_SERVICE is for a port
#: below 1024.
KEPT = 1 << _CAP_CHOWN | 1 << _CAP_DAC_OVERRIDE | 1 << _CAP_NET_BIND_SERVICE


def drop() -> None:
    """Give up, in this thread and for what it starts, every capability that is not in `KEPT`.

    Nothing started from now on gets more than is left, not even programs of root (no_new_privs).
    So the bounding set, which an unprivileged service cannot change, does not matter. CAP_BPF is
    kept if the kernel needs it to read maps by their descriptors. Raises OSError.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    before = permitted()
    kept = before & KEPT
    # Ask while CAP_BPF is not in effect but can still be kept.
    _set(effective=kept, permitted=before)
    if before >> CAP_BPF & 1 and map_access_needs_bpf():
        kept |= 1 << CAP_BPF
    _set(effective=kept, permitted=kept)


def permitted() -> int:
    """The capabilities that this thread may use, as a set of bits."""
    data = _Data()
    _call("capget", ctypes.byref(_Header(_VERSION_3, 0)), ctypes.byref(data))
    return int(data.low.permitted | data.high.permitted << 32)


def map_access_needs_bpf() -> bool:
    """Whether the kernel refuses this thread access to a map by its descriptor.

    If kernel.unprivileged_bpf_disabled is set, kernels before commit c8644cd0efe7 (in v5.19)
    refuse every bpf call without CAP_BPF before they look at its arguments (EPERM). Later ones
    report the invalid descriptor.
    """
    lib = ctypes.CDLL("libbpf.so.1", use_errno=True)
    lib.bpf_map_lookup_elem(-1, None, None)
    return ctypes.get_errno() == errno.EPERM


def started_without(
    start: Callable[[], T], give_up: Callable[[], object] = drop
) -> Callable[[], T]:
    """Call `give_up` and then `start` in a new thread, whose threads have no more than it has.

    The calling thread keeps its capabilities and goes on. The function returned waits for the
    end of `start`, and returns or raises what that did.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            give_up()
            done.set_result(start())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="start").start()
    return done.result


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


class _Data(ctypes.Structure):
    """Capabilities 0 to 31, and 32 to 63."""

    _fields_ = (("low", _Sets), ("high", _Sets))


def _set(*, effective: int, permitted: int) -> None:
    low = _Sets(effective & 0xFFFFFFFF, permitted & 0xFFFFFFFF, 0)
    high = _Sets(effective >> 32, permitted >> 32, 0)
    _call("capset", ctypes.byref(_Header(_VERSION_3, 0)), ctypes.byref(_Data(low, high)))


def _prctl(option: int, value: int) -> None:
    # the arguments are longs, and unused ones must be 0
    _call("prctl", option, *(ctypes.c_ulong(number) for number in (value, 0, 0, 0)))


def _call(name: str, *arguments: object) -> None:
    """Call a function of the C library; OSError if it fails."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
