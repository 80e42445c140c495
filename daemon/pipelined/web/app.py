# SPDX-License-Identifier: Apache-2.0
"""The HTTP side: the application (`create_app`) and the server that it runs under.

Paths: `/metrics`, `/healthz`, `/readyz`, `/api/v1/…`, and the pages (`pages`). Whatever is
wrong with a request is answered as JSON, ``{"error": {"status": 404, "message": "…"}}``; to a
browser that asked for a page, as one.

The server is cheroot: threads in this process, so that requests see the live model (a
server that forks could not). Between requests `connections` has the clients; TLS and passwords
are those of `web_config`.
"""

from __future__ import annotations

import gzip
import ipaddress
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cheroot import wsgi
from flask import Blueprint, Flask, Response, abort, jsonify, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from pipelined.analysis.machine import Host
from pipelined.config import Address
from pipelined.http_port.connections import Gate
from pipelined.http_port.listening import BACKLOG, listen
from pipelined.schema import run_as_dict
from pipelined.web.history_api import PARAMETERS as HISTORY_PARAMETERS
from pipelined.web.history_api import create_history_api
from pipelined.web.live_events import MAX_STREAMS, STOPPING, create_events
from pipelined.web.metrics import Metrics
from pipelined.web.pages import PARAMETERS as PAGE_PARAMETERS
from pipelined.web.pages import REPEATABLE, create_pages, error_page
from pipelined.web.query_parameters import as_bool, as_limit, as_text, parameter

if TYPE_CHECKING:
    from pipelined.history.history import History
    from pipelined.http_port.web_config import WebConfigFile
    from pipelined.observer import Observer

__all__ = ["HttpServer", "create_app", "create_front", "serve"]

DEFAULT_LIMIT = 100

#: Query parameters by endpoint; every other endpoint takes none.
_PARAMETERS = {
    "api.pipelines": ("live", "limit", "pipeline"),
    **HISTORY_PARAMETERS,
    **PAGE_PARAMETERS,
}
#: Paths that are for programs: their errors are never pages.
_FOR_PROGRAMS = ("/api", "/metrics", "/healthz", "/readyz", "/static")

WsgiApp = Callable[[dict[str, Any], Any], Iterable[bytes]]


# -- the application


def create_app(
    observer: Observer,
    *,
    host: Host,
    show_arguments: bool = False,
    history: History | None = None,
    web_config: WebConfigFile | None = None,
) -> Flask:
    """The web application that shows `observer`, and the finished runs of `history`.

    Findings are those for the machine `host`. Command lines appear only with `show_arguments`.
    The application only exports metrics of `web_config`; `HttpServer` applies it.
    """
    app = Flask("pipelined.web")
    app.json.sort_keys = False  # type: ignore[attr-defined]  # keys are in the documented order
    metrics = Metrics(observer, history, web_config)
    app.register_error_handler(HTTPException, _answer_error)
    app.before_request(_refuse_unknown_parameters)
    app.after_request(_add_security_headers)
    app.register_blueprint(_create_api(observer, show_arguments))
    app.register_blueprint(
        create_history_api(observer, history, host, show_arguments=show_arguments)
    )
    app.register_blueprint(create_events(observer, host))
    app.register_blueprint(create_pages(observer, history, host, show_arguments=show_arguments))

    @app.get("/metrics")
    def scrape() -> Response:
        text, content_type = metrics.render(request.headers.get("Accept", ""))
        return _compressed_if_remote(Response(text, content_type=content_type))

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


def create_front() -> Flask:
    """The application that answers until hooks are attached."""
    front = Flask("pipelined.web", static_folder=None)

    @front.before_request
    def answer() -> Response:
        if request.path == "/healthz":
            return jsonify(status="alive")
        response = jsonify(error={"status": 503, "message": "starting: hooks are being attached"})
        response.status_code = 503
        response.headers["Retry-After"] = "1"
        return response

    return front


def _create_api(observer: Observer, show_arguments: bool) -> Blueprint:
    api = Blueprint("api", __name__, url_prefix="/api/v1")

    @api.get("/pipelines")
    def pipelines() -> Response:
        live = parameter("live", as_bool, None)
        limit = parameter("limit", as_limit, DEFAULT_LIMIT)
        signature = parameter("pipeline", as_text("a signature such as cat|awk|sort"), None)
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
    if request.endpoint is None:  # no such path: the error is 404
        return
    known = _PARAMETERS.get(request.endpoint, ())
    for name, values in request.args.lists():
        if name not in known:
            accepted = f"it takes {', '.join(known)}" if known else "it takes none"
            abort(400, description=f"{request.path} has no parameter {name!r}; {accepted}")
        if len(values) > REPEATABLE.get(name, 1):
            abort(400, description=f"parameter {name!r} is given {len(values)} times; give it once")


def _answer_error(error: HTTPException) -> Response:
    """The error as JSON or as a page, with its own headers, such as Allow."""
    message = error.description or error.name
    if error.code == 404 and message == NotFound.description:
        message = f"there is no {request.path}; / lists the paths"
    elif isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        message = f"{request.path} does not take {request.method}; use {allowed}"
    elif error.code == 500:
        message = "internal error; the log of pipelined has the traceback"
    code = error.code or 500
    if _asks_for_page():
        response = Response(error_page(code, message), status=code)
    else:
        body = json.dumps({"error": {"status": code, "message": message}}) + "\n"
        response = Response(body, status=code, content_type="application/json")
    for name, value in error.get_headers(request.environ):
        if name.lower() != "content-type":
            response.headers[name] = value
    return response


def _asks_for_page() -> bool:
    """Whether the request is a browser's, and its path is not for programs."""
    accepted = request.accept_mimetypes
    return (
        not request.path.startswith(_FOR_PROGRAMS)
        and accepted["text/html"] > accepted["application/json"]
    )


def _add_security_headers(response: Response) -> Response:
    # Static files change only with the program: a browser may keep them, and ask if they changed.
    static = request.endpoint == "static"
    response.headers["Cache-Control"] = "no-cache" if static else "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers["Content-Security-Policy"] = (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self';"
        " frame-ancestors 'none'"
    )
    return response


def _compressed_if_remote(response: Response) -> Response:
    """Compress for a client on another host; on this host it costs more than it saves."""
    response.vary.add("Accept-Encoding")
    local = ipaddress.ip_address(request.remote_addr or "127.0.0.1").is_loopback
    if not local and request.accept_encodings["gzip"] > 0:
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
    a free one, which `port` then tells. Without `web_config` there is neither TLS nor a password.
    No thread of it keeps the process alive.
    """

    #: So many requests are answered at once, however many streams there are beside them.
    threads = 8 + MAX_STREAMS
    #: Seconds a client may take over a request or to read an answer, or leave a connection idle.
    client_timeout = 10
    #: Seconds `stop` waits at most.
    stop_timeout = 0.5

    def __init__(
        self,
        app: Flask,
        host: str,
        port: int,
        web_config: WebConfigFile | None = None,
        *,
        listener: socket.socket | None = None,
    ) -> None:
        """With a `listener` it is the one to serve on, made for `host` and `port`."""
        self.host = host
        self.port = port
        self._listener = listener
        self.web_config = web_config
        self._app = _guarded(app, web_config)
        self._server: _CherootServer | None = None
        self._prepared = threading.Event()
        self._stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"{self.scheme}://{Address(self.host, self.port)}/"

    @property
    def scheme(self) -> str:
        """``https`` or ``http``."""
        return "https" if self.web_config and self.web_config.tls else "http"

    def start(self) -> None:
        """Listen; on return the kernel accepts connections. Raises UserError with the mend."""
        listener = self._listener or listen(self.host, self.port)
        self._listener = None
        self.port = listener.getsockname()[1]
        if risk := _risk(listener.getsockname()[0], self.web_config):
            logging.getLogger(__name__).warning("%s", risk)
        self._stopping = stopping = threading.Event()
        self._server = _CherootServer(
            listener,
            partial(_told, self._app, stopping),
            self.web_config if self.scheme == "https" else None,
            numthreads=self.threads,
            timeout=self.client_timeout,
            shutdown_timeout=self.stop_timeout / 4,
        )
        threading.Thread(
            target=self._run, args=(self._server, stopping), name="http", daemon=True
        ).start()

    def _run(self, server: _CherootServer, stopping: threading.Event) -> None:
        try:
            server.prepare()
            if stopping.is_set():  # asked to stop before there was anything to stop
                server.stop()
        except (OSError, ValueError):  # the listener was closed meanwhile
            server.stop()  # the threads, where they were started by then
            if not stopping.is_set():
                raise
            return
        finally:
            self._prepared.set()
        server.serve()

    def stop(self) -> None:
        """Close the listening socket and every connection, within `stop_timeout` seconds."""
        server, self._server = self._server, None
        if server is None:
            return
        self._stopping.set()
        self._prepared.wait(self.stop_timeout)
        # A client that does not read its response can hold a thread longer than we wait.
        stopping = threading.Thread(target=server.stop, name="http-stop", daemon=True)
        stopping.start()
        stopping.join(self.stop_timeout)
        server.close()
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


def _guarded(app: Flask, web_config: WebConfigFile | None) -> WsgiApp:
    if web_config is None:
        return app
    from pipelined.http_port.web_config import guarded  # only where it is wanted

    return guarded(app, web_config)


def _risk(address: str, web_config: WebConfigFile | None) -> str | None:
    """What is wrong with listening on `address`, and the mend; None when nothing is."""
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return None
    if web_config is not None and web_config.asks_who:
        return None
    return (
        f"listening on {address} without a password: whoever reaches the port sees which commands"
        " run here; give --web.config.file (docs/SECURITY.md), or listen on 127.0.0.1"
    )


def _told(
    app: WsgiApp, stopping: threading.Event, environ: dict[str, Any], start_response: Any
) -> Iterable[bytes]:
    """The application, told when to end what goes on for as long as the server runs."""
    environ[STOPPING] = stopping
    return app(environ, start_response)


class _CherootServer(wsgi.Server):
    """cheroot on a socket that already listens, with our gate, logging to our log."""

    max_request_header_size = 64 * 1024
    max_request_body_size = 64 * 1024

    def __init__(
        self,
        listener: socket.socket,
        app: WsgiApp,
        web_config: WebConfigFile | None,
        **options: Any,
    ) -> None:
        """`web_config` is what makes TLS of connections; None: nothing does."""
        super().__init__(
            listener.getsockname()[:2],
            app,
            server_name="pipelined",
            request_queue_size=BACKLOG,  # it sets that of the listener again
            **options,
        )
        self._listener = listener
        self._web_config = web_config

    def prepare(self) -> None:
        # cheroot would serve on file descriptor 3, whatever that is, when this is set.
        os.environ.pop("LISTEN_PID", None)
        super().prepare()
        self._connections.close()
        secure = self._web_config.stream if self._web_config else None
        self._connections: Any = Gate(self, self._listener, secure)

    def bind(self, family: int, type: int, proto: int = 0) -> socket.socket:
        """The socket to serve on: instead of binding one, the one that listens."""
        self.socket = self._listener
        return self._listener

    def close(self) -> None:
        """Accept no connection any more, also where the server was not prepared in time."""
        self._listener.close()

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        logging.getLogger(__name__).log(level, "%s", msg, exc_info=traceback)
