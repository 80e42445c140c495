# SPDX-License-Identifier: Apache-2.0
"""What `pipelined top` shows of itself to a port that asks, and what it says when it is refused."""

from __future__ import annotations

import itertools
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from flask import Flask, redirect

from certificates import Authority
from pipelined.analysis.machine import Host
from pipelined.cli import main
from pipelined.errors import UserError
from pipelined.http_port.host_names import HostNames
from pipelined.http_port.server import HttpServer
from pipelined.http_port.web_config_file import WebConfigFile
from pipelined.terminal import api_client
from pipelined.terminal.api_client import Client, HttpConfig, NoDaemonError, SilentDaemonError
from pipelined.web.app import create_app
from unit.observed import FakeObserver, three_runs

PASSWORD = "not to be guessed"

Top = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    authority = Authority(tmp_path / "ca")
    authority.issue("server", "IP:127.0.0.1")
    return authority


@pytest.fixture
def top(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Top:
    """Runs `pipelined top --once`; `config` is what is in its file. Status, stdout and stderr."""

    def run(url: str, config: str | None = None) -> tuple[int, str, str]:
        words = ["top", "--once", "--interval", "0.1", "--url", url]
        if config is not None:
            path = tmp_path / "client.yml"
            path.write_text(config)
            words += ["--http.config.file", str(path)]
        monkeypatch.setattr(sys, "argv", ["pipelined", *words])
        with pytest.raises(SystemExit) as left:
            main()
        out, error = capsys.readouterr()
        assert error.count("\n") == (left.value.code != 0)
        return int(left.value.code or 0), out, error

    return run


def serving(config: WebConfigFile | None = None) -> HttpServer:
    observer: Any = FakeObserver(*three_runs())
    return HttpServer(create_app(observer, host=Host(2, None)), "127.0.0.1", 0, config)


@pytest.fixture
def secured(ca: Authority, tmp_path: Path) -> Iterator[str]:
    """Where a daemon serves that asks for TLS and for alice's password."""
    config = tmp_path / "web.yml"
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    config.write_text(
        "tls_server_config: {cert_file: ca/server.crt, key_file: ca/server.key}\n"
        f"basic_auth_users: {{alice: '{hashed}'}}\n"
    )
    with serving(WebConfigFile(config)) as server:
        yield f"https://127.0.0.1:{server.port}"


TRUST = "tls_config: {ca_file: ca/ca.crt}\n"


def test_with_ca_and_password_it_shows_what_runs(secured: str, top: Top, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    login = "basic_auth: {username: alice, password_file: password}\n"
    status, out, error = top(secured, TRUST + login)
    assert (status, error) == (0, "")
    assert "1 live" in out
    anybody = "tls_config: {insecure_skip_verify: true}\n"
    assert top(secured, anybody + login)[0] == 0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "is not trusted: "),
        ("", "is not trusted: "),
        (TRUST, "asks for a user name and a password; write them into a file for --http.config"),
        (TRUST + "basic_auth: {username: alice, password: oops}", "refuses the password of alice"),
        (TRUST + "basic_auth: {username: bob, password: oops}", "refuses the password of bob"),
    ],
)
def test_what_is_missing_is_named(secured: str, top: Top, config: str | None, message: str) -> None:
    status, out, error = top(secured, config)
    assert (status, out) == (1, "")
    assert message in error


@pytest.mark.parametrize(
    ("names", "days", "reason", "hint"),
    [
        ("IP:127.0.0.2", 30, "is not valid for '127.0.0.1'; ", "write one of the names in it into"),
        ("IP:127.0.0.1", -1, "certificate has expired; ", "renew it there"),
    ],
)
def test_a_certificate_that_no_ca_helps_has_a_hint_of_its_own(
    ca: Authority, top: Top, tmp_path: Path, names: str, days: int, reason: str, hint: str
) -> None:
    ca.issue("other", names, days=days)
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config: {cert_file: ca/other.crt, key_file: ca/other.key}\n")
    with serving(WebConfigFile(config)) as server:
        status, out, error = top(f"https://127.0.0.1:{server.port}", TRUST)
    assert (status, out) == (1, "")
    assert f"{reason}{hint}" in error
    assert "ca_file" not in error


def test_the_wrong_scheme_is_reported(secured: str, top: Top) -> None:
    assert "uses TLS; write --url https://" in top(secured.replace("https", "http"))[2]
    with serving() as plain:
        message = top(f"https://127.0.0.1:{plain.port}")[2]
    assert "does not use TLS; write --url http://" in message


def test_no_server_is_reported_with_tls_too(top: Top) -> None:
    assert (
        "no daemon answers at https://127.0.0.1:1: connection refused"
        in top("https://127.0.0.1:1")[2]
    )


def test_a_daemon_that_hangs_is_not_to_be_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", HttpConfig())
        with pytest.raises(
            SilentDaemonError, match=r"^no answer from .* within 0\.1 s; .*see its log$"
        ):
            client.get("runs", list, timeout=0.1)


# -- what listens there is any program


@contextmanager
def listener(pieces: Iterable[bytes], *, ends: bool = False) -> Iterator[Client]:
    """A client of a program that sends these pieces to who asks first, and then nothing; with
    `ends` it closes the connection.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):  # the client has enough
                connection.recv(65536)
                for piece in pieces:
                    connection.sendall(piece)
                done.wait(0 if ends else 60)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield Client(f"http://127.0.0.1:{server.getsockname()[1]}", HttpConfig())
        done.set()
        thread.join()


def error_of(*pieces: bytes, timeout: float = 60.0) -> UserError:
    with listener(pieces) as client, pytest.raises(UserError) as error:
        client.get("hooks", dict, timeout)
    return error.value


def refused(message: str) -> bytes:
    text = json.dumps({"error": {"message": message}}).encode()
    return b"HTTP/1.1 404 no\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


def test_what_it_says_is_shown_without_control_codes_and_not_for_long() -> None:
    assert error_of(b"hello, world\r\n\r\n").message.endswith(": hello, world")
    assert error_of(refused("hello, world")).message.endswith(": hello, world")
    said = "\x1b]0;owned\x07" + 5000 * "x"
    for piece in (
        said.encode() + b"\r\n\r\n",
        refused(said),
        b"HTTP/" + said.encode() + b" 200 OK\r\n",
    ):
        message = error_of(piece).message
        assert "?]0;owned?xxx" in message and len(message) < 500


OK = b"HTTP/1.1 200 OK\r\n"


def test_a_refusal_that_stops_in_the_middle_is_given_up() -> None:
    error = error_of(b"HTTP/1.1 404 no\r\nContent-Length: 9\r\n\r\n{", timeout=0.1)
    assert isinstance(error, SilentDaemonError)


def test_an_answer_that_ends_in_the_middle_is_that_of_no_daemon() -> None:
    cut = listener([OK + b"Content-Length: 9\r\n\r\n{"], ends=True)
    with cut as client, pytest.raises(NoDaemonError, match="8 more expected"):
        client.get("hooks", dict)


@pytest.mark.parametrize("length", [b"", b"Content-Length: 1000000000000\r\n"])
def test_an_answer_that_is_too_long_is_not_taken_in(
    length: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "_LARGEST", 5000)
    pieces = itertools.chain([OK + length + b"\r\n"], itertools.repeat(1000 * b" "))
    with listener(pieces) as client, pytest.raises(UserError, match=r"more than 5\.0 kB"):
        client.get("hooks", dict)


@pytest.mark.parametrize(
    ("status", "message"), [(b"200 OK", "does not answer in JSON"), (b"404 no", "status 404")]
)
def test_lists_in_lists_without_end_are_no_answer(status: bytes, message: str) -> None:
    text = b"HTTP/1.1 %s\r\nContent-Length: 9000\r\n\r\n" % status + 9000 * b"["
    assert message in error_of(text).message


def test_a_clients_certificate_is_shown(ca: Authority, top: Top, tmp_path: Path) -> None:
    ca.issue("client", "DNS:client")
    config = tmp_path / "web.yml"
    config.write_text(
        "tls_server_config:\n  cert_file: ca/server.crt\n  key_file: ca/server.key\n"
        "  client_ca_file: ca/ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n"
    )
    with serving(WebConfigFile(config)) as server:
        url = f"https://127.0.0.1:{server.port}"
        status, _, error = top(url, TRUST)
        assert status == 1
        assert "ends the TLS connection" in error
        assert "if it asks for a client certificate, name one" in error
        shown = "{ca_file: ca/ca.crt, cert_file: ca/client.crt, key_file: ca/client.key}"
        assert top(url, f"tls_config: {shown}\n")[0] == 0


def test_nobody_is_followed_elsewhere_with_a_password(top: Top) -> None:
    asked: list[str] = []
    other = Flask("other")

    @other.get("/<path:path>")
    def answer(path: str) -> Any:
        asked.append(path)
        return redirect("/elsewhere")

    with HttpServer(other, "127.0.0.1", 0) as server:
        login = "basic_auth: {username: alice, password: secret}\n"
        status, _, error = top(f"http://127.0.0.1:{server.port}", login)
    assert status == 1
    assert "HTTP status 302" in error
    assert asked == ["api/v1/pipelines"]


def test_a_name_that_the_daemon_does_not_answer_for_is_reported(top: Top) -> None:
    class NoNames(HostNames):
        def include(self, host: str) -> bool:
            return False

    with HttpServer(Flask("x"), "127.0.0.1", 0, names=NoNames()) as server:
        url = f"http://127.0.0.1:{server.port}"
        status, _, error = top(url)
    assert status == 1
    assert f"the daemon at {url} does not answer for the name 127.0.0.1; add it there" in error
    assert "--web.allowed-hosts" in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("basic_auth: {username: alice, pasword: x}", ":1: unknown key pasword in basic_auth; did"),
        ("authorization: {}", ":1: unknown key authorization in the file; known: basic_auth, tls"),
        ("basic_auth: {password: x}", ":1: basic_auth has no username"),
        ("basic_auth: {username: a, password_file: lost}", ":1: cannot read password_file"),
        ("basic_auth: {username: a, password: x, password_file: y}", "are both given; keep one"),
        ("tls_config: {ca_file: lost}", ":1: cannot read ca_file"),
        ("tls_config: {ca: nonsense}", ":1: ca holds no certificate that can be read"),
        ("tls_config: {ca: café}", ":1: ca holds no certificate that can be read"),
        ("tls_config: {cert_file: ca/server.crt}", ":1: tls_config has no key_file; give both"),
        (
            "tls_config: {cert_file: ca/server.key, key_file: ca/ca.crt}",
            "cert holds no certificate",
        ),
        ("tls_config: {insecure_skip_verify: maybe}", "must be true or false"),
        ("[", "not YAML"),
    ],
)
def test_a_wrong_file_is_one_line(top: Top, ca: Authority, text: str, message: str) -> None:
    status, out, error = top("https://127.0.0.1:1", text)
    assert (status, out) == (2, "")
    assert message in error
    assert error.startswith("pipelined: ")


def test_a_file_that_is_missing_is_reported() -> None:
    from pipelined.terminal.api_client import HttpConfig

    with pytest.raises(UserError, match=r"cannot read /lost\.yml: no such file or directory"):
        HttpConfig.read(Path("/lost.yml"))
