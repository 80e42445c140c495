# SPDX-License-Identifier: Apache-2.0
"""What else was on the host while a run lived. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pipelined.runs import OtherPipeline, Surroundings

__all__ = ["Lived", "Reading", "surroundings"]

#: At most this number of the busiest other pipelines is named ...
_NAMED = 3
#: ... and only those that used this share of a CPU while both lived.
_NOTABLE = 0.05
#: The others are looked for only if the run waited for a CPU for this share of its time.
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


def surroundings(
    run: Lived, before: Reading, after: Reading, others: Iterable[Lived]
) -> Surroundings:
    """What surrounded a run that began after `before` and ended before `after`.

    `others` are all other runs that may have lived at that time.
    """
    span = after.time - before.time
    cores = None
    if before.busy is not None and after.busy is not None and span > 0:
        cores = max(0.0, after.busy - before.busy - run.cpu_seconds) / span
    throttled = None
    if before.throttled is not None and after.throttled is not None:
        throttled = max(0.0, after.throttled - before.throttled)
    waited = run.queue_seconds >= _QUEUED * (run.end - run.start)
    return Surroundings(cores, throttled, _busiest(run, others) if waited else ())


def _busiest(run: Lived, others: Iterable[Lived]) -> tuple[OtherPipeline, ...]:
    used: dict[str, float] = {}
    for other in others:
        shared = min(run.end, other.end) - max(run.start, other.start)
        if shared > 0:
            seconds = other.cpu_seconds * shared / (other.end - other.start)
            used[other.pipeline] = used.get(other.pipeline, 0.0) + seconds
    least = _NOTABLE * (run.end - run.start)
    ordered = sorted(used.items(), key=lambda item: -item[1])
    return tuple(OtherPipeline(*item) for item in ordered[:_NAMED] if item[1] >= least)
