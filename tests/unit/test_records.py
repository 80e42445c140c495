# SPDX-License-Identifier: Apache-2.0
"""Kernel records decode to what their bytes hold: recorded ones, and single ones made up here.

If the layout of bpf/pipelined.h changes, the recordings have to be made again:

    sudo make recordings
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from ctypes import Structure, sizeof
from typing import Any

import pytest

from pipelined.kernel import layout
from pipelined.kernel.decoding import RawStage, decode_pipeline, decode_stage
from pipelined.records.process import Process
from pipelined.records.stage import (
    COMPUTES_ALONE,
    COUNTERS,
    NS,
    PIPE_KEY,
    READS_ALONE,
    EndRecord,
    Group,
    Peer,
    PipelineRecord,
    StageRecord,
    is_conversation,
    joined,
    place_of,
)
from pipelined.records.tiers import (
    HISTOGRAM_FIELDS,
    NO_READAHEAD,
    READAHEAD,
    functions_of,
    places,
    readahead_of,
)
from pipelined.runs import (
    HISTOGRAMS,
    LEVELS,
    PAGE_CLASSES,
    SIZE_EDGES,
    STALL_CLASSES,
    STATES,
    Stalls,
    StallSeconds,
)
from pipelined.starter import Starter
from unit.recordings import ARRAYS, LAYOUT, layout_now, names, recording

RECORDED_LAYOUT = json.loads(LAYOUT.read_text())["structures"]


def recorded() -> Iterator[tuple[str, int, RawStage]]:
    """Every record in use of every recording: where it is from, its index, its bytes."""
    for name in names():
        for number, moment in enumerate(recording(name).moments):
            for index in range(1, len(moment.arrays["stages"]) // ARRAYS["stages"]):
                raw = tuple(
                    moment.arrays[array][index * ARRAYS[array] : (index + 1) * ARRAYS[array]]
                    for array in ("stages", "functions", "readahead", "children")
                )
                if field(raw[0], "stage", "start_ns"):
                    where = f"{name}, moment {number}, record {index}"
                    yield where, index, raw


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
    functions: Structure | None = None,
    readahead: Structure | None = None,
    children: layout.Children | None = None,
    **fields: Any,
) -> RawStage:
    """The bytes of a stage with these fields."""
    return (
        bytes(layout.Stage(**fields)),
        bytes(functions) if functions else b"",
        bytes(readahead) if readahead else b"",
        bytes(children or layout.Children()),
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
    assert not changed, f"run: sudo make recordings; fields and what changed: {changed}"


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
            for name in (*("start_ns", "end_ns", "cgroup", "live", "generation"),)
        }
        pid, start = (
            field(raw[0], "stage", "starter.pid"),
            field(raw[0], "stage", "starter.start_ns"),
        )
        for name in ("root", "parent"):
            expected[name] = (
                field(raw[0], "stage", f"{name}.pid"),
                field(raw[0], "stage", f"{name}.start_ns"),
            )
        expected |= {
            "starter": Starter(pid, start * os.sysconf("SC_CLK_TCK") // 10**9) if pid else None,
            "starter_uid": field(raw[0], "stage", "starter.uid"),
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
    assert starter and starter.pid not in {stage.parent.pid for stage in stages}


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
        found = readahead_of(decode_stage(raw, index).readahead)
        if [found.pages[name] for name in PAGE_CLASSES] != values(raw[2], "readahead", "pages"):
            wrong.append(f"{where}: pages")
        if [found.faults[name] for name in STALL_CLASSES] != values(raw[2], "readahead", "faults"):
            wrong.append(f"{where}: faults")
        if found.inserted_pages != field(raw[2], "readahead", "inserted"):
            wrong.append(f"{where}: inserted")
        if found.not_input_pages != field(raw[2], "readahead", "not_input"):
            wrong.append(f"{where}: not input")
        if found.files != field(raw[2], "readahead", "files"):
            wrong.append(f"{where}: files")
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
    assert decode_stage((record, b"", b"", bytes(layout.Children())), 1).command == command


@pytest.mark.parametrize(
    ("peer", "decoded"),
    [
        (0, None),
        (socket.AF_INET << 16 | 443, Peer("ipv4", 443)),
        (socket.AF_INET6 << 16 | 65535, Peer("ipv6", 65535)),
    ],
)
def test_a_peer_is_a_family_and_a_port(peer: int, decoded: Peer | None) -> None:
    assert decode_stage(made(peer=peer), 1).peer == decoded


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


def test_a_borrowed_end_is_noted_by_its_side() -> None:
    for side, name in ((0, "read"), (1, "write")):
        bits = layout.END_BORROWED | side + 1 << layout.END_BORROWED_SHIFT
        borrowed = layout.PipeEnd(layout.PipeKey(55, 13), bits)
        assert decode_stage(made(ends=(borrowed,)), 1).borrows == {name}


def test_a_borrowed_end_that_was_left_is_no_longer_used() -> None:
    for side in (0, 1):
        bits = layout.END_BORROWED | side + 1 << layout.END_BORROWED_SHIFT | layout.END_LEFT
        left = layout.PipeEnd(layout.PipeKey(55, 13), bits)
        assert decode_stage(made(ends=(left,)), 1).borrows == frozenset()


@pytest.mark.parametrize(
    ("bits", "own", "late"),
    [
        (0, False, False),
        (layout.END_STANDARD, True, False),
        (layout.END_STANDARD | layout.END_LEFT, False, False),
        (layout.END_JOINED, True, False),
        (layout.END_JOINED | layout.END_LEFT, True, False),
        (layout.END_LATE, False, False),  # of a pipe that is not its own
        (layout.END_STANDARD | layout.END_LATE, True, True),
        (layout.END_JOINED | layout.END_LATE, True, True),
    ],
)
def test_an_end_is_the_stage_s_own_if_it_is_joined_or_its_root_s(
    bits: int, own: bool, late: bool
) -> None:
    ends = (layout.PipeEnd(layout.PipeKey(55, 13), bits | 1), end(56, side=1))
    stage = decode_stage(made(ends=ends), 1)
    assert ([e.own for e in stage.ends], stage.late) == ([own, False], late)


def test_an_end_that_is_being_filled_is_left_out() -> None:
    stage = decode_stage(made(ends=(end(55, side=None), end(56, side=1))), 1)
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
    return layout.PipeEnd(layout.PipeKey(inode, 13), bits, **fields)


@pytest.mark.parametrize(
    ("flags", "partial", "alone"), [(0, False, False), (1, True, False), (16, False, True)]
)
def test_flags_are_distinctions(flags: int, partial: bool, alone: bool) -> None:
    stage = decode_stage(made(flags=flags | 2 | 4 | 8), 1)
    assert (stage.partial, stage.alone) == (partial, alone)


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        (layout.STAGE_PARTIAL, "partial"),
        (layout.STAGE_RESUMED, "partial"),
        (layout.STAGE_UNMET, "unmet"),
        (layout.STAGE_CONVERSES, "converses"),
        (layout.STAGE_ALONE, "alone"),
        (layout.STAGE_SPLICES, "splices"),
    ],
)
def test_each_flag_says_one_thing(flag: int, name: str) -> None:
    names = ("partial", "unmet", "converses", "alone", "splices")
    stage = decode_stage(made(flags=flag), 1)
    assert [one for one in names if getattr(stage, one)] == [name]


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
    found = functions_of(words)
    for kind, record in zip(HISTOGRAMS, HISTOGRAM_FIELDS, strict=True):
        histogram = getattr(found, kind.field)
        begin, size = RECORDED_LAYOUT["functions"][f"{record}.counts"]
        counts = {bucket.le: bucket.count for bucket in histogram.buckets}
        edges = (*kind.edges, None)[: kind.buckets]
        at = range(begin // 8, (begin + size) // 8)
        assert counts == {le: n for le, n in zip(edges, at, strict=True) if n}, kind.field
        total, _ = RECORDED_LAYOUT["functions"][f"{record}.sum"]
        unit = {"file_read_seconds": 1e-9, "pipe_fill": 2**-16}.get(kind.field, 1)
        assert histogram.sum == total // 8 * unit, kind.field
    slots, _ = RECORDED_LAYOUT["functions"]["pipe_slots"]
    assert found.pipe_capacity_bytes == slots // 8 * os.sysconf("SC_PAGE_SIZE")


def test_the_units_of_histograms_become_seconds_and_shares() -> None:
    record = layout.Functions(pipe_slots=16)
    record.file_read_time.counts[0], record.file_read_time.sum = 2, 1500
    record.pipe_fill.counts[8], record.pipe_fill.sum = 3, 3 << 16
    record.pipe_writes.counts[len(SIZE_EDGES)], record.pipe_writes.sum = 1, 1 << 21
    found = functions_of(decode_stage(made(functions=record), 1).functions)
    assert found.file_read_seconds.sum == pytest.approx(1500 * NS)
    assert found.file_read_seconds.within(1) == pytest.approx(1024 * NS)
    assert found.pipe_fill.mean == 1.0
    assert found.pipe_writes.sum == 1 << 21 and found.pipe_writes.within(1) is None
    assert found.pipe_capacity_bytes == 65536


def test_no_pipe_written_to_has_no_capacity() -> None:
    stage = decode_stage(made(functions=layout.Functions()), 1)
    assert functions_of(stage.functions).pipe_capacity_bytes is None


def test_each_value_of_readahead_has_its_name() -> None:
    record = layout.ReadaheadCounters(inserted=6, direct_bytes=7, not_input=30, files=31)
    record.pages[:] = range(1, 6)
    record.faults[:] = range(8, 11)
    for at in range(3):
        record.stalls[at][:] = 11 + 2 * at, 12 + 2 * at
        record.stall_ns[at][:] = 1000 * (17 + 2 * at), 1000 * (18 + 2 * at)
    found = readahead_of(decode_stage(made(readahead=record), 1).readahead)
    assert found.pages == {"warm": 1, "hit": 2, "late": 3, "miss": 4, "wasted": 5}
    assert (found.inserted_pages, found.direct_bytes, found.not_input_pages) == (6, 7, 30)
    assert found.files == 31
    assert found.faults == {"miss": 8, "late": 9, "other": 10}
    seconds = [NS * (1000 * count) for count in range(17, 23)]
    assert found.stalls == {
        "miss": Stalls(alone=11, overlapped=12),
        "late": Stalls(alone=13, overlapped=14),
        "other": Stalls(alone=15, overlapped=16),
    }
    assert found.stall_seconds == {
        "miss": StallSeconds(alone=seconds[0], overlapped=seconds[1]),
        "late": StallSeconds(alone=seconds[2], overlapped=seconds[3]),
        "other": StallSeconds(alone=seconds[4], overlapped=seconds[5]),
    }


# -- what a group of stages is


def stage_of(index: int, *ends: tuple[int, str], joined: bool = True, **given: Any) -> StageRecord:
    """A stage with ends of these pipes (inode, side)."""
    values: dict[str, Any] = {
        "index": index,
        "outer": 0,
        "alias": 0,
        "counted": [0] * (len(STATES) + len(COUNTERS)),
        "start_ns": 1,
        "end_ns": 0,
        "root": Process(100 + index, 1),
        "parent": Process(1, 0),
        "cgroup": 1,
        "live": 1,
        "generation": 0,
        "partial": False,
        "alone": False,
        "command": "x",
        "ends": tuple(
            EndRecord(PIPE_KEY.pack(pipe, 13, 0), side, joined, True, 0, 0) for pipe, side in ends
        ),
    }
    return StageRecord(**values | given)


def group_of(*stages: StageRecord, **given: Any) -> Group:
    return Group(1, PipelineRecord((), (), 1), stages, **given)


def test_a_pipe_joins_each_of_its_writers_with_each_of_its_readers() -> None:
    stages = [
        stage_of(1, (55, "write"), (56, "read")),
        stage_of(2, (55, "write")),
        stage_of(3, (55, "read"), (56, "write"), (57, "write"), (57, "read")),
        stage_of(4, (55, "read"), joined=False),
    ]
    assert joined(stages) == {(1, 3), (2, 3), (3, 1)}


def test_stages_that_answer_each_other_are_a_conversation() -> None:
    asks, answers = (
        stage_of(1, (55, "write"), (56, "read")),
        stage_of(2, (55, "read"), (56, "write")),
    )
    assert is_conversation([asks, answers])
    assert not is_conversation([asks, stage_of(2, (55, "read"))])
    assert not is_conversation([asks, answers, stage_of(3, (55, "read"))])
    assert not is_conversation([stage_of(1), stage_of(2)])
    ring = [stage_of(at, (at, "write"), ((at + 2) % 3, "read")) for at in range(3)]
    assert not is_conversation(ring)


def test_a_stage_alone_is_a_conversation_if_its_parent_is_at_both_ends() -> None:
    assert is_conversation([stage_of(1, converses=True)])
    assert not is_conversation([stage_of(1)])


@pytest.mark.parametrize(
    ("counted", "alone", "run"),
    [
        ({}, True, False),
        ({"read_bytes": READS_ALONE}, True, True),
        ({"read_bytes": READS_ALONE - 1}, True, False),
        ({"cpu": COMPUTES_ALONE}, True, True),
        ({"cpu": COMPUTES_ALONE - 1}, True, False),
        ({"cpu": COMPUTES_ALONE, "forks": 1}, True, False),
        ({"cpu": COMPUTES_ALONE, "read_bytes": READS_ALONE}, False, False),
    ],
)
def test_a_program_alone_is_a_run_if_it_reads_or_computes_and_forks_nothing(
    counted: dict[str, int], alone: bool, run: bool
) -> None:
    stage = stage_of(1, alone=alone)
    for name, value in counted.items():
        stage.counted[place_of(name)] = value
    assert group_of(stage).is_run is run
    assert not group_of(stage, conversation=True).is_run


def test_several_stages_are_a_run_unless_they_converse() -> None:
    assert group_of(stage_of(1), stage_of(2)).is_run
    assert not group_of(stage_of(1), stage_of(2), conversation=True).is_run


@pytest.mark.parametrize(
    ("end_ns", "live", "retired", "ended"),
    [
        (0, 1, False, False),
        (5, 1, False, False),
        (5, 0, False, True),
        (5, 1, True, True),
        (0, 0, False, False),
        (0, 1, True, False),
    ],
)
def test_a_stage_has_ended_if_no_thread_is_left_or_it_has_retired(
    end_ns: int, live: int, retired: bool, ended: bool
) -> None:
    assert stage_of(1, end_ns=end_ns, live=live, retired=retired).ended is ended


def test_the_starters_of_a_group_are_those_of_its_stages() -> None:
    one, other = Starter(4711, 1), Starter(4712, 1)
    stages = (stage_of(1, starter=one, starter_uid=7), stage_of(2), stage_of(3, starter=other))
    group = group_of(*stages)
    assert group.starters == {one, other}
    assert group.users == {one: 7, other: 0}


def test_counters_stand_behind_the_states() -> None:
    assert [place_of(name) for name in STATES] == list(range(len(STATES)))
    assert [place_of(name) for name in COUNTERS] == [
        len(STATES) + place for place in range(len(COUNTERS))
    ]


def test_one_class_that_waited_is_enough() -> None:
    values = list(NO_READAHEAD)
    values[places(READAHEAD)["stalls"]] = [3, 4, 0, 0, 0, 0]
    values[places(READAHEAD)["stall_ns"]] = [3 * 10**9, 4 * 10**9, 0, 0, 0, 0]
    found = readahead_of(values)
    assert found.stalls == {"miss": Stalls(4, 3), "late": Stalls(), "other": Stalls()}
    assert found.stall_seconds["miss"] == StallSeconds(4.0, 3.0)


def test_the_values_of_a_tier_stand_one_behind_the_other() -> None:
    assert places({"a": 2, "b": 1, "c": 3}) == {
        "a": slice(0, 2),
        "b": slice(2, 3),
        "c": slice(3, 6),
    }
