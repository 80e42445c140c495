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
#: What a command behind a pipe reads from it by: that is there in each run.
_PIPE = re.compile("-|/dev/stdin|(/dev|/proc/self)/fd/0")
#: Descriptors that are written to.
_WRITTEN = re.compile("/dev/std(out|err)|(/dev|/proc/self)/fd/[12]")


def why_not_read_again(pipeline: Pipeline, kinds: Kinds) -> str:
    """Why a pipeline is not to be run again and again, in which no command but the first reads what
    the pipeline is given as its standard input; empty if its input is no reason.

    >>> from pipelined.analysis.shell_text import parse
    >>> def kinds(word):
    ...     return {"p": ["a FIFO"], "d": ["a directory"]}.get(word.value, [])
    >>> for text in ("sort f p", "cat d | wc", "ls p | wc", "du d"):
    ...     print(f"{text}:", *filter(None, [why_not_read_again(parse(text), kinds)]))
    sort f p: p is a FIFO, which is not read again and again
    cat d | wc: d is a directory, and cat reads files
    ls p | wc:
    du d:
    """
    for at, command in enumerate(pipeline.commands):
        for word, is_read in _named(command):
            if _WRITTEN.fullmatch(word.value) or (at and _PIPE.fullmatch(word.value)):
                continue
            for kind in sorted(kinds(word)):
                named = f"{word.text} {'is' if word.literal else 'names'} {kind}"
                if kind != DIRECTORY:
                    return f"{named}, which is not read again and again"
                # find and tar read what is below it; *.log may name some among files
                if is_read and word.literal:
                    return f"{named}, and {command.program} reads files"
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
