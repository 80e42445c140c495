# SPDX-License-Identifier: Apache-2.0
"""How much of a CPU the thread that writes the history may use."""

from __future__ import annotations

import pytest

from pipelined.history.allowance import Allowance


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_is_saved_is_used_without_a_pause() -> None:
    allowance = Allowance(0.01, 0.2, Clock())
    assert allowance.use(0.15) == 0.0
    assert allowance.use(0.05) == 0.0
    assert allowance.use(0.01) == pytest.approx(1.0)


def test_over_a_long_time_no_more_than_the_share_is_used() -> None:
    clock = Clock()
    allowance = Allowance(0.01, 0.2, clock)
    for _ in range(100):
        clock.now += allowance.use(0.03)
    passed = clock.now - 1000.0
    assert 100 * 0.03 - 0.2 - 0.01 * passed == pytest.approx(0.0, abs=0.03)


def test_no_more_is_saved_than_the_bound() -> None:
    clock = Clock()
    allowance = Allowance(0.01, 0.2, clock)
    clock.now += 1e6
    assert allowance.use(0.3) == pytest.approx(10.0)
