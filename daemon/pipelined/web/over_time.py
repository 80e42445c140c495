# SPDX-License-Identifier: Apache-2.0
"""A run over time, for its page: the chart's data, when findings show, and the phases. Pure.

static/timeline.js and static/lanes.js draw the data. The phases say the same in a table, which
needs no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pipelined.analysis.finding import Finding, FindingTime
from pipelined.analysis.finding_times import finding_times
from pipelined.analysis.phases import phases
from pipelined.analysis.sentence import stage_label
from pipelined.runs import STATES, Point, Run, Timeline, state_shares
from pipelined.runs.codec import written
from pipelined.web.diagram import diagram, mean_level
from pipelined.wording import STATE_WORDS, data_size, duration, listing, percent

__all__ = ["NumberedFinding", "PhaseTable", "chart_data", "numbered", "phase_table", "unmarked"]

#: In a phase a state is named from this share of it on; the number of named states, at most.
_NAMED = 0.05
_MAX_NAMED = 2


@dataclass(frozen=True, slots=True)
class NumberedFinding:
    """A finding with the number that it has in the list and in the chart."""

    number: int
    """From 1."""
    finding: Finding
    times: tuple[FindingTime, ...]
    when: str
    """`times` in words, as ``uniq 0 s to 3.2 s``; empty if the time line does not show when."""


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """The phases of a run as texts."""

    columns: tuple[str, ...]
    """From when to when each phase was, since the start of the run."""
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """A name, and a text for each phase: the level, each stage, the throughput."""


def numbered(run: Run, timeline: Timeline, findings: Sequence[Finding]) -> list[NumberedFinding]:
    """The findings, each with its number and its times."""
    times = finding_times(run, timeline, findings)
    return [
        NumberedFinding(number, finding, stretches, _when(run, stretches))
        for number, (finding, stretches) in enumerate(zip(findings, times, strict=True), 1)
    ]


def unmarked(timeline: Timeline, findings: Sequence[NumberedFinding]) -> str:
    """Which findings are not marked in the chart, and why; empty if all are, or there is none."""
    left = [str(one.number) for one in findings if not one.times]
    if not left or not timeline:
        return ""
    if len(left) == 1:
        return f"Finding {left[0]} is not marked: the time line does not show when it happens."
    return f"Findings {listing(left)} are not marked: the time line does not show when they happen."


def chart_data(run: Run, timeline: Timeline, findings: Sequence[NumberedFinding]) -> dict[str, Any]:
    """What the page's script draws, ready for `json.dumps`."""
    return {
        "live": run.live,
        "start_timestamp_seconds": run.start,
        "diagram": diagram(run),
        "stages": [{"command": stage.command, "position": stage.position} for stage in run.stages],
        "timeline": [written(point) for point in timeline],
        "words": list(STATE_WORDS.items()),
        "marks": [
            {
                "number": one.number,
                "id": one.finding.id,
                "severity": one.finding.severity,
                "stage": stretch.stage,
                "start": stretch.start,
                "end": stretch.end,
            }
            for one in findings
            for stretch in one.times
        ],
    }


def phase_table(run: Run, timeline: Timeline) -> PhaseTable:
    """The phases in words; without columns if there is no time line."""
    found = phases(timeline)
    level = tuple(f"{mean_level(point.levels) or 0.0:.1f}" for point in found)
    stages = [
        (f"{stage.position} {stage.command}", tuple(_states(point, index) for point in found))
        for index, stage in enumerate(run.stages)
    ]
    speed = tuple(f"{data_size(_throughput(point))}/s" for point in found)
    return PhaseTable(
        tuple(_span(run, point.start, point.end) for point in found),
        (("Stages on CPU at once", level), *stages, ("Throughput of the stages", speed)),
    )


def _when(run: Run, stretches: Sequence[FindingTime]) -> str:
    parts = []
    for stage, own in groupby(stretches, lambda stretch: stretch.stage):
        spans = listing([_span(run, one.start, one.end) for one in own])
        parts.append(f"{stage_label(run, (stage,))} {spans}")
    return "; ".join(parts)


def _span(run: Run, start: float, end: float) -> str:
    return f"{duration(start - run.start)} to {duration(end - run.start)}"


def _states(point: Point, index: int) -> str:
    shares = state_shares(point.stages[index], point.seconds)
    largest = sorted(
        (state for state in STATES if shares[state] >= _NAMED), key=lambda s: -shares[s]
    )
    named = [f"{STATE_WORDS[state]} {percent(shares[state])}" for state in largest[:_MAX_NAMED]]
    if named:
        return ", ".join(named)
    alive = sum(shares.values())
    return f"alive {percent(alive)}" if alive > 0 else "not alive"


def _throughput(point: Point) -> float:
    """What all stages read or wrote per second, of each whichever is more."""
    moved = sum(max(stage.read_bytes, stage.written_bytes) for stage in point.stages)
    return moved / point.seconds if point.seconds > 0 else 0.0
