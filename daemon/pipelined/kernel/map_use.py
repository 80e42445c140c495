# SPDX-License-Identifier: Apache-2.0
"""How much room there is in the kernel side's maps."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MapUse"]


@dataclass(frozen=True, slots=True)
class MapUse:
    """How full a map is."""

    name: str
    entries: int
    capacity: int
