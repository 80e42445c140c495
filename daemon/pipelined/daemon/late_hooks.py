# SPDX-License-Identifier: Apache-2.0
"""The hooks that are attached when the daemon is ready, by a thread with privileges."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING

from pipelined.daemon.announcement import announce, status, tier_lines
from pipelined.daemon.systemd import Supervisor

if TYPE_CHECKING:
    from pipelined.observer import Observer

__all__ = ["attached_later"]


@contextmanager
def attached_later(
    observer: Observer, out: IO[str], supervisor: Supervisor
) -> Iterator[Callable[[], None]]:
    """Starts a thread with the privileges that the calling one has now; yields what makes it go on.

    It attaches the optional hooks, and reports them to `out` and `supervisor`. At the end waits
    for that, if it went on.
    """
    wanted: Future[bool] = Future()
    attach = partial(_attach_if, wanted, observer, out, supervisor)
    thread = threading.Thread(target=attach, name="attach")
    thread.start()
    try:
        yield partial(wanted.set_result, True)
    finally:
        if not wanted.done():
            wanted.set_result(False)
        thread.join()


def _attach_if(
    wanted: Future[bool], observer: Observer, out: IO[str], supervisor: Supervisor
) -> None:
    if not wanted.result() or not any(hook.pending for hook in observer.hooks()):
        return
    observer.attach_optional()
    lines = ["Every hook is attached or off:", *tier_lines(observer.hooks())]
    announce("\n".join(lines) + "\n", out)
    supervisor.status(status(observer))
