# SPDX-License-Identifier: Apache-2.0
"""The schema of the history's file, as the steps that lead to it from each older version."""

from __future__ import annotations

__all__ = ["MIGRATIONS", "ROLLED_UP", "WITH_PARENTS", "WITH_USUAL"]

#: The statements that lead from each version of the schema to the next; `PRAGMA user_version` is
#: the number of those that a file has had. Files exist, so none is ever edited: a column that is
#: added to `Row` comes into the table by a new one. What is listed and searched is in one table,
#: the bulk, which is read for one run at a time, in another.
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
    """,
    """
    ALTER TABLE runs ADD COLUMN parent TEXT;
    ALTER TABLE runs ADD COLUMN parent_pipeline TEXT
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
    ) WITHOUT ROWID
    """,
)

#: The version since which every stored run is in the tables that the second step makes: `Store`
#: enters those that are in the file by then.
ROLLED_UP = 2

#: The version since which a nested run's row names the run that encloses it: `Store` fills the
#: columns of those that are in the file by then.
WITH_PARENTS = 3

#: The version since which runs are compared with earlier ones, and the roll-up counts bottlenecks:
#: `Store` enters those of the runs that are in the file by then.
WITH_USUAL = 4
