# SPDX-License-Identifier: Apache-2.0
"""The dashboard of many hosts: what Overview has of one, across hosts, worst first."""

from __future__ import annotations

from grafana_foundation_sdk.builders import barchart, stat, table, timeseries
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
from .frame import TO_HOST, TO_PAGE, Row, framed, unit_variable
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
    bars,
    lines,
    number,
    rows,
)
from .queries import HOST, HOSTS, IDLE, OUTERMOST, UNITS, ranked

__all__ = ["fleet"]

OUTER = UNITS.only(OUTERMOST)
WHOLE = OUTER.whole
#: Of all states those in which idle threads do not wait.
_BUSY = f'state!~"{IDLE}"'


def fleet() -> model.Dashboard:
    """The dashboard of all hosts."""
    return framed(
        "Fleet",
        "How the pipelines of all hosts run, the worst hosts first.",
        [
            Row(
                "",
                [
                    _hosts_that_answer(),
                    hosts_without_answer(),
                    not_recorded(),
                    overlap(OUTER),
                    cores_used(OUTER),
                    waiting_for_disk(OUTER),
                ],
            ),
            Row("Hosts, worst first", [_hosts(), _states()]),
            Row("Over time", [_overlap(), _disk(), _cores(), _stalled()]),
        ],
        variables=[unit_variable()],
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
            Column("Disk alone", WHOLE.disk_alone(HOST), PART, DISK_STEPS, width=110),
            Column("Disk hidden", WHOLE.io_overlap(HOST), SHARE, width=110),
            Column("Stalled", WHOLE.stalled(HOST), Limits("percentunit", decimals=1), width=90),
            Column("Overlap", WHOLE.overlap(HOST), SHARE, OVERLAP_STEPS, width=90),
            Column("Cores used", WHOLE.cores_used(HOST), CORES, width=110),
            Column("Runs", WHOLE.growth("pipelined_runs_total", by=HOST), RUNS, width=90),
            Column("Failed", WHOLE.failures(HOST), PART, FAILED_STEPS, width=80),
            Column(
                "Run time",
                WHOLE.growth("pipelined_run_seconds_total", by=HOST),
                Limits("s", decimals=1),
                width=100,
            ),
            Column(
                "Lost",
                HOSTS.losses(HOST),
                RUNS,
                {1: "red"},
                width=70,
            ),
        ],
        worst="Disk alone",
    )


def _states() -> barchart.Panel:
    metric = "pipelined_state_seconds_total"
    return bars(
        "States by host",
        Help(
            "Shares of the states in the time of all stages of each host, over the time that is"
            " shown, without idle threads (lock, poll, sleep). The ten hosts with most run time.",
            "bars that look alike, with much cpu.",
            "one with more disk, runqueue or child than the others.",
        ),
        ranked(
            WHOLE.shares(metric, _BUSY, of="state", by=HOST),
            HOST,
            WHOLE.growth("pipelined_run_seconds_total", by=HOST),
        ),
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
        ranked(OUTER.overlap(HOST), HOST, OUTER.once.overlap(HOST), least=True),
        SHARE,
    )


def _disk() -> timeseries.Panel:
    return _by_host(
        "Most waiting for disk",
        Help(
            "Share of wall time with a stage waiting for disk and none on CPU, of the ten hosts"
            " with the most over the time that is shown.",
            "below 5 %.",
            "one host above all others: its disk.",
        ),
        ranked(OUTER.disk_alone(HOST), HOST, OUTER.once.disk_alone(HOST)),
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
        ranked(OUTER.cores_used(HOST), HOST, OUTER.once.cores_used(HOST), least=True),
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
        ranked(OUTER.stalled(HOST), HOST, OUTER.once.stalled(HOST)),
        Limits("percentunit", decimals=1, at_least=0.05),
        empty=READAHEAD_OFF,
    )


def _by_host(
    title: str, help_: Help, expr: str, limits: Limits, empty: str = "No run seen"
) -> timeseries.Panel:
    return lines(title, help_, [Query(expr, "{{instance}}")], limits, empty=empty)
