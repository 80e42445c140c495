# SPDX-License-Identifier: Apache-2.0
"""Verdicts on invented runs: which stage is named, why, and what the sentence must not claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipelined.analysis.bottleneck import bottleneck, share
from pipelined.analysis.readahead_words import stalls
from pipelined.analysis.sentence import beginning, brief, sentence, stage_label
from pipelined.runs import PipeEnd, Run, Stage
from pipelined.wording import duration, percent
from unit import invented
from unit.invented import START, make_readahead


def make_stage(
    position: int, command: str, *, wall: float = 10.0, alive: float | None = None, **states: float
) -> Stage:
    """A stage that lived `alive` seconds from the start; states are given in seconds."""
    end = START + (wall if alive is None else alive)
    return invented.make_stage(position, command, end=end, exec_failures=0, **states)


def make_run(
    stages: Sequence[Stage],
    *,
    wall: float = 10.0,
    edges: tuple[tuple[int, int], ...] | None = None,
    live: bool = False,
    partial: bool = False,
    overlapping: float = 0.5,
) -> Run:
    given = {} if edges is None else {"edges": edges}
    return invented.make_run(
        stages,
        wall,
        overlapping=overlapping,
        end=None if live else START + wall,
        partial=partial,
        **given,
    )


@pytest.fixture
def slow_awk() -> Run:
    return make_run(
        [
            make_stage(1, "cat", cpu=0.4, pipe_full=6.1, disk=3.5),
            make_stage(2, "awk", cpu=9.7, pipe_empty=0.3),
        ]
    )


def test_a_busy_reader_with_a_blocked_writer_is_the_bottleneck(slow_awk: Run) -> None:
    assert sentence(slow_awk) == (
        "awk is the bottleneck: on CPU 97 % of the run; cat waits for it 61 % (full pipe)."
    )


def test_the_bottleneck_is_found_without_edges(slow_awk: Run) -> None:
    found = bottleneck(replace(slow_awk, edges=()))
    assert found is not None and found.command == "awk"


def test_a_slow_middle_stage_blocks_both_sides() -> None:
    run = make_run(
        [
            make_stage(1, "cat", cpu=1, pipe_full=9),
            make_stage(2, "grep", cpu=9.8, pipe_empty=0.2),
            make_stage(3, "wc", cpu=1, pipe_empty=9),
        ]
    )
    assert sentence(run) == (
        "grep is the bottleneck: on CPU 98 % of the run; cat waits for it 90 % (full pipe); "
        "wc waits for it 90 % (empty pipe)."
    )


def test_waiting_passes_along_a_chain_to_the_last_stage() -> None:
    run = make_run(
        [
            make_stage(1, "cat", cpu=1, pipe_full=9),
            make_stage(2, "tr", cpu=1, pipe_full=8.8, pipe_empty=0.2),
            make_stage(3, "cut", cpu=1, pipe_full=8.5, pipe_empty=0.5),
            make_stage(4, "gzip", cpu=10),
        ]
    )
    found = bottleneck(run)
    assert found is not None and found.command == "gzip"
    assert [run.stages[w.stages[0]].command for w in found.waiters] == ["cut", "tr", "cat"]


def test_the_slowest_of_two_busy_stages_is_named() -> None:
    run = make_run(
        [
            make_stage(1, "zstd", cpu=10),
            make_stage(2, "awk", cpu=9, pipe_empty=1),
            make_stage(3, "wc", cpu=1, pipe_empty=9),
        ]
    )
    found = bottleneck(run)
    assert found is not None and found.command == "zstd"


def test_a_reader_that_waits_for_disk_is_named_with_that_reason() -> None:
    run = make_run(
        [make_stage(1, "cat", cpu=0.5, disk=9.5), make_stage(2, "wc", cpu=0.5, pipe_empty=9.5)]
    )
    assert sentence(run) == (
        "cat is the bottleneck: waits for disk 95 % of the run; wc waits for it 95 % (empty pipe)."
    )


def test_everything_waiting_for_disk_blames_the_disk_not_a_stage() -> None:
    run = make_run([make_stage(1, "cat", cpu=0.5, disk=9.5), make_stage(2, "paste", cpu=1, disk=9)])
    assert bottleneck(run) is None
    assert sentence(run).startswith("Waits for disk: cat 95 % of the run, paste 90 %")


def test_a_sleeping_source_holds_back_without_working() -> None:
    run = make_run([make_stage(1, "sleep", sleep=10), make_stage(2, "cat", pipe_empty=10)])
    assert sentence(run) == (
        "sleep holds the others back without working: asleep 100 % of the run; "
        "cat waits for it 100 % (empty pipe)."
    )


def test_a_network_source_is_distinguished_from_a_busy_one() -> None:
    run = make_run(
        [make_stage(1, "ssh", net=9, cpu=1), make_stage(2, "tar", pipe_empty=9.5, cpu=0.5)]
    )
    assert "ssh holds the others back without working: waits for the network 90 %" in sentence(run)


def test_equal_stages_are_balanced() -> None:
    run = make_run(
        [
            make_stage(1, "sed", cpu=9.6, pipe_full=0.4),
            make_stage(2, "tr", cpu=9.7, pipe_empty=0.3),
        ]
    )
    assert sentence(run) == (
        "Balanced: no stage waits on a pipe for more than 4 % of the run; "
        "on CPU: tr 97 %, sed 96 %."
    )


def test_two_burners_on_one_cpu_lack_cpus() -> None:
    run = make_run(
        [make_stage(1, "sed", cpu=5, runqueue=5), make_stage(2, "tr", cpu=5.1, runqueue=4.9)]
    )
    assert sentence(run).startswith("Too few free CPUs: sed 50 % of the run, tr 49 %")


def test_alternating_stages_take_turns() -> None:
    run = make_run(
        [
            make_stage(1, "ping", cpu=5, pipe_full=5),
            make_stage(2, "pong", cpu=4.8, pipe_empty=5.2),
        ],
        overlapping=0.0,
    )
    assert bottleneck(run) is None
    assert sentence(run).startswith("No single bottleneck: the stages take turns")


def test_waits_that_overlap_are_not_called_turns() -> None:
    run = make_run(
        [make_stage(1, "a", cpu=5, pipe_full=5), make_stage(2, "b", cpu=5, pipe_empty=5)],
        overlapping=0.5,
    )
    assert sentence(run).startswith("No single bottleneck stands out; asleep on pipes: a 50 %")


def test_a_stage_that_does_next_to_nothing_is_not_accused() -> None:
    run = make_run(
        [make_stage(1, "yes", cpu=1, pipe_full=9), make_stage(2, "head", cpu=0.3, alive=0.3)]
    )
    assert bottleneck(run) is None


def test_a_short_run_gets_no_verdict() -> None:
    run = make_run(
        [make_stage(1, "yes", wall=0.003, cpu=0.0004), make_stage(2, "head", wall=0.003)],
        wall=0.003,
    )
    assert sentence(run).startswith("Too short to say")


def test_without_stages_there_is_no_verdict() -> None:
    assert sentence(make_run([])).startswith("No verdict")


@pytest.mark.parametrize(
    ("states", "said", "short"),
    [
        ({"cpu": 9.7}, "awk runs alone: on CPU 97 % of the run.", "awk: CPU 97 %"),
        (
            {"cpu": 2.5, "disk": 7.5},
            "awk runs alone: waits for disk 75 % of the run, on CPU 25 %.",
            "awk: disk 75 %",
        ),
    ],
)
def test_the_verdict_on_a_program_alone_is_where_its_time_went(
    states: dict[str, float], said: str, short: str
) -> None:
    run = make_run([make_stage(1, "awk", **states)], wall=10.0)
    assert sentence(run) == said
    assert brief(run) == short


def test_a_zero_wall_time_is_too_short() -> None:
    run = make_run([make_stage(1, "a", wall=0), make_stage(2, "b", wall=0)], wall=0)
    assert bottleneck(run) is None and "Too short" in sentence(run)


@pytest.fixture
def barrier() -> Run:
    return make_run(
        [
            make_stage(1, "zcat", alive=6.6, cpu=0.6, pipe_full=6),
            make_stage(2, "sort", cpu=7.1, pipe_empty=0.8, pipe_full=0.1, disk=2),
            make_stage(3, "awk", cpu=0.7, pipe_empty=9.3),
            make_stage(4, "uniq", cpu=0.1, pipe_empty=9.9),
        ]
    )


def test_sort_is_reported_as_a_barrier(barrier: Run) -> None:
    assert sentence(barrier) == (
        "sort is the bottleneck: on CPU 71 % of the run; zcat waits for it 60 % (full pipe); "
        "awk and uniq wait for it 93 % and 99 % (empty pipe). "
        "sort has to read all of its input before it writes (a barrier)."
    )


def test_an_unknown_command_is_never_called_a_barrier(barrier: Run) -> None:
    stages = (barrier.stages[0], replace(barrier.stages[1], command="mysort"), *barrier.stages[2:])
    assert "(a barrier)" not in sentence(replace(barrier, stages=stages))


def test_a_sort_of_a_file_is_a_barrier_too() -> None:
    sort = make_stage(1, "sort", cpu=8, disk=2)
    assert sentence(make_run([sort, make_stage(2, "awk", cpu=1, pipe_empty=9)])).endswith(
        "sort has to read all of its input before it writes (a barrier)."
    )
    early = make_run([sort, make_stage(2, "awk", cpu=6, pipe_empty=4)])
    assert "(a barrier)" not in sentence(early)


def test_a_sort_whose_reader_started_early_is_no_barrier(barrier: Run) -> None:
    early = make_stage(3, "awk", cpu=5, pipe_empty=5)
    stages = (*barrier.stages[:2], early, barrier.stages[3])
    assert "(a barrier)" not in sentence(replace(barrier, stages=stages))


def test_a_fork_storm_is_reported_with_its_forks() -> None:
    xargs = replace(
        make_stage(2, "xargs", cpu=2, child=9, sleep=8),
        forks=3000,
        exited_children=3000,
        children_lifetime_seconds=9.0,
    )
    sleepless = replace(xargs, states={**xargs.states, "sleep": 0.0})
    run = make_run([make_stage(1, "cat", cpu=0.1, pipe_full=9.9), sleepless])
    assert sentence(run) == (
        "xargs is the bottleneck: waits for its own children 90 % of the run, on 20 % of one "
        "CPU (3,000 forks, children live 3.0 ms); cat waits for it 99 % (full pipe)."
    )


def sorting(**sort: float) -> Run:
    """cat feeds a sort of several threads, whose seconds by state these are, for 10 s."""
    return make_run([make_stage(1, "cat", cpu=1, pipe_full=9), make_stage(2, "sort", **sort)])


@pytest.mark.parametrize(
    ("states", "verdict", "short"),
    [
        ({"cpu": 9.7}, "on CPU 97 % of the run;", "CPU 97 %"),
        ({"cpu": 9.7, "lock": 9.3}, "on 97 % of one CPU over the run;", "CPU 97 % of one CPU"),
        ({"cpu": 14.6, "lock": 5.4}, "on 1.5 CPUs over the run;", "CPU 146 % of one CPU"),
    ],
)
def test_what_several_threads_use_is_a_share_of_one_cpu(
    states: dict[str, float], verdict: str, short: str
) -> None:
    run = sorting(**states)
    assert sentence(run).startswith(f"sort is the bottleneck: {verdict}")
    assert brief(run) == f"sort: {short}"


def test_a_balanced_pipeline_of_several_threads_reports_shares_of_one_cpu() -> None:
    run = make_run(
        [
            make_stage(1, "cat", cpu=6, pipe_full=2, disk=2),
            make_stage(2, "sort", cpu=12, pipe_empty=2, lock=6),
        ]
    )
    assert sentence(run).endswith("on CPU: sort 120 % of one CPU, cat 60 %.")


def test_a_stage_left_alone_is_named_although_nobody_waits() -> None:
    run = make_run(
        [make_stage(1, "cat", alive=0.1, cpu=0.1), make_stage(2, "xargs", cpu=9.5, pipe_empty=0.1)]
    )
    assert sentence(run) == (
        "xargs is the bottleneck: on CPU 95 % of the run; cat had ended after 1 %."
    )


def test_parallel_branches_share_the_part() -> None:
    filters = [replace(make_stage(3, "bash", cpu=9, pipe_empty=1), pid=p) for p in (7, 8, 9, 10)]
    run = make_run(
        [make_stage(1, "seq", cpu=1, pipe_full=9), make_stage(2, "split", pipe_full=9), *filters],
        edges=((0, 1), (1, 2), (1, 3), (1, 4), (1, 5)),
    )
    assert sentence(run).startswith("4 × bash are the bottleneck: each on CPU 90 % of the run")


def test_the_slow_one_of_two_branches_is_singled_out() -> None:
    fast = replace(make_stage(1, "sort", cpu=1, pipe_full=9), pid=70)
    slow = replace(make_stage(1, "sort", cpu=10), pid=71)
    run = make_run([fast, slow, make_stage(2, "diff", cpu=1, pipe_empty=9)], edges=((0, 2), (1, 2)))
    assert sentence(run).startswith("sort (pid 71, one of 2) is the bottleneck")


def test_equal_names_at_two_places_are_distinguished() -> None:
    run = make_run([make_stage(1, "sed", cpu=10), make_stage(2, "sed", cpu=4, pipe_empty=6)])
    assert sentence(run) == (
        "sed (stage 1) is the bottleneck: on CPU 100 % of the run; "
        "sed (stage 2) waits for it 60 % (empty pipe)."
    )


def test_a_source_that_waits_outside_does_not_count_as_working() -> None:
    run = make_run(
        [make_stage(1, "cat", cpu=0.2, pipe_empty=9.8), make_stage(2, "wc", pipe_empty=9.9)]
    )
    assert "cat holds the others back without working" in sentence(run)
    assert "on a pipe that no other stage feeds" in sentence(run)


def test_sleep_on_a_pipe_within_a_stage_is_not_a_wait_for_another() -> None:
    loop = replace(
        make_stage(2, "bash", cpu=1, pipe_empty=9),
        ends=(PipeEnd("p:1", "read", 10, 1.0), PipeEnd("p:2", "read", 900, 8.0)),
    )
    feeder = replace(
        make_stage(1, "seq", cpu=0.1, pipe_full=9.9), ends=(PipeEnd("p:1", "write", 9, 9.9),)
    )
    found = bottleneck(make_run([feeder, loop]))
    assert found is not None and found.command == "bash" and found.kind == "outside_in"


def test_several_cpus_are_counted_as_cpus() -> None:
    run = make_run([make_stage(1, "cat", cpu=1, pipe_full=9), make_stage(2, "xz", cpu=34)])
    assert sentence(run).startswith("xz is the bottleneck: on 3.4 CPUs over the run;")


def test_the_verdict_on_a_live_run_says_so_far(slow_awk: Run) -> None:
    live = replace(
        slow_awk, end=None, stages=tuple(replace(stage, end=None) for stage in slow_awk.stages)
    )
    assert "on CPU 97 % of the run so far" in sentence(live)


def test_partial_tiers_are_named(slow_awk: Run) -> None:
    late = replace(slow_awk, partial_tiers=("functions", "readahead"))
    assert sentence(late).endswith(
        " Figures of functions and readahead are partial: the run began before their hooks were"
        " attached."
    )


def test_a_partial_run_says_so(slow_awk: Run) -> None:
    assert "Partial: figures since observation began" in sentence(replace(slow_awk, partial=True))


def test_a_bottleneck_that_waits_itself_says_so() -> None:
    run = make_run(
        [make_stage(1, "cat", cpu=6, pipe_full=4), make_stage(2, "wc", cpu=4, pipe_empty=6)]
    )
    assert sentence(run).endswith("it waits for the others 40 %.")


def test_idle_pipelines_are_idle_not_balanced() -> None:
    run = make_run([make_stage(1, "tail", poll=10), make_stage(2, "less", poll=10)])
    assert sentence(run).startswith("Idle:")


def test_a_loop_of_pipes_does_not_hang() -> None:
    run = make_run(
        [make_stage(1, "bc", cpu=2, pipe_empty=8), make_stage(2, "bash", cpu=8, pipe_empty=2)],
        edges=((0, 1), (1, 0)),
    )
    found = bottleneck(run)
    assert found is not None and found.command == "bash"


def test_the_beginning_of_a_verdict_is_its_first_clause_without_the_span(slow_awk: Run) -> None:
    live = replace(slow_awk, end=None)
    for run in (slow_awk, live):
        assert beginning(sentence(run)) == "awk is the bottleneck: on CPU 97 %"


@pytest.mark.parametrize(
    ("verdict", "first"),
    [
        ("sort is the bottleneck: on 1.2 CPUs over the run so far.", "on 1.2 CPUs"),
        ("No single bottleneck: the stages take turns; asleep on pipes: a 9 %.", "take turns"),
        ("Balanced: no stage waits for more than 3 % of the run; on CPU: a 9 %.", "than 3 %"),
        ("Idle: none is on CPU for more than 2 % of the run, and no stage waits.", "than 2 %"),
    ],
)
def test_the_beginning_of_a_verdict_ends_with_a_clause(verdict: str, first: str) -> None:
    assert beginning(verdict).endswith(first)


def test_the_brief_names_stage_and_reason(slow_awk: Run) -> None:
    assert brief(slow_awk) == "awk: CPU 97 %"


def test_waits_of_many_threads_are_shares_of_their_own_time() -> None:
    stage = make_stage(1, "pigz", pipe_full=30, cpu=10)
    assert share(stage, "pipe_full", 10) == pytest.approx(0.75)


def test_a_label_of_a_single_stage_is_its_command(slow_awk: Run) -> None:
    assert stage_label(slow_awk, [1]) == "awk"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 %"), (0.001, "<1 %"), (0.5, "50 %"), (1.0, "100 %")]
)
def test_percent(value: float, text: str) -> None:
    assert percent(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.00034, "340 µs"),
        (0.0012, "1.2 ms"),
        (0.012, "12 ms"),
        (0.0999, "0.10 s"),
        (0.58, "0.58 s"),
        (0.996, "1.0 s"),
        (5.6, "5.6 s"),
        (200, "3 min 20 s"),
        (3700, "1 h 1 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("wall", "reported"), [(1.0, True), (1000.0, False)])
def test_waits_for_disk_that_round_to_nothing_are_left_out(wall: float, reported: bool) -> None:
    assert (stalls(make_readahead(), wall) is not None) is reported
