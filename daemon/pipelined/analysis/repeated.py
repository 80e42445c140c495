# SPDX-License-Identifier: Apache-2.0
"""A command that a script runs several times on the same files, where once would do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from pipelined.analysis.pipe_graph import build_graph
from pipelined.analysis.repeatable import is_repeatable
from pipelined.analysis.rewriting import files
from pipelined.analysis.rules.rule import WORTH_SECONDS, WORTH_SHARE
from pipelined.analysis.script_lines import ScriptFile
from pipelined.analysis.shell_text import parse
from pipelined.runs import Run, Stage
from pipelined.wording import duration, listing

__all__ = ["run_again"]

#: Characters of a command that a sentence has room for.
_LONGEST = 60
#: So many lines of a script are named.
_NAMED = 5


def run_again(runs: Sequence[Run], wall: float, file: ScriptFile | None) -> str:
    """A sentence on the command that begins most needless work in a script of `wall` seconds: of
    several runs it is the first one, with the same words and files, and prints the same in each.

    Empty if there is none whose CPU time, but for the dearest time, is worth a change. `file` is
    the script, if it is known.
    """
    alike: dict[str, list[tuple[Run, Stage]]] = {}
    for run in runs:
        for stage in _first(run) if run.complete else ():
            if text := _on_files(stage.whole_arguments or "", stage.command):
                alike.setdefault(text, []).append((run, stage))
    if not alike:
        return ""
    text, again = max(alike.items(), key=lambda one: _spared(one[1]))
    if _spared(again) < max(WORTH_SECONDS, WORTH_SHARE * wall):
        return ""
    named = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return (
        f"{named} ran {len(again):,} times{_lines(again, file)} and used {duration(_cpu(again))} "
        "of CPU. Try: run it once, into a file that all of them read, if what it reads stays the "
        f"same. That spares at most {duration(_spared(again))} of CPU."
    )


def _first(run: Run) -> Iterator[Stage]:
    """Its stages that no other writes to."""
    before = build_graph(run).before
    return (stage for stage, writers in zip(run.stages, before, strict=True) if not writers)


@lru_cache(maxsize=1024)  # a loop has thousands of runs
def _on_files(line: str, name: str) -> str:
    """The command of a stage of this name, started with this command line, if it is certain that it
    does nothing but read the files that it names, and print; else empty."""
    found = parse(line)
    if found is None or len(found.commands) != 1 or not is_repeatable(found.commands[0]):
        return ""
    (command,) = found.commands
    names = files(command)
    if not names or any(word.value == "-" for word in names):
        return ""
    if command.program == name:
        return command.text
    return " ".join([name, *(word.text for word in names)])  # zcat, which execs gzip -cd


def _cpu(again: Sequence[tuple[Run, Stage]]) -> float:
    return sum(stage.cpu_seconds for _, stage in again)


def _spared(again: Sequence[tuple[Run, Stage]]) -> float:
    """CPU seconds of all times but the dearest: behind some it ended early, as before `head`."""
    return _cpu(again) - max(stage.cpu_seconds for _, stage in again)


def _lines(again: Sequence[tuple[Run, Stage]], file: ScriptFile | None) -> str:
    lines = file.lines_of([run for run, _ in again]) if file else ()
    if len(lines) < 2:
        return ""
    more = [f"{len(lines) - _NAMED:,} more"] if len(lines) > _NAMED else []
    return f" (lines {listing([*map(str, lines[:_NAMED]), *more])})"
