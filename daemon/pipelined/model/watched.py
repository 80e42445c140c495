# SPDX-License-Identifier: Apache-2.0
"""When runs were watched: before a gap by an earlier daemon, since the last one by this one."""

from __future__ import annotations

from collections.abc import Iterable

from pipelined.records.stage import NS, Gap

__all__ = ["Watched"]

#: Smaller steps of the host's clock are not followed (seconds): a leap second is none, and two
#: clocks are not read at the same time.
_STEP = 2.0
#: So many gaps are remembered: a clock may be set again and again.
_MOST = 100


class Watched:
    """The gaps so far, and what makes Unix time of stamps of CLOCK_MONOTONIC (nanoseconds)."""

    def __init__(self, unix: float, gaps: Iterable[Gap] = ()) -> None:
        """`unix` (seconds) is for stamps since the last gap; each gap has its own for before."""
        self.unix = unix
        self.gaps = tuple(sorted(gaps))

    def follow(self, now_ns: int, unix: float) -> float:
        """By how much the host's clock was set (seconds), if `unix` is what it makes now; else 0.

        What comes after `now_ns` is dated by the new clock, what was before keeps its date: this is
        a gap without a length. A suspended host is a clock that was set: CLOCK_MONOTONIC stood.
        """
        step = unix - self.unix
        if abs(step) < _STEP:
            return 0.0
        self.gaps = (*self.gaps, Gap(now_ns, now_ns, self.unix))[-_MOST:]
        self.unix = unix
        return step

    def unix_time(self, stamp_ns: float) -> float:
        """Unix time of a stamp, as every daemon that knew the stamp has it, whatever its clock."""
        for gap in self.gaps:
            if stamp_ns <= gap.begin_ns:
                return NS * stamp_ns + gap.unix
        return NS * stamp_ns + self.unix

    def until_last_gap(self, begin_ns: int) -> int:
        """How much of the time up to the last gap nobody watched."""
        return self.unwatched_ns(begin_ns, self.gaps[-1].begin_ns) if self.gaps else 0

    def unwatched_ns(self, begin_ns: int, end_ns: float) -> int:
        """How much of a time nobody watched."""
        shared = (min(gap.end_ns, end_ns) - max(gap.begin_ns, begin_ns) for gap in self.gaps)
        return int(sum(ns for ns in shared if ns > 0))
