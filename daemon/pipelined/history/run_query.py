# SPDX-License-Identifier: Apache-2.0
"""What may be asked of stored runs, and the condition in SQL on those that match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from pipelined.history.conditions import all_of
from pipelined.history.run_order import RUN_SORTS

__all__ = ["IDENTIFIED", "Query", "searched", "searched_outcomes", "sort_of"]

#: Rows of `identities` are few beside those of `runs`.
IDENTIFIED = "identity IN (SELECT key FROM identities WHERE has_identity(identity, ?))"


class Query(TypedDict, total=False):
    """Which runs to list, and in which order: those that match every field that is given."""

    pipeline: str | None
    """Exactly this signature."""
    unit: str | None
    finding: str | None
    """Id of one of its findings."""
    command: str | None
    """Command name of one of its stages."""
    since: float | None
    """Started then or later (Unix time)."""
    until: float | None
    """Started before."""
    min_duration: float | None
    """Took at least this many seconds."""
    top_level: bool
    """Lies in no other run."""
    slower: bool
    """Was slower than usual."""
    failed: bool
    """Has failed."""
    interrupted: bool
    """Was interrupted; with `failed`, either."""
    identity: str | None
    """What identifies it: `NAME=VALUE`, or a value of any name."""
    sort: str | None
    """One of `run_order.RUN_SORTS`; None: the first."""
    before: str | None
    """Listed after this place (`run_order.place`)."""


def sort_of(query: Query) -> str:
    """The order of a list of runs: one of `run_order.RUN_SORTS`."""
    return query.get("sort") or RUN_SORTS[0]


def searched_outcomes(asked: Mapping[str, object]) -> list[str]:
    """The outcomes of which a run has to have one; empty: it may have any."""
    return [name for name in ("failed", "interrupted") if asked.get(name)]


def searched(query: Query) -> tuple[str, list[Any]]:
    """The condition of a list of runs, wherever it begins, and its values."""
    where, values = all_of(
        {
            "pipeline = ?": query.get("pipeline"),
            "unit = ?": query.get("unit"),
            "EXISTS (SELECT 1 FROM json_each(findings) WHERE value = ?)": query.get("finding"),
            "EXISTS (SELECT 1 FROM json_each(commands) WHERE value = ?)": query.get("command"),
            "start >= ?": query.get("since"),
            "start < ?": query.get("until"),
            "wall >= ?": query.get("min_duration"),
            "nested = ?": 0 if query.get("top_level") else None,
            "slower = ?": 1 if query.get("slower") else None,
            IDENTIFIED: query.get("identity") or None,
        }
    )
    if outcomes := searched_outcomes(query):
        where = f"{where} AND outcome IN ({', '.join('?' * len(outcomes))})"
        values = [*values, *outcomes]
    return where, values
