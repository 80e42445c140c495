# SPDX-License-Identifier: Apache-2.0
"""The options of ``xargs``: which ones take a value, and which word is the command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Option", "split_options"]

#: One word: options without a value, and behind them at most one with a value, which is the rest of
#: the word or else the next one. The value of -e, -i and -l is never the next one.
_WORD = re.compile(r"-(?=.)[0oprtx]*(?:([adEILnPs])(.*)|([eil])(.*))?", re.DOTALL)


class Option(NamedTuple):
    """The options of one word."""

    letter: str
    """Of the one with a value; empty if there is none."""
    value: str
    words: slice
    """Where they stand."""


def split_options(values: Sequence[str]) -> tuple[list[Option], int] | None:
    """The options, and the index of the command; None if an option is not known.

    >>> split_options(["-0", "-rn", "1", "-P4", "gzip", "-n"])
    ([Option(letter='', value='', words=slice(0, 1, None)), \
Option(letter='n', value='1', words=slice(1, 3, None)), \
Option(letter='P', value='4', words=slice(3, 4, None))], 4)
    """
    found, at = list[Option](), 0
    while at < len(values) and values[at].startswith("-"):
        word = _WORD.fullmatch(values[at])
        if word is None:
            return None
        begin, at = at, at + 1
        letter, value = word[1] or word[3] or "", word[2] or word[4] or ""
        if word[1] and not value:
            value = "".join(values[at : at + 1])
            at += 1
        found.append(Option(letter, value, slice(begin, at)))
    return found, at
