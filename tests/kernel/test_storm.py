# SPDX-License-Identifier: Apache-2.0
"""Pipelines as fast as this host can start and end them: every one is counted."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from ctypes import sizeof
from typing import TYPE_CHECKING

import pytest

from pipelined.config import Config
from pipelined.kernel.layout import Functions, ReadaheadCounters, Stage
from pipelined.observer import Observer

if TYPE_CHECKING:
    from kernel.conftest import Watch

SECONDS = 10
#: In that time this many are a storm. A host that has other work takes longer for them.
LEAST = 100 * SECONDS


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def runs_of(observer: Observer, pipeline: str) -> int:
    return sum(t.runs for series, t in observer.totals().items() if series.pipeline == pipeline)


def runs_but(observer: Observer, pipeline: str) -> dict[str, int]:
    """Runs of every other signature: part of a pipeline must not be counted as one."""
    return {
        series.pipeline: totals.runs
        for series, totals in observer.totals().items()
        if series.pipeline != pipeline and totals.runs
    }


def storm(watch: Watch, mode: str, seconds: int, least: int = 0) -> int:
    """How many pipelines were made."""
    workers = len(os.sched_getaffinity(0))
    numbers = map(str, (seconds, workers, least // workers + 1))
    observed = watch.run_command("storm", mode, *numbers, timeout=seconds + 120)
    assert observed.returncode == 0, observed.stderr
    return int(observed.stdout)


@pytest.mark.parametrize(
    ("mode", "pipeline"),
    [
        ("exec", "true|true|true"),
        ("fork", "storm|storm|storm"),
    ],
)
def test_every_pipeline_of_a_storm_is_counted(
    watch: Watch,
    entries_left: Callable[[Observer], dict[str, int]],
    mode: str,
    pipeline: str,
) -> None:
    observer = watch.observer
    storm(watch, mode, 3)
    assert not any(entries_left(observer).values())
    before, memory = runs_of(observer, pipeline), resident_bytes()
    lost = dict(observer.lost())
    others = runs_but(observer, pipeline)

    made = storm(watch, mode, SECONDS, LEAST)

    assert made > LEAST
    assert dict(observer.lost()) == lost
    assert not any(entries_left(observer).values())
    assert runs_of(observer, pipeline) - before == made
    assert runs_but(observer, pipeline) == others
    # the records that are mapped when they come into use are bounded
    record = sizeof(Stage) + sizeof(Functions) + sizeof(ReadaheadCounters)
    assert resident_bytes() - memory < (4 << 20) + record * Config().max_stages


def test_seconds_of_a_storm_add_up(
    watch: Watch, entries_left: Callable[[Observer], dict[str, int]]
) -> None:
    made = storm(watch, "fork", 2)
    assert made > 0
    assert not any(entries_left(watch.observer).values())
    for series, totals in watch.observer.totals().items():
        if series.pipeline == "storm|storm|storm":
            wall = totals.run_seconds
            assert abs(sum(totals.levels) - wall) <= 0.005 * wall + 0.002
            assert totals.active == 0
