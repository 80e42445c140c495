# SPDX-License-Identifier: Apache-2.0
"""The directory in which a process keeps what outlives it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["DEFAULT_DIRECTORY", "default_directory"]

DEFAULT_DIRECTORY = Path("/var/lib/pipelined")


def default_directory(environment: Mapping[str, str], ours: Path = DEFAULT_DIRECTORY) -> Path:
    """The one if no option names one: systemd's state directory, or ours."""
    given = environment.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(given) if given else ours
