# SPDX-License-Identifier: Apache-2.0
"""The host's clock is set while runs are watched: each is dated by the clock of its time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pipelined.kernel.sweep import monotonic_to_unix

if TYPE_CHECKING:
    from kernel.conftest import Watch
    from pipelined.observer import Observer

DAY = 86400.0


@pytest.mark.parametrize("step", [2 * DAY, -2 * DAY])
def test_a_run_is_dated_by_the_clock_that_was_set_before_it(
    observer: Observer, watch: Watch, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    before = watch.run("seq 9 | wc > out").only("seq|wc")
    monkeypatch.setattr("pipelined.observer.monotonic_to_unix", lambda: monotonic_to_unix() + step)
    observer.sweep()
    after = watch.run("seq 9 | tail > out").only("seq|tail")
    observer.settle()
    assert after.start == pytest.approx(time.time() + step, abs=60)
    assert after.end is not None
    assert after.end - after.start == pytest.approx(after.wall_seconds, abs=0.01)
    (still,) = (run for run in observer.runs() if run.id == before.id)
    assert (still.start, still.wall_seconds) == (before.start, before.wall_seconds)
    monkeypatch.undo()
    observer.sweep()
    again = watch.run("seq 9 | sort > out").only("seq|sort")
    assert again.start == pytest.approx(time.time(), abs=60)
