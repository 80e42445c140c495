# SPDX-License-Identifier: Apache-2.0
"""How a run went on over time: nothing is lost however much is left out."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelined.model.timeline import (
    MAX_POINTS,
    NOTED,
    Moment,
    Track,
)
from pipelined.records.stage import COUNTERS
from pipelined.runs import LEVELS, STATES, Point, Timeline
from pipelined.runs.codec import read, written

START = 1_700_000_000.0
SECOND = 1_000_000_000
PLENTY = 1 << 20
CAT, SORT = (1, 0), (2, 0)


def moment(
    levels: Sequence[int],
    stages: dict[tuple[int, int], dict[str, int]] | None = None,
    unwatched: int = 0,
) -> Moment:
    """Nanoseconds at the lowest levels and unwatched, and what each stage has counted so far."""
    values = array("q", [*levels, *[0] * (len(LEVELS) - len(levels)), unwatched])
    names = (*STATES, *COUNTERS)[:NOTED]
    for counted in (stages or {}).values():
        values.extend(counted.get(name, 0) for name in names)
    return Moment(tuple(stages or {}), values)


def timeline(track: Track, now: Moment) -> Timeline:
    stages = range(len(now.stages))
    return track.timeline(START, now, stages, [100 + stage for stage in stages])


def total(points: Timeline, stage: int, state: str) -> float:
    return sum(point.stages[stage].states.get(state, 0.0) for point in points)


def test_a_run_that_was_seen_once_is_one_point() -> None:
    now = moment([SECOND, 2 * SECOND], {CAT: {"cpu": SECOND, "read_bytes": 7}})

    (point,) = timeline(Track(), now)

    assert (point.start, point.end) == (START, START + 3)
    assert point.levels[:3] == (1, 2, 0)
    assert point.stages[0].states == {"cpu": 1}
    assert (point.stages[0].read_bytes, point.stages[0].written_bytes) == (7, 0)
    assert point.stages[0].pid == 100


def test_a_point_has_what_happened_between_two_moments() -> None:
    track = Track()
    track.add(moment([0, SECOND], {CAT: {"cpu": SECOND, "written_bytes": 10}}), PLENTY)
    now = moment([SECOND, SECOND], {CAT: {"cpu": SECOND, "disk": SECOND, "written_bytes": 12}})

    first, second = timeline(track, now)

    assert (first.end, second.start, second.end) == (START + 1, START + 1, START + 2)
    assert (first.levels[1], second.levels[0]) == (1, 1)
    assert (first.stages[0].states, second.stages[0].states) == ({"cpu": 1}, {"disk": 1})
    assert [point.stages[0].written_bytes for point in (first, second)] == [10, 2]


def test_sweeps_right_after_one_another_make_one_point() -> None:
    track = Track()
    for end in (SECOND, 2 * SECOND, 2 * SECOND + SECOND // 100, 3 * SECOND):
        track.add(moment([end]), PLENTY)

    points = timeline(track, moment([4 * SECOND]))

    assert [point.end - START for point in points] == [1, 2, 3, 4]


def test_stages_come_in_the_order_that_is_asked_for() -> None:
    now = moment([SECOND], {SORT: {"cpu": 2 * SECOND}, CAT: {"cpu": SECOND}})

    (point,) = Track().timeline(START, now, (1, 0), (11, 22))

    assert [(stage.pid, stage.states["cpu"]) for stage in point.stages] == [(11, 1), (22, 2)]


def test_a_stage_that_came_later_has_done_nothing_before() -> None:
    track = Track()
    track.add(moment([SECOND], {SORT: {"cpu": SECOND}}), PLENTY)
    now = moment([2 * SECOND], {CAT: {"cpu": 3 * SECOND}, SORT: {"cpu": SECOND}})

    first, second = timeline(track, now)

    assert [stage.states for stage in first.stages] == [{}, {"cpu": 1}]
    assert [stage.states for stage in second.stages] == [{"cpu": 3}, {}]


def test_what_leaves_a_stage_is_taken_from_the_points_before() -> None:
    track = Track()
    track.add(moment([SECOND], {CAT: {"cpu": 9 * SECOND}}), PLENTY)
    now = moment([2 * SECOND], {CAT: {"cpu": 4 * SECOND}})

    points = timeline(track, now)

    assert total(points, 0, "cpu") == 4
    assert all(value >= 0 for point in points for value in point.stages[0].states.values())


def test_a_long_run_has_no_more_points_than_allowed_and_loses_nothing() -> None:
    track = Track()
    for second in range(1, 5000):
        track.add(moment([0, second * SECOND], {CAT: {"cpu": second * SECOND}}), PLENTY)
    now = moment([0, 5000 * SECOND], {CAT: {"cpu": 5000 * SECOND}})

    points = timeline(track, now)

    assert MAX_POINTS / 3 < len(points) <= MAX_POINTS
    assert total(points, 0, "cpu") == pytest.approx(5000)
    lengths = [point.end - point.start for point in points[:-2]]
    assert max(lengths) <= 2 * min(lengths)


def test_a_track_with_little_memory_has_few_points() -> None:
    track = Track()
    for second in range(1, 1000):
        track.add(moment([0, second * SECOND], {CAT: {}}), 4000)

    assert 8 <= len(timeline(track, moment([0, 1000 * SECOND], {CAT: {}}))) < 30


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 10 * SECOND), st.integers(0, SECOND), st.integers(0, 1 << 40)),
        min_size=1,
        max_size=800,
    ),
    memory=st.integers(0, PLENTY),
)
def test_the_points_add_up_to_the_run(steps: list[tuple[int, int, int]], memory: int) -> None:
    track, wall, cpu, moved = Track(), 0, 0, 0
    for step in steps:
        wall, cpu, moved = wall + step[0], cpu + step[1], moved + step[2]
        now = moment([wall], {CAT: {"cpu": cpu, "written_bytes": moved}})
        track.add(now, memory)

    points = timeline(track, now)

    assert len(points) <= MAX_POINTS
    assert sum(point.levels[0] for point in points) == pytest.approx(wall / SECOND)
    assert total(points, 0, "cpu") == pytest.approx(cpu / SECOND)
    assert sum(point.stages[0].written_bytes for point in points) == moved
    assert points[0].start == START
    assert points[-1].end == pytest.approx(START + wall / SECOND)


def read_again(points: Timeline) -> Timeline:
    """Written as JSON, and read."""
    text = json.dumps([written(point) for point in points])
    return tuple(read(Point, point) for point in json.loads(text))


def test_a_time_line_survives_json() -> None:
    track = Track()
    track.add(moment([0, SECOND], {CAT: {"cpu": SECOND}}), PLENTY)
    points = timeline(track, moment([SECOND, SECOND], {CAT: {"cpu": SECOND, "disk": SECOND}}))

    assert read_again(points) == points


def test_time_unwatched_is_a_point_of_its_own() -> None:
    track = Track()
    track.resume(moment([0, 4 * SECOND], {CAT: {"cpu": 4 * SECOND}}))
    track.add(moment([0, 4 * SECOND], {CAT: {"cpu": 4 * SECOND}}, 6 * SECOND), PLENTY)
    now = moment([0, 5 * SECOND], {CAT: {"cpu": 5 * SECOND}}, 6 * SECOND)
    track.add(now, PLENTY)

    points = timeline(track, now)

    assert [(p.start - START, p.end - START) for p in points] == [(0, 4), (4, 10), (10, 11)]
    assert [(point.unwatched, point.seconds) for point in points] == [(0, 4), (6, 0), (0, 1)]
    assert [point.stages[0].states for point in points] == [{"cpu": 4}, {}, {"cpu": 1}]
    assert read_again(points) == points


def test_a_time_line_of_an_older_version_was_watched_all_along() -> None:
    now = moment([SECOND], {CAT: {}})
    described = [written(point) for point in timeline(Track(), now)]
    del described[0]["unwatched_seconds"]
    assert read(Point, described[0]).unwatched == 0


def test_after_it_was_thinned_a_track_goes_on_as_before() -> None:
    track = Track()
    for second in range(1, 5000):
        track.add(moment([0, second * SECOND], {CAT: {}}), PLENTY)
    points = timeline(track, moment([0, 5000 * SECOND], {CAT: {}}))
    lengths = [point.end - point.start for point in points]
    assert max(lengths) <= 2.5 * lengths[0]
    assert 5000 / MAX_POINTS <= lengths[0] <= 4 * 5000 / MAX_POINTS
