# SPDX-License-Identifier: Apache-2.0
"""No test hangs for ever, and none depends on what pytest was started from."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"]


def test_what_tests_start_ignores_and_blocks_no_signal() -> None:
    """But for signals 32 and 33, which the C library keeps to itself: no program can set them "
    "(signal(7))."""
    status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
    masks = dict(re.findall(r"^(SigBlk|SigIgn):\s*([0-9a-f]+)$", status, re.M))
    settable = sum(1 << (number - 1) for number in signal.valid_signals())
    assert {name: int(mask, 16) & settable for name, mask in masks.items()} == {
        "SigBlk": 0,
        "SigIgn": 0,
    }


def test_it_is_so_where_pytest_itself_was_started_with_signals_ignored() -> None:
    this = f"{__file__}::{test_what_tests_start_ignores_and_blocks_no_signal.__name__}"
    script = 'trap "" HUP INT QUIT TERM USR1 CHLD ALRM; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *PYTEST, this], cwd=TOP, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def hanging(directory: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Runs a test that hangs in `body`; its fixture leaves a file when it cleans up."""
    shutil.copy(TOP / "tests" / "conftest.py", directory)
    (directory / "test_hanging.py").write_text(
        "import itertools, pathlib, signal, subprocess, time\n"
        "import pytest\n"
        "from other_work import MISSED_EVENTS\n"
        "@pytest.fixture\n"
        "def fixture():\n"
        "    yield\n"
        "    (pathlib.Path(__file__).parent / 'cleaned-up').touch()\n"
        "def test_hanging(fixture, request):\n"
        f"    {body}\n"
    )
    return subprocess.run(
        [*PYTEST, "-c", TOP / "pyproject.toml", "--timeout", "2", directory],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_one_that_waits_for_a_child_fails_and_its_fixtures_clean_up(tmp_path: Path) -> None:
    done = hanging(tmp_path, "subprocess.run(['sleep', '600'])")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "Timeout (>2.0s)" in done.stdout
    assert (tmp_path / "cleaned-up").exists()


def test_one_that_was_late_is_not_run_again_though_the_kernel_left_out_events(
    tmp_path: Path,
) -> None:
    misses = "request.session.stash.setdefault(MISSED_EVENTS, itertools.count(1).__next__)"
    done = hanging(tmp_path, f"{misses}; time.sleep(600)")
    assert "1 failed" in done.stdout
    assert "Timeout (>2.0s)" in done.stdout
    assert "once more" not in done.stdout


def test_one_that_no_signal_reaches_ends_with_its_stack(tmp_path: Path) -> None:
    done = hanging(
        tmp_path, "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); time.sleep(600)"
    )
    assert done.returncode == 1
    assert "in test_hanging" in done.stderr


def test_every_test_has_a_limit(request: pytest.FixtureRequest) -> None:
    assert float(request.config.getini("timeout")) > 0
    assert request.config.getini("timeout_method") == "signal"
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0  # of this one
