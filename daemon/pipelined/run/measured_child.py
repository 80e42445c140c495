# SPDX-License-Identifier: Apache-2.0
"""Run one command in a process group of its own, and measure its time, CPU and output.

The command has no input. Of its output a digest and the begin are kept (printed.py); its stderr is
kept in a temporary file, for the message if it fails.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO

from pipelined.errors import UserError
from pipelined.run.child import exit_status, next_signal, start, stop_if_asked, stopped_by
from pipelined.run.printed import PIECE, Printed, Printing
from pipelined.wording import printable

__all__ = ["Outcome", "measure"]

#: Bytes that the output's pipe holds: large, so that our reading does not hold the command back.
_PIPE_CAPACITY = 1 << 20
#: Seconds that a command has to end after a signal, and its output to end after the command. Also
#: the time between checks whether it has ended, in case another thread takes the SIGCHLD.
_PATIENCE = 1.0
#: The last line on stderr is searched in this many bytes, and this much of it is shown.
_STDERR_TAIL = 4096
_SHOWN_OF_LINE = 200
#: What stops a process group that is not the terminal's own: it reads from it, or sets it.
_USES_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)
#: For waitid: find out whether a child has ended, and leave it for wait4.
_HAS_ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT


@dataclass(frozen=True, slots=True)
class Outcome:
    """The measurements of one execution."""

    status: int
    wall_seconds: float
    cpu_seconds: float
    output: Printed
    last_error_line: str
    """The last line on stderr, made printable and not too long."""


def measure(
    arguments: Sequence[str], mask: Iterable[int], name: str, *, any_order: bool = False
) -> Outcome:
    """Run one command to its end, with this signal mask; `name` is for messages.

    With `any_order` its lines are taken in so that they can be compared in any order, which takes
    some CPU time for each.

    Call it within `child.signals_held`. Raises UserError if the command cannot be started, asks at
    the terminal, leaves a process behind that holds its output open, or a signal stops it;
    KeyboardInterrupt for SIGINT. After a signal that came before, nothing is started.
    """
    output = _Output(Printing(any_order=any_order))
    with tempfile.TemporaryFile() as errors:
        try:
            stop_if_asked()
            began = time.monotonic()
            child = start(
                arguments,
                mask,
                setpgroup=0,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output.target, 1),
                    (os.POSIX_SPAWN_DUP2, errors.fileno(), 2),
                ],
            )
        finally:
            output.close_target()
        status, usage, stopped = _wait(child, name)
        wall = time.monotonic() - began
        if stopped is not None:
            raise stopped_by(stopped)
        printed = output.result(_PATIENCE)
        if printed is None:
            _kill(child, signal.SIGKILL)
            raise UserError(
                f"{name} left a process behind that may still print",
                "nothing is compared; let the command wait for it, or redirect its output",
            )
        last_error_line = _last_line(errors)
    return Outcome(status, wall, usage.ru_utime + usage.ru_stime, printed, last_error_line)


class _Output:
    """Reads what a command prints, in a thread."""

    def __init__(self, printing: Printing) -> None:
        self._source, self.target = os.pipe()
        with contextlib.suppress(OSError):  # over the user's limit: a smaller pipe works too
            fcntl.fcntl(self.target, fcntl.F_SETPIPE_SZ, _PIPE_CAPACITY)
        self._printing = printing
        self._thread = threading.Thread(target=self._read, name="output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while piece := os.read(self._source, PIECE):
            self._printing.add(piece)
        os.close(self._source)

    def close_target(self) -> None:
        """Close our writing end, so that the output ends when the command closes its own."""
        os.close(self.target)

    def result(self, timeout: float) -> Printed | None:
        """The output; None if it has not ended within `timeout` seconds."""
        self._thread.join(timeout)
        return None if self._thread.is_alive() else self._printing.result()


def _wait(child: int, name: str) -> tuple[int, resource.struct_rusage, int | None]:
    """Exit status, resources used by it and its children, and the first signal that we got.

    Such a signal goes to the whole process group, which is killed if it does not end in time.
    Raises UserError if it is stopped because it uses the terminal, which is not its own.
    """
    stopped = None
    while True:
        arrived = next_signal(_PATIENCE)
        if arrived is not None and arrived.number != signal.SIGCHLD:
            stopped = stopped or arrived.number
            _kill(child, arrived.number)
            continue
        # The child has not been waited for, so the number of its group is still its own.
        if stopped is not None and (arrived is None or os.waitid(os.P_PID, child, _HAS_ENDED)):
            _kill(child, signal.SIGKILL)
        changed, status, usage = os.wait4(child, os.WNOHANG | os.WUNTRACED)
        if changed and os.WIFSTOPPED(status):
            if os.WSTOPSIG(status) in _USES_TERMINAL:
                _kill(child, signal.SIGKILL)
                raise UserError(
                    f"{name} asks at the terminal, where nobody can answer while it is measured",
                    "give it what it asks for before (sudo -v, ssh-add), or in its options",
                )
        elif changed:
            return exit_status(status), usage, stopped


def _kill(group: int, number: int) -> None:
    # if all of it is another user's (sudo), it goes on
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _last_line(file: IO[bytes]) -> str:
    """The last line that is not blank, with a ``?`` for what cannot be printed; its begin, if it is
    long."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _STDERR_TAIL))
    text = file.read().decode(errors="replace")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    last = lines[-1] if lines else ""
    shown = last if len(last) <= _SHOWN_OF_LINE else f"{last[: _SHOWN_OF_LINE - 1]}…"
    return printable(shown)
