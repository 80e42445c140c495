# SPDX-License-Identifier: Apache-2.0
"""The HTTP paths, their errors, and the server under them."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from pipelined.errors import UserError
from pipelined.http_port.server import HttpServer
from pipelined.kernel.hooks import Program
from pipelined.runs import LEVELS, STATES, Run
from pipelined.runs.codec import written
from pipelined.web.app import create_app
from unit.invented import make_ended
from unit.observed import HOST, FakeObserver, hook, run, three_runs

PROMETHEUS_ACCEPT = (
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
)


@pytest.fixture
def observer() -> FakeObserver:
    return FakeObserver(*three_runs())


@pytest.fixture
def app(observer: FakeObserver) -> Flask:
    return create_app(observer, host=HOST)  # type: ignore[arg-type]


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


def ids(client: FlaskClient, query: str = "") -> list[str]:
    answer = client.get(f"/api/v1/pipelines{query}")
    assert answer.status_code == 200, answer.text
    return [found["id"] for found in answer.get_json()["runs"]]


# -- probes


def test_alive_even_when_not_ready(client: FlaskClient, observer: FakeObserver) -> None:
    observer.not_ready = "BPF programs are still loading"
    assert client.get("/healthz").status_code == 200


def test_ready_when_the_observer_is(client: FlaskClient) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.get_json()) == (
        200,
        {"status": "ready", "pending_hooks": []},
    )


def test_each_hook_is_answered_with_its_state(client: FlaskClient, observer: FakeObserver) -> None:
    off = Program("vfs_read", "functions", "fentry", gives="sizes of reads").refused("no such")
    late = Program("mm_filemap_fault", "readahead").pending()
    observer.found_hooks = [hook("sched_switch"), off, late]
    found = client.get("/api/v1/hooks").get_json()["hooks"]
    assert found[1] == {
        "hook": "vfs_read",
        "tier": "functions",
        "method": "fentry",
        "attached": False,
        "pending": False,
        "reason": "no such",
        "gives": "sizes of reads",
    }
    states = [(each["hook"], each["attached"], each["pending"]) for each in found]
    assert states == [
        ("sched_switch", True, False),
        ("vfs_read", False, False),
        ("mm_filemap_fault", False, True),
    ]


def test_the_hooks_of_a_tier_that_is_turned_off_are_off(
    client: FlaskClient, observer: FakeObserver
) -> None:
    observer.found_hooks = [hook("sched_switch"), Program("x", "functions", "fentry").attached()]
    others = client.get("/api/v1/hooks").get_json()["hooks"][2:]
    assert {
        (each["tier"], each["attached"], each["pending"], each["reason"]) for each in others
    } == {("readahead", False, False, "the daemon runs with --readahead=off")}
    assert all(each["gives"] for each in others)


def test_hooks_that_are_still_to_come_are_listed(
    client: FlaskClient, observer: FakeObserver
) -> None:
    observer.found_hooks = [
        hook("sched_switch"),
        Program("vfs_read", "functions", "fentry").pending(),
    ]
    assert client.get("/readyz").get_json()["pending_hooks"] == [
        {"hook": "vfs_read", "tier": "functions", "method": "fentry"}
    ]


def test_not_ready_reports_the_reason(client: FlaskClient, observer: FakeObserver) -> None:
    observer.not_ready = "BPF programs are still loading"
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.get_json() == {
        "error": {"status": 503, "message": "BPF programs are still loading"}
    }


# -- metrics


def test_metrics_are_plain_text_by_default(client: FlaskClient) -> None:
    answer = client.get("/metrics")
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert 'pipelined_lost_total{what="stages"} 0.0' in answer.text


def test_metrics_are_openmetrics_for_prometheus(client: FlaskClient) -> None:
    answer = client.get("/metrics", headers={"Accept": PROMETHEUS_ACCEPT})
    assert answer.content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")


def test_each_scrape_sweeps_once(client: FlaskClient, observer: FakeObserver) -> None:
    client.get("/metrics")
    client.get("/metrics")
    assert observer.sweep_stats.count == 2


def test_metrics_never_carry_arguments(observer: FakeObserver) -> None:
    shown = create_app(observer, host=HOST, show_arguments=True).test_client()  # type: ignore[arg-type]
    assert "hunter2" not in shown.get("/metrics").text


def test_metrics_are_compressed_for_another_host_only(client: FlaskClient) -> None:
    headers = {"Accept-Encoding": "gzip"}
    near = client.get("/metrics", headers=headers)
    far = client.get("/metrics", headers=headers, environ_base={"REMOTE_ADDR": "192.0.2.7"})
    assert "Content-Encoding" not in near.headers
    assert far.headers["Content-Encoding"] == "gzip"
    assert b"pipelined_lost_total" in gzip.decompress(far.data)


# -- API


def test_runs_come_newest_first(client: FlaskClient) -> None:
    assert ids(client) == ["run-3", "run-2", "run-1"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?live=true", ["run-3"]),
        ("?live=false", ["run-2", "run-1"]),
        ("?limit=2", ["run-3", "run-2"]),
        ("?pipeline=cat%7Cawk", ["run-3", "run-1"]),
        ("?pipeline=cat|awk&live=false", ["run-1"]),
        ("?pipeline=sort%7Cuniq", []),
    ],
)
def test_parameters_select_runs(client: FlaskClient, query: str, expected: list[str]) -> None:
    assert ids(client, query) == expected


def test_of_finished_runs_those_that_ended_last_are_listed(
    client: FlaskClient, observer: FakeObserver
) -> None:
    """A script that ran for long began before all that ran in it."""
    short = [make_ended(number, wall=0.1) for number in range(1, 60)]
    script = make_ended(0, "nightly.sh|tee", wall=100.0)
    observer.seen = [*reversed(short), script]
    assert ids(client, "?live=false&limit=50") == [
        script.id,
        *(run.id for run in reversed(short[-49:])),
    ]
    assert ids(client, "?limit=50")[0] == short[-1].id, "else newest start first"


def test_limit_does_not_hide_how_many_runs_match(client: FlaskClient) -> None:
    answer = client.get("/api/v1/pipelines?limit=1").get_json()
    assert (len(answer["runs"]), answer["matching_runs"]) == (1, 3)


def test_at_most_100_runs_unless_asked(client: FlaskClient, observer: FakeObserver) -> None:
    observer.seen = [run(number) for number in range(150, 0, -1)]
    assert len(ids(client)) == 100
    assert len(ids(client, "?limit=1000")) == 150


def test_at_most_1000_runs_whatever_is_asked_for(
    client: FlaskClient, observer: FakeObserver
) -> None:
    observer.seen = [run(number) for number in range(1001, 0, -1)]
    answer = client.get("/api/v1/pipelines?limit=999999999").get_json()
    assert (len(answer["runs"]), answer["matching_runs"]) == (1000, 1001)


def test_a_list_of_runs_takes_no_more_memory_than_its_text_some_times(
    client: FlaskClient, observer: FakeObserver
) -> None:
    observer.seen = [run(number) for number in range(300, 0, -1)]
    client.get("/api/v1/pipelines?limit=1")
    tracemalloc.start()
    try:
        answer = client.get("/api/v1/pipelines?limit=1000")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(answer.get_json()["runs"]) == 300
    assert peak < 6 * len(answer.data)


def test_each_answer_is_of_a_new_sweep(client: FlaskClient, observer: FakeObserver) -> None:
    answer = client.get("/api/v1/pipelines").get_json()
    assert observer.sweep_stats.count == 1
    assert answer["sweep_timestamp_seconds"] == 1_700_000_099.5


def test_command_lines_are_kept_off_by_default(client: FlaskClient) -> None:
    assert "hunter2" not in client.get("/api/v1/pipelines").text


def test_command_lines_appear_when_asked_for_at_start(observer: FakeObserver) -> None:
    shown = create_app(observer, host=HOST, show_arguments=True).test_client()  # type: ignore[arg-type]
    first = shown.get("/api/v1/pipelines").get_json()["runs"][0]["stages"][0]
    assert first["arguments"] == "cat --password=hunter2"


# -- schema


def test_run_keeps_its_figures() -> None:
    described = written(run(2, live=False))
    assert described["wall_seconds"] == 10.0
    assert described["end_timestamp_seconds"] == 1_700_000_012.0
    assert described["cores_used"] == pytest.approx(0.05)
    assert described["overlap_ratio"] == pytest.approx(5 / 9)
    assert described["io_overlap_ratio"] == pytest.approx(0.25)
    assert described["edges"] == [{"writer": 0, "reader": 1}]
    assert described["endpoints"] == [{"command": "bash", "side": "read"}]


def test_levels_and_states_keep_names_and_order() -> None:
    described = json.loads(json.dumps(written(run(1))))
    assert list(described["level_seconds"]) == list(LEVELS)
    assert list(described["stages"][0]["state_seconds"]) == list(STATES)


def test_unknown_values_are_null() -> None:
    idle = replace(
        run(1), levels=(10.0, *[0.0] * 8), disk_overlapped_seconds=0.0, disk_alone_seconds=0.0
    )
    described = written(idle)
    assert described["overlap_ratio"] is None
    assert described["io_overlap_ratio"] is None
    assert described["stages"][0]["exec_failures"] is None


# -- errors


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/api/v1/pipelines?live=yes", "'live': 'yes' is neither true nor false"),
        ("/api/v1/pipelines?live=", "'live': '' is neither"),
        ("/api/v1/pipelines?limit=0", "'limit': '0' is not a whole number"),
        ("/api/v1/pipelines?limit=-1", "'limit': '-1' is not a whole number"),
        ("/api/v1/pipelines?limit=1.5", "'limit': '1.5' is not a whole number"),
        ("/api/v1/pipelines?limit=%D9%A3", "'limit': '٣' is not a whole number"),
        ("/api/v1/pipelines?limit=" + "9" * 5000, "is not a whole number"),
        ("/api/v1/pipelines?pipeline=", "'pipeline': it is empty"),
        ("/api/v1/pipelines?live=true&live=false", "'live' is given 2 times"),
        ("/api/v1/pipelines?color=red", "no parameter 'color'; it takes live, limit, pipeline"),
        ("/metrics?name[]=up", "no parameter 'name[]'; it takes none"),
        ("/?x=1", "no parameter 'x'"),
        ("/api/v1/compare?a=1", "give two runs: a=ID&b=ID"),
    ],
)
def test_bad_parameter_is_named_in_a_json_error(
    client: FlaskClient, path: str, message: str
) -> None:
    answer = client.get(path)
    assert answer.status_code == 400
    assert answer.get_json()["error"]["status"] == 400
    assert message in answer.get_json()["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/nothing", "/api", "/api/v2/pipelines", "/metrics/", "/static/x", "/nothing?x=1"]
)
def test_unknown_path_is_a_json_error(client: FlaskClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.get_json()["error"]["status"] == 404


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz", "/api/v1/pipelines"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "BREW"])
def test_unknown_method_is_a_json_error_with_allow(
    client: FlaskClient, path: str, method: str
) -> None:
    answer = client.open(path, method=method)
    assert answer.status_code == 405
    assert answer.get_json()["error"]["status"] == 405
    assert {"GET", "HEAD"} <= {name.strip() for name in answer.headers["Allow"].split(",")}


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz", "/api/v1/pipelines"])
def test_head_answers_like_get_without_a_body(client: FlaskClient, path: str) -> None:
    got, head = client.get(path), client.head(path)
    assert (head.status_code, head.data) == (200, b"")
    assert head.content_type == got.content_type


BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def test_a_browser_gets_a_page_for_an_unknown_path(client: FlaskClient) -> None:
    answer = client.get("/nothing<b>", headers=BROWSER)
    assert answer.status_code == 404
    assert "there is no /nothing&lt;b&gt;" in answer.text


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/metrics?x=1", "/static/nothing.js"])
def test_errors_of_paths_for_programs_are_json_for_a_browser_too(
    client: FlaskClient, path: str
) -> None:
    assert client.get(path, headers=BROWSER).get_json()["error"]["status"] in (400, 404)


def test_own_failure_is_a_json_error_without_details(
    client: FlaskClient, observer: FakeObserver, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> list[Run]:
        raise RuntimeError("secret detail")

    observer.runs = fail  # type: ignore[method-assign]
    answer = client.get("/api/v1/pipelines")
    assert answer.status_code == 500
    assert answer.get_json()["error"]["status"] == 500
    assert "secret detail" not in answer.text
    assert "secret detail" in caplog.text


# -- what a browser may do with it


def test_no_foreign_or_inline_script_may_run(client: FlaskClient) -> None:
    policy = client.get("/").headers["Content-Security-Policy"].split("; ")
    assert "default-src 'self'" in policy
    assert not any("unsafe" in part for part in policy)


def test_figures_are_not_cached_and_static_files_are(client: FlaskClient) -> None:
    assert client.get("/api/v1/pipelines").headers["Cache-Control"] == "no-store"
    with client.get("/static/page.css") as style:
        assert style.headers["Cache-Control"] == "no-cache"
        tag = {"If-None-Match": style.headers["ETag"]}
    with client.get("/static/page.css", headers=tag) as again:
        assert again.status_code == 304


# -- server


class PatientServer(HttpServer):
    """Gives clients so long that a stop that waited for them could not go unnoticed."""

    client_timeout = 60


@pytest.fixture
def server(app: Flask) -> Iterator[HttpServer]:
    with PatientServer(app, "127.0.0.1", 0) as running:
        yield running


@pytest.fixture
def connect(server: HttpServer) -> Iterator[Callable[[], http.client.HTTPConnection]]:
    opened: list[http.client.HTTPConnection] = []

    def open_one() -> http.client.HTTPConnection:
        opened.append(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


def get(connection: http.client.HTTPConnection, path: str) -> tuple[int, bytes]:
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read()


def serve(app: Flask, host: str, port: int) -> HttpServer:
    server = HttpServer(app, host, port)
    server.start()
    return server


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def stop_seconds(server: HttpServer) -> float:
    began = time.monotonic()
    server.stop()
    return time.monotonic() - began


def test_serves_metrics_over_a_real_socket(connect: Callable[..., Any]) -> None:
    status, body = get(connect(), "/metrics")
    assert status == 200
    assert b"pipelined_build_info{" in body


def test_connection_is_kept_for_the_next_request(connect: Callable[..., Any]) -> None:
    connection = connect()
    get(connection, "/healthz")
    first = connection.sock
    get(connection, "/readyz")
    assert connection.sock is first


def test_clients_that_say_nothing_do_not_stop_others(
    server: HttpServer, connect: Callable[..., Any]
) -> None:
    silent = [connect() for _ in range(server.threads - 1)]
    for connection in silent:
        connection.connect()
    assert get(connect(), "/healthz")[0] == 200


def test_oversized_body_is_refused(connect: Callable[..., Any]) -> None:
    connection = connect()
    connection.putrequest("POST", "/metrics")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    assert connection.getresponse().status == 413


def test_url_has_the_port_picked(server: HttpServer) -> None:
    assert server.port > 0
    assert server.url == f"http://127.0.0.1:{server.port}/"


def test_stop_does_not_wait_for_idle_connections(
    server: HttpServer, connect: Callable[..., Any]
) -> None:
    kept, silent = connect(), connect()
    get(kept, "/healthz")
    silent.connect()
    assert stop_seconds(server) < 5
    assert refuses(server.port)


def test_stop_does_not_wait_for_a_client_that_does_not_read() -> None:
    endless = Flask("endless")
    endless.add_url_rule("/", view_func=lambda: b"x" * (64 << 20))
    server = PatientServer(endless, "127.0.0.1", 0)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(4) == b"HTTP"
        assert stop_seconds(server) < 5


def test_stop_right_after_start_and_stop_twice(app: Flask) -> None:
    server = serve(app, "127.0.0.1", 0)
    server.stop()
    server.stop()
    assert refuses(server.port)


def test_can_start_again_on_the_same_port(app: Flask) -> None:
    server = serve(app, "127.0.0.1", 0)
    server.stop()
    with server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        assert get(connection, "/healthz")[0] == 200
        connection.close()


def test_file_descriptor_3_is_left_alone(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", "1")
    with HttpServer(app, "127.0.0.1", 0) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        assert get(connection, "/healthz")[0] == 200
        connection.close()


def test_taken_port_is_an_error_with_what_to_do(app: Flask, server: HttpServer) -> None:
    with pytest.raises(UserError) as caught:
        serve(app, "127.0.0.1", server.port)
    assert caught.value.message == f"cannot listen on 127.0.0.1:{server.port}: the port is taken"
    assert "--web.listen-address" in caught.value.hint


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [
        ("a..b", 9, "a..b:9: the host is unknown"),
        ("127.0.0.1", 70000, "127.0.0.1:70000: there is no such port"),
        ("2001:db8::1", 9, "[2001:db8::1]:9: "),
    ],
)
def test_bad_address_is_an_error_that_names_it(
    app: Flask, host: str, port: int, reason: str
) -> None:
    with pytest.raises(UserError) as caught:
        serve(app, host, port)
    assert reason in caught.value.message


def test_unknown_host_is_an_error_with_what_to_do(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(UserError, match="the host is unknown; give an address"):
        serve(app, "no-such-host", 9)
