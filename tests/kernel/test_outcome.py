# SPDX-License-Identifier: Apache-2.0
"""How stages end, against what their shell says of them; and what a run's outcome is."""

from __future__ import annotations

import os
import pty
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from kernel.conftest import PATIENCE
from pipelined.kernel import hooks
from pipelined.observer import Observer
from pipelined.runs import Exit, Outcome

if TYPE_CHECKING:
    from kernel.conftest import Configure, Watch
    from pipelined.runs import Stage

#: Ends a process, not its first thread, from another thread.
THREAD = "import os, threading; threading.Thread(target=lambda: os._exit({})).start(); input()"

SIGNALS = ("KILL", "SEGV", "ABRT", "TERM", "INT", "HUP", "USR1", "ALRM", "QUIT")


#: A stage that leaves its process id, and the wait for that.
WAITS = "bash -c 'echo $$ >pid; exec sleep 60'"
STARTED = "until [ -s pid ]; do sleep 0.05; done"


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
    "seed",
    [
        pytest.param(0, marks=pytest.mark.oldest_kernel),
        *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 5)),
    ],
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
        with_swap = "memory.memsw.limit_in_bytes" if root == version1 else "memory.swap.max"
        if (group / with_swap).exists():  # else the host has none, or does not count it
            (group / with_swap).write_text("40000000" if root == version1 else "0")
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
            Outcome("failed", (1,)),
            id="stops-itself",
        ),
        pytest.param("timeout 0.3 yes | cat >/dev/null", Outcome("failed", (0,)), id="timed-out"),
        pytest.param(
            "timeout --preserve-status 0.3 yes | cat >/dev/null",
            Outcome("failed", (0,)),
            id="timed-out-with-its-status",
        ),
        pytest.param(
            f"{WAITS} | bash -c '{STARTED}; kill $(cat pid)'",
            Outcome("failed", (0,)),
            id="stopped-by-another-stage",
        ),
        pytest.param(
            f"{WAITS} | {{ until [ -s pid ]; do :; done; read -r p <pid; kill -HUP $p; }}",
            Outcome("failed", (0,)),
            id="stopped-by-a-subshell-that-forks-nothing",
        ),
        pytest.param(
            "bash -c 'sleep 60 & kill $!; wait $!' | cat",
            Outcome("failed", (0,)),
            id="stops-its-own-child",
        ),
        pytest.param(
            f"{WAITS} | cat & {STARTED}; kill $(cat pid); wait",
            Outcome("interrupted", (0,)),
            id="stopped-by-the-shell-around-it",
        ),
        pytest.param(  # what a shell starts with & ignores SIGINT
            f"{WAITS} | bash -c 'until [ -e go ]; do sleep 0.05; done; kill $(cat pid)' &"
            f" {STARTED}; kill -INT $(cat pid); touch go; wait",
            Outcome("failed", (0,)),
            id="stopped-by-another-stage-after-one-that-it-ignored",
        ),
    ],
)
def test_the_outcome_of_a_run(watch: Watch, script: str, outcome: Outcome) -> None:
    assert [run.outcome for run in watch.run(script).runs if not run.nested] == [outcome]


#: Asks a program that fails, as GNU parallel asks `tput` where there is no terminal; its reader
#: sleeps before the answer. Then it passes on what it is given.
ASKING = """#!/usr/bin/perl
my $answer = `sleep 0.3; echo 80; exit 2`;
print while <STDIN>;
"""


@pytest.mark.parametrize(
    ("name", "signature", "outcome"),
    [
        ("parallel", "seq|parallel|wc", Outcome("succeeded")),
        ("parallel.pl", "seq|sh|parallel.pl|wc", Outcome("failed", (1,))),
    ],
)
def test_what_parallel_asks_first_is_no_stage(
    watch: Watch, name: str, signature: str, outcome: Outcome
) -> None:
    script = watch.directory / name
    script.write_text(ASKING)
    script.chmod(0o755)
    (run,) = watch.run(f"seq 9 | ./{name} | wc -l").runs
    assert (run.pipeline, run.outcome) == (signature, outcome)


@pytest.mark.oldest_kernel
def test_how_a_stage_ends_is_known_if_the_kernel_leaves_out_its_exit(
    configure: Configure, watch: Watch
) -> None:
    others = {name: hook for name, hook in hooks.REQUIRED.items() if name != "on_exit"}
    with (
        patch.dict(hooks.REQUIRED, others, clear=True),  # puts them back in their order
        Observer.open(configure(), own_only=True) as second,
    ):
        second.start()
        watch.run("seq 9 | sh -c 'cat; exit 3' | sh -c 'cat; kill -KILL $$' | (cat; exit 4)")
        second.settle()
        (run,) = second.runs()
    ends = [shell_status(stage) for stage in run.stages]
    assert (ends, run.outcome) == ([0, 3, 137, 4], Outcome("failed", (1, 2, 3)))


def when_there(path: Path) -> str:
    """The content of a file, once it has one."""
    deadline = time.monotonic() + PATIENCE
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.02)
    return path.read_text()


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGTERM"])
def test_a_stage_that_is_stopped_from_outside_was_interrupted(watch: Watch, name: str) -> None:
    started = watch.start(f"{WAITS} | cat")
    os.kill(int(when_there(watch.directory / "pid")), signal.Signals[name])
    (run,) = started.finish().runs
    assert (run.stages[0].exit, run.outcome) == (Exit(signal=name), Outcome("interrupted", (0,)))


def test_ctrl_c_interrupts_a_run(watch: Watch) -> None:
    master, terminal = pty.openpty()
    try:
        # the first terminal that a session's leader opens is the one that controls it
        started = watch.start(f"exec <{os.ttyname(terminal)}; sleep 60 | sleep 61")
        watch.live("sleep|sleep")
        os.write(master, b"\x03")
        (run,) = started.finish().runs
    finally:
        os.close(master)
        os.close(terminal)
    assert [stage.exit for stage in run.stages] == [Exit(signal="SIGINT")] * 2
    assert run.outcome == Outcome("interrupted", (0, 1))


def test_a_stage_that_was_stopped_from_outside_passes_that_on(watch: Watch) -> None:
    """Its trap stops another stage, which has nobody else to stop it."""
    trap = 'sleep 60 & trap "kill $(cat pid) $!; exit 143" TERM; echo $$ >trapped; wait'
    started = watch.start(f"{WAITS} | bash -c '{STARTED}; {trap}'")
    os.kill(int(when_there(watch.directory / "trapped")), signal.SIGTERM)
    (run,) = started.finish().runs
    assert run.outcome == Outcome("interrupted", (0, 1))


def test_for_a_nested_run_the_stage_around_it_is_outside(watch: Watch) -> None:
    sleeps = "(echo $BASHPID >pid; exec sleep 60)"
    inner = f"set -o pipefail; {sleeps} | cat & {STARTED}; kill $(cat pid); wait $!"
    observed = watch.run(f"bash -c '{inner}' | cat")
    nested, outer = observed.only("sleep|cat"), observed.only("bash|cat")
    assert (outer.outcome, nested.outcome) == (
        Outcome("failed", (0,)),
        Outcome("interrupted", (0,)),
    )
