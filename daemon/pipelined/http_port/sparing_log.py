# SPDX-License-Identifier: Apache-2.0
"""What strangers have logged: however often they cause it, a kind is logged once a minute."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

__all__ = ["SparingLog"]

#: Seconds from one line of a kind to the next.
_PACE = 60.0


class SparingLog:
    """Logs through `logger`, with the number of lines of a kind that were left out before.

    A kind is one of a few words, never what a stranger sent.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def info(self, kind: str, message: str) -> None:
        """Log `message` at level info, or count it."""
        self._log(logging.INFO, kind, message)

    def exception(self, kind: str, message: str) -> None:
        """The same for the exception that is being handled, with its traceback, as an error."""
        self._log(logging.ERROR, kind, message, traceback=True)

    def _log(self, level: int, kind: str, message: str, *, traceback: bool = False) -> None:
        with self._lock:
            now = self._clock()
            if now - self._last.get(kind, float("-inf")) < _PACE:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return
            self._last[kind] = now
            left_out = self._left_out.pop(kind, 0)
        more = f" ({left_out} more like it since the last line)" if left_out else ""
        self._logger.log(level, "%s%s", message, more, exc_info=traceback)
