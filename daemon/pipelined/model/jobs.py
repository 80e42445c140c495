# SPDX-License-Identifier: Apache-2.0
"""What a job is called: the label `unit` of what a scheduler started, or a variable names.

The kernel side copies the value of a named variable of the environment, or the begin of a command
that cron and the like had a shell run (bpf/jobs.bpf.h). The label gets the name alone: no
arguments, no paths, and nothing that distinguishes one start of a job from the next.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache

from pipelined.command_names import SHELLS
from pipelined.kernel import layout
from pipelined.kernel.records import Job
from pipelined.model.units import without_ids

__all__ = ["unit_of_job"]

#: Of a longer text the last word may be cut off: the kernel side keeps so many bytes.
_WHOLE = layout.JOB_TEXT - 2

_OPERATORS = "();<>|&"
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_NO_LABEL = re.compile(r"[^\w.:@+-]+")
#: After these another command follows in the same words.
_BEFORE_COMMAND = frozenset({"!", "{", "do", "elif", "else", "if", "then", "until", "while"})
#: Commands of a shell that prepare what follows; the job is not named after them.
_PREPARE = frozenset(
    {".", ":", "[", "[[", "case", "cd", "done", "echo", "esac", "export", "false", "fi", "for"}
    | {"function", "mkdir", "printf", "select", "set", "shopt", "sleep", "source", "test"}
    | {"trap", "true", "ulimit", "umask", "unset", "wait", "}"}
)
#: Programs that run the command behind them: their options that take a word, and how many words
#: stand before the command.
_WRAPPERS = {
    "chronic": ("", 0),
    "chrt": ("DPT", 1),
    "command": ("", 0),
    "env": ("CSu", 0),
    "exec": ("a", 0),
    "flock": ("Ew", 1),
    "ionice": ("cn", 0),
    "nice": ("n", 0),
    "nohup": ("", 0),
    "runuser": ("gu", 0),
    "setsid": ("", 0),
    "stdbuf": ("eio", 0),
    "sudo": ("CDRTUghprtu", 0),
    "systemd-cat": ("pt", 0),
    "taskset": ("", 1),
    "time": ("fo", 0),
    "timeout": ("ks", 1),
}
#: Programs that run the file that is named first: the job is that file.
_RUN_FILES = frozenset(SHELLS) | {"node", "nodejs", "perl", "php", "pypy", "python", "ruby"}


@lru_cache(maxsize=256)
def unit_of_job(job: Job) -> str | None:
    """The label `unit`; None if nothing in the text is a name.

    >>> unit_of_job(Job(layout.JOB_VARIABLE, b"nightly-2026-11-23"))
    'nightly.job'
    >>> unit_of_job(Job(layout.JOB_COMMAND, b"cd /srv && nice -n 5 ./backup.sh -v | tee log"))
    'backup.sh.cron'
    """
    text = job.text.decode(errors="ignore")
    if job.source == layout.JOB_VARIABLE:
        name, kind = text, "job"
    else:
        cut = len(job.text) > _WHOLE
        name = (_program(text, cut) or "") if job.source == layout.JOB_COMMAND else text
        kind = "cron"
        if name in SHELLS:
            return None
    label = _label(name)
    return f"{label}.{kind}" if label else None


def _label(name: str) -> str:
    """What of a name can be a label: what is behind its last slash, without ids."""
    return without_ids(_NO_LABEL.sub("-", _base(name))).strip("-_.:@+")


def _base(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


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
        if not set(token) <= set(_OPERATORS):
            if not inside and not redirects:
                words.append(token)
            redirects = False
        elif inside or (token.startswith("(") and words and words[-1].endswith("$")):
            inside = max(0, inside + token.count("(") - token.count(")"))
        elif "<" in token or ">" in token:
            redirects = True
            if words and words[-1].isdigit():
                words.pop()  # the descriptor that is redirected
        else:
            yield words
            words = []
    yield words


def _tokens(text: str, cut: bool) -> list[str]:
    """Words without their quotes, and operators. What a quote opens that is not closed is lost."""
    reader = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars=_OPERATORS)
    reader.whitespace_split, reader.commenters = True, ""
    tokens: list[str] = []
    try:
        tokens.extend(token for token in reader if token)
    except ValueError:
        return tokens
    return tokens[:-1] if cut else tokens


def _run_by(words: Sequence[str]) -> str | None:
    """The program that a simple command runs, without its folder; None if it is none of a job."""
    words = list(words)
    while words:
        name = _base(words[0])
        if name in _BEFORE_COMMAND or _ASSIGNMENT.match(words[0]):
            del words[0]
        elif name in _PREPARE:
            return None
        elif name in _WRAPPERS:
            _leave_out_options(words, *_WRAPPERS[name])
        elif name.rstrip("0123456789.") in _RUN_FILES:
            return _file_run(words[1:]) or name
        else:
            return name
    return None


def _leave_out_options(words: list[str], taking: str, operands: int) -> None:
    """Remove the first word, its options and so many words: what is left is another command."""
    del words[0]
    while words and (words[0].startswith("-") or (operands and words)):
        word = words.pop(0)
        if not word.startswith("-"):
            operands -= 1
        elif word[-1] in taking and not word.startswith("--") and words:
            del words[0]


def _file_run(words: Sequence[str]) -> str | None:
    """The file, module or command that a shell or an interpreter is to run; None if it has none."""
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else ""
        if not word.startswith("-"):
            return _base(word)
        if word == "-m":
            return following or None
        if word.endswith("c") and not word.startswith("--"):
            return _program(following)
        if word.endswith("e"):
            return None
    return None
