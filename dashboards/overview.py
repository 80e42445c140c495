# SPDX-License-Identifier: Apache-2.0
"""Where to begin: is it pipelined, who holds it back, was anything lost, and what ran."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.models import dashboard as model

from .answers import hosts_without_answer, not_recorded, overlap, waiting_for_disk
from .frame import TO_HOST, TO_PAGE, TO_PIPELINE, Row, framed, unit_variables
from .panels import (
    BAD,
    GOOD,
    INFO,
    SHARE,
    Column,
    Help,
    Label,
    Limits,
    Query,
    Top,
    lines,
    number,
    rows,
)
from .queries import HOSTS, OUTERMOST, PIPELINE, UNITS, Scope, ranked
from .runs import run_columns, run_time

__all__ = ["overview"]

#: Outermost pipelines over time and over the whole range.
OUTER = UNITS.only(OUTERMOST)
WHOLE = OUTER.whole
_NAME = ("pipeline",)
_NESTED = 'nested="true"'

#: Alerts of deploy/prometheus, those that are about no host among them.
_ALERTS = Scope(('alertname=~"Pipeline.+"', 'job=~"$job|"', 'instance=~"$instance|"'))
_FIRING = _ALERTS.select("ALERTS", 'alertstate="firing"')
_ALERT = ("alertname", "severity", "pipeline", "unit", "instance")
_SINCE = (
    f"1000 * max by ({', '.join(_ALERT)}) (\n{_ALERTS.select('ALERTS_FOR_STATE')}\n"
    f"and ignoring (alertstate)\n{_FIRING}\n)"
)

_RAN = Top(PIPELINE, lambda of: run_time(of, PIPELINE), UNITS, "ran", near=("instance", "pipeline"))
_FIRED = Top(_ALERT, lambda _: _SINCE, _ALERTS, "fired")


def overview() -> model.Dashboard:
    """The dashboard to begin with."""
    return framed(
        "Overview",
        "Is it pipelined, who holds it back, was anything lost; and every pipeline that ran.",
        [
            Row(
                "",
                [
                    overlap(OUTER),
                    _held_back(),
                    waiting_for_disk(OUTER, width=3),
                    not_recorded(width=3),
                    hosts_without_answer(width=4),
                    _alerts_firing(),
                ],
            ),
            Row("", [_pipelines()]),
            Row("", [_runs_at_once()]),
            Row("", [_overlap()]),
            Row("", [_alerts()]),
        ],
        variables=[*unit_variables(), *_RAN.variables, *_FIRED.variables],
    )


def _held_back() -> stat.Panel:
    return number(
        "Held back most by",
        Help(
            "The stage that was on CPU, or waited for a CPU, disk or socket, for the longest time"
            " of all. The other stages of its pipeline wait for it.",
            "the stage that has most to compute.",
            "one that only passes data on, such as cat, or one that reads from disk.",
        ),
        Query(WHOLE.slowest_stage(), "{{command}} in {{pipeline}}"),
        Limits("s"),
        base=INFO,
        named=True,
        width=6,
    )


def _alerts_firing() -> stat.Panel:
    loaded = HOSTS.select("pipeline:pipelined_last_complete_run_end_timestamp_seconds:latest")
    return number(
        "Alerts",
        Help(
            "Alerts of deploy/prometheus that fire now. The table at the bottom lists them.",
            "none.",
            "any: RUNBOOK.md has a section for each.",
        ),
        Query(f"count({_FIRING})\nor\n0 * count({loaded})", ""),
        Limits("none", decimals=0),
        empty="None, or no rules",
        base=GOOD,
        steps={1: BAD},
        worded={"0": "None"},
    )


def _pipelines() -> table.Panel:
    return rows(
        "Pipelines that ran",
        Help(
            "The pipelines that run or ended in the time that is shown, the longest first. ↳: it"
            " ran inside a stage of the one above it. Click on a name to see its stages. Held back"
            " by: the stage that was at work for the largest share of the run, at most 100 %. Disk"
            " alone: a stage waited for disk and none was on CPU. × usual: the last run compared"
            " with earlier ones of the same cache state and similar bytes, or if those are too few"
            " with the mean of all since the daemon started. Failed: a stage exited with a code"
            " that is a failure, or was killed.",
            "overlap above 50 %, or one stage that has to do nearly all the work.",
            "overlap near 0 % though several stages have work; disk alone above 30 %; a last run"
            " that took twice as long as usual; runs that failed.",
        ),
        [
            Label("nested", "Nested", 72, words={"true": "↳", "false": ""}),
            Label("pipeline", "Pipeline", links=[TO_PIPELINE]),
            Label("unit", "Unit", 160),
            Label("instance", "Instance", 140, links=[TO_HOST, TO_PAGE]),
            *run_columns(_RAN.scope, PIPELINE),
        ],
        top=_RAN,
        order=_nested_below(_RAN.scope),
        height=14,
    )


def _nested_below(scope: Scope) -> str:
    """Sorts pipelines by run time, a nested one below the outermost one that it runs in.

    That one is known since the nested one ran under this daemon, and if both are of one unit.
    """
    name = ", ".join(PIPELINE)
    outer = f"(\n{run_time(scope.only(OUTERMOST), PIPELINE)}\n)"
    nested = f"(\n{run_time(scope.only(_NESTED), PIPELINE)}\n)"
    inside = scope.max("pipelined_nested_info", by=(*PIPELINE, "outermost"))
    place = "instance, unit, outermost"
    around = f'sum by ({place}) (label_replace({outer}, "outermost", "$1", "pipeline", "(.*)"))'
    return (
        f"{outer}\nor\n"
        f"max by ({name}) (\n"
        f"(1 - 0.001 / (1 + {nested})) * on ({name}) group_left (outermost) {inside}\n"
        f"* on ({place}) group_left () {around}\n)\n"
        f"or\n{nested}"
    )


def _runs_at_once() -> timeseries.Panel:
    metric = "pipelined_run_seconds_total"
    return lines(
        "Runs at once",
        Help(
            "How many runs were live, on average, of the ten pipelines that ran longest in the"
            " time that is shown.",
            "jobs where your schedule has them.",
            "ever more at once: runs pile up. A gap where a job should be.",
        ),
        [
            Query(
                ranked(OUTER.growth(metric, by=_NAME), _NAME, OUTER.once.growth(metric, by=_NAME)),
                "{{pipeline}}",
            )
        ],
        Limits("none", decimals=1, at_least=1),
        stacked=True,
        width=24,
        height=9,
    )


def _overlap() -> timeseries.Panel:
    return lines(
        "Overlap",
        Help(
            "Of the time with any stage on CPU, the share with two or more, of the ten pipelines"
            " that ran longest in the time that is shown.",
            "high and level.",
            "a line that was high and is now near 0: that pipeline stopped being parallel.",
        ),
        [
            Query(
                ranked(
                    OUTER.overlap(_NAME),
                    _NAME,
                    OUTER.once.growth("pipelined_run_seconds_total", by=_NAME),
                ),
                "{{pipeline}}",
            )
        ],
        SHARE,
        width=24,
        height=9,
    )


def _alerts() -> table.Panel:
    return rows(
        "Alerts that fire",
        Help(
            "Alerts of deploy/prometheus that fire at the end of the time that is shown.",
            "empty.",
            "any: RUNBOOK.md has a section for each.",
        ),
        [
            Label("alertname", "Alert"),
            Label("severity", "Severity", 100),
            Label("pipeline", "Pipeline"),
            Label("unit", "Unit", 200),
            Label("instance", "Instance", 180, links=[TO_HOST, TO_PAGE]),
            Column("Since", _SINCE, Limits("dateTimeFromNow", min=None), width=160),
        ],
        top=_FIRED,
        worst="Since",
        empty="No alert fires, or the rules of deploy/prometheus are not loaded",
        height=5,
    )
