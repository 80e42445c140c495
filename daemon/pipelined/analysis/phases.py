# SPDX-License-Identifier: Apache-2.0
"""The phases of a run: stretches in which each of its stages goes on doing the same. Pure."""

from __future__ import annotations

from itertools import pairwise

from pipelined.runs import STATES, Point, StagePoint, Timeline, state_shares

__all__ = ["MAX_PHASES", "phases"]

#: More phases than this are too many to read.
MAX_PHASES = 8
#: Neighbours that differ by less than this are one phase: one stage changes its state for this
#: share of the run.
ALIKE = 0.02


def phases(timeline: Timeline) -> Timeline:
    """The points of a time line merged into at most `MAX_PHASES`.

    The two neighbours that differ least become one, again and again, until all that are left
    differ. How much they differ is the sum over stages and states of the squared difference of the
    shares, times the length of the shorter one (of two equally long ones, half of it).
    """
    points = [point for point in timeline if point.seconds > 0]
    if not points:
        return ()
    most = ALIKE * (points[-1].end - points[0].start)
    differences = [_difference(a, b) for a, b in pairwise(points)]
    while differences:
        least = min(differences)
        if least > most and len(points) <= MAX_PHASES:
            break
        at = differences.index(least)
        points[at : at + 2] = [_merged(points[at], points[at + 1])]
        del differences[at]
        for beside in (at - 1, at):
            if 0 <= beside < len(differences):
                differences[beside] = _difference(points[beside], points[beside + 1])
    return tuple(points)


def _difference(a: Point, b: Point) -> float:
    """By how much two neighbours differ (seconds)."""
    first, second = a.seconds, b.seconds
    distance = 0.0
    for one, other in zip(a.stages, b.stages, strict=True):
        before, after = state_shares(one, first), state_shares(other, second)
        distance += sum((before[state] - after[state]) ** 2 for state in STATES)
    return distance * first * second / (first + second)


def _merged(a: Point, b: Point) -> Point:
    stages = tuple(
        StagePoint(
            {
                state: one.states.get(state, 0.0) + other.states.get(state, 0.0)
                for state in STATES
                if state in one.states or state in other.states
            },
            one.read_bytes + other.read_bytes,
            one.written_bytes + other.written_bytes,
            other.pid,
        )
        for one, other in zip(a.stages, b.stages, strict=True)
    )
    levels = tuple(x + y for x, y in zip(a.levels, b.levels, strict=True))
    return Point(a.start, b.end, levels, stages, b.end - a.start - a.seconds - b.seconds)
