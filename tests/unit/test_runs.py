# SPDX-License-Identifier: Apache-2.0
"""What a run answers about its own stages."""

from __future__ import annotations

import pytest

from pipelined.runs import Edge, Flow, Readahead, Run
from unit.invented import make_readahead, make_run, make_stage


def branched() -> Run:
    """`tee >(sort) >(sort) | wc`: two branches of one command, and one of another beside them."""
    commands = ((1, "tee"), (2, "sort"), (2, "sort"), (2, "wc"), (3, "sort"))
    return make_run([make_stage(position, command) for position, command in commands], 1.0)


def test_branches_of_one_command_share_a_place() -> None:
    assert branched().by_place() == {
        (1, "tee"): [0],
        (2, "sort"): [1, 2],
        (2, "wc"): [3],
        (3, "sort"): [4],
    }


def test_only_the_stages_asked_for_are_grouped_in_the_order_given() -> None:
    assert branched().by_place([4, 2, 1]) == {(3, "sort"): [4], (2, "sort"): [2, 1]}


def test_the_groups_come_in_data_order() -> None:
    assert list(branched().by_place()) == [(1, "tee"), (2, "sort"), (2, "wc"), (3, "sort")]


def fed(*taken: Flow, edges: tuple[Edge, ...] = ()) -> Run:
    return make_run(
        [make_stage(1, "cat", flow=flow, read_bytes=7) for flow in taken], 1.0, edges=edges
    )


def of_file(size: int | None) -> Flow:
    return Flow(None, 5, size, 0, exact=False, splices=size is None)


def test_the_input_of_a_run_is_what_its_first_stages_took_in() -> None:
    run = fed(
        of_file(100), of_file(30), Flow(99, 5, 0, 0, exact=False), edges=(Edge(0, 2), Edge(1, 2))
    )
    assert (run.input_bytes, run.input_exact) == (130, True)


def test_it_is_a_bound_if_a_pipe_of_no_stage_is_one() -> None:
    run = fed(Flow(100, 5, 0, 0, exact=False), of_file(30))
    assert (run.input_bytes, run.input_exact) == (130, False)
    assert fed(Flow(100, 5, 0, 0, exact=True)).input_exact


def test_it_is_a_bound_if_a_sort_may_have_read_temporary_files() -> None:
    run = fed(Flow(None, None, 100, 100, exact=False, temporary=None))
    assert (run.input_bytes, run.input_exact) == (100, False)


def test_it_is_not_known_if_a_first_stage_splices_uncounted() -> None:
    assert fed(of_file(100), of_file(None)).input_bytes is None


def of_pages(warm: int, from_disk: int, not_input: int) -> Readahead:
    pages = {"warm": warm, "hit": from_disk, "late": 0, "miss": 0, "wasted": 0}
    return make_readahead(pages=pages, not_input_pages=not_input)


@pytest.mark.parametrize(
    ("warm", "from_disk", "not_input", "state"),
    [
        (8200, 2000, 0, "mixed"),
        (8200, 2000, 8190, "cold"),
        (8200, 100, 8100, "mixed"),
        (8200, 0, 8100, "warm"),
        (8200, 60, 8200, None),
        (40, 60, 38, None),
    ],
)
def test_the_state_of_the_cache_is_judged_by_the_input(
    warm: int, from_disk: int, not_input: int, state: str | None
) -> None:
    assert of_pages(warm, from_disk, not_input).cache_state == state


def test_pages_that_are_no_input_are_summed_over_stages() -> None:
    stages = [
        make_stage(1, "cat", readahead=of_pages(0, 1000, 0)),
        make_stage(2, "sort", readahead=of_pages(5000, 0, 5000)),
    ]
    found = make_run(stages, 1.0).readahead
    assert found is not None
    assert (found.not_input_pages, found.warm_share, found.cache_state) == (5000, 0.0, "cold")
