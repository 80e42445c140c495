# SPDX-License-Identifier: Apache-2.0
"""What runs now, how well, and who wastes most time."""

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
from .frame import framed, to_pipeline, unit_variable
from .palette import state_colours
from .panels import PLACE, SHARE, Column, Help, Limits, Query, lines, number, rows
from .queries import OUTERMOST, PIPELINE, UNITS

__all__ = ["overview"]

#: Outermost pipelines over time and over the whole range.
OUTER = UNITS.only(OUTERMOST)
WHOLE = OUTER.whole

_OF_PIPELINE = "{{pipeline}}, {{unit}}, {{instance}}"


def overview() -> model.Dashboard:
    """The dashboard to begin with."""
    links = {"pipeline": to_pipeline()}
    return framed(
        "Overview",
        "What runs now, how much of it runs at once, what holds it back, and who wastes most time.",
        [
            (
                "",
                [
                    running_now(OUTER),
                    overlap(OUTER),
                    cores_used(OUTER),
                    waiting_for_disk(OUTER),
                    number(
                        "Runs ended",
                        Help(
                            "Runs of pipelines that ended in the time that is shown.",
                            "as many as your schedule says.",
                            "0 after a night of batch jobs, or thousands: a script starts a"
                            " pipeline for each line of a file.",
                        ),
                        Query(WHOLE.growth("pipelined_runs_total"), ""),
                        Limits("short", decimals=0),
                        empty="None yet",
                    ),
                    hosts_that_answer(),
                ],
            ),
            (
                "What runs now",
                [
                    rows(
                        "Running now",
                        Help(
                            "Pipelines that run at this moment, with their figures over the last"
                            " minute or so. Nested: inside a stage of another pipeline. Click on"
                            " one.",
                            "overlap above 50 % and more than one core used.",
                            "overlap near 0 %, or waiting for disk above 30 %.",
                        ),
                        PLACE,
                        [
                            Column(
                                "Running",
                                f"{UNITS.sum('pipelined_runs_active', by=PIPELINE)} > 0",
                                COUNT,
                            ),
                            Column("Overlap", _live(UNITS.overlap(PIPELINE)), SHARE),
                            Column(
                                "Cores used",
                                _live(UNITS.cores_used(PIPELINE)),
                                CORES,
                            ),
                            Column(
                                "Waiting for disk",
                                _live(UNITS.disk_alone(PIPELINE)),
                                SHARE,
                                waiting_steps(),
                            ),
                        ],
                        worst="Running",
                        links=links,
                        empty="Nothing runs now",
                    ),
                ],
            ),
            (
                "How well",
                [
                    _over_time(
                        "Overlap by pipeline",
                        Help(
                            "Of the time with any stage on CPU, the share with two or more. The"
                            " ten highest.",
                            "high and level.",
                            "a line that was high and is now near 0: that pipeline stopped being"
                            " parallel.",
                        ),
                        OUTER.overlap(PIPELINE),
                        SHARE,
                    ),
                    _over_time(
                        "Cores used by pipeline",
                        Help(
                            "CPU seconds per second of wall time. The ten highest.",
                            "above 1 while a pipeline runs.",
                            "near 0 while it runs: it waits.",
                        ),
                        OUTER.cores_used(PIPELINE),
                        CORES,
                    ),
                    rows(
                        "What holds each pipeline back",
                        Help(
                            "The stage of each pipeline that was at work for the largest share of"
                            " wall time: not asleep on a pipe, for a child or for a lock. The"
                            " others wait for it. A stage of several threads can be above 100 %.",
                            "shares of several stages are near each other: no single one to blame"
                            " (the Pipeline dashboard shows them all).",
                            "one stage at 100 %: only making that one faster helps.",
                        ),
                        {**PLACE, "position": "Position", "command": "Held back by"},
                        [
                            Column(
                                "At work",
                                f"topk by ({', '.join(PIPELINE)}) (1,\n{UNITS.whole.at_work()}\n)",
                                Limits("percentunit"),
                            )
                        ],
                        worst="At work",
                        links=links,
                    ),
                ],
            ),
            (
                "Who wastes most time",
                [
                    rows(
                        "Time not overlapped",
                        Help(
                            "Seconds of wall time in which one stage computed while the others"
                            " stood still, in which none was on CPU, and of those, in which one"
                            " waited for disk. The most first. Nested: part of the time of the"
                            " pipeline around it.",
                            "small compared with the wall time.",
                            "one alone near the wall time: a single stage does all the work. None"
                            " on CPU near it: the pipeline waits for disk, network or a timer.",
                        ),
                        PLACE,
                        [
                            Column(title, expr, Limits("s"))
                            for title, expr in (
                                ("Wall time", _spent("pipelined_run_seconds_total")),
                                (
                                    "One alone",
                                    _spent("pipelined_level_seconds_total", 'level="1"'),
                                ),
                                (
                                    "None on CPU",
                                    _spent("pipelined_level_seconds_total", 'level="0"'),
                                ),
                                (
                                    "Disk alone",
                                    _spent(
                                        "pipelined_disk_wait_seconds_total", 'overlapped="false"'
                                    ),
                                ),
                                (
                                    "Not overlapped",
                                    _spent("pipelined_level_seconds_total", 'level=~"0|1"'),
                                ),
                            )
                        ],
                        worst="Not overlapped",
                        links=links,
                    ),
                    lines(
                        "Where all stages' time goes",
                        Help(
                            "Shares of the states in the time of all stages of all pipelines, a"
                            " stage inside a stage counted once.",
                            "much cpu; waiting on empty pipes is normal for quick last stages.",
                            "much disk or runqueue: too little disk, too few CPUs; much child: the"
                            " time goes into starting programs.",
                        ),
                        [
                            Query(
                                OUTER.shares("pipelined_state_seconds_total", of="state"),
                                "{{state}}",
                            )
                        ],
                        SHARE,
                        stacked=True,
                        colours=state_colours(),
                        width=24,
                    ),
                ],
            ),
            (
                "Last runs",
                [
                    rows(
                        "Last runs",
                        Help(
                            "The run of each pipeline that ended last, and how many ended in the"
                            " time that is shown. A single short run is listed even if it ended"
                            " before the next scrape.",
                            "durations as you know them, ends when your schedule says.",
                            "an end long ago of a job that should run daily, or a duration twice"
                            " the usual.",
                        ),
                        PLACE,
                        [
                            Column(
                                "Ended",
                                f"1000 * max by ({', '.join(PIPELINE)})"
                                f" ({UNITS.select('pipelined_last_run_end_timestamp_seconds')})",
                                Limits("dateTimeFromNow", min=None),
                            ),
                            Column(
                                "Took",
                                f"max by ({', '.join(PIPELINE)})"
                                f" ({UNITS.select('pipelined_last_run_seconds')})",
                                Limits("s"),
                            ),
                            Column(
                                "Runs",
                                UNITS.whole.growth("pipelined_runs_total", by=PIPELINE),
                                Limits("short", decimals=0),
                            ),
                        ],
                        worst="Ended",
                        links=links,
                        empty="No run has ended yet",
                    ),
                    _over_time(
                        "Duration of runs",
                        Help(
                            "Wall time of the run that ended last, by pipeline. The ten longest.",
                            "level lines.",
                            "a step up: more data, a cold cache, or another bottleneck."
                            " `pipelined compare` says which.",
                        ),
                        OUTER.sum("pipelined_last_run_seconds", by=PIPELINE),
                        Limits("s"),
                        width=24,
                    ),
                ],
            ),
        ],
        variables=[unit_variable()],
        run_ends=OUTER,
    )


def _live(expr: str) -> str:
    """Of the pipelines that run now."""
    live = UNITS.sum("pipelined_runs_active", by=PIPELINE)
    return f"({expr})\nand on ({', '.join(PIPELINE)})\n({live} > 0)"


def _spent(metric: str, *matchers: str) -> str:
    return UNITS.whole.growth(metric, *matchers, by=PIPELINE)


def _over_time(
    title: str, help_: Help, expr: str, limits: Limits, width: int = 12
) -> timeseries.Panel:
    query = Query(f"topk(10,\n{expr}\n)", _OF_PIPELINE)
    return lines(title, help_, [query], limits, width=width)
