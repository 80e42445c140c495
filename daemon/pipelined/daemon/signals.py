# SPDX-License-Identifier: Apache-2.0
"""From ready to stopping: the daemon waits for signals, and shows systemd that it is alive."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipelined.daemon.announcement import status
from pipelined.daemon.systemd import Supervisor
from pipelined.errors import UserError
from pipelined.signal_waiting import wait_for_signal

if TYPE_CHECKING:
    from pipelined.http_port.web_config_file import WebConfigFile
    from pipelined.observer import Observer

__all__ = ["handled_signals", "wait_for_stop"]

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

#: Keep-alive messages per watchdog interval: one may be late, and one lost.
_MESSAGES_PER_INTERVAL = 4
#: Seconds between status lines if no watchdog needs them more often.
_STATUS_EVERY = 30.0

log = logging.getLogger(__name__)


@contextmanager
def handled_signals() -> Iterator[set[signal.Signals]]:
    """Blocks the signals that we handle, so that they can be waited for; yields them.

    A handler would not do: a signal that arrives just before the main thread falls asleep does
    not wake it. Threads started meanwhile have them blocked too. SIGHUP and SIGINT stay ignored
    if they were (nohup, a background job).
    """
    signals = {
        number
        for number in _HANDLED
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield signals
    finally:
        while wait_for_signal(signals, 0) is not None:
            pass  # another one arrived while stopping
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def wait_for_stop(
    signals: set[signal.Signals],
    observer: Observer,
    supervisor: Supervisor,
    web_config: WebConfigFile | None,
) -> None:
    """Send keep-alive messages, and reload on SIGHUP, until one of the other signals arrives."""
    had_terminal = _has_terminal()
    swept = observer.sweep_stats.count
    every = (
        supervisor.watchdog / _MESSAGES_PER_INTERVAL
        if supervisor.watchdog is not None
        else _STATUS_EVERY
    )
    due = time.monotonic() + every  # however often a signal comes
    while True:
        if supervisor.address is None:
            number = signal.sigwaitinfo(signals).si_signo
        elif arrived := wait_for_signal(signals, max(0.0, due - time.monotonic())):
            number = arrived.number
        else:
            swept = _keep_alive(observer, supervisor, swept)
            due = time.monotonic() + every
            continue
        # When a terminal hangs up, the shell sends SIGHUP to what it started there: then stop.
        if number == signal.SIGHUP and not (had_terminal and not _has_terminal()):
            _reload(observer, supervisor, web_config)
            continue
        log.info("%s: stopping", signal.Signals(number).name)
        return


def _keep_alive(observer: Observer, supervisor: Supervisor, swept: int) -> int:
    """Send a keep-alive message if there have been more sweeps than `swept`; returns their count.

    Sweeps may be further apart than the watchdog allows: then one is made here. If a sweep hangs,
    this one waits for it, and no message is sent.
    """
    try:
        if observer.sweep_stats.count == swept:
            observer.sweep()
    except Exception:
        log.exception("sweep failed: no keep-alive message for the watchdog")
    else:
        supervisor.alive(status(observer))
    return observer.sweep_stats.count


def _reload(observer: Observer, supervisor: Supervisor, web_config: WebConfigFile | None) -> None:
    supervisor.reloading()
    if web_config is None:
        log.info("SIGHUP: nothing to read again: there is no --web.config.file")
    else:
        try:
            web_config.reload()
            log.info("SIGHUP: the web config was read again")
        except UserError as error:
            log.error("SIGHUP: the old web config stays in force: %s", error)
    supervisor.ready(status(observer))


def _has_terminal() -> bool:
    """Whether we were started from a terminal that still exists."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
