# SPDX-License-Identifier: Apache-2.0
"""How a pipeline ran: the columns of the tables that list pipelines, or one on several hosts."""

from __future__ import annotations

from .answers import DISK_STEPS, OVERLAP_STEPS, PART
from .panels import RUNS, SHARE, Column, Label, Limits
from .queries import Scope

__all__ = ["run_columns"]

_SECONDS = Limits("s", decimals=1)


def run_columns(
    scope: Scope, by: tuple[str, ...], links: tuple[tuple[str, str], ...] = ()
) -> list[Label | Column]:
    """Of what ran in the time that is shown, one row for each set of the labels `by`.

    `links` are what a click on when the last run ended opens.
    """
    whole = scope.whole
    took = scope.max("pipelined_last_run_seconds", by=by)
    ended = scope.max("pipelined_last_run_end_timestamp_seconds", by=by)
    lately = f"\nand on ({', '.join(by)})\n({ended} > time() - $__range_s)"
    runs = whole.growth("pipelined_runs_total", by=by)
    return [
        Column(
            "Running",
            f"{scope.sum('pipelined_runs_active', by=by)} > 0",
            Limits("none", decimals=0),
            {1: "green"},
            width=80,
        ),
        # increase() does not see the first run of a pipeline that had no series before
        Column("Runs", f"clamp_min({runs}, 1){lately}", RUNS, width=70),
        Column(
            "Run time",
            f"{whole.growth('pipelined_run_seconds_total', by=by)} > 0",
            _SECONDS,
            width=90,
        ),
        Column("Overlap", whole.overlap(by), SHARE, OVERLAP_STEPS, width=80),
        Label("command", "Held back by", 120),
        Column("At work", whole.held_back(by), SHARE, width=80),
        Column("Disk alone", whole.disk_alone(by), PART, DISK_STEPS, width=95),
        Column("Last run", f"{took}{lately}", _SECONDS, width=90),
        Column(
            "× usual",
            f"({took}{lately})\n/\n{_usual(scope, by)}",
            Limits("none", decimals=1),
            {1.5: "yellow", 2: "orange"},
            width=80,
        ),
        Column(
            "Ended",
            f"1000 * ({ended} > time() - $__range_s)",
            Limits("dateTimeFromNow", min=None),
            width=120,
            links=links,
        ),
    ]


def _usual(scope: Scope, by: tuple[str, ...]) -> str:
    """The mean duration of all runs since the daemon started: of two or more."""
    seconds = scope.sum("pipelined_run_seconds_total", by=by)
    return f"({seconds} / ({scope.sum('pipelined_runs_total', by=by)} > 1))"
