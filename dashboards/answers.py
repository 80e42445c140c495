# SPDX-License-Identifier: Apache-2.0
"""The figures that several dashboards open with: the same words, query and colours in each."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat

from .panels import BAD, GOOD, INFO, SHARE, WARN, Help, Limits, Query, number
from .queries import HOSTS, Scope

__all__ = [
    "CORES",
    "DAEMONS",
    "DISK_STEPS",
    "FAILED_STEPS",
    "OVERLAP_STEPS",
    "PART",
    "cores_used",
    "hosts_without_answer",
    "not_recorded",
    "overlap",
    "waiting_for_disk",
]

CORES = Limits("none", decimals=2, at_least=1)
#: A share of which small parts matter.
PART = Limits("percentunit", max=1, decimals=1)

#: Text of tables: from which overlap, and which share of waiting for disk or of runs that failed,
#: it has which colour.
OVERLAP_STEPS = {0: "orange", 0.1: "yellow", 0.5: "green"}
DISK_STEPS = {0.05: "yellow", 0.3: "orange"}
FAILED_STEPS = {0.05: "yellow", 0.2: "orange"}

#: `up` of the daemons. Other jobs have one too, and a host that is down has nothing else.
DAEMONS = (
    f"{HOSTS.select('up')}\nand on (job)\n"
    f"last_over_time({HOSTS.select('pipelined_build_info')}[$__range])"
)


def overlap(scope: Scope, *, width: int = 4) -> stat.Panel:
    """The answer to whether what ran in `scope` is pipelined."""
    return number(
        "Pipelined? (overlap)",
        Help(
            "Of the time with any stage on CPU, the share with two stages or more.",
            "above 50 %: it really is pipelined.",
            "below 10 %: the stages take turns. The stage that holds them back says why.",
        ),
        Query(scope.whole.overlap(), ""),
        SHARE,
        base=WARN,
        steps={0.1: "dark-yellow", 0.5: GOOD},
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
        base=INFO,
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
        PART,
        base=GOOD,
        steps={0.05: "dark-yellow", 0.3: WARN},
        width=width,
    )


def not_recorded(*, width: int = 4) -> stat.Panel:
    """Whether anything is missing in the figures."""
    return number(
        "Missing in figures",
        Help(
            "Stages, pipes and the like that could not be recorded in the time that is shown: a"
            " full map, or no memory. Runs that were recorded but not stored do not count here:"
            " Itself has them.",
            "nothing: the figures are complete.",
            "any: figures of pipelines are too low. RUNBOOK.md, PipelinedLosing.",
        ),
        Query(HOSTS.missing(), ""),
        Limits("locale", decimals=0),
        empty="No daemon answers",
        base=GOOD,
        steps={1: BAD},
        worded={"0": "Nothing"},
        width=width,
    )


def hosts_without_answer(*, width: int = 4) -> stat.Panel:
    """How many daemons Prometheus does not reach."""
    return number(
        "Hosts without an answer",
        Help(
            "Daemons that Prometheus could not scrape just now, of those that it reached in the"
            " time that is shown, and their neighbours in the same job.",
            "none.",
            "any: what runs there is not counted. RUNBOOK.md, PipelinedDown.",
        ),
        Query(f"count((\n{DAEMONS}\n) == 0)\nor\n0 * count(\n{DAEMONS}\n)", ""),
        Limits("none", decimals=0),
        empty="No daemon: see docs/PROMETHEUS.md",
        base=GOOD,
        steps={1: BAD},
        worded={"0": "None"},
        width=width,
    )
