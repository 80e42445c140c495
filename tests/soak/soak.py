# SPDX-License-Identifier: Apache-2.0
"""A made-up month on a busy host, accelerated: does anything of the daemon grow without bound?

Needs root. `run.sh` builds the programs and starts this. Many thousand different one-liners, twenty
jobs that come back each night, drivers and stages that last, a real Prometheus, the live page in a
browser, a kill -9 and a history that is full. Ends with status 1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import platform
import re
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from document_section import put_section
from pipelined.history.archive import Archive, Query
from pipelined.history.conditions import Period
from prometheus_server import Prometheus
from soak.daemon import Daemon, Scrape
from soak.judgement import SCRAPE_INTERVAL, judge
from soak.month import DRIVERS, JOBS, Failed, Made, Month, Started, may_be_made
from soak.picture import draw
from soak.readings import Account, Kept, Named, Reading, Soak
from soak.table import heads, line, section, verdict_line

__all__ = ["main"]

HERE = Path(__file__).resolve().parent
READINGS = 20
#: Readings that are taken before the kill -9. Growth is judged after it.
READINGS_BEFORE_KILL = 5
#: What the daemon had not written may be lost with it: runs made within these seconds before the
#: kill are not accounted for.
UNWRITTEN = 5.0
#: A run is in the metrics so long after its end, at most (seconds).
COUNTED_WITHIN = 10.0
#: Size of the history for each second of the soak. It grows by about 27 kB per second: it is full
#: after about a quarter of the soak.
HISTORY_BYTES_PER_SECOND = 8000
#: A soak may be so short (seconds): the history of a shorter one has no room for the jobs' runs.
SHORTEST = 720.0

PROMETHEUS = """
global: {{scrape_interval: {interval:g}s, scrape_timeout: {interval:g}s}}
scrape_configs:
  - job_name: pipelined
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class RolledUp(NamedTuple):
    """Runs in the history's roll-up."""

    runs: int
    others: int
    """Of them, under names that are of none of the pipelines that the soak makes and counts."""


NOTHING = RolledUp(0, 0)


@dataclass
class Course:
    """What is found out while the soak runs."""

    month: Month
    began: float
    """On the monotonic clock."""
    readings: list[Reading] = field(default_factory=list)
    without_series: list[str] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=dict)
    unexplained: int | None = None
    life: int = 0
    ready: Made = field(default_factory=Made)
    """Made before the daemon of this life was ready, with the jobs that were live then."""
    _last: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """Of the previous reading: time, CPU of the daemon, time of its sweeps, and their number."""

    def began_life(self, life: int, daemon: Daemon) -> None:
        self.life, self.ready = life, self.month.begun()
        self._last = (time.monotonic(), daemon.cpu_seconds(), 0.0, 0.0)

    def read(self, daemon: Daemon, max_bytes: int) -> Reading:
        """Take a reading, and look whether each job that ran in this life has its series."""
        finished = self.month.made()
        now, cpu = time.monotonic(), daemon.cpu_seconds()
        scrape = daemon.scrape()
        made = self.month.made()
        at = (now, cpu, *_sweeps(scrape))
        before, self._last = self._last, at
        reading = Reading(
            seconds=now - self.began,
            life=self.life,
            runs=made.runs,
            pipelines=made.pipelines,
            resident_bytes=scrape.value("process_resident_memory_bytes"),
            series=len(scrape.samples),
            budget_ratio=scrape.value("pipelined_series_used")
            / scrape.value("pipelined_series_budget"),
            scrape_bytes=scrape.bytes,
            scrape_cpu_seconds=scrape.cpu_seconds,
            sweep_seconds=(at[2] - before[2]) / max(1.0, at[3] - before[3]),
            cpu_ratio=(at[1] - before[1]) / (at[0] - before[0]),
            lost=scrape.value("pipelined_lost_total"),
            history_bytes=scrape.value("pipelined_history_size_bytes"),
            stored_runs=int(scrape.value("pipelined_history_runs")),
            query_seconds=daemon.slowest_query(),
        )
        self.readings.append(reading)
        self._look_for_series(finished, scrape, reading)
        for what, count in scrape.by_label("pipelined_lost_total", "what").items():
            self.lost[what] = max(count, self.lost.get(what, 0.0))
        if self.life == 0 and reading.history_bytes < 0.5 * max_bytes:
            waiting = _counted(scrape) - _not_stored(scrape) - reading.stored_runs
            self.unexplained = max(self.unexplained or 0, waiting)
        return reading

    def _look_for_series(self, finished: Made, scrape: Scrape, reading: Reading) -> None:
        have = scrape.by_label("pipelined_runs_total", "pipeline")
        self.without_series += [
            f"{job} at minute {reading.seconds / 60:.1f}"
            for job in JOBS
            if finished.named[job] > self.ready.named[job] and job not in have
        ]


def soak(seconds: float, rate: float, directory: Path, stack: contextlib.ExitStack) -> Soak:
    """Run the month in `directory`. Raises Failed if something that it needs does not work."""
    state, log = directory / "state", directory / "daemon.log"
    max_bytes = int(seconds * HISTORY_BYTES_PER_SECOND)
    daemon = Daemon(state, log, max_bytes)
    stack.callback(lambda: daemon.close())
    config = PROMETHEUS.format(port=daemon.port, interval=SCRAPE_INTERVAL)
    flags = ["--storage.tsdb.retention.size=512MB"]
    prometheus = Prometheus(directory / "prometheus", config, flags=flags).__enter__()
    stack.callback(
        prometheus.__exit__, None, None, None
    )  # without the error: it would print its log
    browser = Started(
        [sys.executable, HERE / "browser.py", daemon.url], directory / "browser.log", directory
    )
    stack.callback(browser.close)
    month = Month(directory / "month", seconds, rate)
    stack.callback(month.close)
    (directory / "month").mkdir()
    month.start()
    course = Course(month, time.monotonic())
    course.began_life(0, daemon)
    accounts: list[Account] = []
    before_gap, after_gap, gap_seconds, rolled_up = Made(), Made(), 0.0, NOTHING
    print(heads(), flush=True)
    for number in range(1, READINGS + 1):
        due = course.began + seconds * number / READINGS
        # On a slow host a reading may end after the next one is due.
        _wait(month, daemon, max(due, time.monotonic() + seconds / READINGS / 4))
        print(line(course.read(daemon, max_bytes)), flush=True)
        if number == READINGS_BEFORE_KILL:
            before_gap, began = month.made(), time.monotonic()
            account = _account(daemon, before_gap.runs)
            _wait(month, daemon, time.monotonic() + UNWRITTEN)
            daemon.kill()
            rolled_up = _rolled_up(state)
            accounts.append(account(rolled_up))
            daemon = Daemon(state, log, max_bytes, daemon.port)
            course.began_life(1, daemon)
            after_gap, gap_seconds = month.made(), time.monotonic() - began
    month.end()
    made = month.made()
    if browser.process.poll() is not None:
        raise Failed(f"the browser ended: {browser.log.read_text()[-500:]}")
    browser.ask_to_end()
    account = _account(daemon, made.runs - after_gap.runs)
    browser.process.wait(30)
    resets = {job: _resets(prometheus, job, seconds) for job in JOBS}
    up = prometheus.query(f"count_over_time((up == 0)[{int(seconds) + 60}s:5s])")
    daemon.stop()
    accounts.append(account(_rolled_up(state, rolled_up)))
    rows = Archive(state).rows(Query(), made.runs)
    clocks = time.time() - time.monotonic()
    return Soak(
        machine=_machine(),
        command=f"make soak ARGS='--minutes {seconds / 60:g}'",
        history_max_bytes=max_bytes,
        readings=course.readings,
        accounts=accounts,
        gap_runs=after_gap.runs - before_gap.runs,
        gap_seconds=gap_seconds,
        unexplained=course.unexplained,
        jobs=[_named(state, job, False, made, before_gap, after_gap) for job in JOBS],
        drivers=[
            _named(state, name, nested, made, before_gap, after_gap)
            for name, nested in DRIVERS.items()
        ],
        kept=[
            _kept(first, made, course, [row.end - clocks for row in rows])
            for first in (READINGS - 1, READINGS * 3 // 4, 0)
        ],
        lost=course.lost,
        stored_pipelines=len({row.pipeline for row in rows}),
        without_series=course.without_series,
        resets=resets,
        failed_scrapes=float(up[0]["value"][1]) if up else 0.0,
        complaints=[text for text in browser.log.read_text().splitlines() if text],
    )


def _wait(month: Month, daemon: Daemon, until: float) -> None:
    while time.monotonic() < until:
        time.sleep(0.5)
        month.tick()
        if not daemon.alive():
            raise Failed("the daemon has ended")


def _account(daemon: Daemon, made: int) -> Callable[[RolledUp], Account]:
    """The account of a life as of now, but for the roll-up, which is read when it has ended."""
    deadline = time.monotonic() + COUNTED_WITHIN
    scrape = daemon.scrape(1)
    while _counted(scrape) < made and time.monotonic() < deadline:
        time.sleep(0.2)
        scrape = daemon.scrape(1)

    def account(rolled_up: RolledUp) -> Account:
        return Account(made, _counted(scrape), *rolled_up, _not_stored(scrape))

    return account


def _counted(scrape: Scrape) -> int:
    return int(scrape.value("pipelined_runs_total"))


def _not_stored(scrape: Scrape) -> int:
    return int(scrape.value("pipelined_sink_dropped_runs_total", sink="history"))


def _sweeps(scrape: Scrape) -> tuple[float, float]:
    name = "pipelined_sweep_seconds"
    return scrape.value(f"{name}_sum"), scrape.value(f"{name}_count")


def _rolled_up(state: Path, before: RolledUp = NOTHING) -> RolledUp:
    """What was added to the roll-up since `before`."""
    rows = [(row.series.pipeline, row.sums.runs) for row in Archive(state).rollup(Period())]
    return RolledUp(
        sum(runs for _, runs in rows) - before.runs,
        sum(runs for pipeline, runs in rows if not may_be_made(pipeline)) - before.others,
    )


def _named(
    state: Path, pipeline: str, nested: bool, made: Made, before: Made, after: Made
) -> Named:
    rows = Archive(state).rollup(Period(pipeline=pipeline))
    live = 4 if pipeline in DRIVERS else 1  # may be live when the gap ends: make -j4
    return Named(
        pipeline=pipeline,
        made=made.named[pipeline],
        gap=after.named[pipeline] - before.named[pipeline] + live,
        rolled_up=sum(row.sums.runs for row in rows if row.series.nested == nested),
        stored=Archive(state).stored(Period(pipeline=pipeline))[nested],
    )


def _kept(first: int, made: Made, course: Course, ends: list[float]) -> Kept:
    """What is stored since the reading of that number; `ends` of stored runs, on its clock."""
    since = course.readings[first - 1] if first else None
    seconds = since.seconds if since else 0.0
    return Kept(
        seconds=time.monotonic() - course.began - seconds,
        runs=made.runs - (since.runs if since else 0),
        stored=sum(end >= course.began + seconds for end in ends),
    )


def _resets(prometheus: Prometheus, job: str, seconds: float) -> float:
    query = f'sum(resets(pipelined_runs_total{{pipeline="{job}"}}[{int(seconds) + 60}s]))'
    found = prometheus.query(query)
    return float(found[0]["value"][1]) if found else 0.0


def _machine() -> str:
    model = re.findall(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.M)
    cpus = len(os.sched_getaffinity(0))
    return f"Linux {platform.release()} {platform.machine()}, {cpus} CPUs, {''.join(model[:1])}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=40.0, help="how long (40)")
    length.add_argument("--hours", type=float, help="the same in hours")
    parser.add_argument("--rate", type=float, default=420.0, help="one-liners per second (420)")
    parser.add_argument("--readings", type=Path, help="file for the measured figures, as JSON")
    parser.add_argument("--from", type=Path, dest="earlier", help="judge such a file; run nothing")
    parser.add_argument("--table", type=Path, help="Markdown file to put the table into")
    parser.add_argument("--picture", type=Path, help="SVG file to draw")
    options = parser.parse_args()
    options.seconds = 60 * (60 * options.hours if options.hours else options.minutes)
    if options.seconds < SHORTEST:
        parser.error(
            f"at least {SHORTEST / 60:g} minutes, for the jobs' runs to fit in the history"
        )
    return options


def main() -> int:
    options = _arguments()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if options.earlier:
        return report(Soak.from_json(options.earlier.read_text()), options)
    if os.geteuid():
        print("soak: needs root: sudo make soak", file=sys.stderr)
        return 1
    if any(stat.S_ISFIFO(os.fstat(fd).st_mode) for fd in (0, 1)):
        print("soak: write to a file: in a pipe the soak is a stage itself", file=sys.stderr)
        return 1
    directory = Path(tempfile.mkdtemp(prefix="pipelined-soak-"))
    good = False
    try:
        with contextlib.ExitStack() as stack:
            measured = soak(options.seconds, options.rate, directory, stack)
        (options.readings or directory / "readings.json").write_text(measured.to_json())
        good = report(measured, options) == 0
    except (Failed, OSError, http.client.HTTPException) as error:
        print(f"soak: {error}", file=sys.stderr)
    finally:
        if good:
            shutil.rmtree(directory)
        else:
            print(f"logs, history and figures are in {directory}", file=sys.stderr)
    return 0 if good else 1


def report(measured: Soak, options: argparse.Namespace) -> int:
    """Print the verdicts, write the files that are asked for; the exit status."""
    verdicts = judge(measured)
    print()
    for verdict in verdicts:
        print(verdict_line(verdict))
    bad = sum(not verdict.good for verdict in verdicts)
    print(f"\n{bad} of {len(verdicts)} claims do not hold" if bad else "\nall claims hold")
    if options.picture:
        options.picture.write_text(draw(measured))
    if options.table:
        old = options.table.read_text() if options.table.exists() else ""
        link = options.picture and os.path.relpath(options.picture, options.table.parent)
        options.table.write_text(put_section(old, section(measured, verdicts, link)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
