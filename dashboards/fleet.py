# SPDX-License-Identifier: Apache-2.0
"""The dashboard of many hosts: which jobs take longest over all of them, and which hosts stand out.

Of a thousand hosts the daemons' own series are too many to add up over a night. Ratios are made of
what the rules record of each pipeline; what a job usually takes is recorded for all hosts together.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import barchart, stat, table, timeseries
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as model

from .answers import (
    CORES,
    DAEMONS,
    DISK_STEPS,
    FAILED_STEPS,
    OVERLAP_STEPS,
    PART,
    cores_used,
    hosts_without_answer,
    not_recorded,
    overlap,
    waiting_for_disk,
)
from .frame import TO_HOST, TO_PAGE, TO_PIPELINE_EVERYWHERE, Row, framed, unit_variables
from .palette import state_colours
from .panels import (
    INFO,
    READAHEAD_OFF,
    RUNS,
    SHARE,
    Column,
    Help,
    Label,
    Limits,
    Query,
    Top,
    bars,
    chosen,
    lines,
    number,
    rows,
)
from .queries import HOST, HOSTS, IDLE, MOST, OUTERMOST, UNITS, Recorded, Scope, ranked
from .runs import ended_lately, run_time, seen

__all__ = ["fleet"]

OUTER = UNITS.only(OUTERMOST)
RECORDED = Recorded(OUTER.matchers)
WHOLE = RECORDED.whole
NO_RULES = "No run seen, or the rules are not loaded"
#: Of all states those in which idle threads do not wait.
_BUSY = f'state!~"{IDLE}"'


def fleet() -> model.Dashboard:
    """The dashboard of all hosts."""
    return framed(
        "Fleet",
        "Which jobs take longest over all hosts, since when, and which hosts stand out.",
        [
            Row(
                "",
                [
                    _hosts_that_answer(),
                    hosts_without_answer(),
                    not_recorded(),
                    overlap(RECORDED),
                    cores_used(RECORDED),
                    waiting_for_disk(RECORDED),
                ],
            ),
            Row("Jobs of all hosts, longest first", [_jobs(), _run_times()]),
            Row("Hosts, worst first", [_hosts(), _states()]),
            Row("Over time", [_overlap(), _disk(), _cores(), _stalled()], collapsed=True),
        ],
        variables=[*unit_variables(), *_JOBS.variables, *_HOSTS.variables, _BUSIEST],
    )


def _hosts_that_answer() -> stat.Panel:
    return number(
        "Hosts that answer",
        Help(
            "Daemons that Prometheus could scrape just now.",
            "all of them.",
            "fewer than you have: what runs on the others is not counted.",
        ),
        Query(f"sum (\n{DAEMONS}\n)", ""),
        Limits("none", decimals=0),
        empty="No daemon: see docs/PROMETHEUS.md",
        base=INFO,
    )


# -- jobs

_JOB = ("unit", "pipeline")
_NAMES = ", ".join(_JOB)
_PLACE = ("instance", *_JOB)
_CHANGED = 1.5

#: What a run took on the last day, compared with the two weeks before it: recorded for all hosts
#: together, so it has no instance, and jobs have it alone.
_RATIO = (
    "unit_pipeline:pipelined_run_duration:ratio_median1d"
    '{job=~"$job", unit!~"$left_out", unit=~"$unit"}'
)
_TIMES_USUAL = f"max by ({_NAMES}) ({_RATIO})"
#: When it was last as usual, of a job that takes longer now.
_SINCE = (
    f"max_over_time(timestamp(\n{_TIMES_USUAL} <= {_CHANGED}\n)[13d:1h] @ end())\n"
    f"and on ({_NAMES})\nmax by ({_NAMES}) ({_RATIO} @ end()) > {_CHANGED}"
)


def _over_hosts(figure: str) -> str:
    """The sum over all hosts of a figure of each."""
    return f"sum by ({_NAMES}) (\n{figure}\n)"


def _run_time(scope: Scope) -> str:
    return _over_hosts(run_time(scope, _PLACE))


#: Half of what the fleet runs are the jobs that every host has: they are near the top.
_JOBS = Top(_JOB, _run_time, OUTER, "jobs", named=True)


def _grown(metric: str, *matchers: str, always: bool = False) -> str:
    """By how much a counter grew on all hosts, on each also from its first run."""

    def grew(of: Scope) -> str:
        return f"({of.growth(metric, *matchers, by=_PLACE)} > 0)"

    return _over_hosts(seen(_JOBS.scope, _PLACE, grew, always=always))


def _jobs() -> table.Panel:
    took = _JOBS.scope.max("pipelined_last_run_seconds", by=_PLACE)
    lately = f"{took}{ended_lately(_JOBS.scope, _PLACE)}"
    slowest = f"topk by ({_NAMES}) (1,\n{lately}\n)"
    return rows(
        "Jobs",
        Help(
            "Each pipeline of each unit over all hosts in the time that is shown, the one with most"
            " run time first; click on a heading to sort by another, on a name to see its stages."
            " Not overlapped: time with exactly one stage on CPU. Slowest host: where the last run"
            " took longest, and how long. × usual: what a run typically took on the last day,"
            " compared with the two weeks before it. Since: when it last took as long as usual, of"
            " what now takes half as long again, or more; for a job of many runs a day up to half a"
            " day late. Both need the recording rules, and days of samples.",
            "no Since; not overlapped is a small part of the run time.",
            "Since, with × usual above 2; failures; a slowest host that takes far longer than the"
            " others.",
        ),
        [
            Label("pipeline", "Pipeline", links=[TO_PIPELINE_EVERYWHERE]),
            Label("unit", "Unit", 240),
            Column(
                "Hosts",
                f"count by ({_NAMES}) (\n{run_time(_JOBS.scope, _PLACE)}\n)",
                RUNS,
                width=75,
            ),
            Column("Runs", _grown("pipelined_runs_total", always=True), RUNS, width=90),
            Column("Failed", _grown("pipelined_failed_runs_total"), RUNS, {0: "orange"}, 80),
            Column("Run time", _run_time(_JOBS.scope), Limits("s", decimals=1), width=110),
            Column(
                "Not overlapped",
                _grown("pipelined_level_seconds_total", 'level="1"'),
                Limits("s", decimals=1),
                width=130,
            ),
            Label("instance", "Slowest host", 150, links=[TO_HOST, TO_PAGE]),
            Column(
                "Its last run",
                f"max by ({_NAMES}, instance) (\n{slowest}\n)",
                Limits("s", decimals=1),
                width=110,
            ),
            Column(
                "× usual",
                _TIMES_USUAL,
                Limits("none", decimals=1),
                {_CHANGED: "yellow", 2: "orange"},
                width=85,
            ),
            Column("Since", f"1000 * ({_SINCE})", Limits("dateTimeFromNow", min=None), width=130),
        ],
        top=_JOBS,
        worst="Run time",
        height=14,
    )


def _run_times() -> timeseries.Panel:
    highest = f"max_over_time(\n{_TIMES_USUAL}\n[$__range:1h] @ end())"
    since = f"(\n{_SINCE}\n)"
    # the first step of the graph after it
    ago = f"({since} >= time() - $__interval_ms / 1000) < time()"
    marked = f"({_TIMES_USUAL})\nand on ({_NAMES})\n({ago})"
    panel = lines(
        "Run times over two weeks",
        Help(
            "What a run of each job typically took on the day before, over all hosts, compared with"
            " its usual of the two weeks; of the ten jobs that were highest. A dot marks the change"
            " since which a job takes half as long again, or more. Always of two weeks.",
            "level lines at 1.",
            "a step up that stays: see what else changed on that day.",
        ),
        [
            Query(ranked(_TIMES_USUAL, _JOB, highest), "{{pipeline}}, {{unit}}"),
            Query(ranked(marked, _JOB, highest), "change: {{pipeline}}, {{unit}}"),
        ],
        Limits("none", decimals=1, at_least=2),
        empty="No run of two weeks, or the rules are not loaded",
        width=24,
        height=10,
    )
    panel.time_from("14d").override_by_regexp(
        "/^change: /",
        [
            model.DynamicConfigValue("custom.drawStyle", options.GraphDrawStyle.POINTS.value),
            model.DynamicConfigValue("custom.pointSize", 12),
            model.DynamicConfigValue("custom.showPoints", options.VisibilityMode.ALWAYS.value),
        ],
    )
    return panel


# -- hosts

_HOSTS = Top(
    HOST, lambda of: Recorded(of.matchers).whole.disk_alone(HOST), OUTER, "hosts", near=HOST
)
_BUSIEST = chosen("busiest_instance", f"topk({MOST},\n{WHOLE.seconds('run_seconds', HOST)}\n)")
#: Of these hosts: what rules record, and what the daemons count.
_RECORDED_THERE = Recorded(_HOSTS.scope.matchers).whole
_COUNTED_THERE = _HOSTS.scope.whole
_DAEMONS_THERE = HOSTS.only('instance=~"$hosts_instance"')


def _hosts() -> table.Panel:
    return rows(
        "Hosts",
        Help(
            "How each host's pipelines ran in the time that is shown. Sorted by waiting for disk;"
            " click on a heading to sort by another, on a host to see it. Disk hidden: of the"
            " waiting for disk, the share with a stage on CPU. Failed: of the runs that ended, the"
            " share that failed.",
            "lines that look alike.",
            "a host that stands out: another kernel, a slow disk, a full one.",
        ),
        [
            Label("instance", "Instance", links=[TO_HOST, TO_PAGE]),
            Column("Disk alone", _RECORDED_THERE.disk_alone(HOST), PART, DISK_STEPS, width=110),
            Column("Disk hidden", _RECORDED_THERE.io_overlap(HOST), SHARE, width=110),
            Column(
                "Stalled",
                _RECORDED_THERE.stalled(HOST),
                Limits("percentunit", decimals=1),
                width=90,
            ),
            Column("Overlap", _RECORDED_THERE.overlap(HOST), SHARE, OVERLAP_STEPS, width=90),
            Column("Cores used", _RECORDED_THERE.cores_used(HOST), CORES, width=110),
            Column("Runs", _COUNTED_THERE.growth("pipelined_runs_total", by=HOST), RUNS, width=90),
            Column("Failed", _COUNTED_THERE.failures(HOST), PART, FAILED_STEPS, width=80),
            Column(
                "Run time",
                _COUNTED_THERE.growth("pipelined_run_seconds_total", by=HOST),
                Limits("s", decimals=1),
                width=100,
            ),
            Column(
                "Lost",
                _DAEMONS_THERE.missing(HOST),
                RUNS,
                {1: "red"},
                width=70,
            ),
        ],
        top=_HOSTS,
        worst="Disk alone",
        empty=NO_RULES,
    )


def _states() -> barchart.Panel:
    there = UNITS.only('instance=~"$busiest_instance"')
    recorded = there.select("unit:pipelined_state_seconds:rate5m", _BUSY)
    states = f"sum by (instance, state) (sum_over_time({recorded}[$__range]))"
    return bars(
        "States by host",
        Help(
            "Shares of the states in the time of all stages of each host, over the time that is"
            " shown, without idle threads (lock, poll, sleep). The ten hosts with most run time.",
            "bars that look alike, with much cpu.",
            "one with more disk, runqueue or child than the others.",
        ),
        f"{states}\n/ ignoring (state) group_left ()\n(sum by (instance) (\n{states}\n) > 0)",
        row="instance",
        column="state",
        order="instance",
        limits=SHARE,
        colours=state_colours(),
    )


def _overlap() -> timeseries.Panel:
    return _by_host(
        "Least overlap",
        Help(
            "Overlap of the ten hosts with the least over the time that is shown.",
            "high and level.",
            "one host below all others.",
        ),
        ranked(RECORDED.overlap(HOST), HOST, RECORDED.once.overlap(HOST), least=True),
        SHARE,
    )


def _disk() -> timeseries.Panel:
    there = Recorded(_HOSTS.scope.matchers)  # the same ranking chose these
    return _by_host(
        "Most waiting for disk",
        Help(
            "Share of wall time with a stage waiting for disk and none on CPU, of the ten hosts"
            " with the most over the time that is shown.",
            "below 5 %.",
            "one host above all others: its disk.",
        ),
        ranked(there.disk_alone(HOST), HOST, there.once.disk_alone(HOST)),
        Limits("percentunit", max=1, decimals=0),
    )


def _cores() -> timeseries.Panel:
    return _by_host(
        "Fewest cores used",
        Help(
            "Cores used by each run, of the ten hosts with the fewest over the time that is shown.",
            "above 1.",
            "one host below all others: a throttled CPU or a slow disk.",
        ),
        ranked(RECORDED.cores_used(HOST), HOST, RECORDED.once.cores_used(HOST), least=True),
        CORES,
    )


def _stalled() -> timeseries.Panel:
    return _by_host(
        "Most stalled",
        Help(
            "Seconds that readers slept for disk, per second of wall time, of the ten hosts with"
            " the most over the time that is shown.",
            "below 5 %.",
            "one host above all others.",
        ),
        ranked(RECORDED.stalled(HOST), HOST, RECORDED.once.stalled(HOST)),
        Limits("percentunit", decimals=1, at_least=0.05),
        empty=READAHEAD_OFF,
    )


def _by_host(
    title: str, help_: Help, expr: str, limits: Limits, empty: str = NO_RULES
) -> timeseries.Panel:
    return lines(title, help_, [Query(expr, "{{instance}}")], limits, empty=empty)
