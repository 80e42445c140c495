# SPDX-License-Identifier: Apache-2.0
"""What the pages of the history and of pipelines show: what was asked for, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from flask import request, url_for

from pipelined.analysis.identity_words import distinctions
from pipelined.errors import UserError
from pipelined.history.jobs import NO_JOBS
from pipelined.history.listing import Listing, list_lines
from pipelined.history.moments import moment
from pipelined.history.pipeline_query import DEFAULT_SINCE, GROUPS, JOB_SORTS, SORTS
from pipelined.history.pipelines import NO_PIPELINES
from pipelined.history.run_order import RUN_SORTS, as_place
from pipelined.web.query_parameters import as_bool, as_duration, as_limit, as_one_of, parameter
from pipelined.wording import step_words

if TYPE_CHECKING:
    from pipelined.history.history import History

__all__ = ["HISTORY_PARAMETERS", "PIPELINES_PARAMETERS", "history_page", "pipelines_page"]

T = TypeVar("T")

#: Lines on one page of the history, and pipelines on their page unless more are asked for.
_PAGE = 50
#: The most pipelines on one page.
_MOST_PIPELINES = 1000
#: Hidden runs that are counted, at most.
_MOST_COUNTED = 10_000
#: Text fields of the history's search form, in order: name, label, example.
_SEARCHED = (
    ("pipeline", "Pipeline", "cat|awk|sort"),
    ("command", "Command of a stage", "sort"),
    ("unit", "Unit", "nightly.service"),
    ("finding", "Finding", "barrier"),
    ("identity", "User, job, trace …", "SLURM_JOB_ID=4711"),
    ("since", "Since ({zone})", "2h, or 2026-11-21 03:00"),
    ("until", "Until ({zone})", "2026-11-22"),
    ("min_duration", "Least duration", "100ms by default"),
)
#: What is hidden unless something is searched for: short and nested runs would bury the others.
_HIDING = {"min_duration": "100ms", "top_level": "true"}
#: Fields that are a search.
_SEARCHES = frozenset({"pipeline", "command", "unit", "finding", "identity"}) | {
    *("slower", "failed", "interrupted")
}

HISTORY_PARAMETERS = (
    *(name for name, _, _ in _SEARCHED),
    "top_level",
    "slower",
    "failed",
    "interrupted",
    "sort",
    "before",
)
PIPELINES_PARAMETERS = ("by", "search", "unit", "since", "until", "sort", "limit")

#: When the last night began and ended (hours of the day).
_EVENING, _MORNING = 20, 8

#: What pipelines are sorted by, in words.
_SORT_WORDS = {
    "wall": "total time",
    "cpu": "CPU time",
    "not-overlapped": "time not overlapped",
    "runs": "number of runs",
    "slower": "last run against the usual",
    "failures": "failed runs",
}
#: What comes first in the history, in words.
_RUN_SORT_WORDS = {"start": "newest first", "wall": "longest first"}
#: What is summed up as one line, in words.
_GROUP_WORDS = {"pipeline": "By pipeline", "job": "By job"}


class _Link(NamedTuple):
    """To the same page over another time, or of other lines."""

    words: str
    path: str
    current: bool


def history_page(history: History | None) -> dict[str, Any]:
    """The values of the template of the history."""
    # A form also sends the fields that were left empty.
    asked = {name: text for name, text in request.args.items() if text}
    given = asked if asked.keys() & _SEARCHES else _HIDING | asked
    searched = _searched(given)
    sort = searched["sort"] or RUN_SORTS[0]
    listing, hidden, hides, problem = Listing([], None), 0, "", ""
    if history is None:
        problem = "The history is off: the daemon was started with --no-history."
    else:
        before = _value("before", as_place(sort), given)
        try:
            listing = list_lines(history, _PAGE, **searched, before=before)
            if hides := _hides(searched, given):
                hidden = history.hidden(**searched, most=_MOST_COUNTED + 1)
        except UserError as error:
            problem = f"The history cannot be read: {error}."
    first = {name: text for name, text in asked.items() if name != "before"}
    return {
        "searched": [
            (name, label.format(zone=_zone()), example) for name, label, example in _SEARCHED
        ],
        "asked": asked,
        "lines": listing.lines,
        "distinct": distinctions({line.run.id: line.run.identity for line in listing.lines}),
        "with_input": any(line.run.input_bytes is not None for line in listing.lines),
        "problem": problem,
        "off": history is None,
        "disruption": history and history.disruption(),
        "hidden": _count(hidden),
        "hides": hides,
        "everything": first | {"min_duration": "0", "top_level": "false"},
        "sort": sort,
        "sorts": _RUN_SORT_WORDS,
        "first": first,
        "next": asked | {"before": listing.before} if listing.before else None,
        "ranges": _ranges("pages.list_history", first, given),
    }


def _searched(given: Mapping[str, str]) -> dict[str, Any]:
    """What `History.runs` is asked for. Answers with status 400 if it is wrong."""
    return {
        **{
            name: given.get(name) for name in ("pipeline", "command", "unit", "finding", "identity")
        },
        "since": _value("since", moment, given),
        "until": _value("until", moment, given),
        "min_duration": _value("min_duration", as_duration, given),
        "top_level": _value("top_level", as_bool, given) or False,
        "slower": _value("slower", as_bool, given) or False,
        "failed": _value("failed", as_bool, given) or False,
        "interrupted": _value("interrupted", as_bool, given) or False,
        "sort": _value("sort", as_one_of(*RUN_SORTS), given),
    }


def _value(name: str, convert: Callable[[str], T], given: Mapping[str, str]) -> T | None:
    """A field, converted; None without it."""
    if name not in given:
        return None
    return parameter(name, convert, None) if request.args.get(name) else convert(given[name])


def _hides(searched: Mapping[str, Any], given: Mapping[str, str]) -> str:
    """What makes a run hidden, in words; nothing if none is."""
    hides = ["lie in another"] if searched["top_level"] else []
    if searched["min_duration"]:
        hides.append(f"took less than {given['min_duration']}")
    return " or ".join(hides)


def _count(number: int) -> str:
    """A number of runs, as far as they are counted; nothing if there is none."""
    if number > _MOST_COUNTED:
        return f"more than {_MOST_COUNTED:,} runs"
    return f"{number:,} {'run' if number == 1 else 'runs'}" if number else ""


def pipelines_page(history: History | None) -> dict[str, Any]:
    """The values of the template of pipelines."""
    asked = {name: text for name, text in request.args.items() if text or name == "since"}
    given = {name: text for name, text in ({"since": DEFAULT_SINCE} | asked).items() if text}
    by = _value("by", as_one_of(*GROUPS), given) or GROUPS[0]
    sorts = SORTS if by == "pipeline" else JOB_SORTS
    found, jobs, problem = NO_PIPELINES, NO_JOBS, ""
    if history is None:
        problem = "The history is off: the daemon was started with --no-history."
    else:
        searched: dict[str, Any] = {
            "search": given.get("search"),
            "unit": given.get("unit"),
            "since": _value("since", moment, given),
            "until": _value("until", moment, given),
            "sort": _value("sort", as_one_of(*sorts), given) or sorts[0],
            "limit": min(_value("limit", as_limit, given) or _PAGE, _MOST_PIPELINES),
        }
        try:
            if by == "pipeline":
                found = history.pipelines(**searched)
            else:
                jobs = history.jobs(**searched)
        except UserError as error:
            problem = f"The history cannot be read: {error}."
    more = min(found.matching, _MOST_PIPELINES)
    if jobs.more and len(jobs.listed) < _MOST_PIPELINES:
        more = min(2 * len(jobs.listed), _MOST_PIPELINES)
    return {
        "given": given,
        "by": by,
        "groups": _groups(asked, by),
        "found": found,
        "jobs": jobs,
        "lines": found.lines,
        "problem": problem,
        "off": history is None,
        "disruption": history and history.disruption(),
        "zone": _zone(),
        "sorts": {sort: _SORT_WORDS[sort] for sort in sorts},
        "times": {name: given[name] for name in ("since", "until") if name in given},
        "step": step_words(found.step),
        "with_input": found.with_input or jobs.with_input,
        "partial_input": any(0 < one.sums.input_runs < one.sums.runs for one in jobs.listed),
        "estimated": any(not one.exact for one in found.listed),
        "partly_known": any(one.sums.failed and one.sums.unknown for one in found.listed),
        "more": asked | {"limit": more} if more > len(found.listed) + len(jobs.listed) else None,
        "ranges": _ranges("pages.list_pipelines", asked, given),
    }


def _zone() -> str:
    """The host's time zone, by which times in a form are read; the browser's may be another."""
    return f"{datetime.now().astimezone():%Z}"


def _groups(asked: Mapping[str, str], by: str) -> list[_Link]:
    """Links to the same page with a line for each pipeline, or for each job."""
    # what it is sorted by, and how long it is, is of these lines
    others: dict[str, Any] = {
        name: text for name, text in asked.items() if name not in ("by", "sort", "limit")
    }
    return [
        _Link(_GROUP_WORDS[group], url_for("pages.list_pipelines", **others, by=group), group == by)
        for group in GROUPS
    ]


def _ranges(endpoint: str, asked: Mapping[str, str], given: Mapping[str, str]) -> list[_Link]:
    """Links to the same page over other times."""
    now = datetime.now()
    evening = (now if now.hour >= _EVENING else now - timedelta(days=1)).replace(hour=_EVENING)
    morning = (evening + timedelta(days=1)).replace(hour=_MORNING)
    times = (
        ("Last hour", "1h", ""),
        ("Today", f"{now:%Y-%m-%d}", ""),
        ("Last night", f"{evening:%Y-%m-%d %H}:00", f"{morning:%Y-%m-%d %H}:00"),
        ("7 days", "7d", ""),
        ("All", "", ""),
    )
    others = {name: text for name, text in asked.items() if name not in ("since", "until")}
    links = []
    for words, since, until in times:
        values: dict[str, Any] = others | {"since": since} | ({"until": until} if until else {})
        current = (given.get("since", ""), given.get("until", "")) == (since, until)
        links.append(_Link(words, url_for(endpoint, **values), current))
    return links
