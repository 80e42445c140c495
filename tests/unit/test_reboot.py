# SPDX-License-Identifier: Apache-2.0
"""What lived when the host went down is finished once by the daemon of the next boot."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipelined.analysis.machine import Host
from pipelined.config import Config
from pipelined.history.archive import Archive
from pipelined.history.history import History
from pipelined.kernel import layout
from pipelined.kernel.checkpoint import Checkpoint, restored
from pipelined.kernel.checkpoint_file import FILE_NAME, CheckpointFile
from pipelined.model.identities import Identities, origin_mark
from pipelined.model.sighting import Finished
from pipelined.model.tracker import Lookups, Model
from pipelined.model.watched import Watched
from pipelined.observer import Observer
from pipelined.records.stage import NS, Gap
from pipelined.runs import Run
from pipelined.saver import finish_cut_off
from pipelined.starter import host_mark
from unit.recordings import RecordedMaps, recording, swept
from unit.waiting import PATIENCE

UNIX = 1.7e9
BOOT, MARK = "6d3f-another", "1f2e3d4c"
CONTAINER = {"container": {"runtime": "podman", "id": "5e" * 32}, "pod": None}
FAR = 10**9 * 86_400 * 365
"""A year: no test runs on a host that is up for so long."""


def begun() -> tuple[Checkpoint, Run]:
    """Of `cat | awk | sort | uniq` a checkpoint that another boot has left, and the live run."""
    recorded = recording("chain")
    moment = recorded.moments[1]
    with swept(RecordedMaps(recorded.moments[:2])) as sweep:
        sweep.take()
        groups = sweep.take(keep=True)
        (cgroup,) = {stage.cgroup for group in groups for stage in group.stages}
        taken = sweep.checkpoint(
            groups,
            unix=UNIX,
            gaps=(),
            cgroups=lambda _: {cgroup: ("/a", "nightly.podman", CONTAINER)},
            origin=MARK,
        )
    watched = Model(
        Watched(UNIX),
        Lookups(lambda _: "nightly.podman"),
        recent_runs=1,
        identities=Identities("db1", BOOT, MARK, lambda _: None),
    )
    watched.update(groups, NS * moment.now_ns + 1)
    (run,) = watched.runs()
    host = host_mark("db1")
    return replace(taken, boot_id=BOOT, host=host, watched_ns=moment.now_ns), run


def finished(
    checkpoint: Checkpoint, is_stored: Callable[[str], bool] = lambda _: False
) -> list[Run]:
    given: list[Finished] = []
    new_model = partial(Model, on_finished=given.append, is_stored=is_stored)
    what = restored(checkpoint, max_stages=100)
    assert finish_cut_off(checkpoint, what, "db1", new_model) == len(given)
    return [one.make()[0] for one in given]


def test_a_run_ends_unwatched_when_it_was_seen_last() -> None:
    checkpoint, _ = begun()
    (run,) = finished(checkpoint)
    assert run.end == pytest.approx(UNIX + NS * checkpoint.watched_ns)
    assert run.ended_unwatched and run.outcome and run.outcome.result == "unknown"
    assert [stage.end for stage in run.stages] == [run.end] * 4
    assert run.wall_seconds == pytest.approx(run.end - run.start, abs=0.001)
    assert (run.partial, run.unwatched_seconds) == (True, 0.0)


def test_it_is_the_run_that_the_earlier_daemon_watched() -> None:
    checkpoint, live = begun()
    (run,) = finished(checkpoint)
    assert (run.id, run.start, run.series) == (live.id, live.start, live.series)
    assert (run.edges, run.endpoints) == (live.edges, live.endpoints)
    assert [replace(stage, end=None, outcome=None) for stage in run.stages] == [
        replace(stage, flow=after.flow)
        for stage, after in zip(live.stages, run.stages, strict=True)
    ]
    assert run.identity and live.identity
    assert run.identity.boot_id == BOOT
    assert replace(run.identity, user=None, container=None) == live.identity


def test_units_and_containers_are_those_of_its_boot() -> None:
    (run,) = finished(begun()[0])
    assert run.series.unit == "nightly.podman"
    assert run.identity and run.identity.container and run.identity.container.id == "5e" * 32


def test_what_identifies_the_instance_of_its_job_is_kept() -> None:
    checkpoint, _ = begun()
    index, (raw, *others) = next(iter(checkpoint.stages.items()))
    record = layout.Stage.from_buffer_copy(raw)
    record.instance = 77
    stages = {**checkpoint.stages, index: (bytes(record), *others)}
    known = {77: {"SLURM_JOB_ID": "4711"}}
    (run,) = finished(replace(checkpoint, stages=stages, instances=known))
    assert run.identity and run.identity.variables == {"SLURM_JOB_ID": "4711"}


def test_of_an_older_version_the_id_has_the_mark_of_its_boot() -> None:
    (run,) = finished(replace(begun()[0], origin=""))
    assert run.id.endswith(f"-{origin_mark('db1', BOOT)}")


def test_a_clock_that_was_set_in_its_life_dates_what_was_before() -> None:
    checkpoint, live = begun()
    set_ns = checkpoint.watched_ns - 1
    (run,) = finished(replace(checkpoint, unix=UNIX + 50, gaps=(Gap(set_ns, set_ns, UNIX),)))
    assert (run.id, run.start) == (live.id, live.start)
    assert run.end == pytest.approx(UNIX + 50 + NS * checkpoint.watched_ns)


def test_a_run_that_is_stored_already_is_not_finished_again() -> None:
    checkpoint, live = begun()
    asked: list[str] = []
    assert not finished(checkpoint, lambda run: not asked.append(run))
    assert asked == [live.id]


@pytest.mark.parametrize("stored", [True, False])
def test_a_run_that_ended_just_before_the_checkpoint_keeps_its_end_unless_it_is_stored(
    stored: bool,
) -> None:
    checkpoint, _ = begun()
    ended_ns = checkpoint.watched_ns - 1000
    stages = {}
    for index, (raw, *others) in checkpoint.stages.items():
        record = layout.Stage.from_buffer_copy(raw)
        record.end_ns, record.live = ended_ns, 0
        record.word |= layout.WORD_ENDED
        record.exit_status = 1 << 16
        stages[index] = (bytes(record), *others)
    found = finished(replace(checkpoint, stages=stages), lambda _: stored)
    assert [
        (run.end, run.ended_unwatched, run.outcome and run.outcome.result) for run in found
    ] == ([] if stored else [(pytest.approx(UNIX + NS * ended_ns), False, "succeeded")])


# The daemon


class Maps(RecordedMaps):
    """Programs that are attached at once, on a host where nothing runs."""

    def __init__(self) -> None:
        super().__init__()
        self.elements |= {"saved_tasks": {}, "cgroups": {}}

    def attach(self) -> tuple[()]:
        return ()

    attach_optional = pending = attach


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with a checkpoint of another boot, in which the clock was further."""
    file = CheckpointFile.open(tmp_path).usable()
    assert file
    checkpoint, _ = begun()
    assert time.monotonic_ns() < FAR
    shift = FAR - checkpoint.watched_ns
    file.write(shifted(checkpoint, shift))
    file.close()
    return tmp_path


def shifted(checkpoint: Checkpoint, by_ns: int) -> Checkpoint:
    """The same, but that the host had been up for longer."""
    stages = {}
    for index, (raw, *others) in checkpoint.stages.items():
        record = layout.Stage.from_buffer_copy(raw)
        record.start_ns += by_ns
        record.pipeline.start_ns += by_ns
        record.pipeline.moment = (
            record.pipeline.moment & ~layout.PIPELINE_CLOCK_MASK
            | record.pipeline.moment + by_ns & layout.PIPELINE_CLOCK_MASK
        )
        if record.end_ns:
            record.end_ns += by_ns
        stages[index] = (bytes(record), *others)
    watched_ns = checkpoint.watched_ns + by_ns
    return replace(checkpoint, stages=stages, watched_ns=watched_ns, unix=UNIX - NS * by_ns)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Observer]]:
    """Opens an observer of these maps; it is closed after the test."""
    opened: list[Observer] = []

    def start(state: Path | None, **options: Any) -> Observer:
        monkeypatch.setattr("pipelined.observer.load", lambda *_, **__: Maps())
        config = Config(host_name="db1", max_stages=64, max_pipes=64)
        opened.append(Observer.open(config, state=state, **options))
        return opened[-1]

    yield start
    for observer in opened:
        observer.close()


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in log.records if record.levelno >= logging.WARNING]


def test_a_start_after_a_reboot_hands_out_what_was_cut_off(
    start: Callable[..., Observer], state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given: list[Finished] = []
    observer = start(state, on_finished=given.append)
    (run, _), *others = (one.make() for one in given)
    assert run.id == begun()[1].id and not others
    assert run.end and run.wall_seconds == pytest.approx(run.end - run.start, abs=0.001)
    assert warnings(caplog) == [
        "runs that the host's last boot left without a record of their end: 1"
    ]
    assert (observer.runs(), observer.totals(), observer.ended()) == ([], {}, 0)


@pytest.mark.parametrize("host", ["", "that of another"])
def test_what_another_host_has_left_on_a_copied_disk_is_not_finished(
    start: Callable[..., Observer], state: Path, caplog: pytest.LogCaptureFixture, host: str
) -> None:
    (state / FILE_NAME).write_bytes(replace(begun()[0], host=host).encode())
    given: list[Finished] = []
    start(state, on_finished=given.append).close()
    assert not given and not warnings(caplog)
    assert not (state / FILE_NAME).exists()


def test_the_checkpoint_is_there_until_what_lives_now_is_saved(
    start: Callable[..., Observer], state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given: list[Finished] = []
    observer = start(state, on_finished=given.append)
    assert (state / FILE_NAME).exists()
    observer.close()
    assert not (state / FILE_NAME).exists()
    caplog.clear()
    start(state, on_finished=given.append)
    assert len(given) == 1 and not warnings(caplog)


def test_a_daemon_that_is_killed_before_that_has_stored_it_for_the_next_one(
    start: Callable[..., Observer], state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given: list[Finished] = []
    start(state, on_finished=given.append)
    history = History(state, host=Host(cores=2, l2_bytes=1 << 20), max_age=1e12)
    history.sink.put(given[0])
    history.sink.start()
    history.sink.close(PATIENCE)
    row = Archive(state).row(begun()[1].id)
    assert row and (row.outcome, row.partial, row.unit) == ("unknown", True, "nightly.podman")
    caplog.clear()
    # as a kill leaves it: nobody has its lock
    left = shutil.copytree(state, state / "left")
    start(left, on_finished=given.append, is_stored=lambda run: Archive(left).row(run) is not None)
    assert len(given) == 1 and not warnings(caplog)
    assert (left / FILE_NAME).exists()


def test_without_a_state_directory_nothing_is_finished(
    start: Callable[..., Observer], caplog: pytest.LogCaptureFixture
) -> None:
    given: list[Finished] = []
    start(None, on_finished=given.append)
    assert not given and not caplog.records
