# SPDX-License-Identifier: Apache-2.0
"""The text of an awk program: its tokens, what they show, and the same program without what flushes
its output."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise

from pipelined.analysis.shell_text import Command
from pipelined.analysis.shell_words import Word

__all__ = [
    "WORDS",
    "feeds_command",
    "may_write",
    "only_prints",
    "program_at",
    "program_of",
    "tokens",
    "without_flushes",
]

#: Words of the language behind which a new operand begins.
WORDS = frozenset({"case", "do", "else", "exit", "if", "in", "next", "print", "printf", "return"})
#: With these it runs commands, or reads what they print or what is in other files.
_BEYOND = frozenset({"|", "|&", "getline", "system"})
#: Behind one of these a statement goes on in the next line.
_GOES_ON = frozenset({",", "&&", "||", "?", ":"})

_TOKEN = re.compile(
    r'(?P<blank>[ \t\r\n]+|\\\n|#[^\n]*)|(?P<string>"(?:\\.|[^"\\])*")|(?P<number>\.?\d[\w.]*)'
    r"|(?P<name>[A-Za-z_]\w*)|(?P<mark>\+\+|--|[-+*/%^=!<>]=|&&|\|\||!~|>>|\|&|[-{}()\[\];,$+*/%^!<>~"
    r"?:|=])",
    re.DOTALL,
)
_REGEX = re.compile(r"/(?:\\.|\[\^?\]?[^\]\n]*\]|[^/\\\n\[])*/")
#: A slash in a regular expression that some awks take for its end.
_SLASH_INSIDE = re.compile(r"/(?:\\.|[^/\\])*/.*/", re.DOTALL)
#: A statement may be the body of one of these; or the order of outputs may count.
_AROUND = frozenset(
    {"case", "close", "default", "do", "else", "for", "func", "function", "if", "switch", "while"}
)
_FLUSH = ("fflush", "(", ")")


def program_of(command: Command) -> Word | None:
    """The word that is an awk program; None if it is in a file, or what a line is is set otherwise.

    >>> from pipelined.analysis.shell_text import parse
    >>> program_of(parse("awk -F : '{ print $1 }' f").commands[0]).value
    '{ print $1 }'
    """
    values = [word.value for word in command.arguments]
    at = program_at(values)
    if at is None or any(re.match(r"(-v)?(RS|ORS)=", value) for value in values[:at]):
        return None
    return command.arguments[at]


def program_at(values: Sequence[str]) -> int | None:
    """Which argument is an awk program; None if there are other options than -F and -v."""
    at = 0
    while at < len(values) and values[at].startswith(("-F", "-v")):
        at += 2 if len(values[at]) == 2 else 1
    return at if at < len(values) and not values[at].startswith("-") else None


def tokens(program: str) -> list[tuple[str, str]] | None:
    """Kind and text of each token but blanks; None if there is one that is not known. The end of a
    line is a semicolon."""
    try:
        found = list(_split(program))
    except ValueError:
        return None
    kept = []
    for kind, text, _ in found:
        if kind != "blank":
            kept.append((kind, text))
        elif "\n" in text and text != "\\\n":
            kept.append(("mark", ";"))
    return kept


def only_prints(program: str) -> bool:
    """Whether an awk program is certain to write no files and to run no commands.

    >>> [only_prints(text) for text in ('$1 > 9 { print ";" }', '{ print ";" > "f" }', "@f()")]
    [True, False, False]
    """
    found = tokens(program)
    if found is None:
        return False
    return _BEYOND.isdisjoint(text for _, text in found) and not _prints_to_file(found)


def may_write(program: str) -> bool:
    """Whether an awk program prints to a file, or may: not all of its tokens are known."""
    found = tokens(program)
    if found is None:
        return re.search("print.*>", program, re.DOTALL) is not None
    return _prints_to_file(found)


def _prints_to_file(found: Sequence[tuple[str, str]]) -> bool:
    parentheses, printing, before = 0, False, ""
    for _, text in found:
        if text == ";" and before in _GOES_ON:
            continue
        parentheses += {"(": 1, ")": -1}.get(text, 0)
        printing = text in ("print", "printf") or (printing and text not in ("{", "}", ";"))
        # elsewhere it compares
        if text == ">>" or (text == ">" and printing and not parentheses):
            return True
        before = text
    return False


def feeds_command(command: Command) -> bool | None:
    '''Whether its program prints to a command that it starts; None if the program is not known.

    >>> from pipelined.analysis.shell_text import parse
    >>> def feeds(text): return feeds_command(parse(text).commands[0])
    >>> feeds("""awk '{ print $1 | "sort" }' f"""), feeds("""awk '{ "date" | getline d }' f""")
    (True, False)
    '''
    program = program_of(command)
    found = tokens(program.value) if program and not program.expanded else None
    if found is None:
        return None
    texts = [text for _, text in found]
    return any(text == "|" and after != "getline" for text, after in pairwise(texts))


def without_flushes(command: Command) -> Command | None:
    """Without each ``fflush()`` of its program. None if there is none, or one is no statement that
    is always executed with those beside it.

    >>> from pipelined.analysis.shell_text import parse
    >>> text = '''awk '/a/ { print $1; fflush() } { print "; fflush()" }' f'''
    >>> without_flushes(parse(text).commands[0]).text
    'awk \\'/a/ { print $1 } { print "; fflush()" }\\' f'
    """
    program = program_of(command)
    if program is None or program.expanded or not program.literal:
        return None
    if not only_prints(program.value):
        return None
    text = _without_flushes(program.value)
    if text is None:
        return None
    words = (Word(shlex.quote(text), text, True) if w is program else w for w in command.arguments)
    return command.with_arguments(*words)


def _without_flushes(program: str) -> str | None:
    found = [one for one in _split(program) if one[0] != "blank"]
    texts = [text for _, text, _ in found]
    # a slash that divides may begin a regular expression elsewhere
    unsure = not (_AROUND | {"/", "/="}).isdisjoint(texts) or re.search(r"[#\n]", program)
    if "fflush" not in texts or unsure or any(map(_SLASH_INSIDE.fullmatch, texts)):
        return None
    for at in reversed([at for at, text in enumerate(texts) if text == "fflush"]):
        before, behind = texts[at - 1 : at], texts[at + 3 : at + 4]
        alone = before in (["{"], [";"]) and behind in (["}"], [";"])
        if tuple(texts[at : at + 3]) != _FLUSH or not alone or not _in_action(texts[:at]):
            return None
        # the semicolon in front separates nothing any more
        first = at - 1 if before == [";"] else at
        program = program[: found[first][2]].rstrip(" \t") + program[found[at + 2][2] + 1 :]
    return program


def _in_action(before: list[str]) -> bool:
    """Whether a statement of an action begins behind these tokens."""
    return before.count("{") > before.count("}") and before.count("(") == before.count(")")


def _split(program: str) -> Iterator[tuple[str, str, int]]:
    """Kind and text of each token, and where it begins."""
    at, last = 0, ("", "")
    while at < len(program):
        operand = last[0] in ("string", "number") or last[1] in (")", "]", "++", "--")
        operand = operand or (last[0] == "name" and last[1] not in WORDS)
        regex = _REGEX.match(program, at)
        if regex and last[1] == ")" and re.search('["#]', regex[0]):
            # behind if (…); or a string or a comment behind a division
            raise ValueError(program[at:])
        if program[at] == "/" and not operand:
            found, kind = regex, "regex"
        else:
            found = _TOKEN.match(program, at)
            kind = (found.lastgroup or "") if found else ""
        if found is None:
            raise ValueError(program[at:])
        if kind != "blank":
            last = (kind, found[0])
        yield kind, found[0], at
        at = found.end()
