# SPDX-License-Identifier: Apache-2.0
"""How much of a CPU a thread may use."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Allowance"]


class Allowance:
    """CPU time: a share of the time that passes, of which some can be saved for a burst."""

    def __init__(
        self, share: float, most: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """At most `most` seconds are saved, which it begins with."""
        self._share = share
        self._most = most
        self._clock = clock
        self._saved = most
        self._at = clock()

    def use(self, seconds: float) -> float:
        """Seconds until more may be used, after `seconds` of a CPU were used just now."""
        now = self._clock()
        earned = self._share * (now - self._at)
        self._saved = min(self._most, self._saved + earned) - seconds
        self._at = now
        return max(0.0, -self._saved / self._share)
