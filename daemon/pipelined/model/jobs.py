# SPDX-License-Identifier: Apache-2.0
"""What a job is called: the label `unit` of what a scheduler started, or a variable names.

The kernel side copies the value of a named variable of the environment, or the begin of a command
that cron and the like had a shell run (bpf/jobs.bpf.h). The label gets the name alone: no
arguments, no paths, and nothing that distinguishes one start of a job from the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from pipelined.analysis.shell_words import (
    ASSIGNMENT,
    Operator,
    Word,
    base,
    behind_wrapper,
    tokens,
)
from pipelined.command_names import SHELLS, WRAPPERS
from pipelined.model.units import without_ids
from pipelined.records import stage
from pipelined.records.stage import Job

__all__ = ["unit_of_job"]

#: The last word of a longer text may be cut off: the kernel side keeps this many bytes.
_WHOLE = stage.JOB_TEXT - 2

_NO_LABEL = re.compile(r"[^\w.:@+-]+")
#: After these another command follows in the same words.
_BEFORE_COMMAND = frozenset({"!", "{", "do", "elif", "else", "if", "then", "until", "while"})
#: Commands of a shell that prepare what follows; the job is not named after them.
_PREPARE = frozenset(
    {".", ":", "[", "[[", "case", "cd", "declare", "done", "echo", "esac", "exit", "export"}
    | {"false", "fi", "for", "function", "local", "mkdir", "printf", "read", "readonly", "return"}
    | {"select", "set", "shopt", "sleep", "source", "test", "typeset"}
    | {"trap", "true", "ulimit", "umask", "unset", "wait", "}"}
)


class _Interpreter(NamedTuple):
    """A program that runs the file that is named first: the job is that file."""

    taking: str
    """Its options of one letter that take a word."""
    code: str
    """Those that come with code: no file follows."""
    module: str = ""
    """That which takes the name of a module, which is run in place of a file."""


_INTERPRETERS: Mapping[str, _Interpreter] = {
    "node": _Interpreter("Cr", "ep"),
    "nodejs": _Interpreter("Cr", "ep"),
    "perl": _Interpreter("IMm", "Ee"),
    "php": _Interpreter("cdtz", "BEFRSr"),
    "pypy": _Interpreter("WX", "c", "m"),
    "python": _Interpreter("WX", "c", "m"),
    "ruby": _Interpreter("CEIr", "e"),
}
#: Long options of shells that take a word.
_SHELLS_TAKING = frozenset({"--init-file", "--rcfile"})


@lru_cache(maxsize=256)
def unit_of_job(job: Job) -> str | None:
    """The label `unit`; None if nothing in the text is a name.

    >>> unit_of_job(Job(stage.JOB_VARIABLE, b"nightly-2026-11-23"))
    'nightly.job'
    >>> unit_of_job(Job(stage.JOB_COMMAND, b"cd /srv && nice -n 5 ./backup.sh -v | tee log"))
    'backup.sh.cron'
    """
    text = job.text.decode(errors="ignore")
    if job.source == stage.JOB_VARIABLE:
        name, kind = text, "job"
    else:
        cut = len(job.text) > _WHOLE
        name = (_program(text, cut) or "") if job.source == stage.JOB_COMMAND else text
        kind = "cron"
        if name in SHELLS:
            return None
    label = _label(name)
    return f"{label}.{kind}" if label else None


def _label(name: str) -> str:
    """What of a name can be a label: what is behind its last slash, without ids."""
    return without_ids(_NO_LABEL.sub("-", base(name))).strip("-_.:@+")


def _program(text: str, cut: bool = False) -> str | None:
    """The first program that a shell is to run for its own sake; None if that is not certain."""
    for words in _commands(text, cut):
        if program := _run_by(words):
            return program
    return None


def _commands(text: str, cut: bool) -> Iterator[list[str]]:
    """The simple commands of a text for a shell, as words, without redirections and substitutions.

    With `cut` the text goes on: its last word may be the begin of a longer one.
    """
    words: list[str] = []
    inside = 0  # parentheses of a substitution that are open
    redirects = False
    for token in _tokens(text, cut):
        if isinstance(token, Word):
            if token.value and not inside and not redirects:
                words.append(token.value)
            redirects = False
        elif inside or (token.text.startswith("(") and words and words[-1].endswith("$")):
            inside = max(0, inside + token.text.count("(") - token.text.count(")"))
        elif "<" in token.text or ">" in token.text:
            redirects = True
            if words and words[-1].isdigit():
                words.pop()  # the descriptor that is redirected
        else:
            yield words
            words = []
    yield words


def _tokens(text: str, cut: bool) -> list[Word | Operator]:
    """What of the text is certain. What a quote opens that is not closed is lost."""
    found: list[Word | Operator] = []
    try:
        found.extend(tokens(text))
    except ValueError:
        return found
    return found[:-1] if cut else found


def _run_by(words: Sequence[str]) -> str | None:
    """The program that a simple command runs, without its folder; None if it is none of a job."""
    words = list(words)
    while words:
        name = base(words[0])
        if name in _BEFORE_COMMAND or ASSIGNMENT.match(words[0]):
            del words[0]
        elif name in _PREPARE:
            return None
        elif name in WRAPPERS and WRAPPERS[name].taking is not None:
            behind = behind_wrapper(words)
            if words[behind - 1] in ("-c", "--command") and behind < len(words):
                return _program(words[behind])  # flock FILE -c 'COMMAND ARGUMENTS'
            del words[:behind]
        elif name in SHELLS:
            return _run_by_shell(words[1:]) or name
        elif interpreter := _INTERPRETERS.get(name.rstrip("0123456789.")):
            return _run_by_interpreter(interpreter, words[1:]) or name
        else:
            return name
    return None


def _run_by_shell(words: Iterable[str]) -> str | None:
    """The file that a shell is to run, or the program of its text; None if it has none."""
    words = iter(words)
    is_text = False
    for word in words:
        if word in _SHELLS_TAKING:
            next(words, None)
        elif word[0] not in "-+":
            return _program(word) if is_text else base(word)
        elif not word.startswith("--"):
            if word == "-" or "s" in word:
                return None  # it reads its input; the words are arguments
            is_text = is_text or "c" in word
            for _ in range(word.count("o") + word.count("O")):  # set -o, shopt
                next(words, None)
    return None


def _run_by_interpreter(program: _Interpreter, words: Iterable[str]) -> str | None:
    """The file or module that it is to run; None if it has none, or what it is is not certain."""
    words = iter(words)
    for word in words:
        if not word.startswith("-"):
            return base(word)
        if word == "-" or (word.startswith("--") and "=" not in word and word != "--"):
            return None  # its input, or an option that may take the next word
        if word.startswith("--"):
            continue
        for behind, letter in enumerate(word[1:], 2):
            if letter in program.code:
                return None
            if letter in program.module:
                return word[behind:] or next(words, None)
            if letter in program.taking:
                if behind == len(word):
                    next(words, None)
                break
    return None
