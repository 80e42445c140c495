# SPDX-License-Identifier: Apache-2.0
"""Which run lies in a stage of which other one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipelined.model.enclosing import around, is_whole
from pipelined.records.stage import Group, StageRecord
from unit.test_tracker import group, inside, model, stage


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


def conversing_over_fifos(last: int) -> tuple[Group, Group]:
    """A server and its client, each of which starts programs for the other.

    The server's programs join the client, and the client's the server: `last` is the record of the
    client's last one.
    """

    def member(index: int, name: str, began: int, outer: int = 0) -> StageRecord:
        return replace(stage(index, name, "read"), alias=0, outer=outer, start_ns=began)

    server = (member(5, "server.sh", 1), member(4, "date", 5, 7), member(last, "date", 9, 7))
    client = (member(7, "client.sh", 2), member(6, "convert", 6, 5))
    return replace(group(), root=5, stages=server), replace(group(), root=7, stages=client)


@pytest.mark.parametrize("last", [1, 9])
def test_a_run_lies_in_what_its_first_stage_was_started_in(last: int) -> None:
    """Whatever records its later stages got: two runs would lie in each other."""
    server, client = conversing_over_fifos(last)
    known = by_stage(server, client)
    assert run_around(client, known) is None
    assert run_around(server, known) is None
    assert is_whole(server, known) and is_whole(client, known)


def test_runs_that_lie_in_each_other_do_not_stop_the_sweep() -> None:
    """A fault of the kernel side."""
    one, other = inside(12), inside(1, first=11)
    one = replace(one, root=1, stages=tuple(replace(s, index=s.index - 10) for s in one.stages))
    watched = model()
    assert watched.update([one, other], 102.0) == []
    assert [run.nested for run in watched.runs()] == [True, True]
