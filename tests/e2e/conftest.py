# SPDX-License-Identifier: Apache-2.0
"""The installed program as a user has it: daemons, commands, and pipelines to watch.

Commands are known under names that no other process on the host has, so that whatever else
runs here does not come into the figures.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import json
import os
import platform
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

PROGRAM = Path(sys.executable).parent / "pipelined"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
#: A test that waits longer than this for something has failed (seconds). On a host where other work
#: has most of the CPUs a daemon takes ten times as long to start.
PATIENCE = 60

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="session")
def program() -> str:
    """The console script beside the Python that runs the tests."""
    assert PROGRAM.exists(), f"{PROGRAM} is missing; run: make setup"
    return str(PROGRAM)


@pytest.fixture(scope="session")
def bpf(program: str) -> None:
    """Skips, or in CI fails, where BPF cannot be used."""
    looked = subprocess.run([program, "doctor"], capture_output=True, text=True)
    if looked.returncode == 0:
        return
    told = (looked.stdout or looked.stderr).strip().splitlines()
    reason = told[-1] if told else f"doctor ended with status {looked.returncode}"
    if os.environ.get("PIPELINED_REQUIRE_BPF") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


class Daemon:
    """A daemon under test."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log
        self.announced = ""
        assert process.stdout is not None
        self._stdout = process.stdout

    @property
    def url(self) -> str:
        match = re.search(r"page +(http://\S+)/", self.announced)
        assert match, self.announced
        return match[1]

    def wait_until_ready(self) -> None:
        """Read what it says of itself; it answers from then on."""
        self._read_until("Ctrl-C stops it.")

    def wait_until_attached(self) -> None:
        """Read what it says of the hooks that follow, if any do."""
        if "to follow" in self.announced:
            self._read_until("Every hook is attached or off:")

    def _read_until(self, end: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while end not in self.announced:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._stdout], [], [], left)[0]:
                raise AssertionError(f"not ready: {self.announced}{self.log.read_text()}")
            # Not by lines: what is buffered here, select does not see.
            said = os.read(self._stdout.fileno(), 4096).decode()
            assert said, f"ended: {self.announced}{self.log.read_text()}"
            self.announced += said

    def get(self, path: str, accept: str = "") -> str:
        request = urllib.request.Request(self.url + path, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            text: str = answer.read().decode()
            return text

    def samples(self, accept: str = "") -> Samples:
        """A scrape: values by name and labels."""
        text = self.get("/metrics", accept)
        families = parse_openmetrics(text) if accept else parse_text(text)
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of the samples that have these labels; None when there is none."""
        found = [
            value
            for (sample, has), value in self.samples().items()
            if sample == name and has >= set(labels.items())
        ]
        return sum(found) if found else None

    def runs(self, pipeline: str, query: str = "") -> list[dict[str, Any]]:
        quoted = urllib.parse.quote(pipeline)
        answer = json.loads(self.get(f"/api/v1/pipelines?limit=10000&pipeline={quoted}{query}"))
        found: list[dict[str, Any]] = answer["runs"]
        return found

    def wait_for_runs(self, pipeline: str, count: int) -> list[dict[str, Any]]:
        """Wait until this many runs have ended, by the counter as well as by the API."""

        def ended() -> list[dict[str, Any]] | None:
            if (self.value("pipelined_runs_total", pipeline=pipeline) or 0) < count:
                return None
            found = self.runs(pipeline, "&live=false")
            return found if len(found) >= count else None

        return wait_until(ended, f"{count} runs of {pipeline}")

    def links(self) -> set[int]:
        return links_of(self.process.pid)

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Ask it to stop; how long that took (seconds)."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        return time.monotonic() - began

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            self._stdout.close()


def wait_until(look: Callable[[], Any], what: str) -> Any:
    """Call `look` until it returns something true, and return that."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE} s in vain for {what}")


@pytest.fixture(scope="session", name="wait_until")
def wait_until_fixture() -> Callable[[Callable[[], Any], str], Any]:
    return wait_until


StartDaemon = Callable[..., Daemon]


def _starter(program: str, directory: Path, started: list[Daemon]) -> StartDaemon:
    def start(
        *flags: str, address: str | None = "127.0.0.1:0", wait_for_hooks: bool = True
    ) -> Daemon:
        log = directory / f"daemon-{len(started)}.log"
        where = ["--web.listen-address", address] if address else []
        state = ["--state-directory", str(directory / f"state-{len(started)}")]
        with log.open("w") as stderr:
            process = subprocess.Popen(
                # Of a flag that is given twice the last one counts.
                [program, "serve", *where, *state, *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        daemon = Daemon(process, log)
        started.append(daemon)
        daemon.wait_until_ready()
        if wait_for_hooks:
            daemon.wait_until_attached()
        return daemon

    return start


@pytest.fixture
def start_daemon(bpf: None, program: str, tmp_path: Path) -> Iterator[StartDaemon]:
    """Starts daemons with the given flags on free ports; stops what the test left running."""
    started: list[Daemon] = []
    try:
        yield _starter(program, tmp_path, started)
    finally:
        for daemon in started:
            daemon.close()


@pytest.fixture(scope="session")
def daemon(bpf: None, program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all tests that only look, with room for the pipelines of them all."""
    started: list[Daemon] = []
    try:
        start = _starter(program, tmp_path_factory.mktemp("daemon"), started)
        yield start("--recent-runs", "10000", "--metrics.max-series", "1000000")
    finally:
        for daemon in started:
            daemon.close()


_numbers = itertools.count()


@pytest.fixture
def tool(tmp_path: Path) -> Callable[[str], str]:
    """A command under a name of its own: what to type; its last part is the kernel's name."""
    suffix = f"{os.getpid() % 100_000:x}{next(_numbers):x}"

    def name(command: str) -> str:
        original = shutil.which(command)
        assert original, command
        link = tmp_path / f"{command[: 14 - len(suffix)]}{suffix}"
        if not link.exists():
            link.symlink_to(os.path.realpath(original))
        return str(link)

    return name


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    """3,000,000 bytes in 60,000 lines."""
    file = tmp_path / "access.log"
    file.write_text(
        "".join(f"{n:08d} GET /page/{n % 997:05d} 200 {'x' * 20}\n" for n in range(60_000))
    )
    assert file.stat().st_size == 3_000_000
    return file


def names_in(session: int) -> set[str]:
    """The names of the processes of a session."""
    found = set()
    for process in Path("/proc").glob("[1-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            before, _, after = (process / "stat").read_text().rpartition(")")
            if int(after.split()[3]) == session:
                found.add(before.partition("(")[2])
    return found


_BPF_SYSCALL = {"x86_64": 321, "aarch64": 280}
_BPF_LINK_GET_FD_BY_ID = 30


def links_of(pid: int) -> set[int]:
    """Ids of the BPF links that a process holds: one for each attached hook."""
    found = set()
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            match = re.search(r"^link_id:\s*(\d+)", file.read_text(), re.M)
        except OSError:  # closed meanwhile: each sweep opens one
            continue
        if match:
            found.add(int(match[1]))
    return found


def link_exists(link: int) -> bool:
    """Whether the kernel still has this BPF link."""
    attributes = ctypes.create_string_buffer(struct.pack("=I", link), 128)
    libc = ctypes.CDLL(None, use_errno=True)
    number = _BPF_SYSCALL[platform.machine()]
    descriptor = libc.syscall(number, _BPF_LINK_GET_FD_BY_ID, attributes, 128)
    if descriptor >= 0:
        os.close(descriptor)
        return True
    if ctypes.get_errno() == errno.ENOENT:
        return False
    raise OSError(ctypes.get_errno(), "BPF_LINK_GET_FD_BY_ID")


@pytest.fixture(scope="session")
def attached() -> Callable[[set[int]], set[int]]:
    """Which of the given BPF links the kernel still has."""
    return lambda links: {link for link in links if link_exists(link)}


@contextmanager
def in_memory_of(size: str, place: Path) -> Iterator[Path]:
    """A file system of this size, on no disk, mounted at a new directory."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A directory on no disk, for tests that measure how long a daemon that writes there takes."""
    with in_memory_of("64m", tmp_path / "memory") as place:
        yield place
