# SPDX-License-Identifier: Apache-2.0
"""Which run lies in a stage of which other one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pipelined.records.stage import Group
from pipelined.starter import Starter

__all__ = ["Enclosing", "around", "is_whole"]


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


def around(group: Group, by_stage: Mapping[int, Group]) -> Group | None:
    """The run around this one: of the nearest enclosing stage that is in a pipeline."""
    outer = group.stages[0].outer
    while outer and outer in by_stage:
        found = by_stage[outer]
        if found.is_run and found.root != group.root:
            return found
        outer = next(stage.outer for stage in found.stages if stage.index == outer)
    return None


def is_whole(group: Group, by_stage: Mapping[int, Group]) -> bool:
    """Whether all stages around this run still have records: those further out may go first."""
    outer = group.stages[0].outer
    while outer in by_stage:
        outer = next(stage.outer for stage in by_stage[outer].stages if stage.index == outer)
    return not outer
