# SPDX-License-Identifier: Apache-2.0
"""Read the kernel side's maps: the only module that does.

A sweep runs the task iterator, which credits every live task up to now, and then reads
the mapped arrays. Records of stages that ended stay until `free` gives them back: only then may
their indexes mean other stages.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from ctypes import Structure, sizeof
from itertools import count
from typing import Any

from pipelined.kernel import decoding, layout
from pipelined.kernel.barrier import barrier
from pipelined.kernel.checkpoint import NOTHING, Checkpoint, Restored, pipe_keys
from pipelined.kernel.decoding import RawStage
from pipelined.kernel.grouping import Grouping
from pipelined.kernel.instances import Instances
from pipelined.kernel.layout import Control, Pipe, offset_of
from pipelined.kernel.loader import Loaded
from pipelined.kernel.map_use import MapUse
from pipelined.kernel.names import put_commands, put_units, put_variables
from pipelined.kernel.wakeups import Wakeups
from pipelined.records.stage import Gap, Group, PipelineRecord, StageRecord
from pipelined.records.tiers import NO_READAHEAD
from pipelined.starter import boot_id

__all__ = ["MapUse", "Sweep", "monotonic_to_unix"]

_CHUNK = 256
#: Records mapped at first, and each time that they are too few: what is mapped counts as our
#: memory, in use or not.
_MAPPED = 512

_STAGE_BYTES = sizeof(layout.Stage)
_FUNCTIONS_BYTES = sizeof(layout.Functions)
_READAHEAD_BYTES = sizeof(layout.ReadaheadCounters)
_CHILDREN_BYTES = sizeof(layout.Children)

# In 64-bit words: of a record, and of those of its fields that are read of all records at once.
_STAGE_WORDS = _STAGE_BYTES // 8
_START, _GENERATION, _WORD, _ALIAS = (
    offset_of(layout.Stage, name) // 8
    for name in ("start_ns", "generation", "word", "pipeline.alias")
)

_LOST = struct.Struct(f"={len(layout.LOST_KINDS)}Q")


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
        job_variables: Sequence[str],
        instance_variables: Sequence[str],
        max_readers: int,
        own_only: bool = False,
        all_alone: bool = False,
        restored: Restored = NOTHING,
    ) -> None:
        """Fill the free lists and the lists of names. Nothing is recorded before this is done.

        `restored` is what an earlier daemon knew of what still lives.

        With `own_only` no process is followed before the first sweep, and then those that this
        process forks. With `all_alone` every program but shells is a stage, in a pipeline or not.
        """
        self._loaded = loaded
        self._max_stages = max_stages
        self._max_pipes = max_pipes
        self._max_readers = max_readers
        self._functions: mmap.mmap | None = None
        self._readahead: mmap.mmap | None = None
        self._map_stages(min(max(_MAPPED, len(restored.stages)), max_stages))
        self._lost = self._map("lost", _LOST.size)
        self._control = Control.from_buffer(self._map("control", sizeof(Control)))
        self._wakeups = Wakeups(loaded.maps["wakeups"])
        self._in_use: dict[int, StageRecord] = {}
        self._freed: dict[int, StageRecord] = {}
        """No reference finds these records any more, but they are not given back yet."""
        self._restored = set(range(1, len(restored.stages) + 1))
        """Indexes of restored records that have not been given back."""
        self._grouping = Grouping(self._clock, self._pipe)
        self._readers = 0
        self._commands = put_commands(
            loaded,
            interpreters=interpreters,
            wrappers=wrappers,
            shells=shells,
            alone=alone,
            schedulers=schedulers,
        )
        self._control.units = put_units(loaded, alone_units)
        put_variables(loaded, job_variables, instance_variables)
        self._instances = Instances(loaded, instance_variables, self._control)
        self._control.watch_pid = layout.WATCH_SWEEPER if own_only else 0
        self._control.alone = all_alone
        self._control.max_windows = max_readers
        self._wake_later()
        self._written = b""
        self._raw: dict[int, RawStage] = {}
        self._restore(restored)
        for index in range(max_stages, len(restored.stages), -1):
            self._give_back(index)

    def began(self) -> None:
        """All programs are attached: what is older than this moment was running before."""
        self._control.began_ns = time.monotonic_ns()
        self.map_tiers()

    def resume(self) -> int:
        """The required programs are attached: look for the threads of the stages restored.

        After them for what descends from them. A stage of which no thread is left has ended.
        Returns up to when nobody watched (CLOCK_MONOTONIC).
        """
        self._control.began_ns = resumed_ns = time.monotonic_ns()
        if self._control.resuming:
            self._loaded.iterate()
            self._control.resuming = 0
        while self._control.restored:
            self._loaded.iterate()
        return resumed_ns

    def map_tiers(self) -> None:
        """The optional programs are attached: map what they fill."""
        self._map_stages(self._mapped)

    def restored(self) -> list[Group]:
        """What was restored, as it was when it was saved. To be asked for before the first `take`.

        The values of optional tiers are there, whether these are on or not.
        """
        return self._grouping.grouped(self._in_use)

    def take(self, *, keep: bool = False) -> list[Group]:
        """Bring every clock up to now and read all that is in use.

        What has not changed since the last time comes back as the same objects. With `keep` what
        was read is kept for `checkpoint`.
        """
        self._control.saving = keep
        # before what may fail: nobody asks again until a sweep has succeeded
        self._wakeups.clear()
        self._written = self._loaded.iterate()
        self._wake_later()
        self._readers = self._control.windows
        before, self._in_use = self._in_use, {}
        self._raw = {}
        for index in self._find_in_use():
            if index in self._freed:
                continue
            raw, stage = self._read(index), before.get(index)
            if stage is None or stage.fingerprint != hash(raw):
                known, stage = stage, decoding.decode_stage(raw, index)
                self._instances.identify(stage, known)
            self._in_use[index] = stage
            if keep:
                self._raw[index] = raw
        self._watched_ns = time.monotonic_ns()
        if self._freed:
            self._give_back_freed()
        return self._grouping.grouped(self._in_use)

    def checkpoint(
        self,
        groups: Iterable[Group],
        *,
        unix: float,
        gaps: Iterable[Gap],
        cgroups: Callable[[Collection[int]], Mapping[int, tuple[Any, ...]]],
        origin: str,
    ) -> Checkpoint:
        """What the last `take` kept of these groups; to be asked for once.

        `unix`, `gaps` and `origin` as in `Checkpoint`; `cgroups` says what is known of cgroups by
        their ids.
        """
        kept = [stage for group in groups for stage in group.stages]
        raw = {stage.index: self._raw[stage.index] for stage in kept}
        first_ns = min((group.clock.start_ns for group in groups), default=0)
        pipes = {
            key: self._loaded.get("pipes", key, sizeof(Pipe)) for key in pipe_keys(raw.values())
        }
        written, self._written, self._raw = self._written, b"", {}
        return Checkpoint(
            boot_id=boot_id(),
            watched_ns=self._watched_ns,
            unix=unix,
            gaps=tuple(gap for gap in gaps if gap.end_ns > first_ns),
            cgroups=cgroups({stage.cgroup for stage in kept}),
            stages=raw,
            pipes={key: pipe for key, pipe in pipes.items() if pipe is not None},
            tasks=written,
            instances=self._instances.referred(kept, written),
            origin=origin,
        )

    def free(self, stages: Collection[StageRecord]) -> None:
        """Give back the records of stages that ended; their pipes are forgotten.

        A stage that names one of them by its index keeps it: one inside it that ended later, or one
        that a program was just joining with it.
        """
        if not stages:
            return
        with memoryview(self._stages) as view, view.cast("Q") as words:
            for stage in stages:
                if self._in_use.pop(stage.index, None) is None:
                    raise RuntimeError(f"record {stage.index} is not in use: freed twice")
                self._freed[stage.index] = stage
                words[stage.index * _STAGE_WORDS + _GENERATION] = stage.generation + 1

        # programs that had found one of them before have ended; else the next sweep gives them back
        if barrier():
            self._give_back_freed()

    def _give_back_freed(self) -> None:
        referred = self._referred_to()
        stages = [stage for index, stage in self._freed.items() if index not in referred]
        kept = {end.key for stage in self._in_use.values() for end in stage.ends}
        for key in {end.key for stage in stages for end in stage.ends} - kept:
            self._loaded.delete("pipes", key)
            self._grouping.forget(key)
        blank, no_children = layout.Stage(), layout.Children()
        no_functions, no_readahead = layout.Functions(), layout.ReadaheadCounters()
        for stage in stages:
            del self._freed[stage.index]
            blank.generation = stage.generation + 1
            _write(self._stages, stage.index, blank)
            _write(self._children, stage.index, no_children)
            if self._functions:
                _write(self._functions, stage.index, no_functions)
            if self._readahead and stage.readahead is not NO_READAHEAD:
                _write(self._readahead, stage.index, no_readahead)
            if stage.index in self._restored:
                self._restored.discard(stage.index)
                # its tiers may not be mapped yet
                self._put_tiers(stage.index, (bytes(no_functions), bytes(no_readahead)))
            self._give_back(stage.index)

    def lost(self) -> dict[str, int]:
        """What could not be recorded since the start, by kind."""
        lost = zip(layout.LOST_KINDS, _LOST.unpack_from(self._lost), strict=True)
        return dict(lost) | {"instances": self._instances.lost}

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
            MapUse("stages", len(self._in_use) + len(self._freed), self._max_stages),
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
        for mapped in (self._stages, self._functions, self._readahead, self._children, self._lost):
            if mapped:
                mapped.close()
        del self._control, self._instances  # which refer to the mapped page of `control`

    def _map(self, name: str, size: int) -> mmap.mmap:
        page = mmap.PAGESIZE
        return mmap.mmap(self._loaded.maps[name], (size + page - 1) // page * page)

    def _read(self, index: int) -> RawStage:
        return (
            _slice(self._stages, index, _STAGE_BYTES),
            _slice(self._functions, index, _FUNCTIONS_BYTES),
            _slice(self._readahead, index, _READAHEAD_BYTES),
            _slice(self._children, index, _CHILDREN_BYTES),
        )

    def _restore(self, restored: Restored) -> None:
        self._instances.restore(restored.instances)
        for index, raw in enumerate(restored.stages, 1):
            self._in_use[index] = stage = decoding.decode_stage(raw, index)
            self._instances.identify(stage, None)
            record, *tiers, children = raw
            self._stages[index * _STAGE_BYTES : (index + 1) * _STAGE_BYTES] = record
            self._put_tiers(index, tiers)
            self._loaded.put("children", index.to_bytes(4, sys.byteorder), children)
        for name, entries in (("pipes", restored.pipes), ("saved_tasks", restored.tasks)):
            for key, value in entries.items():
                self._loaded.put(name, key, value)
        self._control.watched_ns = restored.watched_ns
        self._control.restored = len(restored.stages)
        self._control.resuming = bool(restored.tasks)

    def _put_tiers(self, index: int, values: Sequence[bytes]) -> None:
        """Values of the tiers of a stage; if a tier is off, there is no place for them."""
        for name, value in zip(("functions", "readahead"), values, strict=True):
            if value:
                self._loaded.put(name, index.to_bytes(4, sys.byteorder), value)

    def _map_stages(self, count: int) -> None:
        """Map the records up to index `count`."""
        self._mapped = count
        self._stages = self._map("stages", _STAGE_BYTES * (count + 1))
        self._children = self._map("children", _CHILDREN_BYTES * (count + 1))
        if self._loaded.has_functions:
            self._functions = self._map("functions", _FUNCTIONS_BYTES * (count + 1))
        if self._loaded.has_readahead:
            self._readahead = self._map("readahead", _READAHEAD_BYTES * (count + 1))

    def _give_back(self, index: int) -> None:
        if not self._loaded.put("free_stages", None, index.to_bytes(4, sys.byteorder)):
            raise RuntimeError(f"no room for record {index} among the free ones")

    def _wake_later(self) -> None:
        """Have the kernel side ask for a sweep when many records have ended.

        What a burst leaves between two sweeps stays in memory: pages of mapped records, and objects
        of all of them at once. A sixteenth, 1,024, costs a tenth more CPU in a storm of forks than
        an eighth does, and leaves 12 MB less (docs/BENCHMARKS.md).
        """
        self._control.wake_at = self._control.ended + max(1, self._max_stages // 16)

    def _find_in_use(self) -> list[int]:
        """Indexes of used records. Free ones are taken lowest first, so the rest is untouched."""
        return [
            index
            for first, (starts, _) in self._columns()
            for index, start in enumerate(starts, first)
            if start
        ]

    def _referred_to(self) -> set[int]:
        """Indexes that records in use have of stages around them, or that they were merged into."""
        return {
            index
            for first, (_, _, words, aliases) in self._columns(_WORD, _ALIAS)
            for at, word, alias in zip(count(first), words, aliases)
            if (word or alias) and at not in self._freed
            for index in (word >> layout.WORD_OUTER_SHIFT & layout.INDEX_MASK, alias)
        }

    def _columns(self, *fields: int) -> Iterator[tuple[int, list[list[int]]]]:
        """Words of all records that were ever used, by field, and the index of the first record.

        In chunks; the first two fields are always those that show whether a record was used.
        """
        for first in range(1, self._max_stages + 1, _CHUNK):
            last = min(first + _CHUNK - 1, self._max_stages)
            if last > self._mapped:
                self._map_stages(min(self._mapped + _MAPPED, self._max_stages))
            begin, end = first * _STAGE_WORDS, (last + 1) * _STAGE_WORDS
            with memoryview(self._stages) as view, view.cast("Q") as words:
                columns = [
                    words[begin + field : end : _STAGE_WORDS].tolist()
                    for field in (_START, _GENERATION, *fields)
                ]
            # a record that was ever used has a generation
            if not any(columns[0]) and not any(columns[1]):
                break
            yield first, columns

    def _clock(self, index: int) -> PipelineRecord:
        return decoding.decode_pipeline(_slice(self._stages, index, _STAGE_BYTES))

    def _pipe(self, key: bytes) -> Pipe | None:
        value = self._loaded.get("pipes", key, sizeof(Pipe))
        return None if value is None else Pipe.from_buffer_copy(value)


def _slice(mapped: mmap.mmap | None, index: int, size: int) -> bytes:
    """Record `index` of an array; empty if its tier is off."""
    return mapped[index * size : (index + 1) * size] if mapped else b""


def _write(mapped: mmap.mmap, index: int, record: Structure) -> None:
    size = sizeof(record)
    mapped[index * size : (index + 1) * size] = record


def monotonic_to_unix() -> float:
    """What to add to a CLOCK_MONOTONIC stamp to get Unix time."""
    # Others may run between the two clocks: the difference is then too small.
    return max(time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) for _ in range(3))
