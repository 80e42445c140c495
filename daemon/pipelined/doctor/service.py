# SPDX-License-Identifier: Apache-2.0
"""Whether the service that packages install runs, where systemd does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipelined.doctor.check import Check

__all__ = ["service_check", "service_properties"]

_UNIT = "pipelined.service"
_PROPERTIES = ("LoadState", "ActiveState", "SubState", "Result")
#: How long systemd may take to answer (seconds).
_PATIENCE = 5.0


def service_check(properties: Mapping[str, str]) -> Iterator[Check]:
    """By what systemd reports of the service; nothing if it has none.

    Not required: a host that can be watched may have a daemon of its own, or none yet.
    """
    if properties.get("LoadState") != "loaded":
        return
    active, sub = properties.get("ActiveState", ""), properties.get("SubState", "")
    # in the words of `systemctl status`
    state = f"{_UNIT} is {active}" + (f" ({sub})" if sub != active else "")
    if active in ("active", "reloading"):
        yield Check("service", "ok", state)
        return
    if (result := properties.get("Result", "")) not in ("", "success"):
        state += f" (Result: {result})"
    fix = "see why: systemctl status pipelined; journalctl -u pipelined"
    if active == "inactive":
        fix += "; start it: systemctl start pipelined"
    yield Check("service", "off", state, fix)


def service_properties(root: Path) -> dict[str, str]:
    """What systemd reports of the service; nothing where it does not run, or does not answer."""
    if not (root / "run/systemd/system").is_dir():  # as sd_booted(3) finds out
        return {}
    try:
        done = subprocess.run(
            ["systemctl", "show", f"--property={','.join(_PROPERTIES)}", _UNIT],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = (line.partition("=") for line in done.stdout.splitlines())
    return {name: value for name, _, value in lines}
