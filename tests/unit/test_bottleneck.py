# SPDX-License-Identifier: Apache-2.0
"""Verdicts on invented runs: which stage is named, why, and what the sentence must not claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipelined.analysis.bottleneck import (
    PipeWaits,
    bottleneck,
    has_several_threads,
    is_too_short,
    main_state,
    pipe_waits,
    share,
)
from pipelined.analysis.pipe_graph import build_graph
from pipelined.analysis.readahead_words import stalls
from pipelined.analysis.sentence import (
    beginning,
    brief,
    main_bottleneck,
    partial_figures,
    sentence,
    stage_label,
    unwatched,
)
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


def test_the_peer_of_a_network_source_is_named_by_its_port() -> None:
    run = make_run(
        [
            make_stage(1, "curl", net=9, cpu=1, peer_port=443, peer_family="ipv6"),
            make_stage(2, "tar", pipe_empty=9.5, cpu=0.5),
        ]
    )
    assert "working: waits for the network (port 443) 90 % of the run, on CPU" in sentence(run)


def test_several_sources_with_different_peers_have_no_port() -> None:
    sources = [make_stage(1, "curl", net=9, cpu=1, peer_port=port) for port in (443, 8080)]
    run = make_run([*sources, make_stage(2, "paste", pipe_empty=9.5, cpu=0.5)])
    assert "waits for the network" in sentence(run)
    assert "port" not in sentence(run)


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


@pytest.mark.parametrize(
    ("queued", "opening"),
    [
        (2.4, "No single bottleneck: the stages take turns"),
        (2.5, "Too few free CPUs: ping 25 % of the run; asleep on pipes: pong 52 %, ping 50 %."),
    ],
)
def test_stages_that_share_a_cpu_are_not_said_to_take_turns(queued: float, opening: str) -> None:
    run = make_run(
        [
            make_stage(1, "ping", cpu=5 - queued, pipe_full=5, runqueue=queued),
            make_stage(2, "pong", cpu=4.8, pipe_empty=5.2),
        ],
        overlapping=0.0,
    )
    assert sentence(run).startswith(opening)


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


def test_the_threads_of_a_pool_that_have_nothing_to_do_are_no_reason() -> None:
    """node: its main thread computes for three quarters of the run, four others wait for work."""
    run = sorting(cpu=7.5, lock=40, disk=0.5)
    assert sentence(run).startswith("sort is the bottleneck: on 75 % of one CPU over the run")
    polling = sorting(cpu=7.5, poll=30, sleep=10)
    assert brief(polling) == "sort: CPU 75 % of one CPU"
    disk = sorting(cpu=1, lock=40, disk=6)
    assert "waits for disk" in sentence(disk)


def test_a_lock_is_named_if_work_waits_for_it() -> None:
    found = bottleneck(sorting(cpu=2, lock=8))
    assert found is not None and (found.kind, found.share) == ("lock", pytest.approx(0.8))
    pool = bottleneck(sorting(cpu=2, lock=38))
    assert pool is not None and (pool.kind, pool.share) == ("lock", pytest.approx(0.8))


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


def test_stamps_of_two_clocks_do_not_show_for_how_long_a_stage_had_ended() -> None:
    """The clock is set after cat has ended."""
    cat, *others = (
        make_stage(1, "cat", alive=1.7, cpu=1.7),
        make_stage(2, "sort", cpu=9.5, pipe_empty=0.5),
        make_stage(3, "wc", cpu=0.1, pipe_empty=9.5),
    )
    run = make_run([cat, *others])
    found = bottleneck(run)
    assert found is not None and found.ended == ((0, pytest.approx(0.17)),)
    later = tuple(replace(stage, end=START + 3610) for stage in others)
    found = bottleneck(replace(run, end=START + 3610, stages=(cat, *later)))
    assert found is not None and (found.command, found.ended) == ("sort", ())


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


# -- figures behind the verdict


def test_shares_of_pipe_waits_within_the_run_and_outside_it() -> None:
    """Of `sort`'s sleep on its input a quarter was on a pipe of its own."""
    ends = (PipeEnd("p:1", "read", 9, 3.0), PipeEnd("p:8", "read", 9, 1.0))
    out = (PipeEnd("p:2", "write", 9, 1.0), PipeEnd("p:9", "write", 9, 1.0))
    stages = [
        replace(make_stage(1, "cat", cpu=10), ends=(PipeEnd("p:1", "write", 0, 0.0),)),
        replace(make_stage(2, "sort", cpu=4, pipe_empty=4, pipe_full=2), ends=(*ends, *out)),
        replace(make_stage(3, "wc", cpu=10), ends=(PipeEnd("p:2", "read", 0, 0.0),)),
    ]
    run = make_run(stages)
    found = pipe_waits(run, 1, build_graph(run))
    shares = (found.empty, found.full, found.outside_in, found.outside_out)
    assert shares == pytest.approx((0.3, 0.1, 0.1, 0.1))


def test_without_neighbours_all_waits_are_outside() -> None:
    run = make_run([make_stage(1, "cat", cpu=4, pipe_empty=4, pipe_full=2)])
    found = pipe_waits(run, 0, build_graph(run))
    assert found == PipeWaits(empty=0.0, full=0.0, outside_in=0.4, outside_out=0.2)
    assert found.inside == 0.0


def test_waits_inside_are_no_more_than_the_run() -> None:
    assert PipeWaits(0.75, 0.75, 0.0, 0.0).inside == 1.0
    assert PipeWaits(0.25, 0.5, 9.0, 9.0).inside == 0.75


def test_helpers_time_is_divided_by_the_run_and_left_out_of_the_others() -> None:
    stage = make_stage(1, "sort", cpu=10, disk=5, lock=8, child=30)
    assert share(stage, "lock", 10.0) == 0.8
    assert share(stage, "child", 10.0) == 1.0
    assert share(stage, "disk", 10.0) == pytest.approx(5 / 15)
    assert share(stage, "cpu", 5.0) == 2.0
    assert share(stage, "disk", 0.0) == 0.0


def test_several_threads_live_longer_than_the_run() -> None:
    assert not has_several_threads(make_stage(1, "sort", cpu=10.5), 10.0)
    assert has_several_threads(make_stage(1, "sort", cpu=10.6), 10.0)


@pytest.mark.parametrize(
    ("states", "kind"),
    [
        ({"cpu": 1, "child": 5.1, "sleep": 4}, "child"),
        ({"cpu": 1, "child": 5.0, "sleep": 4}, "sleep"),  # no more than half of the run
        ({"cpu": 5, "child": 9}, "cpu"),
        ({"cpu": 4.9, "child": 9}, "child"),
        ({"cpu": 1, "child": 9, "disk": 2.5}, "disk"),
        ({"cpu": 1, "child": 9, "disk": 2.4}, "child"),
        ({"cpu": 1, "child": 7, "runqueue": 8}, "runqueue"),
    ],
)
def test_children_are_the_reason_if_they_fill_half_of_the_run_and_nothing_else_works(
    states: dict[str, float], kind: str
) -> None:
    run = make_run([make_stage(1, "bash", **states), make_stage(2, "wc", cpu=1, pipe_empty=9)])
    waits = [pipe_waits(run, index, build_graph(run)) for index in range(2)]
    assert main_state(run, (0,), waits)[0] == kind


@pytest.mark.parametrize(("waits", "named"), [(1.0, True), (0.99, False)])
def test_a_neighbour_has_to_wait_for_a_tenth_of_the_run(waits: float, named: bool) -> None:
    run = make_run(
        [make_stage(1, "cat", cpu=10 - waits, pipe_full=waits), make_stage(2, "awk", cpu=10)]
    )
    assert (bottleneck(run) is not None) is named


@pytest.mark.parametrize(("busy", "named"), [(1.0, True), (0.99, False)])
def test_a_reason_has_to_fill_a_tenth_of_the_run(busy: float, named: bool) -> None:
    run = make_run([make_stage(1, "cat", cpu=1, pipe_full=9), make_stage(2, "awk", cpu=busy)])
    assert (bottleneck(run) is not None) is named


@pytest.mark.parametrize(
    ("cpu", "wall", "short"),
    [
        (0.0009, 0.09, True),
        (0.001, 0.09, False),
        (0.0009, 0.1, False),
        (0.0, 0.0, True),
        (1.0, 0.0, True),
    ],
)
def test_a_run_is_too_short_with_little_cpu_time_and_little_wall_time(
    cpu: float, wall: float, short: bool
) -> None:
    assert is_too_short(make_run([make_stage(1, "a", cpu=cpu)], wall=wall)) is short


@pytest.mark.parametrize(
    ("apart", "members"), [(0.15, (1, 2)), (0.16, (1,))], ids=["within 15 %", "beyond"]
)
def test_branches_that_wait_as_little_share_the_part(
    apart: float, members: tuple[int, ...]
) -> None:
    waits = 10 * apart
    branches = [
        replace(make_stage(2, "gzip", cpu=10), pid=7),
        replace(make_stage(2, "gzip", cpu=10 - waits, pipe_empty=waits), pid=8),
    ]
    run = make_run([make_stage(1, "tee", cpu=1, pipe_full=9), *branches], edges=((0, 1), (0, 2)))
    found = bottleneck(run)
    assert found is not None and found.stages == members


def test_a_writer_that_ended_a_quarter_before_the_end_had_ended() -> None:
    def ended(alive: float) -> tuple[tuple[int, float], ...]:
        run = make_run([make_stage(1, "cat", alive=alive, cpu=alive), make_stage(2, "awk", cpu=10)])
        found = bottleneck(run)
        assert found is not None
        return found.ended

    assert ended(7.5) == ((0, pytest.approx(0.75)),)
    assert ended(7.6) == ()


def test_of_a_partial_live_run_nobody_has_ended() -> None:
    stages = [make_stage(1, "cat", alive=2.0, cpu=2), make_stage(2, "awk", cpu=10)]
    assert bottleneck(make_run(stages, live=True, partial=True)) is None
    found = bottleneck(make_run(stages, live=True))
    assert found is not None and found.ended == ((0, pytest.approx(0.2)),)


@pytest.mark.parametrize(("waits", "barrier"), [(5.0, True), (4.9, False)])
def test_readers_of_a_barrier_on_a_file_wait_for_half_of_the_run(
    waits: float, barrier: bool
) -> None:
    reader = make_stage(2, "awk", cpu=10 - waits, pipe_empty=waits)
    found = bottleneck(make_run([make_stage(1, "sort", cpu=10), reader]))
    assert found is not None and found.barrier is barrier


@pytest.mark.parametrize(("waits", "barrier"), [(7.3, True), (7.1, False)])
def test_readers_of_a_barrier_wait_for_as_long_as_its_writers_live(
    waits: float, barrier: bool
) -> None:
    stages = [
        make_stage(1, "zcat", alive=8.0, cpu=2, pipe_full=6),
        make_stage(2, "sort", cpu=10),
        make_stage(3, "awk", cpu=10 - waits, pipe_empty=waits),
    ]
    found = bottleneck(make_run(stages))
    assert found is not None and found.barrier is barrier


@pytest.mark.parametrize(
    ("forks", "states", "said"),
    [
        (99, {"cpu": 9.9}, ""),
        (100, {"cpu": 9.9}, " (100 forks)"),
        (1, {"child": 9.9}, ""),
        (2, {"child": 9.9}, " (2 forks)"),
    ],
)
def test_forks_are_named_if_many_or_if_children_are_the_reason(
    forks: int, states: dict[str, float], said: str
) -> None:
    bash = replace(make_stage(2, "bash", **states), forks=forks)
    said_of = sentence(make_run([make_stage(1, "cat", cpu=1, pipe_full=9), bash]))
    assert ("forks" in said_of) is bool(said)
    assert said in said_of


def test_children_s_lives_are_named_if_any_was_seen() -> None:
    bash = replace(
        make_stage(2, "bash", cpu=9.9),
        forks=200,
        exited_children=100,
        children_lifetime_seconds=5.0,
    )
    cat = make_stage(1, "cat", cpu=1, pipe_full=9)
    assert "(200 forks, children live 50 ms)" in sentence(make_run([cat, bash]))
    lifeless = replace(bash, children_lifetime_seconds=0.0)
    assert "(200 forks)" in sentence(make_run([cat, lifeless]))


def balanced(**states: float) -> str:
    """The sentence on a run of two stages that hardly wait for each other."""
    return sentence(make_run([make_stage(1, "a", **states), make_stage(2, "b", cpu=0.1)]))


@pytest.mark.parametrize(
    ("states", "opening"),
    [
        ({"cpu": 1.0}, "Balanced"),
        ({"cpu": 0.99}, "Idle"),
        ({"cpu": 7.5, "disk": 2.5}, "Waits for disk"),
        ({"cpu": 7.6, "disk": 2.4}, "Balanced"),
        ({"cpu": 7.5, "runqueue": 2.5}, "Too few free CPUs"),
        ({"cpu": 7.6, "runqueue": 2.4}, "Balanced"),
    ],
)
def test_what_a_run_without_a_bottleneck_does(states: dict[str, float], opening: str) -> None:
    assert balanced(**states).startswith(opening)


@pytest.mark.parametrize(
    ("waits", "overlapping", "opening"),
    [
        (2.5, 0.0, "No single bottleneck: the stages take turns"),
        (2.5, 0.099, "No single bottleneck: the stages take turns"),
        (2.5, 0.2, "No single bottleneck stands out"),
        (2.4, 0.0, "Balanced"),
    ],
)
def test_stages_that_wait_for_a_quarter_of_the_run_take_turns_if_little_overlaps(
    waits: float, overlapping: float, opening: str
) -> None:
    stages = [
        make_stage(1, "a", cpu=5, pipe_full=waits),
        make_stage(2, "b", cpu=5, pipe_empty=waits),
    ]
    assert sentence(make_run(stages, overlapping=overlapping)).startswith(opening)


def test_one_stage_that_waits_takes_no_turns() -> None:
    stages = [
        make_stage(1, "a", cpu=7.4, pipe_full=2.6),
        make_stage(2, "b", cpu=7.6, pipe_empty=2.4),
    ]
    assert sentence(make_run(stages, overlapping=0.0)).startswith("No single bottleneck stands out")


def test_three_stages_are_named_and_those_that_do_next_to_nothing_are_not() -> None:
    def named(*busy: float) -> str:
        stages = [make_stage(n, f"s{n}", cpu=seconds) for n, seconds in enumerate(busy, 1)]
        return sentence(make_run(stages, overlapping=0.9)).partition("on CPU: ")[2]

    assert named(2, 4, 3, 1.5) == "s2 40 %, s3 30 %, s1 20 %."
    assert named(2, 1.0, 0.9) == "s1 20 %, s2 10 %."


@pytest.mark.parametrize(
    ("cpu", "words"), [(1.0, ", on CPU 10 %."), (0.99, "asleep 90 % of the run.")]
)
def test_what_a_program_alone_computes_is_named_from_a_tenth_of_the_run_on(
    cpu: float, words: str
) -> None:
    assert sentence(make_run([make_stage(1, "a", cpu=cpu, sleep=9.0)])).endswith(words)


@pytest.mark.parametrize(
    ("states", "head"),
    [
        ({"sleep": 7.5, "cpu": 2.5}, "b is the bottleneck: asleep 75 % of the run, on CPU 25 %;"),
        ({"sleep": 7.5, "cpu": 2.4}, "b holds the others back without working: asleep 75 %"),
        (
            {"sleep": 7.5, "cpu": 0.9},
            "b holds the others back without working: asleep 75 % of the run;",
        ),
        ({"disk": 7.5, "cpu": 0.5}, "b is the bottleneck: waits for disk 75 % of the run;"),
        ({"cpu": 7.5, "runqueue": 2.5}, "b is the bottleneck: on CPU 75 % of the run, waits for a"),
        ({"cpu": 7.5, "runqueue": 2.4}, "b is the bottleneck: on CPU 75 % of the run;"),
    ],
)
def test_what_a_bottleneck_does_besides(states: dict[str, float], head: str) -> None:
    stages = [make_stage(1, "a", cpu=0.5, pipe_full=9.5), make_stage(2, "b", **states)]
    assert sentence(make_run(stages)).startswith(head)


def test_three_waiting_stages_are_named() -> None:
    branches = [make_stage(2, f"w{n}", cpu=1, pipe_empty=9) for n in range(5)]
    run = make_run(
        [make_stage(1, "tee", cpu=10), *branches], edges=tuple((0, n) for n in range(1, 6))
    )
    assert "; w0, w1 and w2 wait for it 90 %, 90 % and 90 %, 2 more (empty pipe)." in sentence(run)
    three = make_run(
        [make_stage(1, "tee", cpu=10), *branches[:3]], edges=tuple((0, n) for n in range(1, 4))
    )
    assert "more" not in sentence(three)


@pytest.mark.parametrize(("own", "said"), [(1.0, True), (0.99, False)])
def test_its_own_waits_are_named_from_a_tenth_of_the_run_on(own: float, said: bool) -> None:
    stages = [
        make_stage(1, "a", cpu=0.5, pipe_full=9.5),
        make_stage(2, "b", cpu=10 - own, pipe_empty=own),
    ]
    assert ("it waits for the others 10 %" in sentence(make_run(stages))) is said


@pytest.mark.parametrize(
    ("cpu", "words"),
    [(10.5, "on 105 % of one CPU over the run"), (10.6, "on 1.1 CPUs over the run")],
)
def test_more_than_one_cpu_is_named_as_cpus(cpu: float, words: str) -> None:
    stages = [make_stage(1, "a", cpu=0.5, pipe_full=9.5), make_stage(2, "b", cpu=cpu, lock=5.0)]
    assert words in sentence(make_run(stages))


def test_the_main_bottleneck_of_runs_is_what_held_them_back_longest() -> None:
    assert main_bottleneck({"sort: CPU": 2.0, "awk: CPU": 5.0, "-": 13.0}) == ("awk: CPU", 0.25)
    assert main_bottleneck({"-": 9.0}) == (None, None)
    assert main_bottleneck({"sort: CPU": 0.0}) == ("sort: CPU", 0.0)


def test_what_is_not_known_of_a_run_is_stated() -> None:
    run = make_run([make_stage(1, "a", cpu=9)])
    gap = replace(run, unwatched_seconds=2.0)
    assert partial_figures(run) == []
    assert partial_figures(gap) == ["partial, 2.0 s unwatched"]
    assert partial_figures(replace(run, partial=True)) == ["partial"]
    tiers = replace(run, partial_tiers=("functions", "readahead"))
    assert partial_figures(tiers) == ["functions and readahead partial"]
    assert "Partial: for 2.0 s no daemon ran, and nothing was counted." in sentence(gap)
    ended = replace(run, ended_unwatched=True)
    assert sentence(ended).endswith(
        "Partial: it ended while no daemon ran, and its end is when it was last seen alive."
    )
    assert unwatched(run) == ""


def test_of_two_writers_the_one_that_lived_longer_decides_how_long_a_barrier_read() -> None:
    def barrier(waits: float) -> bool:
        stages = [
            make_stage(1, "a", alive=2.0, cpu=1, pipe_full=1),
            make_stage(1, "b", alive=9.0, cpu=1, pipe_full=8),
            make_stage(2, "sort", cpu=10),
            make_stage(3, "wc", cpu=10 - waits, pipe_empty=waits),
        ]
        found = bottleneck(make_run(stages, edges=((0, 2), (1, 2), (2, 3))))
        assert found is not None and found.command == "sort"
        return found.barrier

    assert barrier(8.5)
    assert not barrier(7.5)


def test_all_readers_of_a_barrier_have_to_wait() -> None:
    stages = [
        make_stage(1, "sort", cpu=10),
        make_stage(2, "a", cpu=1, pipe_empty=9),
        make_stage(2, "b", cpu=6, pipe_empty=4),
    ]
    found = bottleneck(make_run(stages, edges=((0, 1), (0, 2))))
    assert found is not None and not found.barrier


def test_a_little_sleep_on_pipes_is_divided_as_a_long_one() -> None:
    ends = (PipeEnd("p:1", "read", 9, 0.3), PipeEnd("p:8", "read", 9, 0.1))
    stages = [
        replace(make_stage(1, "cat", cpu=10), ends=(PipeEnd("p:1", "write", 0, 0.0),)),
        replace(make_stage(2, "sort", cpu=9.6, pipe_empty=0.4), ends=ends),
    ]
    run = make_run(stages)
    found = pipe_waits(run, 1, build_graph(run))
    assert (found.empty, found.outside_in) == pytest.approx((0.03, 0.01))


def test_the_mean_of_all_that_wait_decides_between_two_stages() -> None:
    # c has more stages around it, of which some hardly wait; a's one waits as long as c's first
    stages = [
        make_stage(1, "a", cpu=10),
        make_stage(2, "b", cpu=2, pipe_empty=8),
        make_stage(3, "c", cpu=9.8, pipe_empty=0.2),
        make_stage(4, "d", cpu=1, pipe_empty=8.5),
        make_stage(5, "e", cpu=10),
    ]
    run = make_run(stages, edges=((0, 1), (2, 3), (2, 4)))
    found = bottleneck(run)
    assert found is not None and found.command == "a"


def test_of_two_states_alike_the_one_that_repeats_nothing_is_the_reason() -> None:
    run = make_run([make_stage(1, "sort", lock=5, poll=5), make_stage(2, "wc", pipe_empty=9)])
    waits = [pipe_waits(run, index, build_graph(run)) for index in range(2)]
    assert main_state(run, (0,), waits) == ("poll", 0.5)


def test_without_a_bottleneck_there_are_no_few_words() -> None:
    balanced_run = make_run([make_stage(1, "a", cpu=9), make_stage(2, "b", cpu=9)])
    short = make_run([make_stage(1, "a", wall=0.01, cpu=0.0001)], wall=0.01)
    assert (brief(balanced_run), brief(short)) == ("-", "-")
