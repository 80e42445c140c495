# SPDX-License-Identifier: Apache-2.0
"""The port: accepts connections, bounds how many there are and what they keep, starts and stops.

One thread runs asyncio's event loop, in which each connection is a coroutine (`connection`);
requests are read and answers framed by h11 (`messages`). A thread is started only to answer a
request whose header has arrived in full. So a client that dribbles, is silent, does not read or
never ends its handshake costs a file descriptor and some kB for `client_timeout` seconds. No
handshake blocks another one, and each takes the certificate that is in use when it begins.

What was tried instead, against tests/unit/test_connections.py:

- cheroot 11: a TLS handshake blocks the thread that accepts (its issue 748), and each slow client
  a thread. 470 lines between it and the clients made up for that.
- Tornado 6.2 (Debian 12) and 6.6: no bound on connections, none on unsent bytes (200 slow readers
  of 6 MB: 1.2 GB). A header that is too long or too slow is not answered (413, 414, 408). The two
  differ in what they refuse: bare line feeds, methods in lower case, no Host.
- asyncio's streams, and uvicorn and hypercorn over them: 256 KiB for each TLS connection before
  its first byte (`SSLProtocol.max_size`), one TLS context for as long as the server runs.
  uvicorn's bound on concurrency refuses everybody while slow clients hold it; hypercorn has none.
- waitress: no TLS. At its bound it stops to accept: a scrape waits for the slow clients.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Collection
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pipelined.config import Address
from pipelined.http_port.connection import Connection
from pipelined.http_port.host_names import HostNames
from pipelined.http_port.listening import listen
from pipelined.http_port.sparing_log import SparingLog

if TYPE_CHECKING:
    from pipelined.http_port.messages import WsgiApp
    from pipelined.http_port.web_config_file import WebConfigFile

__all__ = ["STOPPING", "HttpServer"]

#: Key of the WSGI environment: the `threading.Event` that is set when the server stops.
STOPPING = "pipelined.stopping"
#: Connections accepted before the others have their turn.
_ACCEPTED_AT_ONCE = 32
#: Threads that are kept free for urgent requests.
_KEPT_FREE = 2


class HttpServer:
    """Serves the WSGI application `app` in threads of this process, from `start` to `stop`.

    `host` is a name or an address (0.0.0.0: all of IPv4, `::`: of IPv6 too); `port` 0 picks
    a free one, and `port` holds it from then on. Without `web_config` there is neither TLS nor a
    password. At most `threads` requests are answered at once, streams included. Two of the threads
    are kept free for requests for the paths `urgent`, if there are any. A stream has to end when
    the event at `STOPPING` of its environment is set. No thread keeps the process alive.
    """

    #: Connections at once. At the limit the one that has waited longest makes room for a new one.
    max_connections = 256
    #: Bytes of answers that are kept until clients have taken them: past it the slowest are closed.
    max_kept = 32 << 20
    #: Seconds a client may take over a request, read nothing of an answer, or be idle.
    client_timeout = 10.0
    #: Seconds `stop` waits at most.
    stop_timeout = 0.5

    def __init__(
        self,
        app: WsgiApp,
        host: str,
        port: int,
        web_config: WebConfigFile | None = None,
        *,
        threads: int = 16,
        urgent: Collection[str] = (),
        listener: socket.socket | None = None,
        names: HostNames | None = None,
    ) -> None:
        """With a `listener` it is the one to serve on, made for `host` and `port`.

        `names` are those that requests may have in `Host`, by default addresses and localhost.
        """
        self.app = app
        if web_config is not None:
            from pipelined.http_port.guard import guarded  # TLS, YAML and bcrypt: 1.2 MB

            self.app = guarded(app, web_config)
        self.host, self.port = host, port
        self.web_config = web_config
        self.threads = threads
        self.urgent = urgent
        self.names = names or HostNames()
        self.log = SparingLog(logging.getLogger(__name__))
        self._listener = listener
        self._thread: threading.Thread | None = None
        self._connections: dict[Connection, asyncio.Task[None]] = {}  # by how long they wait

    @property
    def scheme(self) -> str:
        """``https`` or ``http``."""
        return "https" if self.web_config and self.web_config.tls else "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{Address(self.host, self.port)}/"

    def start(self) -> None:
        """Listen; on return the kernel accepts connections. Raises UserError with what to do."""
        self._listener = listener = self._listener or listen(self.host, self.port)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self.loop = asyncio.new_event_loop()
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()  # future and call; None: no more
        self._others: asyncio.Semaphore | nullcontext[None] = nullcontext()
        if self.urgent:
            self._others = asyncio.Semaphore(self.threads - _KEPT_FREE)
        self._stop, self.stopping = asyncio.Event(), threading.Event()
        self.environ = {"wsgi.url_scheme": self.scheme, STOPPING: self.stopping}
        for _ in range(self.threads):
            threading.Thread(target=self._work, name="http-answer", daemon=True).start()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the listening socket and every connection, within `stop_timeout` seconds."""
        if self._thread is not None and self._listener is not None:
            self.stopping.set()
            self.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(self.stop_timeout)
            self._listener.close()
            self._thread = self._listener = None
            for _ in range(self.threads):
                self._jobs.put(None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- in the thread of the event loop

    def _run(self) -> None:
        assert self._listener is not None
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._serve(self._listener))

    async def _serve(self, listener: socket.socket) -> None:
        self.loop.add_reader(listener, self._accept, listener)
        await self._stop.wait()
        self.loop.remove_reader(listener)
        listener.close()
        # What is being answered has a moment, so that streams end as they should. Then the
        # runner cancels what there is.
        for connection, task in self._connections.items():
            if not connection.answering:
                task.cancel()
        if self._connections:
            await asyncio.wait(list(self._connections.values()), timeout=self.stop_timeout / 2)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = listener.accept()
            except OSError as error:
                # No descriptor is left: one of ours has to go. Else there is no client any more.
                if error.errno in (errno.EMFILE, errno.ENFILE) and not self._make_room():
                    time.sleep(0.1)
                return
            if len(self._connections) >= self.max_connections and not self._make_room():
                sock.close()
                continue
            sock.setblocking(False)
            connection = Connection(self, sock, address)
            task = self._connections[connection] = self.loop.create_task(connection.run())
            task.add_done_callback(partial(self._forget, connection))

    def _forget(self, connection: Connection, _: object) -> None:
        self._connections.pop(connection, None)
        connection.close()

    def _make_room(self) -> bool:
        """Close the connection that has waited longest; False if all are being answered."""
        oldest = next((one for one in self._connections if not one.answering), None)
        if oldest is None:
            return False
        crowd, client = len(self._connections), oldest.address[0]
        self.log.info(
            "crowded", f"{crowd} connections: closing the oldest that waits, from {client}"
        )
        self._connections.pop(oldest).cancel()
        return True

    # -- for connections

    def turn(self, target: str) -> asyncio.Semaphore | nullcontext[None]:
        """What a request for `target` holds while a thread is at work for it."""
        return nullcontext() if target.partition("?")[0] in self.urgent else self._others

    def in_thread(self, call: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        """Have one of the threads call it, when those that came first are done."""
        made: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._jobs.put((made, call))
        return made

    def _work(self) -> None:
        for made, call in iter(self._jobs.get, None):
            if made.set_running_or_notify_cancel():
                try:
                    made.set_result(call())
                except Exception as error:
                    made.set_exception(error)
            del made, call  # not kept until the next one comes

    def waits_from_now(self, connection: Connection) -> None:
        """Put a connection that was answered behind those that wait already."""
        if (task := self._connections.pop(connection, None)) is not None:
            self._connections[connection] = task

    def bound_kept(self) -> None:
        """Close connections whose clients do not read, those that wait longest first."""
        slow = [one for one in self._connections if one.kept and not one.answering]
        kept = sum(one.kept for one in slow)
        for connection in slow:
            if kept <= self.max_kept:
                break
            kept -= connection.kept
            self._connections.pop(connection).cancel()
