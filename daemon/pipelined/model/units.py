# SPDX-License-Identifier: Apache-2.0
"""Which container, systemd unit or kind of cgroup a task belongs to: the label `unit`.

Session numbers, instances, ids and the like are taken out of the name, so that the label has as
many values as there are kinds of jobs on the host, not as there were jobs. A container whose name
cannot be read (`containers`) is the exception: it is called by its id. A job's own name comes
before all of these (`jobs`).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pipelined.model.containers import ContainerFiles, Place, container_of
from pipelined.runs.codec import read, written
from pipelined.wording import valid_text

__all__ = [
    "NO_UNIT",
    "CgroupNames",
    "find_cgroup2",
    "mounts_of",
    "normalise_unit",
    "read_known",
    "without_ids",
]

NO_UNIT = "-"
"""The label if there is no unit, or none is known."""

_UNIT_SUFFIXES = (".service", ".scope", ".socket", ".mount", ".swap")
_UUID = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{8}([-_])[0-9a-f]{4}(\1[0-9a-f]{4}){2}\1[0-9a-f]{12}(?![0-9a-f])", re.I
)
# One part of a name, between dashes or underscores: a number (also :1.42, 10.0.0.1), or hex.
_ID = re.compile(r"[0-9.:,@]*[0-9][0-9.:,@]*|[0-9a-f]{8,}", re.I)
# What systemd and logind put before a number of their own: c2, u42, p123, i456, r<hex>.
_LETTERED_ID = re.compile(r"[a-z]?[0-9]+|r[0-9a-f]+", re.I)
#: What systemd-nspawn runs: in a scope that systemd-machined makes, or in the unit for a machine.
_MACHINE = re.compile(r"/(?:machine-([^/]+)\.scope|systemd-nspawn@([^/]+)\.service)/payload(?=/|$)")
#: Any container's cgroup has its whole id.
_CONTAINER_ID = re.compile("[0-9a-f]{64}")
_ESCAPE = re.compile(r"\\x([2-7][0-9a-f])", re.I)
#: Looking ahead for cgroups takes at most this share of the time if their number has changed, which
#: is little to read, and if it has not: one may have gone and another come.
_CHANGED_SHARE, _SAME_SHARE = 1 / 200, 1 / 1000


def normalise_unit(path: str) -> str:
    """The unit that a cgroup path lies in, without what distinguishes its instances.

    >>> normalise_unit("/system.slice/nightly.service")
    'nightly.service'
    >>> normalise_unit("/user.slice/user-1000.slice/session-12.scope")
    'session.scope'
    >>> normalise_unit("/system.slice/system-backup.slice/backup@sda.service")
    'backup@.service'

    Whatever runs in a machine of systemd-nspawn is the machine's.

    >>> normalise_unit("/machine.slice/systemd-nspawn@web.service/payload/system.slice/db.service")
    'web.machine'

    Outside systemd it is the outermost name, which is the container runtime's or the job
    scheduler's own (``/kubepods/burstable/pod…`` is ``kubepods``). The root is ``-``.
    """
    path = path.removesuffix(" (deleted)")
    for machine in reversed(list(_MACHINE.finditer(path))):
        if name := without_ids(_unescape(machine[1] or machine[2])):
            return f"{name}.machine"
    parts = [part for part in path.split("/") if part]
    units = [part for part in parts if part.endswith(_UNIT_SUFFIXES)]
    # A user's manager and a container have an init.scope of their own: name the unit around it.
    while units and units[-1] == "init.scope" and parts[0] != "init.scope":
        units.pop()
    for unit in reversed(units):
        stem, _, suffix = unit.rpartition(".")
        if name := _unit_stem(stem):
            return f"{name}.{suffix}"
    for part in parts:
        if not part.endswith((*_UNIT_SUFFIXES, ".slice")) and (name := _plain_name(part)):
            return name
    for part in reversed(parts):
        if part.endswith(".slice") and (name := _unit_stem(part.removesuffix(".slice"))):
            return f"{name}.slice"
    return NO_UNIT


def _unit_stem(stem: str) -> str:
    """A unit's name before its type: ``backup@sda`` is ``backup@``, ``run-u42`` is ``run``."""
    template, at, _ = _unescape(stem).partition("@")
    lettered = re.match(r"(run|session)-", template) is not None
    name = without_ids(template, _LETTERED_ID if lettered else None)
    return name + at if name else ""


def _plain_name(part: str) -> str:
    """A cgroup that is no unit: numbers at its end count instances too (``web12`` is ``web``)."""
    return without_ids(_unescape(part)).rstrip("0123456789-_.:@")


def without_ids(name: str, also: re.Pattern[str] | None = None) -> str:
    """A name without its parts that are numbers, hex or UUIDs, or match `also` (but the first)."""
    pieces = re.split(r"([-_])", _UUID.sub("", name))
    kept = ""
    for index in range(0, len(pieces), 2):
        piece = pieces[index]
        if not piece or _ID.fullmatch(piece):
            continue
        if also is not None and kept and also.fullmatch(piece):
            continue
        separator = pieces[index - 1] if index else ""
        kept += separator + piece if kept else piece
    return kept


def _unescape(name: str) -> str:
    """systemd writes ``\\x2d`` for a dash inside a name."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), name).replace("\x7f", "")


def mounts_of(mounts: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """Path, type and options of all that is mounted. Raises OSError if that can't be read."""
    for line in mounts.read_text(errors="surrogateescape").splitlines():
        fields = line.split(" ")
        if len(fields) >= 4:
            # The kernel writes blanks and backslashes in paths as \ooo.
            path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1])
            yield Path(path), fields[2], fields[3].split(",")


def find_cgroup2(mounts: Path = Path("/proc/self/mounts")) -> Path | None:
    """Where cgroup v2 is mounted, None if it isn't. Raises OSError if mounts can't be read."""
    return next((path for path, kind, _ in mounts_of(mounts) if kind == "cgroup2"), None)


class CgroupNames:
    """Units by cgroup id, the inode number of the cgroup's directory.

    What a cgroup is called the kernel side has `noted` when it made a stage there. The directories
    are read for the names of containers (`keep_up`), and when an id is not known all the same, at
    most once in `interval` seconds. So often the name of a container is looked for that has none
    yet: runtimes write it later. A cgroup that has been seen keeps its name after it is gone, until
    `limit` others have gone or been asked for since; ids are never used again. Paths in the
    daemon's cgroup namespace begin at its root, others at the host's. Not thread safe.
    """

    def __init__(
        self,
        root: Path | None,
        noted: Callable[[int], tuple[str, int] | None] = lambda _: None,
        *,
        containers: ContainerFiles | None = None,
        node: str = "",
        interval: float = 1.0,
        limit: int = 8192,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`root` is the mount of cgroup v2 (`find_cgroup2`), None on a host without it.

        `noted` as `kernel.cgroups.NotedCgroups`. `node` is what the host is called. `limit` is how
        many cgroups are known that the directories do not have.
        """
        self._root = root
        self._noted = noted
        self._containers = containers
        self._node = node
        self._interval = interval
        self._limit = limit
        self._clock = clock
        self._next_scan = float("-inf")
        self._looked = float("-inf")
        self._look_took = 0.0
        self._counted = ""
        self._there: dict[int, str] = {}
        """Paths of the cgroups that the directories had."""
        self._others: dict[int, str] = {}
        """Paths of those that they did not, or that are gone: least recently asked for first."""
        self._units: dict[int, str] = {}
        self._unnamed: dict[int, tuple[str, float]] = {}
        """Units of containers that go by their id, and when to look for a name again."""
        self._places: dict[int, Place] = {}

    def path(self, cgroup_id: int) -> str | None:
        """The path under the mount, ``/`` for its root; None if unknown."""
        path = self._known_path(cgroup_id) or self._take_noted(cgroup_id)
        if path is None and (now := self._clock()) >= self._next_scan:
            self._next_scan = now + self._interval
            self.scan()
            path = self._there.get(cgroup_id)
        return path

    def _known_path(self, cgroup_id: int) -> str | None:
        return self._there.get(cgroup_id) or self._others.get(cgroup_id)

    def _take_noted(self, cgroup_id: int) -> str | None:
        """Take the path from the names that are noted; None if one of them is not."""
        at, names = cgroup_id, list[str]()
        while (above := self._known_path(at)) is None:
            if (noted := self._noted(at)) is None:
                return None
            name, at = noted
            if not at:
                above = "/"
                break
            names.append(name)
        path = self._others[cgroup_id] = os.path.join(above, *reversed(names))
        self._forget()
        return path

    def unit(self, cgroup_id: int) -> str:
        """The normalised unit; ``-`` if there is none or the cgroup is unknown."""
        if cgroup_id in self._others:
            self._others[cgroup_id] = self._others.pop(cgroup_id)
        known = self._units.get(cgroup_id)
        if known is not None:
            return known
        path = self.path(cgroup_id)
        if path is None:
            return NO_UNIT
        if not _CONTAINER_ID.search(path):
            return self._units.setdefault(cgroup_id, valid_text(normalise_unit(path)))
        return self._in_container(cgroup_id, path)

    def place(self, cgroup_id: int) -> Place | None:
        """The container that it is in; None outside containers, and if it is unknown."""
        self.unit(cgroup_id)
        return self._places.get(cgroup_id)

    def read_names(self) -> None:
        """Look up the names of all containers that there are, as long as their files can be read.

        They are root's: a daemon that gives up its privileges may read them no more.
        """
        for cgroup_id, path in self.scan().items():
            if cgroup_id not in self._units and _CONTAINER_ID.search(path):
                self.unit(cgroup_id)

    def keep_up(self) -> None:
        """Do that again if it is time: before every sweep.

        A container often ends with its pipeline. When a sweep sees that pipeline, the cgroup and
        the name of the container may be gone.
        """
        began = self._clock()
        if began < self._looked + self._interval:
            return
        count = self._count()
        share = _SAME_SHARE if count == self._counted else _CHANGED_SHARE
        if began < self._looked + self._look_took / share:
            return
        self.read_names()
        self._looked, self._look_took, self._counted = began, self._clock() - began, count

    def _count(self) -> str:
        """How many cgroups there are, and how many that are gone the kernel still has."""
        try:
            return (self._root / "cgroup.stat").read_text() if self._root else ""
        except OSError:
            return ""

    def _in_container(self, cgroup_id: int, path: str) -> str:
        """The unit by the container's name if that is known, else by its id.

        Of a service that is a container (`--cgroups=split` of Podman) it is the service.
        """
        if (container := container_of(path)) is None:
            return self._units.setdefault(cgroup_id, valid_text(normalise_unit(path)))
        unit, look_at = self._unnamed.get(cgroup_id, ("", float("-inf")))
        if (now := self._clock()) < look_at:
            return unit
        self._containers = self._containers or ContainerFiles()
        described = self._containers.describe(container, self._node)
        self._places[cgroup_id] = Place.of(container, described, self._node)
        name = described.unit and without_ids(described.unit)
        around, is_split, _ = path.partition(f"/libpod-payload-{container.id}")
        if is_split:
            unit = valid_text(normalise_unit(around))
        else:
            unit = f"{name or container.short}.{container.runtime}"
        if name:
            self._unnamed.pop(cgroup_id, None)
            return self._units.setdefault(cgroup_id, unit)
        self._unnamed[cgroup_id] = (unit, now + self._interval)
        return unit

    def known(self, cgroup_ids: Iterable[int]) -> dict[int, tuple[Any, ...]]:
        """Path and unit of each, as far as they have been asked for; in a container its place too.

        As `json.dumps` takes it.
        """
        return {
            i: (
                self._known_path(i),
                self._units.get(i),
                *((written(self._places[i]),) if i in self._places else ()),
            )
            for i in cgroup_ids
        }

    def remember(self, known: Mapping[int, Sequence[Any]]) -> None:
        """What an earlier daemon knew (`known`): a cgroup may be gone by now."""
        for cgroup_id, found in known.items():
            path, unit, place = read_known(found)
            if path:
                self._others[cgroup_id] = path
            if unit:
                self._units[cgroup_id] = valid_text(unit)
            if place:
                self._places[cgroup_id] = place

    def scan(self) -> Mapping[int, str]:
        """Read all directories now, some microseconds for each: the paths of all that exist."""
        if self._root is None:
            return {}
        before, self._there = self._there, dict(_directories(self._root))
        known = self._others | before
        self._others = {i: path for i, path in known.items() if i not in self._there}
        self._forget()
        return self._there

    def _forget(self) -> None:
        """Of the cgroups that the directories do not have, forget those beyond the limit."""
        tables: list[dict[int, Any]] = [self._others, self._units, self._unnamed, self._places]
        for cgroup_id in list(islice(self._others, max(0, len(self._others) - self._limit))):
            for table in tables:
                table.pop(cgroup_id, None)


def read_known(known: Sequence[Any]) -> tuple[str | None, str | None, Place | None]:
    """Path, unit and place of a cgroup, of what `CgroupNames.known` made for `json.dumps`.

    Raises LookupError, TypeError or ValueError for anything else.
    """
    path, unit, *place = known
    if not all(name is None or isinstance(name, str) for name in (path, unit)):
        raise TypeError("path or unit of a cgroup is no text")
    return path, unit, read(Place, place[0]) if place else None


def _directories(root: Path) -> Iterator[tuple[int, str]]:
    """Inode and path of the root and of every directory under it that can be read."""
    try:
        yield root.stat().st_ino, "/"
    except OSError:
        return
    pending = [""]
    while pending:
        above = pending.pop()
        try:
            with os.scandir(f"{root}{above}") as entries:
                found = [
                    (entry.inode(), f"{above}/{entry.name}")
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False)
                ]
        except OSError:  # It went away meanwhile.
            continue
        yield from found
        pending.extend(path for _, path in found)
