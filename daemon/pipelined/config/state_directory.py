# SPDX-License-Identifier: Apache-2.0
"""The directory in which a process keeps what outlives it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pipelined.errors import UserError

__all__ = ["DEFAULT_DIRECTORY", "SERVICE_CONFIG", "default_directory", "service_directory"]

DEFAULT_DIRECTORY = Path("/var/lib/pipelined")

#: The configuration of the service that packages install.
SERVICE_CONFIG = Path("/etc/pipelined/pipelined.toml")


def default_directory(environment: Mapping[str, str], ours: Path = DEFAULT_DIRECTORY) -> Path:
    """The one if no option names one: systemd's state directory, or ours."""
    given = environment.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(given) if given else ours


def service_directory(environment: Mapping[str, str], file: Path = SERVICE_CONFIG) -> Path:
    """The one of this host's service: systemd's, or the one in its configuration, or ours.

    A file that is missing, may not be read or has a mistake names none.
    """
    ours = DEFAULT_DIRECTORY
    if os.path.exists(file):
        from pipelined.config.toml_file import load  # which the daemon needs with a file alone

        with suppress(UserError):  # the service does not start with it either, and says why
            ours = load(file).state_directory or ours
    return default_directory(environment, ours)
