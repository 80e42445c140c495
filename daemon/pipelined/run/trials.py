# SPDX-License-Identifier: Apache-2.0
"""`pipelined compare`: run commands in turn under one observer, and compare the measurements.

The order is reversed from round to round (A B, B A, …), so that a drift of the host affects all
of them alike. A command that fails, or prints something else than the others, ends the comparison
at once, unless `Plan.match` allows it: commands that do different things are not compared.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pipelined.analysis.comparison import LABELS, OUTPUTS, Comparison, compare_trials
from pipelined.analysis.comparison_reasons import Trial
from pipelined.errors import UserError
from pipelined.run.child import command_line, signals_held
from pipelined.run.executions import executed
from pipelined.run.measured_child import Outcome
from pipelined.run.page_cache import evict, files_below, fill
from pipelined.run.printed import Printed, difference
from pipelined.run.profile import NewRuns, Observing, open_private
from pipelined.wording import percent

__all__ = ["Advance", "Plan", "ShowProgress", "no_progress", "run_trials", "turns"]

Advance = Callable[[str], object]
"""Called before each execution with its description, such as ``A in round 2``."""
ShowProgress = Callable[[int], AbstractContextManager[Advance]]
"""Called with the number of executions."""

#: A file is warm if at least this share of it is in the page cache.
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
    """None: bash, or sh if there is no bash."""
    cold: tuple[Path, ...] = ()
    """Files to evict from the page cache before each execution, and directories of such files."""
    warm: tuple[Path, ...] = ()
    """Files to read into the page cache before each execution, and directories of such files."""
    match: str = "same"
    """How alike all outputs have to be: one of `OUTPUTS`."""


@contextlib.contextmanager
def no_progress(total: int) -> Iterator[Advance]:
    yield lambda what: None


def run_trials(
    plan: Plan,
    *,
    open_observer: Callable[[], Observing] | None = None,
    show_progress: ShowProgress = no_progress,
) -> Comparison:
    """Carry out a plan. Raises UserError if a command fails, or if the outputs differ.

    Ctrl-C ends the running command and raises KeyboardInterrupt.
    """
    files = _Files(plan)
    arguments = [command_line([command], shell=plan.shell) for command in plan.commands]
    trials: list[list[Trial]] = [[] for _ in arguments]
    outputs = _Outputs(plan)
    total = (plan.warm_up + plan.rounds) * len(arguments)
    # Threads of the observer and of the progress bar start with the signals blocked.
    with (
        (open_observer or open_private)() as observer,
        signals_held(signal.SIGTSTP) as mask,
        show_progress(total) as advance,
    ):
        observer.start()
        new_runs = NewRuns(observer)
        for number in range(plan.warm_up + plan.rounds):
            for side in turns(number, len(arguments)):
                advance(f"{LABELS[side]} in {_round_name(number, plan.warm_up)}")
                files.prepare()
                any_order = outputs.any_order(number)
                done = executed(arguments[side], mask, LABELS[side], new_runs, any_order=any_order)
                outputs.check(side, number, done.outcome)
                if number >= plan.warm_up:
                    trials[side].append(done.trial)
    notes = [*files.caveats(), *outputs.caveats()]
    return compare_trials(plan.commands, trials, notes, outputs.agree)


def turns(number: int, sides: int) -> Sequence[int]:
    """The sides in the order of their turns in a round, counted from 0."""
    return range(sides) if number % 2 == 0 else range(sides - 1, -1, -1)


def _round_name(number: int, warm_up: int) -> str:
    return "the warm-up" if number < warm_up else f"round {number - warm_up + 1}"


class _Files:
    """The files that are made cold or warm before each execution."""

    def __init__(self, plan: Plan) -> None:
        self._cold = files_below(plan.cold)
        self._warm = files_below(plan.warm)
        both = set(self._cold) & set(self._warm)
        if both:
            raise UserError(
                f"{min(both)} is to be cold and warm", "give it with --cold or with --warm"
            )
        self._kept: dict[Path, float] = {}
        """The largest share that stayed in the page cache, of files that should be cold."""
        self._cached: dict[Path, float] = {}
        """The smallest share that was in the page cache, of files that should be warm."""

    def prepare(self) -> None:
        for path in self._cold:
            if kept := evict(path):
                self._kept[path] = max(kept, self._kept.get(path, 0.0))
        for path in self._warm:
            if (cached := fill(path)) < _WARM:
                self._cached[path] = min(cached, self._cached.get(path, 1.0))

    def caveats(self) -> list[str]:
        found = []
        if self._kept:
            path, share = max(self._kept.items(), key=lambda item: item[1])
            found.append(
                f"not cold: the host kept {percent(share)} of {path} in the page cache"
                f"{_and_others(self._kept)}; is it mapped by a process, or on a tmpfs?"
            )
        if self._cached:
            path, share = min(self._cached.items(), key=lambda item: item[1])
            found.append(
                f"not warm: the page cache held only {percent(share)} of {path}"
                f"{_and_others(self._cached)}; is it larger than the free memory?"
            )
        return found


def _and_others(files: dict[Path, float]) -> str:
    others = len(files) - 1
    return f", and some of {others:,} more files" if others else ""


class _Outputs:
    """Checks that every execution succeeds, and prints what the others print."""

    def __init__(self, plan: Plan) -> None:
        self._match = plan.match
        self._warm_up = plan.warm_up
        self._first: tuple[int, Outcome] | None = None
        """Side and outcome of the first execution."""
        self.agree = "same"
        """How alike all outputs were so far: one of `OUTPUTS`."""
        self._printed = False

    def any_order(self, number: int) -> bool:
        """Whether lines are to be compared in any order in the round of this number.

        If that is not asked for, only where nothing is measured: it takes CPU time.
        """
        return self._match == "lines" or (self._match == "same" and number < self._warm_up)

    def check(self, side: int, number: int, outcome: Outcome) -> None:
        """Raises UserError, given a side's outcome in the round of this number."""
        name, when = LABELS[side], _round_name(number, self._warm_up)
        if outcome.status:
            reason = f": {outcome.last_error_line}" if outcome.last_error_line else ""
            raise UserError(
                f"{name} failed in {when} with exit status {outcome.status}{reason}",
                "nothing is compared; end the command with || true if that is not a failure",
            )
        if self._first is None:
            self._first = side, outcome
        self._printed |= outcome.output.size > 0
        first, expected = self._first
        output = expected.output
        if output.digest == outcome.output.digest:
            return
        same_lines = outcome.output.has_lines_of(output)
        found = "lines" if same_lines else "any"
        if OUTPUTS.index(found) <= OUTPUTS.index(self._match):
            self.agree = max(self.agree, found, key=OUTPUTS.index)
            return
        how = _difference(LABELS[first], output, name, outcome.output, same_lines)
        unknown = None in (output.lines, outcome.output.lines)
        or_lines = unknown and output.size == outcome.output.size
        raise UserError(
            how + _errors({LABELS[first]: expected, name: outcome}),
            f"nothing is compared; if that is right, accept it with --match {found}"
            + (", or with --match lines if only their order differs" if or_lines else ""),
        )

    def caveats(self) -> list[str]:
        if self._printed:
            return []
        return ["nothing was printed: whether they do the same work was not compared"]


def _difference(first: str, expected: Printed, name: str, found: Printed, same_lines: bool) -> str:
    """How what `name` printed differs from what was expected, the first output."""
    if name == first:
        where = difference(expected, found, ("it first prints", "then"))
        if same_lines:
            return f"{name} prints the same lines in another order each time: {where}"
        return f"{name} does not print the same each time: {where}"
    where = difference(expected, found, (f"{first} prints", f"{name} prints"))
    if same_lines:
        return f"{first} and {name} print the same lines in another order: {where}"
    sizes = f"{first} {_bytes(expected.size)}, {name} {found.size:,}"
    return f"the outputs differ: {where} ({sizes})"


def _errors(outcomes: Mapping[str, Outcome]) -> str:
    """What each of them that has printed on stderr printed there last, and how it ended."""
    return "".join(
        f"; {name} exited with {outcome.status}, and printed on stderr: {outcome.last_error_line}"
        for name, outcome in outcomes.items()
        if outcome.last_error_line
    )


def _bytes(count: int) -> str:
    return f"{count:,} byte{'' if count == 1 else 's'}"
