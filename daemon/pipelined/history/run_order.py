# SPDX-License-Identifier: Apache-2.0
"""The orders of a list of finished runs, and the places in them where its next page goes on: the
same at the prompt, on the page, in the API."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelined.history.rows import Summary

__all__ = ["AHEAD", "RUN_SORTS", "as_place", "order", "place", "recency", "stretches"]

#: What comes first: the run that started last, the default; or the one that took longest.
RUN_SORTS = ("start", "wall")

#: A run that is later than now by more is of a clock that was ahead (seconds): the daemon does not
#: notice that the clock is set back by less than 2 s.
AHEAD = 60.0

#: As the daemon makes them: numbers of several bases.
_RUN_ID = re.compile(r"\d[0-9a-z-]*", re.ASCII)
#: Between the wall time and the id of a place. No id has it.
_BETWEEN = ":"


def order(sort: str) -> str:
    """The terms of ORDER BY on `runs`. Ids begin with the start, so they are in its order."""
    return "wall DESC, id DESC" if sort == "wall" else "id DESC"


def place(run: Summary, sort: str) -> str:
    """Where the run is in this order: what comes after it is found even when the run is gone."""
    return f"{run.wall!r}{_BETWEEN}{run.id}" if sort == "wall" else run.id


def as_place(sort: str) -> Callable[[str], str]:
    """Accepts a place in this order; ValueError says what is wrong with any other text."""

    def convert(text: str) -> str:
        if not text:
            raise ValueError("it is empty; give the next of the previous answer")
        wall, _, run_id = text.partition(_BETWEEN)
        if sort != "wall":
            run_id, wall = text, "0"
        if not (_is_number(wall) and _RUN_ID.fullmatch(run_id)):
            raise ValueError(f"{text!r} is not the next of an answer with sort={sort}")
        return text

    return convert


def stretches(before: str | None, sort: str, now: float) -> list[tuple[str, list[object]]]:
    """The stretches of the list after a place, one after the other: conditions on `runs`, and their
    values.

    By start there are two: what is later than `now` (Unix time) is of a clock that was ahead, and
    comes last until its time comes.
    """
    if sort == "wall":
        if before is None:
            return [("1", [])]
        wall, _, run_id = before.partition(_BETWEEN)
        return [("(wall, id) < (?, ?)", [float(wall), run_id])]
    later = f"{int((now + AHEAD) * 1000):013d}"
    if before is None or before < later:
        return [("id < ?", [before or later]), ("id >= ?", [later])]
    return [("id >= ? AND id < ?", [later, before])]


def recency(end: float, now: float) -> tuple[bool, float]:
    """By what the last run is chosen that has ended: one that is later than now last of all."""
    return end <= now + AHEAD, end


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
