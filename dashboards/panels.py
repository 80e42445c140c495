# SPDX-License-Identifier: Apache-2.0
"""Panels of these dashboards: each with a help text, a unit, and words for when it is empty.

A panel says what it shows, what a good picture looks like and what a bad one does: there is no
way to make one without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import (
    barchart,
    common,
    heatmap,
    prometheus,
    stat,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heat
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

__all__ = [
    "DATA_SOURCE",
    "FUNCTIONS_OFF",
    "PLACE",
    "READAHEAD_OFF",
    "SHARE",
    "Column",
    "Help",
    "Limits",
    "Query",
    "bars",
    "heat_map",
    "lines",
    "number",
    "rows",
    "tier",
]

DATA_SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
#: What Prometheus should scrape at most every so often. $__rate_interval is four times that.
MIN_INTERVAL = "15s"

NOTHING_RAN = "Nothing ran"
READAHEAD_OFF = "No files read, or the readahead tier is off: run pipelined doctor"
FUNCTIONS_OFF = "The functions tier is off: run pipelined doctor"


@dataclass(frozen=True, slots=True)
class Help:
    """What hovering over the panel's title says."""

    shows: str
    good: str
    bad: str

    def __str__(self) -> str:
        return f"{self.shows}\n\n**Good:** {self.good}\n\n**Bad:** {self.bad}"


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, and the name of each of its series, such as ``{{position}} {{command}}``."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Limits:
    """The unit of an axis or number, as Grafana names it, and where it begins and ends."""

    unit: str
    min: float | None = 0
    max: float | None = None
    decimals: int | None = None


SHARE = Limits("percentunit", max=1)

#: Headings of the labels that name a pipeline of a host, in a table.
PLACE = {"pipeline": "Pipeline", "nested": "Nested", "unit": "Unit", "instance": "Instance"}
#: What a table shows for the values of the label `nested`: of most pipelines, nothing.
_NESTED = {"true": "inside another", "false": ""}

Panel = TypeVar("Panel", stat.Panel, timeseries.Panel, table.Panel, barchart.Panel, heatmap.Panel)


def number(
    title: str,
    help_: Help,
    query: Query,
    limits: Limits,
    *,
    empty: str = NOTHING_RAN,
    steps: Mapping[float, str] | None = None,
    worded: Mapping[str, str] | None = None,
    named: bool = False,
    width: int = 4,
) -> stat.Panel:
    """One figure of the whole time range. `steps`: from which value on it has which colour.

    `worded` puts words for values; `named` shows the series' name instead of its value.
    """
    panel = _framed(stat.Panel(), title, help_, limits, empty, width, 4)
    panel.with_target(_target(query, 0).instant())
    panel.color_mode(options.BigValueColorMode.VALUE).graph_mode(options.BigValueGraphMode.NONE)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    panel.text_mode(options.BigValueTextMode.NAME if named else options.BigValueTextMode.VALUE)
    panel.thresholds(
        dash.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps(
            [
                model.Threshold(value=None, color="text"),
                *(model.Threshold(value=at, color=c) for at, c in (steps or {}).items()),
            ]
        )
    )
    if worded:
        panel.mappings(
            [
                model.ValueMap(
                    {
                        value: model.ValueMappingResult(text=text, index=index)
                        for index, (value, text) in enumerate(worded.items())
                    }
                )
            ]
        )
    return panel


def tier(name: str, needs: str, selector: str) -> stat.Panel:
    """Whether a tier is on, and what to do if it is not. `selector` finds its hooks."""
    return number(
        f"Tier {name}",
        Help(
            f"Whether a hook of the tier `{name}` is attached on any of the hosts. {needs}",
            "on.",
            "off. `pipelined doctor` on the host says why, and what to do. No value: no daemon"
            f" answers, or all run with `--{name}=off`.",
        ),
        Query(f"max by (tier) ({selector})", "{{tier}}"),
        Limits("none", max=1),
        empty=f"No answer, or --{name}=off",
        worded={"0": "Off: run pipelined doctor", "1": "On"},
        width=6,
    )


def lines(
    title: str,
    help_: Help,
    queries: Sequence[Query],
    limits: Limits,
    *,
    stacked: bool = False,
    colours: Mapping[str, str] | None = None,
    logarithmic: bool = False,
    empty: str = NOTHING_RAN,
    width: int = 12,
    height: int = 8,
) -> timeseries.Panel:
    """Figures over time; `stacked` where they are parts of a whole. Colours are by series' name."""
    panel = _framed(timeseries.Panel(), title, help_, limits, empty, width, height)
    for index, query in enumerate(queries):
        panel.with_target(_target(query, index).range())
    panel.line_width(0 if stacked else 1).fill_opacity(75 if stacked else 8)
    panel.show_points(options.VisibilityMode.AUTO).span_nulls(False)
    panel.stacking(
        common.StackingConfig()
        .mode(options.StackingMode.NORMAL if stacked else options.StackingMode.NONE)
        .group("A")
    )
    if logarithmic:
        panel.scale_distribution(
            common.ScaleDistributionConfig().type(options.ScaleDistribution.LOG).log(2)
        )
    panel.legend(_legend()).tooltip(_tooltip(options.SortOrder.DESCENDING))
    return _coloured(panel, colours or {})


def bars(
    title: str,
    help_: Help,
    query: str,
    *,
    row: str,
    column: str,
    limits: Limits,
    colours: Mapping[str, str],
    width: int = 24,
    height: int = 8,
) -> barchart.Panel:
    """One bar for each value of the label `row`, of parts for each value of the label `column`."""
    panel = _framed(barchart.Panel(), title, help_, limits, NOTHING_RAN, width, height)
    panel.with_target(_target(Query(query, ""), 0).instant().format(PromQueryFormat.TABLE))
    panel.with_transformation(
        model.DataTransformerConfig(
            id_val="groupingToMatrix",
            options={"rowField": row, "columnField": column, "valueField": "Value"},
        )
    )
    panel.orientation(options.VizOrientation.HORIZONTAL).stacking(options.StackingMode.NORMAL)
    panel.show_value(options.VisibilityMode.NEVER).fill_opacity(80).line_width(0)
    panel.legend(_legend()).tooltip(_tooltip(options.SortOrder.NONE))
    return _coloured(panel, colours)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of figures: its heading, the instant query behind it, its unit."""

    title: str
    expr: str
    limits: Limits
    steps: Mapping[float, str] = field(default_factory=dict)
    """From which value on the figure has which colour."""


def rows(
    title: str,
    help_: Help,
    labels: Mapping[str, str],
    columns: Sequence[Column],
    *,
    worst: str,
    falling: bool = True,
    links: Mapping[str, tuple[str, str]] | None = None,
    empty: str = NOTHING_RAN,
    width: int = 24,
    height: int = 8,
) -> table.Panel:
    """A table: a row for each set of labels (label → heading), the worst first.

    `worst` is the heading that it is sorted by, from the highest value or, unless `falling`, from
    the lowest. `links`: label → what a click on it opens, as title and address.
    """
    panel = _framed(table.Panel(), title, help_, Limits("short", min=None), empty, width, height)
    for index, column in enumerate(columns):
        query = _target(Query(column.expr, ""), index).instant()
        panel.with_target(query.format(PromQueryFormat.TABLE))
    single = len(columns) == 1
    value = ["Value"] if single else [f"Value #{ascii_uppercase[n]}" for n in range(len(columns))]
    names = {**labels, **{v: c.title for v, c in zip(value, columns, strict=True)}}
    if not single:
        panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        model.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {"Time": True},
                "indexByName": {name: index for index, name in enumerate(names)},
                "renameByName": names,
            },
        )
    )
    panel.sort_by([common.TableSortByFieldState().display_name(worst).desc(falling)])
    panel.show_header(True).cell_height(options.TableCellHeight.SM).filterable(True)
    for column in columns:
        panel.override_by_name(column.title, _properties(column))
    if "nested" in labels:
        panel.override_by_name(labels["nested"], [_worded(_NESTED)])
    for label, (text, url) in (links or {}).items():
        panel.override_by_name(
            labels[label],
            [model.DynamicConfigValue("links", [{"title": text, "url": url}])],
        )
    return panel


def heat_map(
    title: str,
    help_: Help,
    expr: str,
    unit: str,
    *,
    empty: str,
    width: int = 12,
) -> heatmap.Panel:
    """A histogram over time: how many observations came in each of its buckets."""
    panel = _framed(heatmap.Panel(), title, help_, Limits("cps"), empty, width, 8)
    panel.with_target(_target(Query(expr, "{{le}}"), 0).range().format(PromQueryFormat.HEATMAP))
    panel.calculate(False)
    panel.scale_distribution(
        common.ScaleDistributionConfig().type(options.ScaleDistribution.LINEAR)
    )
    panel.color(
        heatmap.HeatmapColorOptions()
        .mode(heat.HeatmapColorMode.SCHEME)
        .scheme("Blues")
        .scale(heat.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.5)
        .steps(64)
        .fill("dark-blue")
        .reverse(False)
    )
    panel.cell_values(heatmap.CellValues().unit("cps"))
    return panel.y_axis(heatmap.YAxisConfig().unit(unit)).show_legend()


def _framed(
    panel: Panel, title: str, help_: Help, limits: Limits, empty: str, width: int, height: int
) -> Panel:
    panel.title(title).description(str(help_)).datasource(DATA_SOURCE)
    panel.interval(MIN_INTERVAL).span(width).height(height)
    panel.unit(limits.unit).no_value(empty)
    if limits.min is not None:
        panel.min(limits.min)
    if limits.max is not None:
        panel.max(limits.max)
    if limits.decimals is not None:
        panel.decimals(limits.decimals)
    return panel


def _target(query: Query, index: int) -> prometheus.Dataquery:
    built = prometheus.Dataquery().expr(query.expr).ref_id(ascii_uppercase[index])
    built.datasource(DATA_SOURCE)
    return built.legend_format(query.legend) if query.legend else built


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .display_mode(options.LegendDisplayMode.LIST)
        .placement(options.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs([])
    )


def _tooltip(sort: options.SortOrder) -> common.VizTooltipOptions:
    return common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(sort)


def _coloured(panel: Panel, colours: Mapping[str, str]) -> Panel:
    for name, colour in colours.items():
        panel.override_by_name(
            name, [model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})]
        )
    return panel


def _worded(words: Mapping[str, str]) -> model.DynamicConfigValue:
    """Words for a column's values."""
    shown = {
        value: {"text": text, "index": index} for index, (value, text) in enumerate(words.items())
    }
    return model.DynamicConfigValue("mappings", [{"type": "value", "options": shown}])


def _properties(column: Column) -> list[model.DynamicConfigValue]:
    found: dict[str, Any] = {"unit": column.limits.unit}
    for key in ("min", "max", "decimals"):
        if getattr(column.limits, key) is not None:
            found[key] = getattr(column.limits, key)
    if column.steps:
        found["thresholds"] = {
            "mode": "absolute",
            "steps": [
                {"value": None, "color": "text"},
                *({"value": at, "color": colour} for at, colour in column.steps.items()),
            ],
        }
        found["custom.cellOptions"] = {"type": "color-text"}
    return [model.DynamicConfigValue(key, value) for key, value in found.items()]
