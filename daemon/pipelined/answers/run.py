# SPDX-License-Identifier: Apache-2.0
"""A run, what it means, and its time line."""

from __future__ import annotations

from typing import Annotated, TypedDict

from pipelined.answers.fields import (
    ByLevel,
    Bytes,
    CacheState,
    Count,
    Cpus,
    OneOf,
    Ratio,
    Seconds,
    Side,
    SomeStates,
    UnixTime,
)
from pipelined.answers.stage import StageJson

__all__ = [
    "AnalysisJson",
    "DescribedRunJson",
    "DiskWaitJson",
    "EdgeJson",
    "EndpointJson",
    "EvidenceJson",
    "FindingJson",
    "FindingTimeJson",
    "MachineJson",
    "OtherPipelineJson",
    "PointJson",
    "RunFiguresJson",
    "RunHeadJson",
    "RunJson",
    "RunWithTimelineJson",
    "StagePointJson",
    "SurroundingsJson",
]


class DiskWaitJson(TypedDict):
    """Time in which a stage waited for disk."""

    overlapped: Seconds
    """While another stage was on CPU."""
    alone: Seconds
    """While none was."""


class EdgeJson(TypedDict):
    """Which stage writes to which, by index into `stages`, from 0."""

    writer: int
    """Stage that writes to the pipe."""
    reader: int
    """Stage that reads from it."""


class EndpointJson(TypedDict):
    """A process at an outer end of the pipeline that is no stage."""

    command: str
    """Command name."""
    side: Side
    """What it does with its pipe."""


class OtherPipelineJson(TypedDict):
    """Another run on the host."""

    pipeline: str
    """Signature."""
    cpu_seconds: Seconds
    """Its mean CPU use, for the time that both lived."""


class SurroundingsJson(TypedDict):
    """What else was on the host while the run lived."""

    others_cores_used: Cpus | None
    """CPUs that everything but the run kept busy, and those that the hypervisor took: the mean from
    the sweep before the run to that after it, or to the last one."""
    throttled_seconds: Seconds | None
    """How long CPU limits of its cgroup, and of those around it, held tasks back in that time,
    summed over CPUs; null if it is not known, as for a run that came and went between two
    sweeps."""
    pipelines: list[OtherPipelineJson]
    """If a tenth of the run was spent waiting for a free CPU: up to three other pipelines, busiest
    first. None of a run that is live."""


class RunHeadJson(TypedDict):
    """What lists show of a run."""

    id: str
    """Unique on this host."""
    pipeline: str
    """Signature, such as `cat|awk|sort`."""
    nested: bool
    """The pipeline runs inside a stage of another one."""
    unit: str
    """Job, container, systemd unit or cgroup; `-` if there is none."""
    parent: str | None
    """`id` of the enclosing run, in a stage of which this run lies; null if it is in no other. That
    run may be in no list any more."""
    parent_pipeline: str | None
    """Its signature."""
    partial: bool
    """It was already running when observation began."""
    start_timestamp_seconds: UnixTime
    """Start of the first stage."""
    end_timestamp_seconds: UnixTime | None
    """Exit of the last stage; null while the run is live."""
    wall_seconds: Seconds
    """From start to end, or to now."""
    cores_used: Cpus
    """CPU time of all stages, divided by `wall_seconds`."""
    overlap_ratio: Ratio | None
    """Of the time with a stage on CPU, the share with two or more."""
    cache_state: CacheState | None
    """Whether the files' pages were in the page cache before; null if the `readahead` tier is off
    or too few were read."""


class RunFiguresJson(RunHeadJson):
    """What is known of a run as a whole."""

    live: bool
    """A stage of the run is alive."""
    partial_tiers: list[str]
    """Optional tiers whose hooks were attached only after the run began: figures of these tiers
    lack the time before."""
    cpu_seconds: Seconds
    """CPU time of all stages."""
    io_overlap_ratio: Ratio | None
    """Of the time waiting for disk, the share in which another stage was on CPU."""
    level_seconds: ByLevel
    """Time by number of stages on CPU at once; adds up to `wall_seconds`."""
    disk_wait_seconds: DiskWaitJson
    """Time in which a stage waited for disk."""
    surroundings: SurroundingsJson | None
    """[What else was on the host](#surroundings). Null for runs shorter than 0.25 s and for those
    that were stored by older versions."""


class RunJson(RunFiguresJson):
    """A run: one life of a pipeline."""

    stages: list[StageJson]
    """In data order."""
    edges: list[EdgeJson]
    """Which stage writes to which."""
    endpoints: list[EndpointJson]
    """Processes at the outer ends that are no stages, such as the shell of `x=$(a | b)`."""


class EvidenceJson(TypedDict):
    """A figure that a finding stands on."""

    name: str
    """For people; may change."""
    value: float
    """In this unit."""
    unit: Annotated[str, OneOf(("seconds", "bytes", "ratio", "pages", "calls", "count"))]
    """Of the value."""


class FindingTimeJson(TypedDict):
    """A finding shows at one stage."""

    stage: int
    """Which one, by index from 0."""
    start_timestamp_seconds: UnixTime
    """From when."""
    end_timestamp_seconds: UnixTime
    """To when."""


class FindingJson(TypedDict):
    """One thing to change, to try, or to know about a run."""

    id: str
    """Such as `barrier`: [FINDINGS.md](FINDINGS.md) has a section for each."""
    severity: Annotated[str, OneOf(("warning", "advice", "note"))]
    """Change it, worth trying, or affects how to read the numbers."""
    sentence: str
    """What is wrong, with its numbers."""
    advice: str
    """What to do, beginning with `Try:`; may be empty for a note."""
    command: str
    """For a shell: [compares the pipeline with what is advised](FINDINGS.md#the-command-to-try);
    empty if there is none. Without `--show-arguments` the daemon has none."""
    notice: str
    """A sentence for the top of a report, if all figures must be read with it in mind: the host was
    busy, or a CPU limit held the run back. Else empty."""
    stages: list[int]
    """The stages concerned, by index from 0; empty for the whole run."""
    evidence: list[EvidenceJson]
    """Its figures."""
    gain_seconds: Seconds | None
    """Upper bound of the wall time that could be saved; null if it is not known."""
    gain_reason: str
    """How that was computed."""
    times: list[FindingTimeJson]
    """[When it shows](FINDINGS.md#when-a-finding-shows), in the answer with a time line. Empty if
    that does not show when."""
    documentation: str
    """Its section: `docs/FINDINGS.md#barrier`."""


class AnalysisJson(TypedDict):
    """What a run means; computed anew each time."""

    verdict: str
    """The [verdict](REPORT.md#the-verdict) of the report."""
    findings: list[FindingJson]
    """What to change, try or know, most severe first."""


class DescribedRunJson(RunJson, AnalysisJson):
    """A run with its verdict and findings."""


class StagePointJson(TypedDict):
    """What one stage did in a point of the time line."""

    pid: int
    """Process id of the stage's root; 0 if it is not known."""
    state_seconds: SomeStates
    """As of a stage, without states of no time."""
    read_bytes: Bytes
    """What it read."""
    written_bytes: Bytes
    """What it wrote."""


class PointJson(TypedDict):
    """A point of the time line. Points follow each other without a gap and add up to the run's
    levels, states and bytes."""

    start_timestamp_seconds: UnixTime
    """From when."""
    end_timestamp_seconds: UnixTime
    """To when."""
    level_seconds: ByLevel
    """Time at each level, as in the run."""
    stages: list[StagePointJson]
    """One for each stage of the run, in that order, also before it started."""


class MachineJson(TypedDict):
    """The machine that answers, as far as findings need it."""

    cores: Count
    """CPUs that are online."""
    l2_bytes: Bytes | None
    """Second-level cache of one CPU; null if the kernel does not report it."""


class RunWithTimelineJson(DescribedRunJson):
    """One run in full."""

    timeline: list[PointJson]
    """Empty if it is no longer known."""
    machine: MachineJson
    """The machine that the findings are for."""
