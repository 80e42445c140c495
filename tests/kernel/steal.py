# SPDX-License-Identifier: Apache-2.0
"""Time that a hypervisor takes from this machine: between two switches, and in no schedstat."""

from __future__ import annotations

import os
import time

__all__ = ["TICK", "steal_seconds", "stolen_since"]

TICK = 1 / os.sysconf("SC_CLK_TCK")

#: (monotonic time, steal until then)
_steals: list[tuple[float, float]] = []


def stolen_since(before: float) -> float:
    """Seconds that the hypervisor may have taken from us since.

    It reports them in whole ticks: if it has reported any lately, some may be yet to come.
    """
    now = time.monotonic()
    _steals.append((now, before))
    reported = steal_seconds() - before
    lately = steal_seconds() - min(steal for when, steal in _steals if when > now - 30)
    return reported + 2 * TICK if lately else 0.0


def steal_seconds() -> float:
    """What the hypervisor took of all CPUs, as far as it says so."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) * TICK
