# SPDX-License-Identifier: Apache-2.0
"""`pipelined run`: start one command, watch what it starts, and report its pipelines.

The command gets our standard input, output, error, environment and signal mask as they are.
Signals that are sent to us are sent on to it; those that the terminal sends reach it by
themselves, because it stays in our process group. `trials` starts and watches its commands by
the same means, but in process groups of their own.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from pipelined.errors import UserError
from pipelined.runs import Run

if TYPE_CHECKING:
    from rich.console import Console

    from pipelined.observer import Observer

__all__ = [
    "NotStarted",
    "Profile",
    "Sightings",
    "command_line",
    "execute",
    "exit_status",
    "open_private",
    "profile",
    "report_order",
    "signals_held",
    "start",
    "wait_for_signal",
    "write_json",
    "write_report",
]

#: Runs of one command that are each reported in full; of more, only the first one is.
FULL_REPORTS = 3
#: Lines for the runs that are not reported in full.
LISTED = 20
#: Finished runs that are kept for the report.
KEPT_RUNS = 10_000
#: Seconds to wait for stages that outlive the command, such as those of ``cmd > >(gzip)``.
GRACE = 1.0
GRACE_POLL = 0.01

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


@dataclass(frozen=True, slots=True)
class Profile:
    """What came of a command."""

    arguments: tuple[str, ...]
    status: int
    """Its exit status, or 128 + the number of the signal that killed it."""
    runs: tuple[Run, ...]
    """The runs of its pipelines, in the order of `report_order`."""
    lost: Mapping[str, int]
    """What could not be recorded, by kind."""


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


def profile(
    arguments: Sequence[str], *, open_observer: Callable[[], Observer] | None = None
) -> Profile:
    """Run a command under observation and wait for it.

    Raises UserError when nothing can be observed (the command is not started then), and
    NotStarted when the command cannot be started.
    """
    with (open_observer or open_private)() as observer:
        status = execute(arguments, before_start=observer.start)
        runs, lost = Sightings(observer).collect()
        return Profile(tuple(arguments), status, tuple(report_order(runs)), lost)


def open_private() -> Observer:
    """An observer of nothing but what this process will start."""
    from pipelined.config import Config
    from pipelined.observer import Observer

    return Observer.open(Config(recent_runs=KEPT_RUNS), own_only=True, all_alone=True)


class Sightings:
    """What an observer has newly seen, for one that serves several commands in turn."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._told: set[str] = set()
        self._lost: Mapping[str, int] = {}

    def collect(self) -> tuple[list[Run], dict[str, int]]:
        """The runs, and how many events were lost by kind, since it was asked last.

        Waits up to `GRACE` for stages that outlive the command.
        """
        deadline = time.monotonic() + GRACE
        while True:
            self._observer.settle()
            new = [run for run in self._observer.runs() if run.id not in self._told]
            if time.monotonic() >= deadline or not any(run.live for run in new):
                break
            time.sleep(GRACE_POLL)
        self._told.update(run.id for run in new)
        before, self._lost = self._lost, dict(self._observer.lost())
        return new, {kind: count - before.get(kind, 0) for kind, count in self._lost.items()}


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


def report_order(runs: Iterable[Run]) -> list[Run]:
    """Outer pipelines before those inside them, then programs alone; long before short."""
    by_id = {run.id: run for run in runs}

    def depth(run: Run) -> int:
        steps = 0
        while run.parent in by_id and steps < len(by_id):
            run = by_id[run.parent]
            steps += 1
        return steps

    def order(run: Run) -> tuple[int, bool, float, float]:
        return depth(run), len(run.stages) == 1, -run.wall_seconds, run.start

    return sorted(by_id.values(), key=order)


def write_json(found: Profile, file: IO[str]) -> None:
    """Write the runs in the schema of the API: ``{"runs": […], "lost": {…}}``."""
    from pipelined.analysis.machine import Host
    from pipelined.schema import describe_run

    host = Host.read()
    described = {"runs": [describe_run(run, host) for run in found.runs], "lost": dict(found.lost)}
    file.write(json.dumps(described, indent=2) + "\n")


def write_report(found: Profile, console: Console) -> None:
    """Print the report of every run, or of the first one and a list where there are many."""
    from pipelined.terminal.run_report import MIN_WIDTH, is_ascii, render

    lost = sum(found.lost.values())
    if not found.runs:
        console.print(
            f"pipelined: {_nothing_seen(found, lost)}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
        return
    many = len(found.runs) > FULL_REPORTS
    for index, run in enumerate(found.runs[:1] if many else found.runs):
        if index:
            console.print()
        render(run, console, lost)
    if many:
        console.print()
        for line in _listed(found.runs[1:], max(MIN_WIDTH, console.width), is_ascii(console)):
            console.print(line, soft_wrap=True, highlight=False, markup=False)


def _nothing_seen(found: Profile, lost: int) -> str:
    if lost:
        return f"no pipeline seen, and {lost:,} events were lost; see pipelined doctor"
    reason = "no two processes of the command were joined by a pipe, and none read 64 KiB alone"
    if "|" in found.arguments[-1]:
        return f"no pipeline seen: {reason}, or not long enough to run or wait for anything"
    return f"no pipeline seen: {reason}; quote the whole pipeline: pipelined run 'a | b'"


def _listed(runs: Sequence[Run], width: int, ascii_only: bool) -> list[str]:
    """A line for each signature: how many runs, their time, and who held the longest one back."""
    from pipelined.analysis.sentence import brief
    from pipelined.terminal.run_report import printable_run, shorten
    from pipelined.wording import duration

    groups: dict[str, list[Run]] = {}
    for run in runs:
        printed = printable_run(run, ascii_only)
        groups.setdefault(printed.pipeline, []).append(printed)
    ordered = sorted(groups.items(), key=lambda item: -sum(run.wall_seconds for run in item[1]))
    shown = ordered[:LISTED]
    name_width = min(40, max(len(name) for name, _ in shown))
    out = [f"  {len(runs):,} more runs; --json has each of them:"]
    for name, group in shown:
        total = sum(run.wall_seconds for run in group)
        longest = max(group, key=lambda run: run.wall_seconds)
        times = "x" if ascii_only else "×"
        line = (
            f"  {len(group):>6,} {times}  {shorten(name, name_width):<{name_width}}"
            f"  {duration(total):>8} in all  held back by {brief(longest)}"
        )
        out.append(shorten(line, width))
    if len(ordered) > LISTED:
        out.append(f"  {len(ordered) - LISTED:,} more pipelines")
    return out
