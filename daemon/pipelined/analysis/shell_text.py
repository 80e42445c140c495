# SPDX-License-Identifier: Apache-2.0
"""A pipeline as somebody wrote it for a shell, taken apart only if that is certain to be right.

`parse` takes one pipeline of simple commands. It returns None for whatever a shell would work out
first: variables, substitutions, control words, most redirections. What was written is kept: a
command that is not changed is passed on verbatim.

No library: bashlex is GPLv3 and gives ``'it'\\''s`` with its quotes; tree-sitter needs two compiled
packages that Debian 12 lacks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise

from pipelined.analysis.shell_words import ASSIGNMENT, Operator, Word, base, behind_wrapper, tokens
from pipelined.command_names import WRAPPERS

__all__ = ["Command", "Pipeline", "in_common", "output_file", "parse", "plain"]

#: First words that make a command more than a program and its arguments.
_CONTROL = re.compile(
    r"[!.{}]|\[\[?|case|command|coproc|do|done|elif|else|esac|eval|exec|fi|for|function|if|select|"
    "source|then|time|until|while"
)


@dataclass(frozen=True, slots=True)
class Command:
    """One part of a pipeline."""

    assignments: tuple[Word, ...]
    """Variables that are set for it: ``LC_ALL=C``."""
    words: tuple[Word, ...]
    """Its program and the arguments, with what may stand in front: ``nice -n 5``."""
    source: Word | None
    """The file that it reads as its standard input (``< FILE``)."""
    start: int
    """Index of the program in `words`."""
    written: str | None
    """Verbatim; None once it was changed."""

    @property
    def program(self) -> str:
        """The program's name, without its folder."""
        return base(self.words[self.start].value)

    @property
    def front(self) -> tuple[Word, ...]:
        """All up to the program: what decides which one is run, and in which environment."""
        return (*self.assignments, *self.words[: self.start + 1])

    @property
    def arguments(self) -> tuple[Word, ...]:
        return self.words[self.start + 1 :]

    @property
    def text(self) -> str:
        """For a shell."""
        if self.written is not None:
            return self.written
        words = [word.text for word in (*self.assignments, *self.words)]
        return " ".join([*words, *([f"< {self.source.text}"] if self.source else [])])

    def variable(self, name: str) -> str | None:
        """The value that the command itself gives to a variable; None if it gives none."""
        given = [word.value for word in self.front[:-1]]
        values = [text.partition("=")[2] for text in given if text.startswith(f"{name}=")]
        return values[-1] if values else None

    def with_arguments(self, *arguments: Word) -> Command:
        words = (*self.words[: self.start + 1], *arguments)
        return replace(self, words=words, written=None)

    def with_program(self, text: str) -> Command:
        """With another program, which gets the same arguments; ``xz -T0`` adds one."""
        words = (*self.words[: self.start], *map(plain, text.split()), *self.arguments)
        return replace(self, words=words, written=None)

    def with_variable(self, text: str) -> Command:
        """With ``NAME=value`` set for it, in place of what it had for that name."""
        mark = text.partition("=")[0] + "="
        others = [word for word in self.assignments if not word.value.startswith(mark)]
        # what `env` sets would win
        front = [w for w in self.words[: self.start] if not w.value.startswith(mark)]
        return replace(
            self,
            assignments=(*others, plain(text)),
            words=(*front, *self.words[self.start :]),
            start=len(front),
            written=None,
        )

    def with_source(self, source: Word | None) -> Command:
        return replace(self, source=source, written=None)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Simple commands, joined by pipes. What the last one's output was redirected to is left out:
    a command to try must not write there."""

    commands: tuple[Command, ...]

    @property
    def text(self) -> str:
        return " | ".join(command.text for command in self.commands)


def parse(text: str) -> Pipeline | None:
    """The pipeline that `text` is for a shell; None if it is another thing, or not certain.

    >>> [command.program for command in parse("LC_ALL=C sort < 'my file' | uniq -c > out").commands]
    ['sort', 'uniq']
    >>> parse("cat $f | wc -l") is None
    True
    """
    parts: list[list[Word | str]] = [[]]
    ends = [(0, 0)]
    text = text.strip()
    if any(not mark.isprintable() and mark != "\t" for mark in text):
        return None  # a command is also shown
    try:
        for token in tokens(text):
            if isinstance(token, Word):
                if token.expanded or token.text.startswith("#"):
                    return None
                parts[-1].append(token)
            elif token.text == "|":
                ends[-1] = (ends[-1][0], token.at)
                parts.append([])
                ends.append((token.at + 1, token.at + 1))
            elif token.text in ("<", ">") and text[token.at - 1 : token.at] in " \t|":
                parts[-1].append(token.text)
            else:  # 2> FILE, >>, <(…), &&
                return None
    except ValueError:
        return None
    ends[-1] = (ends[-1][0], len(text))
    commands = []
    for index, (part, (begin, end)) in enumerate(zip(parts, ends, strict=True)):
        last = index == len(parts) - 1
        command = _command(part, text[begin:end].strip(), first=index == 0, last=last)
        if command is None:
            return None
        commands.append(command)
    return Pipeline(tuple(commands))


def output_file(text: str) -> str:
    """The file that the output of a pipeline, which `parse` takes, goes to, as it is written; empty
    if there is none.

    >>> output_file("sort f | uniq > 'my counts'")
    "'my counts'"
    """
    return next(
        (
            file.text
            for mark, file in pairwise(tokens(text.strip()))
            if isinstance(mark, Operator) and mark.text == ">"
        ),
        "",
    )


def in_common(one: Pipeline, other: Pipeline) -> tuple[int, int]:
    """How many commands two pipelines have in common at their begin, and how many at their end.

    >>> in_common(parse("cat f | sort | uniq | wc"), parse("cat f | sort -u | wc"))
    (1, 1)
    """
    texts = [[command.text for command in pipeline.commands] for pipeline in (one, other)]
    begin = _alike(*texts)
    return begin, _alike(*(text[begin:][::-1] for text in texts))


def _alike(one: list[str], other: list[str]) -> int:
    """How many items both have in common at their begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def plain(text: str) -> Word:
    """A word that needs no quotes."""
    return Word(text, text, True)


def _command(part: list[Word | str], written: str, *, first: bool, last: bool) -> Command | None:
    words: list[Word] = []
    files: dict[str, Word] = {}
    rest = iter(part)
    for token in rest:
        if isinstance(token, Word):
            words.append(token)
            continue
        file = next(rest, None)
        allowed = first if token == "<" else last
        if not allowed or not isinstance(file, Word) or token in files:
            return None
        files[token] = file
    count = next((i for i, word in enumerate(words) if not ASSIGNMENT.match(word.text)), None)
    if count is None or any(not word.literal for word in words[:count]):
        return None
    assignments, words = words[:count], words[count:]
    start = _start(words)
    if start is None or not words[start].literal or _CONTROL.fullmatch(words[0].text):
        return None
    kept = None if ">" in files else written
    return Command(tuple(assignments), tuple(words), files.get("<"), start, kept)


def _start(words: list[Word]) -> int | None:
    """Index of the program that does the work; None if it is not known."""
    values = [word.value for word in words]
    at = 0
    while at < len(values):
        name = base(values[at])
        if name not in WRAPPERS or not WRAPPERS[name].rewritten:
            return at
        behind = behind_wrapper(values, at)
        # of env's options some change which variables there are
        refused = "-" if name == "env" else "--"
        if any(value.startswith(refused) for value in values[at + 1 : behind]):
            return None
        at = behind
        while name == "env" and at < len(values) and ASSIGNMENT.match(values[at]):
            at += 1
    return None
