# SPDX-License-Identifier: Apache-2.0
"""`pipelined serve`: its flags are the daemon's options (`config.OPTIONS`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from pipelined.commands import standard_error
from pipelined.config import OPTIONS, Config, Option, merge
from pipelined.daemon.systemd import Supervisor
from pipelined.errors import UserError

__all__ = ["serve"]


class TakesDaemonOptions(click.Command):
    """The command whose flags are the daemon's options (`config.OPTIONS`)."""

    _made: list[click.Parameter] | None = None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if self._made is None:
            self._made = [_flag(option) for option in OPTIONS]
        inherited = super().get_params(ctx)
        # `--config` and `--check-config` first, `--help` last.
        return [*inherited[:-1], *self._made, *inherited[-1:]]


def _flag(option: Option) -> click.Option:
    """An option as a flag. If it is not given its value is None, so that the file can set it."""
    default = f" [default: {option.default}]" if option.default else ""
    described = option.help + default
    if option.is_switch:
        return click.Option(
            [f"{option.flag}/--no-{option.name}", option.field], default=None, help=described
        )
    kind: click.ParamType[Any] = (
        click.Path() if option.metavar in ("FILE", "DIRECTORY") else click.STRING
    )
    return click.Option(
        [option.flag, option.field], type=kind, metavar=option.metavar, help=described
    )


@click.command(
    cls=TakesDaemonOptions,
    epilog="""\b
Examples:
  sudo pipelined serve
  sudo pipelined serve --web.listen-address :9905 --web.config.file /etc/pipelined/web.yml
  sudo pipelined serve --config /etc/pipelined.toml --log.level debug
  pipelined serve --config /etc/pipelined.toml --check-config

\b
The file has the same options as the flags; flags win:
  max-stages = 200
  [web]
  listen-address = "[::1]:9905"

SIGTERM and Ctrl-C detach everything within a second. SIGHUP reads the web config again.""",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(),
    metavar="FILE",
    help="TOML file with these options.",
)
@click.option(
    "--check-config",
    is_flag=True,
    help="Only check the flags, this file and that of --web.config.file; start nothing.",
)
def serve(config_file: str | None, check_config: bool, **flags: object) -> int:
    """Watch every pipeline; serve metrics and a page.

    Reports all pipelines of this host as Prometheus metrics, as JSON and as a web page.
    Runs in the foreground until it is stopped, and logs to stderr.
    """
    config = _read(Path(config_file)) if config_file is not None else Config()
    try:
        config = merge(config, **flags)
    except UserError as error:
        raise click.UsageError(str(error)) from None
    if check_config:
        return _check(config_file, config)
    standard_error.log_to_stderr(config.log_level)
    from pipelined.daemon.capabilities import drop
    from pipelined.daemon.serve import serve as run_daemon

    run_daemon(config, sys.stdout, give_up=drop, supervisor=Supervisor.take(os.environ))
    return 0


def _check(config_file: str | None, config: Config) -> int:
    """Name the files of `config`, which has been read; the web config is read as the daemon does.

    Raises UserError for the first mistake.
    """
    if config_file is None and config.web_config_file is None:
        raise click.UsageError("--check-config checks files: give --config or --web.config.file")
    from pipelined.http_port.exposure import protected_port

    standard_error.log_to_stderr(config.log_level)  # a certificate that has expired
    protected_port(config)
    for file in (config_file, config.web_config_file):
        if file is not None:
            click.echo(f"{file}: ok")
    return 0


def _read(path: Path) -> Config:
    from pipelined.config.toml_file import load  # with the parser of TOML, 0.2 MB of the daemon

    return load(path)
