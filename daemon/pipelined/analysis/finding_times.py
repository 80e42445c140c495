# SPDX-License-Identifier: Apache-2.0
"""When a finding shows: the stretches of a run in which its stages do what it reports. Pure.

A time line has states, levels and bytes. A finding that rests on anything else (the size of calls,
started programs, pages) could have happened at any time of the run: it has no stretches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelined.analysis.bottleneck import LARGE
from pipelined.analysis.finding import Finding, FindingTime
from pipelined.runs import Run, Timeline, state_shares

__all__ = ["SHOWN", "Shown", "finding_times"]

#: Two stretches are one if less than this share of the run is between them.
BRIDGED = 0.05
#: A shorter stretch than this share of the run is left out.
LEAST = 0.02
#: A state dominates a point from this share of its time on.
MOST = 0.5


@dataclass(frozen=True, slots=True)
class Shown:
    """How a kind of finding shows in a point of the time line."""

    states: frozenset[str]
    """In these states, taken together, ..."""
    least: float
    """... a stage spends at least this share of the point."""
    readers: bool = False
    """Only stages that read from another stage of the finding: they are those that wait."""


_EMPTY = frozenset({"pipe_empty"})
_DISK = frozenset({"disk"})
_QUEUE = frozenset({"runqueue"})

#: By the id of a finding; all others cannot be seen in a time line.
SHOWN = {
    "barrier": Shown(_EMPTY, MOST, readers=True),
    "idle-stage": Shown(_EMPTY, MOST, readers=True),
    "ceiling": Shown(frozenset({"cpu", "runqueue"}), MOST),
    "disk-not-overlapped": Shown(_DISK, LARGE),
    "readahead-late": Shown(_DISK, LARGE),
    "readahead-useless": Shown(_DISK, LARGE),
    "readahead-wasted": Shown(_DISK, LARGE),
    "large-writes": Shown(frozenset({"pipe_empty", "pipe_full"}), LARGE),
    "cpu-contention": Shown(_QUEUE, LARGE),
    "cpu-limit": Shown(_QUEUE, LARGE),
    "more-stages-than-cores": Shown(_QUEUE, LARGE),
}


def finding_times(
    run: Run, timeline: Timeline, findings: Sequence[Finding]
) -> list[tuple[FindingTime, ...]]:
    """The stretches of each finding: by stage in data order, then by time.

    None if the time line does not show when; nor does it if it has only one point.
    """
    return [tuple(_stretches(run, timeline, finding)) for finding in findings]


def _stretches(run: Run, timeline: Timeline, finding: Finding) -> Iterator[FindingTime]:
    shown = SHOWN.get(finding.id)
    if shown is None or len(timeline) < 2:
        return
    stages = sorted(finding.stages or range(len(run.stages)))
    if shown.readers:
        stages = [
            reader
            for reader in stages
            if any(end == reader and writer in stages for writer, end in run.edges)
        ]
    length = timeline[-1].end - timeline[0].start
    for stage in stages:
        found: list[tuple[float, float]] = []
        for point in timeline:
            shares = state_shares(point.stages[stage], point.seconds)
            if sum(shares[state] for state in shown.states) < shown.least:
                continue
            # what nobody watched lies in front of what the point has counted
            begin = point.start + point.unwatched
            if found and begin - found[-1][1] <= BRIDGED * length:
                found[-1] = (found[-1][0], point.end)
            else:
                found.append((begin, point.end))
        for start, end in found:
            if end - start >= LEAST * length:
                yield FindingTime(stage, start, end)
