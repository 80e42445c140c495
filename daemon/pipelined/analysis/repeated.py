# SPDX-License-Identifier: Apache-2.0
"""A command that lines of a script begin with, on the same files, where once would do. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pipelined.analysis.input_files import alike_from_file
from pipelined.analysis.repeatable import is_repeatable
from pipelined.analysis.rewriting import files
from pipelined.analysis.rules.rule import WORTH_SECONDS, WORTH_SHARE
from pipelined.analysis.script_lines import ScriptFile
from pipelined.analysis.script_text import moves
from pipelined.analysis.shell_text import Command
from pipelined.analysis.shell_words import Word
from pipelined.command_names import AWKS, GREPS
from pipelined.runs import Run
from pipelined.wording import duration, listing

__all__ = ["run_again"]

#: Characters of a command that a sentence has room for.
_LONGEST = 60
#: So many lines of a script are named.
_NAMED = 5
#: With these they print something else each time, or may.
_VARYING: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(AWKS, re.compile(r"\b(ENVIRON|PROCINFO|getline|rand|strftime|systime)\b")),
    **dict.fromkeys(GREPS, re.compile("^(-[A-Za-z]*f|--f)")),  # words from another file
    "sort": re.compile("-[a-zA-Z]*R|--ra|--so[a-z]*=r"),
}
#: In a script: from here on programs may go by another locale ...
_LOCALE = re.compile(r"\b(LC_[A-Z]+|LANG)\b")
#: ... but for those that take bytes as they are.
_BYTES = frozenset(
    {"bzip2", "cat", "gzip", "head", "md5sum", "sha256sum", "tac", "tail", "xz", "zcat", "zstd"}
)
#: What these name is another thing for each process.
_OF_PROCESS = re.compile("-|/(dev|proc|sys)/.*")


def run_again(runs: Sequence[Run], wall: float, file: ScriptFile | None) -> str:
    """A sentence on the command that costs most of those that a script, which took `wall` seconds,
    runs in several places, each time at the begin of a pipeline and on the same files.

    Empty if the script is not known, or if there is none whose CPU time, but for the dearest time,
    is worth a change.
    """
    if file is None:
        return ""
    seconds: dict[str, list[float]] = {}
    lines: dict[str, set[int]] = {}
    script = file.script.text
    elsewhere, localised = moves(script), _LOCALE.search(script) is not None
    for run in runs:
        first = file.first_commands(run) if run.complete else {}
        texts = {command.text for command in first.values()}
        if len(texts) == 1 and _prints_the_same(next(iter(first.values())), elsewhere, localised):
            (text,) = texts
            seconds.setdefault(text, []).append(run.stages[0].cpu_seconds)
            lines.setdefault(text, set()).update(first)
    # behind `head` it may have ended early: the dearest time is the one that is needed
    spared = {text: sum(each) - max(each) for text, each in seconds.items()}
    text = max(spared, key=lambda one: spared[one], default="")
    if not text or spared[text] < max(WORTH_SECONDS, WORTH_SHARE * wall):
        return ""
    named = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return (
        f"{named} ran {len(seconds[text]):,} times ({_where(sorted(lines[text]))}) and used "
        f"{duration(sum(seconds[text]))} of CPU. Try: run it once, into a file that all of them "
        "read, if what it reads stays the same. That spares at most "
        f"{duration(spared[text])} of CPU."
    )


def _prints_the_same(command: Command, elsewhere: bool, localised: bool) -> bool:
    """Whether it only reads files that it names, which are not to change, and makes the same of
    them each time. It may be run in another directory (`elsewhere`), or locale (`localised`)."""
    read = files(command)
    names = [*([command.source] if command.source else []), *(read or ())]
    if not is_repeatable(command) or read is None or not names or _is_copy(command, names):
        return False
    if any(
        word.expanded or not word.literal or _OF_PROCESS.fullmatch(word.value) for word in names
    ):
        return False
    if elsewhere and not all(word.value.startswith("/") for word in names):
        return False
    if localised and command.program not in _BYTES and command.variable("LC_ALL") is None:
        return False
    if command.program == "tail" and not alike_from_file(command):
        return False
    varying = _VARYING.get(command.program)
    return varying is None or not any(varying.search(word.value) for word in command.arguments)


def _is_copy(command: Command, names: Sequence[Word]) -> bool:
    """Whether what it prints is a file that is there already."""
    plain = all(word in names for word in command.arguments)
    return command.program == "cat" and plain and len(names) == 1


def _where(lines: Sequence[int]) -> str:
    """Lines of a script in words, the first ones of many."""
    more = [f"{len(lines) - _NAMED:,} more"] if len(lines) > _NAMED else []
    words = listing([*map(str, lines[:_NAMED]), *more])
    return f"line{'s' if len(lines) > 1 else ''} {words}"
