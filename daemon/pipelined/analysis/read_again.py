# SPDX-License-Identifier: Apache-2.0
"""Whether what a pipeline reads is there again when it runs again: a FIFO gives what it has once.

Pure: what a name stands for is asked of who calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from pipelined.analysis.dd import input_file
from pipelined.analysis.rewriting import files
from pipelined.analysis.shell_text import Command, Pipeline
from pipelined.analysis.shell_words import Word

__all__ = ["DIRECTORY", "Kinds", "why_not_read_again"]

Kinds = Callable[[Word], Collection[str]]
"""What the files are that a word names, those that can be read again apart: ``a FIFO``."""

DIRECTORY = "a directory"

#: Programs that open none of the files that they are given.
_NAMES_ONLY = frozenset({"basename", "df", "dirname", "du", "echo", "ls", "lsof", "printf", "stat"})
#: What may stand in one word with the name of a file: ``-a``, ``--file=``, ``if=``.
_BEFORE_NAME = re.compile(r"-[A-Za-z0-9]|[\w-]+=", re.ASCII)


def why_not_read_again(pipeline: Pipeline, kinds: Kinds) -> str:
    """Why a pipeline is not to be run again and again; empty if its input is no reason.

    >>> from pipelined.analysis.shell_text import parse
    >>> def kinds(word):
    ...     return {"p": ["a FIFO"], "d": ["a directory"]}.get(word.value, [])
    >>> [
    ...     why_not_read_again(parse(text), kinds)
    ...     for text in ("sort f p", "dd if=p | wc", "cat d | wc", "grep p f", "ls p | wc", "du d")
    ... ]
    ['p is a FIFO', 'p is a FIFO', 'd is a directory', '', '', '']
    """
    for command in pipeline.commands:
        for word, is_read in _named(command):
            for kind in sorted(kinds(word)):
                # cat reads none, find and tar what is below it; *.log may name some among files
                if kind != DIRECTORY or (is_read and word.literal):
                    return f"{word.text} {'is' if word.literal else 'names'} {kind}"
    return ""


def _named(command: Command) -> Iterator[tuple[Word, bool]]:
    """The words that may name what a command reads, and whether they certainly do."""
    read = input_file(command) if command.program == "dd" else files(command)
    for word in (*([command.source] if command.source else []), *(read or ())):
        yield word, True
    if read is not None or command.program in _NAMES_ONLY:
        return
    for word in command.arguments:
        yield word, False
        if before := _BEFORE_NAME.match(word.value):
            yield Word(word.text, word.value[before.end() :], word.literal), False
