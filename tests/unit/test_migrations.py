# SPDX-License-Identifier: Apache-2.0
"""Files of the history that older versions wrote: what a new one makes of them.

`recorded/history_N.sql` is what the program of version N of the schema wrote when 14 runs, the same
for all (`recorded/record_history.py`), had ended.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipelined.analysis.machine import Host
from pipelined.history.archive import Archive
from pipelined.history.database import Store
from pipelined.history.files import FILE_NAME
from pipelined.history.history import History
from pipelined.history.migrations import MIGRATIONS, migrate
from pipelined.history.rows import COLUMNS, SUMMED
from pipelined.history.run_query import Query

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = range(1, len(MIGRATIONS) + 1)

_HOURS = "FROM rollup JOIN pipelines AS p ON p.key = rollup.pipeline ORDER BY hour, p.pipeline"

#: Without inputs: the oldest versions did not count pipes apart, so they have bounds.
_SUMS = ", ".join(f"rollup.{name}" for name in SUMMED if not name.startswith("input_"))


@pytest.fixture(params=VERSIONS[:-1])
def migrated(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory whose file an older version wrote, and the daemon of this one has opened."""
    return opened(tmp_path, request.param)


def opened(directory: Path, version: int) -> Path:
    with closing(recorded(directory, version)):
        pass
    Store(directory, max_age=1e12, max_bytes=256_000_000).close()
    return directory


def recorded(directory: Path, version: int) -> sqlite3.Connection:
    path = RECORDED / f"history_{version}.sql"
    if not path.exists():
        pytest.fail(
            f"no {path.name}: cd tests && ../.venv/bin/python -m unit.recorded.record_history"
        )
    connection = sqlite3.connect(directory / FILE_NAME, isolation_level=None)
    connection.executescript(path.read_text())
    return connection


def schema(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    return sorted(re.sub(r"\s+", " ", sql).strip() for (sql,) in found)


def rows(directory: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection:
        return connection.execute(statement).fetchall()


def about(cells: Sequence[Any]) -> tuple[Any, ...]:
    """The same but for the order in which floats were added up."""
    return tuple(pytest.approx(c, rel=1e-15) if isinstance(c, float) else c for c in cells)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_steps_lead_to_what_the_program_of_a_version_made(version: int, tmp_path: Path) -> None:
    with (
        closing(recorded(tmp_path, version)) as old,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as new,
    ):
        migrate(new, MIGRATIONS[:version])
        assert schema(new) == schema(old)
        assert new.execute("PRAGMA user_version").fetchone() == (version,)


def test_the_steps_make_every_column_of_a_row() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        migrate(new)
        made = {name for _, name, *_ in new.execute("PRAGMA table_info(runs)")}
    assert made - {"key", "commands"} == set(COLUMNS), "fields of Summary and columns of `runs`"


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT p.pipeline, p.nested, p.unit, hour, {_SUMS} {_HOURS}",
        "SELECT hour, p.pipeline, bottleneck, b.wall FROM rollup_bottlenecks AS b"
        " JOIN pipelines AS p ON p.key = b.pipeline ORDER BY hour, p.pipeline, bottleneck",
        "SELECT p.pipeline, r.end, runs.id, r.wall, r.cache, r.read_bytes"
        " FROM runs_of_pipelines AS r JOIN pipelines AS p ON p.key = r.pipeline"
        " JOIN runs ON runs.key = r.run ORDER BY r.end, r.wall",
        "SELECT pipeline, nested, unit, stored, wall, hours FROM pipelines ORDER BY pipeline",
        "SELECT id, pipeline, nested, unit, partial, wall, cores, overlap, cache, bottleneck,"
        " commands, parent, read_bytes FROM runs ORDER BY id",
    ],
    ids=["rollup", "rollup_bottlenecks", "runs_of_pipelines", "pipelines", "runs"],
)
def test_an_older_file_gets_what_this_version_would_have_written(
    statement: str, migrated: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    new = opened(tmp_path_factory.mktemp("new"), VERSIONS[-1])
    assert rows(migrated, statement) == [about(row) for row in rows(new, statement)]


def test_every_finding_of_an_older_file_is_counted(migrated: Path) -> None:
    expected: Counter[tuple[Any, ...]] = Counter()
    for end, pipeline, findings in rows(migrated, "SELECT end, pipeline, findings FROM runs"):
        expected.update((end // 3600, pipeline, finding) for finding in json.loads(findings))
    found = rows(
        migrated,
        "SELECT hour, p.pipeline, finding, runs FROM rollup_findings AS f"
        " JOIN pipelines AS p ON p.key = f.pipeline",
    )
    assert {(hour, pipeline, finding): n for hour, pipeline, finding, n in found} == expected


def test_a_nested_run_of_an_older_file_names_the_run_around_it_if_that_is_stored(
    migrated: Path,
) -> None:
    nested = [row for row in Archive(migrated).rows(Query(), 20) if row.nested]
    around = {row.parent: row.parent_pipeline for row in nested}
    assert len(nested) == 3
    assert around.pop("1-1") in (None, "gone.sh|tee")  # written by versions since 3
    assert around == {"1700001000000-1000": "job.sh|tee"}


def test_the_input_of_a_run_of_an_older_file_is_what_its_first_stages_took_in(
    migrated: Path,
) -> None:
    history = History(migrated, host=Host(cores=2, l2_bytes=1 << 20))
    for row in history.runs(limit=20):
        run = history.run(row.id).run
        assert (row.input_bytes, row.input_exact) == (run.input_bytes, run.input_exact)


def test_the_inputs_of_an_older_file_are_added_up(migrated: Path) -> None:
    history = History(migrated, host=Host(cores=2, l2_bytes=1 << 20))
    known = [size for row in history.runs(limit=20) if (size := row.input_bytes) is not None]
    sums = [one.sums for one in history.pipelines().listed]
    assert sum(one.input_runs for one in sums) == len(known) > 0
    assert sum(one.input_bytes for one in sums) == sum(known)


def test_how_the_runs_of_an_older_file_ended_is_not_known(migrated: Path) -> None:
    """Those that were stored, and those that were only counted."""
    history = History(migrated, host=Host(cores=2, l2_bytes=1 << 20))
    assert {run.result for run in (history.run(row.id).run for row in history.runs(limit=20))} == {
        "unknown"
    }
    sums = [one.sums for one in history.pipelines().listed]
    assert sum(one.runs for one in sums) == 14
    assert [(one.unknown, one.failed_share) for one in sums] == [(one.runs, None) for one in sums]


def test_each_run_of_an_older_file_can_be_shown(migrated: Path) -> None:
    history = History(migrated, host=Host(cores=2, l2_bytes=1 << 20))
    listed = history.runs(limit=20)
    assert len(listed) == 14
    for row in listed:
        run = history.run(row.id).run
        assert (run.pipeline, run.wall_seconds) == (row.pipeline, row.wall)
