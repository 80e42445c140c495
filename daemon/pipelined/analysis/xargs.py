# SPDX-License-Identifier: Apache-2.0
"""``xargs``: how many arguments and processes its options ask for, and ``parallel`` as xargs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipelined.analysis.shell_text import Command, plain

__all__ = ["batch", "in_place_of_parallel", "single_arguments"]

#: Words that a shell passes on as they are; ``parallel`` gives its command to one.
_UNCHANGED = re.compile(r"[\w./:,@%+=-]+", re.ASCII)
#: Commands that a shell runs itself, in its own way.
_BUILT_IN = frozenset({"echo", "printf", "pwd", "read", "test", "time", "true"})
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


def in_place_of_parallel(command: Command, cores: int) -> Command | None:
    """``parallel -j 4 CMD`` as ``xargs -P 4 -n 1 CMD``; None if it may do more.

    `cores` is how many it starts at a time by default.
    """
    if command.program != "parallel":
        return None
    values = [word.value for word in command.arguments]
    workers, at = cores, 0
    if values and (found := re.fullmatch(r"(?:-j|--jobs=?)(\d*)", values[0])):
        number = found[1] or (values[1] if len(values) > 1 else "")
        workers, at = int(number) if number.isdecimal() else 0, 1 if found[1] else 2
    words = command.arguments[at:]
    if words and words[-1].value == "{}":
        words = words[:-1]
    if not workers or not words or words[0].value in _BUILT_IN:
        return None
    if words[0].value.startswith("-") or "=" in words[0].value:
        return None
    if not all(_UNCHANGED.fullmatch(word.value) for word in words) or values.count(":::"):
        return None
    options = ("xargs", "-d", r"'\n'", "-P", str(workers), "-n", "1")
    front = command.words[: command.start]
    return Command(
        command.assignments,
        (*front, *map(plain, options), *words),
        command.source,
        len(front),
        None,
    )
