# SPDX-License-Identifier: Apache-2.0
"""`pipelined serve`: the daemon in the foreground, from the first hook to a clean stop.

The port is bound before a hook is attached: where it is taken nothing else happens. Until
the hooks are attached every path but /healthz is answered with 503.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING

from flask import Flask, Response, jsonify, request

from pipelined import __version__
from pipelined.config import Address, Config
from pipelined.findings import Host
from pipelined.history import History, default_directory
from pipelined.web import HttpServer, create_app

if TYPE_CHECKING:
    from pipelined.observer import Hook, Observer

__all__ = ["announcement", "serve"]

_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_M_ARENA_MAX = -8  # malloc.h

log = logging.getLogger(__name__)


def serve(
    config: Config, out: IO[str], *, open_observer: Callable[[Config], Observer] | None = None
) -> None:
    """Observe and serve until SIGTERM, SIGINT or SIGHUP; then detach everything and return.

    What was attached and where to look goes to `out`. Raises UserError when the port or the
    hooks cannot be had; nothing is left attached then.
    """
    # Python lets one thread run at a time. A heap for each would only add to what is kept.
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    address = config.web_listen_address
    front = _create_front()
    server = HttpServer(front, address.host, address.port)
    host = Host.read()
    history = _history(config, host) if config.history else None
    with _stop_signals() as signals, server, ExitStack() as at_last:
        with (open_observer or _opener(history))(config) as observer:
            observer.start()
            app = create_app(
                observer, host=host, show_arguments=config.show_arguments, history=history
            )
            front.wsgi_app = app.wsgi_app  # type: ignore[method-assign]  # from now on it answers
            # what is there by now stays, and records come and go without cycles: look rarely
            gc.freeze()
            gc.set_threshold(20_000)
            out.write(
                announcement(observer.loader, observer.hooks(), Address(address.host, server.port))
            )
            out.flush()
            if history:  # what is still to be written is, when every hook is detached
                at_last.enter_context(history)
            number = signal.sigwaitinfo(signals).si_signo
            log.info("%s: stopping", signal.Signals(number).name)
            # No request may see an observer that is closed.
            server.stop()
            if history:  # what has ended by now goes into it
                observer.settle()
        log.info("every hook is detached")


def _history(config: Config, host: Host) -> History:
    return History(
        config.state_directory or default_directory(os.environ),
        host=host,
        show_arguments=config.show_arguments,
        max_age=config.history_max_age,
        max_bytes=config.history_max_size,
    )


def _opener(history: History | None) -> Callable[[Config], Observer]:
    from pipelined.observer import Observer

    return partial(Observer.open, on_finished=history.put if history else None)


def _create_front() -> Flask:
    """What answers until there is something to show."""
    front = Flask("pipelined", static_folder=None)

    @front.before_request
    def answer() -> Response:
        if request.path == "/healthz":
            return jsonify(status="alive")
        response = jsonify(error={"status": 503, "message": "starting: hooks are being attached"})
        response.status_code = 503
        response.headers["Retry-After"] = "1"
        return response

    return front


@contextmanager
def _stop_signals() -> Iterator[set[signal.Signals]]:
    """The signals that ask for a stop, blocked so that they can be waited for.

    A handler would not do: a signal that arrives just before the main thread falls asleep does
    not wake it. Threads started meanwhile have them blocked too. SIGHUP and SIGINT stay ignored
    where they were (nohup, a background job).
    """
    signals = {
        number
        for number in _STOPPING
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield signals
    finally:
        while signal.sigtimedwait(signals, 0) is not None:
            pass  # asked again while stopping
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def announcement(loader: str, hooks: Sequence[Hook], address: Address) -> str:
    """What was attached, tier by tier, and where to look."""
    tiers: dict[str, list[Hook]] = {}
    for hook in hooks:
        tiers.setdefault(hook.tier, []).append(hook)
    lines = [f"pipelined {__version__} watches every pipeline on this host (loader {loader})."]
    for tier, members in tiers.items():
        attached = sum(hook.attached for hook in members)
        state = "ok" if attached == len(members) else "ok, in part" if attached else "off"
        there = ", ".join(hook.name for hook in members if hook.attached)
        lines.append(f"  {tier:<10} {state}: {attached} of {len(members)} hooks attached")
        if there:
            lines.append(f"  {'':<10} {there}")
        off: dict[str, list[str]] = {}
        for hook in members:
            if not hook.attached:
                off.setdefault(hook.reason, []).append(hook.name)
        lines += [
            f"  {'':<10} off: {', '.join(dict.fromkeys(names))}: {reason}"
            for reason, names in off.items()
        ]
    # An address that means every interface is none to type into a browser.
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)
    url = f"http://{Address(near, address.port)}"
    lines += [
        f"  {'page':<10} {url}/",
        f"  {'metrics':<10} {url}/metrics",
        f"  {'API':<10} {url}/api/v1/pipelines",
        "Ctrl-C stops it.",
    ]
    return "\n".join(lines) + "\n"
