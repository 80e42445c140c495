# SPDX-License-Identifier: Apache-2.0
"""One pipeline: its levels, and for each of its stages where the time goes and what it moves."""

from __future__ import annotations

from grafana_foundation_sdk.builders import heatmap, timeseries
from grafana_foundation_sdk.models import dashboard as model

from .answers import CORES, cores_used, overlap, running_now, waiting_for_disk
from .frame import framed, one, some, unit_variable
from .palette import level_colours, state_colours
from .panels import (
    FUNCTIONS_OFF,
    SHARE,
    Help,
    Limits,
    Query,
    bars,
    heat_map,
    lines,
    number,
    tier,
)
from .queries import HOSTS, SERIES, STAGE, UNITS

__all__ = ["pipeline"]

WHOLE = SERIES.whole
_STAGE = "{{position}} {{command}}"
_FUNCTIONS = "Sizes and latencies, and how full pipes are, come from it."


def pipeline() -> model.Dashboard:
    """The dashboard of the pipeline that is picked."""
    return framed(
        "Pipeline",
        "One pipeline: how many stages run at once, where each stage's time goes, what it moves.",
        [
            (
                "",
                [
                    running_now(SERIES, width=3),
                    overlap(SERIES, width=3),
                    cores_used(SERIES, width=3),
                    number(
                        "Held back by",
                        Help(
                            "The stage that was at work, not asleep on a pipe, for a child or for"
                            " a lock, for the largest share of wall time. The others wait for it.",
                            "the stage that has most to compute.",
                            "one that only passes data on, such as cat, or one that reads from"
                            " disk.",
                        ),
                        Query(f"topk(1,\n{WHOLE.at_work(by=())}\n)", _STAGE),
                        Limits("percentunit"),
                        named=True,
                        width=5,
                    ),
                    waiting_for_disk(SERIES, width=3),
                    number(
                        "Last run took",
                        Help(
                            "Wall time of the run that ended last; with several hosts, the"
                            " longest.",
                            "as long as always.",
                            "twice as long. `pipelined compare` says why.",
                        ),
                        Query(f"max ({SERIES.select('pipelined_last_run_seconds')})", ""),
                        Limits("s"),
                        empty="No run has ended yet",
                        width=3,
                    ),
                    number(
                        "Last run ended",
                        Help(
                            "When the last run ended; with several hosts, the latest.",
                            "when your schedule says.",
                            "longer ago than its schedule allows.",
                        ),
                        Query(
                            "1000 * max"
                            f" ({SERIES.select('pipelined_last_run_end_timestamp_seconds')})",
                            "",
                        ),
                        Limits("dateTimeFromNow", min=None),
                        empty="No run has ended yet",
                        width=4,
                    ),
                ],
            ),
            (
                "How many stages at once",
                [
                    lines(
                        "Levels",
                        Help(
                            "Shares of wall time in which exactly this many stages were on CPU.",
                            "level 2 and above fill the picture.",
                            "level 1 fills it: the stages take turns. Level 0: all of them wait.",
                        ),
                        [
                            Query(
                                SERIES.shares("pipelined_level_seconds_total", of="level"),
                                "{{level}}",
                            )
                        ],
                        SHARE,
                        stacked=True,
                        colours=level_colours(),
                    ),
                    lines(
                        "Overlap and cores used",
                        Help(
                            "Overlap, from 0 to 1; cores used; and how many runs were live.",
                            "overlap near 1 and cores used above 1 while a run is live.",
                            "both near 0 while a run is live.",
                        ),
                        [
                            Query(SERIES.overlap(), "overlap"),
                            Query(SERIES.cores_used(), "cores used"),
                            Query(SERIES.sum("pipelined_runs_active"), "runs live"),
                        ],
                        Limits("none"),
                    ),
                ],
            ),
            (
                "Where each stage's time goes",
                [
                    bars(
                        "States of each stage",
                        Help(
                            "Shares of the states in each stage's time, over the time that is"
                            " shown, in the order of the data.",
                            "each bar mostly cpu; empty pipe in the last stages when they are"
                            " quick.",
                            "pipe_full before, and pipe_empty after, a stage that is all cpu or"
                            " disk: that one holds the others back.",
                        ),
                        "label_join(\n"
                        + WHOLE.shares("pipelined_state_seconds_total", of="state", by=STAGE)
                        + ',\n"stage", " ", "position", "command")',
                        row="stage",
                        column="state",
                        limits=SHARE,
                        colours=state_colours(),
                    ),
                    _stage_states(),
                ],
            ),
            (
                "What the stages move",
                [
                    _by_stage(
                        "Through pipes",
                        "Bytes that each stage passes on through its pipes: upper bounds where the"
                        " functions tier is off.",
                        "a filter passes on less than the stage before it, and stands early.",
                        "much is passed on that a later stage drops; a line falls while the run"
                        " goes on.",
                        SERIES.growth("pipelined_written_bytes_total", 'via="pipe"', by=STAGE),
                        "binBps",
                    ),
                    _by_stage(
                        "Files",
                        "Bytes that each stage reads and writes beside its pipes: files, sockets,"
                        " terminals.",
                        "the first stage reads as fast as its disk allows; the others nothing.",
                        "a stage in the middle: sort fills temporary files.",
                        SERIES.growth("pipelined_read_bytes_total", 'via="file"', by=STAGE)
                        + "\n+\n"
                        + SERIES.growth("pipelined_written_bytes_total", 'via="file"', by=STAGE),
                        "binBps",
                    ),
                    _by_stage(
                        "Mean read",
                        "Mean bytes per read call.",
                        "64 KiB, what a pipe holds, or more.",
                        "below 4 KiB: a system call for every few lines.",
                        SERIES.ratio(
                            SERIES.growth("pipelined_read_bytes_total", by=STAGE),
                            SERIES.growth("pipelined_read_calls_total", by=STAGE),
                        ),
                        "bytes",
                        logarithmic=True,
                    ),
                    _by_stage(
                        "Mean write",
                        "Mean bytes per write call.",
                        "4 KiB or more: the program buffers what it writes.",
                        "below 512 bytes: it writes line by line (stdbuf, --line-buffered, -u).",
                        SERIES.ratio(
                            SERIES.growth("pipelined_written_bytes_total", by=STAGE),
                            SERIES.growth("pipelined_write_calls_total", by=STAGE),
                        ),
                        "bytes",
                        logarithmic=True,
                    ),
                    lines(
                        "Sleeps on pipes",
                        Help(
                            "How often per second a thread of each stage fell asleep on an empty"
                            " or a full pipe.",
                            "a few thousand or fewer.",
                            "tens of thousands: the stages hand over tiny pieces, and switching"
                            " costs more than the work.",
                        ),
                        [
                            Query(
                                SERIES.growth("pipelined_pipe_sleeps_total", by=(*STAGE, "side")),
                                f"{_STAGE}: {{{{side}}}}",
                            )
                        ],
                        Limits("cps"),
                        empty="No stage slept on a pipe",
                    ),
                    lines(
                        "CPU",
                        Help(
                            "CPU seconds per second of each stage, in user mode and in the kernel.",
                            "mostly user.",
                            "mostly system: small reads and writes, or forks.",
                        ),
                        [
                            Query(_user_mode(), f"{_STAGE}: user"),
                            Query(
                                SERIES.growth("pipelined_system_cpu_seconds_total", by=STAGE),
                                f"{_STAGE}: system",
                            ),
                        ],
                        CORES,
                    ),
                ],
            ),
            (
                "Sizes and latencies (functions tier)",
                [
                    tier(
                        "functions",
                        _FUNCTIONS,
                        HOSTS.select("pipelined_hook_attached", 'tier="functions"'),
                    ),
                    _by_stage(
                        "How full the pipe was",
                        "How full the pipe was at each write of a stage, on average.",
                        "in the middle: neither side waits long.",
                        "near 100 %: the stage after it holds it back. Near 0 %: the stage after"
                        " it waits for it.",
                        _histogram_mean("pipelined_pipe_fill_ratio"),
                        "percentunit",
                        top=1,
                        empty=FUNCTIONS_OFF,
                        width=9,
                    ),
                    _by_stage(
                        "What pipes hold",
                        "Capacity in bytes of the pipe that each stage writes to.",
                        "64 KiB, the kernel's default, or what a program asked for.",
                        "4 KiB: a user is over the limit of pages in pipes"
                        " (fs.pipe-user-pages-soft).",
                        f"max by ({', '.join(STAGE)})"
                        f" ({SERIES.select('pipelined_pipe_capacity_bytes')})",
                        "bytes",
                        empty=FUNCTIONS_OFF,
                        width=9,
                    ),
                    _distribution(
                        "Writes to pipes",
                        "How many writes to pipes came in each size.",
                        "dark at 4 KiB and above.",
                        "dark below 512 B.",
                        "pipelined_pipe_write_size_bytes",
                    ),
                    _distribution(
                        "Reads of pipes",
                        "How many reads of pipes returned each size.",
                        "dark at 4 KiB and above.",
                        "dark below 4 KiB, though the stage before writes larger pieces.",
                        "pipelined_pipe_read_size_bytes",
                    ),
                    _distribution(
                        "Reads of files",
                        "How many reads of files returned each size.",
                        "dark at 64 KiB and above.",
                        "dark below 4 KiB: many calls for little.",
                        "pipelined_file_read_size_bytes",
                    ),
                    _distribution(
                        "How long reads of files took",
                        "How many reads of files took how long.",
                        "dark below 100 µs: what they read was there.",
                        "a second dark band at milliseconds: those waited for disk.",
                        "pipelined_file_read_seconds",
                        unit="s",
                    ),
                ],
            ),
            (
                "Programs started",
                [
                    lines(
                        "Forks and execs",
                        Help(
                            "Processes that each stage started per second, programs that they"
                            " executed, and failed execs (absent if no hook sees them).",
                            "near 0 after the start.",
                            "hundreds a second: xargs without -n, or a loop that starts a program"
                            " for each line.",
                        ),
                        [
                            Query(
                                SERIES.growth("pipelined_forks_total", by=STAGE), f"{_STAGE}: forks"
                            ),
                            Query(
                                SERIES.growth("pipelined_execs_total", by=STAGE), f"{_STAGE}: execs"
                            ),
                            Query(
                                SERIES.growth("pipelined_exec_failures_total", by=STAGE),
                                f"{_STAGE}: failed execs",
                            ),
                        ],
                        Limits("cps"),
                        width=8,
                    ),
                    lines(
                        "Life and CPU of a child",
                        Help(
                            "How long a process that a stage started lived, on average, and what"
                            " CPU time it used.",
                            "seconds: starting it is a small part.",
                            "a few milliseconds: starting it costs more than its work.",
                        ),
                        [
                            Query(_for_each_child("lifetime"), f"{_STAGE}: life"),
                            Query(_for_each_child("cpu"), f"{_STAGE}: CPU"),
                        ],
                        Limits("s"),
                        logarithmic=True,
                        empty="No stage started a process",
                        width=8,
                    ),
                    lines(
                        "Children at once",
                        Help(
                            "Processes that each stage had running at once, on average: what"
                            " `xargs -P` really reaches. Counted when they exit.",
                            "near the number that you asked for.",
                            "near 1 with -P 8: something feeds them too slowly.",
                        ),
                        [
                            Query(
                                SERIES.growth(
                                    "pipelined_exited_children_lifetime_seconds_total", by=STAGE
                                ),
                                _STAGE,
                            )
                        ],
                        Limits("none", decimals=1),
                        empty="No stage started a process",
                        width=8,
                    ),
                ],
            ),
            (
                "Runs",
                [
                    lines(
                        "Duration of runs",
                        Help(
                            "Wall time of the run that ended last, by host and unit.",
                            "a level line.",
                            "a step up: more data, a cold cache, or another bottleneck.",
                        ),
                        [
                            Query(
                                f"max by (instance, unit)"
                                f" ({SERIES.select('pipelined_last_run_seconds')})",
                                "{{instance}}, {{unit}}",
                            )
                        ],
                        Limits("s"),
                        empty="No run has ended yet",
                    ),
                    lines(
                        "Runs ended",
                        Help(
                            "Runs that ended per second, by host and unit.",
                            "what your schedule says.",
                            "hundreds: a script starts this pipeline for each line of a file.",
                        ),
                        [
                            Query(
                                SERIES.growth("pipelined_runs_total", by=("instance", "unit")),
                                "{{instance}}, {{unit}}",
                            )
                        ],
                        Limits("cps"),
                    ),
                ],
            ),
        ],
        variables=[
            unit_variable(),
            one("pipeline", "Pipeline", UNITS.select("pipelined_runs_total")),
            some("position", "Stage", SERIES.select("pipelined_state_seconds_total")),
        ],
        run_ends=SERIES,
        every_run=True,
    )


def _stage_states() -> timeseries.Panel:
    """One panel for each stage."""
    chosen = SERIES.only('position=~"$position"')
    panel = lines(
        "Stage $position over time",
        Help(
            "Shares of the states in the time of this stage, whichever command it was.",
            "mostly cpu, or pipe_empty in a quick last stage.",
            "mostly disk, or pipe_full while the stage after it is mostly cpu.",
        ),
        [Query(chosen.shares("pipelined_state_seconds_total", of="state"), "{{state}}")],
        SHARE,
        stacked=True,
        colours=state_colours(),
        width=24,
        height=7,
    )
    return panel.repeat("position").repeat_direction("h").max_per_row(3)


def _by_stage(
    title: str,
    shows: str,
    good: str,
    bad: str,
    expr: str,
    unit: str,
    *,
    top: float | None = None,
    logarithmic: bool = False,
    empty: str = "Nothing ran",
    width: int = 12,
) -> timeseries.Panel:
    return lines(
        title,
        Help(shows, good, bad),
        [Query(expr, _STAGE)],
        Limits(unit, max=top),
        logarithmic=logarithmic,
        empty=empty,
        width=width,
    )


def _distribution(
    title: str, shows: str, good: str, bad: str, metric: str, unit: str = "bytes"
) -> heatmap.Panel:
    expr = SERIES.growth(f"{metric}_bucket", by=("le",))
    help_ = Help(f"{shows} Of all stages of the pipeline.", good, bad)
    return heat_map(title, help_, expr, unit, empty=FUNCTIONS_OFF)


def _histogram_mean(metric: str) -> str:
    return SERIES.ratio(
        SERIES.growth(f"{metric}_sum", by=STAGE), SERIES.growth(f"{metric}_count", by=STAGE)
    )


def _user_mode() -> str:
    """What is left of a stage's CPU time without that in the kernel."""
    cpu = SERIES.growth("pipelined_state_seconds_total", 'state="cpu"', by=STAGE)
    return f"{cpu}\n- {SERIES.growth('pipelined_system_cpu_seconds_total', by=STAGE)}"


def _for_each_child(what: str) -> str:
    return SERIES.ratio(
        SERIES.growth(f"pipelined_exited_children_{what}_seconds_total", by=STAGE),
        SERIES.growth("pipelined_exited_children_total", by=STAGE),
    )
