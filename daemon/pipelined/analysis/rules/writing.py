# SPDX-License-Identifier: Apache-2.0
"""Rules about a disk that is written to while stages wait for what is written beside it."""

from __future__ import annotations

from collections.abc import Iterator

from pipelined.analysis.bottleneck import NOTABLE, share
from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.finding import Evidence, Finding
from pipelined.analysis.rules.rule import Case, ratio
from pipelined.analysis.sentence import stage_label
from pipelined.runs import Stage
from pipelined.wording import duration, listing, percent

__all__ = ["tee_waits"]


def tee_waits(case: Case) -> Iterator[Finding]:
    """``tee`` waits for the disk of its file, and the stage that reads its output waits for it."""
    for index, stage in enumerate(case.run.stages):
        readers = sorted(case.graph.after[index])
        if stage.command != "tee" or not readers:
            continue
        waited = stage.states["disk"]
        starved = min(case.run.stages[reader].states["pipe_empty"] for reader in readers)
        gain = min(waited, starved)
        if share(stage, "disk", case.wall) < NOTABLE or not case.worth(gain):
            continue
        name = stage_label(case.run, (index,))
        names = listing([stage_label(case.run, (reader,)) for reader in readers])
        yield Finding(
            id="tee-waits",
            severity="advice",
            sentence=f"{name} waited {duration(waited)}, {percent(waited / case.wall)} of the run, "
            f"for the disk that it writes to; {names} waited {duration(starved)} for it.",
            advice="Try: less to write (tee >(zstd > FILE.zst) in bash, which does not wait for "
            "zstd: it may end after the pipeline), or another disk for the file.",
            stages=(index, *readers),
            evidence=(
                Evidence("waiting for disk", waited, "seconds"),
                Evidence("readers at an empty pipe", starved, "seconds"),
            ),
            likely_seconds=saved_if_gone(case, {}, {index: waited + _queued_after(stage)}),
            likely_reason="its waiting for disk, and for a CPU after it, as far as no other stage "
            "worked meanwhile",
            gain_seconds=min(case.wall, waited + stage.states["runqueue"] + stage.system_seconds),
            gain_reason="its waiting for disk, and for a CPU after it, and its seconds in the "
            "kernel, which a slow write takes, too",
        )


def _queued_after(stage: Stage) -> float:
    """Seconds that a stage waited for a CPU when the disk was done: of all its waits for one the
    share that the disk has in what it slept for."""
    states = stage.states
    slept = states["disk"] + states["pipe_empty"] + states["pipe_full"]
    return states["runqueue"] * ratio(states["disk"], slept)
