# SPDX-License-Identifier: Apache-2.0
"""Which pipelines have an account of their own, within a budget of series. Pure.

Prometheus pays for each series, so the series of a host are a budget. While there is room every
pipeline gets an account when it is first seen. When the budget is full, pipelines that used much
run time lately keep theirs; idle and light ones give way to heavier ones. What has no account of
its own is added to `OTHER`, and nothing is ever taken back from there: the sum over all
accounts is what ran, whatever is admitted and retired.

Between two sweeps a pipeline without an account is a newcomer: what it does is kept apart until
`settle`, which makes it an account of its own or adds it to `OTHER`. So an account begins with what
its pipeline has just done, never with nothing, and what it costs is counted, not estimated.

`OTHER` has an account for each unit, nested or not, so that sums over the pipelines of a unit are
complete. These accounts are never closed and count in the budget. There are as many as leave about
half of it to pipelines; what is folded of further units is added up under the unit `OTHER`.

"Lately" is a sum of run seconds that halves every three days (`HALF_LIFE`). A job that runs an
hour every night keeps at least 7,200 s of it, and a thousand one-liners do not reach that.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pipelined.runs import Series

__all__ = ["HALF_LIFE", "OTHER", "Account", "Ledger"]

#: Signature, and command, of what has no account of its own; unit of what is of too many units.
OTHER = "(other)"

#: Seconds in which the weight of a run is halved.
HALF_LIFE = 3 * 86400.0

#: A pipeline takes the place of another one if it weighs this many times as much: two of equal
#: weight must not take it from each other at every run.
_HEAVIER = 2.0

#: Pipelines without an account whose weight is remembered; the lightest beyond are forgotten.
_REMEMBERED = 1_000

#: Seconds that a retired pipeline stays without an account, as long as Prometheus looks back for a
#: sample: the counters that begin anew are then a new series, not one that fell.
_ABSENT = 300.0

#: `OTHER` has one account per 200 series of the budget: at least twice what one costs of which
#: every value with every tier is not 0.
_SERIES_PER_OTHER = 200

#: Newcomers that find no room and are tried at one settlement; those after them are lighter.
_TRIES = 4


class Account(Protocol):
    """What a ledger has to know of what it keeps."""

    active: int
    """Live runs; a pipeline that runs is not retired while an idle one can be."""

    def fold(self, other: Any, /) -> None:
        """Add everything that `other` holds."""

    def counted(self) -> bool:
        """Whether anything but live runs is counted in it: else it is not exported."""

    def filled(self) -> Hashable:
        """Which of its values are not 0. What has no value has no series: as long as this is
        equal, so is the account's cost."""


A = TypeVar("A", bound=Account)


class _Cost(NamedTuple):
    """Series of an account, as of when its values that are not 0 were those in `filled`."""

    series: int
    filled: Hashable


@dataclass(slots=True)
class _Weight:
    """Run seconds, halved every `HALF_LIFE`."""

    seconds: float = 0.0
    at: float = 0.0
    barred_until: float = -math.inf
    """A retired pipeline is not admitted again before."""

    def add(self, seconds: float, now: float) -> None:
        self.seconds = self.of(now) + seconds
        self.at = max(self.at, now)

    def of(self, now: float) -> float:
        if now <= self.at:  # as for all runs of a sweep but the first
            return self.seconds
        return self.seconds * math.exp2((self.at - now) / HALF_LIFE)

    @property
    def rank(self) -> float:
        """Weights compare as their ranks do, which do not change with time."""
        return math.log2(self.seconds) + self.at / HALF_LIFE if self.seconds > 0 else -math.inf


class Ledger(Generic[A]):
    """Accounts of pipelines, of which no more than `budget` series are exported."""

    def __init__(
        self, budget: int | None, *, new: Callable[[], A], cost: Callable[[A], int]
    ) -> None:
        """`cost` is how many series an account is exported as; no `budget` is no bound."""
        self._budget = math.inf if budget is None else budget
        self._new = new
        self._cost = cost
        self._accounts: dict[Series, A] = {}
        self._others: dict[Series, A] = {}
        self._newcomers: dict[Series, A] = {}
        """What pipelines without an account did since `settle`."""
        self._candidates: set[Series] = set()
        """Newcomers that may get an account."""
        self._weights: dict[Series, _Weight] = {}
        self._folded: dict[Series, _Weight] = {}
        """Of pipelines without an account."""
        self._costs: dict[Series, _Cost] = {}
        self._changed: set[Series] = set()
        self.used = 0
        """Series of all accounts, as of the last `settle`."""

    def begin(self) -> None:
        """No run is live until it is seen to be."""
        for accounts in (self._accounts, self._others, self._newcomers):
            for account in accounts.values():
                account.active = 0

    def account(self, series: Series) -> A:
        """Where to add what a pipeline does, until `settle`."""
        account = self._accounts.get(series)
        if account is not None:
            self._changed.add(series)
            return account
        if series not in self._newcomers:
            self._newcomers[series] = self._new()
        return self._newcomers[series]

    def own(self, series: Series) -> A | None:
        """The pipeline's own account, to change it; None if it has none."""
        account = self._accounts.get(series)
        if account is not None:
            self._changed.add(series)
        return account

    def ran(self, series: Series, seconds: float, now: float) -> None:
        """A pipeline used `seconds` of wall time up to the time `now` (seconds)."""
        weight = self._weights.get(series)  # of an account that has run
        if weight is None:
            weights = self._weights if series in self._accounts else self._folded
            weight = weights.get(series)
            if weights is self._folded and (seconds > 0 or weight is None):
                self._candidates.add(series)  # else its time is in OTHER already
            if weight is None:
                weight = weights[series] = _Weight()
        weight.add(seconds, now)

    def settle(self, now: float) -> None:
        """Admit newcomers, fold the others, and bring the accounts within the budget.

        Called after every sweep. Accounts that were given out before it are stale afterwards.
        """
        self._recount()
        self._admit_heavy(now)
        for series, account in self._newcomers.items():
            self._other(series).fold(account)
        self._newcomers.clear()
        self._candidates.clear()
        self._recount()
        if self.used > self._budget:
            lightest = self._by_weight(now)
            while self.used > self._budget and lightest:
                self._retire(heapq.heappop(lightest)[3], now)
                self._recount()
        if len(self._folded) > 2 * _REMEMBERED:
            self._forget()

    def folded(self, now: float) -> tuple[int, float]:
        """How many pipelines without an account are remembered, and the weight of the heaviest."""
        if not self._folded:
            return 0, 0.0
        heaviest = max(self._folded.values(), key=attrgetter("rank"))
        return len(self._folded), heaviest.of(now)

    def accounts(self) -> Iterator[tuple[Series, A]]:
        """All accounts in which anything is counted; those of `OTHER` last."""
        yield from self._accounts.items()
        for series, account in self._others.items():
            if account.counted():
                yield series, account

    # -- who has one

    def _recount(self) -> None:
        """Bring `used` up to date with the accounts that have changed."""
        for series in self._changed:
            account = self._accounts.get(series) or self._others[series]
            before, filled = self._costs.get(series), account.filled()
            if before is None or filled != before.filled:
                cost = self._cost(account) if account.counted() else 0
                self._costs[series] = _Cost(cost, filled)
                self.used += cost - (before.series if before else 0)
        self._changed.clear()

    def _admit_heavy(self, now: float) -> None:
        """Make newcomers accounts, the heaviest first, if there is room or they outweigh others."""
        waiting = [
            series
            for series, account in self._newcomers.items()
            if series in self._candidates
            and self._folded[series].barred_until <= now
            and account.counted()
        ]
        lightest: list[tuple[bool, float, int, Series]] | None = None
        refused = 0
        for series in sorted(waiting, key=lambda series: -self._folded[series].rank):
            account = self._newcomers[series]
            filled, cost = account.filled(), self._cost(account)
            if self.used + cost > self._budget:
                if lightest is None:
                    lightest = self._by_weight(now)
                if not self._make_room(cost, self._weight(series, now), lightest, now):
                    refused += 1
                    if refused == _TRIES:
                        return
                    continue
            self._accounts[series] = self._newcomers.pop(series)
            self._weights[series] = self._folded.pop(series)
            self._costs[series] = _Cost(cost, filled)
            self.used += cost

    def _make_room(
        self,
        cost: int,
        weight: float,
        lightest: list[tuple[bool, float, int, Series]],
        now: float,
    ) -> bool:
        """Retire idle accounts that weigh much less, if that makes room for `cost` series."""
        room, retired = self._budget - self.used, []
        while room < cost and lightest:
            active, other, _, series = lightest[0]
            if active or weight <= _HEAVIER * other:
                break
            retired.append(heapq.heappop(lightest))
            room += self._costs[series].series
        if room < cost:
            for entry in retired:
                heapq.heappush(lightest, entry)
            return False
        for *_, series in retired:
            self._retire(series, now)
        return True

    def _retire(self, series: Series, now: float) -> None:
        self._other(series).fold(self._accounts.pop(series))
        self.used -= self._costs.pop(series).series
        self._changed.discard(series)
        weight = self._weights.pop(series, None) or _Weight(at=now)
        weight.barred_until = now + _ABSENT
        self._folded[series] = weight

    def _other(self, series: Series) -> A:
        """The account to fold a pipeline into."""
        key = Series(pipeline=OTHER, nested=series.nested, unit=series.unit)
        if key not in self._others and len(self._others) * _SERIES_PER_OTHER >= self._budget:
            key = Series(pipeline=OTHER, nested=series.nested, unit=OTHER)
        if key not in self._others:
            self._others[key] = self._new()
        self._changed.add(key)
        return self._others[key]

    def _by_weight(self, now: float) -> list[tuple[bool, float, int, Series]]:
        """A heap of the accounts: idle before live, light before heavy."""
        heap = [
            (account.active > 0, self._weight(series, now), index, series)
            for index, (series, account) in enumerate(self._accounts.items())
        ]
        heapq.heapify(heap)
        return heap

    def _weight(self, series: Series, now: float) -> float:
        weight = self._weights.get(series) or self._folded.get(series)
        return weight.of(now) if weight else 0.0

    def _forget(self) -> None:
        """Forget the weights of the lightest pipelines that have no account."""
        kept = heapq.nlargest(_REMEMBERED, self._folded.items(), key=lambda item: item[1].rank)
        self._folded = dict(kept)
