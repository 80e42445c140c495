# SPDX-License-Identifier: Apache-2.0
"""`pipelined doctor`: whether this host can be watched."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelined.commands import standard_error
from pipelined.commands.daemon_client import (
    daemon_options,
    of_same_version,
    open_client,
    was_given,
)
from pipelined.commands.report_output import color_option, open_console

if TYPE_CHECKING:
    from pipelined.doctor import HooksOfDaemon

__all__ = ["doctor"]


@click.command(
    epilog="""\b
Examples:
  sudo pipelined doctor
  pipelined doctor
  sudo pipelined doctor --loader bcc
  sudo pipelined doctor && sudo pipelined serve""",
)
@click.option(
    "--loader",
    type=click.Choice(["auto", "libbpf", "bcc"]),
    default="auto",
    show_default=True,
    help="Which loader to try, as with serve --loader.",
)
@daemon_options("without root")
@color_option
def doctor(loader: str, url: str | None, http_config: Path | None, color: str) -> int:
    """Check whether this host can be watched, and say what to fix.

    Attaches every hook once and detaches it. Without root, it asks the daemon which of its hooks
    are off. Exit code 0 only if a daemon that this user starts would work.
    """
    from pipelined.doctor import checks, exit_code, render
    from pipelined.kernel.loader import default_object, probe_hooks

    standard_error.log_to_stderr("critical")
    found = checks(
        bpf_object=default_object(),
        loader=loader,
        probe_hooks=functools.partial(probe_hooks, loader),
        ask_daemon=functools.partial(_ask_daemon, url, http_config),
        always_ask=was_given("url"),
    )
    render(found, open_console(sys.stdout, color))
    return exit_code(found)


def _ask_daemon(url: str | None, http_config: Path | None) -> HooksOfDaemon:
    from pipelined.answers.hooks import Hooks
    from pipelined.doctor import HooksOfDaemon
    from pipelined.runs.codec import read

    client = open_client(url, http_config)
    hooks = of_same_version(client, lambda: client.get("hooks", functools.partial(read, Hooks)))
    return HooksOfDaemon(client.base, hooks.hooks)
