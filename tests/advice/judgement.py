# SPDX-License-Identifier: Apache-2.0
"""What was measured of a pair and of a healthy pipeline, and whether it bears the advice out. Pure.

A *share* is of the wall time of the pipeline as it was, so that a host that is slower in one
measurement than in the next one changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from advice.pairs import Pair
from pipelined.analysis.rules.rule import WORTH_SHARE

__all__ = ["CHANCE", "FACTOR", "Followed", "Healthy", "Spread", "Untried", "failures", "off"]

#: An estimate that is further off, in the median of a kind, has to be computed in another way.
FACTOR = 2.0
#: A bound and a gain of other runs of the same pipeline differ by a tenth by chance.
CHANCE = 1.1


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over some rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        ordered = sorted(values)
        return cls(median(ordered), ordered[0], ordered[-1])


@dataclass(frozen=True, slots=True)
class Followed:
    """A pair: what was promised by the finding, and what came of it."""

    pair: Pair
    after: str
    """The command as advised; empty if the finding should have written it and did not."""
    runs: int
    """How often the pipeline was profiled as it was."""
    found: int
    """In how many of these it had the finding."""
    likely_seconds: Spread | None = None
    """None if the finding gives no estimate, or was not found."""
    likely_share: Spread | None = None
    bound_seconds: Spread | None = None
    """None if the finding gives no bound, or was not found."""
    bound_share: Spread | None = None
    gain_seconds: float | None = None
    """The median over the rounds; None if nothing was compared."""
    gain_share: Spread | None = None
    faster: bool = False
    """Whether `pipelined compare` names the advised one the winner."""
    not_compared: str = ""
    """Why `pipelined compare` refused, such as a different output."""

    @property
    def of_bound(self) -> float | None:
        """What was gained, in terms of the bound."""
        if self.gain_share is None or self.bound_share is None:
            return None
        return self.gain_share.median / self.bound_share.median

    @property
    def of_likely(self) -> float | None:
        """What was gained, in terms of the estimate. What is not worth a change is chance."""
        if self.gain_share is None or self.likely_share is None:
            return None
        return max(WORTH_SHARE, self.gain_share.median) / max(WORTH_SHARE, self.likely_share.median)

    @property
    def failure(self) -> str:
        """What the finding does not live up to by this pair alone; empty if nothing."""
        if self.found <= self.runs / 2:
            return f"found in {self.found} of {self.runs} runs"
        if not self.after:
            return "the finding writes no command"
        if self.not_compared:
            return f"not compared: {self.not_compared}"
        if self.bound_share is None or self.gain_share is None:
            return ""
        if self.bound_share.high < self.gain_share.low:
            return "every round gained more than any bound"
        if CHANCE * self.bound_share.high < self.gain_share.median:
            return f"gained {self.of_bound:.2f} of the bound"
        return ""

    @property
    def verdict(self) -> str:
        return self.failure or ("gains" if self.faster else "gains nothing")


@dataclass(frozen=True, slots=True)
class Untried:
    """A pair that this host cannot run."""

    pair: Pair
    reason: str


@dataclass(frozen=True, slots=True)
class Healthy:
    """An ordinary pipeline, and what it was advised in some of its runs."""

    command: str
    wall_seconds: float
    """The median over the runs."""
    advised: Sequence[str]
    """Ids of findings to act on, one for each run that has it."""
    too_short: bool
    """Whether the runs are so short that they are not examined."""

    @property
    def failure(self) -> str:
        """Empty if it got no advice, although it could have."""
        if self.too_short:
            return "too short to have findings"
        counted = ", ".join(f"{id} in {self.advised.count(id)}" for id in sorted(set(self.advised)))
        return f"advised: {counted} of the runs" if counted else ""


def off(followed: Iterable[Followed]) -> float | None:
    """What was gained in terms of the estimate: the median of pairs of one kind."""
    ratios = [each.of_likely for each in followed if each.of_likely is not None]
    return median(ratios) if ratios else None


def failures(followed: Sequence[Followed], healthy: Sequence[Healthy]) -> list[str]:
    """Each claim that does not hold: of a pair, of all pairs of a kind, of a healthy pipeline."""
    found = [
        f"{each.pair.id}: {each.failure}: {each.pair.before}" for each in followed if each.failure
    ]
    for id in dict.fromkeys(each.pair.id for each in followed):
        tried = [each for each in followed if each.pair.id == id and each.gain_share is not None]
        if tried and not any(each.faster for each in tried):
            found.append(f"{id}: its advice gains nothing in any of its {len(tried)} pairs")
        times = off(tried)
        if times is not None and not 1 / FACTOR <= times <= FACTOR:
            found.append(f"{id}: what was gained is {times:.2f} of what was likely")
    found += [f"healthy: {each.failure}: {each.command}" for each in healthy if each.failure]
    return found
