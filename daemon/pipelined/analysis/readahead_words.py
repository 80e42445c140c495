# SPDX-License-Identifier: Apache-2.0
"""In words: what waiting for disk cost a reader of files, and where its pages came from."""

from __future__ import annotations

from pipelined.runs import STALL_CLASSES, Readahead
from pipelined.wording import duration, percent

__all__ = ["cache", "stalls"]

#: A smaller share of the run rounds to nothing: each program waits that long for a page or two
#: when it starts.
WORTH_A_WORD = 0.005


def stalls(readahead: Readahead, wall: float) -> str | None:
    """What waiting for disk cost a reader of files; None below `WORTH_A_WORD` of the run.

    ``0.90 s in 112 stalls (late 0.52 s, miss 0.38 s), 16 % of the run; 40 % of it overlapped``
    """
    seconds = readahead.stall_seconds
    if not readahead.stall_count or seconds < max(0.00005, WORTH_A_WORD * wall):
        return None
    parts = {name: readahead.stalls[name].seconds for name in STALL_CLASSES}
    named = sorted(
        (name for name in parts if parts[name] >= 0.005 * seconds), key=lambda n: -parts[n]
    )
    count = f"{readahead.stall_count:,} stall{'' if readahead.stall_count == 1 else 's'}"
    classes = ", ".join(f"{name} {duration(parts[name])}" for name in named)
    text = f"{duration(seconds)} in {count} ({classes})"
    if wall > 0:
        text += f", {percent(min(1.0, seconds / wall))} of the run"
    return f"{text}; {percent(min(1.0, readahead.overlapped_seconds / seconds))} of it overlapped"


def cache(readahead: Readahead) -> str | None:
    """Where the pages of a reader's files came from; None if too few were read to say.

    ``cold, coverage 100 %, timeliness 98 %, accuracy 97 %``, or ``warm``.
    """
    state = readahead.cache_state
    if state is None:
        return None
    words = [state if state != "mixed" else f"mixed ({percent(readahead.warm_share or 0)} warm)"]
    if state != "warm":
        words += [
            f"{name} {percent(value)}"
            for name, value in (
                ("coverage", readahead.coverage),
                ("timeliness", readahead.timeliness),
                ("accuracy", readahead.accuracy),
            )
            if value is not None
        ]
    return ", ".join(words)
