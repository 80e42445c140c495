# SPDX-License-Identifier: Apache-2.0
"""The accounts of a host's CPUs, read from made-up folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelined.model.cpu_accounts import CpuAccounts
from pipelined.model.surroundings import Lived, Reading, surroundings
from pipelined.runs import OtherPipeline, Surroundings

TICK = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A procfs without processes, of a host that has mounted nothing."""
    path = tmp_path / "proc"
    (path / "self").mkdir(parents=True)
    (path / "self/mounts").write_text("proc /proc proc rw 0 0\n")
    return path


def mounted(proc: Path, *mounts: str) -> CpuAccounts:
    """Accounts of a host with these file systems: type, folder and options."""
    root = proc.parent
    lines = []
    for mount in mounts:
        kind, folder, options = mount.split()
        (root / folder).mkdir(parents=True, exist_ok=True)
        lines.append(f"{kind} {root / folder} {kind} {options} 0 0\n")
    (proc / "self/mounts").write_text("".join(lines))
    return CpuAccounts(proc)


def process(proc: Path, pid: int, *groups: str) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text("".join(f"{group}\n" for group in groups))


def account(folder: Path, **values: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.stat").write_text("".join(f"{k} {v}\n" for k, v in values.items()))


def test_work_is_all_that_is_neither_idle_nor_waiting_for_disk(proc: Path) -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice
    (proc / "stat").write_text("cpu  100 20 30 4000 500 6 7 8 90 9\ncpu0 1 1 1\n")
    assert CpuAccounts(proc).busy() == pytest.approx((100 + 20 + 30 + 6 + 7 + 8) / TICK)


def test_a_host_that_shows_nothing_has_no_accounts(proc: Path) -> None:
    accounts = CpuAccounts(proc)
    assert accounts.busy() is None
    assert accounts.group(1) is None
    (proc / "self/mounts").unlink()
    assert CpuAccounts(proc).group(1) is None


def test_limits_of_cgroup_v2_are_those_of_the_process_and_of_all_around_it(proc: Path) -> None:
    accounts = mounted(proc, "cgroup2 cgroup rw,nosuid")
    process(proc, 71, "0::/jobs.slice/nightly.service")
    root = proc.parent / "cgroup"
    account(root, usage_usec=9, throttled_usec=77_000_000)  # the root has no limit
    account(root / "jobs.slice", usage_usec=9, throttled_usec=1_500_000)
    account(root / "jobs.slice/nightly.service", usage_usec=9, throttled_usec=250_000)
    group = accounts.group(71)
    assert group == root / "jobs.slice/nightly.service"
    assert accounts.throttled(group) == pytest.approx(1.75)


def test_with_cgroup_v1_the_cpu_controller_counts(proc: Path) -> None:
    accounts = mounted(
        proc, "cgroup cg/memory rw,memory", "cgroup cg/cpu rw,cpu,cpuacct", "cgroup2 cg/v2 rw"
    )
    process(proc, 71, "4:memory:/other", "1:cpu,cpuacct:/limited", "0::/unified")
    account(proc.parent / "cg/cpu/limited", nr_throttled=3, throttled_time=2_500_000_000)
    group = accounts.group(71)
    assert group == proc.parent / "cg/cpu/limited"
    assert accounts.throttled(group) == pytest.approx(2.5)


def test_a_cgroup_without_the_controller_has_no_account(proc: Path) -> None:
    accounts = mounted(proc, "cgroup2 cgroup rw")
    process(proc, 71, "0::/jobs")
    account(proc.parent / "cgroup/jobs", usage_usec=9)
    group = accounts.group(71)
    assert group is not None and accounts.throttled(group) is None


def test_a_process_that_is_hidden_is_found_by_its_cgroup(proc: Path) -> None:
    mounted(proc, "cgroup2 cgroup rw")
    accounts = CpuAccounts(proc, {42: "/jobs"}.get)
    assert accounts.group(71, 42) == proc.parent / "cgroup/jobs"
    assert accounts.group(71, 43) is None
    assert accounts.group(71) is None


# -- what surrounds a run


RUN = Lived("sort", start=100.0, end=104.0, cpu_seconds=2.0, queue_seconds=1.0)


def test_others_are_all_work_but_that_of_the_run() -> None:
    before, after = Reading(99.0, 1000.0), Reading(105.0, 1008.0)
    assert surroundings(RUN, before, after, ()) == Surroundings(1.0, None)


def test_what_is_not_known_of_both_ends_is_not_known() -> None:
    unknown = Surroundings(None, None)
    assert surroundings(RUN, Reading(99.0, None), Reading(105.0, 8.0), ()) == unknown
    assert surroundings(RUN, Reading(99.0, 1.0), Reading(99.0, 8.0), ()) == unknown
    group = Path("/x")
    before, after = Reading(99.0, None, group, 7.0), Reading(105.0, None, group, None)
    assert surroundings(RUN, before, after, ()).throttled_seconds is None
    after = Reading(105.0, None, group, 9.5)
    assert surroundings(RUN, before, after, ()).throttled_seconds == pytest.approx(2.5)


def test_the_busiest_pipelines_of_the_same_time_are_named() -> None:
    others = [
        Lived("before", 90.0, 100.0, 9.0, 0.0),
        Lived("half", 102.0, 106.0, 4.0, 0.0),
        Lived("twice", 100.0, 102.0, 1.0, 0.0),
        Lived("twice", 102.0, 104.0, 2.0, 0.0),
        Lived("idle", 0.0, 1000.0, 1.0, 0.0),
    ]
    readings = Reading(99.0, 0.0), Reading(105.0, 0.0)
    assert surroundings(RUN, *readings, others).pipelines == (
        OtherPipeline("twice", 3.0),
        OtherPipeline("half", 2.0),
    )
    assert surroundings(RUN._replace(queue_seconds=0.1), *readings, others).pipelines == ()
