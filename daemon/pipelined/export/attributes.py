# SPDX-License-Identifier: Apache-2.0
"""What the spans of a run and of its stages say: docs/TRACES.md lists every attribute.

Names are those of OpenTelemetry's semantic conventions where there is one; all others begin with
``pipelined.``, and one with a unit ends with it. What is not known has no attribute. Command lines
are in none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipelined.analysis.finding import Finding
from pipelined.runs import Exit, Identity, Run, Stage

__all__ = [
    "Attributes",
    "Beside",
    "error_of",
    "finding_attributes",
    "run_attributes",
    "stage_attributes",
]

Value = str | bool | int | float | tuple[str, ...]
Attributes = Mapping[str, Value]

#: Variables of schedulers and of CI that say what the conventions have a name for.
_CICD = {
    "AIRFLOW_CTX_DAG_ID": "cicd.pipeline.name",
    "AIRFLOW_CTX_DAG_RUN_ID": "cicd.pipeline.run.id",
    "AIRFLOW_CTX_TASK_ID": "cicd.pipeline.task.name",
    "BUILDKITE_BUILD_ID": "cicd.pipeline.run.id",
    "BUILDKITE_JOB_ID": "cicd.pipeline.task.run.id",
    "BUILD_TAG": "cicd.pipeline.run.id",
    "BUILD_URL": "cicd.pipeline.run.url.full",
    "CI_JOB_ID": "cicd.pipeline.task.run.id",
    "CI_JOB_URL": "cicd.pipeline.task.run.url.full",
    "CI_PIPELINE_ID": "cicd.pipeline.run.id",
    "GITHUB_JOB": "cicd.pipeline.task.name",
    "GITHUB_RUN_ID": "cicd.pipeline.run.id",
}


@dataclass(frozen=True, slots=True)
class Beside:
    """What the history stores beside a run (`BesideRunJson`)."""

    bottleneck: str
    """``-`` for none."""
    usual_seconds: float | None
    slower_than_usual: bool | None


def run_attributes(run: Run, beside: Beside) -> Attributes:
    """Of the span of a run."""
    return _known(
        {
            "pipelined.kind": "run",
            "pipelined.pipeline": run.pipeline,
            "pipelined.unit": run.series.unit,
            "pipelined.nested": run.nested,
            "pipelined.partial": run.partial,
            "pipelined.run.id": run.id,
            "pipelined.run.outcome": run.result,
            "error.type": _first_error(run),
            "pipelined.run.stages": len(run.stages),
            "pipelined.run.wall_seconds": run.wall_seconds,
            "pipelined.run.cpu_seconds": run.cpu_seconds,
            "pipelined.run.cores_used": run.cores_used,
            "pipelined.run.overlap_ratio": run.overlap,
            "pipelined.run.not_overlapped_seconds": sum(run.levels[:2]),
            "pipelined.run.disk_wait_seconds": run.disk_wait_seconds,
            "pipelined.run.io_overlap_ratio": run.io_overlap,
            "pipelined.run.input_bytes": run.input_bytes,
            "pipelined.run.output_bytes": run.stages[-1].flow.passed_on if run.stages else None,
            "pipelined.run.cache_state": run.cache_state,
            "pipelined.run.bottleneck": beside.bottleneck,
            "pipelined.run.usual_seconds": beside.usual_seconds,
            "pipelined.run.slower_than_usual": beside.slower_than_usual,
            **(dict(_identity(run.identity)) if run.identity else {}),
        }
    )


def stage_attributes(run: Run, stage: Stage) -> Attributes:
    """Of the span of a stage."""
    ended, flow = stage.exit or Exit(), stage.flow
    return _known(
        {
            "pipelined.kind": "stage",
            "pipelined.run.id": run.id,
            "pipelined.stage.position": stage.position,
            "process.executable.name": stage.command,
            "process.pid": stage.pid,
            "process.exit.code": ended.code,
            "pipelined.stage.signal": ended.signal,
            "pipelined.stage.outcome": stage.outcome or "unknown",
            "error.type": error_of(stage),
            "pipelined.stage.cpu_seconds": stage.cpu_seconds,
            "pipelined.stage.user_seconds": stage.user_seconds,
            "pipelined.stage.system_seconds": stage.system_seconds,
            **{
                f"pipelined.stage.state.{state}_seconds": seconds
                for state, seconds in stage.states.items()
                if seconds
            },
            "pipelined.stage.pipe.in_bytes": flow.pipe_in,
            "pipelined.stage.pipe.out_bytes": flow.pipe_out,
            "pipelined.stage.pipe.exact": flow.exact,
            "pipelined.stage.file.read_bytes": flow.file_read,
            "pipelined.stage.file.written_bytes": flow.file_written,
            "pipelined.stage.forks": stage.forks,
        }
    )


def finding_attributes(finding: Finding) -> Attributes:
    """Of the event of a finding. Its command, which may show arguments, is left out."""
    return _known(
        {
            "pipelined.finding.id": finding.id,
            "pipelined.finding.severity": finding.severity,
            "pipelined.finding.text": finding.sentence,
            "pipelined.finding.advice": finding.advice or None,
            "pipelined.finding.likely_seconds": finding.likely_seconds,
            "pipelined.finding.bound_seconds": finding.gain_seconds,
        }
    )


def error_of(stage: Stage) -> str | None:
    """What ended a stage that has failed or was interrupted: ``exit 3``, ``SIGKILL``."""
    if stage.outcome not in ("failed", "interrupted"):
        return None
    ended = stage.exit or Exit()
    return "out_of_memory" if ended.out_of_memory else ended.signal or f"exit {ended.code}"


def _first_error(run: Run) -> str | None:
    if run.outcome is None or run.complete:
        return None
    return error_of(run.stages[run.outcome.stages[0]])


def _identity(identity: Identity) -> Iterator[tuple[str, Value | None]]:
    yield "pipelined.host.boot_id", identity.boot_id
    yield "user.id", None if identity.uid is None else str(identity.uid)
    yield "user.name", identity.user
    yield "pipelined.systemd.invocation_id", identity.invocation_id
    if container := identity.container:
        yield "container.id", container.id
        yield "container.name", container.name
        yield "container.runtime.name", container.runtime
        yield from _image(container.image)
    if pod := identity.pod:
        yield "k8s.pod.name", pod.name
        yield "k8s.namespace.name", pod.namespace
        yield "k8s.container.name", pod.container
        yield "k8s.node.name", pod.node
    for name, value in identity.variables.items():
        yield f"pipelined.variable.{name}", value
        if name in _CICD:
            yield _CICD[name], value


def _image(image: str | None) -> Iterator[tuple[str, Value | None]]:
    """An image by its name, and its tag, as the conventions have them; a digest is neither.

    >>> list(_image("registry:5000/etl:1.4"))
    [('container.image.name', 'registry:5000/etl'), ('container.image.tags', ('1.4',))]
    """
    if image is None or image.startswith("sha256:"):
        yield "container.image.name", image
        return
    name, _, tag = image.partition("@")[0].rpartition(":")
    if not name or "/" in tag:  # a port of the registry
        name, tag = image.partition("@")[0], ""
    yield "container.image.name", name
    yield "container.image.tags", (tag,) if tag else None


def _known(values: Mapping[str, Value | None]) -> Attributes:
    return {
        # nanoseconds are as fine as times are counted
        name: round(value, 9) if isinstance(value, float) else value
        for name, value in values.items()
        if value is not None
    }
