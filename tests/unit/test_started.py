# SPDX-License-Identifier: Apache-2.0
"""Runs by the process that started them: who that is, and what is kept for it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipelined.errors import UserError
from pipelined.model.started import KEPT, KEPT_IN_ALL, KEPT_SECONDS, Started
from pipelined.model.tracker import Model
from pipelined.records.stage import COUNTERS, Group
from pipelined.runs import STATES
from pipelined.starter import STARTER_NAME, Starter, host_mark
from unit.test_tracker import group, model

ALICE, BOB = Starter(4711, 100), Starter(4712, 100)
#: The same number as Alice's, given again.
LATER = Starter(4711, 200)
#: User ids.
ROOT, AN, BEN, CY = 0, 1001, 1002, 1003


# -- who it is


def test_it_is_known_by_its_id_its_start_and_the_boot_of_its_host() -> None:
    assert Starter.parse(ALICE.address("boot-id")) == ("boot-id", ALICE)


@pytest.mark.parametrize(
    "text", ["", "4711", "boot:4711", "boot:4711:x", ":1:2", "b:1:2:3", "b:-1:2"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not BOOT_ID:PID:START_TICKS"):
        Starter.parse(text)


def test_a_host_is_known_by_its_machine_id_else_by_its_name(tmp_path: Path) -> None:
    def mark(name: str, machine_id: str | None) -> str:
        file = tmp_path / "etc/machine-id"
        file.parent.mkdir(exist_ok=True)
        file.unlink(missing_ok=True)
        if machine_id is not None:
            file.write_text(machine_id)
        return host_mark(name, tmp_path)

    assert mark("db1", "4a2a\n") == mark("renamed", "4a2a\n") != mark("db1", "4a2b\n")
    assert "4a2a" not in mark("db1", "4a2a")
    assert mark("db1", None) == mark("db1", "") != mark("db2", None)


def test_its_start_is_counted_in_clock_ticks() -> None:
    tick = 10**9 // os.sysconf("SC_CLK_TCK")
    assert Starter.of(7, 3 * tick + tick - 1) == Starter(7, 3)


def test_a_process_becomes_one_by_its_name() -> None:
    script = (
        "from pipelined.starter import Starter\n"
        "starter = Starter.become()\n"
        "print(starter.pid, starter.start_ticks, open('/proc/self/comm').read().strip(), sep=',')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    pid, ticks, name = done.stdout.strip().split(",")
    assert name == STARTER_NAME
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert int(pid) > 0
    assert 0 < int(ticks) / os.sysconf("SC_CLK_TCK") <= uptime


@pytest.mark.parametrize("kind", ["pid", "time"])
def test_a_process_in_a_namespace_of_its_own_cannot_be_one(kind: str, tmp_path: Path) -> None:
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns" / kind).touch()  # has another inode number than the host's
    with pytest.raises(UserError, match=f"in a {kind} namespace of its own"):
        Starter.become(tmp_path)


# -- what is kept


def test_each_starter_has_its_own_runs_in_the_order_of_their_end() -> None:
    started: Started[str] = Started()
    for starter, run in ((ALICE, "a1"), (BOB, "b1"), (ALICE, "a2"), (LATER, "l1")):
        started.add({starter: ROOT}, run, 1.0)
    assert started.after(ALICE, 0) == ["a1", "a2"]
    assert started.after(BOB, 0) == ["b1"]
    assert started.after(LATER, 0) == ["l1"]
    assert [started.count(starter) for starter in (ALICE, BOB, LATER)] == [2, 1, 1]


def test_those_that_it_has_are_not_returned_again() -> None:
    started: Started[str] = Started()
    for run in ("1", "2", "3"):
        started.add({ALICE: ROOT}, run, 1.0)
    assert started.after(ALICE, 2) == ["3"]


def test_only_the_last_ones_are_kept_but_all_are_counted() -> None:
    started: Started[int] = Started()
    for run in range(KEPT + 10):
        started.add({ALICE: ROOT}, run, 1.0)
    assert started.after(ALICE, 0) == list(range(10, KEPT + 10))
    assert started.count(ALICE) == KEPT + 10


def test_a_user_has_no_more_with_many_starters() -> None:
    started: Started[int] = Started()
    starters = [Starter(pid, 1) for pid in range(1, 101)]
    for run in range(2 * KEPT):
        started.add({starters[run % len(starters)]: AN}, run, 1.0)
    kept = sorted(run for starter in starters for run in started.after(starter, 0))
    assert kept == [*range(KEPT, 2 * KEPT)]


def test_what_one_user_starts_takes_nothing_from_another() -> None:
    started: Started[str] = Started()
    started.add({ALICE: AN}, "a1", 1.0)
    for pid in range(5000, 5000 + 3 * KEPT):
        started.add({Starter(pid, 1): BEN}, "b", 1.0)
    assert started.after(ALICE, 0) == ["a1"]
    assert started.count(ALICE) == 1


def test_all_users_have_a_bound_and_the_one_with_most_gives_way() -> None:
    started: Started[str] = Started()
    few = Starter(4713, 100)
    for _ in range(10):
        started.add({few: CY}, "few", 1.0)
    for _ in range(KEPT):
        for starter, uid in ((ALICE, AN), (BOB, BEN)):
            started.add({starter: uid}, "many", 1.0)
    sizes = [len(started.after(starter, 0)) for starter in (few, ALICE, BOB)]
    assert sizes == [10, KEPT_IN_ALL // 2 - 5, KEPT_IN_ALL // 2 - 5]


def test_thousands_of_users_have_the_same_bound() -> None:
    started: Started[str] = Started()
    starters = [Starter(pid, 1) for pid in range(1, 2 * KEPT_IN_ALL)]
    for starter in starters:
        started.add({starter: 100_000 + starter.pid}, "run", 1.0)
    assert sum(len(started.after(starter, 0)) for starter in starters) <= KEPT_IN_ALL
    started.forget(2.0 + KEPT_SECONDS)
    assert sum(started.count(starter) for starter in starters) <= KEPT_IN_ALL


def test_a_starter_that_changes_its_user_goes_on_being_counted() -> None:
    started: Started[str] = Started()
    started.add({ALICE: ROOT}, "1", 1.0)
    started.add({ALICE: AN}, "2", 1.0)
    assert started.count(ALICE) == 2
    assert started.after(ALICE, 1) == ["2"]


def test_they_are_not_kept_for_long() -> None:
    started: Started[str] = Started()
    started.add({ALICE: ROOT}, "old", 1.0)
    started.add({ALICE: ROOT}, "new", 31.0)
    started.forget(2.0 + KEPT_SECONDS)
    assert started.after(ALICE, 0) == ["new"]
    assert started.count(ALICE) == 2


# -- in the model


def by(starter: Starter | None, found: Group, only: int | None = None) -> Group:
    """The group, of which all stages (or the one of this index) have the starter."""
    stages = [
        replace(stage, starter=starter) if only in (None, stage.index) else stage
        for stage in found.stages
    ]
    return replace(found, stages=tuple(stages))


def another(found: Group, number: int) -> Group:
    """The same of other processes, started so many milliseconds later."""
    stages = [
        replace(
            stage,
            index=stage.index + 2 * number,
            alias=stage.alias and stage.alias + 2 * number,
            root=stage.root._replace(pid=stage.root.pid + 2 * number),
        )
        for stage in found.stages
    ]
    clock = replace(found.clock, start_ns=found.clock.start_ns + number * 1_000_000)
    return replace(found, root=1 + 2 * number, clock=clock, stages=tuple(stages))


def commands(watched: Model, starter: Starter) -> list[str]:
    return [run.pipeline for run in watched.started(starter, 0).runs]


def test_a_live_run_is_that_of_its_starter() -> None:
    watched = model()
    watched.update([by(ALICE, group())], 101)
    assert commands(watched, ALICE) == ["cat|wc"]
    assert commands(watched, BOB) == []
    assert watched.started(ALICE, 0).finished == 0


def test_of_many_live_runs_those_that_began_first_are_listed() -> None:
    watched = model()
    watched.update([another(by(ALICE, group()), n) for n in range(KEPT + 3)], 110)
    listed = watched.started(ALICE, 0).runs
    assert sorted(run.start for run in listed) == sorted(run.start for run in watched.runs())[:KEPT]


def test_a_finished_run_is_kept_for_its_starter_even_if_none_is_kept_for_all() -> None:
    watched = model(recent_runs=0)
    watched.update([by(ALICE, group(end=105.0))], 107)
    watched.update([], 108)
    assert watched.runs() == []
    assert commands(watched, ALICE) == ["cat|wc"]
    assert watched.started(ALICE, 1) == (1, [])


def test_a_run_of_nobody_is_kept_for_nobody() -> None:
    watched = model()
    watched.update([group(end=105.0)], 107)
    assert commands(watched, ALICE) == []


def test_a_run_with_stages_of_two_is_that_of_both() -> None:
    watched = model()
    parts = by(BOB, by(ALICE, group(end=105.0), only=1), only=2)
    watched.update([parts], 107)
    assert commands(watched, ALICE) == commands(watched, BOB) == ["cat|wc"]


def test_a_program_alone_is_a_run_though_its_starter_is_in_a_pipeline() -> None:
    """As in `pipelined run 'sort a' | head`."""
    watched, around = model(), group()
    inner = replace(group().stages[0], index=3, outer=1, alone=True, ends=(), command="sort")
    inner.counted[len(STATES) + COUNTERS.index("read_bytes")] = 1 << 20
    for starter, seen in ((None, []), (ALICE, ["sort"])):
        alone = Group(3, around.clock, (replace(inner, starter=starter),))
        watched.update([around, alone], 101)
        assert [run.pipeline for run in watched.runs() if run.nested] == seen


def test_the_runs_of_one_starter_are_finished_at_once_when_it_asks() -> None:
    watched = model()
    ended = replace(by(ALICE, group(end=101.0)), closed=False)
    watched.update([ended], 101.01, settle=BOB)
    assert watched.started(ALICE, 0).finished == 0
    watched.update([ended], 101.02, settle=ALICE)
    assert watched.started(ALICE, 0).finished == 1
    watched.update([ended], 103)
    (totals,) = watched.totals().values()
    assert totals.runs == 1


def test_a_starter_is_counted_on_after_its_runs_are_no_longer_kept() -> None:
    started: Started[str] = Started()
    started.add({ALICE: AN}, "a1", 1.0)
    started.forget(1.0 + KEPT_SECONDS)
    assert started.after(ALICE, 0) == ["a1"]
    started.forget(1.1 + KEPT_SECONDS)
    assert (started.after(ALICE, 0), started.count(ALICE)) == ([], 1)
