# SPDX-License-Identifier: Apache-2.0
"""The daemon decodes the very bytes that bpf/pipelined.h lays out.

Records and maps are compared with the types of the built object, constants with what a C program
that includes the header prints. All are compared by name.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterable
from ctypes import Array, Structure, sizeof
from pathlib import Path
from typing import Any

import pytest

from pipelined import runs
from pipelined.config import Config
from pipelined.kernel import bcc_compiler, layout, loader
from pipelined.kernel.decoding import decode_stage
from pipelined.kernel.layout import struct_of
from pipelined.records import stage, tiers
from pipelined.records.stage import PIPE_KEY
from unit.btf import Btf, Map

BPF = Path(__file__).parents[2] / "bpf"

STRUCTURES = {
    "stage": layout.Stage,
    "pipeline": layout.Pipeline,
    "functions": layout.Functions,
    "readahead": layout.ReadaheadCounters,
    "child": layout.Child,
    "children": layout.Children,
    "pipe": layout.Pipe,
    "pipe_key": layout.PipeKey,
    "pipe_end": layout.PipeEnd,
    "control": layout.Control,
    "process": layout.Process,
    "job": layout.Job,
    "instance": layout.Instance,
    "cgroup_name": layout.CgroupName,
    "instance_value": layout.InstanceValue,
    "variable": layout.Variable,
    "saved_task": layout.SavedTask,
    "written_task": layout.WrittenTask,
}

CONSTANTS = {
    name: value for name, value in vars(layout).items() if name.isupper() and isinstance(value, int)
} | {
    name: getattr(stage, name)
    for name in stage.__all__
    if name == "STAGE_ENDS" or re.match("(NO_)?JOB|EXIT", name)
}
"""All that layout.py and records copy, under the names that they have in C."""

#: Of maps.bpf.h and environment.bpf.h, which only BPF programs include: seen in the maps instead.
OF_MAPS = (
    *("UNIT_LEN", "MAX_COMMANDS", "MAX_UNITS", "MAX_VARIABLES", "MAX_JOB_VARIABLES"),
    *("VARIABLE_LEN", "CHAIN_BITS", "CHAIN_FACTOR"),
)

Evaluate = Callable[[Iterable[str]], dict[str, int]]


@pytest.fixture(scope="module")
def btf() -> Btf:
    return Btf()


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    """What C expressions are worth; one that does not compile fails, with the compiler's words."""
    directory = tmp_path_factory.mktemp("constants")

    def evaluate(expressions: Iterable[str]) -> dict[str, int]:
        source, program = directory / "constants.c", directory / "constants"
        lines = [
            f'\tprintf("%s\\"%s\\": %lld", comma, "{e}", (long long)({e})); comma = ", ";'
            for e in expressions
        ]
        source.write_text(
            "#include <linux/bpf.h>\n#include <linux/types.h>\n#include <stddef.h>\n"
            '#include <stdio.h>\n#include "pipelined.h"\n'
            'int main(void)\n{\n\tconst char *comma = "";\n\tputs("{");\n'
            + "\n".join(lines)
            + '\n\tputs("}");\n}\n'
        )
        built = subprocess.run(
            ["cc", "-I", BPF, source, "-o", program], capture_output=True, text=True, check=False
        )
        assert built.returncode == 0, built.stderr
        found: dict[str, int] = json.loads(subprocess.check_output([program]))
        return found

    return evaluate


def fields(record: Any) -> dict[str, tuple[int, int]]:
    """As `Btf.fields` has them."""
    found = {}
    for name, kind, *_ in record._fields_:
        at = getattr(record, name).offset
        element = kind._type_ if issubclass(kind, Array) else None
        if isinstance(element, type) and issubclass(element, Structure):
            found[f"{name}[]"] = (at, sizeof(kind))
            found |= {f"{name}[].{path}": place for path, place in fields(element).items()}
        elif issubclass(kind, Structure):
            inside = fields(kind).items()
            # places in the elements of an array are relative to these
            found |= {
                f"{name}.{path}": (begin if "[]." in path else at + begin, size)
                for path, (begin, size) in inside
            }
        else:
            found[name] = (at, sizeof(kind))
    return found


@pytest.mark.parametrize("name", STRUCTURES)
def test_every_field_is_where_the_object_has_it(btf: Btf, name: str) -> None:
    assert fields(STRUCTURES[name]) == btf.fields(name)


def test_every_constant_has_the_value_of_the_header(in_c: Evaluate) -> None:
    assert len(CONSTANTS) > 15
    copied = {name: value for name, value in CONSTANTS.items() if name not in OF_MAPS}
    # the C program prints 64 bits as a signed number
    assert {name: value % 2**64 for name, value in in_c(copied).items()} == copied


def numbered(prefix: str, names: Iterable[str]) -> dict[str, int]:
    """Constants of an enum whose names begin with `prefix`, from 0."""
    return {f"{prefix}_{name.upper()}": number for number, name in enumerate(names)}


@pytest.mark.parametrize(
    ("prefix", "names", "count"),
    [
        ("STATE", runs.STATES, "STATES"),
        ("LOST", layout.LOST_KINDS, "LOST_KINDS"),
        ("PAGE", runs.PAGE_CLASSES, "PAGE_CLASSES"),
        ("STALL", runs.STALL_CLASSES, "STALL_CLASSES"),
    ],
)
def test_names_are_those_of_the_enum_in_its_order(
    in_c: Evaluate, prefix: str, names: tuple[str, ...], count: str
) -> None:
    expected = {**numbered(prefix, names), count: len(names)}
    assert in_c(expected) == expected


def test_a_pipe_is_distinctions_by_all_of_its_key() -> None:
    assert struct_of(layout.PipeKey, "inode", "device", "incarnation").format == PIPE_KEY.format


def test_there_is_a_label_for_each_level(in_c: Evaluate) -> None:
    assert in_c(["LEVEL_COUNT"]) == {"LEVEL_COUNT": len(runs.LEVELS)}
    assert runs.LEVELS[-1] == f"{len(runs.LEVELS) - 1}+"


def test_histograms_have_the_buckets_of_the_header(in_c: Evaluate) -> None:
    kinds = dict(zip(tiers.HISTOGRAM_FIELDS, runs.HISTOGRAMS, strict=True))
    sizes, times, fill = kinds["pipe_writes"], kinds["file_read_time"], kinds["pipe_fill"]
    expected = {
        "SIZE_BUCKETS": sizes.buckets,
        "TIME_BUCKETS": times.buckets,
        "FILL_BUCKETS": fill.buckets,
        "TIME_FIRST": round(times.edges[0] / 1e-9).bit_length() - 1,
        "FILL_SHIFT": 16,  # see tiers._SUM_UNITS
    }
    assert in_c(expected) == expected
    assert sizes.edges == tuple(2**n for n in range(expected["SIZE_BUCKETS"] - 1))


def test_maps_have_the_sizes_that_the_daemon_reads_and_writes(btf: Btf) -> None:
    maps = btf.maps()
    config = Config()
    commands = Map(layout.COMM_LEN, 4, layout.MAX_COMMANDS)
    arrays = {
        "stages": Map(4, sizeof(layout.Stage), config.max_stages + 1),
        "functions": Map(4, sizeof(layout.Functions), 1),
        "readahead": Map(4, sizeof(layout.ReadaheadCounters), 1),
        "children": Map(4, sizeof(layout.Children), config.max_stages + 1),
        "lost": Map(4, 8, len(layout.LOST_KINDS)),
        "control": Map(4, sizeof(layout.Control), 1),
    }
    others = {
        "free_stages": Map(0, 4, config.max_stages),
        "pipes": Map(sizeof(layout.PipeKey), sizeof(layout.Pipe), config.max_pipes),
        "saved_tasks": Map(sizeof(layout.Process), sizeof(layout.SavedTask), 1),
        "commands": commands,
        "units": Map(layout.UNIT_LEN, 4, layout.MAX_UNITS),
        "variables": Map(4, sizeof(layout.Variable), layout.MAX_VARIABLES),
        "variable_chains": Map(4, 4, 1 << layout.CHAIN_BITS),
        "instances": Map(8, sizeof(layout.Instance), layout.INSTANCES),
        "entered_instances": Map(4, 8, layout.INSTANCES),
        "cgroups": Map(8, sizeof(layout.CgroupName), layout.CGROUPS),
        "wakeups": Map(0, 0, 4096),
    }
    assert {name: maps.get(name) for name in loader._MAPS} == arrays | others


def test_what_is_copied_from_the_kernels_own_header_is_true(in_c: Evaluate) -> None:
    expected = {
        "offsetof(struct bpf_prog_info, recursion_misses)": loader.RECURSION_MISSES_OFFSET,
        "offsetof(struct bpf_map_info, btf_id)": bcc_compiler._MAP_INFO_BTF_ID,
        "BPF_PSEUDO_CALL": bcc_compiler._BPF_PSEUDO_CALL,
        "BPF_PSEUDO_MAP_FD": bcc_compiler._BPF_PSEUDO_MAP_FD,
        "BPF_PROG_TYPE_KPROBE": bcc_compiler._PROG_TYPE["kprobe"],
        "BPF_PROG_TYPE_TRACEPOINT": bcc_compiler._PROG_TYPE["tracepoint"],
        "BPF_PROG_TYPE_TRACING": bcc_compiler._PROG_TYPE_TRACING,
        "BPF_TRACE_RAW_TP": bcc_compiler._ATTACH_TYPE["tp_btf"],
        "BPF_TRACE_FENTRY": bcc_compiler._ATTACH_TYPE["fentry"],
        "BPF_TRACE_FEXIT": bcc_compiler._ATTACH_TYPE["fexit"],
        "BPF_TRACE_ITER": bcc_compiler._ATTACH_TYPE["iterator"],
    }
    assert in_c(expected) == expected


def test_a_constant_that_the_header_does_not_have_is_found(in_c: Evaluate) -> None:
    with pytest.raises(AssertionError, match="NO_SUCH_CONSTANT"):
        in_c(["NO_SUCH_CONSTANT"])


def test_what_a_stage_counts_is_read_in_one_piece() -> None:
    """As it is field by field: the fields lie one after the other, and nothing between them."""
    fields = struct_of(layout.Stage, "time_ns", *stage.COUNTERS)
    values = range(1, len(runs.STATES) + len(stage.COUNTERS) + 1)
    record = fields.pack(*values).ljust(sizeof(layout.Stage), b"\0")
    assert [*decode_stage((record, b"", b"", bytes(layout.Children())), 1).counted] == [*values]
