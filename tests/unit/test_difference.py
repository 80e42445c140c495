# SPDX-License-Identifier: Apache-2.0
"""What happened in a run between two looks at it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipelined.model.difference import difference
from pipelined.runs import PipeEnd, Run
from unit.invented import make_run, make_stage


@pytest.fixture
def then() -> Run:
    ends = (PipeEnd("0:1", "write", 3, 2.0),)
    cat = make_stage(1, "cat", cpu=1.0, pipe_full=2.0, written_bytes=100, ends=ends)
    return make_run([cat, make_stage(2, "awk", cpu=9.0, read_bytes=90)], 10.0)


@pytest.fixture
def now(then: Run) -> Run:
    ends = (PipeEnd("0:1", "write", 8, 3.8), PipeEnd("0:2", "read", 1, 0.5))
    cat = make_stage(1, "cat", cpu=1.2, pipe_full=3.8, written_bytes=150, ends=ends)
    return make_run([cat, make_stage(2, "awk", cpu=11.0, read_bytes=120)], 12.0)


def the_difference(now: Run, then: Run) -> Run:
    found = difference(now, then)
    assert found is not None
    return found


def test_it_covers_the_time_between(then: Run, now: Run) -> None:
    recent = the_difference(now, then)
    assert recent.wall_seconds == pytest.approx(2.0)
    assert recent.cores_used == pytest.approx(1.1)
    assert recent.stages[0].states["pipe_full"] == pytest.approx(1.8)


def test_it_has_the_bytes_moved_since(then: Run, now: Run) -> None:
    recent = the_difference(now, then)
    assert (recent.stages[0].written_bytes, recent.stages[1].read_bytes) == (50, 30)


def test_sleeps_are_told_by_pipe_and_those_on_a_new_pipe_in_full(then: Run, now: Run) -> None:
    ends = the_difference(now, then).stages[0].ends
    assert [(end.pipe, end.sleeps, end.seconds) for end in ends] == [
        ("0:1", 5, pytest.approx(1.8)),
        ("0:2", 1, 0.5),
    ]


def test_a_stage_that_is_new_counts_in_full(then: Run, now: Run) -> None:
    grown = replace(now, stages=(*now.stages, make_stage(3, "wc", cpu=0.5)))
    assert the_difference(grown, then).stages[2].cpu_seconds == 0.5


def test_what_a_merge_has_taken_away_is_nothing_and_not_less(then: Run, now: Run) -> None:
    recent = difference(replace(then, wall_seconds=12.0), replace(now, wall_seconds=10.0))
    assert recent is not None
    assert recent.stages[1].cpu_seconds == 0.0


@pytest.mark.parametrize("change", [{"id": "2"}, {"wall_seconds": 10.0}])
def test_there_is_none_without_time_or_across_runs(
    then: Run, now: Run, change: dict[str, str | float]
) -> None:
    assert difference(replace(now, **change), then) is None  # type: ignore[arg-type]
