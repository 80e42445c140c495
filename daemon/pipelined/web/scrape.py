# SPDX-License-Identifier: Apache-2.0
"""One scrape: the observer is swept once, and a collector that fails does not fail the others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from pipelined.model.tracker import SeriesUse
    from pipelined.model.views import Totals
    from pipelined.observer import Observer
    from pipelined.runs import Series

__all__ = ["GuardedCollectors", "Scrape"]


class Scrape:
    """The observer during one scrape: all collectors report from the same totals."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.totals: Mapping[Series, Totals] = {}
        self.use: SeriesUse | None = None
        """How much of the budget these totals use; None before the first scrape."""

    def begin(self) -> None:
        """Sweep, and keep the totals until `end`: those of the sweep before, if this one fails."""
        try:
            self._observer.sweep()
        finally:
            self.totals, self.use = self._observer.counted()

    def end(self) -> None:
        """Forget the totals: they are several times as large as what they were made of."""
        self.totals = {}


class GuardedCollectors(Collector):
    """Several collectors as one, which also reports the success and duration of each.

    A collector that raises is reported with a success of 0 and its traceback is logged; its
    metrics are missing from the scrape. Metrics without a sample are left out.
    """

    def __init__(
        self,
        collectors: Mapping[str, Collector],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._collectors = collectors
        self._clock = clock
        self._logger = logging.getLogger(__name__)

    def collect(self) -> Iterator[Metric]:
        success = GaugeMetricFamily(
            "pipelined_collector_success",
            "1 if the collector reported in this scrape, 0 if it failed.",
            labels=["collector"],
        )
        duration = GaugeMetricFamily(
            "pipelined_collector_duration_seconds",
            "Time that the collector took in this scrape.",
            labels=["collector"],
        )
        for name, collector in self._collectors.items():
            began = self._clock()
            families: list[Metric] = []
            try:
                families = [family for family in collector.collect() if family.samples]
                succeeded = 1
            except Exception:
                self._logger.exception("collector %s failed; its metrics are missing", name)
                succeeded = 0
            success.add_metric([name], succeeded)
            duration.add_metric([name], self._clock() - began)
            yield from families
        yield success
        yield duration
