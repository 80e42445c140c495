# SPDX-License-Identifier: Apache-2.0
"""When what is stored is too old."""

from __future__ import annotations

import time
from collections.abc import Callable

from pipelined.history.rollup import HOUR

__all__ = ["Aging"]

#: The limit moves at most this many times as fast as time passes: it takes 6 hours for 30 days.
_SPEED = 120.0
#: 2025: no clock that says an earlier time is right.
_WRITTEN = 1_735_689_600.0


class Aging:
    """The limit of age, which a clock that is wrong for some minutes cannot move far.

    A host may start with a clock that is months ahead, and set it right when it finds the network.
    """

    def __init__(
        self,
        max_age: float,
        oldest: float | None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`oldest`: when the oldest of what is stored ended (Unix time); None: nothing is.

        The hour after it may be too old at once.
        """
        self._max_age = max_age
        self._clock = clock
        self._monotonic = monotonic
        self._reached = max(clock() - max_age, _WRITTEN) if oldest is None else oldest + HOUR
        """The limit was here, or can be at once."""
        self._at = monotonic()

    def limit(self) -> float:
        """What ended before is too old (Unix time)."""
        wanted, now = self._clock() - self._max_age, self._monotonic()
        fastest = self._reached + _SPEED * (now - self._at)
        # no way back: a clock that was far behind would take months to catch up
        self._reached = max(self._reached, min(wanted, fastest))
        self._at = now
        return min(wanted, self._reached)
