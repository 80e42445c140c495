# SPDX-License-Identifier: Apache-2.0
"""Runs and rounds side by side: who wins, why, and what makes the figures doubtful."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pipelined.analysis.comparison import (
    Comparison,
    Pair,
    compare_runs,
    compare_trials,
    comparison_as_dict,
    longest_run,
)
from pipelined.analysis.comparison_cache import caches_differ, explained_seconds
from pipelined.analysis.comparison_reasons import Trial, agree
from pipelined.analysis.comparison_rows import Row, amount, is_worth_a_row, times
from pipelined.runs import (
    LEVELS,
    NO_FLOW,
    PAGE_CLASSES,
    STALL_CLASSES,
    STATES,
    Edge,
    Exit,
    Flow,
    Outcome,
    Run,
    Stage,
)
from pipelined.wording import STATE_WORDS
from unit.invented import START, make_readahead, make_run, make_stage

MB = 1_000_000


def make_levels(*seconds: float) -> tuple[float, ...]:
    return (*seconds, *[0.0] * (len(LEVELS) - len(seconds)))


def awk(cpu: float = 1.0, **given: Any) -> Stage:
    return make_stage(1, "awk", end=START + 1, cpu=cpu, **given)


def alone(wall: float = 1.0, **given: Any) -> Run:
    """A run of awk alone, on CPU all the time but for what is given."""
    idle, disk = given.pop("idle", 0.0), given.pop("disk", 0.0)
    cpu = wall - idle - disk
    stage = awk(cpu, sleep=idle, disk=disk, **given)
    return make_run([stage], wall, id=f"1-{wall}", end=START + wall, disk_alone_seconds=disk)


def warm(run: Run, share: float) -> Run:
    """`run` with this share of its pages found in the page cache."""
    pages = {"warm": int(1000 * share), "hit": 1000 - int(1000 * share)}
    found = make_readahead(pages={**pages, "late": 0, "miss": 0, "wasted": 0})
    return replace(run, stages=tuple(replace(stage, readahead=found) for stage in run.stages))


def trial(run: Run | None, wall: float | None = None, **given: Any) -> Trial:
    if run is None:
        assert wall is not None
        return Trial(wall, given.pop("cpu", 0.0), None, **given)
    return Trial(run.wall_seconds if wall is None else wall, run.cpu_seconds, run, **given)


def of_walls(*sides: Sequence[float]) -> Comparison:
    """Trials of awk alone with these wall times by side and round."""
    names = [f"command {index}" for index in range(len(sides))]
    return compare_trials(names, [[trial(alone(wall)) for wall in walls] for walls in sides])


def row(comparison: Comparison, name: str, group: str | None = None) -> Row:
    (found,) = (r for r in comparison.rows if r.name == name and group in (None, r.group))
    return found


def only_pair(comparison: Comparison) -> Pair:
    (pair,) = comparison.pairs
    return pair


# -- who wins


def test_a_difference_on_which_all_rounds_agree_wins() -> None:
    found = of_walls([1.0, 1.0, 1.1, 1.1, 1.2], [0.5, 0.5, 0.6, 0.6, 0.6])
    assert found.winner == 1
    assert found.verdict.startswith(
        "B wins: it took 0.50 of A's wall time in the median (0.50–0.55 round by round), "
        "0.60 s against 1.1 s."
    )


def test_the_first_side_can_win_too() -> None:
    found = of_walls([1.0] * 5, [2.0] * 5)
    assert found.winner == 0
    assert (
        found.verdict == "A wins: it took 0.50 of B's wall time in each round, 1.0 s against 2.0 s."
    )


def test_ratios_are_taken_round_by_round() -> None:
    # The host became slower from round to round, for both alike.
    found = of_walls([1.0, 2.0, 3.0, 4.0, 5.0], [0.9, 1.8, 2.7, 3.6, 4.5])
    assert only_pair(found).ratio.low == pytest.approx(0.9)
    assert only_pair(found).ratio.high == pytest.approx(0.9)
    assert found.winner == 1


def test_four_rounds_name_no_winner() -> None:
    found = of_walls([1.0] * 4, [0.5] * 4)
    assert found.winner is None
    assert "4 rounds cannot name a winner: it takes 5 (-n 5)." in found.verdict


def test_two_percent_are_no_difference() -> None:
    found = of_walls([1.0] * 5, [0.985] * 5)
    assert found.winner is None
    assert found.verdict.startswith("No difference: ")


def test_two_percent_in_each_round_are_no_difference_but_not_in_the_median_alone() -> None:
    same = of_walls([1.0] * 5, [0.985, 1.0, 1.0, 1.0, 1.015])
    assert only_pair(same).outcome == "same"
    apart = of_walls([1.0] * 5, [0.8, 1.0, 1.0, 1.0, 1.0])
    assert only_pair(apart).outcome == "undecided"


def test_rounds_that_disagree_name_no_winner() -> None:
    found = of_walls([1.0] * 5, [0.8, 0.8, 0.8, 1.2, 0.8])
    assert found.winner is None
    assert found.verdict.startswith("No difference that 5 rounds could show: ")


@pytest.mark.parametrize(("agreeing", "rounds", "wins"), [(8, 9, True), (6, 7, False)])
def test_of_many_rounds_some_may_disagree(agreeing: int, rounds: int, wins: bool) -> None:
    # Two-sided sign test: 8 of 9 come about by chance in 3.9 %, 6 of 7 in 12.5 %.
    walls = [0.8] * agreeing + [1.2] * (rounds - agreeing)
    assert (of_walls([1.0] * rounds, walls).winner == 1) is wins


def test_the_verdict_names_the_side_that_was_quicker_in_the_median_of_its_own_ratio() -> None:
    # B took 1.25 and 0.82 of A's time. The median of that is above 1, and so is that of A over B.
    found = of_walls([1.0, 1.0], [1.25, 0.82])
    assert found.verdict.startswith(
        "A took 0.97 of B's wall time in the median (0.80–1.22 round by round)"
    )


def test_a_round_of_no_time_bounds_no_ratio() -> None:
    assert "(0.50–over 1,000 round by round)" in of_walls([1.0, 1.0], [2.0, 0.0]).verdict


def test_rounds_whose_medians_contradict_each_other_have_no_reasons() -> None:
    # B took longer in the median of the ratios, and less in that of the seconds.
    a = [alone(1.0, disk=0.9), alone(4.0, disk=1.5)]
    b = [alone(1.5, disk=0.5), alone(3.0, disk=0.2)]
    found = compare_trials(["a", "b"], [[trial(run) for run in side] for side in (a, b)])
    pair = only_pair(found)
    assert (pair.ratio.median, pair.seconds) == (1.125, -0.25)
    assert (pair.reasons, found.why) == ((), "")


def test_one_run_of_each_names_no_winner() -> None:
    found = compare_runs(alone(2.0), alone(1.0))
    assert found.winner is None
    assert found.verdict == (
        "B took 0.50 of A's wall time, 1.0 s against 2.0 s. One run of each does not rule out "
        "chance."
    )


def test_of_three_one_has_to_beat_both_others() -> None:
    clear = of_walls([3.0] * 5, [1.0] * 5, [2.0] * 5)
    assert clear.winner == 1
    assert clear.verdict == "B wins: B 1.0 s, C 2.0 s, A 3.0 s in the median."
    tied = of_walls([3.0] * 5, [1.0] * 5, [1.01] * 5)
    assert tied.winner is None
    assert tied.verdict.endswith("C is within 2 % of B.")


# -- why


def test_the_parts_that_differ_are_the_reasons() -> None:
    found = compare_runs(alone(2.0, disk=1.0), alone(1.0))
    assert found.why == "1.0 s less waiting for disk while no stage computed (mostly awk)."


def test_the_reasons_add_up_to_the_difference_of_the_wall_times() -> None:
    a = make_run([awk(0.5, disk=0.3)], 1.0, levels=make_levels(0.5, 0.5), disk_alone_seconds=0.3)
    stages = [make_stage(1, "cat", cpu=0.5), make_stage(2, "awk", cpu=1.0, disk=0.3)]
    b = make_run(stages, 1.6, levels=make_levels(0.5, 0.7, 0.4), disk_alone_seconds=0.3)
    reasons = only_pair(compare_trials(["a", "b"], [[trial(a, 1.1)], [trial(b, 2.5)]])).reasons
    assert [reason.part for reason in reasons] == ["user", "outside", "overlap"]
    assert sum(reason.seconds for reason in reasons) == pytest.approx(2.5 - 1.1)


def test_three_reasons_are_enough() -> None:
    a = make_run([awk(1.0)], 1.0)
    b = make_run(
        [awk(2.0, disk=1.0, sleep=1.0, system_seconds=0.5, user_seconds=1.5)],
        4.0,
        levels=make_levels(2.0, 2.0),
        disk_alone_seconds=1.0,
    )
    assert len(only_pair(compare_trials(["a", "b"], [[trial(a)], [trial(b, 5.0)]])).reasons) == 3


def test_what_works_against_the_difference_comes_last() -> None:
    slow = alone(2.0, disk=1.2)
    quick = make_run(
        [make_stage(1, "cat", cpu=0.3), make_stage(2, "awk", cpu=0.8)],
        1.0,
        levels=make_levels(0.0, 0.9, 0.1),
    )
    assert compare_runs(slow, quick).why == (
        "1.2 s less waiting for disk while no stage computed (mostly awk); 0.10 s more of the CPU "
        "time side by side (overlap); in spite of 0.30 s more CPU time in programs (user; "
        "mostly cat)."
    )


def test_time_with_nothing_on_cpu_is_explained_by_its_state() -> None:
    found = compare_runs(alone(1.0), alone(2.0, idle=1.0))
    assert found.why == (
        "1.0 s less time in which no stage computed or waited for disk (mostly awk: sleep)."
    )


def test_more_overlap_is_a_reason() -> None:
    stages = [make_stage(1, "sed", cpu=1.0), make_stage(2, "tr", cpu=1.0)]
    in_turn = make_run(stages, 2.0, levels=make_levels(0, 2.0))
    at_once = make_run(stages, 1.0, levels=make_levels(0, 0, 1.0))
    assert (
        compare_runs(in_turn, at_once).why == "1.0 s more of the CPU time side by side (overlap)."
    )


def test_of_three_the_reasons_compare_each_with_the_first() -> None:
    assert of_walls([1.0] * 3, [2.0] * 3, [4.0] * 3).why == (
        "A against B: 1.0 s less CPU time in programs (user; mostly awk). "
        "A against C: 3.0 s less CPU time in programs (user; mostly awk)."
    )


def test_forks_and_calls_stand_once_beside_the_cpu_time_that_they_cost() -> None:
    def run(cpu: float, forks: int, calls: int) -> Run:
        stage = awk(
            cpu, user_seconds=cpu / 4, system_seconds=cpu * 3 / 4, forks=forks, read_calls=calls
        )
        return make_run([stage], cpu)

    assert compare_runs(run(4.0, 3000, 50_000), run(1.0, 4, 60_000)).why == (
        "2.2 s less CPU time in the kernel (system; mostly awk; 4 forks, not 3,000); 0.75 s "
        "less CPU time in programs (user; mostly awk)."
    )


def test_counts_of_the_faster_one_come_first() -> None:
    slow = make_run([awk(1.0, sleep=2.0)], 3.0)
    quick = make_run([awk(2.0, forks=900)], 2.0)
    assert compare_runs(slow, quick).why.endswith(
        "; in spite of 1.0 s more CPU time in programs (user; mostly awk; 900 forks, not 0)."
    )


def test_counts_that_point_the_other_way_are_left_out() -> None:
    def run(cpu: float, calls: int) -> Run:
        return make_run([awk(cpu, read_calls=calls)], cpu)

    assert (
        compare_runs(run(4.0, 5000), run(1.0, 60_000)).why
        == "3.0 s less CPU time in programs (user; mostly awk)."
    )


def test_a_part_that_varies_from_round_to_round_is_no_reason() -> None:
    idle = [0.0, 0.8, 0.0, 0.8, 0.0]
    slow = [alone(3.0 + wait, idle=wait) for wait in idle]
    quick = [alone(1.0 + wait, idle=wait) for wait in reversed([*idle[1:], idle[1]])]
    found = compare_trials(["a", "b"], [[trial(run) for run in side] for side in (slow, quick)])
    assert [reason.part for reason in only_pair(found).reasons] == ["user"]


def test_what_the_reasons_leave_open_is_stated() -> None:
    # Each second round waits 2 s for a timer: that may be chance.
    slow = [alone(3.0), alone(5.0, idle=2.0), alone(3.0), alone(5.0, idle=2.0)]
    quick = [alone(2.0)] * 4
    found = compare_trials(["a", "b"], [[trial(run) for run in side] for side in (slow, quick)])
    assert found.why == (
        "1.0 s less CPU time in programs (user; mostly awk); the other 1.0 s are in parts "
        "that are small or vary as much between rounds."
    )


def test_a_small_part_is_no_reason() -> None:
    found = compare_runs(alone(2.05, disk=0.05), alone(1.0))
    assert [reason.part for reason in only_pair(found).reasons] == ["user"]


def test_no_difference_needs_no_reason() -> None:
    assert compare_runs(alone(1.0, disk=0.5), alone(1.0)).why == ""
    assert of_walls([1.0] * 3, [0.5, 1.6, 0.5]).why == ""


def test_without_a_pipeline_cpu_time_is_all_that_is_known() -> None:
    trials = [[trial(None, 1.0, cpu=0.1)] * 3, [trial(None, 2.0, cpu=0.2)] * 3]
    found = compare_trials(["sleep 1", "sleep 2"], trials)
    assert found.why == "0.90 s less waiting; 0.10 s less CPU time."
    assert found.caveats == (
        "rounds of A and B had no pipeline: only their wall time and CPU time are known",
    )


# -- caveats


def of_caches(cold: Run, warm_run: Run, rounds: int = 5, **given: Any) -> Comparison:
    """Trials of a cold and a warm command, as A and B."""
    sides = warm(cold, 0), warm(warm_run, 1)
    return compare_trials(["a", "b"], [[trial(run, **given)] * rounds for run in sides])


def in_kernel(run: Run, seconds: float) -> Run:
    """`run` with `seconds` of its CPU time in the kernel."""
    stages = [
        replace(
            stage,
            system_seconds=seconds,
            user_seconds=stage.user_seconds + stage.system_seconds - seconds,
        )
        for stage in run.stages
    ]
    return replace(run, stages=tuple(stages))


@pytest.mark.parametrize("rounds", [1, 3, 5])
def test_a_cache_that_explains_the_difference_is_no_comparison(rounds: int) -> None:
    found = of_caches(alone(2.0, disk=1.1), alone(1.0), rounds)
    assert found.winner is None
    assert only_pair(found).outcome == "not-comparable"
    assert found.verdict.startswith(
        "Not comparable: the page cache may explain the difference. B took 0.50 of A's wall time"
    )
    assert found.caveats[0] == (
        "0 % of A's input was in memory before (in the page cache), 100 % of B's; A waited 1.1 s "
        "for disk, which can explain all of the 1.0 s between them"
    )


def test_a_cache_that_explains_next_to_nothing_of_the_difference_lets_one_win() -> None:
    found = of_caches(alone(4.0, disk=0.005), alone(0.3))
    assert found.winner == 1
    assert only_pair(found).cache_seconds == pytest.approx(0.005)
    assert found.caveats[0] == (
        "0 % of A's input was in memory before (in the page cache), 100 % of B's; A waited "
        "5.0 ms for disk, which explains at most 5.0 ms of the 3.7 s between them"
    )


def test_reading_from_disk_also_takes_cpu_time_in_the_kernel() -> None:
    """The same command from a fast disk, read ahead in time: it waits for nothing."""
    found = of_caches(in_kernel(alone(1.2), 0.3), in_kernel(alone(1.0), 0.1))
    assert only_pair(found).outcome == "not-comparable"
    assert found.caveats[0].endswith(
        "; A waited 0 s for disk and used 0.20 s more CPU time in the kernel, which can explain "
        "all of the 0.20 s between them"
    )


@pytest.mark.parametrize(
    ("waited", "wins"), [(0.2, True), (0.24, True), (0.25, False), (0.5, False)]
)
def test_the_difference_has_to_be_four_times_what_is_seen_of_the_cache(
    waited: float, wins: bool
) -> None:
    """Reading from disk costs more than is seen of it."""
    found = of_caches(alone(2.0, disk=waited), alone(1.0))
    assert only_pair(found).outcome == ("faster" if wins else "not-comparable")
    assert f", which explains at most {waited:.2f} s of the 1.0 s" in found.caveats[0]


def test_a_side_that_wins_from_a_cold_cache_wins() -> None:
    found = of_caches(alone(1.0, disk=0.5), alone(2.0))
    assert found.winner == 0


def test_equal_times_from_different_caches_are_not_equal() -> None:
    found = of_caches(alone(1.0, disk=0.5), alone(1.0))
    assert only_pair(found).outcome == "not-comparable"
    assert of_caches(alone(1.0, disk=0.001), alone(1.0)).verdict.startswith("No difference: ")


def test_waits_of_a_command_without_a_known_pipeline_may_explain_anything() -> None:
    found = of_caches(alone(4.0, disk=0.005), alone(0.3), pipelines=2)
    assert only_pair(found).outcome == "not-comparable"
    assert only_pair(found).cache_seconds is None
    assert "; how much of the difference that explains is not known" in found.caveats[0]


def test_two_recorded_runs_are_comparable_if_the_cache_does_not_explain_their_difference() -> None:
    quick = warm(alone(0.3), 1)
    unlike = compare_runs(warm(alone(4.0, disk=0.005), 0), quick)
    assert unlike.verdict.endswith("One run of each does not rule out chance.")
    assert compare_runs(warm(alone(4.0, disk=3.9), 0), quick).verdict.startswith("Not comparable")


def test_of_three_one_may_win_in_spite_of_its_cache() -> None:
    runs = warm(alone(4.0, disk=0.005), 0), warm(alone(0.3), 1), warm(alone(2.0, disk=1.9), 0)
    trials = [[trial(run)] * 5 for run in runs]
    found = compare_trials(["a", "b", "c"], trials)
    assert found.winner is None
    assert found.verdict.endswith("C is not comparable with B: the page cache may explain it.")
    assert compare_trials(["a", "b"], trials[:2]).winner == 1


def test_runs_that_both_were_warm_are_comparable() -> None:
    trials = [[trial(warm(alone(wall), share))] * 5 for wall, share in ((2.0, 0.97), (1.0, 1))]
    assert compare_trials(["a", "b"], trials).winner == 1


def test_a_cache_that_changed_from_round_to_round_is_a_caveat() -> None:
    trials = [
        [trial(warm(alone(), share)) for share in shares] for shares in ((1, 1, 1), (0, 1, 1))
    ]
    assert compare_trials(["a", "b"], trials).caveats == (
        "B did not find as much of its input in memory (in the page cache) in each round: 0 % to "
        "100 %",
    )


def test_a_host_without_a_free_cpu_is_a_caveat() -> None:
    queued = make_run([awk(1.0, runqueue=0.5)], 1.5, end=START + 1.5)
    assert compare_runs(alone(1.5), queued).caveats == (
        "a stage waited for a free CPU 33 % of the time in B: the figures include the effect of "
        "other work on this host, or of more stages than CPUs",
    )


def test_different_pipelines_are_a_caveat() -> None:
    b = make_run([make_stage(1, "cat", cpu=1.0), make_stage(2, "awk", cpu=1.0)], 1.0)
    assert "different pipelines: A is awk, B is cat|awk" in compare_runs(alone(), b).caveats


def test_different_inputs_are_a_caveat() -> None:
    a, b = alone(read_bytes=100 * MB), alone(read_bytes=150 * MB)
    assert compare_runs(a, b).caveats == (
        "different inputs: the first stages of B read 1.50 times as many bytes as A's",
    )


def test_temporary_files_of_a_sort_are_no_input() -> None:
    def sorting(temporary: int, known: bool = True) -> Run:
        size = 100 * MB + temporary
        flow = Flow(None, 100 * MB, size, temporary, exact=True, temporary=temporary)
        given = {"read_bytes": size, "flow": flow if known else NO_FLOW}
        stages = [make_stage(1, "sort", cpu=1.0, **given), make_stage(2, "uniq", cpu=0.1)]
        return make_run(stages, 1.0, end=START + 1)

    assert compare_runs(sorting(0), sorting(200 * MB)).caveats == ()
    # not known: then they count
    assert len(compare_runs(sorting(0), sorting(200 * MB, known=False)).caveats) == 1


def test_a_bound_is_not_compared_with_an_exact_input() -> None:
    """The same reads, once with the pipes inside the stage told apart, and once without."""

    def read(flow: Flow) -> Run:
        stages = [
            make_stage(1, "bash", cpu=1.0, read_bytes=200 * MB, flow=flow),
            make_stage(2, "wc", cpu=0.1),
        ]
        return make_run(stages, 1.0, end=START + 1)

    exact = read(Flow(None, 0, 100 * MB, 0, inner_read=100 * MB, exact=True))
    bound = read(Flow(None, 0, 200 * MB, 0, exact=False, inner_read=None, inner_written=None))
    assert (exact.input_exact, bound.input_exact) == (True, False)
    assert exact.input_bytes != bound.input_bytes
    assert compare_runs(exact, bound).caveats == ()


@pytest.mark.parametrize("known", [True, False])
def test_the_inputs_are_those_of_all_first_stages(known: bool) -> None:
    """Of diff <(sort a) <(cut b), as (sort,tr|cut)|diff."""

    def differing(size: int) -> Run:
        stages = [
            make_stage(1, "sort", cpu=1.0, read_bytes=20 * MB),
            make_stage(1, "tr", cpu=1.0),
            make_stage(2, "cut", cpu=1.0, read_bytes=20 * MB),
            make_stage(2, "zcat", cpu=1.0, read_bytes=size),
            make_stage(3, "diff", cpu=1.0, read_bytes=9 * size),
        ]
        if not known:
            stages = [replace(stage, flow=NO_FLOW) for stage in stages]
        edges = [Edge(0, 4), Edge(1, 2), Edge(2, 4), Edge(3, 4)]
        return make_run(stages, 1.0, end=START + 1, edges=tuple(edges))

    assert compare_runs(differing(20 * MB), differing(100 * MB)).caveats == (
        "different inputs: the first stages of B read 3.00 times as many bytes as A's",
    )


def test_runs_of_one_name_may_have_had_other_command_lines() -> None:
    def started_as(line: str | None) -> Run:
        return replace(alone(), stages=(replace(alone().stages[0], arguments=line),))

    def caveats(a: str | None, b: str | None) -> tuple[str, ...]:
        return compare_runs(started_as(a), started_as(b)).caveats

    assert caveats("awk 1 hunter2", "awk 2") == ("different command lines: those of awk",)
    assert caveats("awk 1", "awk 1") == caveats("awk 1", None) == caveats(None, None) == ()


def test_partial_and_live_runs_are_caveats() -> None:
    found = compare_runs(replace(alone(), partial=True), replace(alone(), end=None))
    assert [caveat.split(":")[0] for caveat in found.caveats] == [
        "A is partial",
        "B is still running",
    ]


def test_a_run_that_did_not_succeed_is_a_caveat() -> None:
    killed = replace(alone().stages[0], exit=Exit(signal="SIGKILL"), outcome="failed")
    failed = replace(alone(), stages=(killed,), outcome=Outcome("failed", (0,)))
    assert compare_runs(alone(), failed).caveats == (
        "B failed (awk: SIGKILL): its figures are of the run as far as it got",
    )


def test_rounds_in_which_a_pipeline_did_not_succeed_are_a_caveat() -> None:
    failed = Trial(1.0, 1.0, alone(), outcome="failed (awk: SIGKILL)")
    trials = ([Trial(1.0, 1.0, alone())] * 5, [failed, *[Trial(1.0, 1.0, alone())] * 4])
    assert compare_trials(["a", "b"], trials).caveats == (
        "in 1 of 5 rounds of B a pipeline did not succeed, though the command did:"
        " failed (awk: SIGKILL); it may have done less work",
    )


def test_a_partial_tier_is_a_caveat() -> None:
    (caveat,) = compare_runs(alone(), replace(alone(), partial_tiers=("readahead",))).caveats
    assert caveat.startswith("figures of readahead are partial for B:")


@pytest.mark.parametrize(
    ("outputs", "caveats"),
    [
        ("same", ()),
        ("lines", ("the outputs are the same lines, but not in the same order",)),
        ("any", ("the outputs differ: the commands may not do the same work",)),
    ],
)
def test_outputs_that_differ_are_a_caveat(outputs: str, caveats: tuple[str, ...]) -> None:
    found = compare_trials(["a", "b"], [[trial(alone())]] * 2, outputs=outputs)
    assert found.caveats == caveats
    assert comparison_as_dict(found)["outputs"] == outputs


def with_errors(*lines: str) -> list[Trial]:
    return [trial(alone(), error_line=line) for line in lines]


def test_what_only_one_side_printed_on_stderr_is_a_caveat() -> None:
    trials = [with_errors("", "", ""), with_errors("", "gawk: command not found", "")]
    assert compare_trials(["a", "b"], trials).caveats == (
        "B exited with 0, but printed on stderr in 1 of 3 rounds: gawk: command not found",
    )


def test_what_all_sides_print_on_stderr_is_no_caveat_if_they_print_the_same_otherwise() -> None:
    trials = [with_errors("2 records in"), with_errors("2 records out")]
    assert compare_trials(["a", "b"], trials).caveats == ()
    found = compare_trials(["a", "b"], trials, outputs="any")
    assert [caveat.rpartition(": ")[2] for caveat in found.caveats[1:]] == [
        "2 records in",
        "2 records out",
    ]


def test_several_pipelines_and_lost_events_are_caveats() -> None:
    trials = [[trial(alone())] * 3, [trial(alone(), pipelines=4, lost=1)] * 3]
    several, lost = compare_trials(["a", "b"], trials).caveats
    assert several.startswith("B ran 4 pipelines: the longest one stands for it")
    assert lost.startswith("3 events of B were lost")


def test_pipelines_that_stand_for_different_parts_of_two_scripts_are_not_compared() -> None:
    before = trial(alone(), 5.0, pipelines=3)
    after = trial(replace(alone(), series=replace(alone().series, pipeline="x|y")), 1.0)
    comparison = compare_trials(["a", "b"], [[before] * 5, [after] * 5])
    (caveat,) = comparison.caveats
    assert caveat.startswith("the longest pipelines of A and B are not the same (")
    known = {row.name for row in comparison.rows if any(row.values)}
    assert known == {"wall", "CPU", "cores used"}
    assert not comparison.stages
    assert [side.pipeline for side in comparison.sides] == [None, None]
    # one pipeline written in another way is compared
    alike = replace(before, pipelines=1)
    assert compare_trials(["a", "b"], [[alike] * 5, [after] * 5]).stages


def test_stages_that_outlived_the_command_are_a_caveat() -> None:
    trials = [[trial(alone())] * 3, [trial(replace(alone(), end=None))] * 3]
    assert compare_trials(["a", "b"], trials).caveats == (
        "stages of B outlived the command: their figures are cut off",
    )


def test_stages_that_went_on_after_the_command_are_a_caveat_although_they_have_ended() -> None:
    """As those of ``>(…)``, for which bash does not wait."""
    went_on = trial(alone(1.0), 0.4)
    (caveat,) = compare_trials(["a", "b"], [[trial(alone())] * 3, [went_on] * 3]).caveats
    assert caveat.startswith("stages of B outlived the command: its wall time does not include")
    within = trial(alone(1.0), 0.995)
    assert compare_trials(["a", "b"], [[trial(alone())] * 3, [within] * 3]).caveats == ()


@pytest.mark.parametrize("ratios", [[0.5, 1.0, 1.6], [0.6, 1.4]])
def test_few_rounds_that_contradict_each_other_decide_nothing(ratios: list[float]) -> None:
    assert only_pair(of_walls([1.0] * len(ratios), ratios)).outcome == "undecided"


def test_a_pipeline_that_was_not_always_the_same_is_a_caveat() -> None:
    other = make_run([make_stage(1, "gawk", cpu=1.0)], 1.0, end=START + 1)
    trials = [[trial(alone())] * 3, [trial(alone()), trial(other), trial(alone())]]
    assert compare_trials(["a", "b"], trials).caveats == ("B was not always the same: awk, gawk",)


def test_the_longest_run_stands_for_several() -> None:
    runs = [alone(1.0), alone(3.0), alone(2.0)]
    assert longest_run(runs) is runs[1]
    assert longest_run([]) is None


# -- side by side


def test_rows_have_medians_spread_and_ratios() -> None:
    wall = row(of_walls([1.0, 2.0, 4.0], [0.5, 0.5, 0.5]), "wall")
    assert wall.values[0] is not None and wall.values[0].median == 2.0
    assert (wall.values[0].low, wall.values[0].high) == (1.0, 4.0)
    assert wall.ratios[1] is not None and wall.ratios[1].median == 0.25


def test_a_value_that_is_not_known_has_no_ratio() -> None:
    found = compare_runs(alone(), warm(alone(), 1))
    assert row(found, "warm", "pages").values[0] is None
    assert row(found, "warm", "pages").ratios == (None, None)


def test_stages_of_one_name_stand_side_by_side() -> None:
    a = make_run([make_stage(1, "awk", cpu=1.0), make_stage(2, "sort", cpu=1.0)], 2.0)
    b = make_run(
        [make_stage(1, "cat", cpu=0.5), make_stage(2, "awk", cpu=3.0), make_stage(3, "wc")], 3.0
    )
    found = compare_runs(a, b)
    shown = {
        stage.command: tuple(side and side.cpu_seconds for side in stage.sides)
        for stage in found.stages
    }
    assert shown == {
        "cat": (None, 0.5),
        "awk": (1.0, 3.0),
        "sort": (1.0, None),
        "wc": (None, 0.0),
    }


def test_parallel_branches_are_summed() -> None:
    branches = [make_stage(1, "sort", cpu=1.0), replace(make_stage(1, "sort", cpu=2.0), pid=9)]
    run = make_run([*branches, make_stage(2, "diff", cpu=1.0)], 4.0)
    side = compare_runs(run, run).stages[0].sides[0]
    assert side is not None
    assert (side.branches, side.cpu_seconds) == (2, 3.0)


def test_a_comparison_is_json() -> None:
    found = compare_runs(alone(2.0, disk=1.0), warm(alone(1.0), 1))
    described = json.loads(json.dumps(comparison_as_dict(found)))
    (wall,) = (r for r in described["rows"] if r["name"] == "wall")
    assert (wall["unit"], wall["a"], wall["b"], wall["ratio"]) == ("seconds", 2.0, 1.0, 0.5)
    assert described["sides"][0]["run"] == "1-2.0"
    assert described["pairs"][0]["reasons"][0]["part"] == "disk"
    assert described["stages"][0]["sides"][1]["cpu_seconds"] == 1.0


@pytest.mark.parametrize(("ratio", "text"), [(0.638, "0.64"), (12.34, "12.3"), (8e6, "over 1,000")])
def test_ratios_have_up_to_three_figures(ratio: float, text: str) -> None:
    assert times(ratio) == text


# -- at the bounds


def test_the_quicker_side_of_three_is_named_and_what_the_others_are() -> None:
    found = of_walls([1.0] * 5, [2.0] * 5, [0.5] * 5)
    assert (found.winner, found.verdict) == (
        2,
        "C wins: C 0.50 s, A 1.0 s, B 2.0 s in the median.",
    )
    apart = of_walls([3.0] * 5, [1.0] * 5, [0.9, 0.9, 1.2, 1.2, 1.2])
    assert apart.winner is None
    assert apart.verdict == (
        "No single winner: B 1.0 s, C 1.2 s, A 3.0 s in the median. C is not distinguishable from "
        "B in 5 rounds."
    )
    both = of_walls([1.0] * 5, [1.01] * 5, [1.01] * 5)
    assert both.verdict.endswith("B and C are within 2 % of A.")


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        (1, "B took 0.50 of A's wall time, 0.50 s against 1.0 s. 1 round cannot name a winner"),
        (2, "B took 0.50 of A's wall time in each round, 0.50 s against 1.0 s. 2 rounds cannot"),
    ],
)
def test_a_round_is_no_round_by_round(rounds: int, said: str) -> None:
    assert of_walls([1.0] * rounds, [0.5] * rounds).verdict.startswith(said)


def test_the_pipeline_that_most_rounds_ran_stands_for_a_side() -> None:
    other = make_run([make_stage(1, "gawk", cpu=1.0)], 1.0, end=START + 1)
    rounds = [trial(alone()), trial(other), trial(other)]
    found = compare_trials(["a", "b"], [rounds, [trial(None, 1.0)] * 3])
    assert [side.pipeline for side in found.sides] == ["gawk", None]


def test_rounds_without_wall_time_have_no_ratio() -> None:
    found = compare_trials(["a", "b"], [[trial(None, 0.0)], [trial(None, 1.0)]])
    pair = only_pair(found)
    assert (pair.ratio.median, pair.ratio.low, pair.ratio.high) == (1.0, 1.0, 1.0)
    assert pair.outcome == "same"


def test_rounds_that_disagree_are_not_explained_unless_they_are_few() -> None:
    disagree = [0.5, 0.5, 0.5, 1.2, 1.2]
    assert only_pair(of_walls([1.0] * 5, disagree)).reasons == ()
    assert only_pair(of_walls([1.0] * 4, [0.5] * 4)).reasons != ()
    assert only_pair(of_walls([1.0] * 5, [1.01] * 5)).reasons == ()


def test_a_decided_pair_without_a_reason_says_so() -> None:
    # each part varies: now CPU time is what one has less of, now idle time
    quick = [alone(1.0), alone(1.0, idle=0.9), alone(1.0), alone(1.0, idle=0.9), alone(1.0)]
    slow = [alone(2.0, idle=1.9), alone(2.0), alone(2.0, idle=1.9), alone(2.0), alone(2.0, idle=1)]
    found = compare_trials(["a", "b"], [[trial(run) for run in side] for side in (quick, slow)])
    assert found.winner == 0
    assert only_pair(found).reasons == ()
    assert found.why == "no part of the time differs by more than its noise."


@pytest.mark.parametrize(("above", "below", "agreed"), [(5, 0, True), (8, 1, True), (7, 1, False)])
def test_when_rounds_agree(above: int, below: int, agreed: bool) -> None:
    assert agree([1.0] * above + [-1.0] * below) is agreed
    assert agree([-1.0] * above + [1.0] * below) is agreed


def test_rounds_without_a_difference_do_not_agree_for_the_others() -> None:
    assert agree([1.0])
    assert not agree([1.0, 0.0])
    assert not agree([1.0] * 5 + [0.0])
    assert agree([1.0] * 6 + [0.0])
    assert not agree([0.0, 0.0])


@pytest.mark.parametrize(
    ("part", "difference", "named"),
    [(0.1001, 1.0, True), (0.099, 1.0, False), (0.00101, 0.002, True), (0.00099, 0.002, False)],
)
def test_a_reason_is_a_tenth_of_the_difference_and_a_millisecond(
    part: float, difference: float, named: bool
) -> None:
    pair = only_pair(compare_runs(alone(0.01 + difference, disk=part), alone(0.01)))
    assert ("disk" in [reason.part for reason in pair.reasons]) is named


@pytest.mark.parametrize(
    ("more", "fewer", "named"),
    [(100, 0, True), (99, 0, False), (400, 200, True), (399, 200, False)],
)
def test_forks_that_are_many_more_are_named(more: int, fewer: int, named: bool) -> None:
    slow, quick = make_run([awk(3.0, forks=more)], 3.0), make_run([awk(1.0, forks=fewer)], 1.0)
    assert (f"{fewer} forks, not {more}" in compare_runs(slow, quick).why) is named


@pytest.mark.parametrize(("more", "named"), [(1000, True), (999, False)])
def test_calls_that_are_many_more_are_named(more: int, named: bool) -> None:
    slow = make_run([awk(3.0, read_calls=more - 1, write_calls=1)], 3.0)
    found = compare_runs(slow, make_run([awk(1.0)], 1.0))
    assert ("0 calls, not" in found.why) is named


def test_a_command_is_named_for_half_of_a_part() -> None:
    def run(cat: float, wc: float) -> Run:
        stages = [make_stage(1, "cat", cpu=cat), make_stage(2, "wc", cpu=wc)]
        return make_run(stages, cat + wc, levels=make_levels(0, cat + wc))

    assert "mostly cat" in compare_runs(run(3.0, 3.0), run(1.0, 1.0)).why
    three = [make_stage(n, name, cpu=2.0) for n, name in enumerate(("cat", "tr", "wc"), 1)]
    slow = make_run(three, 6.0, levels=make_levels(0, 6.0))
    none = make_run([replace(s, states=awk(0.5).states) for s in three], 1.5)
    assert "mostly" not in compare_runs(slow, replace(none, levels=make_levels(0, 1.5))).why


def test_idle_time_is_of_a_state_that_repeats_nothing_if_that_is_half_of_it() -> None:
    def idle(**states: float) -> Run:
        return make_run([awk(1.0, **states)], 3.0, levels=make_levels(2.0, 1.0))

    quick = alone(1.0)
    assert ": sleep" in compare_runs(idle(sleep=1.0, pipe_empty=9.0), quick).why
    assert ": sleep" not in compare_runs(idle(sleep=0.9, pipe_empty=9.0), quick).why
    assert ": pipe empty" in compare_runs(idle(sleep=0.9, pipe_empty=9.0), quick).why
    assert "mostly" not in compare_runs(idle(sleep=0.9, poll=0.9), quick).why


def test_what_is_left_open_is_stated_from_two_fifths_on() -> None:
    def left(rest: float) -> str:
        slow = [alone(3.0), alone(3.0 + 2 * rest, idle=2 * rest)] * 2
        sides = ([trial(run) for run in slow], [trial(alone(2.0))] * 4)
        return compare_trials(["a", "b"], sides).why

    assert "; the other 0.70 s are in parts" in left(0.7)
    assert "the other" not in left(0.6)


@pytest.mark.parametrize(("first", "second", "differ"), [(0.9, 0.96, True), (0.9, 0.95, False)])
def test_caches_differ_by_more_than_a_twentieth(first: float, second: float, differ: bool) -> None:
    sides = [[trial(warm(alone(), share))] for share in (first, second)]
    assert caches_differ(*sides) is differ
    assert caches_differ(*reversed(sides)) is differ
    rounds = [trial(warm(alone(), first)), trial(warm(alone(), second))]
    caveats = compare_trials(["a", "b"], [rounds, rounds]).caveats
    assert any("in each round" in caveat for caveat in caveats) is differ


def test_what_is_seen_of_a_cold_cache_is_waiting_and_more_cpu_time_in_the_kernel() -> None:
    cold, hot = in_kernel(alone(2.0, disk=0.5), 0.4), in_kernel(alone(1.0), 0.1)
    assert explained_seconds([trial(cold)], [trial(hot)]) == [pytest.approx(0.5 + 0.3)]
    assert explained_seconds([trial(hot)], [trial(cold)]) == [0.0]
    assert explained_seconds([trial(cold)], [trial(None, 1.0)]) is None
    assert explained_seconds([trial(cold, pipelines=2)], [trial(hot)]) is None


@pytest.mark.parametrize(("queued", "caveats"), [(0.375, 1), (0.374, 0)])
def test_a_wait_for_a_cpu_is_a_caveat_from_a_quarter_of_the_run_on(
    queued: float, caveats: int
) -> None:
    run = make_run([awk(1.0, runqueue=queued)], 1.5, end=START + 1.5)
    assert len(compare_runs(alone(1.5), run).caveats) == caveats
    assert len(compare_runs(run, run).caveats) == caveats


@pytest.mark.parametrize(("read", "caveats"), [(102, 0), (103, 1), (98, 0), (97, 1)])
def test_inputs_differ_by_more_than_two_percent(read: int, caveats: int) -> None:
    found = compare_runs(alone(read_bytes=100 * MB), alone(read_bytes=read * MB))
    assert len(found.caveats) == caveats


def test_an_input_of_nothing_is_a_caveat() -> None:
    assert compare_runs(alone(read_bytes=0), alone(read_bytes=MB)).caveats == (
        "different inputs: the first stages of A read nothing",
    )


def test_one_pipeline_in_each_round_and_no_lost_event_are_no_caveats() -> None:
    two = compare_trials(["a", "b"], [[trial(alone(), pipelines=2)]] * 2).caveats
    assert [caveat.split(":")[0] for caveat in two] == ["A ran 2 pipelines", "B ran 2 pipelines"]
    assert compare_trials(["a", "b"], [[trial(alone())]] * 2).caveats == ()


def test_every_row_has_the_value_of_its_quantity() -> None:
    read = make_readahead()
    stage = make_stage(
        1,
        "awk",
        **{state: 0.25 * place for place, state in enumerate(STATES, 1)},
        user_seconds=0.2,
        system_seconds=0.05,
        read_bytes=7,
        written_bytes=8,
        read_calls=9,
        write_calls=10,
        forks=11,
        readahead=read,
    )
    run = make_run(
        [stage, replace(stage, position=2)],
        4.0,
        levels=make_levels(1.0, 2.0, 0.5, 0.25),
        disk_alone_seconds=0.75,
        disk_overlapped_seconds=0.5,
    )
    found = compare_trials(["a", "b"], [[trial(run, 5.0)]] * 2)
    values = {(r.group, r.name): r.values[0].median for r in found.rows if r.values[0]}
    waits = {state: ("waits", STATE_WORDS[state]) for state in STATES if state != "cpu"}
    for place, state in enumerate(STATES, 1):
        if state != "cpu":
            assert values.pop(waits[state]) == 2 * 0.25 * place
    for name in PAGE_CLASSES:
        assert values.pop(("pages", name)) == 2 * read.pages[name]
    for name in STALL_CLASSES:
        assert values.pop(("disk", f"stalled: {name}")) == 2 * sum(read.stall_seconds[name])
    assert values == {
        ("time", "wall"): 5.0,
        ("time", "pipeline"): 4.0,
        ("time", "CPU"): 0.5,
        ("time", "user CPU"): pytest.approx(0.4),
        ("time", "system CPU"): pytest.approx(0.1),
        ("time", "cores used"): 0.1,
        ("time", "overlap"): run.overlap,
        ("time", "level 0"): 1.0,
        ("time", "level 1"): 2.0,
        ("time", "level 2 and up"): 0.75,
        ("disk", "no stage on CPU"): 0.75,
        ("disk", "a stage on CPU"): 0.5,
        ("disk", "stalls"): 2 * 112,
        ("pages", "warm share"): pytest.approx(run.readahead.warm_share if run.readahead else 0),
        ("data", "read"): 14,
        ("data", "written"): 16,
        ("data", "read calls"): 18,
        ("data", "write calls"): 20,
        ("data", "forks"): 22,
    }
    (one, _) = found.stages
    figures = one.sides[0]
    assert figures is not None
    assert (figures.position, figures.branches) == (1, 1)
    assert (figures.user_seconds, figures.system_seconds) == (0.2, 0.05)
    assert (figures.read_bytes, figures.written_bytes) == (7, 8)
    assert (figures.read_calls, figures.write_calls, figures.forks) == (9, 10, 11)
    assert figures.state_seconds == stage.states


def test_a_row_is_worth_showing_from_a_hundredth_of_the_longest_wall_time_on() -> None:
    def shown(idle: float) -> bool:
        found = compare_runs(alone(10.0, idle=idle), alone(10.0))
        return is_worth_a_row(row(found, "sleep", "waits"), 10.0)

    assert (shown(0.11), shown(0.1)) == (True, False)
    found = compare_runs(alone(10.0), alone(10.0, forks=1))
    assert is_worth_a_row(row(found, "forks"), 10.0)
    assert not is_worth_a_row(row(found, "read"), 10.0)
    assert is_worth_a_row(row(compare_runs(alone(0.0), alone(0.0)), "wall"), 10.0)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5, "seconds", "1.5 s"),
        (1.5e6, "bytes", "1.5 MB"),
        (0.25, "ratio", "25 %"),
        (2.5, "cores", "2.50"),
        (1234.0, "count", "1,234"),
        (1234.0, "pages", "1,234"),
    ],
)
def test_a_value_is_shown_with_its_unit(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(9.99, "9.99"), (9.996, "10.0"), (99.9, "99.9"), (99.96, "100"), (1000.0, "1000")],
)
def test_the_figures_of_a_ratio_at_their_bounds(ratio: float, text: str) -> None:
    assert times(ratio) == text


def test_a_round_without_a_pipeline_is_a_caveat_though_others_have_one() -> None:
    rounds = [trial(alone()), trial(None, 1.0), trial(alone())]
    (caveat, *_) = compare_trials(["a", "b"], [rounds, [trial(alone())] * 3]).caveats
    assert caveat.startswith("rounds of A had no pipeline")


def test_what_works_against_the_difference_takes_the_place_of_a_reason() -> None:
    """Four parts make one slower, and one makes it quicker."""
    quick = make_run([awk(2.0, user_seconds=2.0)], 2.0, levels=make_levels(0, 2.0))
    slow = make_run(
        [awk(2.5, disk=1.0, sleep=1.0, user_seconds=0.5, system_seconds=2.0)],
        4.5,
        levels=make_levels(2.0, 2.5),
        disk_alone_seconds=1.0,
    )
    pair = only_pair(compare_trials(["a", "b"], [[trial(quick)], [trial(slow, 6.0)]]))
    assert [(one.part, one.against) for one in pair.reasons] == [
        ("system", False),
        ("outside", False),
        ("user", True),
    ]


def test_of_three_the_quicker_of_each_pair_is_named_first() -> None:
    assert of_walls([2.0] * 3, [1.0] * 3, [4.0] * 3).why == (
        "B against A: 1.0 s less CPU time in programs (user; mostly awk). "
        "A against C: 2.0 s less CPU time in programs (user; mostly awk)."
    )
    found = of_walls([2.0] * 4, [3.0] * 4)
    assert found.verdict.startswith("A took 0.67 of B's wall time in each round, 2.0 s against 3.0")
    assert compare_trials(["a", "b"], [[trial(alone())]] * 2).rounds == 1


def test_one_part_at_most_works_against_the_difference() -> None:
    slow = make_run(
        [awk(1.0, user_seconds=1.0, disk=3.0)],
        5.0,
        levels=make_levels(4.0, 1.0),
        disk_alone_seconds=3.0,
    )
    quick = make_run(
        [awk(2.2, user_seconds=1.5, system_seconds=0.7)], 2.2, levels=make_levels(0, 2.2)
    )
    pair = only_pair(compare_runs(slow, quick))
    assert [(one.part, one.against) for one in pair.reasons if one.against] == [("system", True)]
