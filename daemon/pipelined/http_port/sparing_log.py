# SPDX-License-Identifier: Apache-2.0
"""Log lines that strangers cause: however many of them, a kind is logged once a minute."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

__all__ = ["SparingLog"]

#: Seconds from one line of a kind to the next.
_PACE = 60.0


class SparingLog:
    """Logs at level info through `logger`, with the number of lines of a kind left out before."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def info(self, kind: str, message: str) -> None:
        """Log `message`, or count it. `kind` is one of a few words, never what a stranger sent."""
        with self._lock:
            now = self._clock()
            if now - self._last.get(kind, float("-inf")) < _PACE:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return
            self._last[kind] = now
            left_out = self._left_out.pop(kind, 0)
        more = f" ({left_out} more like it since the last line)" if left_out else ""
        self._logger.info("%s%s", message, more)
