# SPDX-License-Identifier: Apache-2.0
"""What identifies a run: of each thing, what the first stage in data order says that has it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pipelined.model.containers import Place
from pipelined.model.trace_context import trace_of
from pipelined.records.stage import StageRecord
from pipelined.runs import Identity, Trace

__all__ = ["Identities", "origin_mark", "traced"]

_INVOCATION = re.compile("[0-9a-f]{32}")
#: Digits of a hash at the end of a run's id.
_MARK = 8

T = TypeVar("T")


def origin_mark(host: str, boot_id: str) -> str:
    """What ids of the runs of one boot of one host end with: no two hosts of a fleet share it."""
    return hashlib.sha256(f"{boot_id}\n{host}".encode()).hexdigest()[:_MARK]


@dataclass(frozen=True, slots=True)
class Identities:
    """What all runs of the host share, and how a user is called."""

    host: str
    boot_id: str
    mark: str
    """`origin_mark`, as of when the first run that lives began."""
    user_of: Callable[[int], str | None]

    def of(self, stages: Iterable[StageRecord], place: Place | None) -> Identity:
        """Of a run with these stages, in data order; `place` is the container that it ran in."""
        stages = tuple(stages)
        uid = _first(stage.uid for stage in stages)
        variables = _variables(stages)
        invocation = variables.get("INVOCATION_ID", "")
        if is_invocation := _INVOCATION.fullmatch(invocation):
            del variables["INVOCATION_ID"]
        return Identity(
            host=self.host,
            boot_id=self.boot_id,
            uid=uid,
            user=None if uid is None else self.user_of(uid),
            container=place.container if place else None,
            pod=place.pod if place else None,
            invocation_id=invocation if is_invocation else None,
            variables=variables,
            trace=traced(stages),
        )


def traced(stages: Iterable[StageRecord]) -> Trace | None:
    """The trace that the environment of these stages, in data order, names."""
    return _first(
        trace_of(stage.variables["TRACEPARENT"], stage.variables.get("TRACESTATE", ""))
        for stage in stages
        if stage.variables and "TRACEPARENT" in stage.variables
    )


def _variables(stages: Iterable[StageRecord]) -> dict[str, str]:
    """Of the environments of all stages, but for those of the trace, which belong together."""
    found: dict[str, str] = {}
    for stage in stages:
        given: Mapping[str, str] = stage.variables or {}
        found |= {name: value for name, value in given.items() if name not in found}
    return {n: value for n, value in found.items() if n not in ("TRACEPARENT", "TRACESTATE")}


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)
