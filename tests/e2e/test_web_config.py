# SPDX-License-Identifier: Apache-2.0
"""The daemon's port with TLS and passwords, as strangers, operators and Prometheus meet it."""

from __future__ import annotations

import base64
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bcrypt
import pytest

from certificates import Authority
from prometheus_server import Prometheus

if TYPE_CHECKING:
    from e2e.conftest import Daemon, StartDaemon

ROOT = Path(__file__).parents[2]
PASSWORD = "correct horse"
#: A scrape takes milliseconds; one that waits for a slow client takes ten seconds.
SOON = 6.0

WaitUntil = Callable[[Callable[[], Any], str], Any]


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Secured:
    """A daemon with a web config, and a client that trusts its certificate."""

    def __init__(self, daemon: Daemon, ca: Authority, config: Path) -> None:
        self.daemon = daemon
        self.ca = ca
        self.config = config
        found = re.search(r"page +https://127\.0\.0\.1:(\d+)/", daemon.announced)
        assert found, daemon.announced
        self.port = int(found[1])
        self.context = ssl.create_default_context(cafile=str(ca.certificate))

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=self.context)

    def get(
        self, path: str, user: str = "", password: str = PASSWORD, method: str = "GET"
    ) -> Answer:
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        connection = self.connection()
        try:
            connection.request(
                method, path, headers={"Authorization": f"Basic {token}"} if user else {}
            )
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", self.get("/metrics", "alice").body.decode(), re.M)
        assert found, name
        return float(found[1])

    def log(self) -> str:
        return self.daemon.log.read_text()


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    authority.issue("server", "DNS:localhost", "IP:127.0.0.1")
    return authority


def config_text(ca: Authority, **users: str) -> str:
    directory = ca.certificate.parent
    hashes = "".join(
        f"  {name}: {bcrypt.hashpw(password.encode(), bcrypt.gensalt(10)).decode()}\n"
        for name, password in users.items()
    )
    return (
        f"tls_server_config:\n  cert_file: {directory}/server.crt\n"
        f"  key_file: {directory}/server.key\nbasic_auth_users:\n{hashes}"
    )


@pytest.fixture
def secured(start_daemon: StartDaemon, ca: Authority, tmp_path: Path) -> Iterator[Secured]:
    config = tmp_path / "web.yml"
    config.write_text(config_text(ca, alice=PASSWORD))
    yield Secured(start_daemon("--web.config.file", str(config)), ca, config)


PATHS = (
    "/",
    "/metrics",
    "/healthz",
    "/readyz",
    "/runs",
    "/api/v1/pipelines",
    "/api/v1/now",
    "/api/v1/events",
    "/api/v1/runs",
    "/static/page.css",
    "/nothing",
    "/static/nothing",
)


def test_strangers_are_kept_out_of_every_path(secured: Secured) -> None:
    for path in PATHS:
        for login in ({}, {"user": "alice", "password": "oops"}, {"user": "bob"}):
            answer = secured.get(path, **login)
            assert answer.status == 401, (path, login)
            assert answer.headers["WWW-Authenticate"].startswith("Basic "), path
            assert json.loads(answer.body)["error"]["status"] == 401
        assert secured.get(path, method="HEAD").body == b""
    assert secured.get("/metrics", "alice").status == 200
    assert secured.get("/nothing", "alice").status == 404
    assert secured.log().count("wrong user name or password") == 1


def test_old_tls_and_plain_http_are_refused_and_new_tls_is_not(secured: Secured) -> None:
    assert _s_client(secured, "-tls1_1") != 0
    assert _s_client(secured, "-tls1_2") == 0
    assert _s_client(secured, "-tls1_3") == 0
    plain = http.client.HTTPConnection("127.0.0.1", secured.port, timeout=20)
    plain.request("GET", "/metrics")
    answer = plain.getresponse()
    assert (answer.status, answer.read()) == (
        400,
        b"Client sent an HTTP request to an HTTPS server.\n",
    )
    plain.close()


def _s_client(secured: Secured, version: str) -> int:
    return subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{secured.port}", version,
         "-CAfile", secured.ca.certificate, "-verify_return_error"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    ).returncode  # fmt: skip


def test_sighup_takes_new_users_over_and_keeps_the_old_ones_when_the_file_is_wrong(
    secured: Secured, ca: Authority, wait_until: WaitUntil
) -> None:
    reloaded = secured.metric("pipelined_config_last_reload_success_timestamp_seconds")
    secured.config.write_text(config_text(ca, alice=PASSWORD, bob="second"))
    secured.daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: secured.get("/healthz", "bob", "second").status == 200, "bob")
    assert secured.metric("pipelined_config_last_reload_successful") == 1
    assert secured.metric("pipelined_config_last_reload_success_timestamp_seconds") > reloaded

    secured.config.write_text("basic_auth_users:\n  carol: password\n")
    secured.daemon.process.send_signal(signal.SIGHUP)
    # a request before that may meet the wrong file too, and complain of it as well
    wait_until(lambda: "carol" in secured.log(), "the complaint")
    wait_until(lambda: secured.metric("pipelined_config_last_reload_successful") == 0, "a refusal")
    assert secured.get("/healthz", "bob", "second").status == 200
    complaints = [line for line in secured.log().splitlines() if "carol" in line]
    assert len(complaints) == 1, complaints
    assert f"{secured.config}:2: basic_auth_users: what carol has is no bcrypt" in complaints[0]


def test_a_changed_file_holds_without_a_signal(
    secured: Secured, ca: Authority, wait_until: WaitUntil
) -> None:
    secured.config.write_text(config_text(ca, bob="second"))
    wait_until(lambda: secured.get("/healthz", "bob", "second").status == 200, "bob")
    assert secured.get("/healthz", "alice").status == 401


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("basic_auth_users:\n  alice: secret\n", ":2: basic_auth_users: what alice has is no"),
        ("tls_server_config:\n  cert_file: lost\n  key_file: lost\n", ":2: cannot read cert_file"),
        ("tls_server_config: [\n", ":2: not YAML"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_line_before_anything_is_attached(
    program: str, tmp_path: Path, text: str, message: str
) -> None:
    config = tmp_path / "web.yml"
    config.write_text(text)
    done = subprocess.run(
        [program, "serve", "--web.listen-address", "127.0.0.1:0", "--web.config.file", config,
         "--state-directory", tmp_path / "state"],
        capture_output=True,
        text=True,
        timeout=20,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"pipelined: {config}{message}")
    assert done.stderr.count("\n") == 1


def test_slow_silent_and_hostile_clients_do_not_stop_scrapes(secured: Secured) -> None:
    others: list[socket.socket] = []

    def connect(handshake: bool) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", secured.port), timeout=20)
        if handshake:
            sock = secured.context.wrap_socket(sock, server_hostname="127.0.0.1")
        others.append(sock)
        return sock

    def scrape() -> float:
        began = time.monotonic()
        assert secured.get("/metrics", "alice").status == 200
        return time.monotonic() - began

    try:
        assert scrape() < SOON
        for _ in range(400):
            connect(False)
        assert scrape() < SOON
        for _ in range(40):
            connect(True).sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: a")
            connect(False).sendall(b"\x16\x03\x01")
        assert scrape() < SOON
        for _ in range(20):
            connect(False).sendall(b"\x16\x03\x03\xff\xffgarbage" * 1000)
            connect(True).sendall(b"GET /metrics HTTP/1.1\r\nCookie: " + b"a" * 60_000)
        assert scrape() < SOON
    finally:
        for sock in others:
            sock.close()
    assert scrape() < SOON
    assert "Traceback" not in secured.log()


def test_top_shows_what_runs_to_whom_it_is_for(
    program: str, secured: Secured, tmp_path: Path
) -> None:
    config = tmp_path / "client.yml"

    def top() -> subprocess.CompletedProcess[str]:
        url = f"https://127.0.0.1:{secured.port}"
        command = [program, "top", "--once", "--url", url, "--http.config.file", config]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    login = f"basic_auth: {{username: alice, password: {PASSWORD}}}\n"
    config.write_text(login)
    done = top()
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not trusted" in done.stderr
    config.write_text(f"{login}tls_config: {{ca_file: {secured.ca.certificate}}}\n")
    done = top()
    assert (done.returncode, done.stderr) == (0, "")
    assert " live " in done.stdout


def test_prometheus_scrapes_over_tls_with_a_password_as_the_example_says(
    secured: Secured, ca: Authority, tmp_path: Path
) -> None:
    example = (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text()
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    # What the example has as comments is what is tried here.
    wanted, lines = r"^    # ((?:scheme|tls_config|basic_auth): .*)$", []
    for line in example.splitlines():
        found = re.match(wanted, line)
        lines.append(f"    {found[1]}" if found else line)
    text = "\n".join(lines) + "\n"
    shown = re.findall(wanted, example, re.M)
    assert len(shown) == 3
    page = (ROOT / "docs" / "PROMETHEUS.md").read_text()
    assert [line for line in shown if f"\n    {line}\n" not in page] == []
    for written, here in (
        ("127.0.0.1:9905", f"127.0.0.1:{secured.port}"),
        ("/etc/prometheus/pipelined-ca.pem", str(ca.certificate)),
        ("/etc/prometheus/pipelined-password", str(password)),
        ("username: prometheus", "username: alice"),
        ("scrape_interval: 15s", "scrape_interval: 1s"),
        ("  - recording.rules.yml", f"  - {ROOT}/deploy/prometheus/recording.rules.yml"),
        ("  - alerts.rules.yml", f"  - {ROOT}/deploy/prometheus/alerts.rules.yml"),
    ):
        assert written in text, written
        text = text.replace(written, here)
    with Prometheus(tmp_path / "prometheus", text) as prometheus:
        prometheus.wait_for('up{job="pipelined"} == 1')
        prometheus.wait_for("pipelined_config_last_reload_successful == 1")
        password.write_text("changed")
        prometheus.wait_for('up{job="pipelined"} == 0')
