# SPDX-License-Identifier: Apache-2.0
"""Pipelines over a time: what each cost, how long it takes, what holds it back.

Sums are those of every run (the roll-up). The bottleneck, the findings and the last run are those
of the runs that are stored singly.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from pipelined.analysis.sentence import main_bottleneck
from pipelined.answers.lists import TopFinding
from pipelined.history.archive import Archive
from pipelined.history.conditions import Period
from pipelined.history.rollup import HOUR, Counted, Sums
from pipelined.history.rows import Summary
from pipelined.model.ledger import OTHER
from pipelined.nesting import Line, nested_lines
from pipelined.runs import Series
from pipelined.runs.fields import Count, Inline, Key, Ratio, Seconds, Unit, UnixTime, Unwritten

__all__ = [
    "NO_PIPELINES",
    "PipelineSummary",
    "PipelinesSummary",
    "TrendBar",
    "counted_hours",
    "read_pipelines",
]

#: Hours in a bar of a trend, the fewest with which there are not too many bars, and their limit.
_STEPS, _MOST_BARS = (1, 24, 7 * 24, 28 * 24), 48
#: Percentiles are read from the single runs of a pipeline that has at most this many: reading
#: more would take longer than it is worth.
_MOST_EXACT = 5_000
_BYTES_PER_SECOND = Unit("bytes per second")
#: The median, and the 95th percentile.
_SHARES = (0.5, 0.95)


@dataclass(frozen=True, slots=True)
class TrendBar:
    """A part of the time."""

    start: Annotated[UnixTime, Key("start_timestamp_seconds")]
    """When it begins."""
    runs: Count
    """Runs that ended in it."""
    wall: Annotated[Seconds, Key("wall_seconds")]
    """Of these runs."""

    @property
    def mean(self) -> float:
        """Seconds that a run took; 0 if none ended in it."""
        return self.wall / self.runs if self.runs else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSummary:
    """One pipeline (signature, unit, nested or not) over a time; `(other)`: those that have no sums
    of their own."""

    series: Annotated[Series, Inline()]
    parent_pipeline: str | None
    """The pipeline that encloses its last run."""
    sums: Annotated[Sums, Inline()]
    median: Annotated[Seconds | None, Key("median_wall_seconds")]
    """Half of the runs took no longer."""
    p95: Annotated[Seconds | None, Key("p95_wall_seconds")]
    """95 in 100 took no longer."""
    exact: Annotated[bool, Key("exact_percentiles")]
    """False: both are within a factor of 2."""
    median_input: Annotated[float | None, Unit("bytes"), Key("median_input_bytes")] = None
    """Half of the runs had no larger [input](CONCEPTS.md#the-input-of-a-run): of the last 5,000
    stored ones that neither failed nor were observed only in part."""
    input_rate: Annotated[float | None, _BYTES_PER_SECOND, Key("input_bytes_per_second")] = None
    """Their input, by their wall time."""
    trend: tuple[TrendBar, ...]
    """Parts of `trend_step_seconds`, oldest first."""
    bottleneck: str | None
    """What held the examined runs back for most of their time, such as `sort: CPU`."""
    bottleneck_share: Annotated[Ratio | None, Key("bottleneck_ratio")]
    """For how much of it."""
    finding: Annotated[TopFinding | None, Key("top_finding")]
    """The one that is expected to save most in all examined runs together."""
    last: Annotated[Summary | None, Key("last_run")]
    """The stored run that ended last."""
    id: Annotated[str, Unwritten()] = ""
    """Of the pipeline in this list."""
    parent: Annotated[str | None, Unwritten()] = None
    """`id` of the pipeline in the list in which the last run lies."""

    @property
    def pipeline(self) -> str:
        return self.series.pipeline

    @property
    def nested(self) -> bool:
        return self.series.nested

    @property
    def start(self) -> float:
        """One for all in a list: their hours are the same."""
        return 0.0

    @property
    def end(self) -> float:
        """As `start`."""
        return 0.0

    @property
    def complete(self) -> bool:
        """It is no run: `sums` has how many of its runs failed."""
        return True

    @property
    def merged(self) -> bool:
        """It stands for pipelines of which no sums of their own were kept."""
        return self.series.pipeline == OTHER


@dataclass(frozen=True, slots=True)
class PipelinesSummary:
    """What each pipeline cost over a time."""

    start: Annotated[UnixTime | None, Key("start_timestamp_seconds")]
    """When the first of the hours begins that are summed up, from the first in which a run was
    counted; null if there is none."""
    end: Annotated[UnixTime | None, Key("end_timestamp_seconds")]
    """When the last one ends."""
    step: Annotated[Seconds, Key("trend_step_seconds")]
    """Length of a part of the trends: an hour up to two days, else a day, a week or four."""
    matching: Annotated[Count, Key("matching_pipelines")]
    """How many match."""
    listed: Annotated[tuple[PipelineSummary, ...], Key("pipelines")]
    """The first `limit` of them in the order of `sort`."""

    @property
    def with_input(self) -> bool:
        """Of one of them the input is known."""
        return any(one.sums.input_runs or one.median_input is not None for one in self.listed)

    @property
    def lines(self) -> list[Line[PipelineSummary]]:
        """For people: nested ones under what encloses them."""
        return nested_lines(_with_parents(self.listed), grouped=False)


#: What there is of a time in which nothing is counted.
NO_PIPELINES = PipelinesSummary(None, None, float(HOUR), 0, ())


def read_pipelines(
    archive: Archive, period: Period, *, search: str | None, sort: str, limit: int
) -> PipelinesSummary:
    """The first `limit` pipelines of the period that have `search` in their name or unit.

    `sort` is one of `pipeline_query.SORTS`. Raises UserError.
    """
    if (hours := counted_hours(archive, period)) is None:
        return NO_PIPELINES
    first, last = hours.start, hours.stop
    step = next((hours for hours in _STEPS if last - first <= hours * _MOST_BARS), _STEPS[-1])
    chosen = archive.highest(period, search, sort, limit)
    return PipelinesSummary(
        start=float(first * HOUR),
        end=float(last * HOUR),
        step=float(step * HOUR),
        matching=archive.matching(period, search),
        listed=_summaries(archive, period, chosen, range(first, last, step)),
    )


def counted_hours(archive: Archive, period: Period) -> range | None:
    """Of the time that is asked for, the hours in which runs may have ended; None: there are none.

    Raises UserError.
    """
    if (counted := archive.hours()) is None:
        return None
    first, last = counted[0], max(counted[1], int(time.time() // HOUR)) + 1
    first = first if period.since is None else max(first, period.since)
    last = last if period.until is None else min(last, period.until)
    return range(first, last) if first < last else None


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
    inputs = archive.inputs(period, chosen, _MOST_EXACT)
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
                series=one.series,
                parent_pipeline=last.parent_pipeline if (last := lasts.get(key)) else None,
                sums=sums,
                median=median,
                p95=p95,
                exact=key in exact,
                median_input=inputs[key][0] if key in inputs else None,
                input_rate=inputs[key][1] if key in inputs else None,
                trend=_trend(bars.get(key, {}), hours),
                bottleneck=bottleneck,
                bottleneck_share=share,
                finding=_top(findings.get(key, {})),
                last=last,
            )
        )
    return tuple(summaries)


def _trend(bars: Mapping[int, tuple[int, float]], hours: range) -> tuple[TrendBar, ...]:
    return tuple(
        TrendBar(float(hour * HOUR), *bars.get(number, (0, 0.0)))
        for number, hour in enumerate(hours)
    )


def _top(findings: Mapping[str, tuple[int, float]]) -> TopFinding | None:
    """The finding that is expected to save most; if none is, the most frequent one."""
    if not findings:
        return None
    finding = max(findings, key=lambda id: (findings[id][1], findings[id][0]))
    return TopFinding(finding, *findings[finding])


def _with_parents(summaries: Iterable[PipelineSummary]) -> tuple[PipelineSummary, ...]:
    """Each nested one with the pipeline, of those here, in which its last run lies.

    It is in the same unit; where a pipeline is both nested and not, it is the one that is not.
    """
    listed = [replace(one, id=str(number)) for number, one in enumerate(summaries)]
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
