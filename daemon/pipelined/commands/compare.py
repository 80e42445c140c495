# SPDX-License-Identifier: Apache-2.0
"""`pipelined compare`: run commands in turn, or set two recorded runs side by side."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelined.commands import standard_error
from pipelined.commands.daemon_client import (
    daemon_options,
    name_daemon,
    observer_opener,
    was_given,
)
from pipelined.commands.recorded_runs import open_history, state_directory_option
from pipelined.commands.report_output import (
    color_option,
    json_option,
    open_console,
    output_option,
    report_file,
)
from pipelined.commands.run import TakesCommand
from pipelined.errors import UserError, why

if TYPE_CHECKING:
    from pipelined.analysis.comparison import Comparison
    from pipelined.history.history import Recorded
    from pipelined.run.profile import Observing
    from pipelined.runs import Run

__all__ = ["compare"]

#: Words of `compare` that name a run: an id or its beginning, `last`, a file of `run --json`.
RUN_WORD = re.compile(r"last|\d+(-\d*(-[0-9a-f]*)?)?|\S+\.json")
#: A word that is rather the signature of recorded runs than a command.
_SIGNATURE = re.compile(r"[^\s|]+(\|[^\s|]+)+")
#: Earlier runs among which one to compare with is looked for.
_EARLIER = 1000


@click.command(
    cls=TakesCommand,
    epilog="""\b
Examples:
  sudo pipelined compare 'sort log | uniq' 'sort -u log'
  sudo pipelined compare -n 9 --cold big.log 'awk "{n++}" big.log' 'cat big.log | awk "{n++}"'
  pipelined compare 1763809200123-4711 last
  pipelined compare last             # with the run of the same pipeline before it
  pipelined compare tuesday.json wednesday.json
  pipelined compare improved.json    # what improve --json -o measured

A word such as 1763809200123-4711, its beginning, `last`, or the name of a .json file is a run;
anything else is a command. After --, every word is a command.""",
)
@click.option(
    "-n",
    "--rounds",
    metavar="ROUNDS",
    type=click.IntRange(1, 10_000),
    default=5,
    show_default=True,
    help="How often each command is measured; it takes 5 to name a winner.",
)
@click.option(
    "--warm-up",
    metavar="ROUNDS",
    type=click.IntRange(0, 10_000),
    default=1,
    show_default=True,
    help="How often each command runs before that, without being measured.",
)
@click.option(
    "--cold",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Drop FILE, or all files in a directory, from the page cache before each execution.",
)
@click.option(
    "--warm",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Read FILE, or all files in a directory, into the page cache before each execution.",
)
@click.option(
    "--match",
    metavar="WHAT",
    type=click.Choice(("same", "lines", "any")),
    default="same",
    show_default=True,
    help="What all have to print: the same; the same lines, in any order; or any output.",
)
@click.option(
    "--shell",
    metavar="SHELL",
    help="The shell that runs the commands. [default: bash, else sh]",
)
@json_option
@output_option
@state_directory_option
@daemon_options("without root")
@color_option
@click.argument("command", nargs=-1, required=True)
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    command: tuple[str, ...],
    output: str | None,
    as_json: bool,
    state_directory: Path | None,
    url: str | None,
    http_config: Path | None,
    color: str,
    **plan: Any,
) -> int:
    """Compare commands, or two recorded runs: which wins, and why.

    Each command runs equally often, in turn, with no input. What it prints is not shown, but has to
    be the same each time: the first output that differs ends the comparison, unless --match allows
    it. Reports medians, spread, and the ratio round by round.
    """
    from pipelined.analysis.comparison import LABELS, compare_runs, comparison_as_dict

    runs = [not ctx.meta["direct"] and RUN_WORD.fullmatch(word) is not None for word in command]
    if any(runs) and not all(runs):
        raise click.UsageError(
            "compare runs with runs, or commands with commands; after --, every word is a command",
            ctx,
        )
    report_of_improve = all(runs) and len(command) == 1 and command[0].endswith(".json")
    least, most = (1, 2) if all(runs) else (2, len(LABELS))
    if not least <= len(command) <= most:
        raise click.UsageError(_usage(command, most, runs=all(runs)), ctx)
    given = [name for name in (*plan, "state_directory") if was_given(name)]
    wrong = [name for name in given if all(runs) != (name == "state_directory")]
    if wrong:
        flag = f"--{wrong[0].replace('_', '-')}"
        sides = ["commands", "recorded runs"]
        mine = ", not for ".join(sides if all(runs) else reversed(sides))
        raise click.UsageError(f"{flag} is only for {mine}", ctx)
    standard_error.log_to_stderr("critical")
    daemon = None
    # The report may replace a file that is read here.
    if report_of_improve:
        found = _comparison_from_file(Path(command[0]))
    elif all(runs):
        opened = partial(open_history, state_directory, url, http_config)
        found = compare_runs(*_two_runs(command, opened))
    with report_file(output, sys.stdout) as file:
        if not all(runs):
            open_observer = observer_opener(url, http_config)
            found, daemon = _compare_commands(command, plan, open_observer, color)
        try:
            if as_json:
                json.dump(comparison_as_dict(found), file, indent=2)
                file.write("\n")
            else:
                from pipelined.terminal.comparison_report import render

                render(found, open_console(file, color))
            file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UserError(f"cannot write {output or 'the report'}: {why(error)}") from None
    name_daemon(daemon, open_console(sys.stderr, color))
    return 0


def _compare_commands(
    commands: tuple[str, ...],
    plan: Mapping[str, Any],
    open_observer: Callable[[], Observing],
    color: str,
) -> tuple[Comparison, str | None]:
    """The comparison, and the address of the daemon that measured, if one did."""
    from pipelined.run.trials import Plan, run_trials
    from pipelined.terminal.comparison_report import progress

    console = open_console(sys.stderr, color)
    observers: list[Observing] = []

    def opened() -> Observing:
        observers.append(open_observer())
        return observers[0]

    found = run_trials(
        Plan(commands, **plan),
        open_observer=opened,
        show_progress=lambda total: progress(console, total),
    )
    return found, observers[0].daemon


def _usage(words: tuple[str, ...], most: int, *, runs: bool) -> str:
    """What is wrong with the number of `words`."""
    if runs:
        return "compare takes two runs, or one and compares it with the one before it"
    usage = f"compare takes two to {most} commands, each as one quoted string"
    if len(words) == 1 and _SIGNATURE.fullmatch(words[0]):
        runs_of = f"pipelined runs --pipeline {shlex.quote(words[0])}"
        usage += f", or the ids of recorded runs: {runs_of} lists them"
    return usage


def _two_runs(words: tuple[str, ...], opened: Callable[[], Recorded]) -> tuple[Run, Run]:
    """The runs that are named; of one alone, before it the last one of the same pipeline."""
    if len(words) == 2:
        return recorded_run(words[0], opened), recorded_run(words[1], opened)
    from pipelined.history.history import NoSuchRunError

    history = opened()
    run = history.run(words[0]).run
    pipeline, unit = run.series.pipeline, run.series.unit
    before = history.runs(pipeline=pipeline, unit=unit, until=run.start, limit=_EARLIER)
    for one in before:
        # what ran beside it in the same run belongs to the same night
        alike = one.nested == run.nested and (one.parent is None or one.parent != run.parent)
        if alike and one.complete and not one.partial:
            return history.run(one.id).run, run
    raise NoSuchRunError(
        f"no run of {pipeline} in unit {unit} before {run.id} can be compared with it",
        f"pipelined runs --pipeline {shlex.quote(pipeline)} lists those of all units: give two",
    )


def recorded_run(word: str, open_recorded: Callable[[], Recorded]) -> Run:
    """The run that a word of `compare` names. Raises UserError if there is none."""
    if word.endswith(".json"):
        return _run_from_file(Path(word))
    return open_recorded().run(word).run


def _comparison_from_file(path: Path) -> Comparison:
    """What `improve --json` measured in the end: the original and the command to use."""
    from pipelined.analysis.improvement import Improvement
    from pipelined.runs.codec import read

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = read(Improvement, document).comparison
    except OSError as error:
        reason, hint = why(error), "name a file that can be read"
    except (KeyError, TypeError, ValueError, AttributeError):
        reason = "one file has to be what improve --json wrote"
        hint = "or give two, each with a run"
    else:
        if found is not None:
            return found
        reason, hint = "nothing won, or the end was not reached", "try improve again"
    raise UserError(f"cannot read a comparison from {path}: {reason}", hint)


def _run_from_file(path: Path) -> Run:
    """The first run of a report by `run --json`, or the run that `show --json` described."""
    from pipelined.runs import Run
    from pipelined.runs.codec import read

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        runs = document.get("runs", [document])
        if runs:
            return read(Run, runs[0])
        reason, hint = "it has no run", "give the report of a command with a pipeline"
    except OSError as error:
        reason, hint = why(error), "name a file that can be read"
    except (KeyError, TypeError, ValueError, AttributeError):
        reason, hint = "it describes no run", "write one with: pipelined run --json -o FILE"
    raise UserError(f"cannot read a run from {path}: {reason}", hint)
