# SPDX-License-Identifier: Apache-2.0
"""Rules about the processes that a stage starts."""

from __future__ import annotations

from collections.abc import Iterator

from pipelined.analysis.bottleneck import STORM
from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.finding import Evidence, Finding
from pipelined.analysis.rules.rule import Case, Part, is_shell
from pipelined.analysis.xargs import in_place_of_parallel, more_at_a_time, single_arguments
from pipelined.wording import duration

__all__ = ["failed_execs", "fork_storm", "started_share"]

#: The condition on a program that gets many arguments in place of one.
_FOR_MANY = (
    "Only for a CMD that prints the same for many arguments as for each: not wc, sort, jq, ps, "
    "git log, sed 1d"
)
#: What to add where a program would print the name of each file.
_WITHOUT_NAMES = "With grep -h and head -q no file names are printed"

#: Children that live longer than this on average do work of their own (seconds).
SHORT_LIFE = 0.050
#: Children that take no more than this multiple of what starting one takes do little else: many
#: load more libraries than what was measured.
SMALL = 2.5


def fork_storm(case: Case) -> Iterator[Finding]:
    """Many short-lived children: starting them is the work."""
    for part in case.parts:
        exited = int(part.sum(lambda stage: stage.exited_children))
        lived = part.sum(lambda stage: stage.children_lifetime_seconds)
        if exited < STORM or lived / exited > SHORT_LIFE:
            continue
        cpu = part.sum(lambda stage: stage.cpu_seconds)
        if not case.worth(min(cpu, sum(case.run.levels[1:]))):
            continue
        words = case.words(part.indexes[0])
        values = [word.value for word in words.arguments] if words else []
        several = single_arguments(values)[1] != 1
        more = more_at_a_time(words, exited) if words else None
        if words and words.program == "parallel":
            more, several = in_place_of_parallel(words, case.host.cores), True
        new = case.rewritten(part.indexes[0], more)
        yield Finding(
            id="fork-storm",
            severity="warning",
            sentence=f"{part.name} started {exited:,} processes that lived "
            f"{duration(lived / exited)} each; including their start they took {duration(cpu)} of "
            "CPU.",
            advice=f"Try: {_fewer(case, part)}.",
            stages=part.indexes,
            evidence=(
                Evidence("children", exited, "count"),
                Evidence("mean lifetime of a child", lived / exited, "seconds"),
                Evidence("children on CPU", part.sum(lambda s: s.children_cpu_seconds), "seconds"),
                Evidence("waiting for children", part.sum(lambda s: s.states["child"]), "seconds"),
            ),
            likely_seconds=_without_starts(case, part),
            likely_reason="for each process what starting and ending one takes on this host; the "
            "CPU seconds of the stage if its processes do little else",
            gain_seconds=min(case.wall, part.busy_seconds),
            gain_reason="the seconds in which the stage and its children were on CPU or waited for "
            "one",
            # what runs at once ends in any order
            rewrite=case.attempt(new, reordered=several),
        )


def _without_starts(case: Case, part: Part) -> float | None:
    """What goes if nearly all processes do; None if it is not known what starting one takes."""
    costs = case.host.costs
    if costs is None:
        return None
    gone = {}
    for index in part.indexes:
        stage = case.run.stages[index]
        programs = min(stage.execs, stage.forks)
        starting = programs * costs.program_seconds
        starting += (stage.forks - programs) * costs.fork_seconds
        gone[index] = stage.cpu_seconds * started_share(stage.cpu_seconds, starting)
    return saved_if_gone(case, gone)


def started_share(cpu: float, starting: float) -> float:
    """The share of `cpu` seconds that goes if no process is started; to start them takes
    `starting` on this host if they do nothing."""
    return 1.0 if cpu <= SMALL * starting else starting / cpu


def _fewer(case: Case, part: Part) -> str:
    """How the same work is done by fewer processes."""
    if part.command == "find":
        return (
            f"find … -exec CMD {{}} + in place of \\;: one process for many files. {_FOR_MANY}. "
            f"{_WITHOUT_NAMES}"
        )
    if part.command == "xargs":
        return (
            r"more arguments at a time (xargs -n 1000; in place of -I, which takes a whole line, "
            r"xargs -d '\n' -n 1000, or -0 as before). With -P fewer, so that all are busy, and "
            f"only if CMD prints nothing. {_FOR_MANY}. {_WITHOUT_NAMES}"
        )
    if part.command == "parallel":
        words = case.seen(part.indexes[0])
        if words and any(word.value == "--pipe" for word in words.arguments):
            return "larger blocks (parallel --pipe --block 10M)"
        return (
            "xargs -P N -n 1 CMD, if it prints nothing or a line (gzip, md5sum), in any order: "
            "xargs does not keep output apart, but starts a process at a fifth of the CPU. Or "
            f"several arguments at a time (parallel -m). {_FOR_MANY}"
        )
    if not is_shell(part.stages[0]):
        return "more work for each process"
    before = {
        case.run.stages[i].command for index in part.indexes for i in case.graph.before[index]
    }
    if before & {"find", "ls"}:
        return (
            r"xargs -d '\n' CMD (behind -print0, xargs -0 CMD) in place of the loop: one process "
            f"for many files. {_FOR_MANY}"
        )
    return "one awk in place of the loop, or one program that treats all lines"


def failed_execs(case: Case) -> Iterator[Finding]:
    """A program is searched for along PATH again and again."""
    for part in case.parts:
        failed = int(part.sum(lambda stage: stage.exec_failures or 0))
        execs = int(part.sum(lambda stage: stage.execs))
        if failed < STORM or failed < execs:
            continue
        yield Finding(
            id="failed-execs",
            severity="note",
            sentence=f"{failed:,} of {failed + execs:,} execs in {part.name} failed: a program was "
            "searched for in one directory of PATH after another.",
            advice="Try: the program's full path (xargs /usr/bin/gzip), or a shorter PATH.",
            stages=part.indexes,
            evidence=(
                Evidence("failed execs", failed, "count"),
                Evidence("execs", execs, "count"),
            ),
        )
