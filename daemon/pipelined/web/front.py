# SPDX-License-Identifier: Apache-2.0
"""What the port is given to serve: it answers until hooks are attached, then passes requests on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, jsonify, request

if TYPE_CHECKING:
    from pipelined.http_port.messages import WsgiApp

__all__ = ["Front"]


class Front:
    """A WSGI application before another one that is not there yet."""

    def __init__(self) -> None:
        self._application: WsgiApp = _create_starting()

    def pass_on_to(self, application: WsgiApp) -> None:
        """From now on `application` answers."""
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        return self._application(environ, start_response)


def _create_starting() -> Flask:
    """Answers that hooks are being attached: 503, but for /healthz."""
    starting = Flask("pipelined.web", static_folder=None)

    @starting.before_request
    def answer() -> Response:
        if request.path == "/healthz":
            return jsonify(status="alive")
        response = jsonify(error={"status": 503, "message": "starting: hooks are being attached"})
        response.status_code = 503
        response.headers["Retry-After"] = "1"
        return response

    return starting
