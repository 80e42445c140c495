# SPDX-License-Identifier: Apache-2.0
"""What becomes of what the sweeps read. No BPF: records are made up here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipelined.model import OTHER, Model
from pipelined.records import EndRecord, Group, PipelineRecord, StageRecord
from pipelined.runs import LEVELS, STATES

UNIX = 1_000_000.0


def model(**options: object) -> Model:
    values: dict[str, object] = {
        "max_signatures": 500,
        "recent_runs": 10,
        "unit_of": lambda cgroup: "nightly.service" if cgroup == 7 else "-",
    }
    return Model(**(values | options))  # type: ignore[arg-type]


def stage(index: int, command: str, side: str, *, cpu: float = 1.0, end: float = 0) -> StageRecord:
    return StageRecord(
        index=index,
        pipeline=index,
        outer=0,
        times=(cpu, *[0.0] * (len(STATES) - 1)),
        user=0.03,
        system=0.01,
        read_bytes=10 * index,
        written_bytes=0,
        read_calls=1,
        write_calls=0,
        sleeps_empty=0,
        sleeps_full=0,
        forks=0,
        execs=1,
        exec_failures=0,
        exited_children=0,
        children_cpu=0.0,
        children_life=0.0,
        start=100.0,
        end=end,
        cgroup=7,
        live=0 if end else 1,
        generation=0,
        pid=1000 + index,
        parent_pid=1,
        root_start=100.0 + index / 1000,
        partial=False,
        command=command,
        ends=(EndRecord(55, 13, side, True, 0, 0.0),),
    )


def group(*, cpu: float = 1.0, end: float = 0, commands: tuple[str, str] = ("cat", "wc")) -> Group:
    levels = [(0.0, 0.0)] * len(LEVELS)
    levels[0], levels[1], levels[2] = (0.5, 0.25), (cpu, 0.125), (0.5, 0.0)
    clock = PipelineRecord(tuple(levels), 100.0, end, 0 if end else 2, 0)
    return Group(
        1,
        clock,
        (
            stage(1, commands[0], "write", cpu=cpu, end=end),
            stage(2, commands[1], "read", cpu=cpu, end=end),
        ),
    )


def test_a_live_run_is_active_and_counted_as_it_grows() -> None:
    watched = model()
    watched.update([group(cpu=1.0)], 102.0, UNIX)
    watched.update([group(cpu=3.0)], 104.0, UNIX)
    ((series, totals),) = watched.totals().items()
    assert (series.pipeline, series.unit, totals.active, totals.runs) == (
        "cat|wc",
        "nightly.service",
        1,
        0,
    )
    assert totals.levels[1] == 3.125
    assert totals.stages[1, "cat"].states["cpu"] == 3.0


def test_a_run_that_came_and_went_between_sweeps_is_counted_whole() -> None:
    watched = model()
    over = watched.update([group(cpu=2.0, end=105.0)], 107.0, UNIX)
    (totals,) = watched.totals().values()
    assert [record.index for record in over] == [1, 2]
    assert (totals.runs, totals.active, totals.last_run_end) == (1, 0, 105.0 + UNIX)
    assert totals.disk_overlapped_seconds == 0.125
    assert totals.disk_alone_seconds == 0.25
    assert totals.run_seconds == totals.last_run_seconds == 3.375


def test_a_run_is_not_finished_before_its_grace_is_over() -> None:
    watched = model()
    assert watched.update([group(end=105.0)], 105.5, UNIX) == []
    assert watched.runs()[0].live
    watched.update([group(end=105.0)], 105.5, UNIX, grace=0.0)
    assert not watched.runs()[0].live


def test_a_settled_run_is_counted_once() -> None:
    watched = model()
    watched.update([group(end=105.0)], 105.1, UNIX, grace=0.0)
    watched.update([group(end=105.0)], 107.0, UNIX)
    (totals,) = watched.totals().values()
    assert (totals.runs, len(watched.runs())) == (1, 1)


def test_totals_never_go_back() -> None:
    watched = model()
    watched.update([group(cpu=2.0)], 102.0, UNIX)
    watched.update([group(cpu=1.9)], 103.0, UNIX)
    (totals,) = watched.totals().values()
    assert totals.stages[1, "cat"].states["cpu"] == 2.0


def test_one_stage_alone_is_no_run_and_is_given_back() -> None:
    watched = model()
    alone = replace(group(end=105.0), stages=(stage(1, "cat", "write", end=105.0),))
    over = watched.update([alone], 107.0, UNIX)
    assert (watched.runs(), watched.totals(), len(over)) == ([], {}, 1)


def test_past_the_bound_signatures_are_folded_and_still_counted() -> None:
    watched = model(max_signatures=1)
    watched.update([group(end=105.0)], 107.0, UNIX)
    watched.update([group(end=115.0, commands=("seq", "sort"))], 117.0, UNIX)
    names = {series.pipeline: totals.runs for series, totals in watched.totals().items()}
    assert names == {"cat|wc": 1, OTHER: 1}


def test_cpu_time_is_split_by_ticks_and_adds_up() -> None:
    watched = model()
    watched.update([group(cpu=2.0)], 102.0, UNIX)
    first = watched.runs()[0].stages[0]
    assert (first.user_seconds, first.system_seconds) == pytest.approx((1.5, 0.5))


@pytest.mark.parametrize(("hooked", "failures"), [(False, None), (True, 0)])
def test_exec_failures_are_unknown_without_their_hook(hooked: bool, failures: int | None) -> None:
    watched = model(exec_failures=hooked)
    watched.update([group()], 102.0, UNIX)
    (totals,) = watched.totals().values()
    assert totals.stages[1, "cat"].exec_failures == failures
