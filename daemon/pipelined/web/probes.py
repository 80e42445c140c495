# SPDX-License-Identifier: Apache-2.0
"""`/metrics`, `/healthz` and `/readyz`: what programs ask for again and again, without Flask.

A daemon that is only scraped and probed does not load the web application (`front`).
"""

from __future__ import annotations

import gzip
import http
import ipaddress
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pipelined.web.metrics import Metrics

if TYPE_CHECKING:
    from pipelined.observer import Observer

__all__ = ["HEADERS", "PATHS", "Answer", "Probes", "json_answer"]

#: The paths that `Probes` answers.
PATHS = ("/metrics", "/healthz", "/readyz")

#: What every answer has, but for the caching of static files.
HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Content-Security-Policy": (
            "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self';"
            " frame-ancestors 'none'"
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request, all of it."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    def start(self, start_response: Any) -> list[bytes]:
        """Answer as a WSGI application does, with `HEADERS`."""
        headers = {**HEADERS, **self.headers, "Content-Length": str(len(self.body))}
        status = f"{self.status} {http.HTTPStatus(self.status).phrase}"
        start_response(status, list(headers.items()))
        return [self.body]


def json_answer(content: Mapping[str, Any], status: int = 200, **headers: str) -> Answer:
    body = json.dumps(content, separators=(",", ":")).encode() + b"\n"
    return Answer(status, body, {"Content-Type": "application/json", **headers})


class Probes:
    """Answers `PATHS`."""

    def __init__(self, observer: Observer, metrics: Metrics) -> None:
        self._observer = observer
        self._metrics = metrics
        answers: tuple[Callable[[Mapping[str, Any]], Answer], ...] = (
            self._scrape,
            lambda _: json_answer({"status": "alive"}),
            lambda _: self._readiness(),
        )
        self._paths = dict(zip(PATHS, answers, strict=True))

    def serves(self, environ: Mapping[str, Any]) -> bool:
        """Whether a request is for one of the paths, and right: what else there is, is not here."""
        return (
            environ["PATH_INFO"] in self._paths
            and environ["REQUEST_METHOD"] in ("GET", "HEAD")
            and not environ["QUERY_STRING"]
        )

    def answer(self, environ: Mapping[str, Any]) -> Answer:
        """The answer to a request for one of the paths, by its WSGI environment."""
        return self._paths[environ["PATH_INFO"]](environ)

    def _scrape(self, environ: Mapping[str, Any]) -> Answer:
        text, content_type = self._metrics.render(environ.get("HTTP_ACCEPT", ""))
        headers = {"Content-Type": content_type, "Vary": "Accept-Encoding"}
        # For a client on this host compressing costs more than it saves.
        local = ipaddress.ip_address(environ.get("REMOTE_ADDR") or "127.0.0.1").is_loopback
        if not local and _accepts_gzip(environ.get("HTTP_ACCEPT_ENCODING", "")):
            text = gzip.compress(text, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        return Answer(200, text, headers)

    def _readiness(self) -> Answer:
        reason = self._observer.ready()
        if reason is not None:
            return json_answer({"error": {"status": 503, "message": reason}}, 503)
        pending = [
            {"hook": hook.name, "tier": hook.tier, "method": hook.method}
            for hook in self._observer.hooks()
            if hook.pending
        ]
        return json_answer({"status": "ready", "pending_hooks": pending})


def _accepts_gzip(accepted: str) -> bool:
    """What the header `Accept-Encoding` says of gzip, by its name or as one of any (``*``)."""
    weights = {}
    for coding in accepted.split(","):
        name, *parameters = coding.replace(" ", "").lower().split(";")
        weights[name] = not any(set(p.removeprefix("q=")) <= set("0.") for p in parameters)
    return weights.get("gzip", weights.get("*", False))
