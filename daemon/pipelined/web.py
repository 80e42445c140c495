# SPDX-License-Identifier: Apache-2.0
"""The HTTP side: the application (`create_app`) and the server that it runs under.

Paths: `/` landing page, `/metrics`, `/healthz`, `/readyz`, `/api/v1/pipelines`. Whatever
is wrong with a request is answered as JSON, ``{"error": {"status": 404, "message": "…"}}``.

The server is cheroot: threads in this process, so that requests see the live model (a
server that forks could not), no compiled parts, and TLS with client certificates.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import ipaddress
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from cheroot import wsgi
from flask import Blueprint, Flask, Response, abort, jsonify, render_template, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from pipelined import __version__
from pipelined.errors import UserError
from pipelined.metrics import Metrics
from pipelined.schema import run_as_dict

if TYPE_CHECKING:
    from pipelined.observer import Observer

__all__ = ["HttpServer", "create_app", "serve"]

DEFAULT_LIMIT = 100

T = TypeVar("T")
D = TypeVar("D")

#: Query parameters by endpoint; every other endpoint takes none.
_PARAMETERS = {"api.pipelines": ("live", "limit", "pipeline")}


# -- the application


def create_app(observer: Observer, *, show_arguments: bool = False) -> Flask:
    """The web application that shows `observer`; command lines only with `show_arguments`."""
    app = Flask("pipelined", static_folder=None)
    app.json.sort_keys = False  # type: ignore[attr-defined]  # the documented order is the order
    metrics = Metrics(observer)
    app.register_error_handler(HTTPException, _error_as_json)
    app.before_request(_refuse_unknown_parameters)
    app.after_request(_add_security_headers)
    app.register_blueprint(_create_api(observer, show_arguments))

    @app.get("/")
    def landing() -> str:
        return render_template(
            "landing.html", version=__version__, not_ready=observer.ready(), limit=DEFAULT_LIMIT
        )

    @app.get("/metrics")
    def scrape() -> Response:
        text, content_type = metrics.render(request.headers.get("Accept", ""))
        return _compressed_if_far(Response(text, content_type=content_type))

    @app.get("/healthz")
    def health() -> Response:
        return jsonify(status="alive")

    @app.get("/readyz")
    def readiness() -> Response:
        reason = observer.ready()
        if reason is not None:
            abort(503, description=reason)
        return jsonify(status="ready")

    return app


def _create_api(observer: Observer, show_arguments: bool) -> Blueprint:
    api = Blueprint("api", __name__, url_prefix="/api/v1")

    @api.get("/pipelines")
    def pipelines() -> Response:
        live = _parameter("live", _as_bool, None)
        limit = _parameter("limit", _as_limit, DEFAULT_LIMIT)
        signature = _parameter("pipeline", _as_signature, None)
        observer.sweep()
        runs = [
            run
            for run in observer.runs()
            if (live is None or run.live == live)
            and (signature is None or run.pipeline == signature)
        ]
        return jsonify(
            sweep_timestamp_seconds=observer.sweep_stats.last_time,
            matching_runs=len(runs),
            runs=[run_as_dict(run, show_arguments) for run in runs[:limit]],
        )

    return api


def _refuse_unknown_parameters() -> None:
    if request.endpoint is None:  # no such path: that is the error to report
        return
    known = _PARAMETERS.get(request.endpoint, ())
    for name, values in request.args.lists():
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            abort(400, description=f"{request.path} has no parameter {name!r}; {takes}")
        if len(values) > 1:
            abort(400, description=f"parameter {name!r} is given {len(values)} times; give it once")


def _parameter(name: str, convert: Callable[[str], T], default: D) -> T | D:
    text = request.args.get(name)
    if text is None:
        return default
    try:
        return convert(text)
    except ValueError as error:
        abort(400, description=f"parameter {name!r}: {error}")


def _as_bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _as_limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) > 0):
        raise ValueError(f"{text!r} is no whole number from 1 to 999999999")
    return int(text)


def _as_signature(text: str) -> str:
    if not text:
        raise ValueError("it is empty; give a signature such as cat|awk|sort")
    return text


def _error_as_json(error: HTTPException) -> Response:
    """The error with its own headers (such as Allow), and JSON for a body."""
    message = error.description
    if error.code == 404:
        message = f"there is no {request.path}; / lists the paths"
    elif isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        message = f"{request.path} does not take {request.method}; use {allowed}"
    elif error.code == 500:
        message = "internal error; the log of pipelined has the traceback"
    response = Response(
        json.dumps({"error": {"status": error.code, "message": message}}) + "\n",
        status=error.code,
        content_type="application/json",
    )
    for name, value in error.get_headers(request.environ):
        if name.lower() != "content-type":
            response.headers[name] = value
    return response


def _add_security_headers(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
    )
    return response


def _compressed_if_far(response: Response) -> Response:
    """Compress for a client on another host; on this one it costs more than it saves."""
    response.vary.add("Accept-Encoding")
    near = ipaddress.ip_address(request.remote_addr or "127.0.0.1").is_loopback
    if not near and request.accept_encodings["gzip"] > 0:
        response.set_data(gzip.compress(response.get_data(), compresslevel=1))
        response.content_encoding = "gzip"
    return response


# -- the server


def serve(app: Flask, host: str, port: int) -> HttpServer:
    """Start serving `app`; raises UserError when the address cannot be had."""
    server = HttpServer(app, host, port)
    server.start()
    return server


class HttpServer:
    """Serves an application in threads of this process, from `start` to `stop`.

    `host` is a name or an address (0.0.0.0: all of IPv4, `::`: of IPv6 too); `port` 0 picks
    a free one, which `port` then tells. No thread of it keeps the process alive.
    """

    threads = 8
    #: Seconds a client may take over a request, or leave a connection idle.
    client_timeout = 10
    #: Seconds `stop` waits at most.
    stop_timeout = 0.5

    def __init__(self, app: Flask, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._app = app
        self._server: _CherootServer | None = None
        self._prepared = threading.Event()

    @property
    def url(self) -> str:
        return f"http://{_address(self.host, self.port)}/"

    def start(self) -> None:
        """Listen; on return the kernel accepts connections. Raises UserError with the mend."""
        listener = _listen(self.host, self.port)
        self.port = listener.getsockname()[1]
        self._server = _CherootServer(
            listener,
            self._app,
            numthreads=self.threads,
            timeout=self.client_timeout,
            shutdown_timeout=self.stop_timeout / 4,
        )
        threading.Thread(target=self._run, args=(self._server,), name="http", daemon=True).start()

    def _run(self, server: _CherootServer) -> None:
        try:
            server.prepare()
        finally:
            self._prepared.set()
        server.serve()

    def stop(self) -> None:
        """Close the listening socket and every connection, within `stop_timeout` seconds."""
        server, self._server = self._server, None
        if server is None:
            return
        self._prepared.wait(self.stop_timeout)
        # A client that does not read its response can hold a thread longer than we wait.
        stopping = threading.Thread(target=server.stop, name="http-stop", daemon=True)
        stopping.start()
        deadline = time.monotonic() + self.stop_timeout
        while stopping.is_alive() and time.monotonic() < deadline:
            server.wake()
            stopping.join(self.stop_timeout / 20)
        self._prepared.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _CherootServer(wsgi.Server):
    """cheroot on a socket that already listens, logging to our log."""

    request_queue_size = 64
    max_request_header_size = 64 * 1024
    max_request_body_size = 64 * 1024
    #: Seconds between looks for expired connections: each one wakes an idle process.
    expiration_interval = 5

    def __init__(self, listener: socket.socket, app: Flask, **options: Any) -> None:
        self._address = listener.getsockname()[:2]
        super().__init__(self._address, app, server_name="pipelined", **options)
        self._listener = listener

    def prepare(self) -> None:
        # cheroot would serve on file descriptor 3, whatever that is, when this is set.
        os.environ.pop("LISTEN_PID", None)
        super().prepare()

    def bind(self, family: int, type: int, proto: int = 0) -> socket.socket:
        """The socket to serve on: instead of binding one, the one that listens."""
        self.socket = self._listener
        return self._listener

    def wake(self) -> None:
        """Have the listening thread look up: it notices a stop only between connections."""
        with contextlib.suppress(OSError):  # no longer listening: nothing left to wake
            socket.create_connection(self._address, timeout=0.1).close()

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        logging.getLogger(__name__).log(level, "%s", msg, exc_info=traceback)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises UserError with the mend."""
    address = _address(host, port)
    if not 0 <= port <= 65535:
        raise UserError(f"cannot listen on {address}: there is no such port", "give 1 to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server(
            (host, port),
            family=family,
            backlog=_CherootServer.request_queue_size,
            dualstack_ipv6=family == socket.AF_INET6 and host == "::",
        )
    except (OSError, UnicodeError) as error:
        reason, hint = _explain(error, port)
        raise UserError(f"cannot listen on {address}: {reason}", hint) from error
    # Accepted connections inherit it: a response is not held back for its last packet.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _explain(error: OSError | UnicodeError, port: int) -> tuple[str, str]:
    """Why listening failed, and what to do about it."""
    if isinstance(error, UnicodeError | socket.gaierror):
        return "the host is unknown", "give an address of this host, such as 127.0.0.1"
    known = {
        errno.EADDRINUSE: (
            "the port is taken",
            f"see by whom with `ss -ltnp sport = :{port}`,"
            " or choose another with --web.listen-address",
        ),
        errno.EADDRNOTAVAIL: (
            "this host has no such address",
            "give one that `ip address` shows, or 0.0.0.0 for all of them",
        ),
        errno.EACCES: (
            "ports below 1024 need a privilege",
            "choose a port from 1024 on, or run as root",
        ),
    }
    return known.get(error.errno or 0, (error.strerror or str(error), ""))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
