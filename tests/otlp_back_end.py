# SPDX-License-Identifier: Apache-2.0
"""A back end for traces that comes and goes: OTLP over HTTP, on a port that stays the same."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["BackEnd", "KeptSpans", "said"]


class BackEnd:
    """Gives `take` each span of a request that it answers with `status` 200."""

    def __init__(self, take: Callable[[Span], object]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.status = 200
        self._take = take
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        back_end = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if back_end.status == 200:
                    back_end.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(back_end.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever).start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self._take(span)


class KeptSpans(BackEnd):
    """One that keeps what it takes."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        super().__init__(self.spans.append)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def runs(self, name: str) -> Counter[str]:
        """How often each run of this pipeline has come, by its id."""
        return Counter(said(span)["pipelined.run.id"] for span in self.named(name))


def said(span: Span) -> dict[str, Any]:
    """The attributes of a span."""
    return {of.key: getattr(of.value, of.value.WhichOneof("value")) for of in span.attributes}
