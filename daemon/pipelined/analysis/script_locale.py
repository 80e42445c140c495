# SPDX-License-Identifier: Apache-2.0
"""In which locale a line of a shell script begins. Pure.

Only what is certain is said: a script can set a locale in many ways.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["locale_of"]

#: What decides nothing, nor is text: comments, options and variables at the begin of a script.
_HEAD = re.compile(
    r"[ \t]*(?:\#.*)?"
    r"|(?:set|cd|umask)[ \t][\w \t./+=-]*(?:\#.*)?"
    r"|(?:export[ \t]+)?\w+=[\w./:$%+-]*[ \t]*(?:\#.*)?"
)
#: A line that sets the locale for all that follows to the one that compares bytes.
_SETS_C = re.compile(r"export LC_ALL=(?:C|POSIX)[ \t]*(?:\#.*)?")
_COMMENTS = re.compile(r"^[ \t]*\#.*$", re.MULTILINE)
#: A locale for one command.
_FOR_ONE = re.compile(
    r"(?:^|[|;&({])[ \t]*(?:(?:LC_\w+|LANG)=[^\s;&|]*[ \t]+)+([\w./-]+)(?![\w./=-])", re.MULTILINE
)
#: What is given to these builtins stays (POSIX, Special Built-In Utilities).
_SPECIAL = frozenset({".", "eval", "exec", "export", "readonly", "set", "source", "trap", "unset"})
_FUNCTIONS = re.compile(r"^[ \t]*(?:function[ \t]+([\w-]+)|([\w-]+)[ \t]*\(\))", re.MULTILINE)
_NAMES_LOCALE = re.compile(r"LC_|LANG(?:UAGE)?\b")
#: What may set a locale without its name: a login shell, another file, a text that is worked out.
_MAY_SET = re.compile(
    r"\A#!.*\s(?:-\w*l|--login)"
    r"|(?:^|[;&|(){!]|\b(?:then|do|else|if|elif|while|until|command|builtin))[ \t]*"
    r"(?:(?:\.|source|eval)\s|export[ \t]+[\"'$`])",
    re.MULTILINE,
)


@lru_cache(maxsize=256)  # it is asked of each run of a script
def locale_of(script: str, line: int, own: str | None) -> str | None:
    """The locale in which a line of a script begins, which was started in the locale `own`; None
    if that is not certain.

    >>> texts = ("sort f", "export LC_ALL=C\\nsort f", "LC_ALL=C sort f", "export LANG=$1\\nsort f")
    >>> [locale_of(text, 2, "de_DE.UTF-8") for text in texts]
    ['de_DE.UTF-8', 'C', 'de_DE.UTF-8', None]
    """
    lines = script.split("\n")
    set_in = _set_in(lines)
    if set_in is not None:
        lines[set_in] = ""
    rest = _COMMENTS.sub("", "\n".join(lines))
    bodies = {name for found in _FUNCTIONS.findall(rest) for name in found if name} | _SPECIAL
    rest = _FOR_ONE.sub(lambda found: found[0] if found[1] in bodies else "", rest)
    if _NAMES_LOCALE.search(rest) or _MAY_SET.search(script):
        return None
    if set_in is None:
        return own
    return "C" if set_in + 1 < line else None


def _set_in(lines: list[str]) -> int | None:
    """In which line, from 0, the head of a script sets the locale to C."""
    for at, line in enumerate(lines):
        if _SETS_C.fullmatch(line):
            return at
        if not _HEAD.fullmatch(line):
            return None
    return None
