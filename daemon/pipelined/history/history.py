# SPDX-License-Identifier: Apache-2.0
"""The history of finished runs, for the daemon, the API and the commands.

`History.sink` is the way in: its thread stores runs (`writer`). Reading goes past it, to the files.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Protocol, TypedDict, TypeVar, Unpack

from pipelined.analysis.machine import Host
from pipelined.answers.run import Compared
from pipelined.config import DEFAULT_HISTORY_AGE, DEFAULT_HISTORY_SIZE
from pipelined.errors import UserError
from pipelined.history.archive import Archive, NoHistoryError
from pipelined.history.conditions import Period
from pipelined.history.counted_runs import CountedRuns
from pipelined.history.files import Disruption
from pipelined.history.following import NOW, OLDEST, FinishedPage, read_page
from pipelined.history.jobs import NO_JOBS, JobsSummary, read_jobs
from pipelined.history.packing import unpack
from pipelined.history.pipeline_query import JOB_SORTS, SORTS
from pipelined.history.pipelines import NO_PIPELINES, PipelinesSummary, read_pipelines
from pipelined.history.rollup import HOUR, Counted, Sums
from pipelined.history.rows import Summary
from pipelined.history.run_query import Query
from pipelined.history.usual import AgainstUsual, against_usual
from pipelined.history.writer import QUEUE, HistoryStats, HistoryWriter
from pipelined.runs import Point, Run, Series, Timeline
from pipelined.runs.codec import read
from pipelined.runs.fields import Inline, Key
from pipelined.sinks import Sink

__all__ = ["History", "NoSuchRunError", "Recorded", "StoredRun", "none_of", "only_one"]

#: How long a disruption is shown to people (seconds).
SHOW_DISRUPTION = 7 * 86400.0
#: Pause after a failure to write (seconds).
RETRY = 10.0
#: How many runs a message names if an id is ambiguous.
SHOWN_IDS = 3
#: No run ends later (hours since 1970).
_LAST_HOUR = 1e12

T = TypeVar("T")


class NoSuchRunError(UserError):
    """The id that was given is that of no run, or of more than one."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A finished run as it was stored."""

    run: Annotated[Run, Inline()]
    timeline: Timeline
    host: Annotated[Host | None, Key("machine")] = None
    """The machine that it ran on; None: this one."""
    compared: Annotated[Compared, Inline()] = field(default_factory=Compared)
    """What was usual for it when it was stored."""

    @property
    def against_usual(self) -> AgainstUsual:
        """How it compares with earlier runs."""
        return against_usual(self.compared, self.run.wall_seconds, self.run.input_bytes)


class Span(TypedDict, total=False):
    """A time, and whose runs."""

    since: float | None
    """Unix time; the whole hour counts."""
    until: float | None
    """None: now. What is later is of a clock that was ahead."""
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
    ) -> PipelinesSummary: ...
    def jobs(
        self,
        *,
        search: str | None = None,
        sort: str = JOB_SORTS[0],
        limit: int = 100,
        **span: Unpack[Span],
    ) -> JobsSummary: ...
    def counted(self, **span: Unpack[Span]) -> CountedRuns: ...
    def run(self, which: str) -> StoredRun: ...


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
        compared: Callable[[Series, float | None], object] = lambda *_: None,
    ) -> None:
        """Nothing in `directory` is changed before `sink` starts: reading alone writes nothing.

        Command lines are stored only with `show_arguments`. Runs that ended more than `max_age`
        seconds ago are removed, and those of least worth if the files would exceed `max_bytes`.
        `retry`: seconds until writing is tried again after it failed. `compared` is called for each
        run that is stored, in the thread of the sink, with how many times as long as usual it took;
        None: that is not known.
        """
        self.directory = directory
        self._archive = Archive(directory)
        self._writer = HistoryWriter(
            directory,
            host=host,
            show_arguments=show_arguments,
            max_age=max_age,
            max_bytes=max_bytes,
            retry=retry,
            compared=compared,
        )
        self.sink = Sink("history", self._writer, room=QUEUE)
        """Where finished runs are put."""

    def check(self) -> None:
        """Find out whether it can be read. Raises UserError, NotPermittedError for this user."""
        self._read(self._archive.check, None)

    def runs(self, *, limit: int = 100, **searched: Unpack[Query]) -> list[Summary]:
        """The stored runs that match everything given, at most `limit`.

        `pipeline` is the whole signature, `command` the name of one stage, `finding` an id.
        `since` and `until` (Unix time) bound the start. `min_duration` is in seconds; `top_level`:
        inside no other run; `slower`: slower than usual; `failed`: have failed;
        `interrupted`: were; with both, either.
        `identity` is `NAME=VALUE`, or a value of any name. `sort` is one of `run_order.RUN_SORTS`,
        by default newest start first; `before` is the place of the last run in the previous list.
        Raises UserError.
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
    ) -> PipelinesSummary:
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

    def jobs(
        self,
        *,
        search: str | None = None,
        sort: str = JOB_SORTS[0],
        limit: int = 100,
        **span: Unpack[Span],
    ) -> JobsSummary:
        """What the pipelines of each job cost in the same hours as `rollup`, at most `limit` jobs.

        `search` is as for `pipelines`, `sort` one of `pipeline_query.JOB_SORTS`. Raises UserError.
        """
        period = _period(**span)
        return self._read(
            lambda: read_jobs(self._archive, period, search=search, sort=sort, limit=limit),
            NO_JOBS,
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

    def run(self, which: str, identity: str | None = None) -> StoredRun:
        """The run with this id, or the only one whose id begins so; ``last``: the last to end, of
        those that this identifies.

        Raises UserError: NoSuchRunError if there is no such run, or several.
        """
        if which == "last":
            last = self._read(partial(self._archive.last, identity), None)
            if last is None and identity:
                raise none_of(identity)
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
            timeline = tuple(read(Point, point) for point in points)
            return StoredRun(read(Run, described), timeline, compared=self.compared(run_id))
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise UserError(
                f"run {run_id} is stored in a form that this version cannot read: {error!r}"
            ) from None

    def finished(
        self,
        after: str = OLDEST,
        *,
        limit: int = 100,
        secrets: bool = False,
        wait: float = 0.0,
        given_up: Callable[[], bool] = lambda: False,
    ) -> FinishedPage:
        """Runs in the order of storing, at most `limit`, after a cursor (`following.as_cursor`).

        If there is none after a cursor, it is waited for, at most `wait` seconds, until
        `given_up` returns true, or until `stop_waiting`; there is never one after `NOW`. Command
        lines only with `secrets`. Raises UserError.
        """
        until, arrivals = time.monotonic() + wait, self._writer.arrivals
        while True:
            seen = arrivals.count
            page = self._page(after, limit, secrets)
            is_answer = page.runs or page.restarted or after == NOW
            if is_answer or not arrivals.wait(seen, until, given_up):
                return page

    def _page(self, after: str, limit: int, secrets: bool) -> FinishedPage:
        page = self._read(lambda: read_page(self._archive, after, limit, secrets=secrets), None)
        if page is None:
            raise UserError(f"the history in {self.directory} is just being made", "try again")
        return page

    def stop_waiting(self) -> None:
        """Whoever waits in `finished` gets an answer at once, now and from now on."""
        self._writer.arrivals.close()

    def compared(self, run_id: str) -> Compared:
        """What was usual for the run when it was stored. Raises UserError."""
        row = self._read(lambda: self._archive.row(run_id), None)
        return row.compared if row else Compared()

    def ids(self, prefix: str) -> list[str]:
        """Ids that begin with `prefix`: only some if there are many. Raises UserError."""
        return self._read(lambda: self._archive.ids(prefix, SHOWN_IDS + 1), [])

    def _read(self, read: Callable[[], T], nothing: T) -> T:
        """What `read` returns, or `nothing` while the daemon is about to make the file."""
        try:
            return read()
        except NoHistoryError:
            if error := self._writer.last_error:
                raise UserError(f"{self.directory} cannot be written: {error}") from None
            if not self.sink.started:  # only a daemon makes it
                raise
            return nothing

    def stats(self) -> HistoryStats:
        """How the writing goes."""
        return self._writer.stats()

    def disruption(self, now: Callable[[], float] = time.time) -> Disruption | None:
        """What last happened to the files, if that is not long ago."""
        last = self._writer.last_disruption
        return last if last and now() - last.time < SHOW_DISRUPTION else None


def _period(
    since: float | None = None,
    until: float | None = None,
    pipeline: str | None = None,
    unit: str | None = None,
) -> Period:
    until = time.time() if until is None else until
    return Period(
        None if since is None else math.floor(_within_reach(since / HOUR)),
        math.ceil(_within_reach(until / HOUR)),
        pipeline,
        unit,
    )


def _within_reach(hour: float) -> float:
    """The same, or the last one that SQLite knows as an integer."""
    return max(-_LAST_HOUR, min(_LAST_HOUR, hour))


def none_of(identity: str) -> NoSuchRunError:
    """The error if no run has ended that this identifies."""
    return NoSuchRunError(
        f"no run of {identity} has ended yet, or none is kept", "pipelined runs lists those of all"
    )


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
