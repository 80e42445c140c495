# SPDX-License-Identifier: Apache-2.0
"""What is exported of pipelines and of their stages: one row per metric in the tables below.

A row has a metric's kind, name and HELP text, and its samples: each is the labels that it adds to
those of the pipeline or stage, and how to read its value. A value of None is no sample.

Each sample is a series that Prometheus keeps, so what never happened has none: absent is 0. What
ratios and alerts divide by or compare with 0 is there from the start, or appears together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from pipelined.runs import FAILURES, HISTOGRAMS, LEVELS, STALL_CLASSES, STATES
from pipelined.states import STATE_TABLE
from pipelined.web.exposition import NO_LABELS, Labels, OwnedMetric
from pipelined.web.metric_rows import (
    Row,
    Samples,
    Value,
    counter,
    each,
    gauge,
    known,
    not_0,
    one,
    only_if,
    split,
)
from pipelined.wording import valid_text

if TYPE_CHECKING:
    from pipelined.model.views import Totals
    from pipelined.runs import (
        Functions,
        Histogram,
        Readahead,
        Series,
        StageCounters,
        Stalls,
        StallSeconds,
    )
    from pipelined.web.scrape import Scrape

__all__ = ["EXPORTED_EDGES", "PipelineCollector", "StageCollector", "series_count"]

# -- samples that one metric alone has


def _via(*, pipe: str, file: str) -> Samples:
    """Samples of these fields of a stage's `Flow`: one of them is always there."""

    def rest(stage: StageCounters) -> float | None:
        value: int | None = getattr(stage.flow, file)
        return value if value or not getattr(stage.flow, pipe) else None

    return (
        *not_0(((Labels({"via": "pipe"}), attrgetter(f"flow.{pipe}")),)),
        (Labels({"via": "file"}), rest),
    )


def _has_children(stage: StageCounters) -> bool:
    return bool(stage.forks or stage.exited_children)


def _read_from_disk(readahead: Readahead) -> bool:
    pages = readahead.pages
    return bool(pages["miss"] or pages["hit"] or pages["late"])


def _read_ahead(readahead: Readahead) -> bool:
    return bool(readahead.inserted_pages or readahead.pages["wasted"])


def _stalls(stall_class: str, value: Callable[[StallSeconds, Stalls], float]) -> Value:
    def read(readahead: Readahead) -> float | None:
        stalls = readahead.stalls[stall_class]
        return value(readahead.stall_seconds[stall_class], stalls) if any(stalls) else None

    return read


def _faults(stall_class: str) -> Value:
    def read(totals: Totals) -> float:
        found = [stage.readahead for stage in totals.stages.values() if stage.readahead]
        return sum(readahead.faults[stall_class] for readahead in found)

    return read


def _capacity(functions: Functions) -> float | None:
    return functions.pipe_capacity_bytes or None


# -- the metrics

#: Per pipeline; samples read `model.tracker.Totals`.
_PIPELINE = (
    counter(
        "pipelined_runs_total",
        "Runs of the pipeline that have ended.",
        one("runs"),
        lambda totals, _: totals.traced,
    ),
    counter(
        "pipelined_failed_runs_total",
        "Runs of the pipeline that have failed, by the gravest reason of a stage.",
        each("reason", "failed", FAILURES),
        lambda totals, own: totals.failed_traced.get(own.values["reason"]),
    ),
    counter(
        "pipelined_interrupted_runs_total",
        "Runs of the pipeline that SIGINT, SIGTERM or SIGHUP ended; absent if there was none.",
        not_0(one("interrupted")),
    ),
    gauge("pipelined_runs_active", "Runs of the pipeline that are live now.", one("active")),
    counter(
        "pipelined_run_seconds_total",
        "Wall time of the pipeline's runs, live ones included.",
        one("run_seconds"),
    ),
    gauge(
        "pipelined_last_run_seconds",
        "Wall time of the run that ended last; absent until a run has ended.",
        one("last_run_seconds"),
    ),
    gauge(
        "pipelined_last_run_end_timestamp_seconds",
        "End of the run that ended last, as Unix time; absent until a run has ended.",
        one("last_run_end"),
    ),
    gauge(
        "pipelined_last_complete_run_end_timestamp_seconds",
        "End of the last run that is not known to have failed or been interrupted, as Unix time.",
        one("last_complete_end"),
    ),
    gauge(
        "pipelined_last_failed_run_end_timestamp_seconds",
        "End of the last run that failed for this reason, as Unix time; absent if none has.",
        known("reason", "last_failed_end", FAILURES),
    ),
    gauge(
        "pipelined_last_run_usual_ratio",
        "Wall time of the run that was stored last, divided by the usual of runs of the same cache"
        " state that read about as many bytes; absent until that is known.",
        one("last_usual_ratio"),
    ),
    counter(
        "pipelined_level_seconds_total",
        "Time in which exactly this many stages were on CPU at once.",
        each("level", "levels", {level: LEVELS.index(level) for level in LEVELS[:3]})
        + not_0(each("level", "levels", {level: LEVELS.index(level) for level in LEVELS[3:]})),
    ),
    counter(
        "pipelined_disk_wait_seconds_total",
        "Time in which a stage waited for disk, with (overlapped) or without another stage on CPU.",
        split("overlapped", true="disk_overlapped_seconds", false="disk_alone_seconds"),
    ),
    counter(
        "pipelined_file_faults_total",
        "Page faults of the pipeline's stages on mapped files.",
        not_0(tuple((Labels({"class": name}), _faults(name)) for name in STALL_CLASSES)),
    ),
)

#: Name, HELP text and kind of the metric whose label says where a nested pipeline lies.
_NESTED = (
    "pipelined_nested_info",
    "The outermost pipeline that the last run of a nested one lay in; always 1.",
    "gauge",
)

#: States that show what holds a stage back: they are there from its start.
_MAIN_STATES = tuple(state.name for state in STATE_TABLE if state.from_start)

#: Per stage; samples read `runs.StageCounters`.
_STAGE = (
    counter(
        "pipelined_state_seconds_total",
        "Time that the stage's threads spent in this state.",
        each("state", "states", _MAIN_STATES)
        + not_0(each("state", "states", [state for state in STATES if state not in _MAIN_STATES])),
    ),
    counter(
        "pipelined_system_cpu_seconds_total",
        "CPU time of the stage in the kernel: a part of its time in state cpu.",
        one("system_seconds"),
    ),
    counter(
        "pipelined_pipe_sleeps_total",
        "How often a thread of the stage fell asleep on a full or an empty pipe.",
        not_0(split("side", empty="sleeps_empty", full="sleeps_full")),
    ),
    counter(
        "pipelined_read_bytes_total",
        "Bytes that the stage read, via its pipes or (file) from files, sockets and terminals.",
        _via(pipe="pipe_in", file="file_read"),
    ),
    counter(
        "pipelined_written_bytes_total",
        "Bytes that the stage wrote, via its pipes or (file) to files, sockets and terminals.",
        _via(pipe="pipe_out", file="file_written"),
    ),
    counter(
        "pipelined_read_calls_total", "Read-like system calls of the stage.", one("read_calls")
    ),
    counter(
        "pipelined_write_calls_total", "Write-like system calls of the stage.", one("write_calls")
    ),
    counter(
        "pipelined_forks_total",
        "Processes that the stage started.",
        only_if(_has_children, one("forks")),
    ),
    counter(
        "pipelined_execs_total",
        "Programs that the stage's processes executed.",
        not_0(one("execs")),
    ),
    counter(
        "pipelined_exec_failures_total",
        "Failed execs of the stage; absent if there was none, or no hook can see them.",
        not_0(one("exec_failures")),
    ),
    counter(
        "pipelined_exited_children_total",
        "Processes that the stage started and that have exited.",
        only_if(_has_children, one("exited_children")),
    ),
    counter(
        "pipelined_exited_children_cpu_seconds_total",
        "CPU time of the stage's exited children.",
        only_if(_has_children, one("children_cpu_seconds")),
    ),
    counter(
        "pipelined_exited_children_lifetime_seconds_total",
        "Time from start to exit of the stage's exited children.",
        only_if(_has_children, one("children_lifetime_seconds")),
    ),
)

#: Per stage, from the `functions` tier: the help of each of `runs.HISTOGRAMS`, by its field. A
#: function that a stage has not called has no series.
_HISTOGRAM_HELP = {
    "pipe_writes": "Sizes of the stage's writes to pipes, as requested.",
    "pipe_reads": "Sizes of the stage's reads of pipes, as returned.",
    "file_reads": "Sizes of the stage's reads of files, as returned.",
    "file_read_seconds": "Duration of the stage's reads of files.",
    "pipe_fill": "How full the pipe was when each of the stage's writes to it began.",
}
#: Sizes: lines; small pieces; less than, and exactly, what stdio writes at a time; up to half a
#: pipe. Time (131 us, 1.05 ms, 16.8 ms): from the page cache, a fast disk, a slow one.
_SIZES, _TIMES = (512, 2048, 4096, 32768), (2**17 / 1e9, 2**20 / 1e9, 2**24 / 1e9)
#: Which of its edges each histogram is exported with, by field; of one without, sum and count are.
EXPORTED_EDGES: Mapping[str, tuple[float, ...]] = {
    "pipe_writes": _SIZES,
    "pipe_reads": _SIZES,
    "file_reads": _SIZES,
    "file_read_seconds": _TIMES,
    "pipe_fill": (),
}
#: The same tier's gauges; samples read `runs.Functions`.
_FUNCTION = (
    gauge(
        "pipelined_pipe_capacity_bytes",
        "Capacity of the pipe that the stage wrote to last.",
        ((NO_LABELS, _capacity),),
    ),
)

#: Per stage, from the `readahead` tier; samples read `runs.Readahead`.
_READAHEAD = (
    counter(
        "pipelined_stall_seconds_total",
        "Time that the stage's threads slept for disk while reading files, by the page that ended"
        " the wait, with (overlapped) or without another stage on CPU.",
        tuple(
            (Labels({"class": name, "overlapped": overlapped}), _stalls(name, value))
            for name in STALL_CLASSES
            for overlapped, value in (
                ("true", lambda seconds, _: seconds.overlapped),
                ("false", lambda seconds, _: seconds.alone),
            )
        ),
    ),
    counter(
        "pipelined_stalls_total",
        "How often a thread of the stage slept for disk while reading a file.",
        tuple(
            (Labels({"class": name}), _stalls(name, lambda _, stalls: sum(stalls)))
            for name in STALL_CLASSES
        ),
    ),
    counter(
        "pipelined_readahead_pages_total",
        "Pages of files that the stage's reads consumed, by how they came into the page cache;"
        " wasted pages were read ahead and never consumed.",
        only_if(attrgetter("read_pages"), each("class", "pages", ["warm"]))
        + only_if(_read_from_disk, each("class", "pages", ["hit", "late", "miss"]))
        + only_if(_read_ahead, each("class", "pages", ["wasted"])),
    ),
    counter(
        "pipelined_readahead_inserted_pages_total",
        "Pages that were read ahead of the stage's reads.",
        only_if(_read_ahead, one("inserted_pages")),
    ),
    counter(
        "pipelined_direct_read_bytes_total",
        "Bytes that the stage read past the page cache (O_DIRECT).",
        not_0(one("direct_bytes")),
    ),
)


# -- the collectors


class PipelineCollector(Collector):
    """Runs, levels and disk waits of each pipeline, and which one it lies in."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterator[Metric]:
        pipelines = [
            (_series_labels(series), totals) for series, totals in self._scrape.totals.items()
        ]
        yield from _of_pipelines(pipelines)


class StageCollector(Collector):
    """Where each stage's time went, what it moved, and what it started."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterator[Metric]:
        stages = [
            (
                of_pipeline | Labels({"position": str(position), "command": valid_text(command)}),
                stage,
            )
            for of_pipeline, totals in (
                (_series_labels(series), totals) for series, totals in self._scrape.totals.items()
            )
            for (position, command), stage in totals.stages.items()
        ]
        yield from _of_stages(stages)


def series_count(totals: Totals) -> int:
    """How many series the collectors export of one pipeline."""
    stages = [(NO_LABELS, stage) for stage in totals.stages.values()]
    families = (*_of_pipelines([(NO_LABELS, totals)]), *_of_stages(stages))
    return sum(len(family.samples) for family in families)


def _of_pipelines(pipelines: Sequence[tuple[Labels, Totals]]) -> Iterator[Metric]:
    """All metrics of pipelines that have these labels."""
    for row in _PIPELINE:
        yield _family(row, pipelines)
    family = OwnedMetric(*_NESTED)
    for labels, totals in pipelines:
        if totals.outermost is not None:
            family.add(labels, Labels({"outermost": valid_text(totals.outermost)}), 1)
    yield family


def _of_stages(stages: Sequence[tuple[Labels, StageCounters]]) -> Iterator[Metric]:
    """All metrics of stages that have these labels."""
    functions = [(labels, stage.functions) for labels, stage in stages if stage.functions]
    readahead = [(labels, stage.readahead) for labels, stage in stages if stage.readahead]
    for row in _STAGE:
        yield _family(row, stages)
    for kind in HISTOGRAMS:
        edges = EXPORTED_EDGES[kind.field]
        family = OwnedMetric(
            f"pipelined_{kind.name}",
            _HISTOGRAM_HELP[kind.field],
            "histogram" if edges else "summary",
        )
        for labels, called in functions:
            _add_histogram(family, labels, getattr(called, kind.field), edges)
        yield family
    for row in _FUNCTION:
        yield _family(row, functions)
    for row in _READAHEAD:
        yield _family(row, readahead)


def _family(row: Row, owners: Iterable[tuple[Labels, object]]) -> Metric:
    """The metric of `row` with its samples of every owner: a pipeline or a stage."""
    family = OwnedMetric(row.name, row.help, row.kind)
    for labels, owner in owners:
        for own, value_of in row.samples:
            value = value_of(owner)
            if value is not None:
                family.add(labels, own, value)
                if row.example and (run := row.example(owner, own)):
                    family.add_exemplar(
                        {"trace_id": run.trace_id, "run_id": run.run_id},
                        run.wall_seconds,
                        run.end,
                    )
    return family


def _add_histogram(
    family: OwnedMetric, labels: Labels, histogram: Histogram, edges: tuple[float, ...]
) -> None:
    """Its counts up to each of `edges`, which are some of its own."""
    if not histogram.count:
        return
    if edges:
        for edge in edges:
            family.add(labels, _le(edge), histogram.up_to(edge), "_bucket")
        family.add(labels, _le(math.inf), histogram.count, "_bucket")
    family.add(labels, NO_LABELS, histogram.count, "_count")
    family.add(labels, NO_LABELS, histogram.sum, "_sum")


@cache
def _le(edge: float) -> Labels:
    return Labels({"le": str(floatToGoString(edge))})  # type: ignore[no-untyped-call]


def _series_labels(series: Series) -> Labels:
    return Labels(
        {
            "pipeline": valid_text(series.pipeline),
            "nested": "true" if series.nested else "false",
            "unit": valid_text(series.unit),
        }
    )
