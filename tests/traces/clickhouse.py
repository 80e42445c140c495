# SPDX-License-Identifier: Apache-2.0
"""Spans in a table as the Collector's exporter for ClickHouse creates it, and SQL on that."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from traces.jaeger_server import TOOLS, Span

__all__ = ["ask"]

#: The exporter's columns, without its indices, codecs and the links, which no query needs.
_TABLE = """
CREATE TABLE otel_traces (
    Timestamp DateTime64(9), TraceId String, SpanId String, ParentSpanId String,
    SpanName LowCardinality(String), ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String),
    SpanAttributes Map(LowCardinality(String), String),
    Duration UInt64,
    Events Nested (
        Timestamp DateTime64(9), Name LowCardinality(String),
        Attributes Map(LowCardinality(String), String)
    )
) ENGINE = MergeTree PARTITION BY toDate(Timestamp)
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)
"""
#: In a process of its own: it is half a gigabyte of shared library, installed apart from the tests.
_PROGRAM = """
import json, sys
from chdb.session import Session
session = Session()
answers = [session.query(statement, "JSON").bytes() for statement in json.load(sys.stdin)]
print(json.dumps([json.loads(answer)["data"] if answer else [] for answer in answers]))
"""


def ask(spans: Iterable[Span], statements: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The rows that each statement returns, in UTC, on a table with these spans."""
    rows = "\n".join(json.dumps(_row(span)) for span in spans)
    before = [
        "CREATE DATABASE otel ENGINE = Atomic",
        "USE otel",
        _TABLE,
        f"INSERT INTO otel_traces FORMAT JSONEachRow {rows}",
    ]
    done = subprocess.run(
        [str(TOOLS / "clickhouse" / "bin" / "python"), "-c", _PROGRAM],
        input=json.dumps([*before, *statements]),
        env={**os.environ, "TZ": "UTC"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return answers[len(before) :]


def _row(span: Span) -> dict[str, Any]:
    start = _time(span.start)
    events = [dict(event) for event in span.events]
    return {
        "Timestamp": start,
        "TraceId": span.trace_id,
        "SpanId": span.span_id,
        "ParentSpanId": span.parent_id or "",
        "SpanName": span.name,
        "ServiceName": span.service,
        "ResourceAttributes": _texts(span.resource),
        "SpanAttributes": _texts(span.tags),
        "Duration": round(span.seconds * 1e9),
        "Events.Timestamp": [start for _ in events],
        "Events.Name": [event.pop("event") for event in events],  # as Jaeger has it
        "Events.Attributes": [_texts(event) for event in events],
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """As the exporter writes attributes: true, 4711, 0.25."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }
