# SPDX-License-Identifier: Apache-2.0
"""Threads that wait for the next stored run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Arrivals"]

#: How often it is checked whether whoever waits has given up (seconds).
LOOK_EVERY = 1.0


class Arrivals:
    """Counts the writes to the history, and wakes whoever waits for one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._closed = False

    @property
    def count(self) -> int:
        """Take it before reading the history: then no write is missed."""
        with self._changed:
            return self._count

    def announce(self) -> None:
        """The history was written."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait(self, seen: int, until: float, given_up: Callable[[], bool]) -> bool:
        """Wait for a write after `count` was `seen`; False if none came.

        That is at the time `until` (`time.monotonic`), when it is closed, or within `LOOK_EVERY`
        seconds after `given_up` returns true.
        """
        with self._changed:
            while not self._closed and self._count == seen:
                left = until - time.monotonic()
                if left <= 0 or given_up():
                    return False
                self._changed.wait(min(left, LOOK_EVERY))
            return not self._closed
