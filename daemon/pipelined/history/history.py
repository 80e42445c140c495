# SPDX-License-Identifier: Apache-2.0
"""The history of finished runs, for the daemon, the API and the commands.

The sweep only puts a run into a queue (`History.put`). A separate thread makes rows of the runs
and writes them, so that neither a storm of pipelines nor a slow disk delays the sweep. The
thread's CPU time is bounded too: if more runs end than can be stored, the longest are stored.
Every run is added to the sums of its pipeline and hour (the roll-up), whether it is stored or not.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
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
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, TypeVar, Unpack

from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Host
from pipelined.analysis.sentence import brief
from pipelined.config import DEFAULT_HISTORY_AGE, DEFAULT_HISTORY_SIZE, parse_duration
from pipelined.errors import UserError
from pipelined.history.archive import Archive, NoHistoryError, Period, Query
from pipelined.history.database import Details, Row, Store
from pipelined.history.packing import pack, unpack
from pipelined.history.pipeline_query import SORTS
from pipelined.history.pipelines import NO_PIPELINES, Pipelines, read_pipelines
from pipelined.history.rollup import HOUR, Counted, Pending, Sums
from pipelined.history.summaries import Summary
from pipelined.model.timeline import timeline_as_dict, timeline_from_dict
from pipelined.runs import Run, Timeline
from pipelined.schema import run_as_dict, run_from_dict

if TYPE_CHECKING:
    from pipelined.answers.lists import CountedRunsJson
    from pipelined.model.tracker import Finished

__all__ = [
    "DEFAULT_DIRECTORY",
    "CountedRuns",
    "History",
    "HistoryStats",
    "NoSuchRunError",
    "Recorded",
    "StoredRun",
    "Summary",
    "counted_as_dict",
    "counted_from_dict",
    "default_directory",
    "moment",
    "only_one",
]

DEFAULT_DIRECTORY = Path("/var/lib/pipelined")

#: At most this many runs wait to be written; if there are more, the shortest are dropped.
QUEUE = 200
#: So many of them are written at a time, the longest first, so that a burst takes no larger share
#: of a CPU than a steady load.
BATCH = 50
#: At most so many sums, of different pipelines, wait to be written; if there are more, the lightest
#: are merged.
PENDING = 500
#: Making rows and writing them may take this share of a CPU; if it takes more, writes are rarer.
SHARE = 0.01
#: How often runs that are too old are looked for if there is nothing to write (seconds).
TRIM_EVERY = 60.0
#: Pause after a failure to write (seconds).
RETRY = 10.0
#: How many runs a message names if an id is ambiguous.
SHOWN_IDS = 3
#: No run ends later (hours since 1970).
_LAST_HOUR = 1e12
#: How long stopping waits for the runs that are still to be written (seconds).
STOP_TIMEOUT = 3.0

log = logging.getLogger(__name__)

T = TypeVar("T")


class NoSuchRunError(UserError):
    """The id that was given is that of no run, or of more than one."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A finished run as it was stored."""

    run: Run
    timeline: Timeline
    host: Host | None = None
    """The machine that it ran on; None: this one."""


@dataclass(frozen=True, slots=True)
class CountedRuns:
    """How many runs there were in some hours, whether they are stored singly or not.

    Top-level runs, unless it is named nested: a nested run's time is also that of its enclosing
    run.
    """

    start: float | None
    """When the first of these hours begins (Unix time); None: all that is kept."""
    runs: int
    stored: int
    """How many of them are stored singly."""
    median: float | None
    """Wall seconds that half of them did not exceed, within a factor of 2; None: no runs."""
    most_frequent: str | None
    """Signature of the pipeline that ran most often; None: no runs."""
    nested: int = 0
    stored_nested: int = 0

    @property
    def all_stored(self) -> bool:
        """Every run, nested or not, is stored singly."""
        return (self.runs, self.nested) == (self.stored, self.stored_nested)


class Span(TypedDict, total=False):
    """A time, and whose runs."""

    since: float | None
    """Unix time; the whole hour counts."""
    until: float | None
    pipeline: str | None
    """Exactly this signature."""
    unit: str | None


class Recorded(Protocol):
    """What the commands read: the history in its file (`History`), or by way of a daemon."""

    def runs(self, *, limit: int = 100, **searched: Unpack[Query]) -> list[Summary]: ...
    def pipelines(
        self,
        *,
        search: str | None = None,
        sort: str = SORTS[0],
        limit: int = 100,
        **span: Unpack[Span],
    ) -> Pipelines: ...
    def counted(self, **span: Unpack[Span]) -> CountedRuns: ...
    def run(self, which: str) -> StoredRun: ...


@dataclass(frozen=True, slots=True)
class HistoryStats:
    """State of the writing."""

    runs: int | None
    """Stored runs; None before the file was opened."""
    size_bytes: int | None
    errors: int
    """How often the file could not be opened or written."""
    dropped: int
    """Runs that were not stored singly: too many at once, or writing failed for too long."""


def default_directory(environment: Mapping[str, str]) -> Path:
    """The directory of the history if no option names one: systemd's state directory, or ours."""
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
        """Nothing in `directory` is changed before `start`: reading alone writes nothing.

        Command lines are stored only with `show_arguments`. Runs that ended more than `max_age`
        seconds ago are removed, and those of least worth if the files would exceed `max_bytes`.
        `retry`: seconds until writing is tried again after it failed.
        """
        self.directory = directory
        self.on_stored: Callable[[Summary], object] = lambda _: None
        """Called for each run that was stored, in the thread that writes."""
        self._host = host
        self._show_arguments = show_arguments
        self._max_age = max_age
        self._max_bytes = max_bytes
        self._retry = retry
        self._archive = Archive(directory)
        self._lock = threading.Lock()
        self._queue: list[tuple[float, int, Finished]] = []
        self._pending = Pending(PENDING)
        self._numbers = itertools.count()
        self._filled = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._store: Store | None = None
        self._last_error = ""
        self._runs: int | None = None
        self._size_bytes: int | None = None
        self._errors = 0
        self._dropped = 0

    # -- reading

    def check(self) -> None:
        """Find out whether it can be read. Raises UserError, NotPermittedError for this user."""
        self._read(self._archive.check, None)

    def runs(self, *, limit: int = 100, **searched: Unpack[Query]) -> list[Summary]:
        """The stored runs that match everything given, newest start first, at most `limit`.

        `pipeline` is the whole signature, `command` the name of one stage, `finding` an id.
        `since` and `until` (Unix time) bound the start. `min_duration`: of so many seconds or
        more; `top_level`: inside no other run; `slower`: slower than usual. `before` is the id of
        the last run in the previous list. Raises UserError.
        """
        return self._read(lambda: self._archive.rows(searched, limit), [])

    def hidden(self, *, most: int, **searched: Unpack[Query]) -> int:
        """How many stored runs `runs` leaves out for `min_duration` and `top_level` alone.

        At most `most` are counted. Raises UserError.
        """
        return self._read(lambda: self._archive.hidden(searched, most), 0)

    def pipelines(
        self,
        *,
        search: str | None = None,
        sort: str = SORTS[0],
        limit: int = 100,
        **span: Unpack[Span],
    ) -> Pipelines:
        """What each pipeline cost in the same hours as `rollup`, at most `limit` of them.

        `search` is a part of the signature or of the unit; `sort` one of
        `pipeline_query.SORTS`.
        Raises UserError.
        """
        period = _period(**span)
        return self._read(
            lambda: read_pipelines(self._archive, period, search=search, sort=sort, limit=limit),
            NO_PIPELINES,
        )

    def rollup(self, **span: Unpack[Span]) -> list[Counted]:
        """Sums over every run, stored singly or not, by pipeline: the most wall time first.

        Of whole hours: from the one that `since` lies in to the one that ends at `until` or after
        it (Unix time), both included. Raises UserError.
        """
        period = _period(**span)
        return self._read(lambda: self._archive.rollup(period), [])

    def counted(self, **span: Unpack[Span]) -> CountedRuns:
        """How many runs there were in the same hours as `rollup`, and how many are stored."""
        period = _period(**span)
        total, nested = self._read(lambda: self._archive.totals(period), (Sums(), Sums()))
        frequent = self._read(lambda: self._archive.most_frequent(period), None)
        stored, stored_nested = self._read(lambda: self._archive.stored(period), (0, 0))
        return CountedRuns(
            start=None if period.since is None else float(period.since * HOUR),
            runs=total.runs,
            stored=min(stored, total.runs),  # a run may be stored between the two statements
            median=total.within(0.5),
            most_frequent=frequent,
            nested=nested.runs,
            stored_nested=min(stored_nested, nested.runs),
        )

    def run(self, which: str) -> StoredRun:
        """The run with this id, or the only one whose id begins so; ``last``: the last to end.

        Raises UserError: NoSuchRunError if there is no such run, or several.
        """
        if which == "last":
            last = self._read(self._archive.last, None)
            if last is None:
                raise NoSuchRunError(
                    "the history has no run yet", "a run is stored when it has ended"
                )
            run_id = last
        else:
            run_id = only_one(which, self.ids(which))
        found = self._archive.details(run_id)
        if found is None:
            raise NoSuchRunError(f"run {run_id} is no longer in the history")
        try:
            described, points = map(unpack, found)
            return StoredRun(run_from_dict(described), timeline_from_dict(points))
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise UserError(
                f"run {run_id} is stored in a form that this version cannot read: {error!r}"
            ) from None

    def ids(self, prefix: str) -> list[str]:
        """Ids that begin with `prefix`: only some if there are many. Raises UserError."""
        return self._read(lambda: self._archive.ids(prefix, SHOWN_IDS + 1), [])

    def _read(self, read: Callable[[], T], nothing: T) -> T:
        """What `read` returns, or `nothing` while the daemon is about to make the file."""
        try:
            return read()
        except NoHistoryError:
            if self._last_error:
                raise UserError(f"{self.directory} cannot be written: {self._last_error}") from None
            if self._thread is None:  # only a daemon makes it
                raise
            return nothing

    def stats(self) -> HistoryStats:
        with self._lock:
            return HistoryStats(self._runs, self._size_bytes, self._errors, self._dropped)

    # -- writing

    def put(self, finished: Finished) -> None:
        """Count a run, and queue it to be stored. Takes microseconds and never fails."""
        with self._lock:
            self._pending.sums(finished.series, finished.end).count(
                finished.wall_seconds,
                finished.cpu_seconds,
                finished.not_overlapped_seconds,
                finished.read_bytes,
                finished.written_bytes,
            )
            self._push((finished.wall_seconds, next(self._numbers), finished))
        if not self._filled.is_set():
            self._filled.set()

    def start(self) -> None:
        """Start writing what is queued."""
        self._thread = threading.Thread(target=self._work, name="history", daemon=True)
        self._thread.start()

    def close(self, timeout: float = STOP_TIMEOUT) -> None:
        """Write what is left, for at most `timeout` seconds, and close the file."""
        self._closing.set()
        self._filled.set()
        if self._thread:
            self._thread.join(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
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
        self._close_store()

    def _write(self, at_most: int = BATCH) -> float:
        """Store queued runs, or queue them again. Returns the seconds until the next write."""
        self._filled.clear()
        with self._lock:
            queue = sorted(self._queue, reverse=True)
            queue, self._queue = queue[:at_most], queue[at_most:][::-1]  # a sorted list is a heap
            pending, self._pending = self._pending, Pending(PENDING)
            if self._queue:
                self._filled.set()
        try:
            if self._store and not self._store.exists:
                log.warning("the history in %s was removed; a new one begins", self.directory)
                self._close_store()
            store = self._store = self._store or Store(
                self.directory, max_age=self._max_age, max_bytes=self._max_bytes
            )
            began = time.thread_time()
            store.count(pending)
            pending = Pending(PENDING)
            for row in store.add(self._described(queue)):
                self.on_stored(row)
            store.trim()
            pause = (time.thread_time() - began) / SHARE
            with self._lock:
                self._runs, self._size_bytes = store.rows, store.size_bytes
        except (OSError, sqlite3.Error) as error:
            self._failed(error)
            with self._lock:
                self._pending.add(pending)
                for entry in queue:
                    self._push(entry)
            self._filled.set()
            return self._retry
        if self._last_error:
            self._last_error = ""
            log.info("the history in %s can be written again", self.directory)
        return pause

    def _described(self, queue: list[tuple[float, int, Finished]]) -> Iterator[Details]:
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
        readahead, found = run.readahead, findings(run, self._host)
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
            findings=tuple(dict.fromkeys(finding.id for finding in found)),
            parent=run.parent,
            parent_pipeline=run.parent_pipeline,
            read_bytes=sum(stage.read_bytes for stage in run.stages),
        )
        bounds: dict[str, float] = {}
        for finding in found:  # the same at several stages: their bounds may be the same seconds
            bounds[finding.id] = max(bounds.get(finding.id, 0.0), finding.gain_seconds or 0.0)
        return Details(
            row,
            tuple(dict.fromkeys(stage.command for stage in run.stages)),
            pack(run_as_dict(run, self._show_arguments)),
            pack(timeline_as_dict(timeline)),
            bounds,
        )

    def _failed(self, error: OSError | sqlite3.Error) -> None:
        """Count the error, log it if it is new, and close the file until the next try."""
        with self._lock:
            self._errors += 1
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        reason = reason.lower()
        if reason != self._last_error:
            self._last_error = reason
            log.error(
                "the history in %s cannot be written: %s; pipelines are still observed, and writing"
                " is tried again every %g s (--state-directory names another directory,"
                " --no-history turns the history off)",
                self.directory,
                reason,
                self._retry,
            )
        self._close_store()

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store:
            with contextlib.suppress(sqlite3.Error):  # the reason is logged already
                store.close()


def _period(
    since: float | None = None,
    until: float | None = None,
    pipeline: str | None = None,
    unit: str | None = None,
) -> Period:
    return Period(
        None if since is None else math.floor(_within_reach(since / HOUR)),
        None if until is None else math.ceil(_within_reach(until / HOUR)),
        pipeline,
        unit,
    )


def _within_reach(hour: float) -> float:
    """The same, or the last one that SQLite knows as an integer."""
    return max(-_LAST_HOUR, min(_LAST_HOUR, hour))


def only_one(which: str, ids: Iterable[str]) -> str:
    """The one of `ids` that `which` stands for; all begin with it. Raises NoSuchRunError."""
    found = sorted(set(ids))
    if which in found:
        return which
    if not found:
        raise NoSuchRunError(f"there is no run {which}", "pipelined runs lists the recorded runs")
    if len(found) > 1:
        shown = ", ".join(found[:SHOWN_IDS]) + (" …" if len(found) > SHOWN_IDS else "")
        raise NoSuchRunError(f"several runs begin with {which}: {shown}", "give more of the id")
    return found[0]


def counted_as_dict(counted: CountedRuns) -> CountedRunsJson:
    """The same, ready for `json.dumps`."""
    return {
        "start_timestamp_seconds": counted.start,
        "runs": counted.runs,
        "stored_runs": counted.stored,
        "median_wall_seconds": counted.median,
        "most_frequent_pipeline": counted.most_frequent,
        "nested_runs": counted.nested,
        "stored_nested_runs": counted.stored_nested,
    }


def counted_from_dict(described: Mapping[str, Any]) -> CountedRuns:
    """What `counted_as_dict` described. Raises KeyError or TypeError for anything else."""
    return CountedRuns(
        start=described["start_timestamp_seconds"],
        runs=described["runs"],
        stored=described["stored_runs"],
        median=described["median_wall_seconds"],
        most_frequent=described["most_frequent_pipeline"],
        nested=described["nested_runs"],
        stored_nested=described["stored_nested_runs"],
    )


def moment(text: str, now: Callable[[], float] = time.time) -> float:
    """Unix time of a moment as people write it.

    ``2h`` is two hours ago; a date, with or without a time, is in this host's time zone unless it
    names another; a plain number is Unix time. Raises ValueError with the forms that are accepted.
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
    raise ValueError(f"{text!r} is not a moment such as 2h (ago), 2026-11-21 or '2026-11-21 03:00'")
