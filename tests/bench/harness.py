# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: their table, the daemon as a process, how they measure in turn."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    *("BUILD", "DAEMON", "OBJECT"),
    *("Daemon", "Failed", "Table", "dd", "in_turn", "note", "output", "run", "spread", "start"),
]

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
OBJECT = HERE.parents[1] / "daemon" / "pipelined" / "bpf" / "pipelined.bpf.o"
DAEMON = HERE.parents[1] / ".venv" / "bin" / "pipelined"


class Failed(Exception):
    """Something the benchmark needs did not work; the message says what."""


@dataclass
class Table:
    """Rows of the result, printed as they come and together at the end."""

    rows: list[tuple[str, str, str, str]] = field(default_factory=list)

    def add(self, what: str, budget: str, measured: str, met: bool | None) -> None:
        row = (what, budget, measured, "" if met is None else "yes" if met else "NO")
        self.rows.append(row)
        note(f"{what}: {measured}" + (f" (budget {budget})" if budget else ""))

    def print(self) -> None:
        rows = [("what", "budget", "measured", "met"), *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        print()
        for number, row in enumerate(rows):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print("| " + " | ".join(cells) + " |")
            if number == 0:
                print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
        missed = sum(row[3] == "NO" for row in self.rows)
        print(f"\n{missed} of {sum(bool(row[3]) for row in self.rows)} budgets missed")


def note(text: str) -> None:
    print(f"  {text}", flush=True)


# --- the daemon ----------------------------------------------------------------------------


class Daemon:
    """The real daemon as a process of its own, from start to a clean stop."""

    def __init__(self, directory: Path, *options: str) -> None:
        """`directory` holds a copy of the object, so that a build meanwhile changes nothing."""
        compiled = "--loader=bcc" in options  # from the source in the package: no object
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        log = directory / "daemon.log"
        began = time.monotonic()
        with open(log, "wb") as out:
            self._process = subprocess.Popen(
                [
                    DAEMON,
                    "serve",
                    *("--web.listen-address", f"127.0.0.1:{self.port}"),
                    *(() if compiled else ("--object", directory / OBJECT.name)),
                    *("--state-directory", directory / "state"),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.pid = self._process.pid
        try:
            while self.status("/readyz") != 200:
                if self._process.poll() is not None:
                    raise Failed(f"the daemon does not start:\n{log.read_text()}")
                if time.monotonic() - began > 120:
                    raise Failed(f"the daemon is not ready after 120 s:\n{log.read_text()}")
                time.sleep(0.01)  # each answer takes CPU from the start itself
            self.ready_seconds = time.monotonic() - began
            while json.loads(self.get("/readyz")[1])["pending_hooks"]:
                time.sleep(0.01)
            self.attached_seconds = time.monotonic() - began
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def status(self, path: str) -> int:
        try:
            return self.get(path)[0]
        except OSError:
            return 0

    def metric(self, name: str, *labels: str) -> float:
        """The sum of a metric's series that carry all of `labels` (as in `mode="user"`)."""
        total = 0.0
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith((name + "{", name + " ")) and all(part in line for part in labels):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def cpu_seconds(self) -> float:
        """CPU time of all its threads, those that ended too."""
        return time.clock_gettime(~self.pid << 3 | 2)  # the kernel's MAKE_PROCESS_CPUCLOCK, SCHED

    def resident_mb(self, kind: str = "VmRSS") -> float:
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(rf"{kind}:\s+(\d+)", text)[0]) * 1024 / 1e6

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


# --- workloads -----------------------------------------------------------------------------


def start(
    arguments: Sequence[str | Path], *, stdout: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start in a session of its own, without any pipe of ours unless `stdout` asks for one."""
    return subprocess.Popen(
        [str(argument) for argument in arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def run(arguments: Sequence[str | Path]) -> float:
    """Seconds of wall time."""
    began = time.perf_counter()
    code = start(arguments).wait()
    took = time.perf_counter() - began
    if code:
        raise Failed(f"{' '.join(map(str, arguments))}: exit status {code}")
    return took


def output(arguments: Sequence[str | Path]) -> tuple[str, resource.struct_rusage]:
    """What it printed, by way of a file, and its and its children's resource usage."""
    with tempfile.TemporaryFile() as file:
        process = start(arguments, stdout=file.fileno())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            raise Failed(f"{' '.join(map(str, arguments))}: exit status {process.returncode}")
        file.seek(0)
        return file.read().decode(), usage


def dd(block: int, count: int) -> list[str]:
    """Two stages on one CPU: each pipe full of data costs two switches, and that is the most.

    Left alone they run on one CPU or on two for seconds on end, and a pipe between two CPUs may
    be twice as fast or half: that says more of the scheduler's mood than of who watches.
    """
    cpu = max(os.sched_getaffinity(0))
    pair = f"dd if=/dev/zero bs={block} count={count} 2>/dev/null | dd of=/dev/null bs={block} 2>&1"
    return ["taskset", "-c", str(cpu), "bash", "-c", pair]


def spread(values: Sequence[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}"


def in_turn(rounds: int, *works: Callable[[], float]) -> list[list[float]]:
    """Seconds of each of `works`, measured in turn; each round begins with another of them."""
    took: list[list[float]] = [[] for _ in works]
    for number in range(rounds):
        for step in range(len(works)):
            chosen = (number + step) % len(works)
            took[chosen].append(works[chosen]())
    return took
