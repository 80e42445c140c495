# SPDX-License-Identifier: Apache-2.0
"""One command run to its end in a process group of its own: its time, its CPU, its output."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from pipelined.errors import UserError
from pipelined.run.child import exit_status, start, wait_for_signal

#: Of output that nobody hurries to read: our reading should not hold the command back (bytes).
_PIPE_CAPACITY = 1 << 20
_READ = 1 << 20
#: How long a command may take to heed a signal, and its output to end after it (seconds).
_PATIENCE = 1.0
#: Bytes of complaints among which the last line is looked for.
_COMPLAINT = 4096


@dataclass(frozen=True, slots=True)
class _Ended:
    """What came of one execution."""

    status: int
    wall_seconds: float
    cpu_seconds: float
    output: tuple[int, str]
    """Size in bytes and digest."""
    complaint: str
    """The last line on stderr."""


class _Stopped(UserError):
    """A signal other than Ctrl-C's ended the comparison."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_status = 128 + number


def _execute(arguments: Sequence[str], mask: set[int | signal.Signals], name: str) -> _Ended:
    """Run one command to its end, or until a signal says stop."""
    output = _Output()
    with tempfile.TemporaryFile() as complaints:
        began = time.monotonic()
        try:
            child = start(
                arguments,
                mask,
                setpgroup=0,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output.target, 1),
                    (os.POSIX_SPAWN_DUP2, complaints.fileno(), 2),
                ],
            )
        finally:
            output.started()
        status, usage, stopped = _wait(child)
        wall = time.monotonic() - began
        if stopped == signal.SIGINT:
            raise KeyboardInterrupt
        if stopped is not None:
            raise _Stopped(stopped)
        printed = output.result(_PATIENCE)
        if printed is None:
            _kill(child, signal.SIGKILL)
            raise UserError(
                f"{name} left a process behind that may still print",
                "nothing is compared; let the command wait for it, or give it another output",
            )
        complaint = _last_line(complaints)
    return _Ended(status, wall, usage.ru_utime + usage.ru_stime, printed, complaint)


class _Output:
    """Reads what a command prints, in a thread, and keeps its size and digest only."""

    def __init__(self) -> None:
        self._source, self.target = os.pipe()
        with contextlib.suppress(OSError):  # past the user's limit: it works with less
            fcntl.fcntl(self.target, fcntl.F_SETPIPE_SZ, _PIPE_CAPACITY)
        self._size = 0
        self._digest = hashlib.sha256()
        self._thread = threading.Thread(target=self._read, name="output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while chunk := os.read(self._source, _READ):
            self._size += len(chunk)
            self._digest.update(chunk)
        os.close(self._source)

    def started(self) -> None:
        """The command has the other end now: when it lets go of it, that is the end."""
        os.close(self.target)

    def result(self, timeout: float) -> tuple[int, str] | None:
        """Size and digest; None when the output has not ended after `timeout` seconds."""
        self._thread.join(timeout)
        return None if self._thread.is_alive() else (self._size, self._digest.hexdigest())


def _wait(child: int) -> tuple[int, resource.struct_rusage, int | None]:
    """Exit status, what it and its children used, and the signal by which we were told to stop.

    Such a signal goes to the whole process group; what does not heed it in time is killed.
    """
    stopped = None
    while True:
        info = wait_for_signal(None if stopped is None else _PATIENCE)
        if info is None:
            _kill(child, signal.SIGKILL)
        elif info.si_signo != signal.SIGCHLD:
            stopped = stopped or info.si_signo
            _kill(child, info.si_signo)
        else:
            # Not yet waited for, so the number of its group cannot be another one's.
            if stopped is not None and os.waitid(os.P_PID, child, _ENDED):
                _kill(child, signal.SIGKILL)
            ended, status, usage = os.wait4(child, os.WNOHANG)
            if ended:
                return exit_status(status), usage, stopped


#: Asks whether a child has ended, and leaves it for wait4.
_ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT


def _kill(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _last_line(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _COMPLAINT))
    lines = file.read().decode(errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return "".join(c if c.isprintable() else "?" for c in said[-1]) if said else ""
