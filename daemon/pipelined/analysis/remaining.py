# SPDX-License-Identifier: Apache-2.0
"""What is left of a run's wall time if some of its stages have less to compute. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pipelined.command_names import BARRIERS
from pipelined.runs import Run

__all__ = ["REASON", "likely_gain"]

#: How `likely_gain` is computed, for people.
REASON = (
    "the run's time in the ratio of what its stages compute then and now: the busiest one between "
    "two barriers, or an even share on all CPUs if that is more, and each barrier by itself"
)


def likely_gain(run: Run, cores: int, saved: Mapping[int, float]) -> float:
    """Seconds of wall time that are likely to go with `saved`, CPU seconds by stage index.

    Stages between two barriers run at once, so that the busiest one takes the time; a barrier
    computes most when they have all written, or cannot begin.
    """
    now, then = _modelled(run, cores, {}), _modelled(run, cores, saved)
    return run.watched_seconds * (1 - then / now) if now else 0.0


def _modelled(run: Run, cores: int, saved: Mapping[int, float]) -> float:
    total = 0.0
    between: list[float] = []
    for index, stage in enumerate(run.stages):
        cpu = max(0.0, stage.cpu_seconds - saved.get(index, 0.0))
        if stage.command in BARRIERS:
            total += _at_once(between, cores) + cpu / max(1.0, _cpus(stage.cpu_seconds, run))
            between = []
        else:
            between.append(cpu)
    return total + _at_once(between, cores)


def _cpus(cpu: float, run: Run) -> float:
    """How many CPUs a stage of so many CPU seconds was on, at least."""
    return cpu / run.watched_seconds if run.watched_seconds else 1.0


def _at_once(seconds: list[float], cores: int) -> float:
    return max(max(seconds, default=0.0), sum(seconds) / max(1, cores))
