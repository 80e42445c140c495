# SPDX-License-Identifier: Apache-2.0
"""When runs were watched: before a gap by an earlier daemon, since the last one by this one."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter

from pipelined.records.stage import NS, Gap

__all__ = ["Watched"]

#: Smaller steps of the host's clock are not followed (seconds): a leap second is none, and two
#: clocks are not read at the same time.
_STEP = 2.0
#: So many gaps are kept though nobody needs them: what has ended may not be stored yet.
_KEPT = 100
#: And so many, whoever needs them: a clock may be set again and again while a run lives.
_MOST = 10_000

_BEGIN = attrgetter("begin_ns")


class Watched:
    """The gaps so far, and what makes Unix time of stamps of CLOCK_MONOTONIC (nanoseconds)."""

    def __init__(self, unix: float, gaps: Iterable[Gap] = ()) -> None:
        """`unix` (seconds) is for stamps since the last gap; each gap has its own for before."""
        self.unix = unix
        self.gaps = tuple(sorted(gaps))
        # without those of `follow`, which may be thousands
        self._unwatched = tuple(gap for gap in self.gaps if gap.end_ns > gap.begin_ns)

    def follow(self, now_ns: int, unix: float) -> float:
        """By how much the host's clock was set (seconds), if `unix` is what it makes now; else 0.

        What comes after `now_ns` is dated by the new clock, what was before keeps its date: this is
        a gap without a length. A suspended host is a clock that was set: CLOCK_MONOTONIC stood.
        """
        step = unix - self.unix
        if abs(step) < _STEP:
            return 0.0
        self.gaps = (*self.gaps, Gap(now_ns, now_ns, self.unix))
        self.unix = unix
        return step

    def forget(self, starts_ns: Iterable[int]) -> None:
        """Forget gaps before all of what began at `starts_ns`, if there are many.

        Of far too many the oldest are forgotten in any case: what began before gets another id.
        """
        if len(self.gaps) > _KEPT:
            oldest = min(starts_ns, default=math.inf)
            needed = [gap for gap in self.gaps[:-_KEPT] if gap.end_ns >= oldest]
            self.gaps = (*needed, *self.gaps[-_KEPT:])[-_MOST:]

    def unix_time(self, stamp_ns: float) -> float:
        """Unix time of a stamp, as every daemon that knew the stamp has it, whatever its clock."""
        gaps = self.gaps
        later = bisect_left(gaps, stamp_ns, key=_BEGIN)
        return NS * stamp_ns + (gaps[later].unix if later < len(gaps) else self.unix)

    def until_last_gap(self, begin_ns: int) -> int:
        """How much of the time up to the last gap nobody watched."""
        return self.unwatched_ns(begin_ns, self.gaps[-1].begin_ns) if self.gaps else 0

    def unwatched_ns(self, begin_ns: int, end_ns: float) -> int:
        """How much of a time nobody watched."""
        shared = (min(gap.end_ns, end_ns) - max(gap.begin_ns, begin_ns) for gap in self._unwatched)
        return int(sum(ns for ns in shared if ns > 0))
