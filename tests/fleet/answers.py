# SPDX-License-Identifier: Apache-2.0
"""What each dashboard asks a Prometheus with a fleet, how long it takes, how much it answers."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from dashboard_files import FILES, Query, all_chosen, first_choices, load, panels, queries
from prometheus_server import Prometheus

from .storage import STEP, Fleet

__all__ = ["Answer", "answers", "filled", "near", "together"]

FILES_BY_TITLE = {load(file)["title"]: file for file in FILES}

#: Seconds that one query may take.
_PATIENCE = 300
#: Points that a graph of half a screen's width has.
_POINTS = 240
#: Requests that a browser has open to one server, by HTTP/1.1.
_AT_ONCE = 6


@dataclass(frozen=True)
class Answer:
    """Of one query."""

    query: Query
    url: str
    kind: str
    """Of the panel: ``table``, ``stat``; ``variable``."""
    folded: bool
    """It is asked only once a row of panels is opened."""
    seconds: float
    """CPU time of Prometheus: what it takes on an idle core."""
    wall: float
    """From asking to the last byte of the answer, however busy the host is."""
    size: int
    """Bytes, before compression."""
    series: int


def answers(
    prometheus: Prometheus, fleet: Fleet, only: str = "", **chosen: str
) -> Iterator[Answer]:
    """Sends every query of every dashboard, one after another, for the whole range.

    `only` is the name of a dashboard, such as ``Fleet``.
    """
    for file in FILES:
        board = load(file)
        if only not in board["title"]:
            continue
        known: dict[frozenset[str], dict[str, str]] = {}
        kinds = {panel["title"]: panel["type"] for panel in panels(board)}
        open_ones = {panel["title"] for panel in board["panels"] if panel["type"] != "row"}
        for query in queries(board):
            title = query.place.rpartition(" (")[0]
            kind = kinds.get(title, query.place.partition(" ")[0])
            if kind == "Run":
                continue  # the marks of the ends of runs are off at first
            names = re.findall(r"\$(\w+_\w+)", query.expr)
            hidden = frozenset(names) & frozenset(all_chosen())
            if hidden not in known:  # Grafana asks once
                known[hidden] = near(prometheus, query, fleet, chosen)
            rows = known[hidden]
            url = _address(prometheus, query, fleet, {**chosen, **rows})
            before, began = _cpu_seconds(prometheus), time.monotonic()
            body = _body(url)
            wall, cpu = time.monotonic() - began, _cpu_seconds(prometheus) - before
            folded = title in kinds and title not in open_ones
            data: Any = json.loads(body)["data"]
            series = len(data if isinstance(data, list) else data["result"])
            yield Answer(query, url, kind, folded, cpu, wall, len(body), series)


def together(found: Iterable[Answer]) -> float:
    """Seconds until all are answered again, if they are asked as by Grafana in a browser.

    First the variables, then what panels ask; of each, six at a time.
    """
    of_panels: list[str] = []
    of_variables: list[str] = []
    for one in found:
        (of_variables if one.kind == "variable" else of_panels).append(one.url)
    began = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE) as browser:
        for urls in (of_variables, of_panels):
            list(browser.map(_body, urls))
    return time.monotonic() - began


def _cpu_seconds(prometheus: Prometheus) -> float:
    text = _body(f"{prometheus.url}/metrics").decode()
    (found,) = re.findall(r"^process_cpu_seconds_total (\S+)$", text, re.MULTILINE)
    return float(found)


def _body(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_PATIENCE) as answer:
        found: bytes = answer.read()
    return found


def _address(prometheus: Prometheus, query: Query, fleet: Fleet, chosen: Mapping[str, str]) -> str:
    """What Grafana requests."""
    expr = filled(query, fleet, chosen)
    window = {"start": str(fleet.begin), "end": str(fleet.ends)}
    if query.kind == "variable":
        (label,) = query.labels
        path = f"label/{label}/values"
        parameters = {"match[]": expr, **window}
    elif query.kind == "range":
        step = max(STEP, 60 * fleet.minutes // _POINTS)
        path, parameters = "query_range", {"query": expr, "step": str(step), **window}
    else:
        path, parameters = "query", {"query": expr, "time": str(fleet.ends)}
    return f"{prometheus.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"


def near(
    prometheus: Prometheus, query: Query, fleet: Fleet, chosen: Mapping[str, str]
) -> dict[str, str]:
    """Of the hidden variables that the query has: what Grafana puts for the values of the rows."""
    found: dict[str, str] = {}
    for other in queries(load(FILES_BY_TITLE[query.dashboard])):
        name = other.place.removeprefix("variable ")
        if other.kind == "instant" and other.labels and f"${name}" in query.expr:
            (label,) = other.labels
            answer = prometheus.query(filled(other, fleet, chosen), fleet.ends)
            values = sorted({re.escape(each["metric"][label]) for each in answer})
            found[name] = f"({'|'.join(values)})".replace("\\", "\\\\")
    return found


def filled(query: Query, fleet: Fleet, chosen: Mapping[str, str]) -> str:
    """The query as Grafana sends it."""
    seconds = 60 * fleet.minutes
    values = {
        "__rate_interval": f"{4 * STEP}s",
        "__interval_ms": str(1000 * STEP),
        "__range": f"{seconds}s",
        "__range_s": str(seconds),
        **all_chosen(),
        **first_choices(),
        "pipeline": ".+" if 'pipeline=~"$pipeline"' in query.expr else "tar|zstd|rclone",
        **chosen,
    }
    return re.sub(r"\$([a-z_]\w*)", lambda found: values[found[1]], query.expr)
