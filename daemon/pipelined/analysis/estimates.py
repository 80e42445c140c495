# SPDX-License-Identifier: Apache-2.0
"""How much wall time is likely to go when stages have less to do. Pure.

A bound is what could go at most; an estimate takes into account what stays. While a stage works,
others may work too: only the part of its time goes in which they do not. When it is quicker, the
next busiest stage holds the run back, or the CPUs do.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelined.analysis.bottleneck import pipe_waits, share
from pipelined.analysis.rules.rule import Case, ratio

__all__ = ["saved_if_gone"]


def saved_if_gone(
    case: Case, cpu: Mapping[int, float], slept: Mapping[int, float] | None = None
) -> float:
    """Seconds of wall time that are likely to go with work of some stages.

    `cpu` are seconds on CPU that a stage (by index) need not spend any more, `slept` seconds in
    which it slept for other things than pipes, such as the disk. Waits for a free CPU go with what
    waits, and with what used the CPUs meanwhile.
    """
    run, wall, slept = case.run, case.wall, slept or {}
    if wall <= 0:
        return 0.0
    active = [_active(case, index) for index in range(len(run.stages))]
    less = [
        min(active[index], _own(case, index, active[index], cpu.get(index, 0.0), slept))
        for index in range(len(run.stages))
    ]
    left = [
        max(0.0, seconds - gone - _freed(case, index, seconds, cpu))
        for index, (seconds, gone) in enumerate(zip(active, less, strict=True))
    ]
    computed = ratio(run.cpu_seconds - sum(cpu.values()), _cpus(case))
    remains = max(computed, *left)
    weighted = sum(gone * _alone(active, index, wall) for index, gone in enumerate(less) if gone)
    # the busiest stage's waits for a CPU are none of the time in which it waited for the others
    busiest = max(range(len(active)), key=active.__getitem__)
    freed = _freed(case, busiest, active[busiest], cpu)
    return max(0.0, min(wall - remains, weighted + freed))


def _cpus(case: Case) -> float:
    """CPUs that the run has to itself: those that others kept busy it does not get."""
    around = case.run.surroundings
    outside = (around.others_cores or 0.0) if around else 0.0
    return max(case.run.cores_used, case.host.cores - outside)


def _active(case: Case, index: int) -> float:
    """Seconds of the run in which a stage lived and did not wait for another one of the run."""
    run, stage = case.run, case.run.stages[index]
    end = run.start + run.wall_seconds
    lived = min(stage.end or end, end) - max(stage.start, run.start)
    if run.clock_was_set:
        lived = case.wall
    waited = pipe_waits(run, index, case.graph).inside * case.wall
    threads = stage.lifetime_seconds - stage.states["pipe_empty"] - stage.states["pipe_full"]
    return max(0.0, min(min(lived, case.wall) - waited, threads))


def _own(case: Case, index: int, active: float, cpu: float, slept: Mapping[int, float]) -> float:
    """Seconds of its active time that go with `cpu` and `slept`, of a stage of several CPUs too."""
    stage = case.run.stages[index]
    at_once = max(1.0, ratio(stage.cpu_seconds, active))
    queued = share(stage, "runqueue", case.wall) * case.wall
    return cpu / at_once + queued * min(1.0, ratio(cpu, stage.cpu_seconds)) + slept.get(index, 0.0)


def _freed(case: Case, index: int, active: float, cpu: Mapping[int, float]) -> float:
    """Seconds that a stage waited for a CPU which others used for what is gone."""
    run = case.run
    around = run.surroundings
    outside = (around.others_cores or 0.0) * case.wall if around else 0.0
    rivals = run.cpu_seconds - run.stages[index].cpu_seconds + outside
    gone = sum(seconds for other, seconds in cpu.items() if other != index)
    queued = share(run.stages[index], "runqueue", case.wall) * case.wall
    return min(active, queued * min(1.0, ratio(gone, rivals)))


def _alone(active: list[float], index: int, wall: float) -> float:
    """Share of a stage's active time in which the others are not, but for the busiest stage: all
    of it, since the others wait for that one."""
    others = max((seconds for at, seconds in enumerate(active) if at != index), default=0.0)
    if active[index] >= others:
        return 1.0
    return min(1.0, max(0.0, ratio(wall - others, active[index])))
