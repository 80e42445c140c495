# SPDX-License-Identifier: Apache-2.0
"""Start a command, pass signals on to it, wait for it, and return its exit status and times.

`execute` leaves the command alone: it gets our standard input, output, error, environment and
signal mask. It stays in our process group, so Ctrl-C in the terminal reaches it directly; signals
that only we may have got are sent on to it.

`measured_child` uses the parts for commands in process groups of their own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipelined.errors import UserError
from pipelined.signal_waiting import Arrived, wait_for_signal

__all__ = [
    "Ended",
    "NotStarted",
    "StoppedError",
    "command_line",
    "execute",
    "exit_status",
    "next_signal",
    "signals_held",
    "start",
    "stop_if_asked",
    "stopped_by",
    "take_pending",
]

#: Signals that are sent on to the command.
_FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_AWAITED = frozenset({signal.SIGCHLD, *_FORWARDED})
#: Python ignores these; the command gets the default.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
#: What a shell gives a meaning, and a program's name seldom has.
_FOR_A_SHELL = re.compile(r"[\s|&;<>()$`*?]")
#: Seconds between checks whether the command has ended. Normally SIGCHLD reports it at once, but
#: a thread that was started before `signals_held` may take it.
CHECK_INTERVAL = 1.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    status: int
    """Its exit status, or 128 + the number of the signal that killed it."""
    start: float
    """Unix time."""
    wall_seconds: float
    cpu_seconds: float
    """User and system time of it and of all its descendants that were waited for; once its runs are
    known, theirs if that is more (`profile.command_cpu_seconds`)."""


class NotStarted(UserError):
    """The command could not be started; `exit_status` is what a shell would return."""

    def __init__(self, message: str, hint: str, exit_status: int) -> None:
        super().__init__(message, hint)
        self.exit_status = exit_status


class StoppedError(UserError):
    """A signal other than SIGINT ended a measurement."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_status = 128 + number


def command_line(
    words: Sequence[str], *, shell: str | None = None, direct: bool = False
) -> tuple[str, ...]:
    """What to execute: a single string with a shell (bash, else sh), several words directly.

    With `direct`, a single word is executed directly too.

    >>> command_line(["gzip", "-k", "my file"])
    ('gzip', '-k', 'my file')
    """
    if direct or len(words) > 1:
        return tuple(words)
    if shell is None:
        shell = "bash" if shutil.which("bash") else "sh"
    return (shell, "-c", words[0])


def execute(
    arguments: Sequence[str], *, before_start: Callable[[], object] = lambda: None
) -> Ended:
    """Start a command, pass signals on to it, and wait for it.

    `before_start` is called with the signals blocked, so threads that it starts never get one.
    Raises NotStarted.
    """
    with signals_held() as mask:
        before_start()
        start_time, began = time.time(), time.monotonic()
        status, usage = _wait(start(arguments, mask))
        wall = time.monotonic() - began
        while next_signal(0) is not None:
            pass  # it came too late for the command
        return Ended(status, start_time, wall, usage.ru_utime + usage.ru_stime)


@contextlib.contextmanager
def signals_held(*others: signal.Signals) -> Iterator[set[int | signal.Signals]]:
    """Block SIGCHLD and the signals that are passed on, for `next_signal`; and `others`.

    Threads that are started meanwhile never get one. Those that are ignored (nohup, a background
    job of a script) stay ignored: Linux keeps a blocked one all the same. Yields the previous mask.
    """
    # If our parent ignored SIGCHLD, so do we, and there would be no exit status to wait for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wanted = _AWAITED.union(others)
    held = {number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def take_pending(number: signal.Signals) -> None:
    """If this signal came while it was held, it has its effect now."""
    if number in signal.sigpending():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})


def stop_if_asked() -> None:
    """What was asked for while signals were held, happens now: to stop, or to stop for a while.

    Raises KeyboardInterrupt for SIGINT, and StoppedError for others; no signal is left for later.
    """
    take_pending(signal.SIGTSTP)
    came = []
    while (arrived := wait_for_signal(_FORWARDED, 0)) is not None:
        came.append(arrived.number)
    if came:
        raise stopped_by(came[0])


def stopped_by(number: int) -> KeyboardInterrupt | StoppedError:
    """What to raise if this signal ends a measurement."""
    return KeyboardInterrupt() if number == signal.SIGINT else StoppedError(number)


def next_signal(timeout: float) -> Arrived | None:
    """The next of the blocked signals; None if none came within `timeout` seconds."""
    return wait_for_signal(_AWAITED, timeout)


def start(arguments: Sequence[str], mask: Iterable[int], **spawning: Any) -> int:
    """Start a program with this signal mask, and return its process id.

    `spawning` are further arguments of os.posix_spawnp. Raises NotStarted.
    """
    try:
        return os.posix_spawnp(
            arguments[0],
            list(arguments),
            os.environ,
            setsigmask=mask,
            setsigdef=_IGNORED_BY_PYTHON,
            **spawning,
        )
    except (OSError, ValueError) as error:
        reason, hint, status = _why_not(error)
        if len(arguments) == 1 and _FOR_A_SHELL.search(arguments[0]):
            hint = "it looks like text for a shell: leave out the --, and a shell runs it"
        raise NotStarted(f"cannot run {arguments[0]}: {reason}", hint, status) from None


def _why_not(error: OSError | ValueError) -> tuple[str, str, int]:
    """Why a command could not be started, what to do, and the exit status."""
    code = error.errno if isinstance(error, OSError) else errno.EINVAL
    known = {
        errno.ENOENT: ("not found", "check its name and PATH", 127),
        errno.EACCES: ("permission denied", "is it an executable file?", 126),
        errno.ENOEXEC: ("not a program", "scripts need a first line such as #!/bin/sh", 126),
        errno.E2BIG: ("its arguments are too long", "", 126),
    }
    reason = (os.strerror(code) if code else str(error)).lower()
    return known.get(code or 0, (reason, "", 126))


def _wait(child: int) -> tuple[int, resource.struct_rusage]:
    """Wait for `child` to end; its exit status, and what it and its children used.

    Signals that another process sends us go to the child, and those of the terminal that have not
    reached it directly.
    """
    while True:
        arrived = next_signal(CHECK_INTERVAL)
        if arrived is None or arrived.number == signal.SIGCHLD:
            ended, status, usage = os.wait4(child, os.WNOHANG)
            if ended:
                return exit_status(status), usage
        elif not (arrived.by_kernel and _has_reached(child, arrived.number)):
            # Who signals our whole group (timeout, kill %1) or cgroup (systemd) has signalled the
            # child, too. Nothing shows that: what we get is as after `kill PID`, and what the child
            # has taken is pending no more. Twice is better than never; and of several each, as a
            # second one may be meant.
            #
            # The child has not been waited for, so its process id is still its own. It may be
            # another user's (sudo): it goes on, as under timeout(1).
            with contextlib.suppress(PermissionError):
                os.kill(child, arrived.number)


def _has_reached(child: int, number: int) -> bool:
    """Whether a signal of our terminal, which goes to our process group, has reached the child.

    If the terminal goes away, the leader of its session is hung up on alone.
    """
    only_ours = number == signal.SIGHUP and os.getsid(0) == os.getpid()
    return not only_ours and os.getpgid(child) == os.getpgrp()


def exit_status(status: int) -> int:
    """The exit status in a status of wait(2), as in a shell: 128 + N if signal N killed it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
