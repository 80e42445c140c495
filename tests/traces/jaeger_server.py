# SPDX-License-Identifier: Apache-2.0
"""A real Jaeger for tests, and a real Collector: what `tests/traces/tools.sh` has built."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server_process import PATIENCE, ServerProcess

__all__ = ["TOOLS", "Collector", "Jaeger", "Span"]

_HERE = Path(__file__).parent
TOOLS = _HERE.parents[1] / "build" / "traces"
_COLLECTOR_CONFIG = _HERE.parents[1] / "deploy" / "opentelemetry" / "collector.yaml"
#: More traces than any test makes. Jaeger returns 100 unless it is asked for more.
_ALL = 100_000


@dataclass(frozen=True)
class Span:
    """A span as Jaeger returns it."""

    service: str
    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start: float
    """Unix time."""
    seconds: float
    tags: Mapping[str, Any]
    resource: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]

    @property
    def host(self) -> str:
        found: str = self.resource["host.name"]
        return found


class Jaeger(ServerProcess):
    """Stores what is sent to `otlp` in `directory`; its query API is at `url`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        otlp = f"127.0.0.1:{_lasting_port()}"
        self.otlp = f"http://{otlp}"
        super().__init__(
            directory,
            [str(TOOLS / "jaeger"), f"--config={_HERE / 'jaeger.yaml'}"],
            "--set=extensions.jaeger_query.http.endpoint",
            ready="/api/services",
            environment={"JAEGER_DATA": str(directory / "data"), "JAEGER_OTLP": otlp},
        )

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Stopped meanwhile; afterwards it listens for spans at the same port again."""
        self.stop()
        try:
            yield
        finally:
            self.__enter__()

    def spans(self, service: str = "pipelined", **tags: str) -> list[Span]:
        """All spans of the traces of the last day that have a span of this service and tags."""
        now = time.time()
        query = {
            "service": service,
            "start": str(int((now - 86400) * 1e6)),
            "end": str(int((now + 60) * 1e6)),
            "limit": str(_ALL),
            "tags": json.dumps(tags),
            "raw": "true",  # or it would show a span once that it has twice
        }
        return self._spans(f"/api/traces?{urllib.parse.urlencode(query)}")

    def trace(self, trace_id: str) -> list[Span]:
        """The spans of a trace; none if it is not there."""
        return self._spans(f"/api/traces/{trace_id}?raw=true")

    def _spans(self, path: str) -> list[Span]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
                traces = json.load(answer)["data"] or []
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return []
                raise AssertionError(f"{path}: {error.read().decode()}") from None
        return [
            _span(span, trace["processes"][span["processID"]])
            for trace in traces
            for span in trace["spans"]
        ]


class Collector(ServerProcess):
    """Runs the configuration of deploy/, which sends to `store`; its metrics are at `url`."""

    def __init__(self, directory: Path, store: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        otlp = f"127.0.0.1:{_lasting_port()}"
        self.otlp = f"http://{otlp}"
        super().__init__(
            directory,
            [
                str(TOOLS / "collector"),
                f"--config={_COLLECTOR_CONFIG}",
                f"--set=receivers.otlp.protocols.http.endpoint={otlp}",
                "--set=connectors.spanmetrics.metrics_flush_interval=1s",
            ],
            "--set=exporters.prometheus.endpoint",
            ready="/metrics",
            environment={"COLLECTOR_STATE": str(directory / "state"), "TRACE_STORE": store},
        )


def _lasting_port() -> int:
    """One of loopback that nobody gets while the server is stopped.

    It is below those that the system gives to whoever asks for any.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(lowest // 2, lowest)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _span(span: Mapping[str, Any], process: Mapping[str, Any]) -> Span:
    parents = [other["spanID"] for other in span["references"] if other["refType"] == "CHILD_OF"]
    return Span(
        service=process["serviceName"],
        trace_id=span["traceID"],
        span_id=span["spanID"],
        parent_id=parents[0] if parents else None,
        name=span["operationName"],
        start=span["startTime"] / 1e6,
        seconds=span["duration"] / 1e6,
        tags=_values(span["tags"]),
        resource=_values(process.get("tags", [])),
        events=tuple(_values(event["fields"]) for event in span["logs"]),
    )


def _values(tags: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in tags}
