# SPDX-License-Identifier: Apache-2.0
"""``xargs``, ``find -exec`` and ``parallel``: how many arguments and processes their words ask for,
one as the other, and work that is spread over several processes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from pipelined.analysis.by_line import takes_each_line
from pipelined.analysis.repeatable import reads_by_name
from pipelined.analysis.shell_text import Command, plain
from pipelined.analysis.shell_words import Word, base
from pipelined.analysis.side_effects import replaces_files
from pipelined.analysis.xargs_options import split_options
from pipelined.command_names import AWKS, COMMON_SHELLS, GREPS

__all__ = [
    "at_once",
    "batch",
    "for_several",
    "in_parts",
    "in_place_of_parallel",
    "more_at_a_time",
    "only_executes",
    "single_arguments",
]

#: Words that a shell passes on as they are; ``parallel`` gives its command to one.
_UNCHANGED = re.compile(r"[\w./:,@%+=-]+", re.ASCII)
#: Commands that a shell runs itself, in its own way.
_BUILT_IN = frozenset({"echo", "printf", "pwd", "read", "test", "time", "true"})
#: Programs that print a line for each file: the digits in front of its name. GNU's write each line
#: as a whole; those of busybox, like most programs, write pieces, and several at once mix them.
_SUMS: Mapping[str, int] = {
    "b2sum": 128,
    "md5sum": 32,
    "sha1sum": 40,
    "sha224sum": 56,
    "sha256sum": 64,
    "sha384sum": 96,
    "sha512sum": 128,
}
#: Programs that add up what they read, take several files as one (a shell's script: only the
#: first), count what is in several of them once (du), align their names, name them only if they are
#: several (rg), print one header for all (ps), end at one that is broken (bzcat, jq), write to the
#: last one, or take one only ...
_AS_ONE = frozenset(
    {*COMMON_SHELLS, "base64", "basename", "bunzip2", "bzcat", "bzgrep", "cmp", "column", "comm"}
    | {"cp", "curl", "dd", "df", "diff", "du", "echo", "expand", "file", "find", "git", "hexdump"}
    | {"join", "jq", "ldd", "ln", "ls", "lsof", "mv", "nl", "nm", "od", "paste", "printf", "ps"}
    | {"readelf", "rg", "seq", "size", "sort", "tar", "tr", "uniq", "unzip", "wc", "xxd"}
    | {"xzgrep", "zegrep", "zfgrep", "zstdgrep"}
)
#: ... those that do with these options: totals of a list, a line between the matches of two files,
#: names of files beside folders, or headers ...
_AS_ONE_WITH: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(("bzip2", "lbzip2"), re.compile("-[A-Za-z0-9]*d|--d")),
    "cat": re.compile(""),
    **dict.fromkeys(
        ("gunzip", "gzip", "pigz", "unxz", "xz", "xzcat", "zcat", "zstd", "zstdcat"),
        re.compile("-[A-Za-z0-9]*l|--l"),
    ),
    **dict.fromkeys(
        GREPS | {"zgrep"},
        re.compile(r"-[A-Za-z]*[ABCRdr]|-[A-Za-ln-z]*\d|--(a|be|con|der|dir|rec)"),
    ),
    **dict.fromkeys(("head", "tail"), re.compile(r"-\d|-[a-z]*v|--v")),
}
#: ... and those that may, as their words say.
_BY_LINE = frozenset({*AWKS, "sed"})
#: What find does with a file besides testing it.
_FIND_ACTIONS = re.compile("-(exec|ok|f?print|f?ls|delete|quit)")
#: So many arguments at a time are enough: starting a process is then next to nothing.
MANY = 1000
#: Each of several processes at a time gets its arguments in so many shares: some end earlier.
SHARES = 4
#: What is treated at once, in mebibytes: starting a process for it is then next to nothing.
_LARGEST_PART = 10


def batch(workers: int, started: int) -> int:
    """How many arguments to give a process at a time, where `started` processes had one each.

    >>> batch(1, 5000), batch(4, 1600)
    (1000, 100)
    """
    return MANY if workers == 1 else max(2, min(MANY, started // (workers * SHARES)))


def single_arguments(values: Sequence[str]) -> tuple[slice | None, int, int]:
    """Which words say ``-n 1``, how many processes are started at a time, and which word is the
    command.

    The number is 0 if that is not known: an option is not, or there is no limit.

    >>> single_arguments(["-0", "-n", "1", "-P4", "gzip"])
    (slice(1, 3, None), 4, 4)
    """
    found = split_options(values)
    if found is None or any(option.letter not in "dInP" for option in found[0]):
        return None, 0, 0
    options, at = found
    one, replaces, workers = None, False, 1
    for letter, value, words in options:
        if letter == "P":
            workers = int(value) if value.isdecimal() else 0
        elif letter == "n":
            one = words if value == "1" and values[words.start].startswith("-n") else None
        replaces |= letter == "I"
    return None if replaces else one, workers, at


def more_at_a_time(command: Command, started: int = 0) -> Command | None:
    """``find … -exec CMD {} +`` for ``\\;``, ``xargs -n 1000`` for ``-n 1``.

    `started` is how many processes it was: with ``xargs -P 4`` each of the four still gets some.
    """
    words, values = command.arguments, [word.value for word in command.arguments]
    # with +, -exec is true for every file, and is executed behind what follows it
    if command.program == "find" and values[-2:] == ["{}", ";"] and values.count("{}") == 1:
        begin = values.index("-exec") + 1 if only_executes(values) else 0
        run = for_several(words[begin:-2]) if begin else None
        return command.with_arguments(*words[:begin], *run, words[-2], plain("+")) if run else None
    if command.program != "xargs":
        return None
    one, workers, at = single_arguments(values)
    if one is not None:
        run = _of_names(words[at:])
        if not workers or run is None or (workers > 1 and not _prints_nothing(words[at:])):
            return None
        options = (plain("-n"), plain(str(batch(workers, started))), *words[one.stop : at])
        return command.with_arguments(*words[: one.start], *options, *run)
    # one argument per line, at the end of the command: what -I does, but many at once
    last = len(values) > 2 and values[0] == "-I{}" and values[-1] == "{}"
    if last and (workers, at) == (1, 1) and not any("{}" in value for value in values[1:-1]):
        run = _of_names(words[1:-1])
        if run is not None:
            # with -I nothing is started without input
            return command.with_arguments(plain("-r"), plain("-d"), plain(r"'\n'"), *run)
    return None


def only_executes(values: Sequence[str]) -> bool:
    """Whether ``find`` with these arguments does no more than one ``-exec`` with what it finds."""
    return [value for value in values if _FIND_ACTIONS.match(value)] == ["-exec"]


def _of_names(words: Sequence[Word]) -> tuple[Word, ...] | None:
    """`for_several` for names that may begin with a dash: ``-i`` has sed change all others."""
    return None if words and base(words[0].value) == "sed" else for_several(words)


def for_several(words: Sequence[Word]) -> tuple[Word, ...] | None:
    """A command that is to get several files in place of one; None if it may print something else:
    a total, or the first lines of all together.

    `grep` then puts their names in front of lines and counts, unless it has ``-h``, `head` and
    `tail` between them, unless they have ``-q``; `basename` needs ``-a``.
    """
    if not words:
        return None  # xargs alone is xargs echo
    name, values = base(words[0].value), [word.value for word in words[1:]]
    alone = Command((), tuple(words), None, 0, None)
    if not (reads_by_name(alone) or replaces_files(name, values)):
        return None  # it may take one file only
    if name in _AS_ONE_WITH and any(map(_AS_ONE_WITH[name].match, values)):
        return None
    if name in GREPS | {"zgrep"}:
        return (words[0], plain("-h"), *words[1:])
    if name in ("head", "tail"):
        return (*words, plain("-q"))
    if name == "basename" and not values:
        return (*words, plain("-a"))
    if name in _AS_ONE or (name in _BY_LINE and not takes_each_line(alone)):
        return None
    return tuple(words)


def in_place_of_parallel(command: Command, cores: int) -> Command | None:
    """``parallel -j 4 CMD`` as ``xargs -P 4 -n 1 CMD``; None if it may do more, or if the output of
    the processes, which ``parallel`` keeps apart, may be mixed.

    `cores` is how many it starts at a time by default.
    """
    if command.program != "parallel":
        return None
    values = [word.value for word in command.arguments]
    workers, at = cores, 0
    if values and (found := re.fullmatch(r"(?:-j|--jobs=?)(\d*)", values[0])):
        number = found[1] or (values[1] if len(values) > 1 else "")
        workers, at = int(number) if number.isdecimal() else 0, 1 if found[1] else 2
    words = command.arguments[at:]
    if words and words[-1].value == "{}":
        words = words[:-1]
    if not workers or not words or words[0].value in _BUILT_IN:
        return None
    if words[0].value.startswith("-") or "=" in words[0].value:
        return None
    if not all(_UNCHANGED.fullmatch(word.value) for word in words) or values.count(":::"):
        return None
    # for one file a sum is one line, and written at once
    if _digits(words) is None and not _prints_nothing(words):
        return None
    options = ("xargs", "-r", "-d", r"'\n'", "-P", str(workers), "-n", "1")
    front = command.words[: command.start]
    return Command(
        command.assignments,
        (*front, *map(plain, options), *words),
        command.source,
        len(front),
        None,
    )


def at_once(
    command: Command, workers: int, taken: int, passed_on: int, writes: int
) -> Command | None:
    """``xargs md5sum`` as ``xargs -n 100 -P 4 md5sum``; None if another order of its lines is not
    all that changes.

    It was given `taken` bytes of names and wrote `passed_on` in so many `writes`: that shows how
    many files there were, and whether each had a write of its own.

    >>> from pipelined.analysis.shell_text import parse
    >>> at_once(parse("xargs -0 md5sum").commands[0], 2, 15_000, 49_000, 1_000).text
    'xargs -0 -n 125 -P 2 md5sum'
    """
    if command.program != "xargs" or workers < 2:
        return None
    words = list(command.arguments)
    found = split_options([word.value for word in words])
    if found is None or any(option.letter not in "d" for option in found[0]):
        return None
    at = found[1]
    digits = _digits(words[at:])
    if digits is None:
        return None
    files = (passed_on - taken) // (digits + len("  "))
    if files < 2 or writes < files:
        return None
    options = ("-n", str(batch(workers, files)), "-P", str(workers))
    return command.with_arguments(*words[:at], *map(plain, options), *words[at:])


def _prints_nothing(words: Sequence[Word]) -> bool:
    """Whether several of this command at a time have nothing to mix."""
    return replaces_files(base(words[0].value), [word.value for word in words[1:]])


def _digits(words: Sequence[Word]) -> int | None:
    """How many digits it prints for each file; None if it is not certain to be one of `_SUMS`."""
    plain_one = all(word.value == "-b" for word in words[1:])
    return _SUMS.get(base(words[0].value)) if words and plain_one else None


def in_parts(command: Command, names: Sequence[Word], workers: int, taken: int) -> Command | None:
    """``sed A FILE`` as ``parallel --pipe -k --block 10M 'sed A' < FILE``, for `taken` bytes; None
    unless it treats each line by itself.

    `names` are the files that it reads.

    >>> from pipelined.analysis.shell_text import parse
    >>> command = parse("LC_ALL=C sed s/a/b/ f").commands[0]
    >>> in_parts(command, command.arguments[-1:], 2, 64 << 20).text
    "parallel --pipe -k --block 8M 'LC_ALL=C sed s/a/b/' < f"
    """
    if workers < 2 or len(names) > 1 or not takes_each_line(command):
        return None
    kept = [word for word in command.arguments if not any(word is name for name in names)]
    # it puts something in the place of {}, {.}, {#}, …
    if any(not word.literal or "{" in word.value for word in (*command.words, *names)):
        return None
    if any(name.value == "-" for name in names):
        return None
    text = shlex.quote(command.with_arguments(*kept).with_source(None).text)
    size = max(1, min(_LARGEST_PART, taken // (workers * SHARES) >> 20))
    words = map(plain, ("parallel", "--pipe", "-k", "--block", f"{size}M"))
    source = names[0] if names else command.source
    return Command((), (*words, Word(text, text, True)), source, 0, None)
