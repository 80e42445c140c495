# SPDX-License-Identifier: Apache-2.0
"""Rules about stages that could end before they do."""

from __future__ import annotations

from collections.abc import Iterator

from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.finding import Evidence, Finding
from pipelined.analysis.last_lines import Ended, ended, passes_on_at_once
from pipelined.analysis.repeatable import is_repeatable
from pipelined.analysis.rules.rule import BULK, Case, bytes_in, bytes_out, ratio
from pipelined.analysis.sentence import stage_label
from pipelined.runs import Stage
from pipelined.wording import data_size, duration, percent

__all__ = ["reads_on"]

#: A line that was not printed counts as this long, at least (bytes): most are shorter.
LINE = 200


def reads_on(case: Case) -> Iterator[Finding]:
    """A stage reads on behind the last line that it prints, and those before it write on."""
    if case.pipeline is None:
        return
    commands, stages = case.pipeline.commands, case.run.stages
    for index, stage in enumerate(stages):
        found = ended(case.pipeline, index)
        if found is None or bytes_in(stage) < BULK or not bytes_out(stage):
            continue
        if not all(map(is_repeatable, commands[:index])):
            continue  # what ends early may have something else to do
        first = index
        while first and passes_on_at_once(commands[first - 1]):
            first -= 1
        spared = max(0.0, 1 - ratio(_needed(found, stage), bytes_in(stage)))
        ending = range(first, index + 1)
        cpu = {at: spared * stages[at].cpu_seconds for at in ending}
        slept = {at: spared * stages[at].states["disk"] for at in ending}
        likely = saved_if_gone(case, cpu, slept)
        if not case.worth(likely):
            continue
        name = stage_label(case.run, (index,))
        yield Finding(
            id="reads-on",
            severity="advice",
            sentence=f"{name} prints nothing behind line {found.line:,}, and read "
            f"{data_size(bytes_in(stage))}; with what feeds it, that took "
            f"{duration(sum(stages[at].cpu_seconds for at in ending))} of CPU.",
            advice=f"Try: {found.new.commands[index].text}, which does not read on behind line "
            f"{found.line:,}. What writes to it is then ended by SIGPIPE.",
            stages=tuple(ending),
            evidence=(
                Evidence("read", bytes_in(stage), "bytes"),
                Evidence("last line that it prints", found.line, "count"),
                Evidence("on CPU", sum(stages[at].cpu_seconds for at in ending), "seconds"),
            ),
            likely_seconds=likely,
            likely_reason=f"{percent(spared)} of the CPU seconds and waits for disk of these "
            "stages: what lies behind that line, as far as no other stage worked meanwhile",
            gain_seconds=case.wall,
            gain_reason="all of the run: one run does not show when that line was printed",
            rewrite=case.attempt(found.new),
        )


def _needed(found: Ended, stage: Stage) -> float:
    """Bytes up to the last line that is printed, about."""
    printed = ratio(bytes_out(stage), found.printed) if found.printed else 0.0
    return found.line * (printed if found.printed == found.line else max(printed, LINE))
