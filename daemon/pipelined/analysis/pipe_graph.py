# SPDX-License-Identifier: Apache-2.0
"""Which stage writes to which: neighbours, and everything upstream and downstream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipelined.runs import Run

__all__ = ["Graph", "build_graph"]


@dataclass(frozen=True, slots=True)
class Graph:
    """Direct neighbours, and everything upstream and downstream, by stage index."""

    before: tuple[frozenset[int], ...]
    after: tuple[frozenset[int], ...]
    upstream: tuple[frozenset[int], ...]
    downstream: tuple[frozenset[int], ...]


def build_graph(run: Run) -> Graph:
    """Which stage writes to which, by `Run.edges`; by position if the run has none."""
    count = len(run.stages)
    before: list[set[int]] = [set() for _ in range(count)]
    after: list[set[int]] = [set() for _ in range(count)]
    for writer, reader in run.edges or _edges_by_position(run):
        if writer != reader and 0 <= writer < count and 0 <= reader < count:
            after[writer].add(reader)
            before[reader].add(writer)
    return Graph(
        before=tuple(map(frozenset, before)),
        after=tuple(map(frozenset, after)),
        upstream=tuple(_reach(index, before) for index in range(count)),
        downstream=tuple(_reach(index, after) for index in range(count)),
    )


def _edges_by_position(run: Run) -> list[tuple[int, int]]:
    """An edge from each stage to those at the next position, for runs that carry no edges."""
    places = sorted({stage.position for stage in run.stages})
    follower = dict(pairwise(places))
    return [
        (writer, reader)
        for writer, source in enumerate(run.stages)
        for reader, target in enumerate(run.stages)
        if follower.get(source.position) == target.position
    ]


def _reach(start: int, links: Sequence[set[int]]) -> frozenset[int]:
    seen: set[int] = set()
    queue = [start]
    while queue:
        for following in links[queue.pop()] - seen:
            seen.add(following)
            queue.append(following)
    return frozenset(seen - {start})
