# SPDX-License-Identifier: Apache-2.0
"""The messages between the daemon and systemd: states, the watchdog, priorities of log lines.

The protocol is sd_notify(3): datagrams of `NAME=value` lines to the socket that NOTIFY_SOCKET
names. A log line has its priority as a prefix such as `<4>`, see sd-daemon(3).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Self

__all__ = ["JournalFormatter", "Supervisor", "logs_to_journal"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Supervisor:
    """The service manager that wants state messages: systemd, or none."""

    address: str | None = None
    """Address of its socket; an abstract one begins with a zero byte. None: send nothing."""
    watchdog: float | None = None
    """Seconds without a keep-alive message after which it kills us; None: never."""

    @classmethod
    def take(cls, environment: MutableMapping[str, str], pid: int | None = None) -> Self:
        """Read the variables of `environment` and remove them: what we start may not speak for us.

        `pid` is our process id, by default the real one.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        meant = environment.pop("WATCHDOG_PID", "")
        ours = not meant or meant == str(os.getpid() if pid is None else pid)
        watched = ours and microseconds.isdecimal() and int(microseconds) > 0
        if address.startswith("@"):
            address = "\0" + address[1:]
        elif not address.startswith("/"):  # vsock: from a virtual machine to its host
            address = ""
        return cls(address or None, int(microseconds) / 1e6 if address and watched else None)

    def ready(self, status: str) -> None:
        """Report that we are up; `status` is for `systemctl status`."""
        self._send("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={status}")

    def alive(self, status: str) -> None:
        """Tell the watchdog that we are alive."""
        self._send("WATCHDOG=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Announce a reload; `ready` must follow."""
        # Type=notify-reload needs the time, to tell this reload from an earlier one
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, *lines: str) -> None:
        if self.address is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            try:
                sender.sendto("\n".join(lines).encode(), self.address)
            except OSError as error:  # systemd notices our silence by itself
                log.warning("cannot send %s to systemd: %s", lines[0], error.strerror)


def logs_to_journal(environment: Mapping[str, str], descriptor: int = 2) -> bool:
    """Whether `descriptor` is connected to the journal, as JOURNAL_STREAM says."""
    with contextlib.suppress(OSError):
        file = os.fstat(descriptor)
        return environment.get("JOURNAL_STREAM") == f"{file.st_dev}:{file.st_ino}"
    return False


class JournalFormatter(logging.Formatter):
    """Lines for the journal: with a priority, and without the time, which the journal adds."""

    def __init__(self) -> None:
        super().__init__("%(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{_priority(record.levelno)}>"
        # each line becomes an entry of its own, those of a traceback too
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def _priority(level: int) -> int:
    """The priority in syslog(3): 2 critical, 3 error, 4 warning, 6 informational, 7 debug."""
    for least, priority in (
        (logging.CRITICAL, 2),
        (logging.ERROR, 3),
        (logging.WARNING, 4),
        (logging.INFO, 6),
    ):
        if level >= least:
            return priority
    return 7
