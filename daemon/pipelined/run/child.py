# SPDX-License-Identifier: Apache-2.0
"""Starting a command, passing signals on to it, waiting for it, and its exit status."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pipelined.errors import UserError

__all__ = [
    "NotStarted",
    "command_line",
    "execute",
    "exit_status",
    "signals_held",
    "start",
    "wait_for_signal",
]

FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_AWAITED = frozenset({signal.SIGCHLD, *FORWARDED})
#: `si_code` of a signal that the kernel made, as the terminal does (asm-generic/siginfo.h).
_SI_KERNEL = 128
#: Ignored by Python; the command gets the default.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class NotStarted(UserError):
    """The command could not be started; `exit_status` says why, as a shell would."""

    def __init__(self, message: str, hint: str, exit_status: int) -> None:
        super().__init__(message, hint)
        self.exit_status = exit_status


def command_line(
    words: Sequence[str], *, shell: str | None = None, direct: bool = False
) -> tuple[str, ...]:
    """What to execute: one string by a shell (bash, else sh), several words as they are.

    `direct`: one word too is executed as it is.

    >>> command_line(["gzip", "-k", "my file"])
    ('gzip', '-k', 'my file')
    """
    if direct or len(words) > 1:
        return tuple(words)
    if shell is None:
        shell = "bash" if shutil.which("bash") else "sh"
    return (shell, "-c", words[0])


def execute(arguments: Sequence[str], *, before_start: Callable[[], object] = lambda: None) -> int:
    """Start a command, pass signals on to it, wait for it, and return its exit status.

    `before_start` is called with the signals blocked, so that threads which it starts never
    get one. Raises NotStarted.
    """
    with signals_held() as mask:
        before_start()
        status = _wait(start(arguments, mask))
        while wait_for_signal(0) is not None:
            pass  # came too late for the command
        return status


@contextlib.contextmanager
def signals_held() -> Iterator[set[int | signal.Signals]]:
    """Block SIGCHLD and the signals that are passed on, for `wait_for_signal`.

    Threads that are started within never get one. Yields the mask from before.
    """
    # A parent that ignores SIGCHLD would leave us without the exit status.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    try:
        yield mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def wait_for_signal(timeout: float | None = None) -> signal.struct_siginfo | None:
    """The next of the signals held; None when there was none for `timeout` seconds."""
    if timeout is None:
        return signal.sigwaitinfo(_AWAITED)
    return signal.sigtimedwait(_AWAITED, timeout)


def start(arguments: Sequence[str], mask: Iterable[int], **spawning: Any) -> int:
    """Start a program with a signal mask; its process id. `spawning` goes to os.posix_spawnp.

    Raises NotStarted.
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
        raise NotStarted(f"cannot run {arguments[0]}: {reason}", hint, status) from None


def _why_not(error: OSError | ValueError) -> tuple[str, str, int]:
    """Reason, mend and exit status of a command that could not be started."""
    code = error.errno if isinstance(error, OSError) else errno.EINVAL
    known = {
        errno.ENOENT: ("not found", "check its name and PATH", 127),
        errno.EACCES: ("permission denied", "is it an executable file?", 126),
        errno.ENOEXEC: ("not a program", "scripts need a first line such as #!/bin/sh", 126),
        errno.E2BIG: ("its arguments are too long", "", 126),
    }
    reason = (os.strerror(code) if code else str(error)).lower()
    return known.get(code or 0, (reason, "", 126))


def _wait(child: int) -> int:
    """Wait for `child` to end; signals of another process, but not the terminal's, go to it."""
    while True:
        info = wait_for_signal()
        assert info is not None, "no timeout"
        if info.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return exit_status(status)
        elif info.si_code != _SI_KERNEL:
            # Not yet waited for, so its process id cannot be another one's.
            os.kill(child, info.si_signo)


def exit_status(status: int) -> int:
    """What wait(2) told, as a shell has it: 128 + N for a command that signal N killed."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
