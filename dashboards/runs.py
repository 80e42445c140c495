# SPDX-License-Identifier: Apache-2.0
"""How a pipeline ran: the columns of the tables that list pipelines, or one on several hosts."""

from __future__ import annotations

from collections.abc import Callable

from .answers import DISK_STEPS, OVERLAP_STEPS, PART
from .panels import RUNS, SHARE, Column, Label, Limits
from .queries import Scope

__all__ = ["ended_lately", "run_columns", "run_time", "seen"]

_SECONDS = Limits("s", decimals=1)
_END = "pipelined_last_run_end_timestamp_seconds"
_COMPLETE_END = "pipelined_last_complete_run_end_timestamp_seconds"


def run_columns(
    scope: Scope, by: tuple[str, ...], links: tuple[tuple[str, str], ...] = ()
) -> list[Label | Column]:
    """Of what ran in the time that is shown, one row for each set of the labels `by`.

    `links` are what a click on when the last run ended opens.
    """
    took = scope.max("pipelined_last_run_seconds", by=by)
    # where the daemon does not know what is usual: against the mean since it started
    compared = scope.max("pipelined_last_run_usual_ratio", by=by)
    lately, complete = ended_lately(scope, by), _complete(scope, by)
    runs = scope.whole.growth("pipelined_runs_total", by=by)
    return [
        Column(
            "Running",
            f"{scope.sum('pipelined_runs_active', by=by)} > 0",
            Limits("none", decimals=0),
            {1: "green"},
            width=80,
        ),
        Column(
            "Runs",
            # one that has ended is one, even if increase() did not see it
            f"clamp_min({runs}, 1){lately}\nor\n{runs} > 0",
            RUNS,
            width=70,
        ),
        Column("Failed", seen(scope, by, _failed(by)), RUNS, {0: "orange"}, width=70),
        Column("Run time", run_time(scope, by), _SECONDS, width=90),
        Column(
            "Overlap", seen(scope, by, lambda of: of.overlap(by)), SHARE, OVERLAP_STEPS, width=80
        ),
        Label("command", "Held back by", 120),
        Column("At work", seen(scope, by, lambda of: of.held_back(by)), SHARE, width=80),
        Column(
            "Disk alone", seen(scope, by, lambda of: of.disk_alone(by)), PART, DISK_STEPS, width=95
        ),
        Column("Last run", f"{took}{lately}", _SECONDS, width=90),
        Column(
            "× usual",
            f"{compared}{lately}\nor\n({took}{lately}{complete})\n/\n{_mean(scope, by)}",
            Limits("none", decimals=1),
            {1.5: "yellow", 2: "orange"},
            width=80,
        ),
        Column(
            "Ended",
            f"1000 * ({scope.max(_END, by=by)} > time() - $__range_s)",
            Limits("dateTimeFromNow", min=None),
            width=155,
            links=links,
        ),
    ]


def run_time(scope: Scope, by: tuple[str, ...]) -> str:
    """Seconds that runs were live in the time that is shown, of those that ran."""

    def grew(of: Scope) -> str:
        return f"{of.growth('pipelined_run_seconds_total', by=by)} > 0"

    return seen(scope, by, grew, always=True)


def _failed(by: tuple[str, ...]) -> Callable[[Scope], str]:
    """Runs that failed, of those of which any did."""
    return lambda of: f"({of.growth('pipelined_failed_runs_total', by=by)} > 0)"


def seen(
    scope: Scope, by: tuple[str, ...], figure: Callable[[Scope], str], *, always: bool = False
) -> str:
    """A figure of the time that is shown, also of what ran for the first time.

    increase() begins at a series' first sample: it does not see the first run of a pipeline that
    was over by then. All that the counters hold is that run. `always`: whatever ran has the
    figure, so that its absence says enough.
    """
    first = f"({figure(scope.ever)}){ended_lately(scope, by)}"
    if not always:
        grew = f"({scope.whole.growth('pipelined_run_seconds_total', by=by)} > 0)"
        first = f"{first}\nunless on ({', '.join(by)})\n{grew}"
    return f"{figure(scope.whole)}\nor\n{first}"


def ended_lately(scope: Scope, by: tuple[str, ...]) -> str:
    """Restricts a query to what ended in the time that is shown."""
    return f"\nand on ({', '.join(by)})\n({scope.max(_END, by=by)} > time() - $__range_s)"


def _complete(scope: Scope, by: tuple[str, ...]) -> str:
    """Restricts a query to pipelines whose last run neither failed nor was interrupted."""
    last, complete = scope.max(_END, by=by), scope.max(_COMPLETE_END, by=by)
    return f"\nand on ({', '.join(by)})\n({last} == {complete})"


def _mean(scope: Scope, by: tuple[str, ...]) -> str:
    """The mean duration of all runs since the daemon started: of two or more."""
    seconds = scope.ever.growth("pipelined_run_seconds_total", by=by)
    return f"({seconds} / ({scope.ever.growth('pipelined_runs_total', by=by)} > 1))"
