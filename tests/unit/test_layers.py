# SPDX-License-Identifier: Apache-2.0
"""The contract of layers in pyproject.toml: it holds, and an import that points upwards fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pipelined

PACKAGE = Path(pipelined.__file__).parent
CONFIG = Path(__file__).parents[2] / "pyproject.toml"


def checked(package: Path) -> subprocess.CompletedProcess[str]:
    """`lint-imports` on a package, as `make lint` runs it."""
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--config", CONFIG],
        cwd=package.parent,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package to change."""
    copy = tmp_path / "pipelined"
    ignored = shutil.ignore_patterns("__pycache__", "static", "templates", "source", "*.o")
    shutil.copytree(PACKAGE, copy, ignore=ignored)
    return copy


def test_imports_point_downwards() -> None:
    done = checked(PACKAGE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Contracts: 4 kept, 0 broken." in done.stdout


@pytest.mark.parametrize(
    ("module", "added", "broken"),
    [
        (
            "runs.py",
            "import pipelined.web.app\n",
            "pipelined.runs is not allowed to import pipelined.web",
        ),
        (
            "run/child.py",
            "if TYPE_CHECKING:\n    from pipelined.terminal import drawing\n",
            "pipelined.run is not allowed to import pipelined.terminal",
        ),
        (
            "http_port/server.py",
            "import pipelined.runs\n",
            "pipelined.http_port is not allowed to import pipelined.runs",
        ),
    ],
)
def test_an_import_that_points_upwards_is_named(
    package: Path, module: str, added: str, broken: str
) -> None:
    with (package / module).open("a") as file:
        file.write(f"\nfrom typing import TYPE_CHECKING\n{added}")
    done = checked(package)
    assert done.returncode == 1
    assert broken in " ".join(done.stdout.split())


def test_a_module_without_a_layer_is_named(package: Path) -> None:
    (package / "unplaced.py").touch()
    done = checked(package)
    assert done.returncode != 0
    assert "unplaced" in done.stdout + done.stderr


def test_no_module_has_two_jobs_by_its_length() -> None:
    """At most 500 lines each; and a newcomer sees at the top where things are."""
    lengths = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert [str(path) for path, lines in lengths.items() if lines > 500] == []
    assert len([path for path in PACKAGE.glob("*.py") if path.stem != "__init__"]) <= 12
