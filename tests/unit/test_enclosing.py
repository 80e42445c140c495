# SPDX-License-Identifier: Apache-2.0
"""Which run lies in a stage of which other one."""

from __future__ import annotations

from dataclasses import replace

from pipelined.model.enclosing import around, is_whole
from pipelined.records.stage import Group
from unit.test_tracker import group, inside, stage


def by_stage(*groups: Group) -> dict[int, Group]:
    return {stage.index: one for one in groups for stage in one.stages}


def subshell(index: int, outer: int) -> Group:
    """A stage alone, which is no run, inside the stage `outer`."""
    alone = replace(stage(index, "bash", "write"), alias=0, outer=outer)
    return replace(group(), root=index, stages=(alone,))


def run_around(inner: Group, known: dict[int, Group]) -> Group | None:
    found = around(inner, known)
    return found.group if found else None


def test_the_stage_around_is_the_one_that_it_was_forked_in() -> None:
    outermost = group()
    for position, expected in enumerate(outermost.stages):
        inner = inside(expected.index)
        found = around(inner, by_stage(outermost, inner))
        assert found and found.stage is outermost.stages[position]


def test_the_run_around_is_that_of_the_nearest_stage_in_a_pipeline() -> None:
    outermost, shell = group(), subshell(31, 2)
    between, deepest = inside(31), inside(12, first=21)
    known = by_stage(outermost, shell, between, deepest)
    assert run_around(deepest, known) is between
    assert run_around(between, known) is outermost
    assert run_around(outermost, known) is None


def test_a_part_of_a_run_does_not_lie_in_it() -> None:
    outermost, own = group(), inside(2)
    part = replace(inside(12, first=21), root=own.root)
    assert run_around(part, by_stage(outermost, own, part)) is outermost


def test_of_stages_without_records_nothing_is_around() -> None:
    shell, inner = subshell(31, 2), inside(31)
    assert run_around(inner, by_stage(inner)) is None
    assert run_around(inner, by_stage(inner, shell)) is None


def test_a_run_is_whole_while_all_stages_around_it_have_records() -> None:
    outermost, shell, inner = group(), subshell(31, 2), inside(31)
    assert is_whole(outermost, by_stage(outermost))
    assert is_whole(inner, by_stage(outermost, shell, inner))
    assert not is_whole(inner, by_stage(shell, inner))
    assert not is_whole(inner, by_stage(outermost, inner))


def test_stages_in_a_circle_are_looked_at_once() -> None:
    """A fault of the kernel side must not stop the sweep."""
    one, other, inner = subshell(31, 32), subshell(32, 31), inside(31)
    known = by_stage(one, other, inner)
    assert run_around(inner, known) is None
    assert is_whole(inner, known)
