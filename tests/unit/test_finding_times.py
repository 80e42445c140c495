# SPDX-License-Identifier: Apache-2.0
"""When a finding shows at which stage, as far as a time line can show it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pipelined.analysis.finding import Finding
from pipelined.analysis.finding_times import SHOWN, finding_times
from pipelined.analysis.findings import RULES, findings
from pipelined.runs import LEVELS, STATES, Point, Run, StagePoint, Timeline
from pipelined.wording import STATE_WORDS, percent
from unit.invented import START, make_run, make_stage
from unit.observed import HOST

DOCS = Path(__file__).parents[2] / "docs"
RUN = make_run([make_stage(1, "cat"), make_stage(2, "sort"), make_stage(3, "uniq")], 100.0)


def finding(finding_id: str, *stages: int) -> Finding:
    return Finding(
        id=finding_id, severity="advice", sentence="", advice="", stages=stages, evidence=()
    )


def course(*rows: tuple[dict[str, float], ...], step: float = 1.0) -> Timeline:
    """Points of `step` seconds; a row has for each stage its shares of states."""
    return tuple(
        Point(
            START + number * step,
            START + (number + 1) * step,
            (step, *[0.0] * (len(LEVELS) - 1)),
            tuple(
                StagePoint({name: part * step for name, part in one.items()}, 0, 0) for one in row
            ),
        )
        for number, row in enumerate(rows)
    )


def shown(run: Run, timeline: Timeline, *found: Finding) -> list[list[tuple[int, float, float]]]:
    """Stage, and from when to when since the start, of each finding's stretches."""
    return [
        [(one.stage, one.start - START, one.end - START) for one in stretches]
        for stretches in finding_times(run, timeline, found)
    ]


READING = ({"cpu": 0.2, "pipe_full": 0.8}, {"cpu": 0.9, "pipe_empty": 0.1}, {"pipe_empty": 1.0})
SORTING = ({}, {"cpu": 1.0}, {"pipe_empty": 1.0})
PASSING = ({}, {"cpu": 0.4, "pipe_full": 0.6}, {"cpu": 0.9, "pipe_empty": 0.1})


def test_a_barrier_shows_at_its_reader_until_that_has_something_to_do() -> None:
    timeline = course(*[READING] * 40, *[SORTING] * 40, *[PASSING] * 20)
    assert shown(RUN, timeline, finding("barrier", 1, 2)) == [[(2, 0, 80)]]


def test_a_barrier_that_is_found_is_one_that_is_shown() -> None:
    run = make_run(
        [
            make_stage(1, "cat", cpu=8.0, pipe_full=32.0, end=START + 40),
            make_stage(2, "sort", cpu=84.0, pipe_empty=4.0, pipe_full=12.0),
            make_stage(3, "uniq", cpu=18.0, pipe_empty=82.0),
        ],
        100.0,
        end=START + 100,
    )
    timeline = course(*[READING] * 40, *[SORTING] * 40, *[PASSING] * 20)
    found = findings(run, HOST)
    times = dict(zip([one.id for one in found], shown(run, timeline, *found), strict=True))
    assert times["barrier"] == [(2, 0, 80)]


def test_a_ceiling_shows_where_its_stage_computes_or_waits_for_a_cpu() -> None:
    busy = ({}, {"cpu": 0.5, "runqueue": 0.4, "pipe_empty": 0.1}, {})
    timeline = course(*[({}, {"disk": 1.0}, {})] * 10, *[busy] * 90)
    assert shown(RUN, timeline, finding("ceiling", 1)) == [[(1, 10, 100)]]


def test_taking_turns_shows_at_both_ends_of_the_pipe() -> None:
    turns = ({"pipe_full": 0.4, "cpu": 0.6}, {"pipe_empty": 0.4, "cpu": 0.6}, {"cpu": 1.0})
    timeline = course(*[turns] * 10)
    assert shown(RUN, timeline, finding("large-writes", 0, 1)) == [[(0, 0, 10), (1, 0, 10)]]


def test_a_finding_about_the_whole_run_shows_at_each_stage_that_does_it() -> None:
    row = ({"runqueue": 0.5, "cpu": 0.5}, {"cpu": 1.0}, {"runqueue": 0.3, "cpu": 0.7})
    found = finding("more-stages-than-cores")
    assert shown(RUN, course(*[row] * 5), found) == [[(0, 0, 5), (2, 0, 5)]]


def test_short_gaps_are_bridged_and_long_ones_are_not() -> None:
    waits, works = ({"disk": 1.0}, {}, {}), ({"cpu": 1.0}, {}, {})
    rows = [waits] * 20 + [works] * 5 + [waits] * 20 + [works] * 35 + [waits] * 20
    timeline = course(*rows)
    assert shown(RUN, timeline, finding("readahead-late", 0)) == [[(0, 0, 45), (0, 80, 100)]]


def test_a_moment_is_no_stretch() -> None:
    rows = [({"cpu": 1.0}, {}, {})] * 99
    rows.insert(50, ({"disk": 1.0}, {}, {}))
    assert shown(RUN, course(*rows), finding("readahead-late", 0)) == [[]]


def test_nothing_shows_while_nobody_watched() -> None:
    """An hour without a daemon, and the second after it, are one point."""
    works, waits = ({"cpu": 1.0}, {}, {}), ({"disk": 1.0}, {}, {})
    before, (first, *rest) = course(*[works] * 50), course(*[waits] * 200)
    gap = replace(first, start=START + 50, end=START + 3651, unwatched=3600.0)
    after = [replace(p, start=p.start + 3650, end=p.end + 3650) for p in rest]
    timeline = (*before, gap, *after)
    assert shown(RUN, timeline, finding("readahead-late", 0)) == [[(0, 3650, 3850)]]


def test_threads_count_as_shares_of_their_time_together() -> None:
    workers = ({"cpu": 1.0, "lock": 3.0}, {}, {})
    assert shown(RUN, course(*[workers] * 10), finding("ceiling", 0)) == [[]]


@pytest.mark.parametrize("timeline", [(), course(READING)])
def test_nothing_and_a_single_point_show_no_time(timeline: Timeline) -> None:
    assert shown(RUN, timeline, finding("barrier", 1, 2)) == [[]]


def test_what_is_in_no_time_line_has_no_time() -> None:
    row = ({"cpu": 1.0}, {"cpu": 1.0}, {"cpu": 1.0})
    found = [finding(one, 0) for one in ("small-calls", "fork-storm", "cold-run", "join-stages")]
    assert shown(RUN, course(*[row] * 10), *found) == [[], [], [], []]


def test_points_of_no_length_show_nothing() -> None:
    timeline = course(*[READING] * 2, step=0.0)
    assert shown(RUN, timeline, finding("barrier", 1, 2)) == [[]]


def test_of_parallel_readers_each_that_waits_is_marked() -> None:
    run = replace(RUN, edges=((0, 1), (0, 2)))
    row = ({"cpu": 1.0}, {"pipe_empty": 1.0}, {"cpu": 1.0})
    assert shown(run, course(*[row] * 4), finding("barrier", 0, 1, 2)) == [[(1, 0, 4)]]


def test_the_documentation_has_how_each_finding_shows() -> None:
    documented = {}
    text = (DOCS / "FINDINGS.md").read_text().split("## When a finding shows\n")[1]
    for line in text.split("\n## ")[0].splitlines():
        if cells := re.findall(r"[^|]+", line):
            for one in cells[0].split(","):
                documented[one.strip()] = [cell.strip() for cell in cells[1:]]
    for one, how in SHOWN.items():
        _, states, share = documented[one]
        assert states.split(", ") == [STATE_WORDS[s] for s in STATES if s in how.states], one
        assert share == percent(how.least)
    assert SHOWN.keys() == documented.keys() & {rule.id for rule in RULES}


@pytest.mark.parametrize(
    ("id", "state", "least"), [("ceiling", "cpu", 0.5), ("readahead-late", "disk", 0.25)]
)
def test_a_state_shows_a_finding_from_its_share_of_a_point_on(
    id: str, state: str, least: float
) -> None:
    rows = [({state: share, "poll": 1 - share}, {}, {}) for share in (least, least - 0.01)]
    timeline = course(*[rows[0]] * 5, *[rows[1]] * 5)
    assert shown(RUN, timeline, finding(id, 0)) == [[(0, 0, 5)]]


def test_a_stretch_has_a_fiftieth_of_the_run_or_more() -> None:
    def stretches(points: int) -> list[tuple[int, float, float]]:
        rows = [({"cpu": 1.0}, {}, {})] * 200
        rows[50 : 50 + points] = [({"disk": 1.0}, {}, {})] * points
        return shown(RUN, course(*rows), finding("readahead-late", 0))[0]

    assert stretches(4) == [(0, 50, 54)]
    assert stretches(3) == []


def test_a_gap_of_more_than_a_twentieth_of_the_run_parts_two_stretches() -> None:
    def stretches(gap: int) -> list[tuple[int, float, float]]:
        rows = [({"disk": 1.0}, {}, {})] * 100
        rows[50 : 50 + gap] = [({"cpu": 1.0}, {}, {})] * gap
        return shown(RUN, course(*rows), finding("readahead-late", 0))[0]

    assert stretches(5) == [(0, 0, 100)]
    assert stretches(6) == [(0, 0, 50), (0, 56, 100)]


def test_two_points_show_when() -> None:
    row = ({"disk": 1.0}, {}, {})
    assert shown(RUN, course(row, row), finding("readahead-late", 0)) == [[(0, 0, 2)]]


def test_stretches_are_in_the_order_of_the_data_and_an_idle_stage_shows_at_its_reader() -> None:
    row = ({"pipe_empty": 1.0, "disk": 1.0}, {"pipe_empty": 1.0}, {"pipe_empty": 1.0})
    timeline = course(*[row] * 4)
    assert shown(RUN, timeline, finding("idle-stage", 1, 0)) == [[(1, 0, 4)]]
    turns = ({"pipe_full": 1.0}, {"pipe_empty": 1.0}, {})
    assert shown(RUN, course(*[turns] * 4), finding("large-writes", 1, 0)) == [
        [(0, 0, 4), (1, 0, 4)]
    ]
