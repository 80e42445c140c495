# SPDX-License-Identifier: Apache-2.0
"""Real engines watch a real daemon while pipelines run: what deploy/prometheus makes of it there,
and whether every query of every dashboard has an answer.

The engines are Debian's Prometheus; the next release's, which is Prometheus 3; and VictoriaMetrics,
to which the first one writes what it scrapes, and where vmalert evaluates the rules.

Time is shortened, and nothing else: Prometheus scrapes every two seconds, all evaluate every
second, and what is a minute in a rule's schedule is a second. A host whose kernel lets no program
hook functions has no series of that tier. Queries that need them go to a second target: the
daemon's own collectors, with invented figures of a stage.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dashboard_files import (
    FILES,
    Query,
    all_chosen,
    first_choices,
    load,
    may_be_absent,
    panels,
    queries,
)
from metrics_target import served
from pipelined.runs import Functions, Histogram
from pipelined.web.metrics import Metrics
from prometheus_server import Prometheus
from server_process import ServerProcess, of_the_host, of_the_next_release
from unit.invented import make_functions, make_readahead
from unit.test_metrics import CAT_AWK, FakeStage, FakeTotals, FakeWebConfig, MeasuredObserver
from unit.test_rules import ALERTING, RECORDED
from victoria_metrics_server import VictoriaMetrics, Vmalert

from .conftest import Daemon, StartDaemon, _starter
from .workload import HELD_BACK, UNIT, WHOLE, Workload

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
#: Seconds in which every query and rule has to have an answer.
PATIENCE = 120
#: What Grafana would put for its own variables. Rates need two scrapes.
GRAFANA = {
    **{"__rate_interval": "10s", "__range": "60s", "__range_s": "60"},
    **{"__interval": "1s", "__interval_ms": "1000"},
}

#: Needs days of samples: test_fleet.py and tests/prometheus/days.test.yml have them.
OF_DAYS = "unit_pipeline:pipelined_run_duration:ratio_median1d"
QUERIES = [
    query for file in FILES for query in queries(load(file)) if OF_DAYS not in query.recorded
]

#: Series that rules record, and alerts: VictoriaMetrics is to have those of vmalert alone.
_OF_RULES = ".+:.+|ALERTS.*"
_INVENTED_ALERT = "PipelineSlowerThanUsual"


@dataclass(frozen=True)
class Engine:
    """What answers queries, and what evaluates the rules."""

    storage: ServerProcess
    rules: ServerProcess


@dataclass(frozen=True)
class Watched:
    """What is there while the tests run."""

    daemon: Daemon
    engines: dict[str, Engine]
    address: str
    """Of the daemon, as the label `instance` has it."""
    invented: str
    """Of the target with the series of the functions tier."""


@dataclass(frozen=True)
class Scraped:
    """What was scraped, as one of the engines has it."""

    daemon: Daemon
    storage: ServerProcess
    rules: ServerProcess
    address: str
    invented: str


@pytest.fixture(scope="module")
def watched(bpf: None, program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    directory = tmp_path_factory.mktemp("scraped")
    daemons: list[Daemon] = []
    workload = Workload(directory / "files")
    scrapes = iter(range(1, 1_000_000))
    try:
        (directory / "web.yml").write_text("http_server_config: {http2: false}\n")
        web = ("--web.config.file", str(directory / "web.yml"))
        daemon = _starter(program, directory, daemons)(*web)
        address = daemon.url.removeprefix("http://")
        with (
            served(lambda: _functions_text(next(scrapes))) as invented,
            _engines(directory, address, invented) as engines,
        ):
            workload.go()
            yield Watched(daemon, engines, address, invented)
    finally:
        workload.close()
        for daemon in daemons:
            daemon.close()


@pytest.fixture(params=["prometheus", "prometheus 3", "victoria-metrics"])
def scraped(watched: Watched, request: pytest.FixtureRequest) -> Scraped:
    engine = watched.engines[request.param]
    return Scraped(watched.daemon, engine.storage, engine.rules, watched.address, watched.invented)


@contextmanager
def _engines(directory: Path, address: str, invented: str) -> Iterator[dict[str, Engine]]:
    """All of them, by name; they scrape, or are written to, at the same time."""
    rules = _rules_files(directory)
    config = _configuration(directory, address, invented)
    with contextlib.ExitStack() as running:
        storage = running.enter_context(VictoriaMetrics(directory / "vm"))
        remote = {
            "url": f"{storage.url}/api/v1/write",
            "write_relabel_configs": [
                # but not the alert that the invented target says it has
                {
                    "source_labels": ["__name__", "instance", "alertname"],
                    "regex": f"ALERTS.*;{re.escape(invented)};{_INVENTED_ALERT}",
                    "target_label": "__tmp_kept",
                    "replacement": "1",
                },
                {
                    "source_labels": ["__name__", "__tmp_kept"],
                    "regex": f"({_OF_RULES});",
                    "action": "drop",
                },
                {"regex": "__tmp_kept", "action": "labeldrop"},
            ],
            "queue_config": {"batch_send_deadline": "500ms"},
        }
        writing = f"{config}\nremote_write: {json.dumps([remote])}\n"
        first = running.enter_context(Prometheus(directory / "2", writing, rules))
        newer = of_the_next_release("prometheus")
        third = running.enter_context(Prometheus(directory / "3", config, rules, program=newer))
        vmalert = running.enter_context(Vmalert(directory / "vmalert", rules, storage))
        yield {
            "prometheus": Engine(first, first),
            "prometheus 3": Engine(third, third),
            "victoria-metrics": Engine(storage, vmalert),
        }


def _rules_files(directory: Path) -> list[Path]:
    """The rules of deploy/, with shorter times."""
    files = []
    for file in DEPLOY.glob("*.rules.yml"):
        rules, groups = re.subn(r"interval: [14]m$", "interval: 1s", file.read_text(), flags=re.M)
        assert groups == rules.count("  - name: "), file
        if "offset 1m" in rules:  # one evaluation ago
            rules = rules.replace("offset 1m", "offset 2s")
        if "PipelinedDown" in rules:
            # long enough for a busy host, on which a scrape now and then takes too long
            rules = re.sub(
                r"(alert: PipelinedDown\n(?: +#.*\n)* +expr:.*\n +for:) 5m", r"\1 20s", rules
            )
            assert rules.count("for: 20s") == 1
        files.append(directory / file.name)
        files[-1].write_text(rules)
    return files


def _configuration(directory: Path, address: str, invented: str) -> str:
    """prometheus.yml of deploy/, with other addresses and shorter times, and without its rules."""
    text = (DEPLOY / "prometheus.yml").read_text()
    text = re.sub(r"^rule_files:\n(  - .*\n)+", "", text, flags=re.MULTILINE)
    text = _replaced(text, "127.0.0.1:9905", address)
    text = _replaced(text, "scrape_interval: 15s", "scrape_interval: 2s\n  scrape_timeout: 2s")
    text = _replaced(text, "evaluation_interval: 1m", "evaluation_interval: 1s")
    other = {"job_name": "functions-tier", "static_configs": [{"targets": [invented]}]}
    return _replaced(text, "scrape_configs:\n", f"scrape_configs:\n  - {json.dumps(other)}\n")


def _replaced(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new)


# -- the functions tier, invented


def _grown(functions: Functions, times: int) -> Functions:
    """What the same stage would have done `times` times as often."""

    def grown(histogram: Histogram) -> Histogram:
        buckets = tuple(replace(each, count=each.count * times) for each in histogram.buckets)
        return Histogram(buckets, histogram.sum * times)

    return replace(
        functions,
        pipe_writes=grown(functions.pipe_writes),
        pipe_reads=grown(functions.pipe_reads),
        file_reads=grown(functions.file_reads),
        file_read_seconds=grown(functions.file_read_seconds),
        pipe_fill=grown(functions.pipe_fill),
    )


def _functions_text(scrapes: int) -> bytes:
    """What the daemon exports of what `may_be_absent`, and of what ranks that in a table."""
    stage = FakeStage(
        functions=_grown(make_functions(), scrapes),
        readahead=make_readahead(direct_bytes=4096 * scrapes),
        exec_failures=scrapes,
    )
    observer = MeasuredObserver({CAT_AWK: FakeTotals(stages={(1, "cat"): stage})})
    metrics = Metrics(observer, web_config=FakeWebConfig())  # type: ignore[arg-type]
    text = metrics.render()[0].decode()
    wanted = (*may_be_absent(), "pipelined_config_last_reload_successful")
    lines = [line for line in text.splitlines(keepends=True) if line.startswith(wanted)]
    about = f'alertname="{_INVENTED_ALERT}",severity="warning",pipeline="cat|awk",unit="-"'
    lines.append(f'ALERTS{{{about},alertstate="firing"}} 1\n')
    lines.append(f"ALERTS_FOR_STATE{{{about}}} {time.time()}\n")
    return "".join(lines).encode()


# -- dashboards


def _filled(query: Query, scraped: Scraped) -> str:
    """The query as Grafana sends it once its variables are chosen."""
    invented = bool(query.metrics & may_be_absent() - _exposed(scraped))
    chosen = {
        **GRAFANA,
        **all_chosen(),
        **first_choices(),
        "instance": _escaped(scraped.invented if invented else scraped.address),
        "unit": ".+" if invented else _escaped(UNIT),
        "pipeline": CAT_AWK.pipeline if invented else WHOLE,
    }
    if invented:
        chosen["left_out"] = "()"  # what somebody types
    if 'pipeline=~"$pipeline"' in query.expr:
        chosen["pipeline"] = ".+"
    # not the $1 of label_replace
    return re.sub(r"\$([a-z_]\w*)", lambda found: chosen[found[1]], query.expr)


def _escaped(value: str) -> str:
    """As Grafana escapes a value of a variable that takes several, for a matcher with =~."""
    return re.sub(r"([\\^$*+?.()|\[\]{}])", r"\\\\\1", value)


def _exposed(scraped: Scraped) -> set[str]:
    """Metrics that the daemon has here; what rules make of them may still be pending."""
    matcher = urllib.parse.quote(
        f'{{job="pipelined", instance="{scraped.address}", __name__!~"{_OF_RULES}"}}'
    )
    names = scraped.storage.get(f"/api/v1/label/__name__/values?match[]={matcher}")
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names} | set(names)


def _answer(query: Query, scraped: Scraped) -> list[dict[str, str]]:
    """The labels of each series, or value of the variable, that Prometheus answers with."""
    expr = _filled(query, scraped)
    if query.kind == "variable":
        (label,) = query.labels
        matcher = urllib.parse.quote(expr)
        path = f"/api/v1/label/{label}/values?match[]={matcher}"
        return [{label: value} for value in scraped.storage.get(path)]
    now = time.time()
    if query.kind == "instant":
        found = scraped.storage.query(expr)
        return [each["metric"] for each in found if not math.isnan(float(each["value"][1]))]
    # long enough for the end of one of the runs of 10 s, which a mark is made of
    parameters = {"query": expr, "start": now - 30, "end": now, "step": "1s"}
    found = scraped.storage.get(f"/api/v1/query_range?{urllib.parse.urlencode(parameters)}")[
        "result"
    ]
    return [
        each["metric"]
        for each in found
        if any(not math.isnan(float(value)) for _, value in each["values"])
    ]


def _had_an_answer(query: Query, scraped: Scraped) -> bool:
    """Whether there was one at some second: what runs for a moment is not there at each look."""
    now, expr = time.time(), _filled(query, scraped)
    found = (scraped.storage.query(expr, now - ago) for ago in range(PATIENCE))
    return query.kind == "instant" and any(
        query.labels <= set(s["metric"]) for f in found for s in f
    )


def test_every_query_of_every_dashboard_has_an_answer_with_the_labels_that_it_needs(
    scraped: Scraped,
) -> None:
    left = QUERIES
    deadline = time.monotonic() + PATIENCE
    while True:
        still = []
        for query in left:
            answer = _answer(query, scraped)
            for labels in answer:
                assert query.labels <= set(labels), f"{query}: {labels}"
            if not answer:
                still.append(query)
        left = still
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    left = [query for query in left if not _had_an_answer(query, scraped)]
    assert not left, "\n\n".join(f"{query}\n{_filled(query, scraped)}" for query in left)


def test_shares_of_states_levels_and_pages_add_up_to_one(scraped: Scraped) -> None:
    parts = {"state", "level", "class"}
    shares = [
        query
        for query in QUERIES
        if (found := re.search(r"/ ignoring \((\w+)\) group_left \(\)\n(.*)", query.expr))
        and found[1] in parts
        and "run_seconds" not in found[2]
    ]
    assert len({query.dashboard for query in shares}) == 3
    for query in shares:
        total: dict[frozenset[tuple[str, str]], float] = {}
        for each in scraped.storage.wait_for(_filled(query, scraped), PATIENCE):
            key = frozenset(pair for pair in each["metric"].items() if pair[0] not in parts)
            total[key] = total.get(key, 0) + float(each["value"][1])
        assert all(abs(value - 1) < 1e-6 for value in total.values()), query


def test_a_nested_pipeline_stands_directly_below_the_one_that_it_ran_in(scraped: Scraped) -> None:
    (query,) = (query for query in QUERIES if "pipelined_nested_info" in query.expr)
    outer, nested = ("bash|cat", "false"), ("cat|gzip|wc", "true")
    deadline = time.monotonic() + PATIENCE
    while True:
        placed = {
            (found["metric"]["pipeline"], found["metric"]["nested"]): float(found["value"][1])
            for found in scraped.storage.query(_filled(query, scraped))
        }
        order = sorted(placed, key=lambda name: -placed[name])
        if nested in placed and order.index(nested) == order.index(outer) + 1:
            return
        assert time.monotonic() < deadline, placed
        time.sleep(0.5)


def test_the_stage_that_is_said_to_hold_a_pipeline_back_is_the_one_that_does(
    scraped: Scraped,
) -> None:
    (query,) = (
        q for q in QUERIES if q.place.startswith("Pipelines that ran") and "command" in q.labels
    )
    chosen = f'pipelined_runs_total{{pipeline="{HELD_BACK}", nested="false"}}'
    found = scraped.storage.wait_for(
        f"({_filled(query, scraped)}) and on (pipeline, nested) {chosen}", PATIENCE
    )
    assert {each["metric"]["command"] for each in found} == {"gzip"}


# -- rules


def _rules(engine: Engine | Scraped) -> list[dict[str, Any]]:
    found = engine.rules.get("/api/v1/rules")["groups"]
    return [rule for group in found for rule in group["rules"]]


def test_every_recording_rule_has_data(scraped: Scraped) -> None:
    names = {rule.name for rule in RECORDED} - {OF_DAYS}
    deadline = time.monotonic() + PATIENCE
    while names := {
        name for name in names if not scraped.storage.query(f"last_over_time({name}[5m])")
    }:
        assert time.monotonic() < deadline, names
        time.sleep(0.5)


def test_no_rule_fails(scraped: Scraped) -> None:
    deadline = time.monotonic() + PATIENCE
    while any(rule["health"] == "unknown" for rule in _rules(scraped)):
        assert time.monotonic() < deadline, "rules are not evaluated"
        time.sleep(0.1)
    assert {(rule["name"], rule.get("lastError", "")) for rule in _rules(scraped)} == {
        (rule.name, "") for rule in (*RECORDED, *ALERTING)
    }
    assert {rule["health"] for rule in _rules(scraped)} == {"ok"}


def _firing(engine: Engine) -> set[str]:
    return {rule["name"] for rule in _rules(engine) if rule.get("state") == "firing"}


def test_nothing_fires_while_all_is_well_and_an_alert_does_when_the_daemon_is_stopped(
    watched: Watched,
) -> None:
    engines = watched.engines
    for engine in engines.values():
        engine.storage.wait_for('count_over_time(up{job="pipelined"}[1m]) > 2')
    assert {name: _firing(engine) for name, engine in engines.items()} == {
        name: set() for name in engines
    }
    watched.daemon.stop()
    expected = {name: {"PipelinedDown"} for name in engines}
    deadline = time.monotonic() + PATIENCE
    while (firing := {name: _firing(engine) for name, engine in engines.items()}) != expected:
        assert time.monotonic() < deadline, firing
        time.sleep(0.1)


# -- exemplars


@pytest.mark.parametrize("release", [of_the_host, of_the_next_release], ids=["2", "3"])
def test_an_exemplar_of_a_failed_run_names_its_trace(
    release: Callable[[str], str],
    start_daemon: StartDaemon,
    tool: Callable[[str], str],
    tmp_path: Path,
) -> None:
    daemon = start_daemon("--traces-exported", "--recent-runs", "10000")
    job = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    job |= {"static_configs": [{"targets": [daemon.url.removeprefix("http://")]}]}
    config = f"scrape_configs: {json.dumps([{'job_name': 'pipelined', **job}])}"
    cat, false = tool("cat"), tool("false")
    line = f"{cat} /dev/zero | (sleep 0.3; {false})"
    with Prometheus(
        tmp_path / "prometheus",
        config,
        flags=["--enable-feature=exemplar-storage"],
        program=release("prometheus"),
    ) as prometheus:
        subprocess.run(["bash", "-c", line], check=False)
        failed = f'pipelined_failed_runs_total{{pipeline=~"{Path(cat).name}.*",reason="exit"}}'
        (series,) = prometheus.wait_for(f"{failed} == 1")
        (run,) = daemon.wait_for_runs(series["metric"]["pipeline"], 1)
        for query in (failed, _drawn_with_exemplars(series["metric"])):
            (found,) = prometheus.get(f"/api/v1/query_exemplars?{_lately(query)}")
            (exemplar,) = found["exemplars"]
            assert exemplar["labels"] == {"trace_id": run["trace_id"], "run_id": run["id"]}
            assert float(exemplar["value"]) == pytest.approx(run["wall_seconds"])


def _drawn_with_exemplars(labels: dict[str, str]) -> str:
    """The query of the graph of run times, with these values chosen."""
    (expr,) = [
        target["expr"]
        for file in FILES
        for panel in panels(load(file))
        for target in panel["targets"]
        if target.get("exemplar")
    ]
    # what somebody types, and not jobs only
    chosen = {**GRAFANA, **all_chosen(), "left_out": "()", "pipeline": labels["pipeline"]}
    return re.sub(r"\$([a-z_]\w*)", lambda found: chosen[found[1]], expr)


def _lately(query: str) -> str:
    now = time.time()
    return urllib.parse.urlencode({"query": query, "start": now - PATIENCE, "end": now})
