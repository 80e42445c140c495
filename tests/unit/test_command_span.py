# SPDX-License-Identifier: Apache-2.0
"""The span of what `pipelined run` runs: what the command gets of it, and what it may not cost."""

from __future__ import annotations

from typing import Any

import pytest

from pipelined import cli
from pipelined.errors import UserError
from pipelined.export.back_end import Answer, BackEnd
from pipelined.export.command_span import CommandSpan
from pipelined.run import profile
from pipelined.run.child import Ended
from pipelined.run.profile import Profile

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GIVEN = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize("given", [{}, {"TRACEPARENT": "no such thing"}])
def test_a_trace_that_begins_here_has_no_state_of_another_one(given: dict[str, str]) -> None:
    environment = {**given, "TRACESTATE": "vendor=1"}
    span = CommandSpan.begin(environment)
    assert span is not None and span.above is None
    assert environment == {"TRACEPARENT": f"00-{span.trace_id}-{span.span_id}-01"}


def test_the_state_of_the_trace_that_goes_on_is_passed_on() -> None:
    environment = {"TRACEPARENT": GIVEN, "TRACESTATE": "vendor=1"}
    span = CommandSpan.begin(environment)
    assert span is not None and span.trace_id == TRACE
    assert environment["TRACESTATE"] == "vendor=1"


def run(monkeypatch: pytest.MonkeyPatch, status: int) -> int:
    """Exit status of `pipelined run` if the command has this one."""
    ended = Profile(("true",), Ended(status, 1_700_000_000.0, 1.0, 0.5), (), {})
    monkeypatch.setattr(profile, "profile", lambda *_, **__: ended)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("TRACEPARENT", GIVEN)
    return cli._guarded(["run", "--", "true"])


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (UserError("the span of this command is not sent: busy"), "busy"),
    ],
)
def test_the_status_is_the_commands_if_the_span_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    what: BaseException,
    said: str,
) -> None:
    def fails(*_: Any) -> None:
        raise what

    monkeypatch.setattr(CommandSpan, "send", fails)
    assert run(monkeypatch, 3) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"pipelined: the span of this command is not sent: {said}"


def test_whoever_started_the_command_waits_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    patience: list[float] = []
    begin = BackEnd.__init__

    def noted(back_end: BackEnd, **given: Any) -> None:
        patience.append(given["patience"])
        begin(back_end, **given)

    monkeypatch.setattr(BackEnd, "__init__", noted)
    monkeypatch.setattr(BackEnd, "send", lambda *_: Answer(True))
    assert run(monkeypatch, 0) == 0
    assert patience == [2]
