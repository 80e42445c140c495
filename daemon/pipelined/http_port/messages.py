# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 by h11, before a WSGI application: the header of a request in, bytes of an answer out.

The body of a request is never read. Some of what h11 takes is refused here: bare line feeds,
methods in lower case, other versions.
"""

from __future__ import annotations

import email.utils
import http
import io
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import h11

__all__ = ["Exchange", "Refusal", "WsgiApp", "end_of_header"]

WsgiApp = Callable[[dict[str, Any], Any], Iterable[bytes]]

#: Bytes of a request's header, and of a body that is declared.
_MAX_HEADER = 64 << 10
_MAX_BODY = 64 << 10


class Refusal(Exception):
    """A request that is answered with `status` and a line of text; then the connection ends."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

    def answer(self) -> bytes:
        """The whole answer."""
        text = f"{self}\n"
        return (
            f"HTTP/1.1 {self.status} {http.HTTPStatus(self.status).phrase}\r\n"
            f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\n"
            f"Connection: close\r\n\r\n{text}"
        ).encode("ascii", "replace")


def end_of_header(received: bytearray) -> int | None:
    """How long the header of the first request is; None if the end of it is still to come.

    Raises Refusal as soon as it is clear that it will not come.
    """
    first = received.find(b"\n")
    if first == 0 or (first > 0 and received[first - 1] != ord("\r")):
        raise Refusal(400, "Lines must end with CR and LF.")
    end = received.find(b"\r\n\r\n") + 4
    if (end if end >= 4 else len(received)) > _MAX_HEADER:
        where = "request line" if first < 0 else "header"
        raise Refusal(414 if first < 0 else 413, f"The {where} is too long.")
    return end if end >= 4 else None


class Exchange:
    """One request, of which `header` is all that has been received, and the answer to it."""

    def __init__(self, header: bytes) -> None:
        """Raises Refusal."""
        if not re.search(rb"\nhost[ \t]*:", header, re.IGNORECASE):  # h11 insists on it
            header = header.replace(b"\r\n", b"\r\nHost: localhost\r\n", 1)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * _MAX_HEADER)
        try:
            self._http.receive_data(header)
            request = self._http.next_event()
            has_body = not isinstance(self._http.next_event(), h11.EndOfMessage)
        except h11.RemoteProtocolError as error:
            what = str(error).partition(":")[0]  # behind it is what the client sent
            raise Refusal(error.error_status_hint, f"{what[0].upper()}{what[1:]}.") from None
        assert isinstance(request, h11.Request)
        self._request = request
        self.method, self.target = request.method.decode(), request.target.decode()
        self._headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        if request.http_version not in (b"1.0", b"1.1"):
            raise Refusal(505, "Only HTTP/1.0 and HTTP/1.1 are spoken here.")
        if self.method != self.method.upper() or not re.match("/(?!/)[^#]*$", self.target):
            raise Refusal(400, "Give a method in capitals, and a path that begins with one slash.")
        if int(self._headers.get("content-length", 0)) > _MAX_BODY:
            raise Refusal(413, "The body is too long.")
        # A body is not read, and must not be taken for the next request.
        self.keep_alive = not has_body
        self.is_stream = False
        """Nobody knows how long the answer will be. Known as soon as there is a part of it."""

    @property
    def host(self) -> str:
        """The header `Host`; localhost if there is none."""
        return self._headers["host"]

    def environ(
        self, server: tuple[Any, ...], client: tuple[Any, ...], more: Mapping[str, Any]
    ) -> dict[str, Any]:
        """As PEP 3333 has it, between two addresses, and `more`."""
        path, _, query = self.target.partition("?")
        environ = {
            f"HTTP_{name.upper().replace('-', '_')}": value
            for name, value in self._headers.items()
            if "_" not in name and not name.startswith("content-")
        }
        return environ | {
            "REQUEST_METHOD": self.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "QUERY_STRING": query,
            "SERVER_PROTOCOL": f"HTTP/{self._request.http_version.decode()}",
            "SERVER_NAME": server[0],
            "SERVER_PORT": str(server[1]),
            "REMOTE_ADDR": client[0],
            "REMOTE_PORT": str(client[1]),
            "wsgi.version": (1, 0),
            "wsgi.input": io.BytesIO(),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            **more,
        }

    def answer(self, app: WsgiApp, environ: dict[str, Any]) -> Generator[bytes, None, None]:
        """Run `app`: the parts of its answer. Close the generator in any case.

        If `keep_alive` is false, the answer says that it is the last one. When all of it is made,
        `keep_alive` is true only if there may be another request.
        """
        head: list[bytes] = []

        def start(status: str, headers: list[tuple[str, str]], _: object = None) -> object:
            self.is_stream = "content-length" not in {name.lower() for name, _ in headers}
            ours = [("Date", email.utils.formatdate(usegmt=True)), ("Server", "pipelined")]
            if not self.keep_alive:
                ours.append(("Connection", "close"))
            code, _, reason = status.partition(" ")
            response = h11.Response(status_code=int(code), reason=reason, headers=headers + ours)
            head.append(self._http.send(response) or b"")
            return None

        result = app(environ, start)
        try:
            for body in result:
                yield from head
                head.clear()
                if body and self.method != "HEAD":
                    yield self._http.send(h11.Data(data=body)) or b""
            yield from head
            yield self._http.send(h11.EndOfMessage()) or b""
        finally:
            if hasattr(result, "close"):
                result.close()
        self.keep_alive = self._http.our_state is h11.DONE
