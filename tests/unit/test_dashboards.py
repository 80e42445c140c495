# SPDX-License-Identifier: Apache-2.0
"""dashboards/*.json: generated, valid, complete, and drawn with what fits each metric.

tests/e2e/test_prometheus.py sends their queries to a real Prometheus.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboard_files import (
    FILES,
    ROOT,
    Query,
    documented,
    grouped_by,
    load,
    may_be_absent,
    narrowed,
    panels,
    queries,
)
from pipelined.runs import LEVELS, PAGE_CLASSES, STATES
from unit.test_dashboards_beside_jobs import failure, filled, series

ALL = [load(file) for file in FILES]
PANELS = [(board, panel) for board in ALL for panel in panels(board)]
QUERIES = [query for board in ALL for query in queries(board)]

#: Fields of an annotation that Grafana's Prometheus plugin reads and the SDK does not know.
OF_THE_PLUGIN = {"titleFormat", "textFormat", "tagKeys", "useValueForTime"}

#: Metrics that no dashboard shows, and why.
NOT_SHOWN: dict[str, str] = {}

_SELECTOR = re.compile(r"(?<![\w:])([A-Za-z_][\w:]*)\{([^}]*)\}")
#: What a graph's query is cut down to: labels, and the ranking.
_RANKED = re.compile(r"\nand on \(([^)]*)\)\n(?:topk|bottomk)\(10,\n(.*)", re.DOTALL)
#: Recorded of units, or of jobs over all hosts: without nested pipelines; of jobs without a host.
_NO_NESTED = ("unit:", "unit_pipeline:")


def titles(board_or_panel: dict[str, Any]) -> str:
    title: str = board_or_panel["title"]
    return title


each_board = pytest.mark.parametrize("board", ALL, ids=titles)
each_panel = pytest.mark.parametrize(
    ("board", "panel"),
    [pytest.param(*case, id=f"{titles(case[0])}: {titles(case[1])}") for case in PANELS],
)
each_query = pytest.mark.parametrize("query", QUERIES, ids=str)


def defaults(panel: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = panel["fieldConfig"]["defaults"]
    return found


# -- where they come from, and whether Grafana can read them


def test_the_committed_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "dashboards.generate", tmp_path], cwd=ROOT, check=True, timeout=60
    )
    written = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert written == {file.name: file.read_bytes() for file in FILES}, "run: make dashboards"


def test_there_are_the_five() -> None:
    assert {board["title"] for board in ALL} == {
        "Pipelined / Overview",
        "Pipelined / Pipeline",
        "Pipelined / Disk and readahead",
        "Pipelined / Fleet",
        "Pipelined / Itself",
    }
    assert all(board["uid"] == file.stem for board, file in zip(ALL, FILES, strict=True))


def through_the_sdk(board: dict[str, Any]) -> dict[str, Any]:
    """What is left of a dashboard when the SDK's types have read it."""
    register_default_plugins()
    text = json.dumps(Dashboard.from_json(board), cls=JSONEncoder)
    found: dict[str, Any] = json.loads(text)
    return found


@each_board
def test_the_types_of_the_sdk_know_every_field(board: dict[str, Any]) -> None:
    known = json.loads(json.dumps(board))
    for mark in known["annotations"].get("list", []):
        for name in OF_THE_PLUGIN:
            del mark[name]
    assert through_the_sdk(known) == known


@pytest.mark.parametrize("where", ["panel", "options", "target"])
def test_a_field_that_the_sdk_does_not_know_would_be_noticed(where: str) -> None:
    board = json.loads(json.dumps(ALL[0]))
    panel = panels(board)[0]
    place = {"panel": panel, "options": panel["options"], "target": panel["targets"][0]}[where]
    place["mistyped"] = 1
    assert through_the_sdk(board) != board


@each_board
def test_it_is_for_grafana_11_and_newer(board: dict[str, Any]) -> None:
    assert board["schemaVersion"] == 39
    current = {"stat", "timeseries", "table", "barchart", "heatmap", "row"}
    assert {panel["type"] for panel in board["panels"]} <= current


@each_board
def test_no_two_panels_overlap(board: dict[str, Any]) -> None:
    every = [*(panel for panel in board["panels"] if panel["type"] == "row"), *panels(board)]
    assert len({panel["id"] for panel in every}) == len(every)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in every)
    # a collapsed row's panels push down what is below it when it opens
    for a, b in combinations([panel["gridPos"] for panel in board["panels"]], 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or below, (a, b)


# -- what the rules of Grafana's dashboard-linter ask for


@each_board
def test_variables_are_as_the_linter_wants_them(board: dict[str, Any]) -> None:
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    source = variables.pop("datasource")
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    assert source["label"] == "Data source"
    assert {"job", "instance"} <= set(variables)
    if traces := variables.pop("traces", None):
        assert (traces["type"], traces["query"]) == ("datasource", "tempo")
    for name, variable in variables.items():
        other_words = {"position": "Stage", "left_out": "Show"}
        assert variable["label"] == other_words.get(name, name.capitalize())
        if variable["type"] == "custom":
            continue
        assert variable["datasource"]["uid"] == "${datasource}"
        assert variable["refresh"] == 2
        if name in ("job", "instance"):
            assert variable["multi"] and variable["includeAll"] and variable["allValue"] == ".+"
    assert board["editable"] is False


@each_panel
def test_a_panel_asks_the_data_source_that_is_chosen(
    board: dict[str, Any], panel: dict[str, Any]
) -> None:
    sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
    assert {source["uid"] for source in sources} == {"${datasource}"}


@each_query
def test_every_selector_takes_the_chosen_jobs_and_instances(query: Query) -> None:
    selectors = _SELECTOR.findall(query.expr)
    assert selectors or query.place == "variable job"
    for name, matchers in selectors:
        none = "|" if name.startswith("ALERTS") else ""  # some alerts are about no host
        assert f'job=~"$job{none}"' in matchers
        of_all_hosts = name.startswith("unit_pipeline:") or query.place == "variable instance"
        assert of_all_hosts or f'instance=~"$instance{none}"' in matchers


@each_query
def test_counters_are_read_as_rates_over_the_interval_that_grafana_gives(query: Query) -> None:
    windows = set(re.findall(r"(\w+)\([a-z_]+\{[^}]*\}\[([^\]]+)\]", query.expr))
    of_gauges = {(f"{name}_over_time", "$__range") for name in ("last", "max", "count", "sum")}
    assert windows <= {("rate", "$__rate_interval"), ("increase", "$__range"), *of_gauges}
    if query.kind != "variable":
        counters = set(re.findall(r"(\w*\(?)\w+_total\{", query.expr)) - {"rate(", "increase("}
        # tables of runs compare with all runs ever, and show a first run by its counters;
        # what was lost before the first scrape counts too, and what begins with its first event
        whole = (
            *("Pipelines that ran", "Where it ran", "Failed or stopped", "Jobs", "Hosts:"),
            *("Missing in figures", "Runs not in the history", "What is missing"),
        )
        # and so does how many rows there are
        of_tables = ("ran", "places", "ends", "jobs", "lost")
        whole = (*whole, *(f"variable {name}" for name in of_tables))
        assert not counters or query.place.startswith(whole)


# -- what a reader gets


@each_panel
def test_a_panel_says_what_a_good_and_a_bad_picture_look_like(
    board: dict[str, Any], panel: dict[str, Any]
) -> None:
    shows, good, bad = panel["description"].split("\n\n")
    assert len(shows) > 20
    assert good.startswith("**Good:** ") and bad.startswith("**Bad:** ")
    assert len(panel["title"]) <= 34


@each_board
def test_the_first_row_is_the_answer_in_figures(board: dict[str, Any]) -> None:
    first = [panel for panel in board["panels"] if panel["gridPos"]["y"] == 0]
    assert {panel["type"] for panel in first} == {"stat"}
    assert sum(panel["gridPos"]["w"] for panel in first) == 24


@each_board
def test_it_leads_to_the_others_with_the_same_variables_and_time(board: dict[str, Any]) -> None:
    (link,) = board["links"]
    assert link["type"] == "dashboards" and link["includeVars"] and link["keepTime"]
    assert link["asDropdown"]
    assert all(set(link["tags"]) <= set(other["tags"]) for other in ALL)


def links_of(board: dict[str, Any]) -> list[str]:
    return [
        link["url"]
        for panel in panels(board)
        for override in panel["fieldConfig"]["overrides"]
        for found in override["properties"]
        if found["id"] == "links"
        for link in found["value"]
    ]


@each_board
def test_what_a_click_opens_is_there_and_keeps_the_time(board: dict[str, Any]) -> None:
    for url in links_of(board):
        if url.startswith(("http://${", "/explore?")):
            continue
        uid, _, parameters = url.removeprefix("/d/").partition("?")
        (opened,) = [other for other in ALL if other["uid"] == uid]
        assert "${__url_time_range}" in parameters
        names = {variable["name"] for variable in opened["templating"]["list"]}
        chosen = set(re.findall(r"var-(\w+)=", parameters))
        assert chosen <= names
        kept = set(re.findall(r"\$\{(\w+):queryparam\}", parameters))
        assert kept <= names & {v["name"] for v in board["templating"]["list"]}
        if uid == "pipelined-pipeline":
            assert chosen >= {"pipeline", "unit"}
            assert "instance" in chosen | kept  # a job's link keeps all hosts


@each_board
def test_every_dashboard_leads_to_the_page_of_a_hosts_daemon(board: dict[str, Any]) -> None:
    assert [url for url in links_of(board) if url.startswith("http://${")]


def test_a_click_on_a_unit_searches_its_traces_in_the_data_source_that_is_chosen() -> None:
    ((board, url),) = [
        (board, url) for board in ALL for url in links_of(board) if url.startswith("/explore?")
    ]
    placeholders = {
        "${pipeline:percentencode}": "cat%7Cwc",
        "${__value.raw:percentencode}": "a.job",
    }
    for placeholder, value in placeholders.items():
        assert placeholder in url
        url = url.replace(placeholder, value)
    (panes,) = parse_qs(urlsplit(url).query)["panes"]
    (pane,) = json.loads(panes).values()
    assert pane["datasource"] == "${traces}"
    assert "traces" in {variable["name"] for variable in board["templating"]["list"]}
    (query,) = pane["queries"]
    assert query["query"] == '{ name = "cat|wc" && span.pipelined.unit = "a.job" }'


def test_exemplars_are_drawn_where_runs_take_seconds() -> None:
    drawn = [
        (panel, target)
        for board in ALL
        for panel in panels(board)
        for target in panel["targets"]
        if target.get("exemplar")
    ]
    ((panel, target),) = drawn
    assert (panel["type"], panel["fieldConfig"]["defaults"]["unit"]) == ("timeseries", "s")
    assert "pipelined_runs_total{" in target["expr"]


def test_the_ends_of_runs_are_marked_on_demand_at_their_very_moment() -> None:
    marks = [(board, mark) for board in ALL for mark in board["annotations"].get("list", [])]
    ((board, mark),) = marks
    assert board["title"] == "Pipelined / Pipeline"
    assert not mark["enable"] and mark["useValueForTime"] is True
    assert re.fullmatch(r"1000 \* pipelined_last_run_end_timestamp_seconds\{.*\}", mark["expr"])


#: Panels of which only a part comes from a tier that may be off.
MIXED = {"Hosts: top 50 of $hosts", "Forks and execs"}


@each_panel
def test_an_answer_that_is_not_known_is_neither_green_nor_red(
    board: dict[str, Any], panel: dict[str, Any]
) -> None:
    if panel["type"] == "stat":
        assert panel["options"]["colorMode"] == "background_solid"
        *_, unknown = defaults(panel)["mappings"]
        assert unknown["options"]["match"] == "null+nan"
        steps = defaults(panel)["thresholds"]["steps"]
        assert unknown["options"]["result"]["color"] not in {step["color"] for step in steps}


@each_panel
def test_a_panel_without_data_says_why(board: dict[str, Any], panel: dict[str, Any]) -> None:
    empty = defaults(panel)["noValue"]
    assert empty
    there = [query for query in queries(board) if _is_in_panel(query, panel)]
    asked = {name for query in there for name in query.metrics}
    tiers = {tier for name in asked if (tier := tier_of(name)) is not None}
    if panel["type"] != "stat" and tiers and panel["title"] not in MIXED:
        assert "pipelined doctor" in empty or "--no-history" in empty, tiers


def tier_of(metric: str) -> str | None:
    found = re.search(r"Only where the `(\w+)` tier is on", documented().get(metric, ""))
    return found[1] if found else None


def _is_in_panel(query: Query, panel: dict[str, Any]) -> bool:
    return query.place.rpartition(" (")[0] == panel["title"]


@pytest.mark.parametrize("tier", ["readahead", "functions"])
def test_a_dashboard_with_much_of_a_tier_says_whether_it_is_on(tier: str) -> None:
    for board in ALL:
        of_tier = [q for q in queries(board) if any(tier_of(name) == tier for name in q.metrics)]
        shown = [panel for panel in panels(board) if panel["title"] == f"Tier {tier}"]
        if len(of_tier) > 5:
            assert shown, board["title"]
        for panel in shown:
            mapping, _ = defaults(panel)["mappings"]
            assert "pipelined doctor" in mapping["options"]["0"]["text"]
            assert f"--{tier}=off" in defaults(panel)["noValue"]


# -- what fits a metric


def kind_of(metric: str) -> str:
    """What a metric counts, by its name, as Prometheus wants names to say it."""
    if metric == "ALERTS_FOR_STATE":
        return "moment"
    if metric.endswith("ratio_median1d"):
        return "ratio"
    # pipeline:pipelined_run_seconds:rate5m
    stem = metric.split(":")[1] if ":" in metric else metric.removesuffix("_total")
    for ending, kind in (
        ("timestamp_seconds", "moment"),
        ("start_time_seconds", "moment"),
        ("ratio_count", "number"),
        ("seconds_count", "number"),
        ("ratio_sum", "number"),
        ("seconds_sum", "seconds"),
        ("seconds", "seconds"),
        ("bytes", "bytes"),
        ("_pages", "pages"),
        ("_ratio", "ratio"),
    ):
        if stem.endswith(ending):
            return kind
    return "number"


def kinds_of(expr: str) -> list[str]:
    """What is divided by what, such as ``["bytes", "number"]``."""
    if expr.startswith("count by"):
        return ["number"]
    if expr.startswith("1000 * (max_over_time(timestamp("):
        return ["moment"]
    parts = re.split(r"\n/", _RANKED.sub("", expr))
    found = []
    for part in parts:
        names = [name for name, _ in _SELECTOR.findall(part)]
        assert names, expr
        found.append(kind_of(names[0]))
    return found


def units_for(expr: str) -> set[str]:
    """Grafana's units that fit what the query gives."""
    match kinds_of(expr):
        case [above, *below] if below and set(below) == {above}:
            return {"percentunit", "none"}
        case ["ratio", *_]:  # or, where it is not known, a quotient in its place
            return {"percentunit", "none"}
        case ["bytes", "number"]:
            return {"bytes"}
        case ["seconds", "number"]:
            return {"s"}
        case ["moment"] | ["number", "moment"] if expr.startswith("1000 * "):
            return {"dateTimeFromNow"}
        case ["number"] if "build_info" in expr and "process_start_time" in expr:
            return {"dateTimeFromNow"}
        case ["bytes"] | ["pages"] if "rate(" in expr:
            return {"binBps"}
        case ["bytes"]:
            return {"bytes", "decbytes"}
        case ["seconds"] if "rate(" in expr:
            return {"none", "percentunit"}
        case ["seconds"]:
            return {"s"}
        case ["number"] if "rate(" in expr:
            return {"cps"}
        case ["number"]:
            return {"none", "locale", "bool_yes_no"}
    raise AssertionError(f"no unit is known for {kinds_of(expr)}: {expr}")


@each_panel
def test_the_unit_fits_what_is_counted(board: dict[str, Any], panel: dict[str, Any]) -> None:
    for target, limits in figures(panel):
        assert limits["unit"] in units_for(target["expr"]), target["expr"]
        if panel["type"] == "heatmap":
            of_seconds = "file_read_seconds" in target["expr"]
            assert panel["options"]["yAxis"]["unit"] == ("s" if of_seconds else "bytes")


def figures(panel: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each query of a panel with the limits that its figures have."""
    if panel["type"] != "table":
        return [(target, defaults(panel)) for target in panel["targets"]]
    titles = headings(panel)
    return [
        (
            target | {"expr": narrowed(target["expr"])["own"]},
            overridden(panel, titles[target["refId"]]),
        )
        for target in panel["targets"]
        if target["refId"] in titles  # what a table is only sorted by has no column
    ]


def headings(panel: dict[str, Any]) -> dict[str, str]:
    """Letter of a table's query → heading of its column."""
    renamed = panel["transformations"][-1]["options"]["renameByName"]
    return {
        name.removeprefix("Value").removeprefix(" #") or "A": title
        for name, title in renamed.items()
        if name.startswith("Value")
    }


def overridden(panel: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        found["id"]: found["value"]
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["options"] == name
        for found in override["properties"]
    }


#: Shares that can be above 1: of several threads or readers at once, or of a rough estimate.
ABOVE_ONE = ("pipelined_stall_seconds", "pipelined_state_seconds", "process_cpu", '"wasted"')


@each_panel
def test_an_axis_begins_at_zero_and_a_share_ends_at_one(
    board: dict[str, Any], panel: dict[str, Any]
) -> None:
    for target, limits in figures(panel):
        scale = limits.get("custom", {}).get("scaleDistribution", {}).get("type")
        if limits["unit"] in ("dateTimeFromNow", "bool_yes_no") or scale == "log":
            continue
        assert limits["min"] == 0
        if limits["unit"] != "percentunit":
            assert limits.get("max") in (None, 1)
        elif not any(part in target["expr"] for part in ABOVE_ONE):
            assert limits["max"] == 1


#: Panels whose lines add up to something else than 1.
ADDED_UP = {"Runs at once", "Stalls of readers", "Waiting for disk, hidden or not"}


@each_panel
def test_parts_of_a_whole_are_stacked_and_nothing_else_is(
    board: dict[str, Any], panel: dict[str, Any]
) -> None:
    if panel["type"] == "barchart":
        assert panel["options"]["stacking"] == "normal"
    if panel["type"] != "timeseries":
        return
    stacked = defaults(panel)["custom"]["stacking"]["mode"] == "normal"
    (expr, *_) = (target["expr"] for target in panel["targets"])
    parts = re.search(r"/ ignoring \((?:state|level|class)\) group_left \(\)", expr)
    assert stacked == (parts is not None or panel["title"] in ADDED_UP)
    if stacked:
        assert defaults(panel)["custom"]["fillOpacity"] > 50
        assert defaults(panel).get("max") == 1 or panel["title"] in ADDED_UP


@each_panel
def test_lines_are_scraped_every_15_seconds_at_most(
    board: dict[str, Any], panel: dict[str, Any]
) -> None:
    assert panel["interval"] == "15s"


# -- how much a graph draws, and in which order

#: Labels with as many values as a fleet has hosts, units and pipelines.
MANY = {"instance", "unit", "pipeline"}


def graph_queries() -> list[tuple[str, str]]:
    return [
        (f"{board['title']}: {panel['title']}", target["expr"])
        for board, panel in PANELS
        if panel["type"] in ("timeseries", "heatmap")
        for target in panel["targets"]
    ]


def test_a_graph_draws_ten_of_many_and_the_same_ten_at_every_step() -> None:
    for place, expr in graph_queries():
        drawn = grouped_by(_RANKED.sub("", expr))
        ranked = _RANKED.search(expr)
        if (drawn & MANY) and "max by (map)" not in expr:
            assert ranked, place
            assert drawn <= {*ranked[1].split(", "), "position", "command"}, place
        assert "topk" not in _RANKED.sub("", expr), place
        if ranked:
            windows = re.findall(r"\[\$__(\w+)(?::1h)?\]( @ end\(\))?", ranked[2])
            assert windows and set(windows) == {("range", " @ end()")}, place


def test_the_stages_of_a_graph_are_in_the_order_of_the_data() -> None:
    """Prometheus sorts by labels: `at`, the position with two digits, is the first of them."""
    for place, expr in graph_queries():
        if "position" in grouped_by(expr):
            assert expr.startswith("label_replace(label_replace(\n"), place
            assert '"at", "$1", "position", "(..+)"), "at", "0$1", "position", "(.)")' in expr
            assert min(*grouped_by(expr), "at") == "at", place
    for board, panel in PANELS:
        if panel["type"] == "barchart":
            first, *_ = panel["transformations"]
            (by,) = first["options"]["sort"]
            stages = "position" in panel["targets"][0]["expr"]
            assert by == {"field": "at" if stages else "instance", "desc": False}, board["title"]


def test_the_states_of_a_bar_are_in_the_order_of_the_documentation() -> None:
    for board, panel in PANELS:
        if panel["type"] == "barchart":
            order = panel["transformations"][-1]["options"]["indexByName"]
            assert sorted(order, key=order.__getitem__)[1:] == list(STATES), board["title"]


def test_a_column_of_a_table_has_a_unit_or_is_text() -> None:
    for board, panel in PANELS:
        if panel["type"] == "table":
            figures = set(headings(panel).values())
            for override in panel["fieldConfig"]["overrides"]:
                title = override["matcher"]["options"]
                unit = overridden(panel, title).get("unit")
                assert (unit is not None) == (title in figures), (board["title"], title)


# -- how much a table asks for, and of what


def tables() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(board, panel) for board, panel in PANELS if panel["type"] == "table"]


def ranking(board: dict[str, Any], panel: dict[str, Any]) -> str:
    """By what a table's rows are chosen of all that there are."""
    _, of = panel["title"].split(": top 50 of $")
    (count,) = (v for v in board["templating"]["list"] if v["name"] == of)
    assert count["hide"] == 2 and count["regex"] == r"/ (\d+) /"
    found = re.fullmatch(
        r"query_result\(count\(\n(.*)\n\)\nor\nvector\(0\)\)", count["query"], re.DOTALL
    )
    assert found, "it says of how many its rows are"
    return found[1]


def held(board: dict[str, Any], panel: dict[str, Any]) -> dict[str, str]:
    """The hidden variables of a table that hold what its rows are, or where: name → query."""
    _, of = panel["title"].split(": top 50 of $")
    found = {}
    for variable in board["templating"]["list"]:
        if variable["name"].startswith(f"{of}_"):
            label = variable["name"].removeprefix(f"{of}_")
            assert variable["regex"] == f'/{label}="([^"]*)"/'
            assert variable["hide"] == 2 and variable["includeAll"]
            asked = re.fullmatch(r"query_result\((.*)\)", variable["query"], re.DOTALL)
            assert asked
            found[variable["name"]] = asked[1]
    return found


def test_each_column_of_a_table_has_the_same_50_rows() -> None:
    for board, panel in tables():
        cuts = [narrowed(target["expr"]) for target in panel["targets"]]
        assert len({cut["by"] for cut in cuts if "by" in cut}) <= 1
        chosen = {(cut.get("rank"), cut.get("rows")) for cut in cuts}
        assert len(chosen) == 1, panel["title"]
        ((rank, rows),) = chosen
        if rank is not None:  # among what is near the rows
            (_, of) = panel["title"].split(": top 50 of $")
            assert re.sub(rf', \w+=~"\${of}_\w+"', "", rank) == ranking(board, panel)
        elif rows is not None:
            assert rows in held(board, panel)
        else:
            (only,) = held(board, panel)
            label = only.rpartition("_")[2]
            for target in panel["targets"]:
                for name, matchers in _SELECTOR.findall(target["expr"]):
                    assert f'{label}=~"${only}"' in matchers, (panel["title"], name)
                assert grouped_by(target["expr"]) == {label}


def test_the_first_interrupted_run_of_a_daemon_is_among_those_that_did_not_succeed(
    tmp_path: Path,
) -> None:
    metric = "pipelined_interrupted_runs_total"
    ran = {"job": "pipelined", "pipeline": "cat|sort", "nested": "false"}
    stored = [
        series(metric, "_x30 1x30", instance="first", unit="timeout.service", **ran),
        series(metric, "3x30 4x30", instance="fourth", unit="timeout.service", **ran),
        series(metric, "2x60", instance="before", unit="timeout.service", **ran),
    ]
    columns = [query for query in QUERIES if query.place.startswith("Failed or stopped: ")]
    (counted,) = (query for query in columns if metric in narrowed(query.expr)["own"])
    found = f"round(sum by (instance) ({filled(counted, pipeline='cat|sort')}))"
    assert not failure(tmp_path, stored, found, {"first": 1, "fourth": 1})


def test_a_table_says_of_how_many_its_rows_are() -> None:
    for board, panel in tables():
        assert ranking(board, panel)


def test_what_a_table_takes_of_its_rows_are_those_that_rank_highest() -> None:
    of_labels = 0
    for board, panel in tables():
        every = ranking(board, panel)
        for name, asked in held(board, panel).items():
            label = name.rpartition("_")[2]
            if label == "row":
                names = ", ".join(f'"{each}"' for each in re.findall(r"\w+", _by(every)))
                every_named = f'label_join(\n{every}\n, "row", " ", {names})'
                assert asked == f"topk(50,\n{every_named}\n)"
                assert {narrowed(t["expr"])["names"] for t in panel["targets"]} == {names}
            else:
                assert asked == f"topk(50,\n{every}\n)"
                assert label in re.findall(r"\w+", _by(every))
                of_labels += 1
    assert of_labels == 3


def test_bars_of_the_ten_busiest_hosts_ask_for_no_other() -> None:
    (board,) = (board for board in ALL if board["uid"] == "pipelined-fleet")
    (states,) = (panel for panel in panels(board) if panel["type"] == "barchart")
    (held_there,) = (v for v in board["templating"]["list"] if v["name"] == "busiest_instance")
    assert re.match(r"query_result\(topk\(10,\nsum by \(instance\) ", held_there["query"])
    selectors = _SELECTOR.findall(states["targets"][0]["expr"])
    assert all('instance=~"$busiest_instance"' in matchers for _, matchers in selectors)


def _by(expr: str) -> str:
    """The labels by which the outermost sum of a query is made."""
    found = re.search(r"\w+ by \(([^)]*)\)", expr)
    assert found
    return found[1]


def test_jobs_only_is_what_the_rules_take_for_jobs_and_is_chosen_at_first() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "recording.rules.yml").read_text()
    shown = [v for board in ALL for v in board["templating"]["list"] if v["name"] == "left_out"]
    assert len(shown) == 4  # the daemon's own dashboard is of no unit
    for variable in shown:
        jobs, everything = variable["options"]
        assert variable["current"] == jobs and jobs["text"] == "Jobs only"
        assert set(re.findall(r'unit!~"(.*)"', rules)) == {jobs["value"]}
        assert (
            variable["query"] == f"Jobs only : {jobs['value']}, Everything : {everything['value']}"
        )
        assert "," not in jobs["value"], "Grafana parts the choices there"


def test_what_is_chosen_of_jobs_and_everything_holds_for_every_query_of_pipelines() -> None:
    for query in QUERIES:
        for name, matchers in _SELECTOR.findall(query.expr):
            assert ("unit=~" in matchers) <= ('unit!~"$left_out"' in matchers), (query, name)


# -- colours


def page_colours(scheme: str = "dark") -> dict[str, str]:
    """Of the web page on a light or a dark ground."""
    css = (ROOT / "daemon" / "pipelined" / "web" / "static" / "page.css").read_text()
    light, dark = css.split("prefers-color-scheme: dark")
    return dict(re.findall(r"--([\w-]+): (#\w{6});", light if scheme == "light" else dark))


def lightness_and_hue(colour: str) -> tuple[float, float, float]:
    """A colour ``#rrggbb`` in CIE L*a*b*, in which distances are as people see them."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_any_two_states_can_be_distinctions_by_their_colours(scheme: str) -> None:
    colours = page_colours(scheme)
    places = {state: lightness_and_hue(colours[f"state-{state}"]) for state in STATES}
    for a, b in combinations(STATES, 2):
        assert math.dist(places[a], places[b]) >= 25, (a, b)


@each_panel
def test_a_state_and_a_level_have_the_colour_that_they_have_on_the_page(
    board: dict[str, Any], panel: dict[str, Any]
) -> None:
    text = "".join(target["expr"] for target in panel["targets"])
    for prefix, values in (("state", STATES), ("level", LEVELS)):
        if f"ignoring ({prefix})" not in text:
            continue
        for value in values:
            colour = overridden(panel, value)["color"]
            page = page_colours()[f"{prefix}-{value.removesuffix('+')}"]
            assert colour == {"mode": "fixed", "fixedColor": page}


def test_a_class_of_pages_has_one_colour_everywhere() -> None:
    (disk,) = (board for board in ALL if board["uid"] == "pipelined-disk")
    for value in PAGE_CLASSES:
        colours = {
            found["color"]["fixedColor"]
            for panel in panels(disk)
            if (found := overridden(panel, value))
        }
        assert len(colours) == 1, value


# -- nested pipelines


def labels_of(panel: dict[str, Any]) -> set[str]:
    return set(panel["transformations"][-1]["options"]["renameByName"])


@each_panel
def test_a_table_of_pipelines_lists_nested_ones_and_marks_them(
    board: dict[str, Any], panel: dict[str, Any]
) -> None:
    if panel["type"] != "table" or "pipeline" not in labels_of(panel):
        return
    if "alertname" in labels_of(panel) or panel["title"].startswith("Jobs:"):
        return  # an alert has the labels that it has; to the alerts no nested pipeline is a job
    shown = [target["expr"] for target in panel["targets"] if target["refId"] in headings(panel)]
    assert not [expr for expr in shown if 'nested="false"' in expr]
    assert "nested" in labels_of(panel)
    (mapping,) = overridden(panel, "Nested")["mappings"]
    assert {value: shown["text"] for value, shown in mapping["options"].items()} == {
        "true": "↳",
        "false": "",
    }


@each_panel
def test_a_sum_over_a_host_leaves_nested_pipelines_out(
    board: dict[str, Any], panel: dict[str, Any]
) -> None:
    if board["uid"] not in ("pipelined-overview", "pipelined-fleet"):
        return  # the others sum over the pipelines that are chosen
    for target in panel["targets"]:
        named = "pipeline" in re.findall(
            r"\w+", "".join(re.findall(r"by \(([^)]*)\)", target["expr"]))
        )
        for name, matchers in _SELECTOR.findall(target["expr"]):
            if "unit=~" in matchers and not named and not name.startswith(_NO_NESTED):
                assert 'nested="false"' in matchers, name


# -- whether all is there


def test_every_metric_is_shown_or_left_out_for_a_reason() -> None:
    shown = {name for query in QUERIES for name in query.metrics}
    assert set(documented()) - shown == set(NOT_SHOWN)


@each_query
def test_a_query_asks_for_metrics_that_exist(query: Query) -> None:
    usual = set(re.findall(r"`(process_\w+)`", (ROOT / "docs" / "METRICS.md").read_text()))
    of_prometheus = {"up", "scrape_duration_seconds", "scrape_samples_scraped"}
    of_prometheus |= {"ALERTS", "ALERTS_FOR_STATE"}
    assert query.metrics or query.recorded or query.place == "variable job"
    rules = (ROOT / "deploy" / "prometheus" / "recording.rules.yml").read_text()
    assert all(f"record: {name}\n" in rules for name in query.recorded)
    assert query.metrics <= set(documented()) | usual | of_prometheus


def test_the_page_about_them_names_each_panel_row_and_dashboard() -> None:
    page = (ROOT / "docs" / "DASHBOARDS.md").read_text()
    for board in ALL:
        assert f"## {board['title'].removeprefix('Pipelined / ')}" in page
        for panel in board["panels"]:
            if panel["type"] == "row":
                assert panel["title"] in page, (board["title"], panel["title"])


def test_most_queries_can_be_answered_without_the_functions_tier() -> None:
    rare = [query for query in QUERIES if query.metrics & may_be_absent()]
    assert {query.dashboard for query in rare} == {
        "Pipelined / Overview",  # alerts
        "Pipelined / Pipeline",
        "Pipelined / Itself",
        "Pipelined / Disk and readahead",  # direct reads
    }
    assert len(rare) < len(QUERIES) / 10
