# SPDX-License-Identifier: Apache-2.0
"""`pipelined improve`: try what the findings of a pipeline advise, and print the command to use."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelined.commands import standard_error
from pipelined.commands.compare import RUN_WORD, recorded_run
from pipelined.commands.daemon_client import (
    daemon_options,
    name_daemon,
    observer_opener,
    was_given,
)
from pipelined.commands.recorded_runs import as_duration, open_history, state_directory_option
from pipelined.commands.report_output import color_option, open_console, report_file
from pipelined.commands.run import TakesCommand, script_of
from pipelined.errors import UserError, why
from pipelined.wording import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from pipelined.analysis.improvement import Improvement
    from pipelined.analysis.rewriting import Script
    from pipelined.history.history import Recorded
    from pipelined.run.profile import Observing

__all__ = ["improve"]

_INTERRUPTED_STATUS = 130


@click.command(
    cls=TakesCommand,
    epilog="""\b
Examples:
  sudo pipelined improve 'cat access.log | cut -d " " -f 1 | sort | uniq -c'
  pipelined improve --budget 30m --json -o improved.json 'zcat big.gz | sort | uniq'
  pipelined compare improved.json
  pipelined improve last

A word such as 1763809200123-4711, its beginning, `last`, or the name of a .json file is a run
whose command lines were recorded; anything else is a command. After --, it is a command.""",
)
@click.option(
    "--budget",
    metavar="DURATION",
    default="5m",
    show_default=True,
    help="Begin no new round of trials later than this, such as 90s or 30m.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Do not ask before running programs that may do more than read and print.",
)
@click.option("--json", "as_json", is_flag=True, help="Report as JSON, for machines.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="Write the report to FILE instead of stdout.",
)
@state_directory_option
@daemon_options("without root")
@color_option
@click.argument("command", nargs=-1, required=True)
@click.pass_context
def improve(
    ctx: click.Context,
    command: tuple[str, ...],
    budget: str,
    yes: bool,
    as_json: bool,
    output: str | None,
    state_directory: Path | None,
    url: str | None,
    http_config: Path | None,
    color: str,
) -> int:
    """Try what the findings of a pipeline advise, and print the command to use.

    Runs the pipeline once, then what each finding advises, in turn with it; what wins is kept, and
    the search goes on from there. All have to print the same. Nothing is run that is known to
    change something; if that is not known, you are asked.
    """
    if len(command) != 1:
        raise click.UsageError("improve takes one pipeline, as one quoted string, or one run", ctx)
    _seconds(budget)
    (word,) = command
    of_run = not ctx.meta["direct"] and RUN_WORD.fullmatch(word) is not None
    if was_given("state_directory") and not of_run:
        raise click.UsageError("--state-directory is for runs", ctx)
    standard_error.log_to_stderr("critical")
    if of_run:
        word = _recorded_text(word, partial(open_history, state_directory, url, http_config))
    script, target = _taken_apart(word)
    console = open_console(sys.stderr, color)
    if not _agreed(script, yes):
        return standard_error.complain("nothing was run", 1)
    with report_file(output, sys.stdout) as file:
        open_observer = observer_opener(url, http_config)
        found, daemon = _improved(script, target, budget, open_observer, console)
        if target:
            found = replace(found, command=f"{found.command} > {target}")
        try:
            if as_json:
                from pipelined.runs.codec import written

                json.dump(written(found), file, indent=2)
                file.write("\n")
            else:
                from pipelined.terminal.improve_report import render

                render(found, open_console(file, color))
            file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UserError(f"cannot write {output or 'the report'}: {why(error)}") from None
    name_daemon(daemon, console)
    return _INTERRUPTED_STATUS if found.ended == "interrupted" else 0


def _seconds(budget: str) -> float:
    return as_duration("--budget", budget) or 0.0


def _recorded_text(word: str, open_recorded: Callable[[], Recorded]) -> str:
    """The command of a recorded run. Raises UserError if it is not known."""
    from pipelined.analysis.rewriting import Script

    script = Script.of_arguments(recorded_run(word, open_recorded))
    if script is None:
        raise UserError(
            f"the command of {word} is not known: the daemon records command lines only with "
            "--show-arguments",
            "give the pipeline itself, as one quoted string",
        )
    return script.text


def _taken_apart(text: str) -> tuple[Script, str]:
    """What is known of a pipeline, and the file that its output was to go to, as it was written.

    Raises UserError if it cannot be improved.
    """
    from pipelined.analysis.rewriting import Script
    from pipelined.analysis.shell_text import parse
    from pipelined.analysis.shell_words import Operator, tokens
    from pipelined.analysis.side_effects import unsafe

    pipeline = parse(text)
    if pipeline is None:
        raise UserError(
            "improve takes one pipeline of programs with their arguments, and this is another thing"
            " (variables, loops, substitutions, several commands, >>, 2>)",
            "write out what the shell would work out, or try: pipelined run",
        )
    if reason := unsafe(pipeline):
        raise UserError(
            f"nothing was run: {reason}, and improve runs a command many times",
            "leave that part out",
        )
    marks = list(tokens(text.strip()))
    target = next(
        (
            following.text
            for mark, following in pairwise(marks)
            if isinstance(mark, Operator) and mark.text == ">"
        ),
        "",
    )
    given = script_of(pipeline.text)
    if not given.standalone:
        raise UserError(
            "the pipeline reads its standard input, or may do so, and improve runs it many times",
            "name its file in it; if it reads none, begin the first command's input with "
            "< /dev/null",
        )
    return Script(pipeline.text, own_input=given.own_input, locale=given.locale), target


def _agreed(script: Script, yes: bool) -> bool:
    """Whether it may be run many times: asks, if that is not certain. Raises UserError if nobody
    can be asked."""
    from pipelined.analysis.shell_text import parse
    from pipelined.analysis.side_effects import uncertain
    from pipelined.wording import listing

    pipeline = parse(script.text)
    programs = uncertain(pipeline) if pipeline else ()
    if not programs or yes:
        return True
    doubt = (
        f"it is not certain that {listing(programs)} only reads and prints, and improve runs the "
        "pipeline many times"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError(doubt, "if that does no harm, add --yes")
    question = f"{doubt[0].upper()}{doubt[1:]}. Run it?"
    return click.confirm(question, err=True)


def _improved(
    script: Script,
    target: str,
    budget: str,
    open_observer: Callable[[], Observing],
    console: Console,
) -> tuple[Improvement, str | None]:
    """What was found, and the address of the daemon that measured, if one did."""
    from pipelined.analysis.findings import findings
    from pipelined.analysis.machine import Host
    from pipelined.run.executions import executing
    from pipelined.run.improving import improve as search
    from pipelined.terminal.comparison_report import progress

    host = Host.read()
    observers: list[Observing] = []

    def opened() -> Observing:
        observers.append(open_observer())
        return observers[0]

    def say(text: str) -> None:
        console.print(text, style="dim", highlight=False, soft_wrap=True, markup=False)

    def announce(ways: int, executions: int, seconds: float) -> None:
        say(
            f"Tries {ways} other way{'' if ways == 1 else 's'} to write it: at most {executions} "
            f"runs, about {duration(seconds)}; what loses is dropped early."
        )

    with executing(opened) as execute:
        say(
            "Runs the pipeline once, to see what could be better. Begins no new round after "
            f"{budget} (--budget)."
        )
        if target:
            say(f"What it prints is compared, and not written to {target}.")
        found = search(
            script.text,
            execute=execute,
            findings_of=lambda text, run: findings(run, host, replace(script, text=text)),
            budget=_seconds(budget),
            announce=announce,
            show_progress=lambda total: progress(console, total),
        )
    return found, observers[0].daemon
