# SPDX-License-Identifier: Apache-2.0
"""`pipelined improve`: try what the findings of a pipeline advise, and print the command to use."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelined.commands import standard_error
from pipelined.commands.compare import RUN_WORD, recorded_run
from pipelined.commands.daemon_client import (
    daemon_options,
    name_daemon,
    observer_opener,
    open_client,
    was_given,
)
from pipelined.commands.recorded_runs import as_duration, open_history, state_directory_option
from pipelined.commands.report_output import (
    color_option,
    json_option,
    open_console,
    output_option,
    report_file,
)
from pipelined.commands.run import TakesCommand, script_of
from pipelined.errors import INTERRUPTED_STATUS, UserError, why
from pipelined.wording import listing, printable

if TYPE_CHECKING:
    from pipelined.analysis.improvement import Improvement, ScriptImprovement
    from pipelined.analysis.rewriting import Script
    from pipelined.runs import Run

__all__ = ["improve"]


@click.command(
    cls=TakesCommand,
    epilog="""\b
Examples:
  sudo pipelined improve 'cat access.log | cut -d " " -f 1 | sort | uniq -c'
  pipelined improve --budget 30m --json -o improved.json 'zcat big.gz | sort | uniq'
  pipelined compare improved.json
  pipelined improve ./nightly.sh
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
@json_option
@output_option
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
    change something; if that is not known, or the run is another user's, you are asked.

    Of a shell script, which runs once, the costliest pipelines are improved that can run by
    themselves; the report ends with the changes to the script.
    """
    if len(command) != 1:
        raise click.UsageError("improve takes one pipeline, as one quoted string, or one run", ctx)
    seconds = as_duration("--budget", budget) or 0.0
    (word,) = command
    of_run = not ctx.meta["direct"] and RUN_WORD.fullmatch(word) is not None
    if was_given("state_directory") and not of_run:
        raise click.UsageError("--state-directory is only for recorded runs, not for commands", ctx)
    standard_error.log_to_stderr("critical")
    stranger = ""
    if of_run:
        run = recorded_run(word, partial(open_history, state_directory, url, http_config))
        stranger = _stranger(run, _is_credible(word, state_directory, url, http_config))
        word = _recorded_text(word, run)
    from pipelined.commands.improving import improved_pipeline, improved_script
    from pipelined.run.script_files import known_script, shell_script

    file = shell_script(word)
    known = known_script(word, script_of)
    script, target = (script_of(word), "") if file else _taken_apart(word)
    console = open_console(sys.stderr, color)
    doubts = filter(None, (stranger and f"{stranger}: {word}", _doubt(script, file)))
    if not yes and not _agreed("; ".join(doubts)):
        return standard_error.complain("nothing was run", 1)
    open_observer = observer_opener(url, http_config)
    limit = (budget, seconds)
    found: Improvement | ScriptImprovement
    with report_file(output, sys.stdout) as report:
        if file:
            found, daemon = improved_script(
                word, file, known.script.locale if known else None, limit, open_observer, console
            )
        else:
            found, daemon = improved_pipeline(script, target, limit, open_observer, console)
        try:
            if as_json:
                from pipelined.runs.codec import written

                json.dump(written(found), report, indent=2)
                report.write("\n")
            else:
                from pipelined.terminal.improve_report import render

                render(found, open_console(report, color))
            report.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UserError(f"cannot write {output or 'the report'}: {why(error)}") from None
    name_daemon(daemon, console)
    return INTERRUPTED_STATUS if found.interrupted else 0


def _is_credible(
    word: str, state_directory: Path | None, url: str | None, http_config: Path | None
) -> bool:
    """Whether what is said of the run's user is true of this host.

    A file could say anything: it is as credible as its owner. User ids of another host are others.
    """
    if word.endswith(".json"):
        return os.stat(word).st_uid == os.geteuid()
    if state_directory is not None:
        return os.stat(state_directory).st_uid == os.geteuid()
    return url is None or open_client(url, http_config).is_near


def _stranger(run: Run, credible: bool) -> str:
    """Whose run it is, unless it is certain to be this user's; then empty."""
    identity, own = run.identity, os.geteuid()
    uid = identity.uid if identity else None
    if credible and uid == own:
        return ""
    if identity is None or uid in (None, own):
        whose = "may be another user's"
    else:
        whose = f"is of {identity.user or f'uid {uid}'}"
    return f"the run {whose}, and improve would run its command as you"


def _recorded_text(word: str, run: Run) -> str:
    """The command of the run that `word` names. Raises UserError if it is not known."""
    from pipelined.analysis.rewriting import Script
    from pipelined.analysis.shell_text import parse
    from pipelined.command_names import SHELLS

    script = Script.of_arguments(run)
    if script is None:
        cut = all(stage.arguments for stage in run.stages)
        raise UserError(
            f"the command of {word} is not known: "
            + (
                "of a long command line only the begin is recorded"
                if cut
                else "the daemon records command lines only with --show-arguments"
            ),
            "give the pipeline itself, as one quoted string",
        )
    found = parse(script.text)
    edges = {(index, index + 1) for index in range(len(run.stages) - 1)}
    shells = found is not None and any(one.program in SHELLS for one in found.commands)
    if found is None or shells or set(run.edges) != edges:
        raise UserError(
            f"{word} was not one pipeline of programs: a shell ran a part of it, or its stages were"
            " not in a row",
            "give a pipeline, as one quoted string",
        )
    return script.text


def _taken_apart(text: str) -> tuple[Script, str]:
    """What is known of a pipeline, and the file that its output was to go to, as it was written.

    Raises UserError if it cannot be improved.
    """
    from pipelined.analysis.read_again import why_not_read_again
    from pipelined.analysis.rewriting import Script
    from pipelined.analysis.shell_text import output_file, parse
    from pipelined.analysis.side_effects import unsafe
    from pipelined.run.file_kinds import kinds

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
            "leave that part out; if it is a script of yours: pipelined improve 'bash FILE'",
        )
    if passing := why_not_read_again(pipeline, kinds):
        raise UserError(
            f"nothing was run: {passing}",
            "let it read a file in its place",
        )
    target = output_file(text)
    given = script_of(pipeline.text)
    if not given.standalone:
        raise UserError(
            "the pipeline reads its standard input, or may do so, and improve runs it many times",
            "name its file in it; if it reads none, begin the first command's input with "
            "< /dev/null",
        )
    return Script(pipeline.text, own_input=given.own_input, locale=given.locale), target


def _doubt(script: Script, file: Path | None) -> str:
    """Why it may not be good to run it; empty if there is no doubt."""
    from pipelined.analysis.shell_text import parse
    from pipelined.analysis.side_effects import uncertain

    if file:
        return (
            f"{file} is run once, with all that it does; then those of its pipelines that are "
            "known only to read and print are run many times"
        )
    pipeline = parse(script.text)
    programs = uncertain(pipeline) if pipeline else ()
    if not programs:
        return ""
    return (
        f"it is not certain that {listing(programs)} only reads and prints, and improve runs the "
        "pipeline many times"
    )


def _agreed(doubt: str) -> bool:
    """Whether it may be run: asks, if there is a doubt. Raises UserError if nobody can be asked."""
    if not doubt:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError(doubt, "if that does no harm, add --yes")
    question = printable(f"{doubt[0].upper()}{doubt[1:]}. Run it?")
    return click.confirm(question, err=True)
