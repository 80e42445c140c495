# SPDX-License-Identifier: Apache-2.0
"""The observer that stands in for the real one, and invented runs for it to show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pipelined.analysis.machine import Host
from pipelined.model.tracker import SeriesUse, StartedRuns
from pipelined.observer import Hook, MapUse, SweepStats
from pipelined.runs import (
    LEVELS,
    STATES,
    Endpoint,
    PipeEnd,
    Point,
    Run,
    Series,
    StagePoint,
    Timeline,
)
from pipelined.starter import Starter
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
        series=Series(pipeline=pipeline, nested=False, unit="session.scope"),
        start=START + number,
        end=None if live else START + 10 + number,
        levels=(1.0, 4.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        disk_overlapped_seconds=0.5,
        disk_alone_seconds=1.5,
        endpoints=(Endpoint("bash", "read"),),
    )


def three_runs() -> list[Run]:
    """Newest first; the newest is live."""
    return [run(3), run(2, "yes|head", live=False), run(1, live=False)]


class FakeObserver:
    """Stands in for `observer.Observer`: shows what its attributes hold."""

    def __init__(self, *runs: Run, totals: Mapping[Series, Any] | None = None) -> None:
        self.seen = list(runs)
        self.talks: list[Run] = []
        self.loader = "libbpf"
        self.daemon: str | None = None
        self.opened = START
        self.starter: Starter | None = None
        """The process that started all runs."""
        self.ended_before = 0
        """How many of them are kept no longer."""
        self.calls: list[str] = []
        """Of `start`, `attach_optional`, `settle` and `close`, in their order."""
        self.sweep_stats = SweepStats(last_time=START + 99.5)
        self.totals_taken = 0
        self.found_hooks: list[Hook] = []
        self.hooks_to_come: list[Hook] = []
        """What `attach_optional` makes of the hooks that are pending."""
        self.found_maps: list[MapUse] = []
        self.lost_stages = 0
        self.other_losses: dict[str, int] = {}
        self.switches_missed = 0
        self.events_missed: dict[str, int] = {}
        self.not_ready: str | None = None
        self.use = SeriesUse(9_500, 42, 0, 0.0)
        self.short: dict[str, int] = {}
        """Short runs of the last minute, by signature."""
        self._totals_to_come = dict(totals or {})
        self._totals: dict[Series, Any] = {}

    def start(self) -> None:
        self.calls.append("start")

    def attach_optional(self) -> None:
        self.calls.append("attach_optional")
        self.found_hooks = [h for h in self.found_hooks if not h.pending] + self.hooks_to_come

    def settle(self, starter: Starter | None = None) -> None:
        self.calls.append("settle")

    def compared(self, series: Series, usual_ratio: float | None) -> None:
        """Nobody asks how runs compare with what is usual."""

    def sweep(self) -> None:
        """Totals are there from the first sweep on."""
        self.sweep_stats.count += 1
        self._totals = self._totals_to_come

    def close(self) -> None:
        self.calls.append("close")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def runs(self) -> list[Run]:
        return list(self.seen)

    def started(self, starter: Starter, after: int = 0) -> StartedRuns:
        if starter != self.starter:
            return StartedRuns(0, [])
        ended = [run for run in self.seen if not run.live]
        live = [run for run in self.seen if run.live]
        first = max(0, after - self.ended_before)
        return StartedRuns(self.ended_before + len(ended), [*ended[first:], *live])

    def ended(self) -> int:
        return self.ended_before + sum(not run.live for run in self.seen)

    def conversations(self) -> list[Run]:
        return list(self.talks)

    def live(self) -> int:
        return sum(run.live for run in self.seen)

    def totals(self) -> dict[Series, Any]:
        self.totals_taken += 1
        return self._totals

    def short_runs(self) -> dict[str, int]:
        return self.short

    def counted(self) -> tuple[dict[Series, Any], SeriesUse]:
        return self.totals(), self.use

    def timeline(self, run_id: str) -> Timeline | None:
        """Two points of a second each, of the runs that there are."""
        for found in self.seen:
            if found.id == run_id:
                return tuple(point(found, number) for number in range(2))
        return None

    def hooks(self) -> list[Hook]:
        return self.found_hooks

    def maps(self) -> list[MapUse]:
        return self.found_maps

    def lost(self) -> dict[str, int]:
        return {"stages": self.lost_stages} | self.other_losses

    def missed_switches(self) -> int:
        return self.switches_missed

    def missed_events(self) -> dict[str, int]:
        return self.events_missed

    def ready(self) -> str | None:
        return self.not_ready


def hook(name: str, *, attached: bool = True, reason: str = "", tier: str = "sched") -> Hook:
    """A hook that is attached, or that is not for this reason."""
    return Hook(name, tier, "tp_btf", attached, reason)


def point(of: Run, number: int) -> Point:
    """One second of a run, in which its first stage was on CPU."""
    stages = tuple(
        StagePoint({"cpu": 1.0} if index == 0 else {"pipe_empty": 1.0}, 0, 1000)
        for index in range(len(of.stages))
    )
    levels = (0.0, 1.0, *[0.0] * (len(LEVELS) - 2))
    return Point(of.start + number, of.start + number + 1, levels, stages)
