# SPDX-License-Identifier: Apache-2.0
"""Spans of a run, made with OpenTelemetry's SDK: one of the run, one of each stage below it."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import (
    ReadableSpan,
    SpanLimits,
    SpanProcessor,
    Tracer,
    TracerProvider,
)
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from pipelined import __version__
from pipelined.analysis.finding import Finding
from pipelined.analysis.outcome_words import marked_outcome
from pipelined.export.attributes import (
    Attributes,
    Beside,
    error_of,
    finding_attributes,
    run_attributes,
    stage_attributes,
)
from pipelined.runs import ParentSpan, Run, Stage, stage_span_id

__all__ = ["SpanMaker"]

#: Unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` gives another one.
SERVICE = "pipelined"

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
#: A stage has an attribute per state besides its own, and a run one per variable of its job: more
#: than the 128 that are usual would be cut off silently.
_LIMITS = SpanLimits(max_attributes=256, max_events=256)


class SpanMaker:
    """Makes the spans of runs. Not for several threads."""

    def __init__(self) -> None:
        self._ids = _GivenIds()
        self._ended = _Ended()
        self._tracers: dict[str | None, Tracer] = {}

    def spans(self, run: Run, beside: Beside, findings: Sequence[Finding]) -> list[ReadableSpan]:
        """The spans of a finished run: its own, then those of its stages, in data order."""
        tracer = self._tracer(run.identity.host if run.identity else None)
        state = run.identity.trace.state if run.identity and run.identity.trace else None
        end = run.start if run.end is None else run.end
        self._make(
            *(tracer, run.pipeline, run.trace_id, run.span_id),
            above=run.parent_span,
            state=state,
            start=run.start,
            end=end,
            attributes=run_attributes(run, beside),
            status=_status(run.result, marked_outcome(run)),
            events=[finding_attributes(finding) for finding in findings],
        )
        own = ParentSpan(run.trace_id, run.span_id, True)
        for stage in run.stages:
            self._make(
                *(tracer, stage.command, run.trace_id),
                stage_span_id(run.id, stage.pid, stage.start),
                above=own,
                state=state,
                start=stage.start,
                # what outlives its root, or was not seen to end, ends with the run
                end=end if stage.end is None else stage.end,
                attributes=stage_attributes(run, stage),
                remote=False,
                status=_stage_status(stage),
            )
        return self._ended.take()

    def command(
        self,
        host: str,
        trace_id: str,
        span_id: str,
        *,
        above: ParentSpan | None,
        state: str | None,
        start: float,
        end: float,
        attributes: Attributes,
        error: str,
    ) -> list[ReadableSpan]:
        """The span of a command that `pipelined run` has measured; `error`: how it has failed."""
        self._make(
            *(self._tracer(host), "pipelined run", trace_id, span_id),
            above=above,
            state=state,
            start=start,
            end=end,
            attributes=attributes,
            status=_status("failed" if error else "succeeded", error),
        )
        return self._ended.take()

    def _make(
        self,
        tracer: Tracer,
        name: str,
        trace_id: str,
        span_id: str,
        *,
        above: ParentSpan | None,
        start: float,
        end: float,
        attributes: Attributes,
        status: Status,
        state: str | None = None,
        events: Sequence[Attributes] = (),
        remote: bool = True,
    ) -> None:
        """`remote`: who made the span above is another process."""
        self._ids.trace, self._ids.span = int(trace_id, 16), int(span_id, 16)
        span = tracer.start_span(
            name,
            # an empty context: no span of this process is a parent
            context=_context(above, state, remote) if above else Context(),
            attributes=attributes,
            start_time=_nanoseconds(start),
        )
        for event in events:
            span.add_event("finding", event, timestamp=_nanoseconds(end))
        span.set_status(status)
        span.end(max(_nanoseconds(start), _nanoseconds(end)))

    def _tracer(self, host: str | None) -> Tracer:
        """The one whose resource is this host."""
        if host not in self._tracers:
            provider = TracerProvider(
                sampler=ALWAYS_ON,
                resource=_resource(host),
                shutdown_on_exit=False,
                id_generator=self._ids,
                span_limits=_LIMITS,
            )
            provider.add_span_processor(self._ended)
            tracer = provider.get_tracer("pipelined", __version__)
            assert isinstance(tracer, Tracer), "OTEL_SDK_DISABLED is refused before"
            self._tracers[host] = tracer
        return self._tracers[host]


class _GivenIds(IdGenerator):
    """The ids of the span that is made next."""

    trace = 0
    span = 0

    def generate_span_id(self) -> int:
        return self.span

    def generate_trace_id(self) -> int:
        return self.trace


class _Ended(SpanProcessor):
    """Keeps the spans that have ended, until they are taken."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def take(self) -> list[ReadableSpan]:
        spans, self._spans = self._spans, []
        return spans


def _resource(host: str | None) -> Resource:
    """What the environment says wins."""
    ours: dict[str, str] = {"service.name": SERVICE, "service.version": __version__}
    if host:
        # the SDK would give each start of the sender another instance, and a run that is sent again
        # another resource
        ours |= {"host.name": host, "service.instance.id": host}
    given = OTELResourceDetector().detect()  # OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME
    return Resource.create({**ours, **given.attributes})


def _context(above: ParentSpan, state: str | None, is_remote: bool) -> Context:
    parent = SpanContext(
        int(above.trace_id, 16),
        int(above.span_id, 16),
        is_remote=is_remote,
        trace_flags=_SAMPLED,
        trace_state=TraceState.from_header([state]) if state else None,
    )
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())


def _status(result: str, description: str) -> Status:
    if result in ("failed", "interrupted"):
        return Status(StatusCode.ERROR, description)
    return Status(StatusCode.OK if result == "succeeded" else StatusCode.UNSET)


def _stage_status(stage: Stage) -> Status:
    return _status(stage.outcome or "unknown", error_of(stage) or "")


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
