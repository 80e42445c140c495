# SPDX-License-Identifier: Apache-2.0
"""What findings need to know about the machine that a run was on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipelined.runs.fields import Bytes, Count, Seconds

__all__ = ["Costs", "Host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Time that what a run does not tell apart takes on this machine."""

    fork_seconds: Seconds
    """A process that a shell starts and that runs no other program, from its start to its end."""
    program_seconds: Seconds
    """The same, which runs a program that has nothing to do: a cat of an empty file."""
    call_seconds: Seconds
    """A read or write of one byte."""
    switch_seconds: Seconds
    """From a write into a pipe until the reader that slept on it runs, without the calls."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that answers, as far as findings need it."""

    cores: Count
    """CPUs that are online."""
    l2_bytes: Bytes | None
    """Second-level cache of one CPU; null if the kernel does not report it."""
    costs: Costs | None = None
    """[Measured on it](FINDINGS.md#what-is-likely); null if that was not possible."""

    @classmethod
    def read(cls, sys: Path = Path("/sys")) -> Host:
        """This machine, read from `sys`, a mounted sysfs."""
        cpus = sys / "devices/system/cpu"
        return cls(_count(cpus / "online"), _second_level(cpus / "cpu0/cache"))


def _count(path: Path) -> int:
    """How many CPUs a list such as ``0-3,6`` names; 1 if there is no list."""
    try:
        spans = path.read_text().strip().split(",")
        ends = [[int(end) for end in span.split("-")] for span in spans]
    except (OSError, ValueError):
        return 1
    return sum(end[-1] - end[0] + 1 for end in ends)


def _second_level(cache: Path) -> int | None:
    """Bytes of the level-2 cache, which the kernel writes as ``1024K``; None if unknown."""
    for index in sorted(cache.glob("index*")):
        try:
            level, size = (index / "level").read_text(), (index / "size").read_text().strip()
            if int(level) == 2 and size.endswith("K"):
                return int(size[:-1]) * 1024
        except (OSError, ValueError):
            continue
    return None
