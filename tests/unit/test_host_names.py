# SPDX-License-Identifier: Apache-2.0
"""The port answers for the names of its host, and for no others."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from pipelined.http_port.host_names import HostNames, own_names
from pipelined.http_port.server import HttpServer

HOSTS = """
127.0.0.1   localhost
127.0.1.1   host17.example.com host17   # as Debian's installer writes it
192.0.2.7   metrics.internal HOST17
0.0.0.0     tracker.example
"""


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "192.0.2.7:9905", "[::1]", "[::1]:9905", "[fe80::1%eth0]:9905", "0.0.0.0:80"],
)
def test_addresses_are_always_answered_for(host: str) -> None:
    assert HostNames().include(host)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9905", "localhost.", "app.localhost:80"])
def test_localhost_and_the_names_below_it_are_always_answered_for(host: str) -> None:
    assert HostNames().include(host)


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example",
        "attacker.example:9905",
        "127.0.0.1.attacker.example",
        "localhost.attacker.example",
        "notlocalhost",
        "host17.attacker.example",
        "nothost17",
        "user@host17",
        "host17:9905:attacker.example",
        "[host17]",
        "[]",
        "",
        ":9905",
        ".",
        "*",
    ],
)
def test_other_names_are_not(host: str) -> None:
    assert not HostNames(["host17", "*.example.com"]).include(host)


@pytest.mark.parametrize("host", ["host17", "HOST17:9905", "host17.", "host17.:9905"])
def test_a_given_name_is_answered_for(host: str) -> None:
    assert HostNames(["Host17"]).include(host)


def test_a_star_and_a_dot_are_the_names_below() -> None:
    names = HostNames(["*.Example.com"])
    assert names.include("a.example.com:9905")
    assert names.include("a.b.EXAMPLE.com")
    assert not names.include("example.com")
    assert not names.include("badexample.com")


def test_a_star_alone_is_every_name() -> None:
    names = HostNames(["*"])
    assert names.include("attacker.example")
    assert names.include("no host: at all")


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    file = tmp_path / "hosts"
    file.write_text(HOSTS)
    return file


def test_the_host_has_its_own_name_and_those_beside_it_in_etc_hosts(hosts: Path) -> None:
    expected = {"host17", "host17.local", "host17.example.com", "metrics.internal"}
    assert own_names(hosts, "Host17") == expected


def test_a_host_named_in_full_has_its_first_part_as_a_name_too(tmp_path: Path) -> None:
    found = own_names(tmp_path / "missing", "host17.example.com")
    assert found == {"host17.example.com", "host17", "host17.local"}


def test_a_host_without_a_name_has_none(hosts: Path) -> None:
    assert own_names(hosts, "") == set()


def test_no_name_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("a name server")

    for function in ("getaddrinfo", "gethostbyname", "gethostbyaddr", "getfqdn"):
        monkeypatch.setattr(socket, function, asked)
    assert socket.gethostname().lower() in own_names()


# -- at the port


@pytest.fixture
def port() -> Iterator[int]:
    app = Flask(__name__)

    @app.get("/")
    def page() -> str:
        return "secret"

    with HttpServer(app, "127.0.0.1", 0, names=HostNames(["host17"])) as server:
        yield server.port


def ask(port: int, head: bytes) -> bytes:
    """The whole answer to the header of a request; the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(head.replace(b"\n", b"\r\n"))
        return b"".join(iter(lambda: client.recv(65536), b""))


@pytest.mark.parametrize("path", [b"/", b"/static/page.css", b"/metrics", b"/no-such-path"])
def test_a_request_for_another_name_is_refused_whatever_its_path(port: int, path: bytes) -> None:
    answer = ask(port, b"GET " + path + b" HTTP/1.1\nHost: attacker.example:9905\n\n")
    assert answer.startswith(b"HTTP/1.1 421 Misdirected Request\r\n")
    assert b"secret" not in answer


def test_the_refusal_says_what_to_set(port: int) -> None:
    head, body = ask(port, b"GET / HTTP/1.1\nHost: attacker.example\n\n").split(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert body == (
        b"attacker.example is no name of this host; if it should be one, add it to"
        b" --web.allowed-hosts.\n"
    )


def test_what_is_no_name_is_not_repeated(port: int) -> None:
    answer = ask(port, b"GET / HTTP/1.1\nHost: <script>\n\n")
    assert answer.startswith(b"HTTP/1.1 421 ")
    assert b"script" not in answer


def test_the_refusal_is_in_the_log_once_a_minute(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            ask(port, b"GET / HTTP/1.1\nHost: attacker.example\n\n")
    (line,) = [one for one in caplog.messages if "attacker.example" in one]
    assert "127.0.0.1" in line
    assert "--web.allowed-hosts" in line


@pytest.mark.parametrize("host", [b"host17:1", b"127.0.0.1", b"localhost"])
def test_a_request_for_a_name_of_the_port_is_answered(port: int, host: bytes) -> None:
    answer = ask(port, b"GET / HTTP/1.1\nHost: " + host + b"\nConnection: close\n\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_request_without_a_host_is_answered(port: int) -> None:
    """No browser sends one."""
    assert ask(port, b"GET / HTTP/1.0\n\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\nHost: host17\nHost: attacker.example\n\n",
        b"GET http://host17/ HTTP/1.1\nHost: attacker.example\n\n",
    ],
)
def test_two_names_are_a_bad_request(port: int, head: bytes) -> None:
    assert ask(port, head).startswith(b"HTTP/1.1 400 ")
