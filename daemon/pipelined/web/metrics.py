# SPDX-License-Identifier: Apache-2.0
"""`/metrics`: which collectors report to Prometheus, and the text of a scrape.

Where a metric is added:

- of a pipeline or a stage: a row in a table of `pipeline_metrics`; it costs a series for each of
  them, so it has to answer a question that no other metric does;
- of the daemon itself (sweeps, hooks, losses, history, sinks, configuration): a collector in
  `daemon_metrics`;
- always: an entry in docs/METRICS.md (a test compares both lists), and a panel or a reason for
  none in tests/unit/test_dashboards.py.

A new collector is listed in `Metrics`. `scrape` makes the series of one scrape agree, and keeps
one failing collector from failing the others. Label values are signatures and command names, never
arguments or paths.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from pipelined import __version__
from pipelined.malloc import trim
from pipelined.web.daemon_metrics import (
    BuildCollector,
    HistoryCollector,
    HookCollector,
    LossCollector,
    SeriesCollector,
    SinkCollector,
    SweepCollector,
    SweepCostCollector,
    WebConfigCollector,
)
from pipelined.web.exposition import choose_format
from pipelined.web.pipeline_metrics import PipelineCollector, StageCollector
from pipelined.web.scrape import GuardedCollectors, Scrape

if TYPE_CHECKING:
    from pipelined.history.history import History
    from pipelined.http_port.web_config_file import WebConfigFile
    from pipelined.observer import Observer
    from pipelined.sinks import Sinks

__all__ = ["Metrics"]

#: Making a text of this size (bytes) takes several times as much, which the kernel gets back.
_MUCH = 1 << 18


class Metrics:
    """All collectors, on a registry of their own, and the text of a scrape of them."""

    def __init__(
        self,
        observer: Observer,
        history: History | None = None,
        web_config: WebConfigFile | None = None,
        sinks: Sinks | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Without `history`, `web_config` or `sinks`, their metrics are absent."""
        self._scrape = scrape = Scrape(observer)
        collectors: dict[str, Collector] = {
            "sweep": SweepCollector(scrape),
            "sweep_cost": SweepCostCollector(observer),
            "pipelines": PipelineCollector(scrape),
            "stages": StageCollector(scrape),
            "hooks": HookCollector(observer),
            "losses": LossCollector(observer),
            "series": SeriesCollector(scrape),
            "build": BuildCollector(__version__, observer.loader),
            "process": ProcessCollector(registry=None),
        }
        if history:
            collectors["history"] = HistoryCollector(history)
        if web_config:
            collectors["web_config"] = WebConfigCollector(web_config)
        if sinks:
            collectors["sinks"] = SinkCollector(sinks)
        self.registry = CollectorRegistry()
        self.registry.register(GuardedCollectors(collectors, clock))
        self._one_scrape = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        """How many wait for a rendering, or make one."""
        self._begun = 0
        """How many renderings have begun."""
        self._latest: tuple[int, str, bytes] | None = None
        """Its number, type and text; kept only for those that wait."""

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Scrape. Returns the text in the format that the Accept header asks for, and its type.

        If the header cannot be parsed, the format is Prometheus' plain text. A scrape that had to
        wait takes the text of another one that began after it came, if the format is the same: so
        none waits for more than the rendering that was under way and one that answers it.
        """
        encode, content_type = choose_format(accept)
        came = self._begun
        with self._counted(), self._one_scrape:
            if self._latest and self._latest[0] > came and self._latest[1] == content_type:
                return self._latest[2], content_type
            self._begun += 1
            try:
                text = encode(self.registry)
            finally:
                self._scrape.end()
            self._latest = (self._begun, content_type, text)
            if len(text) > _MUCH:
                trim()
            return text, content_type

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._counting:
            self._waiting += 1
        try:
            yield
        finally:
            with self._counting:
                self._waiting -= 1
                if not self._waiting:
                    self._latest = None
