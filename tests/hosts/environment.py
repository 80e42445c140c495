# SPDX-License-Identifier: Apache-2.0
"""Python packages in a virtual environment of their own, installed once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["programs_of"]


def programs_of(environment: Path, *packages: str) -> Path:
    """Where the programs of these packages are."""
    note, wanted = environment / "installed", " ".join(packages)
    if not note.exists() or note.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        pip = [environment / "bin" / "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", *packages], check=True)
        note.write_text(wanted)
    return environment / "bin"
