# SPDX-License-Identifier: Apache-2.0
"""What the options of ``xargs`` say: how many arguments, and how many processes at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["batch", "single_arguments"]

#: So many arguments at a time are enough: starting a process is then next to nothing.
MANY = 1000
#: Each of several processes at a time gets its arguments in so many shares: some end earlier.
SHARES = 4


def batch(workers: int, started: int) -> int:
    """How many arguments to give a process at a time, where `started` processes had one each.

    >>> batch(1, 5000), batch(4, 1600)
    (1000, 100)
    """
    return MANY if workers == 1 else max(2, min(MANY, started // (workers * SHARES)))


def single_arguments(values: Sequence[str]) -> tuple[slice | None, int]:
    """Which words say ``-n 1``, and how many processes are started at a time.

    The number is 0 if that is not known: an option is not, or there is no limit.

    >>> single_arguments(["-0", "-n", "1", "-P4", "gzip"])
    (slice(1, 3, None), 4)
    """
    one, workers, at = None, 1, 0
    while at < len(values) and values[at].startswith("-"):
        found = re.fullmatch(r"-[0rtx]*(?:([dInP])(.*))?", values[at])
        if found is None:
            return one, 0
        letter, value, begin = found[1], found[2], at
        if letter and not value:
            at += 1
            value = values[at] if at < len(values) else ""
        at += 1
        if letter == "P":
            workers = int(value) if value.isdecimal() else 0
        elif letter == "n" and value == "1" and values[begin].startswith("-n"):
            one = slice(begin, at)
    return one, workers
