# SPDX-License-Identifier: Apache-2.0
"""Finished runs as people list them: nested ones under the run that encloses them."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipelined.history.history import Recorded
from pipelined.history.rows import Summary
from pipelined.history.run_order import RUN_SORTS, place
from pipelined.nesting import Line, first_lines, nested_lines

__all__ = ["Listing", "list_lines"]

#: Runs that are read for one list, at most, however few lines they are.
MOST_READ = 10_000


class Listing(NamedTuple):
    """One page of a list."""

    lines: list[Line[Summary]]
    before: str | None
    """The `before` of the next page; None on the last one."""


def list_lines(history: Recorded, limit: int, **searched: Any) -> Listing:
    """At most `limit` lines of the runs that match; `searched` is as for `History.runs`.

    Equal runs inside the same run are one line, unless it is runs of one pipeline that are
    searched. By `wall` each run is a line of its own, in no other: the runs that a line would stand
    for are far apart in that order, and only the longest of them would be counted. Raises
    UserError.
    """
    sort = searched.get("sort") or RUN_SORTS[0]
    if sort == "wall":
        found = history.runs(**searched, limit=limit + 1)
        longest = found[:limit]
        following = place(longest[-1], sort) if len(found) > limit else None
        return Listing([Line(run) for run in longest], following)
    grouped = searched.get("pipeline") is None
    read = limit + 1  # one more shows whether there are more
    while True:
        found = history.runs(**searched, limit=read)
        shown = first_lines(found, limit, grouped=grouped)
        if len(shown) < len(found) or len(found) < read or read >= MOST_READ:
            break
        read = min(4 * read, MOST_READ)
    more = len(shown) < len(found) or len(found) >= read
    following = place(shown[-1], sort) if more else None
    return Listing(nested_lines(shown, grouped=grouped), following)
