# SPDX-License-Identifier: Apache-2.0
"""What happened in a run between two looks at it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipelined.model.difference import difference
from pipelined.runs import LEVELS, Flow, PipeEnd, Run
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


def test_a_stage_is_the_same_one_at_another_position(then: Run, now: Run) -> None:
    cat, awk = now.stages
    moved = replace(awk, position=awk.position + 1)
    recent = the_difference(replace(now, stages=(cat, make_stage(2, "tr"), moved)), then)
    assert recent.stages[2].cpu_seconds == pytest.approx(2.0)
    assert recent.stages[2].read_bytes == 30


def test_what_a_merge_has_taken_away_is_nothing_and_not_less(then: Run, now: Run) -> None:
    recent = difference(replace(then, wall_seconds=12.0), replace(now, wall_seconds=10.0))
    assert recent is not None
    assert recent.stages[1].cpu_seconds == 0.0


@pytest.mark.parametrize("change", [{"id": "2"}, {"wall_seconds": 10.0}])
def test_there_is_none_without_time_or_across_runs(
    then: Run, now: Run, change: dict[str, str | float]
) -> None:
    assert difference(replace(now, **change), then) is None  # type: ignore[arg-type]


def test_every_figure_of_a_moment_is_that_of_the_time_between() -> None:
    def run(*figures: int, wall: float = 10.0, levels: tuple[float, ...] = (6.0, 3.0, 1.0)) -> Run:
        read, written, forks, exited, lived, *flow = figures
        stage = make_stage(
            1,
            "sort",
            read_bytes=read,
            written_bytes=written,
            forks=forks,
            exited_children=exited,
            children_lifetime_seconds=float(lived),
            flow=Flow(*flow, exact=True),
        )
        given = {"levels": (*levels, *[0.0] * (len(LEVELS) - len(levels)))}
        return make_run([stage], wall, **given)

    then = replace(
        run(1, 2, 3, 4, 5, 6, 7, 8, 9),
        disk_alone_seconds=1.0,
        disk_overlapped_seconds=2.0,
        unwatched_seconds=0.5,
    )
    now = replace(
        run(11, 22, 33, 44, 55, 66, 77, 88, 99, wall=12.0, levels=(7.0, 3.5, 1.5)),
        disk_alone_seconds=1.25,
        disk_overlapped_seconds=2.5,
        unwatched_seconds=0.75,
    )
    recent = the_difference(now, then)
    assert (recent.start, recent.wall_seconds) == (now.start + 10.0, 2.0)
    assert recent.levels[:4] == (1.0, 0.5, 0.5, 0.0)
    assert (recent.disk_alone_seconds, recent.disk_overlapped_seconds) == (0.25, 0.5)
    assert recent.unwatched_seconds == 0.25
    (stage,) = recent.stages
    assert (stage.read_bytes, stage.written_bytes) == (10, 20)
    assert (stage.forks, stage.exited_children, stage.children_lifetime_seconds) == (30, 40, 50.0)
    assert stage.flow == Flow(60, 70, 80, 90, exact=True)
    back = the_difference(replace(then, wall_seconds=14.0), now)
    assert back.levels == (0.0,) * len(LEVELS)
    assert (back.disk_alone_seconds, back.disk_overlapped_seconds) == (0.0, 0.0)
    (stage,) = back.stages
    assert (stage.read_bytes, stage.written_bytes) == (0, 0)
    assert (stage.forks, stage.exited_children, stage.children_lifetime_seconds) == (0, 0, 0.0)
    assert stage.flow == Flow(0, 0, 0, 0, exact=True)


def test_a_flow_that_was_not_known_before_counts_whole() -> None:
    def run(wall: float, *flow: int | None) -> Run:
        stage = make_stage(1, "sort", flow=Flow(*flow, exact=True))
        return make_run([stage], wall)

    recent = the_difference(run(12.0, 5, None, 0, 9), run(10.0, None, 4, 0, 2))
    assert recent.stages[0].flow == Flow(5, None, 0, 7, exact=True)


@pytest.mark.parametrize(("seconds", "found"), [(0.0011, True), (0.0009, False)])
def test_a_millisecond_is_enough(then: Run, seconds: float, found: bool) -> None:
    assert (difference(replace(then, wall_seconds=10.0 + seconds), then) is not None) is found
