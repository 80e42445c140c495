# SPDX-License-Identifier: Apache-2.0
"""Read the kernel side's maps: the only module that does.

A sweep runs the task iterator, which credits every live task up to now, and then reads
the mapped arrays. Records of stages that ended stay until `free` gives them back.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import sys
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pipelined.errors import UserError
from pipelined.kernel import records
from pipelined.kernel.loader import Loaded
from pipelined.kernel.records import EndRecord, Group, StageRecord
from pipelined.runs import STATES, Endpoint

__all__ = ["MapUse", "Sweep", "monotonic_to_unix"]

_CHUNK = 256
#: Records mapped at first: what is mapped counts as our memory, in use or not.
_MAPPED = 1024

#: Offsets of fields that are read or written alone (bpf/pipelined.h).
START_OFFSET = 8 + records.PIPELINE.size + 8 * (len(STATES) + len(records.COUNTERS))
GENERATION_OFFSET = START_OFFSET + 8 * 7
BEGAN_OFFSET = 16
MISSED_SWITCHES_OFFSET = 24
WATCH_PID_OFFSET = 32
WINDOWS_OFFSET = 40
MAX_WINDOWS_OFFSET = 48
UNITS_OFFSET = 56

#: In place of a process's id (bpf/pipelined.h).
_WATCH_SWEEPER = 0xFFFFFFFF

_GENERATION_MASK = 0x3FFF
_COMM = 15
_UNIT_LEN = 64

_INTERPRETER, _WRAPPER, _SHELL, _ALONE = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class MapUse:
    """How full a map is."""

    name: str
    entries: int
    capacity: int


class Sweep:
    """The maps of one loaded object, from filling them to the last reading."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        max_stages: int,
        max_pipes: int,
        interpreters: Iterable[str],
        wrappers: Iterable[str],
        shells: Iterable[str],
        alone: Iterable[str],
        alone_units: Iterable[str],
        max_readers: int,
        own_only: bool = False,
        all_alone: bool = False,
    ) -> None:
        """Fill the free lists and command names. Nothing is recorded before this is done.

        With `own_only` nobody is watched before the first sweep, and then what this process
        forks. With `all_alone` every program but shells is a stage, in a pipeline or not.
        """
        self._loaded = loaded
        self._max_stages = max_stages
        self._max_pipes = max_pipes
        self._max_readers = max_readers
        self._functions: mmap.mmap | None = None
        self._readahead: mmap.mmap | None = None
        self._map_stages(min(_MAPPED, max_stages))
        self._lost = self._map("lost", 8 * len(records.LOST_KINDS))
        self._control = self._map("control", records.CONTROL.size)
        self._wakeups = _Wakeups(loaded.maps["wakeups"])
        self._in_use: dict[int, StageRecord] = {}
        self._groups: dict[int, Group] = {}
        self._endpoints: dict[bytes, tuple[int, Endpoint]] = {}
        self._commands = 0
        self._readers = 0
        self._name_commands(
            ((interpreters, _INTERPRETER), (wrappers, _WRAPPER), (shells, _SHELL), (alone, _ALONE))
        )
        self._name_units(alone_units)
        watched = _WATCH_SWEEPER if own_only else 0
        struct.pack_into("=II", self._control, WATCH_PID_OFFSET, watched, all_alone)
        struct.pack_into("=Q", self._control, MAX_WINDOWS_OFFSET, max_readers)
        self._wake_later()
        for index in range(max_stages, 0, -1):
            self._give_back(index)

    def began(self) -> None:
        """The programs are attached: what is older than this moment was running before."""
        struct.pack_into("=Q", self._control, BEGAN_OFFSET, time.monotonic_ns())
        self._map_stages(self._mapped)  # by now it is known which maps are filled

    def take(self) -> list[Group]:
        """Bring every clock up to now and read all that is in use.

        What has not changed since the last time comes back as the same objects.
        """
        self._loaded.iterate()
        self._wakeups.clear()
        self._wake_later()
        self._readers = struct.unpack_from("=Q", self._control, WINDOWS_OFFSET)[0]
        before, self._in_use = self._in_use, {}
        for index in self._find_in_use():
            raw = self._read(index)
            stage = before.get(index)
            if stage is None or stage.raw != raw:
                stage = records.decode_stage(raw, index)
            self._in_use[index] = stage
        members: dict[int, list[StageRecord]] = {}
        for stage in self._in_use.values():
            members.setdefault(self._root(stage), []).append(stage)
        alone = {stages[0].index for stages in members.values() if len(stages) == 1}
        groups, self._groups = self._groups, {}
        for root, stages in members.items():
            group = groups.get(root)
            if group is None or group.stages != tuple(stages) or not group.closed:
                group = self._group(root, tuple(stages), alone)
            self._groups[root] = group
        return list(self._groups.values())

    def free(self, stages: Collection[StageRecord]) -> None:
        """Give back the records of stages that ended; their pipes are forgotten."""
        if not stages:
            return
        for stage in stages:
            self._in_use.pop(stage.index, None)
        kept = {end.key for stage in self._in_use.values() for end in stage.ends}
        for key in {end.key for stage in stages for end in stage.ends} - kept:
            self._loaded.delete("pipes", key)
            self._endpoints.pop(key, None)
        blank = bytearray(records.STAGE.size)
        for stage in stages:
            offset = stage.index * len(blank)
            generation = (stage.generation + 1) & _GENERATION_MASK
            struct.pack_into("=I", blank, GENERATION_OFFSET, generation)
            self._stages[offset : offset + len(blank)] = blank
            if self._functions:
                _clear(self._functions, stage.index, records.FUNCTIONS.size)
            if self._readahead and stage.readahead is not records.NO_READAHEAD:
                _clear(self._readahead, stage.index, records.READAHEAD.size)
            self._give_back(stage.index)

    def lost(self) -> dict[str, int]:
        """What could not be recorded since the start, by kind."""
        counts = struct.unpack_from(f"={len(records.LOST_KINDS)}Q", self._lost)
        return dict(zip(records.LOST_KINDS, counts, strict=True))

    def missed_switches(self) -> int:
        """Switches to threads of stages that the kernel did not trace, since the start."""
        return int(struct.unpack_from("=Q", self._control, MISSED_SWITCHES_OFFSET)[0])

    def missed_events(self) -> dict[str, int]:
        """Events that programs were passed over for, by hook, since the start."""
        return self._loaded.missed_events()

    def maps(self) -> list[MapUse]:
        """How full the bounded maps were at the last reading."""
        pipes = {end.key for stage in self._in_use.values() for end in stage.ends}
        return [
            MapUse("stages", len(self._in_use), self._max_stages),
            MapUse("pipes", min(len(pipes), self._max_pipes), self._max_pipes),
            MapUse("commands", self._commands, 256),
            MapUse("windows", self._readers, self._max_readers),
        ]

    def fileno(self) -> int:
        """Readable when the kernel side asks for a sweep."""
        return self._loaded.maps["wakeups"]

    def close(self) -> None:
        """Detach the programs and unmap everything."""
        self._loaded.close()
        self._wakeups.close()
        for mapped in (
            self._stages,
            self._functions,
            self._readahead,
            self._lost,
            self._control,
        ):
            if mapped:
                mapped.close()

    def _map(self, name: str, size: int) -> mmap.mmap:
        page = mmap.PAGESIZE
        return mmap.mmap(self._loaded.maps[name], (size + page - 1) // page * page)

    def _read(self, index: int) -> tuple[bytes, bytes, bytes]:
        return (
            _slice(self._stages, index, records.STAGE.size),
            _slice(self._functions, index, records.FUNCTIONS.size),
            _slice(self._readahead, index, records.READAHEAD.size),
        )

    def _map_stages(self, count: int) -> None:
        """Map the records up to index `count`."""
        self._mapped = count
        self._stages = self._map("stages", records.STAGE.size * (count + 1))
        if self._loaded.has_functions:
            self._functions = self._map("functions", records.FUNCTIONS.size * (count + 1))
        if self._loaded.has_readahead:
            self._readahead = self._map("readahead", records.READAHEAD.size * (count + 1))

    def _give_back(self, index: int) -> None:
        if not self._loaded.put("free_stages", None, index.to_bytes(4, sys.byteorder)):
            raise RuntimeError(f"no room for record {index} among the free ones: freed twice")

    def _name_commands(self, listed: Iterable[tuple[Iterable[str], int]]) -> None:
        flags: dict[bytes, int] = {}
        for names, flag in listed:
            for name in names:
                # the kernel side leaves out a version at the end, too
                key = os.fsencode(name)[:_COMM].rstrip(b"0123456789.")
                flags[key] = flags.get(key, 0) | flag
        for key, value in flags.items():
            if not self._loaded.put("commands", key.ljust(16, b"\0"), struct.pack("=I", value)):
                raise UserError(
                    f"too many command names: {len(flags)} interpreters, wrappers, shells "
                    "and commands alone",
                    "name at most 256",
                )
        self._commands = len(flags)

    def _name_units(self, names: Iterable[str]) -> None:
        keys = {re.sub("@.*(?=\\.)", "@", name).encode() for name in names}
        for key in keys:
            value = struct.pack("=I", 1)
            if not self._loaded.put("units", key.ljust(_UNIT_LEN, b"\0"), value):
                raise UserError(f"too many units alone: {len(keys)}", "name at most 256")
        struct.pack_into("=Q", self._control, UNITS_OFFSET, len(keys))

    def _wake_later(self) -> None:
        ended = struct.unpack_from("=Q", self._control)[0]
        struct.pack_into("=Q", self._control, 8, ended + max(1, self._max_stages // 8))

    def _find_in_use(self) -> list[int]:
        """Indexes of used records. Free ones are taken lowest first, so the rest is untouched."""
        found: list[int] = []
        step = records.STAGE.size // 8
        for first in range(1, self._max_stages + 1, _CHUNK):
            last = min(first + _CHUNK - 1, self._max_stages)
            if last > self._mapped:
                self._map_stages(min(2 * self._mapped, self._max_stages))
            begin, end = first * step, (last + 1) * step
            with memoryview(self._stages) as view, view.cast("Q") as words:
                starts = words[begin + START_OFFSET // 8 : end : step].tolist()
                used = [first + i for i, start in enumerate(starts) if start]
                found += used
                # a record that was ever used has a generation, beside the pid in its word
                if not (used or any(words[begin + GENERATION_OFFSET // 8 : end : step].tolist())):
                    break
        return found

    def _root(self, stage: StageRecord) -> int:
        """Index of the stage whose pipeline this stage uses."""
        while stage.alias in self._in_use:
            stage = self._in_use[stage.alias]
        return stage.index

    def _group(self, root: int, stages: tuple[StageRecord, ...], alone: Collection[int]) -> Group:
        # read again, after the stages: of those that are over it has all their time
        clock = records.decode_pipeline(_slice(self._stages, root, records.STAGE.size))
        if len(stages) == 1:
            return Group(root, clock, stages)
        outer = stages[0].outer
        # the subshell of $(a | b) holds the pipe to the shell that b writes to
        around = (
            [self._in_use[outer]]
            if outer in alone and any(stage.borrows for stage in stages)
            else []
        )
        endpoints = self._endpoints_of([*stages, *around], {stage.pid for stage in stages})
        closed = not around and all(end.joined for stage in stages for end in stage.ends)
        full = any(len(stage.ends) == records.STAGE_ENDS for stage in stages)
        slot_edges = self._slot_edges(stages) if full else ()
        return Group(root, clock, stages, closed, endpoints, slot_edges)

    def _endpoints_of(
        self, stages: Iterable[StageRecord], inside: Collection[int]
    ) -> tuple[Endpoint, ...]:
        """Who, but the processes `inside`, is at the other end of pipes that join no stages."""
        found: list[Endpoint] = []
        for stage in stages:
            for end in stage.ends:
                endpoint = None if end.joined else self._endpoint(end, inside)
                if endpoint and endpoint[0] not in inside and endpoint[1] not in found:
                    found.append(endpoint[1])
        return tuple(found)

    def _slot_edges(self, stages: Iterable[StageRecord]) -> tuple[tuple[int, int], ...]:
        """Edges of stages that have more pipes than they can remember, from the pipes."""
        seen: dict[bytes, set[str]] = {}
        for stage in stages:
            for end in stage.ends:
                if end.joined:
                    seen.setdefault(end.key, set()).add(end.side)
        members = {(stage.generation << 18 | stage.index): stage.index for stage in stages}
        edges = []
        for key, sides in seen.items():
            if len(sides) == 2:
                continue
            value = self._loaded.get("pipes", key, records.PIPE.size)
            if value is None:
                continue
            slots = records.PIPE.unpack(value)[:16]
            readers = [members[slot] for slot in slots[:8] if slot in members]
            writers = [members[slot] for slot in slots[8:] if slot in members]
            edges += [(writer, reader) for writer in writers for reader in readers]
        return tuple(edges)

    def _endpoint(self, end: EndRecord, inside: Collection[int]) -> tuple[int, Endpoint] | None:
        """Process id and endpoint at the other side of a pipe, once known."""
        if end.key in self._endpoints:
            return self._endpoints[end.key]
        value = self._loaded.get("pipes", end.key, records.PIPE.size)
        if value is None:
            return None
        *slots, _, pid, side, _, command = records.PIPE.unpack(value)
        other = "write" if end.side == "read" else "read"
        found = None
        if pid and ("write" if side else "read") == other:
            found = (pid, Endpoint(_text(command), other))
        for slot in slots[:8] if other == "read" else slots[8:]:
            stage = self._in_use.get(slot & 0x3FFFF)
            if stage and stage.generation == slot >> 18 and stage.parent_pid not in inside:
                found = (stage.pid, Endpoint(stage.command, other))
        if found:
            self._endpoints[end.key] = found
        return found


def _slice(mapped: mmap.mmap | None, index: int, size: int) -> bytes:
    """Record `index` of an array; empty where its tier is off."""
    return mapped[index * size : (index + 1) * size] if mapped else b""


def _clear(mapped: mmap.mmap, index: int, size: int) -> None:
    mapped[index * size : (index + 1) * size] = bytes(size)


def _text(comm: bytes) -> str:
    return comm.split(b"\0", 1)[0].decode(errors="backslashreplace")


class _Wakeups:
    """The ring buffer that carries no data: its arrival is the message."""

    def __init__(self, fd: int) -> None:
        page = mmap.PAGESIZE
        self._consumer = mmap.mmap(fd, page)
        self._producer = mmap.mmap(fd, page, prot=mmap.PROT_READ, offset=page)

    def clear(self) -> None:
        self._consumer[:8] = self._producer[:8]

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


def monotonic_to_unix() -> float:
    """What to add to a CLOCK_MONOTONIC stamp to get Unix time."""
    return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
