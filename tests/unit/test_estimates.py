# SPDX-License-Identifier: Apache-2.0
"""How much of the wall time goes with work of some stages: what stays decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Costs, Host
from pipelined.analysis.rules.rule import Case
from pipelined.runs import Run, Stage, Surroundings
from unit.invented import START
from unit.test_findings import HOST, ceiling_at, find, make_stage, pages, run_of, storm

ALONE = replace(HOST, cores=8)
SMALL_COSTS = Costs(
    fork_seconds=0.0005, program_seconds=0.001, call_seconds=1e-6, switch_seconds=4e-6
)


def case(*stages: Stage, host: Host = ALONE, wall: float = 10.0) -> Case:
    return Case.of(run_of(stages, wall), host)


def busy(position: int, command: str = "sed", cpu: float = 10.0, **given: float) -> Stage:
    """A stage that waits on its pipes, or for a CPU, whenever it is not on CPU."""
    waits = {"pipe_empty": 10.0 - cpu - sum(given.values())} if position > 1 else {}
    waits = waits or {"pipe_full": 10.0 - cpu - sum(given.values())}
    return make_stage(position, command, cpu=cpu, **waits, **given)


def test_the_busiest_stage_saves_until_the_next_one_is_the_busiest() -> None:
    two = case(busy(1, cpu=3.0), busy(2, cpu=10.0))
    assert saved_if_gone(two, {1: 4.0}) == pytest.approx(4.0)
    assert saved_if_gone(two, {1: 9.0}) == pytest.approx(7.0)


def test_a_stage_whose_work_others_overlap_saves_nothing() -> None:
    assert saved_if_gone(case(busy(1, cpu=3.0), busy(2, cpu=10.0)), {0: 3.0}) == pytest.approx(0.0)


def test_a_stage_saves_what_it_did_alone() -> None:
    # for 2 s the busiest one waited, at most half of the 4 s of this one
    assert saved_if_gone(case(busy(1, cpu=4.0), busy(2, cpu=8.0)), {0: 4.0}) == pytest.approx(2.0)


def test_stages_that_take_turns_save_both() -> None:
    turns = case(busy(1, cpu=5.0), busy(2, cpu=5.0))
    assert saved_if_gone(turns, {0: 2.0, 1: 3.0}) == pytest.approx(5.0)


def test_cpu_seconds_on_several_cpus_are_fewer_seconds_of_the_run() -> None:
    several = case(make_stage(1, "xargs", cpu=20.0), busy(2, cpu=1.0))
    assert saved_if_gone(several, {0: 10.0}) == pytest.approx(5.0)


def test_waits_for_a_cpu_go_with_what_waits() -> None:
    crowded = case(busy(1, cpu=1.0), busy(2, cpu=4.0, runqueue=4.0))
    assert saved_if_gone(crowded, {1: 2.0}) == pytest.approx(4.0)


def test_waits_for_a_cpu_go_with_what_used_it() -> None:
    crowded = case(busy(1, cpu=6.0), busy(2, cpu=4.0, runqueue=6.0), host=replace(HOST, cores=1))
    assert saved_if_gone(crowded, {0: 3.0}) == pytest.approx(3.0)


def test_waits_for_what_others_on_the_host_use_stay() -> None:
    run = run_of([busy(1, cpu=1.0), busy(2, cpu=5.0, runqueue=5.0)])
    outside = replace(run, surroundings=Surroundings(9.9, None))
    assert saved_if_gone(Case.of(outside, ALONE), {0: 1.0}) == pytest.approx(0.05)


def test_a_busy_stage_waits_for_others_and_for_their_cpu_at_different_times() -> None:
    crowded = case(busy(1, cpu=4.0, runqueue=2.0), busy(2, cpu=3.0), host=replace(HOST, cores=1))
    # the first one waited 4 s for the second and 2 s for the CPU that it used: without it, of its
    # 3 s alone and of the 2 s in the queue nothing stays
    assert saved_if_gone(crowded, {1: 3.0}) == pytest.approx(3.0 + 2.0)


def test_others_on_the_host_keep_the_cpus_that_they_use() -> None:
    run = run_of([busy(1, cpu=1.0), busy(2, cpu=5.0, runqueue=5.0)])
    outside = replace(run, surroundings=Surroundings(1.4, None))
    two = Case.of(outside, replace(HOST, cores=2))
    # 3.5 s of CPU are left, on the 0.6 CPUs that the run had
    assert saved_if_gone(two, {1: 2.5}) == pytest.approx(10 - 3.5 / 0.6)


def test_a_run_without_cpu_time_on_a_full_host_can_be_estimated() -> None:
    hung = replace(run_of([make_stage(1, "tee", disk=10.0)]), surroundings=Surroundings(2.0, None))
    assert saved_if_gone(Case.of(hung, replace(HOST, cores=2)), {}, {0: 10.0}) == 10.0


def test_a_stage_that_starts_after_the_clock_was_set_was_active() -> None:
    late = replace(busy(2, cpu=4.0), start=START + 3600, end=START + 3609)
    run = run_of([busy(1, cpu=1.0), late], 10.0, end=START + 3610)
    assert saved_if_gone(Case.of(run, ALONE), {1: 2.0}) == pytest.approx(2.0)


@pytest.mark.parametrize(("others", "likely"), [(None, 9.8 * (1 - 1 / 3.75)), (1.75, 9.8 / 2)])
def test_work_is_likely_to_be_spread_over_the_cpus_that_others_leave(
    others: float | None, likely: float
) -> None:
    run = replace(ceiling_at("xargs"), surroundings=Surroundings(others, None))
    found = find(run, "ceiling")
    assert found.likely_seconds == pytest.approx(likely)
    assert found.gain_seconds == find(ceiling_at("xargs"), "ceiling").gain_seconds


def test_a_reader_in_front_has_its_calls_and_wake_ups() -> None:
    reader = pages(miss=20_000, misses=(6.0, 0.0))
    awk = make_stage(1, "awk", (80, 0.001), cpu=4.0, disk=6.0, readahead=reader)
    run = run_of([awk], overlapping=0)
    costs = replace(SMALL_COSTS, call_seconds=1e-4, switch_seconds=2e-4)
    found = find(run, "disk-not-overlapped", replace(HOST, costs=costs))
    # it hides 4 s of waiting; 20,000 pages are 2,500 requests of 32 KiB
    assert found.likely_seconds == pytest.approx(4.0 - 2500 * 4e-4)


def test_no_more_goes_than_the_cpus_leave() -> None:
    full = case(busy(1, cpu=8.0), busy(2, cpu=10.0), host=replace(HOST, cores=2))
    assert saved_if_gone(full, {1: 6.0}) == pytest.approx(2.0)


def test_waits_for_disk_that_go_are_saved() -> None:
    reader = make_stage(1, "awk", cpu=4.0, disk=6.0)
    assert saved_if_gone(case(reader), {0: 1.0}, {0: 6.0}) == pytest.approx(7.0)


def costing(children: float) -> Run:
    """1,000 processes that took so many seconds, in a stage of 6 s."""
    run = storm(exited_children=1000, forks=1000, execs=1000, children_cpu_seconds=children)
    return run


def test_processes_that_do_little_are_saved_with_all_that_their_stage_did() -> None:
    host = replace(HOST, costs=replace(SMALL_COSTS, fork_seconds=0.002, program_seconds=0.004))
    found = find(costing(5.0), "fork-storm", host)
    assert found.likely_seconds == pytest.approx(found.gain_seconds)


def test_of_processes_that_work_only_the_start_is_saved() -> None:
    found = find(costing(5.0), "fork-storm", replace(HOST, costs=SMALL_COSTS))
    assert found.likely_seconds == pytest.approx(1.0, rel=0.1)
    assert found.likely_reason.startswith("for each process")


def test_without_costs_of_the_host_nothing_is_made_up() -> None:
    assert find(costing(5.0), "fork-storm").likely_seconds is None


def test_no_more_is_likely_than_what_is_possible() -> None:
    host = replace(HOST, costs=Costs(**dict.fromkeys(Costs.__slots__, 1.0)))
    for run in (costing(5.0), run_of([busy(1, cpu=3.0), busy(2, "gzip", cpu=10.0)])):
        for found in findings(run, host):
            if found.likely_seconds is not None and found.gain_seconds is not None:
                assert 0 <= found.likely_seconds <= found.gain_seconds
