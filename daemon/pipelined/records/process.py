# SPDX-License-Identifier: Apache-2.0
"""A process in the life of the host: its id comes again, so it is never named by that alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from pipelined.starter import NS_PER_TICK, start_ticks

__all__ = ["Process"]


class Process(NamedTuple):
    """Two are the same process if both id and start time are equal."""

    pid: int
    start_ns: int
    """When its first thread started, in nanoseconds of CLOCK_MONOTONIC; an exec keeps it."""

    def is_at(self, proc: Path = Path("/proc")) -> bool:
        """Whether what ``/proc/PID`` shows is this process. Ask after reading from there.

        The start time there is of CLOCK_BOOTTIME. A process that is older than the last suspension
        of the host is not recognized.
        """
        try:
            ticks = start_ticks(proc / str(self.pid))
        except OSError:
            return False
        suspended = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
        since = self.start_ns + suspended - ticks * NS_PER_TICK
        # The tick is rounded down; the kernel reads the two clocks one after the other.
        return -NS_PER_TICK < since < 2 * NS_PER_TICK
