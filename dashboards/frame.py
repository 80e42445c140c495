# SPDX-License-Identifier: Apache-2.0
"""What all dashboards have around their panels: variables, links to the others, annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from .panels import DATA_SOURCE
from .queries import HOSTS, UNITS, Scope

__all__ = ["UID", "Row", "framed", "one", "some", "to_pipeline", "unit_variable"]

TAG = "pipelined"
#: The schema of Grafana 11.0. Newer ones bring it up to theirs when they load it.
SCHEMA_VERSION = 39

#: A run of this many seconds is marked on every dashboard, a shorter one only on its own.
LONG_SECONDS = 10

#: Title of a row ("" for the first, which has none), and its panels.
Row = tuple[str, Sequence[Builder[model.Panel]]]

#: Where a dashboard is found: /d/UID.
UID = {
    "Overview": "pipelined-overview",
    "Pipeline": "pipelined-pipeline",
    "Disk and readahead": "pipelined-disk",
    "Fleet": "pipelined-fleet",
    "Pipelined itself": "pipelined-itself",
}

_EVERYWHERE = "${datasource:queryparam}&${job:queryparam}&${instance:queryparam}"


def framed(
    title: str,
    description: str,
    rows: Sequence[Row],
    *,
    variables: Sequence[dash.QueryVariable] = (),
    run_ends: Scope = UNITS,
    every_run: bool = False,
) -> model.Dashboard:
    """A dashboard. `variables` come after data source, job and instance.

    The ends of the runs of `run_ends` are marked: of `every_run`, or of those that took a while,
    because a script that starts thousands would cover the graphs.
    """
    builder = dash.Dashboard(title).uid(UID[title]).description(description).tags([TAG])
    builder.readonly().timezone("browser").refresh("30s").time("now-1h", "now")
    builder.tooltip(model.DashboardCursorSync.CROSSHAIR)
    builder.link(
        dash.DashboardLink("Other dashboards")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .tooltip("The other dashboards, with the same variables and time")
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
    builder.annotation(_RunEnds(run_ends, 0 if every_run else LONG_SECONDS))
    for heading, panels in rows:
        if heading:
            builder.with_row(dash.Row(heading))
        for panel in panels:
            builder.with_panel(panel)
    built = builder.build()
    built.schema_version = SCHEMA_VERSION
    for number, placed in enumerate(built.panels or [], start=1):
        placed.id_val = number
    return built


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
    """The systemd units or cgroups in which pipelines ran."""
    return some("unit", "Unit", HOSTS.select("pipelined_runs_total"))


def to_pipeline() -> tuple[str, str]:
    """What a click on a pipeline's name opens: title and address."""
    url = f"/d/{UID['Pipeline']}?var-pipeline=${{__value.raw}}&{_EVERYWHERE}&${{__url_time_range}}"
    return "Show this pipeline", url


class _RunEnds(dash.AnnotationQuery):
    """A mark where a run ended, at the very moment, not at the next scrape."""

    def __init__(self, scope: Scope, at_least: float) -> None:
        """Of runs that took `at_least` so many seconds."""
        super().__init__()
        ends = f"1000 * {scope.select('pipelined_last_run_end_timestamp_seconds')}"
        took = f"{scope.select('pipelined_last_run_seconds')} >= {at_least}"
        self._internal = _OfPrometheus(
            name="Run ends",
            datasource=DATA_SOURCE,
            icon_color="purple",
            expr=f"{ends}\nand {took}" if at_least else ends,
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
