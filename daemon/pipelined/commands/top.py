# SPDX-License-Identifier: Apache-2.0
"""`pipelined top`: the pipelines that run now, as a daemon reports them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pipelined.commands.report_output import color_option, open_console

__all__ = ["top"]

DEFAULT_URL = "http://127.0.0.1:9905"


@click.command(
    epilog="""\b
Examples:
  pipelined top
  pipelined top --url http://host1:9905 --interval 5
  pipelined top --url https://host1:9905 --http.config.file client.yml
  pipelined top --once

Needs no root, but a running daemon: sudo pipelined serve. q or Ctrl-C quits.""",
)
@click.option(
    "--url", metavar="URL", default=DEFAULT_URL, show_default=True, help="Address of the daemon."
)
@click.option(
    "--http.config.file",
    "http_config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Password, CA and client certificate, in the format of promtool's option of that name.",
)
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
    from pipelined.terminal.api_client import Client, HttpConfig
    from pipelined.terminal.top import run_top

    client = Client(_base_url(url), HttpConfig.read(http_config) if http_config else HttpConfig())
    run_top(
        client.runs,
        open_console(sys.stdout, color),
        interval,
        once or not sys.stdout.isatty(),
        host=None if client.is_near else client.host,
    )


def _base_url(url: str) -> str:
    """`url` without a path; `host:port` is enough."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        valid = None
    if not valid or parts.path.strip("/") or parts.query:
        raise click.UsageError(f"--url must be like {DEFAULT_URL}, not {url}")
    return f"{parts.scheme}://{parts.netloc}"
