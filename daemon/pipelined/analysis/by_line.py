# SPDX-License-Identifier: Apache-2.0
"""Whether a command treats each line by itself, as far as its words decide that.

A command that remembers something of one line when it treats the next (a sum, a line number, the
last key) has another result on other lines, or on the same in another order. Nothing is guessed:
what is not certain to treat each line by itself is said not to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pipelined.analysis.awk_text import WORDS, only_prints, program_of, tokens
from pipelined.analysis.shell_text import Command
from pipelined.analysis.shell_words import Word
from pipelined.command_names import AWKS, GREPS

__all__ = [
    "begins_in_order",
    "ends_its_lines",
    "is_within_line",
    "one_line_of_each",
    "only_selects",
    "sed_scripts",
    "takes_each_line",
]

#: Options with which grep prints all lines that match, or the matches, whatever stands around them.
_GREP_OPTIONS = re.compile(r"-[EFGPaehiovwxy]+|--(line-buffered|color=\w+)")
#: A script of sed that treats each line by itself: s/A/B/ without other effects, or /A/d.
_SED_BY_ITSELF = re.compile(
    r"s([^\w\s\\])(?!\1)(?:\\.|(?!\1)[^\\])+\1(?:\\.|(?!\1)[^\\])*\1[gI0-9]*|/(?:\\.|[^/\\])+/d"
)
#: What a script of sed may make a newline of, or match one with.
_SED_NEWLINE = re.compile(r"\\[nxodc\n]|\n")
#: What tr may turn a newline into, or drop it with.
_NEWLINES = re.compile(r"\n|\\[n0-7]|\\[abt]-|\[:(space|cntrl):\]|^-[a-z]*[cC]|^--comp")

#: Sets how fields are told apart, and nothing else.
_AWK_SEPARATORS = re.compile(
    r'\s*BEGIN\s*\{\s*((O?FS\s*=\s*)+"(\\.|[^"\\])*"\s*;?\s*)+\}\s*;?', re.DOTALL
)
_AWK_FUNCTIONS = frozenset(
    {
        "atan2",
        "cos",
        "exp",
        "fflush",
        "gensub",
        "gsub",
        "index",
        "int",
        "length",
        "log",
        "match",
        "sin",
        "sprintf",
        "sqrt",
        "strtonum",
        "sub",
        "substr",
        "tolower",
        "toupper",
    }
)
#: Variables that every line sets anew.
_AWK_OF_A_LINE = frozenset({"NF"})
#: Names that stand for more than the line at hand.
_AWK_BEYOND = frozenset(
    {
        "ARGIND",
        "BEGIN",
        "BEGINFILE",
        "END",
        "ENDFILE",
        "FILENAME",
        "FNR",
        "NR",
        "RLENGTH",
        "RSTART",
        "RT",
        "close",
        "delete",
        "do",
        "exit",
        "for",
        "func",
        "function",
        "getline",
        "nextfile",
        "rand",
        "return",
        "split",
        "srand",
        "strftime",
        "system",
        "systime",
        "while",
    }
)
_ASSIGNING = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "^="})
_STEPS = frozenset({"++", "--"})
#: What stands behind ``printf`` if its format ends in a newline: one string, and no more of it.
_AWK_LINE_FORMAT = re.compile(r'(\( )?"(?:[^"\\]|\\.)*\\n"( ,.*| [;}].*| \)( [;}].*)?)?', re.DOTALL)
#: What an action does if there is none.
_AWK_PRINT = re.compile(r"\{\s*print(\s+\$0)?\s*;?\s*\}")
#: An awk program whose lines are the begin of what it reads.
_AWK_FIRST_FIELD = re.compile(r"\s*\{\s*print\s*\$1\s*;?\s*\}\s*")
#: What a cut passes on that passes on the begin of each line.
_CUT_FIRST = re.compile(r"1|1?-\d+")
#: By their separator, on what condition the first fields are in the order of the lines: none has a
#: byte that comes before it in ASCII, but for control characters.
_CUT_CONDITIONS: Mapping[str, tuple[str, ...]] = {"\t": (), " ": ("no line has a tab",)}


def takes_each_line(command: Command) -> bool | None:
    """Whether it makes of each line what it would make of it alone; None if its words do not show.

    >>> from pipelined.analysis.shell_text import parse
    >>> [
    ...     takes_each_line(command)
    ...     for command in parse("awk '$3 > 1 { print $1 }' | awk '!n[$0]++' | awk -f f").commands
    ... ]
    [True, False, None]
    """
    if any(word.expanded for word in command.arguments):
        return None
    if command.program in AWKS:
        program = program_of(command)
        return None if program is None else _keeps_nothing(program.value)
    values = [word.value for word in command.arguments]
    if command.program == "cut":
        return not any(re.match(r"-[ns]*z|--z", value) for value in values)
    if command.program in GREPS:
        options = [value for value in values if value.startswith("-") and value != "-"]
        return all(map(_GREP_OPTIONS.fullmatch, options))
    if command.program == "tr":
        return not any(map(_NEWLINES.search, values))
    if command.program == "sed":
        scripts = sed_scripts(command.arguments)
        return bool(scripts) and all(_SED_BY_ITSELF.fullmatch(word.value) for word in scripts)
    return None


def ends_its_lines(command: Command) -> bool:
    """Whether the last line that it prints is certain to end in a newline, whatever it reads.

    >>> from pipelined.analysis.shell_text import parse
    >>> [ends_its_lines(command) for command in parse("cat f | cut -f 2 | tr a b").commands]
    [False, True, False]
    """
    values = [word.value for word in command.arguments]
    if command.program in AWKS:
        return takes_each_line(command) is True and not any("printf" in value for value in values)
    if command.program in GREPS | {"cut"}:
        return takes_each_line(command) is True
    if command.program in ("sort", "uniq"):
        return not any(re.match(r"-[^-]*z|--z", value) for value in values)
    return False


def only_selects(command: Command) -> bool:
    """Whether the lines that it passes on are as it read them, if it takes each by itself."""
    if command.program in AWKS:
        program = program_of(command)
        found = None if program is None else tokens(_AWK_PRINT.sub("", program.value))
        texts = {text for _, text in found or ()}
        changed = _ASSIGNING | _STEPS | {"{", "sub", "gsub"}
        return found is not None and not texts & changed
    values = [word.value for word in command.arguments]
    if command.program in GREPS:
        return not any(re.match(r"-[A-Za-z]*o|--color", value) for value in values)
    return command.program == "sed" and all(
        word.value.endswith("/d") for word in sed_scripts(command.arguments)
    )


def one_line_of_each(command: Command) -> bool:
    """Whether it makes at most one line of each that it reads, if it takes each by itself."""
    if command.program in ("cut", "tr") or only_selects(command):
        return True
    if command.program == "sed":
        return all(is_within_line(word.value) for word in sed_scripts(command.arguments))
    return begins_in_order(command) is not None


def begins_in_order(command: Command) -> tuple[str, ...] | None:
    """On what conditions it passes on lines that are in the order of their bytes in that order, as
    it passes on the begin of each; None if it may pass on something else.

    >>> from pipelined.analysis.shell_text import parse
    >>> [
    ...     begins_in_order(command)
    ...     for command in parse("awk '{ print $1 }' | cut -f 1,2 | cut -c -9").commands
    ... ]
    [('no line begins with a blank',), None, ()]
    """
    values = [word.value for word in command.arguments]
    if command.program in AWKS:
        first = len(values) == 1 and _AWK_FIRST_FIELD.fullmatch(values[0])
        return ("no line begins with a blank",) if first else None
    return _cut_in_order(values) if command.program == "cut" else None


def _cut_in_order(values: Sequence[str]) -> tuple[str, ...] | None:
    """`begins_in_order` of a cut with these arguments."""
    separator, chosen = "\t", ""
    words = iter(values)
    for value in words:
        option, given = value[:2], value[2:]
        if option in ("-b", "-c", "-d", "-f"):
            given = given or next(words, "")
        if option == "-d":
            separator = given
        elif option in ("-b", "-c", "-f") and _CUT_FIRST.fullmatch(given):
            chosen = option
        elif value not in ("-", "-s"):
            return None
    return _CUT_CONDITIONS.get(separator) if chosen == "-f" else () if chosen else None


def sed_scripts(arguments: Sequence[Word]) -> list[Word]:
    """The scripts among the arguments of ``sed``; none if other options than -E, -r or -e are."""
    rest = list(arguments)
    if rest and rest[0].value in ("-E", "-r"):
        del rest[0]
    if rest and rest[0].value == "-e":
        scripts = []
        while len(rest) > 1 and rest[0].value == "-e":
            scripts.append(rest[1])
            del rest[:2]
    else:
        scripts, rest = rest[:1], rest[1:]
    options = any(word.value.startswith("-") for word in (*scripts, *rest))
    return [] if options else scripts


def is_within_line(script: str) -> bool:
    """Whether a script of sed treats each line by itself and makes at most one line of it.

    >>> [is_within_line(script) for script in ("s/a/b/", r"s/a/\\n/", "2d")]
    [True, False, False]
    """
    return _SED_BY_ITSELF.fullmatch(script) is not None and not _SED_NEWLINE.search(script)


def _keeps_nothing(program: str) -> bool:
    """Whether an awk program is certain to keep nothing from one line to the next.

    It may compute with fields, constants, and variables that it never sets.
    """
    found = tokens(_AWK_SEPARATORS.sub("", program, count=1))
    if found is None or not only_prints(program):
        return False
    names = {text for kind, text in found if kind == "name"}
    own = names - WORDS - _AWK_FUNCTIONS - _AWK_OF_A_LINE
    if names & _AWK_BEYOND or (own and names & {"gsub", "match", "sub"}):
        return False  # the last argument of these is set
    braces = parentheses = 0
    for index, (kind, text) in enumerate(found):
        if text == "printf" and not _ends_a_line(found[index + 1 :]):
            return False  # the next line goes on behind it
        if text in own and found[index + 1 : index + 2] == [("mark", "(")]:
            return False  # a function of its own; or a concatenation, which is rare
        if kind != "mark":
            continue
        braces += {"{": 1, "}": -1}.get(text, 0)
        parentheses += {"(": 1, ")": -1}.get(text, 0)
        if text == "[":
            return False
        if text == "," and not braces and not parentheses:
            return False  # from one pattern to another
        if (text in _ASSIGNING or text in _STEPS) and not _sets_a_field(found, index):
            return False
    return True


def _ends_a_line(behind: Sequence[tuple[str, str]]) -> bool:
    """Whether the format of a ``printf`` is certain to end in a newline."""
    return _AWK_LINE_FORMAT.fullmatch(" ".join(text for _, text in behind)) is not None


def _sets_a_field(found: Sequence[tuple[str, str]], index: int) -> bool:
    """Whether the assignment at `index` is certain to be to a field, or to their number."""
    texts = [text for _, text in found]
    behind = texts[index + 1] if index + 1 < len(texts) else ""
    if not index or (found[index - 1][0] == "mark" and texts[index - 1] != ")"):
        return texts[index] in _STEPS and (behind == "$" or behind in _AWK_OF_A_LINE)
    if texts[index - 1] != ")":
        return texts[index - 1] in _AWK_OF_A_LINE or (index > 1 and texts[index - 2] == "$")
    depth = 0
    for at in range(index - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(texts[at], 0)
        if not depth:
            return at > 0 and texts[at - 1] == "$"
    return False
