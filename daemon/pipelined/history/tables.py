# SPDX-License-Identifier: Apache-2.0
"""The tables that decide what is kept: the pipelines, which runs of each are stored, the roll-up.

`Ranking` chooses the stored runs that make room for others. `Rollup` writes the sums of every
run, within a share of the file. Both work within the transaction of their caller.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pipelined.history.rollup import Sums, other
from pipelined.history.rows import SUMMED, grown, insertion, merged
from pipelined.history.usual import BYTES_FACTOR, COMPARED, LOOKED_THROUGH, like_input
from pipelined.model.ledger import OTHER
from pipelined.runs import Series

__all__ = ["ROLLUP_ROW_BYTES", "Pipelines", "Ranked", "Ranking", "Rollup"]

#: A pipeline that has to make room gives up 1/_PART of its stored runs at a time.
_PART = 20
#: How crowded a pipeline is, as its index has it: the square of what it has for its length, which
#: is the number of its runs by the square root of their mean wall time.
_CROWDING = "stored * stored * stored / max(wall, 0.000001)"
#: Pipelines that make room at a time, if they are about as crowded as the first.
_CROWDED = 8
#: Choices after which it is assessed anew whether there are too many pipelines.
_ASSESSED = 50
#: Of all stored runs the latest, one in `_LATEST`, make no room whatever they are.
_LATEST = 10
#: What a row of the roll-up takes in the file, with a finding and a bottleneck (bytes).
ROLLUP_ROW_BYTES = 155
#: What a pipeline's name takes, which is in the table and in its index (bytes, in SQL).
_NAME = "60 + 2 * (length(pipeline) + length(unit))"
#: An hour that has to make room gives up 1/_FOLDED of its rows at a time, at most _MOST_FOLDED.
_FOLDED, _MOST_FOLDED = 10, 500
_INSERT_SUMS = insertion("rollup", ("hour", "pipeline", *SUMMED))
_GROW = f"UPDATE rollup SET {grown()} WHERE hour = ? AND pipeline = ?"


class Ranked(NamedTuple):
    """A stored run, as it is ranked among the others."""

    pipeline: int
    """Key of its pipeline."""
    end: float
    run: int
    """Key of the run."""
    wall: float
    bytes: int
    """What it takes in the file, about."""


#: Its columns in `runs_of_pipelines`.
_RANKED = ", ".join(f"r.{name}" for name in Ranked._fields)
_INSERT_RANKED = insertion(
    "runs_of_pipelines", (*Ranked._fields, "cache", "read_bytes", "input_bytes")
)


class Pipelines:
    """The table of pipelines: a number for each, used in place of its name."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def key(self, series: Series) -> int:
        """The pipeline's number; it gets one if it has none."""
        name = (series.pipeline, series.nested, series.unit)
        found = self._execute(
            "SELECT key FROM pipelines WHERE pipeline = ? AND nested = ? AND unit = ?", name
        ).fetchone()
        if found:
            return int(found[0])
        made = self._execute(
            "INSERT INTO pipelines (pipeline, nested, unit) VALUES (?, ?, ?)", name
        )
        return int(made.lastrowid or 0)

    def forget(self) -> None:
        """Remove pipelines of which there is neither a stored run nor a row in the roll-up."""
        self._execute("DELETE FROM pipelines WHERE stored = 0 AND hours = 0")


class Ranking:
    """The stored runs of each pipeline."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._chosen = 0
        self._too_many = False

    def enter(
        self,
        run: Ranked,
        cache: str | None = None,
        read_bytes: int | None = None,
        input_bytes: int | None = None,
    ) -> None:
        """A run was stored. Without `read_bytes` others are not compared with it."""
        self._execute(
            _INSERT_RANKED,
            (*run, cache, read_bytes, input_bytes),
        )
        self._execute(
            "UPDATE pipelines SET stored = stored + 1, wall = wall + ?, bytes = bytes + ?"
            " WHERE key = ?",
            (run.wall, run.bytes, run.pipeline),
        )

    def comparable(
        self,
        pipeline: int,
        end: float,
        cache: str | None,
        read_bytes: int,
        input_bytes: int | None = None,
    ) -> list[float]:
        """Wall seconds of the last stored runs that ended before `end` and had the same to do."""
        rows = self._execute(
            "SELECT wall FROM (SELECT end, wall, cache, read_bytes, input_bytes"
            " FROM runs_of_pipelines WHERE pipeline = ? AND end < ? ORDER BY end DESC LIMIT ?)"
            " WHERE cache IS ? AND read_bytes BETWEEN ? AND ?"
            " AND ifnull(input_bytes BETWEEN ? AND ?, 1) ORDER BY end DESC LIMIT ?",
            (
                *(pipeline, end, LOOKED_THROUGH),
                *(cache, read_bytes / BYTES_FACTOR, read_bytes * BYTES_FACTOR),
                *like_input(input_bytes),
                COMPARED,
            ),
        )
        return [wall for (wall,) in rows]

    def inputs(self, pipeline: int, end: float) -> list[tuple[int, float]]:
        """Input and wall seconds of the last stored runs that ended before `end`, whatever they
        had to do: of those that are compared and whose input is known."""
        return self._execute(
            "SELECT input_bytes, wall FROM (SELECT end, wall, input_bytes FROM runs_of_pipelines"
            " WHERE pipeline = ? AND end < ? ORDER BY end DESC LIMIT ?)"
            " WHERE input_bytes IS NOT NULL ORDER BY end DESC LIMIT ?",
            (pipeline, end, LOOKED_THROUGH, COMPARED),
        ).fetchall()

    def leave(self, runs: Sequence[Ranked]) -> None:
        """These runs are removed."""
        gone: dict[int, tuple[int, float, int]] = {}
        for run in runs:
            stored, wall, size = gone.get(run.pipeline, (0, 0.0, 0))
            gone[run.pipeline] = (stored + 1, wall + run.wall, size + run.bytes)
        self._connection.executemany(
            "DELETE FROM runs_of_pipelines WHERE pipeline = ? AND end = ? AND run = ?",
            [run[:3] for run in runs],
        )
        self._connection.executemany(
            "UPDATE pipelines SET stored = stored - ?, wall = wall - ?, bytes = bytes - ?"
            " WHERE key = ?",
            [(*sums, pipeline) for pipeline, sums in gone.items()],
        )

    def ended_before(self, end: float, most: int) -> list[Ranked]:
        """Stored runs that ended before `end` (Unix time), `most` at most."""
        return self._ranked(
            f"SELECT {_RANKED} FROM runs JOIN pipelines AS p USING (pipeline, nested, unit)"
            " JOIN runs_of_pipelines AS r"
            " ON r.pipeline = p.key AND r.end = runs.end AND r.run = runs.key"
            " WHERE runs.end < ? LIMIT ?",
            end,
            most,
        )

    def least_worth(self, rows: int, most: int) -> list[Ranked]:
        """The runs, of `rows` stored ones, that make room first: at least one, about `most`.

        The pipelines that have most, for how long their runs take, give up some: of the older half
        of them the shortest. Each keeps its longest and its latest run. If there are too many
        pipelines for that, the shortest runs of all go.
        """
        if self._chosen % _ASSESSED == 0:
            self._too_many = self._too_many_pipelines()
        self._chosen += 1
        if not self._too_many and (found := self._of_crowded(most)):
            return found
        return self._ranked(
            f"SELECT {_RANKED} FROM runs_of_pipelines AS r WHERE end < (SELECT end FROM runs"
            " ORDER BY end DESC LIMIT 1 OFFSET ?) ORDER BY wall LIMIT ?",
            rows // _LATEST,
            most,
        ) or self._ranked(f"SELECT {_RANKED} FROM runs_of_pipelines AS r ORDER BY wall LIMIT ?", 1)

    def _too_many_pipelines(self) -> bool:
        """Whether the longest and the latest run of each take more than half of the room."""
        least, all_runs = self._execute(
            "SELECT total(1.0 * bytes * min(stored, 2) / stored), total(bytes)"
            " FROM pipelines WHERE stored > 0"
        ).fetchone()
        return bool(least > all_runs / 2)

    def _of_crowded(self, most: int) -> list[Ranked]:
        crowded = self._execute(
            f"SELECT key, stored, {_CROWDING} FROM pipelines WHERE stored > 2"
            f" ORDER BY {_CROWDING} DESC LIMIT ?",
            (_CROWDED,),
        ).fetchall()
        found: list[Ranked] = []
        for pipeline, stored, crowding in crowded:
            if crowding < crowded[0][2] / 2 or len(found) >= most:
                break
            older = stored - stored // 2
            found += self._ranked(
                f"SELECT {_RANKED} FROM (SELECT * FROM runs_of_pipelines WHERE pipeline = ?"
                " ORDER BY end, run LIMIT ?) AS r ORDER BY wall LIMIT ?",
                pipeline,
                older,
                max(1, min(most, stored // _PART, older - 1)),
            )
        return found

    def _ranked(self, statement: str, *values: float) -> list[Ranked]:
        return [Ranked(*cells) for cells in self._execute(statement, values)]


class Rollup:
    """The sums of every run, by hour and pipeline, in about `max_bytes` of the file."""

    def __init__(self, connection: sqlite3.Connection, max_bytes: float) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._pipelines = Pipelines(connection)
        self._max_bytes = max_bytes
        self._rows: dict[int, int] = {}
        self._names = 0.0
        self.load()

    def load(self) -> None:
        """Read again how much there is: after a transaction that was rolled back."""
        self._rows = dict(self._execute("SELECT hour, count(*) FROM rollup GROUP BY hour"))
        self._measure_names()

    def add(self, rows: Mapping[tuple[int, Series], Sums]) -> None:
        """Add sums, by hour and pipeline."""
        for (hour, series), sums in rows.items():
            key = self._pipelines.key(series)
            self._grow(hour, key, sums.cells)
            self._add_findings(hour, key, [(f, n, 0.0) for f, n in sums.findings.items()])

    def examine(
        self, hour: int, pipeline: int, nested: bool, findings: Iterable[tuple[str, float]]
    ) -> None:
        """Count the findings of a run that was counted before, each with its expected gain."""
        for key in (pipeline, None):
            if key is None:  # its row was merged meanwhile
                key = self._pipelines.key(other(nested))
            grown = self._execute(
                "UPDATE rollup SET examined = examined + 1 WHERE hour = ? AND pipeline = ?",
                (hour, key),
            )
            if grown.rowcount:
                self._add_findings(hour, key, [(f, 1, seconds) for f, seconds in findings])
                return

    def add_bottleneck(self, hour: int, pipeline: int, bottleneck: str, wall: float) -> None:
        """Count what held a run of `wall` seconds back, as `bottleneck_label` has it.

        Not if its row was merged: where many pipelines are one, none has a bottleneck.
        """
        self._execute(
            "INSERT INTO rollup_bottlenecks SELECT hour, pipeline, ?, ? FROM rollup"
            " WHERE hour = ? AND pipeline = ?"
            " ON CONFLICT DO UPDATE SET wall = wall + excluded.wall",
            (bottleneck, wall, hour, pipeline),
        )

    def trim(self, first_hour: int) -> None:
        """Remove what is before `first_hour`, and stay within the size."""
        old = [hour for hour in self._rows if hour < first_hour]
        for hour in old:
            self._remove(hour)
        if old:
            self._measure_names()
        while self._rows and self._used_bytes() > self._max_bytes:
            self._make_room()

    def _used_bytes(self) -> float:
        return sum(self._rows.values()) * ROLLUP_ROW_BYTES + self._names

    def _make_room(self) -> None:
        """Merge the lightest rows of the hour that has most into `OTHER`."""
        hour = max(self._rows, key=lambda hour: (self._rows[hour], -hour))
        light = self._execute(
            "SELECT p.nested, p.key FROM rollup JOIN pipelines AS p ON p.key = rollup.pipeline"
            " WHERE hour = ? AND p.pipeline <> ? ORDER BY rollup.wall LIMIT ?",
            (hour, OTHER, min(_MOST_FOLDED, self._rows[hour] // _FOLDED + 1)),
        ).fetchall()
        if not light:  # nothing is left to merge: the age is too long for the size
            self._remove(min(self._rows))
            self._measure_names()
            return
        for wanted in (0, 1):
            keys = [key for nested, key in light if nested == wanted]
            if keys:
                self._fold(hour, keys, self._pipelines.key(other(bool(wanted))))

    def _fold(self, hour: int, keys: list[int], into: int) -> None:
        # one parameter, however many keys: each text of a statement is kept compiled
        those = "(SELECT value FROM json_each(?))"
        listed = json.dumps(keys)
        which = f"hour = ? AND pipeline IN {those}"
        cells = self._execute(
            f"SELECT {merged()} FROM rollup WHERE {which}", (hour, listed)
        ).fetchone()
        findings = self._execute(
            f"SELECT finding, sum(runs), sum(seconds) FROM rollup_findings WHERE {which}"
            " GROUP BY finding",
            (hour, listed),
        ).fetchall()
        self._delete(hour, keys)
        self._names -= self._execute(
            f"SELECT total({_NAME}) FROM pipelines WHERE hours = 0 AND key IN {those}", (listed,)
        ).fetchone()[0]
        self._grow(hour, into, cells)
        self._add_findings(hour, into, findings)

    def _grow(self, hour: int, key: int, cells: Sequence[float]) -> None:
        """Add to a row, or make it."""
        if not self._execute(_GROW, (*cells, hour, key)).rowcount:
            self._insert(hour, key, cells)

    def _insert(self, hour: int, key: int, cells: Iterable[float]) -> None:
        self._execute(_INSERT_SUMS, (hour, key, *cells))
        self._names += self._execute(
            f"SELECT total({_NAME}) FROM pipelines WHERE key = ? AND hours = 0", (key,)
        ).fetchone()[0]
        self._execute("UPDATE pipelines SET hours = hours + 1 WHERE key = ?", (key,))
        self._rows[hour] = self._rows.get(hour, 0) + 1

    def _add_findings(
        self, hour: int, key: int, findings: Iterable[tuple[str, int, float]]
    ) -> None:
        """Each is an id, the number of runs with it, and the sum of what it is expected to
        save (seconds)."""
        for finding in findings:
            self._execute(
                "INSERT INTO rollup_findings (hour, pipeline, finding, runs, seconds)"
                " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET runs = runs + excluded.runs, seconds = seconds + excluded.seconds",
                (hour, key, *finding),
            )

    def _remove(self, hour: int) -> None:
        found = self._execute("SELECT pipeline FROM rollup WHERE hour = ?", (hour,))
        self._delete(hour, [key for (key,) in found])

    def _delete(self, hour: int, keys: list[int]) -> None:
        many = self._connection.executemany
        rows = [(hour, key) for key in keys]
        many("DELETE FROM rollup WHERE hour = ? AND pipeline = ?", rows)
        many("DELETE FROM rollup_findings WHERE hour = ? AND pipeline = ?", rows)
        many("DELETE FROM rollup_bottlenecks WHERE hour = ? AND pipeline = ?", rows)
        many("UPDATE pipelines SET hours = hours - 1 WHERE key = ?", [(key,) for key in keys])
        self._rows[hour] -= len(keys)
        if not self._rows[hour]:
            del self._rows[hour]

    def _measure_names(self) -> None:
        self._names = self._execute(
            f"SELECT total({_NAME}) FROM pipelines WHERE hours > 0"
        ).fetchone()[0]
