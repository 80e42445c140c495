# SPDX-License-Identifier: Apache-2.0
"""A job that is traced with OpenTelemetry's SDK: one span, with two pipelines inside it.

Prints the ids of its trace and of its span. It is sent to `OTEL_EXPORTER_OTLP_ENDPOINT`.
"""

from __future__ import annotations

import os
import subprocess

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import inject
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider(resource=Resource({"service.name": "nightly"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))

with provider.get_tracer("nightly").start_as_current_span("load") as span:
    carrier: dict[str, str] = {}
    inject(carrier)
    environment = os.environ | {"TRACEPARENT": carrier["traceparent"]}

    subprocess.run("sleep 2 | sort -n | tail -n 1", shell=True, env=environment, check=True)

    with (
        subprocess.Popen(["sleep", "2"], env=environment, stdout=subprocess.PIPE) as writer,
        subprocess.Popen(["wc", "-l"], env=environment, stdin=writer.stdout) as count,
    ):
        writer.stdout.close()
        count.wait()

    context = span.get_span_context()

provider.shutdown()
print(f"{context.trace_id:032x} {context.span_id:016x}")
