# SPDX-License-Identifier: Apache-2.0
"""Pipelines in the text of a shell script: which of its lines are one, and which of them ran. Pure.

Only what is certain is taken: a line, with those that it continues on, that is one pipeline of
plain commands by itself, outside of quotes and here-documents.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipelined.analysis.read_again import Kinds, why_not_read_again
from pipelined.analysis.rewriting import Script, files, matching
from pipelined.analysis.shell_text import Command, Pipeline, output_file, parse
from pipelined.analysis.shell_words import Operator, Word, base, tokens
from pipelined.analysis.side_effects import uncertain, unsafe
from pipelined.command_names import COMMON_SHELLS
from pipelined.runs import Run, Stage
from pipelined.wording import listing

__all__ = [
    "Place",
    "Replaced",
    "by_cost",
    "fails_as_any_stage",
    "goes_by_status",
    "has_words",
    "moves",
    "places",
    "replaced",
    "script_file",
    "why_not_replayed",
]

#: What is in quotes, and else a comment up to the end of its line.
_QUOTED_OR_COMMENT = re.compile(
    r"""('[^']*'|"(?:[^"\\]|\\.)*"|\\.)|(?<![^\s;&|()])\#[^\n]*""", re.DOTALL
)
#: Where a here-document begins: whether tabs before its lines go, and the word that ends it.
_HERE_DOCUMENT = re.compile(r"(?<!<)<<(?!<)(-?)\s*['\"\\]?(\w+)")
_MOVES = re.compile(
    r"(?:^|[;&|(])\s*(?:(?:if|then|elif|else|while|until|do|!|\{|command|builtin)\s+)*"
    r"(?:cd|pushd)\b(.*)$",
    re.MULTILINE,
)
#: What a script may set for all that follows: `set -euo pipefail`, or its first line.
_SET = re.compile(
    r"(?:^|[;&|()`])[ \t]*(?:(?:if|then|elif|else|while|until|do|!|\{|command|builtin)[ \t]+)*"
    r"set[ \t]+((?:\\\n|[^\n;&|#)}`])*)|\A#!\S+(.*)$",
    re.MULTILINE,
)
#: What asks for the exit status of what ran before.
_ASKS_STATUS = re.compile(r"\$\{?\?|\bPIPESTATUS\b|\btrap\b.*\bERR\b")
_REDIRECTION = (
    r"[ \t]*\d*(?:>>|>\||<>|[<>]&|&>>?|<<<|[<>])[ \t]*"
    r"(?:[\w./$%+,:@~-]|\$\{\w+\}|\\.|'[^'\n]*'|\"[^\"\n]*\"|<\([^()\n]*\))+"
)
#: The end of a loop and the like whose exit status nothing in the same line asks for.
_CLOSED = rf"(?:done|esac|fi)(?:{_REDIRECTION})*[ \t]*(?=[\n;#]|\Z)"
#: What follows a command whose exit status is, or may be, that of the script, of a function, of
#: what is in parentheses, or of a condition.
_END = re.compile(
    rf"(?:\s|;(?![;&])|\#.*$|\b{_CLOSED})*"
    rf"(?:[}})`]|\Z|;[;&]|(?!{_CLOSED})(?:done|esac|fi|then|elif|else|do)(?![\w./=-])"
    r"|(?:exit|return)(?![\w./=-])(?![ \t]+(?!\d+[<>])[\w\"'$-]))",
    re.MULTILINE,
)
_CLOSING = {"'": re.compile("[^']*'"), '"': re.compile(r'(?:[^"\\]|\\.)*"', re.DOTALL)}
#: What follows `cd` to one directory, named in full, up to the end of the line or of the script.
_NAMED = re.compile(
    r"\s+(['\"]?)(/[\w./@%+,-]*)\1\s*(?:\|\|\s*(?:exit|return)\s*\d*\s*)?(?:#.*)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Place:
    """A pipeline in a script."""

    begin: int
    """Where its first character is."""
    end: int
    """Where the one behind its last one is."""
    line: int
    """Number of its first line, from 1."""
    text: str
    """For a shell, without the file that its output goes to."""
    target: str
    """That file, as written, with its variables; else empty."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A pipeline of a script, and what is to be there."""

    place: Place
    command: str


def script_file(text: str) -> tuple[str, str]:
    """The shell and the script that a command runs: ``bash FILE``. For ``./FILE`` the shell is
    empty, as it may be any program but one that is known to change something; else both are.

    >>> [script_file(text) for text in ("bash -e a.sh x", "nice ./a.sh", "/bin/rm x", "./a | wc")]
    [('bash', 'a.sh'), ('', './a.sh'), ('', ''), ('', '')]
    """
    found = parse(text)
    if found is None or len(found.commands) != 1:
        return "", ""
    (command,) = found.commands
    values = [word.value for word in command.words[command.start :]]
    if command.program in COMMON_SHELLS:
        rest = [value for value in values[1:] if not re.fullmatch("-[eux]+", value)]
        named = rest and not rest[0].startswith("-")
        return (command.program, rest[0]) if named else ("", "")
    return "", values[0] if "/" in values[0] and not unsafe(found) else ""


def goes_by_status(script: str, place: Place, command: str = "") -> bool:
    """Whether what a script does, or its own exit status, may depend on that of one of its
    pipelines: with ``set -e``, if it asks for one, or if it, a function, a branch or a condition
    ends with it. In doubt it may.

    `command` is what runs it: ``bash -e FILE``.

    >>> script = "sort f | grep a\\nsort f | grep b\\n"
    >>> [goes_by_status(script, place) for place in places(script)]
    [False, True]
    """
    return (
        any(re.fullmatch("errexit|-[a-zA-Z]*e.*", word) for word in _options(script, command))
        or _ASKS_STATUS.search(script) is not None
        or _END.match(script, place.end) is not None
    )


def fails_as_any_stage(script: str) -> bool:
    """Whether a pipeline fails if any of its commands does: ``set -o pipefail``."""
    return "pipefail" in _options(script)


def _options(script: str, command: str = "") -> list[str]:
    found = (of[1] or of[2] or "" for of in _SET.finditer(script))
    texts = [command, *(re.split("[;&#]", text)[0] for text in found)]
    return [word for text in texts for word in text.split()]


def moves(script: str) -> bool:
    """Whether a script may change its directory, as far as its own text shows."""
    return _MOVES.search(script) is not None


def places(script: str, least: int = 2) -> list[Place]:
    """The pipelines of a script, of so many commands at least: all lines that are certain to be
    one."""
    return list(_places(script, least))


def _places(script: str, least: int) -> Iterator[Place]:
    quote, ends = "", list[tuple[str, str]]()
    for number, begin, end in _logical_lines(script):
        raw = script[begin:end]
        if ends:  # in a here-document: one line may begin several
            dash, word = ends[0]
            if (raw.lstrip("\t") if dash else raw) == word:
                del ends[0]
            continue
        if not quote and (place := _place(script, begin, end, number, least)):
            yield place
        quote = _open_quote(raw, quote)
        ends += _HERE_DOCUMENT.findall(raw)


def _logical_lines(script: str) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of each line, with those that it continues on."""
    begin, first = 0, 1
    at = 0
    for number, line in enumerate(script.split("\n"), 1):
        end = at + len(line)
        at = end + 1
        if re.search(r"(\\|[^|]\|\s*)$", line) and not line.lstrip().startswith("#"):
            continue
        yield first, begin, end
        begin, first = at, number + 1


def _open_quote(text: str, quote: str) -> str:
    """The quote that is open behind a text, in front of which `quote` is; empty if none is."""
    if quote:
        closing = _CLOSING[quote].match(text)
        if closing is None:
            return quote
        text = "_" + text[closing.end() :]  # what follows may belong to the same word
    found = re.search("['\"]", _QUOTED_OR_COMMENT.sub("", text))
    return found[0] if found else ""


def _place(script: str, begin: int, end: int, number: int, least: int) -> Place | None:
    raw = script[begin:end]
    comments = (one.start() for one in _QUOTED_OR_COMMENT.finditer(raw) if one[1] is None)
    text = raw[: next(comments, None)].rstrip()
    joined, target = _without_target(_joined(text))
    found = parse(joined)
    if found is None or len(found.commands) < least or _breaks_a_word(text):
        return None
    blank = len(raw) - len(raw.lstrip())
    target = target or output_file(joined)
    return Place(begin + blank, begin + len(text), number, found.text, target)


def _breaks_a_word(text: str) -> bool:
    """Whether a line ends inside a word: in quotes it is a character, and not a blank."""
    return any(isinstance(token, Word) and "\n" in token.text for token in tokens(text))


def _without_target(text: str) -> tuple[str, str]:
    """A pipeline and the file that its output goes to, if the name of that has variables: nothing
    is written there when the pipeline is run again.

    >>> _without_target('sort f | uniq > "$OUT/counts"')
    ('sort f | uniq', '"$OUT/counts"')
    """
    try:
        *_, mark, name = (None, None, *tokens(text))
    except ValueError:
        return text, ""
    if not isinstance(mark, Operator) or not isinstance(name, Word) or not name.expanded:
        return text, ""
    if mark.text != ">" or text[mark.at - 1 : mark.at] not in (" ", "\t"):
        return text, ""  # 2> FILE, >>
    return text[: mark.at].rstrip(), name.text


def _joined(text: str) -> str:
    return re.sub(r"\s*\\\n\s*|\n\s*", " ", text).strip()


def by_cost(
    found: Iterable[Place], runs: Sequence[Run]
) -> tuple[list[tuple[float, Place]], list[tuple[float, Run, int]]]:
    """What ran of these places, with the seconds of its runs, and the runs of which it is not
    certain where they are in the script: alike ones once, with their seconds and number. The most
    seconds first. Places with the same commands share the seconds of their runs."""
    found = list(found)
    seconds = [0.0] * len(found)
    others: dict[str, list[Run]] = {}
    for run in runs:
        its = [at for at, place in enumerate(found) if _is_of(run, Script(place.text))]
        for at in its:
            seconds[at] += run.wall_seconds / len(its)
        if not its and not run.nested:
            others.setdefault(run.pipeline, []).append(run)
    costs = [(cost, place) for cost, place in zip(seconds, found, strict=True) if cost]
    rest = [(sum(run.wall_seconds for run in same), same[0], len(same)) for same in others.values()]
    return (
        sorted(costs, key=lambda one: -one[0]),
        sorted(rest, key=lambda one: -one[0]),
    )


def _is_of(run: Run, script: Script) -> bool:
    """Whether a run is of this pipeline, as far as its command lines are known."""
    pipeline = matching(script, run)
    return pipeline is not None and has_words(run, pipeline)


def has_words(run: Run, pipeline: Pipeline) -> bool:
    """Whether the stages of a run were given the arguments of these commands, one by one, as far as
    that is known."""
    return all(map(_has_words, run.stages, pipeline.commands))


def _has_words(stage: Stage, command: Command) -> bool:
    """Whether a stage was given the arguments of `command`; at their end, if it is another program:
    the command may be a script that executes it (`zcat`)."""
    if stage.whole_arguments is None or any(
        word.expanded or not word.literal for word in command.arguments
    ):
        return True
    wanted = [word.value for word in command.arguments]
    try:
        given = shlex.split(stage.whole_arguments)
    except ValueError:  # of a file that was written by hand
        return True
    if given and base(given[0]) == command.program:
        return given[1:] == wanted
    return given[len(given) - len(wanted) :] == wanted


def why_not_replayed(
    script: str,
    place: Place,
    exists: Callable[[str], bool],
    is_here: Callable[[str], bool] = lambda directory: False,
    kinds: Kinds = lambda word: (),
) -> str:
    """Why a pipeline of a script cannot be run again by itself; empty if it can.

    `exists` says whether there is a file of a name, `is_here` whether a directory is the present
    one, `kinds` what the files are that a word names.
    """
    parsed = parse(place.text)
    assert parsed is not None, place.text
    if passing := why_not_read_again(parsed, kinds):
        return passing
    if unknown := uncertain(parsed):
        return f"it is not certain that {listing(unknown)} only reads and prints"
    first = parsed.commands[0]
    if not Script(place.text).standalone:
        return "it reads what the script gets as its standard input, or may do so"
    elsewhere = _elsewhere(script, is_here)
    searching = [one.program for one in parsed.commands if files(one) is None and _may_open(one)]
    if elsewhere and searching:
        return f"the directory for {listing(searching)} is not certain: the script {elsewhere}"
    named = [first.source] if first.source else []
    words = [*named, *(name for one in parsed.commands for name in files(one) or ())]
    for word in words:
        if not word.literal or word.expanded:
            return f"which files {word.text} names is not certain"
        if not word.value.startswith("/") and elsewhere:
            return f"where {word.text} is is not certain: the script {elsewhere}"
        if not exists(word.value):
            return f"{word.text} is not there any more"
    return ""


def _may_open(command: Command) -> bool:
    """Whether a command may open files, of which it is not known which."""
    if command.program == "uniq":
        return any(not word.value.startswith("-") for word in command.arguments)
    return command.program not in ("seq", "tr")


def _elsewhere(script: str, is_here: Callable[[str], bool]) -> str:
    """Where the script goes, if that is not certain to be the present directory; else empty."""
    moves = [_NAMED.fullmatch(after) for after in _MOVES.findall(script)]
    named = {move[2] for move in moves if move}
    if all(moves) and all(map(is_here, named)):
        return ""
    if all(moves) and len(named) == 1:
        return f"changes to {named.pop()}; run improve there"
    return "changes its directory"


def replaced(script: str, changes: Iterable[Replaced], name: str) -> str:
    """The difference that these changes make to a script, as a patch; empty if there are none."""
    text = script
    for change in sorted(changes, key=lambda one: -one.place.begin):
        place = change.place
        text = text[: place.begin] + change.command + text[place.end :]
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(_lines(script), _lines(text), name, name)
    )


def _lines(text: str) -> list[str]:
    """As `patch` sees them: a form feed ends none."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
