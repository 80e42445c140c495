# SPDX-License-Identifier: Apache-2.0
"""An observer of invented runs, for tests of what is shown over HTTP."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pipelined.analysis.machine import Host
from pipelined.model.timeline import Point, StagePoint, Timeline
from pipelined.runs import LEVELS, STATES, Endpoint, PipeEnd, Run, Series
from unit.invented import START, make_functions, make_run, make_stage

HOST = Host(cores=2, l2_bytes=1 << 20)


def run(number: int, pipeline: str = "cat|awk", *, live: bool = True) -> Run:
    stages = [
        make_stage(
            position,
            command,
            states=dict.fromkeys(STATES, 0.25),
            ends=(PipeEnd("0:14:123", "write", 4, 0.25),),
            arguments=f"{command} --password=hunter2",
            functions=make_functions(),
        )
        for position, command in enumerate(pipeline.split("|"), 1)
    ]
    return make_run(
        stages,
        10.0,
        id=f"run-{number}",
        series=Series(pipeline, nested=False, unit="session.scope"),
        start=START + number,
        end=None if live else START + 10 + number,
        levels=(1.0, 4.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        disk_overlapped_seconds=0.5,
        disk_alone_seconds=1.5,
        endpoints=(Endpoint("bash", "read"),),
    )


class FakeObserver:
    """Three runs, newest first; the newest is live."""

    def __init__(self) -> None:
        self.not_ready: str | None = None
        self.loader = "libbpf"
        self.found = [run(3), run(2, "yes|head", live=False), run(1, live=False)]
        self.sweep_stats = SimpleNamespace(
            count=0, seconds_total=0.0, last_seconds=0.0, last_time=1_700_000_099.5, failures=0
        )

    def sweep(self) -> None:
        self.sweep_stats.count += 1

    def live(self) -> int:
        return sum(run.live for run in self.found)

    def totals(self) -> dict[Series, Any]:
        return {}

    def runs(self) -> list[Run]:
        return self.found

    def hooks(self) -> list[Any]:
        return []

    def lost(self) -> dict[str, int]:
        return {"stages": 0}

    def missed_switches(self) -> int:
        return 0

    def missed_events(self) -> dict[str, int]:
        return {}

    def timeline(self, run_id: str) -> Timeline | None:
        """Two points of a second each, of the runs that there are."""
        for found in self.found:
            if found.id == run_id:
                return tuple(point(found, number) for number in range(2))
        return None

    def maps(self) -> list[Any]:
        return []

    def ready(self) -> str | None:
        return self.not_ready


def point(of: Run, number: int) -> Point:
    """One second of a run, in which its first stage was on CPU."""
    stages = tuple(
        StagePoint({"cpu": 1.0} if index == 0 else {"pipe_empty": 1.0}, 0, 1000)
        for index in range(len(of.stages))
    )
    levels = (0.0, 1.0, *[0.0] * (len(LEVELS) - 2))
    return Point(of.start + number, of.start + number + 1, levels, stages)
