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

__all__ = ["RUN_SORTS", "as_place", "beyond", "order", "place"]

#: What comes first: the run that started last, the default; or the one that took longest.
RUN_SORTS = ("start", "wall")

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


def beyond(before: str, sort: str) -> tuple[str, list[object]]:
    """The condition that a run comes after this place, and its values."""
    if sort != "wall":
        return "id < ?", [before]
    wall, _, run_id = before.partition(_BETWEEN)
    return "(wall, id) < (?, ?)", [float(wall), run_id]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
