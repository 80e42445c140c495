# SPDX-License-Identifier: Apache-2.0
"""The same across hosts, worst first."""

from __future__ import annotations

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models import dashboard as model

from .answers import (
    CORES,
    COUNT,
    cores_used,
    hosts_that_answer,
    overlap,
    running_now,
    waiting_for_disk,
    waiting_steps,
)
from .frame import UID, framed, to_pipeline, unit_variable
from .palette import read_palette, state_colours
from .panels import (
    PLACE,
    READAHEAD_OFF,
    SHARE,
    Column,
    Help,
    Limits,
    Query,
    bars,
    lines,
    number,
    rows,
)
from .queries import HOSTS, OUTERMOST, PIPELINE, UNITS

__all__ = ["fleet"]

OUTER = UNITS.only(OUTERMOST)
WHOLE = OUTER.whole
HOST = ("instance",)


def fleet() -> model.Dashboard:
    """The dashboard of all hosts."""
    bad = read_palette()["state-disk"]
    overview = (
        "Show this host",
        f"/d/{UID['Overview']}?var-instance=${{__value.raw}}&${{datasource:queryparam}}"
        "&${job:queryparam}&${unit:queryparam}&${__url_time_range}",
    )
    return framed(
        "Fleet",
        "How the pipelines of all hosts run, the worst hosts first.",
        [
            (
                "",
                [
                    hosts_that_answer(),
                    number(
                        "Hosts that do not",
                        Help(
                            "Targets that Prometheus could not scrape just now.",
                            "0.",
                            "any: what runs there is not counted. RUNBOOK.md, PipelinedDown.",
                        ),
                        Query(f"count({HOSTS.select('up')} == 0) or vector(0)", ""),
                        COUNT,
                        steps={1: bad},
                    ),
                    overlap(OUTER),
                    cores_used(OUTER),
                    waiting_for_disk(OUTER),
                    running_now(OUTER),
                ],
            ),
            (
                "Hosts, worst first",
                [
                    rows(
                        "Hosts",
                        Help(
                            "How each host's pipelines ran in the time that is shown. Sorted by"
                            " waiting for disk; click on a heading to sort by another, on a host"
                            " to see it.",
                            "lines that look alike.",
                            "a host that stands out: another kernel, a slow disk, a full one.",
                        ),
                        {"instance": "Instance"},
                        [
                            Column(
                                "Waiting for disk",
                                WHOLE.disk_alone(HOST),
                                SHARE,
                                waiting_steps(),
                            ),
                            Column("Disk hidden", WHOLE.io_overlap(HOST), SHARE),
                            Column("Stalled", WHOLE.stalled(HOST), Limits("percentunit")),
                            Column("Overlap", WHOLE.overlap(HOST), SHARE),
                            Column("Cores used", WHOLE.cores_used(HOST), CORES),
                            Column(
                                "Runs",
                                WHOLE.growth("pipelined_runs_total", by=HOST),
                                Limits("short", decimals=0),
                            ),
                            Column(
                                "Not recorded",
                                HOSTS.whole.growth("pipelined_lost_total", by=HOST),
                                Limits("short", decimals=0),
                                {1: bad},
                            ),
                        ],
                        worst="Waiting for disk",
                        links={"instance": overview},
                    ),
                ],
            ),
            (
                "Over time",
                [
                    _by_host(
                        "Least overlap",
                        Help(
                            "Overlap of the ten hosts with the least.",
                            "high and level.",
                            "one host below all others.",
                        ),
                        f"bottomk(10,\n{OUTER.overlap(HOST)}\n)",
                        SHARE,
                    ),
                    _by_host(
                        "Fewest cores used",
                        Help(
                            "Cores used by each run of the ten hosts with the fewest.",
                            "above 1.",
                            "one host below all others: a throttled CPU or a slow disk.",
                        ),
                        f"bottomk(10,\n{OUTER.cores_used(HOST)}\n)",
                        CORES,
                    ),
                    _by_host(
                        "Most waiting for disk",
                        Help(
                            "Share of wall time with a stage waiting for disk and none on CPU, of"
                            " the ten hosts with the most.",
                            "below 5 %.",
                            "one host above all others: its disk.",
                        ),
                        f"topk(10,\n{OUTER.disk_alone(HOST)}\n)",
                        SHARE,
                    ),
                    _by_host(
                        "Most stalled",
                        Help(
                            "Seconds that readers slept for disk, per second of wall time. The ten"
                            " hosts with the most.",
                            "below 5 %.",
                            "one host above all others.",
                        ),
                        f"topk(10,\n{OUTER.stalled(HOST)}\n)",
                        Limits("percentunit"),
                        empty=READAHEAD_OFF,
                    ),
                ],
            ),
            (
                "Where the time goes",
                [
                    bars(
                        "States by host",
                        Help(
                            "Shares of the states in the time of all stages of each host, over the"
                            " time that is shown.",
                            "bars that look alike, with much cpu.",
                            "one with more disk, runqueue or child than the others.",
                        ),
                        WHOLE.shares("pipelined_state_seconds_total", of="state", by=HOST),
                        row="instance",
                        column="state",
                        limits=SHARE,
                        colours=state_colours(),
                    ),
                    rows(
                        "Pipelines, slowest first",
                        Help(
                            "The last run of each pipeline on each host, and how much of the time"
                            " shown it ran with fewer than two stages on CPU. Nested: inside a"
                            " stage of another pipeline.",
                            "the same pipeline takes as long on every host.",
                            "one host takes twice as long as the others for the same pipeline.",
                        ),
                        PLACE,
                        [
                            Column(
                                "Last run",
                                f"max by ({', '.join(PIPELINE)})"
                                f" ({UNITS.select('pipelined_last_run_seconds')})",
                                Limits("s"),
                            ),
                            Column(
                                "Not overlapped",
                                UNITS.whole.growth(
                                    "pipelined_level_seconds_total",
                                    'level=~"0|1"',
                                    by=PIPELINE,
                                ),
                                Limits("s"),
                            ),
                        ],
                        worst="Last run",
                        links={"pipeline": to_pipeline()},
                        empty="No run has ended yet",
                    ),
                ],
            ),
        ],
        variables=[unit_variable()],
        run_ends=OUTER,
    )


def _by_host(
    title: str, help_: Help, expr: str, limits: Limits, empty: str = "Nothing ran"
) -> timeseries.Panel:
    return lines(title, help_, [Query(expr, "{{instance}}")], limits, empty=empty)
