# SPDX-License-Identifier: Apache-2.0
"""Sums over runs, by pipeline and by the hour in which they ended: what is kept of every run.

Pure: knows no SQL. Every run is counted here, also one that is not stored singly; so sums over
rows equal what ran, whatever is merged into `OTHER`.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from pipelined.model.ledger import OTHER
from pipelined.runs import Series
from pipelined.runs.fields import Bytes, Count, Key, Ratio, Seconds, Unwritten, computed

__all__ = ["BOUNDS", "COUNTED", "HOUR", "Counted", "Pending", "Sums", "other"]

#: Seconds.
HOUR = 3600

#: Upper bounds of the buckets of durations (seconds, inclusive): 1 ms to 3 days, each 4 times the
#: one before. A last bucket takes what is longer.
BOUNDS: tuple[float, ...] = tuple(0.001 * 4.0**n for n in range(15))

#: What a duration is taken for is this far from the bounds of its bucket at most (a factor).
_MIDDLE = 2.0


@dataclass(slots=True)
class Sums:
    """Sums over runs: seconds, bytes, counts."""

    runs: Count = 0
    """Runs that ended, stored or [only counted](HISTORY.md#what-is-kept). The keys below, up to
    `longest_wall_seconds`, are sums over them."""
    wall: Annotated[Seconds, Key("wall_seconds")] = 0.0
    """From start to end."""
    cpu: Annotated[Seconds, Key("cpu_seconds")] = 0.0
    """Of all stages."""
    not_overlapped: Annotated[Seconds, Key("not_overlapped_seconds")] = 0.0
    """With at most one stage on CPU."""
    read_bytes: Bytes = 0
    """By all stages."""
    written_bytes: Bytes = 0
    """By all stages."""
    longest: Annotated[Seconds, Key("longest_wall_seconds")] = 0.0
    """Of the longest run."""
    examined: Annotated[Count, Key("examined_runs")] = 0
    """Runs whose bottleneck and findings are known: they were stored."""
    failed: Annotated[Count, Key("failed_runs")] = 0
    """Of all `runs`, those that have [failed](CONCEPTS.md#outcome)."""
    interrupted: Annotated[Count, Key("interrupted_runs")] = 0
    """Of all `runs`, those that were interrupted."""
    unknown: Annotated[Count, Key("unknown_runs")] = 0
    """Of all `runs`, those whose outcome is not known."""
    input_bytes: Bytes = 0
    """[The inputs](CONCEPTS.md#the-input-of-a-run) of `input_runs` together. An upper bound counts
    as it is."""
    input_runs: Count = 0
    """Of all `runs`, those whose input is known."""
    durations: Annotated[list[int], Unwritten()] = field(
        default_factory=lambda: [0] * (len(BOUNDS) + 1)
    )
    """Runs by wall time: a bucket for each of `BOUNDS`, and one for what is longer."""
    findings: Annotated[dict[str, int], Unwritten()] = field(default_factory=dict)
    """By id, in how many of the examined runs it was."""

    @property
    @computed
    def failed_share(self) -> Annotated[Ratio | None, Key("failed_ratio")]:
        """Share of `failed_runs` in the runs whose outcome is known; null if it is of none."""
        known = self.runs - self.unknown
        return self.failed / known if known else None

    @property
    def mean_input(self) -> float | None:
        """Bytes of input of a run, on average; None: of none it is known."""
        return self.input_bytes / self.input_runs if self.input_runs else None

    def count(
        self,
        wall: float,
        cpu: float,
        not_overlapped: float,
        read_bytes: int,
        written_bytes: int,
        outcome: str = "unknown",
        input_bytes: int | None = None,
    ) -> None:
        """Add one run; `outcome` is one of `OUTCOMES`, `input_bytes` None if it is not known."""
        self.runs += 1
        self.wall += wall
        self.cpu += cpu
        self.not_overlapped += not_overlapped
        self.read_bytes += read_bytes
        self.written_bytes += written_bytes
        self.longest = max(self.longest, wall)
        self.durations[bisect_left(BOUNDS, wall)] += 1
        self.failed += outcome == "failed"
        self.interrupted += outcome == "interrupted"
        self.unknown += outcome == "unknown"
        if input_bytes is not None:
            self.input_bytes += input_bytes
            self.input_runs += 1

    def add(self, other: Sums) -> None:
        """Add all runs of `other`."""
        self.runs += other.runs
        self.wall += other.wall
        self.cpu += other.cpu
        self.not_overlapped += other.not_overlapped
        self.read_bytes += other.read_bytes
        self.written_bytes += other.written_bytes
        self.longest = max(self.longest, other.longest)
        self.durations = [a + b for a, b in zip(self.durations, other.durations, strict=True)]
        self.examined += other.examined
        self.failed += other.failed
        self.interrupted += other.interrupted
        self.unknown += other.unknown
        self.input_bytes += other.input_bytes
        self.input_runs += other.input_runs
        for finding, runs in other.findings.items():
            self.findings[finding] = self.findings.get(finding, 0) + runs

    @property
    def cells(self) -> tuple[float, ...]:
        """The fields of `COUNTED`, and the durations."""
        return (*(getattr(self, name) for name in COUNTED), *self.durations)

    @classmethod
    def read(cls, cells: Sequence[Any]) -> Sums:
        """The sums of the cells that SQLite returned, with or without those of durations."""
        sums = cls(*cells[: len(COUNTED)])
        sums.durations = list(cells[len(COUNTED) :]) or sums.durations
        return sums

    def within(self, share: float) -> float | None:
        """Seconds that this share of the runs did not exceed, within a factor of 2; None: no runs.

        Runs below 1 ms count as 0.5 ms.
        """
        left = share * self.runs
        for bound, runs in zip((*BOUNDS, math.inf), self.durations, strict=True):
            left -= runs
            if runs and left <= 0:
                return min(bound / _MIDDLE, self.longest)
        return None


#: The fields of `Sums` that are one number each.
COUNTED = tuple(its.name for its in fields(Sums) if its.name not in ("durations", "findings"))


@dataclass(frozen=True, slots=True)
class Counted:
    """Sums over the runs of one pipeline."""

    series: Series
    sums: Sums


class Pending:
    """Sums that are not written yet; at most about `most` rows, whatever runs."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows: dict[tuple[int, Series], Sums] = {}
        """By hour and pipeline."""

    def sums(self, series: Series, end: float) -> Sums:
        """The sums that a run which ended then (Unix time) is to be added to."""
        key = (int(end // HOUR), series)
        sums = self.rows.get(key)
        if sums is None:
            if len(self.rows) >= self._most:
                self._fold()
            sums = self.rows[key] = Sums()
        return sums

    def add(self, other: Pending) -> None:
        """Add what could not be written after all."""
        for key, sums in other.rows.items():
            self.rows.setdefault(key, Sums()).add(sums)
        if len(self.rows) > self._most:
            self._fold()

    def _fold(self) -> None:
        """Merge the lighter half of the rows into `OTHER`, each in its hour."""
        lightest = heapq.nsmallest(
            len(self.rows) - self._most // 2, self.rows, key=lambda key: self.rows[key].wall
        )
        for hour, series in lightest:
            sums = self.rows.pop((hour, series))
            self.rows.setdefault((hour, other(series.nested)), Sums()).add(sums)


def other(nested: bool) -> Series:
    """What pipelines are merged into; nested ones apart, since their time is counted twice."""
    return Series(pipeline=OTHER, nested=nested, unit="-")
