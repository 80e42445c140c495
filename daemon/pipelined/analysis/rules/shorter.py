# SPDX-License-Identifier: Apache-2.0
"""Rules about stages that another stage could do as well."""

from __future__ import annotations

from collections.abc import Iterator

from pipelined.analysis.bottleneck import NOTABLE, share
from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.finding import Evidence, Finding
from pipelined.analysis.rewriting import counted_by_grep, joined
from pipelined.analysis.rules.rule import (
    BULK,
    SED_BY_LINE,
    Case,
    bytes_in,
    bytes_out,
    ratio,
    with_waits,
)
from pipelined.analysis.sentence import stage_label
from pipelined.command_names import AWKS, GREPS
from pipelined.runs import Run, Stage
from pipelined.wording import data_size, duration, listing

__all__ = ["grep_count", "join_stages"]

#: Stages whose CPU seconds are less than this share of the run, on several CPUs, are light.
LIGHT = 0.5
#: A grep that passes on less than this keeps work from awk.
PASSES = 0.5


def join_stages(case: Case) -> Iterator[Finding]:
    """Stages that one process could do wait for the CPUs that they take from each other."""
    run, wall = case.run, case.wall
    queued = sum(stage.states["runqueue"] for stage in run.stages)
    longest = max(share(stage, "runqueue", wall) for stage in run.stages)
    # with a CPU for each, two stages are faster than one
    if (run.cpu_seconds + queued) / wall <= case.host.cores or longest < NOTABLE:
        return
    for chain in filter(None, (_light(case, chain) for chain in _chains(case))):
        seconds = [run.stages[index].cpu_seconds for index in chain]
        gain = min(sum(seconds) - max(seconds), wall - max(s.cpu_seconds for s in run.stages))
        if not case.worth(gain):
            continue
        new = joined(case.pipeline, chain) if case.pipeline else None
        if case.pipeline and not new:
            continue  # the one would do something else
        if run.stages[chain[0]].command == "sed":
            sure = "" if new else f", if {SED_BY_LINE}"
            advice = f"one sed for all (sed -e A -e B is sed A | sed B{sure})"
        else:
            advice = "awk '/PATTERN/ { … }', without grep"
            if not new:
                advice += (
                    ", if grep has one input and no options, PATTERN is letters and digits, and "
                    "awk has neither NR nor getline"
                )
        yield Finding(
            id="join-stages",
            severity="advice",
            sentence=f"{listing([stage_label(run, (index,)) for index in chain])} took "
            f"{duration(sum(seconds))} of CPU, and the pipeline could use "
            f"{(run.cpu_seconds + queued) / wall:.1f} CPUs where there are {case.host.cores}.",
            advice=f"Try: {advice}.",
            stages=chain,
            evidence=(
                Evidence("on CPU", sum(seconds), "seconds"),
                Evidence("waiting for a free CPU", queued, "seconds"),
                Evidence("CPUs", case.host.cores, "count"),
            ),
            likely_seconds=saved_if_gone(
                case, {at: run.stages[at].system_seconds for at in _passing_on(run, chain)}
            ),
            likely_reason="their CPU seconds in the kernel, where they copy, but for those of the "
            "busiest one",
            gain_seconds=gain,
            gain_reason="their CPU seconds but for the busiest one's, and no more than the run "
            "less the CPU seconds of its busiest stage",
            rewrite=case.attempt(new),
        )


def _passing_on(run: Run, chain: tuple[int, ...]) -> list[int]:
    """The stages of a chain that another one takes over."""
    busiest = max(chain, key=lambda index: run.stages[index].cpu_seconds)
    return [index for index in chain if index != busiest]


def _light(case: Case, chain: tuple[int, ...]) -> tuple[int, ...]:
    """The longest part of a chain that is no new bottleneck as one stage; empty if there is none.

    Even if the one takes as much CPU as all of them, it must not take most of the run.
    """
    most = case.wall * (1.0 if case.host.cores == 1 else LIGHT)
    for count in range(len(chain), 1, -1):
        for first in range(len(chain) - count + 1):
            part = chain[first : first + count]
            if sum(case.run.stages[index].cpu_seconds for index in part) <= most:
                return part
    return ()


def _chains(case: Case) -> Iterator[tuple[int, ...]]:
    """Stages in a row that could be one: several sed, or grep and awk."""
    stages, after, before = case.run.stages, case.graph.after, case.graph.before
    following = {
        index: next(iter(readers))
        for index, readers in enumerate(after)
        if len(readers) == 1 and before[next(iter(readers))] == {index}
    }
    for index, stage in enumerate(stages):
        reader = following.get(index)
        if stage.command == "sed" and not any(stages[at].command == "sed" for at in before[index]):
            chain = [index]
            while (reader := following.get(chain[-1])) is not None:
                if stages[reader].command != "sed":
                    break
                chain.append(reader)
            if len(chain) > 1:
                yield tuple(chain)
        elif stage.command in GREPS and reader is not None and _feeds(stage, stages[reader]):
            yield (index, reader)


def _feeds(grep: Stage, reader: Stage) -> bool:
    """Whether what grep passes on is most of its input, and awk reads it."""
    return reader.command in AWKS and ratio(bytes_out(grep), bytes_in(grep)) >= PASSES


def grep_count(case: Case) -> Iterator[Finding]:
    """``wc`` counts the lines that ``grep`` could count itself."""
    run = case.run
    for index, readers in enumerate(case.graph.after):
        if run.stages[index].command not in GREPS or len(readers) != 1:
            continue
        (reader,) = readers
        grep, wc = run.stages[index], run.stages[reader]
        gain = min(case.wall, wc.cpu_seconds + grep.system_seconds)
        printing = grep.user_seconds * min(1.0, ratio(bytes_out(grep), bytes_in(grep)))
        alone = case.graph.before[reader] == {index} and not case.graph.after[reader]
        if wc.command != "wc" or not alone or bytes_in(wc) < BULK or not case.worth(gain):
            continue
        new = counted_by_grep(case.pipeline, index) if case.pipeline else None
        pair = case.seen_pair(index, reader)
        if (case.pipeline and not new) or (pair and not counted_by_grep(pair, 0)):
            continue  # it counts what grep does not
        sure = (
            ""
            if new
            else ", if wc counts lines (wc -l) and grep prints whole matching lines of one input, "
            "no others"
        )
        yield Finding(
            id="grep-count",
            severity="advice",
            sentence=f"{stage_label(run, (index,))} wrote {data_size(bytes_in(wc))} for "
            f"{stage_label(run, (reader,))} to count: {duration(gain)} of CPU.",
            advice=f"Try: grep -c in place of grep | wc -l{sure}. If it counts 0 it exits with 1, "
            "which set -e takes for a failure.",
            stages=(index, reader),
            evidence=(
                Evidence("wc on CPU", wc.cpu_seconds, "seconds"),
                Evidence("grep in the kernel", grep.system_seconds, "seconds"),
            ),
            likely_seconds=saved_if_gone(
                case, {reader: wc.cpu_seconds, index: grep.system_seconds + printing / 2}
            ),
            likely_reason="the CPU seconds of wc, and those of grep in the kernel, where it "
            "writes, with half of those in user mode for the share of its input that it writes",
            gain_seconds=min(
                case.wall,
                with_waits(wc, wc.cpu_seconds) + with_waits(grep, grep.system_seconds + printing),
            ),
            gain_reason="the CPU seconds of wc, and those of grep in the kernel, where it writes, "
            "and in user mode for the share of its input that it writes, with the waits for a CPU "
            "among them",
            rewrite=case.attempt(new),
        )
