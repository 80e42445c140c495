# SPDX-License-Identifier: Apache-2.0
"""A run as JSON: the one schema behind /api/v1/pipelines and every `--json`.

Key names carry their unit (`wall_seconds`, `read_bytes`); time stamps are Unix time and
end in `_timestamp_seconds`; ratios go from 0 to 1 and end in `_ratio`. docs/API.md
describes every key. Keys are only ever added to this version of the schema.
"""

from __future__ import annotations

from typing import Any

from pipelined.runs import LEVELS, STATES, Run, Stage

__all__ = ["run_as_dict"]


def run_as_dict(run: Run, show_arguments: bool = False) -> dict[str, Any]:
    """Everything known of `run`, ready for `json.dumps`.

    `arguments` (the stages' command lines, which may hold secrets) appears only with
    `show_arguments`.
    """
    return {
        "id": run.id,
        "pipeline": run.pipeline,
        "nested": run.series.nested,
        "unit": run.series.unit,
        "parent": run.parent,
        "live": run.live,
        "partial": run.partial,
        "start_timestamp_seconds": run.start,
        "end_timestamp_seconds": run.end,
        "wall_seconds": run.wall_seconds,
        "cpu_seconds": run.cpu_seconds,
        "cores_used": run.cores_used,
        "overlap_ratio": run.overlap,
        "io_overlap_ratio": run.io_overlap,
        "level_seconds": dict(zip(LEVELS, run.levels, strict=True)),
        "disk_wait_seconds": {
            "overlapped": run.disk_overlapped_seconds,
            "alone": run.disk_alone_seconds,
        },
        "stages": [_stage_as_dict(stage, show_arguments) for stage in run.stages],
        "edges": [{"writer": writer, "reader": reader} for writer, reader in run.edges],
        "endpoints": [{"command": end.command, "side": end.side} for end in run.endpoints],
    }


def _stage_as_dict(stage: Stage, show_arguments: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "position": stage.position,
        "command": stage.command,
        "pid": stage.pid,
        "start_timestamp_seconds": stage.start,
        "end_timestamp_seconds": stage.end,
        "lifetime_seconds": stage.lifetime_seconds,
        "state_seconds": {state: stage.states[state] for state in STATES},
        "user_seconds": stage.user_seconds,
        "system_seconds": stage.system_seconds,
        "read_bytes": stage.read_bytes,
        "written_bytes": stage.written_bytes,
        "read_calls": stage.read_calls,
        "write_calls": stage.write_calls,
        "pipe_sleeps": {"empty": stage.sleeps_empty, "full": stage.sleeps_full},
        "forks": stage.forks,
        "execs": stage.execs,
        "exec_failures": stage.exec_failures,
        "exited_children": stage.exited_children,
        "exited_children_cpu_seconds": stage.children_cpu_seconds,
        "exited_children_lifetime_seconds": stage.children_lifetime_seconds,
        "pipe_ends": [
            {
                "pipe": end.pipe,
                "side": end.side,
                "sleeps": end.sleeps,
                "sleep_seconds": end.seconds,
            }
            for end in stage.ends
        ],
    }
    if show_arguments:
        described["arguments"] = stage.arguments
    return described
