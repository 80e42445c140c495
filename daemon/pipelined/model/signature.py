# SPDX-License-Identifier: Apache-2.0
"""From stages and the pipes between them to positions and a signature.

Which pipes join which stages is decided in the kernel (bpf/topology.bpf.h); here the joined
stages are put in data order and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelined.model.ledger import OTHER

__all__ = ["Order", "arrange"]

#: Signature of a program alone that is named as what is added up under `OTHER`.
_NAMED_OTHER = r"\x28other)"


@dataclass(frozen=True, slots=True)
class Order:
    """Stages in topological order."""

    sequence: tuple[int, ...]
    """Indexes into the stages given, in data order."""
    positions: tuple[int, ...]
    """Position (from 1) of each stage of `sequence`; branches of one name share one."""
    signature: str


def arrange(names: Sequence[str], edges: Sequence[tuple[int, int]]) -> Order:
    """Put stages in data order; `edges` are (writer, reader) indexes into `names`.

    A stage's rank is the longest way to it from a stage without writer. A cycle (two
    processes that talk both ways) is opened at its stage that comes first in `names`.

    >>> arrange(["uniq", "cat", "sort"], [(1, 2), (2, 0)]).signature
    'cat|sort|uniq'
    >>> arrange(["sort", "diff", "sort"], [(0, 1), (2, 1)])
    Order(sequence=(0, 2, 1), positions=(1, 1, 2), signature='sort|diff')
    >>> arrange(["tee", "wc", "gzip"], [(0, 1), (0, 2)]).signature
    'tee|(gzip,wc)'
    """
    ranks = _ranks(len(names), edges)
    sequence = sorted(range(len(names)), key=lambda i: (ranks[i], names[i], i))
    positions: list[int] = []
    parts: list[list[str]] = []
    before: tuple[int, str] | None = None
    for i in sequence:
        here = (ranks[i], names[i])
        if here != before:
            positions.append(positions[-1] + 1 if positions else 1)
            if before is None or before[0] != ranks[i]:
                parts.append([])
            parts[-1].append(names[i])
            before = here
        else:
            positions.append(positions[-1])
    signature = "|".join(
        branches[0] if len(branches) == 1 else f"({','.join(branches)})" for branches in parts
    )
    if signature == OTHER:
        signature = _NAMED_OTHER
    return Order(tuple(sequence), tuple(positions), signature)


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    readers: list[set[int]] = [set() for _ in range(count)]
    waiting = [0] * count
    for writer, reader in set(edges):
        if writer != reader:
            readers[writer].add(reader)
            waiting[reader] += 1
    ranks = [0] * count
    left = set(range(count))
    while left:
        stage = min((i for i in left if not waiting[i]), default=min(left))
        left.remove(stage)
        for reader in readers[stage] & left:
            waiting[reader] -= 1
            ranks[reader] = max(ranks[reader], ranks[stage] + 1)
    return ranks
