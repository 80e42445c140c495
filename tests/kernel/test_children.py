# SPDX-License-Identifier: Apache-2.0
"""What runs inside a stage is counted by name: how many, their CPU time, and the rest added up."""

from __future__ import annotations

import os
import platform
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernel.conftest import exec_by_a_thread
from kernel.test_truth import steal_seconds, stolen_since

if TYPE_CHECKING:
    from kernel.conftest import Watch
    from pipelined.runs import Stage

#: Names that a stage of the kernel side has places for (CHILD_NAMES).
PLACES = 12


def exited(stage: Stage) -> dict[str | None, int]:
    return {child.command: child.exited for child in stage.children}


def check_sums(stage: Stage) -> None:
    """The children add up to what the stage has counted of them, and with its own to the stage."""
    children = stage.children
    assert sum(child.exited for child in children) == stage.exited_children
    cpu = sum(child.cpu_seconds for child in children)
    assert cpu == pytest.approx(stage.children_cpu_seconds, abs=1e-6)
    assert cpu + stage.own_cpu_seconds == pytest.approx(stage.cpu_seconds, abs=1e-6)


def test_each_program_that_a_loop_starts_is_counted_by_name(watch: Watch) -> None:
    loop = "while read n; do date +%s; echo $n | sed s/1/2/; done"
    stage = watch.run(f"seq 40 | {loop} | cat > out").only("seq|bash|cat").stages[1]
    assert exited(stage) == {"date": 40, "sed": 40, "bash": 40}
    check_sums(stage)


def test_children_of_parallel_children_count_in_the_stage(watch: Watch) -> None:
    run = watch.run("seq 30 | xargs -n1 -P2 sh -c 'sort /dev/null; true'").only("seq|xargs")
    stage = run.stages[1]
    assert exited(stage) == {"sh": 30, "sort": 30}
    check_sums(stage)


def test_the_cpu_time_of_a_name_is_what_rusage_says(watch: Watch) -> None:
    (watch.directory / "data").write_bytes(os.urandom(3_000_000))
    before = steal_seconds()
    script = "seq 6 | xargs -n1 -P2 sh -c 'gzip -c data > /dev/null; true'; times > used"
    run = watch.run(script).only("seq|xargs")
    stolen = stolen_since(before)
    # the second line is of the shell's children: seq, xargs, and what they started
    _, children = (watch.directory / "used").read_text().splitlines()
    used = sum(60 * float(m) + float(s) for m, s in re.findall(r"(\d+)m([\d.]+)s", children))
    (gzip,) = (child for child in run.stages[1].children if child.command == "gzip")
    others = sum(stage.cpu_seconds for stage in run.stages) - gzip.cpu_seconds
    assert gzip.exited == 6
    assert used - others - 0.03 - 0.02 * used <= gzip.cpu_seconds <= used + 0.02 * used + stolen
    assert gzip.cpu_seconds / gzip.exited <= gzip.longest_seconds + stolen
    check_sums(run.stages[1])


def test_a_process_ends_once_however_many_threads_end_at_that_moment(watch: Watch) -> None:
    threads = (
        "import os, threading, time\n"
        "for _ in range(24): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "os._exit(0)"
    )
    observed = watch.run(f'(for i in {{1..40}}; do python3 -c "{threads}"; done) | cat')
    stage = observed.only("bash|cat").stages[0]
    assert (stage.forks, stage.exited_children) == (40, 40)


def test_a_process_that_another_thread_has_become_ends_once(watch: Watch) -> None:
    becomes = exec_by_a_thread("true")
    observed = watch.run(f"(for i in {{1..20}}; do {becomes}; done) | cat")
    stage = observed.only("bash|cat").stages[0]
    assert (stage.forks, stage.exited_children) == (20, 20)
    # of the first thread, which ended as python3, there is the CPU time
    assert exited(stage) == {"true": 20, "python3": 0}
    check_sums(stage)


def test_a_process_lives_as_long_as_any_of_its_threads(watch: Watch) -> None:
    number = 93 if platform.machine() == "aarch64" else 60  # exit, of the first thread alone
    text = (
        "import ctypes, os, threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.5), os._exit(0))).start()\n"
        f"ctypes.CDLL(None).syscall({number}, 0)"
    )
    observed = watch.run(f'(/usr/bin/python3 -c "{text}"; true) | cat')
    (child,) = observed.only("bash|cat").stages[0].children
    assert (child.command, child.exited) == ("python3", 1)
    assert child.longest_seconds >= 0.5


def test_names_beyond_the_places_are_added_up(watch: Watch, tmp_path: Path) -> None:
    true = shutil.which("true")
    assert true
    for n in range(PLACES + 5):
        shutil.copy(true, tmp_path / f"prog{n}")
    names = " ".join(f"./prog{n};" for n in range(PLACES + 5))
    run = watch.run(f"seq 3 | while read n; do {names} done | cat > out").only("seq|bash|cat")
    stage = run.stages[1]
    found = exited(stage)
    assert len(found) == 9
    assert found[None] == 3 * (PLACES + 5) - 8 * 3
    check_sums(stage)


def test_a_stage_around_others_has_their_children_too(watch: Watch) -> None:
    script = "seq 2 | while read n; do seq 5 | xargs -n1 sort /dev/null; done | cat > out"
    outer = watch.run(script).only("seq|bash|cat").stages[1]
    assert exited(outer) == {"sort": 10, "xargs": 2, "seq": 2}
    check_sums(outer)


#: xargs sleeps once, on a pipe that nobody has used yet. Its exit alone shows who feeds it.
FEEDS = """
import subprocess, time
xargs = subprocess.Popen(["xargs", "-n", "1", "md5sum"], stdin=subprocess.PIPE)
while "(xargs) S" not in open("/proc/%d/stat" % xargs.pid).read():
    time.sleep(0.05)
time.sleep(0.1)
xargs.communicate(b"lines " * 20)
"""


def test_what_a_child_did_before_it_was_found_to_be_fed_is_its_own_alone(watch: Watch) -> None:
    (watch.directory / "lines").write_bytes(bytes(1_000_000))
    observed = watch.run(f"/usr/bin/python3 -c '{FEEDS}' | cat")
    python, xargs, _ = observed.only("python3|xargs|cat").stages
    assert exited(xargs) == {"md5sum": 20}
    assert exited(python) == {}
    assert (python.forks, python.exited_children, python.execs) == (1, 0, 1)
    assert python.read_bytes < 10_000_000 < xargs.read_bytes
    for stage in (python, xargs):
        check_sums(stage)


def test_a_record_that_is_used_again_begins_with_no_children(watch: Watch) -> None:
    watch.run("seq 20 | while read n; do date; done | cat > out")
    (stage,) = (s for s in watch.run("seq 3 | cat > out").only("seq|cat").stages[1:])
    assert stage.children == ()
