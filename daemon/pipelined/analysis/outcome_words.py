# SPDX-License-Identifier: Apache-2.0
"""How a run ended, in words: nothing of one that has succeeded. Pure functions of a `Run`."""

from __future__ import annotations

from pipelined.runs import Exit, Run, Stage
from pipelined.wording import duration, listing

__all__ = ["brief_outcome", "outcome_sentence"]

#: A sentence names at most this many stages.
_NAMED = 3


def outcome_sentence(run: Run) -> str:
    """What comes before the verdict: ``Failed: perl was killed by SIGKILL after 15 ms; what follows
    is of the run as far as it got.`` Empty unless the run has failed or was interrupted.
    """
    outcome = run.outcome
    if outcome is None or run.complete:
        return ""
    stages = [run.stages[index] for index in outcome.stages]
    parts = [f"{stage.command} {_ended(stage)}" for stage in stages[:_NAMED]]
    if len(stages) > _NAMED:
        parts.append(f"{len(stages) - _NAMED} more")
    ended = f"{outcome.result.capitalize()}: {listing(parts)}"
    return f"{ended}; what follows is of the run as far as it got."


def brief_outcome(run: Run) -> str:
    """For tables: ``perl: SIGKILL``; the first of several stages, empty as `outcome_sentence`."""
    if run.outcome is None or run.complete:
        return ""
    stage = run.stages[run.outcome.stages[0]]
    ended = stage.exit or Exit()
    if ended.out_of_memory:
        return f"{stage.command}: out of memory"
    return f"{stage.command}: {ended.signal or f'exit {ended.code}'}"


def _ended(stage: Stage) -> str:
    # with what it has forked, which may have outlived it, it is not known when it ended
    after = ""
    if stage.end is not None and not stage.forks:
        after = f" after {duration(stage.end - stage.start)}"
    ended = stage.exit or Exit()
    if ended.out_of_memory:
        return f"was killed by the kernel{after}, as memory had run out"
    if ended.signal is None:
        return f"exited with {ended.code}{after}"
    return f"was killed by {ended.signal}{after}{' and dumped core' if ended.core_dumped else ''}"
