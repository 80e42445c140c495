# SPDX-License-Identifier: Apache-2.0
"""Wait until BPF programs that run now have ended: membarrier(2), for which libc has no call."""

from __future__ import annotations

import ctypes
import platform

__all__ = ["barrier"]

_NUMBERS = {"x86_64": 324, "aarch64": 283}
_MEMBARRIER_CMD_GLOBAL = 1


def barrier() -> bool:
    """Return once every BPF program that ran at the time of the call has ended; some 10 ms.

    The command waits for an RCU grace period (synchronize_rcu in kernel/sched/membarrier.c), and
    programs of tracepoints run inside a read-side section (__bpf_trace_run). Returns whether it
    did: a kernel with CPUs in full dynticks mode (nohz_full=) refuses.
    """
    number = _NUMBERS.get(platform.machine())
    if number is None:
        return False
    return bool(ctypes.CDLL(None).syscall(number, _MEMBARRIER_CMD_GLOBAL, 0, 0) == 0)
