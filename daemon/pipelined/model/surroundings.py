# SPDX-License-Identifier: Apache-2.0
"""What else was on the host while a run lived. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from pipelined.runs import OtherPipeline, Surroundings

__all__ = ["Lived", "Reading", "Together", "beside", "surroundings"]

#: At most this number of the busiest other pipelines is named ...
_NAMED = 3
#: ... and only those that used this share of a CPU while both lived.
_NOTABLE = 0.05
#: The others are asked for only if the run waited for a CPU for this share of its time.
_QUEUED = 0.10


class Reading(NamedTuple):
    """The accounts of the host at one instant."""

    time: float
    """Monotonic (seconds)."""
    busy: float | None
    """Seconds that all CPUs worked, since the host started."""
    group: Path | None = None
    """The cgroup of `throttled`."""
    throttled: float | None = None
    """Seconds that limits held its tasks back, since it was made."""


class Lived(NamedTuple):
    """A run, as far as others are concerned."""

    pipeline: str
    start: float
    end: float
    """Monotonic (seconds); now, if it is live."""
    cpu_seconds: float
    queue_seconds: float


class Together:
    """The CPU time that runs used together, each at one pace while it lived.

    Made once of many runs, so as to be compared with many.
    """

    def __init__(self, runs: Iterable[Lived]) -> None:
        changes: dict[float, float] = {}
        for run in runs:
            if run.end > run.start:
                cores = run.cpu_seconds / (run.end - run.start)
                changes[run.start] = changes.get(run.start, 0.0) + cores
                changes[run.end] = changes.get(run.end, 0.0) - cores
        self._times = sorted(changes)
        self._cores = list(accumulate(changes[time] for time in self._times))
        spans = (end - start for start, end in pairwise(self._times))
        used = (cores * span for cores, span in zip(self._cores, spans, strict=False))
        self._used = list(accumulate(used, initial=0.0))
        self.most = max(self._cores, default=0.0)
        """CPUs that they used at a time, at most."""

    def between(self, start: float, end: float) -> float:
        """CPU seconds."""
        return self._until(end) - self._until(start)

    def _until(self, time: float) -> float:
        at = bisect_right(self._times, time) - 1
        return self._used[at] + self._cores[at] * (time - self._times[at]) if at >= 0 else 0.0


def beside(run: Lived, others: Iterable[Lived]) -> dict[str, float]:
    """CPU seconds of others while both they and the run lived, by pipeline."""
    used: dict[str, float] = {}
    for other in others:
        shared = min(run.end, other.end) - max(run.start, other.start)
        if shared > 0:
            seconds = other.cpu_seconds * shared / (other.end - other.start)
            used[other.pipeline] = used.get(other.pipeline, 0.0) + seconds
    return used


def surroundings(
    run: Lived, before: Reading, after: Reading, others: Callable[[], Mapping[str, float]]
) -> Surroundings:
    """What surrounded a run that began after `before` and ended before `after`.

    `others` returns what other pipelines used meanwhile (CPU seconds).
    """
    span = after.time - before.time
    cores = None
    if before.busy is not None and after.busy is not None and span > 0:
        cores = max(0.0, after.busy - before.busy - run.cpu_seconds) / span
    throttled = None
    if before.throttled is not None and after.throttled is not None:
        throttled = max(0.0, after.throttled - before.throttled)
    waited = run.queue_seconds >= _QUEUED * (run.end - run.start)
    return Surroundings(cores, throttled, _busiest(run, others()) if waited else ())


def _busiest(run: Lived, used: Mapping[str, float]) -> tuple[OtherPipeline, ...]:
    least = _NOTABLE * (run.end - run.start)
    ordered = sorted(used.items(), key=lambda item: -item[1])
    return tuple(OtherPipeline(*item) for item in ordered[:_NAMED] if item[1] >= least)
