# SPDX-License-Identifier: Apache-2.0
"""Whether what a command does depends on its input being a file, on how many files it is, or on
what they are called."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pipelined.analysis.dd import copies_alike
from pipelined.analysis.shell_text import Command
from pipelined.analysis.shell_words import Word
from pipelined.command_names import AWKS, GREPS

__all__ = ["alike_from_file", "by_file", "is_file", "one_count", "sees_name", "stores_time"]

#: With these they treat each file by itself, or can see what it is called.
_BY_FILE: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(
        AWKS,
        # a program in another file may
        re.compile(
            r"\b(ARGC|ARGIND|ARGV|BEGINFILE|ENDFILE|FILENAME|FNR|getline|nextfile)\b"
            r"|^(-[Efi]|--(exec|file|include))"
        ),
    ),
    **dict.fromkeys(GREPS, re.compile("^-[A-Za-z]*[HLl]")),
    "sed": re.compile("^-[A-Za-z]*s"),
    "sort": re.compile("^-[A-Za-z]*[Ccm]"),
}
#: They print what their file is called.
_NAMING = frozenset({"md5sum", "sha1sum", "sha256sum", "wc"})
#: Unless they decompress to their output, they store the name, or write another file.
_CODECS = frozenset({"bzip2", "gzip", "xz", "zstd"})
#: With these ``gzip`` and ``pigz`` store no time: they decompress, or -n.
_NO_TIME = re.compile("-[0-9A-Za-z]*[dn]|--(d|un|no-n)")
#: Option of a ``wc`` that prints one number.
_ONE_COUNT = re.compile(r"-[clmwL]|--.+")


def is_file(word: Word, program: str) -> bool:
    """Whether what the shell makes of a word is a file to a program: no option, and no variable of
    awk, as ``dt=1/part``, which ``*/part`` may become, would be.

    >>> from pipelined.analysis.shell_text import parse
    >>> [is_file(word, "awk") for word in parse("cat f a=b *.log log.* ./*").commands[0].arguments]
    [True, False, False, True, True]
    """
    if re.match(r"-|[A-Za-z_]\w*=", word.value):
        return False
    begins_otherwise = re.match(r"~|\w*[^\w=*?\[{]", word.value) is not None
    return program not in AWKS or word.literal or begins_otherwise


def one_count(command: Command) -> bool:
    """Whether a ``wc`` prints one number. How wide it prints several depends on whether it reads a
    file, and on how large that is."""
    options = [word.value for word in command.arguments]
    return len(options) == 1 and _ONE_COUNT.fullmatch(options[0]) is not None


def alike_from_file(command: Command) -> bool:
    """Whether it does the same with a file as standard input as with the same bytes from a pipe,
    of which one read may get less than was asked for; apart from a time (`stores_time`)."""
    if command.program == "dd":
        return copies_alike(command)
    if command.program == "tail":
        # -f waits for more of a file, and ends with a pipe
        return not any(re.match("-[^-]*[Ff]|--f", word.value) for word in command.arguments)
    return command.program != "wc" or one_count(command)


def stores_time(command: Command) -> bool:
    """Whether it stores when the file was changed that is its standard input; of a pipe ``gzip``
    stores no time, and ``pigz`` that of the run."""
    options = [word.value for word in command.arguments]
    return command.program in ("gzip", "pigz") and not any(map(_NO_TIME.match, options))


def by_file(command: Command) -> bool:
    """Whether it may treat each file by itself, or see what it is called."""
    pattern = _BY_FILE.get(command.program)
    return pattern is not None and any(pattern.search(word.value) for word in command.arguments)


def sees_name(command: Command) -> bool:
    """Whether it may print or store what the file is called that it opens."""
    if command.program in _CODECS:
        values = [word.value for word in command.arguments]
        flags = [value for value in values if re.fullmatch("-[0-9a-z]+", value)]
        return not {"c", "d"} <= set("".join(flags))
    return command.program in _NAMING or by_file(command)
