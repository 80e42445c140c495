# SPDX-License-Identifier: Apache-2.0
"""What the CPUs of the host did, and how long CPU limits of cgroups held tasks back.

Files of procfs and of the cgroup file systems, some 20 µs for each call. On a host with cgroup v1
the limits are those of its `cpu` controller.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pipelined.model.units import mounts_of
from pipelined.records.process import Process

__all__ = ["CpuAccounts"]

#: Columns of the first line of /proc/stat that are no work: idle, iowait. Those from the ninth on
#: (guests) are in others already.
_NO_WORK = (3, 4)
_COLUMNS = 8


class CpuAccounts:
    """Reads the accounts of one host."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        path_of: Callable[[int], str | None] = lambda cgroup: None,
    ) -> None:
        """`proc` is a mounted procfs; where the cgroups are mounted is read from it.

        `path_of` finds the path of a cgroup v2 by its id (`CgroupNames.path`).
        """
        self._proc = proc
        self._path_of = path_of
        try:
            self._mounts = {
                version: path
                for path, kind, options in mounts_of(proc / "self/mounts")
                if (version := _version(kind, options)) is not None
            }
        except OSError:
            self._mounts = {}

    def busy(self) -> float | None:
        """Seconds that all CPUs together worked since the start, or were taken by the hypervisor.

        None if that is not known.
        """
        try:
            with open(self._proc / "stat", encoding="ascii") as file:
                columns = [int(column) for column in file.readline().split()[1 : 1 + _COLUMNS]]
        except (OSError, ValueError):
            return None
        work = sum(value for index, value in enumerate(columns) if index not in _NO_WORK)
        return work / os.sysconf("SC_CLK_TCK")

    def own_group(self) -> Path | None:
        """The folder of the cgroup that shares CPUs out to this process; None: not known."""
        return self._folder(self._paths("self"))

    def group(self, process: Process, cgroup: int) -> Path | None:
        """The folder of the cgroup that shares CPUs out to `process`; None: not known.

        `cgroup` is the id of its cgroup v2, for one whose /proc entry is not ours to read, or gone.
        """
        paths = self._paths(str(process.pid))
        if not paths or not process.is_at(self._proc):
            known = None if 1 in self._mounts else self._path_of(cgroup)
            paths = {} if known is None else {2: known}
        return self._folder(paths)

    def _paths(self, entry: str) -> dict[int, str]:
        """The paths of the cgroups that limit CPU time, by version, of an entry of /proc."""
        paths: dict[int, str] = {}
        try:
            lines = (self._proc / entry / "cgroup").read_text(errors="surrogateescape")
        except OSError:
            return paths
        for line in lines.splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if "cpu" in controllers.split(","):
                paths[1] = path
            elif (number, controllers) == ("0", ""):
                paths[2] = path
        return paths

    def _folder(self, paths: Mapping[int, str]) -> Path | None:
        version = 1 if 1 in paths else 2
        mount = self._mounts.get(version)
        if mount is None or version not in paths:
            return None
        return mount / paths[version].lstrip("/")

    def throttled(self, group: Path) -> float | None:
        """Seconds, summed over CPUs, that limits of a cgroup and those around it held tasks back.

        None if it has no such account, or has ended: the sum would lack its own part.
        """
        found = [seconds for of in self._upwards(group) if (seconds := _throttled(of)) is not None]
        return sum(found) if found and group.is_dir() else None

    def _upwards(self, group: Path) -> Iterator[Path]:
        mounts = set(self._mounts.values())
        while group not in mounts and group != group.parent:
            yield group
            group = group.parent


def _version(kind: str, options: list[str]) -> int | None:
    """The version of a cgroup file system that can limit CPU time; None of others."""
    if kind == "cgroup2":
        return 2
    return 1 if kind == "cgroup" and "cpu" in options else None


def _throttled(group: Path) -> float | None:
    """What ``cpu.stat`` says: in ns (v1), in µs (v2)."""
    try:
        lines = (group / "cpu.stat").read_text(encoding="ascii").splitlines()
        values = {name: int(value) for name, value in (line.split() for line in lines)}
    except (OSError, ValueError):
        return None
    if "throttled_time" in values:
        return values["throttled_time"] / 1e9
    return values["throttled_usec"] / 1e6 if "throttled_usec" in values else None
