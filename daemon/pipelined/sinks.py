# SPDX-License-Identifier: Apache-2.0
"""The ways out for finished runs: each a bounded queue, a thread, and a count of what it dropped.

`Sinks.hand_out` is the only place that gives a finished run away; the sweep calls it. It puts the
run into a queue per sink and returns, so that neither a storm of pipelines nor a slow disk delays
the sweep, nor one sink another. What a sink does with runs is its `Writer`. If more runs wait than
there is room for, the longest are kept.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from pipelined.model.sighting import Finished

__all__ = ["Sink", "Sinks", "Writer", "Written"]

#: How often a writer is asked whether something is due while no run waits (seconds).
LOOK_EVERY = 5.0
#: Pause after an exception that a writer did not expect (seconds).
RETRY = 10.0
#: How long stopping waits for the runs that are still to be written (seconds), all sinks together.
STOP_TIMEOUT = 3.0

log = logging.getLogger(__name__)


class Written(NamedTuple):
    """What became of the runs that a writer was given."""

    taken: int
    """How many, from the first one on, are written or dropped; the others wait again."""
    dropped: int = 0
    """How many of these could not be written."""
    pause: float = 0.0
    """Seconds until the next ones are wanted."""
    room: int | None = None
    """How many may wait meanwhile, at most; None: as many as the sink was made for."""


class Writer(ABC):
    """Takes finished runs to one place. The thread of its sink calls everything but `count`."""

    def count(self, run: Finished) -> None:
        """A run has ended, whether it will be written or dropped.

        Called in the middle of a sweep: it takes microseconds and does not fail.
        """
        return

    @abstractmethod
    def write(self, runs: Sequence[Finished], *, last: bool) -> Written:
        """Write some of `runs`, the longest first; `last`: all, as nobody will ask again.

        There are none at the start, and when something `is_due`. If the place cannot be reached,
        that is no exception: the runs are not taken, and there is a pause. After an exception it is
        called again with each run alone, also with those that were written before it.
        """

    def is_due(self) -> bool:
        """Whether to call `write` though no run waits."""
        return False

    def close(self) -> None:
        """No call follows."""
        return


class _Waiting(NamedTuple):
    """A run in the queue, a heap: the one that is least worth writing compares lowest."""

    wall: float
    number: int
    """Of the runs in the order in which they ended."""
    run: Finished


class Sink:
    """A queue and a thread before one writer. Every method may be called from any thread."""

    def __init__(self, name: str, writer: Writer, *, room: int) -> None:
        """At most `room` runs wait, or fewer if the writer says so."""
        self.name = name
        self._writer = writer
        self._most = room
        self._room = room
        """Runs that may wait now."""
        self._queue: list[_Waiting] = []
        self._numbers = itertools.count()
        self._dropped = 0
        self._lock = threading.Lock()
        self._filled = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        """Whether there is a thread that writes, or was."""
        return self._thread is not None

    @property
    def dropped(self) -> int:
        """Runs that were not written: too many at once, or the writer could not."""
        with self._lock:
            return self._dropped

    def put(self, run: Finished) -> None:
        """Count a run, and queue it to be written. Takes microseconds."""
        self._writer.count(run)
        with self._lock:
            waiting = _Waiting(run.wall_seconds, next(self._numbers), run)
            if len(self._queue) < self._room:
                heapq.heappush(self._queue, waiting)
            else:
                heapq.heappushpop(self._queue, waiting)
                self._dropped += 1
        if not self._filled.is_set():
            self._filled.set()

    def start(self) -> None:
        """Start writing what is queued."""
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Have the thread write what is left and end; returns at once."""
        self._closing.set()
        self._filled.set()

    def close(self, timeout: float = STOP_TIMEOUT) -> None:
        """Write what is left, for at most `timeout` seconds, and close the writer."""
        self.stop()
        if self._thread:
            self._thread.join(timeout)
            if self._thread.is_alive():
                log.error(
                    "the sink %s was still at work when the time for the stop was over: what"
                    " waited may be lost",
                    self.name,
                )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _work(self) -> None:
        while not self._closing.wait(self._write()):
            while not self._filled.wait(LOOK_EVERY) and not self._is_due():
                pass
        self._write(last=True)
        with self._lock:
            left = len(self._queue)
        if left:
            log.error(
                "the sink %s could not write %d finished runs before the stop", self.name, left
            )
        try:
            self._writer.close()
        except Exception:
            log.exception("the sink %s cannot be closed", self.name)

    def _is_due(self) -> bool:
        try:
            return self._writer.is_due()
        except Exception:
            log.exception("the sink %s fails", self.name)
            return False

    def _write(self, *, last: bool = False) -> float:
        """Have the queued runs written, or some of them. Returns the seconds until the next."""
        with self._lock:
            self._filled.clear()
            queue, self._queue = sorted(self._queue, reverse=True), []
        runs = [entry.run for entry in queue]
        try:
            written = self._writer.write(runs, last=last)
        except Exception:
            log.exception("the sink %s fails", self.name)
            written = self._write_each(runs, last=last)
        with self._lock:
            # what is left when the daemon stops is written at once, however long that takes
            stopping = self._closing.is_set()
            self._room = self._most if stopping or written.room is None else written.room
            waiting = sorted(queue[written.taken :] + self._queue, reverse=True)
            self._dropped += written.dropped + len(waiting[self._room :])
            self._queue = waiting[: self._room][::-1]  # a sorted list is a heap
            if self._queue or stopping:
                self._filled.set()
        return written.pause

    def _write_each(self, runs: Sequence[Finished], *, last: bool) -> Written:
        """After an exception: have each run written alone, and drop those that raise one again."""
        taken = dropped = 0
        for run in runs:
            try:
                written = self._writer.write([run], last=last)
            except Exception:
                written = Written(1, dropped=1)
            if not written.taken:  # the place cannot be reached: the rest waits
                break
            taken += written.taken
            dropped += written.dropped
        if dropped:
            log.error("the sink %s drops %d of %d runs", self.name, dropped, len(runs))
        return Written(taken, dropped, RETRY)


class Sinks:
    """All sinks of the daemon. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sinks: tuple[Sink, ...] | None = None
        """None before the start."""
        self._early: list[Finished] = []

    def hand_out(self, run: Finished) -> None:
        """Give a finished run to every sink. Takes microseconds and never fails.

        Runs that end before `start` wait for it.
        """
        with self._lock:
            sinks = self._sinks
            if sinks is None:
                self._early.append(run)
                return
        self._put(run, sinks)

    def start(self, sinks: Iterable[Sink]) -> None:
        """Hand out to these `sinks` from now on, what waited first, and start them."""
        started = tuple(sinks)
        with self._lock:
            for run in self._early:
                self._put(run, started)
            self._early, self._sinks = [], started
        for sink in started:
            sink.start()

    def close(self, timeout: float = STOP_TIMEOUT) -> None:
        """Write what is left, for at most `timeout` seconds, all at the same time."""
        until = time.monotonic() + timeout
        sinks = self._sinks or ()
        for sink in sinks:
            sink.stop()
        for sink in sinks:
            sink.close(max(0.0, until - time.monotonic()))

    def dropped(self) -> Mapping[str, int]:
        """By name of the sink, how many runs it dropped."""
        return {sink.name: sink.dropped for sink in self._sinks or ()}

    @staticmethod
    def _put(run: Finished, sinks: tuple[Sink, ...]) -> None:
        for sink in sinks:
            try:
                sink.put(run)
            except Exception:
                log.exception("the sink %s does not take a run", sink.name)
