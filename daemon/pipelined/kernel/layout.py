# SPDX-License-Identifier: Apache-2.0
"""What bpf/pipelined.h lays out: the structures of the map records, and the constants in them.

Structures and fields have the names that they have in C, and so have the constants.
tests/unit/test_layout.py compares all of them, by name, with the header and with the built object.
"""

from __future__ import annotations

from ctypes import Array, Structure, c_char, c_int64, c_uint32, c_uint64, sizeof
from struct import Struct
from typing import Any

from pipelined.records.stage import COUNTERS, JOB_TEXT, STAGE_ENDS
from pipelined.records.tiers import FUNCTIONS, HISTOGRAM_FIELDS, READAHEAD
from pipelined.runs import LEVELS, STATES

__all__ = [
    "LOST_KINDS",
    "CgroupName",
    "Child",
    "Children",
    "Control",
    "Functions",
    "Instance",
    "InstanceValue",
    "Job",
    "Pipe",
    "PipeEnd",
    "PipeKey",
    "Pipeline",
    "Process",
    "ReadaheadCounters",
    "SavedTask",
    "Stage",
    "Variable",
    "WrittenTask",
    "offset_of",
    "struct_of",
]

#: What could not be recorded, in the order of `enum lost_kind`.
LOST_KINDS = ("tasks", "stages", "pipes", "ends", "updates", "readahead", "instances")

# Properties of a command name, in the `commands` map.
COMMAND_INTERPRETER = 1
COMMAND_WRAPPER = 2
COMMAND_SHELL = 4
COMMAND_ALONE = 8
COMMAND_READS_ANYWHERE = 16
COMMAND_STARTER = 32
COMMAND_SCHEDULER = 64
COMMAND_APPLETS = 128
COMMAND_BY_NAME = 256

# Flags of a stage.
STAGE_PARTIAL = 1
STAGE_ALONE = 16
STAGE_RESUMED = 32
STAGE_CONVERSES = 128
STAGE_SPLICES = 512
STAGE_UNMET = 1024
STAGE_ENCLOSES = 2048

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
PIPE_SLOTS = 8
PIPELINE_DRIVERS = 2
#: In the members of a pipeline, for each stage that it has had.
ONE_STAGE = 1 << 32
CHILD_NAMES = 12
FED_PIPES = 4

# The word of a stage, and references to stages in the slots of a pipe.
WORD_OUTER_SHIFT = 32
INDEX_MASK = 0x3FFFF
WORD_DRIVER = 1 << 60
WORD_LAST_PART = 1 << 61
WORD_RETIRED = 1 << 62
WORD_ENDED = 1 << 63
# The moment of a pipeline.
PIPELINE_CLOCK_MASK = (1 << 44) - 1
PIPELINE_CPU = 1 << 44
PIPELINE_DISK = 1 << 54
PIPELINE_COUNT_MASK = 0x3FF
GENERATION_SHIFT = 18
# The port of a stage's peer is below its address family.
PEER_FAMILY_SHIFT = 16

#: In place of a process's id in `control.watch_pid`.
WATCH_SWEEPER = 0xFFFFFFFF

# In the kernel side's maps.bpf.h: the size of a key of the `units` map, and entries.
UNIT_LEN = 64
MAX_COMMANDS = 256
MAX_UNITS = 256
MAX_JOB_VARIABLES = 8
# In its environment.bpf.h.
CHAIN_BITS = 8
CHAIN_FACTOR = 0x9E3779B1
#: The longest name, with the ``=``.
VARIABLE_LEN = 32

MAX_INSTANCE_VARIABLES = 24
MAX_VARIABLES = MAX_JOB_VARIABLES + MAX_INSTANCE_VARIABLES
INSTANCE_VALUES = 12
INSTANCE_TEXT = 248
INSTANCES = 1024
CGROUPS = 1024
CGROUP_NAME = 128


class Process(Structure):
    """A process; a pid of 0 is none. Its id comes again: compared is its start time too."""

    pid: int
    start_ns: int
    _fields_ = (("start_ns", c_uint64), ("pid", c_uint32), ("uid", c_uint32))


class PipeKey(Structure):
    """Key of the `pipes` map."""

    _fields_ = (("inode", c_uint64), ("device", c_uint32), ("incarnation", c_uint32))


class PipeEnd(Structure):
    """A pipe end that a stage remembers; an inode of 0 is a free slot."""

    _fields_ = (
        ("pipe", PipeKey),
        ("side_and_flags", c_uint64),
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


class Job(Structure):
    """What a scheduler or a variable says of a stage's job; a source of `NO_JOB` is none."""

    _fields_ = (("source", c_uint64), ("text", c_char * JOB_TEXT))


class Variable(Structure):
    """A variable of environments to look for: ``NAME=``, which of its bytes count, how many.

    `next` leads to another one of its chain; `job` and `instance` say what it is looked for.
    """

    _fields_ = (
        ("name", c_char * VARIABLE_LEN),
        ("mask", c_char * VARIABLE_LEN),
        ("length", c_uint32),
        ("next", c_uint32),
        ("job", c_uint32),
        ("instance", c_uint32),
    )


class CgroupName(Structure):
    """The last name of a cgroup's path."""

    above: int
    name: bytes
    _fields_ = (("above", c_uint64), ("name", c_char * CGROUP_NAME))


class InstanceValue(Structure):
    """The value of a variable; one whose end was cut off has the length `INSTANCE_TEXT`."""

    variable: int
    length: int
    text: bytes
    _fields_ = (("variable", c_uint32), ("length", c_uint32), ("text", c_char * INSTANCE_TEXT))


class Instance(Structure):
    """What identifies the instance of a job."""

    count: int
    values: Array[InstanceValue]
    _fields_ = (("count", c_uint64), ("values", InstanceValue * INSTANCE_VALUES))


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
        ("root", Process),
        ("parent", Process),
        ("namer", Process),
        ("starter", Process),
        ("cgroup", c_uint64),
        ("live", c_uint64),
        ("generation", c_uint64),
        ("flags", c_uint64),
        ("exit_status", c_uint64),
        ("user", c_uint64),
        ("instance", c_uint64),
        ("peer", c_uint64),
        ("comm", c_char * COMM_LEN),
        ("ends", PipeEnd * STAGE_ENDS),
        ("job", Job),
    )


class Child(Structure):
    """Processes of a stage that have one name and have ended; a life of 0 is a free place."""

    _fields_ = (
        ("name", c_uint64 * (COMM_LEN // 8)),
        ("longest_ns", c_uint64),
        ("count", c_uint64),
        ("cpu_ns", c_uint64),
    )


class Children(Structure):
    """What ran inside the stage with the same index; the last place has no name."""

    named: Array[Child]
    _fields_ = (("named", Child * (CHILD_NAMES + 1)),)


def _histogram(values: int) -> type[Structure]:
    fields = (("counts", c_uint64 * (values - 1)), ("sum", c_uint64))
    return type("Histogram", (Structure,), {"_fields_": fields})


def _values(count: int) -> Any:
    return c_uint64 if count == 1 else c_uint64 * count


class Functions(Structure):
    """What the `functions` tier counts for the stage with the same index."""

    _fields_ = tuple(
        (name, _histogram(count) if name in HISTOGRAM_FIELDS else _values(count))
        for name, count in FUNCTIONS.items()
    )


class ReadaheadCounters(Structure):
    """What the `readahead` tier counts for the stage with the same index."""

    _fields_ = tuple(
        (name, c_uint64 * 2 * (count // 2) if name in ("stalls", "stall_ns") else _values(count))
        for name, count in READAHEAD.items()
    )


class Pipe(Structure):
    """A pipe with the stages seen at its ends, as references; 0 is a free slot."""

    stages: Array[Array[c_uint64]]
    endpoint: Process
    endpoint_comm: bytes
    endpoint_side: int
    _fields_ = (
        ("stages", c_uint64 * PIPE_SLOTS * 2),
        ("endpoint", Process),
        ("endpoint_comm", c_char * COMM_LEN),
        ("endpoint_side", c_uint32),
        ("self", c_uint32),
        ("named", c_uint32),
        ("zero", c_uint32),
    )


class SavedTask(Structure):
    """What a checkpoint keeps of a thread. Its stage is a reference as read, an index as put."""

    stage: int
    _fields_ = (
        ("stage", c_uint64),
        ("exec_ns", c_uint64),
        ("cpu_ns", c_uint64),
        ("parent", Process),
        ("starter", Process),
        ("fed_by_parent", PipeKey * FED_PIPES),
        ("script", c_char * COMM_LEN),
        ("applet", c_char * COMM_LEN),
        ("exec_id", c_uint32),
        ("zero", c_uint32),
        ("instance", c_uint64),
        ("job", Job),
    )


class WrittenTask(Structure):
    """What a checkpoint keeps of a thread, as a sweep writes it out."""

    thread: Process
    task: SavedTask
    _fields_ = (("thread", Process), ("task", SavedTask))


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
    watched_ns: int
    restored: int
    resuming: int
    saving: int
    instances: int
    cgroups: int
    secret: Array[c_uint64]
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
        ("watched_ns", c_uint64),
        ("restored", c_uint32),
        ("resuming", c_uint32),
        ("saving", c_uint32),
        ("unused", c_uint32),
        ("instances", c_uint64),
        ("cgroups", c_uint64),
        ("secret", c_uint64 * 2),
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

    >>> struct_of(PipeKey, "inode", "incarnation").format
    '=Q4xI'
    """
    layout, at = "=", 0
    for path in paths:
        begin, kind = _locate(record, path)
        layout += (f"{begin - at}x" if begin > at else "") + _letters(kind)
        at = begin + sizeof(kind)
    return Struct(layout)


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
