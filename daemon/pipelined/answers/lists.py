# SPDX-License-Identifier: Apache-2.0
"""Lists of runs, the state of the daemon, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from pipelined.answers.run import DescribedRunJson
from pipelined.runs.fields import (
    Count,
    Key,
    OneOf,
    Ratio,
    Seconds,
    UnixTime,
    computed,
)

__all__ = [
    "CommandPart",
    "ErrorJson",
    "HealthJson",
    "HookJson",
    "ReadinessJson",
    "RefusalJson",
    "RunReportJson",
    "TopFinding",
]


@dataclass(frozen=True, slots=True)
class TopFinding:
    """The finding that could save most."""

    id: str
    """Such as `barrier`."""
    runs: Count
    """Examined runs that have it."""
    expected: Annotated[Seconds, Key("expected_seconds")]
    """What it is likely to save in all of them; of those of which that is not known, what it could
    save at most; 0 if neither is."""

    @classmethod
    def from_older(cls, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """A version that knew bounds only."""
        return {"expected_seconds": answer["bound_seconds"], **answer}

    @property
    @computed
    def bound(self) -> Annotated[Seconds, Key("bound_seconds")]:
        """The same, by the name that it had when it was a bound."""
        return self.expected


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPart:
    """Alike runs of a command: all runs of one pipeline, or of one program, in the same part."""

    pipeline: str
    """Signature."""
    depth: Count
    """In how many parts it lies; that which encloses it is the last one before it that is less
    deep."""
    lines: list[Count]
    """Of the script: the numbers, from 1, of the lines that they may be; empty if no line is
    certain to be them."""
    runs: Count
    """How many."""
    wall_seconds: Seconds
    """Of all of them together: more than passed if some ran at the same time."""
    cpu_seconds: Seconds
    """CPU time of all of them together, with that of the parts inside them."""
    longest_run: str
    """`id` of the longest of them."""
    failed_runs: Count
    """How many of them have [failed](CONCEPTS.md#outcome)."""
    interrupted_runs: Count
    """How many were interrupted."""
    bottleneck: str | None
    """What held them back for most of their time, such as `sort: CPU`."""
    bottleneck_ratio: Ratio | None
    """For how much of it."""
    advice: str
    """What to try, beginning with `Try:`; empty if there is nothing."""
    top_finding: TopFinding | None
    """Whose advice that is: the most severe one; of several, that which is expected to save
    most."""


class RunReportJson(TypedDict):
    """The report of `pipelined run`."""

    exit_status: int
    """Of the command; 128 + N if signal N killed it."""
    start_timestamp_seconds: UnixTime
    """When the command was started."""
    wall_seconds: Seconds
    """From its start to its end."""
    cpu_seconds: Seconds
    """User and system time of the command and of all its descendants that were waited for, or of
    its runs, if that is more: bash does not wait for `<(…)`."""
    covered_seconds: Seconds
    """Of `wall_seconds`, those in which a run was alive; runs at the same time count once."""
    repeated: str
    """On the command that costs most of those that pipelines of a script begin with more than once,
    on the same files, where once would do; empty if there is none that is worth it."""
    parts: list[CommandPart]
    """The runs summed up: the part with the most wall time first, each followed by the parts inside
    it."""
    runs: list[DescribedRunJson]
    """Runs of the command's pipelines: outer ones before those inside them, then programs alone;
    the longest first."""
    lost: dict[str, Count]
    """Events that could not be counted, by kind; above 0 the figures are too low. `runs` are runs
    that were not kept, and are missing in `parts` and `runs`."""
    daemon: str | None
    """Address of the daemon that observed; null if the command itself did."""


class HookJson(TypedDict):
    """A hook that is still to be attached."""

    hook: str
    """Its name."""
    tier: str
    """Tier that it belongs to."""
    method: str
    """How it is attached."""


class ReadinessJson(TypedDict):
    """Pipelines are observed."""

    status: Annotated[str, OneOf(("ready",))]
    """Always `ready`."""
    pending_hooks: list[HookJson]
    """Hooks that are still to be attached."""


class HealthJson(TypedDict):
    """The process lives."""

    status: Annotated[str, OneOf(("alive",))]
    """Always `alive`."""


class RefusalJson(TypedDict):
    """What is wrong with a request."""

    status: int
    """The HTTP status."""
    message: str
    """One line for people."""


class ErrorJson(TypedDict):
    """The answer to a request that failed."""

    error: RefusalJson
    """What is wrong with it."""
