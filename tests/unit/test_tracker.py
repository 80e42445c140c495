# SPDX-License-Identifier: Apache-2.0
"""What becomes of what the sweeps read. No BPF: records are made up here."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import sizeof
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL, SIGPIPE, SIGTERM
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelined.kernel import layout
from pipelined.kernel.pace import Steady
from pipelined.model.coverage import Coverage
from pipelined.model.identities import Identities
from pipelined.model.ledger import OTHER
from pipelined.model.neighbours import Neighbours
from pipelined.model.sighting import Finished
from pipelined.model.sums import OTHER_PLACE
from pipelined.model.tracker import Budget, Lookups, Model, SeriesUse
from pipelined.model.views import Totals
from pipelined.model.watched import Watched
from pipelined.observer import Observer
from pipelined.records.process import Process
from pipelined.records.stage import (
    COUNTERS,
    EXIT_OOM,
    EXIT_SEEN,
    JOB_VARIABLE,
    PIPE_KEY,
    EndRecord,
    Gap,
    Group,
    Job,
    PipelineRecord,
    StageRecord,
)
from pipelined.records.tiers import FUNCTIONS, NO_READAHEAD, READAHEAD
from pipelined.runs import FAILURES, LEVELS, STATES, Series, Surroundings
from pipelined.web.pipeline_metrics import series_count

UNIX = 1_000_000.0
FUNCTIONS_WORDS = sizeof(layout.Functions) // 8


def unit_of(cgroup: int) -> str:
    return "nightly.service" if cgroup == 7 else "-"


def model(
    *,
    recent_runs: int = 10,
    unix: float = UNIX,
    watch: Watched | None = None,
    resumed: Sequence[Group] = (),
    arguments_of: Callable[[Process], str | None] | None = None,
    max_series: int | None = None,
    series_of: Callable[[Totals], int] = lambda _: 0,
    accounts: Accounts | None = None,
    home: Path | None = None,
    on_finished: Callable[[Finished], object] | None = None,
    harmless: Mapping[str, Collection[int]] = MappingProxyType({}),
    identities: Identities | None = None,
    exported: bool = False,
    is_stored: Callable[[str], bool] = lambda _: False,
    **coverage: Any,
) -> Model:
    made = Model(
        watch or Watched(unix),
        Lookups(unit_of, arguments_of),
        recent_runs=recent_runs,
        coverage=Coverage(**coverage),
        budget=Budget(max_series, series_of),
        neighbours=Neighbours(accounts, home),  # type: ignore[arg-type]
        on_finished=on_finished,
        harmless=harmless,
        identities=identities,
        exported=exported,
        is_stored=is_stored,
    )
    made.resume(resumed)
    return made


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def stage(index: int, command: str, side: str, *, cpu: float = 1.0, end: float = 0) -> StageRecord:
    counters = dict.fromkeys(COUNTERS, 0) | {"user_ns": ns(0.03), "system_ns": ns(0.01)}
    counters |= {"read_bytes": 10 * index, "read_calls": 1, "execs": 1}
    return StageRecord(
        index=index,
        outer=0,
        alias=0 if index == 1 else 1,
        counted=[ns(cpu), *[0] * (len(STATES) - 1), *counters.values()],
        start_ns=ns(100),
        end_ns=ns(end),
        cgroup=7,
        live=0 if end else 1,
        generation=0,
        root=Process(1000 + index, ns(100) + index),
        parent=Process(1, 0),
        partial=False,
        alone=False,
        command=command,
        ends=(EndRecord(PIPE_KEY.pack(55, 13, 0), side, True, True, 0, 0),),
    )


def other_process(stage: StageRecord) -> Process:
    return stage.root._replace(pid=stage.root.pid + 8)


def group(*, cpu: float = 1.0, end: float = 0, commands: tuple[str, str] = ("cat", "wc")) -> Group:
    idle = (0,) * (len(LEVELS) - 3)
    clock = PipelineRecord(
        alone_ns=(ns(0.5), ns(cpu), ns(0.5), *idle),
        disk_ns=(ns(0.25), ns(0.125), 0, *idle),
        start_ns=ns(100),
    )
    return Group(
        1,
        clock,
        (
            stage(1, commands[0], "write", cpu=cpu, end=end),
            stage(2, commands[1], "read", cpu=cpu, end=end),
        ),
        closed=True,
    )


def with_tiers_counting(found: Group, factor: int) -> Group:
    """The group, of which the optional tiers counted this many times 1, 2, 3 …"""
    functions = tuple(factor * number for number in range(1, sum(FUNCTIONS.values()) + 1))
    readahead = tuple(factor * number for number in range(1, sum(READAHEAD.values()) + 1))
    stages = tuple(
        replace(record, functions=functions, readahead=readahead) for record in found.stages
    )
    return replace(found, stages=stages)


def test_a_run_that_is_seen_once_counts_as_one_that_was_seen_live() -> None:
    once, often = model(pipe_bytes=True), model(pipe_bytes=True)
    often.update([with_tiers_counting(group(cpu=0.25), 1)], 101)
    for watched in (once, often):
        watched.update([with_tiers_counting(group(end=102), 2)], 103)
    assert once.totals() == often.totals()
    (seen_once,), (seen_often,) = once.runs(), often.runs()
    assert seen_once == seen_often
    assert seen_once.stages[0].functions is not None and seen_once.stages[0].readahead is not None


def test_the_sweep_after_one_that_failed_half_way_repeats_nothing() -> None:
    failures = [RuntimeError("no such process")]

    def arguments_of(process: Process) -> str:
        if process.pid == 1004 and failures:
            raise failures.pop()
        return "x"

    finished: list[Finished] = []
    watched = model(arguments_of=arguments_of, on_finished=finished.append)
    later = replace(
        group(), root=3, stages=(stage(3, "awk", "write", end=103), stage(4, "sort", "read"))
    )
    groups = [group(end=102), later]
    watched.update(groups[:1], 101)
    with pytest.raises(RuntimeError):
        watched.update(groups, 105)
    assert len(finished) == 1
    assert watched.update(groups, 106) == list(groups[0].stages), "which can be freed now"
    assert len(finished) == watched.ended_runs == 1
    assert len(watched.runs()) == 2


def test_user_and_system_time_follow_a_stage_that_others_have_left() -> None:
    watched = model()
    watched.update([group(cpu=1.0)], 101)
    watched.update([group(cpu=0.25)], 102)
    stage_seen = watched.runs()[0].stages[0]
    assert stage_seen.cpu_seconds == 0.25
    assert stage_seen.user_seconds + stage_seen.system_seconds == pytest.approx(0.25)


def test_runs_that_are_no_longer_kept_are_among_those_that_have_ended() -> None:
    watched = model(recent_runs=2)
    for number in range(5):
        watched.update([replace(group(end=105.0), root=number)], 107.0)
    assert len(watched.runs()) == 2
    assert watched.ended_runs == 5


def test_a_live_run_is_active_and_counted_as_it_grows() -> None:
    watched = model()
    watched.update([group(cpu=1.0)], 102.0)
    watched.update([group(cpu=3.0)], 104.0)
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
    over = watched.update([group(cpu=2.0, end=105.0)], 107.0)
    (totals,) = watched.totals().values()
    assert [record.index for record in over] == [1, 2]
    assert (totals.runs, totals.active, totals.last_run_end) == (1, 0, 105.0 + UNIX)
    assert totals.disk_overlapped_seconds == 0.125
    assert totals.disk_alone_seconds == 0.25
    assert totals.run_seconds == totals.last_run_seconds == 3.375


def test_of_runs_that_ended_between_two_sweeps_the_last_one_is_that_which_ended_last() -> None:
    passed_on: list[Finished] = []
    watched = model(on_finished=passed_on.append)
    later, failed = group(end=106.0), group(end=105.0)
    first, last = (replace(one, index=one.index + 8) for one in failed.stages)
    exited = replace(last, exit_status=EXIT_SEEN | 1 << 8)
    failed = replace(failed, root=9, stages=(first, exited))
    watched.update([later, failed], 108.0)
    (totals,) = watched.totals().values()
    assert totals.last_run_end == totals.last_complete_end == 106.0 + UNIX
    assert totals.last_failed_end == {"exit": 105.0 + UNIX}
    assert [one.end for one in passed_on] == [105.0 + UNIX, 106.0 + UNIX]


def test_a_run_is_not_finished_before_its_grace_is_over() -> None:
    passed_on: list[Finished] = []
    watched = model(on_finished=passed_on.append)
    ended = replace(group(end=105.0), closed=False)
    assert watched.update([ended], 105.5) == []
    assert (counted_runs(watched), passed_on) == (0, [])
    watched.update([ended], 105.5, settle=True)
    assert (counted_runs(watched), len(passed_on)) == (1, 1)


def counted_runs(watched: Model) -> int:
    return sum(totals.runs for totals in watched.totals().values())


@pytest.mark.parametrize("closed", [True, False])
def test_the_sweep_that_sees_the_last_stage_gone_ends_the_run(closed: bool) -> None:
    watched = model()
    watched.update([replace(group(), closed=closed)], 104.0)
    watched.update([replace(group(end=105.0), closed=closed)], 105.001)
    (run,) = watched.runs()
    (totals,) = watched.totals().values()
    assert (run.end, watched.live, totals.active) == (105.0 + UNIX, 0, 0)
    assert watched.timeline(run.id)


def test_a_run_is_live_while_one_of_its_stages_is() -> None:
    watched = model()
    first, last = group(end=105.0).stages
    watched.update([replace(group(), stages=(first, replace(last, end_ns=0, live=1)))], 106.0)
    assert (watched.runs()[0].live, watched.live) == (True, 1)


def test_a_stage_that_is_met_after_the_others_ended_makes_the_run_live_again() -> None:
    watched = model()
    pair = replace(group(end=105.0), closed=False)
    watched.update([pair], 105.2)
    third = stage(3, "sort", "read")
    watched.update([replace(pair, stages=(*pair.stages, third))], 105.4)
    (run,) = watched.runs()
    assert (run.live, len(run.stages), counted_runs(watched)) == (True, 3, 0)


def test_what_is_credited_after_the_end_is_in_the_finished_run() -> None:
    watched = model()
    watched.update([group(cpu=1.0, end=105.0)], 105.001)
    watched.update([group(cpu=1.5, end=105.0)], 107.0)
    (run,) = watched.runs()
    (totals,) = watched.totals().values()
    assert run.stages[0].cpu_seconds == totals.stages[1, "cat"].states["cpu"] == 1.5
    assert (totals.runs, totals.levels[1]) == (1, 1.625)


def test_a_finished_run_is_handed_out_with_its_input() -> None:
    finished: list[Finished] = []
    watched = model(on_finished=finished.append)
    watched.update([group(end=105.0)], 105.0)
    watched.update([group(end=105.0)], 107.0)
    (run,) = watched.runs()
    assert [one.input_bytes for one in finished] == [run.input_bytes]
    assert run.input_bytes


@pytest.mark.parametrize(
    ("first", "last", "outcomes", "outcome"),
    [
        (EXIT_SEEN, EXIT_SEEN, ("succeeded", "succeeded"), "succeeded"),
        (EXIT_SEEN | SIGPIPE, EXIT_SEEN, ("succeeded", "succeeded"), "succeeded"),
        (EXIT_SEEN, EXIT_SEEN | 3 << 8, ("succeeded", "failed"), "failed"),
        (EXIT_SEEN | SIGTERM, EXIT_SEEN, ("interrupted", "succeeded"), "interrupted"),
        (EXIT_SEEN, 0, ("succeeded", "unknown"), "unknown"),
    ],
)
def test_a_finished_run_is_handed_out_with_its_outcome(
    first: int, last: int, outcomes: tuple[str, str], outcome: str
) -> None:
    finished: list[Finished] = []
    watched = model(on_finished=finished.append)
    ended = group(end=105.0)
    statuses = zip(ended.stages, (first, last), strict=True)
    stages = tuple(replace(stage, exit_status=status) for stage, status in statuses)
    watched.update([replace(ended, stages=stages)], 107.0)
    (run,) = watched.runs()
    assert tuple(stage.outcome for stage in run.stages) == outcomes
    assert (run.result, [one.outcome for one in finished]) == (outcome, [outcome])


def test_of_a_live_run_the_outcome_of_a_stage_is_known_once_it_has_ended() -> None:
    watched = model()
    first, last = group(end=105.0).stages
    killed = replace(last, exit_status=EXIT_SEEN | SIGKILL)
    watched.update([replace(group(), stages=(replace(first, end_ns=0, live=1), killed))], 106.0)
    (run,) = watched.runs()
    assert [stage.outcome for stage in run.stages] == [None, "failed"]
    assert run.outcome is None


class Accounts:
    """Accounts of a host whose CPUs work 1.5 s in each second, and of one limited cgroup."""

    def __init__(self) -> None:
        self.now = 0.0
        self.removed = False
        """The limited cgroup has ended."""

    def busy(self) -> float:
        return 1.5 * self.now

    def group(self, process: Process, cgroup: int) -> Path:
        return Path("/limited")

    def throttled(self, group: Path) -> float | None:
        if self.removed:
            return None
        return 0.25 * self.now if group == Path("/limited") else 0.0


def waiting(*groups: Group) -> list[Group]:
    """The groups, of which each stage has waited 1 s for a CPU."""
    for one in groups:
        for record in one.stages:
            record.counted[1] = ns(1.0)
    return list(groups)


def sweeps(watched: Model, accounts: Accounts, *given: tuple[float, list[Group]]) -> None:
    for now, groups in given:
        accounts.now = now
        watched.update(groups, now)


@pytest.mark.parametrize("seen_live", [True, False])
def test_a_finished_run_knows_what_others_used(seen_live: bool) -> None:
    accounts = Accounts()
    watched = model(accounts=accounts, home=Path("/limited"))
    live = [(101.0, waiting(group(cpu=0.25)))] if seen_live else []
    sweeps(watched, accounts, (100.0, []), *live, (104.0, waiting(group(cpu=1.0, end=103.5))))
    around = watched.runs()[0].surroundings
    assert around is not None
    assert around.others_cores == pytest.approx((1.5 * 4 - 2) / 4)
    assert around.throttled_seconds == pytest.approx(1.0)


def test_what_others_used_after_its_end_is_not_around_a_run() -> None:
    accounts = Accounts()
    watched = model(accounts=accounts, home=Path("/limited"))
    live, over = group(cpu=0.25), replace(group(cpu=1.0, end=103.5), closed=False)
    sweeps(watched, accounts, (100.0, []), (101.0, waiting(live)), (104.0, waiting(over)))
    shown = watched.runs()[0].surroundings
    sweeps(watched, accounts, (110.0, waiting(replace(over))))
    (finished,) = watched.runs()
    assert finished.surroundings == shown
    assert shown is not None and shown.throttled_seconds == pytest.approx(1.0)
    assert counted_runs(watched) == 1


@pytest.mark.parametrize(
    ("joined", "partial", "others"),
    [(150.0, False, None), (101.0, False, 1.5 - 2 / 53), (150.0, True, 1.0)],
)
def test_what_others_used_is_unknown_if_a_stage_was_alone_for_long(
    joined: float, partial: bool, others: float | None
) -> None:
    """It had used CPU time by then. Of a partial run only what it used since counts."""
    accounts = Accounts()
    watched = model(accounts=accounts)
    run = group(cpu=1.0, end=153.5)
    run = replace(run, stages=tuple(replace(stage, partial=partial) for stage in run.stages))
    sweeps(watched, accounts, (joined, []), (154.0, [run]))
    around = watched.runs()[0].surroundings
    assert around is not None
    assert around.others_cores == (others if others is None else pytest.approx(others))
    assert around.throttled_seconds is None


def test_a_run_that_no_sweep_saw_live_is_in_no_known_cgroup() -> None:
    accounts = Accounts()
    watched = model(accounts=accounts)
    sweeps(watched, accounts, (100.0, []), (104.0, [group(end=103.5)]))
    around = watched.runs()[0].surroundings
    assert around is not None and around.throttled_seconds is None


def test_a_run_whose_cgroup_ends_with_it_was_held_back_as_of_the_last_sweep() -> None:
    accounts = Accounts()
    watched = model(accounts=accounts)
    live = [(now, waiting(group(cpu=0.25))) for now in (101.0, 102.0, 103.0)]
    sweeps(watched, accounts, (100.0, []), *live)
    accounts.removed = True
    sweeps(watched, accounts, (104.0, waiting(group(cpu=1.0, end=103.5))))
    around = watched.runs()[0].surroundings
    assert around is not None and around.throttled_seconds == pytest.approx(0.5)


def test_a_run_whose_cgroup_ends_before_a_second_sweep_was_held_back_for_an_unknown_time() -> None:
    accounts = Accounts()
    watched = model(accounts=accounts)
    sweeps(watched, accounts, (100.0, []), (103.0, waiting(group(cpu=0.25))))
    accounts.removed = True
    sweeps(watched, accounts, (104.0, waiting(group(cpu=1.0, end=103.5))))
    around = watched.runs()[0].surroundings
    assert around is not None and around.throttled_seconds is None


def test_a_run_whose_cgroup_still_lives_is_held_back_until_the_sweep_after_its_end() -> None:
    accounts = Accounts()
    watched = model(accounts=accounts)
    live = [(now, waiting(group(cpu=0.25))) for now in (101.0, 102.0, 103.0)]
    sweeps(watched, accounts, (100.0, []), *live, (104.0, waiting(group(cpu=1.0, end=103.5))))
    around = watched.runs()[0].surroundings
    assert around is not None and around.throttled_seconds == pytest.approx(0.75)


def test_of_many_cgroups_a_sweep_reads_a_hundred_for_the_time_when_they_have_ended() -> None:
    class Many(Accounts):
        read = 0

        def group(self, process: Process, cgroup: int) -> Path:
            return Path(f"/{process.pid}")

        def throttled(self, group: Path) -> float:
            self.read += 1
            return 0.0

    accounts = Many()
    watched = model(accounts=accounts)
    runs = []
    for number in range(0, 600, 3):
        one = group(cpu=0.25)
        stages = tuple(
            replace(s, index=s.index + number, root=s.root._replace(pid=s.root.pid + number))
            for s in one.stages
        )
        runs.append(replace(one, root=number, stages=stages))
    sweeps(watched, accounts, (100.0, []), (101.0, runs))
    accounts.read = 0
    sweeps(watched, accounts, (102.0, runs))
    assert accounts.read == 100


def test_a_run_that_waited_for_cpus_knows_the_pipelines_that_used_them() -> None:
    accounts = Accounts()
    watched = model(accounts=accounts)
    other = replace(group(cpu=1.5), root=9)
    renumbered = tuple(replace(s, index=s.index + 8, root=other_process(s)) for s in other.stages)
    other = replace(other, stages=renumbered)
    sweeps(
        watched,
        accounts,
        (100.0, []),
        (102.0, [*waiting(group()), other]),
        (104.0, [*waiting(group(end=104.0 - 0.5)), other]),
    )
    (run,) = [run for run in watched.runs() if not run.live]
    assert run.surroundings is not None
    (named,) = run.surroundings.pipelines
    assert named.pipeline == "cat|wc"
    # 3 s of CPU in the 2.875 s that it had lived at the sweep before: at that rate until the end
    assert named.cpu_seconds == pytest.approx(3.0 / 2.875 * 3.5)


def test_the_run_around_a_run_is_no_other_one() -> None:
    accounts = Accounts()
    watched = model(accounts=accounts)
    outer = group(cpu=1.5)

    def inside(end: float = 0) -> Group:
        (inner,) = waiting(group(end=end, commands=("seq", "sort")))
        stages = [
            replace(stage, index=stage.index + 8, root=other_process(stage), outer=1, alias=alias)
            for stage, alias in zip(inner.stages, (0, 9), strict=True)
        ]
        return replace(inner, root=9, stages=tuple(stages))

    sweeps(
        watched,
        accounts,
        (100.0, []),
        (102.0, [outer, inside()]),
        (104.0, [outer, inside(end=103.5)]),
    )
    (run,) = [run for run in watched.runs() if not run.live]
    assert (run.pipeline, run.nested, run.parent_pipeline) == ("seq|sort", True, "cat|wc")
    assert run.surroundings is not None and run.surroundings.pipelines == ()


def test_without_accounts_nothing_is_known() -> None:
    watched = model()
    watched.update([], 100.0)
    watched.update([group(end=103.5)], 104.0)
    assert watched.runs()[0].surroundings is None


def test_a_live_run_knows_what_others_have_used_so_far_but_names_none() -> None:
    accounts = Accounts()
    watched = model(accounts=accounts, home=Path("/limited"))
    other = replace(group(cpu=1.5), root=9)
    renumbered = tuple(replace(s, index=s.index + 8, root=other_process(s)) for s in other.stages)
    other = replace(other, stages=renumbered)

    def seen(now: float) -> Surroundings | None:
        sweeps(watched, accounts, (now, [*waiting(group(cpu=0.25)), other]))
        (run,) = [run for run in watched.runs() if run.stages[0].pid < other.stages[0].root.pid]
        assert run.live
        return run.surroundings

    sweeps(watched, accounts, (100.0, []))
    early, late = seen(102.0), seen(104.0)
    assert early is not None and late is not None
    # it used 0.5 s in 1.625 s, and is taken to have gone on so
    assert late.others_cores == pytest.approx((1.5 * 4 - 0.5 * 4 / 1.625) / 4)
    assert (early.throttled_seconds, late.throttled_seconds) == (0.5, 1.0)
    assert late.pipelines == ()


def test_a_program_that_is_named_as_what_is_folded_has_totals_of_its_own() -> None:
    watched = model()
    alone = replace(group(end=103.5).stages[0], command=OTHER, alone=True, ends=())
    watched.update([replace(group(end=103.5), stages=(alone,))], 104.0, settle=True)
    (run,) = watched.runs()
    assert (run.pipeline, run.stages[0].command) == (r"\x28other)", OTHER)
    assert {series.pipeline for series in watched.totals()} == {run.pipeline}


def test_a_run_whose_every_pipe_has_both_ends_is_finished_soon() -> None:
    watched = model()
    assert watched.update([group(end=105.0)], 105.05) == []
    assert len(watched.update([group(end=105.0)], 105.2)) == 2
    assert not watched.runs()[0].live


def test_a_run_is_finished_though_threads_of_a_stage_that_retired_live() -> None:
    watched = model()
    first, driver = group(end=105.0).stages
    ended = replace(group(end=105.0), stages=(first, replace(driver, retired=True, live=3)))
    assert watched.update([ended], 107.0) == []  # its record is still in use
    (run,) = watched.runs()
    assert (run.live, run.end, run.stages[1].end) == (False, 105.0 + UNIX, 105.0 + UNIX)
    left = replace(ended, stages=(first, replace(driver, retired=True)))
    assert len(watched.update([left], 108.0)) == 2
    (totals,) = watched.totals().values()
    assert totals.runs == 1


def test_short_runs_are_counted_however_many_runs_are_kept() -> None:
    watched = model(recent_runs=1)
    none = (0,) * (len(LEVELS) - 1)
    for at in (200, 201, 202):
        brief = PipelineRecord((ns(0.1), *none), (0, *none), ns(at))
        watched.update([replace(group(end=at + 0.1), root=at, clock=brief)], at + 0.5)
    watched.update([replace(group(end=210), root=9)], 210.5)
    assert watched.short_runs() == {"cat|wc": 3}


def test_a_conversation_is_in_no_list_but_its_own_until_it_ends() -> None:
    finished: list[Finished] = []
    watched = model(on_finished=finished.append)
    watched.update([replace(group(cpu=2.0), conversation=True)], 104.0)
    assert (watched.runs(), watched.live, watched.totals()) == ([], 0, {})
    (talk,) = watched.conversations()
    assert (talk.pipeline, talk.stages[0].cpu_seconds) == ("cat|wc", 2.0)
    assert talk.stages[0].user_seconds + talk.stages[0].system_seconds == pytest.approx(2.0)
    over = watched.update([replace(group(end=105.0), conversation=True)], 107.0)
    assert len(over) == 2
    assert (watched.conversations(), watched.runs(), finished) == ([], [], [])


def test_a_pipeline_inside_a_conversation_is_top_level() -> None:
    watched = model()
    inner = replace(group(), root=11, stages=tuple(replace(s, outer=1) for s in group().stages))
    inner = replace(inner, stages=tuple(replace(s, index=s.index + 10) for s in inner.stages))
    watched.update([replace(group(), conversation=True), inner], 104.0)
    (run,) = watched.runs()
    assert (run.series.nested, run.parent) == (False, None)


def test_a_settled_run_is_counted_once() -> None:
    watched = model()
    watched.update([group(end=105.0)], 105.05, settle=True)
    watched.update([group(end=105.0)], 107.0)
    (totals,) = watched.totals().values()
    assert (totals.runs, len(watched.runs())) == (1, 1)


def test_totals_never_go_back() -> None:
    watched = model()
    watched.update([group(cpu=2.0)], 102.0)
    watched.update([group(cpu=1.9)], 103.0)
    (totals,) = watched.totals().values()
    assert totals.stages[1, "cat"].states["cpu"] == 2.0


def test_a_stage_that_moves_to_another_run_is_not_counted_again() -> None:
    watched = model()
    pair = group(cpu=2.0)
    watched.update([pair], 102.0)
    third = stage(3, "sort", "read", cpu=1.0)
    watched.update([replace(pair, root=3, stages=(*pair.stages, third))], 103.0)
    places = [place for totals in watched.totals().values() for place in totals.stages.items()]
    assert sum(totals.states["cpu"] for _, totals in places) == 5.0


def test_a_run_is_remembered_under_its_root_only_while_it_is_there() -> None:
    watched = model()
    watched.update([group(cpu=2.0)], 102.0)
    watched.update([], 103.0)
    watched.update([group(cpu=1.0, end=105.0)], 107.0)
    (totals,) = watched.totals().values()
    assert (totals.runs, totals.levels[1]) == (1, 2.125 + 1.125)


def test_one_stage_alone_is_no_run_and_is_given_back() -> None:
    watched = model()
    alone = replace(group(end=105.0), stages=(stage(1, "cat", "write", end=105.0),))
    over = watched.update([alone], 107.0)
    assert (watched.runs(), watched.totals(), len(over)) == ([], {}, 1)


def inside(
    outer: int, *, end: float = 0, first: int = 11, names: tuple[str, str] = ("seq", "sort")
) -> Group:
    """A run of two stages, from the index `first` on, that lie in the stage with this index."""
    commands = ((names[0], "write"), (names[1], "read"))
    stages = [stage(index, *command, end=end) for index, command in enumerate(commands, first)]
    stages = [
        replace(of, alias=0 if of.index == first else first, outer=outer, start_ns=ns(101))
        for of in stages
    ]
    clock = replace(group().clock, start_ns=ns(101))
    return Group(first, clock, tuple(stages), closed=not end)


def test_a_nested_run_names_the_run_around_it() -> None:
    watched = model()
    watched.update([inside(2), group(commands=("job.sh", "tee"))], 102.0)
    outer, inner = sorted(watched.runs(), key=lambda run: run.start)
    assert (outer.nested, outer.parent, outer.parent_pipeline) == (False, None, None)
    assert (inner.nested, inner.parent, inner.parent_pipeline) == (True, outer.id, "job.sh|tee")


def test_totals_of_nested_pipelines_name_the_outermost_one() -> None:
    watched = model()
    deepest = inside(12, first=21, names=("cut", "tr"))
    watched.update([deepest, inside(2), group(commands=("job.sh", "tee"))], 102.0)
    named = {series.pipeline: totals.outermost for series, totals in watched.totals().items()}
    assert named == {"job.sh|tee": None, "seq|sort": "job.sh|tee", "cut|tr": "job.sh|tee"}
    parents = {run.pipeline: run.parent_pipeline for run in watched.runs()}
    assert parents["cut|tr"] == "seq|sort"


def test_a_run_around_which_another_one_is_found_later_is_nested_from_then_on() -> None:
    watched, inner = model(), inside(2)
    watched.update([inner], 102.0)
    assert [run.nested for run in watched.runs()] == [False]
    watched.update([group(commands=("job.sh", "tee")), inner], 103.0)
    assert {run.pipeline: run.nested for run in watched.runs()} == {
        "job.sh|tee": False,
        "seq|sort": True,
    }


def test_a_nested_run_that_is_finished_after_the_one_around_it_stays_nested() -> None:
    watched = model()
    both = [inside(2, end=105.0), group(end=105.0, commands=("job.sh", "tee"))]
    over = watched.update(both, 105.2)
    assert {record.index for record in over} == {1, 2}
    watched.update(both[:1], 106.1)
    inner, outer = watched.runs()
    assert (inner.end, inner.parent, inner.parent_pipeline) == (outer.end, outer.id, "job.sh|tee")
    assert {series.nested for series in watched.totals()} == {True, False}


def test_it_stays_nested_in_a_stage_of_its_own_inside_that_run() -> None:
    watched = model()
    lone = stage(31, "bash", "write", end=105.0)
    subshell = replace(group(), root=31, closed=False, stages=(replace(lone, alias=0, outer=2),))
    inner = inside(31, end=105.0)
    over = watched.update([inner, subshell, group(end=105.0, commands=("job.sh", "tee"))], 105.2)
    assert {record.index for record in over} == {1, 2}
    watched.update([inner, subshell], 106.1)
    assert {run.pipeline: run.parent_pipeline for run in watched.runs()}["seq|sort"] == "job.sh|tee"


def test_the_outermost_run_stays_so_when_it_is_finished_first() -> None:
    watched = model()
    between = inside(2, end=105.0)
    deepest = inside(12, end=105.0, first=21, names=("cut", "tr"))
    watched.update([deepest, between, group(end=105.0, commands=("job.sh", "tee"))], 105.2)
    watched.update([deepest, between], 106.1)
    named = {series.pipeline: totals.outermost for series, totals in watched.totals().items()}
    assert named["cut|tr"] == "job.sh|tee"


def test_a_run_keeps_the_current_name_of_the_run_around_it() -> None:
    watched = model()
    watched.update([group(commands=("bash", "tee")), inner := inside(2)], 102.0)
    watched.update([group(commands=("job.sh", "tee")), inner], 103.0)
    watched.update([group(commands=("job.sh", "tee")), inner], 104.0)
    assert {run.parent_pipeline for run in watched.runs()} == {None, "job.sh|tee"}


def five_or_ten(totals: Totals) -> int:
    """What a pipeline costs: so little if it is `(other)`."""
    return 5 if OTHER_PLACE in totals.stages else 10


@pytest.mark.parametrize(
    ("ends", "failed", "interrupted", "complete"),
    [
        ((0, 0), {}, 0, True),
        ((EXIT_SEEN, EXIT_SEEN), {}, 0, True),
        ((EXIT_SEEN | SIGPIPE, EXIT_SEEN), {}, 0, True),
        ((EXIT_SEEN | 1 << 8, EXIT_SEEN), {"exit": 1}, 0, False),
        ((EXIT_SEEN | 3 << 8, EXIT_SEEN | SIGKILL), {"signal": 1}, 0, False),
        ((EXIT_SEEN | SIGKILL, EXIT_SEEN | EXIT_OOM | SIGKILL), {"out_of_memory": 1}, 0, False),
        ((EXIT_SEEN | SIGTERM, EXIT_SEEN | 3 << 8), {"exit": 1}, 0, False),
        ((EXIT_SEEN | SIGTERM, EXIT_SEEN), {}, 1, False),
        ((EXIT_SEEN, EXIT_SEEN | 1 << 8), {}, 0, True),
    ],
)
def test_a_run_that_has_ended_counts_by_its_outcome_and_once_by_the_gravest_reason(
    ends: tuple[int, int], failed: dict[str, int], interrupted: int, complete: bool
) -> None:
    """The last case: an exit code that is harmless for the command of this stage."""
    watched = model(harmless={"wc": {1}})
    made = group(end=105.0)
    stages = zip(made.stages, ends, strict=True)
    ended = tuple(replace(stage, exit_status=status) for stage, status in stages)
    watched.update([replace(made, stages=ended)], 107.0)
    (totals,) = watched.totals().values()
    assert totals.failed == dict.fromkeys(FAILURES, 0) | failed
    assert totals.interrupted == interrupted
    assert totals.last_failed_end == dict.fromkeys(failed, 105.0 + UNIX)
    assert totals.last_complete_end == (105.0 + UNIX if complete else None)
    (run,) = watched.runs()
    assert run.complete == complete


def test_past_the_budget_totals_are_folded_and_runs_keep_their_names() -> None:
    watched = model(max_series=15, series_of=five_or_ten)
    watched.update([group(end=105.0)], 107.0)
    watched.update([group(end=115.0, commands=("seq", "sort"))], 117.0)
    totals = {series.pipeline: totals for series, totals in watched.totals().items()}
    assert {name: found.runs for name, found in totals.items()} == {"cat|wc": 1, OTHER: 1}
    assert totals[OTHER].last_run_seconds is None
    assert {run.series.pipeline for run in watched.runs()} == {"cat|wc", "seq|sort"}
    assert watched.series_use() == SeriesUse(15, 15, 1, pytest.approx(2.375, rel=1e-3))


def test_a_resumed_run_weighs_what_it_took_also_before_this_daemon() -> None:
    watched = model(max_series=15, series_of=five_or_ten, resumed=[group()])
    watched.update([group(end=105.0)], 107.0)
    watched.update([group(cpu=0.1, end=115.0, commands=("seq", "sort"))], 117.0)
    counted = {series.pipeline: totals.runs for series, totals in watched.totals().items()}
    assert counted == {"cat|wc": 1, OTHER: 1}


def test_a_run_that_was_compared_is_in_the_totals_and_in_the_budget() -> None:
    def series_of(totals: Totals) -> int:
        return 10 if totals.last_usual_ratio is None else 11

    watched = model(max_series=100, series_of=series_of)
    watched.update([group(end=105.0)], 107.0)
    ((series, _),) = watched.totals().items()
    for ratio, used in ((1.5, 11), (None, 10), (0.5, 11)):
        watched.compared(series, ratio)
        watched.update([], 108.0)
        assert watched.totals()[series].last_usual_ratio == ratio
        assert watched.series_use().used == used


def test_a_run_without_totals_of_its_own_is_not_compared() -> None:
    watched = model(max_series=10, series_of=lambda _: 10)
    watched.update([group(end=105.0)], 107.0)
    watched.compared(Series(pipeline="seq|sort", nested=False, unit="u"), 2.0)
    assert [totals.last_usual_ratio for totals in watched.totals().values()] == [None]


def of_jobs(*values: bytes, end: float = 0) -> Group:
    """A run whose stages have these values of a variable; empty: none."""
    made = group(end=end)
    jobs = [Job(JOB_VARIABLE, value) if value else None for value in values]
    stages = [replace(stage, job=job) for stage, job in zip(made.stages, jobs, strict=True)]
    return replace(made, stages=tuple(stages))


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ((b"", b""), "nightly.service"),
        ((b"one", b"other"), "one.job"),
        ((b"", b"other"), "other.job"),
        ((b"2026", b""), "nightly.service"),
        ((b"2026", b"other"), "other.job"),
    ],
)
def test_the_unit_is_the_first_job_that_has_a_name_or_else_the_cgroup_s(
    values: tuple[bytes, bytes], unit: str
) -> None:
    watched = model()
    watched.update([of_jobs(*values)], 102.0)
    (run,) = watched.runs()
    assert run.series.unit == unit


def test_ten_thousand_jobs_stay_within_the_budget_and_all_are_counted() -> None:
    watched = model(max_series=1000, series_of=lambda _: 10)
    for number in range(10_000):
        letters = bytes(b"ghijklmnop"[int(digit)] for digit in f"{number:04}")
        watched.update([of_jobs(letters, b"", end=105.0 + number)], 107.0 + number)
    totals = watched.totals()
    assert len(totals) <= 1000 // 10
    assert sum(found.runs for found in totals.values()) == 10_000
    assert watched.series_use().used <= 1000


def test_totals_of_a_retired_pipeline_move_into_other_whole() -> None:
    watched = model(max_series=15, series_of=five_or_ten)
    watched.update([group(cpu=1.0, end=105.0)], 107.0)
    before = watched.totals()
    for start in (120.0, 140.0, 160.0):
        heavy = group(end=start + 15.0, commands=("seq", "sort"))
        watched.update([heavy], start + 17.0)
    totals = {series.pipeline: found for series, found in watched.totals().items()}
    assert set(totals) == {"seq|sort", OTHER}
    (retired,) = before.values()
    folded = totals[OTHER]
    assert folded.runs >= retired.runs
    assert folded.run_seconds >= retired.run_seconds
    cpu = sum(stage.states["cpu"] for stage in retired.stages.values())
    assert folded.stages[0, OTHER].states["cpu"] >= cpu > 0


@given(
    grown=st.lists(
        st.tuples(
            st.sampled_from(["alone_ns", "disk_ns", "counted", "readahead", "functions"]),
            st.integers(0, 200),
        ),
        max_size=40,
    )
)
def test_what_is_used_of_the_budget_is_what_is_exported_whatever_begins_to_count(
    grown: list[tuple[str, int]],
) -> None:
    watched = model(max_series=10_000, series_of=series_count, exec_failures=True, pipe_bytes=True)
    values = {
        "alone_ns": [0] * len(LEVELS),
        "disk_ns": [0] * len(LEVELS),
        "counted": [0] * (len(STATES) + len(COUNTERS)),
        "readahead": list(NO_READAHEAD),
        "functions": [0] * sum(FUNCTIONS.values()),
    }
    for sweep, (kind, at) in enumerate(grown):
        values[kind][at % len(values[kind])] += ns(1)
        made = group()
        clock = replace(
            made.clock, alone_ns=tuple(values["alone_ns"]), disk_ns=tuple(values["disk_ns"])
        )
        writer = replace(
            made.stages[0],
            counted=list(values["counted"]),
            readahead=tuple(values["readahead"]),
            functions=tuple(values["functions"]),
        )
        watched.update([replace(made, clock=clock, stages=(writer, made.stages[1]))], 102 + sweep)
        exported = sum(map(series_count, watched.totals().values()))
        assert watched.series_use().used == exported, (kind, at)


def test_cpu_time_is_split_by_ticks_and_adds_up() -> None:
    watched = model()
    watched.update([group(cpu=2.0)], 102.0)
    first = watched.runs()[0].stages[0]
    assert (first.user_seconds, first.system_seconds) == pytest.approx((1.5, 0.5))


@pytest.mark.parametrize(("hooked", "failures"), [(False, None), (True, 0)])
def test_exec_failures_are_unknown_without_their_hook(hooked: bool, failures: int | None) -> None:
    watched = model(exec_failures=hooked)
    watched.update([group()], 102.0)
    (totals,) = watched.totals().values()
    assert totals.stages[1, "cat"].exec_failures == failures


def with_tiers(seen: Group, **changed: object) -> Group:
    """`seen` with figures of the optional tiers."""
    figures = {"functions": (1,) * FUNCTIONS_WORDS, "readahead": (1,) * len(NO_READAHEAD)}
    stages = tuple(replace(stage, **figures | changed) for stage in seen.stages)
    return replace(seen, stages=stages)


TIERS = ["readahead", "functions"]


def test_a_run_that_ends_before_the_optional_hooks_are_attached_is_partial_for_them() -> None:
    watched = model(pending_tiers=TIERS)
    watched.update([group(end=101)], 103)
    watched.coverage.complete(104, TIERS, exec_failures=True, pipe_bytes=True)
    (seen,) = watched.runs()
    assert (seen.partial, seen.partial_tiers) == (False, ("functions", "readahead"))
    assert seen.stages[0].exec_failures is None


def test_a_run_that_began_before_the_optional_hooks_shows_what_they_saw_of_it() -> None:
    watched = model(pending_tiers=TIERS)
    watched.update([group()], 101)
    watched.coverage.complete(102, TIERS, exec_failures=True, pipe_bytes=True)
    watched.update([with_tiers(group(cpu=2.0))], 103)
    (seen,) = watched.runs()
    assert seen.partial_tiers == ("functions", "readahead")
    assert seen.readahead is not None
    (totals,) = watched.totals().values()
    assert (totals.stages[1, "cat"].functions, totals.stages[1, "cat"].readahead) == (None, None)


def test_a_tier_that_is_off_is_not_partial() -> None:
    watched = model(pending_tiers=TIERS)
    watched.update([group()], 101)
    watched.coverage.complete(102, ["readahead"], exec_failures=True, pipe_bytes=True)
    watched.update([with_tiers(group(cpu=2.0), functions=())], 103)
    assert watched.runs()[0].partial_tiers == ("readahead",)


@pytest.mark.parametrize(("began", "partial"), [(100, False), (99, True)])
def test_runs_that_began_later_or_before_the_daemon_are_counted_with_their_tiers(
    began: float, partial: bool
) -> None:
    watched = model(pending_tiers=TIERS)
    watched.coverage.complete(
        100 if not partial else 101, TIERS, exec_failures=True, pipe_bytes=True
    )
    watched.update([with_tiers(group(), partial=partial, start_ns=ns(began))], 103)
    assert watched.runs()[0].partial_tiers == ()
    (totals,) = watched.totals().values()
    assert totals.stages[1, "cat"].functions is not None
    assert totals.stages[1, "cat"].readahead is not None


@pytest.mark.parametrize(
    ("alone", "read_bytes", "cpu", "forks", "counts"),
    [
        (True, 65536, 0.0, 0, True),
        (True, 65535, 0.099, 0, False),
        (True, 65535, 0.1, 0, True),
        (True, 65536, 0.1, 1, False),
        (False, 65536, 0.1, 0, False),
    ],
)
def test_a_program_alone_counts_if_it_was_asked_for_and_reads_or_computes(
    alone: bool, read_bytes: int, cpu: float, forks: int, counts: bool
) -> None:
    record = stage(1, "awk", "read", cpu=cpu, end=102)
    record.alone = alone
    record.counted[len(STATES) + COUNTERS.index("read_bytes")] = read_bytes
    record.counted[len(STATES) + COUNTERS.index("forks")] = forks
    clock = PipelineRecord((0, ns(2), *[0] * (len(LEVELS) - 2)), (0,) * len(LEVELS), ns(100))
    found = model()
    assert found.update([Group(1, clock, (record,))], 110.0) == [record]
    assert [run.pipeline for run in found.runs()] == (["awk"] if counts else [])


# -- what became of runs that ended, and how runs went on


def test_the_time_line_of_a_live_run_adds_up_to_the_run() -> None:
    watched = model()
    for cpu in (0.5, 1.5, 4.0):
        watched.update([group(cpu=cpu)], 101.0 + cpu)
    (run,) = watched.runs()

    points = watched.timeline(run.id)

    assert points is not None
    assert len(points) == 3
    for level in range(len(LEVELS)):
        assert sum(point.levels[level] for point in points) == pytest.approx(run.levels[level])
    for at, stage_run in enumerate(run.stages):
        used = sum(point.stages[at].states.get("cpu", 0.0) for point in points)
        assert used == pytest.approx(stage_run.cpu_seconds)
        assert sum(point.stages[at].read_bytes for point in points) == stage_run.read_bytes
    assert [stage.pid for stage in points[0].stages] == [stage.pid for stage in run.stages]


def test_a_run_that_ended_is_told_once_with_its_time_line() -> None:
    told: list[Finished] = []
    watched = model(on_finished=told.append)
    watched.update([group(cpu=0.5)], 101.0)
    ended = group(cpu=1.5, end=102.0)
    watched.update([ended], 102.01, settle=True)
    watched.update([ended], 105.0)

    (finished,) = told
    run, points = finished.make()

    assert run == watched.runs()[0]
    assert finished.wall_seconds == pytest.approx(run.wall_seconds)
    assert (finished.series, finished.end) == (run.series, run.end)
    assert finished.cpu_seconds == pytest.approx(run.cpu_seconds)
    assert finished.not_overlapped_seconds == pytest.approx(sum(run.levels[:2]))
    assert finished.read_bytes == sum(stage.read_bytes for stage in run.stages)
    assert finished.written_bytes == sum(stage.written_bytes for stage in run.stages)
    assert len(points) == 2
    assert sum(point.end - point.start for point in points) == pytest.approx(run.wall_seconds)


def test_an_unknown_run_has_no_time_line() -> None:
    assert model().timeline("1-1") is None


def test_of_many_runs_only_the_last_ones_keep_their_time_line() -> None:
    told: list[Finished] = []
    watched = model(on_finished=told.append, recent_runs=100)
    for number in range(60):
        ended = group(end=102.0 + number)
        clock = replace(ended.clock, start_ns=ns(100.0 + number))
        watched.update([replace(ended, clock=clock)], 110.0 + number)
    ids = [run.id for run in watched.runs()]

    kept = [run_id for run_id in ids if watched.timeline(run_id) is not None]

    assert kept == ids[:50]
    assert len(told) == 60


# -- resumed


def resumed(**options: object) -> Model:
    """A model that has resumed the run of `group(cpu=3.0)`, unwatched from 104 to 110."""
    known = group(cpu=3.0)
    known = replace(known, stages=tuple(replace(s, partial=True) for s in known.stages))
    options.setdefault("watch", Watched(UNIX, [Gap(ns(104), ns(110), UNIX - 5)]))
    return model(resumed=(known,), **options)


def going_on(cpu: float, end: float = 0, unmet: bool = False) -> Group:
    found = group(cpu=cpu, end=end)
    return replace(found, stages=tuple(replace(s, partial=True, unmet=unmet) for s in found.stages))


def test_what_was_counted_before_is_in_the_run_and_in_no_totals() -> None:
    watched = resumed()
    watched.update([going_on(cpu=3.0)], 110.5)
    (run,) = watched.runs()
    assert [stage.cpu_seconds for stage in run.stages] == [3, 3]
    assert watched.totals() == {}, "it has not grown yet"
    watched.update([going_on(cpu=4.0)], 111.5)
    (totals,) = watched.totals().values()
    assert [stage.states["cpu"] for stage in totals.stages.values()] == [1, 1]
    assert [stage.user_seconds + stage.system_seconds for stage in totals.stages.values()] == [1, 1]
    assert [stage.read_bytes for stage in totals.stages.values()] == [0, 0]
    assert [totals.run_seconds, totals.runs, totals.active] == [pytest.approx(1), 0, 1]


def test_ids_are_in_the_order_of_the_starts_also_if_the_clock_was_not_set() -> None:
    unset, right = model(unix=0.0), model(unix=1.7e9)
    for one in (unset, right):
        one.update([group(cpu=3.0)], 104.0)
    assert unset.runs()[0].id < right.runs()[0].id


def test_a_resumed_run_keeps_its_start_and_id_though_the_clock_was_set() -> None:
    before = model(unix=UNIX - 5)
    before.update([group(cpu=3.0)], 104.0)
    after = resumed()
    after.update([going_on(cpu=4.0)], 111.0)
    (first,), (then,) = before.runs(), after.runs()
    assert (then.id, then.start) == (first.id, first.start)


def test_a_run_keeps_its_id_and_start_however_often_the_clock_is_set() -> None:
    watch = Watched(UNIX, [Gap(ns(104), ns(110), UNIX - 5)])
    watched = resumed(watch=watch)
    seen = set()
    for number in range(300):
        watch.follow(ns(111 + number), UNIX + 3.0 * number)
        watched.update([going_on(cpu=4.0 + number)], 111.5 + number)
        (run,) = watched.runs()
        seen.add((run.id, run.start, run.unwatched_seconds))
    assert seen == {(run.id, UNIX - 5 + 100, 6.0)}


def test_a_run_that_has_ended_keeps_its_time_line_however_often_the_clock_is_set() -> None:
    watch = Watched(UNIX)
    watched = model(watch=watch)
    watched.update([group(end=102.0)], 110.0)
    (run,) = watched.runs()
    for number in range(300):
        watch.follow(ns(111 + number), UNIX + 3.0 * number)
        watched.update([], 111.5 + number)
    assert watched.timeline(run.id) is not None


def test_time_unwatched_is_wall_time_but_none_at_a_level() -> None:
    watched = resumed()
    watched.update([going_on(cpu=4.0)], 111.0)
    (run,) = watched.runs()
    assert run.unwatched_seconds == 6 and run.partial
    assert run.wall_seconds == pytest.approx(sum(run.levels) + 6)
    assert run.cores_used == pytest.approx(run.cpu_seconds / sum(run.levels))


def test_a_resumed_run_is_counted_and_stored_once() -> None:
    stored: list[Finished] = []
    watched = resumed(on_finished=stored.append)
    for now in (111.0, 112.01, 113.0):
        watched.update([going_on(cpu=4.0, end=112.0)] if now > 112 else [going_on(4.0)], now)
    (totals,) = watched.totals().values()
    assert totals.runs == 1 and len(stored) == 1
    assert stored[0].wall_seconds == pytest.approx(totals.last_run_seconds)
    assert stored[0].make()[0].unwatched_seconds == 6


def test_a_run_that_ended_while_nobody_watched_says_so() -> None:
    watched = resumed()
    watched.update([going_on(cpu=3.0, end=104.0, unmet=True)], 110.5)
    (run,) = watched.runs()
    assert run.ended_unwatched and run.unwatched_seconds == 0
    assert run.end == UNIX - 5 + 104


def test_a_run_that_ended_unwatched_waits_for_what_the_tiers_had_counted_of_it() -> None:
    stored: list[Finished] = []
    watched = resumed(on_finished=stored.append, pending_tiers=TIERS)
    over = going_on(cpu=3.0, end=104.0, unmet=True)
    assert watched.update([over], 200.0) == []
    watched.coverage.complete(200.2, TIERS, exec_failures=True, pipe_bytes=True)
    with_figures = with_tiers(over)
    assert watched.update([with_figures], 201.0) == list(with_figures.stages)
    ((run, _),) = (one.make() for one in stored)
    assert run.readahead and run.stages[0].functions
    assert [(series, totals.runs) for series, totals in watched.totals().items()] == [
        (run.series, 1)
    ]


@pytest.mark.parametrize(("tiers", "settle"), [(None, False), ([], False), (TIERS, True)], ids=str)
def test_it_does_not_wait_for_tiers_that_will_not_come(
    tiers: list[str] | None, settle: bool
) -> None:
    stored: list[Finished] = []
    watched = resumed(on_finished=stored.append, pending_tiers=tiers)
    watched.update([going_on(cpu=3.0, end=104.0, unmet=True)], 200.0, settle=settle)
    assert len(stored) == 1


def test_a_run_that_was_seen_from_its_begin_waits_for_no_tier() -> None:
    stored: list[Finished] = []
    watched = model(on_finished=stored.append, pending_tiers=TIERS)
    watched.update([group(end=101)], 103)
    assert len(stored) == 1


def test_a_run_that_an_earlier_daemon_saw_end_and_stored_is_not_counted_again() -> None:
    """It was killed before it saved that the run is no longer live."""
    stored: list[Finished] = []
    asked: list[str] = []

    def is_stored(run: str) -> bool:
        asked.append(run)
        return True

    watched = resumed(on_finished=stored.append, is_stored=is_stored)
    over = going_on(cpu=3.0, end=104.0, unmet=True)
    assert watched.update([over], 110.5) == list(over.stages), "its records are given back"
    before = model(unix=UNIX - 5)
    before.update([group(cpu=3.0)], 104.0)
    assert asked == [before.runs()[0].id]
    assert (stored, watched.runs(), watched.ended_runs) == ([], [], 0)
    assert not any(totals.last_complete_end for totals in watched.totals().values())
    assert watched.unfinished() == []


@pytest.mark.parametrize("stored", [True, False])
def test_a_run_that_ended_just_before_it_was_saved_may_be_stored(stored: bool) -> None:
    """The earlier daemon saved it, then finished it, and was killed before the next save."""
    finished: list[Finished] = []
    watched = resumed(on_finished=finished.append, is_stored=lambda run: stored)
    over = going_on(cpu=3.0, end=103.9)
    assert watched.update([over], 110.5) == list(over.stages)
    assert (len(finished), watched.ended_runs) == ((0, 0) if stored else (1, 1))


def test_a_run_that_ended_unwatched_and_is_not_stored_is_counted() -> None:
    stored: list[Finished] = []
    watched = resumed(on_finished=stored.append)
    watched.update([going_on(cpu=3.0, end=104.0, unmet=True)], 110.5)
    assert len(stored) == 1


def test_nobody_is_asked_for_runs_that_were_seen_to_end() -> None:
    def is_stored(run: str) -> bool:
        raise AssertionError(run)

    watched = resumed(is_stored=is_stored)
    watched.update([going_on(cpu=4.0)], 111.0)
    watched.update([going_on(cpu=4.0, end=112.0)], 114.0)
    assert watched.ended_runs == 1


def test_only_what_is_not_finished_is_left_to_the_next_daemon() -> None:
    watched = model()
    lives = group()
    watched.update([lives], 100.05)
    assert watched.unfinished() == [], "it has only just begun"
    watched.update([lives], 102.0)
    assert watched.unfinished() == [lives]
    watched.update([group(end=103.0)], 110.0)
    assert watched.unfinished() == []


def test_a_run_ends_when_its_last_stage_does() -> None:
    watched = model()
    over = replace(group(end=103.5))
    first, second = over.stages
    over = replace(over, stages=(first, replace(second, end_ns=ns(102.0))))
    watched.update([over], 104.0)
    (run,) = watched.runs()
    assert run.end == UNIX + 103.5


@pytest.mark.parametrize(("now", "shown"), [(100.11, True), (100.09, False)])
def test_a_live_run_is_shown_a_tenth_of_a_second_after_its_start(now: float, shown: bool) -> None:
    watched = model()
    watched.update([group()], now)
    assert bool(watched.runs()) is shown
    assert bool(watched.unfinished()) is shown


@pytest.mark.parametrize(
    ("closed", "now", "finished"),
    [(True, 105.11, 1), (True, 105.09, 0), (False, 106.01, 1), (False, 105.99, 0)],
)
def test_how_long_after_its_end_a_run_is_finished(closed: bool, now: float, finished: int) -> None:
    watched = model()
    watched.update([replace(group(end=105.0), closed=closed)], now)
    assert watched.ended_runs == finished


def test_run_time_of_what_is_folded_is_what_the_run_has_grown() -> None:
    watched = model(max_series=1, series_of=lambda totals: 10)
    watched.update([group(cpu=1.0)], 102.0)
    first = watched.series_use()
    assert (first.budget, first.folded) == (1, 1)
    assert first.heaviest_folded_seconds == pytest.approx(2.375)
    watched.update([group(cpu=3.0)], 104.0)
    assert watched.series_use().heaviest_folded_seconds == pytest.approx(4.375, rel=1e-4)


def test_flows_are_in_the_totals() -> None:
    watched = model()
    watched.update([group()], 102.0)
    (totals,) = watched.totals().values()
    flows = {command: stage.flow for (_, command), stage in totals.stages.items()}
    assert (flows["cat"].file_read, flows["cat"].pipe_out) == (10, 0)
    assert (flows["wc"].pipe_in, flows["wc"].file_read) == (0, 20)


def test_exec_failures_are_known_from_when_their_hook_is_attached() -> None:
    attached = Coverage()
    assert (attached.exec_failures, attached.pipe_bytes) == (False, False)
    attached.complete(103.0, ("functions",), exec_failures=True, pipe_bytes=True)
    assert (attached.exec_failures, attached.pipe_bytes) == (True, True)
    (before,) = {s.start_ns for s in group().stages}
    assert before < ns(103.0)
    assert attached.partial_tiers(group().stages) == ("functions",)
    assert attached.misses_begin_of(group().stages[0])
    assert not attached.misses_begin_of(replace(group().stages[0], start_ns=ns(103.0)))
    assert not attached.misses_begin_of(replace(group().stages[0], partial=True))
    off = Coverage(exec_failures=True, pipe_bytes=True)
    off.complete(103.0, (), exec_failures=False, pipe_bytes=False)
    assert (off.exec_failures, off.pipe_bytes) == (False, False)


def test_bytes_are_no_longer_exact_of_what_lived_when_the_kernel_left_out_events() -> None:
    coverage = Coverage(pipe_bytes=True)
    before = group().stages[0]
    after = replace(before, start_ns=ns(104.0))
    coverage.missed(103.0, 0)
    assert coverage.counts_pipes_of(before)
    coverage.missed(104.0, 5)
    assert not coverage.counts_pipes_of(before) and coverage.counts_pipes_of(after)
    coverage.missed(105.0, 5)
    assert coverage.counts_pipes_of(after), "there were none since"
    coverage.missed(106.0, 6)
    assert not coverage.counts_pipes_of(after)


def test_what_the_kernel_left_out_is_asked_for_once_the_records_are_read() -> None:
    asked: list[str] = []

    def missed_events(ends: tuple[str, ...]) -> dict[str, int]:
        asked.append("missed events")
        assert "anon_pipe_write".endswith(ends) and not "sched_switch".endswith(ends)
        return {"anon_pipe_write": 2, "do_splice": 1}

    def take(*, keep: bool) -> list[Group]:
        asked.append("records")
        return []

    loaded: Any = SimpleNamespace(loader="libbpf", missed_events=missed_events)
    sweep: Any = SimpleNamespace(take=take, free=lambda over: None, close=lambda: None)
    watched = model(pipe_bytes=True)
    with Observer(loaded, sweep, watched, (), Steady(1)) as observer:
        observer.sweep()
    assert asked == ["records", "missed events"]
    now = ns(time.monotonic())
    first = group().stages[0]
    assert not watched.coverage.counts_pipes_of(replace(first, start_ns=0))
    assert watched.coverage.counts_pipes_of(replace(first, start_ns=now))


def test_a_run_that_the_kernel_left_out_writes_of_has_bounds_for_bytes() -> None:
    watched = model(pipe_bytes=True)
    counting = with_tiers(group(), functions=(1,) * FUNCTIONS_WORDS)
    watched.update([counting], 104.0)
    (run,) = watched.runs()
    assert all(stage.flow.exact for stage in run.stages)
    watched.coverage.missed(104.5, 1)
    watched.update([with_tiers(group(cpu=1.5))], 105.0)
    (run,) = watched.runs()
    assert not any(stage.flow.exact for stage in run.stages)


def test_edges_are_in_order_whatever_order_their_pipes_have() -> None:
    def one(index: int, *ends: tuple[int, str]) -> StageRecord:
        made = stage(index, f"s{index}", "write")
        return replace(
            made,
            alias=0 if index == 1 else 1,
            ends=tuple(
                EndRecord(PIPE_KEY.pack(pipe, 13, 0), side, True, True, 0, 0) for pipe, side in ends
            ),
        )

    stages = (
        *(one(1, (50, "write"), (53, "write")), one(2, (50, "read"), (51, "write"))),
        *(one(3, (51, "read"), (53, "read"), (52, "write")), one(4, (52, "read"))),
    )
    watched = model()
    watched.update([replace(group(), stages=stages)], 102.0)
    (run,) = watched.runs()
    assert [tuple(edge) for edge in run.edges] == [(0, 1), (0, 2), (1, 2), (2, 3)]
    assert run.pipeline == "s1|s2|s3|s4"


def test_one_of_two_stages_that_ended_unwatched_leaves_the_end_unknown() -> None:
    watched = model()
    over = group(end=103.5)
    first, second = over.stages
    watched.update([replace(over, stages=(replace(first, unmet=True), second))], 104.0)
    assert watched.runs()[0].ended_unwatched


def test_one_stage_that_began_before_the_hooks_makes_the_run_partial_for_them() -> None:
    first, second = group().stages
    coverage = Coverage()
    coverage.complete(103.0, ("readahead",), exec_failures=False, pipe_bytes=False)
    later = replace(second, start_ns=ns(104.0))
    assert coverage.partial_tiers((first, later)) == ("readahead",)
    assert coverage.partial_tiers((later,)) == ()
    assert not Coverage().misses_begin_of(first)
    pending = Coverage(pending_tiers=("functions",))
    assert pending.partial_tiers((later,)) == ("functions",)


def test_what_was_read_ahead_before_a_restart_is_in_no_totals() -> None:
    def read(pages: int) -> Group:
        counted = (pages, *NO_READAHEAD[1:])
        seen = group()
        return replace(seen, stages=tuple(replace(s, readahead=counted) for s in seen.stages))

    watched = model(resumed=[read(5)])
    watched.update([read(7)], 102.0)
    for totals in watched.totals().values():
        for stage_totals in totals.stages.values():
            assert stage_totals.readahead is not None
            assert stage_totals.readahead.pages["warm"] == 2


def test_a_conversation_has_its_split_of_cpu_time() -> None:
    watched = model()
    watched.update([replace(group(cpu=2.0), conversation=True)], 104.0)
    (talk,) = watched.conversations()
    assert (talk.stages[0].user_seconds, talk.stages[0].system_seconds) == (1.5, 0.5)


def test_calls_from_before_a_restart_are_in_no_totals() -> None:
    def called(writes: int) -> Group:
        counted = (writes, *[0] * (FUNCTIONS_WORDS - 1))
        seen = group()
        return replace(seen, stages=tuple(replace(s, functions=counted) for s in seen.stages))

    watched = model(resumed=[called(5)])
    watched.update([called(7)], 102.0)
    for totals in watched.totals().values():
        for stage_totals in totals.stages.values():
            assert stage_totals.functions is not None
            assert stage_totals.functions.pipe_writes.count == 2


def test_bytes_at_pipes_are_exact_for_stages_that_began_with_their_hook() -> None:
    def flowed(start: float) -> bool:
        watched = model()
        watched.coverage.complete(100.5, ("functions",), exec_failures=False, pipe_bytes=True)
        seen = with_tiers(group(), functions=(1,) * FUNCTIONS_WORDS, start_ns=ns(start))
        watched.update([seen], 103.0)
        (run,) = watched.runs()
        return all(stage.flow.exact for stage in run.stages)

    assert flowed(101.0)
    assert not flowed(100.0)
