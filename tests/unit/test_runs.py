# SPDX-License-Identifier: Apache-2.0
"""What a run answers about its own stages."""

from __future__ import annotations

from pipelined.runs import Run
from unit.invented import make_run, make_stage


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
