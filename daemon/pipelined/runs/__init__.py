# SPDX-License-Identifier: Apache-2.0
"""What is known about a run: the values that every view (metrics, API, report, top) shows.

Units: seconds (float), bytes, counts. Time stamps are Unix time. Nothing here knows BPF, HTTP or
Prometheus. Each class is also the description of the JSON object that it is answered as (`fields`,
`codec`).
"""

from pipelined.runs.fields import LEVELS, PAGE_CLASSES, STALL_CLASSES, STATES
from pipelined.runs.identity import Container, Identity, Pod, Trace
from pipelined.runs.run import (
    INCOMPLETE,
    OUTCOMES,
    Edge,
    Endpoint,
    OtherPipeline,
    Outcome,
    Run,
    Series,
    Surroundings,
)
from pipelined.runs.stage import (
    FILL_EDGES,
    HISTOGRAMS,
    NO_FLOW,
    SIZE_EDGES,
    TIME_EDGES,
    Bucket,
    Exit,
    Flow,
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
    "state_shares",
    "total_flow",
    "total_readahead",
]
