# SPDX-License-Identifier: Apache-2.0
"""Run commands in turn under one observer, and compare what came of them.

The order is turned round from round to round (A B, B A, …), so that what drifts on the host
meets all alike. Each command runs in a process group of its own, with no input; its output is
hashed, and its complaints are kept for the case that it fails. A command that fails, or whose
output is not that of the others, ends the comparison: what does something else is not compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipelined.analysis.comparison import LABELS, Comparison, compare_trials, longest_run
from pipelined.analysis.comparison_reasons import Trial
from pipelined.errors import UserError
from pipelined.run.child import command_line, signals_held
from pipelined.run.measured_child import _Ended, _execute
from pipelined.run.page_cache import evict, files_below, fill
from pipelined.run.profile import Sightings, open_private
from pipelined.wording import percent

if TYPE_CHECKING:
    from pipelined.observer import Observer

__all__ = ["Advance", "Plan", "ShowProgress", "run_trials"]

Advance = Callable[[str], object]
"""Called before each execution with what comes, such as ``A in round 2``."""
ShowProgress = Callable[[int], AbstractContextManager[Advance]]
"""Given the number of executions."""

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
