# SPDX-License-Identifier: Apache-2.0
"""What starting a program costs on this host is measured once, and kept."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from pipelined.run import host_costs
from pipelined.run.host_costs import FILE, keep, kept_by_users, this_host


def test_a_program_costs_more_than_a_fork_and_that_more_than_a_call(tmp_path: Path) -> None:
    costs = this_host((tmp_path,)).costs
    assert costs is not None
    assert costs.program_seconds > costs.fork_seconds > costs.call_seconds > 0


def test_a_wake_up_takes_less_time_than_a_program(tmp_path: Path) -> None:
    costs = this_host((tmp_path,)).costs
    assert costs is not None
    assert 0 < costs.switch_seconds < costs.program_seconds


def test_it_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ours").mkdir()
    first = this_host((tmp_path / "other", tmp_path / "ours"))
    monkeypatch.setattr(host_costs, "_cpu_seconds", lambda text: pytest.fail(f"again: {text}"))
    again = this_host((tmp_path / "ours",))
    assert again.costs is not None and first.costs is not None
    assert again.costs.program_seconds == pytest.approx(first.costs.program_seconds, rel=0.01)
    assert [path.name for path in tmp_path.rglob("*.json")] == [FILE]


def test_a_directory_that_comes_later_gets_what_was_measured(tmp_path: Path) -> None:
    later = tmp_path / "later"
    host = this_host((later,))
    assert not later.exists()
    later.mkdir()
    keep(host, later)
    assert this_host((later,)) == host


@pytest.mark.parametrize("kept", ["", "{}", '{"machine": [], "costs": {}}', "[1]"])
def test_a_file_of_another_machine_or_a_damaged_one_is_replaced(tmp_path: Path, kept: str) -> None:
    (tmp_path / FILE).write_text(kept)
    assert this_host((tmp_path,)).costs is not None
    assert len(json.loads((tmp_path / FILE).read_text())["machine"]) == 3


def test_a_host_that_cannot_start_them_has_no_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert this_host((tmp_path,)).costs is None
    assert not (tmp_path / FILE).exists()


def test_what_cannot_be_kept_is_measured_all_the_same() -> None:
    assert this_host((Path("/proc/nowhere"),)).costs is not None


def test_the_daemons_figures_come_before_ones_own() -> None:
    assert kept_by_users({"HOME": "/home/me", "STATE_DIRECTORY": "/state"}) == (
        Path("/state"),
        Path("/home/me/.cache/pipelined"),
    )
    assert kept_by_users({"XDG_CACHE_HOME": "/cache"})[1] == Path("/cache/pipelined")


def test_what_the_owner_of_the_directory_has_put_there_is_not_followed(tmp_path: Path) -> None:
    """It may be another user than this process's: a link would make a file anywhere."""
    host = this_host((tmp_path,))
    (tmp_path / FILE).unlink()
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / f"{FILE}.{os.getpid()}").symlink_to(elsewhere)
    keep(host, tmp_path)
    assert not elsewhere.exists()
    assert (tmp_path / FILE).is_file() and not (tmp_path / FILE).is_symlink()


def test_nothing_stays_of_what_found_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = this_host((tmp_path,))
    (tmp_path / FILE).unlink()

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Path, "replace", no_room)
    keep(host, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_fifo_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    assert this_host((tmp_path,)).costs is not None
