# SPDX-License-Identifier: Apache-2.0
"""A process for each line (`xargs`), or a few long-lived ones (`split --filter`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelined.analysis.machine import Host

from .alternatives import alternate, column, explain, finding_ids, print_table

if TYPE_CHECKING:
    from kernel.conftest import Watch

LINES = 2000

COMMANDS = {
    "xargs -I{}": "xargs -P4 -I{} sh -c 'echo $(({} * {}))'",
    "xargs -n50": "xargs -P4 -n50 sh -c 'for n; do echo $((n * n)); done' sh",
    "split": "split -n r/4 --filter 'while read n; do echo $((n * n)); done'",
}

COLUMNS = (
    column("forks", lambda trial: sum(stage.forks for stage in trial.run.stages)),
    column("execs", lambda trial: sum(stage.execs for stage in trial.run.stages)),
    column("CPU", lambda trial: trial.run.cpu_seconds),
    column("system", lambda trial: sum(stage.system_seconds for stage in trial.run.stages)),
    column("children's CPU", lambda trial: sum(s.children_cpu_seconds for s in trial.run.stages)),
    column("run queue", lambda trial: sum(s.states["runqueue"] for s in trial.run.stages)),
    column("wait for child", lambda trial: sum(s.states["child"] for s in trial.run.stages)),
)


def test_a_few_workers_replace_a_process_for_each_line(watch: Watch, host: Host) -> None:
    commands = {
        name: f"seq {LINES} | {command} > squares; awk '{{ n += $1 }} END {{ print n }}' squares"
        for name, command in COMMANDS.items()
    }
    tried = alternate(watch, commands)
    print_table(f"2. {LINES:,} lines squared by a shell, 4 at a time", tried, COLUMNS)
    explain(tried, host)
    one_each, batches, workers = tried.values()
    for trial in one_each:
        xargs = trial.run.stages[1]
        assert (xargs.forks, xargs.execs, xargs.exited_children) == (LINES, LINES + 1, LINES)
        assert "fork-storm" in finding_ids(trial, host)
    for trial in batches:
        xargs = trial.run.stages[1]
        assert (xargs.forks, xargs.execs, xargs.exited_children) == (40, 41, 40)
    for trial in workers:
        assert [stage.forks for stage in trial.run.stages] == [0, 4, 0, 0, 0, 0]
        assert "fork-storm" not in finding_ids(trial, host)
    # the cheapest trial with the processes exceeds the dearest of the others
    least = min(trial.run.cpu_seconds for trial in one_each)
    assert least > max(trial.run.cpu_seconds for trial in (*batches, *workers))
    assert len({trial.stdout for trials in tried.values() for trial in trials}) == 1
