# SPDX-License-Identifier: Apache-2.0
"""Commands that are run and measured one after the other, under one observer."""

from __future__ import annotations

import contextlib
import glob
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipelined.analysis.comparison import longest_run
from pipelined.analysis.comparison_reasons import Trial
from pipelined.analysis.outcome_words import marked_outcome
from pipelined.analysis.shell_words import Word, tokens
from pipelined.errors import UserError
from pipelined.run.child import StoppedError, command_line, signals_held, take_pending
from pipelined.run.measured_child import Outcome, measure
from pipelined.run.page_cache import evict, files_below
from pipelined.run.profile import NewRuns, Observing, command_cpu_seconds
from pipelined.wording import percent

__all__ = ["Execute", "Execution", "NotColdError", "executed", "executing"]

#: A file is cold if at most this share of it is in the page cache: who appends to it leaves a page.
_COLD = 0.01


class NotColdError(UserError):
    """The files that a command is to read cannot be dropped from the page cache."""


@dataclass(frozen=True, slots=True)
class Execution:
    """A command that has ended."""

    outcome: Outcome
    trial: Trial


class Execute(Protocol):
    """Runs a text for a shell to its end; `cold` are words for files to drop from the page cache
    before, else NotColdError. With `any_order` its lines can be compared in any order."""

    def __call__(self, text: str, *, cold: Sequence[str], any_order: bool) -> Execution: ...


def executed(
    arguments: Sequence[str],
    mask: Iterable[int],
    name: str,
    new_runs: NewRuns,
    *,
    any_order: bool,
) -> Execution:
    """Run one command to its end, and collect its runs: see `measure`.

    Ctrl-Z, which would stop only us, is held meanwhile: it stops us when this is done.
    """
    outcome = measure(arguments, mask, name, any_order=any_order)
    runs, lost = new_runs.collect()
    take_pending(signal.SIGTSTP)
    # The figures of a stage include the pipelines inside it.
    outer = [run for run in runs if not run.series.nested] or runs
    trial = Trial(
        outcome.wall_seconds,
        command_cpu_seconds(outcome.cpu_seconds, runs),
        longest_run(outer),
        len(outer),
        sum(lost.values()),
        next(filter(None, map(marked_outcome, runs)), ""),
        outcome.last_error_line,
    )
    return Execution(outcome, trial)


@contextlib.contextmanager
def executing(open_observer: Callable[[], Observing], before: str = "") -> Iterator[Execute]:
    """What runs commands, with no input, while the context lasts. Ctrl-C ends the command.

    `before` is what the shell executes before each.
    """
    with open_observer() as observer, signals_held(signal.SIGTSTP) as mask:
        observer.start()
        new_runs = NewRuns(observer)

        def execute(text: str, *, cold: Sequence[str], any_order: bool) -> Execution:
            try:
                _make_cold(cold)
            except StoppedError:
                raise
            except UserError as error:
                raise NotColdError(error.message, error.hint) from None
            line = command_line([before + text])
            return executed(line, mask, "it", new_runs, any_order=any_order)

        yield execute


def _make_cold(words: Iterable[str]) -> None:
    """Drop the files that a shell makes of words from the page cache.

    Raises UserError if it is not known which these are, or if they stay there.
    """
    for path in files_below(_paths(words)):
        if (kept := evict(path)) > _COLD:
            raise UserError(
                f"the host kept {percent(kept)} of {path} in the page cache",
                "is it mapped by a process, or on a tmpfs?",
            )


def _paths(words: Iterable[str]) -> Iterator[Path]:
    """The files that a shell makes of words. Raises UserError if that is not known."""
    for text in words:
        for word in tokens(text):
            literal = isinstance(word, Word) and word.literal and not word.expanded
            names = [word.value] if literal else sorted(glob.glob(text))  # type: ignore[union-attr]
            if not names:
                raise UserError(f"cannot drop {text} from the page cache: no such file")
            yield from map(Path, names)
