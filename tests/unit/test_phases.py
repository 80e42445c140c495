# SPDX-License-Identifier: Apache-2.0
"""A time line in a few phases: nothing is lost, and what differs stays apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelined.analysis.phases import MAX_PHASES, phases
from pipelined.runs import LEVELS, Point, StagePoint, Timeline

#: A step of a time line: seconds, and which state its one stage is in.
steps = st.lists(
    st.tuples(st.floats(0.001, 100), st.sampled_from(["cpu", "disk", "pipe_empty"])), max_size=60
)


def course(*rows: tuple[float, dict[str, float]], start: float = 0.0) -> Timeline:
    """Points, each with its seconds, and the shares of states that one stage has in it."""
    points: list[Point] = []
    for seconds, shares in rows:
        begin = points[-1].end if points else start
        states = {state: share * seconds for state, share in shares.items()}
        levels = (seconds, *[0.0] * (len(LEVELS) - 1))
        points.append(Point(begin, begin + seconds, levels, (StagePoint(states, 10, 20, 7),)))
    return tuple(points)


def test_a_stage_that_changes_what_it_does_begins_a_phase() -> None:
    timeline = course(*[(1.0, {"disk": 1.0})] * 30, *[(1.0, {"cpu": 1.0})] * 70)
    first, second = phases(timeline)
    assert (first.start, first.end, second.end) == (0, 30, 100)
    assert first.stages[0].states == pytest.approx({"disk": 30})
    assert second.stages[0].states == pytest.approx({"cpu": 70})


def test_what_goes_on_evenly_is_one_phase() -> None:
    rows = [(1.0, {"cpu": 0.5 + 0.1 * (n % 2), "disk": 0.4}) for n in range(300)]
    (only,) = phases(course(*rows))
    assert (only.start, only.end) == (0, 300)


def test_a_moment_begins_no_phase() -> None:
    rows = [(1.0, {"cpu": 1.0})] * 200
    rows[100] = (1.0, {"disk": 1.0})
    assert len(phases(course(*rows))) == 1


def test_there_are_never_many_phases() -> None:
    states = ("cpu", "disk", "net", "lock", "poll", "sleep", "child", "other", "runqueue")
    rows = [(1.0, {states[n // 10 % 9]: 1.0}) for n in range(300)]
    assert len(phases(course(*rows))) == MAX_PHASES


def test_without_points_there_is_no_phase() -> None:
    assert phases(()) == ()
    assert phases(course((0.0, {}))) == ()


@given(steps)
def test_phases_follow_each_other_and_add_up_to_the_run(
    rows: list[tuple[float, str]],
) -> None:
    timeline = course(*[(seconds, {state: 1.0}) for seconds, state in rows])
    found = phases(timeline)
    assert len(found) <= MAX_PHASES
    assert [one.end for one in found[:-1]] == [one.start for one in found[1:]]
    for line in (timeline, found):
        assert sum(one.stages[0].read_bytes for one in line) == 10 * len(rows)
    for state in ("cpu", "disk", "pipe_empty"):
        total, merged = (
            sum(one.stages[0].states.get(state, 0.0) for one in line) for line in (timeline, found)
        )
        assert merged == pytest.approx(total)


def test_all_of_a_merged_point_is_added_up() -> None:
    (only,) = phases(course(*[(1.0, {"cpu": 1.0})] * 3))
    assert (only.stages[0].read_bytes, only.stages[0].written_bytes) == (30, 60)
    assert (only.levels[0], only.seconds, only.stages[0].pid) == (3.0, 3.0, 7)
    assert only.unwatched == 0.0


def test_time_in_which_nobody_watched_is_kept() -> None:
    first, second = course((1.0, {"cpu": 1.0}), (2.0, {"cpu": 1.0}))
    second = replace(second, end=second.end + 5.0, unwatched=5.0)
    (only,) = phases((first, second))
    assert (only.start, only.end, only.unwatched) == (0, 8, 5)


@pytest.mark.parametrize(("seconds", "count"), [(1.0, 1), (1.1, 2)])
def test_a_stage_that_changes_for_a_fiftieth_of_the_run_begins_a_phase(
    seconds: float, count: int
) -> None:
    # two states change by a whole; the two stretches are nearly as long as the shorter one
    timeline = course((seconds, {"disk": 1.0}), (100.0 - seconds, {"cpu": 1.0}))
    assert len(phases(timeline)) == count
    assert len(phases(course(*reversed([(seconds, {"disk": 1.0}), (99.0, {"cpu": 1.0})])))) == count


def test_the_two_that_differ_least_are_merged_first() -> None:
    shares = [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.3, 0.7, 0.0]
    rows = [(10.0, {"cpu": share, "disk": 1 - share}) for share in shares]
    found = phases(course(*rows))
    assert len(found) == MAX_PHASES
    assert [(one.start, one.end) for one in found if one.seconds > 10] == [(60, 80)]
