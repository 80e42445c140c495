# SPDX-License-Identifier: Apache-2.0
"""Which stages share a pipeline's clock, and who else is at the ends of their pipes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pipelined.kernel import layout
from pipelined.kernel.decoding import text
from pipelined.kernel.layout import Pipe
from pipelined.kernel.slots import slot_edges, slot_of
from pipelined.records.process import Process
from pipelined.records.stage import (
    STAGE_ENDS,
    EndRecord,
    Group,
    PipelineRecord,
    StageRecord,
    is_conversation,
    joined,
)
from pipelined.runs import Endpoint

__all__ = ["Grouping"]


class Grouping:
    """Makes groups of stages, and keeps what cannot have changed since the time before."""

    def __init__(
        self, clock: Callable[[int], PipelineRecord], pipe: Callable[[bytes], Pipe | None]
    ) -> None:
        """`clock` reads that in the record of a stage, `pipe` the pipe with a key."""
        self._clock = clock
        self._pipe = pipe
        self._stages: Mapping[int, StageRecord] = {}
        self._groups: dict[int, Group] = {}
        self._endpoints: dict[bytes, tuple[Process, Endpoint]] = {}

    def grouped(self, stages: Mapping[int, StageRecord]) -> list[Group]:
        """Groups of all these, by index. One that is as it was before is the same object."""
        self._stages = stages
        members: dict[int, list[StageRecord]] = {}
        for stage in stages.values():
            members.setdefault(self._root(stage), []).append(stage)
        alone = {found[0].index for found in members.values() if len(found) == 1}
        groups, self._groups = self._groups, {}
        for root, found in members.items():
            group = groups.get(root)
            if group is None or group.stages != tuple(found) or not group.closed:
                group = self._group(root, tuple(found), alone)
            self._groups[root] = group
        return list(self._groups.values())

    def forget(self, key: bytes) -> None:
        """No stage is at this pipe any more."""
        self._endpoints.pop(key, None)

    def _root(self, stage: StageRecord) -> int:
        """Index of the stage whose pipeline this stage uses."""
        while stage.alias in self._stages:
            stage = self._stages[stage.alias]
        return stage.index

    def _group(self, root: int, stages: tuple[StageRecord, ...], alone: Collection[int]) -> Group:
        # read again, after the stages: of those that are over it has all their time
        clock = self._clock(root)
        if len(stages) == 1 and not stages[0].converses:
            return Group(root, clock, stages)
        joins = joined(stages)
        outer = stages[0].outer
        # the subshell of $(a | b) holds the pipe to the shell that b writes to
        borrows = outer in alone and any(stage.borrows for stage in stages)
        around = [self._stages[outer]] if borrows else []
        closed = not around and all(end.joined for stage in stages for end in stage.ends)
        endpoints = () if closed else self._endpoints_of(stages, around)
        full = any(len(stage.ends) == STAGE_ENDS for stage in stages)
        by_slots = slot_edges(stages, self._pipe) if full else ()
        conversation = is_conversation(stages, joins)
        return Group(root, clock, stages, closed, endpoints, by_slots, conversation, joins)

    def _endpoints_of(
        self, stages: Sequence[StageRecord], around: Iterable[StageRecord]
    ) -> tuple[Endpoint, ...]:
        """Who else is at the other end of pipes of `stages` and `around` that join no stages."""
        inside = {stage.root for stage in stages}
        found: list[Endpoint] = []
        for stage in (*stages, *around):
            for end in stage.ends:
                endpoint = None if end.joined else self._endpoint(end, inside)
                if endpoint and endpoint[0] not in inside and endpoint[1] not in found:
                    found.append(endpoint[1])
        return tuple(found)

    def _endpoint(
        self, end: EndRecord, inside: Collection[Process]
    ) -> tuple[Process, Endpoint] | None:
        """Process and endpoint at the other side of a pipe, once known."""
        if end.key in self._endpoints:
            return self._endpoints[end.key]
        pipe = self._pipe(end.key)
        if pipe is None:
            return None
        other, side = (
            ("write", layout.SIDE_WRITE) if end.side == "read" else ("read", layout.SIDE_READ)
        )
        found = None
        if pipe.endpoint.pid and pipe.endpoint_side == side:
            process = Process(pipe.endpoint.pid, pipe.endpoint.start_ns)
            found = (process, Endpoint(text(pipe.endpoint_comm), other))
        for slot in pipe.stages[side]:
            stage = self._stages.get(slot & layout.INDEX_MASK)
            if stage and slot_of(stage) == slot and stage.parent not in inside:
                found = (stage.root, Endpoint(stage.command, other))
        if found:
            self._endpoints[end.key] = found
        return found
