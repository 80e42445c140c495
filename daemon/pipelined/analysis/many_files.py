# SPDX-License-Identifier: Apache-2.0
"""Other ways to write a pipeline in which ``cat`` passes on very many files.

As in `rewriting`, every function returns None unless the other way is certain to be the same.
"""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile

from pipelined.analysis.by_line import takes_each_line
from pipelined.analysis.input_files import is_file
from pipelined.analysis.rewriting import files, in_place_of_cat
from pipelined.analysis.shell_text import Command, Pipeline, plain
from pipelined.analysis.shell_words import Word
from pipelined.analysis.xargs import only_executes
from pipelined.analysis.xargs_options import split_options
from pipelined.command_names import AWKS, GREPS

__all__ = ["TAIL", "opened_by_reader", "with_tail"]

#: Copies files as ``cat`` does, with a buffer for all of them.
TAIL = "tail -q -n +1"

#: Programs that print the same for each line, whichever of several files it is in.
_READERS = GREPS | AWKS | {"cut", "sed"}
#: Those in which a name can set a variable (``a=b``), or have all other files changed (``-i``).
_MISTAKING = AWKS | {"sed"}
#: Options of xargs with which it adds names at the end and runs one command after another.
_XARGS_OPTIONS = re.compile(r"(-[0rt]+|-[dns].+|-P ?1)")


def opened_by_reader(old: Pipeline, index: int) -> Pipeline | None:
    """``xargs -0 cat | grep A`` as ``xargs -0 grep -h A``; ``find -exec cat {} +`` likewise.

    Not if grep is the last: xargs makes 123 of the exit status with which it says that a batch had
    no match.
    """
    if index + 1 >= len(old.commands):
        return None
    starter, reader = old.commands[index : index + 2]
    place = _cat_in(starter)
    last = index + 2 == len(old.commands)
    if place is None or reader.program not in _READERS or (last and reader.program in GREPS):
        return None
    plain_one = not (reader.assignments or reader.start or reader.source)
    if not plain_one or files(reader) != () or not takes_each_line(reader):
        return None
    if any("{}" in word.value or not word.literal for word in reader.arguments):
        return None  # find puts names there
    if reader.program in _MISTAKING and not _finds_files(starter):
        return None
    words: list[Word] = [*reader.words]
    if reader.program in GREPS:
        words.insert(1, plain("-h"))
    new = starter.with_arguments(
        *starter.arguments[:place], *words, *starter.arguments[place + 1 :]
    )
    return Pipeline((*old.commands[:index], new, *old.commands[index + 2 :]))


def with_tail(old: Pipeline, index: int) -> Pipeline | None:
    """With `TAIL` for the ``cat`` at `index`, or for that which ``xargs`` or ``find`` starts."""
    command = old.commands[index]
    if command.program == "cat":
        names = files(command)
        options = any(word.value.startswith("-") for word in command.arguments)
        if not names or options or (not index and in_place_of_cat(old)):
            return None
        new = command.with_program(TAIL)
    else:
        place = _cat_in(command)
        if place is None:
            return None
        arguments = command.arguments
        words = map(plain, TAIL.split())
        new = command.with_arguments(*arguments[:place], *words, *arguments[place + 1 :])
    return Pipeline((*old.commands[:index], new, *old.commands[index + 1 :]))


def _cat_in(starter: Command) -> int | None:
    """Which argument of xargs or find is the ``cat`` that it starts for many files at once."""
    values = [word.value for word in starter.arguments]
    if starter.program == "xargs":
        options, at = split_options(values) or ([], 0)
        known = all(_XARGS_OPTIONS.fullmatch(" ".join(values[one.words])) for one in options)
        return at if known and values[at:] == ["cat"] else None
    if starter.program == "find" and values[-4:] == ["-exec", "cat", "{}", "+"]:
        # what it prints itself would not be filtered
        return len(values) - 3 if only_executes(values) else None
    return None


def _finds_files(starter: Command) -> bool:
    """Whether no name that it hands over can be an option, or a variable to awk."""
    words = starter.arguments
    if starter.program != "find" or any(re.match("-([DO]|files0)", word.value) for word in words):
        return False
    rest = dropwhile(lambda word: word.value in ("-H", "-L", "-P"), words)
    begins = takewhile(lambda word: not re.match("[-(!]", word.value), rest)
    return all(is_file(word, "awk") for word in begins)
