# SPDX-License-Identifier: Apache-2.0
"""Pipelines without stages that they do not need: of a round trip, a sort, ``uniq``, a ``cat``.

As in `rewriting`, every function returns None unless both ways are certain to print the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelined.analysis.by_line import ends_its_lines, takes_each_line
from pipelined.analysis.input_files import alike_from_file, stores_time
from pipelined.analysis.rewriting import files
from pipelined.analysis.shell_text import Command, Pipeline, plain
from pipelined.analysis.shell_words import Word
from pipelined.command_names import GREPS

__all__ = [
    "Counted",
    "orders_all",
    "orders_all_it_reads",
    "with_sort_unique",
    "without_copier",
    "without_counted_sort",
    "without_round_trip",
    "without_sort",
]

#: The format that a program writes or reads, and whether its name alone says that it reads.
_FORMATS: Mapping[str, tuple[str, bool]] = {
    "bunzip2": ("bzip2", True),
    "bzcat": ("bzip2", True),
    "bzip2": ("bzip2", False),
    "gunzip": ("gzip", True),
    "gzip": ("gzip", False),
    "lbzip2": ("bzip2", False),
    "lz4": ("lz4", False),
    "pigz": ("gzip", False),
    "unxz": ("xz", True),
    "xz": ("xz", False),
    "xzcat": ("xz", True),
    "zcat": ("gzip", True),
    "zstd": ("zstd", False),
    "zstdcat": ("zstd", True),
}
#: Options that change neither what is read nor where it goes to: levels, threads, ``-c``, ``-q``.
_HOW = re.compile(r"-[0-9cknq]+|-[Tp][0-9]+|--(best|fast|stdout|keep|quiet)")
_BACK = re.compile(r"-[0-9cknq]*d[0-9cknq]*|--(decompress|uncompress)")
#: Options of a sort that passes on every line once, whatever order it gives them.
_ORDERS = re.compile(r"-[bdfghiMnrsVR]+|--(stable|reverse|numeric-sort|version-sort)")
#: The same of one whose output depends on the lines alone: the whole line orders equal keys.
_TOTAL = re.compile(r"-[bdfghiMnrV]+|--(reverse|numeric-sort|version-sort)")
#: Options of a sort that passes on as many lines as it reads. Not -z: what is a line to `wc` then
#: depends on the order.
_PASSES_ALL = re.compile(
    r"-[bdfghiMmnrsVR]+|--(stable|reverse|numeric-sort|version-sort|ignore-case)"
    r"|--(sort|buffer-size|temporary-directory|compress-program|batch-size|field-separator)=.*"
)
#: Options of a `wc` that counts what it reads from its pipe.
_COUNTS = re.compile(r"-[clmwL]+|--(bytes|chars|lines|max-line-length|words)")
#: Options of a `grep` that only counts lines, and those that it may have besides.
_COUNTS_LINES = re.compile(r"-[EFGPahivwxy]*c[EFGPahivwxy]*|--count")
_OF_A_COUNT = re.compile(r"-[EFGPahivwxy]+")
#: A key or a separator, behind other options in one word.
_KEY = re.compile(r"(-[^-STokt]*)(?:[kt]|-key=(?=.))(.*)", re.DOTALL)
#: How much it takes to sort, and in which order whole lines come.
_WHOLE_LINES = re.compile(r"-r|--reverse|--parallel=[0-9]+|-S[0-9]+[kKMG%]?|-T.+")


def without_round_trip(old: Pipeline, index: int) -> Pipeline | None:
    """Without the compressor at `index`, and what decompresses its output at once."""
    if index + 2 > len(old.commands):
        return None
    first, second = old.commands[index : index + 2]
    packed, unpacked = _codec(first), _codec(second)
    if packed is None or unpacked is None or packed[0] != unpacked[0]:
        return None
    if packed[1] or not unpacked[1]:
        return None
    return _dropped(old, index, 2, ())


def without_sort(old: Pipeline, index: int) -> tuple[Pipeline, int] | None:
    """Without the sort at `index`, whose order another one behind it changes; and where that is.

    What stands between them treats each line by itself, and the later one orders all lines.
    """
    first = old.commands[index]
    names = files(first)
    if first.program != "sort" or names is None or not _only(first, names, _ORDERS):
        return None
    at = _behind_lines(old, index)
    if at is None:
        return None
    later = old.commands[at]
    if not orders_all_it_reads(later):
        return None
    new = _dropped(old, index, 1, names)
    return (new, at) if new else None


@dataclass(frozen=True, slots=True)
class Counted:
    """A pipeline without a sort whose lines are only counted."""

    new: Pipeline
    counter: int
    """Index of the command that counts them, before that."""
    joins: bool
    """`cat` is in its place, as it read several files."""
    ended: bool
    """The last line that is counted is certain to end in a newline, which a sort would add."""


def without_counted_sort(old: Pipeline, index: int) -> Counted | None:
    """Without the sort at `index`, if ``wc`` or ``grep -c`` counts what it passes on.

    What stands between them treats each line by itself. Both print the same if `Counted.ended`, or
    if each input of the sort ends in a newline.
    """
    first = old.commands[index]
    names = files(first)
    if first.program != "sort" or names is None or not _only(first, names, _PASSES_ALL):
        return None
    at = _behind_lines(old, index)
    if at is None or not _only_counts(counter := old.commands[at]):
        return None
    joins = not index and (len(names) > 1 or any(not word.literal for word in names))
    if joins:
        if first.source or any(word.value.startswith("-") for word in names):
            return None
        cat = Command((), (plain("cat"), *names), None, 0, None)
        new: Pipeline | None = Pipeline((cat, *old.commands[1:]))
    else:
        new = _dropped(old, index, 1, names)
    before = old.commands[max(0, index - 1) : index]
    # what joins files joins the last line of one and the first of the next; grep counts a last
    # line without a newline, too
    ended = not joins and (
        counter.program in GREPS
        or any(map(ends_its_lines, (*before, *old.commands[index + 1 : at])))
    )
    return Counted(new, at, joins, ended) if new else None


def _only_counts(command: Command) -> bool:
    """Whether it is a ``wc``, or a ``grep -c``, that counts what it reads from its pipe."""
    values = [word.value for word in command.arguments]
    if command.program == "wc":
        return all(map(_COUNTS.fullmatch, values))
    if command.program not in GREPS or files(command) != ():
        return False
    options = [value for value in values if value.startswith("-")]
    counts = [value for value in options if _COUNTS_LINES.fullmatch(value)]
    others = [value for value in options if value not in counts]
    return bool(counts) and all(map(_OF_A_COUNT.fullmatch, others))


def _behind_lines(old: Pipeline, index: int) -> int | None:
    """The first command behind `index` that may not treat each line by itself.

    None if there is none, or if one before it reads something else.
    """
    for at in range(index + 1, len(old.commands)):
        later = old.commands[at]
        if not takes_each_line(later) and not _copies(later):
            return at
        if later.program not in ("cat", "tr") and files(later) != ():
            return None
    return None


def with_sort_unique(old: Pipeline, index: int) -> Pipeline | None:
    """``sort | uniq`` as ``sort -u``, if whole lines are compared."""
    if index + 2 > len(old.commands):
        return None
    sort, uniq = old.commands[index : index + 2]
    names = files(sort)
    if sort.program != "sort" or uniq.program != "uniq" or uniq.arguments or names is None:
        return None
    if not _only(sort, names, _WHOLE_LINES):
        return None
    one = sort.with_arguments(plain("-u"), *sort.arguments)
    return Pipeline((*old.commands[:index], one, *old.commands[index + 2 :]))


def without_copier(old: Pipeline, index: int) -> Pipeline | None:
    """Without a ``cat`` between two other commands."""
    cat = old.commands[index]
    inside = 0 < index < len(old.commands) - 1
    return _dropped(old, index, 1, ()) if inside and _copies(cat) else None


def _copies(command: Command) -> bool:
    """Whether it passes on its input and nothing else."""
    return command.program == "cat" and [word.value for word in command.arguments] in ([], ["-"])


def _codec(command: Command) -> tuple[str, bool] | None:
    """Its format, and whether it decompresses; None if it may do more than pass on its input."""
    known = _FORMATS.get(command.program)
    if known is None:
        return None
    kind, expands = known
    for word in command.arguments:
        if _BACK.fullmatch(word.value):
            expands = True
        elif not _HOW.fullmatch(word.value):
            return None
    return kind, expands


def _only(command: Command, names: Sequence[Word], allowed: re.Pattern[str]) -> bool:
    """Whether a sort has only allowed options beside its files; keys are, unless `_WHOLE_LINES`."""
    rest = [word.value for word in command.arguments if not any(word is name for name in names)]
    words = iter(rest)
    for value in words:
        key = _KEY.fullmatch(value)
        if value in ("-S", "-T"):
            next(words, None)
        elif key and allowed is not _WHOLE_LINES and (key[1] == "-" or allowed.fullmatch(key[1])):
            if not key[2]:
                next(words, None)
        elif not allowed.fullmatch(value) and not _WHOLE_LINES.fullmatch(value):
            return False
    return True


def orders_all(sort: Command) -> bool:
    """Whether its output is the same for the same lines in another order."""
    values = [word.value for word in sort.arguments]
    if "-u" in values or "--unique" in values:  # of lines with equal keys one is kept
        kept = [word for word in sort.arguments if word.value not in ("-u", "--unique")]
        return _only(sort.with_arguments(*kept), (), _WHOLE_LINES)
    return _only(sort, (), _TOTAL)


def orders_all_it_reads(command: Command) -> bool:
    """Whether it is a sort of its stdin alone for which `orders_all` holds."""
    return command.program == "sort" and files(command) == () and orders_all(command)


def _dropped(old: Pipeline, index: int, count: int, names: Sequence[Word]) -> Pipeline | None:
    """Without `count` commands, of which the first one reads the files `names`."""
    before, behind = old.commands[:index], old.commands[index + count :]
    first = old.commands[index]
    source = first.source
    if len(names) > 1 or (names and (index or source)):
        return None
    if names:
        if not names[0].literal or names[0].value == "-":
            return None
        source = names[0]
    if index:
        return Pipeline((*before, *behind))
    if not behind or behind[0].source or (files(behind[0]) or ()):
        return None
    if not alike_from_file(behind[0]) or stores_time(behind[0]):
        return None
    if source:
        behind = (behind[0].with_source(source), *behind[1:])
    return Pipeline(behind)
