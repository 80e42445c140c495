# SPDX-License-Identifier: Apache-2.0
"""What the history's sink writes to: makes rows of finished runs, and stores them.

Its CPU time is bounded: batches are small, and paced so that they take their share of a CPU. What
cannot be written within `LONGEST_PAUSE` at that pace has no room to wait, so a daemon that is
killed loses no more than ended in these seconds. Every run is added to the sums of its pipeline and
hour (the roll-up), whether it is stored or not.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Host
from pipelined.analysis.outcome_words import brief_outcome
from pipelined.analysis.sentence import brief
from pipelined.history.allowance import Allowance
from pipelined.history.arrivals import Arrivals
from pipelined.history.database import LogFullError, Store
from pipelined.history.files import Disruption, Reason
from pipelined.history.packing import pack
from pipelined.history.rollup import Pending
from pipelined.history.rows import Details, Summary
from pipelined.runs import Run, Series, Timeline
from pipelined.runs.codec import written
from pipelined.sinks import Writer, Written

if TYPE_CHECKING:
    from pipelined.model.sighting import Finished

__all__ = ["QUEUE", "HistoryWriter"]

#: At most this many runs wait to be written, and no more than can be written within
#: `LONGEST_PAUSE`; if there are more, the shortest are dropped.
QUEUE = 200
#: So many may wait in any case: one run of which a batch is full, with hundreds of points or many
#: children, says nothing of those that wait, and a short job is not to be dropped for it.
LEAST = 20
#: At most this many are written in a batch, the longest first, until the batch has used
#: `BATCH_SECONDS` of a CPU.
BATCH = 50
BATCH_SECONDS = 0.03
#: While runs wait, batches are at most this far apart (seconds), whatever share of a CPU it takes:
#: a daemon that is killed loses no more than ended since the last one.
LONGEST_PAUSE = 4.0
#: Sums of different pipelines that wait to be written; if there are more, the lightest are merged.
PENDING = 500
#: Making rows and writing them may take this share of a CPU; if it takes more, writes are rarer,
#: within `LONGEST_PAUSE`.
SHARE = 0.01
#: CPU time that can be saved (seconds): a full queue after 20 quiet seconds is written at once.
SAVED = 0.2
#: How often runs that are too old are looked for if there is nothing to write (seconds).
TRIM_EVERY = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HistoryStats:
    """State of the writing."""

    runs: int | None
    """Stored runs; None before the file was opened."""
    size_bytes: int | None
    errors: int
    """How often the file could not be opened or written."""
    disruptions: Mapping[Reason, int] = field(default_factory=lambda: dict.fromkeys(Reason, 0))
    """How often the files were removed or replaced while in use, or set aside."""


@dataclass(slots=True)
class _Batch:
    """Runs that are being stored."""

    runs: Sequence[Finished]
    taken: int = 0
    dropped: int = 0
    """Of those taken, how many cannot be described."""


class HistoryWriter(Writer):
    """Stores runs in the files of `directory`, which it makes at the first write."""

    def __init__(
        self,
        directory: Path,
        *,
        host: Host,
        show_arguments: bool,
        max_age: float,
        max_bytes: int,
        retry: float,
        compared: Callable[[Series, float | None], object],
    ) -> None:
        """As for `History`."""
        self._directory = directory
        self._host = host
        self._show_arguments = show_arguments
        self._max_age = max_age
        self._max_bytes = max_bytes
        self._retry = retry
        self._compared = compared
        self.arrivals = Arrivals()
        """Wakes whoever waits for a run to be stored."""
        self._lock = threading.Lock()
        self._pending = Pending(PENDING)
        self._store: Store | None = None
        self._allowance = Allowance(SHARE, SAVED)
        self._written_at = time.monotonic()
        self._last_error = ""
        self._runs: int | None = None
        self._size_bytes: int | None = None
        self._errors = 0
        self._disruptions = dict.fromkeys(Reason, 0)
        self._last_disruption: Disruption | None = None

    # -- for any thread

    @property
    def last_error(self) -> str:
        """Why the files cannot be written; empty if they can."""
        return self._last_error

    @property
    def last_disruption(self) -> Disruption | None:
        """What last happened to the files."""
        with self._lock:
            return self._last_disruption

    def stats(self) -> HistoryStats:
        with self._lock:
            return HistoryStats(
                self._runs, self._size_bytes, self._errors, self._disruptions.copy()
            )

    def count(self, run: Finished) -> None:
        """Add the run to the sums of its pipeline and hour."""
        with self._lock:
            self._pending.sums(run.series, run.end).count(
                run.wall_seconds,
                run.cpu_seconds,
                run.not_overlapped_seconds,
                run.read_bytes,
                run.written_bytes,
                run.outcome,
                run.input_bytes,
            )

    # -- for the thread of the sink

    def write(self, runs: Sequence[Finished], *, last: bool) -> Written:
        """Store a batch of the runs, or with `last` all of them."""
        most, seconds = (len(runs), math.inf) if last else (BATCH, BATCH_SECONDS)
        with self._lock:
            pending, self._pending = self._pending, Pending(PENDING)
        self._written_at = time.monotonic()
        try:
            store = self._opened()
            began = time.thread_time()
            self._count_in(store, pending)
            batch = _Batch(runs[:most])
            for row in store.add(self._described(batch, began + seconds)):
                series = Series(pipeline=row.pipeline, nested=row.nested, unit=row.unit)
                self._compared(series, row.against_usual.times)
            store.trim()
            pause = min(self._allowance.use(time.thread_time() - began), LONGEST_PAUSE)
            rows, size_bytes = store.rows, store.size_bytes
        except Exception as error:
            with self._lock:
                self._errors += 1
                self._pending.add(pending)
            if not isinstance(error, OSError | sqlite3.Error):
                raise
            self._failed(error)
            # what was found of the run before is not true of these, which ended later
            for series in {run.series for run in runs}:
                self._compared(series, None)
            return Written(0, pause=self._retry)
        finally:
            self.arrivals.announce()  # also of a part that was stored before an error
        with self._lock:
            self._runs, self._size_bytes = rows, size_bytes
        if self._last_error:
            self._last_error = ""
            log.info("the history in %s can be written again", self._directory)
        return Written(batch.taken, batch.dropped, pause, self._room(batch, pause))

    def is_due(self) -> bool:
        """Something has happened to the files, or it is time to remove what is too old."""
        if time.monotonic() - self._written_at >= TRIM_EVERY:
            return True
        try:
            return bool(self._store and self._store.disrupted())
        except OSError:  # the next write reports it
            return True

    def close(self) -> None:
        with contextlib.suppress(OSError, sqlite3.Error):  # SQLite writes the log back next time
            self._close_store()

    def _room(self, batch: _Batch, pause: float) -> int:
        """How many runs can be written within `LONGEST_PAUSE`, or `LEAST`."""
        if not pause:
            return QUEUE
        # a batch that ended early shows how many one can take
        runs = batch.taken if batch.taken < len(batch.runs) else BATCH
        return min(QUEUE, max(LEAST, int(runs * LONGEST_PAUSE / pause)))

    def _opened(self) -> Store:
        """The store, with the files that are in their places now. Raises OSError, sqlite3.Error."""
        if self._store and self._store.disrupted():
            self._close_store()
        if self._store is None:
            self._store = Store(self._directory, max_age=self._max_age, max_bytes=self._max_bytes)
            if self._store.set_aside:
                self._disrupted(self._store.set_aside)
        return self._store

    def _disrupted(self, disruption: Disruption) -> None:
        with self._lock:
            self._disruptions[disruption.reason] += 1
            self._last_disruption = disruption

    def _count_in(self, store: Store, pending: Pending) -> None:
        """Move all sums into the store; any that it cannot take are lost, and logged.

        Raises OSError or sqlite3.Error if the file cannot be written: the rest stays in `pending`.
        """
        try:
            store.count(pending)
            pending.rows.clear()
        except (OSError, sqlite3.Error):
            raise
        except Exception:  # it would be so at each try, because of one of them
            log.exception("sums cannot be counted")
            with self._lock:
                self._errors += 1
            for (hour, series), sums in tuple(pending.rows.items()):
                alone = Pending(1)
                alone.rows[hour, series] = sums
                try:
                    store.count(alone)
                except (OSError, sqlite3.Error):
                    raise
                except Exception:
                    log.error("the sums of %s are lost (runs: %d)", series.pipeline, sums.runs)
                del pending.rows[hour, series]

    def _described(self, batch: _Batch, until: float) -> Iterator[Details]:
        """Take runs of the batch until this thread has used that CPU time: one at least."""
        for finished in batch.runs:
            batch.taken += 1
            try:
                run, timeline = finished.make()
                details = self._details(run, timeline)
            except Exception:
                log.exception("a run cannot be stored")
                batch.dropped += 1
                continue
            yield details
            if time.thread_time() >= until:
                return

    def _details(self, run: Run, timeline: Timeline) -> Details:
        readahead, found = run.readahead, findings(run, self._host)
        row = Summary(
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
            outcome=run.result,
            failure=brief_outcome(run),
            identity=run.identity.named if run.identity else {},
            trace_id=run.trace_id,
            input_bytes=run.input_bytes,
            input_exact=run.input_exact,
        )
        gains: dict[str, float] = {}
        for finding in found:  # the same at several stages: their gains may be the same seconds
            gains[finding.id] = max(gains.get(finding.id, 0.0), finding.expected_seconds)
        return Details(
            row,
            tuple(dict.fromkeys(stage.command for stage in run.stages)),
            pack(written(run, secrets=self._show_arguments)),
            pack([written(point) for point in timeline]),
            gains,
        )

    def _failed(self, error: OSError | sqlite3.Error) -> None:
        """Log the error if it is new, and close the file until the next try."""
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        reason = reason.lower()
        if reason != self._last_error:
            self._last_error = reason
            log.error(
                "the history in %s cannot be written: %s; pipelines are still observed, and writing"
                " is tried again every %g s (--state-directory names another directory,"
                " --no-history turns the history off)",
                self._directory,
                reason,
                self._retry,
            )
        if not isinstance(error, LogFullError):  # the files are as they should be
            with contextlib.suppress(OSError, sqlite3.Error):  # the reason is logged already
                self._close_store()

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store and (disruption := store.close()):
            self._disrupted(disruption)
