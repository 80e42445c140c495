# SPDX-License-Identifier: Apache-2.0
"""Which rows of the history's file a question is about, as conditions in SQL and their values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipelined.history.rollup import HOUR

__all__ = ["Period", "all_of", "begin_of", "counted_in", "searched_for", "stored_in"]

#: One parameter, however many keys.
_AMONG = "pipeline IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class Period:
    """Which rows of the roll-up to read: whole hours, of the pipelines that match."""

    since: int | None = None
    """Runs that ended in this hour or later (hours since 1970)."""
    until: int | None = None
    """Runs that ended in an hour before this one."""
    pipeline: str | None = None
    unit: str | None = None


def counted_in(period: Period, keys: Iterable[int] | None = None) -> tuple[str, list[Any]]:
    """The condition on rows of the roll-up, and its values; with `keys`, of these pipelines."""
    return all_of(
        {
            "hour >= ?": period.since,
            "hour < ?": period.until,
            "pipeline IN (SELECT key FROM pipelines WHERE pipeline = ?)": period.pipeline,
            "pipeline IN (SELECT key FROM pipelines WHERE unit = ?)": period.unit,
            _AMONG: None if keys is None else json.dumps(list(keys)),
        }
    )


def searched_for(search: str | None) -> tuple[str, list[str]]:
    """The condition that a pipeline has `search` in its name or unit, and its values."""
    if not search:
        return "1", []
    # lower() of SQLite leaves letters other than ASCII alone: on both sides
    return "(instr(lower(p.pipeline), lower(?)) OR instr(lower(p.unit), lower(?)))", [search] * 2


def stored_in(period: Period) -> tuple[str, list[Any]]:
    """The condition on `runs_of_pipelines` of every pipeline, and its values."""
    return all_of({"end >= ?": begin_of(period.since), "end < ?": begin_of(period.until)})


def begin_of(hour: int | None) -> int | None:
    """Unix time at which an hour begins."""
    return None if hour is None else hour * HOUR


def all_of(conditions: Mapping[str, object]) -> tuple[str, list[object]]:
    """A condition in SQL that has all of those whose value is given, and these values."""
    given = {test: value for test, value in conditions.items() if value is not None}
    return " AND ".join(given) or "1", list(given.values())
