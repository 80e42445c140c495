# SPDX-License-Identifier: Apache-2.0
"""What a pipe's slots say of the stages at its ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipelined.kernel import layout
from pipelined.records.stage import StageRecord

__all__ = ["slot_edges", "slot_of"]


def slot_of(stage: StageRecord) -> int:
    """What the slots of a pipe hold of a stage."""
    return stage.generation << layout.GENERATION_SHIFT | stage.index


def slot_edges(
    stages: Sequence[StageRecord], find: Callable[[bytes], layout.Pipe | None]
) -> tuple[tuple[int, int], ...]:
    """Edges of stages that have more pipes than they can remember, from the pipes.

    `find` returns the pipe with a key.
    """
    seen: dict[bytes, set[str]] = {}
    for stage in stages:
        for end in stage.ends:
            if end.joined:
                seen.setdefault(end.key, set()).add(end.side)
    members = {slot_of(stage): stage.index for stage in stages}
    edges = []
    for key, sides in seen.items():
        if len(sides) == 2:
            continue
        pipe = find(key)
        if pipe is None:
            continue
        readers, writers = (
            [members[slot] for slot in pipe.stages[side] if slot in members]
            for side in (layout.SIDE_READ, layout.SIDE_WRITE)
        )
        edges += [(a, b) for a in writers for b in readers if a != b]
    return tuple(edges)
