# SPDX-License-Identifier: Apache-2.0
"""Whether other work on the host took CPU time while something was measured."""

from __future__ import annotations

import os

__all__ = ["BUSY", "cpu_seconds_taken"]

#: Other work that takes more CPU time than this makes the machine busy (share of the time).
BUSY = 0.1


def cpu_seconds_taken() -> float:
    """CPU time that the kernel has accounted so far, of all tasks and of the hypervisor (steal)."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(
            int, file.readline().split()[1:9]
        )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
