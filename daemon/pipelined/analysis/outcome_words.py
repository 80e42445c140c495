# SPDX-License-Identifier: Apache-2.0
"""How a run and its stages ended, in words: nothing of what has succeeded. Pure functions of a
`Run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from signal import Signals

from pipelined.runs import INCOMPLETE, Exit, Run, Stage
from pipelined.wording import duration, listing

__all__ = ["brief_outcome", "exits", "marked_outcome", "outcome_sentence"]

#: Exit codes that shells and `timeout` give a meaning; a program may have another one for it.
_MEANINGS = {
    124: "as timeout does when time is up",
    126: "as a shell does if a command cannot be run",
    127: "as a shell does if a command is not found",
}
#: A sentence names at most this many stages.
_NAMED = 3


def outcome_sentence(run: Run) -> str:
    """What comes before the verdict: ``Failed: perl was killed by SIGKILL after 15 ms; what follows
    is of the run as far as it got.`` Empty unless the run has failed or was interrupted, or is
    live and one of its stages has: ``perl was killed by SIGKILL after 15 ms; the run goes on.``
    """
    outcome = run.outcome
    if outcome is None:
        stages = [stage for stage in run.stages if stage.outcome in INCOMPLETE]
    else:
        stages = [] if run.complete else [run.stages[index] for index in outcome.stages]
    if not stages:
        return ""
    parts = [f"{stage.command} {_ended(stage)}" for stage in stages[:_NAMED]]
    if len(stages) > _NAMED:
        parts.append(f"{len(stages) - _NAMED} more")
    if outcome is None:
        return f"{listing(parts)}; the run goes on."
    ended = f"{outcome.result.capitalize()}: {listing(parts)}"
    return f"{ended}; what follows is of the run as far as it got."


def brief_outcome(run: Run) -> str:
    """For tables: ``perl: SIGKILL``; the first of several stages, empty as `outcome_sentence`."""
    if run.outcome is None or run.complete:
        return ""
    stage = run.stages[run.outcome.stages[0]]
    return f"{stage.command}: {_brief(stage)}"


def marked_outcome(run: Run) -> str:
    """With its result: ``failed (perl: SIGKILL)``; empty as `outcome_sentence`."""
    failure = brief_outcome(run)
    return f"{run.result} ({failure})" if failure else ""


def exits(stages: Iterable[Stage]) -> str:
    """How those of the stages ended that did not succeed: ``exit 3``, ``2 × SIGKILL``."""
    found = Counter(_brief(stage) for stage in stages if stage.outcome in INCOMPLETE)
    return ", ".join(f"{count} × {words}" if count > 1 else words for words, count in found.items())


def _brief(stage: Stage) -> str:
    ended = stage.exit or Exit()
    return "out of memory" if ended.out_of_memory else ended.signal or f"exit {ended.code}"


def _ended(stage: Stage) -> str:
    # with what it has forked, which may have outlived it, it is not known when it ended
    after = ""
    if stage.end is not None and not stage.forks:
        after = f" after {duration(stage.end - stage.start)}"
    ended = stage.exit or Exit()
    if ended.out_of_memory:
        return f"was killed by the kernel{after}, as memory had run out"
    if ended.signal is None:
        return f"exited with {ended.code}{_meaning(ended)}{after}"
    if ended.from_inside:
        return f"was stopped by a process of the run with {ended.signal}{after}"
    return f"was killed by {ended.signal}{after}{' and dumped core' if ended.core_dumped else ''}"


def _meaning(ended: Exit) -> str:
    """`` (as a shell does if SIGKILL killed its command)`` of 137; empty of most codes."""
    code = ended.code or 0
    words = _MEANINGS.get(code, "")
    with suppress(ValueError):  # no signal has this number
        words = f"as a shell does if {Signals(code - 128).name} killed its command"
    if ended.from_inside:
        words += "; a process of the run had sent it"
    return f" ({words})" if words else ""
