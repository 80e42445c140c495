# SPDX-License-Identifier: Apache-2.0
"""What is known about a run: the values that every view (metrics, API, report, top) shows.

Units: seconds (float), bytes, counts. Time stamps are Unix time. Nothing here knows BPF, HTTP or
Prometheus. Each class is also the description of the JSON object that it is answered as (`fields`,
`codec`).
"""

from pipelined.runs.children import Child, children_by_command
from pipelined.runs.fields import LEVELS, PAGE_CLASSES, STALL_CLASSES, STATES
from pipelined.runs.flow import NO_FLOW, Flow, input_of
from pipelined.runs.identity import Container, Identity, Pod, Trace
from pipelined.runs.run import (
    FAILURES,
    Edge,
    Endpoint,
    OtherPipeline,
    Outcome,
    Run,
    Series,
    Surroundings,
)
from pipelined.runs.spans import ParentSpan, span_id_of, stage_span_id, trace_id_of
from pipelined.runs.stage import (
    CUT,
    FAMILIES,
    FILL_EDGES,
    HISTOGRAMS,
    INCOMPLETE,
    OUTCOMES,
    SIZE_EDGES,
    TIME_EDGES,
    Bucket,
    Exit,
    Functions,
    Histogram,
    HistogramKind,
    PipeEnd,
    Place,
    Readahead,
    Stage,
    StageCounters,
    Stalls,
    StallSeconds,
    total_flow,
    total_readahead,
)
from pipelined.runs.timeline import Point, StagePoint, Timeline, state_shares

__all__ = [
    "CUT",
    "FAILURES",
    "FAMILIES",
    "FILL_EDGES",
    "HISTOGRAMS",
    "INCOMPLETE",
    "LEVELS",
    "NO_FLOW",
    "OUTCOMES",
    "PAGE_CLASSES",
    "SIZE_EDGES",
    "STALL_CLASSES",
    "STATES",
    "TIME_EDGES",
    "Bucket",
    "Child",
    "Container",
    "Edge",
    "Endpoint",
    "Exit",
    "Flow",
    "Functions",
    "Histogram",
    "HistogramKind",
    "Identity",
    "OtherPipeline",
    "Outcome",
    "ParentSpan",
    "PipeEnd",
    "Place",
    "Pod",
    "Point",
    "Readahead",
    "Run",
    "Series",
    "Stage",
    "StageCounters",
    "StagePoint",
    "StallSeconds",
    "Stalls",
    "Surroundings",
    "Timeline",
    "Trace",
    "children_by_command",
    "input_of",
    "span_id_of",
    "stage_span_id",
    "state_shares",
    "total_flow",
    "total_readahead",
    "trace_id_of",
]
