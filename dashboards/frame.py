# SPDX-License-Identifier: Apache-2.0
"""What all dashboards have around their panels: variables, links to the others, annotations."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from .panels import DATA_SOURCE
from .queries import HOSTS, Scope

__all__ = [
    "TO_HOST",
    "TO_PAGE",
    "TO_PIPELINE",
    "TO_TRACES",
    "UID",
    "Row",
    "framed",
    "one",
    "some",
    "traces_variable",
    "unit_variable",
]

TAG = "pipelined"
#: The schema of Grafana 11.0. Newer ones bring it up to theirs when they load it.
SCHEMA_VERSION = 39

#: Where a dashboard is found: /d/UID. Its title is "Pipelined / NAME".
UID = {
    "Overview": "pipelined-overview",
    "Pipeline": "pipelined-pipeline",
    "Disk and readahead": "pipelined-disk",
    "Fleet": "pipelined-fleet",
    "Itself": "pipelined-itself",
}


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading; the first row of a dashboard has none."""

    title: str
    panels: Sequence[Builder[model.Panel]]
    collapsed: bool = False
    """Shown, and queried, only after a click on the heading."""


def _address(name: str, *chosen: str) -> str:
    """The address of a dashboard, with values chosen for its variables, and the time shown."""
    parameters = (*chosen, "${datasource:queryparam}", "${job:queryparam}", "${__url_time_range}")
    return f"/d/{UID[name]}?{'&'.join(parameters)}"


#: What a click on a table's cell opens: title and address.
TO_PIPELINE = (
    "Show this pipeline",
    _address(
        "Pipeline",
        "var-pipeline=${__value.raw:percentencode}",
        "var-unit=${__data.fields.Unit:percentencode}",
        "var-instance=${__data.fields.Instance:percentencode}",
    ),
)
TO_HOST = (
    "Show this host",
    _address("Overview", "var-instance=${__value.raw:percentencode}", "${unit:queryparam}"),
)
TO_PAGE = ("Open the page of its daemon", "http://${__value.raw}/")

_RUNS_OF_UNIT = (
    '{ name = "${pipeline:percentencode}" && span.pipelined.unit = "${__value.raw:percentencode}" }'
)
_SEARCH = {
    "runs": {
        "datasource": "${traces}",
        "queries": [{"refId": "A", "queryType": "traceql", "query": _RUNS_OF_UNIT}],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
}


def _encoded(text: str) -> str:
    """For an address, but for what Grafana fills in."""
    parts = re.split(r"(\$\{[^}]*\})", text)
    return "".join(part if part.startswith("${") else quote(part, safe="") for part in parts)


#: What a click on a unit opens, where a pipeline is chosen (`traces_variable`).
TO_TRACES = (
    "Search its runs in Tempo",
    f"/explore?schemaVersion=1&panes={_encoded(json.dumps(_SEARCH, separators=(',', ':')))}",
)


def framed(
    name: str,
    description: str,
    rows: Sequence[Row],
    *,
    variables: Sequence[dash.QueryVariable | dash.DatasourceVariable] = (),
    run_ends: Scope | None = None,
) -> model.Dashboard:
    """A dashboard. `variables` come after data source, job and instance.

    The ends of the runs of `run_ends` can be marked, with a switch above the dashboard: it is
    off at first, because the marks of a frequent pipeline cover the graphs.
    """
    builder = dash.Dashboard(f"Pipelined / {name}").uid(UID[name]).description(description)
    builder.tags([TAG]).readonly().timezone("browser").refresh("1m").time("now-12h", "now")
    builder.tooltip(model.DashboardCursorSync.CROSSHAIR)
    builder.link(
        dash.DashboardLink("Other dashboards")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .tooltip("The other dashboards, with the same variables and time")
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
    builder.with_variable(
        dash.DatasourceVariable("datasource").label("Data source").type("prometheus")
    )
    builder.with_variable(some("job", "Job", "pipelined_build_info"))
    of_job = Scope(('job=~"$job"',)).select("pipelined_build_info")
    builder.with_variable(some("instance", "Instance", of_job))
    for variable in variables:
        builder.with_variable(variable)
    if run_ends:
        builder.annotation(_RunEnds(run_ends))
    for row in rows:
        _place(builder, row)
    built = builder.build()
    built.schema_version = SCHEMA_VERSION
    _close_up(built.panels or [])
    for number, placed in enumerate(_with_nested(built.panels or []), start=1):
        placed.id_val = number
    return built


def _place(builder: dash.Dashboard, row: Row) -> None:
    if row.collapsed:
        heading = dash.Row(row.title)
        for panel in row.panels:
            heading.with_panel(panel)
        builder.with_row(heading)
        return
    if row.title:
        builder.with_row(dash.Row(row.title))
    for panel in row.panels:
        builder.with_panel(panel)


def _close_up(panels: Sequence[model.Panel | model.RowPanel]) -> None:
    """Takes back the room that the builder leaves for the panels of collapsed rows."""
    room = 0
    for placed in panels:
        assert placed.grid_pos
        placed.grid_pos.y -= room
        if isinstance(placed, model.RowPanel) and placed.panels:
            places = [panel.grid_pos for panel in placed.panels if panel.grid_pos]
            for place in places:
                place.y -= room
            room += max(place.y + place.h for place in places) - placed.grid_pos.y - 1


def _with_nested(
    panels: Sequence[model.Panel | model.RowPanel],
) -> list[model.Panel | model.RowPanel]:
    """These and the panels inside collapsed rows."""
    found: list[model.Panel | model.RowPanel] = []
    for panel in panels:
        found.append(panel)
        if isinstance(panel, model.RowPanel):
            found += panel.panels
    return found


def some(name: str, label: str, selector: str) -> dash.QueryVariable:
    """A variable of any number of a label's values, at first all."""
    everything = model.VariableOption(selected=True, text="All", value="$__all")
    return (
        one(name, label, selector).multi(True).include_all(True).all_value(".+").current(everything)
    )


def one(name: str, label: str, selector: str) -> dash.QueryVariable:
    """A variable of one of a label's values, at first the first."""
    return (
        dash.QueryVariable(name)
        .label(label)
        .datasource(DATA_SOURCE)
        .query(f"label_values({selector}, {name})")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
    )


def unit_variable() -> dash.QueryVariable:
    """The jobs, containers, systemd units or cgroups in which pipelines ran."""
    return some("unit", "Unit", HOSTS.select("pipelined_runs_total"))


def traces_variable() -> dash.DatasourceVariable:
    """The store of traces that `TO_TRACES` asks: not shown, as most Grafanas have one or none."""
    variable = dash.DatasourceVariable("traces").label("Traces").type("tempo")
    return variable.hide(model.VariableHide.HIDE_VARIABLE)


class _RunEnds(dash.AnnotationQuery):
    """A mark where a run ended, at the very moment, not at the next scrape."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._internal = _OfPrometheus(
            name="Run ends",
            datasource=DATA_SOURCE,
            enable=False,
            icon_color="rgb(140, 140, 140)",
            expr=f"1000 * {scope.select('pipelined_last_run_end_timestamp_seconds')}",
        )


class _OfPrometheus(model.AnnotationQuery):
    """With what Grafana's Prometheus plugin reads beside the SDK's fields."""

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "titleFormat": "{{pipeline}} ended",
            "textFormat": "on {{instance}}, unit {{unit}}",
            "tagKeys": "nested",
            "useValueForTime": True,
        }
