# SPDX-License-Identifier: Apache-2.0
"""The daemon as systemd runs it, without systemd: messages, privileges, log, and the unit's text.

tests/vm/systemd.py tests the same under a real systemd.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelined.daemon.capabilities import KEPT, permitted

if TYPE_CHECKING:
    from e2e.conftest import StartDaemon

UNIT = Path(__file__).parents[2] / "deploy/systemd/pipelined.service"
PATIENCE = 60


class Service:
    """A daemon that has a socket for its messages, and whose log is "the journal"."""

    def __init__(self, program: str, directory: Path, *, watchdog: float = 0) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(directory / "notify"))
        self._socket.settimeout(PATIENCE)
        self.log = directory / "journal"
        self._said = directory / "stdout"
        with self.log.open("w") as stderr, self._said.open("w") as stdout:
            journal = os.fstat(stderr.fileno())
            self.process = subprocess.Popen(
                [program, "serve", "--web.listen-address", "127.0.0.1:0"],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={
                    **os.environ,
                    "NOTIFY_SOCKET": str(directory / "notify"),
                    "STATE_DIRECTORY": str(directory / "state"),
                    "JOURNAL_STREAM": f"{journal.st_dev}:{journal.st_ino}",
                    **({"WATCHDOG_USEC": str(int(watchdog * 1e6))} if watchdog else {}),
                },
            )

    def next_message(self) -> dict[str, str]:
        """The next message to systemd; fails if there is none in time."""
        try:
            message = self._socket.recv(4096).decode()
        except TimeoutError:
            raise AssertionError(f"silent: {self.log.read_text()}") from None
        return dict(line.split("=", 1) for line in message.splitlines())

    def wait_for_hooks(self) -> re.Match[str]:
        """The status of the message that follows the last hook.

        A keep-alive may bring the same one before that message.
        """
        while True:
            message = self.next_message()
            status = message.get("STATUS", "")
            found = re.fullmatch(r"(\d+) of (\d+) hooks, \d+ pipelines? live", status)
            if found and "WATCHDOG" not in message:
                return found

    def get(self, path: str) -> str:
        match = re.search(r"page +(http://\S+)/", self._said.read_text())
        assert match
        with urllib.request.urlopen(match[1] + path, timeout=PATIENCE) as answer:
            text: str = answer.read().decode()
            return text

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)
        self._socket.close()


@pytest.fixture
def start_service(bpf: None, program: str, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    started: list[Service] = []

    def start(watchdog: float = 0) -> Service:
        started.append(Service(program, tmp_path, watchdog=watchdog))
        return started[-1]

    yield start
    for service in started:
        service.close()


def test_a_life_as_a_service(start_service: Callable[..., Service]) -> None:
    """Ready when it answers, alive while it sweeps, reloaded by SIGHUP, stopped by SIGTERM."""
    service = start_service(watchdog=1)
    ready = service.next_message()
    assert ready["READY"] == "1"
    first = re.fullmatch(r"(\d+) of \1 hooks, \d+ to follow, \d+ pipelines? live", ready["STATUS"])
    assert first
    attached = service.wait_for_hooks()
    hooks = re.findall(r"^pipelined_hook_attached\{.*\} (.*)$", service.get("/metrics"), re.M)
    assert [int(n) for n in attached.groups()] == [hooks.count("1.0"), len(hooks)]
    assert service.next_message()["WATCHDOG"] == "1"
    service.process.send_signal(signal.SIGHUP)
    while "WATCHDOG" in (reloading := service.next_message()):
        pass
    assert reloading["RELOADING"] == "1"
    assert service.next_message()["READY"] == "1"
    assert '"ready"' in service.get("/readyz")
    service.process.send_signal(signal.SIGTERM)
    while "WATCHDOG" in (stopping := service.next_message()):
        pass
    assert stopping == {"STOPPING": "1"}
    assert service.process.wait(PATIENCE) == 0
    lines = service.log.read_text().splitlines()
    assert lines[-1] == "<6>pipelined.daemon.serve: every hook is detached"
    assert all(re.match(r"<[3-7]>pipelined", line) for line in lines), lines


def test_a_daemon_that_is_stopped_sends_no_keep_alive(
    start_service: Callable[..., Service],
) -> None:
    service = start_service(watchdog=1)
    assert service.next_message()["READY"] == "1"
    service.wait_for_hooks()
    assert service.next_message()["WATCHDOG"] == "1"
    service.process.send_signal(signal.SIGSTOP)
    try:
        service._socket.settimeout(1.0)  # four would have come
        with pytest.raises(AssertionError, match="silent"):
            for _ in range(20):  # what was on its way
                service.next_message()
    finally:
        service._socket.settimeout(PATIENCE)
        service.process.send_signal(signal.SIGCONT)
    assert service.next_message()["WATCHDOG"] == "1"


def test_no_thread_keeps_a_capability_that_it_does_not_need(
    start_service: Callable[..., Service],
    wait_until: Callable[[Callable[[], object], str], object],
) -> None:
    """Without it the hooks go on working: the counters move, the history is written."""
    service = start_service()
    assert service.next_message()["READY"] == "1"

    def capabilities(status: str) -> dict[str, int]:
        return {
            name: int(bits, 16) for name, bits in re.findall(r"^(Cap\w+):\s*(\w+)", status, re.M)
        }

    threads = Path(f"/proc/{service.process.pid}/task")

    def statuses() -> dict[Path, str]:
        """Of its threads, but those that end at this moment."""
        found = {}
        for task in threads.iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                found[task] = (task / "status").read_text()
        return found

    service.wait_for_hooks()
    kept = permitted() & KEPT
    wait_until(
        lambda: {capabilities(status)["CapPrm"] for status in statuses().values()} == {kept},
        "the end of the thread that attached the optional hooks",
    )
    tasks = statuses()
    assert len(tasks) > 5
    for task, status in tasks.items():
        sets = capabilities(status)
        assert sets["CapPrm"] == sets["CapEff"] == permitted() & KEPT, task
        assert sets["CapInh"] == sets["CapAmb"] == 0, task
        assert re.search(r"^NoNewPrivs:\s*1$", status, re.M), task


def test_what_was_given_up_is_not_missed(
    start_daemon: StartDaemon, tool: Callable[[str], str]
) -> None:
    daemon = start_daemon()
    names = [tool(command) for command in ("seq", "sort", "tail")]
    subprocess.run(
        ["bash", "-c", f"{names[0]} 20000 | {names[1]} | {names[2]} -n 1"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    pipeline = "|".join(Path(name).name for name in names)
    (run,) = daemon.wait_for_runs(pipeline, 1)
    assert run["pipeline"] == pipeline
    assert daemon.value("pipelined_lost_total") == 0
    assert "Operation not permitted" not in daemon.log.read_text()


def test_root_leaves_the_history_to_the_user_of_the_service(
    start_daemon: StartDaemon,
    tool: Callable[[str], str],
    tmp_path: Path,
    wait_until: Callable[[Callable[[], object], str], object],
) -> None:
    """Files of root would stay behind if it were killed, and keep the service from writing."""
    directory, user = tmp_path / "history", 61234
    directory.mkdir(mode=0o700)
    (directory / "history.db").touch()
    for path in (directory, directory / "history.db"):
        os.chown(path, user, user)
    start_daemon("--state-directory", str(directory))
    line = f"{tool('seq')} 1000 | {tool('sort')} | {tool('tail')} -n 1"
    subprocess.run(["bash", "-c", line], check=True, stdout=subprocess.DEVNULL)
    wal = directory / "history.db-wal"
    wait_until(lambda: wal.exists() and wal.stat().st_size, "the run in the history")
    owners = set()
    for path in directory.iterdir():
        with suppress(FileNotFoundError):  # renamed meanwhile, as each new checkpoint is
            owners.add(path.stat().st_uid)
    assert owners == {user}


def hooks(program: str, wrapper: tuple[str, ...] = ()) -> list[str]:
    """The hooks that doctor could attach, by tier and name."""
    printed = subprocess.run([*wrapper, program, "doctor"], capture_output=True, text=True).stdout
    tiers = re.findall(r"^hooks of (\w+) +ok ((?:.|\n(?= ))*)", printed, re.M)
    return [f"{tier}: {name}" for tier, names in tiers for name in re.split(r",\s+", names.strip())]


def with_only(*names: str) -> tuple[str, ...]:
    """Runs what follows with these capabilities and no others."""
    wanted = ",".join(["-all", *(f"+{name}" for name in names)])
    return ("setpriv", f"--bounding-set={wanted}", f"--inh-caps={wanted}")


def given_capabilities() -> tuple[str, ...]:
    match = re.search(r"^AmbientCapabilities=(.*)$", UNIT.read_text(), re.M)
    assert match
    return tuple(name.removeprefix("CAP_").lower() for name in match[1].split())


def test_the_unit_bounds_capabilities_to_those_that_it_gives() -> None:
    unit = UNIT.read_text()
    (bounds,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.M)
    (given,) = re.findall(r"^AmbientCapabilities=(.*)$", unit, re.M)
    assert bounds == given
    assert re.search("^DynamicUser=yes$", unit, re.M)


def test_the_capabilities_of_the_unit_are_enough_for_every_hook(bpf: None, program: str) -> None:
    assert hooks(program, with_only(*given_capabilities())) == hooks(program) != []


@pytest.mark.parametrize("missing", given_capabilities())
def test_each_capability_of_the_unit_is_needed(bpf: None, program: str, missing: str) -> None:
    left = [name for name in given_capabilities() if name != missing]
    done = subprocess.run(
        [*with_only(*left), program, "serve", "--web.listen-address", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert f"run as root, or with CAP_{missing.upper()}, which is missing; " in done.stderr


def test_an_error_at_the_start_has_its_priority(program: str, tmp_path: Path) -> None:
    log = tmp_path / "journal"
    with log.open("w") as stderr:
        journal = os.fstat(stderr.fileno())
        done = subprocess.run(
            [program, "serve", "--no-such-flag"],
            stderr=stderr,
            env={**os.environ, "JOURNAL_STREAM": f"{journal.st_dev}:{journal.st_ino}"},
        )
    assert done.returncode == 2
    assert log.read_text().startswith("<3>pipelined: no such option")


# -- the text of the unit


@pytest.fixture
def unit(program: str, tmp_path: Path) -> Path:
    """The unit with the program that is installed here."""
    copy = tmp_path / UNIT.name
    text = UNIT.read_text()
    assert text.count("/usr/bin/pipelined ") == 1
    copy.write_text(text.replace("/usr/bin/pipelined ", f"{program} "))
    return copy


def test_the_unit_is_verified(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_exposes_little(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)],
        capture_output=True,
        text=True,
    )
    level = re.search(r"Overall exposure level for pipelined.service: ([\d.]+)", done.stdout)
    assert level, done.stdout + done.stderr
    assert done.returncode == 0, level[0]


def test_the_flags_of_the_unit_are_those_of_the_program(
    bpf: None, program: str, tmp_path: Path
) -> None:
    match = re.search(r"^ExecStart=/usr/bin/pipelined (.*) \$OPTIONS$", UNIT.read_text(), re.M)
    assert match
    file = tmp_path / "pipelined.toml"
    file.write_text('[web]\nlisten-address = "not an address"\n')
    words = match[1].replace("/etc/pipelined/pipelined.toml", str(file)).split()
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode in (1, 2)
    assert "not an address" in done.stderr
