# SPDX-License-Identifier: Apache-2.0
"""How a run and its stages ended, in words: nothing of what has succeeded. Pure functions of a
`Run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from signal import Signals

from pipelined.command_names import SHELLS, reports_signal
from pipelined.runs import INCOMPLETE, Exit, Run, Stage
from pipelined.wording import duration, listing

__all__ = ["brief_outcome", "exits", "marked_outcome", "not_run", "outcome_sentence"]

#: Exit codes that shells and `timeout` give a meaning; a program may have another one for it.
_MEANINGS = {
    124: "as timeout does when time is up",
    126: "as a shell does if a command cannot be run",
    127: "as a shell does if a command is not found",
}
#: What these codes mean if a shell exits with one (POSIX): what it was to run is not in the run.
_NOT_RUN = {126: "a command could not be run", 127: "a command was not found"}
#: Why a shell that has done its work often exits with 1: `[ … ] && echo …` is last in its loop.
_LAST_TEST = "as a loop does whose last test was false; not with `true` before `done`"
#: A sentence names at most this many stages.
_NAMED = 3


def outcome_sentence(run: Run) -> str:
    """What comes before the verdict: ``Failed: perl was killed by SIGKILL after 15 ms; what follows
    is of the run as far as it got, without advice.`` Empty unless the run has failed or was
    interrupted, or is live and one of its stages has: ``perl was killed by SIGKILL after 15 ms; the
    run goes on.``
    A command that a shell did not find is no stage: ``Failed: a command was not found: bash exited
    with 127 after 2 ms; …``
    """
    outcome = run.outcome
    if outcome is None:
        stages = [stage for stage in run.stages if stage.outcome in INCOMPLETE]
    else:
        stages = [] if run.complete else [run.stages[index] for index in outcome.stages]
    if not stages:
        return ""
    stages.sort(key=lambda stage: not _not_run(stage))
    parts = [
        f"{stage.command} {_ended(stage, dated=not run.clock_was_set)}" for stage in stages[:_NAMED]
    ]
    if len(stages) > _NAMED:
        parts.append(f"{len(stages) - _NAMED} more")
    first = _not_run(stages[0])
    said = f"{first}: {listing(parts)}" if first else listing(parts)
    if outcome is None:
        return f"{said[:1].upper() if first else said[:1]}{said[1:]}; the run goes on."
    ended = f"{outcome.result.capitalize()}: {said}"
    return f"{ended}; what follows is of the run as far as it got, without advice."


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


def _ended(stage: Stage, *, dated: bool) -> str:
    """How a stage ended; after what time only if it is `dated` by one clock."""
    # with what it has forked, which may have outlived it, it is not known when it ended
    after = ""
    if dated and stage.end is not None and not stage.forks:
        after = f" after {duration(stage.end - stage.start)}"
    ended = stage.exit or Exit()
    if ended.out_of_memory:
        return f"was killed by the kernel{after}, as memory had run out"
    if ended.signal is None:
        meaning = "" if _not_run(stage) else _meaning(ended, stage.command)
        if ended.code == 1 and stage.command in SHELLS:
            meaning = f" ({_LAST_TEST})"
        return f"exited with {ended.code}{meaning}{after}"
    if ended.from_inside:
        return f"was stopped by a process of the run with {ended.signal}{after}"
    return f"was killed by {ended.signal}{after}{' and dumped core' if ended.core_dumped else ''}"


def _not_run(stage: Stage) -> str:
    """What a shell's exit says of its command, if that did not run; else empty."""
    ended = stage.exit or Exit()
    return _NOT_RUN.get(ended.code or 0, "") if stage.command in SHELLS else ""


def not_run(status: int) -> str:
    """What the exit status of a whole command says if a shell did not run one: ``127 (as a shell
    does if a command is not found)``; else empty."""
    return f"{status}{_meaning(Exit(code=status), SHELLS[0])}" if status in _NOT_RUN else ""


def _meaning(ended: Exit, command: str) -> str:
    """`` (as a shell does if SIGKILL killed its command)`` of 137; empty of most codes."""
    code = ended.code or 0
    words = _MEANINGS.get(code, "")
    if reports_signal(command, code):
        with suppress(ValueError):  # no signal has this number
            words = f"as a shell does if {Signals(code - 128).name} killed its command"
    if ended.from_inside:
        words += "; a process of the run had sent it"
    return f" ({words})" if words else ""
