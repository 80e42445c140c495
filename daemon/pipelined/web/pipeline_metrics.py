# SPDX-License-Identifier: Apache-2.0
"""What is exported of pipelines and of their stages: one row per metric in the tables below.

A row has a metric's kind, name and HELP text, and its samples: each is the labels that it adds to
those of the pipeline or stage, and how to read its value. A value of None is no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from pipelined.runs import HISTOGRAMS, LEVELS, PAGE_CLASSES, STALL_CLASSES, STATES

if TYPE_CHECKING:
    from pipelined.model.tracker import Totals
    from pipelined.runs import Functions, Histogram, Readahead, Series, Stalls
    from pipelined.web.scrape import Scrape

__all__ = ["PipelineCollector", "StageCollector", "series_count"]

Labels = dict[str, str]
Value = Callable[[Any], float | None]
Samples = tuple[tuple[Labels, Value], ...]


class _Row(NamedTuple):
    """One metric."""

    kind: Callable[[str, str], Metric]
    name: str
    help: str
    samples: Samples


_counter = partial(_Row, CounterMetricFamily)
_gauge = partial(_Row, GaugeMetricFamily)


# -- how a row reads its samples


def _one(field: str) -> Samples:
    """A single sample, without a label of its own."""
    return (({}, attrgetter(field)),)


def _split(label: str, **fields: str) -> Samples:
    """A sample per value of `label`, each from a field of its own."""
    return tuple(({label: value}, attrgetter(field)) for value, field in fields.items())


def _each(label: str, field: str, keys: Iterable[str] | Mapping[str, int]) -> Samples:
    """A sample per item of `field`: `keys` has the label's values, and their indexes if given."""
    indexes = keys if isinstance(keys, Mapping) else {key: key for key in keys}
    return tuple(({label: value}, _item(field, index)) for value, index in indexes.items())


def _item(field: str, index: str | int) -> Value:
    return lambda owner: getattr(owner, field)[index]


def _faults(stall_class: str) -> Value:
    def read(readahead: Readahead) -> float | None:
        return readahead.faults[stall_class] or None

    return read


def _stalls(overlapped: str, alone: str) -> Samples:
    """Both fields of `Stalls`, for each class of stalls that occurred."""

    def reader(stall_class: str, field: str) -> Value:
        def read(readahead: Readahead) -> float | None:
            stalls: Stalls = readahead.stalls[stall_class]
            return getattr(stalls, field) if stalls.count else None

        return read

    return tuple(
        ({"class": stall_class, "overlapped": value}, reader(stall_class, field))
        for stall_class in STALL_CLASSES
        for value, field in (("true", overlapped), ("false", alone))
    )


def _capacity(functions: Functions) -> float | None:
    return functions.pipe_capacity_bytes or None


# -- the metrics

#: Per pipeline; samples read `model.tracker.Totals`.
_PIPELINE = (
    _counter("pipelined_runs_total", "Runs of the pipeline that have ended.", _one("runs")),
    _gauge("pipelined_runs_active", "Runs of the pipeline that are live now.", _one("active")),
    _counter(
        "pipelined_run_seconds_total",
        "Wall time of the pipeline's runs, live ones included.",
        _one("run_seconds"),
    ),
    _gauge(
        "pipelined_last_run_seconds",
        "Wall time of the run that ended last; absent until a run has ended.",
        _one("last_run_seconds"),
    ),
    _gauge(
        "pipelined_last_run_end_timestamp_seconds",
        "End of the run that ended last, as Unix time; absent until a run has ended.",
        _one("last_run_end"),
    ),
    _counter(
        "pipelined_level_seconds_total",
        "Time in which exactly this many stages were on CPU at once.",
        _each("level", "levels", {level: index for index, level in enumerate(LEVELS)}),
    ),
    _counter(
        "pipelined_disk_wait_seconds_total",
        "Time in which a stage waited for disk, with (overlapped) or without another stage on CPU.",
        _split("overlapped", true="disk_overlapped_seconds", false="disk_alone_seconds"),
    ),
)

#: Per stage; samples read `runs.StageCounters`.
_STAGE = (
    _counter(
        "pipelined_state_seconds_total",
        "Time that the stage's threads spent in this state.",
        _each("state", "states", STATES),
    ),
    _counter(
        "pipelined_cpu_seconds_total",
        "CPU time of the stage.",
        _split("mode", user="user_seconds", system="system_seconds"),
    ),
    _counter(
        "pipelined_pipe_sleeps_total",
        "How often a thread of the stage fell asleep on a full or an empty pipe.",
        _split("side", empty="sleeps_empty", full="sleeps_full"),
    ),
    _counter(
        "pipelined_read_bytes_total",
        "Bytes that the stage's read calls returned, from pipes, files and sockets.",
        _one("read_bytes"),
    ),
    _counter(
        "pipelined_written_bytes_total",
        "Bytes that the stage's write calls wrote, to pipes, files and sockets.",
        _one("written_bytes"),
    ),
    _counter(
        "pipelined_read_calls_total", "Read-like system calls of the stage.", _one("read_calls")
    ),
    _counter(
        "pipelined_write_calls_total", "Write-like system calls of the stage.", _one("write_calls")
    ),
    _counter("pipelined_forks_total", "Processes that the stage started.", _one("forks")),
    _counter(
        "pipelined_execs_total", "Programs that the stage's processes executed.", _one("execs")
    ),
    _counter(
        "pipelined_exec_failures_total",
        "Failed execs of the stage; absent if no hook can see them.",
        _one("exec_failures"),
    ),
    _counter(
        "pipelined_exited_children_total",
        "Processes that the stage started and that have exited.",
        _one("exited_children"),
    ),
    _counter(
        "pipelined_exited_children_cpu_seconds_total",
        "CPU time of the stage's exited children.",
        _one("children_cpu_seconds"),
    ),
    _counter(
        "pipelined_exited_children_lifetime_seconds_total",
        "Time from start to exit of the stage's exited children.",
        _one("children_lifetime_seconds"),
    ),
)

#: Per stage, from the `functions` tier: the help of each of `runs.HISTOGRAMS`, by its field. A
#: function that a stage has not called has no series: most stages have not called most of them.
_HISTOGRAM_HELP = {
    "pipe_writes": "Sizes of the stage's writes to pipes, as requested.",
    "pipe_reads": "Sizes of the stage's reads of pipes, as returned.",
    "file_reads": "Sizes of the stage's reads of files, as returned.",
    "file_read_seconds": "Duration of the stage's reads of files.",
    "pipe_fill": "How full the pipe was when each of the stage's writes to it began.",
}
#: The same tier's gauges; samples read `runs.Functions`.
_FUNCTION = (
    _gauge(
        "pipelined_pipe_capacity_bytes",
        "Capacity of the pipe that the stage wrote to last.",
        (({}, _capacity),),
    ),
)

#: Per stage, from the `readahead` tier; samples read `runs.Readahead`. A class of stalls or faults
#: that never occurred has no series.
_READAHEAD = (
    _counter(
        "pipelined_stall_seconds_total",
        "Time that the stage's threads slept for disk while reading files, by the page that ended"
        " the wait, with (overlapped) or without another stage on CPU.",
        _stalls("overlapped_seconds", "alone_seconds"),
    ),
    _counter(
        "pipelined_stalls_total",
        "How often a thread of the stage slept for disk while reading a file.",
        _stalls("overlapped", "alone"),
    ),
    _counter(
        "pipelined_readahead_pages_total",
        "Pages of files that the stage's reads consumed, by how they came into the page cache;"
        " wasted pages were read ahead and never consumed.",
        _each("class", "pages", PAGE_CLASSES),
    ),
    _counter(
        "pipelined_read_pages_total",
        "Pages of files that the stage's reads consumed.",
        _one("read_pages"),
    ),
    _counter(
        "pipelined_readahead_inserted_pages_total",
        "Pages that were read ahead of the stage's reads.",
        _one("inserted_pages"),
    ),
    _counter(
        "pipelined_direct_read_bytes_total",
        "Bytes that the stage read past the page cache (O_DIRECT).",
        _one("direct_bytes"),
    ),
    _counter(
        "pipelined_file_faults_total",
        "Page faults of the stage on mapped files.",
        tuple(({"class": stall_class}, _faults(stall_class)) for stall_class in STALL_CLASSES),
    ),
)


# -- the collectors


class PipelineCollector(Collector):
    """Runs, levels and disk waits of each pipeline."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterator[Metric]:
        pipelines = [
            (_series_labels(series), totals) for series, totals in self._scrape.totals.items()
        ]
        for row in _PIPELINE:
            yield _family(row, pipelines)


class StageCollector(Collector):
    """Where each stage's time went, what it moved, and what it started."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterator[Metric]:
        stages = [
            ({**labels, "position": str(position), "command": _text(command)}, stage)
            for labels, totals in (
                (_series_labels(series), totals) for series, totals in self._scrape.totals.items()
            )
            for (position, command), stage in totals.stages.items()
        ]
        functions = [(labels, stage.functions) for labels, stage in stages if stage.functions]
        readahead = [(labels, stage.readahead) for labels, stage in stages if stage.readahead]
        for row in _STAGE:
            yield _family(row, stages)
        for kind in HISTOGRAMS:
            histogram = HistogramMetricFamily(f"pipelined_{kind.name}", _HISTOGRAM_HELP[kind.field])
            for labels, called in functions:
                _add_histogram(histogram, labels, getattr(called, kind.field))
            yield histogram
        for row in _FUNCTION:
            yield _family(row, functions)
        for row in _READAHEAD:
            yield _family(row, readahead)


def series_count(totals: Totals) -> int:
    """How many series the collectors export of one pipeline."""
    stages = totals.stages.values()
    tiers = [(_PIPELINE, [totals]), (_STAGE, stages)]
    functions = [stage.functions for stage in stages if stage.functions]
    tiers += [(_FUNCTION, functions)]
    tiers += [(_READAHEAD, [stage.readahead for stage in stages if stage.readahead])]
    histograms = [getattr(called, kind.field) for called in functions for kind in HISTOGRAMS]
    return sum(
        value_of(owner) is not None
        for rows, owners in tiers
        for owner in owners
        for row in rows
        for _, value_of in row.samples
    ) + sum(len(histogram.edges) + 3 for histogram in histograms if histogram.count)


def _family(row: _Row, owners: Iterable[tuple[Labels, object]]) -> Metric:
    """The metric of `row` with its samples of every owner: a pipeline or a stage."""
    family = row.kind(row.name, row.help)
    # Appended past the checks of `add_metric`, which would cost as much again.
    add = family.samples.append
    for labels, owner in owners:
        for own_labels, value_of in row.samples:
            value = value_of(owner)
            if value is not None:
                add(Sample(row.name, {**labels, **own_labels}, value))
    return family


def _add_histogram(family: Metric, labels: Labels, histogram: Histogram) -> None:
    if not histogram.count:
        return
    add = family.samples.append
    below = 0
    for edge, count in zip(histogram.edges, histogram.counts, strict=False):
        below += count
        add(Sample(f"{family.name}_bucket", {**labels, "le": _edge(edge)}, below))
    add(Sample(f"{family.name}_bucket", {**labels, "le": "+Inf"}, histogram.count))
    add(Sample(f"{family.name}_count", labels, histogram.count))
    add(Sample(f"{family.name}_sum", labels, histogram.sum))


@cache
def _edge(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def _series_labels(series: Series) -> Labels:
    return {
        "pipeline": _text(series.pipeline),
        "nested": "true" if series.nested else "false",
        "unit": _text(series.unit),
    }


def _text(value: str) -> str:
    """`value` as valid Unicode: one odd command name must not make a scrape unreadable."""
    if value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode("utf-8")
