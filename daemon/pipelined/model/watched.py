# SPDX-License-Identifier: Apache-2.0
"""When runs were watched: before a gap by an earlier daemon, since the last one by this one."""

from __future__ import annotations

from collections.abc import Iterable

from pipelined.records.stage import NS, Gap
from pipelined.wording import duration

__all__ = ["ClockWatch", "Watched"]

#: Smaller steps of the host's clock are not worth a word (seconds).
_STEP = 60.0


class Watched:
    """The gaps so far, and what makes Unix time of stamps of CLOCK_MONOTONIC (nanoseconds)."""

    def __init__(self, unix: float, gaps: Iterable[Gap] = ()) -> None:
        """`unix` (seconds) is for stamps since the last gap; each gap has its own for before."""
        self._unix = unix
        self._gaps = tuple(sorted(gaps))

    def unix_time(self, stamp_ns: float) -> float:
        """Unix time of a stamp, as every daemon that knew the stamp has it, whatever its clock."""
        for gap in self._gaps:
            if stamp_ns <= gap.begin_ns:
                return NS * stamp_ns + gap.unix
        return NS * stamp_ns + self._unix

    def until_last_gap(self, begin_ns: int) -> int:
        """How much of the time up to the last gap nobody watched."""
        return self.unwatched_ns(begin_ns, self._gaps[-1].begin_ns) if self._gaps else 0

    def unwatched_ns(self, begin_ns: int, end_ns: float) -> int:
        """How much of a time nobody watched."""
        shared = (min(gap.end_ns, end_ns) - max(gap.begin_ns, begin_ns) for gap in self._gaps)
        return int(sum(ns for ns in shared if ns > 0))


class ClockWatch:
    """Notices that the host's clock was set while `Watched` goes by what it was at the start."""

    def __init__(self, unix: float) -> None:
        """`unix` is what `Watched` goes by (seconds)."""
        self._unix = unix
        self._reported = 0.0

    def warning(self, unix: float) -> str | None:
        """What to log of the clock that makes `unix` now; None if it is as before.

        >>> ClockWatch(1000.0).warning(1000.0 + 7200.0)
        'the clock is 2 h 0 min ahead of the one that runs are dated by, as it was set or …
        """
        ahead = unix - self._unix
        if abs(ahead - self._reported) < _STEP:
            return None
        self._reported = ahead
        if abs(ahead) < _STEP:
            return "the clock is again as at the start: runs are dated by it"
        why = "it was set or the host was suspended" if ahead > 0 else "it was set"
        return (
            f"the clock is {duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the one"
            f" that runs are dated by, as {why}; they are dated right after a restart of the daemon"
        )
