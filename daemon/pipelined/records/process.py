# SPDX-License-Identifier: Apache-2.0
"""A process in the life of the host: its id comes again, so it is never named by that alone."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import NamedTuple

from pipelined.runs import CUT
from pipelined.starter import NS_PER_TICK, start_ticks

__all__ = ["Process"]

#: A command line may have 6 MB (execve(2)), and is kept as long as its run.
_MOST_BYTES = 4096


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
        # Others may run between the two clocks: the difference is then too small.
        suspended = max(
            time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns() for _ in range(3)
        )
        since = self.start_ns + suspended - ticks * NS_PER_TICK
        # The tick is rounded down; the kernel reads the two clocks one after the other.
        return -NS_PER_TICK < since < 2 * NS_PER_TICK

    def arguments(self, proc: Path = Path("/proc")) -> str | None:
        """Its command line, as a shell would read it; None if it is gone, or not ours to see.

        Of a long one its first `_MOST_BYTES`, and `CUT` behind them.
        """
        try:
            with (proc / str(self.pid) / "cmdline").open("rb") as file:
                raw = file.read(_MOST_BYTES + 1)
        except OSError:
            return None
        if not raw or not self.is_at(proc):
            return None
        words = raw[:_MOST_BYTES].removesuffix(b"\0").split(b"\0")
        text = shlex.join(word.decode(errors="backslashreplace") for word in words)
        return text if len(raw) <= _MOST_BYTES else f"{text}{CUT}"
