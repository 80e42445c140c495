# SPDX-License-Identifier: Apache-2.0
"""Finished runs over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from pipelined.answers.described import describe_run
from pipelined.answers.run import Compared
from pipelined.history.files import FILE_NAME
from pipelined.history.history import History
from pipelined.runs import Run
from pipelined.runs.codec import written
from pipelined.runs.identity import Identity
from pipelined.web.app import create_app
from unit.invented import START, make_ended, make_finished, make_timeline
from unit.observed import HOST, FakeObserver


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., FlaskClient]:
    """A client of a daemon that sees the runs `seen`, and has stored the runs `stored`."""

    def make(
        *, seen: tuple[Run, ...] = (), stored: tuple[Run, ...] = (), **given: Any
    ) -> FlaskClient:
        history = History(tmp_path, host=HOST, max_age=1e12, show_arguments=True)
        for run in stored:
            history.sink.put(make_finished(run))
        history.sink.start()
        history.sink.close(20)
        values: dict[str, Any] = {"host": HOST, "history": history}
        observer: Any = FakeObserver(*seen)
        return create_app(observer, **values | given).test_client()

    return make


def starts(answer: Any) -> list[float]:
    assert answer.status_code == 200, answer.text
    return [run["start_timestamp_seconds"] - START for run in answer.get_json()["runs"]]


def message(answer: Any, status: int) -> str:
    assert answer.status_code == status
    text: str = answer.get_json()["error"]["message"]
    return text


def test_runs_are_listed_and_filtered(ask: Callable[..., FlaskClient]) -> None:
    client = ask(stored=(make_ended(1), make_ended(2, "seq|wc"), make_ended(3)))
    assert starts(client.get("/api/v1/runs")) == [3, 2, 1]
    assert starts(client.get("/api/v1/runs?pipeline=seq%7Cwc")) == [2]
    assert starts(client.get("/api/v1/runs?command=sort&until=1700000002")) == [1]
    assert starts(client.get(f"/api/v1/runs?since={START + 2}")) == [3, 2]
    assert starts(client.get("/api/v1/runs?finding=none-such")) == []
    assert starts(client.get("/api/v1/runs?min_duration=1h")) == []
    assert starts(client.get("/api/v1/runs?min_duration=10ms&top_level=true")) == [3, 2, 1]
    assert starts(client.get("/api/v1/runs?slower=true")) == []
    for asked in ("failed=true", "interrupted=true", "failed=true&interrupted=true"):
        assert starts(client.get(f"/api/v1/runs?{asked}")) == []
        answer = client.get(f"/api/v1/runs?{asked}").json
        assert answer is not None and answer["counted"] is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("min_duration=long", "parameter 'min_duration': 'long' is not a duration such as 500ms"),
        ("top_level=1", "parameter 'top_level': '1' is neither true nor false"),
    ],
)
def test_a_filter_that_is_none_is_refused(
    ask: Callable[..., FlaskClient], query: str, expected: str
) -> None:
    assert message(ask().get(f"/api/v1/runs?{query}"), 400).startswith(expected)


def test_a_time_that_never_comes_is_no_error(ask: Callable[..., FlaskClient]) -> None:
    client = ask(stored=(make_ended(1),))
    for since, until in (("-1e300", "1e300"), ("-1e17", "1e17")):
        query = f"since={since}&until={until}"
        found = client.get(f"/api/v1/pipelines/summary?{query}").get_json()
        assert [one["runs"] for one in found["pipelines"]] == [1]
        assert client.get(f"/api/v1/runs?{query}").get_json()["counted"]["runs"] == 1
    assert client.get("/api/v1/pipelines/summary?since=1e300").get_json()["pipelines"] == []


def test_the_longest_runs_come_first_page_by_page(ask: Callable[..., FlaskClient]) -> None:
    walls = {1: 2.0, 2: 60.0, 3: 0.5, 4: 60.0, 5: 1.0}
    client = ask(stored=tuple(make_ended(n, wall=wall) for n, wall in walls.items()))
    seen: list[float] = []
    query: dict[str, Any] = {"sort": "wall", "limit": 2}
    while True:
        answer = client.get("/api/v1/runs", query_string=query)
        seen += starts(answer)
        query["before"] = answer.get_json()["next"]
        if query["before"] is None:
            break
    assert seen == [4, 2, 1, 5, 3]
    assert starts(client.get(f"/api/v1/runs?sort=wall&since={START + 3}")) == [4, 5, 3]
    assert starts(client.get("/api/v1/runs?sort=start")) == [5, 4, 3, 2, 1]


def test_the_longest_runs_since_some_time_have_the_number_of_all(
    ask: Callable[..., FlaskClient],
) -> None:
    client = ask(stored=(make_ended(1), make_ended(2)))
    answer = client.get(f"/api/v1/runs?since={START}&sort=wall&limit=1").get_json()
    assert (answer["counted"]["runs"], answer["next"]) == (2, f"1.0:{make_ended(2).id}")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sort=cpu", "parameter 'sort': 'cpu' is none of start, wall"),
        (
            "sort=wall&before=1763-1",
            "parameter 'before': '1763-1' is not the next of an answer with sort=wall",
        ),
        (
            "before=1.0:1763-1",
            "parameter 'before': '1.0:1763-1' is not the next of an answer with sort=start",
        ),
        ("before=", "parameter 'before': it is empty; give the next of the previous answer"),
    ],
)
def test_an_order_that_is_none_or_of_another_page_is_refused(
    ask: Callable[..., FlaskClient], query: str, expected: str
) -> None:
    assert message(ask().get(f"/api/v1/runs?{query}"), 400) == expected


def test_a_sort_that_is_none_is_refused(ask: Callable[..., FlaskClient]) -> None:
    found = message(ask().get("/api/v1/pipelines/summary?sort=name"), 400)
    sorts = "wall, cpu, not-overlapped, runs, slower, failures"
    assert found == f"parameter 'sort': 'name' is none of {sorts}"


def test_a_run_that_is_far_from_its_usual_is_marked(ask: Callable[..., FlaskClient]) -> None:
    runs = [make_ended(n, wall=2.0) for n in range(0, 20, 4)]
    client = ask(stored=(*runs, make_ended(30, wall=4.0)))
    answer = client.get("/api/v1/runs?slower=true")
    assert starts(answer) == [30]
    (found,) = answer.get_json()["runs"]
    assert (found["usual_seconds"], found["slower_than_usual"]) == (2.0, True)
    assert client.get("/api/v1/runs").get_json()["runs"][1]["slower_than_usual"] is None


def test_a_stored_run_has_what_is_usual_for_it(ask: Callable[..., FlaskClient]) -> None:
    runs = [make_ended(n, wall=2.0) for n in range(0, 20, 4)]
    slow = make_ended(30, wall=4.0)
    for seen in ((), (slow,)):  # also while it is still observed
        found = ask(seen=seen, stored=(*runs, slow)).get(f"/api/v1/runs/{slow.id}").get_json()
        assert (found["usual_seconds"], found["slower_than_usual"]) == (2.0, True)
        assert found["wall_seconds"] == 4.0


def test_of_a_run_that_is_not_stored_nothing_usual_is_known(
    ask: Callable[..., FlaskClient],
) -> None:
    found = ask(seen=(make_ended(1),)).get("/api/v1/runs/last").get_json()
    assert (found["usual_seconds"], found["usual_input_bytes"]) == (None, None)


def test_pipelines_are_summed_up(ask: Callable[..., FlaskClient]) -> None:
    client = ask(stored=(make_ended(1), make_ended(2, "seq|wc", wall=9.0), make_ended(3)))
    since = f"/api/v1/pipelines/summary?since={START}&until={START + 7200}"
    found = client.get(since).get_json()
    assert [(one["pipeline"], one["runs"]) for one in found["pipelines"]] == [
        ("seq|wc", 1),
        ("cat|sort", 2),
    ]
    assert found["start_timestamp_seconds"] == START - START % 3600
    found = client.get(f"{since}&sort=runs&limit=1").get_json()
    assert [one["pipeline"] for one in found["pipelines"]] == ["cat|sort"]
    assert found["matching_pipelines"] == 2
    found = client.get(f"{since}&search=seq").get_json()
    assert [one["pipeline"] for one in found["pipelines"]] == ["seq|wc"]
    # Without a time: the last week.
    assert client.get("/api/v1/pipelines/summary").get_json()["matching_pipelines"] == 0


@pytest.mark.parametrize(
    ("path", "listed"),
    [("pipelines", "runs"), ("pipelines/summary", "pipelines"), ("jobs/summary", "jobs")],
)
def test_a_long_answer_is_in_the_form_of_a_short_one(
    ask: Callable[..., FlaskClient], path: str, listed: str
) -> None:
    client = ask(seen=(make_ended(4), make_ended(5)), stored=(make_ended(1), make_ended(2, "a|b")))
    answer = client.get(f"/api/v1/{path}", query_string={} if listed == "runs" else {"since": 0})
    assert answer.get_json()[listed]
    assert answer.text == json.dumps(answer.get_json(), separators=(",", ":")) + "\n"
    assert answer.content_type == "application/json"


def test_a_list_since_some_time_has_the_number_of_all_runs(
    ask: Callable[..., FlaskClient],
) -> None:
    client = ask(stored=(make_ended(1), make_ended(2, "seq|wc"), make_ended(3)))
    counted = client.get(f"/api/v1/runs?since={START}&pipeline=cat%7Csort").get_json()["counted"]
    assert counted == {
        "start_timestamp_seconds": START - START % 3600,
        "runs": 2,
        "stored_runs": 2,
        "median_wall_seconds": pytest.approx(1.0, rel=1.0),
        "most_frequent_pipeline": "cat|sort",
        "nested_runs": 0,
        "stored_nested_runs": 0,
    }


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?since=2h&command=sort",
        "?since=2h&finding=barrier",
        "?since=2h&min_duration=1s",
        "?since=2h&slower=true",
    ],
)
def test_runs_are_not_counted_if_they_cannot_be(
    ask: Callable[..., FlaskClient], query: str
) -> None:
    assert ask(stored=(make_ended(1),)).get(f"/api/v1/runs{query}").get_json()["counted"] is None


def test_a_long_list_comes_page_by_page(ask: Callable[..., FlaskClient]) -> None:
    client = ask(stored=tuple(make_ended(number) for number in range(5)))
    seen, query = [], ""
    while True:
        answer = client.get(f"/api/v1/runs?limit=2{query}")
        seen += starts(answer)
        if answer.get_json()["next"] is None:
            break
        query = f"&before={answer.get_json()['next']}"
    assert seen == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=0", "parameter 'limit': '0' is not a whole number"),
        ("since=soon", "parameter 'since': 'soon' is not a moment such as 2h"),
        ("unit=", "parameter 'unit': it is empty; give a unit such as nightly.service"),
        ("stage=sort", "/api/v1/runs has no parameter 'stage'; it takes pipeline, unit"),
    ],
)
def test_a_wrong_parameter_is_named(
    ask: Callable[..., FlaskClient], query: str, expected: str
) -> None:
    assert message(ask().get(f"/api/v1/runs?{query}"), 400).startswith(expected)


def test_a_stored_run_is_returned_in_full(ask: Callable[..., FlaskClient]) -> None:
    run = make_ended(1)
    answer = ask(stored=(run,)).get(f"/api/v1/runs/{run.id}").get_json()
    timeline, machine = answer.pop("timeline"), answer.pop("machine")
    described = describe_run(run, HOST, timeline=make_timeline(run))
    assert answer == {**described, **written(Compared())}
    assert machine == {"cores": HOST.cores, "l2_bytes": HOST.l2_bytes, "costs": None}
    assert timeline == [written(point) for point in make_timeline(run)]


def test_a_live_run_is_returned_with_its_time_line_so_far(ask: Callable[..., FlaskClient]) -> None:
    run = make_ended(1, end=None)
    answer = ask(seen=(run,)).get(f"/api/v1/runs/{run.id[:-1]}").get_json()
    assert answer["live"] is True
    assert len(answer["timeline"]) == 2


def test_command_lines_are_returned_only_by_a_daemon_that_shows_them(
    ask: Callable[..., FlaskClient],
) -> None:
    run = make_ended(1)
    for shown in (False, True):
        answer = ask(stored=(run,), show_arguments=shown).get("/api/v1/runs/last")
        assert ("hunter2" in answer.text) is shown


def test_last_is_the_run_that_ended_last_stored_or_not(ask: Callable[..., FlaskClient]) -> None:
    client = ask(seen=(make_ended(9, end=None), make_ended(5)), stored=(make_ended(1),))
    assert client.get("/api/v1/runs/last").get_json()["id"] == make_ended(5).id
    stored_only = ask(stored=(make_ended(1),))
    assert stored_only.get("/api/v1/runs/last").get_json()["id"] == make_ended(1).id


def test_last_is_no_run_of_a_clock_that_was_ahead_unless_there_is_no_other(
    ask: Callable[..., FlaskClient],
) -> None:
    later = time.time() + 3600
    ahead = replace(make_ended(2), start=later, end=later + 1)
    for others, last in (((make_ended(1),), make_ended(1)), ((), ahead)):
        client = ask(seen=(ahead, *others))
        assert client.get("/api/v1/runs/last").get_json()["id"] == last.id
        (first, *_) = client.get("/api/v1/pipelines?live=false").get_json()["runs"]
        assert first["id"] == last.id


def of_user(number: int, uid: int, **given: Any) -> Run:
    identity = Identity(host="web-3", boot_id="b007", uid=uid)
    return replace(make_ended(number, **given), identity=identity)


def test_last_can_be_that_of_one_user_stored_or_not(ask: Callable[..., FlaskClient]) -> None:
    stored = (of_user(1, 1000), of_user(2, 1000), of_user(3, 0))
    client = ask(seen=(of_user(6, 1001, end=None), of_user(5, 1001), make_ended(7)), stored=stored)

    def last(uid: int) -> str:
        path = f"/api/v1/runs/last?identity=uid%3D{uid}"
        return str(client.get(path).get_json()["id"])

    assert [last(uid) for uid in (1000, 0, 1001)] == [make_ended(n).id for n in (2, 3, 5)]


@pytest.mark.parametrize("given", [{}, {"history": None}])
def test_a_user_without_a_run_has_no_last_one(
    ask: Callable[..., FlaskClient], given: dict[str, Any]
) -> None:
    client = ask(seen=(of_user(1, 1000),), **given)
    text = message(client.get("/api/v1/runs/last?identity=uid%3D7"), 404)
    assert text.startswith("no run of uid=7 has ended yet, or none is kept; ")


def test_an_id_goes_without_an_identity(ask: Callable[..., FlaskClient]) -> None:
    client = ask(stored=(of_user(1, 1000),))
    assert "identity goes with last" in message(client.get("/api/v1/runs/17?identity=uid%3D0"), 400)


def test_a_run_that_is_observed_and_stored_is_one_run(ask: Callable[..., FlaskClient]) -> None:
    client = ask(seen=(make_ended(1),), stored=(make_ended(1),))
    assert client.get("/api/v1/runs/17").get_json()["id"] == make_ended(1).id


def test_an_unknown_run_is_not_found(ask: Callable[..., FlaskClient]) -> None:
    assert message(ask().get("/api/v1/runs/99"), 404).startswith("there is no run 99")


def test_an_ambiguous_id_is_answered_with_the_candidates(ask: Callable[..., FlaskClient]) -> None:
    client = ask(stored=(make_ended(1), make_ended(2)))
    text = message(client.get("/api/v1/runs/17"), 404)
    assert text.startswith(f"several runs begin with 17: {make_ended(1).id}, {make_ended(2).id};")


def test_without_a_history_there_is_no_list_but_live_runs(
    ask: Callable[..., FlaskClient],
) -> None:
    client = ask(seen=(make_ended(1, end=None),), history=None)
    assert "--no-history" in message(client.get("/api/v1/runs"), 404)
    assert "--no-history" in message(client.get("/api/v1/pipelines/summary"), 404)
    assert client.get("/api/v1/runs/17").get_json()["live"] is True
    assert message(client.get("/api/v1/runs/last"), 404).startswith("there is no run last")


def test_a_history_that_cannot_be_read_is_an_error(
    ask: Callable[..., FlaskClient], tmp_path: Path
) -> None:
    client = ask(stored=(make_ended(1),))
    (tmp_path / FILE_NAME).write_bytes(b"garbage\n" * 1000)
    assert "file is not a database" in message(client.get("/api/v1/runs"), 503)
    assert "file is not a database" in message(client.get("/api/v1/runs/17"), 503)
