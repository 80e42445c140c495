# SPDX-License-Identifier: Apache-2.0
"""What the live page shows: `/api/v1/now`, and as server-sent events `/api/v1/events`.

It is computed at most once a second, however many clients there are. A stream holds a thread of
the server, so there are few of them; a client too many is refused, and asks for `/api/v1/now`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, request
from werkzeug.exceptions import ServiceUnavailable

from pipelined.analysis.identity_words import Distinctions, distinctions
from pipelined.analysis.machine import Host
from pipelined.analysis.sentence import beginning
from pipelined.answers.described import describe_run
from pipelined.history.run_order import recency
from pipelined.http_port.server import STOPPING
from pipelined.model.difference import difference
from pipelined.model.short_runs import SHORT, WINDOW
from pipelined.nesting import Line, first_lines, in_order, nested_lines
from pipelined.runs import Run
from pipelined.web.diagram import diagram, figures
from pipelined.web.front import MAX_STREAMS
from pipelined.wording import duration

if TYPE_CHECKING:
    from pipelined.observer import Observer
from pipelined.web.long_json import long_json

__all__ = ["MAX_LIVE", "MAX_RECENT", "MAX_STREAMS", "Moment", "Now", "create_events"]

#: Lines in one event: live runs as diagrams, finished ones as figures.
MAX_LIVE = 60
MAX_RECENT = 20
#: Pipelines of short runs that are named in one event.
MAX_SHORT = 20
#: Finished runs that are kept for the lines, so that short ones do not push them out.
_KEPT = 100
#: Younger runs are not drawn: they would disappear before anybody could read them (seconds).
MIN_AGE = SHORT
#: Seconds from one event to the next, and from the last event to a heartbeat.
PACE = 1.0
HEARTBEAT = 5.0
#: Computing events may take this share of one core; if it takes more, they are sent less often.
_SHARE = 0.05
#: A diagram shows the time since the last one, unless that is longer ago than this (seconds).
_STALE = 5.0
#: Seconds after which a client that was refused may try again.
_RETRY_AFTER = 30


@dataclass(frozen=True, slots=True)
class Moment:
    """What the live page shows at one time."""

    live: bool
    """At least one run was drawn."""
    finished: tuple[object, ...]
    """What it says of finished runs, in short: differs from the last moment's if that is new."""
    text: str
    """All of it as JSON, in one line."""


class Now:
    """Computes what the live page shows. May be called from any thread."""

    def __init__(
        self, observer: Observer, host: Host, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._observer = observer
        self._host = host
        self._clock = clock
        self._lock = threading.Lock()
        self._moment: Moment | None = None
        self._taken = float("-inf")
        self._until = float("-inf")
        self._before: Mapping[str, Run] = {}
        self._finished: Sequence[Run] = ()
        self._described: Mapping[str, tuple[Run, dict[str, Any]]] = {}

    def moment(self) -> Moment:
        """The current moment, or the last one if it is at most `PACE` seconds old."""
        with self._lock:
            began = self._clock()
            if self._moment is None or began >= self._until:
                if began - self._taken > _STALE:
                    self._before = {}
                worked = time.thread_time()
                self._moment = self._compute()
                self._taken = began
                self._until = began + max(PACE, (time.thread_time() - worked) / _SHARE)
            return self._moment

    def _compute(self) -> Moment:
        self._observer.sweep()
        runs = self._observer.runs()
        live, ended = in_order(_with_kept(self._finished, runs))
        live = [run for run in live if run.wall_seconds >= MIN_AGE]
        today = time.time()
        ended.sort(key=lambda run: recency(run.end or 0.0, today), reverse=True)
        self._finished = [run for run in ended if run.wall_seconds >= MIN_AGE][:_KEPT]
        recent = nested_lines(first_lines(self._finished, MAX_RECENT))
        shown = nested_lines(live[:MAX_LIVE])  # a run that encloses others has begun before them
        short = _short_runs(self._observer.short_runs())
        # A finished run is the same object each time: its figures are computed once.
        self._described = {line.run.id: self._once(line.run) for line in recent}
        listed = [line.run for line in (*shown, *recent)]
        distinct = distinctions({run.id: run.identity.named for run in listed if run.identity})
        shown_now = {
            "sweep_timestamp_seconds": self._observer.sweep_stats.last_time,
            "live_runs": len(live),
            "recent": [
                {**self._described[line.run.id][1], **_in_list(line, distinct)} for line in recent
            ],
            "short": short,
            "live": ({**self._diagrams(line.run), **_in_list(line, distinct)} for line in shown),
        }
        text = long_json(shown_now)
        self._before = {line.run.id: line.run for line in shown}
        lines = tuple((line.run.id, *_in_list(line, distinct).values()) for line in recent)
        return Moment(bool(shown), (*lines, short["sentence"]), text)

    def _once(self, run: Run) -> tuple[Run, dict[str, Any]]:
        known = self._described.get(run.id)
        return known if known and known[0] is run else (run, self._describe(run))

    def _describe(self, run: Run) -> dict[str, Any]:
        described = dict(describe_run(run, self._host))
        for key in ("stages", "edges", "endpoints"):
            del described[key]
        return {**described, "figures": figures(run)}

    def _diagrams(self, run: Run) -> dict[str, Any]:
        before = self._before.get(run.id)
        lately = difference(run, before) if before else None
        described = self._describe(run)
        return {
            **described,
            "age": duration(run.wall_seconds),
            "short_verdict": beginning(described["verdict"]),
            "now": diagram(lately or run, run),
            "whole": diagram(run),
        }


def _with_kept(kept: Iterable[Run], runs: Iterable[Run]) -> Iterable[Run]:
    """`runs`, and those that were `kept` and are no longer among them."""
    return {run.id: run for run in (*kept, *runs)}.values()


def _short_runs(counted: Mapping[str, int]) -> dict[str, Any]:
    """The line that sums up short runs, and the pipelines that had most of them."""
    most = sorted(counted.items(), key=lambda entry: (-entry[1], entry[0]))[:MAX_SHORT]
    runs = sum(counted.values())
    return {
        "seconds": WINDOW,
        "runs": runs,
        "sentence": _short_sentence(runs, len(counted), *most[0]) if most else "",
        "pipelines": [{"pipeline": pipeline, "runs": count} for pipeline, count in most],
    }


def _short_sentence(runs: int, pipelines: int, most_often: str, times: int) -> str:
    text = f"In the last minute {runs:,} {'run' if runs == 1 else 'runs'} of less than 1 s"
    if pipelines == 1:
        return f"{text}: {most_often}."
    return f"{text}, of {pipelines:,} pipelines; most often {most_often} ({times:,})."


def _in_list(line: Line[Run], distinct: Distinctions) -> dict[str, int | str]:
    """Where the line stands in its list, what it stands for, and what tells it from others."""
    return {
        "depth": line.depth,
        "runs": line.runs,
        "incomplete_runs": line.incomplete,
        "distinction": distinct.words(line.run.id),
    }


def create_events(observer: Observer, host: Host) -> Blueprint:
    """`/api/v1/now` and `/api/v1/events`; findings are those for the machine `host`."""
    events = Blueprint("events", __name__, url_prefix="/api/v1")
    now = Now(observer, host)
    free = threading.BoundedSemaphore(MAX_STREAMS)

    @events.get("/now")
    def current() -> Response:
        return Response(now.moment().text + "\n", mimetype="application/json")

    @events.get("/events")
    def stream() -> Response:
        response = Response(mimetype="text/event-stream")
        if request.method == "HEAD":
            return response
        if not free.acquire(blocking=False):
            raise ServiceUnavailable(
                f"{MAX_STREAMS} clients follow already; ask for /api/v1/now",
                retry_after=_RETRY_AFTER,
            )
        stopping = request.environ.get(STOPPING) or threading.Event()
        response.response = _stream(now, stopping)
        response.call_on_close(free.release)  # also called if the stream was never started
        return response

    return events


def _stream(
    now: Now, stopping: threading.Event, clock: Callable[[], float] = time.monotonic
) -> Iterator[bytes]:
    """An event whenever something is new, and a heartbeat if nothing was for a while."""
    sent: tuple[object, ...] | None = None
    seen: Moment | None = None
    last = clock()
    while not stopping.is_set():
        moment = now.moment()
        # If computing a moment takes long, there is not a new one every time.
        if moment is not seen and (moment.live or moment.finished != sent):
            # After live runs there is one more event, which shows that the last one has ended.
            sent = None if moment.live else moment.finished
            last = clock()
            yield f"event: now\ndata: {moment.text}\n\n".encode()
        elif clock() - last >= HEARTBEAT:
            last = clock()
            yield b"event: heartbeat\ndata: {}\n\n"
        else:
            yield b":\n\n"  # no event: only a write detects that the client has gone
        seen = moment
        stopping.wait(PACE)
