# SPDX-License-Identifier: Apache-2.0
"""A span of what `pipelined run` runs: the runs of a script have one root.

The command gets a `TRACEPARENT` that names it, so that whatever it starts is below it, whoever
sends that.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import PurePath

from pipelined.errors import UserError
from pipelined.export import not_installed
from pipelined.model.trace_context import trace_of
from pipelined.run.child import Ended
from pipelined.runs import ParentSpan

__all__ = ["CommandSpan", "is_configured"]

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
#: How long a back end may take, while whoever started the command waits (seconds).
_PATIENCE = 2.0


def is_configured(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a place to send spans to."""
    return any(environment.get(name) for name in _ENDPOINTS)


@dataclass(frozen=True, slots=True)
class CommandSpan:
    """The span of a command that is about to start."""

    trace_id: str
    span_id: str
    above: ParentSpan | None
    """What the environment says; None if it begins the trace."""
    state: str | None

    @classmethod
    def begin(cls, environment: MutableMapping[str, str]) -> CommandSpan | None:
        """Put it into the environment of the command.

        None, and nothing is changed, if the trace that we are in is not recorded.
        """
        given = trace_of(environment.get("TRACEPARENT", ""), environment.get("TRACESTATE", ""))
        if given is not None and not given.sampled:
            return None
        above = ParentSpan(given.trace_id, given.parent_span_id, True) if given else None
        made = cls(
            given.trace_id if given else secrets.token_hex(16),
            secrets.token_hex(8),
            above,
            given.state if given else None,
        )
        environment["TRACEPARENT"] = f"00-{made.trace_id}-{made.span_id}-01"
        if given is None:
            environment.pop("TRACESTATE", None)  # another trace's
        return made

    def send(self, program: str, ended: Ended) -> None:
        """Send it, in one short try. Raises UserError if the back end does not take it."""
        try:
            from pipelined.export.back_end import BackEnd
            from pipelined.export.spans import SpanMaker
        except ImportError as error:
            raise not_installed(error) from None
        name = PurePath(program).name
        attributes: dict[str, str | int | float] = {
            "pipelined.kind": "command",
            "process.executable.name": name,
            "process.exit.code": ended.status,
            "pipelined.command.wall_seconds": round(ended.wall_seconds, 9),
            "pipelined.command.cpu_seconds": round(ended.cpu_seconds, 9),
        }
        failure = f"exit {ended.status}" if ended.status else ""
        if failure:
            attributes["error.type"] = failure
        spans = SpanMaker().command(
            os.uname().nodename,
            self.trace_id,
            self.span_id,
            above=self.above,
            state=self.state,
            start=ended.start,
            end=ended.start + ended.wall_seconds,
            attributes=attributes,
            error=failure,
        )
        answer = BackEnd(patience=_PATIENCE).send(spans)
        if not answer.sent:
            raise UserError(f"the span of this command is not sent: {answer.error}")
