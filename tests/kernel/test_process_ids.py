# SPDX-License-Identifier: Apache-2.0
"""A process id comes again while what refers to its first owner lives.

On a small host that is so after 32,768 forks.

A stage lives on after its root as long as descendants do. Here one of these descendants gets the
root's id (`again`, of tests/kernel/programs), and must not be taken for it. And a thread that execs
takes the id of the first one of its process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kernel.conftest import WAITS, count, exec_by_a_thread
from pipelined.runs import Exit

if TYPE_CHECKING:
    from kernel.conftest import Observed, Watch

#: The inode of the host's own PID namespace (include/linux/proc_ns.h).
HOST_PID_NAMESPACE = 0xEFFFFFFC

#: The subshell is the root of a stage. It leaves a child behind and ends; the child runs `inner`
#: once the root is gone, then opens the gate that lets the other stage end.
OUTER = """
mkfifo gate
cat gate | (
    echo $BASHPID > root
    ./inner <&0 &
)
wait
"""
INNER = """#!/bin/bash
root=$(<root)
while [ -d /proc/$root ]; do read -rt 0.01 < /dev/zero; done
{then}
echo over > gate
"""
TIMES = 8


def run_inside(watch: Watch, then: str) -> Observed:
    """Run `then` as a descendant of a stage whose root, of process id `$root`, is gone."""
    assert os.stat("/proc/self/ns/pid").st_ino == HOST_PID_NAMESPACE, "see again.c"
    inner = watch.directory / "inner"
    inner.write_text(INNER.format(then=f"for i in {{1..{TIMES}}}; do {then}; done"))
    inner.chmod(0o755)
    observed = watch.run(OUTER)
    assert (observed.returncode, observed.stderr) == (0, "")
    return observed


@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_pipeline_is_counted_whichever_of_its_stages_has_the_id(watch: Watch, which: int) -> None:
    observed = run_inside(watch, f"again $root {which} 'seq 20000' cat 'wc -l' > counted")
    assert count(run.series for run in observed.runs) == {
        ("cat|bash", False): 1,
        ("seq|cat|wc", True): TIMES,
    }
    root = observed.only("cat|bash").stages[1].pid
    for run in observed.runs:
        if run.series.nested:
            assert run.stages[which - 1].pid == root


def test_a_program_with_the_id_does_not_give_the_stage_its_name(watch: Watch) -> None:
    observed = run_inside(watch, "again $root 1 'sleep 0.01'")
    assert [run.pipeline for run in observed.runs] == ["cat|bash"]


def test_a_shell_with_the_id_is_a_child_like_any_other(watch: Watch) -> None:
    observed = run_inside(watch, "again $root 1 'sh -c :'")
    (_, bash) = observed.only("cat|bash").stages
    assert bash.exited_children == bash.forks
    assert bash.children_lifetime_seconds > 0


def test_a_pipe_of_the_stage_is_not_that_of_a_program_with_the_id(watch: Watch) -> None:
    """It has the stage's stdin as its own, and reads it."""
    observed = run_inside(watch, "again $root 1 'timeout 0.02 head -c 1'")
    (_, bash) = observed.only("cat|bash").stages
    assert bash.execs > TIMES
    assert count(run.series for run in observed.runs) == {("cat|bash", False): 1}


def test_a_program_that_another_thread_has_execed_is_followed_to_its_end(watch: Watch) -> None:
    """It takes the id of the process's first thread; as Go's syscall.Exec may do."""
    writer = f"(echo a; {WAITS}; sleep 1; echo b)"
    started = watch.start(f"{writer} | {exec_by_a_thread('cat')} | sort")
    try:
        before = watch.live("bash|cat|sort").stages[1].states["cpu"]
    finally:
        (watch.directory / "go").touch()
    observed = started.finish()
    assert observed.stdout == "a\nb\n"
    run = observed.only("bash|cat|sort")
    assert run.end is not None and run.wall_seconds < 30
    cat = run.stages[1]
    assert cat.states["pipe_empty"] > 0.5
    assert cat.states["cpu"] - before < 0.5
    assert cat.exit == Exit(code=0)
