# SPDX-License-Identifier: Apache-2.0
"""Finished runs over HTTP: `/api/v1/runs` lists them, `/api/v1/runs/ID` returns one in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, abort, current_app, jsonify

from pipelined.errors import UserError
from pipelined.history.history import (
    NoSuchRunError,
    StoredRun,
    counted_as_dict,
    moment,
    only_one,
    summary_as_dict,
)
from pipelined.model.timeline import timeline_as_dict
from pipelined.schema import describe_run
from pipelined.web.query_parameters import as_limit, as_text, parameter

if TYPE_CHECKING:
    from pipelined.analysis.machine import Host
    from pipelined.history.history import History
    from pipelined.observer import Observer

__all__ = ["PARAMETERS", "create_history_api", "find_run"]

DEFAULT_LIMIT = 100
#: Longer lists are fetched page by page.
MAX_LIMIT = 1000

#: Search parameters that take text, each with an example.
_SEARCHED = {
    "pipeline": "a signature such as cat|awk|sort",
    "unit": "a unit such as nightly.service",
    "finding": "the id of a finding such as barrier",
    "command": "a command name such as sort",
    "before": "the next of the previous answer",
}

#: Query parameters by endpoint.
PARAMETERS = {"history.runs": (*_SEARCHED, "since", "until", "limit")}


def create_history_api(
    observer: Observer, history: History | None, host: Host, *, show_arguments: bool
) -> Blueprint:
    """Both paths. Without `history` only live and recent runs are found, and none is listed."""
    api = Blueprint("history", __name__, url_prefix="/api/v1")

    @api.get("/runs")
    def runs() -> Response:
        if history is None:
            abort(404, description="there is no history: the daemon runs with --no-history")
        limit = min(parameter("limit", as_limit, DEFAULT_LIMIT), MAX_LIMIT)
        searched = {
            name: parameter(name, as_text(example), None) for name, example in _SEARCHED.items()
        }
        since = parameter("since", moment, None)
        until = parameter("until", moment, None)
        try:
            # One more shows whether there are more.
            found = history.runs(**searched, since=since, until=until, limit=limit + 1)
            counted = _counted(history, searched, since, until)
        except UserError as error:
            abort(503, description=str(error))
        shown = found[:limit]
        # As text one by one: a thousand runs as objects would be several megabytes.
        dumps = current_app.json.dumps
        runs = ",".join([dumps(summary_as_dict(summary)) for summary in shown])
        next_id = dumps(shown[-1].id if len(found) > limit else None)
        text = f'{{"runs":[{runs}],"next":{next_id},"counted":{dumps(counted)}}}\n'
        return Response(text, mimetype="application/json")

    @api.get("/runs/<which>")
    def run(which: str) -> Response:
        try:
            found = find_run(which, observer, history)
        except NoSuchRunError as error:
            abort(404, description=str(error))
        except UserError as error:
            abort(503, description=str(error))
        return jsonify(
            {
                **describe_run(found.run, host, show_arguments, timeline=found.timeline),
                "timeline": timeline_as_dict(found.timeline),
            }
        )

    return api


def _counted(
    history: History, searched: dict[str, str | None], since: float | None, until: float | None
) -> dict[str, Any] | None:
    """How many runs there were since then; None without `since`, and on later pages.

    Also None if runs are searched by finding or command: those of a run that is not stored are
    not known.
    """
    known = {name: searched[name] for name in ("pipeline", "unit")}
    if since is None or any(searched[name] for name in searched.keys() - known.keys()):
        return None
    return counted_as_dict(history.counted(**known, since=since, until=until))


def find_run(which: str, observer: Observer, history: History | None) -> StoredRun:
    """A live or recent run, or else one of the history; `which` is as for `History.run`.

    Raises UserError: NoSuchRunError if there is no such run, or several.
    """
    observer.sweep()
    observed = {run.id: run for run in observer.runs()}
    if which == "last":
        ended = [run for run in observed.values() if not run.live]
        if not ended and history:
            return history.run(which)
        which = max(ended, key=lambda run: run.end or 0.0).id if ended else which
    if which in observed and (known := observer.timeline(which)) is not None:
        return StoredRun(observed[which], known)  # also while the history cannot be read
    stored = history.ids(which) if history else []
    run_id = only_one(
        which, [*(run_id for run_id in observed if run_id.startswith(which)), *stored]
    )
    timeline = observer.timeline(run_id)
    if history and run_id in stored and timeline is None:
        return history.run(run_id)
    # The observer no longer has its time line, and it is not in the history, or not yet.
    return StoredRun(observed[run_id], timeline or ())
