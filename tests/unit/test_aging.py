# SPDX-License-Identifier: Apache-2.0
"""What is too old is removed, but a clock that is wrong for minutes does not empty a history."""

from __future__ import annotations

import pytest

from pipelined.history.aging import Aging
from pipelined.history.rollup import HOUR

DAY = 86400.0
AGE = 30 * DAY
#: What is `AGE` old is of the beginning of 2025: no right clock said less when it was stored.
NOW = 1_738_281_600.0


class Host:
    """Its clock may be wrong; what is stored began to be at `oldest`."""

    def __init__(self, oldest: float | None, *, wrong: float = 0.0, age: float = AGE) -> None:
        self.passed = 0.0
        self.wrong = wrong
        self._aging = Aging(
            age, oldest, lambda: NOW + self.passed + self.wrong, lambda: self.passed
        )

    def limit_after(self, seconds: float) -> float:
        self.passed += seconds
        return self._aging.limit()


def test_the_limit_follows_the_clock() -> None:
    host = Host(NOW - AGE)
    for seconds in (0.0, 60.0, 3.0, 12 * HOUR, 60.0):
        assert host.limit_after(seconds) == NOW + host.passed - AGE


def test_a_clock_that_is_ahead_for_ten_minutes_moves_it_by_a_day_at_most() -> None:
    host = Host(NOW - AGE, wrong=400 * DAY)
    for _ in range(10):
        limit = host.limit_after(60.0)
    assert limit - (NOW - AGE) == 21 * HOUR
    host.wrong = 0.0
    assert host.limit_after(60.0) == NOW + host.passed - AGE


def test_so_does_one_that_is_set_wrong_after_a_long_time() -> None:
    host = Host(NOW - AGE)
    before = host.limit_after(10 * DAY)
    host.wrong = 400 * DAY
    assert host.limit_after(60.0) - before == 2 * HOUR


def test_a_clock_that_was_far_behind_changes_nothing_once_it_is_right() -> None:
    host = Host(NOW - AGE, wrong=-NOW)
    assert host.limit_after(60.0) < 0
    host.wrong = 0.0
    assert host.limit_after(60.0) == NOW + host.passed - AGE


def test_a_history_that_began_with_a_wrong_clock_keeps_what_comes_after_it_is_right() -> None:
    host = Host(None, wrong=400 * DAY)
    assert host.limit_after(60.0) > NOW
    host.wrong = 0.0
    assert host.limit_after(60.0) == NOW + host.passed - AGE


def test_nor_does_one_that_was_not_set_when_it_began() -> None:
    host = Host(None, wrong=-NOW)
    assert host.limit_after(60.0) < 0
    host.wrong = 0.0
    assert host.limit_after(60.0) == NOW + host.passed - AGE


def test_a_run_of_a_clock_that_was_not_set_is_no_reason_to_begin_in_1970() -> None:
    assert Host(55.0).limit_after(60.0) == NOW + 60.0 - AGE


def test_what_is_too_old_by_a_shorter_age_is_so_within_six_hours() -> None:
    host = Host(NOW - AGE, age=DAY)
    while (limit := host.limit_after(60.0)) < NOW + host.passed - DAY:
        assert limit >= NOW - AGE + 120 * host.passed
    assert 5 * HOUR < host.passed < 6 * HOUR


def test_a_clock_that_is_far_ahead_is_told_in_the_log_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = Host(NOW - AGE)
    host.limit_after(60.0)
    host.limit_after(DAY / 2)  # it was off overnight
    assert not caplog.messages
    for _ in range(2):
        host.wrong = 40 * DAY
        for _ in range(3):
            host.limit_after(60.0)
        (said,) = caplog.messages
        assert said.startswith("by this host's clock, what is stored is older than it may be by up")
        assert "40 d" in said or "39 d" in said
        caplog.clear()
        host.wrong = 0.0
        host.limit_after(60.0)
        assert not caplog.messages
