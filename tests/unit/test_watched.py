# SPDX-License-Identifier: Apache-2.0
"""When runs were watched, and by which clock they are dated."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pipelined.model.watched import Watched
from pipelined.records.stage import Gap

UNIX = 1_700_000_000.0
DAY = 86400.0
SECOND = 1_000_000_000


@pytest.mark.parametrize("step", [2 * DAY, -7200.0, 2.0])
def test_what_comes_after_the_clock_was_set_is_dated_by_it_and_what_was_before_is_not(
    step: float,
) -> None:
    watched = Watched(UNIX)
    assert watched.follow(50 * SECOND, UNIX + step) == step
    assert watched.unix_time(50 * SECOND) == UNIX + 50
    assert watched.unix_time(51 * SECOND) == UNIX + step + 51
    assert watched.unwatched_ns(0, 100 * SECOND) == 0
    assert watched.follow(60 * SECOND, UNIX + step) == 0.0


def test_each_time_has_the_clock_that_it_had() -> None:
    watched = Watched(UNIX, [Gap(10 * SECOND, 20 * SECOND, UNIX - DAY)])
    watched.follow(30 * SECOND, UNIX + DAY)
    watched.follow(40 * SECOND, UNIX)
    found = [watched.unix_time(at * SECOND) - UNIX for at in (5, 25, 35, 45)]
    assert found == [5 - DAY, 25, 35 + DAY, 45]
    assert watched.unwatched_ns(0, 100 * SECOND) == 10 * SECOND


def test_a_clock_that_is_slewed_or_gets_a_leap_second_is_not_followed() -> None:
    watched = Watched(UNIX)
    assert [watched.follow(SECOND, UNIX + step) for step in (0.0, 0.5, -1.0, 1.9)] == [0.0] * 4
    assert watched.gaps == ()


def set_often(watched: Watched, times: int, starts_ns: Sequence[int]) -> None:
    """Set the clock by 10 s in each second; what began at `starts_ns` is not forgotten."""
    for number in range(1, times + 1):
        watched.follow(number * SECOND, UNIX + 10.0 * number)
        watched.forget(starts_ns)


def test_a_clock_that_is_set_again_and_again_takes_no_more_memory() -> None:
    watched = Watched(UNIX)
    set_often(watched, 999, [])
    assert len(watched.gaps) == 100
    assert watched.unix_time(1001 * SECOND) == UNIX + 9990.0 + 1001


def test_no_gap_is_forgotten_that_concerns_what_lives() -> None:
    watched = Watched(UNIX, [Gap(SECOND // 4, SECOND // 2, UNIX - DAY)])
    set_often(watched, 300, [150 * SECOND, 0, 250 * SECOND])
    found = [watched.unix_time(at * SECOND) - UNIX for at in (0, 1, 2, 150, 301)]
    assert found == [-DAY, 1, 12, 1490 + 150, 3000 + 301]
    assert watched.unwatched_ns(0, 400 * SECOND) == SECOND // 4


def test_gaps_before_all_that_lives_are_forgotten_but_the_last_hundred() -> None:
    watched = Watched(UNIX)
    set_often(watched, 300, [150 * SECOND])
    assert watched.gaps[0].begin_ns == 150 * SECOND
    watched.forget([])
    assert [gap.begin_ns for gap in watched.gaps] == [n * SECOND for n in range(201, 301)]


def test_of_far_too_many_gaps_the_oldest_are_forgotten_whatever_lives() -> None:
    watched = Watched(UNIX, [Gap(n, n, UNIX + n) for n in range(10_005)])
    watched.forget([0])
    assert [gap.begin_ns for gap in watched.gaps] == list(range(5, 10_005))
