# SPDX-License-Identifier: Apache-2.0
"""`pipelined improve` on real pipelines, as root and by way of a daemon."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2e.conftest import PATIENCE

if TYPE_CHECKING:
    from e2e.conftest import Daemon

pytestmark = pytest.mark.usefixtures("bpf")

Done = subprocess.CompletedProcess[str]
COUNTING = "sort lines | uniq -c"


@pytest.fixture
def improve(program: str, tmp_path: Path) -> Callable[..., Done]:
    """`pipelined improve` with the given words, to its end, beside a file of few lines."""
    (tmp_path / "lines").write_text("".join(f"line {n % 97}\n" for n in range(2_000_000)))

    def improve(*words: str) -> Done:
        return subprocess.run(
            [program, "improve", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=7 * PATIENCE,  # by itself it begins no round after 5 min
            cwd=tmp_path,
        )

    return improve


def improved(done: Done, path: Path) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def until_one_wins(improve: Callable[[], Done], won: Callable[[Done], bool]) -> Done:
    """What it says when one way has won: neighbours on the host may keep rounds from agreeing."""
    for _ in range(3):
        done = improve()
        if won(done):
            break
    return done


def steps(path: Path) -> list[dict[str, Any]]:
    """The ways that won, as a report has them."""
    found = json.loads(path.read_text())
    return [tried for tried in found["tried"] if tried["outcome"] == "won"]


def printed(command: str, directory: Path) -> str:
    done = subprocess.run(["bash", "-c", command], cwd=directory, capture_output=True, text=True)
    return done.stdout


@pytest.mark.undisturbed
def test_what_wins_is_quicker_and_prints_the_same(
    improve: Callable[..., Done], program: str, tmp_path: Path
) -> None:
    report = tmp_path / "improved.json"
    words = ("--json", "-o", str(report), COUNTING)
    done = until_one_wins(lambda: improve(*words), lambda _: bool(steps(report)))
    found = improved(done, report)
    (step,) = steps(report)
    assert step["ratio"]["median"] < 0.7
    assert "awk" in found["command"]
    assert sorted(printed(found["command"], tmp_path).split("\n")) == sorted(
        printed(COUNTING, tmp_path).split("\n")
    )
    compared = subprocess.run([program, "compare", str(report)], capture_output=True, text=True)
    assert "B wins" in compared.stdout


@pytest.mark.undisturbed
def test_the_costliest_pipeline_of_a_script_is_improved(
    improve: Callable[..., Done], tmp_path: Path
) -> None:
    script = tmp_path / "nightly.sh"
    script.write_text(f"#!/bin/bash\necho begins\n{COUNTING} > counts\nwc -l counts\n")
    done = until_one_wins(
        lambda: improve("--yes", f"bash {script}"), lambda done: "+++" in done.stdout
    )
    assert done.returncode == 0, done.stderr
    assert f"-{COUNTING} > counts\n+" in done.stdout
    assert (tmp_path / "counts").read_text().count("\n") == 97


def test_a_pipeline_that_changes_something_is_not_run(
    improve: Callable[..., Done], tmp_path: Path
) -> None:
    done = improve("--yes", "sort lines | tee copy | wc -l")
    assert done.returncode == 1
    assert "tee changes something" in done.stderr
    assert not (tmp_path / "copy").exists()


def test_a_budget_ends_it(improve: Callable[..., Done]) -> None:
    done = improve("--budget", "100ms", COUNTING)
    assert done.returncode == 0, done.stderr
    assert "the budget is used up" in done.stdout


@pytest.mark.undisturbed
def test_a_daemon_can_measure_it(
    improve: Callable[..., Done], daemon: Daemon, tmp_path: Path
) -> None:
    report = tmp_path / "improved.json"
    words = ("--url", daemon.url, "--json", "-o", str(report), COUNTING)
    done = until_one_wins(lambda: improve(*words), lambda _: bool(steps(report)))
    assert done.returncode == 0, done.stderr
    assert len(steps(report)) == 1
    assert done.stderr.endswith(f"Measured by the daemon at {daemon.url}\n")
