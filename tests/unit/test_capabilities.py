# SPDX-License-Identifier: Apache-2.0
"""Giving up capabilities: for good, in every thread, and for every program started later.

What is given up cannot be had back, so each test tries in a process of its own. Without root
there is less to give up; the claims are the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest

from pipelined.daemon import capabilities
from pipelined.daemon.capabilities import CAP_BPF, KEPT, permitted, started_without

#: Prints the five sets, and no_new_privs, of a thread (`status`) and of a program (`grep`).
LOOK = """
import json, re, subprocess, sys, threading
from pipelined.daemon import capabilities

def sets(text):
    found = dict(re.findall(r"^(Cap\\w+|NoNewPrivs):\\s*(\\w+)$", text, re.M))
    return {name: int(value, 16) for name, value in found.items()}

def status():
    return sets(open("/proc/thread-self/status").read())

def program():
    return sets(subprocess.check_output(["cat", "/proc/self/status"], text=True))
"""


def look(code: str) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", f"{LOOK}\n{code}"], capture_output=True, text=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found


def held(sets: dict[str, int]) -> dict[str, int]:
    return {name: sets[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}


def only(kept: int) -> dict[str, int]:
    return {"CapInh": 0, "CapPrm": kept, "CapEff": kept, "CapAmb": 0}


def test_a_thread_keeps_what_is_listed_and_no_more() -> None:
    after = look("capabilities.drop(); print(json.dumps(status()))")
    assert held(after) == only(permitted() & KEPT)


def test_a_thread_that_it_starts_has_no_more_either() -> None:
    after = look(
        "capabilities.drop()\n"
        "thread = threading.Thread(target=lambda: print(json.dumps(status())))\n"
        "thread.start(); thread.join()"
    )
    assert held(after) == only(permitted() & KEPT)


def test_a_program_that_it_starts_gains_nothing() -> None:
    after = look("capabilities.drop(); print(json.dumps(program()))")
    assert after["NoNewPrivs"] == 1
    assert after["CapEff"] & ~KEPT == 0


def test_giving_up_twice_is_giving_up_once() -> None:
    after = look("capabilities.drop(); capabilities.drop(); print(json.dumps(status()))")
    assert held(after) == only(permitted() & KEPT)


def test_cap_bpf_stays_where_maps_cannot_be_read_without_it() -> None:
    after = look(
        "capabilities.map_access_needs_bpf = lambda: True\n"
        "capabilities.drop(); print(json.dumps(status()))"
    )
    assert held(after) == only(permitted() & (KEPT | 1 << CAP_BPF))


def test_what_is_started_without_has_given_up_and_the_caller_has_not() -> None:
    code = (
        "before = status(); seen = []\n"
        "capabilities.started_without(lambda: seen.append(status()))()\n"
        "assert status() == before\n"
        "print(json.dumps(seen[0]))"
    )
    assert held(look(code)) == only(permitted() & KEPT)


def test_what_fails_there_is_raised_here() -> None:
    gave_up: list[str] = []

    def start() -> None:
        raise ValueError(threading.current_thread().name)

    with pytest.raises(ValueError, match="start"):
        started_without(start, lambda: gave_up.append("all"))()
    assert gave_up == ["all"]


def test_nothing_is_started_where_giving_up_fails() -> None:
    started: list[str] = []

    def fail() -> None:
        raise OSError("capset")

    with pytest.raises(OSError, match="capset"):
        started_without(lambda: started.append("it"), fail)()
    assert started == []


@pytest.mark.parametrize(("code", "needs"), [(1, True), (9, False)])
def test_the_kernel_is_asked_whether_maps_need_cap_bpf(
    monkeypatch: pytest.MonkeyPatch, code: int, needs: bool
) -> None:
    """EPERM where it refuses the call, EBADF where it only misses the descriptor."""

    class Library:
        def bpf_map_lookup_elem(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(capabilities.ctypes, "CDLL", lambda *_, **__: Library())
    monkeypatch.setattr(capabilities.ctypes, "get_errno", lambda: code)
    assert capabilities.map_access_needs_bpf() is needs
