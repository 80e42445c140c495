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
    from pipelined.config import Address
    from pipelined.doctor import HooksOfDaemon, Reply

__all__ = ["doctor"]

#: By which address of this host a daemon is asked that listens on all of them.
_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1"}
#: How long whoever listens on the port may take to answer (seconds).
_PATIENCE = 5.0


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
        ask_port=_ask_port,
    )
    render(found, open_console(sys.stdout, color))
    return exit_code(found)


def _ask_port(address: Address) -> Reply:
    """Whether a daemon answers there. It is sent no password: it may be any program."""
    from pipelined.doctor import Reply
    from pipelined.errors import UserError
    from pipelined.terminal.api_client import NoDaemonError, SilentDaemonError

    local = _LOCAL.get(address.host, address.host)
    try:
        # of any version
        open_client(f"http://{address._replace(host=local)}", None).get(
            "hooks", lambda answer: answer["hooks"], _PATIENCE
        )
    except UserError as error:
        silent = isinstance(error, NoDaemonError | SilentDaemonError)
        return Reply(is_daemon=False, is_silent=silent, refusal=error.message)
    return Reply(is_daemon=True)


def _ask_daemon(url: str | None, http_config: Path | None) -> HooksOfDaemon:
    from pipelined.answers.hooks import Hooks
    from pipelined.doctor import HooksOfDaemon
    from pipelined.runs.codec import read

    client = open_client(url, http_config)
    hooks = of_same_version(client, lambda: client.get("hooks", functools.partial(read, Hooks)))
    return HooksOfDaemon(client.base, hooks.hooks)
