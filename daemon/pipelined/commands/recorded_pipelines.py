# SPDX-License-Identifier: Apache-2.0
"""`pipelined pipelines`: what each pipeline cost over a time."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelined.commands.daemon_client import daemon_options
from pipelined.commands.recorded_runs import as_moment, open_history, state_directory_option
from pipelined.commands.report_output import color_option, open_console
from pipelined.commands.searched_text import searched_text
from pipelined.history.pipeline_query import DEFAULT_SINCE, GROUPS, JOB_SORTS, SORTS

if TYPE_CHECKING:
    from rich.console import Console

    from pipelined.history.jobs import JobsSummary
    from pipelined.history.pipelines import PipelinesSummary

__all__ = ["list_pipelines"]


@click.command(
    "pipelines",
    epilog="""\b
Examples:
  sudo pipelined pipelines
  sudo pipelined pipelines --since 30d --sort not-overlapped
  sudo pipelined pipelines --sort failures
  sudo pipelined pipelines --by job --sort cpu
  sudo pipelined pipelines nightly --sort slower --json

Reads the history directly: the daemon need not run. If you may not read it, the daemon is asked.
Every run is counted, also one that is not
stored. The hours in which --since and --until lie are counted whole. A nested pipeline is below
the one that encloses it; its time is also in that one's.""",
)
@click.argument("search", type=searched_text, required=False)
@click.option(
    "--pipeline",
    metavar="SIGNATURE",
    type=searched_text,
    help="Only the pipelines with this signature.",
)
@click.option(
    "--unit",
    metavar="UNIT",
    type=searched_text,
    help="Only those of this job, container, systemd unit or cgroup.",
)
@click.option(
    "--since",
    metavar="WHEN",
    default=DEFAULT_SINCE,
    show_default=True,
    help="Runs that ended then or later: 2h (ago), 2026-11-21, '2026-11-21 03:00'.",
)
@click.option("--until", metavar="WHEN", help="Runs that ended before.")
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default=SORTS[0],
    show_default=True,
    help="By total wall or CPU time, by wall time with at most one stage on CPU, by number of runs,"
    " by how many times as long as usual the last run took, or by number of failed runs.",
)
@click.option(
    "--by",
    type=click.Choice(GROUPS),
    default=GROUPS[0],
    show_default=True,
    help="A line for each pipeline, or for each job: its pipelines added up.",
)
@click.option(
    "--limit",
    metavar="COUNT",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="Show at most this many lines.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for machines.")
@state_directory_option
@daemon_options("if the history's file is not readable for you")
@color_option
def list_pipelines(
    search: str | None,
    pipeline: str | None,
    unit: str | None,
    since: str,
    until: str | None,
    sort: str,
    by: str,
    limit: int,
    as_json: bool,
    state_directory: Path | None,
    url: str | None,
    http_config: Path | None,
    color: str,
) -> None:
    """List pipelines with what their runs cost, how long they take and what holds them back.

    SEARCH is a part of the signature or of the unit.
    """
    if by == "job" and sort not in JOB_SORTS:
        raise click.UsageError(f"--by job does not go with --sort {sort}: a job has no usual")
    history = open_history(state_directory, url, http_config)
    asked: dict[str, Any] = {
        "pipeline": pipeline,
        "unit": unit,
        "search": search,
        "since": as_moment("--since", since),
        "until": as_moment("--until", until),
        "sort": sort,
        "limit": limit,
    }
    found = history.jobs(**asked) if by == "job" else history.pipelines(**asked)
    if as_json:
        from pipelined.runs.codec import written

        click.echo(json.dumps(written(found), indent=2))
        return
    if not found.listed:
        click.echo("no pipeline matches" if search or pipeline or unit else "no run in this time")
        return
    _print(found, open_console(sys.stdout, color), limit)


def _print(found: JobsSummary | PipelinesSummary, console: Console, limit: int) -> None:
    from pipelined.history.jobs import JobsSummary
    from pipelined.terminal.drawing import is_ascii, print_lines, report_width
    from pipelined.terminal.jobs_report import jobs_lines
    from pipelined.terminal.pipelines_report import pipelines_lines

    width, now, ascii_only = report_width(console), time.time(), is_ascii(console)
    if isinstance(found, JobsSummary):
        print_lines(jobs_lines(found, width, now, ascii_only=ascii_only), console)
        more, hint = "There are more" if found.more else "", f"--limit {2 * limit}"
    else:
        print_lines(pipelines_lines(found, width, now, ascii_only=ascii_only), console)
        hidden = found.matching > len(found.listed)
        more, hint = f"There are {found.matching:,}" if hidden else "", f"--limit {found.matching}"
    if more:
        if len(found.listed) < limit:
            hint = f"a daemon lists {len(found.listed):,} at most; root can read its history"
        console.print(f"{more}: {hint}", highlight=False)
