# SPDX-License-Identifier: Apache-2.0
"""Sums over runs: what they grow by, what is folded, and how many values an account has."""

from __future__ import annotations

import pytest

from pipelined.model.sums import (
    OTHER_PLACE,
    EndedRun,
    SeenStage,
    StageSums,
    Sums,
    add_once,
    grow,
    grow_flow,
    grow_functions,
    grow_modes,
)
from pipelined.records.stage import COUNTERS
from pipelined.runs import LEVELS, STATES, Flow

COUNTED = len(STATES) + len(COUNTERS)


def row(length: int, **at: int) -> list[int]:
    """Zeros, but for `_0=5`: 5 at place 0."""
    values = [0] * length
    for place, value in at.items():
        values[int(place.removeprefix("_"))] = value
    return values


def counted(cpu: int = 0, user: int = 0, system: int = 0) -> list[int]:
    values = [0] * COUNTED
    values[0] = cpu
    values[len(STATES) + COUNTERS.index("user_ns")] = user
    values[len(STATES) + COUNTERS.index("system_ns")] = system
    return values


def test_what_was_not_seen_before_grows_whole() -> None:
    total, before = [1, 1], []
    grow(total, before, [3, 4])
    assert (total, before) == ([4, 5], [3, 4])


def test_a_value_that_falls_adds_nothing_until_it_exceeds_its_largest() -> None:
    total, before = [10, 10], [5, 5]
    grow(total, before, [7, 3])
    assert (total, before) == ([12, 10], [7, 5])
    grow(total, before, [7, 6])
    assert (total, before) == ([12, 11], [7, 6])


def test_cpu_time_is_split_as_the_ticks_are_and_neither_part_goes_back() -> None:
    total, seen = StageSums(), SeenStage(None)
    seen.counted = counted(cpu=100, user=30, system=10)
    grow_modes(total, seen)
    assert (total.user_ns, total.system_ns) == (75, 25)
    seen.counted = counted(cpu=120, user=110, system=10)  # a share of 10 would be less than before
    grow_modes(total, seen)
    assert (total.user_ns, total.system_ns) == (95, 25)
    assert (seen.user_ns, seen.system_ns) == (95, 25)
    seen.counted = counted(cpu=130, user=110, system=1110)  # a share of 118 would leave too little
    grow_modes(total, seen)
    assert (total.user_ns, total.system_ns) == (95, 35)


def test_without_ticks_of_the_system_all_cpu_time_is_user_time() -> None:
    total, seen = StageSums(), SeenStage(None, counted(cpu=100))
    grow_modes(total, seen)
    assert (total.user_ns, total.system_ns) == (100, 0)


def test_growth_of_modes_is_added_to_what_other_stages_have() -> None:
    total = StageSums(user_ns=1000, system_ns=2000)
    grow_modes(total, SeenStage(None, counted(cpu=40, user=1, system=1)))
    assert (total.user_ns, total.system_ns) == (1020, 2020)


@pytest.mark.parametrize(
    "values",
    [
        counted(),
        counted(cpu=100),
        counted(cpu=100, user=3, system=1),
        counted(cpu=-5, user=3, system=1),
        [7 * place - 20 for place in range(COUNTED)],
    ],
)
@pytest.mark.parametrize(
    "flow", [Flow(5, None, 7, None, exact=True), Flow(None, 8, 0, 9, exact=False)]
)
def test_a_stage_that_is_seen_once_adds_what_it_would_if_it_were_seen_again(
    values: list[int], flow: Flow
) -> None:
    once, grown = (StageSums(counted(9, 9, 9), 10, 20, flow=[1, 2, 3, 4]) for _ in range(2))
    seen = SeenStage(None)
    grow(grown.counted, seen.counted, values)
    grow_modes(grown, seen)
    grow_flow(grown, seen, flow)
    assert add_once(once, values, flow) == (seen.user_ns, seen.system_ns)
    assert once == grown


def test_a_flow_counts_what_is_known_and_one_bound_makes_the_sum_a_bound() -> None:
    total, seen = StageSums(), SeenStage(None)
    grow_flow(total, seen, Flow(5, None, 7, None, exact=True))
    assert total.flow == [5, 0, 7, 0] and not total.bounded
    grow_flow(total, seen, Flow(6, 2, 7, 1, exact=False))
    assert total.flow == [6, 2, 7, 1] and total.bounded
    grow_flow(total, seen, Flow(6, 2, 7, 1, exact=True))
    assert total.bounded
    assert total.flowed() == Flow(6, 2, 7, 1, exact=False)


def test_the_last_value_of_functions_is_the_last_that_was_known() -> None:
    total, seen = StageSums(), SeenStage(None)
    for now, expected in (
        ([1, 2, 16], [1, 2, 16]),
        ([3, 2, 0], [3, 2, 16]),
        ([3, 4, 64], [3, 4, 64]),
    ):
        grow_functions(total, seen, now)
        assert total.functions == expected


def test_a_stage_is_folded_with_all_that_it_counts() -> None:
    total = StageSums(counted(1, 2, 3), 10, 20, [1, 2, 16], [5, 6], [1, 2, 3, 4])
    other = StageSums(counted(10, 20, 30), 1, 2, [10, 20, 0], [50, 60], [10, 20, 30, 40], True)
    total.fold(other)
    assert total == StageSums(
        counted(11, 22, 33), 11, 22, [11, 22, 16], [55, 66], [11, 22, 33, 44], True
    )
    other.fold(StageSums(functions=[0, 0, 64]))
    assert other.functions == [10, 20, 64]
    assert other.bounded


def test_tiers_of_a_folded_stage_are_taken_by_one_that_has_none() -> None:
    total = StageSums()
    total.fold(StageSums(functions=[1, 2, 16], readahead=[5, 6]))
    assert (total.functions, total.readahead) == ([1, 2, 16], [5, 6])
    total.fold(StageSums())
    assert (total.functions, total.readahead) == ([1, 2, 16], [5, 6])


def test_what_is_folded_goes_to_one_place_and_of_the_clock_to_its_level() -> None:
    total = Sums(runs=1, active=1, clock=row(2 * len(LEVELS), _0=5, _1=1))
    for place, cpu in (((1, "cat"), 3), ((2, "wc"), 4)):
        other = Sums(runs=2, active=1, clock=row(2 * len(LEVELS), _1=7))
        other.stages[place] = StageSums(counted(cpu))
        total.fold(other)
    assert (total.runs, total.active) == (5, 3)
    assert total.clock == row(2 * len(LEVELS), _0=5, _1=15)
    assert total.stages == {OTHER_PLACE: StageSums(counted(7))}


def test_runs_that_failed_are_folded_by_their_reasons_and_none_of_them_is_the_last() -> None:
    total, other = Sums(), Sums()
    for sums in (total, other):
        sums.ended("failed", "signal", 1.0, 10.0)
        sums.ended("interrupted", None, 1.0, 11.0)
    other.ended("failed", "exit", 1.0, 12.0)
    other.ended("succeeded", None, 1.0, 13.0)
    total.fold(other)
    assert (total.runs, total.interrupted) == (6, 2)
    assert total.failed == {"exit": 1, "signal": 2, "out_of_memory": 0}
    assert (total.last_complete_end, total.last_failed_end) == (None, {"signal": 10.0})


@pytest.mark.parametrize(
    ("result", "failure", "complete", "failed"),
    [
        ("succeeded", None, 20.0, {"exit": 10.0}),
        ("unknown", None, 20.0, {"exit": 10.0}),
        ("interrupted", None, None, {"exit": 10.0}),
        ("failed", "exit", None, {"exit": 20.0}),
        ("failed", "out_of_memory", None, {"exit": 10.0, "out_of_memory": 20.0}),
    ],
)
def test_the_last_complete_run_is_one_that_is_not_known_to_be_incomplete(
    result: str, failure: str | None, complete: float | None, failed: dict[str, float]
) -> None:
    sums = Sums()
    sums.ended("failed", "exit", 1.0, 10.0)
    sums.ended(result, failure, 2.0, 20.0)
    assert (sums.last_run_seconds, sums.last_run_end) == (2.0, 20.0)
    assert (sums.last_complete_end, sums.last_failed_end) == (complete, failed)


def test_an_account_is_fuller_with_each_series_that_begins_when_a_run_ends() -> None:
    def filled(*ends: tuple[str, str | None]) -> int:
        sums = Sums()
        for result, failure in ends:
            sums.ended(result, failure, 1.0, 10.0)
        return sums.filled()[0]

    first = filled(("failed", "exit"))
    assert filled(("failed", "exit"), ("failed", "exit")) == first
    for more in (("failed", "signal"), ("interrupted", None), ("succeeded", None)):
        assert filled(("failed", "exit"), more) == first + 1


@pytest.mark.parametrize(
    "sums",
    [
        Sums(runs=1),
        Sums(clock=row(2 * len(LEVELS), _1=7)),
        Sums(stages={(1, "cat"): StageSums(), (2, "wc"): StageSums(counted(1))}),
        Sums(stages={(1, "cat"): StageSums(flow=[0, 0, 1, 0])}),
        Sums(stages={(1, "cat"): StageSums(functions=[0, 1])}),
        Sums(stages={(1, "cat"): StageSums(readahead=[0, 1])}),
    ],
)
def test_an_account_counts_if_any_value_does(sums: Sums) -> None:
    assert sums.counted()


def test_an_account_of_live_runs_without_figures_counts_nothing() -> None:
    assert not Sums(active=1, stages={(1, "cat"): StageSums(readahead=[0])}).counted()


def test_an_account_is_as_full_as_its_values_that_are_not_0() -> None:
    assert Sums().filled() == (0, True)
    full = Sums(
        runs=2,
        outermost="cat|wc",
        last_run_end=1.0,
        last_usual_ratio=1.0,
        clock=row(2 * len(LEVELS), _0=5, _1=1),
        stages={(1, "cat"): StageSums(counted(3), 1, 1, [1, 0], [1, 1, 0], [0, 0, 0, 1])},
    )
    assert full.filled() == (2 + (1 + 1 + 1 + 2 + 1) + 3, False)


def test_of_runs_that_are_counted_out_of_order_the_last_is_the_one_that_ended_last() -> None:
    sums = Sums()
    for wall, end in ((1.0, 3.0), (2.0, 5.0), (3.0, 4.0)):
        sums.ended("failed", "exit", wall, end, EndedRun(f"run-{end}", "4bf9" * 8, wall, end))
        sums.ended("succeeded", None, wall, end - 0.5)
    sums.ended("failed", "signal", 1.0, 4.9)
    sums.ended("failed", "signal", 1.0, 4.8, EndedRun("sampled", "4bf9" * 8, 1.0, 4.8))
    assert sums.failed_traced.pop("signal").run_id == "sampled"
    assert sums.last_failed_end.pop("signal") == 4.9
    assert (sums.last_run_end, sums.last_run_seconds) == (5.0, 2.0)
    assert (sums.last_complete_end, sums.last_failed_end) == (4.5, {"exit": 5.0})
    assert sums.traced is not None
    assert sums.traced.run_id == "run-5.0"
    assert sums.failed_traced == {"exit": sums.traced}


def test_after_the_clock_was_set_back_the_last_run_is_the_one_that_is_counted_last() -> None:
    sums = Sums()
    for end in (7200.0, 3600.0):
        sums.ended("failed", "exit", 1.0, end, EndedRun(f"run-{end}", "4bf9" * 8, 1.0, end))
        sums.ended("succeeded", None, 2.0, end)
    assert (sums.last_run_end, sums.last_complete_end) == (3600.0, 3600.0)
    assert sums.last_failed_end == {"exit": 3600.0}
    assert sums.failed_traced["exit"] == sums.traced
    assert sums.traced is not None and sums.traced.run_id == "run-3600.0"


def test_the_last_runs_of_what_is_folded_are_forgotten() -> None:
    sums, folded = Sums(), Sums()
    folded.ended("succeeded", None, 1.0, 2.0, EndedRun("run-1", "4bf9" * 8, 1.0, 2.0))
    sums.fold(folded)
    assert (sums.runs, sums.traced) == (1, None)
