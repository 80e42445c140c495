# SPDX-License-Identifier: Apache-2.0
"""Maps made tiny on purpose: what does not fit is counted, and nothing else happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernel.conftest import PATIENCE
from pipelined.observer import Observer

if TYPE_CHECKING:
    from kernel.conftest import Configure, Watch

MANY = "for i in {1..20}; do { sleep 0.3; cat lines; } | sort | wc -l & done; wait"
ONE = "cat lines | sort | wc -l"


@pytest.fixture(params=[{"max_stages": 5}, {"max_pipes": 3}], ids=lambda few: next(iter(few)))
def cramped(request: pytest.FixtureRequest, configure: Configure) -> Iterator[Observer]:
    """An observer with room for hardly anything."""
    with Observer.open(configure(**request.param), own_only=True) as observer:
        observer.start()
        yield observer


def test_what_does_not_fit_is_counted_as_lost(watch: Watch, cramped: Observer, lines: Path) -> None:
    assert not any(cramped.lost().values())
    watch.run(MANY)
    cramped.settle()
    assert any(cramped.lost().values())


def test_pipelines_do_not_notice(watch: Watch, cramped: Observer, lines: Path) -> None:
    observed = watch.run(MANY)
    assert observed.returncode == 0
    assert observed.stderr == ""
    assert observed.stdout.split() == ["2000"] * 20
    assert len(observed.runs) == 20  # the other observer, which has room


def test_it_recovers(
    watch: Watch,
    cramped: Observer,
    lines: Path,
    entries_left: Callable[[Observer], dict[str, int]],
) -> None:
    watch.run(MANY)
    assert not any(entries_left(cramped).values())
    lost = dict(cramped.lost())
    known = {run.id for run in cramped.runs()}
    for _ in range(5):
        watch.run(ONE)
        entries_left(cramped)
    new = [run for run in cramped.runs() if run.id not in known]
    assert [run.pipeline for run in new] == ["cat|sort|wc"] * 5
    assert dict(cramped.lost()) == lost
    assert cramped.ready() is None
    assert cramped.sweep_stats.failures == 0


#: A process that has not exec'd since its fork. It learns by a pipe whether an exec has failed.
STARTS_MANY = """
import os, subprocess
if not os.fork():
    for _ in range(100):
        subprocess.run(["true"], preexec_fn=lambda: None)
    os._exit(0)
os.wait()
"""


def test_pipes_that_one_stage_has_had_are_forgotten(configure: Configure, watch: Watch) -> None:
    """A worker that starts programs for months has used more pipes than a host has at once."""
    with Observer.open(configure(max_pipes=30), own_only=True) as few:
        few.start()
        watch.run(f"python3 -c '{STARTS_MANY}' | cat")
        few.settle()
        assert few.lost()["pipes"] == 0


#: Many writers, one after the other, and a reader that outlives them.
IN_TURN = (
    "exec 3> >(exec cat > out); for i in {1..300}; do head -c 9 lines >&3; done;"
    " until [ -e go ]; do sleep 0.5; done"
)


@pytest.mark.loses
def test_a_reader_that_outlives_its_writers_leaves_room_for_others(
    configure: Configure,
    watch: Watch,
    lines: Path,
    entries_left: Callable[[Observer], dict[str, int]],
) -> None:
    """A script that gathers in one file what all its jobs say, or a service's log for months."""
    with Observer.open(configure(), own_only=True) as fresh:
        fresh.start()
        started = watch.start(IN_TURN)
        end = time.monotonic() + PATIENCE
        try:
            out = watch.directory / "out"
            while not out.exists() or out.stat().st_size < 300 * 9:
                assert time.monotonic() < end
                time.sleep(0.01)
            while [use.entries for use in fresh.maps() if use.name == "stages"] != [256]:
                assert time.monotonic() < end, fresh.maps()
                time.sleep(0.01)
            (gathered,) = (run for run in fresh.runs() if run.live)
            assert (gathered.pipeline, len(gathered.stages)) == ("head|cat", 256)
            assert fresh.lost()["ends"] > 0
        finally:
            (watch.directory / "go").touch()
            started.finish()
        assert not any(entries_left(fresh).values())


def test_maps_say_how_full_they_are(
    watch: Watch,
    cramped: Observer,
    lines: Path,
    entries_left: Callable[[Observer], dict[str, int]],
) -> None:
    started = watch.start(MANY.replace("sleep 0.3", "until [ -e go ]; do sleep 0.5; done"))
    end = time.monotonic() + PATIENCE
    try:
        while True:
            cramped.sweep()
            uses = cramped.maps()
            assert [use for use in uses if use.entries > use.capacity] == []
            if any(use.entries == use.capacity for use in uses):
                break
            assert time.monotonic() < end, uses
            time.sleep(0.01)
    finally:
        (watch.directory / "go").touch()
        started.finish()
    assert not any(entries_left(cramped).values())


def test_events_that_were_passed_over_are_told_for_every_hook(observer: Observer) -> None:
    assert set(observer.missed_events()) == {h.name for h in observer.hooks() if h.attached}
