# SPDX-License-Identifier: Apache-2.0
"""`pipelined runs` and `show`: finished runs as the daemon has recorded them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelined.commands.report_output import color_option, open_console

if TYPE_CHECKING:
    from pipelined.history.history import CountedRuns, History

__all__ = ["list_runs", "open_history", "show", "state_directory_option"]

state_directory_option = click.option(
    "--state-directory",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, readable=False),  # one that cannot be read is reported later
    help="Where the daemon keeps its history. [default: $STATE_DIRECTORY, else /var/lib/pipelined]",
)


@click.command(
    "runs",
    epilog="""\b
Examples:
  sudo pipelined runs
  sudo pipelined runs --since 2h --command sort
  sudo pipelined runs --finding barrier --since 2026-11-21 --json

Reads the history directly: the daemon need not run. The run that started last comes first;
below it, indented, what ran inside it. Equal ones are one line, unless --pipeline is given.""",
)
@click.option("--pipeline", metavar="SIGNATURE", help="Runs with exactly this signature.")
@click.option("--unit", metavar="UNIT", help="Runs of this systemd unit or cgroup.")
@click.option("--finding", metavar="ID", help="Runs that have this finding.")
@click.option("--command", metavar="NAME", help="Runs with a stage of this name.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Started then or later: 2h (ago), 2026-11-21, '2026-11-21 03:00'.",
)
@click.option("--until", metavar="WHEN", help="Started before.")
@click.option(
    "--limit",
    metavar="COUNT",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="Show at most this many lines; with --json, runs.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for machines.")
@state_directory_option
@color_option
def list_runs(
    state_directory: Path | None,
    since: str | None,
    until: str | None,
    limit: int,
    as_json: bool,
    color: str,
    **searched: Any,
) -> None:
    """List finished runs that the daemon has recorded."""
    searched |= {"since": _moment("--since", since), "until": _moment("--until", until)}
    history = open_history(state_directory)
    counted = _counted(history, searched)
    if as_json:
        import json

        from pipelined.history.history import counted_as_dict, summary_as_dict

        # One more than is shown, to know whether there are more.
        found = history.runs(**searched, limit=limit + 1)
        shown, more = found[:limit], len(found) > limit
        described = {
            "runs": [summary_as_dict(run) for run in shown],
            "next": shown[-1].id if more else None,
            "counted": counted and counted_as_dict(counted),
        }
        click.echo(json.dumps(described, indent=2))
        return
    import time

    from pipelined.history.listing import list_lines
    from pipelined.terminal.drawing import is_ascii, print_lines, report_width
    from pipelined.terminal.history_report import counted_line, run_table

    console = open_console(sys.stdout, color)
    now, ascii_only = time.time(), is_ascii(console)
    listing = list_lines(history, limit, **searched)
    if listing.lines:
        table = run_table(listing.lines, report_width(console), now, ascii_only=ascii_only)
        print_lines(table, console)
    else:
        click.echo("no finished run matches" if any(searched.values()) else "no run yet")
    if listing.before:
        console.print(f"There are more: --limit {2 * limit}", highlight=False)
    if counted and not counted.all_stored:
        console.print(counted_line(counted, now, ascii_only=ascii_only), highlight=False)


def _counted(history: History, searched: dict[str, Any]) -> CountedRuns | None:
    """How many runs there were; None if they cannot be searched by what is given.

    The commands and findings of a run that is not stored are not known.
    """
    if searched["finding"] or searched["command"]:
        return None
    known = {name: searched[name] for name in ("pipeline", "unit", "since", "until")}
    return history.counted(**known)


def _moment(flag: str, text: str | None) -> float | None:
    from pipelined.history.history import moment

    try:
        return None if text is None else moment(text)
    except ValueError as error:
        raise click.UsageError(f"{flag}: {error}") from None


def open_history(state_directory: Path | None) -> History:
    """The history that the daemon keeps in this directory, for reading."""
    from pipelined.analysis.machine import Host
    from pipelined.history.history import History, default_directory

    return History(state_directory or default_directory(os.environ), host=Host.read())


@click.command(
    epilog="""\b
Examples:
  sudo pipelined show
  sudo pipelined show 1763736801204
  sudo pipelined show last --json > run.json""",
)
@click.option("--json", "as_json", is_flag=True, help="Report as JSON, for machines.")
@state_directory_option
@color_option
@click.argument("run", default="last")
def show(run: str, as_json: bool, state_directory: Path | None, color: str) -> None:
    """Show the report of a recorded run.

    RUN is an id that pipelined runs lists, or a beginning that only this id has. The default is
    last, the run that ended last.
    """
    found = open_history(state_directory).run(run)
    if as_json:
        import json

        from pipelined.analysis.machine import Host
        from pipelined.model.timeline import timeline_as_dict
        from pipelined.schema import describe_run

        # Arguments that may not be shown are not recorded.
        recorded = any(stage.arguments is not None for stage in found.run.stages)
        described = describe_run(
            found.run, Host.read(), show_arguments=recorded, timeline=found.timeline
        )
        described["timeline"] = timeline_as_dict(found.timeline)
        click.echo(json.dumps(described, indent=2))
        return
    from pipelined.analysis.findings import findings
    from pipelined.analysis.machine import Host
    from pipelined.analysis.rewriting import Script
    from pipelined.terminal.drawing import is_ascii, print_lines, report_width
    from pipelined.terminal.history_report import time_lines
    from pipelined.terminal.run_report import render

    console = open_console(sys.stdout, color)
    script = Script.of_arguments(found.run)
    render(found.run, console, None, script=script)
    drawn = time_lines(
        found.run,
        found.timeline,
        report_width(console),
        findings(found.run, Host.read(), script),
        ascii_only=is_ascii(console),
    )
    print_lines([*([""] if drawn else []), *drawn], console)
