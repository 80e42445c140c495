# SPDX-License-Identifier: Apache-2.0
"""Runs and totals, from what each sweep read. Pure: knows no BPF, HTTP or Prometheus.

Totals grow by what each run grew since the sweep before, under the signature that the
run had then; so they never go back, whatever a run turns out to be, and a run that ended
between two sweeps is in them whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .records import Group, StageRecord
from .runs import LEVELS, STATES, PipeEnd, Run, Series, Stage
from .topology import arrange

__all__ = ["OTHER", "Model", "StageTotals", "Totals"]

#: Signature, and command, under which everything past the bound is folded.
OTHER = "(other)"

_COUNTERS = (
    "user_seconds",
    "system_seconds",
    "read_bytes",
    "written_bytes",
    "read_calls",
    "write_calls",
    "sleeps_empty",
    "sleeps_full",
    "forks",
    "execs",
    "exited_children",
    "children_cpu_seconds",
    "children_lifetime_seconds",
)


@dataclass(frozen=True, slots=True)
class StageTotals:
    """Sums over all runs of one place in one pipeline; units as in `runs.Stage`."""

    states: Mapping[str, float]
    user_seconds: float
    system_seconds: float
    read_bytes: int
    written_bytes: int
    read_calls: int
    write_calls: int
    sleeps_empty: int
    sleeps_full: int
    forks: int
    execs: int
    exec_failures: int | None
    exited_children: int
    children_cpu_seconds: float
    children_lifetime_seconds: float


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all runs of one pipeline, finished and live."""

    runs: int
    active: int
    run_seconds: float
    last_run_seconds: float | None
    last_run_end: float | None
    levels: tuple[float, ...]
    disk_overlapped_seconds: float
    disk_alone_seconds: float
    stages: Mapping[tuple[int, str], StageTotals]


@dataclass(slots=True)
class _Sums:
    """What grows under one series."""

    runs: int = 0
    active: int = 0
    run_seconds: float = 0.0
    last_run_seconds: float | None = None
    last_run_end: float | None = None
    levels: list[float] = field(default_factory=lambda: [0.0] * len(LEVELS))
    disk: list[float] = field(default_factory=lambda: [0.0, 0.0])
    stages: dict[tuple[int, str], list[float]] = field(default_factory=dict)


@dataclass(slots=True)
class _Seen:
    """What has been counted of a run, so that only growth is counted."""

    values: list[float]
    finished: bool = False


class Model:
    """Takes what each sweep read; answers with runs and totals."""

    def __init__(
        self,
        *,
        max_signatures: int,
        recent_runs: int,
        unit_of: Callable[[int], str],
        arguments_of: Callable[[int], str | None] = lambda pid: None,
        exec_failures: bool = False,
        grace: float = 1.0,
    ) -> None:
        """`unit_of` names a cgroup id; `exec_failures`: a hook that tells them is attached.

        A run counts as finished `grace` seconds after its last process ended: a stage
        that has not been met yet may still join it.
        """
        self._max_signatures = max_signatures
        self._unit_of = unit_of
        self._arguments_of = arguments_of
        self._exec_failures = exec_failures
        self._grace = grace
        self._sums: dict[Series, _Sums] = {}
        self._runs: dict[int, _Seen] = {}
        self._stages: dict[tuple[int, int], _Seen] = {}
        self._modes: dict[tuple[int, int], tuple[float, float]] = {}
        self._arguments: dict[tuple[int, int], str | None] = {}
        self._live: list[Run] = []
        self._recent: deque[Run] = deque(maxlen=recent_runs)

    def update(
        self, groups: Sequence[Group], now: float, unix: float, *, grace: float | None = None
    ) -> list[StageRecord]:
        """Take in a sweep at monotonic time `now`; `unix` turns such times into Unix time.

        Returns the stages that are over and counted: their records can be given back.
        """
        grace = self._grace if grace is None else grace
        by_stage = {stage.index: group for group in groups for stage in group.stages}
        over: list[StageRecord] = []
        live: list[Run] = []
        for sums in self._sums.values():
            sums.active = 0
        for group in groups:
            ended = group.clock.live == 0 and all(not stage.live for stage in group.stages)
            age = now - max(group.clock.end, *[stage.end for stage in group.stages], 0.0)
            if ended and age >= self._grace:
                over.extend(group.stages)
            if not group.joined:
                continue
            seen = self._runs.setdefault(group.root, _Seen([0.0] * (len(LEVELS) + 3)))
            if seen.finished:
                continue
            finished = ended and age >= grace
            run = self._run(group, by_stage, unix, finished)
            self._count(run, group, seen)
            if finished:
                seen.finished = True
                self._recent.append(run)
            else:
                live.append(run)
                self._sums[run.series].active += 1
        self._live = live
        self._forget(over, by_stage)
        return over

    def runs(self) -> list[Run]:
        """Live runs, then the recent finished ones; newest start first in each."""
        return [
            *sorted(self._live, key=lambda run: -run.start),
            *sorted(self._recent, key=lambda run: -run.start),
        ]

    def totals(self) -> dict[Series, Totals]:
        """Everything counted so far, by series."""
        return {series: self._totals(sums) for series, sums in self._sums.items()}

    # -- one run

    def _run(self, group: Group, by_stage: Mapping[int, Group], unix: float, finished: bool) -> Run:
        records = sorted(group.stages, key=lambda stage: (stage.root_start, stage.index))
        edges = _edges(records, group.slot_edges)
        order = arrange([stage.command for stage in records], edges)
        stages = tuple(
            self._stage(records[i], position, unix)
            for i, position in zip(order.sequence, order.positions, strict=True)
        )
        place = {i: at for at, i in enumerate(order.sequence)}
        parent = self._parent(group, by_stage)
        end = max(stage.end for stage in records) if finished else None
        levels = tuple(max(0.0, alone + disk) for alone, disk in group.clock.times)
        series = Series(order.signature, parent is not None, self._unit_of(records[0].cgroup))
        return Run(
            id=_run_id(group, unix),
            series=self._bounded(series),
            start=group.clock.start + unix,
            end=None if end is None else end + unix,
            wall_seconds=sum(levels),
            partial=any(stage.partial for stage in records),
            levels=levels,
            disk_overlapped_seconds=max(0.0, sum(disk for _, disk in group.clock.times[1:])),
            disk_alone_seconds=max(0.0, group.clock.times[0][1]),
            stages=stages,
            endpoints=group.endpoints,
            parent=None if parent is None else _run_id(parent, unix),
            edges=tuple(sorted((place[a], place[b]) for a, b in edges)),
        )

    def _stage(self, record: StageRecord, position: int, unix: float) -> Stage:
        user, system = self._cpu_modes(record)
        key = (record.index, record.generation)
        if key not in self._arguments:
            self._arguments[key] = self._arguments_of(record.pid) if record.live else None
        return Stage(
            position=position,
            command=record.command,
            pid=record.pid,
            start=record.start + unix,
            end=None if record.live else record.end + unix,
            states={
                name: max(0.0, seconds) for name, seconds in zip(STATES, record.times, strict=True)
            },
            user_seconds=user,
            system_seconds=system,
            read_bytes=record.read_bytes,
            written_bytes=record.written_bytes,
            read_calls=record.read_calls,
            write_calls=record.write_calls,
            sleeps_empty=record.sleeps_empty,
            sleeps_full=record.sleeps_full,
            forks=record.forks,
            execs=record.execs,
            exec_failures=record.exec_failures if self._exec_failures else None,
            exited_children=record.exited_children,
            children_cpu_seconds=record.children_cpu,
            children_lifetime_seconds=record.children_life,
            ends=tuple(
                PipeEnd(f"{end.device:x}:{end.inode}", end.side, end.sleeps, end.seconds)
                for end in record.ends
            ),
            arguments=self._arguments[key],
        )

    def _cpu_modes(self, record: StageRecord) -> tuple[float, float]:
        """Split the exact CPU time by the kernel's ticks, as its cputime_adjust does.

        Neither part goes back: kernel/sched/cputime.c, commit 3dc167ba5729 (v5.10).
        """
        key = (record.index, record.generation)
        before_user, before_system = self._modes.get(key, (0.0, 0.0))
        cpu = max(record.times[0], before_user + before_system)
        ticks = record.user + record.system
        system = max(cpu * record.system / ticks if ticks else 0.0, before_system)
        user = max(cpu - system, before_user)
        system = cpu - user
        self._modes[key] = (user, system)
        return user, system

    def _parent(self, group: Group, by_stage: Mapping[int, Group]) -> Group | None:
        """The run around this one: of the nearest enclosing stage that is in a pipeline."""
        outer = group.stages[0].outer
        while outer and outer in by_stage:
            around = by_stage[outer]
            if around.joined and around.root != group.root:
                return around
            outer = next(stage.outer for stage in around.stages if stage.index == outer)
        return None

    def _bounded(self, series: Series) -> Series:
        if series in self._sums:
            return series
        if len(self._sums) >= self._max_signatures:
            series = Series(OTHER, series.nested, "-")
        self._sums.setdefault(series, _Sums())
        return series

    # -- sums

    def _count(self, run: Run, group: Group, seen: _Seen) -> None:
        sums = self._sums[run.series]
        now = [*run.levels, run.disk_overlapped_seconds, run.disk_alone_seconds]
        grown = _grow(seen.values, now)
        for level in range(len(LEVELS)):
            sums.levels[level] += grown[level]
        sums.run_seconds += sum(grown[: len(LEVELS)])
        sums.disk[0] += grown[-2]
        sums.disk[1] += grown[-1]
        if run.end is not None:
            sums.runs += 1
            sums.last_run_seconds = run.wall_seconds
            sums.last_run_end = run.end
        records = {stage.pid: stage for stage in group.stages}
        folded = run.series.pipeline == OTHER
        for stage in run.stages:
            record = records[stage.pid]
            key = (0, OTHER) if folded else (stage.position, stage.command)
            values = [
                *(stage.states[name] for name in STATES),
                *(getattr(stage, name) for name in _COUNTERS),
                record.exec_failures,
            ]
            total = sums.stages.setdefault(key, [0.0] * len(values))
            stage_seen = self._stages.setdefault(
                (record.index, record.generation), _Seen([0.0] * len(values))
            )
            for i, grew in enumerate(_grow(stage_seen.values, values)):
                total[i] += grew

    def _totals(self, sums: _Sums) -> Totals:
        return Totals(
            runs=sums.runs,
            active=sums.active,
            run_seconds=sums.run_seconds,
            last_run_seconds=sums.last_run_seconds,
            last_run_end=sums.last_run_end,
            levels=tuple(sums.levels),
            disk_overlapped_seconds=sums.disk[0],
            disk_alone_seconds=sums.disk[1],
            stages={key: self._stage_totals(values) for key, values in sums.stages.items()},
        )

    def _stage_totals(self, values: Sequence[float]) -> StageTotals:
        states, counters = values[: len(STATES)], values[len(STATES) :]
        named: dict[str, float] = dict(zip(_COUNTERS, counters, strict=False))
        return StageTotals(
            states=dict(zip(STATES, states, strict=True)),
            exec_failures=int(counters[-1]) if self._exec_failures else None,
            **{
                name: value if name.endswith("_seconds") else int(value)
                for name, value in named.items()
            },  # type: ignore[arg-type]
        )

    def _forget(self, over: Iterable[StageRecord], by_stage: Mapping[int, Group]) -> None:
        for stage in over:
            key = (stage.index, stage.generation)
            self._stages.pop(key, None)
            self._modes.pop(key, None)
            self._arguments.pop(key, None)
            self._runs.pop(by_stage[stage.index].root, None)


def _grow(before: list[float], now: Sequence[float]) -> list[float]:
    """How much each value exceeds the largest one seen; `before` is brought up to date."""
    grown = []
    for i, value in enumerate(now):
        more = value - before[i]
        if more > 0:
            before[i] = value
            grown.append(more)
        else:
            grown.append(0.0)
    return grown


def _edges(
    stages: Sequence[StageRecord], slot_edges: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    ends: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for i, stage in enumerate(stages):
        for end in stage.ends:
            if end.joined:
                sides = ends.setdefault((end.inode, end.device), ([], []))
                sides[end.side == "read"].append(i)
    place = {stage.index: i for i, stage in enumerate(stages)}
    edges = {(place[a], place[b]) for a, b in slot_edges}
    edges.update((a, b) for writers, readers in ends.values() for a in writers for b in readers)
    return sorted((a, b) for a, b in edges if a != b)


def _run_id(group: Group, unix: float) -> str:
    first = min(group.stages, key=lambda stage: (stage.start, stage.index))
    return f"{int((group.clock.start + unix) * 1000)}-{first.pid}"
