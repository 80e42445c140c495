# SPDX-License-Identifier: Apache-2.0
"""What bpf/pipelined.h lays out: the structures of the map records, and the constants in them.

Structures and fields have the names that they have in C, and so have the constants.
tests/unit/test_layout.py compares all of them, by name, with the header and with the built object.
"""

from __future__ import annotations

from ctypes import Array, Structure, c_char, c_int64, c_uint32, c_uint64, sizeof
from struct import Struct
from typing import Any

from pipelined.runs import HISTOGRAMS, LEVELS, PAGE_CLASSES, STALL_CLASSES, STATES

__all__ = [
    "COUNTERS",
    "LOST_KINDS",
    "Control",
    "Functions",
    "Job",
    "Pipe",
    "PipeEnd",
    "PipeKey",
    "Pipeline",
    "ReadaheadCounters",
    "Stage",
    "Starter",
    "Variable",
    "offset_of",
    "struct_of",
    "words_of",
]

#: What could not be recorded, in the order of `enum lost_kind`.
LOST_KINDS = ("tasks", "stages", "pipes", "ends", "updates", "readahead")

#: What a stage counts after its nanoseconds by state, in the order of `struct stage`.
COUNTERS = (
    "user_ns",
    "system_ns",
    "read_bytes",
    "written_bytes",
    "read_calls",
    "write_calls",
    "sleeps_empty",
    "sleeps_full",
    "forks",
    "execs",
    "exec_failures",
    "exited_children",
    "children_cpu_ns",
    "children_life_ns",
)

# Properties of a command name, in the `commands` map.
COMMAND_INTERPRETER = 1
COMMAND_WRAPPER = 2
COMMAND_SHELL = 4
COMMAND_ALONE = 8
COMMAND_READS_ANYWHERE = 16
COMMAND_STARTER = 32
COMMAND_SCHEDULER = 64

# What the text of a job is.
NO_JOB = 0
JOB_VARIABLE = 1
JOB_COMMAND = 2
JOB_PROGRAM = 3

JOB_TEXT = 120

# Flags of a stage.
STAGE_PARTIAL = 1
STAGE_ALONE = 16
STAGE_CONVERSES = 128
STAGE_SPLICES = 512

# Bits of `pipe_end.side_and_flags`; the side is `enum pipe_side` + 1.
END_SIDE_MASK = 3
END_JOINED = 4
END_BORROWED = 8
END_BORROWED_SHIFT = 4
END_LEFT = 64
END_STANDARD = 256
END_LATE = 512

SIDE_READ = 0
SIDE_WRITE = 1

COMM_LEN = 16
STAGE_ENDS = 8
PIPE_SLOTS = 8
PIPELINE_DRIVERS = 2

# The word of a stage, and references to stages in the slots of a pipe.
WORD_OUTER_SHIFT = 32
INDEX_MASK = 0x3FFFF
WORD_RETIRED = 1 << 62
GENERATION_SHIFT = 18

#: In place of a process's id in `control.watch_pid`.
WATCH_SWEEPER = 0xFFFFFFFF

# In the kernel side's maps.bpf.h: the size of a key of the `units` map, and entries.
UNIT_LEN = 64
MAX_COMMANDS = 256
MAX_UNITS = 256
# In its jobs.bpf.h.
MAX_VARIABLES = 8
#: The longest name, with the ``=``.
VARIABLE_LEN = 32


class PipeKey(Structure):
    """Key of the `pipes` map."""

    _fields_ = (("inode", c_uint64), ("device", c_uint32), ("zero", c_uint32))


class PipeEnd(Structure):
    """A pipe end that a stage remembers; an inode of 0 is a free slot."""

    _fields_ = (
        ("inode", c_uint64),
        ("device", c_uint32),
        ("side_and_flags", c_uint32),
        ("sleeps", c_uint64),
        ("asleep_ns", c_uint64),
    )


class Pipeline(Structure):
    """The clock of a pipeline. Its times are signed here, as those of `Stage`."""

    _fields_ = (
        ("moment", c_uint64),
        ("alias", c_uint64),
        ("time_ns", c_int64 * 2 * len(LEVELS)),
        ("start_ns", c_uint64),
        ("members", c_uint64),
        ("drivers", c_uint64 * PIPELINE_DRIVERS),
    )


class Starter(Structure):
    """The process to which a stage's run is reported; a pid of 0 is none."""

    _fields_ = (("start_ns", c_uint64), ("pid", c_uint32), ("zero", c_uint32))


class Job(Structure):
    """What a scheduler or a variable says of a stage's job; a source of `NO_JOB` is none."""

    _fields_ = (("source", c_uint64), ("text", c_char * JOB_TEXT))


class Variable(Structure):
    """A variable of environments to look for: ``NAME=``, which of its bytes count, how many."""

    _fields_ = (
        ("name", c_char * VARIABLE_LEN),
        ("mask", c_char * VARIABLE_LEN),
        ("length", c_uint64),
    )


class Stage(Structure):
    """A stage.

    Its counters are signed here: two CPUs may credit a few negative nanoseconds before the
    positive ones land.
    """

    _fields_ = (
        ("word", c_uint64),
        ("pipeline", Pipeline),
        ("time_ns", c_int64 * len(STATES)),
        *((name, c_int64) for name in COUNTERS),
        ("start_ns", c_uint64),
        ("end_ns", c_uint64),
        ("exec_ns", c_uint64),
        ("root_start_ns", c_uint64),
        ("parent_start_ns", c_uint64),
        ("cgroup", c_uint64),
        ("starter", Starter),
        ("live", c_uint64),
        ("generation", c_uint32),
        ("pid", c_uint32),
        ("parent_pid", c_uint32),
        ("name_pid", c_uint32),
        ("flags", c_uint32),
        ("read_children", c_uint32),
        ("comm", c_char * COMM_LEN),
        ("ends", PipeEnd * STAGE_ENDS),
        ("job", Job),
    )


def _histogram(buckets: int) -> type[Structure]:
    fields = (("counts", c_uint64 * buckets), ("sum", c_uint64))
    return type("Histogram", (Structure,), {"_fields_": fields})


class Functions(Structure):
    """What the `functions` tier counts for the stage with the same index."""

    _fields_ = (
        *((kind.record, _histogram(kind.buckets)) for kind in HISTOGRAMS),
        ("pipe_in_bytes", c_uint64),
        ("pipe_out_bytes", c_uint64),
        ("pipe_slots", c_uint64),
    )


class ReadaheadCounters(Structure):
    """What the `readahead` tier counts for the stage with the same index."""

    _fields_ = (
        ("pages", c_uint64 * len(PAGE_CLASSES)),
        ("inserted", c_uint64),
        ("direct_bytes", c_uint64),
        ("faults", c_uint64 * len(STALL_CLASSES)),
        ("stalls", c_uint64 * 2 * len(STALL_CLASSES)),
        ("stall_ns", c_uint64 * 2 * len(STALL_CLASSES)),
        ("not_input", c_uint64),
    )


class Pipe(Structure):
    """A pipe with the stages seen at its ends, as references; 0 is a free slot."""

    stages: Array[Array[c_uint64]]
    endpoint_pid: int
    endpoint_side: int
    endpoint: bytes
    _fields_ = (
        ("stages", c_uint64 * PIPE_SLOTS * 2),
        ("self", c_uint32),
        ("endpoint_pid", c_uint32),
        ("endpoint_side", c_uint32),
        ("named", c_uint32),
        ("endpoint", c_char * COMM_LEN),
    )


class Control(Structure):
    """The page that both sides write to."""

    ended: int
    wake_at: int
    began_ns: int
    missed_switches: int
    watch_pid: int
    alone: int
    windows: int
    max_windows: int
    units: int
    _fields_ = (
        ("ended", c_uint64),
        ("wake_at", c_uint64),
        ("began_ns", c_uint64),
        ("missed_switches", c_uint64),
        ("watch_pid", c_uint32),
        ("alone", c_uint32),
        ("windows", c_uint64),
        ("max_windows", c_uint64),
        ("units", c_uint64),
    )


_LETTERS = {c_uint64: "Q", c_int64: "q", c_uint32: "I"}


def offset_of(record: type[Structure], path: str) -> int:
    """Bytes from the begin of a structure to one of its fields.

    >>> offset_of(Stage, "pipeline.alias")
    16
    """
    return _locate(record, path)[0]


def struct_of(record: type[Structure], *paths: str) -> Struct:
    """What unpacks these fields, and skips all others; they are named in their order.

    An array of numbers unpacks as that many values, other arrays as bytes.

    >>> struct_of(PipeKey, "inode", "zero").format
    '=Q4xI'
    """
    layout, at = "=", 0
    for path in paths:
        begin, kind = _locate(record, path)
        layout += (f"{begin - at}x" if begin > at else "") + _letters(kind)
        at = begin + sizeof(kind)
    return Struct(layout)


def words_of(record: type[Structure], path: str) -> slice:
    """Where the values of a field are among those of a record that has only 64-bit values.

    >>> words_of(ReadaheadCounters, "inserted")
    slice(5, 6, None)
    """
    begin, kind = _locate(record, path)
    return slice(begin // 8, (begin + sizeof(kind)) // 8)


def _locate(record: Any, path: str) -> tuple[int, Any]:
    """Offset and type of a field."""
    name, _, rest = path.partition(".")
    begin, kind = getattr(record, name).offset, dict(record._fields_)[name]
    if not rest:
        return begin, kind
    inside, kind = _locate(kind, rest)
    return begin + inside, kind


def _letters(kind: Any) -> str:
    element, count = kind, 1
    while issubclass(element, Array):
        element, count = element._type_, count * element._length_
    letter = _LETTERS.get(element)
    if letter is None:
        return f"{sizeof(kind)}s"
    return f"{count}{letter}" if count > 1 else letter
