# SPDX-License-Identifier: Apache-2.0
"""How often counters are read: at intervals by the daemon, finer for a command that is young."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipelined.kernel.pace import Fine, Steady


def fine_waits(times: list[float], repeated: float = 0.0) -> list[float]:
    """How long it waits at these times, in seconds; in a thread, whose scheduling it changes."""
    clock = iter(times)
    pace = Fine(1.0, clock=lambda: next(clock))
    with ThreadPoolExecutor(1) as pool:
        return list(pool.map(lambda _: pace.wait(repeated), times))


def test_a_steady_pace_is_the_interval() -> None:
    assert Steady(1.0).wait(0.001) == 1.0


def test_a_steady_pace_takes_a_small_share_of_a_core() -> None:
    assert Steady(1.0).wait(0.3) == pytest.approx(10.0)


def test_a_fine_pace_begins_with_milliseconds_and_ends_with_the_interval() -> None:
    waits = fine_waits([100.0, 101.0, 110.0, 1000.0])
    assert waits == pytest.approx([0.012, 0.02, 0.2, 1.0])


def test_a_run_of_half_a_second_has_more_than_twenty_pieces() -> None:
    now, count = 0.1, 0  # it is not shown before
    while now < 0.5:
        now += fine_waits([0.0, now])[1]
        count += 1
    assert count > 20


def test_a_fine_pace_takes_a_bounded_share_of_a_core() -> None:
    (wait,) = fine_waits([0.0], repeated=0.004)
    assert wait == pytest.approx(0.04)


def test_a_sandbox_may_refuse_another_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert fine_waits([0.0]) == pytest.approx([0.012])


def test_fine_sweeps_each_make_a_point() -> None:
    assert Fine.step_ns < 0.012e9
    assert Steady.step_ns is None
