# SPDX-License-Identifier: Apache-2.0
"""Rules about waiting for a free CPU: because of others, of a limit, or of the run's own stages."""

from __future__ import annotations

from collections.abc import Iterator

from pipelined.analysis.bottleneck import LARGE, NOTABLE, share
from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.finding import Evidence, Finding
from pipelined.analysis.rules.rule import Case, ratio
from pipelined.analysis.sentence import stage_label
from pipelined.analysis.tr import joined
from pipelined.wording import duration, listing, percent

__all__ = ["COST", "cpu_contention", "cpu_limit", "more_stages_than_cores"]

#: A pipeline that uses a lower share of the CPUs lacks them because of other work, or of a limit.
SATURATED = 0.8
#: What other work on the host cost a run, as a figure of its finding.
COST = "cost of that at most"
#: Others that keep fewer CPUs busy than this take none from the run.
TAKEN = 0.25


def cpu_contention(case: Case) -> Iterator[Finding]:
    """A stage waits for a CPU because programs outside the pipeline use them: a remark on the
    measurement, for the top of a report. Nothing in the pipeline is to be changed for it."""
    run, cores = case.run, case.host.cores
    around = run.surroundings
    if around is None or around.others_cores is None or around.others_cores < TAKEN:
        return
    index, waited, gain = _longest_wait(case)
    wanted = run.cores_used + _queued(case) / case.wall
    own_fault = wanted > cores and run.cores_used >= SATURATED * cores
    # a wake-up takes its time on an idle CPU too: then CPUs are left
    crowded = run.cores_used + around.others_cores >= SATURATED * cores
    if own_fault or not crowded or waited < NOTABLE or not case.worth(gain):
        return
    others = [
        f"{other.pipeline} ({duration(other.cpu_seconds)} of CPU)" for other in around.pipelines
    ]
    who = f" The busiest pipelines among them: {listing(others)}." if others else ""
    busiest = f" (busiest: {around.pipelines[0].pipeline})" if others else ""
    waiter = stage_label(run, (index,))
    yield Finding(
        id="cpu-contention",
        severity="note",
        sentence=f"{waiter} waited {percent(waited)} of the run for a free CPU: the "
        f"pipeline used {run.cores_used:.1f} of {cores} CPUs, programs outside it "
        f"{around.others_cores:.1f}.{who}",
        advice="",
        stages=(index,),
        evidence=(
            Evidence("longest wait for a free CPU", waited * case.wall, "seconds"),
            Evidence(COST, gain, "seconds"),
            Evidence("CPUs used by others", around.others_cores, "count"),
            Evidence("CPUs wanted", wanted, "count"),
            Evidence("CPUs", cores, "count"),
        ),
        notice=f"The host was busy: {waiter} waited {percent(waited)} of the run for a CPU that "
        f"others used{busiest}, which cost at most {duration(gain)} of {duration(case.wall)}.",
    )


def cpu_limit(case: Case) -> Iterator[Finding]:
    """The CPU limit of a cgroup holds the stages back."""
    run, around = case.run, case.run.surroundings
    if around is None or around.throttled_seconds is None:
        return
    index, waited, gain = _longest_wait(case)
    throttled = around.throttled_seconds
    waiter = stage_label(run, (index,))
    if throttled < NOTABLE * case.wall or waited < NOTABLE or not case.worth(gain):
        return
    yield Finding(
        id="cpu-limit",
        severity="advice",
        sentence=f"The CPU limit of a cgroup held its tasks back for {duration(throttled)}, summed "
        f"over CPUs; {waiter} waited {percent(waited)} of the run for a CPU.",
        advice="Try: a higher limit (CPUQuota= of the unit, --cpus or limits.cpu of the "
        "container), or fewer stages and workers at a time.",
        stages=(index,),
        evidence=(
            Evidence("held back by the limit", throttled, "seconds"),
            Evidence("longest wait for a free CPU", waited * case.wall, "seconds"),
            Evidence("CPUs used", run.cores_used, "count"),
        ),
        likely_seconds=min(gain, throttled),
        likely_reason="what the limit held back, but no more than could be saved at most",
        gain_seconds=gain,
        gain_reason=_WAIT_BOUND,
        notice=f"A CPU limit held the run back: {waiter} waited {percent(waited)} of it for a CPU.",
    )


def more_stages_than_cores(case: Case) -> Iterator[Finding]:
    """More threads of the run want a CPU than there are CPUs."""
    run, cores = case.run, case.host.cores
    queued = _queued(case)
    wanted = run.cores_used + queued / case.wall
    _, longest, _ = _longest_wait(case)
    gain = case.wall - max(stage.cpu_seconds for stage in run.stages)
    saturated = run.cores_used >= SATURATED * cores
    if wanted <= cores or not saturated or longest < LARGE or not case.worth(gain):
        return
    yield Finding(
        id="more-stages-than-cores",
        severity="advice",
        sentence=f"The pipeline could use {wanted:.1f} CPUs on average and there are {cores}: its "
        f"stages waited {duration(queued)} for a free one.",
        advice=f"Try: fewer at a time: join light stages, or at most {cores} workers (xargs -P "
        f"{cores}); or more CPUs.",
        stages=(),
        evidence=(
            Evidence("waiting for a free CPU", queued, "seconds"),
            Evidence("CPUs wanted", wanted, "count"),
            Evidence("CPUs", cores, "count"),
        ),
        likely_seconds=saved_if_gone(
            case, {index: stage.system_seconds for index, stage in enumerate(run.stages)}
        ),
        likely_reason="the CPU seconds in the kernel, where they copy, of all stages, on all CPUs",
        gain_seconds=gain,
        gain_reason="the run less the busiest stage's CPU seconds: with fewer stages there is also "
        "less to copy and to switch",
        rewrite=case.attempt(joined(case.pipeline) if case.pipeline else None),
    )


_WAIT_BOUND = (
    "the longest wait of one stage, but no more than the run less what the busiest stage would "
    "take on all the CPUs that it wanted"
)


def _queued(case: Case) -> float:
    return sum(stage.states["runqueue"] for stage in case.run.stages)


def _longest_wait(case: Case) -> tuple[int, float, float]:
    """The stage that waited longest for a CPU, its share of the run, and the bound of the gain."""
    run, wall = case.run, case.wall
    waits = [share(stage, "runqueue", wall) for stage in run.stages]
    longest = max(waits)
    busiest = max(
        stage.cpu_seconds / max(1.0, ratio(stage.cpu_seconds + stage.states["runqueue"], wall))
        for stage in run.stages
    )
    return waits.index(longest), longest, min(longest * wall, wall - busiest)
