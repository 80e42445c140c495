# SPDX-License-Identifier: Apache-2.0
"""What the runs of a command add up to: alike ones, what they cover, what to try."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from pipelined.analysis.findings import findings
from pipelined.analysis.parts import Parts
from pipelined.runs import Run, Series
from unit.invented import START, make_barrier, make_inside, make_run, make_stage
from unit.observed import HOST


def make(number: int, at: float, wall: float, pipeline: str = "echo|cut", **given: Any) -> Run:
    """A run that began `at` seconds after START, and computed for half of its time."""
    stages = [
        make_stage(n, command, cpu=wall / 4, pipe_empty=wall * 3 / 4)
        for n, command in enumerate(pipeline.split("|"), 1)
    ]
    values: dict[str, Any] = {
        "id": f"{pipeline}-{number}",
        "start": START + at,
        "end": START + at + wall,
    }
    return make_run(stages, wall, **values | given)


def sort_run(number: int, at: float, wall: float) -> Run:
    """A sort on its own that compares by the rules of a language."""
    stage = make_stage(1, "sort", cpu=wall, read_bytes=1 << 24)
    return make_run([stage], wall, id=f"sort-{number}", start=START + at, end=START + at + wall)


def parts_of(runs: Sequence[Run], wall: float, at: float = 0.0) -> Parts:
    return Parts.of(runs, START + at, wall, HOST)


def test_alike_runs_are_one_part_with_their_sums() -> None:
    found = parts_of([make(n, n * 0.02, 0.01) for n in range(50)], 1.0)
    (part,) = found.parts
    assert (part.line.runs, found.outermost_runs) == (50, 50)
    assert part.wall_seconds == pytest.approx(0.5)
    assert part.cpu_seconds == pytest.approx(0.25)
    assert found.covered_seconds == pytest.approx(0.5)
    assert found.cpu_seconds == pytest.approx(0.25)


def test_parts_are_ranked_by_the_wall_time_of_all_their_runs() -> None:
    runs = [
        make(0, 0, 0.9, "zcat|awk"),
        *(make(n, 1 + n, 0.4) for n in range(3)),
        sort_run(1, 9, 1),
    ]
    pipelines = [part.longest.pipeline for part in parts_of(runs, 10.0).parts]
    assert pipelines == ["echo|cut", "sort", "zcat|awk"]


def test_the_run_of_a_part_is_the_longest_one() -> None:
    runs = [make(n, n, 0.5 if n == 3 else 0.1) for n in range(6)]
    assert parts_of(runs, 6.0).parts[0].longest.id == "echo|cut-3"


def test_seconds_in_which_several_runs_were_alive_are_covered_once() -> None:
    found = parts_of([make(1, 0.0, 2.0), make(2, 1.0, 2.0), make(3, 4.0, 0.5)], 5.0)
    assert found.covered_seconds == pytest.approx(3.5)
    assert found.parts[0].wall_seconds == pytest.approx(4.5)


def test_what_lies_in_another_run_is_counted_once_and_stands_below_it() -> None:
    outer = make(1, 0.0, 4.0, "bash|tee")
    inner = make_inside(outer, 1, "seq|sort", wall=1.0)
    found = parts_of([outer, inner], 5.0)
    assert [(part.line.depth, part.longest.pipeline) for part in found.parts] == [
        (0, "bash|tee"),
        (1, "seq|sort"),
    ]
    assert found.covered_seconds == pytest.approx(4.0)
    assert found.cpu_seconds == outer.cpu_seconds
    assert found.outermost_runs == 1


def test_what_outlives_the_command_covers_it_to_its_end_only() -> None:
    assert parts_of([make(1, 1.0, 3.0)], 2.0).covered_seconds == pytest.approx(1.0)


def test_times_by_another_clock_are_used_only_for_their_lengths() -> None:
    runs = [make(1, 0.0, 1.0), make(2, 0.5, 1.0)]
    assert parts_of(runs, 9.0, at=3600.0).covered_seconds == pytest.approx(1.5)
    assert parts_of(runs, 9.0, at=-3600.0).covered_seconds == pytest.approx(1.5)
    assert parts_of(runs, 1.0, at=3600.0).covered_seconds == pytest.approx(1.0)


def test_a_command_without_runs_has_no_parts() -> None:
    found = parts_of([], 2.0)
    assert (found.parts, found.covered_seconds, found.cpu_seconds) == ((), 0.0, 0)


def test_what_to_try_is_the_first_finding_of_the_run() -> None:
    run = sort_run(1, 0.0, 2.0)
    first = next(finding for finding in findings(run, HOST) if finding.advice)
    (part,) = parts_of([run], 2.0).parts
    assert part.advice is not None
    assert (part.advice.id, part.advice.text) == (first.id, first.advice)
    assert (part.advice.runs, part.advice.bound) == (1, first.gain_seconds)


def test_what_it_could_save_is_summed_over_the_runs_that_have_the_finding() -> None:
    runs = [make_barrier(1, 0.0, 2.0), make_barrier(2, 3.0, 1.0), make_barrier(3, 5.0, 0.05)]
    (part,) = parts_of(runs, 6.0).parts
    assert part.advice is not None
    gains = [f.gain_seconds for run in runs for f in findings(run, HOST) if f.id == part.advice.id]
    assert part.advice.runs == len(gains) == 2  # the third is too short to have findings
    assert all(gains)
    assert part.advice.bound == pytest.approx(sum(gain or 0.0 for gain in gains))
    assert part.advice.bound <= part.wall_seconds


def test_runs_at_the_same_time_save_no_more_than_the_time_in_which_they_ran() -> None:
    (part,) = parts_of([make_barrier(n, n / 100, 2.0) for n in range(8)], 2.07).parts
    assert part.advice is not None and part.advice.runs == 8
    assert part.advice.bound == pytest.approx(2.07)


def test_a_loop_saves_no_more_than_the_command_took() -> None:
    runs = [make(n, n * 0.02, 0.01) for n in range(400)]
    (part,) = parts_of(runs, 7.9).parts
    assert part.advice is not None
    assert part.advice.bound == pytest.approx(7.9)


def test_a_bound_that_is_not_known_is_not_made_up() -> None:
    (part,) = parts_of([sort_run(1, 0.0, 2.0)], 2.0).parts
    assert part.advice is not None
    assert (part.advice.id, part.advice.bound) == ("sort-locale", None)


def test_a_loop_of_short_pipelines_is_advised_to_be_one_process() -> None:
    runs = [make(n, n * 0.01, 0.005) for n in range(400)]
    (part,) = parts_of(runs, 5.0).parts
    assert part.advice is not None
    assert (part.advice.id, part.advice.runs) == ("fork-storm", 400)
    # from the first to the last: what the shell does in between would be saved as well
    assert part.advice.bound == pytest.approx(399 * 0.01 + 0.005)


def test_what_runs_between_the_runs_of_a_loop_is_not_saved_with_it() -> None:
    loop = [make(n, n * 0.01, 0.005) for n in range(400)]
    other = make(1, 1.0, 1.0, "zcat|awk")
    found = {part.longest.pipeline: part for part in parts_of([*loop, other], 5.0).parts}
    advice = found["echo|cut"].advice
    assert advice is not None and advice.bound is not None
    assert advice.bound == pytest.approx(3.995 - 1.0 + 100 * 0.005, abs=0.001)


@pytest.mark.parametrize(
    ("count", "wall", "of"),
    [(99, 0.005, 1.0), (400, 0.06, 30.0), (400, 0.005, 60.0)],
    ids=["few", "long", "a small share"],
)
def test_a_loop_that_is_not_worth_it_has_no_advice(count: int, wall: float, of: float) -> None:
    runs = [make(n, n * wall, wall) for n in range(count)]
    assert parts_of(runs, of).parts[0].advice is None


def test_a_loop_in_a_run_that_is_advised_so_is_not_advised_again() -> None:
    shell = make_stage(
        1,
        "bash",
        cpu=3.0,
        forks=400,
        exited_children=400,
        children_lifetime_seconds=2.0,
        children_cpu_seconds=2.0,
    )
    outer = make_run(
        [shell, make_stage(2, "tee", cpu=0.1)], 4.0, id="outer", start=START, end=START + 4
    )
    place: dict[str, Any] = {
        "parent": "outer",
        "series": Series(pipeline="echo|cut", nested=True, unit="-"),
    }
    loop = [make(n, n * 0.01, 0.005, **place) for n in range(400)]
    around, inside = parts_of([outer, *loop], 4.0).parts
    assert around.advice is not None
    assert around.advice.id == "fork-storm"
    assert inside.advice is None
    alone = [make(n, n * 0.01, 0.005, **place | {"parent": None}) for n in range(400)]
    assert parts_of(alone, 4.0).parts[0].advice is not None


def test_ten_thousand_runs_take_no_time_to_speak_of() -> None:
    runs = [make(n, n * 0.01, 0.005, f"echo|cut{n % 50}") for n in range(10_000)]

    def seconds() -> float:
        began = time.process_time()
        assert len(parts_of(runs, 120.0).parts) == 50
        return time.process_time() - began

    assert min(seconds() for _ in range(3)) < 2.0  # a host that stalls lets the time go on


def test_a_part_has_what_held_its_runs_back() -> None:
    run = make_barrier(1, 0.0, 2.0)
    (part,) = parts_of([run, make_barrier(2, 3.0, 1.0)], 6.0).parts
    assert (part.bottleneck, part.bottleneck_share) == ("sort: CPU", 1.0)


def test_the_text_to_try_is_that_of_the_longest_run() -> None:
    short, long = make_barrier(1, 0.0, 1.0), make_barrier(2, 3.0, 2.0)
    found = {
        run.id: next(f for f in findings(run, HOST) if f.id == "barrier") for run in (short, long)
    }
    (part,) = parts_of([short, long], 6.0).parts
    assert part.advice is not None
    assert part.advice.text == found[long.id].advice


@pytest.mark.parametrize(("at", "covered"), [(-0.1, 0.9), (-0.11, 1.0), (12.0, 0.0), (12.01, 1.0)])
def test_from_when_on_a_run_is_by_another_clock(at: float, covered: float) -> None:
    """A command of 2 s: a tenth of a second before its begin, or 10 s after its end."""
    assert parts_of([make(1, at, 1.0)], 2.0).covered_seconds == pytest.approx(covered, abs=1e-6)


def test_a_loop_inside_a_run_saves_no_time_between_its_runs() -> None:
    outer = make(1, 0.0, 5.0, "bash|tee")
    place: dict[str, Any] = {
        "parent": outer.id,
        "series": Series(pipeline="echo|cut", nested=True, unit="-"),
    }
    loop = [make(n, n * 0.01, 0.005, **place) for n in range(400)]
    advice = parts_of([outer, *loop], 5.0).parts[1].advice
    assert advice is not None
    assert advice.bound == pytest.approx(400 * 0.005, abs=1e-3)


def test_advice_of_another_kind_around_a_loop_is_no_advice_about_the_loop() -> None:
    stages = [
        make_stage(1, "sort", cpu=4.0, user_seconds=4.0, read_bytes=1 << 24),
        make_stage(2, "tee", cpu=0.1),
    ]
    outer = make_run(stages, 4.0, id="outer", start=START, end=START + 4)
    place: dict[str, Any] = {
        "parent": "outer",
        "series": Series(pipeline="echo|cut", nested=True, unit="-"),
    }
    loop = [make(n, n * 0.01, 0.005, **place) for n in range(400)]
    around, inside = parts_of([outer, *loop], 4.0).parts
    assert around.advice is not None and around.advice.id == "sort-locale"
    assert inside.advice is not None and inside.advice.id == "fork-storm"


@pytest.mark.parametrize(
    ("around", "advice"),
    [
        ("ls|parallel|awk", "Try: one program for many arguments of parallel, in place of"),
        ("ls|xargs|awk", "Try: one program for many arguments of xargs, in place of"),
        ("ls|bash|awk", "Try: one awk in place of the loop"),
    ],
)
def test_what_starts_many_runs_is_a_loop_only_in_a_shell(around: str, advice: str) -> None:
    outer = make(1, 0.0, 5.0, around)
    place: dict[str, Any] = {
        "parent": outer.id,
        "series": Series(pipeline="gzip|wc", nested=True, unit="-"),
    }
    inner = [make(n, n * 0.01, 0.005, "gzip|wc", **place) for n in range(400)]
    found = parts_of([outer, *inner], 5.0).parts[1].advice
    assert found is not None and found.text.startswith(advice)


@pytest.mark.parametrize(
    ("count", "wall", "of", "advised"),
    [(100, 0.005, 10.0, True), (100, 0.005, 10.1, False), (200, 0.0499, 10.0, True)],
)
def test_from_when_on_a_loop_is_worth_it(count: int, wall: float, of: float, advised: bool) -> None:
    runs = [make(n, n * wall, wall) for n in range(count)]
    assert (parts_of(runs, of).parts[0].advice is not None) is advised


def test_one_run_by_another_clock_makes_all_of_them_lengths() -> None:
    runs = [make(1, 0.0, 1.0), make(2, 3600.0, 0.5)]
    assert parts_of(runs, 9.0).covered_seconds == pytest.approx(1.5)
