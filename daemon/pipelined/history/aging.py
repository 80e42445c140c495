# SPDX-License-Identifier: Apache-2.0
"""When what is stored is too old."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from pipelined.history.rollup import HOUR
from pipelined.wording import duration

__all__ = ["Aging"]

#: The limit moves at most this many times as fast as time passes: it takes 6 hours for 30 days.
_SPEED = 120.0
#: 2025: no clock that says an earlier time is right.
_WRITTEN = 1_735_689_600.0
#: A limit that lags by more is worth a line in the log (seconds): a daemon that was off overnight
#: lags by less, a clock that is wrong mostly by more.
_WORTH_SAYING = 86400.0

log = logging.getLogger(__name__)


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
        self._reached = max(clock() - max_age if oldest is None else oldest + HOUR, _WRITTEN)
        """The limit was here, or can be at once."""
        self._at = monotonic()
        self._said = False

    def limit(self) -> float:
        """What ended before is too old (Unix time)."""
        wanted, now = self._clock() - self._max_age, self._monotonic()
        fastest = self._reached + _SPEED * (now - self._at)
        # no way back: a clock that was far behind would take months to catch up
        self._reached = max(self._reached, min(wanted, fastest))
        self._at = now
        self._say(wanted - self._reached)
        return min(wanted, self._reached)

    def _say(self, lag: float) -> None:
        """Log, once until the limit has caught up, that much is about to be removed."""
        if lag > _WORTH_SAYING and not self._said:
            log.warning(
                "by this host's clock, what is stored is older than it may be by up to %s: it is"
                " removed, the oldest first, over %s; if the clock is wrong, set it",
                *(duration(lag), duration(lag / _SPEED)),
            )
        self._said = lag > _WORTH_SAYING or (self._said and lag > 0)
