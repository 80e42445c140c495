# SPDX-License-Identifier: Apache-2.0
"""Where a run stands in its trace: ids of traces and spans, as OpenTelemetry has them.

Ids that nobody gives are made of the run's id, which is unique in a fleet: whoever sends a run
twice sends the same spans, and who reads a trace's id in a report finds that trace.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

__all__ = ["ParentSpan", "span_id_of", "stage_span_id", "trace_id_of"]

#: Hexadecimal digits of the id of a trace, and of a span (W3C's trace context, 2021).
_TRACE_DIGITS, _SPAN_DIGITS = 32, 16


@dataclass(frozen=True, slots=True)
class ParentSpan:
    """The span that a run is below."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits: the span of `TRACEPARENT`, or that of the stage around the run."""
    sampled: bool
    """Whether the trace is recorded; if not, the run is not sent."""


def trace_id_of(run_id: str, below: ParentSpan | None = None) -> str:
    """The trace that a run is in: the one that begins with it, unless it is below a span.

    >>> trace_id_of("1763809200123-4711-5f3c9a01")
    'fdb6892ef46695fd6e2793e75ccbb6a6'
    """
    return below.trace_id if below else _digest("trace", run_id)[:_TRACE_DIGITS]


def span_id_of(run_id: str) -> str:
    """The span of a run."""
    return _digest("run", run_id)[:_SPAN_DIGITS]


def stage_span_id(run_id: str, pid: int, start: float) -> str:
    """The span of a stage: of the process with this id, which started then (Unix time)."""
    return _digest("stage", run_id, str(pid), repr(start))[:_SPAN_DIGITS]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode(errors="backslashreplace")).hexdigest()
