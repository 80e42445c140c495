# SPDX-License-Identifier: Apache-2.0
"""What a run answers about its own stages."""

from __future__ import annotations

import pytest

from pipelined.runs import Readahead, Run
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
