# SPDX-License-Identifier: Apache-2.0
"""Run commands in turn under one observer, and compare what came of them.

The order is turned round from round to round (A B, B A, …), so that what drifts on the host
meets all alike. Each command runs in a process group of its own, with no input; its output is
hashed, and its complaints are kept for the case that it fails. A command that fails, or whose
output is not that of the others, ends the comparison: what does something else is not compared.
"""

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pipelined.analysis.comparison import LABELS, Comparison, compare_trials, longest_run
from pipelined.analysis.comparison_reasons import Trial
from pipelined.errors import UserError
from pipelined.run.page_cache import evict, files_below, fill
from pipelined.run.profile import (
    Sightings,
    command_line,
    exit_status,
    open_private,
    signals_held,
    start,
    wait_for_signal,
)
from pipelined.wording import percent

if TYPE_CHECKING:
    from pipelined.observer import Observer

__all__ = ["Advance", "Plan", "ShowProgress", "run_trials"]

Advance = Callable[[str], object]
"""Called before each execution with what comes, such as ``A in round 2``."""
ShowProgress = Callable[[int], AbstractContextManager[Advance]]
"""Given the number of executions."""

#: Of output that nobody hurries to read: our reading should not hold the command back (bytes).
_PIPE_CAPACITY = 1 << 20
_READ = 1 << 20
#: How long a command may take to heed a signal, and its output to end after it (seconds).
_PATIENCE = 1.0
#: Bytes of complaints among which the last line is looked for.
_COMPLAINT = 4096
#: Less of a file than this in the page cache is not warm.
_WARM = 0.99


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    commands: tuple[str, ...]
    """Each is a string for a shell."""
    rounds: int = 5
    """How often each is measured."""
    warm_up: int = 1
    """How often each runs before that, without being measured."""
    shell: str | None = None
    """None: bash, or sh where there is no bash."""
    cold: tuple[Path, ...] = ()
    """Files to evict from the page cache before each execution; directories: all files in them."""
    warm: tuple[Path, ...] = ()
    """Likewise, files to read into it."""


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


@contextlib.contextmanager
def _silently(total: int) -> Iterator[Advance]:
    yield lambda what: None


def run_trials(
    plan: Plan,
    *,
    open_observer: Callable[[], Observer] | None = None,
    show_progress: ShowProgress = _silently,
) -> Comparison:
    """Carry out a plan. Raises UserError for a command that fails or prints something else.

    Ctrl-C ends the command that runs and raises KeyboardInterrupt.
    """
    files = _Files(plan)
    arguments = [command_line([command], shell=plan.shell) for command in plan.commands]
    trials: list[list[Trial]] = [[] for _ in arguments]
    outputs = _Outputs(plan.warm_up)
    total = (plan.warm_up + plan.rounds) * len(arguments)
    # Threads of the observer and of the progress bar start with the signals blocked.
    with (
        (open_observer or open_private)() as observer,
        signals_held() as mask,
        show_progress(total) as advance,
    ):
        observer.start()
        sightings = Sightings(observer)
        for number in range(plan.warm_up + plan.rounds):
            for side in _order(number, len(arguments)):
                advance(f"{LABELS[side]} in {_when(number, plan.warm_up)}")
                files.prepare()
                ended = _execute(arguments[side], mask, LABELS[side])
                runs, lost = sightings.collect()
                # Pipelines inside a stage of another one are in its figures.
                outer = [run for run in runs if not run.series.nested] or runs
                outputs.check(side, number, ended)
                if number >= plan.warm_up:
                    trials[side].append(
                        Trial(
                            ended.wall_seconds,
                            ended.cpu_seconds,
                            longest_run(outer),
                            len(outer),
                            sum(lost.values()),
                        )
                    )
    return compare_trials(plan.commands, trials, files.caveats())


def _order(number: int, sides: int) -> Sequence[int]:
    """Whose turn it is, in the round of this number from 0."""
    return range(sides) if number % 2 == 0 else range(sides - 1, -1, -1)


def _when(number: int, warm_up: int) -> str:
    return "the warm-up" if number < warm_up else f"round {number - warm_up + 1}"


class _Files:
    """Files whose state in the page cache is the same before each execution."""

    def __init__(self, plan: Plan) -> None:
        self._cold = files_below(plan.cold)
        self._warm = files_below(plan.warm)
        both = set(self._cold) & set(self._warm)
        if both:
            raise UserError(
                f"{min(both)} is to be cold and warm", "name it with --cold or with --warm"
            )
        self._kept: dict[Path, float] = {}
        self._missing: dict[Path, float] = {}

    def prepare(self) -> None:
        for path in self._cold:
            if kept := evict(path):
                self._kept[path] = max(kept, self._kept.get(path, 0.0))
        for path in self._warm:
            if (cached := fill(path)) < _WARM:
                self._missing[path] = min(cached, self._missing.get(path, 1.0))

    def caveats(self) -> list[str]:
        said = []
        if self._kept:
            path, share = max(self._kept.items(), key=lambda item: item[1])
            said.append(
                f"not cold: the host kept {percent(share)} of {path} in the page cache"
                f"{_and_others(self._kept)}; is it mapped by a process, or on a tmpfs?"
            )
        if self._missing:
            path, share = min(self._missing.items(), key=lambda item: item[1])
            said.append(
                f"not warm: the page cache held only {percent(share)} of {path}"
                f"{_and_others(self._missing)}; is it larger than the memory that is free?"
            )
        return said


def _and_others(files: dict[Path, float]) -> str:
    others = len(files) - 1
    return f", and some of {others:,} more files" if others else ""


class _Outputs:
    """Sees to it that every execution ends well and prints the same."""

    def __init__(self, warm_up: int) -> None:
        self._warm_up = warm_up
        self._first: tuple[int, tuple[int, str]] | None = None
        """Side and output of the first execution."""

    def check(self, side: int, number: int, ended: _Ended) -> None:
        name, when = LABELS[side], _when(number, self._warm_up)
        if ended.status:
            told = f": {ended.complaint}" if ended.complaint else ""
            raise UserError(
                f"{name} failed in {when} with exit status {ended.status}{told}",
                "nothing is compared; end it with || true if that is no failure",
            )
        if self._first is None:
            self._first = side, ended.output
        first, output = self._first
        if output == ended.output:
            return
        raise UserError(
            _difference(LABELS[first], output[0], name, ended.output[0]),
            "nothing is compared; send what may differ to /dev/null",
        )


def _difference(first: str, expected: int, name: str, size: int) -> str:
    """How two outputs differ, given their sizes in bytes."""
    if name == first:
        return f"{name} does not print the same each time: first {_bytes(expected)}, then {size:,}"
    if size == expected:
        return f"the outputs differ: {first} and {name} print {_bytes(size)}, but not the same"
    return f"the outputs differ: {first} prints {_bytes(expected)}, {name} {size:,}"


def _bytes(count: int) -> str:
    return f"{count:,} byte{'' if count == 1 else 's'}"


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


class _Stopped(UserError):
    """A signal other than Ctrl-C's ended the comparison."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_status = 128 + number


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
