# SPDX-License-Identifier: Apache-2.0
"""`pipelined doctor`: whether this host can be watched."""

from __future__ import annotations

import functools
import sys

import click

from pipelined.commands import standard_error
from pipelined.commands.report_output import color_option, open_console

__all__ = ["doctor"]


@click.command(
    epilog="""\b
Examples:
  sudo pipelined doctor
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
@color_option
def doctor(loader: str, color: str) -> int:
    """Check whether this host can be watched, and say what to fix.

    Attaches every hook once and detaches it. Exit code 0 only if the daemon would work.
    """
    from pipelined.doctor import checks, exit_code, render
    from pipelined.kernel.loader import default_object, probe_hooks

    standard_error.log_to_stderr("critical")
    found = checks(
        bpf_object=default_object(),
        loader=loader,
        probe_hooks=functools.partial(probe_hooks, loader),
    )
    render(found, open_console(sys.stdout, color))
    return exit_code(found)
