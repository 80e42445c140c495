# SPDX-License-Identifier: Apache-2.0
"""`pipelined runs --follow`: each run once, in lines that stand below each other, come what may."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from pipelined import cli
from pipelined.analysis.identity_words import Distinctions
from pipelined.errors import UserError
from pipelined.history.history import History
from pipelined.http_port.server import HttpServer
from pipelined.nesting import Line
from pipelined.runs import Identity, Outcome, Run
from pipelined.terminal import followed_runs
from pipelined.terminal.api_client import Client, HttpConfig
from pipelined.terminal.followed_runs import (
    Followed,
    FollowedPage,
    fetch_finished,
    follow,
    matches,
)
from pipelined.terminal.history_report import followed_table, run_table
from pipelined.web.app import create_app
from unit.invented import make_ended, make_finished, make_inside
from unit.observed import HOST, FakeObserver
from unit.waiting import PATIENCE

JOB = make_ended(9, "job.sh|tee", wall=30.0)
#: In the order in which they end, and are stored.
RUNS = (
    replace(make_ended(1), identity=Identity(host="web-3", boot_id="b007", user="app", uid=1000)),
    make_inside(JOB, 3),
    replace(make_ended(2, "seq|wc", wall=9.0), outcome=Outcome("failed", (0,))),
)


def make_server(directory: Path, *runs: Run) -> HttpServer:
    history = History(directory, host=HOST, max_age=1e12)
    for run in runs:
        history.sink.put(make_finished(run))
    history.sink.start()
    history.sink.close(PATIENCE)
    observer: Any = FakeObserver()
    return HttpServer(create_app(observer, host=HOST, history=history), "127.0.0.1", 0)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Of a daemon that has stored `RUNS`."""
    with make_server(tmp_path, *RUNS) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
def command(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs `pipelined runs --follow`, with Ctrl-C after a page or as many as given."""

    def run(*words: str, pages: int = 1) -> tuple[int, str, str]:
        left = iter(range(pages))

        def fetch(client: Client, after: str) -> FollowedPage:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return fetch_finished(client, after)

        monkeypatch.setattr(followed_runs, "fetch_finished", fetch)
        monkeypatch.setattr("sys.argv", ["pipelined", "runs", "--follow", "--url", url, *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return run


def test_runs_are_a_table_with_one_heading(command: Callable[..., tuple[int, str, str]]) -> None:
    status, out, err = command("--after", "oldest")
    heading, *lines = out.splitlines()
    assert (status, err) == (130, "\n")
    assert heading.split()[:4] == ["run", "started", "pipeline", "wall"]
    assert [line.split()[0] for line in lines] == [run.id for run in RUNS]
    at = heading.index("wall") + len("wall")
    assert [line[:at].split()[-2:] for line in lines] == [["1.0", "s"], ["1.0", "s"], ["9.0", "s"]]


def test_a_new_heading_stands_above_the_first_run_that_differs_from_earlier_ones(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = fetch_finished(Client(url, HttpConfig()), "oldest").runs[0]
    rows = [
        replace(stored.row, id=f"1700000000000-{number}", identity={"uid": uid, "user": f"u{uid}"})
        for number, uid in enumerate("0077")
    ]
    pages = [[Followed(row, stored.described)] for row in rows]
    monkeypatch.setattr(followed_runs, "follow", lambda *_: iter(pages))
    monkeypatch.setattr("sys.argv", ["pipelined", "runs", "--follow", "--url", url])
    monkeypatch.setenv("COLUMNS", "140")
    with pytest.raises(SystemExit):
        cli.main()
    lines = capsys.readouterr().out.splitlines()
    first, _, _, second, seven, again = lines
    assert ("user" in first.split(), second.split()[3]) == (False, "user")
    at = second.index("user")
    assert [line[at:].split()[0] for line in (seven, again)] == ["u7", "u7"]


def test_with_json_each_run_is_a_line_with_its_cursor(
    command: Callable[..., tuple[int, str, str]],
) -> None:
    _, out, _ = command("--after", "oldest", "--json")
    runs = [json.loads(line) for line in out.splitlines()]
    assert [run["id"] for run in runs] == [run.id for run in RUNS]
    _, out, _ = command("--after", runs[1]["cursor"], "--json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == [RUNS[2].id]


def test_by_default_it_begins_now(command: Callable[..., tuple[int, str, str]]) -> None:
    assert command() == (130, "", "\n")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--pipeline", "seq|wc"), [2]),
        (("--unit", "-"), [0, 1, 2]),
        (("--unit", "x.service"), []),
        (("--command", "sort"), [0, 1]),
        (("--finding", "no-such"), []),
        (("--min-duration", "5s"), [2]),
        (("--top-level",), [0, 2]),
        (("--slower",), []),
        (("--failed",), [2]),
        (("--interrupted",), []),
        (("--failed", "--interrupted"), [2]),
        (("--identity", "user=app"), [0]),
        (("--identity", "web-3"), []),
    ],
)
def test_only_runs_that_match_are_shown(
    command: Callable[..., tuple[int, str, str]], words: Sequence[str], found: Sequence[int]
) -> None:
    _, out, _ = command("--after", "oldest", "--json", *words)
    ids = [json.loads(line)["id"] for line in out.splitlines()]
    assert ids == [RUNS[index].id for index in found]


def test_what_was_slower_or_had_a_finding_matches() -> None:
    class Row:
        pipeline, unit, findings, wall, nested = "a|b", "-", ("barrier",), 1.0, False
        slower, outcome = True, "succeeded"

    row: Any = Row()
    run = Followed(row, {"stages": []})
    assert matches(run, slower=True, finding="barrier")
    row.slower = None
    assert not matches(run, slower=True)
    assert not matches(run, finding="cold-run")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--follow", "--since", "2h"), "--follow and --since exclude each other"),
        (("--follow", "--limit", "3"), "--follow and --limit exclude each other"),
        (("--follow", "--sort", "wall"), "--follow and --sort exclude each other"),
        (("--follow", "--state-directory", "x"), "--follow and --state-directory exclude each"),
        (("--follow", "--after", "7"), "--after: '7' is neither a cursor"),
        (("--after", "now"), "--after goes with --follow"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    words: Sequence[str],
    error: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["pipelined", "runs", *words])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr().err.startswith(f"pipelined: {error}")


def test_without_a_daemon_it_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["pipelined", "runs", "--follow", "--url", "127.0.0.1:1"])
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    assert capsys.readouterr().err.startswith("pipelined: no daemon answers at http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("there is no run finished", "is of an older version; use the same version on both sides"),
        ("there is no history: the daemon runs with --no-history", "runs with --no-history$"),
    ],
)
def test_a_daemon_that_cannot_be_followed_says_why(message: str, expected: str) -> None:
    app = Flask("daemon")
    refusal = {"error": {"status": 404, "message": message}}
    app.add_url_rule("/api/v1/runs/finished", view_func=lambda: (refusal, 404))
    with HttpServer(app, "127.0.0.1", 0) as server:
        client = Client(f"http://127.0.0.1:{server.port}", HttpConfig())
        with pytest.raises(UserError, match=expected):
            fetch_finished(client, "now")


# -- the loop


class Daemon:
    """Answers what it is given, in turn, and notes what it is asked and how long is slept."""

    def __init__(self, *answers: FollowedPage | UserError) -> None:
        self.answers = iter(answers)
        self.asked: list[str] = []
        self.slept: list[float] = []
        self.reported: list[str] = []

    def fetch(self, after: str) -> FollowedPage:
        self.asked.append(after)
        answer = next(self.answers)
        if isinstance(answer, UserError):
            raise answer
        return answer

    def follow(self) -> Iterator[Sequence[Followed]]:
        return follow(
            self.fetch, "now", self.reported.append, sleep=self.slept.append, clock=lambda: 0.0
        )


def page(cursor: str, *, runs: int = 1, **given: Any) -> FollowedPage:
    row: Any = None
    values = {"more": False, "missing": 0, "restarted": False, "machine": HOST, **given}
    return FollowedPage([Followed(row, {})] * runs, cursor, **values)


def test_each_request_goes_on_where_the_last_answer_ended() -> None:
    daemon = Daemon(page("a", runs=0), page("b", runs=3), page("c"), page("d"))
    assert [len(runs) for runs in islice(daemon.follow(), 2)] == [3, 1]
    assert daemon.asked == ["now", "a", "b"]
    assert (daemon.reported, daemon.slept) == ([], [])


def test_a_daemon_that_goes_away_is_reported_once_and_asked_again_ever_less_often() -> None:
    gone = UserError("no daemon answers", "start it")
    daemon = Daemon(page("a"), *[gone] * 7, page("b"))
    assert len(list(islice(daemon.follow(), 2))) == 2
    assert daemon.asked == ["now", *["a"] * 8]
    assert daemon.slept == [1, 2, 4, 8, 16, 30, 30]
    assert daemon.reported == [
        "no daemon answers; it is asked again",
        "the daemon answers again",
    ]


def test_an_error_at_the_start_is_the_callers() -> None:
    with pytest.raises(UserError, match="no daemon"):
        next(Daemon(UserError("no daemon answers")).follow())


def test_missing_runs_are_reported_when_it_has_caught_up() -> None:
    daemon = Daemon(page("a", missing=2, more=True), page("b", missing=3), page("c", missing=1))
    list(islice(daemon.follow(), 2))
    assert daemon.reported == ["5 runs that were stored are no longer in the history"]
    assert len(list(islice(Daemon(page("a", missing=1)).follow(), 1))) == 1


def test_another_history_is_reported() -> None:
    daemon = Daemon(page("a"), page("b", restarted=True, missing=None))
    list(islice(daemon.follow(), 2))
    assert daemon.reported == [
        "the history is another one, or an earlier state of it; its oldest run is next"
    ]


def test_a_daemon_that_does_not_wait_is_not_asked_all_the_time() -> None:
    daemon = Daemon(page("a"), page("a", runs=0), page("a", runs=0), page("b"))
    list(islice(daemon.follow(), 2))
    assert daemon.slept == [2, 2]


# -- the table


def test_columns_stay_where_they_are_whatever_is_in_them(url: str) -> None:
    runs = fetch_finished(Client(url, HttpConfig()), "oldest").runs
    for width in (60, 80, 100, 140, 200):
        tables = [followed_table([Line(run.row)], width, 0.0, Distinctions({})) for run in runs]
        assert len({table[0].plain for table in tables}) == 1
        assert all(line.cell_len <= width for table in tables for line in table)
        listed = run_table([Line(run.row) for run in runs], width, 0.0)[0].plain.split()
        assert tables[0][0].plain.split()[:4] == listed[:4]
    assert "failed (" in followed_table([Line(runs[2].row)], 120, 0.0, Distinctions({}))[1].plain
