# SPDX-License-Identifier: Apache-2.0
"""Jobs (units) over a time: what the pipelines of each cost together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pipelined.history.archive import Archive
from pipelined.history.conditions import Period
from pipelined.history.pipelines import counted_hours
from pipelined.history.rollup import HOUR, Sums
from pipelined.model.ledger import OTHER
from pipelined.runs.fields import Count, Inline, Key, Ratio, UnixTime

__all__ = ["NO_JOBS", "JobSummary", "JobsSummary", "read_jobs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """One job over a time: all its runs that lie in no other run, but for those in `(other)`."""

    unit: str
    """Job, container, systemd unit or cgroup; `-`: pipelines that are in none; `(other)`: those of
    any job that are not counted apart."""
    pipelines: Count
    """How many different ones of it ran."""
    sums: Annotated[Sums, Inline()]
    costliest: Annotated[str, Key("costliest_pipeline")]
    """The one of them with the most wall time."""
    costliest_share: Annotated[Ratio, Key("costliest_ratio")]
    """Its share of the wall time of all."""

    @property
    def merged(self) -> bool:
        """It stands for pipelines of which no sums of their own were kept."""
        return self.unit == OTHER


@dataclass(frozen=True, slots=True)
class JobsSummary:
    """What each job cost over a time."""

    start: Annotated[UnixTime | None, Key("start_timestamp_seconds")]
    """When the first of the hours begins that are summed up, from the first in which a run was
    counted; null if there is none."""
    end: Annotated[UnixTime | None, Key("end_timestamp_seconds")]
    """When the last one ends."""
    more: bool
    """There are more than `limit`."""
    listed: Annotated[tuple[JobSummary, ...], Key("jobs")]
    """The first `limit` of them in the order of `sort`."""

    @property
    def with_input(self) -> bool:
        """Of one of them the input is known."""
        return any(one.sums.input_runs for one in self.listed)

    @property
    def caveat(self) -> str:
        """What the jobs that are listed may lack; nothing if they lack nothing."""
        if not any(one.merged for one in self.listed):
            return ""
        return (
            f"{OTHER}: pipelines of any job that are not counted apart;"
            " other jobs may lack these runs."
        )


#: What there is of a time in which nothing is counted.
NO_JOBS = JobsSummary(None, None, False, ())


def read_jobs(
    archive: Archive, period: Period, *, search: str | None, sort: str, limit: int
) -> JobsSummary:
    """The first `limit` jobs of the period, of the pipelines that have `search` in their name or
    unit.

    `sort` is one of `pipeline_query.JOB_SORTS`. Raises UserError.
    """
    if (hours := counted_hours(archive, period)) is None:
        return NO_JOBS
    found = archive.jobs(period, search, sort, limit + 1)
    return JobsSummary(
        start=float(hours.start * HOUR),
        end=float(hours.stop * HOUR),
        more=len(found) > limit,
        listed=tuple(
            JobSummary(
                unit=unit,
                pipelines=pipelines,
                sums=sums,
                costliest=name,
                costliest_share=wall / sums.wall if sums.wall else 0.0,
            )
            for unit, pipelines, name, wall, sums in found[:limit]
        ),
    )
