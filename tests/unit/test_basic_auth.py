# SPDX-License-Identifier: Apache-2.0
"""Who is let in, and what a login costs: counted in bcrypt checks, not in seconds."""

from __future__ import annotations

import base64
import threading
import time
from pathlib import Path

import bcrypt
import pytest
from flask import Flask
from werkzeug.test import Client

from pipelined.http_port.basic_auth import Logins, Verdict
from pipelined.http_port.guard import guarded
from pipelined.http_port.web_config_file import WebConfigFile

SECRET = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
DEARER = bcrypt.hashpw(b"dearer", bcrypt.gensalt(5)).decode()
USERS = {"alice": SECRET, "bob": DEARER, "zoë": SECRET}


class Checks:
    """bcrypt, counted."""

    def __init__(self) -> None:
        self.hashes: list[bytes] = []

    def __call__(self, password: bytes, hashed: bytes) -> bool:
        self.hashes.append(hashed)
        return bcrypt.checkpw(password, hashed)


@pytest.fixture
def checks() -> Checks:
    return Checks()


@pytest.fixture
def logins(checks: Checks) -> Logins:
    return Logins(USERS, checks)


def login(name: str, password: str | bytes) -> str:
    given = password if isinstance(password, bytes) else password.encode()
    return "Basic " + base64.b64encode(name.encode() + b":" + given).decode()


def ask(logins: Logins, name: str, password: str | bytes, address: str = "192.0.2.1") -> Verdict:
    return logins.verdict(login(name, password), address)


# -- who is let in


@pytest.mark.parametrize(
    ("name", "password"), [("alice", "secret"), ("bob", "dearer"), ("zoë", "secret")]
)
def test_the_right_password_is_let_in(logins: Logins, name: str, password: str) -> None:
    assert ask(logins, name, password) is Verdict.ADMITTED


@pytest.mark.parametrize(
    ("name", "password"),
    [("alice", "wrong"), ("alice", ""), ("alice", "dearer"), ("carol", "secret"), ("", "secret"),
     ("ALICE", "secret"), ("alice", "secret\0"), ("alice", "x" * 5000)],
)  # fmt: skip
def test_anything_else_is_not(logins: Logins, name: str, password: str) -> None:
    assert ask(logins, name, password) is Verdict.WRONG
    assert ask(logins, name, password) is Verdict.WRONG


@pytest.mark.parametrize(
    "header",
    ["", "Basic", "Basic ", "Basic !!!", "Basic YWxpY2U=", "Bearer abc", "Basic YWxp\u00e9",
     "Digest username=alice", "Basic " + "A" * 60_000],
)  # fmt: skip
def test_a_header_without_a_login_is_asked_for_one_and_costs_no_check(
    logins: Logins, checks: Checks, header: str
) -> None:
    assert logins.verdict(header, "192.0.2.1") is Verdict.NO_LOGIN
    assert checks.hashes == []


def test_the_scheme_may_be_written_in_any_case(logins: Logins) -> None:
    header = login("alice", "secret").replace("Basic", "bAsIc")
    assert logins.verdict(header, "192.0.2.1") is Verdict.ADMITTED


def test_a_password_counts_up_to_72_bytes_as_for_htpasswd(checks: Checks) -> None:
    long = "x" * 72
    hashed = bcrypt.hashpw(long.encode(), bcrypt.gensalt(4)).decode()
    logins = Logins({"alice": hashed}, checks)
    assert ask(logins, "alice", long + "whatever") is Verdict.ADMITTED
    assert ask(logins, "alice", long[:-1]) is Verdict.WRONG


@pytest.mark.parametrize("prefix", ["$2a$", "$2b$", "$2y$"])
def test_hashes_of_htpasswd_go_and_python_are_known(prefix: str) -> None:
    logins = Logins({"alice": prefix + SECRET[4:]})
    assert ask(logins, "alice", "secret") is Verdict.ADMITTED


# -- what it costs


def test_a_scraper_pays_for_one_check(logins: Logins, checks: Checks) -> None:
    for _ in range(100):
        assert ask(logins, "alice", "secret") is Verdict.ADMITTED
    assert len(checks.hashes) == 1


def test_a_wrong_login_that_is_repeated_costs_one_check(logins: Logins, checks: Checks) -> None:
    for _ in range(100):
        assert ask(logins, "alice", "old") is Verdict.WRONG
    assert len(checks.hashes) == 1


def test_an_unknown_user_costs_as_much_as_the_dearest_known_one(
    logins: Logins, checks: Checks
) -> None:
    ask(logins, "nobody", "secret")
    (hashed,) = checks.hashes
    assert hashed[:7] == DEARER.encode()[:7]
    assert len(hashed) == 60


def test_a_thousand_wrong_logins_do_not_make_the_right_one_forgotten(checks: Checks) -> None:
    logins = Logins(
        USERS, lambda password, hashed: checks(password, hashed) if password == b"secret" else False
    )
    ask(logins, "alice", "secret")
    for number in range(3000):
        ask(logins, "alice", f"guess {number}")
    assert ask(logins, "alice", "secret") is Verdict.ADMITTED
    assert len(checks.hashes) == 1
    assert len(logins._wrong) == 1024


# -- many at once


class Held:
    """A check that takes until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.running = 0
        self.most = 0

    def __call__(self, password: bytes, hashed: bytes) -> bool:
        self.running += 1
        self.most = max(self.most, self.running)
        self.go.wait(20)
        self.running -= 1
        return password == b"secret"


class Crowd:
    """Clients that ask at the same time."""

    def __init__(self, logins: Logins) -> None:
        self.logins = logins
        self.verdicts: list[Verdict] = []
        self.threads: list[threading.Thread] = []

    def ask(self, name: str, password: str, address: str) -> None:
        before = len(self.verdicts), self.waiting()
        thread = threading.Thread(
            target=lambda: self.verdicts.append(ask(self.logins, name, password, address))
        )
        thread.start()
        self.threads.append(thread)
        deadline = time.monotonic() + 20
        while (len(self.verdicts), self.waiting()) == before:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def waiting(self) -> int:
        return sum(one.threads for one in self.logins._waiting.values())

    def end(self) -> list[Verdict]:
        for thread in self.threads:
            thread.join(20)
        return self.verdicts


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def crowd(held: Held) -> Crowd:
    return Crowd(Logins({"alice": SECRET}, held))


def test_one_check_runs_at_a_time(crowd: Crowd, held: Held) -> None:
    for number in range(4):
        crowd.ask("alice", f"guess {number}", f"192.0.2.{number}")
    held.go.set()
    crowd.end()
    assert held.most == 1


def test_one_address_cannot_take_every_turn(crowd: Crowd, held: Held) -> None:
    for number in range(10):
        crowd.ask("alice", f"guess {number}", "192.0.2.1")
    assert crowd.verdicts == [Verdict.BUSY] * 8
    crowd.ask("alice", "secret", "192.0.2.2")
    held.go.set()
    assert Verdict.ADMITTED in crowd.end()


def test_there_are_always_threads_that_do_not_wait_for_a_check(crowd: Crowd, held: Held) -> None:
    for number in range(50):
        crowd.ask("alice", f"guess {number % 7}", f"192.0.2.{number}")
    assert crowd.waiting() == 6
    held.go.set()
    crowd.end()


def test_who_is_known_does_not_wait_for_those_who_guess(held: Held) -> None:
    logins = Logins({"alice": SECRET}, held)
    held.go.set()
    assert ask(logins, "alice", "secret") is Verdict.ADMITTED
    held.go.clear()
    crowd = Crowd(logins)
    for number in range(10):
        crowd.ask("alice", f"guess {number}", f"192.0.2.{number}")
    assert ask(logins, "alice", "secret") is Verdict.ADMITTED
    held.go.set()
    crowd.end()


def test_the_parts_of_a_page_share_one_check(crowd: Crowd, held: Held) -> None:
    for _ in range(6):
        crowd.ask("alice", "secret", "192.0.2.1")
    held.go.set()
    assert crowd.end() == [Verdict.ADMITTED] * 6
    assert held.most == 1


# -- over HTTP


@pytest.fixture
def client(tmp_path: Path) -> Client:
    path = tmp_path / "web.yml"
    path.write_text(
        f"basic_auth_users: {{alice: {SECRET}}}\n"
        "http_server_config: {headers: {X-Frame-Options: deny,"
        " Content-Security-Policy: default-src https}}\n"
    )
    inner = Flask("inner")
    inner.add_url_rule("/", view_func=lambda: "shown")
    inner.after_request(lambda response: _with_policy(response))
    return Client(guarded(inner, WebConfigFile(path)))


def _with_policy(response):  # type: ignore[no-untyped-def]
    response.headers["Content-Security-Policy"] = "default-src 'self'"
    return response


def test_without_a_login_the_answer_is_401_in_json(client: Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="pipelined", charset="UTF-8"'
    assert answer.get_json() == {
        "error": {
            "status": 401,
            "message": "give a user name and a password (basic authentication)",
        }
    }


def test_a_wrong_login_is_refused_as_such(client: Client) -> None:
    answer = client.get("/", headers={"Authorization": login("alice", "oops")})
    assert answer.status_code == 401
    assert answer.get_json()["error"]["message"] == "wrong user name or password"


def test_a_right_login_sees_the_page(client: Client) -> None:
    answer = client.get("/", headers={"Authorization": login("alice", "secret")})
    assert (answer.status_code, answer.text) == (200, "shown")


def test_head_is_refused_without_a_body(client: Client) -> None:
    answer = client.head("/")
    assert (answer.status_code, answer.data) == (401, b"")


@pytest.mark.parametrize("headers", [{}, {"Authorization": login("alice", "secret")}])
def test_headers_of_the_file_are_on_every_answer_in_place_of_ours(
    client: Client, headers: dict[str, str]
) -> None:
    answer = client.get("/", headers=headers)
    assert answer.headers["X-Frame-Options"] == "deny"
    assert answer.headers.getlist("Content-Security-Policy") == ["default-src https"]
