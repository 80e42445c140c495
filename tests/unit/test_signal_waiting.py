# SPDX-License-Identifier: Apache-2.0
"""Waiting for a blocked signal, also by a process that is stopped meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from pipelined.signal_waiting import Arrived, wait_for_signal

#: Says when it waits, for half a second, and then what came.
WAITING = """
import signal
from pipelined.signal_waiting import wait_for_signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
print("waits", flush=True)
print(wait_for_signal({signal.SIGTERM, signal.SIGHUP}, 0.5))
"""


@pytest.fixture
def blocked() -> Iterator[None]:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.mark.usefixtures("blocked")
def test_a_signal_that_came_is_taken_and_others_stay() -> None:
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        # to this thread: another one of the tests' may not have it blocked
        signal.pthread_kill(threading.get_ident(), number)
    assert wait_for_signal({signal.SIGUSR2}, 60.0) == Arrived(signal.SIGUSR2, by_kernel=False)
    assert wait_for_signal({signal.SIGUSR2}, 0) is None
    assert wait_for_signal({signal.SIGUSR1, signal.SIGUSR2}, 0) == (signal.SIGUSR1, False)


@pytest.mark.usefixtures("blocked")
def test_without_a_signal_the_wait_ends() -> None:
    began = time.monotonic()
    assert wait_for_signal({signal.SIGUSR1}, 0.25) is None
    assert time.monotonic() - began >= 0.25


@pytest.mark.parametrize(("sent", "came"), [(signal.SIGHUP, "Arrived(number=1, "), (None, "None")])
def test_a_process_that_was_stopped_for_longer_makes_up_no_signal(
    sent: int | None, came: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        process.stdout.readline()
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.0)
        if sent is not None:
            os.kill(process.pid, sent)
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout.readline().startswith(came)
