# SPDX-License-Identifier: Apache-2.0
"""The web application: paths, parameters, errors; `http_port.server` serves it.

Paths: `/metrics`, `/healthz`, `/readyz`, `/api/v1/…`, and the pages (`pages`). Whatever is
wrong with a request is answered as JSON, ``{"error": {"status": 404, "message": "…"}}``; to a
browser that asked for a page, as one.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING

from flask import Blueprint, Flask, Response, abort, jsonify, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from pipelined.analysis.machine import Host
from pipelined.answers.hooks import DaemonHook, Hooks
from pipelined.answers.run import Pipelines
from pipelined.history.run_order import recency
from pipelined.kernel.hooks import optional_hooks
from pipelined.runs.codec import written
from pipelined.web.history_api import DEFAULT_LIMIT, MAX_LIMIT, create_history_api
from pipelined.web.history_api import PARAMETERS as HISTORY_PARAMETERS
from pipelined.web.live_events import create_events
from pipelined.web.long_json import long_answer, one_at_a_time
from pipelined.web.metrics import Metrics
from pipelined.web.pages import PARAMETERS as PAGE_PARAMETERS
from pipelined.web.pages import REPEATABLE, create_pages, error_page
from pipelined.web.probes import HEADERS, PATHS, Probes
from pipelined.web.query_parameters import as_bool, as_limit, as_text, parameter
from pipelined.web.started_api import PARAMETERS as STARTED_PARAMETERS
from pipelined.web.started_api import create_started_api

if TYPE_CHECKING:
    from pipelined.history.history import History
    from pipelined.observer import Observer

__all__ = ["create_app"]

#: Query parameters by endpoint; every other endpoint takes none.
_PARAMETERS = {
    "api.pipelines": ("live", "limit", "pipeline", "conversations"),
    **HISTORY_PARAMETERS,
    **STARTED_PARAMETERS,
    **PAGE_PARAMETERS,
}
#: Paths that are for programs: their errors are never pages.
_FOR_PROGRAMS = ("/api", *PATHS, "/static")


def create_app(
    observer: Observer,
    *,
    host: Host,
    show_arguments: bool = False,
    history: History | None = None,
    probes: Probes | None = None,
) -> Flask:
    """The web application that shows `observer`, and the finished runs of `history`.

    Findings are those for the machine `host`. Command lines appear only with `show_arguments`.
    `probes` answer their paths; without them they are those of the observer and its history alone.
    """
    app = Flask("pipelined.web")
    app.json.sort_keys = False  # type: ignore[attr-defined]  # keys are in the documented order
    probes = probes or Probes(observer, Metrics(observer, history))
    app.register_error_handler(HTTPException, _answer_error)
    app.before_request(_refuse_unknown_parameters)
    app.after_request(_add_security_headers)
    app.register_blueprint(_create_api(observer, show_arguments))
    app.register_blueprint(
        create_history_api(observer, history, host, show_arguments=show_arguments)
    )
    app.register_blueprint(create_started_api(observer, show_arguments=show_arguments))
    app.register_blueprint(create_events(observer, host))
    app.register_blueprint(create_pages(observer, history, host, show_arguments=show_arguments))

    def probe() -> Response:
        answer = probes.answer(request.environ)
        return Response(answer.body, answer.status, answer.headers)

    for path in PATHS:
        app.add_url_rule(path, view_func=probe)
    return app


def _create_api(observer: Observer, show_arguments: bool) -> Blueprint:
    api = Blueprint("api", __name__, url_prefix="/api/v1")

    @api.get("/pipelines")
    @one_at_a_time
    def pipelines() -> Response:
        live = parameter("live", as_bool, None)
        limit = min(parameter("limit", as_limit, DEFAULT_LIMIT), MAX_LIMIT)
        signature = parameter("pipeline", as_text("a signature such as cat|awk|sort"), None)
        conversations = parameter("conversations", as_bool, False)
        observer.sweep()
        runs = [
            run
            for run in (observer.conversations() if conversations else observer.runs())
            if (live is None or run.live == live)
            and (signature is None or run.pipeline == signature)
        ]
        if live is False:  # a list of them that is cut has those that ended last
            now = time.time()
            runs.sort(key=lambda run: recency(run.end or 0.0, now), reverse=True)
        found = Pipelines(
            sweep_timestamp_seconds=observer.sweep_stats.last_time,
            matching_runs=len(runs),
            runs=(),
        )
        listed = map(partial(written, secrets=show_arguments), runs[:limit])
        return long_answer({**written(found), "runs": listed})

    @api.get("/hooks")
    def hooks() -> Response:
        tried = observer.hooks()
        tiers = {hook.tier for hook in tried}
        untried = [
            replace(hook, pending=False, reason=f"the daemon runs with --{hook.tier}=off")
            for hook in optional_hooks(functions=True, readahead=True, trace_exec_failures=False)
            if hook.tier not in tiers
        ]
        found = tuple(DaemonHook(**asdict(hook)) for hook in (*tried, *untried))
        return jsonify(written(Hooks(hooks=found)))

    @api.get("/schema")
    def schema() -> Response:
        text = resources.files("pipelined.web").joinpath("schema.json").read_text(encoding="utf-8")
        return Response(text, content_type="application/schema+json")

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
        message = f"there is no {request.path}; pages begin at /, that of a run is /run/ID"
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
    response.headers.update(HEADERS)
    if request.endpoint == "static":
        # These change only with the program: a browser may keep them, and ask if they changed.
        response.headers["Cache-Control"] = "no-cache"
    return response
