# SPDX-License-Identifier: Apache-2.0
"""One pipeline: how much of it runs at once, what each stage does, what flows, and its runs."""

from __future__ import annotations

from grafana_foundation_sdk.builders import barchart, heatmap, stat, table, timeseries
from grafana_foundation_sdk.models import dashboard as model

from .answers import cores_used, overlap, waiting_for_disk
from .frame import (
    TO_HOST,
    TO_PAGE,
    TO_TRACES,
    Row,
    framed,
    one,
    some,
    traces_variable,
    unit_variables,
)
from .palette import level_colours, state_colours
from .panels import (
    FUNCTIONS_OFF,
    INFO,
    RUNS,
    SHARE,
    Column,
    Help,
    Label,
    Limits,
    Query,
    Top,
    bars,
    heat_map,
    lines,
    number,
    rows,
    tier,
)
from .queries import HOSTS, SERIES, STAGE, UNITS, in_order, ranked
from .runs import run_columns, run_time

__all__ = ["pipeline"]

WHOLE = SERIES.whole
_STAGE = "{{position}} {{command}}"
_NO_CHILD = "No stage started a process"
#: Where a pipeline runs.
_PLACE = ("instance", "unit")
_AGO = Limits("dateTimeFromNow", min=None)
_REASON = (*_PLACE, "reason")
_LAST_FAILED = SERIES.max("pipelined_last_failed_run_end_timestamp_seconds", by=_REASON)
_DID_NOT_SUCCEED = (
    f"({WHOLE.growth('pipelined_failed_runs_total', by=_REASON)} > 0)\nor\n"
    f"label_replace({SERIES.events('pipelined_interrupted_runs_total', by=_PLACE)} > 0"
    ', "reason", "interrupted", "", "")'
)
_PLACES = Top(_PLACE, lambda of: run_time(of, _PLACE), SERIES, "places")
_UNSUCCESSFUL = Top(_REASON, lambda _: f"{_LAST_FAILED}\nor\n{_DID_NOT_SUCCEED}", SERIES, "ends")
#: Of the mean size of reads and writes.
_TOO_LOW = (
    "Too low for a stage with pipelines inside, if the functions tier is on: the calls on inner"
    " pipes are counted, their bytes are not."
)
#: The runs of the pipeline in the history of its host's daemon.
_HISTORY = (
    "Open the runs on the page of its daemon",
    "http://${__data.fields.Instance}/history?pipeline=${pipeline:percentencode}",
)


def pipeline() -> model.Dashboard:
    """The dashboard of the pipeline that is picked."""
    return framed(
        "Pipeline",
        "One pipeline: how much runs at once, what each stage does, what flows, and its runs.",
        [
            Row(
                "",
                [
                    overlap(SERIES),
                    _held_back(),
                    waiting_for_disk(SERIES),
                    cores_used(SERIES, width=3),
                    _last_run(),
                    _last_end(),
                ],
            ),
            Row("Who waits for whom", [_states(), _levels(), _at_work(), _waits()]),
            Row("What flows", [_through_pipes(), _files()]),
            Row("Runs", [_runs(), _failures(), _durations()]),
            Row(
                "Each stage over time",
                [_stage_states()],
                collapsed=True,
            ),
            Row(
                "Sizes of reads and writes, sleeps, CPU",
                [_mean_read(), _mean_write(), _sleeps(), _cpu()],
                collapsed=True,
            ),
            Row("Sizes and latencies (functions tier)", _functions_tier(), collapsed=True),
            Row(
                "Programs started",
                [_forks(), _life_of_a_child(), _children_at_once()],
                collapsed=True,
            ),
        ],
        variables=[
            *unit_variables(),
            one("pipeline", "Pipeline", UNITS.select("pipelined_runs_total")),
            some("position", "Stage", SERIES.select("pipelined_state_seconds_total")),
            traces_variable(),
            *_PLACES.variables,
            *_UNSUCCESSFUL.variables,
        ],
        run_ends=SERIES,
    )


# -- the answers


def _held_back() -> stat.Panel:
    return number(
        "Held back by",
        Help(
            "The stage that was on CPU, or waited for a CPU, disk or socket, for the largest share"
            " of wall time. The others wait for it.",
            "the stage that has most to compute.",
            "one that only passes data on, such as cat, or one that reads from disk.",
        ),
        Query(f"topk(1,\n{WHOLE.at_work(by=())}\n)", _STAGE),
        SHARE,
        base=INFO,
        named=True,
        width=5,
    )


def _last_run() -> stat.Panel:
    return number(
        "Last run took",
        Help(
            "Wall time of the run that ended last; with several hosts, the longest.",
            "as long as always.",
            "twice as long. `pipelined compare` says why.",
        ),
        Query(SERIES.max("pipelined_last_run_seconds"), ""),
        Limits("s", decimals=1),
        empty="No end seen",
        base=INFO,
    )


def _last_end() -> stat.Panel:
    return number(
        "Last run ended",
        Help(
            "When the last run ended; with several hosts, the latest.",
            "when your schedule says.",
            "longer ago than its schedule allows.",
        ),
        Query(f"1000 * {SERIES.max('pipelined_last_run_end_timestamp_seconds')}", ""),
        _AGO,
        empty="No end seen",
        base=INFO,
    )


# -- who waits for whom


def _states() -> barchart.Panel:
    return bars(
        "What each stage does",
        Help(
            "Seconds that the threads of each stage spent in each state, per second of wall time,"
            " over the time that is shown, in the order of the data. A stage that is over has"
            " nothing; idle threads beside working ones are left out.",
            "each bar mostly cpu; pipe_empty in the last stages when they are quick.",
            "pipe_full before, and pipe_empty after, a stage that is all cpu or disk: that one"
            " holds the others back.",
        ),
        f'label_join(\n{in_order(WHOLE.stage_states())}\n, "stage", " ", "position", "command")',
        row="stage",
        column="state",
        order="at",
        limits=Limits("percentunit", decimals=0),
        colours=state_colours(),
        width=12,
    )


def _levels() -> timeseries.Panel:
    return lines(
        "Stages on CPU at once",
        Help(
            "Shares of wall time in which exactly this many stages were on CPU.",
            "level 2 and above fill the picture.",
            "level 1 fills it: the stages take turns. Level 0: all of them wait.",
        ),
        [Query(SERIES.shares("pipelined_level_seconds_total", of="level"), "{{level}}")],
        SHARE,
        stacked=True,
        colours=level_colours(),
    )


def _at_work() -> timeseries.Panel:
    return _by_stage(
        "At work",
        "Share of wall time that each stage was on CPU, or waited for a CPU, disk or socket.",
        "several stages near 100 %.",
        "one stage near 100 %, and the others near 0 %: only making that one faster helps.",
        SERIES.at_work(by=()),
        SHARE,
    )


def _waits() -> timeseries.Panel:
    return _by_stage(
        "Waiting for other stages",
        "Share of wall time that each stage slept on an empty or a full pipe.",
        "low while the pipeline runs.",
        "all but one stage near 100 %: that one holds them back.",
        SERIES.wait_for_others(),
        SHARE,
        empty="No stage slept on a pipe",
    )


# -- what flows


def _through_pipes() -> timeseries.Panel:
    return _by_stage(
        "Through pipes",
        "Bytes that each stage passes on through its pipes: upper bounds where the functions tier"
        " is off.",
        "a filter passes on less than the stage before it, and stands early.",
        "much is passed on that a later stage drops; a line falls while the run goes on.",
        SERIES.growth("pipelined_written_bytes_total", 'via="pipe"', by=STAGE),
        Limits("binBps", at_least=1024),
    )


def _files() -> timeseries.Panel:
    read, written = (
        SERIES.growth(f"pipelined_{moved}_bytes_total", 'via="file"', by=STAGE)
        for moved in ("read", "written")
    )
    return _by_stage(
        "Files",
        "Bytes that each stage reads and writes beside its pipes: files, sockets, terminals.",
        "the first stage reads as fast as its disk allows; the others nothing.",
        "a stage in the middle: sort fills temporary files.",
        # a stage may have only one of the two
        f"({read}\n+\n{written})\nor\n{read}\nor\n{written}",
        Limits("binBps", at_least=1024),
    )


# -- runs


def _runs() -> table.Panel:
    return rows(
        "Where it ran",
        Help(
            "This pipeline on each host and in each unit, the longest run time first. × usual: the"
            " last run compared with earlier ones of the same cache state and similar bytes, or if"
            " those are too few with the mean of all since the daemon started. A click on when it"
            " ended opens the runs on the page of that host's daemon; one on a unit its traces.",
            "the same on every host.",
            "one host takes twice as long as the others, or twice as long as usual.",
        ),
        [
            Label("instance", "Instance", links=[TO_HOST, TO_PAGE]),
            Label("unit", "Unit", links=[TO_TRACES]),
            *run_columns(SERIES, _PLACE, links=(_HISTORY,)),
        ],
        top=_PLACES,
        worst="Run time",
        height=6,
    )


def _durations() -> timeseries.Panel:
    took = "pipelined_last_run_seconds"
    # a gauge has no exemplars: those of the counter, which adds no line
    runs = SERIES.once.growth("pipelined_runs_total", by=_PLACE)
    drawn = f"({SERIES.max(took, by=_PLACE)}\nor\n{runs} < 0)"
    return lines(
        "Duration of runs",
        Help(
            "Wall time of the run that ended last, by host and unit, of at most ten. A dot is a"
            " run with its trace, where runs are sent as traces.",
            "a level line.",
            "a step up: more data, a cold cache, or another bottleneck.",
        ),
        [
            Query(
                ranked(drawn, _PLACE, SERIES.peak(took, by=_PLACE)),
                "{{instance}}, {{unit}}",
                exemplars=True,
            )
        ],
        Limits("s", min=None),
        logarithmic=True,
        empty="No end of a run seen",
        width=24,
        height=7,
    )


def _failures() -> table.Panel:
    place = ", ".join(_PLACE)
    complete = SERIES.max("pipelined_last_complete_run_end_timestamp_seconds", by=_PLACE)
    return rows(
        "Failed or stopped",
        Help(
            "Runs that failed, by the gravest reason of a stage (exit: it exited with a code that"
            " is a failure; signal: one killed it; out_of_memory: the kernel did, as memory had run"
            " out), and those that were interrupted, in the time that is shown. When the last such"
            " run ended, and the last one that succeeded, is of any time.",
            "empty, or a success that is later than the failure.",
            "a failure that is later than the last success; out_of_memory.",
        ),
        [
            Label("instance", "Instance", links=[TO_HOST, TO_PAGE]),
            Label("unit", "Unit"),
            Label("reason", "Reason", 140),
            Column(
                "Runs",
                _DID_NOT_SUCCEED,
                RUNS,
                width=90,
            ),
            Column("Last failure", f"1000 * {_LAST_FAILED}", _AGO, width=160),
            Column(
                "Last success",
                f"1000 * (0 * {_LAST_FAILED}\n+ on ({place}) group_left ()\n{complete})",
                _AGO,
                width=160,
            ),
        ],
        top=_UNSUCCESSFUL,
        worst="Last failure",
        empty="No run failed",
        height=6,
    )


# -- rows that open on demand


def _stage_states() -> timeseries.Panel:
    """One panel for each stage."""
    chosen = SERIES.only('position=~"$position"')
    panel = lines(
        "Stage $position over time",
        Help(
            "Shares of the states in the time of this stage, whichever command it was; here idle"
            " threads count too.",
            "mostly cpu, or pipe_empty in a quick last stage.",
            "mostly disk, or pipe_full while the stage after it is mostly cpu.",
        ),
        [Query(chosen.shares("pipelined_state_seconds_total", of="state"), "{{state}}")],
        SHARE,
        stacked=True,
        colours=state_colours(),
        width=8,
    )
    return panel.repeat("position").repeat_direction("h").max_per_row(3)


def _mean_read() -> timeseries.Panel:
    return _by_stage(
        "Mean read",
        f"Mean bytes per read call. {_TOO_LOW}",
        "64 KiB, what a pipe holds, or more.",
        "below 4 KiB: a system call for every few lines.",
        SERIES.ratio(
            SERIES.growth("pipelined_read_bytes_total", by=STAGE),
            SERIES.growth("pipelined_read_calls_total", by=STAGE),
        ),
        Limits("bytes", min=None),
        logarithmic=True,
    )


def _mean_write() -> timeseries.Panel:
    return _by_stage(
        "Mean write",
        f"Mean bytes per write call. {_TOO_LOW}",
        "4 KiB or more: the program buffers what it writes.",
        "below 512 bytes: it writes line by line (stdbuf, --line-buffered, -u).",
        SERIES.ratio(
            SERIES.growth("pipelined_written_bytes_total", by=STAGE),
            SERIES.growth("pipelined_write_calls_total", by=STAGE),
        ),
        Limits("bytes", min=None),
        logarithmic=True,
    )


def _sleeps() -> timeseries.Panel:
    return lines(
        "Sleeps on pipes",
        Help(
            "How often per second a thread of each stage fell asleep on an empty or a full pipe.",
            "a few thousand or fewer.",
            "tens of thousands: the stages hand over tiny pieces, and switching costs more than"
            " the work.",
        ),
        [
            Query(
                in_order(SERIES.growth("pipelined_pipe_sleeps_total", by=(*STAGE, "side"))),
                f"{_STAGE}: {{{{side}}}}",
            )
        ],
        Limits("cps", at_least=1),
        empty="No stage slept on a pipe",
    )


def _cpu() -> timeseries.Panel:
    return lines(
        "CPU",
        Help(
            "CPU seconds per second of each stage, in user mode and in the kernel.",
            "mostly user.",
            "mostly system: small reads and writes, or forks.",
        ),
        [
            Query(in_order(_user_mode()), f"{_STAGE}: user"),
            Query(
                in_order(SERIES.growth("pipelined_system_cpu_seconds_total", by=STAGE)),
                f"{_STAGE}: system",
            ),
        ],
        Limits("none", decimals=3),
    )


def _functions_tier() -> list[stat.Panel | timeseries.Panel | heatmap.Panel]:
    return [
        tier(
            "functions",
            "Sizes and latencies, and how full pipes are, come from it.",
            HOSTS.select("pipelined_hook_attached", 'tier="functions"'),
            width=6,
        ),
        _by_stage(
            "How full the pipe was",
            "How full the pipe was at each write of a stage, on average.",
            "in the middle: neither side waits long.",
            "near 100 %: the stage after it holds it back. Near 0 %: the stage after it waits for"
            " it.",
            _histogram_mean("pipelined_pipe_fill_ratio"),
            SHARE,
            empty=FUNCTIONS_OFF,
            width=9,
        ),
        _by_stage(
            "What pipes hold",
            "Capacity in bytes of the pipe that each stage writes to.",
            "64 KiB, the kernel's default, or what a program asked for.",
            "4 KiB: a user is over the limit of pages in pipes (fs.pipe-user-pages-soft).",
            SERIES.max("pipelined_pipe_capacity_bytes", by=STAGE),
            Limits("bytes", at_least=65536),
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
    ]


def _forks() -> timeseries.Panel:
    return lines(
        "Forks and execs",
        Help(
            "Processes that each stage started per second, programs that they executed, and failed"
            " execs (absent if no hook sees them).",
            "near 0 after the start.",
            "hundreds a second: xargs without -n, or a loop that starts a program for each line.",
        ),
        [
            Query(in_order(SERIES.growth(f"pipelined_{name}_total", by=STAGE)), f"{_STAGE}: {what}")
            for name, what in (
                ("forks", "forks"),
                ("execs", "execs"),
                ("exec_failures", "failed execs"),
            )
        ],
        Limits("cps", at_least=1),
        empty=_NO_CHILD,
        width=8,
    )


def _life_of_a_child() -> timeseries.Panel:
    return lines(
        "Life and CPU of a child",
        Help(
            "How long a process that a stage started lived, on average, and what CPU time it used.",
            "seconds: starting it is a small part.",
            "a few milliseconds: starting it costs more than its work.",
        ),
        [
            Query(in_order(_for_each_child("lifetime")), f"{_STAGE}: life"),
            Query(in_order(_for_each_child("cpu")), f"{_STAGE}: CPU"),
        ],
        Limits("s", min=None),
        logarithmic=True,
        empty=_NO_CHILD,
        width=8,
    )


def _children_at_once() -> timeseries.Panel:
    return _by_stage(
        "Children at once",
        "Processes that each stage had running at once, on average: what `xargs -P` really"
        " reaches. Counted when they exit.",
        "near the number that you asked for.",
        "near 1 with -P 8: something feeds them too slowly.",
        SERIES.growth("pipelined_exited_children_lifetime_seconds_total", by=STAGE),
        Limits("none", decimals=1, at_least=1),
        empty=_NO_CHILD,
        width=8,
    )


# -- what they share


def _by_stage(
    title: str,
    shows: str,
    good: str,
    bad: str,
    expr: str,
    limits: Limits,
    *,
    logarithmic: bool = False,
    empty: str = "No run seen",
    width: int = 12,
) -> timeseries.Panel:
    """A line for each stage, in the order of the data."""
    return lines(
        title,
        Help(shows, good, bad),
        [Query(in_order(expr), _STAGE)],
        limits,
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
