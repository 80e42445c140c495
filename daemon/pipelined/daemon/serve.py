# SPDX-License-Identifier: Apache-2.0
"""`pipelined serve`: the daemon in the foreground, from the first hook to a clean stop.

The port is bound before a hook is attached: if it is taken, nothing else happens. Until the hooks
are attached, every path but /healthz is answered with 503. Only the thread that attaches the hooks
has capabilities, and only until that is done. SIGHUP reads the web config again; systemd gets the
state of the daemon.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pipelined.analysis.machine import Host
from pipelined.config import Address, Config
from pipelined.config.state_directory import default_directory
from pipelined.daemon.announcement import announce, announcement, hidden_arguments, status
from pipelined.daemon.capabilities import started_without
from pipelined.daemon.late_hooks import attached_later
from pipelined.daemon.signals import handled_signals, wait_for_stop
from pipelined.daemon.systemd import Supervisor
from pipelined.errors import UserError
from pipelined.http_port.exposure import protected_port
from pipelined.http_port.host_names import HostNames, own_names
from pipelined.http_port.listening import listen
from pipelined.malloc import hold_little
from pipelined.observer import Observer
from pipelined.sinks import Sink, Sinks

if TYPE_CHECKING:
    from pipelined.history.history import History
    from pipelined.http_port.messages import WsgiApp
    from pipelined.http_port.server import HttpServer
    from pipelined.http_port.web_config_file import WebConfigFile
    from pipelined.model.views import Totals
    from pipelined.web.front import Front
    from pipelined.web.probes import Probes

__all__ = ["serve"]

#: Requests that are answered at once, besides the live page's streams and those that wait.
_THREADS = 8

log = logging.getLogger(__name__)


def serve(
    config: Config,
    out: IO[str],
    *,
    open_observer: Callable[[Config], Observer] | None = None,
    give_up: Callable[[], object] = lambda: None,
    supervisor: Supervisor | None = None,
) -> None:
    """Observe and serve until SIGTERM or SIGINT; then detach everything and return.

    `out` gets what was attached and where to look. `give_up` is called in each thread that must
    go on without privileges: in the calling one once the hooks are attached. `supervisor` gets the
    state. Raises UserError if it cannot listen or attach the hooks; nothing is left attached then.
    """
    hold_little()
    supervisor = supervisor or Supervisor()
    if supervisor.watchdog is not None:
        faulthandler.enable()  # if we hang, SIGABRT prints the stacks
    address, web_config = protected_port(config)
    listener = listen(address.host, address.port)
    sinks = Sinks()
    # Left from the last to the first: when every hook is detached, the sinks get what is left.
    with handled_signals() as signals, closing(sinks), ExitStack() as serving:
        with ExitStack() as observing:
            start = partial(_serve, serving, listener, web_config, config)
            served = started_without(start, give_up)
            try:
                open_observer = open_observer or partial(_open_observer, sinks)
                observer = observing.enter_context(open_observer(config))
            finally:
                front, server, host = served()
            attach_later = observing.enter_context(attached_later(observer, out, supervisor))
            give_up()
            _warn(hidden_arguments() if config.show_arguments else None)
            observer.start()
            history = _open_history(config, host, observer) if config.history else None
            _keep_costs(config, host)
            probes = _probes(observer, history, sinks, web_config)
            front.pass_on_to(probes, partial(_application, config, host, observer, history, probes))
            # what exists now stays; records come and go without cycles, requests leave some
            gc.freeze()
            gc.set_threshold(2_000)
            _announce(out, observer, server, by_hand=supervisor.address is None)
            sinks.start(_sinks(history))
            supervisor.ready(status(observer))
            attach_later()
            wait_for_stop(signals, observer, supervisor, web_config)
            supervisor.stopping()
            if history:
                history.stop_waiting()
            # No request may see an observer that is closed.
            server.stop()
            if config.history:  # runs that have ended by now go into it
                observer.settle()
        log.info("every hook is detached")


def _warn(message: str | None) -> None:
    if message is not None:
        log.warning("%s", message)


def _serve(
    serving: ExitStack,
    listener: socket.socket,
    web_config: WebConfigFile | None,
    config: Config,
) -> tuple[Front, HttpServer, Host]:
    """Serve `listener` until `serving` ends; and what the host is like.

    In a thread of its own, which imports what that takes, for 0.1 s of a CPU: as long as the kernel
    verifies programs, the one that called needs no Python. The first time on a kernel, programs
    are started to measure that host: they need no capability either.
    """
    if config.history:
        import pipelined.history.history  # noqa: F401 - for `_open_history`
    from pipelined.http_port.server import HttpServer
    from pipelined.run.host_costs import this_host
    from pipelined.web.front import MAX_STREAMS, MAX_WAITING, Front
    from pipelined.web.probes import PATHS

    front = Front()
    address = config.web_listen_address
    server = HttpServer(
        front,
        address.host,
        address.port,
        web_config,
        threads=_THREADS + MAX_STREAMS + MAX_WAITING,
        urgent=PATHS,
        listener=listener,
        names=HostNames({*own_names(), address.host, *config.web_allowed_hosts}),
    )
    return front, serving.enter_context(server), this_host(_kept_in(config))


def _open_observer(sinks: Sinks, config: Config) -> Observer:
    """The observer, with the hooks of the `sched` tier that it cannot do without."""
    return Observer.open(
        config,
        wait=False,
        on_finished=sinks.hand_out,
        is_stored=partial(_is_stored, config),
        series_of=_series_of,
        state=_state_directory(config),
    )


def _series_of(totals: Totals) -> int:
    from pipelined.web.pipeline_metrics import series_count  # as `_serve` has it

    return series_count(totals)


def _is_stored(config: Config, run_id: str) -> bool:
    """Whether the history has the run, as far as it can be read."""
    from pipelined.history.archive import Archive  # as `_serve` has it

    if not config.history:
        return False
    try:
        return Archive(_history_directory(config)).row(run_id) is not None
    except UserError:
        return False


def _state_directory(config: Config) -> Path | None:
    """Where what lives is saved; None: nowhere. Without a history systemd must give a directory."""
    if config.history or "STATE_DIRECTORY" in os.environ:
        return _history_directory(config)
    return None


def _history_directory(config: Config) -> Path:
    return config.state_directory or default_directory(os.environ)


def _kept_in(config: Config) -> tuple[Path, ...]:
    """Where it is kept what this host takes to start programs; empty: nowhere."""
    directory = _state_directory(config)
    return () if directory is None else (directory,)


def _keep_costs(config: Config, host: Host) -> None:
    """In the directory of the history, which may be made only now, on the first start."""
    from pipelined.run.host_costs import keep

    for directory in _kept_in(config):
        with suppress(OSError):  # the history says it
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        keep(host, directory)


def _open_history(config: Config, host: Host, observer: Observer) -> History:
    """The history; how each run compares with what is usual goes into the metrics of `observer`."""
    from pipelined.history.history import History  # as `_serve` has it

    return History(
        _history_directory(config),
        host=host,
        show_arguments=config.show_arguments,
        max_age=config.history_max_age,
        max_bytes=config.history_max_size,
        compared=observer.compared,
    )


def _sinks(history: History | None) -> Iterator[Sink]:
    """Where finished runs go. A new way out is a line here."""
    if history:
        yield history.sink


def _probes(
    observer: Observer,
    history: History | None,
    sinks: Sinks,
    web_config: WebConfigFile | None,
) -> Probes:
    from pipelined.web.metrics import Metrics  # as `_serve` has it
    from pipelined.web.probes import Probes

    return Probes(observer, Metrics(observer, history, web_config, sinks))


def _application(
    config: Config, host: Host, observer: Observer, history: History | None, probes: Probes
) -> WsgiApp:
    """The web application, for the first request that needs it."""
    from pipelined.web.app import create_app  # with Flask and what it imports, 7 MB

    application = create_app(
        observer,
        host=host,
        show_arguments=config.show_arguments,
        history=history,
        probes=probes,
    )
    gc.freeze()  # as at the start
    return application


def _announce(out: IO[str], observer: Observer, server: HttpServer, *, by_hand: bool) -> None:
    address = Address(server.host, server.port)
    hooks = observer.hooks()
    text = announcement(observer.loader, hooks, address, scheme=server.scheme, by_hand=by_hand)
    announce(text, out)
