# SPDX-License-Identifier: Apache-2.0
"""Runs that one process has started: `/api/v1/started`, for `pipelined run` and `compare`.

The runs are described as in `/api/v1/pipelines`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flask import Blueprint, Response, abort

from pipelined.answers.run import Started
from pipelined.runs.codec import written
from pipelined.starter import Starter, boot_id
from pipelined.web.long_json import long_answer, one_at_a_time
from pipelined.web.query_parameters import as_bool, as_count, parameter

if TYPE_CHECKING:
    from pipelined.observer import Observer

__all__ = ["PARAMETERS", "create_started_api"]

#: Query parameters by endpoint.
PARAMETERS = {"started.started": ("by", "after", "settle")}


def create_started_api(observer: Observer, *, show_arguments: bool) -> Blueprint:
    api = Blueprint("started", __name__, url_prefix="/api/v1")

    @api.get("/started")
    @one_at_a_time
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
        answer = Started(
            observed_since=observer.opened,
            lost=observer.lost(),
            finished=found.finished,
            runs=(),
        )
        listed = map(partial(written, secrets=show_arguments), found.runs)
        return long_answer({**written(answer), "runs": listed})

    return api
