# SPDX-License-Identifier: Apache-2.0
"""The accounts of a host's CPUs, read from made-up folders."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pipelined.model.cpu_accounts import CpuAccounts
from pipelined.records.process import Process

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


def process(proc: Path, pid: int, *groups: str) -> Process:
    """A process that has just started, in these cgroups."""
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text("".join(f"{group}\n" for group in groups))
    started = time.monotonic_ns()
    # Between the two clocks another process may run for a while: the difference is then too small.
    suspended = max(
        time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns() for _ in range(5)
    )
    ticks = (started + suspended) * TICK // 10**9
    fields = ["0"] * 18 + [str(ticks)]
    (proc / str(pid) / "stat").write_text(f"{pid} (a (b) c) S {' '.join(fields)} 0\n")
    return Process(pid, started)


NOBODY = Process(1, 0)


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
    assert accounts.group(NOBODY, 1) is None
    (proc / "self/mounts").unlink()
    assert CpuAccounts(proc).group(NOBODY, 1) is None


def test_limits_of_cgroup_v2_are_those_of_the_process_and_of_all_around_it(proc: Path) -> None:
    accounts = mounted(proc, "cgroup2 cgroup rw,nosuid")
    started = process(proc, 71, "0::/jobs.slice/nightly.service")
    root = proc.parent / "cgroup"
    account(root, usage_usec=9, throttled_usec=77_000_000)  # the root has no limit
    account(root / "jobs.slice", usage_usec=9, throttled_usec=1_500_000)
    account(root / "jobs.slice/nightly.service", usage_usec=9, throttled_usec=250_000)
    group = accounts.group(started, 0)
    assert group == root / "jobs.slice/nightly.service"
    assert accounts.throttled(group) == pytest.approx(1.75)


def test_a_cgroup_that_has_ended_has_no_account_though_those_around_it_have(proc: Path) -> None:
    accounts = mounted(proc, "cgroup2 cgroup rw")
    slice_ = proc.parent / "cgroup/jobs.slice"
    account(slice_, usage_usec=9, throttled_usec=1_500_000)
    assert accounts.throttled(slice_) == pytest.approx(1.5)
    assert accounts.throttled(slice_ / "nightly.service") is None


def test_with_cgroup_v1_the_cpu_controller_counts(proc: Path) -> None:
    accounts = mounted(
        proc, "cgroup cg/memory rw,memory", "cgroup cg/cpu rw,cpu,cpuacct", "cgroup2 cg/v2 rw"
    )
    started = process(proc, 71, "4:memory:/other", "1:cpu,cpuacct:/limited", "0::/unified")
    account(proc.parent / "cg/cpu/limited", nr_throttled=3, throttled_time=2_500_000_000)
    group = accounts.group(started, 0)
    assert group == proc.parent / "cg/cpu/limited"
    assert accounts.throttled(group) == pytest.approx(2.5)


def test_a_cgroup_without_the_controller_has_no_account(proc: Path) -> None:
    accounts = mounted(proc, "cgroup2 cgroup rw")
    started = process(proc, 71, "0::/jobs")
    account(proc.parent / "cgroup/jobs", usage_usec=9)
    group = accounts.group(started, 0)
    assert group is not None and accounts.throttled(group) is None


def test_a_process_that_is_hidden_is_found_by_its_cgroup(proc: Path) -> None:
    mounted(proc, "cgroup2 cgroup rw")
    accounts = CpuAccounts(proc, {42: "/jobs"}.get)
    assert accounts.group(Process(71, 5), 42) == proc.parent / "cgroup/jobs"
    assert accounts.group(Process(71, 5), 43) is None


def test_a_process_that_has_the_id_of_an_earlier_one_is_not_taken_for_it(proc: Path) -> None:
    mounted(proc, "cgroup2 cgroup rw")
    accounts = CpuAccounts(proc, {42: "/jobs"}.get)
    now = process(proc, 71, "0::/of_another")
    assert accounts.group(now, 42) == proc.parent / "cgroup/of_another"
    earlier = now._replace(start_ns=now.start_ns - 10**9)
    assert accounts.group(earlier, 42) == proc.parent / "cgroup/jobs"


def test_the_daemon_finds_its_own_cgroup(proc: Path) -> None:
    accounts = mounted(proc, "cgroup2 cgroup rw")
    assert accounts.own_group() is None
    (proc / "self/cgroup").write_text("0::/here\n")
    assert accounts.own_group() == proc.parent / "cgroup/here"
