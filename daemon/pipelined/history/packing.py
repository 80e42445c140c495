# SPDX-License-Identifier: Apache-2.0
"""The bulk of a run as it is stored: JSON, compressed."""

from __future__ import annotations

import json
import zlib
from typing import Any

__all__ = ["pack", "stored_figures", "stored_parent", "unpack"]


def pack(described: object) -> bytes:
    """The bytes to store."""
    # Level 1 takes half the time of the default, for a tenth more bytes.
    return zlib.compress(json.dumps(described, separators=(",", ":")).encode(), 1)


def unpack(packed: bytes) -> Any:
    """What was packed. Raises ValueError or zlib.error."""
    return json.loads(zlib.decompress(packed))


def stored_figures(run: bytes) -> tuple[float, float, int, int] | None:
    """Of a packed run, what the roll-up counts; None if it cannot be read.

    CPU seconds, seconds with at most one stage on CPU, bytes read and written.
    """
    try:
        described = unpack(run)
        levels, stages = described["level_seconds"], described["stages"]
        return (
            described["cpu_seconds"],
            levels["0"] + levels["1"],
            sum(stage["read_bytes"] for stage in stages),
            sum(stage["written_bytes"] for stage in stages),
        )
    except (KeyError, TypeError, ValueError, zlib.error):
        return None


def stored_parent(run: bytes) -> str | None:
    """Of a packed run, the id of the run that encloses it; None if it is not known."""
    try:
        parent = unpack(run)["parent"]
    except (KeyError, TypeError, ValueError, zlib.error):
        return None
    return parent if isinstance(parent, str) else None
