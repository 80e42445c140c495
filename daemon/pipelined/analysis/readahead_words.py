# SPDX-License-Identifier: Apache-2.0
"""In words: what waiting for disk cost a reader of files, and where its pages came from."""

from __future__ import annotations

from collections.abc import Mapping

from pipelined.runs import STALL_CLASSES, Readahead
from pipelined.wording import duration, percent

__all__ = ["WORTH_A_WORD", "cache", "files", "meanwhile", "stalls"]

#: A smaller share of the run rounds to nothing: each program waits that long for a page or two
#: when it starts.
WORTH_A_WORD = 0.005
#: A program that reads fewer files than this reads its input, and what it needs to start.
_SEVERAL = 10
#: What a reader waited for, by class of its stalls.
_CLASSES: Mapping[str, str] = {
    "miss": "pages that were not read ahead (miss)",
    "late": "pages that were on their way (late)",
    "other": "anything else (other)",
}


def stalls(readahead: Readahead, wall: float) -> str | None:
    """What waiting for disk cost a reader of files; None below `WORTH_A_WORD` of the run.

    ``waited 0.90 s in 112 stalls, 16 % of the run: 0.52 s for pages that were on their way (late),
    0.38 s for pages that were not read ahead (miss); during 40 % of that time another stage was
    computing``
    """
    seconds = readahead.all_stall_seconds
    if not readahead.stall_count or seconds < max(0.00005, WORTH_A_WORD * wall):
        return None
    parts = {name: sum(readahead.stall_seconds[name]) for name in STALL_CLASSES}
    named = sorted(
        (name for name in parts if parts[name] >= 0.005 * seconds), key=lambda n: -parts[n]
    )
    count = f"{readahead.stall_count:,} stall{'' if readahead.stall_count == 1 else 's'}"
    classes = ", ".join(f"{duration(parts[name])} for {_CLASSES[name]}" for name in named)
    text = f"waited {duration(seconds)} in {count}"
    if wall > 0:
        text += f", {percent(min(1.0, seconds / wall))} of the run"
    return f"{text}: {classes}; {meanwhile(readahead.overlapped_seconds / seconds)}"


def meanwhile(share: float) -> str:
    """In what share of a wait for disk another stage had work to do.

    >>> meanwhile(0.4)
    'during 40 % of that time another stage was computing'
    """
    if not share:
        return "no other stage was computing meanwhile"
    return f"during {percent(min(1.0, share))} of that time another stage was computing"


def cache(readahead: Readahead) -> str | None:
    """Where the pages of a reader's files came from; None if too few were read to say.

    ``read from memory (warm)``, ``read 30,000 files from memory (warm)``, or ``read from disk
    (cold): 98 % of the pages had been read ahead (coverage), 90 % of these in time (timeliness);
    97 % of what was read ahead was used (accuracy)``.
    """
    state = readahead.cache_state
    if state is None:
        return None
    warm = percent(readahead.warm_share or 0)
    source = {"cold": "disk", "warm": "memory"}.get(state, f"disk, {warm} from memory")
    count = files(readahead)
    text = f"read {count + ' files ' if count else ''}from {source} ({state})"
    if state == "warm" or readahead.coverage is None:
        return text
    of_disk = "pages" if state == "cold" else "pages from disk"
    text += f": {percent(readahead.coverage)} of the {of_disk} had been read ahead (coverage)"
    if readahead.timeliness is not None:
        text += f", {percent(readahead.timeliness)} of these in time (timeliness)"
    if readahead.accuracy is not None:
        text += f"; {percent(readahead.accuracy)} of what was read ahead was used (accuracy)"
    return text


def files(readahead: Readahead | None) -> str:
    """How many files a stage read; empty if it is not known, or they are few.

    >>> files(None)
    ''
    """
    count = (readahead.files if readahead else None) or 0
    return f"{count:,}" if count >= _SEVERAL else ""
