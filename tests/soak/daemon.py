# SPDX-License-Identifier: Apache-2.0
"""The daemon under test as a process: start, scrape, query, kill, stop."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from soak.night import Failed, Started

__all__ = ["Daemon", "Scrape"]

PROGRAM = Path(__file__).resolve().parents[2] / ".venv" / "bin" / "pipelined"
#: Seconds that it may take to be ready, and to answer.
PATIENCE = 60.0
#: Scrapes of one reading, and how often each query is made.
ROUNDS, QUERY_ROUNDS = 5, 3

#: What people ask the history for: all that may have to read much of it.
QUERIES = (
    "/api/v1/runs?limit=1000",
    "/api/v1/runs?since=30d",
    "/api/v1/runs?since=1h&limit=1000",
    "/api/v1/runs?pipeline=dump-00%7Cpack-00&since=30d",
    "/api/v1/runs?command=tool",
    "/api/v1/runs?finding=barrier",
)

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Scrape:
    """What /metrics answered, and what that cost."""

    samples: dict[tuple[str, Labels], float]
    bytes: int
    cpu_seconds: float

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels; 0 if there are none."""
        wanted = labels.items()
        return sum(
            value
            for (sample, has), value in self.samples.items()
            if sample == name and has >= wanted
        )

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """The sums of a metric's samples by the value of a label."""
        found: dict[str, float] = {}
        for (sample, labels), value in self.samples.items():
            if sample == name:
                key = dict(labels)[label]
                found[key] = found.get(key, 0.0) + value
        return found


class Daemon:
    """One life of the daemon, with its state in `directory`; `port` 0 lets it choose one."""

    def __init__(self, directory: Path, log: Path, max_size: int, port: int = 0) -> None:
        began = log.stat().st_size if log.exists() else 0
        self._started = Started(
            [
                *(PROGRAM, "serve"),
                *("--web.listen-address", f"127.0.0.1:{port}"),
                *("--state-directory", directory),
                *("--history-max-size", str(max_size)),
                "--traces-exported",
            ],
            log,
            log.parent,
        )
        self.pid = self._started.process.pid
        deadline = time.monotonic() + PATIENCE
        while True:
            announced = log.read_text(errors="replace")[began:]
            if match := re.search(r"page +http://127\.0\.0\.1:(\d+)/", announced):
                break
            if self._started.process.poll() is not None or time.monotonic() > deadline:
                self._started.close()
                raise Failed(f"the daemon does not start: {announced}")
            time.sleep(0.05)
        self.port = int(match[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def scrape(self, rounds: int = ROUNDS) -> Scrape:
        """The last of `rounds` scrapes, with the median of their CPU time.

        That is the CPU time of the thread that used most of it meanwhile: the one that answers. The
        others sweep and write the history, whether anybody scrapes or not.
        """
        costs = []
        for _ in range(rounds):
            before = self._thread_seconds()
            body = self._get("/metrics")
            after = self._thread_seconds()
            costs.append(max(after[thread] - before.get(thread, 0.0) for thread in after))
        samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }
        return Scrape(samples, len(body), statistics.median(costs))

    def slowest_query(self) -> float:
        """Seconds that the slowest of `QUERIES` takes: the least of several, of each."""
        return max(min(self._seconds(path) for _ in range(QUERY_ROUNDS)) for path in QUERIES)

    def cpu_seconds(self) -> float:
        """CPU time of all its threads, including ended ones."""
        return time.clock_gettime(~self.pid << 3 | 2)  # the kernel's MAKE_PROCESS_CPUCLOCK, SCHED

    def files(self) -> int:
        """Its open file descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def alive(self) -> bool:
        return self._started.process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        self._started.process.kill()
        self._started.process.wait()

    def stop(self) -> None:
        """Ask it to stop, and wait. Raises Failed if it does not, or fails."""
        self._started.process.send_signal(signal.SIGTERM)
        try:
            self._started.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed(f"the daemon does not stop within {PATIENCE:.0f} s") from None
        self._started.ended_well()

    def close(self) -> None:
        self._started.close()

    def _thread_seconds(self) -> dict[str, float]:
        """CPU time of each thread."""
        found = {}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found[task.name] = int((task / "schedstat").read_text().split()[0]) / 1e9
        return found

    def _seconds(self, path: str) -> float:
        began = time.perf_counter()
        self._get(path)
        return time.perf_counter() - began

    def _get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        except OSError as error:
            raise Failed(f"the daemon does not answer {path}: {error}") from None
        finally:
            connection.close()
        if response.status != 200:
            raise Failed(f"{path}: {response.status} {body[:200].decode(errors='replace')}")
        return body
