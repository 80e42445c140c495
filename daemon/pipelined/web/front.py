# SPDX-License-Identifier: Apache-2.0
"""What the port is given to serve.

Until hooks are attached it answers that. Then `probes` answers what programs ask for, and an
application the rest: it is made when somebody first asks for a page or for the API, which takes
about 0.2 s. Flask, its libraries and the pages are 7 MB, and most daemons are only scraped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pipelined.web.probes import Answer, Probes, json_answer

if TYPE_CHECKING:
    from pipelined.http_port.messages import WsgiApp

__all__ = ["MAX_STREAMS", "MAX_WAITING", "Front"]

#: Streams of events at once (`live_events`). Each holds a thread of the server.
MAX_STREAMS = 8
#: Requests that wait for a run at once. Each holds a thread of the server.
MAX_WAITING = 4


class Front:
    """A WSGI application before another one that is not there yet."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._probes: Probes | None = None
        self._make: Callable[[], WsgiApp] | None = None
        self._application: WsgiApp | None = None

    def pass_on_to(self, probes: Probes, make: Callable[[], WsgiApp]) -> None:
        """From now on `probes` answer, and the application that `make` returns."""
        self._make, self._probes = make, probes

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        probes = self._probes
        if probes is None:
            return _starting(environ).start(start_response)
        if probes.serves(environ):
            return probes.answer(environ).start(start_response)
        return self._made()(environ, start_response)

    def _made(self) -> WsgiApp:
        """The application. If it cannot be made, the next request tries again."""
        with self._making:
            if self._application is None:
                assert self._make is not None
                self._application = self._make()
            return self._application


def _starting(environ: Mapping[str, Any]) -> Answer:
    """Hooks are being attached: 503, but for /healthz."""
    if environ["PATH_INFO"] == "/healthz":
        return json_answer({"status": "alive"})
    error = {"status": 503, "message": "starting: hooks are being attached"}
    return json_answer({"error": error}, 503, **{"Retry-After": "1"})
