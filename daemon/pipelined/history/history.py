# SPDX-License-Identifier: Apache-2.0
"""Finished runs, kept and found again: what the daemon, the API and the commands ask.

The sweep only puts a run into a queue (`History.put`). A thread of its own makes it into rows
and writes these, so that neither a storm of pipelines nor a slow disk holds the sweep. What the
thread takes of a CPU is bounded too: where more runs end than can be stored, the longest are.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import logging
import math
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pipelined.analysis.bottleneck import brief
from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Host
from pipelined.config import DEFAULT_HISTORY_AGE, DEFAULT_HISTORY_SIZE, parse_duration
from pipelined.errors import UserError
from pipelined.history.database import Archive, Details, NoHistoryError, Query, Row, Store
from pipelined.model.timeline import Timeline, timeline_as_dict, timeline_from_dict
from pipelined.runs import Run
from pipelined.schema import run_as_dict, run_from_dict

if TYPE_CHECKING:
    from pipelined.model.tracker import Finished

__all__ = [
    "DEFAULT_DIRECTORY",
    "History",
    "HistoryStats",
    "NoSuchRunError",
    "StoredRun",
    "Summary",
    "default_directory",
    "moment",
    "only_one",
    "summary_as_dict",
]

DEFAULT_DIRECTORY = Path("/var/lib/pipelined")

#: Runs that wait to be written; of more the shortest are dropped.
QUEUE = 500
#: So many of them are written at once, the longest first: a burst takes no more of a CPU than what
#: goes on.
BATCH = 50
#: Making rows and writing them may take this share of a CPU; past it, writes come less often.
SHARE = 0.01
#: How often what is too old is looked for, with nothing to write (seconds).
TRIM_EVERY = 60.0
#: Pause after nothing could be written (seconds).
RETRY = 10.0
#: How many runs are named where several are meant.
SHOWN_IDS = 3
#: How long stopping waits for what is still to be written (seconds).
STOP_TIMEOUT = 3.0

log = logging.getLogger(__name__)

T = TypeVar("T")

Summary = Row


class NoSuchRunError(UserError):
    """What was asked for names no run, or more than one."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A finished run as it was stored."""

    run: Run
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class HistoryStats:
    """How the writing goes."""

    runs: int | None
    """Stored; None before the file was opened."""
    size_bytes: int | None
    errors: int
    """How often the file could not be opened or written."""
    dropped: int
    """Runs that were not stored: too many at once, or no way to write for too long."""


def default_directory(environment: Mapping[str, str]) -> Path:
    """Where the history is, if nothing says where: the directory that systemd gave, or ours."""
    given = environment.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(given) if given else DEFAULT_DIRECTORY


class History:
    """The finished runs of this host. Every method may be called from any thread."""

    def __init__(
        self,
        directory: Path,
        *,
        host: Host,
        show_arguments: bool = False,
        max_age: float = DEFAULT_HISTORY_AGE,
        max_bytes: int = DEFAULT_HISTORY_SIZE,
        retry: float = RETRY,
    ) -> None:
        """Only `start` writes: reading alone changes nothing in `directory`.

        Command lines are stored with `show_arguments` only. Runs older than `max_age` seconds
        are removed, and older ones when the files would take more than `max_bytes`. `retry`:
        seconds to the next try when nothing can be written.
        """
        self.directory = directory
        self._host = host
        self._show_arguments = show_arguments
        self._max_age = max_age
        self._max_bytes = max_bytes
        self._retry = retry
        self._archive = Archive(directory)
        self._lock = threading.Lock()
        self._queue: list[tuple[float, int, Finished]] = []
        self._numbers = itertools.count()
        self._filled = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._store: Store | None = None
        self._complaint = ""
        self._runs: int | None = None
        self._size_bytes: int | None = None
        self._errors = 0
        self._dropped = 0

    # -- reading

    def runs(
        self,
        *,
        pipeline: str | None = None,
        unit: str | None = None,
        finding: str | None = None,
        command: str | None = None,
        since: float | None = None,
        until: float | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[Summary]:
        """The stored runs that fit everything given, newest start first, at most `limit`.

        `pipeline` is the whole signature, `command` the name of one stage, `finding` an id.
        `since` and `until` (Unix time) bound the start. `before` is the id of the last run of
        the list before this one. Raises UserError.
        """
        query = Query(pipeline, unit, finding, command, since, until, before)
        return self._read(lambda: self._archive.rows(query, limit), [])

    def run(self, which: str) -> StoredRun:
        """The run with this id, or whose id alone begins so; ``last``: that which ended last.

        Raises UserError: NoSuchRunError when there is none, or several.
        """
        if which == "last":
            last = self._read(self._archive.last, None)
            if last is None:
                raise NoSuchRunError("the history has no run yet", "a run is in it once it ended")
            run_id = last
        else:
            run_id = only_one(which, self.ids(which))
        found = self._archive.details(run_id)
        if found is None:
            raise NoSuchRunError(f"run {run_id} is no longer in the history")
        try:
            described, points = (json.loads(zlib.decompress(part)) for part in found)
            return StoredRun(run_from_dict(described), timeline_from_dict(points))
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise UserError(
                f"run {run_id} is stored in a form that this version cannot read: {error!r}"
            ) from None

    def ids(self, prefix: str) -> list[str]:
        """Ids that begin with `prefix`: a few, when there are many. Raises UserError."""
        return self._read(lambda: self._archive.ids(prefix, SHOWN_IDS + 1), [])

    def _read(self, read: Callable[[], T], nothing: T) -> T:
        """What `read` finds; while there is no file, what is to be said in its place."""
        try:
            return read()
        except NoHistoryError:
            if self._complaint:
                raise UserError(f"{self.directory} cannot be written: {self._complaint}") from None
            if self._thread is None:  # nobody is about to make it
                raise
            return nothing

    def stats(self) -> HistoryStats:
        with self._lock:
            return HistoryStats(self._runs, self._size_bytes, self._errors, self._dropped)

    # -- writing

    def put(self, finished: Finished) -> None:
        """Have a run stored soon. Takes microseconds and never fails."""
        with self._lock:
            self._push((finished.wall_seconds, next(self._numbers), finished))
        if not self._filled.is_set():
            self._filled.set()

    def start(self) -> None:
        """Write what is put from now on."""
        self._thread = threading.Thread(target=self._work, name="history", daemon=True)
        self._thread.start()

    def close(self, timeout: float = STOP_TIMEOUT) -> None:
        """Write what is left, if that takes no longer than `timeout`, and let go of the file."""
        self._closing.set()
        self._filled.set()
        if self._thread:
            self._thread.join(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _push(self, entry: tuple[float, int, Finished]) -> None:
        if len(self._queue) < QUEUE:
            heapq.heappush(self._queue, entry)
            return
        self._dropped += 1
        if entry[0] > self._queue[0][0]:
            heapq.heapreplace(self._queue, entry)

    def _work(self) -> None:
        while not self._closing.wait(self._write()):
            self._filled.wait(TRIM_EVERY)
        self._write(QUEUE)
        self._let_go()

    def _write(self, at_most: int = BATCH) -> float:
        """Store what is queued, or queue it again; how long to wait before the next time."""
        self._filled.clear()
        with self._lock:
            queue = sorted(self._queue, reverse=True)
            queue, self._queue = queue[:at_most], queue[at_most:][::-1]  # sorted is a heap, too
            if self._queue:
                self._filled.set()
        try:
            if self._store and not self._store.is_there:
                log.warning("the history in %s was removed; a new one begins", self.directory)
                self._let_go()
            store = self._store = self._store or Store(
                self.directory, max_age=self._max_age, max_bytes=self._max_bytes
            )
            began = time.thread_time()
            store.add(self._made(queue))
            store.trim()
            pause = (time.thread_time() - began) / SHARE
            with self._lock:
                self._runs, self._size_bytes = store.rows, store.size_bytes
        except (OSError, sqlite3.Error) as error:
            self._failed(error)
            with self._lock:
                for entry in queue:
                    self._push(entry)
            self._filled.set()
            return self._retry
        if self._complaint:
            self._complaint = ""
            log.info("the history in %s is written again", self.directory)
        return pause

    def _made(self, queue: list[tuple[float, int, Finished]]) -> Iterator[Details]:
        for _, _, finished in queue:
            try:
                run, timeline = finished.make()
                details = self._details(run, timeline)
            except Exception:
                log.exception("a run cannot be stored")
                with self._lock:
                    self._dropped += 1
                continue
            yield details

    def _details(self, run: Run, timeline: Timeline) -> Details:
        readahead = run.readahead
        row = Row(
            id=run.id,
            pipeline=run.pipeline,
            nested=run.series.nested,
            unit=run.series.unit,
            start=run.start,
            end=run.start + run.wall_seconds if run.end is None else run.end,
            wall=run.wall_seconds,
            partial=run.partial,
            cores=run.cores_used,
            overlap=run.overlap,
            cache=readahead.cache_state if readahead else None,
            bottleneck=brief(run),
            findings=tuple(dict.fromkeys(found.id for found in findings(run, self._host))),
        )
        return Details(
            row,
            tuple(dict.fromkeys(stage.command for stage in run.stages)),
            _packed(run_as_dict(run, self._show_arguments)),
            _packed(timeline_as_dict(timeline)),
        )

    def _failed(self, error: OSError | sqlite3.Error) -> None:
        """Say it once, count it, and begin again with the file at the next try."""
        with self._lock:
            self._errors += 1
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        reason = reason.lower()
        if reason != self._complaint:
            self._complaint = reason
            log.error(
                "the history in %s cannot be written: %s; pipelines are watched all the same,"
                " and writing is tried again every %g s (--state-directory says where it is,"
                " --no-history goes without)",
                self.directory,
                reason,
                self._retry,
            )
        self._let_go()

    def _let_go(self) -> None:
        store, self._store = self._store, None
        if store:
            with contextlib.suppress(sqlite3.Error):  # it has said why already
                store.close()


def only_one(which: str, ids: Iterable[str]) -> str:
    """The one of `ids`, which all begin with `which`, that is meant. Raises NoSuchRunError."""
    found = sorted(set(ids))
    if which in found:
        return which
    if not found:
        raise NoSuchRunError(
            f"there is no run {which}", "pipelined runs lists those that the history has"
        )
    if len(found) > 1:
        shown = ", ".join(found[:SHOWN_IDS]) + (" …" if len(found) > SHOWN_IDS else "")
        raise NoSuchRunError(f"several runs begin with {which}: {shown}", "give more of the id")
    return found[0]


def summary_as_dict(summary: Summary) -> dict[str, Any]:
    """What is listed of a run, in the words of `schema.run_as_dict`."""
    return {
        "id": summary.id,
        "pipeline": summary.pipeline,
        "nested": summary.nested,
        "unit": summary.unit,
        "partial": summary.partial,
        "start_timestamp_seconds": summary.start,
        "end_timestamp_seconds": summary.end,
        "wall_seconds": summary.wall,
        "cores_used": summary.cores,
        "overlap_ratio": summary.overlap,
        "cache_state": summary.cache,
        "bottleneck": summary.bottleneck,
        "findings": list(summary.findings),
    }


def moment(text: str, now: Callable[[], float] = time.time) -> float:
    """A moment as people write it, as Unix time.

    ``2h`` is two hours ago; a date or a date with a time is meant in this host's time zone if it
    names none; a plain number is Unix time. Raises ValueError saying what it must be.
    """
    readings: tuple[Callable[[], float], ...] = (
        lambda: datetime.fromisoformat(text).timestamp(),
        lambda: float(text),
        lambda: now() - parse_duration(text),
    )
    for read in readings:
        with contextlib.suppress(ValueError, OverflowError):
            found = read()
            if math.isfinite(found):
                return found
    raise ValueError(f"{text!r} is no moment such as 2h (ago), 2026-11-21 or '2026-11-21 03:00'")


def _packed(described: object) -> bytes:
    # Level 1: half the time of the default, for a tenth more bytes.
    return zlib.compress(json.dumps(described, separators=(",", ":")).encode(), 1)
