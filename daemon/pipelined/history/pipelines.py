# SPDX-License-Identifier: Apache-2.0
"""Pipelines over a time: what each cost, how long it takes, what holds it back.

Sums are those of every run (the roll-up). The bottleneck, the findings and the last run are those
of the runs that are stored singly.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipelined.analysis.sentence import main_bottleneck
from pipelined.history.archive import Archive, Period
from pipelined.history.database import Row
from pipelined.history.rollup import HOUR, Counted, Sums
from pipelined.history.summaries import summary_as_dict, summary_from_dict
from pipelined.model.ledger import OTHER
from pipelined.nesting import Line, nested_lines
from pipelined.runs import Series

if TYPE_CHECKING:
    from pipelined.answers.lists import PipelinesSummaryJson, PipelineSummaryJson

__all__ = [
    "NO_PIPELINES",
    "Bar",
    "PipelineSummary",
    "Pipelines",
    "TopFinding",
    "pipelines_as_dict",
    "pipelines_from_dict",
    "read_pipelines",
]

#: A bar of a trend is so many hours: the fewest with which there are not too many.
_STEPS, _MOST_BARS = (1, 24, 7 * 24, 28 * 24), 48
#: Percentiles are read from the single runs of a pipeline if it has at most so many: reading more
#: would take longer than it is worth.
_MOST_EXACT = 5_000
#: The median, and the 95th percentile.
_SHARES = (0.5, 0.95)


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of the time in a trend."""

    start: float
    """Unix time."""
    runs: int
    wall: float
    """Seconds, of all runs that ended in it."""

    @property
    def mean(self) -> float:
        """Seconds that a run took; 0 if none ended in it."""
        return self.wall / self.runs if self.runs else 0.0


@dataclass(frozen=True, slots=True)
class TopFinding:
    """The finding that could save most of what the stored runs of a pipeline took."""

    id: str
    runs: int
    bound: float
    """Seconds that it could save at most, summed over these runs; 0: not known."""


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """One pipeline (signature, unit, nested or not) over a time."""

    id: str
    """Of the pipeline in this list."""
    series: Series
    start: float
    """The hours that are summed begin then (Unix time)."""
    end: float
    sums: Sums
    median: float | None
    """Wall seconds that half of the runs did not exceed."""
    p95: float | None
    """Wall seconds that 95 in 100 did not exceed."""
    exact: bool
    """False: both are within a factor of 2, as they are not those of single runs."""
    trend: tuple[Bar, ...]
    """Oldest first; the last one may be shorter."""
    bottleneck: str | None
    """What held its runs back for most of their time, as ``sort: CPU``; None: not known."""
    bottleneck_share: float | None
    """For so much of that time."""
    finding: TopFinding | None
    last: Row | None
    """The stored run that ended last; None: none is stored."""
    parent: str | None = None
    """`id` of the pipeline in the list in which the last run lies."""

    @property
    def pipeline(self) -> str:
        return self.series.pipeline

    @property
    def nested(self) -> bool:
        return self.series.nested

    @property
    def parent_pipeline(self) -> str | None:
        return self.last.parent_pipeline if self.last else None

    @property
    def merged(self) -> bool:
        """It stands for pipelines of which no sums of their own were kept."""
        return self.series.pipeline == OTHER


@dataclass(frozen=True, slots=True)
class Pipelines:
    """The pipelines of a time, as they were asked for."""

    start: float | None
    """The hours that are summed begin then (Unix time); None: nothing has been counted in them."""
    end: float | None
    step: float
    """Length of a bar of the trends (seconds)."""
    matching: int
    """How many match, of which the first are listed."""
    listed: tuple[PipelineSummary, ...]

    @property
    def lines(self) -> list[Line[PipelineSummary]]:
        """For people: nested ones under what encloses them."""
        return nested_lines(self.listed, grouped=False)


#: What there is of a time in which nothing is counted.
NO_PIPELINES = Pipelines(None, None, float(HOUR), 0, ())


def read_pipelines(
    archive: Archive, period: Period, *, search: str | None, sort: str, limit: int
) -> Pipelines:
    """The first `limit` pipelines of the period that have `search` in their name or unit.

    `sort` is one of `pipeline_query.SORTS`. Raises UserError.
    """
    if (counted := archive.hours()) is None:
        return NO_PIPELINES
    # Of any time that is asked for, only that in which runs may have ended has bars.
    first, last = counted[0], max(counted[1], int(time.time() // HOUR)) + 1
    first = first if period.since is None else max(first, period.since)
    last = last if period.until is None else min(last, period.until)
    if first >= last:
        return NO_PIPELINES
    step = next((hours for hours in _STEPS if last - first <= hours * _MOST_BARS), _STEPS[-1])
    chosen = archive.highest(period, search, sort, limit)
    return Pipelines(
        start=float(first * HOUR),
        end=float(last * HOUR),
        step=float(step * HOUR),
        matching=archive.matching(period, search),
        listed=_summaries(archive, period, chosen, range(first, last, step)),
    )


def _summaries(
    archive: Archive, period: Period, chosen: Mapping[int, Counted], hours: range
) -> tuple[PipelineSummary, ...]:
    lasts = archive.last_runs(period, chosen)
    bars = archive.bars(period, chosen, hours.start, hours.step)
    bottlenecks = archive.bottlenecks(period, chosen)
    findings = archive.findings(period, chosen)
    few = [key for key, one in chosen.items() if one.sums.runs <= _MOST_EXACT]
    percentiles = archive.percentiles(period, few, _SHARES)
    # more than are counted: a run may be stored between the two statements
    exact = {key for key in few if percentiles.get(key, (0,))[0] >= chosen[key].sums.runs}
    estimated = archive.sums(period, chosen.keys() - exact)
    summaries = []
    for key, one in chosen.items():
        sums = estimated.get(key, one.sums)
        median, p95 = (
            percentiles[key][1] if key in exact else (sums.within(share) for share in _SHARES)
        )
        bottleneck, share = main_bottleneck(bottlenecks.get(key, {}))
        summaries.append(
            PipelineSummary(
                id=str(key),
                series=one.series,
                start=float(hours.start * HOUR),
                end=float(hours.stop * HOUR),
                sums=sums,
                median=median,
                p95=p95,
                exact=key in exact,
                trend=_trend(bars.get(key, {}), hours),
                bottleneck=bottleneck,
                bottleneck_share=share,
                finding=_top(findings.get(key, {})),
                last=lasts.get(key),
            )
        )
    return _with_parents(summaries)


def _trend(bars: Mapping[int, tuple[int, float]], hours: range) -> tuple[Bar, ...]:
    return tuple(
        Bar(float(hour * HOUR), *bars.get(number, (0, 0.0))) for number, hour in enumerate(hours)
    )


def _top(findings: Mapping[str, tuple[int, float]]) -> TopFinding | None:
    """The finding with the largest bound; without any, the most frequent one."""
    if not findings:
        return None
    finding = max(findings, key=lambda id: (findings[id][1], findings[id][0]))
    return TopFinding(finding, *findings[finding])


def _with_parents(summaries: Iterable[PipelineSummary]) -> tuple[PipelineSummary, ...]:
    """Each nested one with the pipeline, of those here, in which its last run lies.

    It is in the same unit; where a pipeline is both nested and not, it is the one that is not.
    """
    listed = list(summaries)
    ids = {
        (one.pipeline, one.series.unit): one.id
        for one in sorted(listed, key=lambda one: not one.nested)
    }
    parents: dict[str, str] = {}
    for one in listed:
        parent = ids.get((one.parent_pipeline or "", one.series.unit)) if one.nested else None
        outer = parent
        while outer is not None and outer != one.id:
            outer = parents.get(outer)
        if parent is not None and outer is None:  # else the two would lie in each other
            parents[one.id] = parent
    return tuple(replace(one, parent=parents.get(one.id)) for one in listed)


def pipelines_as_dict(found: Pipelines) -> PipelinesSummaryJson:
    """The same, ready for `json.dumps`."""
    return {
        "start_timestamp_seconds": found.start,
        "end_timestamp_seconds": found.end,
        "trend_step_seconds": found.step,
        "matching_pipelines": found.matching,
        "pipelines": [_as_dict(one) for one in found.listed],
    }


def _as_dict(one: PipelineSummary) -> PipelineSummaryJson:
    sums, finding, last = one.sums, one.finding, one.last
    return {
        "pipeline": one.pipeline,
        "nested": one.nested,
        "unit": one.series.unit,
        "parent_pipeline": one.parent_pipeline,
        "runs": sums.runs,
        "examined_runs": sums.examined,
        "wall_seconds": sums.wall,
        "cpu_seconds": sums.cpu,
        "not_overlapped_seconds": sums.not_overlapped,
        "read_bytes": sums.read_bytes,
        "written_bytes": sums.written_bytes,
        "longest_wall_seconds": sums.longest,
        "median_wall_seconds": one.median,
        "p95_wall_seconds": one.p95,
        "exact_percentiles": one.exact,
        "trend": [
            {"start_timestamp_seconds": bar.start, "runs": bar.runs, "wall_seconds": bar.wall}
            for bar in one.trend
        ],
        "bottleneck": one.bottleneck,
        "bottleneck_ratio": one.bottleneck_share,
        "top_finding": {"id": finding.id, "runs": finding.runs, "bound_seconds": finding.bound}
        if finding
        else None,
        "last_run": summary_as_dict(last) if last else None,
    }


def pipelines_from_dict(described: Mapping[str, Any]) -> Pipelines:
    """What `pipelines_as_dict` described. Raises KeyError or TypeError for anything else."""
    start, end = described["start_timestamp_seconds"], described["end_timestamp_seconds"]
    listed = [
        _from_dict(str(number), one, start, end)
        for number, one in enumerate(described["pipelines"])
    ]
    return Pipelines(
        start=start,
        end=end,
        step=described["trend_step_seconds"],
        matching=described["matching_pipelines"],
        listed=_with_parents(listed),
    )


def _from_dict(id: str, one: Mapping[str, Any], start: float, end: float) -> PipelineSummary:
    finding, last = one["top_finding"], one["last_run"]
    return PipelineSummary(
        id=id,
        series=Series(one["pipeline"], one["nested"], one["unit"]),
        start=start,
        end=end,
        sums=Sums(
            runs=one["runs"],
            wall=one["wall_seconds"],
            cpu=one["cpu_seconds"],
            not_overlapped=one["not_overlapped_seconds"],
            read_bytes=one["read_bytes"],
            written_bytes=one["written_bytes"],
            longest=one["longest_wall_seconds"],
            examined=one["examined_runs"],
        ),
        median=one["median_wall_seconds"],
        p95=one["p95_wall_seconds"],
        exact=one["exact_percentiles"],
        trend=tuple(
            Bar(bar["start_timestamp_seconds"], bar["runs"], bar["wall_seconds"])
            for bar in one["trend"]
        ),
        bottleneck=one["bottleneck"],
        bottleneck_share=one["bottleneck_ratio"],
        finding=finding and TopFinding(finding["id"], finding["runs"], finding["bound_seconds"]),
        last=last and summary_from_dict(last),
    )
