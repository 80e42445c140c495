# SPDX-License-Identifier: Apache-2.0
"""How long the time between two daemons is does not matter to what lives through it.

On the host of tests/unit/simulated, whose clock goes on by hours in a moment.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import pytest

from pipelined.kernel.checkpoint import NOTHING, Checkpoint, Restored, restored
from pipelined.kernel.sweep import Sweep
from pipelined.model.identities import Identities
from pipelined.model.sighting import Finished
from pipelined.model.tracker import Lookups, Model
from pipelined.model.users import Users
from pipelined.model.watched import Watched
from pipelined.records.stage import NS, Gap, Group, StageRecord
from pipelined.runs import Run, Timeline
from pipelined.saver import finish_cut_off
from unit.recordings import swept
from unit.simulated.host import Host, Process, Program
from unit.simulated.library import SimulatedMaps, build

STAGES = 16
HOUR = 3600 * 10**9


class Life:
    """`yes | cat`; or `job | wc`, in which job has started that. Each ends when it is asked to."""

    def __init__(self, host: Host, *, nested: bool = False) -> None:
        self.host = host
        self._over: set[str] = set()
        host.fork(host.init, self._nesting if nested else self._shell)
        self.run()

    def run(self) -> None:
        """All processes go on until they sleep."""
        for _ in range(300):
            runnable = self.host.runnable()
            if not runnable:
                return
            self.host.step(runnable[0])
        raise AssertionError("they never sleep")

    def end(self, *names: str) -> None:
        self._over.update(names)
        self.host.pass_time(1000)
        self.run()

    def _shell(self, process: Process) -> Program:
        return self._pipeline(process, self._program("yes"), self._program("cat"))

    def _nesting(self, process: Process) -> Program:
        return self._pipeline(process, self._job, self._program("wc"))

    def _pipeline(self, process: Process, *stages: Callable[[Process], Program]) -> Program:
        ends = self.host.pipe(process)[::-1]
        for to, (fd, stage) in enumerate(zip(ends, stages, strict=True)):
            self.host.fork(process, partial(self._stage, stage, fd, 1 - to))
        for fd in ends:
            self.host.close(process, fd)
        yield from self._until_over(process.names[-1])

    def _stage(
        self, program: Callable[[Process], Program], fd: int, to: int, process: Process
    ) -> Program:
        self.host.move(process, fd, to)
        for other in [fd for fd in process.files if fd > 1]:
            self.host.close(process, other)
        yield from program(process)

    def _program(self, name: str) -> Callable[[Process], Program]:
        def program(process: Process) -> Program:
            yield from self.host.exec(process, name)
            yield from self._until_over(name)

        return program

    def _job(self, process: Process) -> Program:
        yield from self.host.exec(process, "job")
        yield from self._shell(process)

    def _until_over(self, name: str) -> Program:
        yield from self.host.until(lambda: name in self._over)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("programs"))


@contextmanager
def watching(
    programs: ctypes.CDLL, what: Restored = NOTHING, *, boots: bool = False
) -> Iterator[Sweep]:
    """A daemon on the host, which goes on with what was restored."""
    sizes = {"stages": STAGES + 1, "children": STAGES + 1, "free_stages": STAGES, "pipes": STAGES}
    sizes["saved_tasks"] = len(what.tasks) or 1
    maps = SimulatedMaps(programs, sizes, lambda: None, boots=boots)
    with (
        patch("pipelined.kernel.sweep.time.monotonic_ns", lambda: programs.now()),
        patch("pipelined.kernel.sweep.barrier", lambda: True),
        swept(maps, max_stages=STAGES, max_pipes=STAGES, restored=what) as sweep,
    ):
        sweep.resume()
        yield sweep


def saved(sweep: Sweep) -> Checkpoint:
    groups = sweep.take(keep=True)
    checkpoint = sweep.checkpoint(groups, unix=0.0, gaps=(), origin="", cgroups=lambda _: {})
    return Checkpoint.decode(checkpoint.encode())


def level_seconds(group: Group) -> float:
    return sum((*group.clock.alone_ns, *group.clock.disk_ns)) / 1e9


@pytest.mark.parametrize("hours", [0.01, 2, 3, 4.5, 6, 100])
@pytest.mark.parametrize("ends", ["yes", "cat", "neither"])
def test_no_level_gets_time_that_nobody_watched(
    programs: ctypes.CDLL, hours: float, ends: str
) -> None:
    with watching(programs, boots=True) as sweep:
        host = Host(programs)
        life = Life(host)
        host.pass_time(2 * 10**9)
        (before,) = sweep.take()
        checkpoint = saved(sweep)
        life.end(ends)
        host.pass_time(int(hours * HOUR))
        with watching(programs, restored(checkpoint, max_stages=STAGES)) as later:
            (after,) = later.take()
            assert [stage.ended for stage in after.stages] == [
                stage.command == ends for stage in after.stages
            ]
            assert level_seconds(after) == pytest.approx(level_seconds(before), abs=0.1)
            host.pass_time(5 * 10**9)
            (last,) = later.take()
    assert level_seconds(last) == pytest.approx(level_seconds(after) + 5, abs=0.1)


def test_a_stage_is_met_in_what_it_has_started(programs: ctypes.CDLL) -> None:
    def job() -> StageRecord:
        stages = [stage for group in later.take() for stage in group.stages]
        return next(stage for stage in stages if stage.command == "job")

    with watching(programs, boots=True) as sweep:
        host = Host(programs)
        life = Life(host, nested=True)
        assert {group.is_run for group in sweep.take()} == {True}
        checkpoint = saved(sweep)
        life.end("job")
        host.pass_time(10**9)
        with watching(programs, restored(checkpoint, max_stages=STAGES)) as later:
            assert not (job().ended or job().unmet)
            life.end("yes", "cat")
            assert job().ended and not job().unmet


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("ended", [(), ("yes",)])
def test_of_what_a_reboot_cuts_off_the_same_is_known_as_of_what_ends_after_a_crash(
    programs: ctypes.CDLL, nested: bool, ended: tuple[str, ...]
) -> None:
    crashed: list[Finished] = []
    cut_off: list[Finished] = []
    with watching(programs, boots=True) as sweep:
        host = Host(programs)
        life = Life(host, nested=nested)
        host.pass_time(2 * 10**9)
        life.end(*ended)
        host.pass_time(10**9)
        checkpoint = replace(saved(sweep), boot_id="one", origin="mark")
        what = restored(checkpoint, max_stages=STAGES)
        life.end("yes", "cat", "job", "wc")
        with watching(programs, what) as later:
            model = Model(
                Watched(5.0, [Gap(checkpoint.watched_ns, programs.now(), checkpoint.unix)]),
                Lookups(lambda _: "-"),
                recent_runs=0,
                identities=Identities("db1", "one", "mark", Users().name),
                on_finished=crashed.append,
            )
            model.resume(later.restored())
            model.update(later.take(), NS * programs.now() + 2)
    new_model = partial(Model, on_finished=cut_off.append)
    assert finish_cut_off(checkpoint, what, "db1", new_model) == 1 + nested
    assert made(cut_off) == made(crashed)


def made(finished: list[Finished]) -> dict[str, tuple[Run, Timeline]]:
    """The runs and their time lines, by id."""
    return {run.id: (run, timeline) for run, timeline in (one.make() for one in finished)}
