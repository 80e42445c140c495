# SPDX-License-Identifier: Apache-2.0
"""Finished runs over HTTP: `/api/v1/runs` lists them, `/api/v1/runs/ID` returns one in full.

`/api/v1/runs/finished` has them in the order of storing, and waits for the next ones.

`/api/v1/pipelines/summary` has what each pipeline cost over a time, `/api/v1/jobs/summary` what
each job cost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, abort, jsonify, request

from pipelined.answers.described import describe_stored_run
from pipelined.answers.run import Compared
from pipelined.errors import UserError
from pipelined.history.counted_runs import CountedRuns
from pipelined.history.following import OLDEST, FinishedPage, as_cursor
from pipelined.history.history import NoSuchRunError, StoredRun, none_of, only_one
from pipelined.history.moments import moment
from pipelined.history.pipeline_query import DEFAULT_SINCE, JOB_SORTS, SORTS
from pipelined.history.run_list import RunList
from pipelined.history.run_order import RUN_SORTS, as_place, recency
from pipelined.history.searched_identity import is_identified_by
from pipelined.http_port.connection import CLIENT_LEFT
from pipelined.runs.codec import written
from pipelined.web.front import MAX_WAITING
from pipelined.web.long_json import Json, long_answer, long_json, one_at_a_time
from pipelined.web.query_parameters import (
    as_bool,
    as_duration,
    as_limit,
    as_one_of,
    as_text,
    parameter,
)

if TYPE_CHECKING:
    from pipelined.analysis.machine import Host
    from pipelined.history.history import History
    from pipelined.observer import Observer
    from pipelined.runs import Run

__all__ = ["PARAMETERS", "create_history_api", "find_run"]

NO_HISTORY = "there is no history: the daemon runs with --no-history"

DEFAULT_LIMIT = 100
#: Longer lists are fetched page by page.
MAX_LIMIT = 1000
#: How long one of them waits at most (seconds).
MAX_WAIT = 60.0

#: Search parameters that take text, each with an example.
_SEARCHED = {
    "pipeline": "a signature such as cat|awk|sort",
    "unit": "a unit such as nightly.service",
    "finding": "the id of a finding such as barrier",
    "command": "a command name such as sort",
    "identity": "a value such as SLURM_JOB_ID=4711, or 4711",
}

#: Those of both lists.
_OF_PIPELINES = ("pipeline", "unit")

#: Query parameters by endpoint.
PARAMETERS = {
    "history.runs": (
        *_SEARCHED,
        *("since", "until", "min_duration", "top_level", "slower", "failed", "interrupted"),
        *("sort", "limit", "before"),
    ),
    "history.run": ("identity",),
    "history.finished": ("after", "limit", "wait"),
    "history.pipelines": (*_OF_PIPELINES, "search", "since", "until", "sort", "limit"),
    "history.jobs": (*_OF_PIPELINES, "search", "since", "until", "sort", "limit"),
}


def create_history_api(
    observer: Observer, history: History | None, host: Host, *, show_arguments: bool
) -> Blueprint:
    """These paths. Without `history` only live and recent runs are found, and none is listed."""
    api = Blueprint("history", __name__, url_prefix="/api/v1")
    places = threading.BoundedSemaphore(MAX_WAITING)

    @api.get("/runs")
    def runs() -> Response:
        if history is None:
            abort(404, description=NO_HISTORY)
        limit = min(parameter("limit", as_limit, DEFAULT_LIMIT), MAX_LIMIT)
        sort = parameter("sort", as_one_of(*RUN_SORTS), RUN_SORTS[0])
        searched = _texts(_SEARCHED) | {"before": parameter("before", as_place(sort), None)}
        since = parameter("since", moment, None)
        until = parameter("until", moment, None)
        min_duration = parameter("min_duration", as_duration, None)
        slower = parameter("slower", as_bool, False)
        failed = parameter("failed", as_bool, False)
        interrupted = parameter("interrupted", as_bool, False)
        try:
            # One more shows whether there are more.
            found = history.runs(
                **searched,
                since=since,
                until=until,
                min_duration=min_duration,
                top_level=parameter("top_level", as_bool, False),
                slower=slower,
                failed=failed,
                interrupted=interrupted,
                sort=sort,
                limit=limit + 1,
            )
            # How long a run took that is not stored is not known, nor its outcome.
            known = min_duration is None and not (slower or failed or interrupted)
            counted = _counted(history, searched, since, until) if known else None
        except UserError as error:
            abort(503, description=str(error))
        page = RunList.page(found, limit, counted, sort)
        answer = {**written(replace(page, runs=())), "runs": map(written, page.runs)}
        return Response(long_json(answer) + "\n", mimetype="application/json")

    @api.get("/runs/finished")
    def finished() -> Response:
        if history is None:
            abort(404, description=NO_HISTORY)
        wait = min(parameter("wait", as_duration, 0.0), MAX_WAIT)
        may_wait = wait > 0 and request.method != "HEAD" and places.acquire(blocking=False)
        try:
            page = history.finished(
                parameter("after", as_cursor, OLDEST),
                limit=min(parameter("limit", as_limit, DEFAULT_LIMIT), MAX_LIMIT),
                secrets=show_arguments,
                wait=wait if may_wait else 0.0,
                given_up=request.environ.get(CLIENT_LEFT, lambda: False),
            )
        except UserError as error:
            abort(503, description=str(error))
        finally:
            if may_wait:
                places.release()
        return Response(_finished_json(page, host) + "\n", mimetype="application/json")

    @api.get("/pipelines/summary")
    @one_at_a_time
    def pipelines() -> Response:
        if history is None:
            abort(404, description=NO_HISTORY)
        try:
            found = history.pipelines(**_summed_up(SORTS))
        except UserError as error:
            abort(503, description=str(error))
        listed = map(written, found.listed)
        return long_answer({**written(replace(found, listed=())), "pipelines": listed})

    @api.get("/jobs/summary")
    @one_at_a_time
    def jobs() -> Response:
        if history is None:
            abort(404, description=NO_HISTORY)
        try:
            found = history.jobs(**_summed_up(JOB_SORTS))
        except UserError as error:
            abort(503, description=str(error))
        listed = map(written, found.listed)
        return long_answer({**written(replace(found, listed=())), "jobs": listed})

    @api.get("/runs/<which>")
    def run(which: str) -> Response:
        identity = parameter("identity", as_text(_SEARCHED["identity"]), None)
        if identity and which != "last":
            abort(400, description="identity goes with last: an id names one run")
        try:
            found = find_run(which, observer, history, identity)
        except NoSuchRunError as error:
            abort(404, description=str(error))
        except UserError as error:
            abort(503, description=str(error))
        return jsonify(
            describe_stored_run(found.run, host, found.timeline, show_arguments, found.compared)
        )

    return api


def _finished_json(page: FinishedPage, host: Host) -> str:
    """A `FinishedRunsJson`."""
    return long_json(
        {
            "runs": map(Json, page.runs),
            "next": page.next,
            "more": page.more,
            "missing": page.missing,
            "machine": written(host),
            "restarted": page.restarted,
        }
    )


def _summed_up(sorts: tuple[str, ...]) -> dict[str, Any]:
    """What is asked of pipelines or jobs over a time, sorted by one of `sorts`."""
    return {
        **_texts({name: _SEARCHED[name] for name in _OF_PIPELINES}),
        "search": parameter("search", as_text("a part of a signature or unit"), None),
        "since": parameter("since", moment, moment(DEFAULT_SINCE)),
        "until": parameter("until", moment, None),
        "sort": parameter("sort", as_one_of(*sorts), sorts[0]),
        "limit": min(parameter("limit", as_limit, DEFAULT_LIMIT), MAX_LIMIT),
    }


def _texts(examples: Mapping[str, str]) -> dict[str, Any]:
    """The parameters that take text; None where one is not given."""
    return {name: parameter(name, as_text(example), None) for name, example in examples.items()}


def _counted(
    history: History, searched: dict[str, Any], since: float | None, until: float | None
) -> CountedRuns | None:
    """How many runs there were since then; None without `since`, and on later pages.

    Also None if runs are searched by finding, command or identity: those of a run that is not
    stored are not known.
    """
    known = {name: searched[name] for name in ("pipeline", "unit")}
    if since is None or any(searched[name] for name in searched.keys() - known.keys()):
        return None
    return history.counted(**known, since=since, until=until)


def find_run(
    which: str, observer: Observer, history: History | None, identity: str | None = None
) -> StoredRun:
    """A live or recent run, or else one of the history; the arguments are as for `History.run`.

    Raises UserError: NoSuchRunError if there is no such run, or several.
    """
    observer.sweep()
    observed = {run.id: run for run in observer.runs()}
    if which == "last":
        ended = [run for run in observed.values() if not run.live and _is_of(run, identity)]
        if not ended and history:
            return history.run(which, identity)
        if not ended and identity:
            raise none_of(identity)
        now = time.time()
        which = max(ended, key=lambda run: recency(run.end or 0.0, now)).id if ended else which
    if which in observed and (known := observer.timeline(which)) is not None:
        # also while the history cannot be read
        return StoredRun(observed[which], known, compared=_compared(observed[which], history))
    stored = history.ids(which) if history else []
    run_id = only_one(
        which, [*(run_id for run_id in observed if run_id.startswith(which)), *stored]
    )
    timeline = observer.timeline(run_id)
    if history and run_id in stored and timeline is None:
        return history.run(run_id)
    # The observer no longer has its time line, and it is not in the history, or not yet.
    run = observed[run_id]
    return StoredRun(run, timeline or (), compared=_compared(run, history))


def _compared(run: Run, history: History | None) -> Compared:
    """What was usual for a run that is observed, if it is stored by now."""
    if history is None or run.live:
        return Compared()
    try:
        return history.compared(run.id)
    except UserError:  # what is observed is shown without
        return Compared()


def _is_of(run: Run, identity: str | None) -> bool:
    """Whether a run is searched by what is to identify it, if anything is."""
    if identity is None:
        return True
    return run.identity is not None and is_identified_by(run.identity.named, identity)
