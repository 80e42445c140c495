# SPDX-License-Identifier: Apache-2.0
"""One client's connection: TLS handshake, requests, answers and closing, as a coroutine.

It never blocks the event loop, and each of its waits for the client has an end. An answer is kept
once, as the application made it, until the client has taken it; a stream is not kept: the thread
that makes it waits for its client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import re
import select
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

from pipelined.errors import why
from pipelined.http_port.messages import Exchange, Refusal, end_of_header
from pipelined.http_port.tls import peer_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from pipelined.http_port.host_names import HostNames
    from pipelined.http_port.messages import WsgiApp
    from pipelined.http_port.sparing_log import SparingLog
    from pipelined.http_port.web_config_file import WebConfigFile

    class Server(Protocol):
        """What a connection asks of the one that has accepted it."""

        @property
        def app(self) -> WsgiApp: ...
        @property
        def environ(self) -> Mapping[str, Any]: ...
        @property
        def loop(self) -> asyncio.AbstractEventLoop: ...
        @property
        def stopping(self) -> threading.Event: ...
        @property
        def client_timeout(self) -> float: ...
        @property
        def web_config(self) -> WebConfigFile | None: ...
        @property
        def names(self) -> HostNames: ...
        @property
        def log(self) -> SparingLog: ...
        def turn(self, target: str) -> asyncio.Semaphore | contextlib.nullcontext[None]: ...
        def in_thread(self, call: Callable[[], Any]) -> concurrent.futures.Future[Any]: ...
        def waits_from_now(self, connection: Connection) -> None: ...
        def bound_kept(self) -> None: ...


__all__ = ["CLIENT_LEFT", "Connection"]

#: Key of the WSGI environment: a function that returns whether the client has closed its side.
CLIENT_LEFT = "pipelined.client_left"

#: Seconds for a client to read the last answer.
_LINGER = 2.0
_CHUNK = 16 << 10  # TLS takes no more in a record

log = logging.getLogger(__name__)


class _NotTakenError(OSError):
    """The client does not take what a stream sends. Other OSErrors are the application's."""


class Connection:
    """A connection of `server`; `run` is its life."""

    def __init__(self, server: Server, sock: socket.socket, address: tuple[Any, ...]) -> None:
        self.address = address
        self.kept = 0
        """Bytes of the answer that the client is taking: all of it until it has the last one."""
        self._server = server
        self._sock = sock
        self._received = bytearray()
        self._made: concurrent.futures.Future[list[bytes]] | None = None

    @property
    def answering(self) -> bool:
        """Whether a thread is at work for it."""
        return self._made is not None and self._made.running()

    async def run(self) -> None:
        """From the handshake to the last answer; raises nothing but CancelledError."""
        try:
            try:
                await self._shake_hands()
                while await self._answer(await self._request()):
                    if self._server.stopping.is_set():
                        break
            except Refusal as refusal:
                await self._send(refusal.answer())
            await self._linger()
        except OSError:  # the client has gone, or its time is over
            pass
        except Exception:
            log.exception("closing a connection")

    def close(self) -> None:
        """At the end, however that came."""
        self._sock.close()

    async def _when_ready(self, call: Callable[..., Any], *given: Any, sends: bool = False) -> Any:
        """What `call`, a method of a socket that does not block, returns in the end."""
        loop, fd = self._server.loop, self._sock.fileno()
        while True:
            try:
                return call(*given)
            except BlockingIOError:
                writes = sends
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wanted:
                writes = isinstance(wanted, ssl.SSLWantWriteError)
            if sends:
                self._server.bound_kept()
            ready = asyncio.Event()
            (loop.add_writer if writes else loop.add_reader)(fd, ready.set)
            try:
                await ready.wait()
            finally:
                (loop.remove_writer if writes else loop.remove_reader)(fd)

    async def _shake_hands(self) -> None:
        web_config, client = self._server.web_config, self.address[0]
        if web_config is None or not web_config.tls:
            return
        async with asyncio.timeout(self._server.client_timeout):
            try:
                # A TLS client begins with byte 22; whatever begins with a letter is plain HTTP.
                first = await self._when_ready(self._sock.recv, 1, socket.MSG_PEEK)
                if first.isalpha():
                    self._server.log.info("plain", f"plain HTTP from {client} to the TLS port")
                    raise Refusal(400, "Client sent an HTTP request to an HTTPS server.")
                context, allowed_names = web_config.tls_in_use()
                self._sock = sock = context.wrap_socket(
                    self._sock, server_side=True, do_handshake_on_connect=False
                )
                await self._when_ready(sock.do_handshake)
                if allowed_names and not allowed_names & peer_names(sock.getpeercert() or {}):
                    raise ConnectionError("no name of its certificate is in client_allowed_sans")
            except OSError as error:
                self._server.log.info(
                    "handshake", f"no TLS connection with {client}: {_why(error)}"
                )
                raise

    async def _receive(self) -> None:
        if not (data := await self._when_ready(self._sock.recv, _CHUNK)):
            raise ConnectionError("it ended")
        self._received += data

    async def _request(self) -> Exchange:
        """The next request. Raises Refusal for a bad one, OSError if none comes."""
        if not self._received:
            async with asyncio.timeout(self._server.client_timeout):
                await self._receive()
        try:  # a request has as long again, however it dribbles
            async with asyncio.timeout(self._server.client_timeout):
                while (end := end_of_header(self._received)) is None:
                    await self._receive()
        except TimeoutError:
            raise Refusal(408, "The request took too long.") from None
        header = bytes(self._received[:end])
        del self._received[:end]
        exchange = Exchange(header)
        if not self._server.names.include(exchange.host):
            raise self._misdirected(exchange.host)
        return exchange

    def _misdirected(self, host: str) -> Refusal:
        """The refusal of a request for another host."""
        name = host if re.fullmatch(r"[\w.:-]{1,260}", host, re.ASCII) else "What Host says"
        text = (
            f"{name} is no name of this host; if it should be one, add it to --web.allowed-hosts."
        )
        self._server.log.info("host", f"refused a request of {self.address[0]}: {text}")
        return Refusal(421, text)

    async def _answer(self, exchange: Exchange) -> bool:
        """Answer it; whether there may be another request."""
        server_address = self._sock.getsockname()
        try:
            async with self._server.turn(exchange.target):
                self._made = self._server.in_thread(lambda: self._make(exchange, server_address))
                kept = await asyncio.wrap_future(self._made)
        except _NotTakenError:
            raise
        except Exception as error:
            self._server.log.exception(
                f"answer: {type(error).__name__}",
                f"{exchange.method} {exchange.target}: no answer, or not all of it",
            )
            if exchange.is_stream:
                return False
            raise Refusal(500, "The log of pipelined has the traceback.") from None
        finally:
            self._made = None  # it holds the answer, which is not to outlive `kept`
        self._server.waits_from_now(self)
        await self._send(*kept)
        return exchange.keep_alive

    def _make(self, exchange: Exchange, server_address: tuple[Any, ...]) -> list[bytes]:
        """In a thread: the parts of an answer, but those of a stream, which are sent here."""
        kept, loop = [], self._server.loop
        more = {**self._server.environ, CLIENT_LEFT: self._has_left}
        environ = exchange.environ(server_address, self.address, more)
        with contextlib.closing(exchange.answer(self._server.app, environ)) as parts:
            for part in parts:
                if exchange.is_stream:
                    self._send_from_thread(part)
                elif part:
                    kept.append(part)
        # However busy the event loop is, threads do not make answers faster than it takes them.
        taken = threading.Event()
        loop.call_soon_threadsafe(taken.set)
        taken.wait(self._server.client_timeout)
        return kept if len(kept) <= 2 else [b"".join(kept)]  # head and body, or many small parts

    def _send_from_thread(self, part: bytes) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._send(part), self._server.loop).result()
        except OSError as error:
            raise _NotTakenError from error

    def _has_left(self) -> bool:
        """Whether the client will take no answer, as far as the kernel knows."""
        looked = select.poll()
        try:
            looked.register(self._sock, select.POLLRDHUP)
        except ValueError:  # it is closed
            return True
        return bool(looked.poll(0))

    async def _send(self, *pieces: bytes) -> None:
        """All of them, for as long as the client makes progress."""
        self.kept = sum(map(len, pieces))
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                async with asyncio.timeout(self._server.client_timeout):
                    await asyncio.sleep(0)  # the others have their turn
                    sent = await self._when_ready(self._sock.send, rest[:_CHUNK], sends=True)
                rest = rest[sent:]
        self.kept = 0

    async def _linger(self) -> None:
        """Closing while the client still sends would take the last answer away from it."""
        async with asyncio.timeout(_LINGER):
            if isinstance(self._sock, ssl.SSLSocket):
                with contextlib.suppress(OSError, ValueError):  # its answer is not waited for
                    self._sock.unwrap()
            self._sock.shutdown(socket.SHUT_WR)
            while await self._when_ready(self._sock.recv, _CHUNK):
                await asyncio.sleep(0)


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it ended").lower().replace("_", " ")
    return why(error)
