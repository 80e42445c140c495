# SPDX-License-Identifier: Apache-2.0
"""The diagram of a run: where boxes stand, and the texts on them and on the pipes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipelined.runs import LEVELS, Exit, PipeEnd, Run, Series
from pipelined.web.diagram import diagram, figures, mean_level
from unit.invented import START, make_readahead, make_run, make_stage


def slept(pipe: str, side: str, seconds: float) -> PipeEnd:
    return PipeEnd(pipe, side, 1, seconds)


def chain(**given: Any) -> Run:
    """A cat that waits for an awk that computes, and a sort that waits for both."""
    stages = [
        make_stage(1, "cat", cpu=1.0, pipe_full=9.0, written_bytes=50_000_000),
        make_stage(2, "awk", cpu=9.5, pipe_full=0.5, read_bytes=50_000_000, written_bytes=10**7),
        make_stage(3, "sort", cpu=1.0, pipe_empty=9.0, read_bytes=10**7),
    ]
    return make_run(stages, 10.0, **given)


def fan() -> Run:
    """A tee that waits for one of its two readers."""
    stages = [
        make_stage(1, "tee", cpu=1.0, pipe_full=8.0, ends=(slept("7:1", "write", 8.0),)),
        make_stage(2, "gzip", cpu=9.0, ends=()),
        make_stage(3, "wc", pipe_empty=9.0, ends=(slept("7:2", "read", 9.0),)),
    ]
    return make_run(
        stages,
        10.0,
        series=Series(pipeline="tee|(gzip,wc)", nested=False, unit="-"),
        edges=((0, 1), (0, 2)),
    )


def columns(run: Run) -> dict[str, int]:
    return {box["command"]: box["column"] for box in diagram(run)["boxes"]}


def pipes(run: Run) -> list[str]:
    return [pipe["text"] for pipe in diagram(run)["pipes"]]


# -- boxes


def test_a_chain_stands_in_the_order_of_its_data() -> None:
    assert columns(chain()) == {"cat": 0, "awk": 1, "sort": 2}


def test_parallel_branches_stand_in_one_column() -> None:
    assert columns(fan()) == {"tee": 0, "gzip": 1, "wc": 1}


def test_a_stage_stands_after_its_rightmost_writer() -> None:
    shortcut = chain(edges=((0, 1), (1, 2), (0, 2)))
    assert columns(shortcut)["sort"] == 2


def test_stages_that_write_to_each_other_still_have_columns() -> None:
    assert columns(chain(edges=((0, 1), (1, 0), (1, 2)))) == {"cat": 0, "awk": 1, "sort": 2}


def test_without_known_pipes_stages_stand_by_position() -> None:
    assert columns(chain(edges=())) == {"cat": 0, "awk": 1, "sort": 2}


def workers(count: int) -> Run:
    stages = [make_stage(1, "split", cpu=1.0)]
    stages += [make_stage(2, "bash", pid=200 + n, cpu=2.0, read_bytes=10) for n in range(count)]
    edges = tuple((0, n + 1) for n in range(count))
    return make_run(
        stages, 4.0, series=Series(pipeline="split|bash", nested=False, unit="-"), edges=edges
    )


def test_a_few_branches_of_one_name_are_a_box_each() -> None:
    assert [box["count"] for box in diagram(workers(4))["boxes"]] == [1, 1, 1, 1, 1]


def test_many_branches_of_one_name_are_one_box_and_one_pipe() -> None:
    shown = diagram(workers(5))
    assert [(box["command"], box["count"]) for box in shown["boxes"]] == [("split", 1), ("bash", 5)]
    assert [(pipe["writer"], pipe["reader"]) for pipe in shown["pipes"]] == [(0, 1)]


def test_a_box_of_many_branches_has_their_mean_and_their_sum() -> None:
    bash = diagram(workers(5))["boxes"][1]
    assert (bash["cpu"], bash["read"]) == ("CPU 50 %", "50 B")


def test_a_box_has_cpu_and_the_longest_wait() -> None:
    boxes = diagram(chain())["boxes"]
    assert [(box["cpu"], box["wait"]) for box in boxes] == [
        ("CPU 10 %", "pipe full 90 %"),
        ("CPU 95 %", "pipe full 5 %"),
        ("CPU 10 %", "pipe empty 90 %"),
    ]


def test_what_several_threads_use_is_a_share_of_one_cpu_and_of_their_time() -> None:
    threads = [make_stage(1, "cat", cpu=1.0), make_stage(2, "sort", cpu=14.6, lock=5.4)]
    cat, sort = diagram(make_run(threads, 10.0))["boxes"]
    assert (cat["cpu"], sort["cpu"]) == ("CPU 10 %", "146 % of one CPU")
    texts = [[f"{part['word']} {part['text']}" for part in box["states"]] for box in (cat, sort)]
    assert texts == [["on CPU 10 %"], ["on CPU 73 % of its threads' time", "lock 27 %"]]


def test_a_bar_stays_blank_while_the_stage_was_not_alive() -> None:
    short = make_run([make_stage(1, "cat", cpu=2.0), make_stage(2, "wc", pipe_empty=8.0)], 8.0)
    shares = [sum(s["share_ratio"] for s in box["states"]) for box in diagram(short)["boxes"]]
    assert shares == pytest.approx([0.25, 1.0])


def test_the_bottleneck_is_marked() -> None:
    assert [box["bottleneck"] for box in diagram(chain())["boxes"]] == [False, True, False]


def test_the_bottleneck_of_a_part_of_a_run_is_that_of_the_whole() -> None:
    quiet = [make_stage(1, "cat"), make_stage(2, "awk"), make_stage(3, "sort")]
    second = make_run(quiet, 1.0)
    assert [box["bottleneck"] for box in diagram(second, chain())["boxes"]] == [False, True, False]


def test_a_stage_that_has_ended_is_marked() -> None:
    run = chain()
    ended = replace(run, stages=(replace(run.stages[0], end=START + 5), *run.stages[1:]))
    assert [box["ended"] for box in diagram(ended)["boxes"]] == [True, False, False]


# -- pipes


def test_a_pipe_is_full_while_its_writer_sleeps_on_it_and_empty_while_its_reader_does() -> None:
    assert pipes(chain()) == ["full 90 %", "empty 90 %"]


def test_a_pipe_on_which_no_stage_sleeps_flows() -> None:
    stages = [
        make_stage(1, "cat", cpu=9.0, written_bytes=9),
        make_stage(2, "wc", cpu=9.0, read_bytes=9),
    ]
    assert pipes(make_run(stages, 10.0)) == ["flowing"]


def test_a_pipe_without_bytes_or_sleeps_is_idle() -> None:
    assert pipes(make_run([make_stage(1, "cat", cpu=9.0), make_stage(2, "wc")], 10.0)) == ["idle"]


def test_the_full_pipe_of_several_is_the_one_that_was_slept_on() -> None:
    assert pipes(fan()) == ["full 80 %", "empty 90 %"]


def test_a_pipe_with_an_end_that_has_ended_is_closed_while_the_run_lives() -> None:
    run = chain()
    ended = replace(run, stages=(replace(run.stages[0], end=START + 5), *run.stages[1:]))
    closed = diagram(ended)["pipes"][0]
    assert (closed["text"], closed["speed"]) == ("closed", "")


def test_a_finished_run_shows_how_its_pipes_were() -> None:
    run = chain(end=START + 10)
    ended = replace(run, stages=tuple(replace(s, end=START + 10) for s in run.stages))
    assert pipes(ended) == ["full 90 %", "empty 90 %"]


def test_a_pipe_has_its_throughput() -> None:
    assert [pipe["speed"] for pipe in diagram(chain())["pipes"]] == ["5.0 MB/s", "1.0 MB/s"]


def test_the_temporary_files_of_a_sort_do_not_count_as_its_pipe() -> None:
    stages = [
        make_stage(1, "sort", cpu=9.0, written_bytes=10**8),
        make_stage(2, "uniq", pipe_empty=9.0, read_bytes=0),
    ]
    assert diagram(make_run(stages, 10.0))["pipes"][0]["speed"] == "0 B/s"


def test_throughput_that_cannot_be_separated_is_left_out() -> None:
    crossed = chain(edges=((0, 1), (0, 2), (1, 2)))
    speeds = {(p["writer"], p["reader"]): p["speed"] for p in diagram(crossed)["pipes"]}
    assert speeds == {(0, 1): "5.0 MB/s", (0, 2): "", (1, 2): "1.0 MB/s"}


def test_a_run_of_no_time_can_be_drawn() -> None:
    nothing = make_run([make_stage(1, "cat"), make_stage(2, "wc")], 0.0)
    assert diagram(nothing)["mean_level"] is None


# -- figures


def test_the_headline_shows_whether_the_run_is_live() -> None:
    assert figures(chain())[0] == "10.0 s so far"
    assert figures(chain(end=START + 10))[0] == "10.0 s wall"


def test_the_headline_shows_a_cold_cache_and_a_partial_run() -> None:
    cold = make_run([make_stage(1, "cat", cpu=1.0, readahead=make_readahead())], 10.0, partial=True)
    assert figures(cold)[-2:] == ["cache cold", "partial"]


def test_the_headline_names_partial_tiers() -> None:
    run = make_run([make_stage(1, "cat", cpu=1.0)], 10.0, partial_tiers=("readahead",))
    assert figures(run)[-1] == "readahead partial"


def test_the_mean_level_counts_each_stage_that_was_on_cpu() -> None:
    assert mean_level([1.0, 2.0, 1.0, *[0.0] * (len(LEVELS) - 3)]) == pytest.approx(1.0)


def test_a_box_says_how_its_stages_ended_if_not_well() -> None:
    ended = chain()
    cat, awk, sort = ended.stages
    killed = replace(awk, exit=Exit(signal="SIGKILL"), outcome="failed")
    done = replace(cat, exit=Exit(signal="SIGPIPE"), outcome="succeeded")
    boxes = diagram(replace(ended, stages=(done, killed, sort)))["boxes"]
    assert [box["exit"] for box in boxes] == ["", "SIGKILL", ""]
