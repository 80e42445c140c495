# SPDX-License-Identifier: Apache-2.0
"""What a stage waits for in poll, select and epoll: the network, or something else; and whom."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from pipelined.runs import Stage

if TYPE_CHECKING:
    from kernel.conftest import Watch

pytestmark = pytest.mark.undisturbed

SECONDS = 0.4

# polls CALL FILE…: waits in CALL for SECONDS for these files to be readable; none ever is.
# Prints the port at the other end of its connection.
_POLLS = """#!/usr/bin/python3
import ctypes, os, select, socket, struct, sys
SECONDS = 0.4
call, *files = sys.argv[1:]
server = socket.create_server(("127.0.0.1", 0))
held = [server]
def opened(name):
    if name == "stdin":
        return 0
    if name == "network":
        held.append(socket.create_connection(server.getsockname()))
    elif name == "udp":
        held.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        held[-1].connect(server.getsockname())
    elif name == "local":
        held.extend(socket.socketpair())
    elif name == "event":
        return os.eventfd(0)
    elif name == "pipe":
        return os.pipe()[0]
    return held[-1].fileno()
fds = [opened(name.removesuffix("-ignored")) for name in files]
wanted = [0 if name.endswith("-ignored") else select.POLLIN for name in files]
libc = ctypes.CDLL(None)
if call == "poll":
    poll = select.poll()
    for fd, events in zip(fds, wanted):
        poll.register(fd, events)
    poll.poll(SECONDS * 1000)
elif call == "ppoll":
    entries = b"".join(struct.pack("ihh", fd, events, 0) for fd, events in zip(fds, wanted))
    libc.ppoll(entries, ctypes.c_ulong(len(fds)), struct.pack("qq", 0, int(SECONDS * 1e9)), None)
elif call == "select":
    select.select(fds, [], [], SECONDS)
elif call == "epoll":
    epoll = select.epoll()
    for fd in fds:
        epoll.register(fd, select.EPOLLIN)
    epoll.poll(SECONDS)
print(server.getsockname()[1])
"""


@pytest.fixture(autouse=True)
def polls(watch: Watch) -> None:
    path = watch.directory / "polls"
    path.write_text(_POLLS)
    path.chmod(0o755)


def polled(watch: Watch, arguments: str) -> tuple[Stage, int]:
    """The stage that polls, and the port of its peer. Its stdin is a pipe that stays empty."""
    observed = watch.run(f"mkfifo held; exec 9<>held; ./polls {arguments} <held | cat")
    (stage,) = (s for run in observed.runs for s in run.stages if s.command == "polls")
    return stage, int(observed.stdout)


@pytest.mark.parametrize("call", ["poll", "ppoll", "select", "epoll"])
def test_to_poll_a_connection_is_to_wait_for_the_network(watch: Watch, call: str) -> None:
    stage, port = polled(watch, f"{call} network")
    assert stage.states["net"] >= 0.9 * SECONDS
    assert stage.states["poll"] < 0.1
    assert (stage.peer_port, stage.peer_family) == (port, "ipv4")


@pytest.mark.parametrize(
    "files",
    ["udp", "event network", "network local", "local event network pipe"],
)
@pytest.mark.parametrize("call", ["poll", "select", "epoll"])
def test_what_a_program_wakes_itself_by_does_not_count(watch: Watch, call: str, files: str) -> None:
    stage, port = polled(watch, f"{call} {files}")
    assert stage.states["net"] >= 0.9 * SECONDS
    assert stage.peer_port == port


@pytest.mark.parametrize("files", ["event", "local", "pipe", "network stdin"])
@pytest.mark.parametrize("call", ["poll", "select", "epoll"])
def test_without_the_network_or_at_a_pipe_of_its_own_it_is_poll(
    watch: Watch, call: str, files: str
) -> None:
    stage, _ = polled(watch, f"{call} {files}")
    assert stage.states["poll"] >= 0.9 * SECONDS
    assert stage.states["net"] < 0.1
    assert stage.peer_port is None


def test_what_poll_is_not_to_report_does_not_count(watch: Watch) -> None:
    stage, _ = polled(watch, "poll network stdin-ignored")
    assert stage.states["net"] >= 0.9 * SECONDS


def test_more_files_than_are_looked_at_leave_it_poll(watch: Watch) -> None:
    stage, _ = polled(watch, f"poll {'event ' * 16}network")
    assert stage.states["poll"] >= 0.9 * SECONDS


class SlowServer:
    """Answers every request of HTTP with 10 pieces, one each 0.05 s."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 100000\r\n\r\n")
                for _ in range(10):
                    time.sleep(0.05)
                    connection.sendall(bytes(10000))


@pytest.fixture
def server() -> Iterator[SlowServer]:
    with closing(SlowServer()) as running:
        yield running


@pytest.mark.parametrize("command", ["curl -s", "curl -sN", "busybox wget -q -O -"])
def test_a_download_waits_for_the_network_and_its_port(
    watch: Watch, server: SlowServer, command: str
) -> None:
    observed = watch.run(f"{command} http://127.0.0.1:{server.port}/ | cksum")
    (run,) = observed.runs
    stage = run.stages[0]
    # while it waits for a CPU, pieces arrive for which it need not wait any more
    assert stage.states["net"] >= 0.45 - stage.states["runqueue"]
    assert stage.states["net"] > 0
    assert stage.states["poll"] < 0.1
    assert stage.peer_port == server.port


def test_the_peer_of_a_call_on_the_socket_is_known_too(watch: Watch, server: SlowServer) -> None:
    # bash reads the connection with read(2)
    script = f"exec 3<>/dev/tcp/127.0.0.1/{server.port}; echo GET >&3; cat <&3 | cksum"
    stage = watch.run(script).only("cat|cksum").stages[0]
    assert (stage.command, stage.peer_port) == ("cat", server.port)


def test_the_stage_around_has_the_peer_of_what_is_inside(watch: Watch, server: SlowServer) -> None:
    observed = watch.run(f"(curl -s http://127.0.0.1:{server.port}/; true) | cksum")
    assert observed.only("bash|cksum").stages[0].peer_port == server.port
