# SPDX-License-Identifier: Apache-2.0
"""Finished runs over HTTP in the order of storing: their form, and waiting for the next one."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from answer_schema import problems
from pipelined import sinks
from pipelined.history import arrivals
from pipelined.history.database import Store
from pipelined.history.history import History
from pipelined.http_port.server import HttpServer
from pipelined.runs import Outcome, Run
from pipelined.runs.codec import written
from pipelined.web.app import create_app
from pipelined.web.front import MAX_WAITING
from unit.invented import START, make_ended, make_finished, make_functions
from unit.observed import HOST, FakeObserver
from unit.test_migrations import VERSIONS, recorded
from unit.waiting import PATIENCE, wait_until

PATH = "/api/v1/runs/finished"


def open_history(directory: Path, **given: Any) -> History:
    return History(directory, **{"host": HOST, "max_age": 1e12, **given})


def store(history: History, *runs: Run) -> None:
    """Store them, and end the writer."""
    for run in runs:
        history.sink.put(make_finished(run))
    history.sink.start()
    history.sink.close(PATIENCE)


def make_app(history: History | None, **given: Any) -> Flask:
    observer: Any = FakeObserver()
    return create_app(observer, **{"host": HOST, "history": history, **given})


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., FlaskClient]:
    """A client of a daemon whose history has these runs."""

    def make(*runs: Run, stored: dict[str, Any] | None = None, **given: Any) -> FlaskClient:
        store(open_history(tmp_path, **stored or {}), *runs)
        return make_app(open_history(tmp_path), **given).test_client()

    return make


def page(client: FlaskClient, query: str = "") -> dict[str, Any]:
    answer = client.get(f"{PATH}{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.get_json()
    assert problems(found, "FinishedRuns") == []
    return found


def starts(answer: dict[str, Any]) -> list[float]:
    return [run["start_timestamp_seconds"] - START for run in answer["runs"]]


def rich(number: int) -> Run:
    run = make_ended(number, "zcat|sort|awk")
    stages = (replace(stage, functions=make_functions()) for stage in run.stages)
    return replace(run, stages=tuple(stages), outcome=Outcome("succeeded"))


# -- the form


def test_a_run_is_as_in_the_answer_for_that_run_alone(ask: Callable[..., FlaskClient]) -> None:
    client = ask(rich(1))
    (found,) = page(client)["runs"]
    alone = client.get(f"/api/v1/runs/{found['id']}").get_json()
    for computed in ("verdict", "findings", "timeline", "machine"):
        del alone[computed]
    (listed,) = client.get("/api/v1/runs").get_json()["runs"]
    beside = {key: found.pop(key) for key in found.keys() - alone.keys()}
    assert found == alone
    assert beside == {
        "cursor": page(client)["next"],
        "bottleneck": listed["bottleneck"],
        "finding_ids": listed["findings"],
        "failure": "",
    }


def test_how_a_run_compares_with_its_usual_and_how_it_failed_come_along(
    ask: Callable[..., FlaskClient],
) -> None:
    slow = make_ended(30, wall=4.0)
    failed = replace(make_ended(40), outcome=Outcome("interrupted", (1,)))
    client = ask(*(make_ended(n, wall=2.0) for n in range(0, 20, 4)), slow, failed)
    *_, slower, last = page(client)["runs"]
    assert (slower["usual_seconds"], slower["slower_than_usual"]) == (2.0, True)
    listed = client.get("/api/v1/runs").get_json()["runs"][0]
    assert last["outcome"]["result"] == "interrupted"
    assert last["failure"] == listed["failure"]


def test_pages_follow_each_other_to_the_end(ask: Callable[..., FlaskClient]) -> None:
    client = ask(*(make_ended(number) for number in range(5)))
    seen: list[float] = []
    query, more = "?limit=2", True
    while more:
        answer = page(client, query)
        seen += starts(answer)
        query, more = f"?limit=2&after={answer['next']}", answer["more"]
    assert seen == [0, 1, 2, 3, 4]
    assert page(client, "?after=oldest")["runs"][0]["id"] == make_ended(0).id
    assert page(client, "?after=now") == {
        "runs": [],
        "next": answer["next"],
        "more": False,
        "missing": 0,
        "machine": written(HOST),
        "restarted": False,
    }


def test_a_cursor_of_another_history_begins_anew(ask: Callable[..., FlaskClient]) -> None:
    answer = page(ask(make_ended(1)), "?after=0123456789abcdef.7")
    assert (starts(answer), answer["missing"], answer["restarted"]) == ([1], None, True)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("shown", [True, False])
def test_command_lines_come_only_from_a_daemon_that_shows_them_and_did(
    ask: Callable[..., FlaskClient], stored: bool, shown: bool
) -> None:
    client = ask(rich(1), stored={"show_arguments": stored}, show_arguments=shown)
    page(client)
    assert ("hunter2" in client.get(PATH).text) is (stored and shown)


@pytest.mark.parametrize("version", VERSIONS)
def test_runs_of_other_versions_are_answered_in_the_form_of_this_one(
    version: int, tmp_path: Path
) -> None:
    with closing(recorded(tmp_path, version)):
        pass
    Store(tmp_path, max_age=1e12, max_bytes=256_000_000).close()
    client = make_app(open_history(tmp_path)).test_client()
    answer = page(client)
    assert (len(answer["runs"]), answer["missing"], answer["more"]) == (14, 0, False)
    for run in answer["runs"]:
        alone = client.get(f"/api/v1/runs/{run['id']}").get_json()
        assert {key: run[key] for key in alone.keys() & run.keys()} == {
            key: alone[key] for key in alone.keys() & run.keys()
        }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("after=7", "parameter 'after': '7' is neither a cursor, which is next of an earlier ans"),
        ("limit=0", "parameter 'limit': '0' is not a whole number"),
        ("wait=long", "parameter 'wait': 'long' is not a duration such as 500ms"),
        ("since=2h", f"{PATH} has no parameter 'since'; it takes after, limit, wait"),
    ],
)
def test_a_wrong_parameter_is_named(
    ask: Callable[..., FlaskClient], query: str, expected: str
) -> None:
    answer = ask().get(f"{PATH}?{query}")
    assert answer.status_code == 400
    assert answer.get_json()["error"]["message"].startswith(expected)


def test_without_a_history_nothing_can_be_followed() -> None:
    answer = make_app(None).test_client().get(PATH)
    assert (answer.status_code, "--no-history" in answer.text) == (404, True)


def test_the_loop_of_the_documentation_gets_every_run_once_over_its_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "API.md").read_text()
    (documented,) = re.findall(
        r"### Following finished runs.*?```python\n(.*?)```", page, re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    seen = []
    for numbers in ((1, 2), (3,), ()):
        store(open_history(tmp_path / "state"), *map(make_ended, numbers))
        app = make_app(open_history(tmp_path / "state"))
        loop = documented
        with HttpServer(app, "127.0.0.1", 0) as server:
            # An answer without a run ends it.
            for of_document, here in (
                ("127.0.0.1:9905", f"127.0.0.1:{server.port}"),
                ("30s", "10ms"),
                ('time.sleep(0 if page["runs"] else 1)', 'if not page["runs"]: break'),
            ):
                assert of_document in loop
                loop = loop.replace(of_document, here)
            exec(loop, {})
        seen.append([line.split()[0] for line in capsys.readouterr().out.splitlines()])
    assert seen == [[make_ended(n).id for n in numbers] for numbers in ((1, 2), (3,), ())]


# -- waiting


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    """A history that is written, and has one run."""
    monkeypatch.setattr(sinks, "LOOK_EVERY", 0.02)
    history = open_history(tmp_path)
    with history.sink:
        history.sink.put(make_finished(make_ended(1)))
        wait_until(lambda: history.stats().runs == 1)
        yield history
        history.stop_waiting()


class Asked(threading.Thread):
    """A request in a thread of its own."""

    def __init__(self, server: HttpServer, query: str) -> None:
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        self.path = f"{PATH}?{query}"
        self.answer: dict[str, Any] | None = None
        self.began = time.monotonic()
        self.took = 0.0
        self.start()

    def run(self) -> None:
        self.connection.request("GET", self.path)
        self.answer = json.load(self.connection.getresponse())
        self.took = time.monotonic() - self.began
        self.connection.close()

    def result(self) -> dict[str, Any]:
        self.join(PATIENCE)
        assert self.answer is not None
        return self.answer


@pytest.fixture
def server(history: History) -> Iterator[HttpServer]:
    with HttpServer(make_app(history), "127.0.0.1", 0) as running:
        yield running


def now(history: History) -> str:
    return history.finished("now").next


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits has an answer in time only if somebody wakes it."""
    monkeypatch.setattr(arrivals, "LOOK_EVERY", 600.0)


@contextmanager
def waiters(server: HttpServer, history: History, count: int) -> Iterator[list[Asked]]:
    """So many requests that wait for the next run."""
    after = now(history)
    asked = [Asked(server, f"after={after}&wait=50s") for _ in range(count)]
    try:
        wait_until(lambda: waiting(history) == count)
        yield asked
    finally:
        history.stop_waiting()
        for one in asked:
            one.join(PATIENCE)


def waiting(history: History) -> int:
    condition: Any = history._writer.arrivals._changed
    return len(condition._waiters)


@pytest.mark.usefixtures("nobody_looks")
def test_an_answer_comes_when_a_run_is_stored(server: HttpServer, history: History) -> None:
    with waiters(server, history, 2) as asked:
        history.sink.put(make_finished(make_ended(2)))
        assert [starts(one.result()) for one in asked] == [[2], [2]]


def test_without_a_run_the_answer_comes_when_the_wait_is_over(
    server: HttpServer, history: History
) -> None:
    after = now(history)
    asked = Asked(server, f"after={after}&wait=300ms")
    assert asked.result() == {
        "runs": [],
        "next": after,
        "more": False,
        "missing": 0,
        "machine": written(HOST),
        "restarted": False,
    }
    assert 0.3 <= asked.took < 5


@pytest.mark.parametrize(
    ("after", "found"), [("oldest", [1]), ("now", []), ("0123456789abcdef.7", [1])]
)
def test_what_has_its_answer_does_not_wait(
    server: HttpServer, after: str, found: list[float]
) -> None:
    asked = Asked(server, f"after={after}&wait=50s")
    assert (starts(asked.result()), asked.took < 5) == (found, True)


def test_a_client_too_many_gets_its_answer_at_once(server: HttpServer, history: History) -> None:
    with waiters(server, history, MAX_WAITING):
        asked = Asked(server, f"after={now(history)}&wait=50s")
        assert (asked.result()["runs"], asked.took < 5) == ([], True)


def test_a_client_that_has_gone_leaves_its_place(
    server: HttpServer, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "LOOK_EVERY", 0.05)
    after = now(history)
    for _ in range(MAX_WAITING):
        client = http.client.HTTPConnection("127.0.0.1", server.port)
        client.request("GET", f"{PATH}?after={after}&wait=50s")
        wait_until(lambda: waiting(history) == 1)
        client.close()
        wait_until(lambda: waiting(history) == 0)
    with waiters(server, history, MAX_WAITING) as asked:
        history.sink.put(make_finished(make_ended(2)))
        assert [starts(one.result()) for one in asked] == [[2]] * MAX_WAITING


@pytest.mark.usefixtures("nobody_looks")
def test_when_the_daemon_stops_waiting_ends_at_once(server: HttpServer, history: History) -> None:
    with waiters(server, history, MAX_WAITING) as asked:
        history.stop_waiting()
        assert [one.result()["runs"] for one in asked] == [[]] * MAX_WAITING
        assert Asked(server, f"after={now(history)}&wait=50s").result()["runs"] == []


def test_a_request_for_the_head_does_not_wait(history: History) -> None:
    began = time.monotonic()
    answer = make_app(history).test_client().head(f"{PATH}?after={now(history)}&wait=50s")
    assert (answer.status_code, time.monotonic() - began < 5) == (200, True)


def test_while_it_waits_the_file_is_not_read(
    server: HttpServer, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "LOOK_EVERY", 0.02)
    reads: list[str] = []
    read_page = history._page
    monkeypatch.setattr(history, "_page", lambda *given: reads.append("") or read_page(*given))
    assert Asked(server, f"after={now(history)}&wait=1s").result()["runs"] == []
    assert len(reads) <= 4  # `now`, the first look, and one for each write in that time
