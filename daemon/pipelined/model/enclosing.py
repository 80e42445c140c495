# SPDX-License-Identifier: Apache-2.0
"""Which run lies in a stage of which other one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pipelined.records.stage import Group, StageRecord
from pipelined.runs import ParentSpan, Trace
from pipelined.starter import Starter

__all__ = ["Around", "Enclosing", "around", "is_whole", "parent_span"]


class Enclosing(NamedTuple):
    """The run that encloses another one."""

    run: str
    """Its id."""
    pipeline: str
    """Its signature."""
    outermost: str
    """Signature of the outermost run around it, which lies in no other."""
    alone: bool
    """It is a program alone: it has one stage."""
    starters: frozenset[Starter] = frozenset()
    """Of that run."""
    span: ParentSpan | None = None
    """That of the stage around."""
    traced: Trace | None = None
    """What the environment of that run says."""


class Around(NamedTuple):
    """What encloses a run."""

    group: Group
    """A run."""
    stage: StageRecord
    """Which of its stages."""


def around(group: Group, by_stage: Mapping[int, Group]) -> Around | None:
    """The nearest enclosing stage that is in a pipeline."""
    for found, stage in _outwards(group, by_stage):
        if found.is_run and found.root != group.root:
            return Around(found, stage)
    return None


def _outer(group: Group) -> int:
    """Index of the stage around a run, or 0: of what encloses its first stage.

    A stage that joined later may lie elsewhere, as what a server starts for a client that waits
    for it at a FIFO: two runs would lie in each other.
    """
    return min(group.stages, key=lambda stage: (stage.start_ns, stage.index)).outer


def is_whole(group: Group, by_stage: Mapping[int, Group]) -> bool:
    """Whether all stages around this run still have records: those further out may go first."""
    outer = _outer(group)
    for _, stage in _outwards(group, by_stage):
        outer = stage.outer
    return not outer or outer in by_stage  # in a circle


def _outwards(group: Group, by_stage: Mapping[int, Group]) -> Iterator[tuple[Group, StageRecord]]:
    """Each stage around it that has a record. Ends if the kernel side were to have a circle."""
    outer = _outer(group)
    for _ in by_stage:
        if not (found := by_stage.get(outer)):
            break
        stage = next(stage for stage in found.stages if stage.index == outer)
        yield found, stage
        outer = stage.outer


def parent_span(traced: Trace | None, enclosing: Enclosing | None) -> ParentSpan | None:
    """The span that a run is below; None if it begins a trace.

    `traced` is what its environment says. A run inside another one is below the stage around it,
    unless something in between has begun a span of its own: then its environment says another span
    than that of the run around.
    """
    if traced is not None and (enclosing is None or not _same_span(traced, enclosing.traced)):
        return ParentSpan(traced.trace_id, traced.parent_span_id, traced.sampled)
    return enclosing.span if enclosing else None


def _same_span(one: Trace, other: Trace | None) -> bool:
    ids = (one.trace_id, one.parent_span_id)
    return other is not None and ids == (other.trace_id, other.parent_span_id)
