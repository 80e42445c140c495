# SPDX-License-Identifier: Apache-2.0
"""deploy/opentelemetry/collector.yaml: what it counts for Prometheus, and what it passes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from prometheus_server import Prometheus
from traces.conftest import HOSTS, StartSenders
from traces.documented import of_prometheus
from traces.fleet import Host, Job, eventually, wait_for_all
from traces.jaeger_server import Collector, Jaeger

COUNT = "traces_span_metrics_duration_seconds_count"
#: Two seconds, and four. A busy host stores only the longer ones of its runs.
SORT, SORTED = "{ seq 20000; sleep 2; } | sort -n | tail -n 1; true", "bash|sort|tail"
SLOW, SLOWED = "sleep 4 | wc -l; true", "sleep|wc"
SCRAPE = """
scrape_configs:
  - job_name: collector
    honor_labels: true
    scrape_interval: 1s
    static_configs:
      - targets: ["%s"]
"""


@dataclass(frozen=True)
class Fleet:
    """Two hosts whose senders send to a Collector, which a Prometheus scrapes."""

    hosts: list[Host]
    store: Jaeger
    target: str
    """What is scraped."""
    prometheus: Prometheus


@pytest.fixture(scope="module")
def fleet(senders: StartSenders, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("collector")
    with (
        Jaeger(directory / "jaeger") as store,
        Collector(directory / "collector", store.otlp) as collector,
        senders(collector.otlp) as hosts,
    ):
        target = collector.url.removeprefix("http://")
        with Prometheus(directory / "prometheus", SCRAPE % target) as prometheus:
            yield Fleet(hosts, store, target, prometheus)


def test_the_quantiles_of_each_job_are_within_a_bucket_of_its_runs(fleet: Fleet, job: Job) -> None:
    median = of_prometheus()["p50 of run times per job (p95: 0.95)"]
    asked = {"p50": median, "p95": median.replace("(0.5,", "(0.95,")}
    # an increase begins with what is there
    for times, counts in ((1, 4), (5, 24)):
        job.run(f"for each in {{1..{times}}}; do ({SORT}) & ({SLOW}) & done; wait")
        wait_for_count(fleet, job, counts)
        time.sleep(3)  # scrapes
    found = {
        (quantile, series["metric"]["pipelined_pipeline"]): float(series["value"][1])
        for quantile, query in asked.items()
        for series in fleet.prometheus.query(query)
        if series["metric"]["pipelined_unit"] == job.unit
    }
    assert set(found) == {(q, pipeline) for q in ("p50", "p95") for pipeline in (SORTED, SLOWED)}
    for (_, pipeline), seconds in found.items():
        assert 1 <= seconds <= 3 if pipeline == SORTED else 3 <= seconds <= 10


def test_prometheus_takes_every_query_of_the_document(fleet: Fleet) -> None:
    asked = of_prometheus()
    assert len(asked) > 2
    for query in asked.values():
        fleet.prometheus.query(query)


def test_runs_of_all_hosts_are_counted_and_no_stages(fleet: Fleet, job: Job) -> None:
    job.run(f"{SORT}; bash -c '{SORT}' | cat; true")
    for host in fleet.hosts:
        wait_for_all(fleet.store, host, job.unit, 3)
    wait_for_count(fleet, job, 6)
    by_nesting = fleet.prometheus.query(
        f'sum by (pipelined_nested) ({COUNT}{{pipelined_unit="{job.unit}"}})'
    )
    assert {
        series["metric"]["pipelined_nested"]: int(series["value"][1]) for series in by_nesting
    } == {"false": 2 * len(HOSTS), "true": len(HOSTS)}
    assert fleet.prometheus.query(f'{COUNT}{{pipelined_unit=""}}') == []


def test_a_job_has_one_histogram_whatever_hosts_it_runs_on(fleet: Fleet, job: Job) -> None:
    job.run(SORT)
    wait_for_count(fleet, job, len(HOSTS))
    (series,) = fleet.prometheus.query(f'{COUNT}{{pipelined_unit="{job.unit}"}}')
    labels = {name: value for name, value in series["metric"].items() if "scope" not in name}
    assert labels == {
        "__name__": COUNT,
        "instance": fleet.target,
        "job": "pipelined",
        "pipelined_nested": "false",
        "pipelined_pipeline": SORTED,
        "pipelined_run_outcome": "succeeded",
        "pipelined_unit": job.unit,
    }


def test_a_store_that_was_away_misses_nothing_and_no_run_is_counted_twice(
    fleet: Fleet, job: Job
) -> None:
    with fleet.store.away():
        job.run(f"for each in {{1..5}}; do ({SORT}) & done; wait")
        wait_for_count(fleet, job, 10)
        time.sleep(20)  # meanwhile the sender would try again
    for host in fleet.hosts:
        wait_for_all(fleet.store, host, job.unit, 5)
    assert counted(fleet, job) == 10


def wait_for_count(fleet: Fleet, job: Job, count: int) -> None:
    """Wait until so many runs of a job have been counted, on both hosts together."""
    eventually(lambda: counted(fleet, job), lambda found: found >= count, f"{count} runs counted")


def counted(fleet: Fleet, job: Job) -> int:
    """How many runs of a job Prometheus knows of."""
    found = fleet.prometheus.query(f'sum({COUNT}{{pipelined_unit="{job.unit}"}})')
    return int(found[0]["value"][1]) if found else 0
