# SPDX-License-Identifier: Apache-2.0
"""The pages for people: what runs now, the history, pipelines, one run, two runs side by side.

Finished runs are shown in full without a script. Templates are read when the first page is
requested: a daemon that is only scraped does not load them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, abort, jsonify, redirect, render_template, request, url_for
from markupsafe import Markup

from pipelined import __version__
from pipelined.analysis.bottleneck import has_several_threads, share
from pipelined.analysis.findings import findings
from pipelined.analysis.identity_words import identity_facts
from pipelined.analysis.machine import Host
from pipelined.analysis.outcome_words import exits
from pipelined.analysis.readahead_words import files
from pipelined.analysis.rewriting import Script
from pipelined.analysis.sentence import sentence
from pipelined.errors import UserError
from pipelined.history.history import NoSuchRunError
from pipelined.runs import STATES, Run, Stage
from pipelined.web.diagram import figures
from pipelined.web.history_api import find_run
from pipelined.web.long_json import one_at_a_time
from pipelined.web.over_time import chart_data, numbered, phase_table, unmarked
from pipelined.web.recorded_pages import (
    HISTORY_PARAMETERS,
    PIPELINES_PARAMETERS,
    history_page,
    pipelines_page,
)
from pipelined.wording import (
    STATE_WORDS,
    about,
    against_usual,
    at_port,
    cpu_share,
    data_size,
    duration,
    expected,
    input_size,
    mean_size,
    output_size,
    percent,
    run_input,
    saves,
)

if TYPE_CHECKING:
    from markdown_it.token import Token
    from werkzeug.wrappers import Response as AnyResponse

    from pipelined.analysis.comparison import Comparison
    from pipelined.history.history import History, StoredRun
    from pipelined.observer import Observer

__all__ = ["PARAMETERS", "REPEATABLE", "create_pages", "error_page"]

_SIDES = ("a", "b")

#: Query parameters by endpoint.
PARAMETERS = {
    "pages.list_history": HISTORY_PARAMETERS,
    "pages.list_pipelines": PIPELINES_PARAMETERS,
    "pages.compare": (*_SIDES, "run"),
    "pages.compare_as_json": _SIDES,
}
#: How often a parameter may be given, if more than once: the two runs that are checked in the
#: history.
REPEATABLE = {"run": 2}


@dataclass(frozen=True, slots=True)
class _Row:
    """A stage in the table of its run."""

    stage: Stage
    exit: str
    """How it ended if it has not succeeded."""
    states: str
    mean_read: str
    mean_write: str
    files: str
    """How many files it read, if several."""


def create_pages(
    observer: Observer, history: History | None, host: Host, *, show_arguments: bool
) -> Blueprint:
    """The pages, and `/api/v1/compare`, which has the data of the page of two runs.

    Without `history` only live and recent runs have a page. Findings are those for the machine
    `host`; command lines are shown only with `show_arguments`.
    """
    pages = Blueprint("pages", __name__)
    filters: dict[str, Callable[..., str]] = {
        "about": about,
        "expected": expected,
        "breakable": _breakable,
        "duration": duration,
        "saves": saves,
        "against_usual": lambda it: against_usual(*it),
        "percent": percent,
        "data_size": data_size,
        "input_size": input_size,
        "output_size": output_size,
        "run_input": run_input,
        "utc": _utc,
    }
    for name, format_value in filters.items():
        pages.add_app_template_filter(format_value, name)

    def find(which: str) -> StoredRun:
        try:
            return find_run(which, observer, history)
        except NoSuchRunError as error:
            abort(404, description=str(error))
        except UserError as error:
            abort(503, description=str(error))

    @pages.get("/")
    def now() -> str:
        return _page("now.html")

    @pages.get("/history")
    @one_at_a_time
    def list_history() -> str:
        return _page("history.html", **history_page(history))

    @pages.get("/pipelines")
    @one_at_a_time
    def list_pipelines() -> str:
        return _page("pipelines.html", **pipelines_page(history))

    @pages.get("/run/<which>")
    def run(which: str) -> str:
        return _run_page(find(which), host, show_arguments)

    @pages.get("/compare")
    def compare() -> str | AnyResponse:
        chosen = request.args.getlist("run")
        if len(chosen) == len(_SIDES):
            first, second = chosen
            return redirect(url_for("pages.compare", a=first, b=second), 303)
        if chosen or not set(_SIDES) <= request.args.keys():
            abort(400, description="choose two runs to compare; /history lists them")
        return _compare_page(_compared(find))

    @pages.get("/api/v1/compare")
    def compare_as_json() -> Response:
        from pipelined.analysis.comparison import comparison_as_dict  # as `_compared` has it

        if not set(_SIDES) <= request.args.keys():
            abort(400, description="give two runs: a=ID&b=ID; /api/v1/runs lists them")
        return jsonify(comparison_as_dict(_compared(find)))

    @pages.get("/findings")
    def documentation() -> str:
        return _page("findings.html", text=Markup(_documentation()))

    return pages


def error_page(code: int, message: str) -> str:
    """A page that shows what is wrong with a request."""
    return _page("error.html", code=code, message=message)


def _page(template: str, **values: Any) -> str:
    return render_template(template, version=__version__, **values)


def _run_page(found: StoredRun, host: Host, show_arguments: bool) -> str:
    run, timeline = found.run, found.timeline
    script = Script.of_arguments(run) if show_arguments else None
    listed = numbered(run, timeline, findings(run, host, script))
    identity = identity_facts(run.identity) if run.identity else []
    since_end = None if run.end is None else max(0.0, time.time() - run.end)
    return _page(
        "run.html",
        run=run,
        found=found,
        identity=identity,
        trace=None if any(fact.name == "trace" for fact in identity) else run.stored_trace_id,
        figures=figures(run),
        verdict=sentence(run),
        findings=listed,
        unmarked=unmarked(timeline, listed),
        phases=phase_table(run, timeline),
        rows=[_row(run, stage) for stage in run.stages],
        children=[stage for stage in run.stages if stage.children],
        show_arguments=show_arguments,
        data=chart_data(run, timeline, listed) | {"id": run.id, "seconds_since_end": since_end},
    )


def _row(run: Run, stage: Stage) -> _Row:
    wall = run.watched_seconds
    shares = {state: share(stage, state, wall) for state in STATES}
    largest = sorted((s for s in STATES if shares[s] >= 0.005), key=lambda s: -shares[s])
    return _Row(
        stage=stage,
        exit=exits([stage]),
        states=", ".join(
            f"{STATE_WORDS[state]} "
            + (at_port([stage.peer_port]) if state == "net" else "")
            + cpu_share(shares[state], state == "cpu" and has_several_threads(stage, wall))
            for state in largest
        ).replace(" %", "\N{NO-BREAK SPACE}%"),  # the column is narrow
        mean_read=mean_size(stage.read_bytes, stage.read_calls),
        mean_write=mean_size(stage.written_bytes, stage.write_calls),
        files=files(stage.readahead),
    )


def _compared(find: Callable[[str], StoredRun]) -> Comparison:
    """The two runs that the request names, side by side."""
    from pipelined.analysis.comparison import compare_runs  # 0.6 MB, seldom needed

    first, second = (find(request.args[name]).run for name in _SIDES)
    return compare_runs(first, second)


def _compare_page(comparison: Comparison) -> str:
    # as `_compared` has it
    from pipelined.analysis.comparison_rows import GROUPS, amount, is_worth_a_row, times

    longest = max(side.wall_seconds.median for side in comparison.sides)
    groups = {
        title: [
            row for row in comparison.rows if row.group == group and is_worth_a_row(row, longest)
        ]
        for group, title in GROUPS.items()
    }
    return _page(
        "compare.html",
        comparison=comparison,
        groups={title: rows for title, rows in groups.items() if rows},
        amount=amount,
        times=times,
        words=STATE_WORDS,
    )


@cache
def _documentation() -> str:
    """docs/FINDINGS.md as HTML, with the id of each finding on its heading; made once."""
    from markdown_it import MarkdownIt  # 0.9 MB, seldom needed

    text = resources.files("pipelined.web").joinpath("FINDINGS.md").read_text(encoding="utf-8")
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", inline.content.strip("`").lower().replace(" ", "-"))
    for token in tokens:
        if token.type == "th_open":
            token.attrSet("scope", "col")
        token.attrs.pop("style", None)  # of a column of numbers: the page forbids inline styles
        token.children = _without_dead_links(token.children)
    return str(parser.renderer.render(tokens, parser.options, {}))


def _without_dead_links(tokens: list[Token] | None) -> list[Token] | None:
    """Links to other pages in docs/ as plain text: those pages are not installed."""
    if tokens is None:
        return None
    kept, works = [], True
    for token in tokens:
        if token.type == "link_open":
            works = str(token.attrGet("href")).startswith(("#", "https:"))
        if works or token.type not in ("link_open", "link_close"):
            kept.append(token)
    return kept


def _breakable(pipeline: str) -> Markup:
    """A signature that continues on the next line after one of its commands."""
    return Markup("|<wbr>").join(pipeline.split("|"))


def _utc(seconds: float) -> str:
    """Unix time as ``2026-11-22 12:03:04 UTC``; a script on the page makes it local time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
