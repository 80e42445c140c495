# SPDX-License-Identifier: Apache-2.0
"""When runs were watched, and by which clock they are dated."""

from __future__ import annotations

import pytest

from pipelined.model.watched import ClockWatch

UNIX = 1_700_000_000.0
DAY = 86400.0


@pytest.mark.parametrize(
    ("by", "says"),
    [
        (2 * DAY, "2 d 0 h ahead of the one that runs are dated by, as it was set or the host"),
        (-7200.0, "2 h 0 min behind the one that runs are dated by, as it was set;"),
    ],
)
def test_a_clock_that_was_set_is_reported_once(by: float, says: str) -> None:
    clock = ClockWatch(UNIX)
    assert says in (clock.warning(UNIX + by) or "")
    assert clock.warning(UNIX + by + 1.0) is None


def test_a_clock_that_is_set_right_again_is_reported() -> None:
    clock = ClockWatch(UNIX)
    clock.warning(UNIX - DAY)
    assert clock.warning(UNIX) == "the clock is again as at the start: runs are dated by it"


def test_a_clock_that_is_slewed_or_gets_a_leap_second_is_not() -> None:
    clock = ClockWatch(UNIX)
    assert [clock.warning(UNIX + step) for step in (0.0, 0.5, -1.0, 30.0)] == [None] * 4
