# SPDX-License-Identifier: Apache-2.0
"""Until the optional hooks are attached, what was saved before is kept: it has their figures."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pipelined.kernel.hooks import Hook
from pipelined.kernel.pace import Steady
from pipelined.model.coverage import Coverage
from pipelined.model.tracker import Lookups, Model
from pipelined.model.watched import Watched
from pipelined.observer import Observer

PENDING = Hook("page_added", "readahead", "tp_btf", attached=False, pending=True)


class Kept:
    """In place of a `Saver`, which is always about to save."""

    def __init__(self) -> None:
        self.written = 0

    def seen(self, unfinished: object) -> None:
        pass

    def is_due(self) -> bool:
        return True

    def checkpoint(self, sweep: object, unfinished: object) -> None:
        pass

    def write(self, checkpoint: object) -> None:
        self.written += 1

    def close(self) -> None:
        pass


class Host:
    """An observer of nothing, whose optional hooks are still to be attached."""

    def __init__(self) -> None:
        self.mapped: list[str] = []
        self.loaded: Any = SimpleNamespace(
            loader="libbpf",
            missed_events=lambda _: {},
            attach_optional=lambda: (),
            tiers=lambda: ["readahead"],
        )
        self.sweep: Any = SimpleNamespace(
            take=lambda keep: [],
            free=lambda over: None,
            close=lambda: None,
            map_tiers=lambda: self.mapped.append("tiers"),
        )
        self.model = Model(
            Watched(0.0),
            Lookups(lambda _: "-"),
            recent_runs=1,
            coverage=Coverage(pending_tiers=["readahead"]),
        )
        self.observer = Observer(self.loaded, self.sweep, self.model, (PENDING,), Steady(1))
        self.saver: Any = Kept()
        self.observer._saver = self.saver


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    yield made
    made.observer.close()


def test_nothing_is_saved_before_the_optional_hooks_are_attached(host: Host) -> None:
    host.observer._update(save=True)
    assert host.saver.written == 0
    host.observer.attach_optional()
    host.observer._update(save=True)
    assert (host.mapped, host.saver.written) == (["tiers"], 1)


def test_nor_by_a_daemon_that_ends_before(host: Host) -> None:
    host.observer.close()
    assert host.saver.written == 0


def test_if_attaching_fails_nothing_waits_for_it_any_more(host: Host) -> None:
    def fail() -> None:
        raise OSError(12, "Cannot allocate memory")

    host.loaded.attach_optional = host.sweep.map_tiers = fail
    with pytest.raises(OSError):
        host.observer.attach_optional()
    assert not host.model.coverage.pending


def test_nor_is_anything_finished_that_a_reboot_cut_off_and_then_once(host: Host) -> None:
    """Before what is saved now takes its place."""
    written_before: list[int] = []

    def finish() -> int:
        written_before.append(host.saver.written)
        return 0

    host.observer._finish_cut_off = finish
    host.observer._update(save=True)
    assert not written_before
    host.observer.attach_optional()
    for _ in range(2):
        host.observer._update(save=True)
    assert written_before == [0] and host.saver.written == 2


def test_if_that_fails_what_lives_now_is_watched_all_the_same(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> int:
        raise KeyError(7)

    host.observer._finish_cut_off = fail
    host.observer.attach_optional()
    host.observer.sweep()
    host.observer.sweep()
    assert len(caplog.records) == 1 and "KeyError: 7" in caplog.text
    assert host.observer.ready() is None
