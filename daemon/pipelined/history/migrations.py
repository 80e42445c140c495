# SPDX-License-Identifier: Apache-2.0
"""The schema of the history's file, as the steps that lead to it from each older version.

A step is SQL and, for what is in the bulk of a run, the functions at the end of this module. They
know the runs of their time, so they use no other code of the program.
"""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Sequence
from typing import Any

__all__ = ["MIGRATIONS", "migrate"]

#: Of a bottleneck: a share, the number of parallel stages, the process id of one of them.
_VARYING = re.compile(r" <?\d+ %(?: of one CPU)?$|^\d+ × | \(pid \d+, one of \d+\)(?=: )")

#: The statements that lead from each version of the schema to the next, and fill what is new with
#: what is stored; `PRAGMA user_version` is the number of those that a file has had. Files exist, so
#: none is ever edited: a column that is added to `Summary` comes with a new one. What is listed and
#: searched is in one table, the bulk, which is read for one run at a time, in another.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE runs (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        pipeline TEXT NOT NULL,
        nested INTEGER NOT NULL,
        unit TEXT NOT NULL,
        start REAL NOT NULL,
        end REAL NOT NULL,
        wall REAL NOT NULL,
        partial INTEGER NOT NULL,
        cores REAL NOT NULL,
        overlap REAL,
        cache TEXT,
        bottleneck TEXT NOT NULL,
        findings TEXT NOT NULL,
        commands TEXT NOT NULL
    );
    CREATE INDEX runs_by_end ON runs (end);
    CREATE TABLE details (key INTEGER PRIMARY KEY, run BLOB NOT NULL, timeline BLOB NOT NULL);
    """,
    """
    CREATE TABLE pipelines (
        key INTEGER PRIMARY KEY,
        pipeline TEXT NOT NULL,
        nested INTEGER NOT NULL,
        unit TEXT NOT NULL,
        stored INTEGER NOT NULL DEFAULT 0,
        wall REAL NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL DEFAULT 0,
        hours INTEGER NOT NULL DEFAULT 0,
        UNIQUE (pipeline, nested, unit)
    );
    CREATE INDEX pipelines_by_crowding
        ON pipelines (stored * stored * stored / max(wall, 0.000001)) WHERE stored > 2;
    CREATE INDEX pipelines_unused ON pipelines (key) WHERE stored = 0 AND hours = 0;
    CREATE TABLE runs_of_pipelines (
        pipeline INTEGER NOT NULL,
        end REAL NOT NULL,
        run INTEGER NOT NULL,
        wall REAL NOT NULL,
        bytes INTEGER NOT NULL,
        PRIMARY KEY (pipeline, end, run)
    ) WITHOUT ROWID;
    CREATE INDEX runs_by_wall ON runs_of_pipelines (wall);
    CREATE TABLE rollup (
        hour INTEGER NOT NULL,
        pipeline INTEGER NOT NULL,
        runs INTEGER NOT NULL,
        wall REAL NOT NULL,
        cpu REAL NOT NULL,
        not_overlapped REAL NOT NULL,
        read_bytes INTEGER NOT NULL,
        written_bytes INTEGER NOT NULL,
        longest REAL NOT NULL,
        examined INTEGER NOT NULL,
        duration0 INTEGER NOT NULL,
        duration1 INTEGER NOT NULL,
        duration2 INTEGER NOT NULL,
        duration3 INTEGER NOT NULL,
        duration4 INTEGER NOT NULL,
        duration5 INTEGER NOT NULL,
        duration6 INTEGER NOT NULL,
        duration7 INTEGER NOT NULL,
        duration8 INTEGER NOT NULL,
        duration9 INTEGER NOT NULL,
        duration10 INTEGER NOT NULL,
        duration11 INTEGER NOT NULL,
        duration12 INTEGER NOT NULL,
        duration13 INTEGER NOT NULL,
        duration14 INTEGER NOT NULL,
        duration15 INTEGER NOT NULL,
        PRIMARY KEY (hour, pipeline)
    ) WITHOUT ROWID;
    CREATE TABLE rollup_findings (
        hour INTEGER NOT NULL,
        pipeline INTEGER NOT NULL,
        finding TEXT NOT NULL,
        runs INTEGER NOT NULL,
        PRIMARY KEY (hour, pipeline, finding)
    ) WITHOUT ROWID;
    INSERT INTO pipelines (pipeline, nested, unit, stored, wall, bytes)
        SELECT pipeline, nested, unit, count(*), sum(wall),
            sum(length(run) + length(timeline) + 650)
        FROM runs JOIN details USING (key) GROUP BY pipeline, nested, unit ORDER BY min(end);
    INSERT INTO runs_of_pipelines
        SELECT p.key, end, runs.key, runs.wall, length(run) + length(timeline) + 650
        FROM runs JOIN details USING (key) JOIN pipelines AS p USING (pipeline, nested, unit);
    WITH bulk AS MATERIALIZED (SELECT key AS run, stored_figures(run) AS figures FROM details)
    INSERT INTO rollup
        SELECT CAST(r.end / 3600 AS INTEGER), r.pipeline, count(*), sum(r.wall),
            sum(coalesce(json_extract(figures, '$[0]'), cores * r.wall)),
            sum(coalesce(json_extract(figures, '$[1]'), 0.0)),
            sum(coalesce(json_extract(figures, '$[2]'), 0)),
            sum(coalesce(json_extract(figures, '$[3]'), 0)),
            max(r.wall), count(*),
            sum(r.wall <= 0.001),
            sum(r.wall > 0.001 AND r.wall <= 0.004),
            sum(r.wall > 0.004 AND r.wall <= 0.016),
            sum(r.wall > 0.016 AND r.wall <= 0.064),
            sum(r.wall > 0.064 AND r.wall <= 0.256),
            sum(r.wall > 0.256 AND r.wall <= 1.024),
            sum(r.wall > 1.024 AND r.wall <= 4.096),
            sum(r.wall > 4.096 AND r.wall <= 16.384),
            sum(r.wall > 16.384 AND r.wall <= 65.536),
            sum(r.wall > 65.536 AND r.wall <= 262.144),
            sum(r.wall > 262.144 AND r.wall <= 1048.576),
            sum(r.wall > 1048.576 AND r.wall <= 4194.304),
            sum(r.wall > 4194.304 AND r.wall <= 16777.216),
            sum(r.wall > 16777.216 AND r.wall <= 67108.864),
            sum(r.wall > 67108.864 AND r.wall <= 268435.456),
            sum(r.wall > 268435.456)
        FROM runs_of_pipelines AS r JOIN runs ON runs.key = r.run JOIN bulk USING (run)
        GROUP BY 1, 2;
    INSERT INTO rollup_findings
        SELECT CAST(r.end / 3600 AS INTEGER), r.pipeline, finding.value, count(*)
        FROM runs_of_pipelines AS r JOIN runs ON runs.key = r.run, json_each(findings) AS finding
        GROUP BY 1, 2, 3;
    UPDATE pipelines SET hours = (SELECT count(*) FROM rollup WHERE pipeline = pipelines.key)
    """,
    """
    ALTER TABLE runs ADD COLUMN parent TEXT;
    ALTER TABLE runs ADD COLUMN parent_pipeline TEXT;
    UPDATE runs SET parent = (SELECT stored_parent(run) FROM details WHERE key = runs.key)
        WHERE nested;
    UPDATE runs SET parent_pipeline =
        (SELECT pipeline FROM runs AS outer_run WHERE outer_run.id = runs.parent) WHERE nested
    """,
    """
    ALTER TABLE runs ADD COLUMN read_bytes INTEGER;
    ALTER TABLE runs ADD COLUMN usual REAL;
    ALTER TABLE runs ADD COLUMN slower INTEGER;
    CREATE INDEX runs_listed ON runs (id, start, wall, nested, slower);
    ALTER TABLE runs_of_pipelines ADD COLUMN cache TEXT;
    ALTER TABLE runs_of_pipelines ADD COLUMN read_bytes INTEGER;
    ALTER TABLE rollup_findings ADD COLUMN seconds REAL NOT NULL DEFAULT 0;
    CREATE TABLE rollup_bottlenecks (
        hour INTEGER NOT NULL,
        pipeline INTEGER NOT NULL,
        bottleneck TEXT NOT NULL,
        wall REAL NOT NULL,
        PRIMARY KEY (hour, pipeline, bottleneck)
    ) WITHOUT ROWID;
    UPDATE runs SET read_bytes =
        (SELECT json_extract(stored_figures(run), '$[2]') FROM details WHERE key = runs.key);
    UPDATE runs_of_pipelines SET (cache, read_bytes) =
        (SELECT cache, iif(partial, NULL, read_bytes) FROM runs WHERE key = run);
    INSERT INTO rollup_bottlenecks
        SELECT rollup.hour, rollup.pipeline, bottleneck_label(bottleneck), sum(runs.wall)
        FROM runs JOIN runs_of_pipelines AS r ON r.run = runs.key
        JOIN rollup ON rollup.hour = CAST(r.end / 3600 AS INTEGER) AND rollup.pipeline = r.pipeline
        GROUP BY 1, 2, 3
    """,
    """
    CREATE TABLE openings (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        form TEXT NOT NULL
    );
    INSERT INTO openings (id, first, last, form)
        SELECT lower(hex(randomblob(8))), 1, coalesce(max(key), 0), '' FROM runs;
    ALTER TABLE runs ADD COLUMN outcome TEXT NOT NULL DEFAULT 'unknown';
    ALTER TABLE runs ADD COLUMN failure TEXT NOT NULL DEFAULT '';
    ALTER TABLE rollup ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE rollup ADD COLUMN interrupted INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE rollup ADD COLUMN unknown INTEGER NOT NULL DEFAULT 0;
    UPDATE rollup SET unknown = runs;
    DROP INDEX runs_listed;
    CREATE INDEX runs_listed ON runs (id, start, wall, nested, slower, outcome);
    CREATE TABLE identities (key INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE);
    ALTER TABLE runs ADD COLUMN identity INTEGER;
    CREATE INDEX runs_of_identities ON runs (identity) WHERE identity IS NOT NULL
    """,
    """
    ALTER TABLE runs ADD COLUMN trace_id TEXT
    """,
    """
    ALTER TABLE runs ADD COLUMN input_bytes INTEGER;
    ALTER TABLE runs ADD COLUMN input_exact INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE runs ADD COLUMN usual_input REAL;
    ALTER TABLE runs ADD COLUMN usual_any_input REAL;
    ALTER TABLE runs_of_pipelines ADD COLUMN input_bytes INTEGER;
    WITH taken AS MATERIALIZED (SELECT key, stored_input(run) AS input FROM details)
    UPDATE runs SET input_bytes = json_extract(input, '$[0]'),
        input_exact = json_extract(input, '$[1]')
        FROM taken WHERE taken.key = runs.key AND input IS NOT NULL;
    UPDATE runs_of_pipelines SET input_bytes = (SELECT input_bytes FROM runs WHERE key = run)
        WHERE read_bytes IS NOT NULL
    """,
    """
    ALTER TABLE rollup ADD COLUMN input_bytes INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE rollup ADD COLUMN input_runs INTEGER NOT NULL DEFAULT 0;
    WITH taken AS MATERIALIZED (
        SELECT CAST(r.end / 3600 AS INTEGER) AS hour, r.pipeline AS pipeline,
            sum(runs.input_bytes) AS bytes, count(*) AS runs
        FROM runs JOIN runs_of_pipelines AS r ON r.run = runs.key
        WHERE runs.input_bytes IS NOT NULL GROUP BY 1, 2
    )
    UPDATE rollup SET input_bytes = taken.bytes, input_runs = taken.runs
        FROM taken WHERE taken.hour = rollup.hour AND taken.pipeline = rollup.pipeline
    """,
)


def migrate(connection: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring a file up to date. It must not be of a newer version.

    In one transaction: no reader sees a file between two versions.
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == len(migrations):
        return
    for function in (stored_figures, stored_parent, bottleneck_label, stored_input):
        connection.create_function(function.__name__, 1, function, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    for migration in migrations[version:]:
        for statement in migration.split(";"):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(migrations)}")
    connection.execute("COMMIT")


def stored_figures(run: bytes) -> str | None:
    """Of the bulk of versions 1 to 3, what the roll-up counts; None if it cannot be read.

    A list in JSON: CPU seconds, seconds with at most one stage on CPU, bytes read and written.
    """
    try:
        described = _unpacked(run)
        levels, stages = described["level_seconds"], described["stages"]
        return json.dumps(
            [
                described["cpu_seconds"],
                levels["0"] + levels["1"],
                sum(stage["read_bytes"] for stage in stages),
                sum(stage["written_bytes"] for stage in stages),
            ]
        )
    except (KeyError, TypeError, ValueError, zlib.error):
        return None


def stored_parent(run: bytes) -> str | None:
    """Of the bulk of versions 1 and 2, the id of the run around it; None if it is not known."""
    try:
        parent = _unpacked(run)["parent"]
    except (KeyError, TypeError, ValueError, zlib.error):
        return None
    return parent if isinstance(parent, str) else None


def bottleneck_label(bottleneck: str) -> str:
    """The bottleneck of a row of versions 1 to 3, without what differs from run to run."""
    return _VARYING.sub("", bottleneck)


def stored_input(run: bytes) -> str | None:
    """Of the bulk of versions 1 to 6, what the first stages took in; None if it cannot be read.

    A list in JSON: bytes, or null if they are not known, and whether they are no bound.
    """
    try:
        described = _unpacked(run)
        fed = {edge["reader"] for edge in described["edges"]}
        first = [stage for at, stage in enumerate(described["stages"]) if at not in fed]
        taken, exact = [], True
        for stage in first:
            # the oldest did not count pipes apart
            pipes = stage.get("pipe_bytes", {"in": stage["read_bytes"], "exact": False})
            through = pipes["in"]
            taken.append(stage["file_bytes"]["read"] if through is None else through)
            exact = exact and (pipes["exact"] or not through)
        return json.dumps([None if None in taken or not taken else sum(taken), exact])
    except (KeyError, TypeError, ValueError, zlib.error):
        return None


def _unpacked(bulk: bytes) -> Any:
    return json.loads(zlib.decompress(bulk))
