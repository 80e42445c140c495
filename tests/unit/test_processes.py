# SPDX-License-Identifier: Apache-2.0
"""A process id is never compared without a start time: in the kernel side's source, in /proc."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from pipelined.records.process import Process
from unit.waiting import wait_until

BPF = Path(__file__).parents[2] / "bpf"

#: A comparison of an id, on either side of the operator.
COMPARED = re.compile(r"(?:pid|tgid)\)? *[!=]= |[!=]= *[\w>.()-]*(?:pid|tgid)\b")
#: Those that are right, by what they say: the two helpers; whether a thread is the main one; ids
#: that are those of live tasks by necessity.
RIGHT = (
    *(
        "a->pid == b->pid && a->start_ns == b->start_ns",
        "process->pid == BPF_CORE_READ(TASK(p), tgid)",
    ),
    *(
        "cpu->pid == p->pid && cpu->start_ns == p->start_time",
        "p->pid == p->tgid",
        "p->tgid == p->pid",
    ),
    *("child->tgid != parent->tgid", "curr->pid == p->pid"),
    *("control->watch_pid != tgid", "control->watch_pid == WATCH_SWEEPER"),
)


def test_the_kernel_side_compares_no_process_id_without_its_start_time() -> None:
    compared = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted(BPF.glob("*.[ch]"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if COMPARED.search(line)
    ]
    assert len(compared) >= len(RIGHT)
    assert [found for found in compared if not any(right in found for right in RIGHT)] == []


def start_of(pid: int | str) -> int:
    """When a process began, by the kernel's word, in nanoseconds of CLOCK_MONOTONIC."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # Between the two clocks another process may run for a while: the difference is then too small.
    suspended = max(
        time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns() for _ in range(5)
    )
    return int(fields[19]) * 10**9 // os.sysconf("SC_CLK_TCK") - suspended


def test_a_process_is_found_in_proc_by_its_start_time() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleep:
        try:
            began = start_of(sleep.pid)
            started = Process(sleep.pid, began)
            assert started.is_at()
            # exec closes what Popen waits for before it sets the command line (begin_new_exec)
            wait_until(started.arguments)
            assert started.arguments() == "sleep 60"
            another = started._replace(start_ns=began - 10**9)
            assert not another.is_at() and another.arguments() is None
            assert not started._replace(start_ns=began + 10**9).is_at()
        finally:
            sleep.kill()
    assert not started.is_at() and started.arguments() is None


@pytest.mark.parametrize(
    ("early", "is_it"),  # how long before its start time a process would have begun, in ticks
    [(-1.0, False), (-0.9, True), (0.0, True), (1.9, True), (2.0, False)],
)
def test_a_process_is_found_though_its_host_was_suspended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: float, is_it: bool
) -> None:
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    suspended = 5_000_000_000
    monkeypatch.setattr(time, "monotonic_ns", lambda: 70_000_000_000)
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: 70_000_000_000 + suspended)
    fields = ["S", *map(str, range(4, 22)), str(60_000_000_000 // tick), "23"]
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(f"7 (a) b) {' '.join(fields)}\n")
    start = 60_000_000_000 - suspended + round(early * tick)
    assert Process(7, start).is_at(tmp_path) is is_it
    assert not Process(8, start).is_at(tmp_path)


def test_a_process_has_the_start_time_of_its_first_thread() -> None:
    assert Process(os.getpid(), start_of("self")).is_at()


@pytest.mark.parametrize("name", [b"caf\xc3", b"\xff) (", b"sort"])
def test_a_process_is_found_whatever_bytes_its_name_has(tmp_path: Path, name: bytes) -> None:
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2]
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_bytes(b"7 (" + name + b")" + fields)
    assert Process(7, start_of("self")).is_at(tmp_path)


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["sort", "x" * 4090], "sort " + "x" * 4090),
        (["sort", "x" * 4091], "sort " + "x" * 4091 + " …"),
        (["awk", "{ print }", "y" * 5000], "awk '{ print }' " + "y" * 4082 + " …"),
        (["sort", "…"], "sort '…'"),
    ],
)
def test_of_a_long_command_line_the_begin_is_kept(
    tmp_path: Path, words: list[str], known: str
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_bytes(Path("/proc/self/stat").read_bytes())
    (tmp_path / "7" / "cmdline").write_bytes("".join(f"{word}\0" for word in words).encode())
    assert Process(7, start_of("self")).arguments(tmp_path) == known
