# SPDX-License-Identifier: Apache-2.0
"""How stages end, against what their shell says of them; and what a run's outcome is."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelined.runs import Exit, Outcome

if TYPE_CHECKING:
    from kernel.conftest import Watch
    from pipelined.runs import Stage

#: Ends a process, not its first thread, from another thread.
THREAD = "import os, threading; threading.Thread(target=lambda: os._exit({})).start(); input()"

SIGNALS = ("KILL", "SEGV", "ABRT", "TERM", "INT", "HUP", "USR1", "ALRM", "QUIT")


def command(chosen: random.Random) -> str:
    """A command that reads its input to the end, and then ends in some way."""
    code, signal_name = chosen.choice((0, 0, 1, 2, 3, 42, 126, 255)), chosen.choice(SIGNALS)
    return chosen.choice(
        (
            f"sh -c 'cat >/dev/null; exit {code}'",
            f"(cat >/dev/null; exit {code})",
            f"{{ read -r line; exit {code}; }}",
            f"bash -c 'cat >/dev/null; kill -{signal_name} $$'",
            f"sh -c 'exec sh -c \"cat >/dev/null; exit {code}\"'",
            f"nice -n 5 sh -c 'cat >/dev/null; exit {code}'",
            f"env A=1 nice timeout 60 sh -c 'cat >/dev/null; exit {code}'",
            f"perl -e '@x = <STDIN>; exit {code}'",
            f"perl -e '@x = <STDIN>; kill {signal_name}, $$; sleep 9'",
            f"(cat >/dev/null; sh -c 'kill -{signal_name} $$'; exit {code})",
            f"(cat >/dev/null & wait; exit {code})",
            "grep nothing",
            "cat",
            f"xargs -I_ sh -c 'exit {code}'",
            f"xargs -I_ sh -c 'kill -{signal_name} $$'",
            "xargs no-such-command",
            "(cat >/dev/null; no-such-command)",
            f'python3 -c "{THREAD.format(code)}"',
        )
    )


def shell_status(stage: Stage) -> int | None:
    """What a shell has in PIPESTATUS of it."""
    ended = stage.exit
    if ended is None:
        return None
    return ended.code if ended.signal is None else 128 + signal.Signals[ended.signal]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 5))]
)
def test_each_stage_ends_as_its_shell_says(watch: Watch, seed: int) -> None:
    """Fifty pipelines that are made up: 500 with both loaders."""
    chosen = random.Random(seed)
    pipelines = [
        " | ".join(["seq 3", *(command(chosen) for _ in range(chosen.randint(1, 3)))])
        for _ in range(50)
    ]
    script = "\n".join(
        f"{one} 2>/dev/null >/dev/null; echo ${{PIPESTATUS[@]}} >> statuses" for one in pipelines
    )
    observed = watch.run(f"ulimit -c 0\n{script}\nexit 0", timeout=120)
    expected = [
        [int(word) for word in line.split()]
        for line in (watch.directory / "statuses").read_text().splitlines()
    ]
    assert len(expected) == len(pipelines)
    runs = sorted(observed.runs, key=lambda run: run.start)
    found = [[shell_status(stage) for stage in run.stages] for run in runs if not run.nested]
    assert found == expected


@pytest.mark.parametrize("limit", ["0", "unlimited"])
def test_a_core_dump_is_said(watch: Watch, limit: str) -> None:
    script = f"ulimit -c {limit}; seq 3 | perl -e '@x = <STDIN>; kill SEGV, $$; sleep 9'"
    observed = watch.run(script)
    dumped = "core dumped" in observed.stderr
    assert dumped is (limit == "unlimited")
    assert observed.runs[0].stages[1].exit == Exit(signal="SIGSEGV", core_dumped=dumped)


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A cgroup with 40 MB of memory, of either version."""
    version1 = Path("/sys/fs/cgroup/memory")
    root = version1 if version1.is_dir() else Path("/sys/fs/cgroup")
    if root != version1:
        (root / "cgroup.subtree_control").write_text("+memory")
    group = root / f"pipelined-test-{os.getpid()}"
    group.mkdir()
    try:
        limit = "memory.limit_in_bytes" if root == version1 else "memory.max"
        (group / limit).write_text("40000000")
        yield group
    finally:
        group.rmdir()


def test_a_stage_that_is_killed_when_memory_has_run_out(watch: Watch, small_memory: Path) -> None:
    """And one that is killed in the same cgroup, by somebody else, is not."""
    enter = f"echo $$ > {small_memory}/cgroup.procs"
    fill = "$x = q(a) x 200_000_000; sleep 9"
    observed = watch.run(
        f"seq 3 | (exec sh -c '{enter}; exec perl -e \"@x = <STDIN>; \\{fill}\"')"
        f" | (exec sh -c '{enter}; cat; kill -9 $$')"
    )
    (run,) = observed.runs
    counted = "memory.oom_control" if "memory" in small_memory.parts else "memory.events"
    assert "oom_kill 1" in (small_memory / counted).read_text().splitlines()
    assert [stage.exit for stage in run.stages] == [
        Exit(code=0),
        Exit(signal="SIGKILL", out_of_memory=True),
        Exit(signal="SIGKILL"),
    ]
    assert run.outcome == Outcome("failed", (1, 2))


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        pytest.param("seq 9 | cat | wc -l", Outcome("succeeded"), id="succeeded"),
        pytest.param("seq 9 | sh -c 'cat; exit 3' | wc -l", Outcome("failed", (1,)), id="failed"),
        pytest.param("seq 9 | perl -e 'kill 9, $$' | wc -l", Outcome("failed", (1,)), id="killed"),
        pytest.param("yes | head -n 1", Outcome("succeeded"), id="reader-was-done"),
        pytest.param("(yes; exit $?) | head -n 1", Outcome("succeeded"), id="in-a-subshell"),
        pytest.param("seq 9 | grep nothing | wc -l", Outcome("succeeded"), id="no-match"),
        pytest.param("seq 9 | grep -E '(' | wc -l", Outcome("failed", (1,)), id="grep-fails"),
        pytest.param(
            "seq 9 | sh -c 'cat; kill -TERM $$' | wc -l",
            Outcome("interrupted", (1,)),
            id="interrupted",
        ),
        pytest.param("timeout 0.3 yes | cat >f", Outcome("failed", (0,)), id="timed-out"),
        pytest.param(
            "timeout --preserve-status 0.3 yes | cat >f",
            Outcome("interrupted", (0,)),
            id="timed-out-with-its-status",
        ),
    ],
)
def test_the_outcome_of_a_run(watch: Watch, script: str, outcome: Outcome) -> None:
    assert [run.outcome for run in watch.run(script).runs if not run.nested] == [outcome]
