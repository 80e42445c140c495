# SPDX-License-Identifier: Apache-2.0
"""Finished runs that are kept for the process that started them, until it has asked for them.

Few and not for long: the process asks about once a second. Every run has a number, so that the
process knows which it has, and whether it came too late for some.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from pipelined.starter import Starter

__all__ = ["KEPT", "KEPT_SECONDS", "Started"]

#: So many runs are kept, of all starters together: some 10 kB each.
KEPT = 500
#: And for so long (seconds).
KEPT_SECONDS = 60.0
#: Of so many starters that ended a run last the number of their runs is known.
_STARTERS = 1000

R = TypeVar("R")


class _Entry(NamedTuple, Generic[R]):
    starter: Starter
    number: int
    """From 1, for each starter."""
    time: float
    run: R


class Started(Generic[R]):
    """The runs of all starters."""

    def __init__(self) -> None:
        self._counts: OrderedDict[Starter, int] = OrderedDict()
        self._entries: deque[_Entry[R]] = deque(maxlen=KEPT)

    def add(self, starters: Iterable[Starter], run: R, now: float) -> None:
        """A run of these starters has ended, as known at `now` (seconds on any clock)."""
        for starter in starters:
            number = self._counts.pop(starter, 0) + 1
            self._counts[starter] = number
            if len(self._counts) > _STARTERS:
                self._counts.popitem(last=False)
            self._entries.append(_Entry(starter, number, now, run))

    def forget(self, now: float) -> None:
        """Drop the runs that were kept for too long."""
        while self._entries and self._entries[0].time < now - KEPT_SECONDS:
            self._entries.popleft()

    def count(self, starter: Starter) -> int:
        """How many of its runs have ended."""
        return self._counts.get(starter, 0)

    def after(self, starter: Starter, number: int) -> list[R]:
        """Its runs past that number, as far as they are kept; the first to end comes first."""
        return [
            entry.run
            for entry in self._entries
            if entry.starter == starter and entry.number > number
        ]
