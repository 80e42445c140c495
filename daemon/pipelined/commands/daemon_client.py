# SPDX-License-Identifier: Apache-2.0
"""Which daemon a command asks, and when: --url, --http.config.file, their variables, and what root
does by itself.

A command that needs root does without it if a daemon runs on this host: the daemon has the
privileges, and shows each user no more than its port shows anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from pipelined.errors import NO_PROGRAMS, ConfigurationError, NotPermittedError, UserError

if TYPE_CHECKING:
    from rich.console import Console

    from pipelined.run.profile import Observing
    from pipelined.terminal.api_client import Client

__all__ = [
    "DEFAULT_URL",
    "daemon_address_options",
    "daemon_options",
    "name_daemon",
    "observer_opener",
    "of_same_version",
    "open_client",
    "or_daemon",
    "was_given",
]

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:9905"
URL_VARIABLE = "PIPELINED_URL"
#: What an administrator would do.
SERVICE = "have the administrator install the service, which measures for every user"

_http_config_option = click.option(
    "--http.config.file",
    "http_config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar="PIPELINED_HTTP_CONFIG_FILE",
    show_envvar=True,
    help="Password, CA and client certificate, in the format of promtool's option of that name.",
)


def _url_option(text: str, **given: Any) -> Callable[[Any], Any]:
    option = partial(click.option, "--url", metavar="URL", envvar=URL_VARIABLE, show_envvar=True)
    return option(help=text, **given)


def daemon_address_options(command: Any) -> Any:
    """--url and --http.config.file of a command that always asks a daemon."""
    url = _url_option("Address of the daemon.", default=DEFAULT_URL, show_default=True)
    return url(_http_config_option(command))


def daemon_options(when: str) -> Callable[[Any], Any]:
    """--url and --http.config.file of a command that asks a daemon `when` it has to."""
    url = _url_option(f"Ask the daemon at this address. [default: {DEFAULT_URL}, {when}]")
    return lambda command: url(_http_config_option(command))


def was_given(name: str) -> bool:
    """Whether the option of this parameter was given on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def open_client(url: str | None, http_config: Path | None) -> Client:
    """The client of the daemon at this address; `host:port` is enough."""
    from pipelined.terminal.api_client import Client, HttpConfig

    config = HttpConfig.read(http_config) if http_config else HttpConfig()
    return Client(_base_url(url or DEFAULT_URL), config)


def _url_name() -> str:
    """Where the address comes from."""
    return "--url" if was_given("url") else URL_VARIABLE


def _base_url(url: str) -> str:
    """`url` without a path; one with a password is not even shown."""
    if "@" in url:
        where = "they belong in --http.config.file"
        raise click.UsageError(f"{_url_name()} must have no user or password: {where}")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        valid = None
    if not valid or parts.path.strip("/") or parts.query:
        raise click.UsageError(f"{_url_name()} must be like {DEFAULT_URL}, not {url}")
    return f"{parts.scheme}://{parts.netloc}"


def observer_opener(
    url: str | None, http_config: Path | None, *, lanes: bool = False
) -> Callable[[], Observing]:
    """What opens the observer of `run` and `compare`; `lanes` as for `open_private`.

    It is a private one, or that of the daemon if --url is on the command line or the kernel refuses
    BPF. The variable only says where the daemon is: who measures does not change by it.
    """

    def ask_daemon() -> Observing:
        from pipelined.run.daemon_observer import DaemonObserver

        client = open_client(url, http_config)
        return of_same_version(client, lambda: DaemonObserver(client.get, client.base))

    def open_observer() -> Observing:
        from pipelined.run.profile import open_private

        try:
            return open_private(lanes=lanes)
        except NotPermittedError as refused:
            return or_daemon(refused, ask_daemon)

    return ask_daemon if was_given("url") else open_observer


def of_same_version(client: Client, ask: Callable[[], T]) -> T:
    """What `ask` gets. A daemon that does not know the path is of an older version."""
    from pipelined.terminal.api_client import ApiError

    try:
        return ask()
    except ApiError as error:
        if error.status != 404:
            raise
        raise UserError(
            f"the daemon at {client.base} is of an older version",
            "use the same version on both sides",
        ) from None


def or_daemon(refused: NotPermittedError, ask_daemon: Callable[[], T]) -> T:
    """What the daemon does in place of what this user may not do.

    If it cannot either, the error names both reasons.
    """
    from pipelined.terminal.api_client import NoDaemonError

    try:
        return ask_daemon()
    except ConfigurationError:
        raise
    except UserError as error:
        no_daemon = isinstance(error, NoDaemonError)
        hint = f"run it as root, or {SERVICE}" if no_daemon else error.hint
        raise NotPermittedError(f"{refused.message}, and {error.message}", hint) from None


def name_daemon(daemon: str | None, console: Console) -> None:
    """Print whose figures a report has, if they are a daemon's."""
    from rich.text import Text

    if daemon is not None:
        reason = "" if was_given("url") else f": {NO_PROGRAMS}"
        # not as markup: an IPv6 address is in brackets
        console.print(Text(f"Measured by the daemon at {daemon}{reason}", "dim"))
