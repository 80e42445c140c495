# SPDX-License-Identifier: Apache-2.0
"""How often the kernel's counters are read: at intervals, or finer while a command is young."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

__all__ = ["Fine", "Steady"]

#: Reading what lives again and again may take this share of one core; past it, sweeps come less
#: often. What has ended costs the same whenever it is read, and takes up memory until then.
_SWEEP_SHARE = 0.03
#: Fine sweeps are this far apart at first (seconds); later by this share of the time since the
#: first, as a lane of a longer run needs no finer pieces. They may take this share of a core.
_FINEST, _FINE_SHARE, _FINE_SWEEP_SHARE = 0.012, 0.02, 0.1


class Steady:
    """A sweep at each interval."""

    step_ns: int | None = None
    """The shortest point of a time line that its sweeps are to make; None: as is usual."""

    def __init__(self, interval: float) -> None:
        self._interval = interval

    def wait(self, repeated: float) -> float:
        """Seconds until the next sweep.

        `repeated` are seconds of a CPU that the last one took to read again what had been read
        before.
        """
        return max(self._interval, repeated / _SWEEP_SHARE)


class Fine(Steady):
    """Often at first, so that a short run has lanes; in the end as `Steady` with this interval."""

    step_ns = int(_FINEST * 1e9 / 2)

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(interval)
        self._clock = clock
        self._first: float | None = None

    def wait(self, repeated: float) -> float:
        now = self._clock()
        if self._first is None:
            self._first = now
            # of this thread alone: it does not displace what is measured from its CPU
            with contextlib.suppress(OSError):  # a sandbox may refuse it
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        fine = max(_FINEST, _FINE_SHARE * (now - self._first), repeated / _FINE_SWEEP_SHARE)
        return min(fine, super().wait(repeated))
