# SPDX-License-Identifier: Apache-2.0
"""Which pipelines have an account of their own, within a budget of series. Pure.

Prometheus pays for each series, so the series of a host are a budget. While there is room every
pipeline gets an account when it is first seen. When the budget is full, pipelines that used much
run time lately keep theirs; idle and light ones give way to heavier ones. What has no account of
its own is added to `OTHER`, and nothing is ever taken back from there: the sum over all
accounts is what ran, whatever is admitted and retired.

"Lately" is a sum of run seconds that halves every three days (`HALF_LIFE`). A job that runs an
hour every night keeps at least 7,200 s of it, and a thousand one-liners do not reach that.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pipelined.runs import Series

__all__ = ["HALF_LIFE", "OTHER", "Account", "Ledger"]

#: Signature, and command, of what has no account of its own.
OTHER = "(other)"

#: Seconds in which the weight of a run is halved.
HALF_LIFE = 3 * 86400.0

#: A pipeline takes the place of another one if it weighs so many times as much: two of equal
#: weight must not take it from each other at every run.
_HEAVIER = 2.0

#: So many pipelines without an account have their weight remembered; the lightest are forgotten.
_REMEMBERED = 1_000

#: Seconds that a retired pipeline stays without an account, as long as Prometheus looks back for a
#: sample: the counters that begin anew are then a new series, not one that fell.
_ABSENT = 300.0


class Account(Protocol):
    """What a ledger has to know of what it keeps."""

    active: int
    """Live runs; a pipeline that runs is not retired while an idle one can be."""

    def fold(self, other: Any, /) -> None:
        """Add everything that `other` holds."""

    def filled(self) -> int:
        """How many of its values are not 0. What has no value has no series: while that number
        stays, so does the account's cost."""


A = TypeVar("A", bound=Account)


class _Cost(NamedTuple):
    """Of an account, when so many of its values were not 0; None: it is not known yet."""

    series: int
    filled: int | None


@dataclass(slots=True)
class _Weight:
    """Run seconds, halved every `HALF_LIFE`."""

    seconds: float = 0.0
    at: float = 0.0
    barred_until: float = -math.inf
    """A retired pipeline is not admitted again before."""
    rank: float = -math.inf
    """Weights compare as their ranks do, which do not change with time."""

    def add(self, seconds: float, now: float) -> None:
        self.seconds = self.of(now) + seconds
        self.at = max(self.at, now)
        if self.seconds > 0:
            self.rank = math.log2(self.seconds) + self.at / HALF_LIFE

    def of(self, now: float) -> float:
        return self.seconds * math.exp2(-max(0.0, now - self.at) / HALF_LIFE)


class Ledger(Generic[A]):
    """Accounts of pipelines, of which no more than `budget` series are exported."""

    def __init__(
        self, budget: int | None, *, new: Callable[[], A], cost: Callable[[A], int]
    ) -> None:
        """`cost` is how many series an account is exported as; no `budget` is no bound.

        The accounts of `OTHER` are outside the budget: there are two at most.
        """
        self._budget = math.inf if budget is None else budget
        self._new = new
        self._cost = cost
        self._accounts: dict[Series, A] = {}
        self._others: dict[Series, A] = {}
        self._weights: dict[Series, _Weight] = {}
        self._folded: dict[Series, _Weight] = {}
        """Of pipelines without an account."""
        self._costs: dict[Series, _Cost] = {}
        self._changed: set[Series] = set()
        self._candidates: set[Series] = set()
        self.used = 0
        """Series of all accounts but those of `OTHER`, as of the last `settle`."""

    def account(self, series: Series) -> tuple[A, bool]:
        """Where to add what a pipeline did, and whether that is its own account."""
        account = self._accounts.get(series)
        if account is None and self.used < self._budget and series not in self._folded:
            account = self._admit(series)
        if account is None:
            return self._other(series), False
        self._changed.add(series)
        return account, True

    def own(self, series: Series) -> A | None:
        """The pipeline's own account, to change it; None if it has none."""
        account = self._accounts.get(series)
        if account is not None:
            self._changed.add(series)
        return account

    def ran(self, series: Series, seconds: float, now: float) -> None:
        """A pipeline used so many seconds of wall time up to the time `now` (seconds)."""
        weights = self._weights if series in self._accounts else self._folded
        weight = weights.get(series)
        if weight is None:
            weight = weights[series] = _Weight()
        weight.add(seconds, now)
        if weights is self._folded:
            self._candidates.add(series)

    def settle(self, now: float) -> None:
        """Bring the accounts within the budget, and admit what has become heavy.

        Called after every sweep. Accounts that were given out before it are stale afterwards.
        """
        for series in self._changed & self._accounts.keys():
            account, before = self._accounts[series], self._costs[series]
            filled = account.filled()
            if filled != before.filled:
                cost = self._costs[series] = _Cost(self._cost(account), filled)
                self.used += cost.series - before.series
        self._changed.clear()
        if self.used > self._budget or self._candidates:
            lightest = self._by_weight(now)
            while self.used > self._budget and lightest:
                self._retire(heapq.heappop(lightest)[3], now)
            self._admit_heavy(lightest, now)
        self._candidates.clear()
        if len(self._folded) > 2 * _REMEMBERED:
            self._forget()

    def folded(self, now: float) -> tuple[int, float]:
        """How many pipelines without an account are remembered, and the weight of the heaviest."""
        if not self._folded:
            return 0, 0.0
        heaviest = max(self._folded.values(), key=attrgetter("rank"))
        return len(self._folded), heaviest.of(now)

    def accounts(self) -> Iterator[tuple[Series, A]]:
        """All accounts; those of `OTHER` last."""
        yield from self._accounts.items()
        yield from self._others.items()

    # -- who has one

    def _admit(self, series: Series) -> A:
        account = self._accounts[series] = self._new()
        usual = self._usual_cost()
        self._costs[series] = _Cost(usual, None)
        self.used += usual
        if weight := self._folded.pop(series, None):
            self._weights[series] = weight
        return account

    def _retire(self, series: Series, now: float) -> None:
        self._other(series).fold(self._accounts.pop(series))
        self.used -= self._costs.pop(series).series
        weight = self._weights.pop(series, None) or _Weight(at=now)
        weight.barred_until = now + _ABSENT
        self._folded[series] = weight

    def _other(self, series: Series) -> A:
        key = Series(OTHER, series.nested, "-")
        if key not in self._others:
            self._others[key] = self._new()
        return self._others[key]

    def _admit_heavy(self, lightest: list[tuple[bool, float, int, Series]], now: float) -> None:
        """Admit candidates, the heaviest first, as long as they outweigh the lightest accounts."""
        waiting = {
            series
            for series in self._candidates - self._accounts.keys()
            if self._folded[series].barred_until <= now
        }
        for series in sorted(waiting, key=lambda series: -self._weight(series, now)):
            while self.used + self._usual_cost() > self._budget:
                if not lightest:
                    return
                active, weight, _, idle = lightest[0]
                if active or self._weight(series, now) <= _HEAVIER * weight:
                    return
                heapq.heappop(lightest)
                self._retire(idle, now)
            self._admit(series)

    def _by_weight(self, now: float) -> list[tuple[bool, float, int, Series]]:
        """A heap of the accounts: idle before live, light before heavy."""
        heap = [
            (account.active > 0, self._weight(series, now), index, series)
            for index, (series, account) in enumerate(self._accounts.items())
        ]
        heapq.heapify(heap)
        return heap

    def _usual_cost(self) -> int:
        """What to expect of an account that has nothing in it yet: the mean of the others."""
        return max(1, round(self.used / (len(self._costs) or 1)))

    def _weight(self, series: Series, now: float) -> float:
        weight = self._weights.get(series) or self._folded.get(series)
        return weight.of(now) if weight else 0.0

    def _forget(self) -> None:
        """Forget the weights of the lightest pipelines that have no account."""
        kept = heapq.nlargest(_REMEMBERED, self._folded.items(), key=lambda item: item[1].rank)
        self._folded = dict(kept)
