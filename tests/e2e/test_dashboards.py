# SPDX-License-Identifier: Apache-2.0
"""How many series the graphs of the dashboards draw, and in which order, by a real Prometheus.

It scrapes more hosts, with more pipelines, than a graph draws, and one pipeline of more stages
than there are digits. Their figures are invented, and grow with every scrape.
"""

from __future__ import annotations

import re
import time
import urllib.parse
from collections.abc import Iterator

import pytest

from dashboard_files import FILES, Query, all_chosen, first_choices, load, queries
from metrics_target import served
from pipelined.runs import Series
from pipelined.web.metrics import Metrics
from prometheus_server import Prometheus
from unit.test_metrics import FakeStage, FakeTotals, FakeWebConfig, MeasuredObserver

HOSTS = 12
#: In an order that is not the alphabet's.
CHAIN = ("zcat", "tr", "sed", "awk", "cut", "sort", "uniq", "grep", "join", "paste", "head", "cat")
SIGNATURE = "|".join(CHAIN)
#: What a graph of pipelines, hosts or units draws at most.
MOST = 10
#: Seconds in which every query has to have an answer.
PATIENCE = 120

GRAPHS = [
    query
    for file in FILES
    for query in queries(load(file))
    if query.kind == "range" and query.place != "Run ends"
]


def _exposition() -> str:
    stages = {(n, command): FakeStage(write_calls=2) for n, command in enumerate(CHAIN, start=1)}
    totals = {Series(pipeline=SIGNATURE, nested=False, unit="a.service"): FakeTotals(stages=stages)}
    for n in range(HOSTS):
        series = Series(pipeline=f"cat|awk|tool{n}", nested=False, unit=f"unit{n}.service")
        totals[series] = FakeTotals(run_seconds=20 + n)
    observer = MeasuredObserver(totals)
    metrics = Metrics(observer, web_config=FakeWebConfig())  # type: ignore[arg-type]
    return metrics.render()[0].decode()


def _grown(text: str, times: int) -> str:
    """The counters after `times` scrapes."""
    counter = r"(?m)^(pipelined_\w+_(?:total|sum|count|bucket)\b.*) (\S+)$"
    return re.sub(counter, lambda found: f"{found[1]} {float(found[2]) * times}", text)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    text, start = _exposition(), time.monotonic()
    with served(lambda: _grown(text, 1 + int(time.monotonic() - start)).encode()) as address:
        hosts = "".join(
            f"      - targets: [{address!r}]\n        labels: {{instance: host{n}}}\n"
            for n in range(HOSTS)
        )
        config = (
            "global: {scrape_interval: 2s, scrape_timeout: 2s}\nscrape_configs:\n"
            f"  - job_name: pipelined\n    static_configs:\n{hosts}"
        )
        with Prometheus(tmp_path_factory.mktemp("graphs"), config) as server:
            server.wait_for("count(count_over_time(up[1m]) > 3) == 12", PATIENCE)
            yield server


def _drawn(prometheus: Prometheus, query: Query) -> list[dict[str, str]]:
    """The labels of the series that a graph draws, in their order."""
    many = 'pipeline=~"$pipeline"' in query.expr
    chosen = {
        "__rate_interval": "8s",
        "__range": "30s",
        "__range_s": "30",
        "__interval_ms": "1000",
        **all_chosen(),
        **first_choices(),
        "pipeline": ".+" if many else SIGNATURE,
    }
    expr = re.sub(r"\$([a-z_]\w*)", lambda found: chosen[found[1]], query.expr)
    now = time.time()
    parameters = {"query": expr, "start": now - 4, "end": now, "step": "1s"}
    found = prometheus.get(f"/api/v1/query_range?{urllib.parse.urlencode(parameters)}")
    return [each["metric"] for each in found["result"]]


def test_a_graph_of_many_draws_ten(prometheus: Prometheus) -> None:
    full = 0
    for query in GRAPHS:
        many = {"instance", "unit", "pipeline"} & set().union(*_drawn(prometheus, query))
        if not many:
            continue
        names = {
            tuple(labels.get(name) for name in (*many, "position", "command"))
            for labels in _drawn(prometheus, query)
        }
        assert len(names) <= MOST, query
        full += len(names) == MOST
    assert full > 10


def test_a_graph_of_stages_draws_them_in_the_order_of_the_data(prometheus: Prometheus) -> None:
    of_stages = [query for query in GRAPHS if {"position", "command"} <= query.labels]
    assert len(of_stages) > 10
    for query in of_stages:
        positions = [int(labels["position"]) for labels in _drawn(prometheus, query)]
        assert positions == sorted(positions), query
        assert set(positions) == set(range(1, len(CHAIN) + 1)) or "Disk" in query.dashboard, query
