# SPDX-License-Identifier: Apache-2.0
"""Which capabilities it takes to load BPF programs, and which of them a thread lacks."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["NEEDED", "SYS_ADMIN", "effective", "lacking"]

#: Bits of capability sets, from linux/capability.h.
SYS_ADMIN = 21
NEEDED = {"CAP_BPF": 39, "CAP_PERFMON": 38}


def effective(status: Path) -> int | None:
    """The set that is in effect, by a file such as /proc/self/status; None if it is not there."""
    try:
        text = status.read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", text, re.M)
    return int(match[1], 16) if match else None


def lacking(held: int) -> list[str]:
    """The names of those that are not in this set. CAP_SYS_ADMIN includes both."""
    if held >> SYS_ADMIN & 1:
        return []
    return [name for name, bit in NEEDED.items() if not held >> bit & 1]
