# SPDX-License-Identifier: Apache-2.0
"""What is exported of pipelines and their stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from pipelined.runs import LEVELS, PAGE_CLASSES, STALL_CLASSES, STATES, Series

if TYPE_CHECKING:
    from pipelined.model.tracker import Totals
    from pipelined.runs import Histogram, StageCounters
    from pipelined.web.scrape import Scrape

__all__ = ["PipelineCollector", "StageCollector"]

Labels = dict[str, str]

#: Histograms of the `functions` tier: name, help, field of `runs.Functions`.
_HISTOGRAMS = (
    (
        "pipelined_pipe_write_size_bytes",
        "Sizes of the stage's writes to pipes, as it asked for them.",
        "pipe_writes",
    ),
    (
        "pipelined_pipe_read_size_bytes",
        "Sizes of the stage's reads of pipes, as they returned.",
        "pipe_reads",
    ),
    (
        "pipelined_file_read_size_bytes",
        "Sizes of the stage's reads of files, as they returned.",
        "file_reads",
    ),
    (
        "pipelined_file_read_seconds",
        "How long the stage's reads of files took.",
        "file_read_seconds",
    ),
    (
        "pipelined_pipe_fill_ratio",
        "How full the pipe was when each of the stage's writes to it began.",
        "pipe_fill",
    ),
)

#: Counters of the `readahead` tier.
_READAHEAD = {
    "pipelined_stall_seconds_total": "Time that the stage's threads slept for disk as readers of"
    " files, by what ended the wait, and with (overlapped) or without another stage on CPU.",
    "pipelined_stalls_total": "How often a thread of the stage slept for disk as a reader.",
    "pipelined_readahead_pages_total": "Pages of files that the stage's reads consumed, by how"
    " they came to be in the page cache; wasted ones were read ahead and never consumed.",
    "pipelined_read_pages_total": "Pages of files that the stage's reads consumed.",
    "pipelined_readahead_inserted_pages_total": "Pages that were read ahead of the stage's reads.",
    "pipelined_direct_read_bytes_total": "Bytes that the stage read past the page cache.",
    "pipelined_file_faults_total": "Faults of the stage on pages of mapped files.",
}

#: Counters with no labels beyond the stage's: name, help, field of StageCounters.
_STAGE_COUNTERS = (
    (
        "pipelined_read_bytes_total",
        "Bytes that the stage's read calls returned, from pipes, files and sockets.",
        "read_bytes",
    ),
    (
        "pipelined_written_bytes_total",
        "Bytes that the stage's write calls took, to pipes, files and sockets.",
        "written_bytes",
    ),
    ("pipelined_read_calls_total", "Read-like system calls of the stage.", "read_calls"),
    ("pipelined_write_calls_total", "Write-like system calls of the stage.", "write_calls"),
    ("pipelined_forks_total", "Processes that the stage started.", "forks"),
    ("pipelined_execs_total", "Programs that the stage's processes became.", "execs"),
    (
        "pipelined_exec_failures_total",
        "Execs of the stage that failed; absent where no hook can see them.",
        "exec_failures",
    ),
    (
        "pipelined_exited_children_total",
        "Processes that the stage started and that have exited.",
        "exited_children",
    ),
    (
        "pipelined_exited_children_cpu_seconds_total",
        "CPU time of the stage's exited children.",
        "children_cpu_seconds",
    ),
    (
        "pipelined_exited_children_lifetime_seconds_total",
        "Time from start to exit of the stage's exited children.",
        "children_lifetime_seconds",
    ),
)

#: What a pipeline has beside levels and disk waits: family, name, help, field of Totals.
_PIPELINE_VALUES: tuple[tuple[Callable[[str, str], Metric], str, str, str], ...] = (
    (
        CounterMetricFamily,
        "pipelined_runs_total",
        "Runs of the pipeline that have ended.",
        "runs",
    ),
    (GaugeMetricFamily, "pipelined_runs_active", "Runs of the pipeline now live.", "active"),
    (
        CounterMetricFamily,
        "pipelined_run_seconds_total",
        "Wall time of the pipeline's runs, live ones included.",
        "run_seconds",
    ),
    (
        GaugeMetricFamily,
        "pipelined_last_run_seconds",
        "Wall time of the run that ended last; absent until one has.",
        "last_run_seconds",
    ),
    (
        GaugeMetricFamily,
        "pipelined_last_run_end_timestamp_seconds",
        "When the run that ended last did, as Unix time; absent until one has.",
        "last_run_end",
    ),
)


class PipelineCollector(Collector):
    """Runs, levels and disk waits of each pipeline."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterator[Metric]:
        pipelines = [
            (_series_labels(series), totals) for series, totals in self._scrape.totals.items()
        ]
        for family, name, documentation, field in _PIPELINE_VALUES:
            yield _filled(family(name, documentation), name, field, pipelines)

        levels = CounterMetricFamily(
            "pipelined_level_seconds_total",
            "Time in which exactly this many stages were on CPU at once.",
        )
        disk = CounterMetricFamily(
            "pipelined_disk_wait_seconds_total",
            "Time in which a stage waited for disk, with (overlapped) or without"
            " another stage on CPU.",
        )
        for labels, totals in pipelines:
            for level, seconds in zip(LEVELS, totals.levels, strict=True):
                _add(levels, "pipelined_level_seconds_total", {**labels, "level": level}, seconds)
            for overlapped, seconds in (
                ("true", totals.disk_overlapped_seconds),
                ("false", totals.disk_alone_seconds),
            ):
                key = {**labels, "overlapped": overlapped}
                _add(disk, "pipelined_disk_wait_seconds_total", key, seconds)
        yield levels
        yield disk


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
        yield self._states(stages)
        yield self._pair(
            "pipelined_cpu_seconds_total",
            "CPU time of the stage.",
            "mode",
            (("user", "user_seconds"), ("system", "system_seconds")),
            stages,
        )
        yield self._pair(
            "pipelined_pipe_sleeps_total",
            "How often a thread of the stage fell asleep on a full or an empty pipe.",
            "side",
            (("empty", "sleeps_empty"), ("full", "sleeps_full")),
            stages,
        )
        for name, documentation, field in _STAGE_COUNTERS:
            yield _filled(CounterMetricFamily(name, documentation), name, field, stages)
        yield from self._histograms(stages)
        yield from self._readahead(stages)

    @staticmethod
    def _states(stages: Iterable[tuple[Labels, StageCounters]]) -> Metric:
        name = "pipelined_state_seconds_total"
        family = CounterMetricFamily(name, "Time that the stage's threads spent in this state.")
        for labels, stage in stages:
            for state in STATES:
                _add(family, name, {**labels, "state": state}, stage.states[state])
        return family

    @staticmethod
    def _pair(
        name: str,
        documentation: str,
        label: str,
        fields: Iterable[tuple[str, str]],
        stages: Iterable[tuple[Labels, StageCounters]],
    ) -> Metric:
        """A counter split in two by `label`; `fields` are its values and their sources."""
        family = CounterMetricFamily(name, documentation)
        for labels, stage in stages:
            for value, field in fields:
                _add(family, name, {**labels, label: value}, getattr(stage, field))
        return family

    @staticmethod
    def _histograms(stages: Sequence[tuple[Labels, StageCounters]]) -> Iterator[Metric]:
        """Only of stages that have called the function: most have not called most of them."""
        for name, documentation, field in _HISTOGRAMS:
            family = HistogramMetricFamily(name, documentation)
            for labels, stage in stages:
                if stage.functions:
                    _add_histogram(family, name, labels, getattr(stage.functions, field))
            if family.samples:
                yield family
        name = "pipelined_pipe_capacity_bytes"
        capacity = GaugeMetricFamily(name, "What the pipe holds that the stage wrote to last.")
        for labels, stage in stages:
            if stage.functions and stage.functions.pipe_capacity_bytes:
                _add(capacity, name, labels, stage.functions.pipe_capacity_bytes)
        if capacity.samples:
            yield capacity

    @staticmethod
    def _readahead(stages: Sequence[tuple[Labels, StageCounters]]) -> Iterator[Metric]:
        """Nothing where the tier is off; no stalls and faults of a class that never came."""
        readers = [(labels, stage.readahead) for labels, stage in stages if stage.readahead]
        families = {
            name: CounterMetricFamily(name, documentation)
            for name, documentation in _READAHEAD.items()
        }

        def add(name: str, labels: Labels, value: float) -> None:
            _add(families[name], name, labels, value)

        for labels, found in readers:
            for page_class in PAGE_CLASSES:
                key = {**labels, "class": page_class}
                add("pipelined_readahead_pages_total", key, found.pages[page_class])
            add("pipelined_read_pages_total", labels, found.read_pages)
            add("pipelined_readahead_inserted_pages_total", labels, found.inserted_pages)
            add("pipelined_direct_read_bytes_total", labels, found.direct_bytes)
            for stall_class in STALL_CLASSES:
                if found.faults[stall_class]:
                    key = {**labels, "class": stall_class}
                    add("pipelined_file_faults_total", key, found.faults[stall_class])
                stalls = found.stalls[stall_class]
                if not stalls.count:
                    continue
                for overlapped, count, seconds in (
                    ("true", stalls.overlapped, stalls.overlapped_seconds),
                    ("false", stalls.alone, stalls.alone_seconds),
                ):
                    key = {**labels, "class": stall_class, "overlapped": overlapped}
                    add("pipelined_stalls_total", key, count)
                    add("pipelined_stall_seconds_total", key, seconds)
        yield from families.values()


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


def _add(family: Metric, name: str, labels: Labels, value: float) -> None:
    """Append a sample, past the checks of `add_metric`, which would cost as much again."""
    family.samples.append(Sample(name, labels, value))


def _add_histogram(family: Metric, name: str, labels: Labels, histogram: Histogram) -> None:
    if not histogram.count:
        return
    below = 0
    for edge, count in zip(histogram.edges, histogram.counts, strict=False):
        below += count
        _add(family, f"{name}_bucket", {**labels, "le": _edge(edge)}, below)
    _add(family, f"{name}_bucket", {**labels, "le": "+Inf"}, histogram.count)
    _add(family, f"{name}_count", labels, histogram.count)
    _add(family, f"{name}_sum", labels, histogram.sum)


@cache
def _edge(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def _filled(
    family: Metric,
    name: str,
    field: str,
    owners: Iterable[tuple[Labels, Totals]] | Iterable[tuple[Labels, StageCounters]],
) -> Metric:
    """The family with a sample from `field` of each owner; None is no sample."""
    value_of = attrgetter(field)
    for labels, owner in owners:
        value = value_of(owner)
        if value is not None:
            _add(family, name, labels, value)
    return family
