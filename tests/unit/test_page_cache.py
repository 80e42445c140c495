# SPDX-License-Identifier: Apache-2.0
"""Files in and out of the page cache; that a cold one is really cold is tested in tests/e2e."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelined.errors import UserError
from pipelined.run.child import StoppedError, signals_held
from pipelined.run.page_cache import evict, files_below, fill
from unit.denied import deny

SHM = Path("/dev/shm")


def test_a_file_that_was_read_is_cached(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(100_000))
    assert fill(file) == 1.0


def test_an_empty_file_is_as_it_should_be(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    assert (fill(file), evict(file)) == (1.0, 0.0)


@pytest.mark.skipif(not os.access(SHM, os.W_OK), reason="no tmpfs here")
def test_what_the_host_keeps_is_reported() -> None:
    # A tmpfs has no disk to which its pages could go.
    file = SHM / f"pipelined-test-{os.getpid()}"
    try:
        file.write_bytes(bytes(100_000))
        assert evict(file) == 1.0
    finally:
        file.unlink()


def test_a_directory_stands_for_the_files_in_it(tmp_path: Path) -> None:
    inside = tmp_path / "logs" / "old"
    inside.mkdir(parents=True)
    for file in (tmp_path / "a", tmp_path / "logs" / "b", inside / "c"):
        file.touch()
    os.mkfifo(inside / "fifo")
    found = files_below([tmp_path / "a", tmp_path / "logs", inside])
    assert found == (tmp_path / "a", tmp_path / "logs" / "b", inside / "c")


def test_what_may_not_be_looked_at_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    deny(monkeypatch, tmp_path / "root")
    with pytest.raises(UserError, match="root/f: permission denied"):
        files_below([tmp_path / "root" / "f"])


@pytest.mark.parametrize(
    ("name", "reason"), [("missing", "no such file"), ("fifo", "not a regular file")]
)
def test_what_is_no_file_is_named(tmp_path: Path, name: str, reason: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UserError, match=f"{name}: {reason}"):
        files_below([tmp_path / name])


@pytest.mark.parametrize("work", [fill, evict])
@pytest.mark.parametrize(
    ("came", "raised"),
    [
        ([signal.SIGINT], KeyboardInterrupt),
        ([signal.SIGTERM], StoppedError),
        ([signal.SIGINT, signal.SIGTERM], KeyboardInterrupt),
    ],
)
def test_a_signal_that_is_held_ends_it_and_is_not_left_for_later(
    tmp_path: Path,
    work: Callable[[Path], float],
    came: list[signal.Signals],
    raised: type[BaseException],
) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(10))
    with signals_held():
        for number in came:
            signal.raise_signal(number)
        with pytest.raises(raised):
            work(file)
        assert not signal.sigpending()


def test_ctrl_z_that_is_held_has_its_effect_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(10))
    stopped: list[bool] = []
    before = signal.signal(signal.SIGTSTP, lambda *_: stopped.append(True))
    try:
        with signals_held(signal.SIGTSTP):
            signal.raise_signal(signal.SIGTSTP)
            fill(file)
            assert stopped == [True]
    finally:
        signal.signal(signal.SIGTSTP, before)
