# SPDX-License-Identifier: Apache-2.0
"""A process in the life of the host: its id comes again, so it is never named by that alone."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["Process"]

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """Two are the same process if both id and start time are equal."""

    pid: int
    start_ns: int
    """When its first thread started, in nanoseconds of CLOCK_MONOTONIC; an exec keeps it."""

    def is_at(self, proc: Path = Path("/proc")) -> bool:
        """Whether what ``/proc/PID`` shows is this process. Ask after reading from there.

        The start time there (field 22 of ``stat``) is of CLOCK_BOOTTIME, in clock ticks. A process
        that is older than the last suspension of the host is not recognized.
        """
        try:
            # The second field is the name, which may have blanks and parentheses.
            fields = (proc / str(self.pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        suspended = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
        since = self.start_ns + suspended - int(fields[19]) * _TICK_NS
        # The tick is rounded down; the kernel reads the two clocks one after the other.
        return -_TICK_NS < since < 2 * _TICK_NS
