# SPDX-License-Identifier: Apache-2.0
"""Measure without root: the host's daemon observes, and is asked for what this process started.

`DaemonObserver` stands in for the private observer of `pipelined run` and `compare`. The daemon
keeps finished runs only for a while, so it is asked during the command too.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

from pipelined.answers.run import Started
from pipelined.errors import UserError
from pipelined.runs import Run
from pipelined.runs.codec import read
from pipelined.starter import Starter, boot_id

__all__ = ["Ask", "DaemonObserver"]

Ask = Callable[[str, Callable[[Any], Started]], Started]
"""Gets a path below /api/v1 and reads the JSON of the answer; raises UserError."""

#: Seconds between requests while the command runs.
_POLL = 1.0
#: After an answer with this many runs the next request follows in a tenth of that time.
_MANY = 50
#: Least time between requests when the command has ended (seconds).
_PACE = 0.1


class DaemonObserver(AbstractContextManager["DaemonObserver"]):
    """What this process starts, as a daemon sees it. The methods are those of `Observer`."""

    def __init__(self, ask: Ask, url: str) -> None:
        """Raises UserError if the daemon at `url` does not observe this process."""
        self.daemon = url
        """Where the daemon is."""
        self._ask = ask
        self._by = Starter.become().address(boot_id())
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._finished: dict[str, Run] = {}
        self._live: list[Run] = []
        self._number = 0
        self._number_before = 0
        self._asked = float("-inf")
        first = self._get()
        self._observed_since = first.observed_since
        self._lost_before = self._lost = first.lost
        self._number = self._number_before = first.finished

    def start(self) -> None:
        """Ask now and then from now on."""
        self._thread = threading.Thread(target=self._poll, name="daemon", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def settle(self) -> None:
        """Ask now; every run whose processes are all gone is finished. Raises UserError."""
        time.sleep(max(0.0, self._asked + _PACE - time.monotonic()))
        self._take(settle=True)

    def runs(self) -> list[Run]:
        """All runs that this process started, as of the last answer.

        If this process is itself in a pipeline, its runs are nested in nothing that is reported.
        """
        with self._lock:
            found = {run.id: run for run in (*self._finished.values(), *self._live)}
        return [
            run
            if run.parent in found
            else replace(
                run,
                series=replace(run.series, nested=False),
                parent=None,
                parent_pipeline=None,
            )
            for run in found.values()
        ]

    def lost(self) -> dict[str, int]:
        """What the daemon could not record on the whole host since this was made, by kind."""
        with self._lock:
            return {kind: n - self._lost_before.get(kind, 0) for kind, n in self._lost.items()}

    def timeline(self, run_id: str) -> None:
        """The daemon has it: `pipelined show` draws it."""

    def ended(self) -> int:
        """How many runs that this process started have ended since this was made.

        The daemon may no longer have had some of them when it was asked.
        """
        with self._lock:
            return self._number - self._number_before

    def _get(self, *, settle: bool = False) -> Started:
        words = {"by": self._by, "after": self._number} | ({"settle": "true"} if settle else {})
        try:
            return self._ask(f"started?{urlencode(words)}", partial(read, Started))
        finally:
            self._asked = time.monotonic()

    def _take(self, *, settle: bool = False) -> int:
        """Ask once. Returns how many runs were new."""
        with self._lock:
            answer = self._get(settle=settle)
            if answer.observed_since != self._observed_since:
                raise UserError(
                    f"the daemon at {self.daemon} was restarted meanwhile",
                    "there is no report; run the command again",
                )
            ended = [run for run in answer.runs if not run.live]
            self._finished.update((run.id, run) for run in ended)
            self._live = [run for run in answer.runs if run.live]
            self._number = answer.finished
            self._lost = answer.lost
            return len(ended)

    def _poll(self) -> None:
        wait = _POLL
        while not self._stop.wait(wait):
            wait = _POLL
            with contextlib.suppress(UserError):  # asked again when the command has ended
                if self._take() >= _MANY:
                    wait = _POLL / 10

    def __exit__(self, *exception: object) -> None:
        self.close()
