# SPDX-License-Identifier: Apache-2.0
"""Starting, stopping and dying leave nothing attached and no pipeline disturbed."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernel.conftest import PATIENCE
from pipelined.config import Config
from pipelined.errors import UserError
from pipelined.kernel.loader import Loaded
from pipelined.observer import Observer

if TYPE_CHECKING:
    from kernel.conftest import Configure, Watch

_SYS_BPF = {"x86_64": 321, "aarch64": 280}
_BPF_PROG_GET_FD_BY_ID, _BPF_MAP_GET_FD_BY_ID = 13, 14


def exists(command: int, number: int) -> bool:
    """Whether the kernel still has the program or map of this id."""
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = (ctypes.c_uint32 * 16)(number)
    fd = libc.syscall(_SYS_BPF[platform.machine()], command, attributes, ctypes.sizeof(attributes))
    if fd < 0:
        return False
    os.close(fd)
    return True


def held(pid: int, what: str) -> set[int]:
    """Ids of the programs (`prog_id`) or maps (`map_id`) that a process's descriptors hold."""
    found: set[int] = set()
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            text = entry.read_text()
        except OSError:  # closed meanwhile
            continue
        found.update(int(number) for number in re.findall(rf"^{what}:\s*(\d+)$", text, re.M))
    return found


def gone(command: int, numbers: set[int]) -> bool:
    """Whether the kernel has freed them all, a little after their last user has gone."""
    end = time.monotonic() + PATIENCE
    while left := [number for number in numbers if exists(command, number)]:
        if time.monotonic() > end:
            print("left:", left)
            return False
        time.sleep(0.02)
    return True


def test_nothing_is_attached_after_close(configure: Configure) -> None:
    before = held(os.getpid(), "prog_id"), held(os.getpid(), "map_id")
    observer = Observer.open(configure(), own_only=True)
    programs = held(os.getpid(), "prog_id") - before[0]
    maps = held(os.getpid(), "map_id") - before[1]
    assert programs and maps
    observer.close()
    assert (held(os.getpid(), "prog_id"), held(os.getpid(), "map_id")) == before
    assert gone(_BPF_PROG_GET_FD_BY_ID, programs)
    assert gone(_BPF_MAP_GET_FD_BY_ID, maps)


@pytest.mark.undisturbed
def test_closing_takes_less_than_a_second(configure: Configure, watch: Watch) -> None:
    observer = Observer.open(configure(), own_only=True)
    observer.start()
    started = watch.start("for i in {1..20}; do sleep 2 | cat & done; wait")
    time.sleep(0.3)
    began = time.monotonic()
    observer.close()
    took = time.monotonic() - began
    started.kill()
    started.finish()
    assert took < 1


def lasting() -> dict[str, str]:
    """Descriptors that stay open for 0.2 s, with what they are of.

    The observer of the session sweeps meanwhile, and has one more open as long as that takes.
    """

    def now() -> dict[str, str]:
        found = {}
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the one that lists them
                found[path.name] = os.readlink(path)
        return found

    gc.collect()
    stay = now()
    for _ in range(10):
        time.sleep(0.02)
        stay = dict(stay.items() & now().items())
    return stay


def threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())


def test_descriptors_and_threads_are_given_back(configure: Configure) -> None:
    running, before = threads(), lasting()
    while (again := lasting()) != before:  # on a busy host a sweep may take as long
        before = again
    for _ in range(5):
        with Observer.open(configure(), own_only=True) as observer:
            observer.start()
    assert threads() == running
    end = time.monotonic() + PATIENCE
    while (now := lasting()) != before and time.monotonic() < end:
        pass
    assert now == before


def test_closing_twice_is_closing_once(configure: Configure) -> None:
    observer = Observer.open(configure(), own_only=True)
    observer.close()
    observer.close()


def test_it_can_still_be_asked_after_it_was_closed(
    configure: Configure, watch: Watch, lines: Path
) -> None:
    with Observer.open(configure(), own_only=True) as observer:
        watch.run("cat lines | sort | wc -l")
        observer.settle()
    assert [run.pipeline for run in observer.runs()] == ["cat|sort|wc"]
    assert observer.ready() is not None
    observer.sweep()
    observer.settle()
    assert observer.lost() is not None
    assert observer.maps() is not None


def test_a_pipeline_outlives_its_observer_unharmed(
    configure: Configure, watch: Watch, lines: Path
) -> None:
    observer = Observer.open(configure(), own_only=True)
    started = watch.start("{ cat lines; sleep 0.4; cat lines; } | sort | wc -l")
    time.sleep(0.1)
    observer.close()
    observed = started.finish()
    assert (observed.returncode, observed.stdout, observed.stderr) == (0, "4000\n", "")


def test_pipelines_are_counted_before_the_optional_hooks_are_attached(
    configure: Configure, watch: Watch, lines: Path
) -> None:
    with Observer.open(configure(), own_only=True, wait=False) as second:
        observed = watch.run("cat lines | sort | wc -l")
        second.settle()
        mine, other = observed.runs[0], second.runs()[0]
    assert sum(other.levels) == pytest.approx(other.wall_seconds, rel=0.005, abs=0.002)
    assert [(s.pid, s.read_bytes, s.written_bytes) for s in mine.stages] == [
        (s.pid, s.read_bytes, s.written_bytes) for s in other.stages
    ]
    assert other.cpu_seconds == pytest.approx(mine.cpu_seconds, rel=0.05, abs=0.005)


def test_hooks_are_pending_until_they_are_attached(
    configure: Configure, observer: Observer
) -> None:
    with Observer.open(configure(), own_only=True, wait=False) as second:
        before = second.hooks()
        second.attach_optional()
        after = second.hooks()
    assert {hook.tier for hook in before if hook.pending} == {"sched", "functions", "readahead"}
    assert all(hook.attached for hook in before if not hook.pending)
    assert after == observer.hooks()


def test_a_run_that_began_before_the_optional_hooks_is_partial_for_them(
    configure: Configure, watch: Watch, lines: Path
) -> None:
    with Observer.open(configure(), own_only=True, wait=False) as second:
        second.start()
        script = "{ cat lines; until [ -e go ]; do sleep 0.1; done; cat lines; } | wc -l"
        early = watch.start(script)
        watch.live("bash|wc")
        second.attach_optional()
        (watch.directory / "go").touch()
        early.finish()
        watch.run("cat lines | sort | wc -l")
        second.settle()
        begun_early, whole = sorted(second.runs(), key=lambda run: run.start)
        totals = {series.pipeline: seen.stages for series, seen in second.totals().items()}
    tiers = ("functions", "readahead")
    on = tuple(tier for tier in tiers if getattr(whole.stages[0], tier) is not None)
    assert (begun_early.partial_tiers, whole.partial_tiers) == (on, ())
    for tier in on:
        assert {getattr(stage, tier) for stage in totals[begun_early.pipeline].values()} == {None}
        assert None not in [getattr(stage, tier) for stage in totals[whole.pipeline].values()]


def test_a_tier_that_is_demanded_is_not_left_for_later(
    configure: Configure, observer: Observer
) -> None:
    off = [h for h in observer.hooks() if h.tier == "readahead" and not h.attached]
    options = {"readahead": "on", "functions": "off"}
    if off:
        with pytest.raises(UserError, match="--readahead=on"):
            Observer.open(configure(**options), own_only=True, wait=False)
    else:
        with Observer.open(configure(**options), own_only=True, wait=False) as second:
            assert not any(hook.pending for hook in second.hooks())


def test_optional_hooks_that_fail_leave_the_others_attached(
    configure: Configure, watch: Watch, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object) -> None:
        raise OSError("out of luck")

    monkeypatch.setattr(Loaded, "attach_optional", fail)
    with Observer.open(configure(), own_only=True, wait=False) as second:
        second.attach_optional()
        watch.run("cat lines | wc -l")
        second.settle()
        assert [run.pipeline for run in second.runs()] == ["cat|wc"]
        off = [hook for hook in second.hooks() if not hook.attached]
    assert {(hook.pending, hook.reason) for hook in off} == {(False, "OSError; see the log")}


def test_two_observers_see_the_same(configure: Configure, watch: Watch, lines: Path) -> None:
    with Observer.open(configure(), own_only=True) as second:
        observed = watch.run("cat lines | sort | wc -l")
        second.settle()
        mine, other = observed.runs[0], second.runs()[0]
    assert (mine.pipeline, [s.pid for s in mine.stages]) == (
        other.pipeline,
        [s.pid for s in other.stages],
    )


OPENS = """
import os, sys, time
from pipelined.config import Config
from pipelined.observer import Observer
observer = Observer.open(Config(loader=sys.argv[1]), own_only=True)
observer.start()
print("ready", flush=True)
time.sleep(60)
"""


def test_a_killed_observer_leaves_nothing_attached(configure: Configure, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("w") as file:
        process = subprocess.Popen([sys.executable, "-c", OPENS, configure().loader], stdout=file)
    try:
        end = time.monotonic() + 6 * PATIENCE  # bcc compiles first
        while "ready" not in said.read_text():
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.02)
        programs, maps = held(process.pid, "prog_id"), held(process.pid, "map_id")
        assert programs and maps
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert gone(_BPF_PROG_GET_FD_BY_ID, programs)
    assert gone(_BPF_MAP_GET_FD_BY_ID, maps)


def test_a_missing_object_is_said_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    before = held(os.getpid(), "prog_id"), held(os.getpid(), "map_id")
    with pytest.raises(UserError) as caught:
        Observer.open(Config(object=tmp_path / "nothing.bpf.o"), own_only=True)
    assert "\n" not in str(caught.value)
    assert "nothing.bpf.o" in str(caught.value)
    assert (held(os.getpid(), "prog_id"), held(os.getpid(), "map_id")) == before


def test_a_broken_object_is_said_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "broken.bpf.o"
    path.write_bytes(b"\x7fELF" + bytes(200))
    before = held(os.getpid(), "prog_id"), held(os.getpid(), "map_id")
    with pytest.raises(UserError) as caught:
        Observer.open(Config(object=path), own_only=True)
    assert "\n" not in str(caught.value)
    assert (held(os.getpid(), "prog_id"), held(os.getpid(), "map_id")) == before
