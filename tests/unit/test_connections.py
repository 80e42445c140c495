# SPDX-License-Identifier: Apache-2.0
"""Clients that are slow, silent, many or hostile: a scrape is answered all the same."""

from __future__ import annotations

import errno
import gc
import http.client
import logging
import select
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask, Response, request

from certificates import Authority
from pipelined.config import Address, Config
from pipelined.errors import ConfigurationError
from pipelined.http_port.connection import Connection
from pipelined.http_port.exposure import protected_port
from pipelined.http_port.listening import is_of_this_host
from pipelined.http_port.server import HttpServer
from pipelined.http_port.web_config_file import WebConfigFile

MOST = HttpServer.max_connections
#: A scrape takes milliseconds; one that waits for a slow client takes ten seconds.
SOON = 6.0
BIG = 4 << 20
TOOK_TOO_LONG = b"The request took too long.\n"


class ImpatientServer(HttpServer):
    client_timeout = 2


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    authority.issue("server", "IP:127.0.0.1")
    return authority


@pytest.fixture(params=["http", "https"])
def web_config(
    request: pytest.FixtureRequest, ca: Authority, tmp_path: Path
) -> WebConfigFile | None:
    if request.param == "http":
        return None
    file = tmp_path / "web.yml"
    directory = ca.certificate.parent
    file.write_text(
        f"tls_server_config:\n  cert_file: {directory}/server.crt\n"
        f"  key_file: {directory}/server.key\n"
    )
    return WebConfigFile(file)


@pytest.fixture
def app() -> Flask:
    app = Flask("app")
    answers: dict[str, Callable[[], Response | str]] = {
        "metrics": lambda: "figures",
        "big": lambda: Response(b"x" * BIG),
        "endless": lambda: Response(iter(lambda: b"x" * 50_000, b"")),
        "scheme": lambda: request.scheme,
    }
    for name, answer in answers.items():
        app.add_url_rule(f"/{name}", name, answer)
    return app


@pytest.fixture
def server(app: Flask, web_config: WebConfigFile | None) -> Iterator[HttpServer]:
    with HttpServer(app, "127.0.0.1", 0, web_config) as running:
        yield running


@pytest.fixture
def impatient(app: Flask, web_config: WebConfigFile | None) -> Iterator[HttpServer]:
    with ImpatientServer(app, "127.0.0.1", 0, web_config) as running:
        yield running


Connect = Callable[..., socket.socket]


@pytest.fixture
def connect(ca: Authority) -> Iterator[Connect]:
    """Connects to a server, with TLS if it speaks that."""
    opened: list[socket.socket] = []
    context = ssl.create_default_context(cafile=str(ca.certificate))

    def open_one(to: HttpServer, buffer: int = 0, handshake: bool = True) -> socket.socket:
        sock = socket.socket()
        if buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.settimeout(20)
        sock.connect(("127.0.0.1", to.port))
        if handshake and to.scheme == "https":
            sock = context.wrap_socket(sock, server_hostname="127.0.0.1")
        opened.append(sock)
        return sock

    yield open_one
    for sock in opened:
        sock.close()


def ask(sock: socket.socket, path: str) -> tuple[int, bytes]:
    """A request on this connection, and its answer."""
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return answer_on(sock)


def answer_on(sock: socket.socket) -> tuple[int, bytes]:
    answer = http.client.HTTPResponse(sock)
    answer.begin()
    return answer.status, answer.read()


def scrape_seconds(server: HttpServer, connect: Connect) -> float:
    """How long a new client's scrape takes."""
    began = time.monotonic()
    assert ask(connect(server), "/metrics") == (200, b"figures")
    return time.monotonic() - began


def held(server: HttpServer) -> int:
    """Connections that the server has."""
    return len(server._connections)


def kept(server: HttpServer) -> int:
    """Bytes of answers that it keeps for clients that have yet to read them."""
    return sum(one.kept for one in tuple(server._connections))


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- requests that wait


def test_urgent_requests_wait_for_no_others(connect: Connect) -> None:
    go = threading.Event()
    lists = Flask("lists")
    lists.add_url_rule("/list", "list", lambda: str(go.wait(20)))
    lists.add_url_rule("/metrics", "metrics", lambda: "figures")
    with HttpServer(lists, "127.0.0.1", 0, threads=4, urgent=("/metrics",)) as server:
        waiting = [connect(server) for _ in range(3 * server.threads)]
        for sock in waiting:
            sock.sendall(b"GET /list HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(3):
            assert scrape_seconds(server, connect) < SOON
        go.set()
        assert [answer_on(sock) for sock in waiting] == [(200, b"True")] * len(waiting)


# -- slow and silent clients


def test_hundreds_of_silent_connections(server: HttpServer, connect: Connect) -> None:
    for _ in range(2 * MOST):
        connect(server, handshake=False)
    assert scrape_seconds(server, connect) < SOON
    assert held(server) <= MOST


def test_more_dribbled_headers_than_threads(server: HttpServer, connect: Connect) -> None:
    dribbling = [connect(server) for _ in range(3 * server.threads)]
    for sock in dribbling:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
    for _ in range(5):
        for sock in dribbling:
            sock.sendall(b"a")
        assert scrape_seconds(server, connect) < SOON
    for sock in dribbling[:3]:
        sock.sendall(b"\r\n\r\n")
        assert answer_on(sock) == (200, b"figures")


def test_more_dribbled_bodies_than_threads(server: HttpServer, connect: Connect) -> None:
    for _ in range(3 * server.threads):
        sock = connect(server)
        sock.sendall(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\na")
    assert scrape_seconds(server, connect) < SOON


@pytest.mark.parametrize("path", ["/big", "/endless"])
def test_clients_that_do_not_read(server: HttpServer, connect: Connect, path: str) -> None:
    # Those who are sent an endless stream hold a thread each, for a while.
    few = server.threads // 2
    for _ in range(3 * server.threads if path == "/big" else few):
        sock = connect(server, buffer=4096)
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    for _ in range(3):
        assert scrape_seconds(server, connect) < SOON
    until(lambda: kept(server) <= HttpServer.max_kept)


def test_what_a_slow_client_has_not_read_is_sent_to_the_end(
    server: HttpServer, connect: Connect
) -> None:
    sock = connect(server, buffer=4096)
    sock.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
    until(lambda: kept(server) > 0)
    status, body = answer_on(sock)
    assert (status, len(body)) == (200, BIG)
    assert ask(sock, "/metrics") == (200, b"figures")


def test_a_request_has_so_long_however_it_dribbles(impatient: HttpServer, connect: Connect) -> None:
    sock = connect(impatient)
    began = time.monotonic()
    # One thread sends and reads: a connection with TLS is not to be used by two at once.
    sock.settimeout(0.1)
    answer = b""
    with suppress(ConnectionResetError):
        while not answer.endswith(TOOK_TOO_LONG):
            assert time.monotonic() - began < 8
            with suppress(BrokenPipeError):
                sock.sendall(b"a")
            with suppress(TimeoutError):
                answer += sock.recv(4096)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert answer.endswith(TOOK_TOO_LONG)


def test_a_handshake_has_so_long(impatient: HttpServer, connect: Connect) -> None:
    sock = connect(impatient, handshake=False)
    sock.sendall(b"\x16\x03\x01")
    if impatient.scheme == "http":
        assert answer_on(sock)[0] == 408
    assert sock.recv(100) == b""


def test_silent_and_idle_connections_are_closed(impatient: HttpServer, connect: Connect) -> None:
    silent, idle = connect(impatient), connect(impatient)
    ask(idle, "/metrics")
    assert (silent.recv(1), idle.recv(1)) == (b"", b"")
    until(lambda: held(impatient) == 0)


# -- hostile clients


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\x01garbage\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"get /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\n\n", 400),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /" + b"a" * 70_000, 414),
        (b"GET / HTTP/1.1\r\nCookie: " + b"a" * 70_000, 413),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 12_000, 413),
    ],
)
def test_garbage_is_refused_and_others_are_served(
    server: HttpServer, connect: Connect, sent: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    sock = connect(server)
    sock.sendall(sent)
    assert answer_on(sock)[0] == status
    assert scrape_seconds(server, connect) < SOON
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_client_that_sends_for_ever_gets_its_refusal(
    server: HttpServer, connect: Connect
) -> None:
    """In one thread: a TLS socket cannot be written to and read from by two at a time."""
    sock = connect(server)
    sock.sendall(b"GET / HTTP/1.1\r\nCookie: ")
    sock.setblocking(False)
    wait = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
    received, closed, end = b"", False, time.monotonic() + 20
    while not closed:
        assert time.monotonic() < end, received
        try:
            sock.send(b"a" * 50_000)
        except wait:
            select.select([sock], [sock], [], 0.1)
        except OSError:
            closed = True
        try:
            more = sock.recv(1 << 16)
        except wait:
            continue
        except OSError:
            break
        closed |= not more
        if more and not received:
            assert scrape_seconds(server, connect) < SOON
        received += more
    assert received.startswith(b"HTTP/1.1 413 "), received


def test_a_body_is_not_taken_for_the_next_request(server: HttpServer, connect: Connect) -> None:
    sock = connect(server)
    body = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    sock.sendall(b"GET /metrics HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    assert answer_on(sock)[0] == 200
    assert sock.recv(100) == b""


def test_garbage_instead_of_a_handshake_is_dropped(
    server: HttpServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    if server.scheme == "http":
        return
    caplog.set_level(logging.INFO)
    for _ in range(20):
        sock = connect(server, handshake=False)
        sock.sendall(b"\x16\x03\x01\x00\x05hello, is anybody there?")
        with suppress(ConnectionResetError):
            while sock.recv(100):  # an alert
                pass
    assert scrape_seconds(server, connect) < SOON
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if line.startswith("no TLS connection")]) == 1


# -- how connections are kept


def test_requests_sent_at_once_are_answered_in_turn(server: HttpServer, connect: Connect) -> None:
    sock = connect(server)
    sock.sendall(
        b"".join(
            b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % p for p in (b"metrics", b"scheme")
        )
    )
    # One reader for both: HTTPResponse reads ahead.
    received = b""
    while server.scheme.encode() not in received.rpartition(b"figures")[2]:
        data = sock.recv(10_000)
        assert data, received
        received += data
    assert received.index(b"figures") < received.rindex(server.scheme.encode())


def test_the_application_knows_the_scheme(server: HttpServer, connect: Connect) -> None:
    assert ask(connect(server), "/scheme") == (200, server.scheme.encode())


def test_the_one_that_waited_longest_makes_room(server: HttpServer, connect: Connect) -> None:
    first = connect(server)
    ask(first, "/metrics")
    others = [connect(server, handshake=False) for _ in range(MOST)]
    assert first.recv(1) == b""
    assert scrape_seconds(server, connect) < SOON
    assert len(others) == MOST


def test_there_are_never_more_connections_than_the_limit(app: Flask, connect: Connect) -> None:
    class Small(HttpServer):
        max_connections = 4

    with Small(app, "127.0.0.1", 0) as server:
        socks = [connect(server) for _ in range(3 * server.max_connections)]
        for sock in socks[: -server.max_connections]:
            assert sock.recv(1) == b""
        assert held(server) == server.max_connections
        assert [ask(sock, "/metrics")[0] for sock in socks[-server.max_connections :]] == [200] * 4


def test_who_is_being_answered_makes_no_room_and_who_waits_for_a_thread_does(
    connect: Connect,
) -> None:
    class Small(HttpServer):
        max_connections = 2

    begun, go = threading.Semaphore(0), threading.Event()
    slow = Flask("slow")

    def answer() -> str:
        begun.release()
        assert go.wait(20)
        return "made"

    slow.add_url_rule("/", view_func=answer)
    with Small(slow, "127.0.0.1", 0, threads=1) as server:
        request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        answered, queued = connect(server), connect(server)
        answered.sendall(request)
        assert begun.acquire(timeout=20)
        queued.sendall(request)
        last = connect(server)
        with suppress(ConnectionResetError):  # it had not even been read
            assert queued.recv(1) == b""
        go.set()
        assert answer_on(answered) == (200, b"made")
        assert ask(last, "/") == (200, b"made")


def test_what_is_kept_for_clients_that_do_not_read_is_bounded(
    app: Flask, web_config: WebConfigFile | None, connect: Connect
) -> None:
    class Small(HttpServer):
        max_kept = 2 * BIG

    with Small(app, "127.0.0.1", 0, web_config) as server:
        socks = [connect(server, buffer=4096) for _ in range(4)]
        for sock in socks:
            sock.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: held(server) < len(socks) and kept(server) <= server.max_kept)
        assert scrape_seconds(server, connect) < SOON


def test_an_answer_that_was_taken_is_not_kept(server: HttpServer, connect: Connect) -> None:
    ask(connect(server), "/metrics")
    tracemalloc.start()
    try:
        for _ in range(3):
            assert len(ask(connect(server), "/big")[1]) == BIG
        until(lambda: tracemalloc.get_traced_memory()[0] < BIG)
        assert held(server) == 4
    finally:
        tracemalloc.stop()


def test_threads_do_not_make_answers_ahead_of_the_event_loop(connect: Connect) -> None:
    go, hold, made = threading.Event(), threading.Event(), []
    counting = Flask("counting")

    def answer() -> str:
        assert go.wait(20)
        made.append(1)
        return "made"

    counting.add_url_rule("/", view_func=answer)
    with HttpServer(counting, "127.0.0.1", 0, threads=2) as server:
        socks = [connect(server) for _ in range(10)]
        for sock in socks:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: server._jobs.qsize() == len(socks) - server.threads)
        server.loop.call_soon_threadsafe(hold.wait, 20)
        go.set()
        until(lambda: len(made) == server.threads)
        time.sleep(0.2)
        assert len(made) == server.threads
        hold.set()
        assert [answer_on(sock) for sock in socks] == [(200, b"made")] * len(socks)


def test_a_client_that_reads_nothing_for_long_is_dropped(
    impatient: HttpServer, connect: Connect
) -> None:
    sock = connect(impatient, buffer=4096)
    sock.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
    until(lambda: kept(impatient) > 0)
    until(lambda: held(impatient) == 0 and kept(impatient) == 0)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        answer_on(sock)


def test_what_fails_again_and_again_is_in_the_log_once_a_minute(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(environ: object, start_response: object) -> list[bytes]:
        raise RuntimeError("secret detail")

    with HttpServer(broken, "127.0.0.1", 0) as server:
        assert [ask(connect(server), "/")[0] for _ in range(3)] == [500] * 3
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info


@pytest.mark.parametrize("error", [RuntimeError, OSError, TimeoutError])
def test_what_fails_without_an_answer_is_500(
    connect: Connect, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    def broken(environ: object, start_response: object) -> list[bytes]:
        raise error("secret detail")

    with HttpServer(broken, "127.0.0.1", 0) as server:
        status, body = ask(connect(server), "/")
    assert (status, b"secret" in body) == (500, False)
    assert "secret detail" in caplog.text


def test_a_stream_that_fails_ends_and_is_logged(
    app: Flask, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Iterator[bytes]:
        yield b"begun"
        raise OSError("secret detail")

    app.add_url_rule("/broken", view_func=lambda: Response(broken()))
    with HttpServer(app, "127.0.0.1", 0) as server:
        with pytest.raises(http.client.IncompleteRead):
            ask(connect(server), "/broken")
        until(lambda: held(server) == 0)
    assert "secret detail" in caplog.text


def test_a_client_that_leaves_a_stream_is_no_error(
    server: HttpServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    sock = connect(server)
    sock.sendall(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert sock.recv(1000)
    sock.close()
    until(lambda: held(server) == 0)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("request_line", "status", "ends"),
    [("GET /metrics HTTP/1.0", 200, True), ("GET /endless HTTP/1.0", 200, True),
     ("HEAD /big HTTP/1.1", 200, False), ("OPTIONS /metrics HTTP/1.1", 200, False),
     ("GET http://test/metrics HTTP/1.1", 400, True), ("GET //metrics HTTP/1.1", 400, True)],
)  # fmt: skip
def test_what_ends_the_connection(
    server: HttpServer, connect: Connect, request_line: str, status: int, ends: bool
) -> None:
    sock = connect(server)
    sock.sendall(f"{request_line}\r\nHost: localhost\r\n\r\n".encode())
    answer = http.client.HTTPResponse(sock, method=request_line.split()[0])
    answer.begin()
    assert (answer.status, answer.will_close) == (status, ends)
    if "endless" not in request_line:
        answer.read()
        if ends:
            assert sock.recv(1) == b""
        else:
            assert ask(sock, "/metrics") == (200, b"figures")


def test_a_closed_connection_is_forgotten_without_the_garbage_collector(
    server: HttpServer, connect: Connect
) -> None:
    def there() -> int:
        return sum(isinstance(one, Connection) for one in gc.get_objects())

    gc.collect()
    before = there()
    gc.disable()
    try:
        for _ in range(3 * server.threads):
            sock = connect(server)
            ask(sock, "/metrics")
            sock.close()
        until(lambda: held(server) == 0)
        until(lambda: there() <= before)
    finally:
        gc.enable()


def test_without_clients_nobody_wakes(impatient: HttpServer, connect: Connect) -> None:
    ask(connect(impatient), "/metrics")
    until(lambda: held(impatient) == 0)
    (thread,) = (one for one in threading.enumerate() if one.name == "http")
    status = Path(f"/proc/self/task/{thread.native_id}/status")

    def switches() -> str:
        return status.read_text().partition("voluntary_ctxt_switches:")[2].split()[0]

    # Past the time limits of the client that has gone, nothing is left to wake up for.
    until(lambda: switches() == (time.sleep(2.4), switches())[1])


def test_a_stop_at_any_moment_after_the_start_leaves_no_thread(app: Flask) -> None:
    before = set(threading.enumerate())
    for number in range(20):
        server = HttpServer(app, "127.0.0.1", 0)
        server.start()
        time.sleep(number / 10_000)
        server.stop()
    until(lambda: set(threading.enumerate()) <= before)


# -- where it listens


@pytest.mark.parametrize(
    ("code", "has"),
    [(errno.EADDRNOTAVAIL, False), (errno.EAFNOSUPPORT, False), (errno.EACCES, True), (0, True)],
)
def test_whether_the_host_has_an_address_is_seen_by_taking_it(
    code: int, has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    class Socket(socket.socket):
        def bind(self, address: object) -> None:
            taken.append(address)
            if code:
                raise OSError(code, "refused")

    monkeypatch.setattr(socket, "socket", Socket)
    assert is_of_this_host(Address("192.0.2.1", 9905)) is has
    assert taken == [("192.0.2.1", 0)]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1"])
def test_listening_on_this_host_only_needs_no_password(address: str) -> None:
    port = Address(address, 9905)
    assert protected_port(Config(web_listen_address=port)) == (port, None)


def test_the_address_of_a_name_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    at = {"near": "127.0.1.1", "far": "192.0.2.7"}
    monkeypatch.setattr(
        "socket.getaddrinfo", lambda name, port, **_: [(2, 1, 6, "", (at[name], port))]
    )
    near, _ = protected_port(Config(web_listen_address=Address("near", 9905)))
    assert near == Address("127.0.1.1", 9905)
    with pytest.raises(ConfigurationError, match=r"will not listen on 192\.0\.2\.7:9905"):
        protected_port(Config(web_listen_address=Address("far", 9905)))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.7", "fe80::1%eth0"])
def test_listening_for_others_without_a_password_is_refused_with_what_to_do(address: str) -> None:
    port = Address(address, 9905)
    with pytest.raises(ConfigurationError) as refused:
        protected_port(Config(web_listen_address=port))
    assert f"will not listen on {port} without a password" in refused.value.message
    for way in ("--web.config.file", "--web.allow-unauthenticated", "127.0.0.1"):
        assert way in refused.value.hint


def test_listening_for_others_is_allowed_by_name() -> None:
    port = Address("0.0.0.0", 9905)
    config = Config(web_listen_address=port, web_allow_unauthenticated=True)
    assert protected_port(config) == (port, None)


def test_tls_alone_keeps_nobody_out(ca: Authority, tmp_path: Path) -> None:
    file, directory = tmp_path / "web.yml", ca.certificate.parent
    file.write_text(
        f"tls_server_config:\n  cert_file: {directory}/server.crt\n"
        f"  key_file: {directory}/server.key\n"
    )
    config = Config(web_listen_address=Address("::", 9905), web_config_file=file)
    with pytest.raises(ConfigurationError) as refused:
        protected_port(config)
    assert f"give {file} basic_auth_users" in refused.value.hint
    _, web_config = protected_port(replace(config, web_allow_unauthenticated=True))
    assert web_config and web_config.tls


def test_listening_for_others_with_a_password_is_right_for_as_long_as_it_has_one(
    tmp_path: Path,
) -> None:
    file = tmp_path / "web.yml"
    file.write_text(
        "basic_auth_users:\n  a: $2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG\n"
    )
    config = Config(web_listen_address=Address("0.0.0.0", 9905), web_config_file=file)
    _, web_config = protected_port(config)
    assert web_config
    file.write_text("basic_auth_users: {}\n")
    with pytest.raises(ConfigurationError, match="will not listen"):
        web_config.reload()
    assert web_config.requires_authentication
