# SPDX-License-Identifier: Apache-2.0
"""What is read from the history's file, whether a daemon writes it or not."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from pipelined.errors import NotPermittedError, UserError, why
from pipelined.history.conditions import (
    Period,
    all_of,
    begin_of,
    counted_in,
    searched_for,
    stored_in,
)
from pipelined.history.files import FILE_NAME, LOG, refusal
from pipelined.history.migrations import MIGRATIONS
from pipelined.history.opening import BUSY_TIMEOUT, is_damage, primary_code
from pipelined.history.rollup import COUNTED, HOUR, Counted, Sums
from pipelined.history.rows import SELECTED, SUMMED, Summary, merged
from pipelined.history.run_order import AHEAD, order, stretches
from pipelined.history.run_query import IDENTIFIED, Query, searched, sort_of
from pipelined.history.searched_identity import has_identity
from pipelined.model.ledger import OTHER
from pipelined.runs import Series

__all__ = ["Archive", "NoHistoryError"]


#: What pipelines are sorted by; `slower` is by their last runs.
_ORDERS = {
    "wall": "sums.wall DESC",
    "cpu": "sums.cpu DESC",
    "not-overlapped": "sums.not_overlapped DESC",
    "runs": "sums.runs DESC",
    "failures": "sums.failed DESC, sums.wall DESC",
}


#: A run is read only if what the index has of it matches: it is a tenth of the size.
_LISTED = "runs INDEXED BY runs_listed"
#: What SQLite reports if it cannot make the index of a log, which a reader needs too.
_NO_INDEX = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


class NoHistoryError(UserError):
    """There is no file to read, or it is not made yet."""


class Archive:
    """The file, for readers. Every method raises UserError if it cannot be read."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def check(self) -> None:
        """Find out whether it can be read. Raises NotPermittedError if this user may not."""
        self._read("SELECT 1", ())

    def rows(self, query: Query, limit: int) -> list[Summary]:
        """The runs that match, in the order that is asked for; `run_order.stretches` has which runs
        come last."""
        sort = sort_of(query)
        (where, values), terms = searched(query), order(sort)
        rows: list[Summary] = []
        for within, places in stretches(query.get("before"), sort, time.time()):
            if len(rows) == limit:
                break
            # whole rows of the chosen runs alone: by `wall` all of the index is read
            found = self._read(
                f"SELECT {SELECTED} FROM runs WHERE key IN (SELECT key FROM {_LISTED}"
                f" WHERE {where} AND {within} ORDER BY {terms} LIMIT ?) ORDER BY {terms}",
                (*values, *places, limit - len(rows)),
            )
            rows += (Summary.read(cells) for cells in found)
        return rows

    def hidden(self, query: Query, most: int) -> int:
        """How many runs do not match only because they are too short, or nested.

        At most `most` are counted.
        """
        hiding, rest = Query(), query.copy()
        if "min_duration" in query:
            hiding["min_duration"] = rest.pop("min_duration")
        if "top_level" in query:
            hiding["top_level"] = rest.pop("top_level")
        (where, values), (shown, limits) = searched(rest), searched(hiding)
        rows = self._read(
            f"SELECT count(*) FROM (SELECT 1 FROM {_LISTED} WHERE {where} AND NOT ({shown})"
            " LIMIT ?)",
            (*values, *limits, most),
        )
        return int(rows[0][0])

    def rollup(self, period: Period) -> list[Counted]:
        """Sums over the runs of each pipeline that ended in the period; most wall time first."""
        where, values = counted_in(period)
        found = self._counted(SUMMED, where, "", values)
        for key, findings in self.findings(period).items():
            if key in found:  # the second statement may see a later state of the file
                counts = {finding: runs for finding, (runs, _) in findings.items()}
                found[key].sums.findings.update(counts)
        return sorted(found.values(), key=lambda row: -row.sums.wall)

    def highest(
        self, period: Period, search: str | None, sort: str, limit: int
    ) -> dict[int, Counted]:
        """Sums over the runs of the first `limit` pipelines by `sort`, by key and in that order.

        Without findings and durations. `sort` is one of `pipeline_query.SORTS`; `search` is a part
        of the name or of the unit. Whatever is left out takes no memory.
        """
        of_last, spans = stored_in(period)
        ratio = (
            "(SELECT wall / usual FROM runs WHERE key = (SELECT run FROM runs_of_pipelines"
            f" WHERE pipeline = p.key AND {of_last} ORDER BY end DESC, run DESC LIMIT 1))"
        )
        orders = {**_ORDERS, "slower": f"{ratio} DESC NULLS LAST, sums.wall DESC"}
        where, values = counted_in(period)
        named, texts = searched_for(search)
        return self._counted(
            COUNTED,  # without durations: half of the work, over a long time
            where,
            f"WHERE {named} ORDER BY {orders[sort]}, p.key LIMIT ?",
            (*values, *texts, *(spans if sort == "slower" else ()), limit),
        )

    def matching(self, period: Period, search: str | None) -> int:
        """How many pipelines `highest` would find without a limit."""
        where, values = counted_in(period)
        named, texts = searched_for(search)
        rows = self._read(
            f"SELECT count(*) FROM (SELECT DISTINCT pipeline AS key FROM rollup WHERE {where})"
            f" JOIN pipelines AS p USING (key) WHERE {named}",
            (*values, *texts),
        )
        return int(rows[0][0])

    def jobs(
        self, period: Period, search: str | None, sort: str, limit: int
    ) -> list[tuple[str, int, str, float, Sums]]:
        """The first `limit` units of the period: name, pipelines, the one with the most wall time
        and its seconds, and the sums over the runs that lie in no other.

        `sort` is one of `pipeline_query.JOB_SORTS`; `search` is a part of the name of one of the
        pipelines or of the unit. Findings and durations are left out. What was merged, of whatever
        unit, is the unit `OTHER`.
        """
        where, values = counted_in(period)
        named, texts = searched_for(search)
        rows = self._read(
            f"WITH counted AS (SELECT pipeline AS key, {merged(COUNTED)}"
            f" FROM rollup WHERE {where} GROUP BY key),"
            " ran AS MATERIALIZED (SELECT unit, p.pipeline AS name, counted.*,"
            " row_number() OVER (PARTITION BY unit ORDER BY counted.wall DESC, p.key) AS place"
            " FROM counted JOIN (SELECT key, pipeline, nested,"
            f" iif(pipeline = '{OTHER}', pipeline, unit) AS unit FROM pipelines) AS p USING (key)"
            f" WHERE NOT nested AND {named})"
            " SELECT unit, sums.pipelines, ran.name, ran.wall, sums.* FROM (SELECT unit,"
            f" count(*) AS pipelines, {merged(COUNTED)} FROM ran GROUP BY unit) AS sums"
            f" JOIN ran USING (unit) WHERE ran.place = 1 ORDER BY {_ORDERS[sort]}, unit LIMIT ?",
            (*values, *texts, limit),
        )
        return [
            (unit, pipelines, name, wall, Sums.read(cells))
            for unit, pipelines, name, wall, _, _, *cells in rows
        ]

    def _counted(
        self, columns: Iterable[str], where: str, rest: str, values: Sequence[object]
    ) -> dict[int, Counted]:
        rows = self._read(
            "SELECT p.key, p.pipeline, nested, unit, sums.*"
            f" FROM (SELECT pipeline AS key, {merged(columns)}"
            f" FROM rollup WHERE {where} GROUP BY key) AS sums"
            f" JOIN pipelines AS p USING (key) {rest}",
            values,
        )
        return {
            key: Counted(
                Series(pipeline=pipeline, nested=bool(nested), unit=unit), Sums.read(cells)
            )
            for key, pipeline, nested, unit, _, *cells in rows
        }

    def sums(self, period: Period, keys: Iterable[int]) -> dict[int, Sums]:
        """Sums over the runs of these pipelines, with durations and without findings."""
        where, values = counted_in(period, keys)
        rows = self._read(
            f"SELECT pipeline, {merged()} FROM rollup WHERE {where} GROUP BY pipeline", values
        )
        return {key: Sums.read(cells) for key, *cells in rows}

    def hours(self) -> tuple[int, int] | None:
        """The first and the last hour in which a run ended that is counted; None: there is none."""
        first = self._read("SELECT hour FROM rollup ORDER BY hour LIMIT 1", ())
        last = self._read("SELECT hour FROM rollup ORDER BY hour DESC LIMIT 1", ())
        return (int(first[0][0]), int(last[0][0])) if first and last else None

    def bars(
        self, period: Period, keys: Iterable[int], first: int, step: int
    ) -> dict[int, dict[int, tuple[int, float]]]:
        """Runs and their wall seconds, by pipeline and by spans of `step` hours from `first` on."""
        where, values = counted_in(period, keys)
        rows = self._read(
            "SELECT pipeline, (hour - ?) / ? AS bar, sum(runs), sum(wall)"
            f" FROM rollup WHERE {where} GROUP BY pipeline, bar",
            (first, step, *values),
        )
        found: dict[int, dict[int, tuple[int, float]]] = {}
        for key, bar, runs, wall in rows:
            found.setdefault(key, {})[bar] = (runs, wall)
        return found

    def bottlenecks(self, period: Period, keys: Iterable[int]) -> dict[int, dict[str, float]]:
        """Wall seconds of examined runs by what held them back, by pipeline."""
        where, values = counted_in(period, keys)
        rows = self._read(
            "SELECT pipeline, bottleneck, sum(wall) FROM rollup_bottlenecks"
            f" WHERE {where} GROUP BY pipeline, bottleneck",
            values,
        )
        found: dict[int, dict[str, float]] = {}
        for key, bottleneck, wall in rows:
            found.setdefault(key, {})[bottleneck] = wall
        return found

    def findings(
        self, period: Period, keys: Iterable[int] | None = None
    ) -> dict[int, dict[str, tuple[int, float]]]:
        """Examined runs with a finding, and what it is expected to save, by pipeline and its id.

        With `keys`, only of these pipelines.
        """
        where, values = counted_in(period, keys)
        rows = self._read(
            "SELECT pipeline, finding, sum(runs), sum(seconds) FROM rollup_findings"
            f" WHERE {where} GROUP BY pipeline, finding",
            values,
        )
        found: dict[int, dict[str, tuple[int, float]]] = {}
        for key, finding, runs, seconds in rows:
            found.setdefault(key, {})[finding] = (runs, seconds)
        return found

    def percentiles(
        self, period: Period, keys: Iterable[int], shares: Sequence[float]
    ) -> dict[int, tuple[int, list[float]]]:
        """How many runs of each pipeline are stored that ended in the period, in hours in which it
        has sums of its own; without any: absent.

        And the wall seconds that each of these shares of them did not exceed.
        """
        where, values = stored_in(period)
        hour = f"CAST(end / {HOUR} AS INTEGER)"
        found = {}
        with self._reading() as connection:
            for key in keys:  # one after the other: all of them would be megabytes
                rows = connection.execute(
                    "SELECT wall FROM runs_of_pipelines"
                    f" WHERE pipeline = ? AND {where}"
                    f" AND ({hour}, pipeline) IN (SELECT hour, pipeline FROM rollup)",
                    (key, *values),
                )
                if walls := sorted(wall for (wall,) in rows):
                    ranks = [max(1, math.ceil(share * len(walls))) for share in shares]
                    found[key] = (len(walls), [walls[rank - 1] for rank in ranks])
        return found

    def inputs(
        self, period: Period, keys: Iterable[int], most: int
    ) -> dict[int, tuple[float, float]]:
        """Half of the runs had no larger input (bytes), and their bytes of input per second.

        Of the last `most` stored runs of each pipeline that are compared and whose input is known;
        without any: absent.
        """
        where, values = stored_in(period)
        found = {}
        with self._reading() as connection:
            for key in keys:
                rows = connection.execute(
                    "SELECT input_bytes, wall FROM runs_of_pipelines WHERE pipeline = ?"
                    f" AND {where} AND input_bytes IS NOT NULL ORDER BY end DESC LIMIT ?",
                    (key, *values, most),
                ).fetchall()
                sizes, walls = zip(*rows, strict=True) if rows else ((), ())
                if wall := sum(walls):
                    found[key] = (median(sizes), sum(sizes) / wall)
        return found

    def last_runs(self, period: Period, keys: Iterable[int]) -> dict[int, Summary]:
        """The stored run of each pipeline that ended last in the period."""
        where, values = stored_in(period)
        rows = self._read(
            f"SELECT last.pipeline, {SELECTED} FROM"
            " (SELECT value AS pipeline, (SELECT run FROM runs_of_pipelines"
            f" WHERE pipeline = value AND {where} ORDER BY end DESC, run DESC LIMIT 1) AS run"
            " FROM json_each(?)) AS last JOIN runs ON runs.key = last.run",
            (*values, json.dumps(list(keys))),
        )
        return {key: Summary.read(cells) for key, *cells in rows}

    def totals(self, period: Period) -> tuple[Sums, Sums]:
        """Sums over all top-level runs that ended in the period, and over all nested ones.

        Findings are left out.
        """
        where, values = counted_in(period)
        rows = self._read(
            "SELECT (SELECT nested FROM pipelines WHERE key = rollup.pipeline) AS inside,"
            f" {merged()} FROM rollup WHERE {where} GROUP BY inside",
            values,
        )
        found = {inside: Sums.read(cells) for inside, *cells in rows}
        return found.get(0, Sums()), found.get(1, Sums())

    def most_frequent(self, period: Period) -> str | None:
        """Signature of the top-level pipeline with most runs in the period; None: there is none.

        What was merged is of many pipelines, and is none.
        """
        where, values = counted_in(period)
        rows = self._read(
            "SELECT p.pipeline FROM"
            f" (SELECT pipeline AS key, sum(runs) AS runs FROM rollup WHERE {where} GROUP BY key)"
            " AS ran JOIN pipelines AS p USING (key)"
            " WHERE NOT nested AND p.pipeline <> ? ORDER BY ran.runs DESC LIMIT 1",
            (*values, OTHER),
        )
        return str(rows[0][0]) if rows else None

    def stored(self, period: Period) -> tuple[int, int]:
        """How many runs that ended in the period are stored singly: top-level ones, nested ones."""
        where, values = all_of(
            {
                "r.end >= ?": begin_of(period.since),
                "r.end < ?": begin_of(period.until),
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

    def last(self, identity: str | None = None) -> str | None:
        """Id of the run that ended last, of those that are identified so; None if there is none.

        One that is later than now only if there is no other.
        """
        where, values = (f"{IDENTIFIED} AND ", (identity,)) if identity else ("", ())
        for latest in (time.time() + AHEAD, math.inf):
            rows = self._read(
                f"SELECT id FROM runs WHERE {where}end <= ? ORDER BY end DESC LIMIT 1",
                (*values, latest),
            )
            if rows:
                return str(rows[0][0])
        return None

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

    def row(self, run_id: str) -> Summary | None:
        """The row of the run in the list; None if it is not stored."""
        rows = self._read(f"SELECT {SELECTED} FROM runs WHERE id = ?", (run_id,))
        return Summary.read(rows[0]) if rows else None

    def _read(self, statement: str, values: Sequence[object]) -> Sequence[tuple[Any, ...]]:
        with self._reading() as connection:
            return connection.execute(statement, values).fetchall()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection, of which all statements see the file in the same state."""
        with self._reading() as connection:
            connection.execute("BEGIN")
            yield connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(self._open()) as connection:
                yield connection
        except sqlite3.Error as error:
            raise UserError(
                f"cannot read {self._path}: {error}",
                "restart the daemon, which sets a damaged file aside" if is_damage(error) else "",
            ) from None

    def _open(self) -> sqlite3.Connection:
        uri = f"file:{quote(os.fsencode(self._path.absolute()))}?mode=ro"
        connection = self._connected(uri)
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.OperationalError as error:
            connection.close()
            # A reader that may not write here cannot make the index that all users of a log share.
            # Without a log there is no writer, and the file is complete without one.
            if primary_code(error) not in _NO_INDEX or os.path.exists(f"{self._path}{LOG}"):
                raise
            connection = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != len(MIGRATIONS):
            connection.close()
            if not version:  # the daemon is just making it
                raise self._no_history()
            newer = version > len(MIGRATIONS)
            use = "use the version of the daemon that writes it"
            raise UserError(
                f"{self._path} is of {'a newer' if newer else 'an older'} version of pipelined",
                use if newer else f"a daemon after its upgrade is about to convert it; else {use}",
            )
        connection.create_function("has_identity", 2, has_identity, deterministic=True)
        return connection

    def _connected(self, uri: str) -> sqlite3.Connection:
        def connect() -> sqlite3.Connection:
            return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None)

        try:
            return connect()
        except sqlite3.OperationalError:  # which does not say why
            match refusal(self._path, os.R_OK):
                case None:
                    return connect()  # it was made in this moment
                case FileNotFoundError():
                    raise self._no_history() from None
                case PermissionError() as error:
                    raise NotPermittedError(
                        f"cannot read {self._path}: {why(error)}", "run it as root"
                    ) from None
                case error:
                    raise UserError(f"cannot read {self._path}: {why(error)}") from None

    def _no_history(self) -> NoHistoryError:
        return NoHistoryError(
            f"there is no history in {self._path.parent}",
            "pipelined serve makes one; --state-directory names its directory",
        )
