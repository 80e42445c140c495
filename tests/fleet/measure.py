# SPDX-License-Identifier: Apache-2.0
"""Measures the dashboards on a simulated fleet, and prints the table of docs/FLEET.md.

PYTHONPATH=tests .venv/bin/python -m fleet.measure --hosts 1000 --minutes 60
PYTHONPATH=tests .venv/bin/python -m fleet.measure --hosts 1000 --keep 9090    # and look at it
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from prometheus_server import Prometheus

from .answers import Answer, answers, together
from .storage import Fleet, stored

__all__ = ["Opened", "table"]

#: So often everything is measured: the least counts.
_TRIES = 3


@dataclass(frozen=True)
class Opened:
    """A dashboard, and how long it takes."""

    name: str
    answers: list[Answer]
    seconds: float
    """Until all is answered that it asks as it opens, several queries at a time."""
    all_rows: float
    """The same with all rows open."""

    @property
    def shown(self) -> list[Answer]:
        return [answer for answer in self.answers if not answer.folded]


def table(found: list[Opened]) -> str:
    """A Markdown table with a row per dashboard: as it opens, and with all rows open."""
    rows = [
        "| dashboard | queries | answered within | with all rows open | CPU time of Prometheus "
        "| with all rows open | slowest query | largest answer to a table |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for board in found:
        shown, every = board.shown, board.answers
        seconds, whole = (sum(a.seconds for a in some) for some in (shown, every))
        slowest = max(every, key=lambda answer: answer.seconds)
        largest = max((a.size for a in every if a.kind == "table"), default=0)
        rows.append(
            f"| {board.name.removeprefix('Pipelined / ')} | {len(shown)} of {len(every)} | "
            f"{board.seconds:.1f} s | {board.all_rows:.1f} s | {seconds:.1f} s | {whole:.1f} s | "
            f"{slowest.seconds:.2f} s | {largest / 1000:.0f} kB |"
        )
    return "\n".join(rows)


def _measured(prometheus: Prometheus, fleet: Fleet, only: str, every: bool) -> None:
    print(f"{len(prometheus.get('/api/v1/label/instance/values'))} hosts", flush=True)
    tries = [list(answers(prometheus, fleet, only)) for _ in range(_TRIES)]
    # the first time blocks are read from disk, and now and then garbage is collected
    found = [min(same, key=lambda answer: answer.seconds) for same in zip(*tries, strict=True)]
    if every:
        for one in sorted(found, key=lambda answer: -answer.seconds):
            figures = f"{one.seconds:6.2f} s {one.wall:6.2f} s {one.size:9,} B {one.series:6,}"
            print(f"{figures}  {one.query}")
    boards = []
    for name, of_board in groupby(found, lambda answer: answer.query.dashboard):
        asked = list(of_board)
        first = [answer for answer in asked if not answer.folded]
        times = (min(together(some) for _ in range(_TRIES)) for some in (first, asked))
        boards.append(Opened(name, asked, *times))
    print(table(boards))
    busy = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"Load average of the machine's {os.cpu_count()} CPUs: {busy}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the dashboards on a simulated fleet.")
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument(
        "--minutes", type=int, default=60, help="range that is simulated, and shown"
    )
    parser.add_argument(
        "--every", action="store_true", help="also print every query, slowest first"
    )
    parser.add_argument("--only", default="", metavar="DASHBOARD", help="measure one, as Fleet")
    parser.add_argument("--store", type=Path, help="keep the fleet here; use it if it is there")
    parser.add_argument("--keep", action="store_true", help="print the address, and wait for Enter")
    asked = parser.parse_args()
    fleet = Fleet(asked.hosts, int(time.time()) // 60 * 60, asked.minutes)
    with contextlib.ExitStack() as open_:
        temporary = tempfile.TemporaryDirectory(prefix="fleet-")
        directory = asked.store or Path(open_.enter_context(temporary))
        directory.mkdir(parents=True, exist_ok=True)
        about = directory / "fleet.json"
        if about.exists():
            fleet = Fleet(**json.loads(about.read_text()))
        prometheus = open_.enter_context(stored(fleet, directory))
        about.write_text(json.dumps(asdict(fleet)))
        _measured(prometheus, fleet, asked.only, asked.every)
        if asked.keep:
            input(f"{prometheus.url}, until {fleet.ends}; Enter ends it ")


if __name__ == "__main__":
    main()
