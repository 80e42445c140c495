# SPDX-License-Identifier: Apache-2.0
"""What a daemon keeps for the next one: the records of what lives, and how they are put back.

A checkpoint is bytes: a line that says what it is, a header in JSON, and the records as the kernel
side has them. The header names each field of a record and the place where it is, and states,
levels and classes go by their names: a later version with other records takes over what it knows.
Pure: no BPF is called and no file opened here.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import Array, Structure, sizeof
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from pipelined.kernel import layout
from pipelined.kernel.decoding import RawStage, decode_pipeline, decode_stage
from pipelined.kernel.grouping import Grouping
from pipelined.kernel.layout import offset_of
from pipelined.records.stage import STAGE_ENDS, Gap, Group
from pipelined.runs import LEVELS, PAGE_CLASSES, STALL_CLASSES, STATES

__all__ = [
    "FORMAT",
    "NOTHING",
    "Checkpoint",
    "Restored",
    "UnreadableError",
    "cut_off",
    "damage_refused",
    "pipe_keys",
    "restored",
]

#: Raised when a flag or a bit of a word in bpf/pipelined.h gets another meaning.
FORMAT = 1

_FIRST_LINE = re.compile(rb"pipelined checkpoint (\d+) ([0-9a-f]{8}) (\d+)\n")
_FIRST_LINE_BYTES = 64

#: What the elements of an array are called; others are one field, or numbered if they have fields.
_ELEMENTS: Mapping[tuple[type[Structure], str], tuple[str, ...]] = {
    (layout.Stage, "time_ns"): STATES,
    (layout.Pipeline, "time_ns"): LEVELS,
    (layout.ReadaheadCounters, "pages"): PAGE_CLASSES,
    (layout.ReadaheadCounters, "faults"): STALL_CLASSES,
    (layout.ReadaheadCounters, "stalls"): STALL_CLASSES,
    (layout.ReadaheadCounters, "stall_ns"): STALL_CLASSES,
}

_RECORDS: Mapping[str, type[Structure]] = {
    "stages": layout.Stage,
    "functions": layout.Functions,
    "readahead": layout.ReadaheadCounters,
    "children": layout.Children,
    "pipe_keys": layout.PipeKey,
    "pipes": layout.Pipe,
    "tasks": layout.WrittenTask,
}

#: Of a stage's word, what does not depend on what its threads do.
_KEPT_OF_WORD = layout.WORD_DRIVER | layout.WORD_LAST_PART | layout.WORD_RETIRED | layout.WORD_ENDED
_NO_MEMBER = layout.WORD_DRIVER | layout.WORD_RETIRED | layout.WORD_ENDED

_ENDS = offset_of(layout.Stage, "ends")
_END_BYTES, _KEY_BYTES = sizeof(layout.PipeEnd), sizeof(layout.PipeKey)
_NO_KEY = bytes(_KEY_BYTES)
_NO_CHILDREN = bytes(sizeof(layout.Children))


class UnreadableError(Exception):
    """A checkpoint is damaged, or of another format."""


@contextmanager
def damage_refused() -> Iterator[None]:
    """Raise UnreadableError for what bytes or a header of another shape raise."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise UnreadableError(f"it is damaged: {error!r}") from None


class Layout(NamedTuple):
    """Of one kind of record."""

    size: int
    fields: Mapping[str, tuple[int, int]]
    """Place and size of each, by its path."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was known at one moment."""

    boot_id: str
    watched_ns: int
    """The moment (CLOCK_MONOTONIC): what is later was not watched, unless by the next daemon."""
    unix: float
    """What made Unix time of such stamps."""
    gaps: tuple[Gap, ...]
    """Earlier ones, as far as they lie in the life of what still lives."""
    cgroups: Mapping[int, tuple[Any, ...]]
    """What is known of cgroups, by id: whoever names them writes and reads it."""
    stages: Mapping[int, RawStage]
    """By index."""
    pipes: Mapping[bytes, bytes]
    tasks: bytes
    """Records of `struct written_task`, one after the other."""
    instances: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Variables that identify instances of jobs, by the numbers that stages and tasks refer to."""
    origin: str = ""
    """What the ids of its runs end with."""
    host: str = ""
    """Of which host (`host_mark`); empty if that is not known."""

    def encode(self) -> bytes:
        """What `decode` reads."""
        functions, readahead, children = (
            {i: raw[at] for i, raw in self.stages.items() if raw[at].strip(b"\0")}
            for at in (1, 2, 3)
        )
        header = {
            "boot_id": self.boot_id,
            "watched_ns": self.watched_ns,
            "unix": self.unix,
            "gaps": self.gaps,
            "cgroups": [[number, *known] for number, known in self.cgroups.items()],
            "layouts": {name: _layout(record) for name, record in _RECORDS.items()},
            "stages": list(self.stages),
            "functions": list(functions),
            "readahead": list(readahead),
            "children": list(children),
            "pipes": len(self.pipes),
            "tasks": len(self.tasks) // sizeof(layout.WrittenTask),
            "origin": self.origin,
            "host": self.host,
            "instances": [[key, *found.items()] for key, found in self.instances.items()],
        }
        described = json.dumps(header).encode()
        parts = [described, *(raw[0] for raw in self.stages.values())]
        parts += [*functions.values(), *readahead.values(), *self.pipes, *self.pipes.values()]
        content = b"".join((*parts, self.tasks, *children.values()))
        first = f"pipelined checkpoint {FORMAT} {zlib.crc32(content):08x} {len(described)}\n"
        return first.encode() + content

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint:
        """What `encode` wrote, perhaps of another version. Raises UnreadableError."""
        first = _FIRST_LINE.match(data[:_FIRST_LINE_BYTES])
        if not first:
            raise UnreadableError("it is no checkpoint")
        if int(first[1]) != FORMAT:
            raise UnreadableError(f"its format is {int(first[1])}, this version reads {FORMAT}")
        content = memoryview(data)[first.end() :]
        if f"{zlib.crc32(content):08x}".encode() != first[2]:
            raise UnreadableError("it is damaged: its sum does not agree")
        with damage_refused():
            return cls._read(json.loads(bytes(content[: int(first[3])])), content[int(first[3]) :])

    @classmethod
    def _read(cls, header: Mapping[str, Any], body: memoryview) -> Checkpoint:
        sections = _Sections(header["layouts"], body)
        found, functions, readahead = (
            sections.by_index(name, header[name]) for name in ("stages", "functions", "readahead")
        )
        keys, pipes = (sections.take(name, header["pipes"]) for name in ("pipe_keys", "pipes"))
        tasks = sections.take("tasks", header["tasks"])
        # older versions have none
        children = sections.by_index("children", header.get("children", ()))
        if not all(isinstance(i, int) and 0 < i <= layout.INDEX_MASK for i in found):
            raise ValueError("a stage has no index")
        return cls(
            boot_id=str(header["boot_id"]),
            watched_ns=int(header["watched_ns"]),
            unix=float(header["unix"]),
            gaps=tuple(Gap(int(a), int(b), float(unix)) for a, b, unix in header["gaps"]),
            cgroups={int(number): tuple(known) for number, *known in header["cgroups"]},
            stages={
                index: (
                    record,
                    functions.get(index, b""),
                    readahead.get(index, b""),
                    children.get(index, _NO_CHILDREN),
                )
                for index, record in sorted(found.items())
            },
            pipes=dict(zip(keys, pipes, strict=True)),
            tasks=b"".join(tasks),
            origin=_text(header.get("origin", "")),
            host=_text(header.get("host", "")),
            instances={
                _number(key): {_text(name): _text(value) for name, value in found}
                for key, *found in header.get("instances", ())
            },
        )


def _text(value: Any) -> str:
    text = str(value)
    text.encode()  # a lone surrogate, which JSON can have, is an error
    return text


def _number(value: Any) -> int:
    """Of 64 bits."""
    number = int(value)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{number} is no number of an instance")
    return number


@dataclass(frozen=True, slots=True)
class Restored:
    """What the maps of a new daemon are to be filled with. Stages have the indexes from 1 on."""

    stages: tuple[RawStage, ...]
    pipes: Mapping[bytes, bytes]
    tasks: Mapping[bytes, bytes]
    watched_ns: int
    left_out: int
    """Stages for which there is no room."""
    instances: Mapping[int, Mapping[str, str]]
    """As in `Checkpoint`."""


NOTHING = Restored((), {}, {}, 0, 0, {})


def restored(checkpoint: Checkpoint, *, max_stages: int) -> Restored:
    """The records of a checkpoint as they were, but that nobody runs in them.

    Each stage that had not ended has one hold more than there are stages in it: it is given up
    when its threads have been looked for.
    """
    records = {i: layout.Stage.from_buffer_copy(raw[0]) for i, raw in checkpoint.stages.items()}
    aliases = _acyclic({i: record.pipeline.alias for i, record in records.items()})
    outers = _acyclic({i: _outer(record) for i, record in records.items()})
    kept = _that_fit(records, aliases, max_stages)
    places = {index: place for place, index in enumerate(kept, 1)}
    references = {
        records[i].generation << layout.GENERATION_SHIFT | i: place for i, place in places.items()
    }
    inner = Counter(outers.get(i, 0) for i in kept if not records[i].word & layout.WORD_ENDED)
    ended = layout.WORD_ENDED | layout.WORD_RETIRED
    live = {_root(i, aliases) for i in kept if not records[i].word & ended}
    members: Counter[int] = Counter()
    for i in kept:
        members[_root(i, aliases)] += layout.ONE_STAGE + (not records[i].word & _NO_MEMBER)
    for index in kept:
        record = records[index]
        lives = not record.word & layout.WORD_ENDED
        if _root(index, aliases) in live:  # else it stands since its last stage ended
            _bring_up_to(record.pipeline, checkpoint.watched_ns)
        outer = places.get(outers.get(index, 0), 0)
        record.word = record.word & _KEPT_OF_WORD | outer << layout.WORD_OUTER_SHIFT
        record.live = inner[index] + lives
        record.generation = 0
        record.flags |= layout.STAGE_RESUMED
        if lives and not record.word & layout.WORD_RETIRED:
            record.end_ns = 0
            record.flags |= layout.STAGE_UNMET
        pipeline = record.pipeline
        pipeline.alias = places.get(aliases.get(index, 0), 0)
        # it stands until the first of its threads is met (start_clock in the kernel side)
        pipeline.moment = checkpoint.watched_ns & layout.PIPELINE_CLOCK_MASK
        pipeline.members = 0 if pipeline.alias else members[index]
        for at, driver in enumerate(pipeline.drivers):
            pipeline.drivers[at] = places.get(driver, 0)
    return Restored(
        tuple((bytes(records[i]), *checkpoint.stages[i][1:]) for i in kept),
        {key: _pipe(value, references) for key, value in checkpoint.pipes.items()},
        _tasks(checkpoint.tasks, references),
        checkpoint.watched_ns,
        len(records) - len(kept),
        checkpoint.instances,
    )


def cut_off(what: Restored) -> list[Group]:
    """What was restored, after the end of all processes: the host has gone down.

    Of a stage that lived nobody saw the end. It is over since it was watched last, as the kernel
    side has it of one in which no thread is met (`release_restored`).
    """
    stages = {index: decode_stage(raw, index) for index, raw in enumerate(what.stages, 1)}
    for stage in stages.values():
        stage.end_ns = stage.end_ns or what.watched_ns
        stage.live = 0
        if stage.instance:
            stage.variables = what.instances.get(stage.instance, {})

    def pipe(key: bytes) -> layout.Pipe | None:
        value = what.pipes.get(key)
        return None if value is None else layout.Pipe.from_buffer_copy(value)

    grouping = Grouping(lambda index: decode_pipeline(what.stages[index - 1][0]), pipe)
    return grouping.grouped(stages)


def pipe_keys(stages: Iterable[RawStage]) -> set[bytes]:
    """The keys of all pipes at whose ends these stages are."""
    keys = {
        raw[0][at : at + _KEY_BYTES]
        for raw in stages
        for at in range(_ENDS, _ENDS + STAGE_ENDS * _END_BYTES, _END_BYTES)
    }
    return keys - {_NO_KEY}


class _Sections:
    """The records of a body, one kind after the other, as this version has them."""

    def __init__(self, layouts: Mapping[str, Sequence[Any]], body: memoryview) -> None:
        self._layouts = layouts
        self._body = body

    def by_index(self, name: str, indexes: Sequence[int]) -> dict[int, bytes]:
        """The next records, which belong to the stages with these indexes."""
        if not indexes:
            return {}
        return dict(zip(indexes, self.take(name, len(indexes)), strict=True))

    def take(self, name: str, count: int) -> list[bytes]:
        """The next `count` records, which are of this kind."""
        size, fields = self._layouts[name]
        taken, self._body = self._body[: count * size], self._body[count * size :]
        if len(taken) != count * size or size <= 0:
            raise ValueError(f"{name} are missing")
        old = [bytes(taken[at : at + size]) for at in range(0, len(taken), size)]
        now = _layout(_RECORDS[name])
        if size == now.size and fields == {path: list(place) for path, place in now.fields.items()}:
            return old
        moves = [
            (fields[path][0], begin, min(fields[path][1], length))
            for path, (begin, length) in now.fields.items()
            if path in fields
        ]
        if any(begin < 0 or length < 0 or begin + length > size for begin, _, length in moves):
            raise ValueError(f"a field of {name} is outside the record")
        return [_moved(record, moves, now.size) for record in old]


def _moved(record: bytes, moves: Iterable[tuple[int, int, int]], size: int) -> bytes:
    """Numbers are little-endian: one may have become wider."""
    made = bytearray(size)
    for begin, to, length in moves:
        made[to : to + length] = record[begin : begin + length]
    return bytes(made)


@cache
def _layout(record: type[Structure]) -> Layout:
    return Layout(sizeof(record), dict(_fields(record)))


def _fields(record: Any, at: int = 0) -> Iterable[tuple[str, tuple[int, int]]]:
    kind: Any
    for name, kind, *_ in record._fields_:
        begin = at + getattr(record, name).offset
        elements = _ELEMENTS.get((record, name))
        inside = kind._type_ if issubclass(kind, Array) else kind
        if elements:
            size = sizeof(inside)
            yield from ((f"{name}.{e}", (begin + n * size, size)) for n, e in enumerate(elements))
        elif not issubclass(inside, Structure):
            yield name, (begin, sizeof(kind))
        elif inside is kind:
            yield from ((f"{name}.{path}", place) for path, place in _fields(kind, begin))
        else:
            for n in range(sizeof(kind) // sizeof(inside)):
                within = _fields(inside, begin + n * sizeof(inside))
                yield from ((f"{name}.{n}.{path}", place) for path, place in within)


def _outer(record: Any) -> int:
    found: int = record.word >> layout.WORD_OUTER_SHIFT & layout.INDEX_MASK
    return found


def _acyclic(links: Mapping[int, int]) -> dict[int, int]:
    """The links to records that are there, without those that would lead in a circle."""
    kept: dict[int, int] = {}
    for index, to in links.items():
        at = to
        while at in kept and at != index:
            at = kept[at]
        if to in links and at != index:
            kept[index] = to
    return kept


def _root(index: int, aliases: Mapping[int, int]) -> int:
    while index in aliases:
        index = aliases[index]
    return index


def _that_fit(records: Mapping[int, Any], aliases: Mapping[int, int], max_stages: int) -> list[int]:
    """Stages of whole runs, those that began first, in their order."""
    runs: dict[int, list[int]] = {}
    for index in records:
        runs.setdefault(_root(index, aliases), []).append(index)
    kept: list[int] = []
    for root in sorted(runs, key=lambda root: (records[root].pipeline.start_ns, root)):
        if len(kept) + len(runs[root]) <= max_stages:
            kept += runs[root]
    return sorted(kept)


def _bring_up_to(pipeline: Any, now_ns: int) -> None:
    """Credits the time since the pipeline's last change, as `credit_level` in the kernel side."""
    mask = layout.PIPELINE_CLOCK_MASK
    moment = pipeline.moment
    elapsed = (now_ns - moment) & mask
    if pipeline.alias or elapsed > mask // 2:
        return
    on_cpu = moment // layout.PIPELINE_CPU & layout.PIPELINE_COUNT_MASK
    pipeline.time_ns[min(on_cpu, len(LEVELS) - 1)][moment >= layout.PIPELINE_DISK] += elapsed


def _pipe(value: bytes, references: Mapping[int, int]) -> bytes:
    pipe = layout.Pipe.from_buffer_copy(value)
    for side in pipe.stages:
        for at, reference in enumerate(side):
            side[at] = references.get(reference, 0)
    return bytes(pipe)


def _tasks(written: bytes, references: Mapping[int, int]) -> dict[bytes, bytes]:
    """Threads that are in a stage, in a job, of an instance or a starter's, with the place of the
    stage."""
    found = {}
    for at in range(0, len(written), sizeof(layout.WrittenTask)):
        record = layout.WrittenTask.from_buffer_copy(written, at)
        task = record.task
        task.stage = references.get(task.stage, 0)
        if task.stage or task.job.source or task.starter.pid or task.instance:
            found[bytes(record.thread)] = bytes(task)
    return found
