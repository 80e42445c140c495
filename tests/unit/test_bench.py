# SPDX-License-Identifier: Apache-2.0
"""The benchmarks that need no root still run, with so little to do that no figure means a thing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.parametrize(
    ("words", "last_figure"),
    [
        (["scrape.py", "--pipelines=30", "--runs=300", "--functions"], "resident: "),
        (["history.py", "--pipelines=5", "--runs=300", "--size=1", "--days=2"], "ms"),
    ],
)
def test_it_runs_and_finds_what_it_stored(words: list[str], last_figure: str) -> None:
    done = subprocess.run(
        [sys.executable, BENCH / words[0], *words[1:]], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert last_figure in done.stdout.splitlines()[-1]
