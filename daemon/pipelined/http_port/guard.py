# SPDX-License-Identifier: Apache-2.0
"""Between every request and the application: passwords, and headers of the web configuration."""

from __future__ import annotations

import http
import json
from collections.abc import Iterable
from typing import Any

from pipelined.http_port.basic_auth import Verdict
from pipelined.http_port.messages import WsgiApp
from pipelined.http_port.web_config_file import WebConfigFile

__all__ = ["guarded"]


def guarded(app: WsgiApp, web_config: WebConfigFile) -> WsgiApp:
    """The WSGI application `app` behind the passwords and with the headers of `web_config`."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        config, logins = web_config.current()

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            ours = {name.lower() for name in config.headers}
            kept = [(name, value) for name, value in headers if name.lower() not in ours]
            return start_response(status, [*kept, *config.headers.items()], *error)

        if logins is not None:
            verdict = logins.verdict(
                environ.get("HTTP_AUTHORIZATION", ""), environ.get("REMOTE_ADDR", "")
            )
            if verdict is not Verdict.ADMITTED:
                return _refusal(verdict, environ, start)
        return app(environ, start)

    return answer


_REFUSALS = {
    Verdict.NO_LOGIN: (401, "give a user name and a password (basic authentication)"),
    Verdict.WRONG: (401, "wrong user name or password"),
    Verdict.BUSY: (429, "too many logins are being checked; try again in a second"),
}


def _refusal(verdict: Verdict, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    code, message = _REFUSALS[verdict]
    body = (json.dumps({"error": {"status": code, "message": message}}) + "\n").encode()
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if code == 401:
        headers.append(("WWW-Authenticate", 'Basic realm="pipelined", charset="UTF-8"'))
    else:
        headers.append(("Retry-After", "1"))
    start(f"{code} {http.HTTPStatus(code).phrase}", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]
