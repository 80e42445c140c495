# SPDX-License-Identifier: Apache-2.0
"""Rules about the processes that a stage starts."""

from __future__ import annotations

from collections.abc import Iterator

from pipelined.analysis.bottleneck import STORM
from pipelined.analysis.rules.rule import Case, Evidence, Finding
from pipelined.command_names import COMMON_SHELLS
from pipelined.wording import duration

__all__ = ["failed_execs", "fork_storm"]

#: Children that live longer than this on average do work of their own (seconds).
SHORT_LIFE = 0.050


def fork_storm(case: Case) -> Iterator[Finding]:
    """Many short-lived children: starting them is the work."""
    for part in case.parts:
        exited = int(part.sum(lambda stage: stage.exited_children))
        lived = part.sum(lambda stage: stage.children_lifetime_seconds)
        if exited < STORM or lived / exited > SHORT_LIFE:
            continue
        cpu = part.sum(lambda stage: stage.cpu_seconds)
        gain = min(cpu, sum(case.run.levels[1:]))
        if not case.worth(gain):
            continue
        if part.command == "xargs":
            advice = "Try: more arguments at a time (xargs -n 1000, without -I)"
        elif part.command in COMMON_SHELLS:
            advice = "Try: one awk in place of the loop"
        else:
            advice = "Try: more work for each process"
        yield Finding(
            "fork-storm",
            "warning",
            f"{part.name} started {exited:,} processes that lived {duration(lived / exited)} "
            f"each; including their start they took {duration(cpu)} of CPU.",
            f"{advice}, or a few long-lived workers (split -n r/4 --filter CMD, "
            "parallel --pipe CMD).",
            part.indexes,
            (
                Evidence("children", exited, "count"),
                Evidence("mean lifetime of a child", lived / exited, "seconds"),
                Evidence("children on CPU", part.sum(lambda s: s.children_cpu_seconds), "seconds"),
                Evidence("waiting for children", part.sum(lambda s: s.states["child"]), "seconds"),
            ),
            gain,
            "the CPU seconds of the stage and its children, but no more than the time in which "
            "any stage was on CPU",
        )


def failed_execs(case: Case) -> Iterator[Finding]:
    """A program is searched for along PATH again and again."""
    for part in case.parts:
        failed = int(part.sum(lambda stage: stage.exec_failures or 0))
        execs = int(part.sum(lambda stage: stage.execs))
        if failed < STORM or failed < execs:
            continue
        yield Finding(
            "failed-execs",
            "note",
            f"{failed:,} of {failed + execs:,} execs in {part.name} failed: a program was "
            "searched for in one directory of PATH after another.",
            "Try: the program's full path (xargs /usr/bin/gzip), or a shorter PATH.",
            part.indexes,
            (
                Evidence("failed execs", failed, "count"),
                Evidence("execs", execs, "count"),
            ),
        )
