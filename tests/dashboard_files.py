# SPDX-License-Identifier: Apache-2.0
"""The dashboards as Grafana reads them: their JSON, and every query that it would send."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIRECTORY = ROOT / "dashboards"
FILES = sorted(DIRECTORY.glob("*.json"))
METRICS = ROOT / "docs" / "METRICS.md"

_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_LABEL_VALUES = re.compile(r"label_values\((.*), (\w+)\)", re.DOTALL)
_QUERY_RESULT = re.compile(r"query_result\((.*)\)", re.DOTALL)
#: What a table's query asks for, cut down to the rows of the table: to those that rank highest in
#: another query, or in itself, or to those that a hidden variable names.
_NARROWED = (
    re.compile(
        r"\(\n(?P<own>.*)\n\)\nand on \((?P<by>[^)]*)\)\ntopk\(50,\n(?P<rank>.*)\n\)", re.DOTALL
    ),
    re.compile(r"topk\(50,\n(?P<own>(?P<rank>.*))\n\)", re.DOTALL),
    re.compile(
        r'label_replace\(\nlabel_join\(\n(?P<own>.*)\n, "row", " ", (?P<names>[^)]*)\)'
        r'\n, "row", "", "row", "\$(?P<rows>\w+)"\)\nand on \(row\) vector\(1\)',
        re.DOTALL,
    ),
)
#: A sum over sums that are made by more labels.
_OUTERMOST = re.compile(r"\w+ by \(([^)]*)\) \(\n")
#: The label whose values a variable takes of the answer to its query.
_FOUND = re.compile(r'/(\w+)="')
_METRIC = re.compile(
    r"(?<![\w:])(?:pipelined|process|scrape)_\w+(?=\{)|\bup(?=\{)|\bALERTS\w*(?=\{)"
)
_RECORDED = re.compile(r"\b\w+:pipelined_\w+:\w+(?=[{\[])")
_BY = re.compile(r"\bby \(([^)]*)\)")
#: What Prometheus writes of the alerts that are pending or fire: absent while all is well.
_OF_ALERTS = frozenset({"ALERTS", "ALERTS_FOR_STATE"})


@dataclass(frozen=True)
class Query:
    """One query that a dashboard sends."""

    dashboard: str
    place: str
    """The panel's title and the query's letter; or the variable, or the annotation."""
    expr: str
    kind: str
    """``instant`` or ``range``; ``variable``, which asks for values of its one label."""
    labels: frozenset[str]
    """What the legend, the transformations, the annotation or the variable read of the result."""

    @property
    def metrics(self) -> set[str]:
        """The metrics that it asks for, as docs/METRICS.md has them."""
        return {_family(name) for name in _METRIC.findall(self.expr)}

    @property
    def recorded(self) -> set[str]:
        """The series that it asks for of those that rules record."""
        return set(_RECORDED.findall(self.expr))

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.place}"


def load(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """All, those in collapsed rows too, but not the headings of rows."""
    return [
        panel
        for placed in dashboard["panels"]
        for panel in (placed.get("panels", []) if placed["type"] == "row" else [placed])
    ]


def queries(dashboard: dict[str, Any]) -> Iterator[Query]:
    """Everything that the dashboard asks Prometheus for."""
    title = dashboard["title"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            place = f"variable {variable['name']}"
            if asked := _QUERY_RESULT.fullmatch(variable["query"]):
                found = frozenset(_FOUND.findall(variable["regex"]))
                yield Query(title, place, asked[1], "instant", found)
                continue
            match = _LABEL_VALUES.fullmatch(variable["query"])
            assert match, variable["query"]
            yield Query(title, place, match[1], "variable", frozenset({match[2]}))
    for mark in dashboard["annotations"].get("list", []):
        text = " ".join(mark[key] for key in ("titleFormat", "textFormat"))
        labels = {*_LEGEND.findall(text), *mark["tagKeys"].split(",")}
        yield Query(title, mark["name"], mark["expr"], "range", frozenset(labels))
    for panel in panels(dashboard):
        for target in panel["targets"]:
            place = f"{panel['title']} ({target['refId']})"
            labels = set(_LEGEND.findall(target.get("legendFormat", "")))
            labels |= _transformed(panel, target["expr"])
            kind = "instant" if target["instant"] else "range"
            yield Query(title, place, target["expr"], kind, frozenset(labels))


@cache
def all_chosen() -> dict[str, str]:
    """Every variable of which all values can be chosen, with all of them."""
    variables = [v for file in FILES for v in load(file)["templating"]["list"]]
    return {v["name"]: ".+" for v in variables if v.get("includeAll")}


@cache
def first_choices() -> dict[str, str]:
    """Every variable with fixed choices, with the one that it has at first."""
    variables = [v for file in FILES for v in load(file)["templating"]["list"]]
    return {v["name"]: v["current"]["value"] for v in variables if v["type"] == "custom"}


def _transformed(panel: dict[str, Any], expr: str) -> set[str]:
    """The labels that the panel's transformations ask for in the answer to one of its queries."""
    found: set[str] = set()
    for step in panel.get("transformations", []):
        options = step["options"]
        if step["id"] == "organize":
            # A table's queries need not all have all labels: the merged rows do.
            own = narrowed(expr)["own"]
            outer = _OUTERMOST.match(own)
            by = set(outer[1].split(", ")) if outer else grouped_by(own)
            found |= {name for name in options["renameByName"] if name in by}
        elif step["id"] == "groupingToMatrix":
            found |= {options["rowField"], options["columnField"]}
        elif step["id"] == "sortBy":
            found |= {one["field"] for one in options["sort"] if "Value" not in one["field"]}
        else:
            assert step["id"] == "merge", step
    return found


def narrowed(expr: str) -> dict[str, str]:
    """Of a table's query what it asks for (`own`), and what cuts that down to the table's rows.

    That is the query that ranks them (`rank`), or the variable that holds them (`rows`). Neither,
    if what it asks for has these rows only.
    """
    found = next(filter(None, (form.fullmatch(expr) for form in _NARROWED)), None)
    return found.groupdict() if found else {"own": expr}


def grouped_by(expr: str) -> set[str]:
    """The labels by which a query sums up."""
    return {name for by in _BY.findall(expr) for name in by.split(", ")}


@cache
def documented() -> dict[str, str]:
    """Metric of docs/METRICS.md, but those of the sender → what it says: of its section, of it."""
    found = {}
    for section in METRICS.read_text().split("\n## ")[1:]:
        if section.startswith("The sender\n"):
            continue
        of_all = section.split("\n| metric |")[0]
        for line in section.splitlines():
            first = re.match(r"\| (`pipelined_[^|]+) \||### (`\w+`)$", line)
            for name in re.findall(
                r"`(\w+)`", "".join(filter(None, first.groups())) if first else ""
            ):
                assert name not in found, name
                found[name] = f"{of_all}\n{line}"
    return found


@cache
def may_be_absent() -> set[str]:
    """Metrics of what a host may not have, or not do: hooks of functions, TLS, alerts."""
    return _OF_ALERTS | {
        name
        for name, text in documented().items()
        if "Only where the `functions` tier is on" in text
        or "Absent on hosts where no hook can see them" in text
        or "Absent without TLS" in text
        or "Absent without such reads" in text
    }


@cache
def _family(name: str) -> str:
    known = documented()
    stem = re.sub(r"_(bucket|sum|count)$", "", name)
    return stem if stem in known and name not in known else name
