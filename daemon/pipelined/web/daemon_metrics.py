# SPDX-License-Identifier: Apache-2.0
"""What the daemon exports of itself: one collector per concern."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from pipelined.history.history import History
    from pipelined.http_port.web_config_file import WebConfigFile
    from pipelined.observer import Observer
    from pipelined.sinks import Sinks
    from pipelined.web.scrape import Scrape

__all__ = [
    "BuildCollector",
    "HistoryCollector",
    "HookCollector",
    "LossCollector",
    "SeriesCollector",
    "SinkCollector",
    "SweepCollector",
    "SweepCostCollector",
    "WebConfigCollector",
]


class SweepCollector(Collector):
    """Begins the scrape with a sweep. Must be the first collector."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterator[Metric]:
        self._scrape.begin()
        return iter(())


class SweepCostCollector(Collector):
    """What sweeps cost, and how many failed: also if that of this scrape did."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def collect(self) -> Iterator[Metric]:
        stats = self._observer.sweep_stats
        yield SummaryMetricFamily(
            "pipelined_sweep_seconds",
            "Time spent reading the BPF maps.",
            count_value=stats.count,
            sum_value=stats.seconds_total,
        )
        yield CounterMetricFamily(
            "pipelined_sweep_failures_total",
            "Sweeps that failed; the next one catches up.",
            value=stats.failures,
        )


class HookCollector(Collector):
    """Which hooks are attached."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def collect(self) -> Iterator[Metric]:
        attached = GaugeMetricFamily(
            "pipelined_hook_attached",
            "1 if the hook is attached, 0 if not; pipelined doctor reports the reason.",
            labels=["hook", "tier", "method"],
        )
        for hook in self._observer.hooks():
            if not hook.pending:
                attached.add_metric([hook.name, hook.tier, hook.method], int(hook.attached))
        yield attached


class LossCollector(Collector):
    """What could not be recorded, and how full the BPF maps are."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def collect(self) -> Iterator[Metric]:
        lost = CounterMetricFamily(
            "pipelined_lost_total",
            "What could not be recorded, by kind; if it is not 0, figures are incomplete.",
            labels=["what"],
        )
        for what, count in self._observer.lost().items():
            lost.add_metric([what], count)
        entries = GaugeMetricFamily(
            "pipelined_map_entries", "Entries in use in the BPF map.", labels=["map"]
        )
        capacity = GaugeMetricFamily(
            "pipelined_map_capacity", "Entries that the BPF map can hold.", labels=["map"]
        )
        for use in self._observer.maps():
            entries.add_metric([use.name], use.entries)
            capacity.add_metric([use.name], use.capacity)
        yield lost
        yield CounterMetricFamily(
            "pipelined_missed_switches_total",
            "Context switches to threads of stages that the kernel did not trace. States are"
            " corrected by the kernel's CPU time, levels only in part.",
            value=self._observer.missed_switches(),
        )
        missed = CounterMetricFamily(
            "pipelined_missed_events_total",
            "Events for which the kernel did not run the hook's program.",
            labels=["hook"],
        )
        for hook, count in self._observer.missed_events().items():
            missed.add_metric([hook], count)
        yield missed
        yield entries
        yield capacity


class SeriesCollector(Collector):
    """How much of the budget of series pipelines use, and which have no series of their own."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterator[Metric]:
        use = self._scrape.use
        if use is None:
            return
        for name, documentation, value in (
            (
                "pipelined_series_budget",
                "How many series pipelines may have: --metrics.max-series, less 500 for the"
                " daemon's own.",
                use.budget,
            ),
            (
                "pipelined_series_used",
                "How many series with the label pipeline there are, (other) included.",
                use.used,
            ),
            (
                "pipelined_folded_pipelines",
                "Pipelines since the start without series of their own: they are in (other).",
                use.folded,
            ),
            (
                "pipelined_folded_heaviest_run_seconds",
                "Run time of the heaviest of them, halved every three days.",
                use.heaviest_folded_seconds,
            ),
        ):
            yield GaugeMetricFamily(name, documentation, value=value)


class HistoryCollector(Collector):
    """How many finished runs are stored, and what went wrong with the files."""

    def __init__(self, history: History) -> None:
        self._history = history

    def collect(self) -> Iterator[Metric]:
        stats = self._history.stats()
        if stats.runs is not None:
            yield GaugeMetricFamily(
                "pipelined_history_runs", "Finished runs in the history.", value=stats.runs
            )
        if stats.size_bytes is not None:
            yield GaugeMetricFamily(
                "pipelined_history_size_bytes",
                "Size of the history's files.",
                value=stats.size_bytes,
            )
        yield CounterMetricFamily(
            "pipelined_history_errors_total",
            "How often the history could not be opened or written.",
            value=stats.errors,
        )
        disruptions = CounterMetricFamily(
            "pipelined_history_disruptions_total",
            "How often the history's files were removed or replaced while in use, or set aside.",
            labels=["reason"],
        )
        for reason, count in stats.disruptions.items():
            disruptions.add_metric([reason], count)
        yield disruptions


class SinkCollector(Collector):
    """How many finished runs did not go out of the daemon as they should."""

    def __init__(self, sinks: Sinks) -> None:
        self._sinks = sinks

    def collect(self) -> Iterator[Metric]:
        dropped = CounterMetricFamily(
            "pipelined_sink_dropped_runs_total",
            "Finished runs that a sink did not write: too many at once, or it could not.",
            labels=["sink"],
        )
        for sink, runs in self._sinks.dropped().items():
            dropped.add_metric([sink], runs)
        yield dropped


class WebConfigCollector(Collector):
    """Whether the file of `--web.config.file` is the one in use."""

    def __init__(self, web_config: WebConfigFile) -> None:
        self._web_config = web_config

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "pipelined_config_last_reload_successful",
            "1 if the web configuration was valid when it was last read, 0 if an older one is in"
            " use.",
            value=int(self._web_config.last_reload_successful),
        )
        yield GaugeMetricFamily(
            "pipelined_config_last_reload_success_timestamp_seconds",
            "When the web configuration in use was read, as Unix time.",
            value=self._web_config.last_reload_success_time,
        )
        if (expiry := self._web_config.certificate_expiry) is not None:
            yield GaugeMetricFamily(
                "pipelined_web_tls_certificate_expiry_timestamp_seconds",
                "When the port's certificate expires, as Unix time.",
                value=expiry,
            )


class BuildCollector(Collector):
    """The versions, and what loaded the BPF programs."""

    def __init__(self, version: str, loader: str) -> None:
        self._version = version
        self._loader = loader

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily(
            "pipelined_build",
            "Versions of pipelined and Python, and the loader of the BPF programs; always 1.",
            value={
                "version": self._version,
                "python": platform.python_version(),
                "loader": self._loader,
            },
        )
