# SPDX-License-Identifier: Apache-2.0
"""How long a run usually takes, and which run is far from that."""

from __future__ import annotations

import pytest

from pipelined.history.usual import is_other_input, is_slower, usual


def test_the_usual_is_the_middle_of_five_runs_in_any_order() -> None:
    assert usual([9.0, 1.0, 4.0, 2.0, 7.0]) == 4.0


def test_of_an_even_number_it_is_between_the_two_in_the_middle() -> None:
    assert usual([9.0, 1.0, 4.0, 2.0, 7.0, 5.0]) == 4.5
    assert usual([9.0, 1.0, 4.0, 2.0, 7.0, 5.0, 8.0, 3.0]) == 4.5


def test_four_runs_have_no_usual() -> None:
    assert usual([1.0] * 4) is None


@pytest.mark.parametrize(
    ("wall", "usually", "slower"),
    [
        (15.1, 10.0, True),
        (15.0, 10.0, False),  # 1.5 times are not far
        (14.9, 10.0, False),
        (3.1, 2.0, True),
        (3.0, 1.5, True),
        (2.1, 1.0, True),
        (2.0, 1.0, False),  # nor is one second
        (1.9, 1.0, False),
        (0.5, 10.0, False),
    ],
)
def test_a_run_is_slower_by_half_and_by_a_second(wall: float, usually: float, slower: bool) -> None:
    assert is_slower(wall, usually) is slower


def test_without_a_usual_nothing_is_known() -> None:
    assert is_slower(10.0, None) is None


@pytest.mark.parametrize(
    ("size", "usually", "other"),
    [
        (6_000_000, 1_000_000.0, True),
        (1_500_000, 1_000_000.0, False),  # up to half more is about the same
        (1_500_001, 1_000_000.0, True),
        (1_000_000, 1_500_000.0, False),
        (1_000_000, 1_500_001.0, True),
        (4_000, 60_000.0, False),  # what programs read to start
        (60_000, 4_000.0, False),
        (100_000, 4_000.0, True),
        (None, 1_000_000.0, False),
        (6_000_000, None, False),
    ],
)
def test_an_input_is_another_one_from_half_more_on(
    size: int | None, usually: float | None, other: bool
) -> None:
    assert is_other_input(size, usually) is other
