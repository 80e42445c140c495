# SPDX-License-Identifier: Apache-2.0
"""The sender: every run at least once, in order, whatever the daemon and the back end do."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import ReadableSpan

from pipelined import cli
from pipelined.commands.export import _Stop, _Stopped
from pipelined.config import Address
from pipelined.errors import ConfigurationError, UserError
from pipelined.export import sender as sender_module
from pipelined.export.attributes import Beside
from pipelined.export.back_end import Answer, BackEnd, check_environment, endpoint
from pipelined.export.place import Place, open_place
from pipelined.export.sender import Sender
from pipelined.export.spans import SpanMaker
from pipelined.export.statistics import Statistics, served
from pipelined.history.following import as_cursor
from pipelined.http_port.server import HttpServer
from pipelined.runs import ParentSpan, Run
from pipelined.runs.codec import written
from pipelined.terminal.followed_runs import Followed, FollowedPage
from unit.invented import make_ended
from unit.observed import HOST

TAKEN = Answer(True)
BUSY = Answer(False, error="busy")
UNUSABLE = Answer(False, unusable=True, error="answers 400 Bad Request")


class Enough(BaseException):
    """The test has seen what it wanted."""


def followed(run: Run, number: int) -> Followed:
    row: Any = Row(run.id, run.end or 0.0, run.wall_seconds)
    return Followed(row, {**written(run), "cursor": f"cursor-{number}"})


@dataclass(frozen=True, slots=True)
class Row:
    """What the sender knows of the row of a run."""

    id: str
    end: float
    wall: float
    bottleneck: str = "-"
    usual: float | None = None
    slower: bool | None = None


RUNS = [followed(make_ended(number), number) for number in range(1, 6)]


def page(*runs: Followed, after: str = "end", **given: Any) -> FollowedPage:
    values = {"more": False, "missing": 0, "restarted": False, "machine": HOST, **given}
    return FollowedPage(runs, after, **values)


@dataclass
class World:
    """A daemon and a back end that answer what they are told to, in turn."""

    directory: Path
    pages: list[FollowedPage | UserError] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    """Of the back end; what comes after them is taken."""
    refused: str = ""
    """A run with this id cannot be used, with whatever else it is sent."""
    asked: list[str] = field(default_factory=list)
    requests: list[list[str]] = field(default_factory=list)
    """Ids of the runs in each request."""
    slept: list[float] = field(default_factory=list)
    saved: list[str | None] = field(default_factory=list)
    """What the place was at each request."""
    statistics: Statistics = field(default_factory=lambda: Statistics(lambda: 1_700_000_100.0))
    on_send: Callable[[], object] = lambda: None
    unstopped: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext

    @property
    def place(self) -> Place:
        return Place(self.directory, str)

    def fetch(self, after: str) -> FollowedPage:
        self.asked.append(after)
        if not self.pages:
            raise Enough
        answer = self.pages.pop(0)
        if isinstance(answer, UserError):
            raise answer
        return answer

    def send(self, spans: Sequence[ReadableSpan]) -> Answer:
        ids = [str((span.attributes or {})["pipelined.run.id"]) for span in spans]
        self.requests.append(list(dict.fromkeys(ids)))
        self.saved.append(self.place.read())
        self.on_send()
        if self.answers:
            return self.answers.pop(0)
        return UNUSABLE if self.refused in ids else TAKEN

    def run(
        self,
        after: str = "oldest",
        chosen: Callable[[Followed], bool] = lambda _: True,
        until: type[BaseException] = Enough,
    ) -> None:
        sender = Sender(
            self.fetch,
            *(self, self.place, self.statistics),
            chosen=chosen,
            sleep=self.slept.append,
            clock=lambda: 0.0,
            unstopped=self.unstopped,
        )
        with pytest.raises(until):
            sender.follow(after)

    def value(self, name: str, **labels: str) -> float:
        found = self.statistics.registry.get_sample_value(f"pipelined_export_{name}", labels)
        assert found is not None, name
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def ids(*numbers: int) -> list[str]:
    return [RUNS[number - 1].row.id for number in numbers]


def test_every_run_is_sent_once_and_the_place_is_that_after_it(world: World) -> None:
    world.pages = [page(*RUNS[:2], after="a"), page(after="b"), page(RUNS[2], after="c")]
    world.run()
    assert world.requests == [ids(1, 2), ids(3)]
    assert world.asked == ["oldest", "a", "b", "c"]
    assert world.place.read() == "c"
    assert (world.value("sent_runs_total"), world.value("sent_spans_total")) == (3, 9)


def test_the_place_is_saved_after_the_back_end_has_taken_what_comes_before(world: World) -> None:
    world.pages = [page(RUNS[0], after="a"), page(RUNS[1], after="b")]
    world.answers = [BUSY, TAKEN]
    world.run()
    assert world.saved == [None, None, "a"]


def test_a_request_has_no_more_spans_than_it_may(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "MOST_SPANS", 6)
    world.pages = [page(*RUNS)]
    world.run()
    assert world.requests == [ids(1, 2), ids(3, 4), ids(5)]
    assert world.saved == [None, "cursor-2", "cursor-4"]


def test_a_run_with_more_spans_than_that_is_sent_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "MOST_SPANS", 2)
    world.pages = [page(*RUNS[:2])]
    world.run()
    assert world.requests == [ids(1), ids(2)]


def test_a_back_end_that_is_down_is_asked_again_ever_less_often_and_misses_nothing(
    world: World,
) -> None:
    world.pages = [page(RUNS[0])]
    world.answers = [BUSY] * 9
    world.run()
    assert world.requests == [ids(1)] * 10
    assert world.slept[:9] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert world.value("failures_total", at="back_end") == 9
    assert (world.value("sent_runs_total"), world.value("up", at="back_end")) == (1, 1)


def test_it_waits_as_long_as_the_back_end_asks_for(world: World) -> None:
    world.pages = [page(RUNS[0])]
    world.answers = [replace_pause(BUSY, 300.0)]
    world.run()
    assert world.slept[0] == 300


def replace_pause(answer: Answer, pause: float) -> Answer:
    return answer._replace(pause=pause)


def test_a_failure_is_logged_once_and_so_is_its_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.pages = [page(RUNS[0])]
    world.answers = [BUSY] * 4
    world.run()
    assert caplog.messages == ["busy; it is asked again", "the back end answers again"]


def test_a_run_that_the_back_end_cannot_use_is_skipped_and_the_others_are_sent(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.pages = [page(*RUNS, after="a")]
    (world.refused,) = ids(3)
    world.run()
    taken = [sent for request in world.requests if world.refused not in request for sent in request]
    assert sorted(taken) == sorted(ids(1, 2, 4, 5))
    assert world.value("skipped_runs_total", reason="refused") == 1
    assert world.value("sent_runs_total") == 4
    assert world.place.read() == "a"
    assert caplog.messages == [f"run {world.refused} is skipped: answers 400 Bad Request"]


def test_a_daemon_that_is_down_is_asked_again(world: World) -> None:
    gone = UserError("no daemon answers", "start it")
    world.pages = [gone, gone, page(RUNS[0])]
    world.run("here")
    assert world.asked == ["here", "here", "here", "end"]
    assert world.slept == [1, 2]
    assert world.value("failures_total", at="daemon") == 2
    assert world.requests == [ids(1)]


def test_a_daemon_that_has_nothing_and_does_not_wait_is_not_asked_at_once_again(
    world: World,
) -> None:
    world.pages = [page(), page()]
    world.run()
    assert world.slept == [2, 2]


def test_a_run_of_a_trace_that_is_not_recorded_is_not_sent(world: World) -> None:
    unsampled = ParentSpan("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", False)
    world.pages = [page(followed(replace(make_ended(9), parent_span=unsampled), 9), RUNS[0])]
    world.run()
    assert world.requests == [ids(1)]
    assert world.value("skipped_runs_total", reason="not_sampled") == 1


def test_a_run_that_is_not_chosen_is_passed(world: World) -> None:
    world.pages = [page(*RUNS, after="a")]
    world.run(chosen=lambda run: run.row.id in ids(2))
    assert world.requests == [ids(2)]
    assert (world.value("skipped_runs_total", reason="filter"), world.place.read()) == (4, "a")


def test_runs_that_are_no_longer_in_the_history_are_counted(world: World) -> None:
    world.pages = [page(RUNS[0], missing=7), page(missing=None, restarted=True)]
    world.run()
    assert world.value("skipped_runs_total", reason="missing") == 7


def test_a_history_that_lacks_many_runs_is_reported_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first = replace(page(RUNS[0], missing=3), more=True)
    world.pages = [first, page(RUNS[1], missing=2)]
    world.run()
    assert world.value("skipped_runs_total", reason="missing") == 5
    reported = [line for line in caplog.messages if "no longer in the history" in line]
    assert reported == ["5 runs were no longer in the history"]


def test_the_lag_is_the_age_of_the_run_that_waits(world: World) -> None:
    seen = []
    world.on_send = lambda: seen.append(world.value("lag_seconds"))
    world.pages = [page(RUNS[0]), page()]
    assert world.value("lag_seconds") == 0
    world.run()
    assert seen == [1_700_000_100.0 - RUNS[0].row.end]
    assert world.value("lag_seconds") == 0


def test_every_series_is_there_from_the_start(world: World) -> None:
    for reason in ("filter", "not_sampled", "refused", "missing"):
        assert world.value("skipped_runs_total", reason=reason) == 0
    for at in ("daemon", "back_end"):
        assert world.value("failures_total", at=at) == 0


# -- a stop


@pytest.fixture
def stop() -> Iterator[_Stop]:
    numbers = (signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    yield _Stop(patience=0.2)
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def stopped_at(world: World, stop: _Stop, request: int) -> None:
    """SIGTERM comes while this request is under way."""

    def on_send() -> None:
        if len(world.requests) == request:
            signal.raise_signal(signal.SIGTERM)

    world.on_send, world.unstopped = on_send, stop.held
    world.run(until=_Stopped)


def test_a_stop_waits_until_the_place_after_the_request_is_saved(world: World, stop: _Stop) -> None:
    world.pages = [page(*RUNS[:2], after="a"), page(RUNS[2])]
    stopped_at(world, stop, 1)
    assert (world.requests, world.place.read()) == ([ids(1, 2)], "cursor-2")
    assert world.value("sent_runs_total") == 2


def test_a_stop_waits_for_one_of_the_requests_into_which_a_refused_one_is_broken(
    world: World, stop: _Stop
) -> None:
    world.pages = [page(*RUNS[:2])]
    world.answers = [UNUSABLE]
    stopped_at(world, stop, 2)
    assert (world.requests, world.place.read()) == ([ids(1, 2), ids(1)], "cursor-1")


def test_a_stop_does_not_wait_for_a_back_end_that_is_down(world: World, stop: _Stop) -> None:
    world.pages = [page(RUNS[0])]
    world.answers = [BUSY] * 2
    stopped_at(world, stop, 2)
    assert (world.requests, world.slept, world.place.read()) == ([ids(1)] * 2, [1], None)


def test_a_stop_does_not_wait_for_ever(stop: _Stop) -> None:
    with pytest.raises(_Stopped), stop.held():
        signal.raise_signal(signal.SIGTERM)
        time.sleep(60)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_stop_at_any_other_time_is_one_at_once(stop: _Stop) -> None:
    with stop.held():
        pass
    with pytest.raises(_Stopped):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)  # a second one changes nothing


# -- the place


def test_a_disk_that_is_full_for_a_while_stops_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.place.save("earlier")
    save, full = Place.save, UserError("cannot write cursor: no space left on device")

    def fails_twice(place: Place, cursor: str) -> None:
        if cursor in ("a", "b"):
            raise full
        save(place, cursor)

    monkeypatch.setattr(Place, "save", fails_twice)
    world.pages = [page(after="a"), page(after="b"), page(after="c"), page(after="c")]
    world.run("earlier")
    assert world.asked == ["earlier", "a", "b", "c", "c"]
    assert world.place.read() == "c"
    messages = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert messages == ["cannot write cursor: no space left on device; runs are sent all the same"]


def test_a_place_that_could_never_be_saved_is_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise UserError("cannot write cursor: read-only file system")

    monkeypatch.setattr(Place, "save", fails)
    world.pages = [page(after="a")]
    with pytest.raises(UserError, match="read-only"):
        world.run()


@pytest.mark.parametrize(("said", "rejected"), [(-3, 0), (99_999, 3)])
def test_a_number_of_rejected_spans_that_cannot_be_ends_nothing(
    http: Any, world: World, said: int, rejected: int
) -> None:
    partial = ExportTraceServiceResponse()
    partial.partial_success.rejected_spans = said
    http.answer = (200, {}, partial.SerializeToString())
    world.answers = [BackEnd().send(SPANS)]
    world.pages = [page(RUNS[0])]
    world.run()
    assert world.value("rejected_spans_total") == rejected
    assert world.value("sent_spans_total") == 3 - rejected


def test_the_place_is_kept_and_read_again(tmp_path: Path) -> None:
    with open_place(tmp_path / "new" / "state") as place:
        assert place.read() is None
        place.save("84557617b3cb1fe4.23")
    with open_place(tmp_path / "new" / "state") as place:
        assert place.read() == "84557617b3cb1fe4.23"


@pytest.mark.parametrize("damaged", [b"garbage\n", b"\xff"])
def test_a_damaged_place_is_named(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "cursor").write_bytes(damaged)
    with (
        open_place(tmp_path, as_cursor) as place,
        pytest.raises(UserError, match=r"cannot read .*/cursor: it is damaged"),
    ):
        place.read()


def test_two_senders_do_not_share_a_place(tmp_path: Path) -> None:
    refused = pytest.raises(UserError, match="another sender uses")
    with open_place(tmp_path), refused, open_place(tmp_path):
        pass


def test_a_place_that_cannot_be_made_is_an_error_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="--state-directory"), open_place(tmp_path / "file" / "x"):
        pass


# -- the back end


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.seen.append((self.path, dict(self.headers), body))
        server.before_answer()
        status, headers, content = server.answer
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def http(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A back end that answers `answer`, and to which the environment points."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.seen, server.answer = [], (200, {}, b"")
    server.before_answer = lambda: None
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    # one request on a busy machine may take seconds
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "5")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


SPANS = SpanMaker().spans(make_ended(5), Beside("-", None, None), ())


def test_spans_arrive_as_protobuf(http: Any) -> None:
    assert BackEnd().send(SPANS) == TAKEN
    ((path, headers, body),) = http.seen
    kind = {name.lower(): value for name, value in headers.items()}["content-type"]
    assert (path, kind) == ("/v1/traces", "application/x-protobuf")
    request = ExportTraceServiceRequest.FromString(body)
    (resource,) = request.resource_spans
    (scope,) = resource.scope_spans
    assert [span.name for span in scope.spans] == ["cat|sort", "cat", "sort"]
    assert scope.spans[1].parent_span_id == scope.spans[0].span_id


def test_headers_and_compression_are_those_of_the_environment(
    http: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    assert BackEnd().send(SPANS).sent
    ((_, headers, body),) = http.seen
    sent = {name.lower(): value for name, value in headers.items()}
    assert (sent["authorization"], sent["content-encoding"]) == ("Bearer abc", "gzip")
    assert body.startswith(b"\x1f\x8b")


@pytest.mark.parametrize(
    ("status", "unusable"),
    [
        (400, True),
        (413, True),
        (301, False),
        (302, False),
        (308, False),
        (401, False),
        (404, False),
        (429, False),
        (500, False),
        (503, False),
    ],
)
def test_what_cannot_be_used_is_told_from_what_may_be_tried_again(
    http: Any, status: int, unusable: bool
) -> None:
    http.answer = (status, {}, b"")
    answer = BackEnd().send(SPANS)
    assert (answer.sent, answer.unusable) == (False, unusable)
    assert f"answers {status} " in answer.error


def test_a_redirect_is_not_followed_and_says_where_to(http: Any) -> None:
    """Behind one a POST is a GET without spans, and takes the headers to another host."""
    http.answer = (308, {"Location": "https://user:hunter2@otlp.example.org/v1/traces"}, b"")
    answer = BackEnd().send(SPANS)
    assert not answer.sent and len(http.seen) == 1
    assert answer.error.endswith(
        " to https://otlp.example.org/v1/traces: write that into OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    )
    http.answer = (301, {"Location": "/v1/traces/"}, b"")
    assert f" to http://127.0.0.1:{http.server_port}/v1/traces/: " in BackEnd().send(SPANS).error


def test_a_port_for_tls_that_is_asked_without_it_loses_no_run(http: Any) -> None:
    http.answer = (400, {}, b"Client sent an HTTP request to an HTTPS server.\n")
    answer = BackEnd().send(SPANS)
    assert (answer.sent, answer.unusable) == (False, False)
    assert "it takes https" in answer.error


def test_a_pause_that_the_back_end_asks_for_is_passed_on(http: Any) -> None:
    http.answer = (503, {"Retry-After": "30"}, b"")
    assert BackEnd().send(SPANS).pause == 30


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_back_end_that_is_busy_is_not_asked_again_before_it_is_known(
    http: Any, status: int
) -> None:
    """Nobody could stop the exporter between its tries, which take as long as the time-out."""
    http.answer = (status, {"Retry-After": "1"}, b"")
    answer = BackEnd().send(SPANS)
    assert len(http.seen) == 1
    assert (answer.sent, answer.pause) == (False, 1)
    assert f"answers {status} " in answer.error


def test_a_stop_leaves_the_answer_alone(http: Any, stop: _Stop) -> None:
    http.before_answer = lambda: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(_Stopped), stop.held():
        answer = BackEnd().send(SPANS)
    assert answer == TAKEN


def test_spans_that_were_rejected_of_a_request_that_was_taken_are_counted(http: Any) -> None:
    partial = ExportTraceServiceResponse()
    partial.partial_success.rejected_spans = 2
    partial.partial_success.error_message = "too old"
    http.answer = (200, {}, partial.SerializeToString())
    assert BackEnd().send(SPANS) == Answer(True, error="too old", rejected_spans=2)


def test_a_back_end_that_is_not_there_may_be_tried_again(
    http: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Any] = []
    send = requests.Session.send

    def counted(*given: Any, **options: Any) -> requests.Response:
        tries.append(given)
        return send(*given, **options)

    monkeypatch.setattr("requests.Session.send", counted)
    with socket.socket() as nobody:  # has the port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        answer = BackEnd().send(SPANS)
    assert answer == Answer(False, error="the back end does not answer: connection refused")
    assert len(tries) == 1


def test_a_back_end_whose_certificate_nobody_issued_says_where_to_name_its_ca(
    http: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cause: Any = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] (_ssl.c:992)")
    cause.verify_code, cause.verify_message = 18, "self-signed certificate"

    def refused(*_: Any, **__: Any) -> None:
        raise requests.exceptions.SSLError from cause

    monkeypatch.setattr("requests.Session.send", refused)
    assert BackEnd().send(SPANS).error == (
        "the back end does not answer: its certificate is not trusted: self-signed certificate;"
        " name its CA in OTEL_EXPORTER_OTLP_CERTIFICATE"
    )


def test_a_proxy_that_refuses_is_named_without_the_address(
    http: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        cause = OSError("Tunnel connection failed: 407 Proxy Authentication Required")
        url = "Max retries exceeded with url: /v1/traces?api-key=hunter2"
        raise requests.exceptions.ProxyError(url) from cause

    monkeypatch.setattr("requests.Session.send", refused)
    assert BackEnd().send(SPANS).error == (
        "the back end does not answer: Tunnel connection failed: 407 Proxy Authentication Required"
    )


@pytest.mark.parametrize(("variable", "patience"), [("0.5", None), ("0.5", 500), ("500", 0.5)])
def test_a_back_end_that_never_answers_is_given_up_in_time(
    http: Any, monkeypatch: pytest.MonkeyPatch, variable: str, patience: float | None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", variable)
        answer = BackEnd(patience=patience).send(SPANS)
    assert answer == Answer(False, error="the back end does not answer: it takes too long")


def test_where_spans_go_is_shown_without_a_password() -> None:
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://user:hunter2@collector:4318/"}
    assert endpoint(given) == "https://collector:4318/v1/traces"
    whole = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://tempo/otlp?key=hunter2", **given}
    assert endpoint(whole) == "http://tempo/otlp"
    assert endpoint({}) == "http://localhost:4318/v1/traces"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf only"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf only"),
        ("OTEL_SDK_DISABLED", "true", "nothing would be sent"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip", "give none, gzip or deflate"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "soon", "is no time; give seconds"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "is no time"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10000", "others take milliseconds; give seconds"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/ca.crt", "no such file or directory"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "by HTTP only; begin it with http"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "grpc://collector:4317", "by HTTP only"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "and a host"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:x", "and a host"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1", "and a host"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/v1/traces", "/v1/traces is added to it"),
    ],
)
def test_what_the_sender_cannot_do_is_an_error_of_configuration(
    name: str, value: str, expected: str
) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        check_environment({name: value})


@pytest.mark.parametrize(
    ("name", "value", "entry"),
    [
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Bearer hunter2", 1),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b, hunter2", 2),
        ("OTEL_EXPORTER_OTLP_HEADERS", "X-Team=hunter2%C5%BC", 1),
    ],
)
def test_a_header_that_cannot_be_read_is_an_error_that_does_not_tell_it(
    name: str, value: str, entry: int, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigurationError, match=f"entry {entry} is not NAME=VALUE") as error:
        check_environment({name: value})
    assert "hunter2" not in str(error.value)
    with pytest.raises(ConfigurationError) as error:
        check_environment({"OTEL_EXPORTER_OTLP_ENDPOINT": "root:hunter2@collector"})
    assert "hunter2" not in str(error.value)
    assert not caplog.text


@pytest.mark.parametrize(
    ("kind", "value", "general"),
    [
        ("PROTOCOL", "http/protobuf", "grpc"),
        ("COMPRESSION", "gzip", "zip"),
        ("TIMEOUT", "5", "10000"),
        ("HEADERS", "a=b", "Authorization: Bearer x"),
        ("CERTIFICATE", "/dev/null", "/no/such/ca.crt"),
        ("ENDPOINT", "http://collector:4318/v1/traces", "collector:4317"),
    ],
)
def test_a_general_variable_counts_only_without_that_for_traces(
    kind: str, value: str, general: str
) -> None:
    environment = {f"OTEL_EXPORTER_OTLP_{kind}": general}
    with pytest.raises(ConfigurationError):
        check_environment(environment)
    check_environment(environment | {f"OTEL_EXPORTER_OTLP_TRACES_{kind}": value})


def test_a_header_may_have_no_value() -> None:
    check_environment({"OTEL_EXPORTER_OTLP_HEADERS": "X-Team=,Authorization=Bearer%20x"})


def test_what_the_variables_usually_are_is_taken(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").touch()
    check_environment(
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "GZIP",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2.5",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path / "ca.crt"),
            "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20x, key=a b,",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://root:x@[::1]:4318/otlp",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://tempo/otlp/v1/traces?key=x",
            "OTEL_SDK_DISABLED": "false",
        }
    )


# -- its own metrics


def test_its_metrics_are_served(world: World) -> None:
    with served(world.statistics, Address("127.0.0.1", 0)) as port:
        text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    assert 'pipelined_export_skipped_runs_total{reason="filter"} 0.0' in text
    assert "_created" not in text


def test_its_metrics_are_answered_whatever_name_they_are_asked_by(world: World) -> None:
    with served(world.statistics, Address("127.0.0.1", 0)) as port:
        asked = Request(f"http://127.0.0.1:{port}/metrics", headers={"Host": "pod.example"})
        assert b"pipelined_export_up" in urlopen(asked).read()


def test_an_accept_header_that_cannot_be_parsed_gets_plain_text(world: World) -> None:
    with served(world.statistics, Address("127.0.0.1", 0)) as port:
        accept = {"Accept": "application/openmetrics-text;version=abc"}
        answer = urlopen(Request(f"http://127.0.0.1:{port}/metrics", headers=accept))
        assert answer.headers["Content-Type"].startswith("text/plain;")
        assert b"pipelined_export_up" in answer.read()


def test_idle_clients_take_no_thread_and_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpServer, "client_timeout", 1.0)
    with contextlib.ExitStack() as opened:
        port = opened.enter_context(served(world.statistics, Address("127.0.0.1", 0)))
        before = set(threading.enumerate())  # some may be of a server before, and about to end
        idle = [
            opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            for _ in range(20)
        ]
        assert b"pipelined_export_up" in urlopen(f"http://127.0.0.1:{port}/metrics").read()
        assert set(threading.enumerate()) <= before
        for client in idle:
            while client.recv(1000):
                pass


def test_a_port_that_is_taken_is_an_error_of_the_user(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        refused = pytest.raises(UserError, match="the port is taken; see by whom")
        with refused, served(world.statistics, address):
            pass


# -- the command


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--after", "x"), "--after: 'x' is neither a cursor"),
        (("--web.listen-address", "x"), "--web.listen-address must be HOST:PORT"),
        (("--min-duration", "x"), "--min-duration: 'x' is not a duration"),
        (("--unit", "a", "--unit", ""), "'--unit': it is empty"),
        (("--web.listen-address", ":9906"), "will not listen on 0.0.0.0:9906 without a password"),
    ],
)
def test_a_wrong_flag_is_an_error_of_usage(
    flags: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._guarded(["export", *flags]) == 2
    assert expected in capsys.readouterr().err


def test_a_wrong_variable_ends_it_like_a_wrong_flag(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert cli._guarded(["export"]) == 2
    assert "http/protobuf only" in capsys.readouterr().err
