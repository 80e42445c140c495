# SPDX-License-Identifier: Apache-2.0
"""800 clients that are slow on purpose: others are answered within a second, and memory is bounded.

The slow ones are those of Debian's slowhttptest: headers that never end (-H), bodies that never
end (-B), answers that are read a few bytes at a time (-X).
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import resource
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from certificates import Authority

if TYPE_CHECKING:
    from e2e.conftest import Daemon, StartDaemon

pytestmark = pytest.mark.undisturbed

CLIENTS = 800
#: Seconds for an answer, and bytes that the daemon may have resident.
SOON = 1.0
MOST_RESIDENT = 128 << 20

#: Niceness of the daemon and of the test while it is measured.
_PRIORITY = -15

WaitUntil = Callable[[Callable[[], Any], str], Any]


@pytest.fixture(autouse=True)
def descriptors_and_priority() -> Iterator[None]:
    """For 800 sockets of our own, and so that we measure the daemon and not the machine's load."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    yield
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@dataclass
class Watched:
    """A daemon, asked for /readyz and /metrics while something goes on."""

    daemon: Daemon
    port: int
    context: ssl.SSLContext | None = None
    slowest: dict[str, float] = field(default_factory=dict)
    looks: int = 0
    resident: int = 0

    def __post_init__(self) -> None:
        self._proc = Path(f"/proc/{self.daemon.process.pid}")
        (self._proc / "clear_refs").write_text("5")  # VmHWM counts from now on
        # What else this machine has to do is not what is measured here.
        for task in (self._proc / "task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, int(task.name), _PRIORITY)

    @property
    def url(self) -> str:
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        if self.context is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=self.context)

    def look(self) -> None:
        """Ask once for each path, on new connections; note times, connections and memory."""
        for path in ("/readyz", "/metrics"):
            began = time.monotonic()
            with contextlib.closing(self.connect()) as connection:
                connection.request("GET", path)
                answer = connection.getresponse()
                assert (answer.status, bool(answer.read())) == (200, True), path
            took = time.monotonic() - began
            self.slowest[path] = max(self.slowest.get(path, 0.0), took)
        self.looks += 1
        peak = re.search(r"VmHWM:\s+(\d+) kB", (self._proc / "status").read_text())
        assert peak
        self.resident = int(peak[1]) << 10

    def judge(self, crowded: bool = True) -> None:
        """Nobody had to wait and memory was bounded; `crowded`: by an attack up to the limit."""
        seen = ", ".join(f"{path} within {took:.3f} s" for path, took in self.slowest.items())
        seen += f" in {self.looks} looks, at most {self.resident / 2**20:.0f} MiB resident"
        print(seen)
        assert max(self.slowest.values()) < SOON, seen
        assert self.resident < MOST_RESIDENT, seen
        log = self.daemon.log.read_text()
        assert "connections: closing the oldest that waits" in log or not crowded, seen + log
        assert "Traceback" not in log


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    authority.issue("server", "DNS:localhost", "IP:127.0.0.1")
    return authority


def port_of(daemon: Daemon) -> int:
    found = re.search(r"page +https?://127\.0\.0\.1:(\d+)/", daemon.announced)
    assert found, daemon.announced
    return int(found[1])


def plain(start_daemon: StartDaemon, ca: Authority, tmp_path: Path) -> Watched:
    daemon = start_daemon()
    return Watched(daemon, port_of(daemon))


def secured(start_daemon: StartDaemon, ca: Authority, tmp_path: Path) -> Watched:
    source = ca.certificate.parent
    config = tmp_path / "web.yml"
    config.write_text(
        f"tls_server_config: {{cert_file: {source}/server.crt, key_file: {source}/server.key}}\n"
    )
    daemon = start_daemon("--web.config.file", str(config))
    context = ssl.create_default_context(cafile=str(ca.certificate))
    return Watched(daemon, port_of(daemon), context)


ATTACKS = {
    "headers": ["-H", "-i", "1"],
    "bodies": ["-B", "-i", "1", "-s", "60000", "-t", "POST"],
    "answers": ["-X", "-n", "1", "-w", "10", "-y", "20", "-z", "5"],
}
#: What they ask for: one of the largest files. It is not computed.
PATH = "/static/lanes.js"


@pytest.mark.parametrize(
    ("attack", "begin"),
    [("headers", secured), ("bodies", plain), ("answers", plain), ("answers", secured)],
)
def test_slow_clients_hold_nobody_up(
    attack: str,
    begin: Callable[..., Watched],
    start_daemon: StartDaemon,
    ca: Authority,
    tmp_path: Path,
) -> None:
    watched = begin(start_daemon, ca, tmp_path)
    command = ["nice", "-n", str(-_PRIORITY), "slowhttptest", *ATTACKS[attack], "-c", str(CLIENTS),
               "-r", "100", "-l", "9", "-p", "3", "-u", f"{watched.url}{PATH}"]  # fmt: skip
    output = tmp_path / "slowhttptest"
    with output.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as slow:
        try:
            while slow.poll() is None:
                watched.look()
        finally:
            slow.kill()
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output.read_text())
    assert re.search("Exit status: (Hit test time limit|No open connections left)", text), text
    # Those that dribble a body are answered, and gone.
    watched.judge(crowded=attack != "bodies")


def test_silent_clients_on_the_tls_port_hold_nobody_up(
    start_daemon: StartDaemon, ca: Authority, tmp_path: Path
) -> None:
    watched = secured(start_daemon, ca, tmp_path)
    with contextlib.ExitStack() as silent:
        for number in range(CLIENTS):
            silent.enter_context(socket.create_connection(("127.0.0.1", watched.port), timeout=20))
            if number % 100 == 99:
                watched.look()
        for _ in range(5):
            watched.look()
    watched.judge()


def test_new_certificates_and_client_cas_refuse_no_request(
    start_daemon: StartDaemon, tmp_path: Path, wait_until: WaitUntil
) -> None:
    # Clients trust both authorities, and have a certificate of the one that both CA files hold.
    old, new = (Authority(tmp_path / name) for name in ("old", "new"))
    pairs = [authority.issue("server", "IP:127.0.0.1") for authority in (old, new)]
    client = old.issue("client")
    both = old.certificate.read_text() + new.certificate.read_text()
    context = ssl.create_default_context(cadata=both)
    context.load_cert_chain(client.certificate, client.key)
    config = tmp_path / "web.yml"
    config.write_text(
        "tls_server_config: {cert_file: server.crt, key_file: server.key, client_ca_file: ca.crt,"
        " client_auth_type: RequireAndVerifyClientCert}\n"
    )

    def install(number: int) -> None:
        for name, text in (
            ("server.crt", pairs[number].certificate.read_text()),
            ("server.key", pairs[number].key.read_text()),
            ("ca.crt", both if number else old.certificate.read_text()),
        ):
            (tmp_path / "new-file").write_text(text)
            (tmp_path / "new-file").rename(tmp_path / name)

    install(0)
    daemon = start_daemon("--web.config.file", str(config))
    port, done = port_of(daemon), threading.Event()
    issuers: list[str] = []
    failures: list[str] = []

    def ask() -> None:
        while not done.is_set():
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
            try:
                connection.request("GET", "/metrics")
                serial = connection.sock.getpeercert()["serialNumber"]
                answer = connection.getresponse()
                answer.read()
                issuers.append(serial if answer.status == 200 else str(answer.status))
            except (OSError, http.client.HTTPException) as error:
                failures.append(repr(error))
            finally:
                connection.close()

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    try:
        for number in (1, 0, 1):
            before = set(issuers[-1:]) or set(wait_until(lambda: issuers[:1], "an answer"))
            install(number)
            # Nobody sends a signal: it is seen within a second of use.
            wait_until(lambda: set(issuers[-4:]).isdisjoint(before), f"certificate {number}")  # noqa: B023
    finally:
        done.set()
        for asker in askers:
            asker.join()
    assert failures == []
    assert len(set(issuers)) == 2
    assert len(issuers) > 20
