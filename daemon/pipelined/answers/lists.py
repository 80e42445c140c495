# SPDX-License-Identifier: Apache-2.0
"""Lists of runs, the state of the daemon, and errors."""

from __future__ import annotations

from typing import Annotated, TypedDict

from pipelined.answers.fields import Bytes, Count, OneOf, Ratio, Seconds, UnixTime
from pipelined.answers.run import DescribedRunJson, RunHeadJson, RunJson

__all__ = [
    "CommandPartJson",
    "CountedRunsJson",
    "ErrorJson",
    "HealthJson",
    "HookJson",
    "PipelineSummaryJson",
    "PipelinesJson",
    "PipelinesSummaryJson",
    "ReadinessJson",
    "RefusalJson",
    "RunListJson",
    "RunReportJson",
    "StartedJson",
    "SummaryJson",
    "TopFindingJson",
    "TrendBarJson",
]


class PipelinesJson(TypedDict):
    """Live and recent runs."""

    sweep_timestamp_seconds: UnixTime
    """When the figures were updated, which the request does."""
    matching_runs: Count
    """Runs that match the parameters, before `limit`."""
    runs: list[RunJson]
    """Newest start first."""


class CommandPartJson(TypedDict):
    """Alike runs of a command: all runs of one pipeline, or of one program, in the same part."""

    pipeline: str
    """Signature."""
    depth: Count
    """In how many parts it lies; that which encloses it is the last one before it that is less
    deep."""
    runs: Count
    """How many."""
    wall_seconds: Seconds
    """Of all of them together: more than passed if some ran at the same time."""
    cpu_seconds: Seconds
    """Likewise; those of the parts inside are among them."""
    longest_run: str
    """`id` of the longest of them."""
    bottleneck: str | None
    """What held them back for most of their time, such as `sort: CPU`."""
    bottleneck_ratio: Ratio | None
    """For how much of it."""
    advice: str
    """What to try, beginning with `Try:`; empty if there is nothing."""
    top_finding: TopFindingJson | None
    """Whose advice that is: the most severe one; of several, that with the largest bound."""


class RunReportJson(TypedDict):
    """The report of `pipelined run`."""

    exit_status: int
    """Of the command; 128 + N if signal N killed it."""
    start_timestamp_seconds: UnixTime
    """When the command was started."""
    wall_seconds: Seconds
    """From its start to its end."""
    cpu_seconds: Seconds
    """User and system time of the command and of all its descendants that were waited for."""
    covered_seconds: Seconds
    """Of `wall_seconds`, those in which a run was alive; runs at the same time count once."""
    parts: list[CommandPartJson]
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


class StartedJson(TypedDict):
    """The runs that one process has started."""

    observed_since_timestamp_seconds: UnixTime
    """Since when the daemon observes: another time is another daemon, which counts anew."""
    lost: dict[str, Count]
    """Events that could not be counted on the whole host, by kind."""
    finished_runs: Count
    """How many of its runs have ended, those that are no longer kept among them."""
    runs: list[RunJson]
    """Those that ended, but for the first `after`, in the order of their ends; then live ones."""


class SummaryJson(RunHeadJson):
    """A finished run in a list."""

    bottleneck: str
    """In a few words; `-`: none."""
    findings: list[str]
    """Ids of the findings that it had when it was stored."""
    read_bytes: Bytes | None
    """By all stages; null if it is not known."""
    usual_seconds: Seconds | None
    """[What such a run usually takes](HISTORY.md#what-is-usual); null if it is not known."""
    slower_than_usual: bool | None
    """It is far from that; null if that is not known."""


class TrendBarJson(TypedDict):
    """A part of the time."""

    start_timestamp_seconds: UnixTime
    """When it begins."""
    runs: Count
    """Runs that ended in it."""
    wall_seconds: Seconds
    """Of these runs."""


class TopFindingJson(TypedDict):
    """The finding that could save most."""

    id: str
    """Such as `barrier`."""
    runs: Count
    """Examined runs that have it."""
    bound_seconds: Seconds
    """What it could save at most in all of them; 0 if that is not known."""


class PipelineSummaryJson(TypedDict):
    """One pipeline (signature, unit, nested or not) over a time."""

    pipeline: str
    """Signature; `(other)` for those that have no sums of their own."""
    nested: bool
    """It runs inside a stage of another one."""
    unit: str
    """Job, container, systemd unit or cgroup; `-` if there is none."""
    parent_pipeline: str | None
    """The pipeline that encloses its last run."""
    runs: Count
    """Runs that ended, stored or [only counted](HISTORY.md#what-is-kept). The keys below, up to
    `longest_wall_seconds`, are sums over them."""
    examined_runs: Count
    """Those whose bottleneck and findings are known: they were stored."""
    wall_seconds: Seconds
    """From start to end."""
    cpu_seconds: Seconds
    """Of all stages."""
    not_overlapped_seconds: Seconds
    """With at most one stage on CPU."""
    read_bytes: Bytes
    """By all stages."""
    written_bytes: Bytes
    """By all stages."""
    longest_wall_seconds: Seconds
    """Of the longest run."""
    median_wall_seconds: Seconds | None
    """Half of the runs took no longer."""
    p95_wall_seconds: Seconds | None
    """95 in 100 took no longer."""
    exact_percentiles: bool
    """False: both are within a factor of 2."""
    trend: list[TrendBarJson]
    """Parts of `trend_step_seconds`, oldest first."""
    bottleneck: str | None
    """What held the examined runs back for most of their time, such as `sort: CPU`."""
    bottleneck_ratio: Ratio | None
    """For how much of it."""
    top_finding: TopFindingJson | None
    """The one with the largest bound in all examined runs together."""
    last_run: SummaryJson | None
    """The stored run that ended last."""


class PipelinesSummaryJson(TypedDict):
    """What each pipeline cost over a time."""

    start_timestamp_seconds: UnixTime | None
    """When the first of the hours begins that are summed up, from the first in which a run was
    counted; null if there is none."""
    end_timestamp_seconds: UnixTime | None
    """When the last one ends."""
    trend_step_seconds: Seconds
    """Length of a part of the trends: an hour up to two days, else a day, a week or four."""
    matching_pipelines: Count
    """How many match."""
    pipelines: list[PipelineSummaryJson]
    """The first `limit` of them in the order of `sort`."""


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
    """How many runs there were. From the API null without `since`, and with `finding`,
    `command`, `min_duration`, `slower` or `before`."""


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
