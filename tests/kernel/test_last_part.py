# SPDX-License-Identifier: Apache-2.0
"""A shell that runs the last part of a pipeline itself is a stage of it, for as long as that lasts.

zsh and fish do so, and bash with lastpipe. Debian's ksh does too, but joins by sockets, not pipes.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from kernel.conftest import GAP, count
from kernel.steal import steal_seconds, stolen_since

if TYPE_CHECKING:
    from kernel.conftest import Observed, Watch


@dataclass(frozen=True)
class Shell:
    name: str
    command: tuple[str, ...]
    """Runs the script that is its last argument."""
    mark: str
    """Prints the Unix time, and how many nanoseconds the shell's thread was on CPU."""
    loop: str = "while read -r x; do {}; done"
    """Does something with each line of stdin."""
    keep: str = "y=$x"
    """Something to do, without a child."""
    idle: str = "read -r x < gate; true"
    """What `Watch.drive` waits for."""
    substitution: str = "x=$({})"
    compute: str = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done"
    """Keeps the shell itself on CPU, some 0.07 s."""
    sleeps_in_read: bool = True
    """While it takes up a substitution's output: else it is not seen as an endpoint."""


READ_CPU = "read -r cpu rest < /proc/$$/schedstat"
SHELLS = [
    Shell(
        "zsh",
        ("zsh", "-f", "-c"),
        f"zmodload zsh/datetime; {READ_CPU}; print -r -- $EPOCHREALTIME $cpu",
    ),
    Shell(
        "bash",
        ("bash", "-O", "lastpipe", "+m", "-c"),
        f"{READ_CPU}; echo $EPOCHREALTIME $cpu",
    ),
    Shell(
        "fish",
        ("fish", "--no-config", "-c"),
        "read -l cpu rest < /proc/$fish_pid/schedstat; echo (date +%s.%N) $cpu",
        loop="while read -l x; {}; end",
        keep="set y $x",
        idle="read -l x < gate; true",
        substitution="set x ({})",
        compute="for i in (string split , (string repeat -n 10000 1,)); test $i = 2; end",
        sleeps_in_read=False,
    ),
]
over_shells = pytest.mark.parametrize(
    "shell",
    [
        pytest.param(shell, id=shell.name, marks=[pytest.mark.thorough] * (shell.name != "bash"))
        for shell in SHELLS
    ],
)

#: Late enough for the shell to sleep when it reads: if all data is there by then, it is not seen.
SORT, TAC = (f"sh -c 'sleep 0.2; exec {command}'" for command in ("sort -R", "tac"))

#: Seconds that a shell may take to start a child and wait for it.
FORK = 0.01

#: The loop sleeps before it reads two lines; what writes them lives while it works on them, and is
#: patient.
SLOW = "sh -c 'sleep 0.2; echo 1; echo 2; exec sleep 1.5'"


def drive(watch: Watch, shell: Shell, *script: str) -> Observed:
    """Run a script, after which the shell lives on until all runs are over."""
    before = watch.counted()
    observed = watch.drive(*shell.command, "\n".join([*script, shell.idle]))
    assert (observed.returncode, observed.stderr) == (0, "")
    counted = watch.counted()
    counted.subtract(before)
    assert +counted == count(run.series for run in observed.runs)
    return observed


@over_shells
def test_the_shell_is_the_last_stage(shell: Shell, watch: Watch) -> None:
    loop = shell.loop.format(shell.keep)
    observed = drive(watch, shell, f"seq 20000 | {SORT} | {loop}")
    assert count(run.series for run in observed.runs) == {(f"seq|sort|{shell.name}", False): 1}
    assert [stage.position for stage in observed.runs[0].stages] == [1, 2, 3]


@pytest.mark.real_time
@pytest.mark.undisturbed
@over_shells
def test_what_the_shell_does_in_the_last_part_is_in_the_run_and_nothing_else(
    shell: Shell, watch: Watch
) -> None:
    pipeline = f"{SLOW} | {shell.loop.format(shell.compute)}"
    # The end is noticed when the shell leaves its CPU: if nobody else wants it, when it sleeps.
    leave = "sleep 0.01"
    script = (shell.compute, shell.mark, pipeline, shell.mark, leave, shell.compute, shell.mark)
    stolen_before = steal_seconds()
    observed = drive(watch, shell, *script)
    stolen = stolen_since(stolen_before)
    run = observed.only(f"sleep|{shell.name}")
    began, ended, last = [list(map(float, line.split())) for line in observed.stdout.splitlines()]
    assert began[0] - GAP <= run.start
    assert run.wall_seconds >= 1.7
    assert (run.end or 0) <= ended[0] + FORK
    before, inside, after = (
        1e-9 * ns for ns in (began[1], ended[1] - began[1], last[1] - ended[1])
    )
    assert min(before, after) > 2 * FORK
    # of what is inside, the shell starts the other part first; it may start `date` before it leaves
    assert 0.7 * inside <= run.stages[1].cpu_seconds <= 1.1 * inside + FORK + GAP + stolen


@over_shells
def test_two_pipelines_in_turn_are_two_runs(shell: Shell, watch: Watch) -> None:
    loop = shell.loop.format(shell.keep)
    observed = drive(watch, shell, f"seq 2000 | {SORT} | {loop}", f"seq 2000 | {TAC} | {loop}")
    runs = sorted(observed.runs, key=lambda run: run.start)
    names = [f"seq|sort|{shell.name}", f"seq|tac|{shell.name}"]
    assert [(run.pipeline, run.series.nested) for run in runs] == [(name, False) for name in names]
    assert all((a.end or 0) <= b.start + GAP for a, b in pairwise(runs))


@over_shells
def test_the_shell_is_no_stage_of_a_substitution(shell: Shell, watch: Watch) -> None:
    substitution = shell.substitution.format("sleep 0.3; seq 10 | sort")
    loop = shell.loop.format(shell.keep)
    observed = drive(watch, shell, substitution, f"seq 2000 | {TAC} | {loop}", substitution)
    assert count(run.series for run in observed.runs) == {
        ("seq|sort", False): 2,
        (f"seq|tac|{shell.name}", False): 1,
    }
    if shell.sleeps_in_read:
        ends = {run.endpoints for run in observed.runs if run.pipeline == "seq|sort"}
        assert {(end.command, end.side) for all_ends in ends for end in all_ends} == {
            (shell.name, "read")
        }


@over_shells
def test_pipelines_that_the_last_part_starts_are_nested_and_later_ones_are_not(
    shell: Shell, watch: Watch
) -> None:
    inner = "seq 5 | uniq | wc -l"
    observed = drive(watch, shell, f"{SLOW} | {shell.loop.format(inner)}", "sleep 0.05", inner)
    outer = observed.only(f"sleep|{shell.name}")
    rest = sorted((run for run in observed.runs if run is not outer), key=lambda run: run.start)
    assert [(run.pipeline, run.parent) for run in rest] == [
        ("seq|uniq|wc", outer.id),
        ("seq|uniq|wc", outer.id),
        ("seq|uniq|wc", None),
    ]


def test_a_last_part_that_is_a_program_is_the_last_stage_by_its_own_name(watch: Watch) -> None:
    """bash with lastpipe forks it, and holds the pipe at its own descriptor 0 meanwhile."""
    shell = next(shell for shell in SHELLS if shell.name == "bash")
    observed = drive(watch, shell, "seq 10 | sort | uniq", "seq 10 | tac > out")
    assert count(run.series for run in observed.runs) == {
        ("seq|sort|uniq", False): 1,
        ("seq|tac", False): 1,
    }


def test_every_shell_of_the_table_is_here() -> None:
    assert [shell.name for shell in SHELLS if not shutil.which(shell.name)] == []
