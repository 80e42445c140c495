# SPDX-License-Identifier: Apache-2.0
"""What the sender counts of itself, and its own `/metrics`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Info,
    disable_created_metrics,
    make_wsgi_app,
)
from prometheus_client.process_collector import ProcessCollector

from pipelined import __version__
from pipelined.config import Address
from pipelined.http_port.accept_header import readable
from pipelined.http_port.host_names import HostNames
from pipelined.http_port.messages import WsgiApp
from pipelined.http_port.server import HttpServer

__all__ = ["SKIPPED", "Statistics", "served"]

#: Why a run was not sent.
SKIPPED = ("filter", "not_sampled", "refused", "missing")
_ENDS = ("daemon", "back_end")
#: Scrapes that are answered at once.
_THREADS = 2


class Statistics:
    """Counters of one sender."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        # a series more of each counter, which nobody reads
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._clock = clock
        self.registry = CollectorRegistry()
        self.waiting_since: float | None = None
        """When the run ended that is to be sent next (Unix time); None: none waits."""
        lag = self._gauge(
            "pipelined_export_lag_seconds",
            "Age of the end of the oldest run that is known to wait to be sent; 0 if none does.",
        )
        lag.set_function(self._lag)
        self.sent_runs = self._counter(
            "pipelined_export_sent_runs", "Runs that the back end has taken."
        )
        self.sent_spans = self._counter(
            "pipelined_export_sent_spans", "Spans that the back end has taken."
        )
        self.rejected_spans = self._counter(
            "pipelined_export_rejected_spans",
            "Spans that the back end did not want of requests that it has taken.",
        )
        self.skipped_runs = self._counter(
            "pipelined_export_skipped_runs",
            "Runs that are not sent: filtered, of a trace that is not recorded, refused by the back"
            " end, or no longer in the history.",
            ("reason",),
            SKIPPED,
        )
        self.failures = self._counter(
            "pipelined_export_failures",
            "Requests that failed and are tried again, to the daemon or to the back end.",
            ("at",),
            _ENDS,
        )
        self.up = Gauge(
            "pipelined_export_up",
            "Whether the last request there succeeded.",
            ("at",),
            registry=self.registry,
        )
        self.last_sent = self._gauge(
            "pipelined_export_last_sent_timestamp_seconds",
            "When the back end took the last request, as Unix time.",
        )
        Info("pipelined_export_build", "Version of the sender.", registry=self.registry).info(
            {"version": __version__}
        )
        ProcessCollector(registry=self.registry)

    def failed(self, at: str) -> None:
        """A request to the `daemon` or the `back_end` failed."""
        self.failures.labels(at).inc()
        self.up.labels(at).set(0)

    def answered(self, at: str) -> None:
        """A request to the `daemon` or the `back_end` succeeded."""
        self.up.labels(at).set(1)

    def _lag(self) -> float:
        since = self.waiting_since
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)

    def _counter(
        self, name: str, text: str, labels: tuple[str, ...] = (), values: tuple[str, ...] = ()
    ) -> Counter:
        """One whose every series is there from the start, as 0."""
        counter = Counter(name, text, labels, registry=self.registry)
        for value in values:
            counter.labels(value)
        return counter


@contextmanager
def served(statistics: Statistics, address: Address) -> Iterator[int]:
    """Serve `/metrics` there meanwhile; yields the port. Raises UserError."""
    metrics: WsgiApp = make_wsgi_app(statistics.registry)

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        accept = readable(environ.get("HTTP_ACCEPT", ""))
        return metrics({**environ, "HTTP_ACCEPT": accept}, start_response)

    # the name of a pod or a container, whatever it is: there is no option for it
    names = HostNames(["*"])
    with HttpServer(app, address.host, address.port, threads=_THREADS, names=names) as server:
        yield server.port
