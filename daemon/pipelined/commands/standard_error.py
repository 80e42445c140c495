# SPDX-License-Identifier: Apache-2.0
"""What goes to stderr besides reports: the one line that says what failed, and the log."""

from __future__ import annotations

import contextlib
import os
import sys

import click

__all__ = ["DEBUG_VARIABLE", "PROGRAM", "complain", "log_to_stderr"]

PROGRAM = "pipelined"
#: If set, to anything, everything is logged and internal errors show their traceback.
DEBUG_VARIABLE = "PIPELINED_DEBUG"


def complain(message: str, status: int) -> int:
    """Write `message` as one line; the exit status is returned as it was given."""
    priority = "<3>" if _logs_to_journal() else ""
    with contextlib.suppress(OSError):
        click.echo(f"{priority}{PROGRAM}: {' '.join(message.split())}", err=True)
    return status


def _logs_to_journal() -> bool:
    if "JOURNAL_STREAM" not in os.environ:
        return False
    from pipelined.daemon.systemd import logs_to_journal

    return logs_to_journal(os.environ)


def log_to_stderr(level: str) -> None:
    """Send log records of `level` and above to stderr."""
    import logging

    if os.environ.get(DEBUG_VARIABLE):
        level = "debug"
    handler = logging.StreamHandler(sys.stderr)
    if _logs_to_journal():
        from pipelined.daemon.systemd import JournalFormatter

        handler.setFormatter(JournalFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
