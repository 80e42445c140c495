# SPDX-License-Identifier: Apache-2.0
"""When runs were watched, and by which clock they are dated."""

from __future__ import annotations

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


def test_a_clock_that_is_set_again_and_again_takes_no_more_memory() -> None:
    watched = Watched(UNIX)
    for number in range(1, 1000):
        watched.follow(number * SECOND, UNIX + 10.0 * number)
    assert len(watched.gaps) == 100
    assert watched.unix_time(1001 * SECOND) == UNIX + 9990.0 + 1001
