# SPDX-License-Identifier: Apache-2.0
"""dashboards/*.json where other programs are scraped under the instance of a daemon: an exporter of
the host and the sender, as with the objects of deploy/kubernetes, and a kubelet, at two paths.
promtool answers the queries."""

from __future__ import annotations

import json
import re
from pathlib import Path

from dashboard_files import (
    FILES,
    Query,
    all_chosen,
    documented,
    first_choices,
    load,
    may_be_absent,
    queries,
)
from unit.test_rules import promtool

#: The queries for what is not the daemon's alone: `up`, what Prometheus notes of each scrape, and
#: what every program exports of its process.
QUERIES = {
    query: others
    for file in FILES
    for query in queries(load(file))
    if (others := query.metrics - set(documented()) - may_be_absent())
}
OTHERS = sorted(set().union(*QUERIES.values()))

#: What Grafana would put for its own variables. There is a sample a minute, over an hour.
GRAFANA = {"__rate_interval": "4m", "__range": "1h", "__range_s": "3600", "__interval_ms": "60000"}

#: More than a graph draws.
HOSTS = 12


def filled(query: Query, **chosen: str) -> str:
    """The query as Grafana sends it."""
    values = {**GRAFANA, **all_chosen(), **first_choices(), **chosen}
    return re.sub(r"\$([a-z_]\w*)", lambda found: values[found[1]], query.expr)


def series(name: str, samples: str, **labels: str) -> dict[str, str]:
    named = ", ".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{named}}}", "values": samples}


def failure(
    directory: Path, stored: list[dict[str, str]], expr: str, answer: dict[str, float]
) -> str:
    """What promtool objects to if the query is answered with other values by instance."""
    asked = {
        "expr": expr,
        "eval_time": "1h",
        "exp_samples": [
            {"labels": f'{{instance="{instance}"}}', "value": value}
            for instance, value in answer.items()
        ],
    }
    case = {"interval": "1m", "input_series": stored, "promql_expr_test": [asked]}
    file = directory / "case.test.yml"
    file.write_text(json.dumps({"tests": [case]}))
    tested = promtool("test", "rules", file)
    return "" if tested.returncode == 0 else tested.stdout + tested.stderr


def test_other_jobs_of_the_same_instances_change_no_answer(tmp_path: Path) -> None:
    stored = []
    for n in range(HOSTS):
        host = f"host{n}"
        stored.append(series("pipelined_build_info", "1x60", job="pipelined", instance=host))
        for place, name in enumerate(OTHERS, start=1):
            # a host's exporter is the larger, the smaller its daemon is; their ratios differ, too
            for job, start in (
                ("pipelined", n + place),
                ("node-exporter", 1000 * place - n),
                ("pipelined-export", 2000 * place - n),
            ):
                samples = f"{start}+{start}x60" if name != "up" else f"{start % 2}x60"
                stored.append(series(name, samples, job=job, instance=host))
            for path in ("/metrics", "/metrics/probes"):
                kubelet = {"job": "kubelet", "instance": host, "metrics_path": path}
                stored.append(series(name, f"{3000 * place - n}x60", **kubelet))
    wrong = []
    for query in QUERIES:
        every, own = (f"({filled(query, job=job)})" for job in (".+", "pipelined"))
        differ = f"({every} != {own}) or ({every} unless {own}) or ({own} unless {every})"
        if found := failure(tmp_path, stored, f"{differ} or absent({own})", {}):
            wrong.append(f"{query}\n{found}")
    assert not wrong, "\n".join(wrong)
    assert len(QUERIES) >= 10


def test_of_an_upgraded_daemon_and_one_that_stopped_answering_all_is_shown(tmp_path: Path) -> None:
    """`old` got another version after half an hour, scrapes of `lost` time out for ten minutes."""
    old, lost = ({"job": "pipelined", "instance": instance} for instance in ("old", "lost"))
    stored = [
        series("pipelined_build_info", "1x29 stale", **old, version="1"),
        series("pipelined_build_info", "_x30 1x30", **old, version="2"),
        series("pipelined_build_info", "1x50 stale", **lost, version="1"),
        series("process_cpu_seconds_total", "0+30x29 0+30x30", **old),
        series("process_cpu_seconds_total", "0+30x50 stale", **lost),
        series("process_resident_memory_bytes", "4e7x60", **old),
        series("process_resident_memory_bytes", "4e7x50 stale", **lost),
        series("process_open_fds", "16x60", **old),
        series("process_open_fds", "16x50 stale", **lost),
        series("process_max_fds", "64x60", **old),
        series("process_max_fds", "64x50 stale", **lost),
        series("scrape_duration_seconds", "0.5x60", **old),
        series("scrape_duration_seconds", "0.5x50 10x10", **lost),
        series("scrape_samples_scraped", "80x60", **old),
        series("scrape_samples_scraped", "80x50 0x10", **lost),
    ]
    for name in OTHERS:
        stored += [
            series(name, "1000+1000x60", job="node-exporter", instance=instance)
            for instance in ("old", "lost")
        ]
    shown = {
        "CPU of the daemon": {"old": 0.5},
        "Memory of the daemon": {"old": 4e7},
        "Open files of the daemon": {"old": 0.25},
        "Time of a scrape": {"old": 0.5, "lost": 10},
        "Series of a scrape": {"old": 80, "lost": 0},
    }
    asked = {query.place.rpartition(" (")[0]: query for query in QUERIES if query.kind == "range"}
    assert set(asked) == set(shown)
    wrong = [
        f"{title}\n{found}"
        for title, answer in shown.items()
        if (found := failure(tmp_path, stored, f"round({filled(asked[title])}, 0.001)", answer))
    ]
    assert not wrong, "\n".join(wrong)
