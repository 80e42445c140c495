# SPDX-License-Identifier: Apache-2.0
"""Runs of two hosts in a real Jaeger, asked by its query API."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from traces.fleet import (
    Host,
    Job,
    assert_sent_once,
    eventually,
    of_host,
    sent_runs,
    stored_runs,
    wait_for_all,
)
from traces.jaeger_server import Jaeger, Span

JOB = Path(__file__).parent / "job.py"
#: A pipeline that takes two seconds. A busy host stores only the longer ones of its runs.
SORT = "{ seq 20000; sleep 2; } | sort -n | tail -n 1; true"
SORTED = "bash|sort|tail"
FAILS = "sleep 2 | sh -c 'cat; exit 2'; true"
#: Seconds that Jaeger is away.
OUTAGE = 60
#: Meanwhile the pauses of a sender grow to a minute, and the last one may just have begun.
PATIENCE_AFTER_OUTAGE = 180.0


def test_every_run_of_both_hosts_is_there_once(hosts: list[Host], jaeger: Jaeger, job: Job) -> None:
    job.run(f"for each in {{1..30}}; do ({SORT}) & done; wait")
    for host in hosts:
        stored = stored_runs(host, job.unit)
        assert len(stored) > 1
        assert_sent_once(jaeger, host, job.unit, stored)
        # what else has run on this machine
        assert set(sent_runs(jaeger, host).values()) == {1}


def test_a_span_of_the_sdk_has_the_pipelines_of_its_subprocesses_below_it(
    hosts: list[Host], jaeger: Jaeger, job: Job
) -> None:
    printed = job.output(sys.executable, str(JOB), OTEL_EXPORTER_OTLP_ENDPOINT=jaeger.otlp)
    trace_id, span_id = printed.split()[-2:]
    for host in hosts:
        wait_for_all(jaeger, host, job.unit, 2)
    trace = jaeger.trace(trace_id)

    (outer,) = [span for span in trace if span.service == "nightly"]
    assert (outer.span_id, outer.parent_id) == (span_id, None)
    for host in hosts:
        spans = of_host(trace, host.name)
        assert {span.name: commands_below(span, spans) for span in runs(spans)} == {
            "sleep|sort|tail": ["sleep", "sort", "tail"],
            "sleep|wc": ["sleep", "wc"],
        }
        assert {span.parent_id for span in runs(spans)} == {span_id}
    # all that the job's pipelines have sent is in this trace
    assert {span.trace_id for span in jaeger.spans(**{"pipelined.unit": job.unit})} == {trace_id}


def test_a_trace_that_is_not_recorded_is_not_sent(
    hosts: list[Host], jaeger: Jaeger, job: Job
) -> None:
    trace_id = "4b" * 16
    job.run(SORT, TRACEPARENT=f"00-{trace_id}-{'a0' * 8}-00")
    job.run(SORT)
    for host in hosts:
        eventually(lambda host=host: len(host.runs(job.unit)), lambda n: n == 2, "both runs")
        (sent,) = eventually(
            lambda host=host: list(sent_runs(jaeger, host, **{"pipelined.unit": job.unit})),
            bool,
            "the other run",
        )
        assert sent in host.runs(job.unit)
    assert jaeger.trace(trace_id) == []


@pytest.mark.parametrize(
    ("script", "tags"),
    [
        (
            FAILS,
            {"pipelined.run.outcome": "failed", "error.type": "exit 2"},
        ),
        (
            "sleep 2 | bash -c 'cat; kill -KILL $$'; true",
            {"pipelined.run.outcome": "failed", "error.type": "SIGKILL"},
        ),
        (FAILS, {"error": "true"}),
    ],
    ids=["exit", "signal", "status"],
)
def test_failed_runs_are_found_by_tag(
    hosts: list[Host], jaeger: Jaeger, job: Job, script: str, tags: dict[str, str]
) -> None:
    job.run(f"({SORT}) & ({script}) & ({SORT}) & wait")
    searched = {"pipelined.unit": job.unit} | tags
    for host in hosts:
        wait_for_all(jaeger, host, job.unit, 3)
        found = runs(of_host(jaeger.spans(**searched, **{"host.name": host.name}), host.name))
        (failed,) = [span for span in found if span.tags["pipelined.unit"] == job.unit]
        assert failed.name in ("sleep|sh", "sleep|bash")


def test_what_runs_inside_a_stage_is_below_it(hosts: list[Host], jaeger: Jaeger, job: Job) -> None:
    job.run(f"bash -c '{SORT}; sleep 2 | wc -l; true' | cat; true")
    for host in hosts:
        wait_for_all(jaeger, host, job.unit, 3)
        spans = of_host(jaeger.spans(**{"pipelined.unit": job.unit}), host.name)
        (outer,) = [span for span in runs(spans) if span.name == "bash|cat"]
        (script,) = [span for span in below(outer, spans) if span.name == "bash"]
        assert sorted(span.name for span in below(script, spans)) == [SORTED, "sleep|wc"]
        assert {span.trace_id for span in spans} == {outer.trace_id}


def test_a_jaeger_that_was_away_under_load_misses_nothing(
    hosts: list[Host], jaeger: Jaeger, job: Job, tmp_path: Path
) -> None:
    with job.repeated(SORT, tmp_path):
        time.sleep(5)
        with jaeger.away():
            time.sleep(OUTAGE)
        time.sleep(5)
    for host in hosts:
        stored = stored_runs(host, job.unit)
        assert len(stored) > OUTAGE / 2
        assert_sent_once(jaeger, host, job.unit, stored, PATIENCE_AFTER_OUTAGE)


def test_senders_that_are_killed_under_load_miss_nothing(
    hosts: list[Host], jaeger: Jaeger, job: Job, tmp_path: Path
) -> None:
    with job.repeated(SORT, tmp_path):
        for _ in range(3):
            for host in hosts:
                host.sender.wait_until_sent(1)
                host.sender.kill()
                host.sender.start()
    for host in hosts:
        assert_sent_once(jaeger, host, job.unit, stored_runs(host, job.unit))


def test_what_is_sent_again_is_there_once(hosts: list[Host], jaeger: Jaeger, job: Job) -> None:
    job.run(SORT)
    for host in hosts:
        wait_for_all(jaeger, host, job.unit, 1)
        before = sent_runs(jaeger, host)
        host.sender.kill(forget=True)
        host.sender.start()
        host.sender.wait_until_sent(len(before))
        after = sent_runs(jaeger, host)
        assert after.keys() >= before.keys()
        assert set(after.values()) == {1}


def runs(spans: list[Span]) -> list[Span]:
    return [span for span in spans if span.tags["pipelined.kind"] == "run"]


def below(parent: Span, spans: list[Span]) -> list[Span]:
    """In the order of their starts."""
    found = [span for span in spans if span.parent_id == parent.span_id]
    return sorted(found, key=lambda span: span.start)


def commands_below(run: Span, spans: list[Span]) -> list[str]:
    """The commands of a run's stages, in data order."""
    stages = [span for span in below(run, spans) if span.tags["pipelined.kind"] == "stage"]
    assert all(span.trace_id == run.trace_id for span in stages)
    return [
        span.name for span in sorted(stages, key=lambda span: span.tags["pipelined.stage.position"])
    ]
