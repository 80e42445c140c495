# SPDX-License-Identifier: Apache-2.0
"""Rules about which stage works and which ones wait."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from pipelined.analysis.bottleneck import NOTABLE, share
from pipelined.analysis.by_line import only_selects
from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.finding import Evidence, Finding
from pipelined.analysis.rewriting import swapped
from pipelined.analysis.rules.faster import OF_ONE_CPU, SPLITS, faster, less_cpu, spread, unpacks
from pipelined.analysis.rules.moving import BY_ITSELF, before_barrier, both_take_each_line
from pipelined.analysis.rules.rule import Case, Part, share_kept, with_waits
from pipelined.analysis.sentence import on_cpu, stage_label
from pipelined.command_names import BY_LINE, GREPS
from pipelined.wording import duration, listing, percent

__all__ = ["barrier", "ceiling", "idle_stage"]

#: A stage on CPU, or waiting for one, for this share of the run is the ceiling, if others wait.
CEILING = 0.90
#: A stage on more CPUs than this is parallel already.
PARALLEL = 1.05
#: A stage asleep on an empty pipe for this share of the run, but for its waits for a CPU, is idle.
IDLE = 0.90
#: Programs that pass on lines as they are, and drop others.
SELECTING = GREPS | {"rg"}
#: Shorter lines save a sort this part of what fewer lines would (measured: 0 to 0.15).
SHORTER = 0.1


def ceiling(case: Case) -> Iterator[Finding]:
    """One stage computes whenever it can, on one CPU, and the others wait for it."""
    found, run = case.bottleneck, case.run
    if found is None or len(found.stages) > 1 or not (found.waiters or found.ended):
        return
    (index,) = found.stages
    queued = share(run.stages[index], "runqueue", case.wall)
    # it would have computed while others used its CPU
    busy = NOTABLE <= found.cpu_share <= PARALLEL and found.cpu_share + queued >= CEILING
    if not busy:
        return
    cpu = run.stages[index].cpu_seconds
    others = [stage for other, stage in enumerate(run.stages) if other != index]
    second = max(others, key=lambda stage: stage.cpu_seconds)
    left = case.host.cores - (run.cpu_seconds - cpu) / case.wall
    free = max(1.0, left)
    if not case.worth(cpu - max(second.cpu_seconds, cpu / free)):
        return
    words = case.words(index)
    workers = min(case.host.cores, ceil(free))
    advice, program = faster(run.stages[index], words, workers)
    # another program may also take less CPU for the same work
    same = program.split(" ")[0] == found.command or found.command in SPLITS | {"xargs"}
    alone = 1.0 if same else OF_ONE_CPU.get(program, 0.0)
    gain = cpu - max(min(second.cpu_seconds, cpu), cpu * alone / free)
    new, reordered = spread(case, index, program, workers) if advice else (None, False)
    unpacked = unpacks(words) if words else ""
    if unpacked and case.graph.after[index]:
        new = None  # what reads the compressed bytes gets others
    around = run.surroundings
    outside = (around.others_cores or 0.0) if around else 0.0
    quicker, why = less_cpu(run.stages[index], words, workers, max(1.0, left - outside))
    wanted = f", and waited {percent(queued)} for a free one" if queued >= NOTABLE else ""
    yield Finding(
        id="ceiling",
        severity="advice" if advice else "note",
        sentence=f"{stage_label(run, found.stages)} was "
        f"{on_cpu(run, found.stages, found.cpu_share, ' of the run')}{wanted}; the others waited "
        f"for it. The next busiest, {second.command}, took {duration(second.cpu_seconds)} of CPU.",
        advice=f"Try: {advice}." if advice else "",
        stages=found.stages,
        evidence=(
            Evidence("on CPU", cpu, "seconds"),
            Evidence("next busiest stage on CPU", second.cpu_seconds, "seconds"),
            Evidence("CPUs that it could use", free, "count"),
        ),
        likely_seconds=saved_if_gone(case, {index: cpu * quicker}) if advice else None,
        likely_reason=why if advice else "",
        gain_seconds=min(case.wall, with_waits(run.stages[index], gain)) if advice else None,
        gain_reason=_reason(free if alone else None, alone) if advice else "",
        rewrite=case.attempt(new, reordered=reordered, unpacked=unpacked),
    )


def _reason(free: float | None, alone: float) -> str:
    """How the bound of a ceiling is computed; `free` is the CPUs that its work is spread over.

    `alone` is how many CPU seconds it then takes, in terms of now.
    """
    least = "those of the next busiest stage"
    if free is not None:
        what = f"an even share on each of the {free:.1f} CPUs that the others leave"
        least += f" or, if more, {what}"
        if alone < 1.0:
            least += f", of {percent(alone)} of them, which the other program may take"
    return f"its CPU seconds, less {least}, with the waits for a CPU among them"


def idle_stage(case: Case) -> Iterator[Finding]:
    """A filter sleeps behind a busy stage and throws away most of its output."""
    run = case.run
    for index, before in enumerate(case.graph.before):
        if len(before) != 1:
            continue
        stage, (source,) = run.stages[index], tuple(before)
        heavy = run.stages[source]
        passed = share_kept(stage)
        if passed is None or not {stage.command, heavy.command} <= BY_LINE:
            continue
        waited = share(stage, "pipe_empty", case.wall)
        # with other work on the host it is woken as often, and then waits for a CPU
        alone = case.wall - stage.states["runqueue"]
        gain = heavy.cpu_seconds * (1 - passed)
        if waited * case.wall < IDLE * alone or not case.worth(gain):
            continue
        by_line = both_take_each_line(case, source, index)
        if by_line is False:
            continue
        both = "" if by_line else "both take each line by itself and "
        yield Finding(
            id="idle-stage",
            severity="advice",
            sentence=f"{stage_label(run, (index,))} slept {percent(waited)} of the run and passed "
            f"on {percent(passed)} of what {stage_label(run, (source,))} took "
            f"{duration(heavy.cpu_seconds)} of CPU to make.",
            advice=f"Try: put {stage.command} before {heavy.command}, if {both}{stage.command} "
            f"does not need what {heavy.command} makes of a line.",
            stages=(source, index),
            evidence=(
                Evidence("asleep on an empty pipe", waited, "ratio"),
                Evidence("passed on", passed, "ratio"),
                Evidence("stage before it on CPU", heavy.cpu_seconds, "seconds"),
            ),
            likely_seconds=saved_if_gone(case, {source: gain}),
            likely_reason="the CPU seconds of the stage before it, for the share that is thrown "
            "away, as far as no other stage worked meanwhile",
            gain_seconds=min(with_waits(heavy, gain), case.wall),
            gain_reason="the CPU seconds of the stage before it, and its waits for a CPU, for the "
            "share that is thrown away",
            rewrite=case.attempt(swapped(case.pipeline, source) if case.pipeline else None),
        )


def barrier(case: Case) -> Iterator[Finding]:
    """A stage writes nothing before it has read all, and the stage after it shrinks the data."""
    found, run = case.bottleneck, case.run
    if found is None or not found.barrier:
        return
    behind = sorted(set().union(*(case.graph.after[index] for index in found.stages)))
    names = listing([stage_label(run, (index,)) for index in behind])
    waited = min(run.stages[index].states["pipe_empty"] for index in behind)
    part = Part(run, found.stages)
    cpu = part.sum(lambda stage: stage.cpu_seconds)
    passed = share_kept(run.stages[behind[0]]) if len(behind) == 1 else None
    gain = 0.0 if passed is None else min(cpu * (1 - passed), case.wall)
    sentence = (
        f"{part.name} had to read all of its input before it wrote (a barrier); {names} waited "
        f"{duration(waited)}."
    )
    evidence = (
        Evidence("readers at an empty pipe", waited, "seconds"),
        Evidence("on CPU", cpu, "seconds"),
    )
    conditions = before_barrier(case, found.stages[0], behind[0])
    if passed is None or not case.worth(gain) or conditions is None:
        if case.worth(waited):
            yield Finding(
                id="barrier",
                severity="note",
                sentence=sentence,
                advice="",
                stages=(*found.stages, *behind),
                evidence=evidence,
            )
        return
    mover = run.stages[behind[0]].command
    only = f", if {' and '.join(conditions)}" if conditions else ""
    unknown = (
        "" if BY_ITSELF not in conditions else f" What {mover} does with a line is not known here."
    )
    yield Finding(
        id="barrier",
        severity="advice",
        sentence=sentence,
        advice=f"Try: put {mover} before {found.command}{only}. It passes on {percent(passed)} of "
        f"the bytes.{unknown}",
        stages=(*found.stages, *behind),
        evidence=(*evidence, Evidence("passed on", passed, "ratio")),
        likely_seconds=saved_if_gone(case, _kept_away(case, found.stages, behind[0], passed)),
        likely_reason=f"the CPU seconds of {found.command} for the lines that would not reach it, "
        "and a part of those for shorter lines",
        gain_seconds=min(case.wall, part.busy_seconds * (1 - passed)),
        gain_reason=f"the CPU seconds of {found.command}, and its waits for a CPU, for the share "
        "that would not reach it",
        rewrite=case.attempt(
            swapped(case.pipeline, found.stages[0]) if case.pipeline else None, reordered=True
        ),
    )


def _kept_away(
    case: Case, barriers: tuple[int, ...], mover: int, passed: float
) -> dict[int, float]:
    """CPU seconds of barriers that go if the stage behind comes before them.

    Sorting takes as long as there are lines: what drops lines saves their share of it, what makes
    them shorter little.
    """
    words = case.words(mover)
    command = case.run.stages[mover].command
    selects = only_selects(words) if words else command in SELECTING
    share = (1 - passed) * (1.0 if selects else SHORTER)
    return {index: case.run.stages[index].cpu_seconds * share for index in barriers}
