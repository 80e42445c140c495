# SPDX-License-Identifier: Apache-2.0
"""What to know before the figures of a comparison are believed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pipelined.analysis.bottleneck import share
from pipelined.analysis.comparison_reasons import Trial
from pipelined.analysis.comparison_rows import times, warm_share
from pipelined.runs import Run
from pipelined.wording import percent

__all__ = [
    "SAME_CACHE",
    "cache_caveats",
    "queue_caveats",
    "run_caveats",
    "trial_caveats",
    "warm_shares",
]

#: Warm shares further apart than this belong to different states of the page cache.
SAME_CACHE = 0.05
#: A stage that waits this share of a run for a free CPU is held up by others.
MUCH_QUEUED = 0.25
#: Inputs of one pipeline further apart than this share are different inputs.
SAME_INPUT = 0.02


def warm_shares(a: Sequence[Trial], b: Sequence[Trial]) -> tuple[float, float] | None:
    """Of the pages that each read, the share that was in the page cache; None: not known."""
    shares = [_known_warm_shares(trials) for trials in (a, b)]
    return (median(shares[0]), median(shares[1])) if all(shares) else None


def _known_warm_shares(trials: Sequence[Trial]) -> list[float]:
    return [warm for trial in trials if (warm := warm_share(trial)) is not None]


def cache_caveats(labels: Sequence[str], trials: Sequence[Sequence[Trial]]) -> list[str]:
    said = []
    for index in range(1, len(trials)):
        warm = warm_shares(trials[0], trials[index])
        if warm and abs(warm[0] - warm[1]) > SAME_CACHE:
            said.append(
                f"not comparable: {labels[0]} found {percent(warm[0])} of its pages in the "
                f"cache, {labels[index]} {percent(warm[1])}"
            )
    for label, of_side in zip(labels, trials, strict=False):
        shares = _known_warm_shares(of_side)
        if shares and max(shares) - min(shares) > SAME_CACHE:
            said.append(
                f"the page cache was not the same for each round of {label}: "
                f"{percent(min(shares))} to {percent(max(shares))} of its pages were warm"
            )
    return said


def queue_caveats(labels: Sequence[str], trials: Sequence[Sequence[Trial]]) -> list[str]:
    held_up = []
    for label, of_side in zip(labels, trials, strict=False):
        shares = [_queued_share(trial.run) for trial in of_side if trial.run]
        if shares and median(shares) >= MUCH_QUEUED:
            held_up.append(f"{percent(median(shares))} of the time in {label}")
    if not held_up:
        return []
    return [
        f"a stage waited for a free CPU {', '.join(held_up)}: other work on this host, or more "
        "stages than CPUs, is in the figures"
    ]


def _queued_share(run: Run) -> float:
    """Of the run, the time that the stage which waited most for a free CPU did so."""
    return max((share(stage, "runqueue", run.wall_seconds) for stage in run.stages), default=0.0)


def run_caveats(a: Run, b: Run) -> list[str]:
    said = []
    if a.pipeline != b.pipeline:
        said.append(f"different pipelines: A is {a.pipeline}, B is {b.pipeline}")
    else:
        read = [sum(s.read_bytes for s in run.stages if s.position == 1) for run in (a, b)]
        if abs(read[0] - read[1]) > SAME_INPUT * max(read):
            said.append(
                f"different inputs: the first stage of B read {times(read[1] / read[0])} times "
                "as many bytes as A's"
                if read[0]
                else "different inputs: the first stage of A read nothing"
            )
    for label, run in zip("AB", (a, b), strict=True):
        if run.partial:
            said.append(f"{label} is partial: it ran already when observation began")
        if run.live:
            said.append(f"{label} still runs: its figures are those so far")
    return said


def trial_caveats(labels: Sequence[str], trials: Sequence[Sequence[Trial]]) -> list[str]:
    said = []
    unseen = [
        label
        for label, of_side in zip(labels, trials, strict=False)
        if any(trial.run is None for trial in of_side)
    ]
    if unseen:
        said.append(
            f"rounds of {' and '.join(unseen)} had no pipeline: of their time no more is known "
            "than how much was CPU time"
        )
    for label, of_side in zip(labels, trials, strict=False):
        most = max(trial.pipelines for trial in of_side)
        if most > 1:
            said.append(
                f"{label} ran {most:,} pipelines: the longest one stands for it, "
                "but wall and CPU time are those of the whole command"
            )
        signatures = {trial.run.pipeline for trial in of_side if trial.run}
        if len(signatures) > 1:
            said.append(f"{label} was not always the same: {', '.join(sorted(signatures))}")
        lost = sum(trial.lost for trial in of_side)
        if lost:
            said.append(f"{lost:,} events of {label} were lost: its figures are too low")
        if any(trial.run and trial.run.live for trial in of_side):
            said.append(f"stages of {label} went on after the command: their figures are cut off")
    return said
