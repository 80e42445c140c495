# SPDX-License-Identifier: Apache-2.0
"""Levels against programs that are built to overlap by a known share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kernel.conftest import Watch

pytestmark = [
    pytest.mark.undisturbed,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="overlap needs two CPUs"),
]

A, B = sorted(os.sched_getaffinity(0))[:2] if len(os.sched_getaffinity(0)) > 1 else (0, 0)


def test_two_burners_on_one_cpu_never_overlap(watch: Watch) -> None:
    run = watch.run_traced(f"exec taskset -c {A} bash -c 'burn 600 | burn 600; true'").only(
        "burn|burn"
    )
    assert run.overlap == pytest.approx(0, abs=0.002)
    assert run.levels[1] == pytest.approx(1.2, abs=0.06)
    assert sum(run.levels[3:]) == 0


def test_two_burners_on_one_cpu_wait_half_of_the_time(watch: Watch) -> None:
    run = watch.run_traced(f"exec taskset -c {A} bash -c 'burn 600 | burn 600; true'").only(
        "burn|burn"
    )
    for stage in run.stages:
        awake = stage.lifetime_seconds - stage.states["sleep"]
        assert 0.35 < stage.states["runqueue"] / awake < 0.65


def test_two_burners_on_two_cpus_overlap_all_the_time(watch: Watch) -> None:
    command = f"taskset -c {A} burn 600 | taskset -c {B} burn 600"
    run = watch.run_traced(command).only("burn|burn")
    assert run.overlap is not None
    assert run.overlap > 0.93
    assert run.cores_used > 1.5
    assert run.levels[2] == pytest.approx(0.6, abs=0.05)


def test_the_longer_burner_ends_alone(watch: Watch) -> None:
    command = f"taskset -c {A} burn 300 | taskset -c {B} burn 600"
    run = watch.run_traced(command).only("burn|burn")
    assert run.levels[2] == pytest.approx(0.3, abs=0.04)
    assert run.levels[1] == pytest.approx(0.3, abs=0.04)


def test_stages_that_alternate_by_a_token_do_not_overlap(watch: Watch) -> None:
    observed = watch.run_traced("exec alternate 40 10")
    assert observed.returncode == 0
    run = observed.only("alternate|alternate")
    assert run.overlap is not None
    assert run.overlap < 0.03  # from the wake-up of one to the sleep of the other
    assert run.levels[1] == pytest.approx(0.8, abs=0.08)


def test_the_level_counts_stages_not_threads(watch: Watch) -> None:
    run = watch.run_traced("burn 500 2 | cat").only("burn|cat")
    burner = run.stages[0]
    assert burner.cpu_seconds == pytest.approx(1.0, abs=0.05)
    assert run.levels[1] == pytest.approx(0.5, abs=0.1)
    assert sum(run.levels[2:]) < 0.02
    assert run.cores_used > 1.3


def test_the_level_counts_stages_not_children(watch: Watch) -> None:
    run = watch.run_traced("{ burn 400 & burn 400; wait; } | cat").only("bash|cat")
    assert run.stages[0].cpu_seconds == pytest.approx(0.8, abs=0.06)
    assert sum(run.levels[2:]) < 0.03


def test_two_threaded_stages_reach_level_two_and_not_four(watch: Watch) -> None:
    run = watch.run_traced("burn 200 2 | burn 200 2").only("burn|burn")
    assert run.levels[2] > 0.1
    assert sum(run.levels[3:]) == 0


def test_no_level_is_higher_than_the_cpus(watch: Watch) -> None:
    run = watch.run_traced("burn 100 | burn 100 | burn 100 | burn 100").only("burn|burn|burn|burn")
    count = len(os.sched_getaffinity(0))
    # a stage is off its CPU a moment before the next one is on it
    assert sum(run.levels[count + 1 :]) < 0.002
    assert sum(i * seconds for i, seconds in enumerate(run.levels)) == pytest.approx(
        run.cpu_seconds, rel=0.005, abs=0.01
    )


def test_levels_weighted_are_the_cpu_time(watch: Watch) -> None:
    run = watch.run_traced("seq 300000 | sort | uniq -c | wc -l").only("seq|sort|uniq|wc")
    weighted = sum(i * seconds for i, seconds in enumerate(run.levels))
    sort_threads = run.cpu_seconds - weighted  # only a stage's second thread is not in a level
    assert -0.005 <= sort_threads <= run.stages[1].cpu_seconds


def test_sleepers_are_at_level_zero(watch: Watch) -> None:
    run = watch.run_traced("sleep 0.5 | cat").only("sleep|cat")
    assert run.levels[0] == pytest.approx(0.5, abs=0.03)
    assert run.levels[0] > 0.97 * run.wall_seconds


def test_what_ran_far_inside_is_not_on_cpu_for_ever(watch: Watch) -> None:
    """Six scripts that ask the next one are more stages than a thread is credited to."""
    inner = "true"
    for _ in range(6):
        inner = f"x=$({{ {inner}; }} | cat)"
    script = f"{{ for _ in {{1..9}}; do {inner}; done; sleep 0.5; }} | cat"
    (outer,) = (run for run in watch.run_traced(script).runs if not run.nested)
    assert outer.levels[0] >= 0.48


def test_an_inner_run_counts_once_in_the_outer_level(watch: Watch) -> None:
    command = f"bash -c 'taskset -c {A} burn 400 | taskset -c {B} burn 400; true' | cat"
    observed = watch.run_traced(command)
    inner, outer = observed.only("burn|burn"), observed.only("bash|cat")
    assert inner.levels[2] == pytest.approx(0.4, abs=0.05)
    assert sum(outer.levels[2:]) < 0.03
    assert outer.levels[1] == pytest.approx(sum(inner.levels[1:]), abs=0.05)
