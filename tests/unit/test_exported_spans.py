# SPDX-License-Identifier: Apache-2.0
"""What the spans of a run are and say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Host
from pipelined.export.attributes import Beside
from pipelined.export.spans import SpanMaker
from pipelined.runs import (
    STATES,
    Container,
    Exit,
    Identity,
    Outcome,
    ParentSpan,
    Pod,
    Run,
    Series,
    Trace,
    stage_span_id,
)
from unit.invented import START, make_barrier, make_ended, make_stage

HOST = Host(cores=2, l2_bytes=1 << 20)
BESIDE = Beside("sort: CPU 68 %", 12.5, True)
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
IDENTITY = Identity(
    host="web-3",
    boot_id="b007",
    uid=1000,
    user="app",
    container=Container("docker", "3f" * 32, "etl", "etl:1.4"),
    pod=Pod("etl-0-x7k2p", "batch", "main", "node-7"),
    invocation_id="ab" * 16,
    variables={"SLURM_JOB_ID": "4711", "GITHUB_RUN_ID": "99"},
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)


def made(run: Run, beside: Beside = BESIDE) -> list[ReadableSpan]:
    return SpanMaker().spans(run, beside, findings(run, HOST))


def ids(span: ReadableSpan) -> tuple[str, str, str | None]:
    """Of the trace, of the span, of its parent."""
    context = span.get_span_context()
    assert context is not None
    above = f"{span.parent.span_id:016x}" if span.parent else None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", above


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ended_with(run: Run, index: int, outcome: str, how: Exit) -> Run:
    """The run, of which a stage ended so."""
    stages = list(run.stages)
    stages[index] = replace(stages[index], exit=how, outcome=outcome)
    return replace(run, stages=tuple(stages), outcome=Outcome(outcome, (index,)))


def test_a_run_is_a_span_and_each_stage_one_below_it() -> None:
    run = make_ended(5, "cat|sort|wc")
    spans = made(run)
    assert [span.name for span in spans] == ["cat|sort|wc", "cat", "sort", "wc"]
    assert ids(spans[0]) == (run.trace_id, run.span_id, None)
    assert [ids(span) for span in spans[1:]] == [
        (run.trace_id, stage_span_id(run.id, stage.pid, stage.start), run.span_id)
        for stage in run.stages
    ]
    assert {span.kind for span in spans} == {SpanKind.INTERNAL}


def test_a_run_that_is_sent_again_is_the_same_spans() -> None:
    run = make_ended(5)
    again = [(span.name, ids(span), said(span), span.start_time) for span in made(run)]
    assert [(span.name, ids(span), said(span), span.start_time) for span in made(run)] == again


def test_the_run_is_below_the_span_of_its_job() -> None:
    run = replace(make_ended(5), parent_span=ParentSpan(TRACE, SPAN, True))
    assert ids(made(run)[0]) == (TRACE, run.span_id, SPAN)


def test_the_state_of_the_job_s_trace_is_passed_on() -> None:
    identity = replace(IDENTITY, trace=Trace(TRACE, SPAN, True, "rojo=1,congo=2"))
    run = replace(make_ended(5), identity=identity, parent_span=ParentSpan(TRACE, SPAN, True))
    contexts = [span.get_span_context() for span in made(run)]
    assert [dict(of.trace_state) for of in contexts if of] == [{"rojo": "1", "congo": "2"}] * 3


def test_times_are_those_of_the_run_and_of_the_stage() -> None:
    run = make_ended(5, wall=2.5)
    early = replace(run.stages[0], end=START + 6)
    spans = made(replace(run, stages=(early, *run.stages[1:])))
    assert [((span.end_time or 0) - (span.start_time or 0)) / 1e9 for span in spans[:2]] == [2.5, 6]
    assert spans[0].start_time == round((START + 5) * 1e9)


def test_a_stage_that_was_not_seen_to_end_ends_with_the_run() -> None:
    run = make_ended(5)
    spans = made(replace(run, stages=(replace(run.stages[0], end=None), *run.stages[1:])))
    assert spans[1].end_time == spans[0].end_time


def test_no_span_ends_before_it_starts() -> None:
    """As a clock that was set back would have it."""
    spans = made(replace(make_ended(5), end=START))
    assert spans[0].end_time == spans[0].start_time


@pytest.mark.parametrize(
    ("how", "outcome", "error"),
    [
        (Exit(code=3), "failed", "exit 3"),
        (Exit(signal="SIGKILL"), "failed", "SIGKILL"),
        (Exit(signal="SIGKILL", out_of_memory=True), "failed", "out_of_memory"),
        (Exit(signal="SIGTERM"), "interrupted", "SIGTERM"),
    ],
)
def test_a_run_that_did_not_succeed_is_an_error_and_says_why(
    how: Exit, outcome: str, error: str
) -> None:
    spans = made(ended_with(make_ended(5), 1, outcome, how))
    assert [span.status.status_code for span in spans] == [
        StatusCode.ERROR,
        StatusCode.UNSET,  # nobody saw how the other one ended
        StatusCode.ERROR,
    ]
    assert [said(span).get("error.type") for span in spans] == [error, None, error]
    assert said(spans[0])["pipelined.run.outcome"] == outcome
    assert (spans[0].status.description or "").startswith(f"{outcome} (sort: ")


def test_a_run_that_succeeded_is_ok_and_one_of_unknown_outcome_is_unset() -> None:
    run = make_ended(5)
    ok = made(replace(run, outcome=Outcome("succeeded")))[0]
    assert (ok.status.status_code, "error.type" in said(ok)) == (StatusCode.OK, False)
    unknown = made(replace(run, outcome=Outcome("unknown", (0,))))[0]
    assert unknown.status.status_code == StatusCode.UNSET


def test_a_writer_that_its_reader_did_not_need_any_more_is_no_error() -> None:
    run = make_ended(5)
    stages = (replace(run.stages[0], exit=Exit(signal="SIGPIPE"), outcome="succeeded"),)
    span = made(replace(run, stages=(*stages, *run.stages[1:])))[1]
    assert said(span)["pipelined.stage.signal"] == "SIGPIPE"
    assert (span.status.status_code, "error.type" in said(span)) == (StatusCode.OK, False)


def test_the_span_of_a_run_says_how_it_went() -> None:
    run = replace(make_ended(5), series=Series(pipeline="cat|sort", nested=True, unit="etl.job"))
    attributes = said(made(run)[0])
    expected = {
        "pipelined.kind": "run",
        "pipelined.pipeline": "cat|sort",
        "pipelined.unit": "etl.job",
        "pipelined.nested": True,
        "pipelined.run.id": run.id,
        "pipelined.run.wall_seconds": 1.0,
        "pipelined.run.cpu_seconds": 0.75,
        "pipelined.run.overlap_ratio": 0.0,
        "pipelined.run.bottleneck": "sort: CPU 68 %",
        "pipelined.run.usual_seconds": 12.5,
        "pipelined.run.slower_than_usual": True,
        "pipelined.run.cache_state": run.cache_state,
    }
    assert attributes.items() >= expected.items()


def test_what_is_not_known_has_no_attribute() -> None:
    attributes = said(made(make_ended(5), Beside("-", None, None))[0])
    assert not {"pipelined.run.usual_seconds", "pipelined.run.slower_than_usual"} & set(attributes)
    assert "user.name" not in attributes


def test_the_span_of_a_stage_says_where_its_time_went() -> None:
    stage = make_stage(2, "sort", cpu=0.5, pipe_empty=0.25, end=START + 9, read_bytes=100, forks=2)
    run = make_ended(5)
    attributes = said(
        made(replace(run, stages=(run.stages[0], replace(stage, exit=Exit(code=0)))))[2]
    )
    expected = {
        "pipelined.kind": "stage",
        "process.executable.name": "sort",
        "process.pid": 102,
        "process.exit.code": 0,
        "pipelined.stage.position": 2,
        "pipelined.stage.state.cpu_seconds": 0.5,
        "pipelined.stage.state.pipe_empty_seconds": 0.25,
        "pipelined.stage.pipe.in_bytes": 100,
        "pipelined.stage.forks": 2,
    }
    assert attributes.items() >= expected.items()
    states = {name for name in attributes if name.startswith("pipelined.stage.state.")}
    assert len(states) == 2


def test_whose_run_it_is_has_the_names_of_the_semantic_conventions() -> None:
    attributes = said(made(replace(make_ended(5), identity=IDENTITY))[0])
    expected = {
        "user.id": "1000",
        "user.name": "app",
        "container.id": "3f" * 32,
        "container.name": "etl",
        "container.image.name": "etl",
        "container.image.tags": ("1.4",),
        "k8s.pod.name": "etl-0-x7k2p",
        "k8s.namespace.name": "batch",
        "k8s.node.name": "node-7",
        "cicd.pipeline.run.id": "99",
        "pipelined.variable.SLURM_JOB_ID": "4711",
        "pipelined.systemd.invocation_id": "ab" * 16,
    }
    assert attributes.items() >= expected.items()


@pytest.mark.parametrize(
    ("image", "name", "tags"),
    [
        ("etl", "etl", None),
        ("registry.example:5000/team/etl", "registry.example:5000/team/etl", None),
        ("registry.example:5000/team/etl:1.4", "registry.example:5000/team/etl", ("1.4",)),
        ("team/etl:1.4@sha256:3f", "team/etl", ("1.4",)),
        ("team/etl@sha256:3f", "team/etl", None),
        ("sha256:3f", "sha256:3f", None),
    ],
)
def test_an_image_has_its_tag_apart(image: str, name: str, tags: tuple[str, ...] | None) -> None:
    container = IDENTITY.container
    assert container
    identity = replace(IDENTITY, container=replace(container, image=image))
    attributes = said(made(replace(make_ended(5), identity=identity))[0])
    assert attributes["container.image.name"] == name
    assert attributes.get("container.image.tags") == tags


def test_findings_are_events_with_what_they_could_save() -> None:
    run = make_barrier(1, 0.0, 10.0)
    events = made(run)[0].events
    assert {event.name for event in events} == {"finding"}
    found = {str((event.attributes or {})["pipelined.finding.id"]): event for event in events}
    gains = [one for one in findings(run, HOST) if one.likely_seconds and one.gain_seconds]
    assert gains
    for one in gains:
        attributes = found[one.id].attributes or {}
        assert attributes["pipelined.finding.likely_seconds"] == round(one.likely_seconds or 0, 9)
        assert attributes["pipelined.finding.bound_seconds"] == round(one.gain_seconds or 0, 9)


def test_command_lines_are_not_sent() -> None:
    run = make_ended(5)
    assert "hunter2" in str(run)
    texts = [
        str((said(span), span.name, span.events, span.status.description)) for span in made(run)
    ]
    assert "hunter2" not in "".join(texts)


def test_the_resource_is_the_host_of_the_run() -> None:
    resource = made(replace(make_ended(5), identity=IDENTITY))[0].resource.attributes
    assert (resource["service.name"], resource["host.name"]) == ("pipelined", "web-3")


def test_a_run_that_is_sent_by_another_process_has_the_same_resource() -> None:
    run = replace(make_ended(5), identity=IDENTITY)
    assert made(run)[0].resource == made(run)[0].resource
    assert made(run)[0].resource.attributes["service.instance.id"] == "web-3"


def test_what_the_environment_says_of_the_resource_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=other,deployment.environment=prod")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "batch")
    resource = made(replace(make_ended(5), identity=IDENTITY))[0].resource.attributes
    expected = {"host.name": "other", "deployment.environment": "prod", "service.name": "batch"}
    assert dict(resource).items() >= expected.items()


def test_every_attribute_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs/TRACES.md").read_text()
    documented = set(re.findall(r"`([a-z0-9_.]+(?:\.[A-Z]+)?)`", text))
    run = ended_with(
        replace(make_barrier(1, 0.0, 10.0), identity=IDENTITY), 1, "failed", Exit(code=3)
    )
    spans = [*made(run), *made(make_barrier(1, 0.0, 10.0))]
    names = {name for span in spans for name in said(span)}
    names |= {name for span in spans for event in span.events for name in event.attributes or {}}
    states = {f"pipelined.stage.state.{state}_seconds" for state in STATES}
    variables = {name for name in names if name.startswith("pipelined.variable.")}
    assert names - states - variables - documented == set()
    assert {"pipelined.stage.state.STATE_seconds", "pipelined.variable.NAME"} <= set(
        re.findall(r"`([A-Za-z0-9_.]+)`", text)
    )
