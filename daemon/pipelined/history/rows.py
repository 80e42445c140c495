# SPDX-License-Identifier: Apache-2.0
"""The rows of the history's tables: which columns they have, and how each is written and read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Annotated, Any

from pipelined.answers.run import Compared
from pipelined.history.rollup import BOUNDS, COUNTED
from pipelined.history.usual import AgainstUsual, against_usual
from pipelined.runs import INCOMPLETE, OUTCOMES, trace_id_of
from pipelined.runs.fields import (
    Bytes,
    CacheState,
    Cpus,
    Key,
    OneOf,
    Ratio,
    Seconds,
    UnixTime,
)

__all__ = ["COLUMNS", "SELECTED", "SUMMED", "Details", "Summary", "grown", "insertion", "merged"]

#: What a run takes beside its bulk, with its places in the indexes (bytes).
_ROW_BYTES = 650

#: How the type of a column differs between Python and SQLite: what it is written and read as.
_BOOLEAN: dict[str, Callable[[Any], Any]] = {"read": bool}
_MAYBE: dict[str, Callable[[Any], Any]] = {
    "read": lambda cell: None if cell is None else bool(cell)
}
_WORDS: dict[str, Callable[[Any], Any]] = {
    "write": json.dumps,
    "read": lambda text: tuple(json.loads(text)),
}


#: The same, of fields that are not only the table's.
_OF_COMPARED: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {"slower": _MAYBE}

#: In a table of its own: most runs share one with others.
_NAMED: dict[str, Callable[[Any], Any]] = {
    "write": lambda names: json.dumps(names, ensure_ascii=False, sort_keys=True) if names else None,
    "read": lambda text: json.loads(text) if text else {},
}


#: Null in the table if it follows from the run's id, as that of most runs does.
_MOSTLY_DERIVED: dict[str, Callable[[Any], Any]] = {"read": lambda cell: cell or ""}


# One field per column of the table `runs`, which has its name.
@dataclass(frozen=True, slots=True)
class Summary(Compared):
    """A finished run in a list."""

    id: str
    """[Unique in a fleet](CONCEPTS.md#identity), sortable by start."""
    pipeline: str
    """Signature, such as `cat|awk|sort`."""
    nested: bool = field(metadata=_BOOLEAN)
    """The pipeline runs inside a stage of another one."""
    unit: str
    """Job, container, systemd unit or cgroup; `-` if there is none."""
    partial: bool = field(metadata=_BOOLEAN)
    """It was already running when observation began, or while no daemon ran."""
    start: Annotated[UnixTime, Key("start_timestamp_seconds")]
    """Start of the first stage."""
    end: Annotated[UnixTime, Key("end_timestamp_seconds")]
    """Exit of the last stage."""
    wall: Annotated[Seconds, Key("wall_seconds")]
    """From start to end."""
    cores: Annotated[Cpus, Key("cores_used")]
    """CPU time of all stages, divided by the wall time that was watched."""
    overlap: Annotated[Ratio | None, Key("overlap_ratio")]
    """Of the time with a stage on CPU, the share with two or more."""
    cache: Annotated[CacheState | None, Key("cache_state")]
    """Whether the files' pages were in the page cache before; null if the `readahead` tier is off
    or too few were read."""
    bottleneck: str
    """In a few words; `-`: none."""
    findings: tuple[str, ...] = field(metadata=_WORDS)
    """Ids of the findings that it had when it was stored."""
    parent: str | None = None
    """`id` of the enclosing run; null if it lies in no other."""
    parent_pipeline: str | None = None
    """Its signature."""
    read_bytes: Bytes | None = None
    """By all stages."""
    outcome: Annotated[str, OneOf(OUTCOMES)] = "unknown"
    """Whether it has succeeded."""
    failure: str = ""
    """Of a run that has failed or was interrupted, what ended the stage with the lowest position
    that did not succeed: `sh: exit 3`, `perl: SIGKILL`; else empty."""

    identity: Mapping[str, str] = field(default_factory=dict, metadata=_NAMED)
    """What it is found by with `identity`: `user`, `uid`, `container`, `container_name`, `image`,
    `pod`, `namespace`, `invocation`, `trace`, and variables by their names; only what is known."""
    trace_id: str = field(default="", metadata=_MOSTLY_DERIVED)
    """The trace that it is in: 32 hexadecimal digits."""
    input_bytes: Bytes | None = None
    """What its first stages took in, [its input](CONCEPTS.md#the-input-of-a-run)."""
    input_exact: bool = field(default=True, metadata=_BOOLEAN)
    """False: `input_bytes` is an upper bound."""

    def __post_init__(self) -> None:
        if not self.trace_id:
            object.__setattr__(self, "trace_id", trace_id_of(self.id))

    @property
    def complete(self) -> bool:
        """As `Run.complete`."""
        return self.outcome not in INCOMPLETE

    @property
    def compared(self) -> Compared:
        """What was usual for it, alone."""
        return Compared(**{each.name: getattr(self, each.name) for each in fields(Compared)})

    @property
    def against_usual(self) -> AgainstUsual:
        """How it compares with earlier runs."""
        return against_usual(self, self.wall, self.input_bytes)

    @classmethod
    def read(cls, cells: Sequence[Any]) -> Summary:
        """The row of the cells that SQLite returned for `COLUMNS`."""
        named = zip(_FIELDS, cells, strict=True)
        return cls(**{column.name: _convert(column, "read", cell) for column, cell in named})

    @property
    def cells(self) -> list[object]:
        """The cells of `COLUMNS` as SQLite takes them."""
        cells = [_convert(column, "write", getattr(self, column.name)) for column in _FIELDS]
        if self.trace_id == trace_id_of(self.id):
            cells[_TRACE] = None
        return cells


_FIELDS = fields(Summary)
#: The columns of `runs`, but for its key and the commands that are searched.
COLUMNS = tuple(column.name for column in _FIELDS)
_TRACE = COLUMNS.index("trace_id")
#: The cells of `COLUMNS`, to be selected from `runs`.
SELECTED = ", ".join(
    "(SELECT identity FROM identities WHERE key = runs.identity)"
    if name == "identity"
    else f"runs.{name}"
    for name in COLUMNS
)


@dataclass(frozen=True, slots=True)
class Details:
    """A run as it is stored: its row, and the bulk as bytes that the caller makes and reads."""

    row: Summary
    commands: tuple[str, ...]
    run: bytes
    timeline: bytes
    gains: Mapping[str, float] = field(default_factory=dict)
    """By id of a finding, what it is expected to save (seconds), as far as that is known."""

    @property
    def size(self) -> int:
        """What it takes in the file, about (bytes)."""
        return len(self.run) + len(self.timeline) + _ROW_BYTES


#: The columns of `rollup`, but for its key, in the order of `Sums.cells`; and the function of SQL
#: that makes one cell of several.
SUMMED: Mapping[str, str] = {
    name: "max" if name == "longest" else "sum"
    for name in (*COUNTED, *(f"duration{n}" for n in range(len(BOUNDS) + 1)))
}


def merged(columns: Iterable[str] = SUMMED) -> str:
    """What to select for these columns of the sums of several rows of `rollup`."""
    return ", ".join(f"{SUMMED[name]}({name}) AS {name}" for name in columns)


def grown() -> str:
    """How to update a row of `rollup` by `Sums.cells`."""
    return ", ".join(
        f"{name} = max({name}, ?)" if function == "max" else f"{name} = {name} + ?"
        for name, function in SUMMED.items()
    )


def insertion(table: str, columns: Sequence[str]) -> str:
    """The statement that inserts a row with these cells."""
    values = (
        "(SELECT key FROM identities WHERE identity = ?)" if name == "identity" else "?"
        for name in columns
    )
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(values)})"


def _convert(column: Field[Any], direction: str, value: object) -> Any:
    convert = (_OF_COMPARED.get(column.name) or column.metadata).get(direction)
    return convert(value) if convert else value
