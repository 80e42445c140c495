# SPDX-License-Identifier: Apache-2.0
"""Connections that wait, so that threads do not: what the server does between two requests.

One thread accepts, shakes hands (TLS), gathers each request until its header is complete, and
sends what a client was too slow to take. A thread of the pool has a request only to answer it.
So a client that dribbles, falls silent, does not read, or shakes hands for ever costs one file
descriptor for `timeout` seconds. There are at most `MOST` connections: the one that has waited
longest makes room for a new one, and a scrape is over before its turn comes.

`Gate` takes the place of cheroot's ConnectionManager; cheroot parses requests, runs the threads
and writes the answers.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import select
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Protocol

from cheroot.server import HTTPConnection, HTTPRequest

from pipelined.http_port.sparing_log import SparingLog

__all__ = ["MOST", "Connection", "Gate", "PlainHttpError", "PlainStream", "Stream"]

#: Connections at once.
MOST = 256
#: Bytes of answers that clients have yet to take, all together: more drops the slowest of them.
MOST_UNSENT = 32 << 20
#: Bytes that one answer may leave unsent before the thread that makes more of it waits.
_UNSENT = 64 << 10
#: Seconds for a client to read the last answer, when there is no more to come.
_LINGER = 2.0
#: Connections accepted before the others have their turn.
_ACCEPTED_AT_ONCE = 32
#: Likewise, chunks of a client that still sends when its last answer is out.
_DISCARDED_AT_ONCE = 16
_CHUNK = 16 << 10


class PlainHttpError(ConnectionError):
    """The client does not know that this port speaks TLS."""


class Stream(Protocol):
    """A connected socket on which nothing waits."""

    socket: socket.socket
    needs: int
    """What the last call that could not go on waits for: EVENT_READ or EVENT_WRITE."""

    def open(self) -> bool:
        """Go on with the handshake; whether it is done."""

    def receive(self, size: int) -> bytes | None:
        """Bytes, none at the end; None when there is nothing yet."""

    def send(self, data: bytes | memoryview) -> int:
        """How much went out; 0 when nothing does for now."""

    def end(self) -> None:
        """Say that nothing more comes."""


class PlainStream:
    """Without TLS."""

    needs = EVENT_READ

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def open(self) -> bool:
        return True

    def receive(self, size: int) -> bytes | None:
        try:
            return self.socket.recv(size)
        except BlockingIOError:
            return None

    def send(self, data: bytes | memoryview) -> int:
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0

    def end(self) -> None:
        """Nothing to say: closing says it."""


class _Answer:
    """What cheroot writes an answer to. What the client does not take at once is kept."""

    def __init__(self, stream: Stream, timeout: float) -> None:
        self._stream = stream
        self._timeout = timeout
        self.unsent = bytearray()

    def write(self, data: Any) -> int:
        """Send or keep; wait only where the client has left much of what came before."""
        if len(self.unsent) > _UNSENT:
            self._wait()
        self.unsent += data
        self.send()
        return len(data)

    def send(self) -> None:
        """Send as much as goes out at once. Raises ConnectionError."""
        sent = 0
        with memoryview(self.unsent) as unsent:
            while sent < len(unsent):
                # TLS takes no more in a record.
                went = self._stream.send(unsent[sent : sent + _CHUNK])
                if not went:
                    break
                sent += went
        del self.unsent[:sent]

    def _wait(self) -> None:
        deadline = time.monotonic() + self._timeout
        poll = select.poll()
        poll.register(self._stream.socket.fileno(), select.POLLOUT)
        while len(self.unsent) > _UNSENT:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise TimeoutError("timed out")  # as cheroot knows it
            self.send()


class _Request(HTTPRequest):
    """A request whose header has come in full; its body, of which nothing is made, has not."""

    def __init__(self, server: Any, conn: Connection, *options: Any, **more: Any) -> None:
        super().__init__(server, conn, *options, **more)
        if conn.secure:
            self.scheme = b"https"

    def read_request_headers(self) -> bool:
        if not super().read_request_headers():  # type: ignore[no-untyped-call]
            return False
        # Nobody waits for a body. It is not taken for the next request either.
        if self.chunked_read or int(self.inheaders.get(b"Content-Length", 0)):
            self.close_connection = True
        return True


class Connection(HTTPConnection):
    """One client's connection. Either the gate has it, or the thread that answers."""

    RequestHandlerClass = _Request

    def __init__(
        self, gate: Gate, server: Any, stream: Stream, address: tuple[Any, ...], secure: bool
    ) -> None:
        super().__init__(server, stream.socket, lambda *_: io.BytesIO())
        # Caches that refer to this object: it would wait for the garbage collector.
        for cached in ("resolve_peer_creds", "get_peer_creds"):
            self.__dict__.pop(cached, None)
        self.remote_addr, self.remote_port = address[:2]
        self.secure = secure
        self.stream = stream
        self.fd = stream.socket.fileno()
        self.opened = False
        self.ending = False
        """The last answer is on its way out, or out."""
        self.lingers = False
        self.received = bytearray()
        self.deadline = 0.0
        self.answer = _Answer(stream, gate.timeout)
        self.wfile = self.answer
        self._gate = gate

    def close(self) -> None:
        """No more requests: close when the client has what there is for it."""
        self._gate.hand_back(self, last=True)

    def drop(self) -> None:
        """Close at once."""
        with contextlib.suppress(OSError):
            self.stream.socket.close()

    def has_request(self) -> bool:
        """Whether a request's header has come in full, or enough to see that it never will."""
        received = self.received
        first = received.find(b"\n")
        return (
            b"\r\n\r\n" in received
            or b"\n\n" in received
            or (first >= 0 and received[first - 1 : first] != b"\r")
            or len(received) > self.server.max_request_header_size
        )

    def take_request(self) -> None:
        """Give cheroot one request's header to read; what came behind it stays."""
        end = self.received.find(b"\r\n\r\n") + 4
        if end < 4:
            end = len(self.received)
        self.socket = self.stream.socket  # another one since the handshake
        self.rfile = io.BytesIO(self.received[:end])
        del self.received[:end]


class Gate:
    """Every connection but those that are being answered. `run` is its thread."""

    def __init__(
        self,
        server: Any,
        listener: socket.socket,
        stream_of: Callable[[socket.socket], Stream] | None,
        most: int = MOST,
    ) -> None:
        """`server` is cheroot's; `stream_of` makes TLS of a socket (None: there is none)."""
        self.timeout: float = server.timeout
        self._server = server
        self._listener = listener
        self._stream_of = stream_of
        self._most = most
        listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, EVENT_READ)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake, EVENT_READ)
        self._all: set[Connection] = set()
        self._waiting: dict[Connection, int] = {}  # by how long; and what for
        self._returned: deque[tuple[Connection, bool]] = deque()
        self._next_look = float("inf")
        self._stopping = False
        self._running = False
        self._closed = False
        self._lock = threading.Lock()
        self._log = SparingLog(logging.getLogger(__name__))

    # what cheroot calls, from its threads

    @property
    def can_add_keepalive_connection(self) -> bool:
        return len(self._all) < self._most // 2

    def put(self, connection: Connection) -> None:
        """A request is answered; there may be another one."""
        self.hand_back(connection, last=False)

    def hand_back(self, connection: Connection, last: bool) -> None:
        """From the thread that answered: for its next request, or to end it."""
        with self._lock:
            if not self._closed:
                self._returned.append((connection, last))
                os.eventfd_write(self._wake, 1)
                return
        connection.drop()

    def stop(self) -> None:
        """Have `run` return."""
        self._stopping = True
        with self._lock:
            if not self._closed:
                os.eventfd_write(self._wake, 1)
        deadline = time.monotonic() + 1
        while self._running and time.monotonic() < deadline:
            time.sleep(0.005)

    def close(self) -> None:
        """Close everything that waits."""
        with self._lock:  # nobody writes to the descriptor's next owner
            self._closed = True
            os.close(self._wake)
        for connection in list(self._waiting):
            self._drop(connection)
        while self._returned:
            self._returned.popleft()[0].drop()
        self._selector.close()

    # the gate's own thread

    def run(self, expiration_interval: float) -> None:
        """Until `stop`. There is nothing to do at intervals: without a client it sleeps."""
        self._running = True
        try:
            while not self._stopping:
                self._turn()
        finally:
            self._running = False

    def _turn(self) -> None:
        wait = self._next_look - time.monotonic()
        events = self._selector.select(None if wait == float("inf") else max(0.0, wait))
        for key, _ in events:
            if key.fd == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            elif key.data is None:
                self._accept()
            elif key.data in self._waiting:  # not dropped earlier in this turn
                self._safely(self._go_on, key.data)
        while self._returned:
            connection, last = self._returned.popleft()
            connection.ending = last
            connection.deadline = time.monotonic() + self.timeout
            self._safely(self._go_on, connection)
        if time.monotonic() >= self._next_look:
            self._look_for_late_ones()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # No descriptor left: one of ours has to go. Else it is the client that has gone.
                if error.errno in (errno.EMFILE, errno.ENFILE) and not self._make_room():
                    time.sleep(0.1)
                return
            if len(self._all) >= self._most and not self._make_room():
                sock.close()
                continue
            sock.setblocking(False)
            try:
                stream = self._stream_of(sock) if self._stream_of else PlainStream(sock)
                secure = self._stream_of is not None
                connection = Connection(self, self._server, stream, address, secure)
            except OSError:
                sock.close()
                continue
            connection.deadline = time.monotonic() + self.timeout
            self._all.add(connection)
            self._safely(self._go_on, connection)

    def _make_room(self) -> bool:
        """Drop the connection that has waited longest; False when all are being answered."""
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        self._log.tell(
            "crowded",
            f"{len(self._all)} connections: dropping the one that has waited longest,"
            f" from {oldest.remote_addr}",
        )
        self._drop(oldest)
        return True

    def _safely(self, go_on: Callable[[Connection], None], connection: Connection) -> None:
        try:
            go_on(connection)
        except PlainHttpError:
            self._refuse_plain_http(connection)
        except OSError as error:
            if not connection.opened:
                self._log.tell(
                    "handshake", f"no TLS connection with {connection.remote_addr}: {error}"
                )
            self._drop(connection)
        except Exception:
            # One connection's trouble is not that of the others.
            logging.getLogger(__name__).exception("dropping a connection")
            self._drop(connection)

    def _go_on(self, connection: Connection) -> None:
        """As far as it goes without waiting: handshake, unsent answers, the next request."""
        stream, answer = connection.stream, connection.answer
        if not connection.opened:
            if not stream.open():
                self._wait(connection, stream.needs)
                return
            connection.opened = True
        if answer.unsent:
            before = len(answer.unsent)
            answer.send()
            if answer.unsent:
                if len(answer.unsent) < before:
                    connection.deadline = time.monotonic() + self.timeout
                self._wait(connection, EVENT_WRITE)
                self._bound_unsent()
                return
        if connection.ending:
            self._linger(connection)
            return
        while not connection.has_request():
            data = stream.receive(_CHUNK)
            if data is None:
                self._wait(connection, stream.needs)
                return
            if not data:
                self._drop(connection)
                return
            if not connection.received:  # a request has this long, however it dribbles
                connection.deadline = time.monotonic() + self.timeout
            connection.received += data
        self._unwatch(connection)
        connection.take_request()
        self._server.process_conn(connection)

    def _linger(self, connection: Connection) -> None:
        """Closing while the client still sends would take the answer away from it."""
        if not connection.lingers:
            connection.lingers = True
            connection.deadline = time.monotonic() + _LINGER
            connection.stream.end()
            connection.stream.socket.shutdown(socket.SHUT_WR)
        # Past TLS: nothing is made of it.
        with contextlib.suppress(BlockingIOError):
            for _ in range(_DISCARDED_AT_ONCE):
                if not socket.socket.recv(connection.stream.socket, _CHUNK):
                    self._drop(connection)
                    return
        self._wait(connection, EVENT_READ)

    def _wait(self, connection: Connection, needs: int) -> None:
        known = self._waiting.get(connection)
        if known is None:
            self._selector.register(connection.fd, needs, connection)
        elif known != needs:
            self._selector.modify(connection.fd, needs, connection)
        self._waiting[connection] = needs  # keeps its place among those that wait
        self._next_look = min(self._next_look, connection.deadline)

    def _unwatch(self, connection: Connection) -> None:
        if self._waiting.pop(connection, None) is not None:
            self._selector.unregister(connection.fd)

    def _drop(self, connection: Connection) -> None:
        self._unwatch(connection)
        self._all.discard(connection)
        connection.drop()

    def _bound_unsent(self) -> None:
        while sum(len(one.answer.unsent) for one in self._waiting) > MOST_UNSENT:
            self._drop(next(one for one in self._waiting if one.answer.unsent))

    def _look_for_late_ones(self) -> None:
        now = time.monotonic()
        for connection in [one for one in self._waiting if one.deadline <= now]:
            if connection.received and connection.opened and not connection.ending:
                self._say(connection, "408 Request Timeout", "The request took too long.\n")
            else:
                self._drop(connection)
        # Not for every connection that comes: a flood of them would make this quadratic.
        soonest = min((one.deadline for one in self._waiting), default=float("inf"))
        self._next_look = max(soonest, now + 0.25)

    def _refuse_plain_http(self, connection: Connection) -> None:
        self._log.tell("plain", f"plain HTTP from {connection.remote_addr} to the TLS port")
        connection.stream = PlainStream(connection.stream.socket)
        connection.answer = _Answer(connection.stream, self.timeout)
        connection.opened = True
        self._say(
            connection, "400 Bad Request", "Client sent an HTTP request to an HTTPS server.\n"
        )

    def _say(self, connection: Connection, status: str, text: str) -> None:
        """Answer without a thread, and end it."""
        connection.ending = True
        connection.deadline = time.monotonic() + _LINGER
        connection.answer.unsent += (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}"
        ).encode("ascii")
        self._safely(self._go_on, connection)
