# SPDX-License-Identifier: Apache-2.0
"""Runs that one process has started: `/api/v1/started`, for `pipelined run` and `compare`.

The runs are described as in `/api/v1/pipelines`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, Response, abort, jsonify

from pipelined.schema import run_as_dict
from pipelined.starter import Starter, boot_id
from pipelined.web.query_parameters import as_bool, as_count, parameter

if TYPE_CHECKING:
    from pipelined.answers.lists import StartedJson
    from pipelined.observer import Observer

__all__ = ["PARAMETERS", "create_started_api"]

#: Query parameters by endpoint.
PARAMETERS = {"started.started": ("by", "after", "settle")}


def create_started_api(observer: Observer, *, show_arguments: bool) -> Blueprint:
    api = Blueprint("started", __name__, url_prefix="/api/v1")

    @api.get("/started")
    def started() -> Response:
        by = parameter("by", Starter.parse, None)
        if by is None:
            abort(400, description="give the process: by=BOOT_ID:PID:START_TICKS")
        boot, starter = by
        if boot != boot_id():
            abort(409, description="this daemon watches another host, or the host has booted since")
        after = parameter("after", as_count, 0)
        if parameter("settle", as_bool, False):
            observer.settle(starter)
        else:
            observer.sweep()
        found = observer.started(starter, after)
        answer: StartedJson = {
            "observed_since_timestamp_seconds": observer.opened,
            "lost": dict(observer.lost()),
            "finished_runs": found.finished,
            "runs": [run_as_dict(run, show_arguments) for run in found.runs],
        }
        return jsonify(answer)

    return api
