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
from ctypes import Structure, sizeof
from dataclasses import dataclass

from pipelined.errors import UserError
from pipelined.kernel import layout, records
from pipelined.kernel.layout import Control, Pipe, offset_of
from pipelined.kernel.loader import Loaded
from pipelined.kernel.records import EndRecord, Group, RawStage, StageRecord
from pipelined.runs import Endpoint
from pipelined.starter import STARTER_NAME

__all__ = ["MapUse", "Sweep", "command_key", "monotonic_to_unix"]

_CHUNK = 256
#: Records mapped at first: what is mapped counts as our memory, in use or not.
_MAPPED = 1024

#: fish reads the last part of a pipeline at another descriptor than stdin. Other shells read
#: `$(…)` there; fish polls for that.
_READ_ANYWHERE = frozenset({"fish"})

_STAGE_BYTES = sizeof(layout.Stage)
_FUNCTIONS_BYTES = sizeof(layout.Functions)
_READAHEAD_BYTES = sizeof(layout.ReadaheadCounters)

# In 64-bit words: of a record, and of those of its fields by which unused records are skipped.
_STAGE_WORDS = _STAGE_BYTES // 8
_START_WORD = offset_of(layout.Stage, "start_ns") // 8
_GENERATION_WORD = offset_of(layout.Stage, "generation") // 8

_GENERATION_MASK = (1 << 32 - layout.GENERATION_SHIFT) - 1
_LOST = struct.Struct(f"={len(layout.LOST_KINDS)}Q")


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
        shells: Collection[str],
        alone: Iterable[str],
        alone_units: Iterable[str],
        schedulers: Iterable[str],
        job_variables: Iterable[str],
        max_readers: int,
        own_only: bool = False,
        all_alone: bool = False,
    ) -> None:
        """Fill the free lists and the lists of names. Nothing is recorded before this is done.

        With `own_only` no process is followed before the first sweep, and then those that this
        process forks. With `all_alone` every program but shells is a stage, in a pipeline or not.
        """
        self._loaded = loaded
        self._max_stages = max_stages
        self._max_pipes = max_pipes
        self._max_readers = max_readers
        self._functions: mmap.mmap | None = None
        self._readahead: mmap.mmap | None = None
        self._map_stages(min(_MAPPED, max_stages))
        self._lost = self._map("lost", _LOST.size)
        self._control = Control.from_buffer(self._map("control", sizeof(Control)))
        self._wakeups = _Wakeups(loaded.maps["wakeups"])
        self._in_use: dict[int, StageRecord] = {}
        self._groups: dict[int, Group] = {}
        self._endpoints: dict[bytes, tuple[int, Endpoint]] = {}
        self._commands = 0
        self._readers = 0
        self._name_commands(
            (
                (interpreters, layout.COMMAND_INTERPRETER),
                (wrappers, layout.COMMAND_WRAPPER),
                (shells, layout.COMMAND_SHELL),
                (alone, layout.COMMAND_ALONE),
                (_READ_ANYWHERE.intersection(shells), layout.COMMAND_READS_ANYWHERE),
                ([STARTER_NAME], layout.COMMAND_STARTER),
                (schedulers, layout.COMMAND_SCHEDULER),
            )
        )
        self._name_units(alone_units)
        self._name_variables(job_variables)
        self._control.watch_pid = layout.WATCH_SWEEPER if own_only else 0
        self._control.alone = all_alone
        self._control.max_windows = max_readers
        self._wake_later()
        for index in range(max_stages, 0, -1):
            self._give_back(index)

    def began(self) -> None:
        """The programs are attached: what is older than this moment was running before."""
        self._control.began_ns = time.monotonic_ns()
        self.map_tiers()

    def map_tiers(self) -> None:
        """The optional programs are attached: map what they fill."""
        self._map_stages(self._mapped)

    def take(self) -> list[Group]:
        """Bring every clock up to now and read all that is in use.

        What has not changed since the last time comes back as the same objects.
        """
        self._loaded.iterate()
        self._wakeups.clear()
        self._wake_later()
        self._readers = self._control.windows
        before, self._in_use = self._in_use, {}
        for index in self._find_in_use():
            raw = self._read(index)
            stage = before.get(index)
            if stage is None or stage.fingerprint != hash(raw):
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
        blank, no_functions, no_readahead = (
            layout.Stage(),
            layout.Functions(),
            layout.ReadaheadCounters(),
        )
        for stage in stages:
            blank.generation = (stage.generation + 1) & _GENERATION_MASK
            _write(self._stages, stage.index, blank)
            if self._functions:
                _write(self._functions, stage.index, no_functions)
            if self._readahead and stage.readahead is not records.NO_READAHEAD:
                _write(self._readahead, stage.index, no_readahead)
            self._give_back(stage.index)

    def lost(self) -> dict[str, int]:
        """What could not be recorded since the start, by kind."""
        return dict(zip(layout.LOST_KINDS, _LOST.unpack_from(self._lost), strict=True))

    def missed_switches(self) -> int:
        """Switches to threads of stages that the kernel did not trace, since the start."""
        return self._control.missed_switches

    def missed_events(self) -> dict[str, int]:
        """Events that programs were passed over for, by hook, since the start."""
        return self._loaded.missed_events()

    def maps(self) -> list[MapUse]:
        """How full the bounded maps were at the last reading."""
        pipes = {end.key for stage in self._in_use.values() for end in stage.ends}
        return [
            MapUse("stages", len(self._in_use), self._max_stages),
            MapUse("pipes", min(len(pipes), self._max_pipes), self._max_pipes),
            MapUse("commands", self._commands, layout.MAX_COMMANDS),
            MapUse("windows", self._readers, self._max_readers),
        ]

    def fileno(self) -> int:
        """Readable when the kernel side asks for a sweep."""
        return self._loaded.maps["wakeups"]

    def close(self) -> None:
        """Detach the programs and unmap everything."""
        self._loaded.close()
        self._wakeups.close()
        for mapped in (self._stages, self._functions, self._readahead, self._lost):
            if mapped:
                mapped.close()
        del self._control

    def _map(self, name: str, size: int) -> mmap.mmap:
        page = mmap.PAGESIZE
        return mmap.mmap(self._loaded.maps[name], (size + page - 1) // page * page)

    def _read(self, index: int) -> RawStage:
        return (
            _slice(self._stages, index, _STAGE_BYTES),
            _slice(self._functions, index, _FUNCTIONS_BYTES),
            _slice(self._readahead, index, _READAHEAD_BYTES),
        )

    def _map_stages(self, count: int) -> None:
        """Map the records up to index `count`."""
        self._mapped = count
        self._stages = self._map("stages", _STAGE_BYTES * (count + 1))
        if self._loaded.has_functions:
            self._functions = self._map("functions", _FUNCTIONS_BYTES * (count + 1))
        if self._loaded.has_readahead:
            self._readahead = self._map("readahead", _READAHEAD_BYTES * (count + 1))

    def _give_back(self, index: int) -> None:
        if not self._loaded.put("free_stages", None, index.to_bytes(4, sys.byteorder)):
            raise RuntimeError(f"no room for record {index} among the free ones: freed twice")

    def _name_commands(self, listed: Iterable[tuple[Iterable[str], int]]) -> None:
        flags: dict[bytes, int] = {}
        for names, flag in listed:
            for name in names:
                key = command_key(name)
                flags[key] = flags.get(key, 0) | flag
        for key, value in flags.items():
            if not self._loaded.put("commands", key, struct.pack("=I", value)):
                raise UserError(
                    f"too many command names: {len(flags)} interpreters, wrappers, shells, "
                    "schedulers and commands alone",
                    f"name at most {layout.MAX_COMMANDS}",
                )
        self._commands = len(flags)

    def _name_units(self, names: Iterable[str]) -> None:
        keys = {re.sub("@.*(?=\\.)", "@", name).encode() for name in names}
        for key in keys:
            value = struct.pack("=I", 1)
            if not self._loaded.put("units", key.ljust(layout.UNIT_LEN, b"\0"), value):
                raise UserError(
                    f"too many units alone: {len(keys)}", f"name at most {layout.MAX_UNITS}"
                )
        self._control.units = len(keys)

    def _name_variables(self, names: Iterable[str]) -> None:
        for at, name in enumerate(names):
            text = f"{name}=".encode()
            variable = layout.Variable(text, b"\xff" * len(text), len(text))
            if not self._loaded.put("variables", at.to_bytes(4, sys.byteorder), bytes(variable)):
                raise RuntimeError(f"no room for variable {at}")

    def _wake_later(self) -> None:
        self._control.wake_at = self._control.ended + max(1, self._max_stages // 8)

    def _find_in_use(self) -> list[int]:
        """Indexes of used records. Free ones are taken lowest first, so the rest is untouched."""
        found: list[int] = []
        for first in range(1, self._max_stages + 1, _CHUNK):
            last = min(first + _CHUNK - 1, self._max_stages)
            if last > self._mapped:
                self._map_stages(min(2 * self._mapped, self._max_stages))
            begin, end = first * _STAGE_WORDS, (last + 1) * _STAGE_WORDS
            with memoryview(self._stages) as view, view.cast("Q") as words:
                starts = words[begin + _START_WORD : end : _STAGE_WORDS].tolist()
                used = [first + i for i, start in enumerate(starts) if start]
                found += used
                # a record that was ever used has a generation, beside the pid in its word
                if not (used or any(words[begin + _GENERATION_WORD : end : _STAGE_WORDS].tolist())):
                    break
        return found

    def _root(self, stage: StageRecord) -> int:
        """Index of the stage whose pipeline this stage uses."""
        while stage.alias in self._in_use:
            stage = self._in_use[stage.alias]
        return stage.index

    def _group(self, root: int, stages: tuple[StageRecord, ...], alone: Collection[int]) -> Group:
        # read again, after the stages: of those that are over it has all their time
        clock = records.decode_pipeline(_slice(self._stages, root, _STAGE_BYTES))
        conversation = records.is_conversation(stages)
        if len(stages) == 1 and not conversation:
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
        full = any(len(stage.ends) == layout.STAGE_ENDS for stage in stages)
        slot_edges = self._slot_edges(stages) if full else ()
        return Group(root, clock, stages, closed, endpoints, slot_edges, conversation)

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
        members = {_reference(stage): stage.index for stage in stages}
        edges = []
        for key, sides in seen.items():
            if len(sides) == 2:
                continue
            pipe = self._pipe(key)
            if pipe is None:
                continue
            readers, writers = (
                [members[slot] for slot in pipe.stages[side] if slot in members]
                for side in (layout.SIDE_READ, layout.SIDE_WRITE)
            )
            edges += [(a, b) for a in writers for b in readers if a != b]
        return tuple(edges)

    def _endpoint(self, end: EndRecord, inside: Collection[int]) -> tuple[int, Endpoint] | None:
        """Process id and endpoint at the other side of a pipe, once known."""
        if end.key in self._endpoints:
            return self._endpoints[end.key]
        pipe = self._pipe(end.key)
        if pipe is None:
            return None
        other, side = (
            ("write", layout.SIDE_WRITE) if end.side == "read" else ("read", layout.SIDE_READ)
        )
        found = None
        if pipe.endpoint_pid and pipe.endpoint_side == side:
            found = (pipe.endpoint_pid, Endpoint(records.text(pipe.endpoint), other))
        for slot in pipe.stages[side]:
            stage = self._in_use.get(slot & layout.INDEX_MASK)
            if stage and _reference(stage) == slot and stage.parent_pid not in inside:
                found = (stage.pid, Endpoint(stage.command, other))
        if found:
            self._endpoints[end.key] = found
        return found

    def _pipe(self, key: bytes) -> Pipe | None:
        value = self._loaded.get("pipes", key, sizeof(Pipe))
        return None if value is None else Pipe.from_buffer_copy(value)


def command_key(name: str) -> bytes:
    """The key of a command in the `commands` map: its first 15 bytes without a version.

    The kernel side leaves out the version of a name before it looks it up.

    >>> command_key("python3.11").rstrip(b"\\0")
    b'python'
    """
    kept = os.fsencode(name)[: layout.COMM_LEN - 1].rstrip(b"0123456789.")
    return kept.ljust(layout.COMM_LEN, b"\0")


def _reference(stage: StageRecord) -> int:
    """What the slots of a pipe hold of a stage."""
    return stage.generation << layout.GENERATION_SHIFT | stage.index


def _slice(mapped: mmap.mmap | None, index: int, size: int) -> bytes:
    """Record `index` of an array; empty if its tier is off."""
    return mapped[index * size : (index + 1) * size] if mapped else b""


def _write(mapped: mmap.mmap, index: int, record: Structure) -> None:
    size = sizeof(record)
    mapped[index * size : (index + 1) * size] = record


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
