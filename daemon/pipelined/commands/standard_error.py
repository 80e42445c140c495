# SPDX-License-Identifier: Apache-2.0
"""What goes to stderr besides reports: the one line that says what failed, and the log."""

from __future__ import annotations

import contextlib
import logging
import os
import sys

import click

from pipelined.daemon.systemd import JournalFormatter, logs_to_journal
from pipelined.wording import printable

__all__ = ["DEBUG_VARIABLE", "PROGRAM", "complain", "log_to_stderr"]

PROGRAM = "pipelined"
#: If set, to anything, everything is logged and internal errors show their traceback.
DEBUG_VARIABLE = "PIPELINED_DEBUG"


def complain(message: str, status: int) -> int:
    """Write `message` as one line; the exit status is returned as it was given.

    What other users chose may be in it (names of files and commands), or another host.
    """
    priority = "<3>" if logs_to_journal(os.environ) else ""
    with contextlib.suppress(OSError):
        click.echo(f"{priority}{PROGRAM}: {printable(' '.join(message.split()))}", err=True)
    return status


class _Lines(logging.Formatter):
    """Lines for a terminal, those of a traceback too; as in `complain`."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(printable, super().format(record).splitlines()))


def log_to_stderr(level: str) -> None:
    """Send log records of `level` and above to stderr."""
    if os.environ.get(DEBUG_VARIABLE):
        level = "debug"
    handler = logging.StreamHandler(sys.stderr)
    if logs_to_journal(os.environ):
        handler.setFormatter(JournalFormatter())
    else:
        handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
