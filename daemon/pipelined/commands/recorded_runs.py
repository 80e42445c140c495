# SPDX-License-Identifier: Apache-2.0
"""`pipelined runs` and `show`: finished runs as the daemon has recorded them."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelined.analysis.finding import DOCUMENTATION
from pipelined.commands.daemon_client import daemon_options, open_client, or_daemon, was_given
from pipelined.commands.followed_runs import follow_runs, refuse_with_follow
from pipelined.commands.report_output import color_option, open_console
from pipelined.commands.searched_text import searched_text
from pipelined.config import parse_duration
from pipelined.config.state_directory import service_directory
from pipelined.errors import NotPermittedError, nearest
from pipelined.history.run_order import RUN_SORTS

if TYPE_CHECKING:
    from pipelined.analysis.machine import Host
    from pipelined.history.counted_runs import CountedRuns
    from pipelined.history.history import Recorded

__all__ = ["as_moment", "list_runs", "open_history", "show", "state_directory_option"]

#: What can be searched in stored runs alone.
_OF_STORED_RUNS = (
    "finding",
    "command",
    "identity",
    "min_duration",
    "slower",
    "failed",
    "interrupted",
)

state_directory_option = click.option(
    "--state-directory",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, readable=False),  # one that cannot be read is reported later
    help="Where the daemon keeps its history. [default: $STATE_DIRECTORY, else the state-directory "
    "of /etc/pipelined/pipelined.toml, else /var/lib/pipelined]",
)


@click.command(
    "runs",
    epilog="""\b
Examples:
  sudo pipelined runs
  sudo pipelined runs --since 2h --command sort
  sudo pipelined runs --since 7d --slower --min-duration 1m
  sudo pipelined runs --since 1d --failed --interrupted
  sudo pipelined runs --since 12h --sort wall --top-level
  sudo pipelined runs --finding barrier --since 2026-11-21 --json
  sudo pipelined runs --identity SLURM_JOB_ID=4711
  pipelined runs --follow --failed

Reads the history directly: the daemon need not run. If you may not read it, the daemon is asked.
With --follow it always is.
The run that started last comes first; below it, indented, what ran inside it. Equal ones are one
line, unless --pipeline is given. With --sort wall the run that took longest comes first, and each
run has its own line.""",
)
@click.option(
    "--pipeline", metavar="SIGNATURE", type=searched_text, help="Runs with exactly this signature."
)
@click.option(
    "--unit",
    metavar="UNIT",
    type=searched_text,
    help="Runs of this job, container, systemd unit or cgroup.",
)
@click.option("--finding", metavar="ID", type=searched_text, help="Runs that have this finding.")
@click.option(
    "--command", metavar="NAME", type=searched_text, help="Runs with a stage of this name."
)
@click.option(
    "--identity",
    type=searched_text,
    metavar="[NAME=]VALUE",
    help="Runs of this user, container, image, pod, namespace, invocation, trace, or with this "
    "value of a variable: SLURM_JOB_ID=4711, or just 4711.",
)
@click.option(
    "--since",
    metavar="WHEN",
    help="Started then or later: 2h (ago), 2026-11-21, '2026-11-21 03:00'.",
)
@click.option("--until", metavar="WHEN", help="Started before.")
@click.option(
    "--min-duration",
    metavar="DURATION",
    help="Runs that took at least this long, such as 500ms or 2m.",
)
@click.option("--top-level", is_flag=True, help="Only runs that lie in no other run.")
@click.option("--slower", is_flag=True, help="Only runs that were slower than usual.")
@click.option("--failed", is_flag=True, help="Only runs that have failed.")
@click.option(
    "--interrupted",
    is_flag=True,
    help="Only runs that were stopped from outside, as by timeout; with --failed, either.",
)
@click.option(
    "--sort",
    type=click.Choice(RUN_SORTS),
    default=RUN_SORTS[0],
    show_default=True,
    help="By start, the last one first; or by wall time, the longest first.",
)
@click.option(
    "--limit",
    metavar="COUNT",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="Show at most this many lines; with --json, runs.",
)
@click.option("--follow", is_flag=True, help="Show each run when it is stored, until Ctrl-C.")
@click.option(
    "--after",
    metavar="CURSOR",
    help="With --follow, the cursor of the last run that you have; oldest: from the first one on."
    " [default: now]",
)
@click.option(
    "--json", "as_json", is_flag=True, help="As JSON, for machines; with --follow, a line per run."
)
@state_directory_option
@daemon_options("with --follow, or if the history's file is not readable for you")
@color_option
def list_runs(
    state_directory: Path | None,
    url: str | None,
    http_config: Path | None,
    since: str | None,
    until: str | None,
    min_duration: str | None,
    sort: str,
    limit: int,
    follow: bool,
    after: str | None,
    as_json: bool,
    color: str,
    **searched: Any,
) -> None:
    """List finished runs that the daemon has recorded."""
    searched["min_duration"] = as_duration("--min-duration", min_duration)
    if follow:
        refuse_with_follow("since", "until", "sort", "limit", "state_directory")
        follow_runs(after, url, http_config, color, as_json=as_json, **searched)
        return
    if after is not None:
        raise click.UsageError("--after goes with --follow")
    searched |= {"since": as_moment("--since", since), "until": as_moment("--until", until)}
    history = open_history(state_directory, url, http_config)
    counted = _counted(history, searched)
    if as_json:
        from pipelined.history.run_list import RunList
        from pipelined.runs.codec import written

        # One more than is shown, to know whether there are more.
        found = history.runs(**searched, sort=sort, limit=limit + 1)
        page = RunList.page(found, limit, counted, sort)
        click.echo(json.dumps(written(page), indent=2))
        return
    from pipelined.history.listing import list_lines
    from pipelined.terminal.drawing import is_ascii, print_lines, report_width
    from pipelined.terminal.history_report import counted_line, run_table

    console = open_console(sys.stdout, color)
    now, ascii_only = time.time(), is_ascii(console)
    listing = list_lines(history, limit, **searched, sort=sort)
    if listing.lines:
        table = run_table(listing.lines, report_width(console), now, ascii_only=ascii_only)
        print_lines(table, console)
    else:
        click.echo(_nothing_found(searched))
    if listing.before:
        console.print(f"There are more: --limit {2 * limit}", highlight=False)
    if counted and not counted.all_stored:
        line = counted_line(counted, now, until=searched["until"], ascii_only=ascii_only)
        console.print(line, highlight=False)


def _nothing_found(searched: dict[str, Any]) -> str:
    """Why the list is empty; a finding that this version does not know may be misspelled."""
    finding = searched["finding"]
    if finding is not None:
        from pipelined.analysis.findings import RULES

        known = [rule.id for rule in RULES]
        if finding not in known:
            hint = nearest(finding, known, f"see {DOCUMENTATION}")
            return f"no finished run matches; no finding has the id {finding!r}: {hint}"
    return "no finished run matches" if any(searched.values()) else "no run yet"


def _counted(history: Recorded, searched: dict[str, Any]) -> CountedRuns | None:
    """How many runs there were; None if they cannot be searched by what is given.

    Of a run that is not stored the commands and findings are not known, nor how long it took, its
    outcome, and what identifies it.
    """
    if any(searched[name] for name in _OF_STORED_RUNS):
        return None
    known = {name: searched[name] for name in ("pipeline", "unit", "since", "until")}
    return history.counted(**known)


def as_moment(flag: str, text: str | None) -> float | None:
    """Unix time of what the option `flag` was given. Raises click.UsageError."""
    from pipelined.history.moments import moment

    try:
        return None if text is None else moment(text)
    except ValueError as error:
        raise click.UsageError(f"{flag}: {error}") from None


def as_duration(flag: str, text: str | None) -> float | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise click.UsageError(f"{flag}: {text!r} is not {error}") from None


def open_history(
    state_directory: Path | None, url: str | None = None, http_config: Path | None = None
) -> Recorded:
    """The history that the daemon keeps in this directory, for reading.

    With `url` the daemon is asked for it, unless `state_directory` is given and `url` is only from
    the environment; so is the daemon of this host if this user may not read
    the file in the service's directory. Raises UserError.
    """
    from pipelined.history.history import History
    from pipelined.terminal.daemon_history import DaemonHistory

    if state_directory is not None:
        if was_given("url"):
            raise click.UsageError("--url and --state-directory exclude each other")
        url = None

    def ask_daemon() -> Recorded:
        recorded = DaemonHistory(open_client(url, http_config))
        recorded.check()
        return recorded

    if url is not None:
        return ask_daemon()
    directory = state_directory or service_directory(os.environ)
    history = History(directory, host=_host_beside(directory))
    try:
        history.check()
    except NotPermittedError as refused:
        if directory != service_directory({}):
            raise
        return or_daemon(refused, ask_daemon)
    return history


def _host_beside(directory: Path) -> Host:
    """This machine, with the figures that the daemon keeps beside its history."""
    from pipelined.run.host_costs import kept_by_users, this_host

    return this_host((directory, *kept_by_users(os.environ)))


@click.command(
    epilog="""\b
Examples:
  sudo pipelined show
  sudo pipelined show 1763736801204
  sudo pipelined show last --json > run.json""",
)
@click.option("--json", "as_json", is_flag=True, help="Report as JSON, for machines.")
@state_directory_option
@daemon_options("if the history's file is not readable for you")
@color_option
@click.argument("run", type=searched_text, default="last")
def show(
    run: str,
    as_json: bool,
    state_directory: Path | None,
    url: str | None,
    http_config: Path | None,
    color: str,
) -> None:
    """Show the report of a recorded run.

    RUN is an id that pipelined runs lists, or a beginning that only this id has. The default is
    last, the run that ended last: your own if a daemon of this host is asked, unless you are root.
    """
    found = open_history(state_directory, url, http_config).run(run)
    host = found.host or _host_beside(state_directory or service_directory(os.environ))
    if as_json:
        from pipelined.answers.described import describe_stored_run

        # Arguments that may not be shown are not recorded.
        recorded = any(stage.arguments is not None for stage in found.run.stages)
        described = describe_stored_run(found.run, host, found.timeline, recorded, found.compared)
        click.echo(json.dumps(described, indent=2))
        return
    from pipelined.analysis.findings import findings
    from pipelined.analysis.rewriting import Script
    from pipelined.terminal.drawing import is_ascii, print_lines, report_width
    from pipelined.terminal.history_report import time_lines, usual_words
    from pipelined.terminal.run_report import render

    console = open_console(sys.stdout, color)
    script = Script.of_arguments(found.run)
    render(found.run, console, None, host=host, script=script, usual=usual_words(found))
    drawn = time_lines(
        found.run,
        found.timeline,
        report_width(console),
        findings(found.run, host, script),
        ascii_only=is_ascii(console),
    )
    print_lines([*([""] if drawn else []), *drawn], console)
