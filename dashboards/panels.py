# SPDX-License-Identifier: Apache-2.0
"""Panels of these dashboards: each with a help text, a unit, and words for when it is empty.

A panel says what it shows, what a good picture looks like and what a bad one does: there is no
way to make one without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

from .queries import Scope

__all__ = [
    "BAD",
    "DATA_SOURCE",
    "FUNCTIONS_OFF",
    "GOOD",
    "INFO",
    "NO_RUN",
    "READAHEAD_OFF",
    "RUNS",
    "SHARE",
    "WARN",
    "Column",
    "Help",
    "Label",
    "Limits",
    "Query",
    "Top",
    "bars",
    "chosen",
    "heat_map",
    "lines",
    "number",
    "rows",
    "tier",
]

DATA_SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
#: The shortest scrape interval that Prometheus should have. $__rate_interval is four times that.
MIN_INTERVAL = "15s"
#: So many rows a table has at most: a host has ten pipelines, a fleet ten thousand.
ROWS = 50

#: It may be that nothing ran, that scrapes fail, or that the choice of variables is too narrow.
NO_RUN = "No run seen: see Show"
READAHEAD_OFF = "No files read, or the readahead tier is off: run pipelined doctor"
FUNCTIONS_OFF = "The functions tier is off: run pipelined doctor"

#: What a table's cell shows if its query has nothing for the row.
_ABSENT = "–"

#: Colours of answers, by Grafana's names, which have a value for each theme.
GOOD, WARN, BAD, INFO = "dark-green", "dark-orange", "dark-red", "dark-blue"
#: That of a table's figure that is neither good nor bad.
_PLAIN = "text"
#: That of an answer that is not known.
_UNKNOWN = "rgb(110, 116, 124)"


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
    exemplars: bool = False
    """Draw the exemplars of the series that it names, too."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The unit of an axis or number, as Grafana names it, and where it begins and ends."""

    unit: str
    min: float | None = 0
    max: float | None = None
    decimals: int | None = None
    at_least: float | None = None
    """Where an axis ends if all is below: without it Grafana draws 0 to 100 for zeros."""


SHARE = Limits("percentunit", max=1, decimals=0)
#: Whole numbers, with separators of thousands: ``2,954``.
RUNS = Limits("locale", decimals=0, at_least=1)

Panel = TypeVar("Panel", stat.Panel, timeseries.Panel, table.Panel, barchart.Panel, heatmap.Panel)


def number(
    title: str,
    help_: Help,
    query: Query,
    limits: Limits,
    *,
    base: str,
    empty: str = NO_RUN,
    steps: Mapping[float, str] | None = None,
    worded: Mapping[str, str] | None = None,
    named: bool = False,
    width: int = 4,
) -> stat.Panel:
    """One figure of the whole time range, on a ground of its colour.

    `base` is the colour below the first of `steps`: from which value on it has which colour.
    `worded` puts words for values; `named` shows the series' name instead of its value.
    """
    panel = _framed(stat.Panel(), title, help_, limits, empty, width, 4)
    panel.with_target(_target(query, 0).instant())
    panel.color_mode(options.BigValueColorMode.BACKGROUND_SOLID)
    panel.graph_mode(options.BigValueGraphMode.NONE)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    panel.text_mode(options.BigValueTextMode.NAME if named else options.BigValueTextMode.VALUE)
    panel.thresholds(
        dash.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps(
            [
                model.Threshold(value=None, color=base),
                *(model.Threshold(value=at, color=c) for at, c in (steps or {}).items()),
            ]
        )
    )
    mappings: list[model.ValueMapping] = []
    if worded:
        words = {
            value: model.ValueMappingResult(text=text, index=index)
            for index, (value, text) in enumerate(worded.items())
        }
        mappings.append(model.ValueMap(words))
    # without a value it would have the colour below the first step, which may be a bad one
    nothing = model.ValueMappingResult(text=empty, color=_UNKNOWN)
    match = model.SpecialValueMatch.NULL_AND_NAN
    mappings.append(model.SpecialValueMap(model.DashboardSpecialValueMapOptions(match, nothing)))
    return panel.mappings(mappings)


def tier(name: str, needs: str, selector: str, *, width: int = 6) -> stat.Panel:
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
        base=INFO,
        steps={1: GOOD},
        worded={"0": "Off: run pipelined doctor", "1": "On"},
        width=width,
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
    empty: str = NO_RUN,
    width: int = 12,
    height: int = 9,
) -> timeseries.Panel:
    """Figures over time; `stacked` where they add up. Colours are by series' name.

    The legend is a table with the last and the highest value, or the mean of what is stacked; a
    list in narrow panels.
    """
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
    if limits.at_least is not None:
        panel.axis_soft_max(limits.at_least)
    if logarithmic:
        base = 2 if limits.unit == "bytes" else 10
        panel.scale_distribution(
            common.ScaleDistributionConfig().type(options.ScaleDistribution.LOG).log(base)
        )
    panel.legend(_legend(["mean" if stacked else "lastNotNull", "max"] if width >= 12 else []))
    panel.tooltip(_tooltip(options.SortOrder.DESCENDING))
    return _coloured(panel, colours or {})


def bars(
    title: str,
    help_: Help,
    query: str,
    *,
    row: str,
    column: str,
    order: str,
    limits: Limits,
    colours: Mapping[str, str],
    width: int = 24,
    height: int = 9,
) -> barchart.Panel:
    """One bar for each value of the label `row`, of parts for each value of the label `column`.

    Bars are in the order of the label `order`, parts in that of `colours`.
    """
    panel = _framed(barchart.Panel(), title, help_, limits, NO_RUN, width, height)
    panel.with_target(_target(Query(query, ""), 0).instant().format(PromQueryFormat.TABLE))
    panel.with_transformation(_sorted(order, falling=False))
    panel.with_transformation(
        model.DataTransformerConfig(
            id_val="groupingToMatrix",
            options={"rowField": row, "columnField": column, "valueField": "Value"},
        )
    )
    panel.with_transformation(_organised([f"{row}\\{column}", *colours]))
    panel.orientation(options.VizOrientation.HORIZONTAL).stacking(options.StackingMode.NORMAL)
    panel.show_value(options.VisibilityMode.NEVER).fill_opacity(80).line_width(0)
    panel.legend(_legend([])).tooltip(_tooltip(options.SortOrder.NONE))
    return _coloured(panel, colours)


@dataclass(frozen=True, slots=True)
class Label:
    """A column of a table with the values of a label, as they are or in other words."""

    name: str
    title: str
    width: int | None = None
    links: Sequence[tuple[str, str]] = ()
    """What a click opens: titles and addresses."""
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of figures: its heading, the instant query behind it, its unit."""

    title: str
    expr: str
    limits: Limits
    steps: Mapping[float, str] = field(default_factory=dict)
    """From which value on the figure has which colour."""
    width: int | None = None
    links: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Top:
    """Which rows a table has: of the sets of the labels `by` those that rank highest.

    Its columns ask for the series of `scope`: of the labels `near` only the values that these rows
    have, which hidden variables hold. So a column does not read what ten thousand others have.
    Where one label names a row, these are the rows themselves. Else each column ranks anew, among
    what is near, unless the rows are `named`: where most of a fleet is near the rows, that costs as
    much as the column does.
    """

    by: Sequence[str]
    ranked: Callable[[Scope], str]
    """Of the series of a scope, the query that has one value for each of the sets."""
    every: Scope
    of: str
    """Name of the hidden variable that says how many there are."""
    near: Sequence[str] = ()
    named: bool = False
    """A hidden variable holds the rows, by all their labels at once."""

    @property
    def scope(self) -> Scope:
        return self.every.only(*(f'{label}=~"${self.of}_{label}"' for label in self.near))

    def narrowed(self, expr: str) -> str:
        """What a query answers for these rows."""
        if self.near == self.by and len(self.by) == 1:
            return expr
        if self.named:
            # those of them lose the label again
            cut = f'label_replace(\n{self._named(expr)}\n, "row", "", "row", "${self.of}_row")'
            return f"{cut}\nand on (row) vector(1)"
        rank = self.ranked(self.scope)
        highest = f"topk({ROWS},\n{rank}\n)"
        if expr == rank:
            return highest
        return f"(\n{expr}\n)\nand on ({', '.join(self.by)})\n{highest}"

    def _named(self, expr: str) -> str:
        labels = ", ".join(f'"{label}"' for label in self.by)
        return f'label_join(\n{expr}\n, "row", " ", {labels})'

    @property
    def variables(self) -> list[dash.QueryVariable]:
        """How many there are, and where they are; a dashboard that has the table has them too."""
        every = self.ranked(self.every)
        count = _hidden(self.of, f"count(\n{every}\n)\nor\nvector(0)", r"/ (\d+) /")
        held = [chosen(f"{self.of}_{label}", f"topk({ROWS},\n{every}\n)") for label in self.near]
        if self.named:
            held.append(chosen(f"{self.of}_row", f"topk({ROWS},\n{self._named(every)}\n)"))
        return [count, *held]


def chosen(name: str, expr: str) -> dash.QueryVariable:
    """A hidden variable: the values of a label, which ends its name, in the answer to a query.

    Panels take them to ask for no more than they show.
    """
    variable = _hidden(name, expr, f'/{name.rpartition("_")[2]}="([^"]*)"/')
    variable.multi(True).include_all(True)
    return variable.current(model.VariableOption(selected=True, text="All", value="$__all"))


def _hidden(name: str, expr: str, regex: str) -> dash.QueryVariable:
    """A variable of what `regex` finds in the answer to a query; for queries and titles."""
    return (
        dash.QueryVariable(name)
        .label(name.capitalize())
        .hide(model.VariableHide.HIDE_VARIABLE)
        .datasource(DATA_SOURCE)
        .query(f"query_result({expr})")
        .regex(regex)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def rows(
    title: str,
    help_: Help,
    columns: Sequence[Label | Column],
    *,
    top: Top,
    worst: str = "",
    order: str = "",
    falling: bool = True,
    empty: str = NO_RUN,
    width: int = 24,
    height: int = 8,
) -> table.Panel:
    """A table with a row for each set of labels, the worst first, and how many there are.

    It is sorted by the column `worst`, or by the query `order`, which has no column: from the
    highest value or, unless `falling`, from the lowest.
    """
    title = f"{title}: top {ROWS} of ${top.of}"
    panel = _framed(table.Panel(), title, help_, Limits("short", min=None), empty, width, height)
    figures = [column for column in columns if isinstance(column, Column)]
    exprs = [figure.expr for figure in figures] + ([order] if order else [])
    for index, expr in enumerate(exprs):
        target = _target(Query(top.narrowed(expr), ""), index).instant()
        panel.with_target(target.format(PromQueryFormat.TABLE))
    single = len(exprs) == 1
    values = ["Value"] if single else [f"Value #{ascii_uppercase[n]}" for n in range(len(exprs))]
    value_of = {figure.title: value for figure, value in zip(figures, values, strict=False)}
    names = {
        column.name if isinstance(column, Label) else value_of[column.title]: column.title
        for column in columns
    }
    if not single:
        panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    if order:
        panel.with_transformation(_sorted(values[-1], falling=falling))
    else:
        panel.sort_by([common.TableSortByFieldState().display_name(worst).desc(falling)])
    panel.with_transformation(_organised(list(names), names, values[-1:] if order else []))
    panel.show_header(True).cell_height(options.TableCellHeight.SM).filterable(False)
    for column in columns:
        found = _of_label(column) if isinstance(column, Label) else _of_figure(column)
        panel.override_by_name(column.title, found)
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
    if query.exemplars:
        built.exemplar(True)
    return built.legend_format(query.legend) if query.legend else built


def _legend(calcs: list[str]) -> common.VizLegendOptions:
    """A table at the right with these figures of each series, or a list below."""
    mode, place = options.LegendDisplayMode, options.LegendPlacement
    legend = common.VizLegendOptions().show_legend(True).calcs(calcs)
    legend.display_mode(mode.TABLE if calcs else mode.LIST)
    return legend.placement(place.RIGHT if calcs else place.BOTTOM)


def _tooltip(sort: options.SortOrder) -> common.VizTooltipOptions:
    return common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(sort)


def _coloured(panel: Panel, colours: Mapping[str, str]) -> Panel:
    for name, colour in colours.items():
        panel.override_by_name(
            name, [model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})]
        )
    return panel


def _sorted(by: str, *, falling: bool) -> model.DataTransformerConfig:
    """Sorts the rows by a field."""
    return model.DataTransformerConfig(
        id_val="sortBy", options={"fields": {}, "sort": [{"field": by, "desc": falling}]}
    )


def _organised(
    order: Sequence[str], titles: Mapping[str, str] | None = None, without: Sequence[str] = ()
) -> model.DataTransformerConfig:
    """Puts fields in this order, under the headings that `titles` has for them."""
    return model.DataTransformerConfig(
        id_val="organize",
        options={
            "excludeByName": dict.fromkeys(("Time", *without), True),
            "indexByName": {name: index for index, name in enumerate(order)},
            "renameByName": dict(titles or {}),
        },
    )


def _of_label(label: Label) -> list[model.DynamicConfigValue]:
    narrow = label.width is not None and label.width < 100  # no room for the filter's sign
    found: dict[str, Any] = {"noValue": _ABSENT, "custom.filterable": not narrow}
    if label.width:
        found["custom.width"] = label.width
    if label.links:
        found["links"] = _links(label.links)
    if label.words:
        shown = {
            value: {"text": text, "index": index}
            for index, (value, text) in enumerate(label.words.items())
        }
        found["mappings"] = [{"type": "value", "options": shown}]
    return [model.DynamicConfigValue(key, value) for key, value in found.items()]


def _of_figure(column: Column) -> list[model.DynamicConfigValue]:
    found: dict[str, Any] = {"unit": column.limits.unit, "noValue": _ABSENT}
    for key in ("min", "max", "decimals"):
        if getattr(column.limits, key) is not None:
            found[key] = getattr(column.limits, key)
    if column.width:
        found["custom.width"] = column.width
    if column.links:
        found["links"] = _links(column.links)
    if column.steps:
        found["thresholds"] = {
            "mode": "absolute",
            "steps": [
                {"value": None, "color": _PLAIN},
                *({"value": at, "color": colour} for at, colour in column.steps.items()),
            ],
        }
        found["custom.cellOptions"] = {"type": "color-text"}
    return [model.DynamicConfigValue(key, value) for key, value in found.items()]


def _links(links: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"title": title, "url": url} for title, url in links]
