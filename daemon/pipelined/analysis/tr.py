# SPDX-License-Identifier: Apache-2.0
"""Several ``tr`` in a row as one, where each only puts characters in the place of others."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby

from pipelined.analysis.shell_text import Command, Pipeline
from pipelined.analysis.shell_words import Word

__all__ = ["joined"]

#: Characters that stand for themselves, and ranges: printable ASCII, without ``\`` and ``[``.
_SET = re.compile(r"[ -Z\]-~]+")
_ITEM = re.compile(r"(.)-(.)|(.)")
#: A range of fewer characters is no shorter to write.
_SHORTEST = 3


def joined(old: Pipeline) -> Pipeline | None:
    """With one ``tr`` for each row of them; None if there is no row of which that is certain.

    >>> from pipelined.analysis.shell_text import parse
    >>> joined(parse("tr a-z A-Z < f | tr ' ' _ | tr A-C x-z | tr -d _ | wc")).text
    "tr ' A-Ca-cd-z' _x-zx-zD-Z < f | tr -d _ | wc"
    """
    commands = list[Command]()
    for simple, row in groupby(old.commands, lambda command: _table(command) is not None):
        some = list(row)
        one = _one(some) if simple and len(some) > 1 else None
        commands += [one] if one else some
    return Pipeline(tuple(commands)) if len(commands) < len(old.commands) else None


def _one(row: Sequence[Command]) -> Command | None:
    """One command for a row of them; None if it would change nothing."""
    table = reduce(_after, filter(None, map(_table, row)))
    pairs = [(ord(a), ord(b)) for a, b in sorted(table.items()) if a != b]
    sets = ["".join(part) for part in zip(*_items(pairs), strict=True)]
    words = (Word(shlex.quote(text), text, True) for text in sets)
    return row[0].with_arguments(*words) if sets else None


def _after(first: Mapping[str, str], second: Mapping[str, str]) -> Mapping[str, str]:
    """What both do, one after the other."""
    return {**second, **{char: second.get(to, to) for char, to in first.items()}}


def _table(command: Command) -> Mapping[str, str] | None:
    """What it puts in the place of which character; None if it may do anything else."""
    words = command.arguments
    if command.program != "tr" or len(words) != 2 or command.start or command.assignments:
        return None
    sets = [_characters(word.value) if word.literal else "" for word in words]
    # of sets that differ in length, or have a character twice, not all tr make the same
    if len(sets[0]) != len(sets[1]) or len(set(sets[0])) < len(sets[0]):
        return None
    return dict(zip(*sets, strict=True)) or None


def _characters(text: str) -> str:
    """The characters of a set; empty if that is not certain."""
    if not _SET.fullmatch(text) or (text.startswith("-") and text != "-"):
        return ""
    ranges = [
        (ord(found[1]), ord(found[2])) if found[1] else (ord(found[3]), ord(found[3]))
        for found in _ITEM.finditer(text)
    ]
    if any(last < first for first, last in ranges):
        return ""
    return "".join(chr(code) for first, last in ranges for code in range(first, last + 1))


def _items(pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[str, str]]:
    """Characters and ranges for both sets, given codes in order."""
    at = 0
    while at < len(pairs):
        (first, to), count = pairs[at], 1
        while pairs[at + count : at + count + 1] == [(first + count, to + count)]:
            count += 1
        if count < _SHORTEST:
            yield _written(first), _written(to)
            at += 1
        else:
            yield _range(first, count), _range(to, count)
            at += count


def _range(first: int, count: int) -> str:
    return f"{_written(first)}-{_written(first + count - 1)}"


def _written(code: int) -> str:
    """A character, or its octal code if it means more than itself."""
    return f"\\{code:03o}" if chr(code) in "-[\\" else chr(code)
