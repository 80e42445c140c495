# SPDX-License-Identifier: Apache-2.0
"""Stored runs in the order of storing, page by page: whoever reads on at a cursor skips nothing.

A run is answered as the JSON that is stored of it, as text: to read it and to write it again takes
7 to 20 times as long (docs/BENCHMARKS.md). That is done only with what another version has stored,
and with command lines that must not be shown.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from pipelined.answers.finished import BesideRunJson
from pipelined.answers.run import Compared
from pipelined.history.archive import Archive
from pipelined.history.openings import stored_form
from pipelined.history.packing import unpack_text
from pipelined.runs import Run
from pipelined.runs.codec import read, written

__all__ = ["NOW", "OLDEST", "FinishedPage", "as_cursor", "read_page"]

#: In place of a cursor: before the oldest run that is stored, and after the last one.
OLDEST, NOW = "oldest", "now"

#: A page ends with the run that makes it as long as this (characters).
MOST_TEXT = 2 << 20

_CURSOR = re.compile(r"([0-9a-f]{16})\.(\d{1,18})", re.ASCII)
#: How the key of a command line is stored; a text that has the same characters has `\"`.
_ARGUMENTS = '"arguments":'
_AFTER = (
    "SELECT key, bottleneck, findings, failure, usual, slower, usual_input, usual_any_input, run"
    " FROM runs JOIN details USING (key) WHERE key > ? ORDER BY key LIMIT ?"
)

log = logging.getLogger(__name__)


class _Place(NamedTuple):
    """A place in the order: after the run with this key."""

    opening: str
    key: int

    def __str__(self) -> str:
        return f"{self.opening}.{self.key}"


class _Opening(NamedTuple):
    id: str
    last: int
    form: str


@dataclass(frozen=True, slots=True)
class FinishedPage:
    """As `FinishedRunsJson`."""

    runs: Sequence[str]
    """Each as JSON."""
    next: str
    more: bool = False
    missing: int | None = 0
    restarted: bool = False


def as_cursor(text: str) -> str:
    """The same text. Raises ValueError if it is no cursor, nor one of the words."""
    if text not in (OLDEST, NOW) and not _CURSOR.fullmatch(text):
        raise ValueError(
            f"{text!r} is neither a cursor, which is next of an earlier answer, nor {OLDEST} or"
            f" {NOW}"
        )
    return text


def read_page(archive: Archive, after: str, limit: int, *, secrets: bool) -> FinishedPage:
    """At most `limit` runs that were stored after a cursor; command lines only with `secrets`.

    A run that cannot be read is logged, and is missing. Raises UserError.
    """
    with archive.snapshot() as connection:
        head = _head(connection)
        if after == NOW:
            return FinishedPage((), str(head))
        start = None if after == OLDEST else _known(connection, after)
        restarted = start is None and after != OLDEST
        if start is None:
            start = _before_oldest(connection, head)
        taken = _take(connection, start, limit, secrets)
    if taken.unreadable:
        log.warning(
            "%d stored runs cannot be read and are left out; %s",
            *(len(taken.unreadable), taken.unreadable[0]),
        )
    # What was removed behind the last stored run is passed too.
    end = taken.last if taken.more and taken.last else head
    missing = None if restarted else end.key - start - len(taken.texts)
    return FinishedPage(taken.texts, str(end), taken.more, missing, restarted)


def _head(connection: sqlite3.Connection) -> _Place:
    """The place after the last run that was stored, which may be removed."""
    found = connection.execute("SELECT id, last FROM openings ORDER BY last DESC, key LIMIT 1")
    return _Place(*found.fetchone())


def _known(connection: sqlite3.Connection, cursor: str) -> int | None:
    """The key of a cursor; None if it is of another file, or of a state that is gone."""
    parts = _CURSOR.fullmatch(cursor)
    assert parts, f"{cursor} has not gone through as_cursor"
    found = connection.execute(
        "SELECT 1 FROM openings WHERE id = ? AND ? BETWEEN first - 1 AND last",
        (parts[1], int(parts[2])),
    ).fetchone()
    return int(parts[2]) if found else None


def _before_oldest(connection: sqlite3.Connection, head: _Place) -> int:
    (oldest,) = connection.execute("SELECT min(key) FROM runs").fetchone()
    return head.key if oldest is None else int(oldest) - 1


@dataclass(slots=True)
class _Taken:
    """The runs of a page, as far as they are read."""

    texts: list[str] = field(default_factory=list)
    length: int = 0
    last: _Place | None = None
    """The place after the last one that was looked at."""
    more: bool = False
    unreadable: list[str] = field(default_factory=list)
    """What is wrong with those that cannot be read."""


def _take(connection: sqlite3.Connection, start: int, limit: int, secrets: bool) -> _Taken:
    """The runs after the key `start`."""
    taken, openings, form = _Taken(), _openings(connection, start), stored_form()
    rows = connection.execute(_AFTER, (start, limit + 1))
    for count, (key, *beside, bulk) in enumerate(rows):
        if count == limit or taken.length >= MOST_TEXT:
            taken.more = True
            break
        while openings[0].last < key:
            del openings[0]
        taken.last = _Place(openings[0].id, key)
        try:
            run = _stored(bulk, openings[0].form == form, secrets)
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            taken.unreadable.append(f"key {key}: {error!r}")
            continue
        text = f"{run[:-1]}, {json.dumps(_beside(taken.last, *beside))[1:]}"
        taken.texts.append(text)
        taken.length += len(text)
    return taken


def _openings(connection: sqlite3.Connection, after: int) -> list[_Opening]:
    rows = connection.execute(
        "SELECT id, last, form FROM openings WHERE last > ? ORDER BY last", (after,)
    )
    return [_Opening(*row) for row in rows]


def _stored(bulk: bytes, current: bool, secrets: bool) -> str:
    """The run as JSON; `current`: it was stored in the form that this version writes."""
    text = unpack_text(bulk)
    if current and (secrets or _ARGUMENTS not in text):
        return text
    return json.dumps(written(read(Run, json.loads(text)), secrets=secrets))


def _beside(
    place: _Place,
    bottleneck: str,
    findings: str,
    failure: str,
    usual: float | None,
    slower: Any,
    usual_input: float | None,
    usual_any_input: float | None,
) -> BesideRunJson:
    beside = {
        "cursor": str(place),
        "bottleneck": bottleneck,
        "finding_ids": json.loads(findings),
        "failure": failure,
    }
    compared = Compared(
        usual=usual,
        slower=None if slower is None else bool(slower),
        usual_input=usual_input,
        usual_any_input=usual_any_input,
    )
    return cast(BesideRunJson, beside | written(compared))
