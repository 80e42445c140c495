# SPDX-License-Identifier: Apache-2.0
"""A directory that the user may not search, whoever runs the tests."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

__all__ = ["deny"]


def deny(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Nothing in `directory` can be looked at: stat fails, and access(2) says no."""
    stat, access = os.stat, os.access

    def refuse(path: Any, *given: Any, **options: Any) -> os.stat_result:
        if isinstance(path, str | Path) and directory in Path(path).parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, *given, **options)

    monkeypatch.setattr(os, "stat", refuse)
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) != directory and access(path, mode)
    )
