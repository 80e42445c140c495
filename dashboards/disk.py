# SPDX-License-Identifier: Apache-2.0
"""Is the disk read ahead of need, and what does waiting for it cost?"""

from __future__ import annotations

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models import dashboard as model

from .answers import waiting_steps
from .frame import framed, some, to_pipeline, unit_variable
from .palette import read_palette
from .panels import (
    PLACE,
    READAHEAD_OFF,
    SHARE,
    Column,
    Help,
    Limits,
    Query,
    lines,
    number,
    rows,
    tier,
)
from .queries import HOSTS, PIPELINE, PIPELINES, STAGE, UNITS

__all__ = ["disk"]

WHOLE = PIPELINES.whole
_STAGE = "{{pipeline}}: {{position}} {{command}}"
_BY_STAGE = ("pipeline", *STAGE)
_CONSUMED = "hit|late|miss|warm"


def disk() -> model.Dashboard:
    """The dashboard about files and readahead."""
    colours = read_palette()
    pages = {
        "hit": colours["state-cpu"],
        "late": colours["state-runqueue"],
        "miss": colours["state-disk"],
        "warm": colours["state-pipe_empty"],
        "wasted": colours["state-other"],
    }
    hidden = {
        "true": colours["state-cpu"],
        "false": colours["state-disk"],
    }
    stalls = {f"{name}, nothing computing": pages[name] for name in ("late", "miss")}
    return framed(
        "Disk and readahead",
        "Whether files are read ahead of need, how long readers wait for disk, and whether other"
        " stages compute at that time.",
        [
            (
                "",
                [
                    number(
                        "Stalled",
                        Help(
                            "Seconds that readers slept for disk, per second of wall time.",
                            "below 5 %.",
                            "above 30 %: reading sets the pace. Several readers can be above"
                            " 100 %.",
                        ),
                        Query(WHOLE.stalled(), ""),
                        Limits("percentunit"),
                        empty="No stall, or the tier is off",
                        steps=waiting_steps(),
                        width=3,
                    ),
                    number(
                        "Disk hidden",
                        Help(
                            "I/O overlap: of the time in which a stage waited for disk, the share"
                            " with another stage on CPU.",
                            "near 100 %: computing hides the disk.",
                            "near 0 %: first it reads, then it computes.",
                        ),
                        Query(WHOLE.io_overlap(), ""),
                        SHARE,
                        empty="No waiting for disk",
                        width=3,
                    ),
                    number(
                        "Coverage",
                        Help(
                            "Of the pages that had to come from disk, the share that was read"
                            " ahead: (hit + late) / (hit + late + miss).",
                            "near 100 % when files are read from front to back.",
                            "near 0 %: random access, or readahead is switched off.",
                        ),
                        Query(WHOLE.pages("hit|late", "hit|late|miss"), ""),
                        SHARE,
                        empty="All warm, or the tier is off",
                        width=3,
                    ),
                    number(
                        "Timeliness",
                        Help(
                            "Of the pages read ahead and used, the share that was there in time:"
                            " hit / (hit + late).",
                            "near 100 %.",
                            "below 50 %: readahead comes too late. Try a larger read_ahead_kb.",
                        ),
                        Query(WHOLE.pages("hit", "hit|late"), ""),
                        SHARE,
                        empty="Nothing read ahead",
                        width=3,
                    ),
                    number(
                        "Wasted",
                        Help(
                            "Pages read ahead and never used, as a share of those read ahead. Known"
                            " when their reader ends.",
                            "near 0 %.",
                            "above 10 %: head, grep -q or random access over a large readahead.",
                        ),
                        Query(_wasted(), ""),
                        Limits("percentunit"),
                        empty="Nothing read ahead",
                        width=3,
                    ),
                    number(
                        "Warm",
                        Help(
                            "Of the pages that reads consumed, the share that was in the page cache"
                            " before.",
                            "the same in two runs that you compare.",
                            "it differs between them: their durations cannot be compared.",
                        ),
                        Query(WHOLE.pages("warm", _CONSUMED), ""),
                        SHARE,
                        empty="Nothing read, or the tier is off",
                        width=3,
                    ),
                    tier(
                        "readahead",
                        "Page classes and stalls come from it.",
                        HOSTS.select("pipelined_hook_attached", 'tier="readahead"'),
                    ),
                ],
            ),
            (
                "Where pages come from",
                [
                    lines(
                        "Page classes",
                        Help(
                            "Shares of the pages that reads consumed: warm, in the cache before;"
                            " hit, read ahead in time; late, read ahead but waited for; miss,"
                            " brought in by the very read that asked for it.",
                            "warm and hit fill the picture.",
                            "miss fills it: nothing is read ahead. Late: too little is.",
                        ),
                        [
                            Query(
                                PIPELINES.shares(
                                    "pipelined_readahead_pages_total",
                                    f'class=~"{_CONSUMED}"',
                                    of="class",
                                ),
                                "{{class}}",
                            )
                        ],
                        SHARE,
                        stacked=True,
                        colours=pages,
                        empty=READAHEAD_OFF,
                    ),
                    lines(
                        "Read ahead and wasted",
                        Help(
                            "Bytes per second that were read ahead, and that were read ahead"
                            " earlier and never used.",
                            "wasted stays near 0.",
                            "wasted close to read ahead: the disk works for nothing.",
                        ),
                        [
                            Query(
                                _in_bytes(
                                    PIPELINES.growth("pipelined_readahead_inserted_pages_total")
                                ),
                                "read ahead",
                            ),
                            Query(
                                _in_bytes(
                                    PIPELINES.growth(
                                        "pipelined_readahead_pages_total", 'class="wasted"'
                                    )
                                ),
                                "wasted",
                            ),
                        ],
                        Limits("binBps"),
                        colours={"read ahead": pages["hit"], "wasted": pages["wasted"]},
                        empty=READAHEAD_OFF,
                    ),
                    _by_stage(
                        "Pages read of files",
                        Help(
                            "Bytes of files that each stage read through the page cache. The ten"
                            " highest.",
                            "high and level.",
                            "it falls while stalls rise.",
                        ),
                        _in_bytes(
                            PIPELINES.growth(
                                "pipelined_readahead_pages_total",
                                f'class=~"{_CONSUMED}"',
                                by=_BY_STAGE,
                            )
                        ),
                        "binBps",
                    ),
                    _by_stage(
                        "Read past the page cache",
                        Help(
                            "Bytes that each stage read with O_DIRECT. The ten highest.",
                            "0, unless a program asks for it: such reads are not read ahead.",
                            "a stage that reads this way and stalls: it has to read ahead by"
                            " itself.",
                        ),
                        PIPELINES.growth("pipelined_direct_read_bytes_total", by=_BY_STAGE),
                        "binBps",
                        empty="No direct read, or the readahead tier is off: run pipelined doctor",
                    ),
                ],
            ),
            (
                "What waiting costs",
                [
                    lines(
                        "Stalls",
                        Help(
                            "Seconds that readers slept for disk, per second of wall time, by the"
                            " page that ended the wait, and whether another stage computed at that"
                            " time.",
                            "little, and all of it hidden.",
                            "miss with nothing computing: the whole pipeline stands still.",
                        ),
                        [
                            Query(_stalls("true"), "{{class}}, hidden"),
                            Query(_stalls("false"), "{{class}}, nothing computing"),
                        ],
                        Limits("percentunit"),
                        colours=stalls,
                        empty=READAHEAD_OFF,
                    ),
                    lines(
                        "Mean length of a stall",
                        Help(
                            "How long a reader's sleep for disk took, by the page that ended it.",
                            "below 1 ms: a fast disk, or short reads.",
                            "above 10 ms: a disk that seeks, or that others keep busy.",
                        ),
                        [
                            Query(
                                PIPELINES.ratio(
                                    PIPELINES.growth(
                                        "pipelined_stall_seconds_total", by=("class",)
                                    ),
                                    PIPELINES.growth("pipelined_stalls_total", by=("class",)),
                                ),
                                "{{class}}",
                            )
                        ],
                        Limits("s"),
                        colours=pages,
                        logarithmic=True,
                        empty=READAHEAD_OFF,
                    ),
                    lines(
                        "Waiting for disk, hidden or not",
                        Help(
                            "Share of wall time in which a stage waited for disk: `true`, another"
                            " stage was on CPU; `false`, none was. All I/O counts, writes too.",
                            "little, and `true`.",
                            "`false` above 30 %: put a buffer or a readahead before the work.",
                        ),
                        [
                            Query(
                                PIPELINES.per_run_second(
                                    "pipelined_disk_wait_seconds_total", also=("overlapped",)
                                ),
                                "{{overlapped}}",
                            )
                        ],
                        SHARE,
                        stacked=True,
                        colours=hidden,
                    ),
                    lines(
                        "Faults on mapped files",
                        Help(
                            "Faults on pages of mapped files, programs and libraries among them:"
                            " miss, the fault brought the page in; late, it slept for a page that"
                            " was being read; other.",
                            "near 0 after the start.",
                            "miss all the time: a mapped file is read at random, or memory is"
                            " short.",
                        ),
                        [
                            Query(
                                PIPELINES.growth("pipelined_file_faults_total", by=("class",)),
                                "{{class}}",
                            )
                        ],
                        Limits("cps"),
                        colours=pages,
                        empty=READAHEAD_OFF,
                    ),
                    rows(
                        "Who stands still most",
                        Help(
                            "Stages by the time that their reads slept for disk; how much of it"
                            " with nothing computing; how often. A stage that is itself a pipeline"
                            " has the time of its nested ones too.",
                            "short, or with other stages computing.",
                            "a stage with minutes of it: begin there. Click on the pipeline.",
                        ),
                        {**PLACE, "position": "Position", "command": "Command"},
                        [
                            Column(
                                "Stood still",
                                _by_reader("pipelined_stall_seconds_total"),
                                Limits("s"),
                            ),
                            Column(
                                "Nothing computing",
                                _by_reader("pipelined_stall_seconds_total", 'overlapped="false"'),
                                Limits("s"),
                            ),
                            Column(
                                "Stalls",
                                _by_reader("pipelined_stalls_total"),
                                Limits("short", decimals=0),
                            ),
                        ],
                        worst="Stood still",
                        links={"pipeline": to_pipeline()},
                        empty=READAHEAD_OFF,
                    ),
                ],
            ),
        ],
        variables=[
            unit_variable(),
            some("pipeline", "Pipeline", UNITS.select("pipelined_runs_total")),
        ],
        run_ends=PIPELINES,
    )


def _wasted() -> str:
    return WHOLE.ratio(
        WHOLE.growth("pipelined_readahead_pages_total", 'class="wasted"'),
        WHOLE.growth("pipelined_readahead_inserted_pages_total"),
    )


def _in_bytes(pages: str) -> str:
    return f"4096 * {pages}"


def _stalls(overlapped: str) -> str:
    matcher = f'overlapped="{overlapped}"'
    return PIPELINES.per_run_second("pipelined_stall_seconds_total", matcher, also=("class",))


def _by_reader(metric: str, *matchers: str) -> str:
    return WHOLE.growth(metric, *matchers, by=(*PIPELINE, *STAGE))


def _by_stage(
    title: str, help_: Help, expr: str, unit: str, empty: str = READAHEAD_OFF
) -> timeseries.Panel:
    query = Query(f"topk(10,\n{expr}\n)", _STAGE)
    return lines(title, help_, [query], Limits(unit), empty=empty)
