# SPDX-License-Identifier: Apache-2.0
"""What the port is given to serve: probes without Flask, the rest once it is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import Client, TestResponse

from pipelined.web.app import create_app
from pipelined.web.front import Front
from pipelined.web.metrics import Metrics
from pipelined.web.probes import Probes
from unit.observed import HOST, FakeObserver, three_runs

PATHS = ("/metrics", "/healthz", "/readyz")


class Application:
    """What the front makes: counts how often, and answers every request alike."""

    def __init__(self) -> None:
        self.made = 0
        self.fails = False

    def make(self) -> Any:
        self.made += 1
        if self.fails:
            raise OSError("no file")

        def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [b"application"]

        return answer


@pytest.fixture
def observer() -> FakeObserver:
    return FakeObserver(*three_runs())


@pytest.fixture
def probes(observer: FakeObserver) -> Probes:
    return Probes(observer, Metrics(observer))  # type: ignore[arg-type]


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def client(probes: Probes, application: Application) -> Client:
    front = Front()
    front.pass_on_to(probes, application.make)
    return Client(front)


def test_while_hooks_are_attached_only_the_process_is_alive() -> None:
    client = Client(Front())
    assert client.get("/healthz").get_json() == {"status": "alive"}
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
    assert answer.get_json()["error"]["message"] == "starting: hooks are being attached"


@pytest.mark.parametrize("path", PATHS)
def test_what_programs_ask_for_makes_no_application(
    client: Client, application: Application, path: str
) -> None:
    assert client.get(path).status_code == client.head(path).status_code == 200
    assert application.made == 0


@pytest.mark.parametrize("path", ["/", "/api/v1/pipelines", "/metrics?x=1", "/metrics/"])
def test_the_application_answers_the_rest(client: Client, path: str) -> None:
    assert client.get(path).text == "application"


def test_the_application_refuses_what_the_probes_do_not_take(client: Client) -> None:
    assert client.post("/metrics").text == "application"


def test_the_application_is_made_once(probes: Probes, application: Application) -> None:
    asked = Event()

    def slowly() -> Any:
        asked.wait(1)
        return application.make()

    front = Front()
    front.pass_on_to(probes, slowly)
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(Client(front).get, "/") for _ in range(4)]
        asked.set()
        assert {answer.result().text for answer in answers} == {"application"}
    assert application.made == 1


def test_an_application_that_cannot_be_made_is_tried_again(
    client: Client, application: Application
) -> None:
    application.fails = True
    with pytest.raises(OSError, match="no file"):
        client.get("/")
    application.fails = False
    assert client.get("/").text == "application"


def compared(answer: TestResponse) -> tuple[int, bytes, dict[str, str]]:
    # how long a collector took, and what the process uses, differ from scrape to scrape
    lines = [
        line
        for line in answer.data.splitlines()
        if b"_seconds" not in line and not line.startswith(b"process_")
    ]
    headers = {k: v for k, v in answer.headers.items() if k != "Content-Length"}
    return answer.status_code, b"\n".join(lines), headers


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("path", PATHS)
def test_front_and_application_answer_alike(
    client: Client, probes: Probes, observer: FakeObserver, path: str, ready: bool
) -> None:
    observer.not_ready = None if ready else "the last sweep failed; see the log"
    app: Flask = create_app(observer, host=HOST, probes=probes)  # type: ignore[arg-type]
    assert compared(client.get(path)) == compared(app.test_client().get(path))


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [
        ("gzip", True),
        ("deflate, GZIP ; q=0.5", True),
        ("*", True),
        ("*;q=0, gzip", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("*, gzip;q=0.0", False),
    ],
)
def test_metrics_are_compressed_only_if_the_client_takes_it(
    client: Client, accepted: str, compressed: bool
) -> None:
    headers = {"Accept-Encoding": accepted} if accepted else {}
    far = client.get("/metrics", headers=headers, environ_base={"REMOTE_ADDR": "192.0.2.7"})
    assert ("Content-Encoding" in far.headers) == compressed
    assert far.headers["Vary"] == "Accept-Encoding"


def test_a_daemon_that_is_only_scraped_does_not_load_the_web_application() -> None:
    code = """if True:
        import json, sys
        import pipelined.cli, pipelined.commands.serve, pipelined.daemon.serve
        import pipelined.history.history, pipelined.http_port.server, pipelined.web.front
        print(json.dumps(sorted(sys.modules)))"""
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    packages = {name.partition(".")[0] for name in loaded}
    assert not packages & {"flask", "werkzeug", "jinja2", "markdown_it", "rich", "yaml", "tomllib"}
    assert not {
        name for name in loaded if name.startswith(("pipelined.terminal", "pipelined.run."))
    }
