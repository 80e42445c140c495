# SPDX-License-Identifier: Apache-2.0
"""What `pipelined improve` runs: a pipeline, or a script and then its costliest pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipelined.analysis.exit_status import another_status
from pipelined.analysis.findings import findings
from pipelined.analysis.improvement import Improvement, ScriptImprovement
from pipelined.analysis.rewriting import Script
from pipelined.analysis.script_locale import locale_of
from pipelined.analysis.script_text import (
    Place,
    fails_as_any_stage,
    goes_by_status,
)
from pipelined.errors import INTERRUPTED_STATUS, UserError
from pipelined.run.child import command_line
from pipelined.run.executions import Execute, executing
from pipelined.run.host_costs import this_host
from pipelined.run.improving import AnotherStatus, improve
from pipelined.run.improving_script import improve_parts
from pipelined.run.profile import Observing, profile
from pipelined.run.script_files import text_of
from pipelined.terminal.comparison_report import progress
from pipelined.wording import duration, printable

if TYPE_CHECKING:
    from rich.console import Console

    from pipelined.analysis.finding import Finding
    from pipelined.runs import Run

__all__ = ["improved_pipeline", "improved_script"]

OpenObserver = Callable[[], Observing]


def improved_pipeline(
    script: Script,
    target: str,
    budget: tuple[str, float],
    open_observer: OpenObserver,
    console: Console,
) -> tuple[Improvement, str | None]:
    """What was found, and the address of the daemon that measured, if one did.

    `target` is the file that the output is to go to, and `budget` is as written, and in seconds.
    """
    with _opened(open_observer) as (execute, observer):
        _say(
            console,
            "Runs the pipeline once, to see what could be better. Begins no new round after "
            f"{budget[0]} (--budget).",
        )
        if target:
            _say(console, f"What it prints is compared, and not written to {target}.")
        found = _searched(script, execute, budget[1], console)
    if target:
        found = replace(found, command=f"{found.command} > {target}")
    return found, observer.daemon


def improved_script(
    command: str,
    file: Path,
    locale: str | None,
    budget: tuple[str, float],
    open_observer: OpenObserver,
    console: Console,
) -> tuple[ScriptImprovement, str | None]:
    """The same for a command that runs a shell script, a file."""
    text = text_of(file)  # as it is: the difference is to be applied
    _say(console, f"Runs {file} once, to see which of its pipelines cost most.")
    seen = profile(command_line([command]), open_observer=open_observer)
    if seen.ended.status == INTERRUPTED_STATUS:
        raise KeyboardInterrupt
    if seen.ended.status:
        raise UserError(
            f"{file} failed with exit status {seen.ended.status}", "nothing of it is tried"
        )
    any_stage = fails_as_any_stage(text)
    before = "set -o pipefail; " if any_stage else ""
    # today's exit status may be that of all ways, and another day's not
    differs = partial(another_status, any_stage=any_stage)
    with _opened(open_observer, before) as (execute, _):

        def improve_place(place: Place, seconds: float) -> Improvement:
            _say(
                console,
                f"Runs the pipeline in line {place.line} once. Begins no new round of it after "
                f"{duration(seconds)}.",
            )
            # what a sort could gain depends on it, though the pipeline is run in ours
            script = Script(place.text, locale=locale_of(text, place.line, locale))
            judge = differs if goes_by_status(text, place, command) else None
            return _searched(script, execute, seconds, console, judge)

        found = improve_parts(str(file), text, seen, improve_place, budget[1])
    return found, seen.daemon


@contextmanager
def _opened(open_observer: OpenObserver, before: str = "") -> Iterator[tuple[Execute, Observing]]:
    observers: list[Observing] = []

    def opened() -> Observing:
        observers.append(open_observer())
        return observers[0]

    with executing(opened, before) as execute:
        yield execute, observers[0]


def _searched(
    script: Script,
    execute: Execute,
    budget: float,
    console: Console,
    judge: AnotherStatus | None = None,
) -> Improvement:
    host = this_host()

    def findings_of(text: str, run: Run) -> tuple[Finding, ...]:
        return findings(run, host, replace(script, text=text))

    def announce(ways: int, executions: int, seconds: float) -> None:
        _say(
            console,
            f"Tries {ways} other way{'' if ways == 1 else 's'} to write it: at most {executions} "
            f"runs, about {duration(seconds)}; what loses is dropped early.",
        )

    return improve(
        script.text,
        execute=execute,
        findings_of=findings_of,
        budget=budget,
        another_status=judge,
        announce=announce,
        show_progress=lambda total: progress(console, total),
    )


def _say(console: Console, text: str) -> None:
    console.print(printable(text), style="dim", highlight=False, soft_wrap=True, markup=False)
