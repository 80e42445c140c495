# SPDX-License-Identifier: Apache-2.0
"""A run as JSON: the one schema behind /api/v1/pipelines and every `--json`.

Key names carry their unit (`wall_seconds`, `read_bytes`); time stamps are Unix time and
end in `_timestamp_seconds`; ratios go from 0 to 1 and end in `_ratio`. `answers` describes
every key. Keys are only ever added to this version of the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

from pipelined.analysis.finding_times import Stretch, finding_times
from pipelined.analysis.findings import DOCUMENTATION, Finding, findings
from pipelined.analysis.machine import Host
from pipelined.analysis.rewriting import Script
from pipelined.analysis.sentence import sentence
from pipelined.runs import (
    HISTOGRAMS,
    LEVELS,
    PAGE_CLASSES,
    STALL_CLASSES,
    STATES,
    Endpoint,
    Flow,
    Functions,
    Histogram,
    OtherPipeline,
    PipeEnd,
    Readahead,
    Run,
    Series,
    Stage,
    Stalls,
    Surroundings,
    Timeline,
)

if TYPE_CHECKING:
    from pipelined.answers.run import (
        DescribedRunJson,
        FindingJson,
        MachineJson,
        RunJson,
        SurroundingsJson,
    )
    from pipelined.answers.stage import FunctionsJson, HistogramJson, ReadaheadJson, StageJson

__all__ = ["describe_run", "machine_as_dict", "run_as_dict", "run_from_dict"]


def describe_run(
    run: Run,
    host: Host,
    show_arguments: bool = False,
    script: Script | None = None,
    timeline: Timeline = (),
) -> DescribedRunJson:
    """`run_as_dict`, and the analysis of the run: the verdict and the findings.

    `host` is the machine that it ran on, `script` what is known of its command; with
    `show_arguments` that may be the stages' command lines. With the run's `timeline` it has when
    findings show. `run_from_dict` takes this form too, and ignores the analysis, which is computed
    anew.
    """
    if script is None and show_arguments:
        script = Script.of_arguments(run)
    found = findings(run, host, script)
    times = finding_times(run, timeline, found)
    return {
        **run_as_dict(run, show_arguments),
        "verdict": sentence(run),
        "findings": [_finding_as_dict(*one) for one in zip(found, times, strict=True)],
    }


def machine_as_dict(host: Host) -> MachineJson:
    """The machine that an analysis is for."""
    return {"cores": host.cores, "l2_bytes": host.l2_bytes}


def _finding_as_dict(finding: Finding, times: Sequence[Stretch]) -> FindingJson:
    return {
        "id": finding.id,
        "severity": finding.severity,
        "sentence": finding.sentence,
        "advice": finding.advice,
        "command": finding.command,
        "notice": finding.notice,
        "stages": list(finding.stages),
        "evidence": [
            {"name": evidence.name, "value": evidence.value, "unit": evidence.unit}
            for evidence in finding.evidence
        ],
        "gain_seconds": finding.gain_seconds,
        "gain_reason": finding.gain_reason,
        "times": [
            {
                "stage": stretch.stage,
                "start_timestamp_seconds": stretch.start,
                "end_timestamp_seconds": stretch.end,
            }
            for stretch in times
        ],
        "documentation": f"{DOCUMENTATION}#{finding.id}",
    }


def run_as_dict(run: Run, show_arguments: bool = False) -> RunJson:
    """Everything known about `run`, ready for `json.dumps`.

    `arguments` (the stages' command lines, which may hold secrets) appears only with
    `show_arguments`.
    """
    return {
        "id": run.id,
        "pipeline": run.pipeline,
        "nested": run.series.nested,
        "unit": run.series.unit,
        "parent": run.parent,
        "parent_pipeline": run.parent_pipeline,
        "live": run.live,
        "partial": run.partial,
        "partial_tiers": list(run.partial_tiers),
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
        "cache_state": run.readahead.cache_state if run.readahead else None,
        "stages": [_stage_as_dict(stage, show_arguments) for stage in run.stages],
        "edges": [{"writer": writer, "reader": reader} for writer, reader in run.edges],
        "endpoints": [{"command": end.command, "side": end.side} for end in run.endpoints],
        "surroundings": _surroundings_as_dict(run.surroundings),
    }


def _stage_as_dict(stage: Stage, show_arguments: bool) -> StageJson:
    described: StageJson = {
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
        "pipe_bytes": {
            "in": stage.flow.pipe_in,
            "out": stage.flow.pipe_out,
            "exact": stage.flow.exact,
        },
        "file_bytes": {"read": stage.flow.file_read, "written": stage.flow.file_written},
        "splices": stage.flow.splices,
        "read_calls": stage.read_calls,
        "write_calls": stage.write_calls,
        "pipe_sleeps": {"empty": stage.sleeps_empty, "full": stage.sleeps_full},
        "forks": stage.forks,
        "execs": stage.execs,
        "exec_failures": stage.exec_failures,
        "exited_children": stage.exited_children,
        "exited_children_cpu_seconds": stage.children_cpu_seconds,
        "exited_children_lifetime_seconds": stage.children_lifetime_seconds,
        "functions": None if stage.functions is None else _functions_as_dict(stage.functions),
        "readahead": None if stage.readahead is None else _readahead_as_dict(stage.readahead),
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


def run_from_dict(described: Mapping[str, Any]) -> Run:
    """The run that `run_as_dict` described, also after a round trip through JSON.

    Keys that this version does not know are ignored. Raises KeyError, TypeError or ValueError for
    anything else than such a description.
    """
    levels, waits = described["level_seconds"], described["disk_wait_seconds"]
    return Run(
        id=described["id"],
        series=Series(described["pipeline"], described["nested"], described["unit"]),
        start=described["start_timestamp_seconds"],
        end=described["end_timestamp_seconds"],
        wall_seconds=described["wall_seconds"],
        partial=described["partial"],
        levels=tuple(levels[level] for level in LEVELS),
        disk_overlapped_seconds=waits["overlapped"],
        disk_alone_seconds=waits["alone"],
        stages=tuple(_stage_from_dict(stage) for stage in described["stages"]),
        endpoints=tuple(Endpoint(end["command"], end["side"]) for end in described["endpoints"]),
        parent=described["parent"],
        parent_pipeline=described.get("parent_pipeline"),
        edges=tuple((edge["writer"], edge["reader"]) for edge in described["edges"]),
        partial_tiers=tuple(described.get("partial_tiers", ())),
        surroundings=_surroundings_from_dict(described.get("surroundings")),
    )


def _surroundings_as_dict(surroundings: Surroundings | None) -> SurroundingsJson | None:
    if surroundings is None:
        return None
    return {
        "others_cores_used": surroundings.others_cores,
        "throttled_seconds": surroundings.throttled_seconds,
        "pipelines": [
            {"pipeline": other.pipeline, "cpu_seconds": other.cpu_seconds}
            for other in surroundings.pipelines
        ],
    }


def _surroundings_from_dict(described: Mapping[str, Any] | None) -> Surroundings | None:
    if described is None:
        return None
    return Surroundings(
        described["others_cores_used"],
        described["throttled_seconds"],
        tuple(OtherPipeline(o["pipeline"], o["cpu_seconds"]) for o in described["pipelines"]),
    )


def _stage_from_dict(described: Mapping[str, Any]) -> Stage:
    states, sleeps = described["state_seconds"], described["pipe_sleeps"]
    return Stage(
        position=described["position"],
        command=described["command"],
        pid=described["pid"],
        start=described["start_timestamp_seconds"],
        end=described["end_timestamp_seconds"],
        # a state that the version which wrote it did not know
        states={state: states.get(state, 0.0) for state in STATES},
        user_seconds=described["user_seconds"],
        system_seconds=described["system_seconds"],
        read_bytes=described["read_bytes"],
        written_bytes=described["written_bytes"],
        flow=_flow_from_dict(described),
        read_calls=described["read_calls"],
        write_calls=described["write_calls"],
        sleeps_empty=sleeps["empty"],
        sleeps_full=sleeps["full"],
        forks=described["forks"],
        execs=described["execs"],
        exec_failures=described["exec_failures"],
        exited_children=described["exited_children"],
        children_cpu_seconds=described["exited_children_cpu_seconds"],
        children_lifetime_seconds=described["exited_children_lifetime_seconds"],
        ends=tuple(
            PipeEnd(end["pipe"], end["side"], end["sleeps"], end["sleep_seconds"])
            for end in described["pipe_ends"]
        ),
        arguments=described.get("arguments"),
        functions=_functions_from_dict(described.get("functions")),
        readahead=_readahead_from_dict(described.get("readahead")),
    )


def _flow_from_dict(described: Mapping[str, Any]) -> Flow:
    if "pipe_bytes" not in described:  # stored by a version that did not tell them apart
        return Flow(described["read_bytes"], described["written_bytes"], None, None, exact=False)
    pipes, files = described["pipe_bytes"], described["file_bytes"]
    return Flow(
        pipes["in"],
        pipes["out"],
        files["read"],
        files["written"],
        pipes["exact"],
        described["splices"],
    )


def _readahead_as_dict(readahead: Readahead) -> ReadaheadJson:
    return {
        "stall_seconds": {
            name: {"overlapped": stalls.overlapped_seconds, "alone": stalls.alone_seconds}
            for name, stalls in readahead.stalls.items()
        },
        "stalls": {
            name: {"overlapped": stalls.overlapped, "alone": stalls.alone}
            for name, stalls in readahead.stalls.items()
        },
        "pages": dict(readahead.pages),
        "read_pages": readahead.read_pages,
        "not_input_pages": readahead.not_input_pages,
        "inserted_pages": readahead.inserted_pages,
        "coverage_ratio": readahead.coverage,
        "timeliness_ratio": readahead.timeliness,
        "accuracy_ratio": readahead.accuracy,
        "warm_ratio": readahead.warm_share,
        "cache_state": readahead.cache_state,
        "direct_read_bytes": readahead.direct_bytes,
        "file_faults": dict(readahead.faults),
    }


def _readahead_from_dict(described: Mapping[str, Any] | None) -> Readahead | None:
    if described is None:
        return None
    counts, seconds = described["stalls"], described["stall_seconds"]
    return Readahead(
        pages={name: described["pages"][name] for name in PAGE_CLASSES},
        inserted_pages=described["inserted_pages"],
        direct_bytes=described["direct_read_bytes"],
        faults={name: described["file_faults"][name] for name in STALL_CLASSES},
        stalls={
            name: Stalls(
                counts[name]["alone"],
                counts[name]["overlapped"],
                seconds[name]["alone"],
                seconds[name]["overlapped"],
            )
            for name in STALL_CLASSES
        },
        # runs of older versions have no such key
        not_input_pages=described.get("not_input_pages", 0),
    )


def _functions_as_dict(functions: Functions) -> FunctionsJson:
    described: dict[str, Any] = {"pipe_capacity_bytes": functions.pipe_capacity_bytes}
    for kind in HISTOGRAMS:
        described[kind.name] = _histogram_as_dict(getattr(functions, kind.field))
    return cast("FunctionsJson", described)


def _histogram_as_dict(histogram: Histogram) -> HistogramJson:
    return {
        "count": histogram.count,
        "sum": histogram.sum,
        "buckets": [
            {"le": edge, "count": count}
            for edge, count in zip_longest(histogram.edges, histogram.counts)
            if count
        ],
    }


def _functions_from_dict(described: Mapping[str, Any] | None) -> Functions | None:
    if described is None:
        return None
    histograms = {}
    for kind in HISTOGRAMS:
        written = described[kind.name]
        found = {bucket["le"]: bucket["count"] for bucket in written["buckets"]}
        places = (*kind.edges, None) if kind.overflow else kind.edges
        counts = tuple(found.get(edge, 0) for edge in places)
        histograms[kind.field] = Histogram(kind.edges, counts, written["sum"])
    return Functions(**histograms, pipe_capacity_bytes=described["pipe_capacity_bytes"])
