# SPDX-License-Identifier: Apache-2.0
"""What the live page shows."""

from __future__ import annotations

from typing import Annotated, TypedDict

from pipelined.answers.run import AnalysisJson
from pipelined.runs import STATES, Run
from pipelined.runs.fields import Count, OneOf, Ratio, Seconds, UnixTime, with_keys_of

__all__ = [
    "BoxJson",
    "BoxStateJson",
    "DiagramJson",
    "LiveRunJson",
    "NowJson",
    "PipeJson",
    "PipeStateJson",
    "RecentRunJson",
    "ShortPipelineJson",
    "ShortRunsJson",
]


class BoxStateJson(TypedDict):
    """A part of the bar in a box."""

    state: Annotated[str, OneOf(STATES)]
    """State of a thread."""
    word: str
    """The state in words."""
    share_ratio: Ratio
    """Share of the bar; the rest to 1: not alive."""
    text: str
    """The share as text."""


class BoxJson(TypedDict):
    """One stage of a diagram, or more than four parallel branches of one command."""

    column: int
    """From 0: the most pipes on a way from a first stage to this one."""
    command: str
    """Of its first stage."""
    count: Count
    """How many stages it stands for."""
    position: int
    """Of its first stage, from 1."""
    bottleneck: bool
    """The other stages wait for it, over the whole run."""
    ended: bool
    """All its stages have ended."""
    exit: str
    """How those of its stages ended that did not succeed, such as `SIGKILL` or `2 × exit 3`; empty
    if there is none."""
    cpu: str
    """Such as `CPU 97 %`; of several threads `146 % of one CPU`."""
    wait: str
    """The longest wait, such as `pipe full 53 %`; empty if there is none."""
    states: list[BoxStateJson]
    """Parts of a bar."""
    read: str
    """What it took in, such as `39.8 MB`."""
    written: str
    """What it passed on."""


class PipeStateJson(TypedDict):
    """How the pipes between two boxes fared."""

    state: Annotated[str, OneOf(("full", "empty", "flowing", "idle", "closed"))]
    """`full`: the writer slept on it for at least 5 % of the time, and no shorter than the reader;
    `empty`: the reader did, and longer; else `flowing` if bytes went through, or `idle`. `closed`:
    one of its ends has ended."""
    share_ratio: Ratio
    """Share of the time that they slept."""
    text: str
    """State and share, such as `full 53 %`."""
    bytes_per_second: float | None
    """Throughput; null if it cannot be separated from another pipe's."""
    speed: str
    """Throughput as text; empty if it is null."""


class PipeJson(PipeStateJson):
    """The pipes from one box to another."""

    writer: int
    """Index into `boxes`, from 0."""
    reader: int
    """Index into `boxes`, from 0."""


class DiagramJson(TypedDict):
    """A run as boxes and pipes, with texts as in the report."""

    seconds: Seconds
    """The time that it covers."""
    mean_level: float | None
    """Mean number of stages on CPU; null if no time passed."""
    boxes: list[BoxJson]
    """One for each stage; more than four parallel branches of one command are one box."""
    pipes: list[PipeJson]
    """From box to box."""


@with_keys_of(Run, without=("stages", "edges", "endpoints"))
class RecentRunJson(AnalysisJson):
    """A run that ended lately, as the live page lists it."""

    figures: list[str]
    """The headline, as text."""
    depth: int
    """In how many runs that are listed above it this run lies."""
    runs: Count
    """How many runs the entry stands for."""
    incomplete_runs: Count
    """How many of these have failed or were interrupted."""
    distinction: str
    """What tells the run from the others of `live` and `recent`, such as `job 4711`, `user app`;
    empty if nothing does."""


class LiveRunJson(RecentRunJson):
    """A live run, as the live page draws it."""

    age: str
    """`wall_seconds` as text."""
    short_verdict: str
    """The first clause of `verdict`."""
    now: DiagramJson
    """About the last second."""
    whole: DiagramJson
    """The run so far."""


class ShortPipelineJson(TypedDict):
    """A pipeline with short runs."""

    pipeline: str
    """Signature; `(other)` for those beyond the first 500 in 5 s."""
    runs: Count
    """How many ended."""


class ShortRunsJson(TypedDict):
    """Runs that were too short to be listed."""

    seconds: Seconds
    """The time that is covered: those that ended in the last minute, to within 5 s."""
    runs: Count
    """Runs of less than 1 s, nested ones included."""
    sentence: str
    """How many there were, as text; empty if there are none."""
    pipelines: list[ShortPipelineJson]
    """At most 20 that had most of them."""


class NowJson(TypedDict):
    """What the live page shows. A nested run follows the run that encloses it. Finished nested runs
    of one pipeline inside the same run are one entry: the longest of them."""

    sweep_timestamp_seconds: UnixTime
    """When the figures were updated."""
    live_runs: Count
    """Live runs of at least 1 s, nested ones included."""
    recent: list[RecentRunJson]
    """The runs of at least 1 s that ended last, latest first, in at most 20 lines."""
    short: ShortRunsJson
    """Shorter runs that ended."""
    live: list[LiveRunJson]
    """The 60 of them that started first, the longest running first."""
