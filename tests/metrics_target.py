# SPDX-License-Identifier: Apache-2.0
"""A target for Prometheus whose figures are invented."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["served"]


@contextlib.contextmanager
def served(exposition: Callable[[], bytes]) -> Iterator[str]:
    """Answers every scrape with what `exposition` returns then. Yields its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exposition()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # Prometheus did not wait
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
