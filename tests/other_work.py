# SPDX-License-Identifier: Apache-2.0
"""Whether other work on the host took CPU time while something was measured or tested."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

import pytest

__all__ = ["MISSED_EVENTS", "Quiet"]

#: What counts the events so far that the kernel left out of an observer that tests share.
MISSED_EVENTS = pytest.StashKey[Callable[[], int]]()


class Quiet:
    """True as long as other work has taken little CPU time since it was made.

    That is less than the share `most` of the time that has passed.
    """

    def __init__(self, most: float = 0.1) -> None:
        self._most = most
        self._others, self._began = _others_seconds(), time.monotonic()

    def __bool__(self) -> bool:
        return _others_seconds() - self._others < self._most * (time.monotonic() - self._began)


def _others_seconds() -> float:
    """CPU time so far of all but this process and the children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return _taken_seconds() - sum(each.ru_utime + each.ru_stime for each in used)


def _taken_seconds() -> float:
    """What the kernel has accounted so far, of all tasks and of the hypervisor (steal)."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(
            int, file.readline().split()[1:9]
        )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
