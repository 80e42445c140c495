# SPDX-License-Identifier: Apache-2.0
"""Record the file of the history that this version writes, as SQL.

    cd tests && ../.venv/bin/python -m unit.recorded.record_history

The older files are what the programs of these versions wrote of the same runs: do not record them
again.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pipelined.analysis.machine import Host
from pipelined.history.files import FILE_NAME
from pipelined.history.history import History
from pipelined.history.migrations import MIGRATIONS
from pipelined.runs import Run, Series
from unit.invented import START, make_barrier, make_ended, make_finished, make_inside

_JOB = Series(pipeline="job.sh|tee", nested=False, unit="nightly.job")
JOB = make_ended(1000, "job.sh|tee", wall=100.0, series=_JOB)
GONE = replace(JOB, id="1-1", series=replace(_JOB, pipeline="gone.sh|tee"))


def runs() -> list[Run]:
    """Warm and cold runs, nested and partial ones, with findings, in two hours."""
    return [
        *(reading(make_ended(20 * n, wall=10 + n / 10, overlapping=0.5)) for n in range(6)),
        reading(make_inside(JOB, 1001, wall=2.0)),
        reading(make_inside(JOB, 1003, wall=0.0005)),
        reading(make_inside(GONE, 1200, wall=2.0)),
        reading(JOB),
        barrier(2000),
        reading(make_ended(2100, wall=40.0, partial=True)),
        reading(make_ended(5000, wall=30.0), 1 << 30),
        barrier(5100),
    ]


def reading(run: Run, size: int = 1 << 20) -> Run:
    stages = (replace(of, read_bytes=size, written_bytes=size // 2) for of in run.stages)
    return replace(run, stages=tuple(stages))


def barrier(number: int) -> Run:
    return replace(
        make_barrier(number, number, 20.0), id=f"{int((START + number) * 1000)}-{number}"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), host=Host(cores=2, l2_bytes=1 << 20), max_age=1e12)
        for run in runs():
            history.sink.put(make_finished(run))
        history.sink.start()
        history.sink.close(20.0)
        if (stored := history.stats().runs) != len(runs()):
            raise SystemExit(f"not recorded: {stored or 0} of {len(runs())} runs were stored")
        with closing(sqlite3.connect(Path(folder) / FILE_NAME)) as connection:
            connection.execute("UPDATE openings SET id = printf('%016x', key)")  # else random
            dump = [f"PRAGMA user_version = {len(MIGRATIONS)};", *connection.iterdump(), ""]
    to = Path(__file__).with_name(f"history_{len(MIGRATIONS)}.sql")
    to.write_text("\n".join(dump))


if __name__ == "__main__":
    main()
