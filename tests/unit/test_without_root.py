# SPDX-License-Identifier: Apache-2.0
"""Commands of a user who may not load BPF programs: a daemon measures, and is asked over HTTP.

The daemon here has invented runs; tests/e2e/test_without_root.py has a real one.
"""

from __future__ import annotations

import io
import json
import os
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from flask import Flask
from rich.console import Console

import pipelined.observer
from pipelined import cli
from pipelined.commands import daemon_client, standard_error
from pipelined.commands.daemon_client import name_daemon, or_daemon
from pipelined.errors import NotPermittedError, UserError
from pipelined.history.archive import Archive
from pipelined.history.history import History, NoSuchRunError
from pipelined.http_port.server import HttpServer
from pipelined.run import daemon_observer
from pipelined.run.daemon_observer import DaemonObserver
from pipelined.run.profile import NewRuns
from pipelined.runs import Series
from pipelined.runs.codec import written
from pipelined.runs.identity import Identity
from pipelined.starter import Starter, boot_id
from pipelined.terminal.api_client import Client, HttpConfig, SilentDaemonError
from pipelined.terminal.daemon_history import DaemonHistory
from pipelined.web.app import create_app
from unit.invented import START, make_ended, make_finished
from unit.observed import HOST, FakeObserver, run

ME = Starter(4711, 100)

Ended = tuple[int, str, str]


@pytest.fixture(autouse=True)
def this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the test runner's own name, log and waits."""
    monkeypatch.setattr(Starter, "become", classmethod(lambda cls: ME))
    monkeypatch.setattr(standard_error, "log_to_stderr", lambda level: None)
    monkeypatch.setattr(daemon_observer, "_PACE", 0.0)


@pytest.fixture
def observer() -> FakeObserver:
    """What the daemon sees: two runs of this process, of which one is live."""
    found = FakeObserver(run(1, live=False), run(2, "yes|head"))
    found.starter = ME
    return found


@contextmanager
def serving(observer: FakeObserver, history: History | None = None, **given: Any) -> Iterator[str]:
    of_daemon: Any = observer
    app = create_app(of_daemon, host=HOST, history=history, **given)
    with HttpServer(app, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.port}"


def client(url: str) -> Client:
    return Client(url, HttpConfig())


@contextmanager
def asking(observer: FakeObserver) -> Iterator[DaemonObserver]:
    with serving(observer) as url:
        of_daemon = client(url)
        with DaemonObserver(of_daemon.get, url) as asked:
            yield asked


# -- the path of the API


def get(observer: FakeObserver, query: str) -> Any:
    of_daemon: Any = observer
    return create_app(of_daemon, host=HOST).test_client().get(f"/api/v1/started?{query}")


def test_the_api_returns_the_runs_of_one_process(observer: FakeObserver) -> None:
    answer = get(observer, f"by={ME.address(boot_id())}").get_json()
    assert [found["id"] for found in answer["runs"]] == ["run-1", "run-2"]
    assert (answer["finished_runs"], answer["lost"]) == (1, {"stages": 0})
    assert answer["observed_since_timestamp_seconds"] == START
    assert "arguments" not in answer["runs"][0]["stages"][0]
    other = Starter(ME.pid, ME.start_ticks + 1)
    assert get(observer, f"by={other.address(boot_id())}").get_json()["runs"] == []


def test_the_runs_that_it_has_are_left_out(observer: FakeObserver) -> None:
    answer = get(observer, f"by={ME.address(boot_id())}&after=1").get_json()
    assert [found["id"] for found in answer["runs"]] == ["run-2"]


def test_only_if_asked_to_are_runs_settled(observer: FakeObserver) -> None:
    get(observer, f"by={ME.address(boot_id())}")
    assert observer.calls == []
    get(observer, f"by={ME.address(boot_id())}&settle=true")
    assert observer.calls == ["settle"]


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("", 400, "give the process: by=BOOT_ID:PID:START_TICKS"),
        ("by=4711", 400, "parameter 'by': '4711' is not BOOT_ID:PID:START_TICKS"),
        ("by=b:1:2", 409, "this daemon watches another host"),
        (f"by={ME.address(boot_id())}&after=-1", 400, "whole number from 0"),
        ("by=b:1:2&limit=1", 400, "no parameter 'limit'; it takes by, after, settle"),
    ],
)
def test_a_wrong_question_is_answered_with_what_is_wrong(
    observer: FakeObserver, query: str, status: int, message: str
) -> None:
    answer = get(observer, query)
    assert answer.status_code == status
    assert message in answer.get_json()["error"]["message"]


# -- the observer that asks


def test_it_has_finished_and_live_runs_once(observer: FakeObserver) -> None:
    with asking(observer) as asked:
        observer.seen = [run(3, live=False), *observer.seen]
        asked.settle()
        asked.settle()
        # the first answer was before the command: what had ended by then is not the command's
        assert sorted(found.id for found in asked.runs()) == ["run-1", "run-2"]


def test_a_run_that_ends_is_no_longer_live(observer: FakeObserver) -> None:
    with asking(observer) as asked:
        asked.settle()
        assert [(found.id, found.live) for found in asked.runs()] == [("run-2", True)]
        observer.seen = [run(1, live=False), run(2, "yes|head", live=False)]
        asked.settle()
        assert [(found.id, found.live) for found in asked.runs()] == [("run-2", False)]


def test_losses_are_those_since_it_began(observer: FakeObserver) -> None:
    observer.lost_stages = 3
    with asking(observer) as asked:
        observer.lost_stages = 5
        asked.settle()
        assert asked.lost() == {"stages": 2}


def test_runs_that_the_daemon_had_no_longer_are_counted(observer: FakeObserver) -> None:
    with asking(observer) as asked:
        observer.ended_before = 7
        found, lost = NewRuns(asked).collect()
        assert len(found) == 2
        assert lost == {"stages": 0, "runs": 6}  # of eight one was there before, one is returned


def test_what_it_is_itself_in_is_not_around_its_runs(observer: FakeObserver) -> None:
    nested = Series(pipeline="cat|awk", nested=True, unit="-")
    outer = replace(run(3), series=nested, parent="the shell's", parent_pipeline="pipelined|less")
    inner = replace(run(4), series=nested, parent=outer.id, parent_pipeline="cat|awk")
    with asking(observer) as asked:
        observer.seen = [outer, inner]
        asked.settle()
        found = {each.id: each for each in asked.runs()}
    assert (found["run-3"].nested, found["run-3"].parent) == (False, None)
    assert (found["run-4"].nested, found["run-4"].parent) == (True, "run-3")


def test_it_asks_during_the_command_too(
    observer: FakeObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_observer, "_POLL", 0.01)
    with asking(observer) as asked:
        asked.start()
        observer.seen = [run(5, live=False), run(6, live=False)]
        for _ in range(1000):
            if {found.id for found in asked.runs()} == {"run-6"}:
                break
            asked._stop.wait(0.01)
        assert {found.id for found in asked.runs()} == {"run-6"}


def test_a_daemon_that_was_restarted_is_reported(observer: FakeObserver) -> None:
    with asking(observer) as asked:
        observer.opened += 1
        with pytest.raises(UserError, match="was restarted meanwhile; there is no report"):
            asked.settle()


# -- run and compare at the prompt


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel lets this user load no BPF program."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise NotPermittedError("cannot load BPF programs: operation not permitted", "run as root")

    monkeypatch.setattr(pipelined.observer, "Observer", SimpleNamespace(open=refuse))
    monkeypatch.setenv("COLUMNS", "200")  # the line about the daemon is not wrapped


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs `pipelined`: exit status, stdout and stderr."""

    def run(*words: str) -> Ended:
        return cli._guarded(list(words)), *capfd.readouterr()

    return run


@contextmanager
def by_default(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(daemon_client, "DEFAULT_URL", url)
        yield


def no_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.mark.usefixtures("refused")
def test_the_daemon_of_this_host_measures(
    program: Callable[..., Ended], observer: FakeObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer.ended_before, observer.seen = 0, [run(2, "yes|head", live=False)]
    mine = observer.starter
    observer.starter = None  # until the command has run
    asked = observer.started

    def later(starter: Starter, after: int = 0) -> Any:
        found, observer.starter = asked(starter, after), mine
        return found

    monkeypatch.setattr(observer, "started", later)
    with serving(observer) as url, by_default(url, monkeypatch):
        status, out, error = program("run", "echo mine; exit 3")
    assert (status, out) == (3, "mine\n")
    assert "yes|head   10.0 s wall" in error
    assert error.endswith(f"Measured by the daemon at {url}: this user may not load BPF programs\n")


def test_an_address_is_asked_even_if_it_need_not_be(
    program: Callable[..., Ended], observer: FakeObserver, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    with serving(observer) as url:
        words = ("run", "--url", url, "--json", "-o", str(report), "true")
        assert program(*words) == (0, "", f"Measured by the daemon at {url}\n")
    described = json.loads(report.read_text())
    assert described["daemon"] == url
    assert [found["id"] for found in described["runs"]] == ["run-2"]


@pytest.mark.usefixtures("refused")
def test_the_variable_spares_the_address(
    program: Callable[..., Ended], observer: FakeObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(observer) as url, by_default(f"http://127.0.0.1:{no_port()}", monkeypatch):
        monkeypatch.setenv("PIPELINED_URL", url)
        status, _, error = program("run", "true")
    assert status == 0
    assert error.endswith(f"Measured by the daemon at {url}: this user may not load BPF programs\n")


def test_the_variable_does_not_change_who_measures(
    program: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For root, who has set it for `top` or `runs`, the run stays private."""
    private = SimpleNamespace(open=lambda *_, **__: FakeObserver())
    monkeypatch.setattr(pipelined.observer, "Observer", private)
    monkeypatch.setenv("PIPELINED_URL", f"http://127.0.0.1:{no_port()}")
    status, _, error = program("run", "true")
    assert (status, "daemon" in error) == (0, False)


def test_json_on_stderr_is_nothing_but_json(
    program: Callable[..., Ended], observer: FakeObserver
) -> None:
    with serving(observer) as url:
        assert json.loads(program("run", "--url", url, "--json", "true")[2])["daemon"] == url


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("words", [("run", "touch {}"), ("compare", "touch {}", "true")])
def test_without_a_daemon_nothing_is_started_and_the_administrators_part_is_named(
    program: Callable[..., Ended],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[str, ...],
) -> None:
    started, url = tmp_path / "started", f"http://127.0.0.1:{no_port()}"
    with by_default(url, monkeypatch):
        status, _, error = program(*(word.format(started) for word in words))
    assert status == 1 and not started.exists()
    assert error == (
        "pipelined: cannot load BPF programs: operation not permitted, and no daemon answers at"
        f" {url}: connection refused; run it as root, or have the administrator install the"
        " service, which measures for every user\n"
    )


def test_a_daemon_that_hangs_need_not_be_installed() -> None:
    def hang() -> None:
        raise SilentDaemonError("no answer from http://127.0.0.1:9905 within 10 s", "see its log")

    refused = NotPermittedError("this user may not load BPF programs", "run it as root")
    with pytest.raises(NotPermittedError, match=r"and no answer from .* 10 s; see its log$"):
        or_daemon(refused, hang)


def test_what_else_is_wrong_is_not_the_daemons_affair(
    program: Callable[..., Ended], observer: FakeObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise UserError("this kernel has no BTF")

    monkeypatch.setattr(pipelined.observer, "Observer", SimpleNamespace(open=fail))
    with serving(observer) as url, by_default(url, monkeypatch):
        assert program("run", "true") == (1, "", "pipelined: this kernel has no BTF\n")


def test_a_daemon_of_another_host_is_refused(
    program: Callable[..., Ended],
    observer: FakeObserver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(daemon_observer, "boot_id", lambda: "another-boot")
    started = tmp_path / "started"
    with serving(observer) as url:
        status, _, error = program("run", "--url", url, f"touch {started}")
    assert status == 1 and not started.exists()
    assert error == (
        f"pipelined: the daemon at {url} answers: this daemon watches another host, or the host has"
        " booted since\n"
    )


@pytest.mark.usefixtures("refused")
def test_a_daemon_that_does_not_know_how_is_named_beside_what_is_not_permitted(
    program: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Flask("older")

    @older.errorhandler(404)
    def missing(_: Any) -> tuple[dict[str, Any], int]:
        return {"error": {"status": 404, "message": "there is no /api/v1/started"}}, 404

    with HttpServer(older, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}"
        with by_default(url, monkeypatch):
            status, _, error = program("run", "true")
    assert (status, error) == (
        1,
        "pipelined: cannot load BPF programs: operation not permitted, and the daemon at"
        f" {url} is of an older version; use the same version on both sides\n",
    )


def test_if_the_daemon_is_gone_at_the_end_the_exit_status_is_still_the_commands(
    program: Callable[..., Ended], observer: FakeObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(observer) as url:
        take = DaemonObserver._take

        def restarted(self: DaemonObserver, **given: Any) -> int:
            observer.opened = START + 1
            return take(self, **given)

        monkeypatch.setattr(DaemonObserver, "_take", restarted)
        status, _, error = program("run", "--url", url, "exit 7")
    assert status == 7
    assert error.startswith(f"pipelined: the daemon at {url} was restarted meanwhile; there is no")


@pytest.mark.usefixtures("refused")
def test_commands_are_compared_by_the_daemon(
    program: Callable[..., Ended], observer: FakeObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(observer) as url, by_default(url, monkeypatch):
        status, out, error = program("compare", "-n", "1", "--warm-up", "0", "true", "true")
    assert (status, out[:7]) == (0, "A  true")
    assert error == f"Measured by the daemon at {url}: this user may not load BPF programs\n"


def test_an_ipv6_address_of_a_daemon_is_named_in_full() -> None:
    out = io.StringIO()
    with click.Context(click.Command("run")):
        name_daemon("http://[fd00::b:1]:9905", Console(file=out, width=200))
    assert out.getvalue().startswith("Measured by the daemon at http://[fd00::b:1]:9905: ")


# -- the history


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """A daemon's, with three runs of this user."""
    written = History(tmp_path / "state", host=HOST, max_age=1e12, show_arguments=True)
    for ended in (make_ended(1), make_ended(2, "seq|wc"), make_ended(3)):
        identity = Identity(host="web-3", boot_id="b007", uid=os.geteuid())
        written.sink.put(make_finished(replace(ended, identity=identity)))
    written.sink.start()
    written.sink.close(20)
    yield written


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's directory is closed to this user, as the service's is; the daemon has it open.

    Whether this host has such a directory, and whoever runs the tests, makes no difference.
    """
    look, connect = os.stat, sqlite3.connect

    def refuse(path: Any, *given: Any, **named: Any) -> os.stat_result:
        if str(path).endswith("/history.db") and "/var/lib/" in str(path):
            raise PermissionError(13, "Permission denied")
        return look(path, *given, **named)

    def refuse_to_open(database: Any, *given: Any, **named: Any) -> sqlite3.Connection:
        if "/var/lib/" in str(database):
            raise sqlite3.OperationalError("unable to open database file")
        return connect(database, *given, **named)

    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setattr(os, "stat", refuse)
    monkeypatch.setattr(sqlite3, "connect", refuse_to_open)


def test_a_daemon_is_read_like_its_file(history: History) -> None:
    with serving(FakeObserver(), history, show_arguments=True) as url:
        asked = DaemonHistory(client(url))
        for searched in (
            {},
            {"limit": 2},
            {"pipeline": "seq|wc"},
            {"command": "sort", "since": START + 2},
            {"until": START + 2},
            {"min_duration": 0.00001},
            {"sort": "wall"},
            {"sort": "wall", "limit": 2},
        ):
            given: Any = searched
            assert asked.runs(**given) == history.runs(**given), searched
        for period in ({}, {"since": START}, {"pipeline": "seq|wc"}, {"until": START - 7200}):
            of: Any = period
            assert asked.counted(**of) == history.counted(**of), period
        listed, read = asked.pipelines(since=START - 7200), history.pipelines(since=START - 7200)
        # numbers of a file and sums of findings are nobody else's
        assert written(listed) == written(read)
        assert [line.depth for line in listed.lines] == [line.depth for line in read.lines]
        assert len(listed.listed) > 1
        found = history.runs()[0].id
        assert replace(asked.run(found), host=None) == history.run(found)
        assert asked.run("last").host == HOST
        with pytest.raises(NoSuchRunError, match="there is no run 9"):
            asked.run("9")


#: What is searched in the history by a text.
_BY_TEXT = [
    *(("runs", flag) for flag in ("--pipeline", "--unit", "--finding", "--command", "--identity")),
    *(("pipelines", *flag) for flag in ((), ("--pipeline",), ("--unit",))),
    ("show",),
]


@pytest.mark.parametrize("words", _BY_TEXT)
def test_bytes_that_are_not_utf_8_are_searched_as_names_have_them(
    program: Callable[..., Ended], tmp_path: Path, words: tuple[str, ...]
) -> None:
    odd = History(tmp_path / "state", host=HOST, max_age=1e12)
    run = make_ended(1, r"caf\xe9|sort")
    unit = replace(run.series, unit=r"caf\xe9|sort")
    identity = Identity(host="web-3", boot_id="b007", variables={"JOB": r"caf\xe9|sort"})
    odd.sink.put(make_finished(replace(run, series=unit, identity=identity)))
    odd.sink.start()
    odd.sink.close(20)
    text = os.fsdecode(b"caf\xe9" if words[-1] == "--command" else b"caf\xe9|sort")
    found = words[-1] not in ("--finding", "show")
    since = ("--since", "2023-01-01") if words[0] == "pipelines" else ()
    with serving(FakeObserver(), odd) as url:
        for asked in (("--state-directory", str(odd.directory)), ("--url", url)):
            status, out, error = program(*words, text, *since, *asked)
            assert "internal" not in error
            assert (status, r"caf\xe9|sort" in out) == (0 if words[0] != "show" else 1, found)


@pytest.mark.parametrize("words", _BY_TEXT)
def test_a_variable_that_is_not_set_lists_nothing_else(
    program: Callable[..., Ended], history: History, words: tuple[str, ...]
) -> None:
    status, out, error = program(*words, "", "--state-directory", str(history.directory))
    assert (status, out) == (2, "")
    assert "it is empty" in error


def test_the_history_may_be_in_a_directory_of_any_name(
    program: Callable[..., Ended], history: History, tmp_path: Path
) -> None:
    elsewhere = os.fsdecode(os.fsencode(tmp_path) + b"/st\xe9te?")
    os.rename(history.directory, elsewhere)
    status, out, error = program("runs", "--state-directory", elsewhere)
    assert (status, error) == (0, "")
    assert "seq|wc" in out


def test_a_long_list_is_read_page_by_page(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelined.terminal.daemon_history._PAGE", 1)
    with serving(FakeObserver(), history) as url:
        asked = DaemonHistory(client(url))
        assert asked.runs(limit=2) == history.runs(limit=2)
        assert asked.runs(limit=9) == history.runs(limit=9)
        assert asked.runs(limit=9, sort="wall") == history.runs(limit=9, sort="wall")


def test_a_daemon_is_not_asked_for_the_default_order(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older one does not know the parameter."""
    asked: list[str] = []
    get = Client.get

    def note(self: Client, path: str, *given: Any) -> Any:
        asked.append(path)
        return get(self, path, *given)

    monkeypatch.setattr(Client, "get", note)
    with serving(FakeObserver(), history) as url:
        DaemonHistory(client(url)).runs(sort="start", limit=1)
        DaemonHistory(client(url)).runs(sort="wall", limit=1)
    assert asked == ["runs?limit=1", "runs?sort=wall&limit=1"]


@pytest.mark.usefixtures("unreadable")
def test_runs_and_show_ask_the_daemon_if_the_file_is_not_readable(
    program: Callable[..., Ended], history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = str(history.directory)
    long_ago = ("--since", "2020-01-01", "--until", "2024-01-01")
    with serving(FakeObserver(), history, show_arguments=True) as url:
        with by_default(url, monkeypatch):
            listed, shown = program("runs"), program("show")
            summed = program("pipelines", *long_ago)
            both = program("compare", history.runs()[0].id, history.runs()[2].id)
        assert listed == program("runs", "--state-directory", directory)
        assert listed == program("runs", "--url", url)
        assert shown == program("show", "--state-directory", directory)
        assert summed == program("pipelines", *long_ago, "--state-directory", directory)
    assert summed[0] == listed[0] == shown[0] == both[0] == 0
    assert "seq|wc" in listed[1]


@pytest.mark.usefixtures("unreadable")
@pytest.mark.parametrize("command", ["runs", "show", "pipelines"])
def test_without_file_and_daemon_both_are_named(
    program: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    url = f"http://127.0.0.1:{no_port()}"
    with by_default(url, monkeypatch):
        status, out, error = program(command)
    assert (status, out) == (1, "")
    assert error == (
        "pipelined: cannot read /var/lib/pipelined/history.db: permission denied, and no daemon"
        f" answers at {url}: connection refused; run it as root, or have the administrator install"
        " the service, which measures for every user\n"
    )


def test_the_last_run_of_a_user_without_privileges_is_an_own_one(
    program: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = History(tmp_path / "users", host=HOST, max_age=1e12)
    for number, uid in ((1, 1000), (2, 0)):
        identity = Identity(host="web-3", boot_id="b007", uid=uid)
        written.sink.put(make_finished(replace(make_ended(number), identity=identity)))
    written.sink.start()
    written.sink.close(20)
    with serving(FakeObserver(), written) as url:
        shown = {}
        for uid in (0, 1000, 1001):
            monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
            shown[uid] = program("show", "--url", url)
        near = program("show", "--url", url, make_ended(2).id)
    assert make_ended(2).id in shown[0][1] and make_ended(1).id in shown[1000][1]
    assert near[1] == shown[0][1]
    assert (shown[1001][0], "no run of uid=1001 has ended yet" in shown[1001][2]) == (1, True)


def test_on_another_host_the_last_run_is_that_of_all_users(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(Client, "get", lambda self, path, read: asked.append(path))
    for host in ("127.0.0.1", "host1"):
        DaemonHistory(client(f"http://{host}:9905")).run("last")
    assert asked == ["runs/last?identity=uid%3D1000", "runs/last"]


@pytest.mark.parametrize("command", ["runs", "show", "pipelines"])
def test_the_variable_is_asked_as_the_address_is_but_not_with_a_directory(
    program: Callable[..., Ended], history: History, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    directory = ("--state-directory", str(history.directory))
    with serving(FakeObserver(), history, show_arguments=True) as url:
        asked = program(command, "--url", url)
        monkeypatch.setenv("PIPELINED_URL", url)
        assert program(command) == asked
    assert program(command)[2].startswith(f"pipelined: no daemon answers at {url}")
    assert program(command, *directory)[0] == 0


_ID, _OTHER_ID = "1763809200123-4711-5f3c9a01", "1763809200124-4712-5f3c9a01"


@pytest.mark.parametrize(
    "words",
    [
        ("top", "--once"),
        ("runs", "--follow"),
        ("pipelines", "--by", "job"),
        ("compare", _ID, _OTHER_ID),
        ("improve", _ID),
        ("improve", "last"),
    ],
    ids=" ".join,
)
def test_whatever_asks_a_daemon_asks_the_one_of_the_variable(
    program: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    url = f"http://127.0.0.1:{no_port()}"
    monkeypatch.setenv("PIPELINED_URL", url)
    assert program(*words)[2].startswith(f"pipelined: no daemon answers at {url}")


def test_a_directory_that_is_named_is_not_replaced_by_the_daemon(
    program: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Archive) -> None:
        raise NotPermittedError("cannot read it: permission denied", "run it as root")

    monkeypatch.setattr(Archive, "check", refuse)
    words = ("runs", "--state-directory", str(tmp_path))
    assert program(*words)[2] == "pipelined: cannot read it: permission denied; run it as root\n"
    both = program(*words, "--url", "127.0.0.1:1")
    assert (both[0], "--url and --state-directory exclude each other" in both[2]) == (2, True)
