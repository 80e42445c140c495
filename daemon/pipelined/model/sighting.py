# SPDX-License-Identifier: Apache-2.0
"""A run as one sweep saw it, and what a model remembers of a run from sweep to sweep."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import add
from typing import NamedTuple

from pipelined.model.containers import Place
from pipelined.model.enclosing import Enclosing
from pipelined.model.signature import Order, arrange
from pipelined.model.sums import READ_BYTES, WRITTEN_BYTES, SeenStage
from pipelined.model.surroundings import Lived, Reading
from pipelined.model.timeline import NOTED, Moment, Track
from pipelined.records.stage import NS, Group, StageRecord, joined
from pipelined.runs import Flow, Run, Series, Surroundings, Timeline, input_of

__all__ = [
    "Facts",
    "Finished",
    "Seen",
    "Shape",
    "Sighting",
    "clock_of",
    "end_of",
    "facts_of",
    "finished_run",
    "lived",
    "moment_of",
    "order_of",
    "shape_of",
]

# Signatures repeat: a host runs the same jobs over and over.
_arrange = lru_cache(maxsize=256)(arrange)
#: But not those of so many stages: they grow by one stage after the other.
_MANY = 64


class Finished(NamedTuple):
    """A run that has ended. Most are too short to be of interest, so the rest is made on demand."""

    wall_seconds: float
    make: Callable[[], tuple[Run, Timeline]]
    """The run and its time line; may be called in any thread."""
    series: Series
    end: float
    """Unix time."""
    cpu_seconds: float
    not_overlapped_seconds: float
    """Of the wall time, that with at most one stage on CPU."""
    read_bytes: int
    written_bytes: int
    """By all stages: what goes through a pipe is written by one and read by the next."""
    outcome: str
    """One of `OUTCOMES`."""
    input_bytes: int | None
    """What its first stages took in, as `Run.input_bytes` has it."""


class Facts(NamedTuple):
    """What a run shows of a stage in addition to its record."""

    user_ns: int
    system_ns: int
    arguments: str | None


class Shape(NamedTuple):
    """The stages of a group by their start, and how they are joined."""

    records: tuple[StageRecord, ...]
    edges: tuple[tuple[int, int], ...]
    """(writer, reader) as indexes into `records`."""
    order: Order

    @property
    def in_order(self) -> tuple[StageRecord, ...]:
        """The records in data order."""
        return tuple(self.records[i] for i in self.order.sequence)


@dataclass(slots=True, eq=False)
class Sighting:
    """A run as one sweep saw it; a `Run` is made of it on demand."""

    group: Group
    series: Series
    shape: Shape
    facts: tuple[Facts, ...]
    """For each record of the shape, what it does not contain."""
    flows: tuple[Flow, ...]
    """For each record of the shape."""
    enclosing: Enclosing | None
    track: Track | None
    """None of a run that no sweep saw live, and once it is forgotten."""
    forgotten: bool = False
    """Its time line is no longer kept."""
    end_ns: int | None = None
    """Set when its last stage has ended: the run may not be finished yet."""
    before: Reading | None = None
    """As in `Seen`."""
    surroundings: Surroundings | None = None
    """Of a run that has ended. Those of a live one are found on demand."""
    place: Place | None = None
    """The container of the first stage in data order that is in one."""
    run: Run | None = None


@dataclass(slots=True)
class Seen:
    """A run as of the sweep before: what has been counted of it, so that only growth is."""

    sighting: Sighting | None = None
    enclosing: Enclosing | None = None
    """Kept when the records of a run around it are given back first."""
    clock: list[int] = field(default_factory=list)
    weighed_ns: int = 0
    """Of its clock: a resumed run has more, which an earlier daemon had weighed."""
    track: Track | None = None
    before: Reading | None = None
    """The accounts of the host before it began, as far as that is known."""
    ended: bool = False
    surroundings: Surroundings | None = None
    """As of the first sweep after its end."""
    finished: bool = False


def shape_of(group: Group) -> Shape:
    records = tuple(sorted(group.stages, key=lambda stage: (stage.root.start_ns, stage.index)))
    place = {stage.index: i for i, stage in enumerate(records)}
    joins = joined(records) if group.joins is None else group.joins
    edges = {(place[a], place[b]) for a, b in (*joins, *group.slot_edges)}
    ordered = tuple(sorted(edges))
    return Shape(records, ordered, order_of(records, ordered))


def order_of(records: Sequence[StageRecord], edges: tuple[tuple[int, int], ...]) -> Order:
    """How stages with these edges are arranged: `signature.arrange`."""
    names = tuple([stage.command for stage in records])
    return _arrange(names, edges) if len(names) < _MANY else arrange(names, edges)


def end_of(group: Group) -> int:
    """When the last of its stages that have ended did so (nanoseconds)."""
    return max([stage.end_ns for stage in group.stages])


def clock_of(group: Group) -> list[int]:
    """Nanoseconds by level while no stage waited for disk, then by level while one did."""
    return [*group.clock.alone_ns, *group.clock.disk_ns]


def moment_of(group: Group, records: Sequence[StageRecord], unwatched_ns: int) -> Moment:
    """What the time line notes of a sweep, before which nobody watched for `unwatched_ns`."""
    values = array("q", map(add, group.clock.alone_ns, group.clock.disk_ns))
    values.append(unwatched_ns)
    for record in records:
        values.extend(record.counted[:NOTED])
    return Moment(tuple([(stage.index, stage.generation) for stage in records]), values)


def facts_of(stage: StageRecord, seen: SeenStage) -> Facts:
    """What a run shows of a stage in addition to its record.

    Its CPU time may be less than was seen: stages that were inside it have left it, and taken
    theirs along. Sums over runs keep what they had.
    """
    cpu = max(0, stage.counted[0])
    system = min(seen.system_ns, cpu)
    return Facts(cpu - system, system, seen.arguments)


def finished_run(
    sighting: Sighting,
    wall: float,
    end: float,
    outcome: str,
    make: Callable[[], tuple[Run, Timeline]],
) -> Finished:
    """A run that ended at `end` (Unix time), and what is cheap to know of it."""
    alone, disk = sighting.group.clock.alone_ns, sighting.group.clock.disk_ns
    cpu = read = written = 0
    for record in sighting.shape.records:
        counted = record.counted
        cpu += counted[0]
        read += counted[READ_BYTES]
        written += counted[WRITTEN_BYTES]
    idle_or_one = alone[0] + alone[1] + disk[0] + disk[1]
    return Finished(
        wall_seconds=wall,
        make=make,
        series=sighting.series,
        end=end,
        cpu_seconds=NS * cpu,
        not_overlapped_seconds=NS * idle_or_one,
        read_bytes=max(0, read),
        written_bytes=max(0, written),
        outcome=outcome,
        input_bytes=input_of(sighting.flows, {reader for _, reader in sighting.shape.edges}),
    )


def lived(sighting: Sighting, now: float) -> Lived:
    """What of a run matters to others; `now` is monotonic (seconds).

    One that was live when it was seen is taken to have gone on as before.
    """
    records = sighting.shape.records
    cpu, queue = (NS * sum(r.counted[state] for r in records) for state in (0, 1))
    start = NS * sighting.group.clock.start_ns
    if sighting.end_ns is None:
        seen = NS * sum(clock_of(sighting.group))
        cpu *= (now - start) / seen if seen > 0 else 0.0
        return Lived(sighting.series.pipeline, start, now, cpu, queue)
    return Lived(sighting.series.pipeline, start, NS * sighting.end_ns, cpu, queue)
