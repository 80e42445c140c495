# SPDX-License-Identifier: Apache-2.0
"""Invented stages and runs for tests of what is made of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipelined.model.sighting import Finished
from pipelined.runs import (
    FILL_EDGES,
    LEVELS,
    SIZE_EDGES,
    STATES,
    TIME_EDGES,
    Edge,
    Flow,
    Functions,
    Histogram,
    Point,
    Readahead,
    Run,
    Series,
    Stage,
    StagePoint,
    Stalls,
    StallSeconds,
    Timeline,
)

START = 1_700_000_000.0


def make_stage(position: int, command: str, **given: Any) -> Stage:
    """A live stage of which nothing is known but what is given: fields, or seconds by state.

    If no `flow` is given, all that it reads and writes goes through pipes.
    """
    states = {state: given.pop(state, 0.0) for state in STATES}
    values: dict[str, Any] = {
        "position": position,
        "command": command,
        "pid": 100 + position,
        "start": START,
        "end": None,
        "states": states,
        "user_seconds": states["cpu"],
        "system_seconds": 0.0,
        "read_bytes": 0,
        "written_bytes": 0,
        "read_calls": 0,
        "write_calls": 0,
        "sleeps_empty": 0,
        "sleeps_full": 0,
        "forks": 0,
        "execs": 1,
        "exec_failures": None,
        "exited_children": 0,
        "children_cpu_seconds": 0.0,
        "children_lifetime_seconds": 0.0,
    }
    values |= given
    through = Flow(values["read_bytes"], values["written_bytes"], 0, 0, exact=True)
    return Stage(**{"flow": through} | values)


def make_histogram(edges: tuple[float, ...], *values: float, past: bool = True) -> Histogram:
    """The histogram of these values; `past`: with a bucket for what is over all edges."""
    counts = [0] * (len(edges) + past)
    for value in values:
        counts[bisect_left(edges, value)] += 1
    return Histogram.of(edges, counts, sum(values))


def make_functions() -> Functions:
    """Of a stage that has called every function."""
    return Functions(
        pipe_writes=make_histogram(SIZE_EDGES, 1, 4096, 4097, 3_000_000),
        pipe_reads=make_histogram(SIZE_EDGES, 65536),
        file_reads=make_histogram(SIZE_EDGES, 100, 131072),
        file_read_seconds=make_histogram(TIME_EDGES, 2**-20, 0.25),
        pipe_fill=make_histogram(FILL_EDGES, 0, 0.5, 0.5625, 1, past=False),
        pipe_capacity_bytes=65536,
    )


def make_readahead(**given: Any) -> Readahead:
    """Of a stage that read a cold file: 10,000 pages, most of them read ahead."""
    values: dict[str, Any] = {
        "pages": {"warm": 100, "hit": 9000, "late": 800, "miss": 100, "wasted": 200},
        "inserted_pages": 10_000,
        "direct_bytes": 4096,
        "faults": {"miss": 1, "late": 2, "other": 3},
        "stalls": {"miss": Stalls(2, 10), "late": Stalls(40, 60), "other": Stalls()},
        "stall_seconds": {
            "miss": StallSeconds(0.08, 0.3),
            "late": StallSeconds(0.12, 0.4),
            "other": StallSeconds(),
        },
    }
    return Readahead(**values | given)


def make_run(stages: Sequence[Stage], wall: float, *, overlapping: float = 0, **given: Any) -> Run:
    """A live chain of stages, of whose time on CPU the share `overlapping` is at level 2."""
    busy = min(wall, sum(stage.cpu_seconds for stage in stages))
    levels = (wall - busy, busy * (1 - overlapping), busy * overlapping)
    values: dict[str, Any] = {
        "id": "1",
        "series": Series(
            pipeline="|".join(stage.command for stage in stages), nested=False, unit="-"
        ),
        "start": START,
        "end": None,
        "wall_seconds": wall,
        "partial": False,
        "levels": (*levels, *[0.0] * (len(LEVELS) - len(levels))),
        "disk_overlapped_seconds": 0.0,
        "disk_alone_seconds": 0.0,
        "stages": tuple(stages),
        "edges": tuple(Edge(index, index + 1) for index in range(len(stages) - 1)),
    }
    return Run(**values | given)


def make_ended(number: int, pipeline: str = "cat|sort", *, wall: float = 1.0, **given: Any) -> Run:
    """A run that began `number` seconds after START, as the history might have it."""
    stages = [
        make_stage(
            position,
            command,
            cpu=0.25 * position,
            end=START + number + wall,
            readahead=make_readahead(),
            arguments=f"{command} --password=hunter2",
        )
        for position, command in enumerate(pipeline.split("|"), 1)
    ]
    values: dict[str, Any] = {
        "id": f"{int((START + number) * 1000)}-{number}",
        "series": Series(pipeline=pipeline, nested=False, unit="-"),
        "start": START + number,
        "end": START + number + wall,
    }
    return make_run(stages, wall, **values | given)


def make_inside(outer: Run, number: int, pipeline: str = "seq|sort", **given: Any) -> Run:
    """A run as of `make_ended` that lies in a stage of `outer`."""
    place: dict[str, Any] = {
        "series": Series(pipeline=pipeline, nested=True, unit=outer.series.unit),
        "parent": outer.id,
        "parent_pipeline": outer.pipeline,
    }
    return make_ended(number, pipeline, **place | given)


def make_barrier(number: int, at: float, wall: float) -> Run:
    """A sort in front of an awk that passes on a tenth; begins `at` seconds after `START`."""
    stages = [
        make_stage(1, "zcat", cpu=wall * 0.1, written_bytes=1 << 27, pipe_full=wall * 0.6),
        make_stage(2, "sort", cpu=wall * 0.7, read_bytes=1 << 27, written_bytes=1 << 27),
        make_stage(
            3,
            "awk",
            cpu=wall * 0.05,
            pipe_empty=wall * 0.95,
            read_bytes=1 << 27,
            written_bytes=1 << 23,
        ),
    ]
    given = {"id": f"sort-{number}", "start": START + at, "end": START + at + wall}
    return make_run(stages, wall, **given)


def make_live(run: Run) -> Run:
    """The run, which has not ended yet."""
    return replace(run, end=None, stages=tuple(replace(of, end=None) for of in run.stages))


def make_timeline(run: Run, count: int = 1) -> Timeline:
    """A run's time line, in `count` points of which each is like the others."""
    stages = tuple(
        StagePoint(
            {"cpu": stage.cpu_seconds / count},
            stage.read_bytes // count,
            stage.written_bytes // count,
            stage.pid,
        )
        for stage in run.stages
    )
    levels = tuple(seconds / count for seconds in run.levels)
    step = run.wall_seconds / count
    return tuple(
        Point(run.start + n * step, run.start + (n + 1) * step, levels, stages)
        for n in range(count)
    )


def make_finished(run: Run) -> Finished:
    """What the model reports of a run that has ended."""
    return Finished(
        wall_seconds=run.wall_seconds,
        make=lambda: (run, make_timeline(run)),
        series=run.series,
        end=run.end or run.start + run.wall_seconds,
        cpu_seconds=run.cpu_seconds,
        not_overlapped_seconds=sum(run.levels[:2]),
        read_bytes=sum(stage.read_bytes for stage in run.stages),
        written_bytes=sum(stage.written_bytes for stage in run.stages),
        outcome=run.result,
        input_bytes=run.input_bytes,
    )
