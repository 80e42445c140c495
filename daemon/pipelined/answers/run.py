# SPDX-License-Identifier: Apache-2.0
"""A run with what it means, its time line, and what one process has started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypedDict

from pipelined.analysis.finding import Finding
from pipelined.analysis.machine import Host
from pipelined.runs import Point, Run
from pipelined.runs.fields import Count, Key, Seconds, Unit, UnixTime, with_keys_of

__all__ = [
    "AnalysisJson",
    "Compared",
    "DescribedRunJson",
    "Pipelines",
    "RunWithTimelineJson",
    "Started",
    "UsualJson",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What was usual for a run when it was stored; of one that is not stored nothing is known."""

    usual: Annotated[Seconds | None, Key("usual_seconds")] = None
    """[What such a run usually takes](HISTORY.md#what-is-usual)."""
    slower: Annotated[bool | None, Key("slower_than_usual")] = None
    """It took far longer than usual."""
    usual_input: Annotated[float | None, Unit("bytes"), Key("usual_input_bytes")] = None
    """[The usual input](HISTORY.md#what-is-usual) of runs of the pipeline."""
    usual_any_input: Annotated[Seconds | None, Key("usual_any_input_seconds")] = None
    """What they usually take, whatever their input."""


class AnalysisJson(TypedDict):
    """What a run means; computed anew each time."""

    verdict: str
    """The [verdict](REPORT.md#the-verdict) of the report."""
    findings: list[Finding]
    """What to change, try or know, most severe first."""


@with_keys_of(Run)
class DescribedRunJson(AnalysisJson):
    """A run with its verdict and findings."""


@with_keys_of(Compared)
class UsualJson(TypedDict):
    """What was usual for a run."""


@with_keys_of(Run)
class RunWithTimelineJson(AnalysisJson, UsualJson):
    """One run in full."""

    timeline: list[Point]
    """Empty if it is no longer known."""
    machine: Host
    """The machine that the findings are for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The runs that one process has started."""

    observed_since: Annotated[UnixTime, Key("observed_since_timestamp_seconds")]
    """Since when the daemon observes: another time is another daemon, which counts anew."""
    lost: Mapping[str, Count]
    """Events that could not be counted on the whole host, by kind."""
    finished: Annotated[Count, Key("finished_runs")]
    """How many of its runs have ended, those that are no longer kept among them."""
    runs: tuple[Run, ...]
    """Runs that ended, but for the first `after`, in the order of their ends; then live ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelines:
    """Live and recent runs."""

    sweep_timestamp_seconds: UnixTime
    """When the figures were updated, which the request does."""
    matching_runs: Count
    """Runs that match the parameters, before `limit`."""
    runs: tuple[Run, ...]
    """Live ones, then those that have ended; newest start first in each."""
