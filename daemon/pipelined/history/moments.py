# SPDX-License-Identifier: Apache-2.0
"""Moments as people write them."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from datetime import datetime

from pipelined.config import parse_duration

__all__ = ["moment"]


def moment(text: str, now: Callable[[], float] = time.time) -> float:
    """Unix time of a moment as people write it.

    ``2h`` is two hours ago; a date, with or without a time, is in this host's time zone unless it
    names another; a plain number is Unix time. Raises ValueError with the forms that are accepted.
    """
    readings: tuple[Callable[[], float], ...] = (
        lambda: datetime.fromisoformat(text).timestamp(),
        lambda: float(text),
        lambda: now() - parse_duration(text),
    )
    for reading in readings:
        with contextlib.suppress(ValueError, OverflowError):
            found = reading()
            if math.isfinite(found):
                return found
    raise ValueError(f"{text!r} is not a moment such as 2h (ago), 2026-11-21 or '2026-11-21 03:00'")
