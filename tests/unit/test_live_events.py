# SPDX-License-Identifier: Apache-2.0
"""What the live page shows, and how it gets it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from pipelined.http_port.server import STOPPING, HttpServer
from pipelined.runs import Exit, Identity, Outcome, Run, Surroundings
from pipelined.web.app import create_app
from pipelined.web.live_events import (
    HEARTBEAT,
    MAX_LIVE,
    MAX_RECENT,
    MAX_SHORT,
    MAX_STREAMS,
    MIN_AGE,
    PACE,
    Now,
    _stream,
)
from unit.observed import HOST, FakeObserver, run, three_runs


class Clock:
    """Time that passes only when a test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Stop(threading.Event):
    """Set after `waits` waits, each of which takes its time on `clock` at once."""

    def __init__(self, clock: Clock, waits: int) -> None:
        super().__init__()
        self._clock = clock
        self._left = waits

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.now += timeout or 0.0
        self._left -= 1
        if self._left <= 0:
            self.set()
        return self.is_set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def observer() -> FakeObserver:
    return FakeObserver(*three_runs())


@pytest.fixture
def now(observer: FakeObserver, clock: Clock) -> Now:
    return Now(observer, HOST, clock)  # type: ignore[arg-type]


@pytest.fixture
def app(observer: FakeObserver) -> Flask:
    return create_app(observer, host=HOST)  # type: ignore[arg-type]


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


def shown(now: Now) -> Any:
    return json.loads(now.moment().text)


def grown(of: Run, seconds: float) -> Run:
    """The run after more seconds, all of them at level 1 and its first stage on CPU."""
    first = replace(of.stages[0], states={**of.stages[0].states, "cpu": 0.25 + seconds})
    return replace(
        of,
        wall_seconds=of.wall_seconds + seconds,
        levels=(of.levels[0], of.levels[1] + seconds, *of.levels[2:]),
        stages=(first, *of.stages[1:]),
    )


# -- the moment


def test_live_runs_are_diagrams_and_finished_ones_lines(now: Now) -> None:
    moment = shown(now)
    assert [(run["id"], run["now"]["boxes"][0]["command"]) for run in moment["live"]] == [
        ("run-3", "cat")
    ]
    assert [run["id"] for run in moment["recent"]] == ["run-2", "run-1"]


def test_runs_of_different_users_and_jobs_say_whose_they_are(
    now: Now, observer: FakeObserver
) -> None:
    users = [Identity(host="h", boot_id="b", uid=uid, user=f"u{uid}") for uid in (0, 0, 7)]
    job = replace(users[2], variables={"SLURM_JOB_ID": "4711"})
    for number, identity in enumerate((*users[:2], job)):
        observer.seen[number] = replace(observer.seen[number], identity=identity)
    moment = shown(now)
    said = {run["id"]: run["distinction"] for run in (*moment["live"], *moment["recent"])}
    assert said == {
        observer.seen[n].id: text for n, text in enumerate(("user u0", "user u0", "job 4711"))
    }


def test_of_runs_that_are_alike_nothing_is_said(now: Now) -> None:
    moment = shown(now)
    assert {run["distinction"] for run in (*moment["live"], *moment["recent"])} == {""}


def test_runs_that_did_not_succeed_are_counted_in_their_line(
    now: Now, observer: FakeObserver
) -> None:
    failed = Outcome("failed", (1,))
    killed = replace(observer.seen[1].stages[1], exit=Exit(signal="SIGKILL"), outcome="failed")
    observer.seen[1] = replace(
        observer.seen[1], stages=(observer.seen[1].stages[0], killed), outcome=failed
    )
    first, second = shown(now)["recent"]
    assert (first["outcome"]["result"], first["incomplete_runs"]) == ("failed", 1)
    assert first["verdict"].startswith("Failed: head was killed by SIGKILL")
    assert (second["outcome"], second["incomplete_runs"]) == (None, 0)


def test_a_stage_of_a_live_run_that_has_died_comes_first(now: Now, observer: FakeObserver) -> None:
    live = observer.seen[0]
    killed = replace(
        live.stages[1], exit=Exit(signal="SIGKILL"), outcome="failed", end=live.start + 2
    )
    observer.seen[0] = replace(live, stages=(live.stages[0], killed))
    (run,) = shown(now)["live"]
    assert run["short_verdict"].startswith("awk was killed by SIGKILL")
    assert [box["exit"] for box in run["now"]["boxes"]] == ["", "SIGKILL"]
    assert (run["outcome"], run["incomplete_runs"]) == (None, 0)


def test_many_clients_at_once_cost_one_sweep(
    now: Now, observer: FakeObserver, clock: Clock
) -> None:
    now.moment()
    clock.now += PACE / 2
    now.moment()
    assert observer.sweep_stats.count == 1


def test_a_later_client_gets_a_new_moment(now: Now, observer: FakeObserver, clock: Clock) -> None:
    now.moment()
    clock.now += PACE
    now.moment()
    assert observer.sweep_stats.count == 2


def test_a_diagram_shows_the_time_since_the_moment_before(
    now: Now, observer: FakeObserver, clock: Clock
) -> None:
    now.moment()
    clock.now += 1
    observer.seen[0] = grown(observer.seen[0], 1.0)
    drawn = shown(now)["live"][0]
    assert drawn["now"]["seconds"] == pytest.approx(1.0)
    assert drawn["now"]["boxes"][0]["cpu"] == "CPU 100 %"
    assert drawn["whole"]["seconds"] == pytest.approx(11.0)


def test_after_a_long_pause_a_diagram_shows_the_whole_run(
    now: Now, observer: FakeObserver, clock: Clock
) -> None:
    now.moment()
    clock.now += 60
    observer.seen[0] = grown(observer.seen[0], 60.0)
    assert shown(now)["live"][0]["now"]["seconds"] == pytest.approx(70.0)


def test_a_run_that_has_just_begun_is_not_drawn_yet(now: Now, observer: FakeObserver) -> None:
    observer.seen[0] = replace(observer.seen[0], wall_seconds=MIN_AGE / 2)
    assert shown(now)["live"] == []


def test_only_so_many_are_drawn_those_that_are_live_for_longest_but_all_are_counted(
    now: Now, observer: FakeObserver
) -> None:
    observer.seen = [run(number) for number in range(MAX_LIVE + 5, 0, -1)]
    moment = shown(now)
    drawn = [found["id"] for found in moment["live"]]
    assert drawn == [f"run-{number}" for number in range(1, MAX_LIVE + 1)]
    assert moment["live_runs"] == MAX_LIVE + 5


def test_a_run_keeps_its_place_when_another_begins(now: Now, observer: FakeObserver) -> None:
    observer.seen = [run(5), run(4)]
    assert [found["id"] for found in shown(now)["live"]] == ["run-4", "run-5"]


def test_finished_runs_are_the_last_to_end_and_only_so_many(
    now: Now, observer: FakeObserver
) -> None:
    observer.seen = [run(number, live=False) for number in range(1, MAX_RECENT + 5)]
    ids = [found["id"] for found in shown(now)["recent"]]
    assert (ids[0], len(ids)) == (f"run-{MAX_RECENT + 4}", MAX_RECENT)


def test_a_run_that_has_just_ended_gets_its_final_figures(
    now: Now, observer: FakeObserver, clock: Clock
) -> None:
    assert shown(now)["recent"][0]["surroundings"] is None
    clock.now += PACE
    ended = observer.seen[1]
    observer.seen[1] = replace(ended, surroundings=Surroundings(1.5, None))
    assert shown(now)["recent"][0]["surroundings"]["others_cores_used"] == 1.5


def test_a_finished_run_stays_when_the_daemon_has_forgotten_it_for_later_ones(
    now: Now, observer: FakeObserver, clock: Clock
) -> None:
    assert [found["id"] for found in shown(now)["recent"]] == ["run-2", "run-1"]
    clock.now += PACE
    observer.seen = [run(4, live=False)]
    assert [found["id"] for found in shown(now)["recent"]] == ["run-4", "run-2", "run-1"]


def test_finished_runs_of_a_clock_that_was_ahead_come_last(
    now: Now, observer: FakeObserver, clock: Clock
) -> None:
    later = time.time() + 7200
    ahead = [replace(run(n, live=False), start=later, end=later + n) for n in range(MAX_RECENT)]
    observer.seen = ahead
    assert shown(now)["recent"][0]["id"] == ahead[-1].id
    clock.now += PACE
    observer.seen = [run(100, live=False)]
    assert [found["id"] for found in shown(now)["recent"][:2]] == ["run-100", ahead[-1].id]


def test_a_run_that_goes_on_after_all_is_not_among_the_finished_ones(
    now: Now, observer: FakeObserver, clock: Clock
) -> None:
    now.moment()
    clock.now += PACE
    observer.seen = [run(2, "yes|head|wc")]
    moment = shown(now)
    assert [found["id"] for found in moment["live"]] == ["run-2"]
    assert [found["id"] for found in moment["recent"]] == ["run-1"]


def test_a_line_has_its_age_and_the_beginning_of_its_verdict(now: Now) -> None:
    found = shown(now)["live"][0]
    assert found["age"] == "10.0 s"
    assert found["short_verdict"] == "Idle: no stage is on CPU for more than 2 %"


# -- short runs


def test_a_short_run_is_no_line(now: Now, observer: FakeObserver) -> None:
    observer.seen = [replace(run(1, live=False), wall_seconds=MIN_AGE / 2)]
    assert shown(now)["recent"] == []


def test_short_runs_are_summed_up(now: Now, observer: FakeObserver) -> None:
    observer.short = {"seq|sort": 3, "script|tr": 1_200}
    assert shown(now)["short"] == {
        "seconds": 60.0,
        "runs": 1_203,
        "sentence": "In the last minute 1,203 runs of less than 1 s, of 2 pipelines;"
        " most often script|tr (1,200).",
        "pipelines": [
            {"pipeline": "script|tr", "runs": 1_200},
            {"pipeline": "seq|sort", "runs": 3},
        ],
    }


@pytest.mark.parametrize(
    ("counted", "sentence"),
    [
        ({}, ""),
        ({"seq|sort": 1}, "In the last minute 1 run of less than 1 s: seq|sort."),
        ({"seq|sort": 7}, "In the last minute 7 runs of less than 1 s: seq|sort."),
    ],
)
def test_no_short_run_one_and_several_of_one_pipeline(
    now: Now, observer: FakeObserver, counted: dict[str, int], sentence: str
) -> None:
    observer.short = counted
    assert shown(now)["short"]["sentence"] == sentence


def test_only_so_many_pipelines_of_short_runs_are_named(now: Now, observer: FakeObserver) -> None:
    observer.short = {f"a{number}|b": number for number in range(1, MAX_SHORT + 5)}
    short = shown(now)["short"]
    assert len(short["pipelines"]) == MAX_SHORT
    assert short["runs"] == sum(observer.short.values())


def test_another_short_run_is_an_event(now: Now, observer: FakeObserver, clock: Clock) -> None:
    observer.seen, observer.short = [], {"seq|sort": 1}
    stream = _stream(now, Stop(clock, 3), clock)
    next(stream)
    observer.short = {"seq|sort": 2}
    assert json.loads(next(stream).split(b"data: ")[1])["short"]["runs"] == 2


# -- nested runs


def nested(number: int, outer: Run, pipeline: str = "seq|sort", *, live: bool = False) -> Run:
    inner = run(number, pipeline, live=live)
    series = replace(inner.series, nested=True)
    return replace(inner, series=series, parent=outer.id, parent_pipeline=outer.pipeline)


def lines(listed: Any) -> list[tuple[str, int, int]]:
    return [(entry["pipeline"], entry["depth"], entry["runs"]) for entry in listed]


def test_a_live_nested_run_follows_the_one_that_encloses_it(
    now: Now, observer: FakeObserver
) -> None:
    job = run(1, "job.sh|tee")
    part = nested(3, job, "part.sh|cat", live=True)
    observer.seen = [nested(4, part, live=True), part, run(2), job]
    assert lines(shown(now)["live"]) == [
        ("job.sh|tee", 0, 1),
        ("part.sh|cat", 1, 1),
        ("seq|sort", 2, 1),
        ("cat|awk", 0, 1),
    ]


def test_young_runs_inside_an_old_one_push_out_none_that_is_live_for_longer(
    now: Now, observer: FakeObserver
) -> None:
    job = run(1, "job.sh|tee")
    old = [run(number) for number in range(2, MAX_LIVE // 2)]
    young = [nested(number, job, live=True) for number in range(100, 100 + MAX_LIVE)]
    observer.seen = [*young, *old, job]
    drawn = [found["id"] for found in shown(now)["live"]]
    assert len(drawn) == MAX_LIVE
    assert {one.id for one in (job, *old)} <= set(drawn)


def test_many_equal_runs_inside_one_do_not_hide_other_finished_runs(
    now: Now, observer: FakeObserver
) -> None:
    job = run(1, "job.sh|tee")
    many = [nested(number, job) for number in range(100, 100 + 3 * MAX_RECENT)]
    observer.seen = [*many, run(2, live=False), job]
    moment = shown(now)
    assert lines(moment["recent"]) == [("seq|sort", 0, 3 * MAX_RECENT), ("cat|awk", 0, 1)]
    assert moment["recent"][0]["parent_pipeline"] == "job.sh|tee"


def test_finished_runs_stand_under_the_one_that_enclosed_them(
    now: Now, observer: FakeObserver
) -> None:
    job = run(50, "job.sh|tee", live=False)
    observer.seen = [nested(number, job) for number in range(10)] + [run(20, live=False), job]
    assert lines(shown(now)["recent"]) == [
        ("job.sh|tee", 0, 1),
        ("seq|sort", 1, 10),
        ("cat|awk", 0, 1),
    ]


def test_a_line_that_stands_for_one_run_more_is_an_event(
    now: Now, observer: FakeObserver, clock: Clock
) -> None:
    job = run(1, "job.sh|tee")
    observer.seen = [nested(9, job)]
    stream = _stream(now, Stop(clock, 3), clock)
    next(stream)
    observer.seen += [nested(8, job)]
    assert json.loads(next(stream).split(b"data: ")[1])["recent"][0]["runs"] == 2


def test_command_lines_are_never_shown(observer: FakeObserver) -> None:
    shown = create_app(observer, host=HOST, show_arguments=True)  # type: ignore[arg-type]
    assert "hunter2" not in shown.test_client().get("/api/v1/now").text


def test_a_moment_can_be_requested(client: FlaskClient) -> None:
    answer = client.get("/api/v1/now")
    assert (answer.content_type, answer.get_json()["live_runs"]) == ("application/json", 1)


# -- the stream


def events(now: Now, clock: Clock, seconds: int) -> list[str]:
    """The names of the events of `seconds`; empty for a line that is no event."""
    stream = _stream(now, Stop(clock, round(seconds / PACE)), clock)
    lines = [event.split(b"\n")[0].decode() for event in stream]
    return [line.partition(":")[2].strip() for line in lines]


def test_there_is_an_event_for_each_second_while_a_run_is_live(now: Now, clock: Clock) -> None:
    assert events(now, clock, 4) == ["now"] * 4


def test_if_nothing_happens_there_are_heartbeats_only(
    now: Now, observer: FakeObserver, clock: Clock
) -> None:
    observer.seen = []
    names = events(now, clock, round(2 * HEARTBEAT) + 1)
    assert [name for name in names if name] == ["now", "heartbeat", "heartbeat"]


def test_something_is_written_each_second_to_detect_clients_that_have_gone(
    now: Now, observer: FakeObserver, clock: Clock
) -> None:
    observer.seen = []
    assert len(events(now, clock, 10)) == 10


def test_the_end_of_the_last_run_is_an_event(
    now: Now, observer: FakeObserver, clock: Clock
) -> None:
    stream = _stream(now, Stop(clock, 3), clock)
    next(stream)
    observer.seen = [replace(found, end=found.start + 10) for found in observer.seen]
    last = next(stream)
    assert json.loads(last.split(b"data: ")[1])["live"] == []


def test_an_event_is_one_line_of_json(now: Now, observer: FakeObserver, clock: Clock) -> None:
    first, second = observer.seen[0].stages
    odd = replace(first, command="a\nb\u2028")
    observer.seen[0] = replace(observer.seen[0], stages=(odd, second))
    (event,) = _stream(now, Stop(clock, 1), clock)
    name, data, *rest = event.decode().split("\n")
    assert (name, rest) == ("event: now", ["", ""])
    assert json.loads(data.removeprefix("data: "))["live"][0]["now"]["boxes"]


def test_a_stream_ends_when_the_server_stops(client: FlaskClient) -> None:
    stopping = threading.Event()
    answer = client.get("/api/v1/events", environ_overrides={STOPPING: stopping})
    parts: Iterator[Any] = answer.iter_encoded()
    next(parts)
    stopping.set()
    assert list(parts) == []


def test_a_head_request_does_not_start_a_stream(client: FlaskClient) -> None:
    for _ in range(MAX_STREAMS + 1):
        assert client.head("/api/v1/events").status_code == 200


def test_a_client_too_many_learns_what_to_do_and_when_to_try_again(
    client: FlaskClient,
) -> None:
    streams = [client.get("/api/v1/events") for _ in range(MAX_STREAMS)]
    refused = client.get("/api/v1/events")
    for stream in streams:
        stream.close()
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) > 0
    assert "ask for /api/v1/now" in refused.get_json()["error"]["message"]


def test_a_client_that_leaves_frees_its_stream_even_if_nothing_was_sent(
    client: FlaskClient,
) -> None:
    for _ in range(2 * MAX_STREAMS):
        answer = client.get("/api/v1/events")
        assert answer.status_code == 200
        answer.close()


# -- the stream on a server


def test_streams_do_not_block_other_requests_and_end_with_the_server(app: Flask) -> None:
    server = HttpServer(app, "127.0.0.1", 0)
    server.start()
    streams = []
    try:
        for _ in range(MAX_STREAMS):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.request("GET", "/api/v1/events")
            streams.append((connection, connection.getresponse()))
        for _, stream in streams:
            assert stream.readline() == b"event: now\n"
        scrape = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        scrape.request("GET", "/metrics")
        assert scrape.getresponse().status == 200
        scrape.close()
        server.stop()
        for _, stream in streams:
            assert stream.read().endswith(b"}\n\n")
    finally:
        server.stop()
        for connection, _ in streams:
            connection.close()
