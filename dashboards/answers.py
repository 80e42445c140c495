# SPDX-License-Identifier: Apache-2.0
"""The figures that several dashboards open with: the same words, query and colours in each."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat

from .palette import read_palette
from .panels import SHARE, Help, Limits, Query, number
from .queries import HOSTS, Scope

__all__ = [
    "CORES",
    "COUNT",
    "cores_used",
    "hosts_that_answer",
    "overlap",
    "running_now",
    "waiting_for_disk",
    "waiting_steps",
]

CORES = Limits("none", decimals=2)
COUNT = Limits("none", decimals=0)


def waiting_steps() -> dict[float, str]:
    """From which share of wall time on waiting for disk has which colour."""
    colours = read_palette()
    return {0.05: colours["state-runqueue"], 0.3: colours["state-disk"]}


def running_now(scope: Scope, *, width: int = 4) -> stat.Panel:
    """How many runs of `scope` are live."""
    return number(
        "Running now",
        Help(
            "Runs of pipelines that are live at this moment.",
            "as many as you expect at this hour.",
            "none when a batch job should run, or ever more: runs pile up.",
        ),
        Query(scope.sum("pipelined_runs_active"), ""),
        COUNT,
        empty="None yet",
        width=width,
    )


def overlap(scope: Scope, *, width: int = 4) -> stat.Panel:
    """The answer to whether what ran in `scope` is pipelined."""
    return number(
        "Overlap",
        Help(
            "Of the time with any stage on CPU, the share with two stages or more.",
            "above 50 %: it really is pipelined.",
            "near 0 %: the stages take turns. What holds each back says why.",
        ),
        Query(scope.whole.overlap(), ""),
        SHARE,
        width=width,
    )


def cores_used(scope: Scope, *, width: int = 4) -> stat.Panel:
    """How many CPUs the runs of `scope` kept busy on average."""
    return number(
        "Cores used",
        Help(
            "CPU seconds per second of wall time of a run: (user + sys) / real.",
            "above 1: the stages share the work among CPUs.",
            "far below 1: it mostly waits, for disk or stages for each other.",
        ),
        Query(scope.whole.cores_used(), ""),
        CORES,
        width=width,
    )


def waiting_for_disk(scope: Scope, *, width: int = 4) -> stat.Panel:
    """The share of time in which the runs of `scope` did nothing but wait for disk."""
    return number(
        "Waiting for disk",
        Help(
            "Share of wall time in which a stage waited for disk and no stage was on CPU.",
            "below 5 %: disk is hidden behind computing, or not needed.",
            "above 30 %: the disk sets the pace. See Disk and readahead.",
        ),
        Query(scope.whole.disk_alone(), ""),
        SHARE,
        steps=waiting_steps(),
        width=width,
    )


def hosts_that_answer() -> stat.Panel:
    """How many daemons Prometheus reaches."""
    return number(
        "Hosts that answer",
        Help(
            "Daemons that Prometheus could scrape just now.",
            "all of them.",
            "fewer than you have: what runs on the others is not counted. See Pipelined itself.",
        ),
        Query(HOSTS.sum("up"), ""),
        COUNT,
        empty="No target: see docs/PROMETHEUS.md",
    )
