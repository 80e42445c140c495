# SPDX-License-Identifier: Apache-2.0
"""Commands that are to read their files from disk, and files that cannot be dropped."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from pipelined.run import executions
from pipelined.run.child import StoppedError
from pipelined.run.executions import NotColdError, executing
from unit.observed import FakeObserver


@pytest.mark.parametrize("words", ["~/access.log", "a{1,2}.log", "missing"])
def test_a_file_that_cannot_be_dropped_from_the_cache_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """A caller can give up this command alone; it is not run."""
    monkeypatch.chdir(tmp_path)
    observer: Any = FakeObserver()
    with executing(lambda: observer) as execute, pytest.raises(NotColdError, match="no such file"):
        execute("touch ran", cold=[words], any_order=False)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("kept", "cold"), [(0.4, False), (0.001, True), (0.0, True)])
def test_a_file_that_stays_in_the_cache_is_not_cold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: float, cold: bool
) -> None:
    """Of one that another process appends to a page may stay there."""
    file = tmp_path / "mapped"
    file.write_text("x")
    monkeypatch.setattr(executions, "evict", lambda path: kept)
    observer: Any = FakeObserver()
    with executing(lambda: observer) as execute:
        if cold:
            assert execute("true", cold=[str(file)], any_order=False).outcome.status == 0
        else:
            with pytest.raises(NotColdError, match=f"kept 40 % of {file} in the page cache"):
                execute("true", cold=[str(file)], any_order=False)


def test_a_signal_while_files_are_dropped_gives_up_more_than_this_command(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    observer: Any = FakeObserver()
    with executing(lambda: observer) as execute:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(StoppedError, match="stopped by SIGTERM"):
            execute(f"touch {tmp_path}/ran", cold=[str(file)], any_order=False)
    assert not (tmp_path / "ran").exists()


def test_what_a_script_sets_holds_for_each_command() -> None:
    observer: Any = FakeObserver()
    with executing(lambda: observer) as execute:
        assert execute("false | true", cold=[], any_order=False).outcome.status == 0
    with executing(lambda: observer, "set -o pipefail; ") as execute:
        assert execute("false | true", cold=[], any_order=False).outcome.status == 1
