# SPDX-License-Identifier: Apache-2.0
"""The hooks of a daemon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pipelined.runs.fields import Key

__all__ = ["DaemonHook", "Hooks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonHook:
    """A place in the kernel where a program is, will be, or could not be attached."""

    name: Annotated[str, Key("hook")]
    """Its name."""
    tier: str
    """Tier that it belongs to."""
    method: str
    """How it is attached."""
    attached: bool
    """Whether it is attached."""
    pending: bool
    """It is still to be attached."""
    reason: str
    """Why it is off; empty if it is not."""
    gives: str
    """The figures that are absent or less exact without it; empty if nothing works without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The hooks of the daemon, those of tiers that are turned off too."""

    hooks: tuple[DaemonHook, ...]
    """The required ones, the others that are attached or still to be, then those that are off."""
