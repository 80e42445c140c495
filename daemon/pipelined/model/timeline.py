# SPDX-License-Identifier: Apache-2.0
"""The course of a run: at most 300 points, each of which covers one or several sweep intervals.

While a run is live its counters are noted at each sweep (`Track`). They only ever add up, so
what happened between two moments is their difference, and the sum of all points is what the
run has in all, however many moments in between were left out. Pure: knows no BPF.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pipelined.records.stage import COUNTERS, NS
from pipelined.runs import LEVELS, STATES, Point, StagePoint, Timeline

__all__ = [
    "MAX_POINTS",
    "NOTED",
    "STEP_NS",
    "Moment",
    "Track",
]

#: Points of a time line, at most.
MAX_POINTS = 300
#: Sweeps that come sooner after one another than this make one point, unless the observer sweeps
#: finer on purpose: runs whose ends cause a sweep would have more points than anybody looks at.
STEP_NS = 100_000_000
#: Moments that a track keeps however little memory it is given.
_MIN_MOMENTS = 8
#: Bytes of a moment beside those of its packed values, about.
_MOMENT_BYTES = 140

#: Values that add up to the time that has passed: those of the levels, and what was unwatched.
_TIMES = len(LEVELS) + 1

#: How many of a stage's counters, which begin with its states, are noted: up to the bytes.
NOTED = len(STATES) + COUNTERS.index("written_bytes") + 1
_READ = len(STATES) + COUNTERS.index("read_bytes")
_WRITTEN = NOTED - 1


@dataclass(slots=True, eq=False)
class Moment:
    """The counters of a run at one moment, since the run's start."""

    stages: tuple[tuple[int, int], ...]
    """Index and generation of each stage's record: together they are unique."""
    values: array[int]
    """Nanoseconds at each level, and those in which nobody watched; then of each stage the first
    `NOTED` counters of its record."""

    @property
    def elapsed_ns(self) -> int:
        """Since the run's start: what the levels and the time unwatched add up to."""
        return sum(self.values[:_TIMES])


class _Packed(NamedTuple):
    """A moment that is kept: most of its values are 0 or small, so it takes a third of them."""

    stages: tuple[tuple[int, int], ...]
    values: bytes
    end_ns: int

    @classmethod
    def of(cls, moment: Moment) -> _Packed:
        packed = zlib.compress(moment.values.tobytes(), zlib.Z_BEST_SPEED)
        return cls(moment.stages, packed, moment.elapsed_ns)

    def moment(self) -> Moment:
        values = array("q")
        values.frombytes(zlib.decompress(self.values))
        return Moment(self.stages, values)


class Track:
    """The moments of one run, thinned as it grows."""

    __slots__ = ("_bytes", "_kept", "_last", "_step_ns")

    def __init__(self, step_ns: int = STEP_NS) -> None:
        """No point is shorter than `step_ns`, but the last."""
        self._kept: list[_Packed] = []
        self._last: Moment | None = None
        """The end of the last point; it moves on until that is as long as a step."""
        self._bytes = 0
        """What `_kept` takes, about."""
        self._step_ns = step_ns

    def add(self, moment: Moment, memory: int) -> None:
        """Note one more moment, in about `memory` bytes for all of them."""
        last, self._last = self._last, moment
        if last is None:
            return
        if last.stages == moment.stages:
            moment.stages = last.stages  # one object for all
        if last.elapsed_ns - (self._kept[-1].end_ns if self._kept else 0) < self._step_ns:
            return
        self._kept.append(packed := _Packed.of(last))
        self._bytes += _size(packed)
        count = len(self._kept) + 1
        # one less: a time line ends with the latest moment, which is not kept
        if count >= MAX_POINTS or (count > _MIN_MOMENTS and self._bytes > memory):
            self._thin(moment.elapsed_ns)

    def resume(self, moment: Moment) -> None:
        """Begin with this moment, after which nobody watched for a while: a point ends there."""
        self._kept.append(packed := _Packed.of(moment))
        self._bytes += _size(packed)

    def _thin(self, end_ns: int) -> None:
        """Merge neighbours two by two; from now on a point lasts as long as these do."""
        self._step_ns = 2 * end_ns // (len(self._kept) + 1)
        del self._kept[::2]
        self._bytes = sum(map(_size, self._kept))

    def timeline(
        self, start: float, now: Moment, order: Sequence[int], pids: Sequence[int]
    ) -> Timeline:
        """The points from `start` (Unix time) up to `now`.

        `order` has for each stage of the run its place in `now`, and `pids` its process id.
        """
        ended = now.elapsed_ns
        before = [packed.moment() for packed in self._kept if packed.end_ns < ended]
        if self._last and self._last.elapsed_ns < ended:
            before.append(self._last)
        rows = [_aligned(moment, now.stages) for moment in (*before, now)]
        rows[-1] = [max(0, value) for value in rows[-1]]
        # Stages that were inside another may leave it and take their time along, and two CPUs may
        # credit a few negative nanoseconds first. So no moment counts more than the one after it.
        for row, after in zip(rows[-2::-1], rows[:0:-1], strict=True):
            row[:] = map(min, row, after)
        rows.insert(0, [0] * len(rows[-1]))
        return tuple(_point(a, b, start, order, pids) for a, b in pairwise(rows))


def _size(packed: _Packed) -> int:
    return len(packed.values) + _MOMENT_BYTES


def _aligned(moment: Moment, stages: Iterable[tuple[int, int]]) -> list[int]:
    """The values of `moment` in the order of these stages; zeros for one not there yet."""
    values = moment.values
    if moment.stages == stages:
        return values.tolist()
    place = {stage: _TIMES + NOTED * at for at, stage in enumerate(moment.stages)}
    row = values[:_TIMES].tolist()
    for stage in stages:
        at = place.get(stage)
        row += [0] * NOTED if at is None else values[at : at + NOTED]
    return row


def _point(
    before: Sequence[int],
    after: Sequence[int],
    start: float,
    order: Sequence[int],
    pids: Sequence[int],
) -> Point:
    levels = len(LEVELS)
    grown = [b - a for a, b in zip(before, after, strict=True)]
    stages = []
    for at, pid in zip(order, pids, strict=True):
        first = _TIMES + NOTED * at
        states = dict(zip(STATES, grown[first:], strict=False))
        stages.append(
            StagePoint(
                {state: NS * ns for state, ns in states.items() if ns > 0},
                grown[first + _READ],
                grown[first + _WRITTEN],
                pid,
            )
        )
    return Point(
        start + NS * sum(before[:_TIMES]),
        start + NS * sum(after[:_TIMES]),
        tuple(NS * ns for ns in grown[:levels]),
        tuple(stages),
        NS * grown[levels],
    )
