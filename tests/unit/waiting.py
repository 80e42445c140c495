# SPDX-License-Identifier: Apache-2.0
"""Waiting for what other threads do."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["PATIENCE", "wait_until"]

#: Seconds after which what is waited for does not happen.
PATIENCE = 20.0


def wait_until(found: Callable[[], object]) -> None:
    """Not by `time.sleep`, which tests may have replaced."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if found():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen in time")
