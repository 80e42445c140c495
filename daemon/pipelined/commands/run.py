# SPDX-License-Identifier: Apache-2.0
"""`pipelined run`: run a command and report on its pipelines."""

from __future__ import annotations

import contextlib
import locale
import os
import shlex
import shutil
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelined.commands import standard_error
from pipelined.commands.daemon_client import daemon_options, name_daemon, observer_opener
from pipelined.commands.report_output import (
    color_option,
    json_option,
    open_console,
    report_file,
)
from pipelined.errors import UserError, why

if TYPE_CHECKING:
    from pipelined.analysis.rewriting import Script

__all__ = ["TakesCommand", "run", "script_of"]


class TakesCommand(click.Command):
    """A command whose options end at the first word of another command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = len(ctx.params.get("command") or ())
        # After `--` come a command and its arguments, even if it is one word with blanks.
        ctx.meta["direct"] = words < len(given) and given[-words - 1] == "--"
        return rest


@click.command(
    cls=TakesCommand,
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Examples:
  sudo pipelined run 'cat big.log | cut -d " " -f 1 | sort | uniq -c'
  sudo pipelined run -o report.txt 'zcat f.gz | wc -l' > count
  sudo pipelined run --shell zsh 'sort a b |& tee log'
  sudo pipelined run -- ./nightly.sh
  sudo pipelined run --json -o run.json -- ./nightly.sh --full
  pipelined run 'sort a | uniq'

Quote the pipeline. Otherwise your own shell splits it, and only its first command is watched.
One string is run by bash, or by sh if there is no bash; several words are run as they are.

Without root, the daemon of this host measures what you run, if there is one.""",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="Write the report to FILE instead of stderr.",
)
@json_option
@click.option(
    "--shell",
    metavar="SHELL",
    help="The shell that runs a one-string command. [default: bash, else sh]",
)
@daemon_options("without root")
@color_option
@click.argument("command", nargs=-1, required=True)
@click.pass_context
def run(
    ctx: click.Context,
    command: tuple[str, ...],
    output: str | None,
    as_json: bool,
    shell: str | None,
    url: str | None,
    http_config: Path | None,
    color: str,
) -> int:
    """Run a command and report how its pipelines ran.

    The command keeps its input, output and exit status; the report goes to stderr when it has
    ended. Signals sent to pipelined are passed on to the command.

    The report of a script begins with what it took in all and its parts, the longest first. Each
    run has an id: pipelined show takes it, if a daemon recorded the run.

    With OTEL_EXPORTER_OTLP_ENDPOINT set, the command is a span, which its runs are below.
    """
    from pipelined.export.command_span import CommandSpan, is_configured
    from pipelined.run import child, profile
    from pipelined.run.script_files import known_script

    if shell is not None and (ctx.meta["direct"] or len(command) > 1):
        raise click.UsageError("--shell takes the pipeline as one quoted string", ctx)
    arguments = child.command_line(command, shell=shell, direct=bool(ctx.meta["direct"]))
    one_string = not ctx.meta["direct"] and len(command) == 1
    open_observer = observer_opener(url, http_config, lanes=True)
    standard_error.log_to_stderr("critical")
    span = CommandSpan.begin(os.environ) if is_configured(os.environ) else None
    with report_file(output, sys.stderr) as report:
        # what another shell would do with the text is not known
        script = script_of(command[0]) if one_string and shell is None else None
        file = known_script(command[0] if one_string else shlex.join(command), script_of)
        found = profile.profile(arguments, script=script, file=file, open_observer=open_observer)
        # Even if the report fails, the exit status is the command's.
        try:
            if as_json:
                profile.write_json(found, report)
            else:
                from pipelined.terminal.command_report import write_report

                write_report(found, open_console(report, color))
            report.flush()
        except OSError as error:
            if output is not None:  # else it is stderr that cannot be written
                standard_error.complain(f"cannot write {output}: {why(error)}", 1)
    # JSON on stderr names the daemon itself
    if output is not None or not as_json:
        with contextlib.suppress(OSError):
            name_daemon(found.daemon, open_console(sys.stderr, color))
    if span is not None:
        try:
            span.send(arguments[0], found.ended)
        except UserError as error:
            standard_error.complain(str(error), 1)
        except KeyboardInterrupt:
            standard_error.complain("the span of this command is not sent: interrupted", 1)
    return found.ended.status


def script_of(text: str) -> Script:
    """What is known of a command that is run by a shell with our input and environment."""
    from pipelined.analysis.rewriting import OFFERED, Script

    try:
        terminal = stat.S_ISCHR(os.fstat(0).st_mode)  # or /dev/null
    except OSError:  # closed
        terminal = True
    return Script(
        text,
        own_input=terminal,
        locale=_locale_for(locale.LC_COLLATE),
        characters=_locale_for(locale.LC_CTYPE),
        missing=frozenset(name for name in OFFERED if shutil.which(name) is None),
        awk=Path(os.path.realpath(shutil.which("awk") or "")).name,
    )


def _locale_for(category: int) -> str:
    """The locale of a program that we start, for sorting or so: ``C`` if ours is not installed."""
    before = locale.setlocale(category)
    try:
        return locale.setlocale(category, "")
    except locale.Error:
        return "C"
    finally:
        locale.setlocale(category, before)
