# SPDX-License-Identifier: Apache-2.0
"""`pipelined export`: send finished runs to an OpenTelemetry back end, until it is stopped."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pipelined.commands.daemon_client import daemon_address_options, open_client
from pipelined.commands.recorded_runs import as_duration
from pipelined.commands.searched_text import searched_text
from pipelined.commands.standard_error import log_to_stderr
from pipelined.config.state_directory import default_directory
from pipelined.config.values import address
from pipelined.export import not_installed
from pipelined.http_port.exposure import is_exposed, unauthenticated
from pipelined.http_port.listening import resolved

if TYPE_CHECKING:
    from pipelined.terminal.followed_runs import Followed

__all__ = ["export"]

DEFAULT_DIRECTORY = Path("/var/lib/pipelined-export")
DEFAULT_ADDRESS = "127.0.0.1:9906"
#: How long a stop waits for an answer (seconds): Docker kills after ten. A request to a host that
#: does not answer may take several times as long, for each of its addresses.
_PATIENCE = 9.0

log = logging.getLogger(__name__)


class _Stopped(BaseException):
    """SIGTERM has arrived: no library takes it for an error of its own."""


class _Stop:
    """What SIGTERM does: it raises `_Stopped`, at once or at the end of `held`."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._held = self._came = False
        signal.signal(signal.SIGTERM, self._on_signal)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """SIGTERM waits, but not for ever, unless what is done meanwhile fails."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._came:
            self._stop()

    def _on_signal(self, *_: object) -> None:
        # a mask would not do: a thread of the port would take the signal, and this runs here
        self._came = True
        if not self._held:
            self._stop()
        signal.signal(signal.SIGALRM, self._stop)
        signal.setitimer(signal.ITIMER_REAL, self._patience)

    def _stop(self, *_: object) -> NoReturn:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _Stopped


@click.command(
    epilog="""\b
Examples:
  OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 pipelined export
  pipelined export --min-duration 1s --unit nightly.job --unit etl.job
  pipelined export --failed --after now

Needs no root, but a running daemon. Where to send to, and how, is in the variables that
OpenTelemetry specifies: OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, _CERTIFICATE, _COMPRESSION and
_TIMEOUT, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME.""",
)
@daemon_address_options
@click.option(
    "--state-directory",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path),
    help="Where the place in the order of the runs is kept. [default: $STATE_DIRECTORY, else"
    f" {DEFAULT_DIRECTORY}]",
)
@click.option(
    "--after",
    metavar="CURSOR",
    default="oldest",
    show_default=True,
    help="Where to begin if no place is kept: oldest, now, or a cursor.",
)
@click.option(
    "--min-duration", metavar="DURATION", help="Only runs that took at least this long, such as 1s."
)
@click.option("--failed", is_flag=True, help="Only runs that have failed.")
@click.option(
    "--unit",
    "units",
    metavar="UNIT",
    type=searched_text,
    multiple=True,
    help="Only runs of this unit; can be repeated.",
)
@click.option(
    "--web.listen-address",
    "listen_address",
    metavar="HOST:PORT",
    default=DEFAULT_ADDRESS,
    show_default=True,
    help="Address of the sender's own /metrics.",
)
@click.option(
    "--web.allow-unauthenticated",
    "allow_unauthenticated",
    is_flag=True,
    help="Listen there also if other hosts can reach it; this port has no password.",
)
@click.option(
    "--log.level",
    "log_level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Log lines of this level and above.",
)
def export(
    url: str,
    http_config: Path | None,
    state_directory: Path | None,
    after: str,
    min_duration: str | None,
    failed: bool,
    units: tuple[str, ...],
    listen_address: str,
    allow_unauthenticated: bool,
    log_level: str,
) -> int:
    """Send finished runs to an OpenTelemetry back end.

    Sends each run that the daemon has stored, with its stages, as spans: OTLP over HTTP. Goes on
    where it left off, and tries again until the back end has taken them.
    """
    from pipelined.history.following import as_cursor

    try:
        after = as_cursor(after)
    except ValueError as error:
        raise click.UsageError(f"--after: {error}") from None
    try:
        listens_at = address(listen_address)
    except ValueError as error:
        raise click.UsageError(f"--web.listen-address must be {error}") from None
    listens_at = resolved(listens_at)
    if is_exposed(listens_at) and not allow_unauthenticated:
        raise unauthenticated(listens_at, "how many runs are sent", "give ")
    shortest = as_duration("--min-duration", min_duration)
    log_to_stderr(log_level)
    client = open_client(url, http_config)
    try:
        from pipelined.export.back_end import BackEnd, endpoint
        from pipelined.export.place import open_place
        from pipelined.export.sender import Sender
        from pipelined.export.statistics import Statistics, served
    except ImportError as error:
        raise not_installed(error) from None
    from pipelined.terminal.followed_runs import fetch_finished

    chosen = partial(_is_chosen, units=units, min_duration=shortest, failed=failed)
    directory = state_directory or default_directory(os.environ, DEFAULT_DIRECTORY)
    back_end, statistics = BackEnd(), Statistics()
    stop = _Stop()
    try:
        with open_place(directory, as_cursor) as place, served(statistics, listens_at) as port:
            sender = Sender(
                partial(fetch_finished, client),
                *(back_end, place, statistics),
                chosen=chosen,
                sleep=time.sleep,
                clock=time.monotonic,
                unstopped=stop.held,
            )
            begin = place.read() or after
            where = f"http://{listens_at.host or '127.0.0.1'}:{port}/metrics"
            log.info("sends the runs of %s to %s; its metrics: %s", client.base, endpoint(), where)
            sender.follow(begin)
    except _Stopped:
        log.info("SIGTERM: stopping")
    return 0


def _is_chosen(run: Followed, units: tuple[str, ...], **searched: Any) -> bool:
    from pipelined.terminal.followed_runs import matches

    return any(matches(run, unit=unit, **searched) for unit in units or (None,))
