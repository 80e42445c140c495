# SPDX-License-Identifier: Apache-2.0
"""What is read from the history's file, whether a daemon writes it or not."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipelined.errors import NotPermittedError, UserError, why
from pipelined.history.database import BUSY_TIMEOUT, COLUMN_LIST, FILE_NAME, Row, is_damage
from pipelined.history.migrations import MIGRATIONS
from pipelined.history.rollup import HOUR, Counted, Sums
from pipelined.history.tables import SUMMED
from pipelined.runs import Series

__all__ = ["Archive", "NoHistoryError", "Period", "Query"]


@dataclass(frozen=True, slots=True)
class Query:
    """Which runs to list: those that match every field that is given."""

    pipeline: str | None = None
    """Exactly this signature."""
    unit: str | None = None
    finding: str | None = None
    """Id of one of its findings."""
    command: str | None = None
    """Command name of one of its stages."""
    since: float | None = None
    """Started then or later (Unix time)."""
    until: float | None = None
    """Started before."""
    before: str | None = None
    """Listed after the run with this id, which may be gone."""


@dataclass(frozen=True, slots=True)
class Period:
    """Which rows of the roll-up to read: whole hours, of the pipelines that match."""

    since: int | None = None
    """Runs that ended in this hour or later (hours since 1970)."""
    until: int | None = None
    """Runs that ended in an hour before this one."""
    pipeline: str | None = None
    unit: str | None = None


_SUMS = ", ".join(f"{'max' if name == 'longest' else 'sum'}({name})" for name in SUMMED)


class NoHistoryError(UserError):
    """There is no file to read, or it is not made yet."""


class Archive:
    """The file, for readers. Every method raises UserError if it cannot be read."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def check(self) -> None:
        """Find out whether it can be read. Raises NotPermittedError if this user may not."""
        self._read("SELECT 1", ())

    def rows(self, query: Query, limit: int) -> list[Row]:
        """The runs that match, newest start first."""
        where, values = _matching(
            {
                "pipeline = ?": query.pipeline,
                "unit = ?": query.unit,
                "EXISTS (SELECT 1 FROM json_each(findings) WHERE value = ?)": query.finding,
                "EXISTS (SELECT 1 FROM json_each(commands) WHERE value = ?)": query.command,
                "start >= ?": query.since,
                "start < ?": query.until,
                # Ids begin with the start, so they are in its order.
                "id < ?": query.before,
            }
        )
        rows = self._read(
            f"SELECT {COLUMN_LIST} FROM runs WHERE {where} ORDER BY id DESC LIMIT ?",
            (*values, limit),
        )
        return [Row.read(cells) for cells in rows]

    def rollup(self, period: Period) -> list[Counted]:
        """Sums over the runs of each pipeline that ended in the period; most wall time first."""
        where, values = _of(period)
        rows = self._read(
            "SELECT p.key, p.pipeline, nested, unit, sums.* FROM"
            f" (SELECT {_SUMS}, pipeline AS key FROM rollup WHERE {where} GROUP BY key) AS sums"
            " JOIN pipelines AS p USING (key)",
            values,
        )
        found = {
            key: Counted(Series(pipeline, bool(nested), unit), Sums.read(cells))
            for key, pipeline, nested, unit, *cells, _ in rows
        }
        findings = self._read(
            "SELECT pipeline, finding, sum(runs) FROM rollup_findings"
            f" WHERE {where} GROUP BY pipeline, finding",
            values,
        )
        for key, finding, runs in findings:
            if key in found:  # the second statement may see a later state of the file
                found[key].sums.findings[finding] = runs
        return sorted(found.values(), key=lambda row: -row.sums.wall)

    def totals(self, period: Period) -> tuple[Sums, Sums]:
        """Sums over all top-level runs that ended in the period, and over all nested ones.

        Findings are left out.
        """
        where, values = _of(period)
        rows = self._read(
            f"SELECT (SELECT nested FROM pipelines WHERE key = rollup.pipeline) AS inside, {_SUMS}"
            f" FROM rollup WHERE {where} GROUP BY inside",
            values,
        )
        found = {inside: Sums.read(cells) for inside, *cells in rows}
        return found.get(0, Sums()), found.get(1, Sums())

    def most_frequent(self, period: Period) -> str | None:
        """Signature of the top-level pipeline with most runs in the period; None: there is none."""
        where, values = _of(period)
        rows = self._read(
            "SELECT p.pipeline FROM"
            f" (SELECT pipeline AS key, sum(runs) AS runs FROM rollup WHERE {where} GROUP BY key)"
            " AS ran JOIN pipelines AS p USING (key)"
            " WHERE NOT nested ORDER BY ran.runs DESC LIMIT 1",
            values,
        )
        return str(rows[0][0]) if rows else None

    def stored(self, period: Period) -> tuple[int, int]:
        """How many runs that ended in the period are stored singly: top-level ones, nested ones."""
        where, values = _matching(
            {
                "r.end >= ?": None if period.since is None else period.since * HOUR,
                "r.end < ?": None if period.until is None else period.until * HOUR,
                "p.pipeline = ?": period.pipeline,
                "p.unit = ?": period.unit,
            }
        )
        counts = self._read(
            "SELECT p.nested, count(*) FROM pipelines AS p JOIN runs_of_pipelines AS r"
            f" ON r.pipeline = p.key WHERE {where} GROUP BY p.nested",
            values,
        )
        found = dict(counts)
        return int(found.get(0, 0)), int(found.get(1, 0))

    def last(self) -> str | None:
        """Id of the run that ended last; None if there is no run."""
        rows = self._read("SELECT id FROM runs ORDER BY end DESC LIMIT 1", ())
        return str(rows[0][0]) if rows else None

    def ids(self, prefix: str, limit: int) -> list[str]:
        """Ids that begin with `prefix`, in order: one that equals it comes first."""
        rows = self._read(
            "SELECT id FROM runs WHERE id >= ? AND substr(id, 1, ?) = ? ORDER BY id LIMIT ?",
            (prefix, len(prefix), prefix, limit),
        )
        return [str(row[0]) for row in rows]

    def details(self, run_id: str) -> tuple[bytes, bytes] | None:
        """`Details.run` and `Details.timeline` of the run; None if it is not stored."""
        rows = self._read(
            "SELECT run, timeline FROM details JOIN runs USING (key) WHERE id = ?", (run_id,)
        )
        return (bytes(rows[0][0]), bytes(rows[0][1])) if rows else None

    def _read(self, statement: str, values: Sequence[object]) -> Sequence[tuple[Any, ...]]:
        try:
            with contextlib.closing(self._open()) as connection:
                return connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise UserError(
                f"cannot read {self._path}: {error}",
                "the daemon sets a damaged file aside when it starts" if is_damage(error) else "",
            ) from None

    def _open(self) -> sqlite3.Connection:
        try:
            os.close(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            raise self._no_history() from None
        except PermissionError as error:
            raise NotPermittedError(
                f"cannot read {self._path}: {why(error)}", "run it as root"
            ) from None
        except OSError as error:
            raise UserError(f"cannot read {self._path}: {why(error)}") from None
        uri = f"file:{quote(str(self._path.absolute()))}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None)
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.OperationalError:
            connection.close()
            # A reader that may not write here cannot make the index that all users of a log share.
            # Without a log there is no writer, and the file is complete without one.
            if os.path.exists(f"{self._path}-wal"):
                raise
            connection = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != len(MIGRATIONS):
            connection.close()
            if not version:  # the daemon is just making it
                raise self._no_history()
            age = "a newer" if version > len(MIGRATIONS) else "an older"
            raise UserError(
                f"{self._path} is of {age} version of pipelined",
                "use the version of the daemon that writes it",
            )
        return connection

    def _no_history(self) -> NoHistoryError:
        return NoHistoryError(
            f"there is no history in {self._path.parent}",
            "pipelined serve makes one; --state-directory names its directory",
        )


def _of(period: Period) -> tuple[str, list[Any]]:
    """The same for rows of the roll-up."""
    return _matching(
        {
            "hour >= ?": period.since,
            "hour < ?": period.until,
            "pipeline IN (SELECT key FROM pipelines WHERE pipeline = ?)": period.pipeline,
            "pipeline IN (SELECT key FROM pipelines WHERE unit = ?)": period.unit,
        }
    )


def _matching(conditions: Mapping[str, object]) -> tuple[str, list[object]]:
    """A condition in SQL that has all of those whose value is given, and these values."""
    given = {test: value for test, value in conditions.items() if value is not None}
    return " AND ".join(given) or "1", list(given.values())
