# SPDX-License-Identifier: Apache-2.0
"""The back end that spans are sent to: OTLP over HTTP, by OpenTelemetry's own exporter.

It is configured by the variables of OpenTelemetry's specification (`OTEL_EXPORTER_OTLP_…`). The
exporter says no more than whether it succeeded; what the back end answered, its HTTP session does.
Whoever sends decides whether and when to ask again, not the exporter.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.util.re import parse_env_headers

from pipelined.errors import ConfigurationError, untrusted, why

__all__ = ["Answer", "BackEnd", "check_environment", "endpoint"]

#: Answers after which the same request would be refused again (OTLP 1.0, "Failures"): what is in it
#: cannot be read, or is too much.
_UNUSABLE = (400, 413, 422)
_REDIRECTS = 300
#: The longest pause that a back end may ask for (seconds).
_LONGEST_PAUSE = 600.0
#: The longest time for a request that makes sense (seconds).
_LONGEST_TIMEOUT = 600.0
_COMPRESSIONS = ("none", "gzip", "deflate")
#: Where spans go to, as it is; the other variable is where all signals go to, each by a path.
_WHOLE, _PATH = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "/v1/traces"
_FILES = ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")


class Answer(NamedTuple):
    """What became of a request."""

    sent: bool
    """The back end has taken it."""
    unusable: bool = False
    """It never will."""
    error: str = ""
    """Why not, for people; of a request that was taken, why some spans were rejected."""
    pause: float | None = None
    """Seconds after which it wants to be asked again."""
    rejected_spans: int = 0
    """Of a request that was taken."""


def check_environment(environment: Mapping[str, str] = os.environ) -> None:
    """Raise ConfigurationError for what the variables ask for and this sender cannot do.

    OpenTelemetry's exporter would pass over a part of it with a line in the log.
    """
    for name, value in _given(environment, "PROTOCOL"):
        if value != "http/protobuf":
            raise ConfigurationError(
                f"{name}={value}: runs are sent by http/protobuf only",
                "unset it, and give an endpoint that takes OTLP over HTTP, usually port 4318",
            )
    for name, value in _given(environment, "COMPRESSION"):
        if value.strip().lower() not in _COMPRESSIONS:
            raise ConfigurationError(
                f"{name}={value}: there is no such compression", "give none, gzip or deflate"
            )
    for name, value in _given(environment, "TIMEOUT"):
        if not re.fullmatch(r"\s*\d+(\.\d*)?\s*", value, re.ASCII) or float(value) <= 0:
            raise ConfigurationError(f"{name}={value} is no time", "give seconds, such as 10")
        if float(value) > _LONGEST_TIMEOUT:
            raise ConfigurationError(
                f"{name}={value} is too long: OpenTelemetry's exporter for Python takes seconds, "
                "where others take milliseconds",
                f"give seconds, at most {_LONGEST_TIMEOUT:g}",
            )
    _check_headers(environment)
    _check_endpoints(environment)
    for name, value in _given(environment, *_FILES):
        try:
            with open(value, "rb"):
                pass
        except OSError as error:
            raise ConfigurationError(
                f"{name}: cannot read {value}: {why(error)}", "give a file that this user may read"
            ) from None
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise ConfigurationError("OTEL_SDK_DISABLED is true: nothing would be sent", "unset it")


def _check_headers(environment: Mapping[str, str]) -> None:
    """The exporter would leave out one that it cannot read, and log it, with a token in it."""
    logging.getLogger("opentelemetry.util.re").disabled = True
    for name, value in _given(environment, "HEADERS"):
        for number, header in enumerate(value.split(","), 1):
            if header.strip() and not _is_header(header):
                raise ConfigurationError(
                    f"{name}: entry {number} is not NAME=VALUE in Latin-1; it may be secret and is"
                    " not shown",
                    "give for instance Authorization=Bearer%20TOKEN, with a comma between two",
                )


def _is_header(text: str) -> bool:
    """Whether it is one that the exporter reads, and that HTTP can carry."""
    read = parse_env_headers(text, liberal=True)
    try:
        "".join(read.values()).encode("latin-1")
    except UnicodeEncodeError:
        return False
    return bool(read)


def _check_endpoints(environment: Mapping[str, str]) -> None:
    for name, value in _given(environment, "ENDPOINT"):
        if not _is_http(value):
            raise ConfigurationError(
                f"{name} is no address that runs can be sent to, by HTTP only",
                "begin it with http:// or https:// and a host, as http://collector:4318",
            )
        if name != _WHOLE and urlsplit(value).path.rstrip("/").endswith(_PATH):
            raise ConfigurationError(
                f"{name}={_without_secrets(value)}: {_PATH} is added to it",
                f"leave that out, or give the whole address in {_WHOLE}",
            )


def _is_http(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or what is in brackets no address
        return False


def _given(environment: Mapping[str, str], *kinds: str) -> Iterator[tuple[str, str]]:
    """Variables of the exporter that count, and their values: of a kind, that for traces first."""
    for kind in kinds:
        for name in (f"OTEL_EXPORTER_OTLP_TRACES_{kind}", f"OTEL_EXPORTER_OTLP_{kind}"):
            if value := environment.get(name):
                yield name, value
                break


def endpoint(environment: Mapping[str, str] = os.environ) -> str:
    """Where spans are sent to, for people."""
    if whole := environment.get(_WHOLE):
        return _without_secrets(whole)
    base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "http://localhost:4318"
    return _without_secrets(f"{base.rstrip('/')}{_PATH}")


class BackEnd:
    """Sends spans. Not for several threads."""

    def __init__(self, *, patience: float | None = None) -> None:
        """Raises ConfigurationError if a variable cannot be used.

        With `patience`, the time-out is at most so many seconds.
        """
        check_environment()
        timeout = patience and min(
            [patience, *(float(value) for _, value in _given(os.environ, "TIMEOUT"))]
        )
        # the exporter's own lines repeat what `Answer` says
        logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").disabled = True
        self._session = _Session()
        try:
            self._exporter = OTLPSpanExporter(session=self._session, timeout=timeout)
        except (ValueError, OSError) as error:
            raise ConfigurationError(
                f"a variable OTEL_EXPORTER_OTLP_… cannot be used: {error}",
                "docs/TRACES.md says which there are",
            ) from None

    def send(self, spans: Sequence[ReadableSpan]) -> Answer:
        """Send spans in one request.

        To connect may take as long as `OTEL_EXPORTER_OTLP_TIMEOUT` says, and so may the answer.
        """
        self._session.forget()
        sent = self._exporter.export(spans) is SpanExportResult.SUCCESS
        answer, error = self._session.answer, self._session.error
        if answer is None:
            return Answer(False, error=f"the back end does not answer: {error or 'no connection'}")
        # the exporter takes a redirect for a success
        if sent and answer.status_code < _REDIRECTS:
            return Answer(True, **_rejected(answer.content))
        error = f"{_without_secrets(answer.url)} answers {answer.status_code} {answer.reason}"
        if wants_https := _wants_https(answer):
            error += ": it takes https; write that into the endpoint"
        elif answer.is_redirect:
            where = _without_secrets(urljoin(answer.url, answer.headers["Location"]))
            error += f" to {where}: write that into {_WHOLE}"
        return Answer(
            False,
            unusable=answer.status_code in _UNUSABLE and not wants_https,
            error=error,
            pause=_retry_after(answer.headers.get("Retry-After", "")),
        )


class _Session(requests.Session):
    """Remembers the answer, and what went wrong if there was none; sends a request once.

    The exporter would ask again, up to the time-out, and nobody could stop it between two tries.
    """

    answer: requests.Response | None = None
    error = ""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        options["allow_redirects"] = False  # a POST would become a GET, and take the headers along
        try:
            self.answer = super().send(request, **options)
        except requests.RequestException as error:
            self.error = _reason(error)
        if self.answer is not None and self.answer.ok:
            return self.answer
        final = requests.Response()
        final.status_code = HTTPStatus.BAD_REQUEST  # after which no exporter asks again
        return final

    def forget(self) -> None:
        self.answer, self.error = None, ""


def _reason(error: requests.RequestException) -> str:
    """In a few words: the system's, if it has any."""
    if isinstance(error, requests.Timeout):
        return "it takes too long"
    cause: BaseException | None = error
    innermost: BaseException = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason, hint = untrusted(cause, "name its CA in OTEL_EXPORTER_OTLP_CERTIFICATE")
            return f"its certificate is not trusted: {reason}; {hint}"
        if isinstance(cause, OSError) and cause.strerror:
            return why(cause)
        innermost, cause = cause, cause.__cause__ or cause.__context__
    # the text of what is around it may have the address, with a secret in its query
    return str(innermost) or type(innermost).__name__


def _wants_https(answer: requests.Response) -> bool:
    """Whether a port for TLS was asked without it, as Go's servers and nginx say that."""
    return answer.status_code == requests.codes.bad_request and b"HTTPS" in answer.content


def _without_secrets(url: str) -> str:
    """Without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _retry_after(header: str) -> float | None:
    """Seconds of `Retry-After` (RFC 9110); None if there is none. A date counts as none."""
    return min(float(header), _LONGEST_PAUSE) if header.isascii() and header.isdigit() else None


def _rejected(content: bytes) -> dict[str, Any]:
    """What the answer to a request that was taken says of spans that were not."""
    answer = ExportTraceServiceResponse()
    try:
        answer.ParseFromString(content)
    except DecodeError:  # some back ends answer in JSON, or with a text
        return {}
    partial = answer.partial_success
    return {"rejected_spans": max(0, partial.rejected_spans), "error": partial.error_message}
