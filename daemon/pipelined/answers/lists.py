# SPDX-License-Identifier: Apache-2.0
"""Lists of runs, the state of the daemon, and errors."""

from __future__ import annotations

from typing import Annotated, TypedDict

from pipelined.answers.fields import Count, OneOf, Seconds, UnixTime
from pipelined.answers.run import DescribedRunJson, RunHeadJson, RunJson

__all__ = [
    "CountedRunsJson",
    "ErrorJson",
    "HealthJson",
    "HookJson",
    "PipelinesJson",
    "ReadinessJson",
    "RefusalJson",
    "RunListJson",
    "RunReportJson",
    "SummaryJson",
]


class PipelinesJson(TypedDict):
    """Live and recent runs."""

    sweep_timestamp_seconds: UnixTime
    """When the figures were updated, which the request does."""
    matching_runs: Count
    """Runs that match the parameters, before `limit`."""
    runs: list[RunJson]
    """Newest start first."""


class RunReportJson(TypedDict):
    """The report of `pipelined run`."""

    runs: list[DescribedRunJson]
    """Runs of the command's pipelines: outer ones before those inside them, then programs alone;
    the longest first."""
    lost: dict[str, Count]
    """Events that could not be counted, by kind; above 0 the figures are too low."""


class SummaryJson(RunHeadJson):
    """A finished run in a list."""

    bottleneck: str
    """In a few words; `-`: none."""
    findings: list[str]
    """Ids of the findings that it had when it was stored."""


class CountedRunsJson(TypedDict):
    """How many runs there were in whole hours by the end of the runs, from the hour of `since` to
    that of `until`, stored or [only counted](HISTORY.md#what-is-kept)."""

    start_timestamp_seconds: UnixTime | None
    """Start of the first hour; null for all that is kept."""
    runs: Count
    """Top-level runs that ended."""
    stored_runs: Count
    """How many of them are stored. With `pipeline` or `unit`, without those merged into
    `(other)`."""
    median_wall_seconds: Seconds | None
    """Within a factor of 2; null without runs."""
    most_frequent_pipeline: str | None
    """Its signature."""
    nested_runs: Count
    """Nested runs that ended, which no other key counts."""
    stored_nested_runs: Count
    """How many of them are stored."""


class RunListJson(TypedDict):
    """Finished runs from the history, newest start first."""

    runs: list[SummaryJson]
    """Those that match."""
    next: str | None
    """`before` of the next request; null at the end."""
    counted: CountedRunsJson | None
    """How many runs there were. From the API null without `since`, and with `finding`, `command` or
    `before`."""


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
