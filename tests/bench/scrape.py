# SPDX-License-Identifier: Apache-2.0
"""What a scrape costs when the budget of series is full, after a made-up month of a busy host.

Needs no root and no BPF: the daemon's own `serve`, with its history, port, collectors and model,
gets records of pipelines that never ran. The sums on its port must be those that it was given.

    .venv/bin/python tests/bench/scrape.py
    .venv/bin/python tests/bench/scrape.py --pipelines 1000 --runs 20000 --functions
"""

from __future__ import annotations

import argparse
import http.client
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))  # for the observer that stands in for BPF

from pipelined.config import Config  # noqa: E402
from pipelined.model.coverage import Coverage  # noqa: E402
from pipelined.model.tracker import Budget, Lookups, Model, SeriesUse  # noqa: E402
from pipelined.model.views import Totals  # noqa: E402
from pipelined.model.watched import Watched  # noqa: E402
from pipelined.records.process import Process  # noqa: E402
from pipelined.records.stage import (  # noqa: E402
    COUNTERS,
    PIPE_KEY,
    EndRecord,
    Group,
    PipelineRecord,
    StageRecord,
)
from pipelined.records.tiers import FUNCTIONS, READAHEAD, places  # noqa: E402
from pipelined.runs import LEVELS, PAGE_CLASSES, STALL_CLASSES, STATES, Series  # noqa: E402
from pipelined.web.pipeline_metrics import series_count  # noqa: E402
from unit.observed import FakeObserver  # noqa: E402

DAY = 86400.0
MONTH = 30 * DAY
NIGHTLY = "pg_dump|gzip|tee"
#: Runs that end between two sweeps, and runs that are live at each scrape.
BATCH, LIVE = 100, 20
#: As Prometheus asks.
ACCEPT = {
    "text": "text/plain;version=0.0.4",
    "OpenMetrics": "application/openmetrics-text;version=1.0.0",
}
SCRAPES = 25
BUDGET_MS, BUDGET_MB, BUDGET_RESIDENT_MB = 100, 1.5, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pipelines", type=int, default=10_000, help="different ones")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--max-series", type=int, default=10_000)
    parser.add_argument("--functions", action="store_true", help="with the functions tier")
    parser.add_argument("--traces-exported", action="store_true", help="with exemplars")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.port:
        serve(asked)
    else:
        measure(asked)


# -- the daemon


def serve(asked: argparse.Namespace) -> None:
    from pipelined.config import Address
    from pipelined.daemon.serve import serve

    with tempfile.TemporaryDirectory() as state:
        config = Config(
            web_listen_address=Address("127.0.0.1", asked.port),
            state_directory=Path(state),
            metrics_max_series=asked.max_series,
        )
        observer: Any = Host(asked, config)
        serve(config, sys.stderr, open_observer=lambda _: observer)


class Host(FakeObserver):
    """The observer of a host on which all of `asked` has run."""

    def __init__(self, asked: argparse.Namespace, config: Config) -> None:
        super().__init__()
        self._made = Made(asked.functions)
        self._model = Model(
            Watched(1_800_000_000.0),
            Lookups(lambda cgroup: f"batch-{cgroup}.service" if cgroup else "session.scope"),
            recent_runs=config.recent_runs,
            coverage=Coverage(exec_failures=True),
            budget=Budget(config.metrics_max_series - 500, series_count),
            exported=asked.traces_exported,
        )
        began = time.process_time()
        self._now = 0.0
        for groups in self._made.month(asked.pipelines, asked.runs):
            self._now = groups[-1].clock.start_ns / 1e9 + 3700  # all of them have ended
            self._model.update(groups, self._now)
        spent = time.process_time() - began
        print(f"{asked.runs} runs taken in: {spent / max(1, asked.runs) * 1e6:.0f} us each")

    def sweep(self) -> None:
        self.sweep_stats.count += 1
        self._now += 1
        live = [
            self._made.group(f"live{n}", self._now - 10, 0.0, index=n) for n in range(1, LIVE + 1)
        ]
        self._model.update(live, self._now)

    def totals(self) -> dict[Series, Totals]:
        return self._model.totals()

    def counted(self) -> tuple[dict[Series, Totals], SeriesUse]:
        return self._model.totals(), self._model.series_use()


class Made:
    """Records of pipelines as the sweep would have read them."""

    def __init__(self, functions: bool) -> None:
        self._numbers = random.Random(1)
        self._functions = functions

    def month(self, pipelines: int, runs: int) -> Iterator[list[Group]]:
        """Batches of runs: one every night, 60 jobs of minutes, and one-liners."""
        numbers, night, now = self._numbers, 0.0, 0.0
        left = runs
        while left:
            groups = []
            for index in range(1, min(BATCH, left) + 1):
                now += MONTH / runs
                which = int(pipelines * numbers.random())
                if now >= night:
                    night += DAY
                    groups.append(self.group(NIGHTLY, now, 3600.0, index=index))
                elif which < min(60, pipelines // 10):
                    seconds = numbers.uniform(60, 600)
                    groups.append(self.group(f"cat|job{which}|sort|wc", now, seconds, index=index))
                else:
                    seconds = numbers.uniform(0.002, 2)
                    name = f"grep|tool{which}|head"
                    groups.append(self.group(name, now, seconds, index=index))
            left -= len(groups)
            yield groups

    def group(self, name: str, start: float, seconds: float, *, index: int) -> Group:
        """A run that took `seconds`; 0: a live one."""
        if "|" not in name:
            name = f"tail|{name}|gzip"
        commands = name.split("|")
        wall = round((seconds or 10.0) * 1e9)
        levels = [wall // 3, wall // 3, wall - 2 * (wall // 3), *[0] * (len(LEVELS) - 3)]
        clock = PipelineRecord(tuple(levels), (wall // 100,) * 2 + (0,) * (len(LEVELS) - 2), 0)
        clock.start_ns = round(start * 1e9)
        first = index * 64
        stages = tuple(
            self._stage(first + at, first, at, len(commands), command, clock.start_ns, wall)
            for at, command in enumerate(commands)
        )
        if seconds:
            for stage in stages:
                stage.end_ns, stage.live = clock.start_ns + wall, 0
        return Group(first, clock, stages, closed=True)

    def _stage(
        self, index: int, root: int, at: int, of: int, command: str, start: int, wall: int
    ) -> StageRecord:
        def some(most: int) -> int:
            return 1 + int(most * self._numbers.random())

        ends = []
        if at:
            ends.append(
                EndRecord(PIPE_KEY.pack(index - 1, 13, 0), "read", True, True, 3, wall // 3)
            )
        if at < of - 1:
            ends.append(EndRecord(PIPE_KEY.pack(index, 13, 0), "write", True, True, 3, wall // 3))
        states = dict.fromkeys(STATES, 0)
        states |= {"cpu": some(wall // 3), "runqueue": some(wall // 50), "other": some(wall // 99)}
        states |= {"disk": some(wall // 9)} if at == 0 else {"pipe_empty": some(wall // 3)}
        states |= {"pipe_full": some(wall // 3)} if at < of - 1 else {}
        counters = dict.fromkeys(COUNTERS, 0)
        counters |= {"user_ns": 3, "system_ns": 1, "execs": 1}
        counters |= {name: some(wall // 1000) for name in ("read_bytes", "written_bytes")}
        counters |= {name: some(wall // 10**6) for name in ("read_calls", "write_calls")}
        if at:
            counters["sleeps_empty"] = some(99)
        if at < of - 1:
            counters["sleeps_full"] = some(99)
        if at == 1:
            counters |= dict.fromkeys(("forks", "exited_children"), some(9))
            counters |= dict.fromkeys(("children_cpu_ns", "children_life_ns"), some(wall))
        return StageRecord(
            index=index,
            outer=0,
            alias=0 if index == root else root,
            counted=[*states.values(), *counters.values()],
            start_ns=start,
            end_ns=0,
            cgroup=1 if of > 3 else 0,
            live=1,
            generation=0,
            root=Process(1000 + index, start + at),
            parent=Process(1, 0),
            partial=False,
            alone=False,
            command=command,
            ends=tuple(ends),
            functions=self._of_functions(at, of) if self._functions else (),
            readahead=self._of_readahead(at == 0),
        )

    @staticmethod
    @cache
    def _of_readahead(cold: bool) -> tuple[int, ...]:
        values, at = [0] * sum(READAHEAD.values()), places(READAHEAD)
        pages, faults, stalls, stall_ns = (
            at[name].start for name in ("pages", "faults", "stalls", "stall_ns")
        )
        values[pages + PAGE_CLASSES.index("warm")] = 40
        values[faults + STALL_CLASSES.index("other")] = 90
        if cold:
            for name, count in (("hit", 900), ("late", 40), ("miss", 9), ("wasted", 12)):
                values[pages + PAGE_CLASSES.index(name)] = count
            values[at["inserted"].start] = 960
            for split in (0, 1):  # of the class miss: alone, overlapped
                values[stalls + split] = 5
                values[stall_ns + split] = 12_345_678
        return tuple(values)

    @staticmethod
    @cache
    def _of_functions(at: int, of: int) -> tuple[int, ...]:
        values, places_of = [0] * sum(FUNCTIONS.values()), places(FUNCTIONS)
        called = ["file_reads", "file_read_time"]
        called += ["pipe_reads"] if at else []
        called += ["pipe_writes", "pipe_fill"] if at < of - 1 else []
        for name in called:
            counts = places_of[name]
            values[counts] = [3] * (FUNCTIONS[name] - 1) + [70_000]
        values[places_of["pipe_slots"].start] = 16 if at < of - 1 else 0
        return tuple(values)


# -- who scrapes it


def measure(asked: argparse.Namespace) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [f"--{name}={getattr(asked, name.replace('-', '_'))}"
               for name in ("pipelines", "runs", "max-series")]  # fmt: skip
    options += ["--functions"] if asked.functions else []
    options += ["--traces-exported"] if asked.traces_exported else []
    with subprocess.Popen([sys.executable, HERE, *options, f"--port={port}"]) as daemon:
        try:
            while not ready(port):
                if daemon.poll() is not None:
                    sys.exit("the daemon does not start")
                time.sleep(0.2)
            report(asked, port, daemon.pid)
        finally:
            daemon.terminate()


def ready(port: int) -> bool:
    try:
        return get(port, "/readyz")[0] == 200
    except OSError:
        return False


def get(port: int, path: str, accept: str = "") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers={"Accept": accept} if accept else {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def report(asked: argparse.Namespace, port: int, pid: int) -> None:
    text = get(port, "/metrics")[1].decode()
    check(asked, text)
    print(f"resident after the first scrape: {resident_mb(pid):.1f} MB")
    for name, accept in ACCEPT.items():
        spent, sizes = [], []
        for _ in range(SCRAPES):
            before = cpu_seconds(pid)
            sizes.append(len(get(port, "/metrics", accept)[1]))
            spent.append(cpu_seconds(pid) - before)
        cost, size = statistics.median(spent) * 1e3, max(sizes) / 1e6
        print(
            f"scrape, {name}: {cost:.1f} ms of CPU ({min(spent) * 1e3:.1f} to"
            f" {max(spent) * 1e3:.1f}, {SCRAPES} scrapes; budget {BUDGET_MS} ms:"
            f" {met(cost <= BUDGET_MS)}), {size:.3f} MB (budget {BUDGET_MB} MB:"
            f" {met(size <= BUDGET_MB)})"
        )
    resident = resident_mb(pid)
    print(
        f"resident: {resident:.1f} MB (budget {BUDGET_RESIDENT_MB} MB:"
        f" {met(resident <= BUDGET_RESIDENT_MB)})"
    )


def check(asked: argparse.Namespace, text: str) -> None:
    """The budget is kept, nothing that ran is missing, and the nightly job has its series."""
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    own = {
        tuple(sorted(re.findall(r'(pipeline|nested|unit)="([^"]*)"', line)))
        for line in samples
        if "pipeline=" in line and '"(other)"' not in line
    }
    runs = sum(
        float(line.rpartition(" ")[2])
        for line in samples
        if line.startswith("pipelined_runs_total{")
    )
    there = sum("pipeline=" in line for line in samples)
    (used,) = (
        float(line.split()[1]) for line in samples if line.startswith("pipelined_series_used")
    )
    print(f"{len(samples)} series; {len(own)} pipelines have their own")
    if used != there:
        sys.exit(f"{there} series of pipelines, but pipelined_series_used says {used:.0f}")
    if len(samples) > asked.max_series:
        sys.exit(f"more than {asked.max_series} series")
    if runs != asked.runs:
        sys.exit(f"{asked.runs} runs, but /metrics has {runs:.0f}")
    if not any(f'pipeline="{NIGHTLY}"' in line for line in samples):
        sys.exit(f"{NIGHTLY} has lost its series")


def met(kept: bool) -> str:
    return "met" if kept else "MISSED"


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process."""
    return time.clock_gettime(~pid << 3 | 2)  # the kernel's MAKE_PROCESS_CPUCLOCK, SCHED


def resident_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) * 1024 / 1e6


if __name__ == "__main__":
    main()
