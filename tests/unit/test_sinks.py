# SPDX-License-Identifier: Apache-2.0
"""Finished runs are handed out to sinks: bounded, counted, and no sink disturbs another."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from pipelined import sinks as module
from pipelined.model.sighting import Finished
from pipelined.sinks import Sink, Sinks, Writer, Written
from unit.invented import make_ended, make_finished
from unit.waiting import PATIENCE, wait_until


class Kept(Writer):
    """Keeps what it writes, at most `batch` runs at a time, once `may_write` is set."""

    def __init__(self, batch: int = 1000, **after: float) -> None:
        self.batch = batch
        self.after = after
        """The pause and the room that it asks for."""
        self.may_write = threading.Event()
        self.may_write.set()
        self.asked = threading.Event()
        self.counted = 0
        self.walls: list[float] = []
        """Of the runs that were written, in the order in which they were."""
        self.closed = False

    def count(self, run: Finished) -> None:
        self.counted += 1

    def write(self, runs: Sequence[Finished], *, last: bool) -> Written:
        self.asked.set()
        assert self.may_write.wait(PATIENCE)
        taken = runs if last else runs[: self.batch]
        self.walls += [run.wall_seconds for run in taken]
        return Written(len(taken), **self.after)  # type: ignore[arg-type]

    def close(self) -> None:
        self.closed = True


def finished(wall: float) -> Finished:
    return make_finished(make_ended(int(wall), wall=wall))


# -- one sink


def test_the_longest_runs_wait_and_the_others_are_counted_as_dropped() -> None:
    writer = Kept()
    sink = Sink("kept", writer, room=3)
    for wall in (5.0, 1.0, 4.0, 2.0, 3.0):
        sink.put(finished(wall))
    assert sink.dropped == 2
    with sink:
        pass
    assert writer.walls == [5.0, 4.0, 3.0]
    assert writer.counted == 5


def test_of_equally_long_runs_the_last_ones_wait() -> None:
    made: list[Finished] = [finished(1.0) for _ in range(3)]
    written: list[Finished] = []

    class Whole(Kept):
        def write(self, runs: Sequence[Finished], *, last: bool) -> Written:
            written.extend(runs)
            return Written(len(runs))

    sink = Sink("whole", Whole(), room=2)
    for run in made:
        sink.put(run)
    with sink:
        pass
    assert [run is made[at] for run, at in zip(written, (2, 1), strict=True)] == [True, True]


def test_runs_that_are_not_taken_wait_again_and_none_is_written_twice() -> None:
    writer = Kept(batch=2)
    walls = [float(wall) for wall in range(1, 10)]
    sink = Sink("kept", writer, room=100)
    for wall in walls:
        sink.put(finished(wall))
    sink.start()
    wait_until(lambda: len(writer.walls) == len(walls))
    sink.close(PATIENCE)
    assert writer.walls == sorted(walls, reverse=True)
    assert sink.dropped == 0


def test_the_writer_says_for_how_many_there_is_room() -> None:
    writer = Kept(batch=1, pause=PATIENCE, room=2)
    sink = Sink("kept", writer, room=100)
    for wall in (1.0, 2.0, 3.0, 4.0, 5.0):
        sink.put(finished(wall))
    sink.start()
    wait_until(lambda: sink.dropped == 2)
    sink.put(finished(6.0))
    assert sink.dropped == 3
    sink.close(PATIENCE)
    assert writer.walls == [5.0, 6.0, 4.0]


def test_what_is_left_when_it_closes_is_written_however_little_room_there_is() -> None:
    writer = Kept(batch=1, pause=PATIENCE, room=1)
    writer.may_write.clear()
    sink = Sink("kept", writer, room=100)
    for wall in range(1, 6):
        sink.put(finished(wall))
    sink.start()
    assert writer.asked.wait(PATIENCE)
    sink.stop()
    writer.may_write.set()
    sink.close(PATIENCE)
    assert writer.walls == [5.0, 4.0, 3.0, 2.0, 1.0]
    assert sink.dropped == 0
    assert writer.closed


def test_what_cannot_be_written_when_it_closes_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full(Kept):
        def write(self, runs: Sequence[Finished], *, last: bool) -> Written:
            return Written(0)

    sink = Sink("full", Full(), room=100)
    for wall in (1.0, 2.0):
        sink.put(finished(wall))
    sink.start()
    sink.close(PATIENCE)
    assert "the sink full could not write 2 finished runs before the stop" in caplog.text


def test_closing_waits_no_longer_than_it_may(caplog: pytest.LogCaptureFixture) -> None:
    writer = Kept()
    writer.may_write.clear()
    sink = Sink("kept", writer, room=10)
    sink.start()
    sink.close(0.01)
    assert not writer.closed
    assert "the sink kept was still at work" in caplog.text
    caplog.clear()
    writer.may_write.set()
    sink.close(PATIENCE)
    assert writer.closed
    assert not caplog.text


def test_runs_that_a_writer_cannot_write_are_counted() -> None:
    class Picky(Kept):
        def write(self, runs: Sequence[Finished], *, last: bool) -> Written:
            return Written(len(runs), dropped=len(runs))

    with Sink("picky", Picky(), room=10) as sink:
        sink.put(finished(1.0))
    assert sink.dropped == 1


class Failing(Kept):
    """Raises if one of the runs took one of `bad` seconds."""

    def __init__(self, *bad: float) -> None:
        super().__init__()
        self.bad = bad

    def write(self, runs: Sequence[Finished], *, last: bool) -> Written:
        if any(run.wall_seconds in self.bad for run in runs):
            raise ZeroDivisionError("what a writer")
        return super().write(runs, last=last)


def test_an_exception_drops_only_the_runs_that_raise_it_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.01)
    writer = Failing(2.0)
    sink = Sink("failing", writer, room=10)
    for wall in (1.0, 2.0, 3.0):
        sink.put(finished(wall))
    sink.start()
    wait_until(lambda: writer.walls == [3.0, 1.0])
    wait_until(lambda: sink.dropped == 1)
    assert "what a writer" in caplog.text
    assert "the sink failing drops 1 of 3 runs" in caplog.text
    sink.put(finished(4.0))
    wait_until(lambda: writer.walls == [3.0, 1.0, 4.0])
    sink.close(PATIENCE)


def test_after_an_exception_the_runs_wait_if_the_place_cannot_be_reached() -> None:
    class Unreachable(Failing):
        def write(self, runs: Sequence[Finished], *, last: bool) -> Written:
            if not last and len(runs) == 1 and runs[0].wall_seconds == 2.0:
                self.asked.set()
                return Written(0, pause=PATIENCE)
            return super().write(runs, last=last)

    writer = Unreachable(1.0)
    sink = Sink("unreachable", writer, room=10)
    for wall in (3.0, 2.0, 1.0):
        sink.put(finished(wall))
    sink.start()
    wait_until(lambda: writer.walls == [3.0])
    writer.bad = ()
    assert writer.asked.wait(PATIENCE)
    sink.close(PATIENCE)
    assert (writer.walls, sink.dropped) == ([3.0, 2.0, 1.0], 0)


def test_a_writer_is_asked_when_something_is_due_though_no_run_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Due(Kept):
        written = 0

        def is_due(self) -> bool:
            return True

        def write(self, runs: Sequence[Finished], *, last: bool) -> Written:
            self.written += 1
            return Written(0)

    monkeypatch.setattr(module, "LOOK_EVERY", 0.01)
    writer = Due()
    with Sink("due", writer, room=10):
        wait_until(lambda: writer.written >= 3)


# -- all of them


def test_every_sink_gets_every_run_those_that_ended_before_the_start_too() -> None:
    first, second = Kept(), Kept()
    sinks = Sinks()
    sinks.hand_out(finished(1.0))
    sinks.start([Sink("first", first, room=10), Sink("second", second, room=10)])
    sinks.hand_out(finished(2.0))
    sinks.close(PATIENCE)
    assert sorted(first.walls) == sorted(second.walls) == [1.0, 2.0]


def test_a_slow_sink_stops_neither_the_sweep_nor_the_others() -> None:
    slow, other = Kept(), Kept()
    slow.may_write.clear()
    sinks = Sinks()
    sinks.start([Sink("slow", slow, room=2), Sink("other", other, room=100)])
    for wall in range(1, 11):
        sinks.hand_out(finished(wall))
    wait_until(lambda: len(other.walls) == 10)
    assert slow.walls == []
    assert sinks.dropped()["slow"] >= 6
    assert sinks.dropped()["other"] == 0
    slow.may_write.set()
    sinks.close(PATIENCE)
    assert len(slow.walls) == 10 - sinks.dropped()["slow"]


def test_a_sink_that_raises_stops_neither_the_sweep_nor_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Raising(Kept):
        def count(self, run: Finished) -> None:
            raise ZeroDivisionError("what a run")

        def write(self, runs: Sequence[Finished], *, last: bool) -> Written:
            raise ZeroDivisionError("what a writer")

    other = Kept()
    sinks = Sinks()
    sinks.start([Sink("raising", Raising(), room=10), Sink("other", other, room=10)])
    sinks.hand_out(finished(1.0))
    sinks.close(PATIENCE)
    assert other.walls == [1.0]
    assert "the sink raising does not take a run" in caplog.text


def test_all_sinks_close_within_one_time_limit() -> None:
    slow = [Kept() for _ in range(5)]
    for writer in slow:
        writer.may_write.clear()
    sinks = Sinks()
    sinks.start([Sink("slow", writer, room=10) for writer in slow])
    began = module.time.monotonic()
    sinks.close(2)
    assert module.time.monotonic() - began < 5 * 2
    for writer in slow:
        writer.may_write.set()
    sinks.close(PATIENCE)


def test_runs_of_a_daemon_without_sinks_are_handed_to_nobody() -> None:
    sinks = Sinks()
    sinks.hand_out(finished(1.0))
    sinks.start([])
    sinks.hand_out(finished(2.0))
    assert sinks.dropped() == {}
    sinks.close()
