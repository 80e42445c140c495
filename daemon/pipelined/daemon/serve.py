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
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, NamedTuple

from pipelined import __version__
from pipelined.analysis.machine import Host
from pipelined.config import Address, Config
from pipelined.daemon.capabilities import started_without
from pipelined.daemon.systemd import Supervisor
from pipelined.errors import UserError
from pipelined.http_port.listening import listen
from pipelined.malloc import hold_little
from pipelined.runs import Series

if TYPE_CHECKING:
    from flask import Flask

    from pipelined.history.history import History, Summary
    from pipelined.http_port.server import HttpServer
    from pipelined.http_port.web_config_file import WebConfigFile
    from pipelined.model.tracker import Finished, Totals
    from pipelined.observer import Hook, Observer

__all__ = ["announcement", "exposure", "serve"]

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

#: Requests that are answered at once, besides the live page's streams.
_THREADS = 8
#: Keep-alive messages per watchdog interval: one may be late, and one lost.
_MESSAGES_PER_INTERVAL = 4
#: Seconds between status lines if no watchdog needs them more often.
_STATUS_EVERY = 30.0

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
    web_config = _web_config(config)
    address = config.web_listen_address
    listener = listen(address.host, address.port)
    if (warning := exposure(listener.getsockname()[0], web_config)) is not None:
        log.warning("%s", warning)
    host = Host.read()
    if open_observer is None:
        import pipelined.observer  # noqa: F401 - now, because the other thread imports for 0.2 s
    with _handled_signals() as signals, ExitStack() as at_last, ExitStack() as serving:
        with ExitStack() as observing:
            served = _started(serving, listener, web_config, config, host, give_up)
            try:
                observer = observing.enter_context(
                    open_observer(config) if open_observer else _observer(config, served)
                )
            finally:
                front, server, history = served()
            attach = partial(_attach_optional, observer, out, supervisor)
            attach_later = observing.enter_context(_called_in_thread(attach))
            give_up()
            if config.show_arguments and not _sees_arguments():
                log.warning(
                    "--show-arguments shows only those of our own user: /proc hides the others';"
                    " set ProtectProc=default in the unit, or mount /proc without hidepid"
                )
            observer.start()
            from pipelined.web.app import create_app

            app = create_app(
                observer,
                host=host,
                show_arguments=config.show_arguments,
                history=history,
                web_config=web_config,
            )
            front.wsgi_app = app.wsgi_app  # type: ignore[method-assign]  # from now on it answers
            # what exists now stays; records come and go without cycles, requests leave some
            gc.freeze()
            gc.set_threshold(2_000)
            out.write(
                announcement(
                    observer.loader,
                    observer.hooks(),
                    Address(address.host, server.port),
                    scheme=server.scheme,
                    by_hand=supervisor.address is None,
                )
            )
            out.flush()
            if history:  # runs not written yet are written when every hook is detached
                history.on_stored = partial(_compared, observer)
                at_last.enter_context(history)
            supervisor.ready(_status(observer))
            attach_later()
            _wait_for_stop(signals, observer, supervisor, web_config)
            supervisor.stopping()
            # No request may see an observer that is closed.
            server.stop()
            if history:  # runs that have ended by now go into it
                observer.settle()
        log.info("every hook is detached")


class _Served(NamedTuple):
    """What `_started` has made."""

    front: Flask
    """Answers until the application takes its place."""
    server: HttpServer
    history: History | None


def _started(
    serving: ExitStack,
    listener: socket.socket,
    web_config: WebConfigFile | None,
    config: Config,
    host: Host,
    give_up: Callable[[], object],
) -> Callable[[], _Served]:
    """Start to serve `listener` until `serving` ends; what is returned waits until it is served.

    What it takes to serve is imported meanwhile, in the thread that starts the server: as long
    as the kernel verifies programs, the calling one needs no Python.
    """

    def start() -> _Served:
        from pipelined.http_port.server import HttpServer
        from pipelined.web.app import create_front
        from pipelined.web.live_events import MAX_STREAMS

        front = create_front()
        address = config.web_listen_address
        server = HttpServer(
            front,
            address.host,
            address.port,
            web_config,
            threads=_THREADS + MAX_STREAMS,
            listener=listener,
        )
        history = _history(config, host) if config.history else None
        return _Served(front, serving.enter_context(server), history)

    return started_without(start, give_up)


@contextmanager
def _called_in_thread(call: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Starts a thread, with the privileges that the calling one has now; yields what makes it call.

    At the end waits until `call` has returned, if it was called.
    """
    import threading
    from concurrent.futures import Future

    wanted: Future[bool] = Future()
    thread = threading.Thread(target=lambda: wanted.result() and call(), name="attach")
    thread.start()
    try:
        yield lambda: wanted.set_result(True)
    finally:
        if not wanted.done():
            wanted.set_result(False)
        thread.join()


def _attach_optional(observer: Observer, out: IO[str], supervisor: Supervisor) -> None:
    """Attach the hooks that can wait until the daemon is ready, and report them."""
    if not any(hook.pending for hook in observer.hooks()):
        return
    observer.attach_optional()
    out.write("\n".join(["Every hook is attached or off:", *_tier_lines(observer.hooks())]) + "\n")
    out.flush()
    supervisor.status(_status(observer))


def exposure(address: str, web_config: WebConfigFile | None) -> str | None:
    """The warning about listening on `address`, with what to do; None if there is no reason."""
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return None
    if web_config is not None and web_config.requires_authentication:
        return None
    return (
        f"listening on {address} without a password: whoever reaches the port sees which commands"
        " run here; give --web.config.file (docs/SECURITY.md), or listen on 127.0.0.1"
    )


def _wait_for_stop(
    signals: set[signal.Signals],
    observer: Observer,
    supervisor: Supervisor,
    web_config: WebConfigFile | None,
) -> None:
    """Send keep-alive messages, and reload on SIGHUP, until one of the other signals arrives."""
    had_terminal = _has_terminal()
    swept = observer.sweep_stats.count
    every = (
        supervisor.watchdog / _MESSAGES_PER_INTERVAL
        if supervisor.watchdog is not None
        else _STATUS_EVERY
    )
    while True:
        if supervisor.address is None:
            number = signal.sigwaitinfo(signals).si_signo
        elif arrived := signal.sigtimedwait(signals, every):
            number = arrived.si_signo
        else:
            swept = _keep_alive(observer, supervisor, swept)
            continue
        # When a terminal hangs up, the shell sends SIGHUP to what it started there: then stop.
        if number == signal.SIGHUP and not (had_terminal and not _has_terminal()):
            _reload(observer, supervisor, web_config)
            continue
        log.info("%s: stopping", signal.Signals(number).name)
        return


def _keep_alive(observer: Observer, supervisor: Supervisor, swept: int) -> int:
    """Send a keep-alive message if there have been more sweeps than `swept`; returns their count.

    Sweeps may be further apart than the watchdog allows: then one is made here. If a sweep hangs,
    this one waits for it, and no message is sent.
    """
    try:
        if observer.sweep_stats.count == swept:
            observer.sweep()
    except Exception:
        log.exception("sweep failed: no keep-alive message for the watchdog")
    else:
        supervisor.alive(_status(observer))
    return observer.sweep_stats.count


def _reload(observer: Observer, supervisor: Supervisor, web_config: WebConfigFile | None) -> None:
    supervisor.reloading()
    if web_config is None:
        log.info("SIGHUP: nothing to read again: there is no --web.config.file")
    else:
        try:
            web_config.reload()
            log.info("SIGHUP: the web config was read again")
        except UserError as error:
            log.error("SIGHUP: the old web config stays in force: %s", error)
    supervisor.ready(_status(observer))


def _status(observer: Observer) -> str:
    """The state in one line: ``12 of 12 hooks, 3 pipelines live``."""
    hooks = observer.hooks()
    attached = sum(hook.attached for hook in hooks)
    pending = sum(hook.pending for hook in hooks)
    to_follow = f", {pending} to follow" if pending else ""
    live = observer.live()
    noun = "pipeline" if live == 1 else "pipelines"
    return f"{attached} of {len(hooks) - pending} hooks{to_follow}, {live} {noun} live"


def _sees_arguments() -> bool:
    """Whether command lines of other users can be read; process 1, which is root's, shows it."""
    try:
        with open("/proc/1/cmdline", "rb"):
            return True
    except OSError:
        return False


def _has_terminal() -> bool:
    """Whether we were started from a terminal that still exists."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _web_config(config: Config) -> WebConfigFile | None:
    if config.web_config_file is None:
        return None
    from pipelined.http_port.web_config_file import (
        WebConfigFile,  # and TLS, YAML and bcrypt with it
    )

    return WebConfigFile(config.web_config_file)


def _history(config: Config, host: Host) -> History:
    from pipelined.history.history import History, default_directory

    return History(
        config.state_directory or default_directory(os.environ),
        host=host,
        show_arguments=config.show_arguments,
        max_age=config.history_max_age,
        max_bytes=config.history_max_size,
    )


def _observer(config: Config, served: Callable[[], _Served]) -> Observer:
    """The observer, with the hooks of the `sched` tier that it cannot do without."""
    from pipelined.observer import Observer

    def put(finished: Finished) -> None:
        if (history := served().history) is not None:
            history.put(finished)

    def series_of(totals: Totals) -> int:
        from pipelined.web.pipeline_metrics import series_count

        return series_count(totals)

    return Observer.open(config, wait=False, on_finished=put, series_of=series_of)


def _compared(observer: Observer, stored: Summary) -> None:
    """A run is stored: the metrics have how it compares with what is usual."""
    series = Series(stored.pipeline, stored.nested, stored.unit)
    observer.compared(series, stored.usual_ratio)


@contextmanager
def _handled_signals() -> Iterator[set[signal.Signals]]:
    """Blocks the signals that we handle, so that they can be waited for; yields them.

    A handler would not do: a signal that arrives just before the main thread falls asleep does
    not wake it. Threads started meanwhile have them blocked too. SIGHUP and SIGINT stay ignored
    if they were (nohup, a background job).
    """
    signals = {
        number
        for number in _HANDLED
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield signals
    finally:
        while signal.sigtimedwait(signals, 0) is not None:
            pass  # another one arrived while stopping
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def announcement(
    loader: str,
    hooks: Sequence[Hook],
    address: Address,
    *,
    scheme: str = "http",
    by_hand: bool = True,
) -> str:
    """The text that says what was attached, per tier, where to look, and `by_hand` how to stop."""
    lines = [f"pipelined {__version__} watches every pipeline on this host (loader {loader})."]
    lines += _tier_lines(hooks)
    # An address that means every interface cannot be typed into a browser.
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)
    url = f"{scheme}://{Address(near, address.port)}"
    lines += [
        f"  {'page':<10} {url}/",
        f"  {'metrics':<10} {url}/metrics",
        f"  {'API':<10} {url}/api/v1/pipelines",
        *(["Ctrl-C stops it."] if by_hand else []),
    ]
    return "\n".join(lines) + "\n"


def _tier_lines(hooks: Sequence[Hook]) -> list[str]:
    """For each tier, which hooks are attached, how many will be, and which are off, and why."""
    tiers: dict[str, list[Hook]] = {}
    for hook in hooks:
        tiers.setdefault(hook.tier, []).append(hook)
    lines = []
    for tier, members in tiers.items():
        tried = [hook for hook in members if not hook.pending]
        attached = [hook.name for hook in tried if hook.attached]
        state = "ok" if len(attached) == len(tried) else "ok, in part" if attached else "off"
        parts = [f"{state}: {len(attached)} of {len(tried)} hooks attached"] if tried else []
        if len(members) > len(tried):
            parts.append(
                f"{len(members) - len(tried)} {'to follow' if tried else 'hooks to follow'}"
            )
        lines.append(f"  {tier:<10} {', '.join(parts)}")
        if attached:
            lines.append(f"  {'':<10} {', '.join(attached)}")
        off: dict[str, list[str]] = {}
        for hook in tried:
            if not hook.attached:
                off.setdefault(hook.reason, []).append(hook.name)
        lines += [
            f"  {'':<10} off: {', '.join(dict.fromkeys(names))}: {reason}"
            for reason, names in off.items()
        ]
    return lines
