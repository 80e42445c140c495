# SPDX-License-Identifier: Apache-2.0
"""What a view that fills the terminal takes from it: keys, and the signals that leave the view."""

from __future__ import annotations

import os
import re
import select
import signal
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

__all__ = ["signals_taken", "single_keys"]

#: What a key sends that is no character: F2 ends in a Q.
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[0-9;]*.)?")


@contextmanager
def single_keys(keys: TextIO) -> Iterator[Callable[[float], str]]:
    """Read keys as they are pressed, without echo.

    Yields a function that waits up to some seconds for keys, and returns the characters of those
    pressed since it was last called; a function key or an arrow has none.
    """
    try:
        descriptor = keys.fileno()
        terminal = os.isatty(descriptor)
    except (OSError, ValueError):
        terminal = False
    if not terminal:

        def sleep(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield sleep
        return

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        if not ready:
            return ""
        # All that there is: a terminal sends a sequence as a whole.
        data = os.read(descriptor, 4096)
        # No data: the terminal is gone, so leave.
        return _SEQUENCE.sub(b"", data).decode("latin-1") if data else "q"

    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def signals_taken() -> Iterator[None]:
    """So that the terminal is restored first: SIGTERM and SIGHUP end the view as Ctrl-C does, and
    Ctrl-Z is held until `child.take_pending`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, stack: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
