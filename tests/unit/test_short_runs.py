# SPDX-License-Identifier: Apache-2.0
"""How many short runs ended in the last minute."""

from __future__ import annotations

import pytest

from pipelined.model.ledger import OTHER
from pipelined.model.short_runs import _MAX_NAMES, _STEP, SHORT, WINDOW, ShortRuns


@pytest.fixture
def short() -> ShortRuns:
    return ShortRuns()


def test_short_runs_are_counted_by_pipeline(short: ShortRuns) -> None:
    for pipeline in ("a|b", "c|d", "a|b"):
        short.add(pipeline, 0.003, 100.0)
    assert short.counted(101.0) == {"a|b": 2, "c|d": 1}


def test_longer_runs_are_not(short: ShortRuns) -> None:
    short.add("a|b", SHORT, 100.0)
    assert short.counted(100.0) == {}


def test_each_run_is_counted_for_a_minute_and_at_most_one_step_longer(short: ShortRuns) -> None:
    times = [100.0 + tenths / 10 for tenths in range(200)]
    for time in times:
        short.add(f"{time:.1f}", 0.1, time)
    for now in (times[-1], 150.0, 161.0, 165.0, 172.0, 178.0, 185.0):
        counted = {float(name) for name in short.counted(now)}
        assert {time for time in times if now - time < WINDOW} <= counted
        assert counted <= {time for time in times if now - time < WINDOW + _STEP}


def test_in_the_end_nothing_is_left(short: ShortRuns) -> None:
    short.add("a|b", 0.1, 100.0)
    assert short.counted(100.0 + WINDOW + _STEP) == {}


def test_many_pipelines_take_bounded_space_and_each_run_is_counted(short: ShortRuns) -> None:
    for number in range(3 * _MAX_NAMES):
        short.add(f"a{number}|b", 0.1, 100.0)
    counted = short.counted(100.0)
    assert (len(counted), counted[OTHER]) == (_MAX_NAMES + 1, 2 * _MAX_NAMES)
