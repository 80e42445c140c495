# SPDX-License-Identifier: Apache-2.0
"""What the daemon reports to systemd, when it stays silent, and how it writes to the journal."""

from __future__ import annotations

import io
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pipelined.config import Address, Config
from pipelined.daemon import announcement, signals
from pipelined.daemon import serve as daemon
from pipelined.daemon.systemd import JournalFormatter, Supervisor, logs_to_journal
from pipelined.http_port import web_config_file
from pipelined.kernel.hooks import Program
from unit.observed import FakeObserver, hook, run

#: Seconds to wait for a message that must come.
PATIENCE = 10


class Systemd:
    """The socket that NOTIFY_SOCKET names, and what arrives there."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)

    def next(self, timeout: float = PATIENCE) -> list[str]:
        """The lines of the next message; TimeoutError when there is none in time."""
        self._socket.settimeout(timeout)
        return self._socket.recv(4096).decode().splitlines()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    listening = Systemd(str(tmp_path / "notify"))
    yield listening
    listening.close()


# -- the protocol


def test_each_state_is_one_message(systemd: Systemd) -> None:
    supervisor = Supervisor(systemd.address)
    supervisor.ready("12 of 12 hooks, 3 pipelines live")
    assert systemd.next() == ["READY=1", "STATUS=12 of 12 hooks, 3 pipelines live"]
    supervisor.alive("busy")
    assert systemd.next() == ["WATCHDOG=1", "STATUS=busy"]
    supervisor.stopping()
    assert systemd.next() == ["STOPPING=1"]


def test_a_reload_reports_when_it_began(systemd: Systemd) -> None:
    Supervisor(systemd.address).reloading()
    first, second = systemd.next()
    assert first == "RELOADING=1"
    name, _, microseconds = second.partition("=")
    assert name == "MONOTONIC_USEC"
    assert 0 < int(microseconds) < 1e6 * 100 * 365 * 24 * 3600


def test_an_abstract_socket_is_served_as_well() -> None:
    name = f"pipelined-test-{os.getpid()}"
    listening = Systemd(f"\0{name}")
    try:
        Supervisor.take({"NOTIFY_SOCKET": f"@{name}"}).stopping()
        assert listening.next() == ["STOPPING=1"]
    finally:
        listening.close()


def test_what_we_start_does_not_inherit_the_socket() -> None:
    environment = {
        "NOTIFY_SOCKET": "/run/systemd/notify",
        "WATCHDOG_USEC": "60000000",
        "WATCHDOG_PID": "42",
        "PATH": "/bin",
    }
    assert Supervisor.take(environment, pid=42) == Supervisor("/run/systemd/notify", 60.0)
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Supervisor()),
        ({"NOTIFY_SOCKET": ""}, Supervisor()),
        ({"NOTIFY_SOCKET": "vsock:2:1234"}, Supervisor()),
        ({"WATCHDOG_USEC": "1000000"}, Supervisor()),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "0"}, Supervisor("/n")),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "soon"}, Supervisor("/n")),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "500000"}, Supervisor("/n", 0.5)),
        (
            {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "500000", "WATCHDOG_PID": "43"},
            Supervisor("/n"),
        ),
    ],
)
def test_what_the_environment_means(environment: dict[str, str], expected: Supervisor) -> None:
    assert Supervisor.take(environment, pid=42) == expected


def test_without_systemd_nothing_is_sent() -> None:
    Supervisor().ready("all is well")


def test_a_socket_that_is_gone_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Supervisor(str(tmp_path / "gone")).stopping()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "STOPPING=1" in caplog.text


# -- the daemon's life


class Observer(FakeObserver):
    """Sweeps when it is asked to, and can be made to hang or to fail at it."""

    def __init__(self) -> None:
        super().__init__()
        self.sweep_stats.count = 1
        self.found_hooks = [hook(name, attached=name != "c", reason="not here") for name in "abc"]
        self.hangs = threading.Event()
        self.fails = False

    def sweep(self) -> None:
        while self.hangs.is_set():
            threading.Event().wait(0.01)
        if self.fails:
            raise ValueError("a record that makes no sense")
        super().sweep()


def serve(
    observer: Observer,
    supervisor: Supervisor,
    meanwhile: Callable[[], object],
    *,
    opening: Callable[[Config], object] = lambda _: None,
    show_arguments: bool = False,
    web_config: Path | None = None,
    **options: Any,
) -> None:
    """Run the daemon in this thread until `meanwhile`, in another, is done."""
    main, failed = threading.main_thread().ident, []
    assert main is not None

    def run() -> None:
        try:
            meanwhile()
        except BaseException as error:
            failed.append(error)
        finally:
            observer.hangs.clear()
            # to this thread: another might not have the signal blocked
            signal.pthread_kill(main, signal.SIGTERM)

    other = threading.Thread(target=run)

    def open_observer(config: Config) -> Any:
        opening(config)
        other.start()
        return observer

    config = Config(
        web_listen_address=Address("127.0.0.1", 0),
        web_config_file=web_config,
        history=False,
        show_arguments=show_arguments,
    )
    out = io.StringIO()
    daemon.serve(config, out, open_observer=open_observer, supervisor=supervisor, **options)
    other.join()
    if failed:
        raise failed[0]


def hang_up() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGHUP)


def test_a_life_from_ready_to_stopping(systemd: Systemd) -> None:
    observer = Observer()
    observer.seen = [run(1)]

    def meanwhile() -> None:
        assert systemd.next() == ["READY=1", "STATUS=2 of 3 hooks, 1 pipeline live"]

    serve(observer, Supervisor(systemd.address), meanwhile)
    assert systemd.next() == ["STOPPING=1"]
    with pytest.raises(TimeoutError):
        systemd.next(0.1)


def test_the_status_says_how_many_hooks_are_to_follow(systemd: Systemd) -> None:
    observer = Observer()
    late = Program("vfs_read", "functions", "fentry")
    observer.found_hooks.append(late.pending())
    observer.hooks_to_come = [late.attached()]

    def meanwhile() -> None:
        ready = systemd.next()
        assert ready == ["READY=1", "STATUS=2 of 3 hooks, 1 to follow, 0 pipelines live"]
        assert systemd.next() == ["STATUS=3 of 4 hooks, 0 pipelines live"]

    serve(observer, Supervisor(systemd.address), meanwhile)


def test_the_hooks_to_follow_are_attached_with_the_privileges_of_the_first() -> None:
    dropped: set[str] = set()
    attached_by: list[str] = []

    class Privileged(Observer):
        def attach_optional(self) -> None:
            attached_by.append(threading.current_thread().name)
            super().attach_optional()

    observer = Privileged()
    observer.found_hooks.append(Program("vfs_read", "functions", "fentry").pending())
    serve(
        observer,
        Supervisor(),
        lambda: None,
        give_up=lambda: dropped.add(threading.current_thread().name),
    )
    assert attached_by == ["attach"]
    assert "attach" not in dropped


def test_signs_of_life_come_while_sweeps_do(systemd: Systemd) -> None:
    def meanwhile() -> None:
        assert systemd.next()[0] == "READY=1"
        for _ in range(3):
            assert systemd.next() == ["WATCHDOG=1", "STATUS=2 of 3 hooks, 0 pipelines live"]

    serve(Observer(), Supervisor(systemd.address, watchdog=0.2), meanwhile)


def test_signs_of_life_come_however_often_it_is_to_reload(systemd: Systemd) -> None:
    def meanwhile() -> None:
        assert systemd.next()[0] == "READY=1"
        for _ in range(40):  # each sooner than the next sign is due
            hang_up()
            time.sleep(0.02)
        seen = []
        while not seen or seen[-1] != "WATCHDOG=1":
            seen.append(systemd.next()[0])
        assert sum(line.startswith("RELOADING") for line in seen) < 20

    serve(Observer(), Supervisor(systemd.address, watchdog=0.2), meanwhile)


def test_a_sweep_that_hangs_gives_no_sign_of_life(systemd: Systemd) -> None:
    observer = Observer()
    observer.hangs.set()

    def meanwhile() -> None:
        assert systemd.next()[0] == "READY=1"
        with pytest.raises(TimeoutError):
            systemd.next(0.6)  # three times what the watchdog allows
        observer.hangs.clear()
        assert systemd.next()[0] == "WATCHDOG=1"

    serve(observer, Supervisor(systemd.address, watchdog=0.2), meanwhile)


def test_a_sweep_that_fails_gives_no_sign_of_life(
    systemd: Systemd, caplog: pytest.LogCaptureFixture
) -> None:
    observer = Observer()
    observer.fails = True

    def meanwhile() -> None:
        assert systemd.next()[0] == "READY=1"
        with pytest.raises(TimeoutError):
            systemd.next(0.6)

    serve(observer, Supervisor(systemd.address, watchdog=0.2), meanwhile)
    assert "a record that makes no sense" in caplog.text


def test_a_hangup_reloads_and_goes_on(systemd: Systemd, caplog: pytest.LogCaptureFixture) -> None:
    def meanwhile() -> None:
        assert systemd.next()[0] == "READY=1"
        hang_up()
        assert systemd.next()[0] == "RELOADING=1"
        assert systemd.next()[0] == "READY=1"

    with caplog.at_level(logging.INFO):
        serve(Observer(), Supervisor(systemd.address), meanwhile)
    assert "SIGHUP: nothing to read again" in caplog.text
    assert "SIGTERM: stopping" in caplog.text


def test_a_reload_that_fails_in_an_unexpected_way_is_logged_and_the_daemon_goes_on(
    systemd: Systemd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(path: Path) -> NoReturn:
        raise TypeError("odd")

    def meanwhile() -> None:
        assert systemd.next()[0] == "READY=1"
        monkeypatch.setattr(web_config_file, "read", fail)
        hang_up()
        assert systemd.next()[0] == "RELOADING=1"
        assert systemd.next()[0] == "READY=1"

    file = tmp_path / "web.yml"
    file.write_text("basic_auth_users: {}\n")
    serve(Observer(), Supervisor(systemd.address), meanwhile, web_config=file)
    (record,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert record.getMessage() == (
        f"SIGHUP: the old web config stays in force: {file}: TypeError('odd')"
    )


def test_the_hangup_of_its_own_terminal_stops_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    there = iter([True, False])
    monkeypatch.setattr(signals, "_has_terminal", lambda: next(there))
    with caplog.at_level(logging.INFO):
        serve(Observer(), Supervisor(), hang_up)
    assert "SIGHUP: stopping" in caplog.text


def test_privileges_are_given_up_before_the_port_serves_and_when_the_hooks_are_attached() -> None:
    gave_up: list[str] = []
    seen: list[list[str]] = []

    def meanwhile() -> None:
        assert seen == [["start"]]

    def opening(_: Config) -> None:
        # the thread that serves the port has given up, this one still has what hooks need
        seen.append(list(gave_up))

    serve(
        Observer(),
        Supervisor(),
        meanwhile,
        opening=opening,
        give_up=lambda: gave_up.append(threading.current_thread().name),
    )
    assert gave_up == ["start", threading.main_thread().name]


@pytest.mark.parametrize("hidden", [True, False])
def test_hidden_command_lines_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hidden: bool
) -> None:
    monkeypatch.setattr(announcement, "_sees_arguments", lambda: not hidden)
    serve(Observer(), Supervisor(), lambda: None, show_arguments=True)
    assert ("set ProtectProc=default in the unit" in caplog.text) is hidden


# -- the journal


def test_a_stream_is_the_journal_if_it_is_the_one_that_systemd_named(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as file:
        seen = os.fstat(file.fileno())
        named = {"JOURNAL_STREAM": f"{seen.st_dev}:{seen.st_ino}"}
        assert logs_to_journal(named, file.fileno())
        assert not logs_to_journal({}, file.fileno())
        assert not logs_to_journal({"JOURNAL_STREAM": f"{seen.st_dev}:1"}, file.fileno())
        closed = os.dup(file.fileno())
        os.close(closed)
        assert not logs_to_journal(named, closed)


@pytest.mark.parametrize(
    ("level", "prefix"),
    [("DEBUG", "<7>"), ("INFO", "<6>"), ("WARNING", "<4>"), ("ERROR", "<3>"), ("CRITICAL", "<2>")],
)
def test_each_level_has_its_priority(level: str, prefix: str) -> None:
    record = logging.makeLogRecord({"name": "web", "levelno": logging.getLevelName(level)})
    record.msg = "listening"
    assert JournalFormatter().format(record) == f"{prefix}web: listening"


def test_every_line_of_a_traceback_has_the_priority() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.makeLogRecord(
            {"levelno": logging.ERROR, "msg": "failed", "exc_info": sys.exc_info()}
        )
    lines = JournalFormatter().format(record).split("\n")
    assert len(lines) > 3
    assert all(line.startswith("<3>") for line in lines)
