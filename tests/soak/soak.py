# SPDX-License-Identifier: Apache-2.0
"""A made-up night of eight hours, in two: what does each fault cost, and does anything grow?

Needs root. `run.sh` builds the programs and starts this. Thousands of different one-liners, twenty
jobs that come back all night, some of which fail or run in containers, drivers and stages that
last; a real Prometheus, the live page in a browser, a sender to a back end that comes and goes;
kills of the daemon, a full disk, a full history, backups, rotated logs. Ends with status 1 if a
claim does not hold.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from document_section import put_section
from pipelined.history.archive import Archive
from pipelined.history.conditions import Period
from pipelined.history.run_query import Query
from prometheus_server import Prometheus
from soak.daemon import Daemon, Scrape
from soak.faults import Faults, small_disk
from soak.judgement import SCRAPE_INTERVAL, judge
from soak.night import (
    CONTAINED,
    DRIVERS,
    JOBS,
    Failed,
    Made,
    Night,
    Started,
    container_id,
    may_be_made,
)
from soak.picture import draw
from soak.readings import Account, Gap, Kept, Named, Reading, Soak
from soak.sender import Sender
from soak.table import heads, line, section, verdict_line

__all__ = ["main"]

HERE = Path(__file__).resolve().parent
READINGS = 24
#: After these readings the daemon is killed. Growth is judged after the last one.
KILLS = (3, 6, 9)
#: How often the back end of the sender is away.
OUTAGES = 12
#: What the daemon had not written may be lost with it: runs made within these seconds before the
#: kill are not accounted for.
UNWRITTEN = 5.0
#: A run is in the metrics so long after its end, at most (seconds).
COUNTED_WITHIN = 10.0
#: Size of the history for each second of the soak. It grows by about 27 kB per second: it is full
#: after about a quarter of the soak. Its disk has room for twice as much, and some files.
HISTORY_BYTES_PER_SECOND = 8000
DISK_BEYOND = 32 << 20
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

    def since(self, before: RolledUp) -> RolledUp:
        return RolledUp(self.runs - before.runs, self.others - before.others)


NOTHING = RolledUp(0, 0)


@dataclass
class Course:
    """What is found out while the soak runs."""

    night: Night
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
        self.life, self.ready = life, self.night.begun()
        self._last = (time.monotonic(), daemon.cpu_seconds(), 0.0, 0.0)

    def read(self, daemon: Daemon, max_bytes: int) -> Reading:
        """Take a reading, and look whether each job that ran in this life has its series."""
        finished = self.night.made()
        now, cpu = time.monotonic(), daemon.cpu_seconds()
        scrape = daemon.scrape()
        made = self.night.made()
        at = (now, cpu, *_sweeps(scrape))
        before, self._last = self._last, at
        reading = Reading(
            seconds=now - self.began,
            life=self.life,
            runs=made.runs,
            pipelines=made.pipelines,
            resident_bytes=scrape.value("process_resident_memory_bytes"),
            files=daemon.files(),
            threads=daemon.threads(),
            series=len(scrape.samples),
            budget_ratio=scrape.value("pipelined_series_used")
            / scrape.value("pipelined_series_budget"),
            scrape_bytes=scrape.bytes,
            scrape_cpu_seconds=scrape.cpu_seconds,
            sweep_seconds=(at[2] - before[2]) / max(1.0, at[3] - before[3]),
            cpu_ratio=(at[1] - before[1]) / (at[0] - before[0]),
            lost=scrape.value("pipelined_lost_total"),
            history_bytes=scrape.value("pipelined_history_size_bytes"),
            history_errors=scrape.value("pipelined_history_errors_total"),
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


def soak(
    seconds: float, rate: float, pipelines: int, directory: Path, stack: contextlib.ExitStack
) -> Soak:
    """Run the night in `directory`. Raises Failed if something that it needs does not work."""
    max_bytes = int(seconds * HISTORY_BYTES_PER_SECOND)
    disk = stack.enter_context(small_disk(2 * max_bytes + DISK_BEYOND))
    state, log = disk / "state", directory / "daemon.log"
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
    sender = Sender(daemon.url, directory, seconds / OUTAGES)
    stack.callback(sender.close)
    (directory / "night").mkdir()
    night = Night(directory / "night", seconds, rate, pipelines)
    stack.callback(night.close)
    night.start()
    faults = Faults(state, [log, directory / "sender.log"], seconds, directory)
    stack.callback(faults.close)
    course = Course(night, time.monotonic())
    course.began_life(0, daemon)

    def wait(until: float) -> None:
        while time.monotonic() < until:
            time.sleep(0.5)
            for what in (night, sender, faults):
                what.tick()
            if not daemon.alive():
                raise Failed("the daemon has ended")

    accounts: list[Account] = []
    gaps: list[tuple[Gap, Made, Made]] = []
    rolled_up, ready = NOTHING, Made()
    print(heads(), flush=True)
    for number in range(1, READINGS + 1):
        due = course.began + seconds * number / READINGS
        # On a slow host a reading may end after the next one is due.
        wait(max(due, time.monotonic() + seconds / READINGS / 4))
        print(line(course.read(daemon, max_bytes)), flush=True)
        if number in KILLS:
            made, began = night.made(), time.monotonic()
            account = _account(daemon, made.runs - ready.runs)
            wait(time.monotonic() + UNWRITTEN)
            daemon.kill()
            killed = time.monotonic()
            before, rolled_up = rolled_up, _rolled_up(state)
            accounts.append(account(rolled_up.since(before)))
            daemon = Daemon(state, log, max_bytes, daemon.port)
            ready, now = night.made(), time.monotonic()
            gap = Gap(killed - course.began, now - began, ready.runs - made.runs)
            gaps.append((gap, made, night.begun()))
            course.began_life(len(gaps), daemon)
    night.end()
    made = night.made()
    if browser.process.poll() is not None:
        raise Failed(f"the browser ended: {browser.log.read_text()[-500:]}")
    browser.ask_to_end()
    account = _account(daemon, made.runs - ready.runs)
    browser.process.wait(30)
    resets = {job: _resets(prometheus, job, seconds) for job in JOBS}
    up = prometheus.query(f"count_over_time((up == 0)[{int(seconds) + 60}s:5s])")
    time.sleep(UNWRITTEN)
    sent = sender.finish({row.id for row in Archive(state).rows(Query(), made.runs)})
    happened = faults.happened()
    daemon.stop()
    accounts.append(account(_rolled_up(state).since(rolled_up)))
    rows = Archive(state).rows(Query(), made.runs)
    clocks = time.time() - time.monotonic()
    return Soak(
        machine=_machine(),
        command=f"make soak ARGS='--minutes {seconds / 60:g}'",
        history_max_bytes=max_bytes,
        readings=course.readings,
        accounts=accounts,
        gaps=[gap for gap, _, _ in gaps],
        sent=sent,
        happened=happened,
        unexplained=course.unexplained,
        jobs=[_named(state, job, False, made, gaps) for job in JOBS],
        drivers=[_named(state, name, nested, made, gaps) for name, nested in DRIVERS.items()],
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


def _rolled_up(state: Path) -> RolledUp:
    rows = [(row.series.pipeline, row.sums.runs) for row in Archive(state).rollup(Period())]
    return RolledUp(
        sum(runs for _, runs in rows),
        sum(runs for pipeline, runs in rows if not may_be_made(pipeline)),
    )


def _named(
    state: Path, pipeline: str, nested: bool, made: Made, gaps: Sequence[tuple[Gap, Made, Made]]
) -> Named:
    """Of a driver's pipelines four may be live when a gap ends (make -j4), beside those begun."""
    rows = [
        row
        for row in Archive(state).rollup(Period(pipeline=pipeline))
        if row.series.nested == nested
    ]
    unit = f"{container_id(pipeline)[:12]}.docker" if pipeline in CONTAINED else None
    live = 4 if pipeline in DRIVERS else 0
    return Named(
        pipeline=pipeline,
        made=made.named[pipeline],
        gap=sum(after.named[pipeline] - before.named[pipeline] + live for _, before, after in gaps),
        rolled_up=sum(row.sums.runs for row in rows),
        stored=Archive(state).stored(Period(pipeline=pipeline))[nested],
        failed=made.failed.get(pipeline, 0),
        failed_gap=sum(
            after.failed.get(pipeline, 0) - before.failed.get(pipeline, 0)
            for _, before, after in gaps
        ),
        reported=sum(row.sums.failed for row in rows),
        elsewhere=sum(row.sums.runs for row in rows if unit and row.series.unit != unit),
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
    length.add_argument("--minutes", type=float, default=120.0, help="how long (120)")
    length.add_argument("--hours", type=float, help="the same in hours")
    parser.add_argument("--rate", type=float, default=100.0, help="one-liners per second (100)")
    parser.add_argument(
        "--pipelines", type=int, default=4000, help="different ones of them, at most (4000)"
    )
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
            measured = soak(options.seconds, options.rate, options.pipelines, directory, stack)
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
