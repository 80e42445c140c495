# SPDX-License-Identifier: Apache-2.0
"""A text for a shell as words and operators. What the shell would work out first is only marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelined.command_names import WRAPPERS

__all__ = ["ASSIGNMENT", "Operator", "Word", "base", "behind_wrapper", "tokens"]

#: The begin of a word that sets a variable.
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")

_BLANKS = " \t"
#: Outside quotes these are no part of a word.
_OPERATORS = "\n();<>|&"
#: A dollar sign before one of these is replaced by the shell, if it is in double quotes, too.
_EXPANDED = re.compile(r"\$[A-Za-z0-9_{(@*#?$!\[-]|`")
#: Quotes with rules of their own.
_DOLLAR_QUOTES = ("$'", '$"')


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command."""

    text: str
    """As written, with its quotes."""
    value: str
    """What the program gets, if `literal` and not `expanded`."""
    literal: bool
    """False: the shell may make other words of it (``*.log``, ``~/f``, ``{1..3}``)."""
    expanded: bool = False
    """The shell replaces a variable or the like in it; of a substitution, ``$(…)``, the word has
    only what stands before the parenthesis."""


@dataclass(frozen=True, slots=True)
class Operator:
    """What stands between words, as far as there are no blanks in it: ``|``, ``>>``, ``);``."""

    text: str
    at: int
    """Where in the whole text it begins."""


def tokens(text: str) -> Iterator[Word | Operator]:
    """The words and operators of `text`, in order.

    Raises ValueError when it comes to a quote that is not closed, or to a backslash at the end.

    >>> [token.text for token in tokens("sort 'my file'|uniq")]
    ['sort', "'my file'", '|', 'uniq']
    """
    at = 0
    while at < len(text):
        if text[at] in _BLANKS:
            at += 1
        elif text.startswith("\\\n", at):
            at += 2
        elif text[at] in _OPERATORS:
            begin = at
            while at < len(text) and text[at] in _OPERATORS:
                at += 1
            yield Operator(text[begin:at], begin)
        else:
            word = _word(text, at)
            yield word
            at += len(word.text)


def behind_wrapper(words: Sequence[str], at: int = 0) -> int:
    """Index of the command that a wrapper with a known command line, the word at `at`, runs.

    The number of words if there is none.

    >>> behind_wrapper(["timeout", "-k", "5", "10m", "sort", "-n"])
    4
    """
    wrapper = WRAPPERS[base(words[at])]
    taking, operands = wrapper.taking or "", wrapper.operands
    at += 1
    while at < len(words) and (operands or words[at].startswith("-")):
        word = words[at]
        if not word.startswith("-"):
            operands -= 1
        elif word.startswith("--"):
            # GNU programs and util-linux take a long option by its begin, too
            at += len(word) > 2 and any(name.startswith(word[2:]) for name in wrapper.taking_long)
        else:  # the first option that takes a word takes what is left of this one, if anything is
            first = next((i for i, letter in enumerate(word) if i and letter in taking), 0)
            at += first == len(word) - 1
        at += 1
    return min(at, len(words))


def base(path: str) -> str:
    """A program's name, without its folder."""
    return path.rstrip("/").rpartition("/")[2]


def _word(text: str, at: int) -> Word:
    """The word that begins at `at`."""
    begin, value, literal, expanded = at, "", True, False
    while at < len(text) and text[at] not in _BLANKS and text[at] not in _OPERATORS:
        mark = text[at]
        if mark == "\\":
            if at + 1 == len(text):
                raise ValueError("nothing is behind the backslash")
            value, at = value + text[at + 1].strip("\n"), at + 2
        elif mark == "'":
            end = text.index("'", at + 1)
            value, at = value + text[at + 1 : end], end + 1
        elif mark == '"':
            quoted, replaced, at = _in_double_quotes(text, at + 1)
            value, expanded = value + quoted, expanded or replaced
        else:
            expanded = expanded or _is_expanded(text, at) or text[at : at + 2] in _DOLLAR_QUOTES
            # find's {} is an ordinary word
            literal = literal and (mark not in "*?[{~" or text[at : at + 2] == "{}")
            value, at = value + mark, at + 1
    return Word(text[begin:at], value, literal, expanded)


def _in_double_quotes(text: str, at: int) -> tuple[str, bool, int]:
    """What the quotes have from `at` on, whether the shell replaces a part, and what is behind."""
    value, expanded = "", False
    while text[at : at + 1] != '"':
        if at >= len(text):
            raise ValueError("a quote is not closed")
        if text[at] == "\\" and text[at + 1 : at + 2] in ("$", "`", '"', "\\", "\n"):
            value, at = value + text[at + 1].strip("\n"), at + 2
        else:
            expanded = expanded or _is_expanded(text, at)
            value, at = value + text[at], at + 1
    return value, expanded, at + 1


def _is_expanded(text: str, at: int) -> bool:
    return _EXPANDED.match(text, at) is not None
