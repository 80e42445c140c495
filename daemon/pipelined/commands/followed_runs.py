# SPDX-License-Identifier: Apache-2.0
"""`pipelined runs --follow`: finished runs as a daemon stores them, until Ctrl-C."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from pipelined.commands.daemon_client import open_client, was_given
from pipelined.commands.report_output import open_console
from pipelined.commands.standard_error import complain

__all__ = ["follow_runs", "refuse_with_follow"]

#: A run is compared with this number of runs that were shown last, itself included.
_COMPARED = 1000


def refuse_with_follow(*names: str) -> None:
    """Raise UsageError for the first of these options that was given: they are for a list."""
    for name in names:
        if was_given(name):
            raise click.UsageError(f"--follow and --{name.replace('_', '-')} exclude each other")


def follow_runs(
    after: str | None,
    url: str | None,
    http_config: Path | None,
    color: str,
    *,
    as_json: bool,
    **searched: Any,
) -> None:
    """Print each run that is stored after the cursor and matches: a line of a table, or of JSON.

    Raises UserError if the daemon does not answer at first.
    """
    from pipelined.analysis.identity_words import distinctions
    from pipelined.history.following import NOW, as_cursor
    from pipelined.nesting import Line
    from pipelined.terminal.drawing import is_ascii, print_lines, report_width
    from pipelined.terminal.followed_runs import fetch_finished, follow, matches
    from pipelined.terminal.history_report import followed_table

    try:
        after = as_cursor(after or NOW)
    except ValueError as error:
        raise click.UsageError(f"--after: {error}") from None
    fetch = partial(fetch_finished, open_client(url, http_config))
    console, heading = open_console(sys.stdout, color), ""
    identities: dict[str, Mapping[str, str]] = {}
    for page in follow(fetch, after, lambda line: complain(line, 0)):
        found = [run for run in page if matches(run, **searched)]
        if as_json:
            for run in found:
                click.echo(json.dumps(run.described))
        elif found:
            lines = [Line(run.row) for run in found]
            width, ascii_only = report_width(console), is_ascii(console)
            identities |= {line.run.id: line.run.identity for line in lines}
            for shown_longest_ago in list(identities)[:-_COMPARED]:
                del identities[shown_longest_ago]
            distinct = distinctions(identities)
            table = followed_table(lines, width, time.time(), distinct, ascii_only=ascii_only)
            print_lines(table[1:] if table[0].plain == heading else table, console)
            heading = table[0].plain
            sys.stdout.flush()
