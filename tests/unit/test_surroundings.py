# SPDX-License-Identifier: Apache-2.0
"""What else was on the host while a run lived: CPUs, limits, and the busiest other pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelined.model.surroundings import Lived, Reading, Together, beside, surroundings
from pipelined.runs import OtherPipeline

GROUP = Path("/a")


def run(start: float = 100.0, end: float = 110.0, *, cpu: float = 5.0, queue: float = 5.0) -> Lived:
    return Lived("cat|wc", start, end, cpu, queue)


def other(pipeline: str, start: float, end: float, cpu: float) -> Lived:
    return Lived(pipeline, start, end, cpu, 0.0)


NOTHING = Reading(100.0, None), Reading(110.0, None)


def busiest(*others: Lived, of: Lived | None = None) -> tuple[OtherPipeline, ...]:
    its = of or run()
    return surroundings(its, *NOTHING, lambda: beside(its, others)).pipelines


def test_the_others_used_what_the_cpus_worked_more_than_the_run() -> None:
    found = surroundings(run(cpu=5.0), Reading(98.0, 20.0), Reading(118.0, 55.0), dict)
    assert found.others_cores == (55.0 - 20.0 - 5.0) / 20.0


def test_no_less_than_nothing() -> None:
    found = surroundings(
        run(), Reading(98.0, 20.0, GROUP, 3.0), Reading(118.0, 21.0, GROUP, 2.0), dict
    )
    assert (found.others_cores, found.throttled_seconds) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Reading(98.0, None), Reading(118.0, 55.0)),
        (Reading(98.0, 20.0), Reading(118.0, None)),
        (Reading(98.0, 20.0), Reading(98.0, 20.0)),
    ],
)
def test_without_two_accounts_at_two_times_the_others_are_unknown(
    before: Reading, after: Reading
) -> None:
    assert surroundings(run(), before, after, dict).others_cores is None


def test_a_short_time_between_two_accounts_is_enough() -> None:
    found = surroundings(run(cpu=0.25), Reading(98.0, 20.0), Reading(98.5, 21.0), dict)
    assert found.others_cores == 1.5


@pytest.mark.parametrize(
    ("before", "after", "seconds"), [(1.0, 3.5, 2.5), (None, 3.5, None), (1.0, None, None)]
)
def test_limits_held_it_back_for_what_their_account_grew(
    before: float | None, after: float | None, seconds: float | None
) -> None:
    found = surroundings(
        run(), Reading(98.0, None, GROUP, before), Reading(118.0, None, GROUP, after), dict
    )
    assert found.throttled_seconds == seconds


def test_of_another_pipeline_what_it_used_while_both_lived_is_counted() -> None:
    (found,) = busiest(
        other("a|b", 95.0, 105.0, 4.0),  # half of it
        other("a|b", 108.0, 112.0, 4.0),  # half of it
        other("a|b", 101.0, 103.0, 1.0),  # all of it
        other("c|d", 110.0, 120.0, 9.0),  # nothing: it began at the end
    )
    assert found == OtherPipeline("a|b", 2.0 + 2.0 + 1.0)


def test_the_three_busiest_are_named_busiest_first() -> None:
    used = {"a|b": 2.0, "c|d": 4.0, "e|f": 1.0, "g|h": 3.0}
    found = busiest(*(other(name, 100.0, 110.0, cpu) for name, cpu in used.items()))
    assert [one.pipeline for one in found] == ["c|d", "g|h", "a|b"]


def test_those_that_used_less_than_a_twentieth_of_a_cpu_are_not_named() -> None:
    found = busiest(other("a|b", 100.0, 110.0, 0.5), other("c|d", 100.0, 110.0, 0.49))
    assert [one.pipeline for one in found] == ["a|b"]


moments = st.integers(0, 40).map(lambda quarters: 90 + quarters / 4)


@given(
    st.lists(st.builds(Lived, st.just("a|b"), moments, moments, st.floats(0, 99), st.just(0.0))),
    moments,
    moments,
)
def test_runs_together_used_what_each_of_them_did(
    others: list[Lived], begin: float, end: float
) -> None:
    its = run(min(begin, end), max(begin, end))
    lived = [life for life in others if life.start <= life.end]
    found = Together(lived).between(its.start, its.end)
    assert found == pytest.approx(beside(its, lived).get("a|b", 0.0), abs=1e-6)


def test_the_most_cpus_that_runs_used_together() -> None:
    lives = (other("a|b", 100.0, 110.0, 5.0), other("a|b", 105.0, 106.0, 2.0))
    assert (Together(lives).most, Together(()).most) == (2.5, 0.0)


def test_others_are_named_to_a_run_that_waited_for_a_cpu_for_a_tenth_of_its_time() -> None:
    busy = other("a|b", 100.0, 110.0, 9.0)
    assert busiest(busy, of=run(queue=1.0))
    assert not busiest(busy, of=run(queue=0.99))
