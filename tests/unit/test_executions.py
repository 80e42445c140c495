# SPDX-License-Identifier: Apache-2.0
"""Commands that are to read their files from disk, and files that cannot be dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


def test_what_a_script_sets_holds_for_each_command() -> None:
    observer: Any = FakeObserver()
    with executing(lambda: observer) as execute:
        assert execute("false | true", cold=[], any_order=False).outcome.status == 0
    with executing(lambda: observer, "set -o pipefail; ") as execute:
        assert execute("false | true", cold=[], any_order=False).outcome.status == 1
