# SPDX-License-Identifier: Apache-2.0
"""Commands that print nothing behind a certain line, and read on: the same, ended there."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from pipelined.analysis.awk_text import program_of, tokens
from pipelined.analysis.by_line import takes_each_line
from pipelined.analysis.repeatable import is_repeatable
from pipelined.analysis.shell_text import Command, Pipeline, plain
from pipelined.analysis.shell_words import Word
from pipelined.command_names import AWKS, COPIERS

__all__ = ["Ended", "ended", "passes_on_at_once"]

_NUMBER = r"[1-9][0-9]{0,8}"
_SED_PRINTS = re.compile(rf"({_NUMBER})(?:,({_NUMBER}))?p")
_SED_DROPS = re.compile(rf"({_NUMBER}),\$d")
_AWK_LINES = re.compile(rf"\s*NR\s*(==|<=|<)\s*({_NUMBER})\s*(\{{[^{{}}]*\}})?\s*;?\s*")
_AWK_PRINTS = re.compile(r"\{\s*print(\s+\$0)?\s*;?\s*\}")
#: In an action they read, count or end.
_AWK_MORE = frozenset({"NR", "exit", "getline", "nextfile", "function", "func"})
#: Programs that pass on what they read as they read it, whatever their arguments are; those that
#: compress only if what they do is to decompress.
_AT_ONCE = COPIERS | {"bunzip2", "bzcat", "expand", "fold", "gunzip", "nl", "rev", "seq", "unxz"}
_AT_ONCE |= {"xzcat", "zcat", "zstdcat"}
_CODECS = frozenset({"bzip2", "gzip", "lbzip2", "pigz", "xz", "zstd"})


@dataclass(frozen=True, slots=True)
class Ended:
    """A pipeline with a command that ends behind the last line that it prints something of."""

    new: Pipeline
    line: int
    """The number of that line."""
    printed: int | None
    """How many lines it prints of an input that has as many; None if what it prints are no lines
    of its input."""


def ended(old: Pipeline, index: int) -> Ended | None:
    """With the command at `index` ended behind the last line that it prints something of.

    >>> from pipelined.analysis.shell_text import parse
    >>> [
    ...     found.new.text if (found := ended(parse(text), 0)) else None
    ...     for text in ("sed -n 2,5p f", "awk 'NR == 1 { print $2 }' f", "sed -n '$p' f")
    ... ]
    ['sed -n -e 2,5p -e 6q f', "awk 'NR > 1 { exit } NR == 1 { print $2 }' f", None]
    """
    command = old.commands[index]
    found = (
        _sed(command)
        if command.program == "sed"
        else _awk(command)
        if command.program in AWKS
        else None
    )
    if found is None:
        return None
    new, line, printed = found
    commands = (*old.commands[:index], new, *old.commands[index + 1 :])
    return Ended(Pipeline(commands), line, printed)


def passes_on_at_once(command: Command) -> bool:
    """Whether it writes what it has read before it reads all, and changes nothing else."""
    if not is_repeatable(command):
        return False
    if command.program in _CODECS:
        values = [word.value for word in command.arguments]
        return any(re.match("-[a-z0-9]*d|--decompress", value) for value in values)
    return command.program in _AT_ONCE or takes_each_line(command) is True


def _sed(command: Command) -> tuple[Command, int, int | None] | None:
    words = command.arguments
    quiet = bool(words) and words[0].value in ("-n", "--quiet", "--silent")
    options, rest = words[: int(quiet)], words[int(quiet) :]
    if not rest or any(word.value.startswith("-") for word in rest):
        return None
    script, names = rest[0], rest[1:]
    if len(names) > 1 or not all(word.literal for word in names):
        return None  # q ends the last line of a file that has no newline
    prints = _SED_PRINTS.fullmatch(script.value) if quiet else None
    drops = None if quiet else _SED_DROPS.fullmatch(script.value)
    if prints:
        first = int(prints[1])
        last = max(first, int(prints[2] or first))
        printing = script.value
    elif drops and int(drops[1]) > 1:
        first, last = 1, int(drops[1]) - 1
        options, printing = (plain("-n"),), f"1,{last}p"
    else:
        return None
    # one line later, which ends with it the line that is printed
    scripts = map(plain, ("-e", printing, "-e", f"{last + 1}q"))
    return command.with_arguments(*options, *scripts, *names), last, last - first + 1


def _awk(command: Command) -> tuple[Command, int, int | None] | None:
    program = program_of(command)
    found = _AWK_LINES.fullmatch(program.value) if program else None
    if program is None or found is None:
        return None
    comparison, number, action = found.groups()
    last = int(number) - (comparison == "<")
    names = {text for _, text in tokens(action or "") or [("", "getline")] * bool(action)}
    whole = action is None or _AWK_PRINTS.fullmatch(action) is not None
    one = comparison == "=="
    # of what several lines made it does not show whether there are so many
    if last < 1 or names & _AWK_MORE or not (whole or one):
        return None
    text = f"NR > {last} {{ exit }} {program.value.strip()}"
    new = Word(shlex.quote(text), text, True)
    words = (new if word is program else word for word in command.arguments)
    printed = (1 if one else last) if whole else None
    return command.with_arguments(*words), last, printed
