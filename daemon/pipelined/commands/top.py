# SPDX-License-Identifier: Apache-2.0
"""`pipelined top`: the pipelines that run now, as a daemon reports them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pipelined.commands.daemon_client import daemon_address_options, open_client
from pipelined.commands.report_output import color_option, open_console

__all__ = ["top"]


@click.command(
    epilog="""\b
Examples:
  pipelined top
  pipelined top --url http://host1:9905 --interval 5
  pipelined top --url https://host1:9905 --http.config.file client.yml
  pipelined top --once

Needs no root, but a running daemon: sudo pipelined serve. q or Ctrl-C quits.""",
)
@daemon_address_options
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Time between refreshes.",
)
@click.option("--once", is_flag=True, help="Print the state once, as plain text, and exit.")
@color_option
def top(url: str, http_config: Path | None, interval: float, once: bool, color: str) -> None:
    """Show the pipelines that run now, refreshed in place."""
    from pipelined.terminal.top import run_top

    client = open_client(url, http_config)
    run_top(
        client.runs,
        open_console(sys.stdout, color),
        interval,
        once or not sys.stdout.isatty(),
        host=None if client.is_near else client.host,
    )
