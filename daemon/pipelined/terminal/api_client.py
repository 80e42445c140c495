# SPDX-License-Identifier: Apache-2.0
"""Fetch from the API of a daemon, on this host or another: the client of the commands.

Password, CA and client certificate come from a file in the format of Prometheus' HTTP clients, as
promtool reads it (docs/configuration/promtool.md in its repository). The keys that are known are
those for a port with `--web.config.file`.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

from pipelined import __version__
from pipelined.errors import UserError, untrusted, why
from pipelined.http_port.tls import TlsError, client_context
from pipelined.http_port.yaml_nodes import Nodes
from pipelined.runs import Run
from pipelined.runs.codec import read
from pipelined.wording import data_size, printable

if TYPE_CHECKING:
    import yaml

__all__ = ["ApiError", "Client", "HttpConfig", "NoDaemonError", "SilentDaemonError"]

T = TypeVar("T")

#: Seconds to wait for an answer.
_TIMEOUT = 10.0
#: Bytes that it may have, as who listens there may be any program: those of 16,384 live stages are
#: 30 MB.
_LARGEST = 64_000_000
#: Columns of what it says that an error shows.
_SHOWN = 400
#: At most this many live runs are fetched.
_MOST_LIVE = 500
#: At most this many finished runs are fetched.
_MOST_FINISHED = 50

_USER_KEYS = ("username", "username_file", "password", "password_file")
_TLS_KEYS = ("ca", "ca_file", "cert", "cert_file", "key", "key_file", "insecure_skip_verify")


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """How a client authenticates, and which certificates it trusts."""

    path: Path | None = None
    """The file that it was read from."""
    user: str = ""
    authorization: str = ""
    """The value of the header of that name; empty to send none."""
    context: ssl.SSLContext | None = None
    """None for the system's CAs, and no client certificate."""

    @classmethod
    def read(cls, path: Path) -> HttpConfig:
        """Read the file, and the files that it names. Raises UserError."""
        return _Reader(path).config()


class _Reader(Nodes):
    def config(self) -> HttpConfig:
        root = self.root("--http.config.file names a YAML file that this user may read")
        sections = self.mapping(root, "the file", ("basic_auth", "tls_config"))
        user, password = self._login(sections.get("basic_auth"))
        header = ""
        if user:
            header = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        return HttpConfig(self.path, user, header, self._tls(sections.get("tls_config")))

    def _login(self, node: yaml.Node | None) -> tuple[str, str]:
        keys = self.mapping(node, "basic_auth", _USER_KEYS)
        if not keys:
            return "", ""
        assert node is not None
        user = self._content(keys, "username").decode(errors="replace").strip()
        if not user or ":" in user:
            raise self.wrong(node, "basic_auth has no username, or one with a colon")
        return user, self._content(keys, "password").decode(errors="replace").strip()

    def _tls(self, node: yaml.Node | None) -> ssl.SSLContext | None:
        keys = self.mapping(node, "tls_config", _TLS_KEYS)
        if not keys:
            return None
        assert node is not None
        for given, missing in (("cert", "key"), ("key", "cert")):
            if self.material(keys, given) and not self.material(keys, missing):
                raise self.wrong(node, f"tls_config has no {missing}_file", "give both")
        try:
            return client_context(
                ca=self._content(keys, "ca"),
                certificate=self._content(keys, "cert"),
                key=self._content(keys, "key"),
                verify=not self.flag(keys, "insecure_skip_verify", False),
            )
        except TlsError as error:
            raise self.wrong(node, f"{error.part} {error.reason}", error.hint) from None

    def _content(self, keys: dict[str, yaml.Node], name: str) -> bytes:
        """The content of the key `name` or of the file that `name_file` names; empty if neither."""
        found = self.material(keys, name)
        return found.read(self.path) if found else b""


class NoDaemonError(UserError):
    """Nobody listens there, or what listens is no daemon."""


class SilentDaemonError(UserError):
    """Something listens there, and does not answer in time."""


class ApiError(UserError):
    """What the daemon says is wrong with a request."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
        """Of HTTP."""


class _NoRedirects(HTTPRedirectHandler):
    """Follow no redirect: a daemon never sends one, and a password must not go elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Client:
    """Fetches runs from the daemon at one address."""

    def __init__(self, base: str, config: HttpConfig) -> None:
        """`base` is like ``http://127.0.0.1:9905``."""
        self.base = base
        self._config = config
        self.host = urlsplit(base).hostname or ""
        self.is_near = self.host in ("localhost", "::1") or self.host.startswith("127.")
        """Whether the address is on this host."""
        self._has_tls = base.startswith("https:")
        handlers: list[Any] = [_NoRedirects(), HTTPSHandler(context=config.context)]
        if self.is_near:
            # A proxy cannot reach the loopback addresses of this host.
            handlers.append(ProxyHandler({}))
        self._opener = build_opener(*handlers)

    def runs(self) -> list[Run]:
        """Live and recently finished runs. Raises UserError if there is no valid answer."""

        def listed(described: Any) -> list[Run]:
            return [read(Run, run) for run in described["runs"]]

        live = self.get(f"pipelines?live=true&limit={_MOST_LIVE}", listed)
        finished = self.get(f"pipelines?live=false&limit={_MOST_FINISHED}", listed)
        # A run that ended between the two requests is in both answers: take the later one.
        return list({run.id: run for run in [*live, *finished]}.values())

    def get(self, path: str, read: Callable[[Any], T], timeout: float = _TIMEOUT) -> T:
        """What `read` makes of the JSON at a path below /api/v1. Raises UserError.

        `read` may raise KeyError, TypeError, ValueError or AttributeError: what answers is then
        another program, or another version. An error that the daemon reports is an ApiError.
        """
        described = self._get(path, timeout)
        try:
            return read(described)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UserError(
                f"{self.base} answers, but not as pipelined {__version__} does",
                "give the daemon's address with --url, and use the same version on both sides",
            ) from None

    def _get(self, path: str, timeout: float) -> Any:
        request = Request(f"{self.base}/api/v1/{path}")
        if self._config.authorization:
            request.add_unredirected_header("Authorization", self._config.authorization)
        try:
            return json.loads(self._text(request, timeout))
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            # TLS 1.3 reports a missing client certificate after the handshake, or just closes.
            is_closed = isinstance(reason, ConnectionResetError | BrokenPipeError)
            if isinstance(reason, ssl.SSLError) or (is_closed and self._has_tls):
                raise self._tls_failed(reason) from None
            text = _shown(why(reason) if isinstance(reason, OSError) else str(reason))
            if isinstance(error, TimeoutError):  # of an answer: that of a connection is a reason
                raise SilentDaemonError(
                    f"no answer from {self.base} within {timeout:g} s",
                    "what listens there is very busy, or hangs: see its log",
                ) from None
            raise NoDaemonError(
                f"no daemon answers at {self.base}: {text or 'no answer'}",
                "start it with: sudo systemctl start pipelined, "
                "or without the service: sudo pipelined serve"
                if self.is_near
                else "let it listen there (docs/SECURITY.md), or give another --url",
            ) from None
        except (ValueError, RecursionError):
            raise UserError(
                f"{self.base} does not answer in JSON", "give the daemon's address with --url"
            ) from None

    def _text(self, request: Request, timeout: float) -> bytes:
        """The text of the answer. Raises UserError if that is an error, or without end."""
        try:
            with self._opener.open(request, timeout=timeout) as answer:
                text: bytes = answer.read(_LARGEST + 1)
        except HTTPError as error:
            with error:
                raise self._refused(error) from None
        if len(text) > _LARGEST:
            raise UserError(
                f"{self.base} answers with more than {data_size(_LARGEST)}",
                "give the daemon's address with --url",
            )
        if answer.length:  # it has ended before
            raise http.client.IncompleteRead(text, answer.length)
        return text

    def _refused(self, error: HTTPError) -> UserError:
        """The error for an HTTP status."""
        if error.code == 401 and self._config.user:
            return UserError(
                f"{self.base} refuses the password of {self._config.user}",
                f"see basic_auth in {self._config.path}",
            )
        if error.code == 401:
            return UserError(
                f"{self.base} asks for a user name and a password",
                "write them into a file for --http.config.file: basic_auth, username and"
                " password_file",
            )
        if error.code == 421:
            return UserError(
                f"the daemon at {self.base} does not answer for the name {self.host}",
                "add it there to --web.allowed-hosts, or give its IP address in --url",
            )
        text = error.read(10_000)
        if error.code == 400 and b"HTTPS" in text:
            return UserError(f"{self.base} uses TLS", "write --url https://…")
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            message = _shown(str(json.loads(text)["error"]["message"]))
            return ApiError(f"the daemon at {self.base} answers: {message}", error.code)
        return UserError(
            f"{self.base} answers with HTTP status {error.code}",
            "it is starting, or it is not a pipelined daemon: see its log, or give --url",
        )

    def _tls_failed(self, error: str | BaseException) -> UserError:
        """The error for a TLS connection that failed."""
        if isinstance(error, ssl.SSLCertVerificationError):
            reason, hint = untrusted(
                error, "name its CA in a file for --http.config.file: tls_config, ca_file"
            )
            return UserError(f"the certificate of {self.base} is not trusted: {reason}", hint)
        reason = (getattr(error, "reason", None) or "").lower().replace("_", " ")
        if "wrong version" in reason or "record layer" in reason or "http request" in reason:
            return UserError(f"{self.base} does not use TLS", "write --url http://…")
        return UserError(
            f"{self.base} ends the TLS connection: {reason or 'no reason given'}",
            "if it asks for a client certificate, name one that it trusts in a file for"
            " --http.config.file: tls_config, cert_file and key_file",
        )


def _shown(said: str) -> str:
    """The words of who listens there, which may be any program, as an error may have them."""
    from pipelined.terminal.drawing import shorten  # and rich with it

    return shorten(printable(said.strip()), _SHOWN)
