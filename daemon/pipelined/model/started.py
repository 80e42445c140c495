# SPDX-License-Identifier: Apache-2.0
"""Finished runs that are kept for the process that started them, until it has asked for them.

Few and not for long: the process asks about once a second. Every run has a number, so that the
process knows which it has, and whether it came too late for some.

Any process can take the name of a starter. So what is kept is bounded for each user, whom the
kernel side names, and in all; there a user with more gives way to one with less.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from pipelined.starter import Starter

__all__ = ["KEPT", "KEPT_IN_ALL", "KEPT_SECONDS", "Started"]

#: Runs that are kept of all starters of one user together: some 10 kB each.
KEPT = 500
#: Runs that are kept of all users.
KEPT_IN_ALL = 1000
#: How long they are kept (seconds).
KEPT_SECONDS = 60.0
#: Starters, those that ended a run last, whose number of runs is known.
_STARTERS = 1000

R = TypeVar("R")


class _Entry(NamedTuple, Generic[R]):
    starter: Starter
    number: int
    """From 1, for each starter."""
    time: float
    run: R


class _User(Generic[R]):
    """What there is of the starters of one user."""

    def __init__(self) -> None:
        self.entries: deque[_Entry[R]] = deque()
        self.counts: OrderedDict[Starter, int] = OrderedDict()
        """How many runs of each have ended; the one that ended a run last comes last."""


class Started(Generic[R]):
    """The runs of all starters."""

    def __init__(self) -> None:
        self._users: dict[int, _User[R]] = {}

    def add(self, users: Mapping[Starter, int], run: R, now: float) -> None:
        """A run has ended, as known at `now` (seconds on any clock).

        Its starters are the keys of `users`, whose values are their user ids.
        """
        for starter, uid in users.items():
            user = self._user_of(starter) or self._users.setdefault(uid, _User())
            number = user.counts.pop(starter, 0) + 1
            user.counts[starter] = number
            user.entries.append(_Entry(starter, number, now, run))
            if len(user.entries) > KEPT:
                user.entries.popleft()
            most = self._most(lambda user: len(user.entries), KEPT_IN_ALL)
            if most is not None:
                most.entries.popleft()
            most = self._most(lambda user: len(user.counts), _STARTERS)
            if most is not None:
                most.counts.popitem(last=False)

    def forget(self, now: float) -> None:
        """Drop the runs that were kept for too long."""
        for uid, user in [*self._users.items()]:
            while user.entries and user.entries[0].time < now - KEPT_SECONDS:
                user.entries.popleft()
            if not user.entries and not user.counts:
                del self._users[uid]

    def count(self, starter: Starter) -> int:
        """How many runs of `starter` have ended."""
        user = self._user_of(starter)
        return user.counts[starter] if user else 0

    def after(self, starter: Starter, number: int) -> list[R]:
        """Runs of `starter` after its first `number`, if they are kept, in the order of ends."""
        user = self._user_of(starter)
        return [
            entry.run
            for entry in (user.entries if user else ())
            if entry.starter == starter and entry.number > number
        ]

    def _user_of(self, starter: Starter) -> _User[R] | None:
        """Whose it was when its first run ended."""
        return next((user for user in self._users.values() if starter in user.counts), None)

    def _most(self, size: Callable[[_User[R]], int], bound: int) -> _User[R] | None:
        """The user who has most, if all together have more than `bound`."""
        if sum(map(size, self._users.values())) <= bound:
            return None
        return max(self._users.values(), key=size)
