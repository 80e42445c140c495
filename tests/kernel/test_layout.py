# SPDX-License-Identifier: Apache-2.0
"""The daemon decodes the very bytes that bpf/pipelined.h lays out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from pipelined.kernel import loader, records, sweep
from pipelined.runs import LEVELS, STATES

LAYOUT = Path(__file__).parent / "programs" / "build" / "layout"


def test_records_have_the_layout_of_the_header() -> None:
    layout = json.loads(subprocess.check_output([LAYOUT]))
    ends = records.STAGE.size - 8 * records.PIPE_END.size
    assert layout == {
        "stage": records.STAGE.size,
        "pipeline": records.PIPELINE.size,
        "functions": records.FUNCTIONS.size,
        "pipe": records.PIPE.size,
        "pipe_key": records.PIPE_KEY.size,
        "control": records.CONTROL.size,
        "stage.start_ns": sweep.START_OFFSET,
        "stage.generation": sweep.GENERATION_OFFSET,
        "stage.comm": ends - 16,
        "stage.ends": ends,
        "pipeline.start_ns": 8 * (2 + 2 * len(LEVELS)),
        "pipeline.alias": 8,
        "control.began_ns": sweep.BEGAN_OFFSET,
        "control.missed_switches": sweep.MISSED_SWITCHES_OFFSET,
        "control.watch_pid": sweep.WATCH_PID_OFFSET,
        "readahead": records.READAHEAD.size,
        "bpf_prog_info.recursion_misses": loader.RECURSION_MISSES_OFFSET,
        "states": len(STATES),
        "levels": len(LEVELS),
        "lost_kinds": len(records.LOST_KINDS),
    }
