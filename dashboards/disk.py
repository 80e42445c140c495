# SPDX-License-Identifier: Apache-2.0
"""What does waiting for the disk cost, and is it read ahead of need?"""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.models import dashboard as model

from .answers import waiting_for_disk
from .frame import TO_HOST, TO_PAGE, TO_PIPELINE, Row, framed, some, unit_variables
from .palette import page_colours, read_palette
from .panels import (
    GOOD,
    INFO,
    READAHEAD_OFF,
    RUNS,
    SHARE,
    WARN,
    Column,
    Help,
    Label,
    Limits,
    Query,
    Top,
    lines,
    number,
    rows,
    tier,
)
from .queries import HOSTS, PIPELINE, PIPELINES, STAGE, UNITS, in_order, ranked

__all__ = ["disk"]

WHOLE = PIPELINES.whole
_STAGE = "{{pipeline}}: {{position}} {{command}}"
_BY_STAGE = ("pipeline", *STAGE)
_CONSUMED = "hit|late|miss|warm"
_PLACE = (*PIPELINE, *STAGE)
_STOOD_STILL = f"{WHOLE.growth('pipelined_stall_seconds_total', by=_PLACE)} > 0"
_STALLED = Top(_PLACE, lambda _: _STOOD_STILL, PIPELINES, "stages")


def disk() -> model.Dashboard:
    """The dashboard about files and readahead."""
    return framed(
        "Disk and readahead",
        "What waiting for the disk costs, whether other stages compute at that time, and whether"
        " files are read ahead of need.",
        [
            Row("", _answers()),
            Row("What waiting costs", [_hidden_or_not(), _stalls(), _who_waits()]),
            Row("Where pages come from", [_page_classes(), _read_ahead()]),
            Row(
                "By stage, and other ways to read",
                [_pages_read(), _direct_reads(), _length_of_a_stall(), _faults()],
                collapsed=True,
            ),
        ],
        variables=[
            *unit_variables(),
            some("pipeline", "Pipeline", UNITS.select("pipelined_runs_total")),
            *_STALLED.variables,
        ],
    )


def _answers() -> Sequence[stat.Panel]:
    wasted = WHOLE.ratio(
        WHOLE.growth("pipelined_readahead_pages_total", 'class="wasted"'),
        WHOLE.growth("pipelined_readahead_inserted_pages_total"),
    )
    return [
        waiting_for_disk(PIPELINES),
        number(
            "Disk hidden",
            Help(
                "I/O overlap: of the time in which a stage waited for disk, the share with another"
                " stage on CPU.",
                "near 100 %: computing hides the disk.",
                "near 0 %: first it reads, then it computes.",
            ),
            Query(WHOLE.io_overlap(), ""),
            SHARE,
            empty="No waiting for disk",
            base="dark-yellow",
            steps={0.5: GOOD},
            width=3,
        ),
        number(
            "Coverage",
            Help(
                "Of the pages that had to come from disk, the share that was read ahead:"
                " (hit + late) / (hit + late + miss).",
                "near 100 % when files are read from front to back.",
                "near 0 %: random access, or readahead is switched off.",
            ),
            Query(WHOLE.pages("hit|late", "hit|late|miss"), ""),
            SHARE,
            empty="All warm, or the tier is off",
            base=WARN,
            steps={0.5: "dark-yellow", 0.9: GOOD},
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
            base=WARN,
            steps={0.5: "dark-yellow", 0.9: GOOD},
            width=3,
        ),
        number(
            "Wasted",
            Help(
                "Pages read ahead and never used, as a share of those read ahead. Known when their"
                " reader ends.",
                "near 0 %.",
                "above 10 %: head, grep -q or random access over a large readahead.",
            ),
            Query(wasted, ""),
            Limits("percentunit", decimals=0),
            empty="Nothing read ahead",
            base=GOOD,
            steps={0.1: "dark-yellow", 0.5: WARN},
            width=3,
        ),
        number(
            "Warm",
            Help(
                "Of the pages that reads consumed, the share that was in the page cache before.",
                "the same in two runs that you compare.",
                "it differs between them: their durations cannot be compared.",
            ),
            Query(WHOLE.pages("warm", _CONSUMED), ""),
            SHARE,
            empty="Nothing read, or the tier is off",
            base=INFO,
            width=3,
        ),
        tier(
            "readahead",
            "Page classes and stalls come from it.",
            HOSTS.select("pipelined_hook_attached", 'tier="readahead"'),
            width=5,
        ),
    ]


# -- what waiting costs


def _hidden_or_not() -> timeseries.Panel:
    colours = read_palette()
    names = {"true": "another stage on CPU", "false": "nothing on CPU"}
    return lines(
        "Waiting for disk, hidden or not",
        Help(
            "Share of wall time in which a stage waited for disk while another one was on CPU, and"
            " while none was. All I/O counts, writes too.",
            "little, and another stage on CPU.",
            "nothing on CPU for 30 % or more: put a buffer or a readahead before the work.",
        ),
        [
            Query(
                PIPELINES.per_run_second(
                    "pipelined_disk_wait_seconds_total", f'overlapped="{value}"'
                ),
                name,
            )
            for value, name in reversed(names.items())
        ],
        SHARE,
        stacked=True,
        colours={
            names["true"]: colours["state-cpu"],
            names["false"]: colours["state-disk"],
        },
    )


def _stalls() -> timeseries.Panel:
    return lines(
        "Stalls of readers",
        Help(
            "Seconds that readers slept for disk, per second of wall time, by the page that ended"
            " the wait.",
            "little.",
            "miss: nothing is read ahead. late: readahead comes too late. other: another task's"
            " page, metadata, direct reads.",
        ),
        [
            Query(
                PIPELINES.per_run_second("pipelined_stall_seconds_total", also=("class",)),
                "{{class}}",
            )
        ],
        Limits("percentunit", decimals=1, at_least=0.05),
        stacked=True,
        colours=page_colours(),
        empty=READAHEAD_OFF,
    )


def _who_waits() -> table.Panel:
    by = _PLACE
    seconds, alone = "pipelined_stall_seconds_total", 'overlapped="false"'
    return rows(
        "Who stalls most",
        Help(
            "Stages by the time that their reads slept for disk; how much of it with nothing"
            " computing; how often. A stage that is itself a pipeline has the time of its nested"
            " ones (↳) too.",
            "short, or with other stages computing.",
            "a stage with minutes of it: begin there. Click on the pipeline.",
        ),
        [
            Label("nested", "Nested", 72, words={"true": "↳", "false": ""}),
            Label("pipeline", "Pipeline", links=[TO_PIPELINE]),
            Label("position", "Position", 80),
            Label("command", "Command", 130),
            Label("unit", "Unit", 230),
            Label("instance", "Instance", 150, links=[TO_HOST, TO_PAGE]),
            Column(
                "Stood still",
                _STOOD_STILL,
                Limits("s", decimals=1),
                width=110,
            ),
            Column(
                "Nothing computing",
                f"{WHOLE.growth(seconds, alone, by=by)} > 0",
                Limits("s", decimals=1),
                width=150,
            ),
            Column(
                "Stalls", f"{WHOLE.growth('pipelined_stalls_total', by=by)} > 0", RUNS, width=90
            ),
        ],
        top=_STALLED,
        worst="Stood still",
        empty=READAHEAD_OFF,
    )


# -- where pages come from


def _page_classes() -> timeseries.Panel:
    return lines(
        "Page classes",
        Help(
            "Shares of the pages that reads consumed: warm, in the cache before; hit, read ahead"
            " in time; late, read ahead but waited for; miss, brought in by the very read that"
            " asked for it.",
            "warm and hit fill the picture.",
            "miss fills it: nothing is read ahead. Late: too little is.",
        ),
        [
            Query(
                PIPELINES.shares(
                    "pipelined_readahead_pages_total", f'class=~"{_CONSUMED}"', of="class"
                ),
                "{{class}}",
            )
        ],
        SHARE,
        stacked=True,
        colours=page_colours(),
        empty=READAHEAD_OFF,
    )


def _read_ahead() -> timeseries.Panel:
    pages = page_colours()
    return lines(
        "Read ahead and wasted",
        Help(
            "Bytes per second that were read ahead, and that were read ahead earlier and never"
            " used.",
            "wasted stays near 0.",
            "wasted close to read ahead: the disk works for nothing.",
        ),
        [
            Query(
                _in_bytes(PIPELINES.growth("pipelined_readahead_inserted_pages_total")),
                "read ahead",
            ),
            Query(
                _in_bytes(PIPELINES.growth("pipelined_readahead_pages_total", 'class="wasted"')),
                "wasted",
            ),
        ],
        Limits("binBps", at_least=1024),
        colours={"read ahead": pages["hit"], "wasted": pages["wasted"]},
        empty=READAHEAD_OFF,
    )


# -- rows that open on demand


def _pages_read() -> timeseries.Panel:
    metric, consumed = "pipelined_readahead_pages_total", f'class=~"{_CONSUMED}"'
    return lines(
        "Pages read of files",
        Help(
            "Bytes of files that each stage read through the page cache, of the ten stages that"
            " read most in the time that is shown.",
            "high and level.",
            "it falls while stalls rise.",
        ),
        [
            Query(
                in_order(
                    ranked(
                        _in_bytes(PIPELINES.growth(metric, consumed, by=_BY_STAGE)),
                        _BY_STAGE,
                        PIPELINES.once.growth(metric, consumed, by=_BY_STAGE),
                    )
                ),
                _STAGE,
            )
        ],
        Limits("binBps", at_least=1024),
        empty=READAHEAD_OFF,
    )


def _direct_reads() -> timeseries.Panel:
    metric = "pipelined_direct_read_bytes_total"
    return lines(
        "Read past the page cache",
        Help(
            "Bytes that each stage read with O_DIRECT, of the ten stages that read most so in the"
            " time that is shown.",
            "nothing, unless a program asks for it: such reads are not read ahead.",
            "a stage that reads this way and stalls: it has to read ahead by itself.",
        ),
        [
            Query(
                in_order(
                    ranked(
                        PIPELINES.growth(metric, by=_BY_STAGE),
                        _BY_STAGE,
                        PIPELINES.once.growth(metric, by=_BY_STAGE),
                    )
                ),
                _STAGE,
            )
        ],
        Limits("binBps", at_least=1024),
        empty="No direct read, or the readahead tier is off: run pipelined doctor",
    )


def _length_of_a_stall() -> timeseries.Panel:
    return lines(
        "Mean length of a stall",
        Help(
            "How long a reader's sleep for disk took, by the page that ended it.",
            "below 1 ms: a fast disk, or short reads.",
            "above 10 ms: a disk that seeks, or that others keep busy.",
        ),
        [
            Query(
                PIPELINES.ratio(
                    PIPELINES.growth("pipelined_stall_seconds_total", by=("class",)),
                    PIPELINES.growth("pipelined_stalls_total", by=("class",)),
                ),
                "{{class}}",
            )
        ],
        Limits("s", min=None),
        colours=page_colours(),
        logarithmic=True,
        empty=READAHEAD_OFF,
    )


def _faults() -> timeseries.Panel:
    return lines(
        "Faults on mapped files",
        Help(
            "Faults on pages of mapped files, programs and libraries among them: miss, the fault"
            " brought the page in; late, it slept for a page that was being read; other.",
            "near 0 after the start.",
            "miss all the time: a mapped file is read at random, or memory is short.",
        ),
        [Query(PIPELINES.growth("pipelined_file_faults_total", by=("class",)), "{{class}}")],
        Limits("cps", at_least=1),
        colours=page_colours(),
        empty=READAHEAD_OFF,
    )


def _in_bytes(pages: str) -> str:
    return f"4096 * {pages}"
