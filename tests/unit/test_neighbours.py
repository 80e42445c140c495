# SPDX-License-Identifier: Apache-2.0
"""What pipelines used while a run lived: from all that lived, looked through once a sweep."""

from __future__ import annotations

from collections import deque
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelined.model import neighbours
from pipelined.model.enclosing import Enclosing
from pipelined.model.neighbours import Neighbours
from pipelined.model.sighting import Sighting, lived
from pipelined.model.surroundings import Reading, beside
from pipelined.records.stage import PipelineRecord
from pipelined.runs import LEVELS, Series

NOW = 110.0
IDLE = (0,) * (len(LEVELS) - 1)


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def sighting(
    number: int,
    pipeline: str = "a|b",
    start: float = 100.0,
    end: float | None = None,
    cpu: float = 1.0,
    inside: int | None = None,
) -> Sighting:
    """A run with this number, of which all that others look at is made up; it waited for CPUs."""
    group: Any = SimpleNamespace(
        number=number,
        clock=PipelineRecord((ns((end or NOW) - start), *IDLE), (0, *IDLE), ns(start)),
    )
    record = SimpleNamespace(counted=[ns(cpu), ns(99.0)], partial=False)
    shape: Any = SimpleNamespace(records=(record,))
    enclosing = None if inside is None else Enclosing(str(inside), "x|y", "x|y", alone=False)
    series = Series(pipeline=pipeline, nested=enclosing is not None, unit="-")
    made = Sighting(group, series, shape, (), (), enclosing, None)
    made.end_ns = None if end is None else ns(end)
    return made


def run_id(of: Sighting) -> str:
    return str(vars(of.group)["number"])


def looked_at_singly(
    run: Sighting, lived_before: list[Sighting], recent: deque[Sighting]
) -> dict[str, float]:
    found = {run_id(one): one for one in (*lived_before, *islice(reversed(recent), 200))}
    found.pop(run_id(run), None)
    outer = run.enclosing
    while outer:
        enclosing = found.pop(outer.run, None)
        outer = enclosing.enclosing if enclosing else None
    others = (lived(one, NOW) for one in found.values() if not one.series.nested)
    return beside(lived(run, NOW), others)


quarters = st.integers(0, 39).map(lambda quarter: 100.0 + quarter / 4)
numbers = st.integers(0, 12)
runs = st.builds(
    sighting,
    numbers,
    st.sampled_from(["a|b", "c|d", "e|f"]),
    quarters,
    cpu=st.floats(0.0, 40.0),
    inside=st.none() | numbers,
)


def ended(run: Sighting, seconds: float) -> Sighting:
    start = vars(run.group)["clock"].start_ns / 1e9
    inside = int(run.enclosing.run) if run.enclosing else None
    number = vars(run.group)["number"]
    return sighting(number, run.series.pipeline, start, start + seconds, 2.0, inside)


ended_runs = st.builds(ended, runs, st.integers(1, 40).map(lambda quarter: quarter / 4))


@given(ended_runs, st.lists(runs | ended_runs), st.lists(ended_runs))
def test_the_others_used_as_much_as_if_each_were_looked_at_for_each_run(
    run: Sighting, lived_before: list[Sighting], lately: list[Sighting]
) -> None:
    recent = deque(lately)
    expected = looked_at_singly(run, lived_before, recent)
    found = neighbours._Crowd(lived_before, NOW, run_id).beside(run, recent)
    assert expected.keys() <= found.keys()
    for pipeline, seconds in found.items():
        assert seconds == pytest.approx(expected.get(pipeline, 0.0), abs=1e-6)


def test_what_lives_is_looked_at_once_a_sweep_however_many_runs_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    def counted(of: Sighting) -> str:
        nonlocal looks
        looks += 1
        return run_id(of)

    host: Any = SimpleNamespace(busy=lambda: 0.0)
    watched = Neighbours(host)
    watched.sweep(100.0, [])
    live = [sighting(number, f"job{number}|sort") for number in range(1000)]
    watched.sweep(NOW, live)
    recent: deque[Sighting] = deque()
    for number in range(1000, 1100):
        run = sighting(number, end=109.0)
        run.before = Reading(100.0, 0.0)
        found = watched.around(run, recent, counted)
        assert found is not None and len(found.pipelines) == 3
        recent.append(run)
    assert looks <= len(live) + 2 * len(recent)


def test_of_many_pipelines_that_live_those_with_most_cpu_time_are_looked_at() -> None:
    live = [sighting(number, f"job{number}|sort", cpu=number) for number in range(300)]
    found = neighbours._Crowd(live, NOW, run_id).beside(sighting(999, end=109.0), deque())
    assert found.keys() == {f"job{number}|sort" for number in range(100, 300)}
