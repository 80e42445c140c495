# SPDX-License-Identifier: Apache-2.0
"""Which commands must not be run again and again, as far as their words show it.

`repeatable` knows commands that only read and print. This knows those that change something: they
are never run to find out what is faster. Of all others neither is known: whoever has them is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pipelined.analysis.awk_text import may_write
from pipelined.analysis.repeatable import is_repeatable, reads_by_name
from pipelined.analysis.shell_text import Command, Pipeline
from pipelined.analysis.shell_words import base
from pipelined.command_names import AWKS, COMMON_SHELLS, WRAPPERS

__all__ = ["replaces_files", "uncertain", "unsafe"]

#: Programs that change files, processes, other hosts or this one, whatever their arguments are.
_CHANGES = re.compile(
    "at|batch|chgrp|chmod|chown|cp|crontab|dpkg|halt|install|kill|killall|ln|mailx?|mkdir|mkfifo|"
    "mknod|mount|mutt|mv|pkill|poweroff|reboot|rename|rm|rmdir|rsync|scp|sendmail|sftp|shred|"
    "shutdown|sponge|tee|touch|truncate|umount|unlink|useradd|userdel|wall|write"
)
#: Options with which these send something.
_SENDING = {
    "curl": re.compile(
        r"-[a-zA-Z#]*[dFT].*|--(data|form|json|upload-file|post).*|-X(?!GET$|HEAD$).+|"
        r"--request=(?!GET$|HEAD$).+"
    ),
    "wget": re.compile(r"--(post|body|method).*"),
}
_METHODS = frozenset({"GET", "HEAD"})
#: Subcommands that change nothing are in `repeatable`; of git these do.
_GIT = re.compile(
    "add|am|apply|branch|checkout|clean|clone|commit|fetch|gc|init|merge|mv|pull|push|rebase|reset|"
    "restore|revert|rm|stash|switch|tag"
)
#: Programs that run the words behind them, or the text of one of their words.
_RUNNERS = frozenset({*WRAPPERS, *COMMON_SHELLS, "find", "parallel", "watch", "xargs"})
#: Programs that replace a file that they are given.
_CODECS = frozenset({"bzip2", "gunzip", "gzip", "lbzip2", "lzma", "pigz", "unxz", "xz"})
#: Programs that have --rm, to delete the files that they read.
_REMOVERS = frozenset({"pzstd", "unzstd", "zstd", "zstdcat", "zstdmt"})
#: In a text for a shell: it writes to a file.
_REDIRECTED = re.compile(r">(?!&[0-9-]|\s*/dev/null)")
#: Those that run it for files that they find or are given.
_FOR_FILES = frozenset({"find", "parallel", "xargs"})
_BETWEEN_TEXTS = re.compile(r"[;|&(){}`]+")
_BETWEEN_COMMANDS = re.compile(r"[\s;|&(){}'\"`]+")


def unsafe(pipeline: Pipeline) -> str:
    """Why it must not be run to try what is faster: ``tee writes files``; empty if it may be.

    >>> from pipelined.analysis.shell_text import parse
    >>> [
    ...     unsafe(parse(text))
    ...     for text in ("sort f | tee g", "cat f | xargs rm", "sed -i s/a/b/ f", "sort f | wc")
    ... ]
    ['tee changes something', 'xargs runs rm', 'sed -i writes files', '']
    """
    reasons = (_why(command) for command in pipeline.commands if not reads_by_name(command))
    return next(filter(None, reasons), "")


def uncertain(pipeline: Pipeline) -> tuple[str, ...]:
    """Its programs of which it is not known that they only read and print.

    If it would be known of the name, with what stands in front: ``LD_PRELOAD=./x.so cat``.
    """
    unknown = [
        " ".join(word.text for word in one.front) if reads_by_name(one) else one.program
        for one in pipeline.commands
        if not is_repeatable(one)
    ]
    return tuple(dict.fromkeys(unknown))


def replaces_files(name: str, values: Sequence[str]) -> bool:
    """Whether it is a compressor that replaces each file that it is given, and prints nothing."""
    prints = any(re.match("-[a-zA-Z0-9]*[cl]|--(st|to|lis)", value) for value in values)
    return name in _CODECS and not prints


def _why(command: Command) -> str:
    name, values = command.program, [word.value for word in command.arguments]
    if _CHANGES.fullmatch(name):
        return f"{name} changes something"
    return _sends(name, values) or _writes(name, values) or _runs(name, values)


def _sends(name: str, values: Sequence[str]) -> str:
    options = _SENDING.get(name)
    if options is None:
        return ""
    for at, value in enumerate(values):
        method = values[at + 1 : at + 2] if value in ("-X", "--request", "--method") else []
        if options.fullmatch(value) or (method and method[0] not in _METHODS):
            return f"{name} {value} sends something"
    return ""


def _writes(name: str, values: Sequence[str]) -> str:
    """Whether it writes files by itself."""
    if name == "dd" and any(value.startswith("of=") for value in values):
        return "dd of= writes a file"
    if name == "sed" and any(re.match("-[nErsuz]*i|--i", value) for value in values):
        return "sed -i writes files"
    if name == "sort" and any(re.match("-[a-zA-Z]*o|--o", value) for value in values):
        return "sort -o writes a file"
    if name == "find" and any(re.match("-(delete|fls|fprint)", value) for value in values):
        return "find deletes or writes files"
    if name in AWKS and any(map(may_write, values)):
        return f"{name} writes files, or may (a > behind print)"
    if name == "git" and values and _GIT.fullmatch(values[0]):
        return f"git {values[0]} changes something"
    if name in _REMOVERS and "--rm" in values:
        return f"{name} --rm deletes its files"
    if replaces_files(name, values) and any(not value.startswith("-") for value in values):
        return f"{name} replaces its files"
    return ""


def _runs(name: str, values: Sequence[str]) -> str:
    """Whether a command that it runs changes something."""
    if name not in _RUNNERS:
        return ""
    words = (word for value in values for word in _BETWEEN_COMMANDS.split(value))
    if found := next((base(word) for word in words if _CHANGES.fullmatch(base(word))), ""):
        return f"{name} runs {found}"
    for command in _inner(name, values):
        # whichever word is the program: who searches for the word gzip is asked to leave it out
        for at, word in enumerate(command, 1):
            why = _sends(base(word), command[at:]) or _writes(base(word), command[at:])
            if why:
                return f"{name}: {why}"
    texts = {name, *map(base, values)} & {*COMMON_SHELLS, "parallel", "watch"}
    if texts and any(map(_REDIRECTED.search, values)):
        return f"{name} runs a command that writes files"
    return ""


def _inner(name: str, values: Sequence[str]) -> Iterator[Sequence[str]]:
    """The commands that it may run: its own words, and the commands of each text for a shell."""
    yield [*values, "FILE"] if name in _FOR_FILES else values
    for value in values:
        if re.search(r"\s", value):
            yield from (command.split() for command in _BETWEEN_TEXTS.split(value))
