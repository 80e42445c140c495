# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads: one collector a concern, on a registry of their own.

A scrape sweeps once, takes the totals once, and then lets every collector report from
them, so that the series of one scrape agree. A collector that fails says so in
`pipelined_collector_success` and leaves the others alone. docs/METRICS.md describes
every metric; label values are signatures and command names, never arguments or paths.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from pipelined import __version__
from pipelined.web.daemon_metrics import (
    BuildCollector,
    HistoryCollector,
    HookCollector,
    LossCollector,
    SweepCollector,
    WebConfigCollector,
)
from pipelined.web.pipeline_metrics import PipelineCollector, StageCollector
from pipelined.web.scrape import GuardedCollectors, Scrape

if TYPE_CHECKING:
    from pipelined.history.history import History
    from pipelined.http_port.web_config import WebConfigFile
    from pipelined.observer import Observer

__all__ = ["Metrics"]


class Metrics:
    """The registry and the scrapes of it."""

    def __init__(
        self,
        observer: Observer,
        history: History | None = None,
        web_config: WebConfigFile | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Without `history` or `web_config` their metrics are absent."""
        scrape = Scrape(observer)
        collectors: dict[str, Collector] = {
            "sweep": SweepCollector(observer, scrape),
            "pipelines": PipelineCollector(scrape),
            "stages": StageCollector(scrape),
            "hooks": HookCollector(observer),
            "losses": LossCollector(observer),
            "build": BuildCollector(__version__, observer.loader),
            "process": ProcessCollector(registry=None),
        }
        if history:
            collectors["history"] = HistoryCollector(history)
        if web_config:
            collectors["web_config"] = WebConfigCollector(web_config)
        self.registry = CollectorRegistry()
        self.registry.register(GuardedCollectors(collectors, clock))
        self._one_scrape = threading.Lock()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Scrape: the text in the format that the Accept header asks for, and its type.

        An Accept header that makes no sense gets the plain Prometheus text format.
        """
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no number
            encode, content_type = choose_encoder("")
        with self._one_scrape:
            return encode(self.registry), content_type
