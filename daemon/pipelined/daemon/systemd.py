# SPDX-License-Identifier: Apache-2.0
"""What a daemon and systemd tell each other: states, the watchdog, priorities of log lines.

The protocol is sd_notify(3): datagrams of `NAME=value` lines to the socket that NOTIFY_SOCKET
names. Log lines get their priority as sd-daemon(3) has it, a prefix such as `<4>`.
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
    """Who started us and wants to know how we are: systemd, or nobody."""

    address: str | None = None
    """Of the socket to tell; one of the abstract kind begins with a zero byte."""
    watchdog: float | None = None
    """Seconds without a sign of life after which we are killed; None: never."""

    @classmethod
    def take(cls, environment: MutableMapping[str, str], pid: int | None = None) -> Self:
        """What `environment` says, taken out of it: what we start is not to speak for us.

        `pid` is ours, by default the real one.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        meant = environment.pop("WATCHDOG_PID", "")
        ours = not meant or meant == str(os.getpid() if pid is None else pid)
        watched = ours and microseconds.isdecimal() and int(microseconds) > 0
        if address.startswith("@"):
            address = "\0" + address[1:]
        elif not address.startswith("/"):  # vsock: reaches a host from its guests, not us
            address = ""
        return cls(address or None, int(microseconds) / 1e6 if address and watched else None)

    def ready(self, status: str) -> None:
        self._tell("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        self._tell(f"STATUS={status}")

    def alive(self, status: str) -> None:
        """Puts the watchdog off."""
        self._tell("WATCHDOG=1", f"STATUS={status}")

    def reloading(self) -> None:
        """To be followed by `ready`."""
        # the clock that tells a reload from an earlier one: Type=notify-reload insists on it
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._tell("RELOADING=1", f"MONOTONIC_USEC={now}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if self.address is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as ours:
            try:
                ours.sendto("\n".join(lines).encode(), self.address)
            except OSError as error:  # it notices by itself that we stay silent
                log.warning("systemd cannot be told %s: %s", lines[0], error.strerror)


def logs_to_journal(environment: Mapping[str, str], descriptor: int = 2) -> bool:
    """Whether what is written to `descriptor` arrives in the journal (JOURNAL_STREAM)."""
    with contextlib.suppress(OSError):
        file = os.fstat(descriptor)
        return environment.get("JOURNAL_STREAM") == f"{file.st_dev}:{file.st_ino}"
    return False


class JournalFormatter(logging.Formatter):
    """Lines for the journal: with their priority, without the time, which it knows."""

    def __init__(self) -> None:
        super().__init__("%(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{_priority(record.levelno)}>"
        # each line is an entry of its own there, a traceback's too
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def _priority(level: int) -> int:
    """As syslog(3) has it: 2 critical, 3 error, 4 warning, 6 informational, 7 debug."""
    for least, priority in (
        (logging.CRITICAL, 2),
        (logging.ERROR, 3),
        (logging.WARNING, 4),
        (logging.INFO, 6),
    ):
        if level >= least:
            return priority
    return 7
