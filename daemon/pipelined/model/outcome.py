# SPDX-License-Identifier: Apache-2.0
"""How stages ended, and whether they and their run have succeeded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from signal import SIGRTMIN, Signals
from typing import NamedTuple, Protocol

from pipelined.command_names import reports_signal
from pipelined.records.stage import (
    EXIT_OOM,
    EXIT_SEEN,
    EXIT_STOPPED_INSIDE,
    EXIT_STOPPED_OUTSIDE,
)
from pipelined.runs import FAILURES, Endpoint, Exit, Outcome

__all__ = ["Ended", "EndedStage", "exit_of", "failure_of", "outcome_of", "stage_outcomes"]

#: What somebody outside a run sends to stop it. A shell exits with 128 and the number if a signal
#: ended what it waited for.
_STOPPING = ("SIGHUP", "SIGINT", "SIGTERM")
_SHELL_STATUS = {128 + Signals[name]: name for name in (*_STOPPING, "SIGPIPE")}


class Ended(Protocol):
    """A stage, as far as its outcome goes."""

    @property
    def command(self) -> str: ...
    @property
    def exit(self) -> Exit | None: ...


class EndedStage(NamedTuple):
    """A stage of which nothing else is asked."""

    command: str
    exit: Exit | None


def exit_of(status: int) -> Exit | None:
    """What wait() says of a process (`StageRecord.exit_status`); None: nobody saw it."""
    if not status & EXIT_SEEN:
        return None
    number = status & 0x7F
    inside = status & (EXIT_STOPPED_INSIDE | EXIT_STOPPED_OUTSIDE) == EXIT_STOPPED_INSIDE
    if not number:
        code = status >> 8 & 0xFF
        return Exit(code=code, from_inside=inside and _SHELL_STATUS.get(code) in _STOPPING)
    name = _signal_name(number)
    return Exit(
        signal=name,
        core_dumped=bool(status & 0x80),
        out_of_memory=bool(status & EXIT_OOM),
        from_inside=inside and name in _STOPPING,
    )


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - SIGRTMIN}"


def outcome_of(
    stages: Sequence[Ended],
    edges: Iterable[tuple[int, int]],
    endpoints: Iterable[Endpoint],
    harmless: Mapping[str, Collection[int]],
) -> Outcome:
    """The outcome of a run that has ended; the arguments are those of `stage_outcomes`."""
    found: dict[str, list[int]] = {}
    for index, outcome in enumerate(stage_outcomes(stages, edges, endpoints, harmless)):
        found.setdefault(outcome, []).append(index)
    for result in ("failed", "interrupted", "unknown"):
        if result in found:
            return Outcome(result, tuple(found[result]))
    return Outcome("succeeded")


def failure_of(failed: Iterable[Ended]) -> str:
    """Why a run has failed (`FAILURES`): the gravest reason of the stages that have."""
    return max((_failure(stage.exit or Exit()) for stage in failed), key=FAILURES.index)


def _failure(ended: Exit) -> str:
    if ended.out_of_memory:
        return "out_of_memory"
    return "signal" if ended.signal else "exit"


def stage_outcomes(
    stages: Sequence[Ended],
    edges: Iterable[tuple[int, int]],
    endpoints: Iterable[Endpoint],
    harmless: Mapping[str, Collection[int]],
) -> list[str]:
    """The outcome of each stage, which are given in data order; `unknown` also while one lives.

    `edges` are indexes of writers and readers. Of commands, `harmless` exit codes are no failures.
    """
    writers = {writer for writer, _ in edges}
    if any(endpoint.side == "read" for endpoint in endpoints):
        writers.add(len(stages) - 1)
    return [_outcome(stage, index in writers, harmless) for index, stage in enumerate(stages)]


def _outcome(stage: Ended, writes: bool, harmless: Mapping[str, Collection[int]]) -> str:
    ended = stage.exit
    if ended is None:
        return "unknown"
    signal, code = ended.signal, ended.code or 0
    if reports_signal(stage.command, code):
        signal = _SHELL_STATUS.get(code)
    if ended.out_of_memory:
        return "failed"
    if ended.code == 0 or ended.code in harmless.get(stage.command, ()):
        return "succeeded"
    if signal in _STOPPING:
        return "failed" if ended.from_inside else "interrupted"
    if signal == "SIGPIPE" and writes:  # its reader had what it wanted
        return "succeeded"
    return "failed"
