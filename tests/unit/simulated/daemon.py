# SPDX-License-Identifier: Apache-2.0
"""A simulated host under the daemon's real sweep and model, and what has to be true of the two."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from unittest.mock import patch

import pytest

from pipelined.config import Config
from pipelined.kernel import layout
from pipelined.kernel.sweep import Sweep
from pipelined.model.outcome import exit_of
from pipelined.model.sighting import Finished
from pipelined.model.tracker import Lookups, Model
from pipelined.model.watched import Watched
from pipelined.records.stage import EXIT_SEEN, Group, StageRecord
from pipelined.runs import Run, Stage
from unit.recordings import swept
from unit.simulated.host import Host, Process
from unit.simulated.library import SimulatedMaps
from unit.simulated.programs import Command, Shells, Started

MAX_STAGES, MAX_PIPES = 128, 128

# A byte of a schedule: below the first of these the process with this number among those that can
# run makes some steps, from then on one with a sweep in the middle; time passes; the daemon sweeps.
FIRST_INTERRUPT, INTERRUPTS, FIRST_PAUSE, FIRST_SWEEP = 192, 32, 224, 232
# Where processes meet, another one makes steps on the other CPU in the middle of a program.
FIRST_MEETING = 160
STEPS = (1, 1, 3, 16)

_COUNTS = 4
"""Bytes of a stage's word that count threads; the others are behind them (bpf/pipelined.h)."""

WRAPPERS = frozenset(Config().wrappers)


class Observed:
    """A host with a daemon."""

    def __init__(
        self,
        programs: ctypes.CDLL,
        maps: SimulatedMaps,
        sweep: Sweep,
        *,
        starving: bool,
        meeting: bool,
    ) -> None:
        """If processes starve, runs may be finished before all that will belong to them has run."""
        self._maps, self._sweep = maps, sweep
        self._model = Model(
            Watched(0.0), Lookups(lambda _: "-"), recent_runs=10, on_finished=self._note
        )
        self.kernel = programs
        self.host = Host(programs)
        self.shells = Shells(self.host)
        self.finished: list[Run] = []
        self.failure: BaseException | None = None
        self._interrupting = False
        self._stopped: Process | None = None
        """Another process is to run in the middle of its program."""
        self._starving = starving
        self._first_meeting = FIRST_MEETING if meeting else FIRST_INTERRUPT

    def run(self, scripts: Sequence[tuple[str, Command]], schedule: bytes) -> None:
        """Run the scripts by this schedule, and then to the end; check what is recorded."""
        self.host.init.life = self.shells.boot(scripts)
        for self._at, choice in enumerate(schedule):
            self._choose(choice)
        turn = 0
        while not self.host.is_idle():
            turn += 1
            if runnable := self.host.runnable():
                self.host.step(runnable[turn % len(runnable)])
            else:
                self.host.pass_time(100_000_000)
            if turn % 40 == 0:
                self.sweep()
            assert turn < 20_000, "it never ends"
        for _ in range(4):
            self.host.pass_time(600_000_000)
            self.sweep()
        self._check_end()

    def _choose(self, choice: int) -> None:
        runnable = self.host.runnable()
        if choice >= FIRST_SWEEP:
            self.sweep()
        elif not runnable:
            self.host.pass_time((1 + choice % 8) * 60_000_000)
        elif choice >= FIRST_PAUSE:
            self.host.pass_time(1_100_000_000 if self._starving else 2_000_000)
        elif choice >= self._first_meeting:
            process = runnable[choice % len(runnable)]
            self._stopped = process if choice < FIRST_INTERRUPT else None
            calls = choice % INTERRUPTS * 7 + self._at % 7
            self.kernel.interrupt_after(1 + calls)
            with self.host.nothing_reused():
                self.host.step(process)
            self.kernel.interrupt_after(0)
            if self.failure:
                raise self.failure
        else:
            steps = STEPS[choice * len(STEPS) // self._first_meeting]
            self._go_on(runnable[choice % len(runnable)], steps)

    def _go_on(self, process: Process, steps: int) -> None:
        for _ in range(steps):
            if process.life and not process.sleep:
                self.host.step(process)

    def interrupted(self) -> None:
        """What happens in the middle of a program; ctypes would drop what is raised."""
        self._interrupting = True
        try:
            if self._stopped:
                self._meet(self._stopped)
            else:
                self._take()
        except BaseException as error:
            self.failure = error
        self._interrupting = False

    def _meet(self, stopped: Process) -> None:
        """A process runs on the other CPU."""
        others = [p for p in self.host.runnable() if p.slot % 2 != stopped.slot % 2]
        if others:
            self._go_on(others[self._at % len(others)], STEPS[self._at // 3 % len(STEPS)])

    def barrier(self) -> bool:
        """Whether all programs have ended: one that the daemon interrupts has not."""
        return not self._interrupting

    def sweep(self) -> None:
        for group in self._take():
            self._check_live(group)
        self._check_tasks()

    def _take(self) -> list[Group]:
        now = self.host.now
        groups = self._sweep.take()
        if not self._interrupting:
            self._check_ended(groups)
        self._sweep.free(self._model.update(groups, now))
        return groups

    def _note(self, finished: Finished) -> None:
        self.finished.append(finished.make()[0])

    def _process(self, pid: int, ns: int) -> Process:
        """The process that had this id at this time."""
        found = [p for p in self.host.processes if p.pid == pid and p.start_ns <= ns]
        assert found, f"no process had the id {pid}"
        return found[-1]

    def _check_live(self, group: Group) -> None:
        roots = [self._root(stage) for stage in group.stages]
        for stage, root in zip(group.stages, roots, strict=True):
            assert root.held_standard, f"{root} never used a pipe as a stage does"
            assert stage.command in self._names(root), f"{root} is called {stage.command}"
            assert min(stage.counted) >= 0
        assert min(group.clock.alone_ns) >= 0 and min(group.clock.disk_ns) >= 0
        if group.is_run and not all(stage.ended for stage in group.stages):
            below = [
                p for p in self.host.processes if p.alive and not set(roots).isdisjoint(p.above())
            ]
            assert below, f"the run of {roots} has outlived its processes"

    def _check_ended(self, groups: Sequence[Group]) -> None:
        """No thread of what is over is still counted as on CPU, or as waiting for disk."""
        with memoryview(self._sweep._stages) as records:
            for stage in (stage for group in groups for stage in group.stages if stage.ended):
                at = stage.index * ctypes.sizeof(layout.Stage) + layout.Stage.word.offset
                counts = int.from_bytes(records[at : at + _COUNTS], sys.byteorder)
                assert not counts, f"{stage.command} is over and counts {counts:#x} threads"

    def _root(self, stage: StageRecord) -> Process:
        root = self._process(stage.root.pid, stage.root.start_ns)
        assert root.start_ns == stage.root.start_ns
        return root

    def _names(self, root: Process) -> set[str]:
        """All that a stage with this root may be called."""
        if WRAPPERS.isdisjoint(root.names):
            return set(root.names)
        return {name for p in self.host.processes if root in p.above() for name in p.names}

    def _check_tasks(self) -> None:
        """Each process that is in a stage is below the stage's root."""
        stages = {stage.index: stage for stage in self._sweep._in_use.values()}
        for p in self.host.processes:
            if not p.alive:
                continue
            pending = ctypes.c_uint32()
            entered = self.kernel.stage_of_task(p.slot, ctypes.byref(pending))
            for index in filter(None, (entered, pending.value)):
                assert index in stages, f"{p} is in a stage that is over"
                root = self._root(stages[index])
                assert root in p.above(), f"{p} is in the stage of {root}"

    def _check_end(self) -> None:
        assert not any(self._sweep.lost().values()), self._sweep.lost()
        runs: dict[frozenset[Process], Run] = {}
        for run in self.finished:
            stages = frozenset(self._process(s.pid, round(s.start * 1e9)) for s in run.stages)
            assert stages not in runs, f"{stages} was counted twice"
            runs[stages] = run
            for stage in run.stages:
                self._check_exit(stage)
            assert run.end is not None
            assert sum(run.levels) == pytest.approx(run.end - run.start, abs=1e-6)
        started = {frozenset(each.stages): each for each in self.shells.started}
        for stages in runs:
            assert stages in started or (
                self._starving and any(stages.issubset(each) for each in started)
            ), f"{runs[stages].series} of {stages} never was a pipeline"
        for stages, each in started.items():
            found = runs.get(stages)
            assert found or not each.certain or self._starving, (
                f"{each.signature} of {stages} was not counted"
            )
            if found:
                assert found.series.pipeline == each.signature
                self._check_nesting(found, each)
        assert self._maps.count("free_stages") == MAX_STAGES
        assert self._maps.count("pipes") == 0

    def _check_exit(self, stage: Stage) -> None:
        """Of a root that lives on, such as a driver's, there is none."""
        root = self._process(stage.pid, round(stage.start * 1e9))
        if stage.exit is None:
            assert stage.end and root.exit_ns >= stage.end * 1e9, f"the end of {root} was missed"
        else:
            assert stage.exit == exit_of(root.exit_status | EXIT_SEEN), f"{root} ended otherwise"

    def _check_nesting(self, run: Run, started: Started) -> None:
        around, possible = started.around, []
        while around:
            possible.append(around)
            around = around.around
        if run.parent:
            ms, pid = map(int, run.parent.split("-"))
            begin, end = ms * 1_000_000, (ms + 1) * 1_000_000
            stages = [p for each in possible for p in each.stages if p.pid == pid]
            assert any(p.start_ns <= end and begin <= p.end_ns for p in stages), (
                f"{run.series} is in {run.parent}, and not in {possible[:1]}"
            )
        elif possible and not self._starving:
            settled = max(p.settled_ns for p in possible[0].stages)
            ended = max(p.end_ns for p in started.stages)
            assert not possible[0].certain or settled > ended, f"{run.series} is nested"


def observe(
    programs: ctypes.CDLL,
    scripts: Sequence[tuple[str, Command]],
    schedule: bytes,
    *,
    starving: bool = False,
    meeting: bool = False,
) -> None:
    """Run these scripts of shells on a new host with a daemon, and check what is recorded.

    The schedule says what happens next, a byte for each step; then all processes run to their end.
    If they are `starving`, much time passes while they could run. If they are `meeting`, a program
    may be stopped while others run on the other CPU, for much longer than on a real host: sums that
    two of them change in turn may then differ by what was done meanwhile.
    """
    sizes = dict.fromkeys(("stages", "children"), MAX_STAGES + 1)
    sizes |= {"free_stages": MAX_STAGES, "pipes": MAX_PIPES}
    host: list[Observed] = []
    maps = SimulatedMaps(programs, sizes, lambda: host[0].interrupted())
    with (
        patch("pipelined.kernel.sweep.barrier", lambda: host[0].barrier()),
        swept(maps, max_stages=MAX_STAGES, max_pipes=MAX_PIPES) as sweep,
    ):
        host.append(Observed(programs, maps, sweep, starving=starving, meeting=meeting))
        host[0].run(scripts, schedule)
