# SPDX-License-Identifier: Apache-2.0
"""What the history keeps of a month, what a run costs, and how long its sums take to read.

Needs no root: writes made-up runs straight into a file. For example, a busy host at a tenth of
its size and of its runs:

    .venv/bin/python tests/bench/history.py --size 25.6 --runs 150000 --pipelines 50
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from pipelined.analysis.machine import Host
from pipelined.history.archive import Archive
from pipelined.history.conditions import Period
from pipelined.history.database import Store
from pipelined.history.files import FILE_NAME
from pipelined.history.history import History
from pipelined.history.packing import pack
from pipelined.history.pipeline_query import SORTS
from pipelined.history.pipelines import PipelinesSummary, read_pipelines
from pipelined.history.rollup import HOUR, Pending
from pipelined.history.rows import Details, Summary
from pipelined.history.run_query import Query
from pipelined.runs import Series
from pipelined.runs.codec import written
from pipelined.web.history_api import create_history_api
from pipelined.web.pages import create_pages

sys.path.insert(0, str(Path(__file__).parents[1]))  # for invented runs
from unit.invented import make_ended, make_functions

START = 1_800_000_000.0
DAY = 86400.0
#: Runs that are written at a time, as the daemon does.
BATCH = 50
#: Runs of the history that is followed.
FOLLOWED = 2000
UNIT = "job.service"
NIGHTLY = "pg_dump|zstd"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=float, default=256.0, help="of the file (MB)")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--pipelines", type=int, default=200)
    parser.add_argument("--days", type=float, default=30.0, help="in which the runs end")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name), asked)
        read(Path(name), asked)
    for stages, functions in ((2, False), (4, True)):
        with tempfile.TemporaryDirectory() as name:
            follow(Path(name), stages, functions)


def fill(directory: Path, asked: argparse.Namespace) -> None:
    """Write the runs: most of a few pipelines, of 2 ms to 1 s, and each night one of an hour."""
    numbers = random.Random(1)
    now = START
    step, night = asked.days * DAY / asked.runs, START + HOUR
    bulk, points = numbers.randbytes(1200), numbers.randbytes(30_000)
    with Store(
        directory, max_age=31 * DAY, max_bytes=int(asked.size * 1e6), clock=lambda: now
    ) as store:
        began, largest = time.thread_time(), 0
        for first in range(0, asked.runs, BATCH):
            pending, batch = Pending(500), []
            for number in range(first, first + BATCH):
                now += step
                pipeline = f"cat|grep|tool{int(asked.pipelines * numbers.random() ** 3)}"
                made = [(number, pipeline, 0.002 * 2 ** numbers.randrange(10), b"")]
                if now >= night:
                    night += DAY
                    made.append((-number, NIGHTLY, 3600.0, points))
                for run, signature, wall, timeline in made:
                    batch.append(details(run, signature, now, wall, bulk, timeline))
                    sums = pending.sums(Series(pipeline=signature, nested=False, unit=UNIT), now)
                    sums.count(wall, wall / 2, wall / 4, 1000, 1000)
            store.count(pending)
            store.add(batch)
            store.trim()
            largest = max(largest, store.size_bytes)
        cost = (time.thread_time() - began) / asked.runs
        print(f"{asked.runs} runs: {cost * 1e6:.0f} us of CPU each, without describing them")
        print(f"{store.rows} stored, at most {largest / 1e6:.1f} MB")


def details(
    number: int, pipeline: str, end: float, wall: float, bulk: bytes, timeline: bytes
) -> Details:
    row = Summary(
        id=f"{int((end - wall) * 1000)}{number:+}",
        pipeline=pipeline,
        nested=False,
        unit=UNIT,
        partial=False,
        start=end - wall,
        end=end,
        wall=wall,
        cores=0.5,
        overlap=0.1,
        cache=None,
        bottleneck="grep: CPU 97 %",
        findings=("ceiling",),
        read_bytes=1000,
    )
    return Details(row, tuple(pipeline.split("|")), bulk, timeline, {"ceiling": wall / 10})


def read(directory: Path, asked: argparse.Namespace) -> None:
    archive = Archive(directory)
    end = START + asked.days * DAY
    nights = len(archive.rows(Query(pipeline=NIGHTLY), 1000))
    print(f"nightly runs stored: {nights} of {int(asked.days + 1 - HOUR / DAY)}")
    for words, seconds in (("hour", HOUR), ("6 hours", 6 * HOUR), ("day", DAY), ("week", 7 * DAY)):
        stored = len(archive.rows(Query(since=end - seconds), asked.runs))
        ran = asked.runs * min(1.0, seconds / (asked.days * DAY))
        print(f"of the last {words}: {min(1.0, stored / ran):.0%} stored")
    counted = archive.rollup(Period())
    print(f"roll-up: {sum(row.sums.runs for row in counted)} runs of {len(counted)} pipelines")
    last = int(end // HOUR)
    measure("sums by pipeline, whole time", lambda: archive.rollup(Period()))
    measure("sums by pipeline, last 12 hours", lambda: archive.rollup(Period(since=last - 12)))
    for days in (7.0, asked.days):
        for sort in SORTS:
            measure(
                f"pipelines of {days:g} days by {sort}",
                lambda days=days, sort=sort: pipelines(
                    archive, Period(last - int(24 * days), last + 1), sort
                ),
            )
    pages = client(directory)
    for path in (f"/pipelines?since={end - 7 * DAY}", "/pipelines?since=", "/history"):
        measure(f"page {path.replace(str(end - 7 * DAY), '7d')}", lambda path=path: pages.get(path))
    measure("list of 100 runs", lambda: archive.rows(Query(), 100))
    for what, query in (
        ("longest first", Query(sort="wall")),
        ("longest first, of the last 12 hours", Query(sort="wall", since=end - 12 * HOUR)),
        ("longest first, with a command that all have", Query(sort="wall", command="grep")),
        ("of 10 s or more", Query(min_duration=10.0)),
        ("at the top level, of 100 ms or more", Query(min_duration=0.1, top_level=True)),
        ("slower than usual", Query(slower=True)),
        ("with a finding", Query(finding="no-such")),
        ("of one pipeline", Query(pipeline=NIGHTLY)),
    ):
        measure(f"list of 50 runs {what}", lambda query=query: archive.rows(query, 50))
    hiding = Query(min_duration=0.1, top_level=True)
    measure("number of hidden runs, up to 10,000", lambda: archive.hidden(hiding, 10_000))


def follow(directory: Path, stages: int, functions: bool) -> None:
    """What pages of real runs cost, and the same runs if another version had stored them."""
    run = make_ended(1, "|".join(["cat", "grep", "sort", "uniq"][:stages]))
    measured = make_functions() if functions else None
    given = [replace(stage, arguments=None, functions=measured) for stage in run.stages]
    with Store(directory, max_age=1e12, max_bytes=256_000_000) as store:
        for first in range(0, FOLLOWED, BATCH):
            batch = []
            for number in range(first, first + BATCH):
                one = replace(run, id=f"{number:06d}", stages=tuple(given))
                bulk = pack(written(one))
                batch.append(details(number, one.pipeline, START + number, 1.0, bulk, b""))
            store.add(batch)
    host = Host(cores=2, l2_bytes=None)
    observer: Any = None  # these answers show no live run
    app = Flask("pipelined.web")
    history = History(directory, host=host)
    app.register_blueprint(create_history_api(observer, history, host, show_arguments=False))
    web = app.test_client()
    kind = f"{stages} stages{', with functions' if functions else ''}"
    for path in ("/api/v1/runs", "/api/v1/runs/finished"):
        for limit in (100, 1000):
            per_run(f"{path}?limit={limit}, {kind}", web, f"{path}?limit={limit}")
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection, connection:
        connection.execute("UPDATE openings SET form = ''")
    per_run(f"the same of another version, {kind}", web, "/api/v1/runs/finished?limit=100")


def per_run(what: str, web: FlaskClient, path: str) -> None:
    """CPU time of an answer, by run in it."""
    answer = web.get(path)
    runs, took = len(answer.get_json()["runs"]), []
    for _ in range(9):
        began = time.thread_time()
        web.get(path)
        took.append(time.thread_time() - began)
    cost = statistics.median(took)
    print(
        f"{what}: {runs} runs, {len(answer.data) / 1e6:.2f} MB, {cost * 1e3:.1f} ms of CPU,"
        f" {cost / runs * 1e6:.0f} us per run"
    )


def client(directory: Path) -> FlaskClient:
    """Asks for the pages of a daemon with this history."""
    host = Host(cores=2, l2_bytes=None)
    app = Flask("pipelined.web")
    observer: Any = None  # these pages show no live run
    history = History(directory, host=host)
    app.register_blueprint(create_pages(observer, history, host, show_arguments=False))
    return app.test_client()


def pipelines(archive: Archive, period: Period, sort: str) -> PipelinesSummary:
    return read_pipelines(archive, period, search=None, sort=sort, limit=50)


def measure(what: str, work: Callable[[], object]) -> None:
    took = []
    for _ in range(9):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    print(f"{what}: {statistics.median(took) * 1e3:.1f} ms (median of {len(took)})")


if __name__ == "__main__":
    main()
