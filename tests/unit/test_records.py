# SPDX-License-Identifier: Apache-2.0
"""Kernel records decode to what their bytes hold: recorded ones, and single ones made up here.

If the layout of bpf/pipelined.h changes, the recordings have to be made again. That needs root:

    cd tests && sudo ../.venv/bin/python -m unit.recorded.record
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from ctypes import Structure, sizeof
from typing import Any

import pytest

from pipelined.kernel import layout
from pipelined.kernel.layout import COUNTERS
from pipelined.kernel.records import (
    NO_READAHEAD,
    NS,
    PIPE_KEY,
    RawStage,
    decode_functions,
    decode_pipeline,
    decode_readahead,
    decode_stage,
)
from pipelined.runs import (
    HISTOGRAMS,
    LEVELS,
    PAGE_CLASSES,
    SIZE_EDGES,
    STALL_CLASSES,
    STATES,
    Stalls,
)
from pipelined.starter import Starter
from unit.recordings import ARRAYS, LAYOUT, layout_now, names, recording

RECORDED_LAYOUT = json.loads(LAYOUT.read_text())["structures"]


def recorded() -> Iterator[tuple[str, int, RawStage]]:
    """Every record in use of every recording: where it is from, its index, its bytes."""
    for name in names():
        for number, moment in enumerate(recording(name).moments):
            for index in range(1, len(moment.arrays["stages"]) // ARRAYS["stages"]):
                stage, functions, readahead = (
                    moment.arrays[array][index * ARRAYS[array] : (index + 1) * ARRAYS[array]]
                    for array in ("stages", "functions", "readahead")
                )
                if field(stage, "stage", "start_ns"):
                    where = f"{name}, moment {number}, record {index}"
                    yield where, index, (stage, functions, readahead)


def field(raw: bytes, structure: str, path: str, *, signed: bool = False) -> int:
    """A number where the layout that was recorded with the bytes has it."""
    begin, size = RECORDED_LAYOUT[structure][path]
    return int.from_bytes(raw[begin : begin + size], "little", signed=signed)


def values(raw: bytes, structure: str, path: str, *, signed: bool = False) -> list[int]:
    """An array of numbers of 8 bytes."""
    begin, size = RECORDED_LAYOUT[structure][path]
    return [
        int.from_bytes(raw[at : at + 8], "little", signed=signed)
        for at in range(begin, begin + size, 8)
    ]


def made(
    functions: Structure | None = None, readahead: Structure | None = None, **fields: Any
) -> RawStage:
    """The bytes of a stage with these fields."""
    return (
        bytes(layout.Stage(**fields)),
        bytes(functions) if functions else b"",
        bytes(readahead) if readahead else b"",
    )


# -- recorded bytes


def test_the_recordings_have_the_layout_of_the_object() -> None:
    now = layout_now()
    changed = {
        f"{structure}.{path}": (fields.get(path), now[structure].get(path))
        for structure, fields in RECORDED_LAYOUT.items()
        for path in fields.keys() | now[structure].keys()
        if fields.get(path) != now[structure].get(path)
    }
    assert not changed, f"record again, as {__file__} says: fields and what changed: {changed}"


def test_there_is_a_recording_of_every_scenario() -> None:
    from unit.recorded.record import SCENARIOS

    assert sorted(names()) == sorted(SCENARIOS)
    assert {name: recording(name).command for name in names()} == {
        name: scenario.command for name, scenario in SCENARIOS.items()
    }


def test_every_recorded_number_is_decoded_from_its_place() -> None:
    wrong = []
    for where, index, raw in recorded():
        stage = decode_stage(raw, index)
        expected = {
            name: field(raw[0], "stage", name)
            for name in (
                *("start_ns", "end_ns", "root_start_ns", "cgroup", "live"),
                *("generation", "pid", "parent_pid"),
            )
        }
        pid, start = (
            field(raw[0], "stage", "starter.pid"),
            field(raw[0], "stage", "starter.start_ns"),
        )
        expected |= {
            "starter": Starter(pid, start * os.sysconf("SC_CLK_TCK") // 10**9) if pid else None,
            "index": index,
            "alias": field(raw[0], "stage", "pipeline.alias"),
            "outer": field(raw[0], "stage", "word") >> 32 & 0x3FFFF,
            "fingerprint": hash(raw),
        }
        wrong += [
            f"{where}: {name} is {getattr(stage, name)}, not {value}"
            for name, value in expected.items()
            if getattr(stage, name) != value
        ]
    assert wrong == []


def test_the_starter_of_a_pipeline_is_known_after_the_shell_between_them_is_gone() -> None:
    (moment,) = recording("started").moments
    stages = [
        decode_stage(raw, index) for where, index, raw in recorded() if where.startswith("started")
    ]
    assert {stage.command for stage in stages} >= {"cat", "wc"}, moment.now_ns
    (starter,) = {stage.starter for stage in stages}
    assert starter and starter.pid not in {stage.parent_pid for stage in stages}


def test_every_recorded_counter_is_decoded_with_the_sleeps_on_pipes_added() -> None:
    wrong = []
    for where, index, raw in recorded():
        stage = decode_stage(raw, index)
        expected = values(raw[0], "stage", "time_ns", signed=True)
        expected += [field(raw[0], "stage", name, signed=True) for name in COUNTERS]
        for name, side in (("sleeps_empty", "read"), ("sleeps_full", "write")):
            at = len(STATES) + COUNTERS.index(name)
            expected[at] += sum(end.sleeps for end in stage.ends if end.side == side)
        if list(stage.counted) != expected:
            wrong.append(f"{where}: {stage.counted}, not {expected}")
    assert wrong == []


def test_every_recorded_clock_is_split_by_level_and_by_disk() -> None:
    wrong = []
    for where, _, raw in recorded():
        clock = decode_pipeline(raw[0])
        times = values(raw[0], "stage", "pipeline.time_ns", signed=True)
        expected = (tuple(times[::2]), tuple(times[1::2]))
        if (clock.alone_ns, clock.disk_ns) != expected or len(clock.alone_ns) != len(LEVELS):
            wrong.append(where)
        if clock.start_ns != field(raw[0], "stage", "pipeline.start_ns"):
            wrong.append(f"{where}: start")
    assert wrong == []


def test_every_recorded_page_is_of_one_class() -> None:
    seen, wrong = 0, []
    for where, index, raw in recorded():
        found = decode_readahead(decode_stage(raw, index).readahead)
        if [found.pages[name] for name in PAGE_CLASSES] != values(raw[2], "readahead", "pages"):
            wrong.append(f"{where}: pages")
        if [found.faults[name] for name in STALL_CLASSES] != values(raw[2], "readahead", "faults"):
            wrong.append(f"{where}: faults")
        if found.inserted_pages != field(raw[2], "readahead", "inserted"):
            wrong.append(f"{where}: inserted")
        if found.not_input_pages != field(raw[2], "readahead", "not_input"):
            wrong.append(f"{where}: not input")
        seen += found.read_pages
    assert wrong == []
    assert seen > 1000


# -- single records


def test_a_counter_may_be_below_zero_for_a_moment() -> None:
    """Two CPUs may credit a few negative nanoseconds before the positive ones land."""
    stage = decode_stage(made(user_ns=-5), 1)
    assert stage.counted[len(STATES) + COUNTERS.index("user_ns")] == -5


@pytest.mark.parametrize(
    ("comm", "command"),
    [
        (b"cat", "cat"),
        (b"cat\0old", "cat"),
        (b"123456789012345", "123456789012345"),
        (b"caf\xe9", "caf\\xe9"),
        ("größe".encode(), "größe"),
        (b"", ""),
    ],
)
def test_a_command_ends_at_its_first_zero(comm: bytes, command: str) -> None:
    record, *_ = made()
    at, size = RECORDED_LAYOUT["stage"]["comm"]
    record = record[:at] + comm.ljust(size, b"\0") + record[at + size :]
    assert decode_stage((record, b"", b""), 1).command == command


def test_an_end_has_its_pipe_its_side_and_its_sleeps() -> None:
    raw = made(
        ends=(
            end(55, side=0, joined=True, sleeps=3, asleep_ns=7_000),
            end(56, side=1, sleeps=2),
        ),
        sleeps_empty=10,
        sleeps_full=20,
    )
    stage = decode_stage(raw, 1)
    described = [(e.pipe, e.side, e.joined, e.sleeps, e.asleep_ns) for e in stage.ends]
    assert described == [
        ("d:55", "read", True, 3, 7_000),
        ("d:56", "write", False, 2, 0),
    ]
    assert stage.ends[0].key == PIPE_KEY.pack(55, 13, 0)
    empty, full = (len(STATES) + COUNTERS.index(name) for name in ("sleeps_empty", "sleeps_full"))
    assert (stage.counted[empty], stage.counted[full]) == (13, 22)


def test_a_borrowed_end_is_none_of_the_stage_but_is_noted() -> None:
    stage = decode_stage(made(ends=(end(55, side=None, borrowed=True), end(56, side=1))), 1)
    assert stage.borrows
    assert [e.pipe for e in stage.ends] == ["d:56"]


def test_what_stands_after_a_free_slot_is_no_end() -> None:
    stage = decode_stage(made(ends=(end(0, side=None), end(56, side=1))), 1)
    assert stage.ends == () and not stage.borrows


def end(
    inode: int,
    *,
    side: int | None,
    joined: bool = False,
    borrowed: bool = False,
    **fields: int,
) -> layout.PipeEnd:
    """A pipe end with the bits of pipelined.h."""
    bits = (0 if side is None else side + 1) | 4 * joined | 8 * borrowed
    return layout.PipeEnd(inode, 13, bits, **fields)


@pytest.mark.parametrize(
    ("flags", "partial", "alone"), [(0, False, False), (1, True, False), (16, False, True)]
)
def test_flags_are_told_apart(flags: int, partial: bool, alone: bool) -> None:
    stage = decode_stage(made(flags=flags | 2 | 4 | 8), 1)
    assert (stage.partial, stage.alone) == (partial, alone)


def test_the_enclosing_stage_stands_between_other_bits_of_the_word() -> None:
    everything_but = (1 << 63) | (1 << 50) | 0xFFFF_FFFF
    assert decode_stage(made(word=everything_but | 0x3ABCD << 32), 1).outer == 0x3ABCD


def test_a_tier_that_is_off_has_no_values() -> None:
    stage = decode_stage(made(), 1)
    assert stage.functions == () and stage.readahead == ()


def test_stages_that_read_nothing_through_the_page_cache_share_one_record() -> None:
    assert decode_stage(made(readahead=layout.ReadaheadCounters()), 1).readahead is NO_READAHEAD


def test_each_histogram_has_its_place() -> None:
    """In a record in which each value is its own place."""
    words = range(sizeof(layout.Functions) // 8)
    found = decode_functions(words)
    for kind in HISTOGRAMS:
        histogram = getattr(found, kind.field)
        begin, size = RECORDED_LAYOUT["functions"][f"{kind.record}.counts"]
        assert histogram.counts == tuple(range(begin // 8, (begin + size) // 8)), kind.field
        total, _ = RECORDED_LAYOUT["functions"][f"{kind.record}.sum"]
        assert histogram.sum == total // 8 * kind.unit, kind.field
    slots, _ = RECORDED_LAYOUT["functions"]["pipe_slots"]
    assert found.pipe_capacity_bytes == slots // 8 * os.sysconf("SC_PAGE_SIZE")


def test_the_units_of_histograms_become_seconds_and_shares() -> None:
    record = layout.Functions(pipe_slots=16)
    record.file_read_time.counts[0], record.file_read_time.sum = 2, 1500
    record.pipe_fill.counts[8], record.pipe_fill.sum = 3, 3 << 16
    record.pipe_writes.counts[len(SIZE_EDGES)], record.pipe_writes.sum = 1, 1 << 21
    found = decode_functions(decode_stage(made(functions=record), 1).functions)
    assert found.file_read_seconds.sum == pytest.approx(1500 * NS)
    assert found.file_read_seconds.within(1) == pytest.approx(1024 * NS)
    assert found.pipe_fill.mean == 1.0
    assert found.pipe_writes.sum == 1 << 21 and found.pipe_writes.within(1) is None
    assert found.pipe_capacity_bytes == 65536


def test_no_pipe_written_to_has_no_capacity() -> None:
    stage = decode_stage(made(functions=layout.Functions()), 1)
    assert decode_functions(stage.functions).pipe_capacity_bytes is None


def test_each_value_of_readahead_has_its_name() -> None:
    record = layout.ReadaheadCounters(inserted=6, direct_bytes=7, not_input=30)
    record.pages[:] = range(1, 6)
    record.faults[:] = range(8, 11)
    for at in range(3):
        record.stalls[at][:] = 11 + 2 * at, 12 + 2 * at
        record.stall_ns[at][:] = 1000 * (17 + 2 * at), 1000 * (18 + 2 * at)
    found = decode_readahead(decode_stage(made(readahead=record), 1).readahead)
    assert found.pages == {"warm": 1, "hit": 2, "late": 3, "miss": 4, "wasted": 5}
    assert (found.inserted_pages, found.direct_bytes, found.not_input_pages) == (6, 7, 30)
    assert found.faults == {"miss": 8, "late": 9, "other": 10}
    seconds = [NS * (1000 * count) for count in range(17, 23)]
    assert found.stalls == {
        "miss": Stalls(11, 12, *seconds[0:2]),
        "late": Stalls(13, 14, *seconds[2:4]),
        "other": Stalls(15, 16, *seconds[4:6]),
    }
