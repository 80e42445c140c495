# SPDX-License-Identifier: Apache-2.0
"""What the kernel side has kept of an environment: read, cut, kept and given to the next daemon."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from pipelined.kernel import instances, layout
from pipelined.kernel.instances import Instances, decode, encode
from unit.recordings import RecordedMaps

NAMES = ("TRACEPARENT", "TRACESTATE", "SLURM_JOB_ID", "BUILD_URL")
CUT = layout.INSTANCE_TEXT


@pytest.fixture
def maps() -> Iterator[RecordedMaps]:
    with closing(RecordedMaps()) as maps:
        yield maps


def record(*values: tuple[str, bytes, bool]) -> bytes:
    """As the kernel side writes it: names, values, and whether more followed."""
    made = layout.Instance(count=len(values))
    for slot, (name, text, more) in zip(made.values, values, strict=False):
        slot.variable, slot.text = NAMES.index(name), text[: CUT - 1]
        slot.length = CUT if more else len(text)
    return bytes(made)


def instances_of(maps: Any, names: Sequence[str] = NAMES) -> Instances:
    return Instances(maps, names, layout.Control())


def stage_of(number: int) -> Any:
    return SimpleNamespace(instance=number, variables=None)


def task_of(number: int) -> bytes:
    record = layout.WrittenTask()
    record.task.instance = number
    return bytes(record)


def enter(maps: RecordedMaps, number: int, raw: bytes) -> None:
    maps.elements["instances"][struct.pack("=Q", number)] = raw


def test_values_have_the_names_of_the_configuration() -> None:
    raw = record(("SLURM_JOB_ID", b"4711", False), ("BUILD_URL", b"http://ci/7", False))
    assert decode(raw, NAMES) == {"SLURM_JOB_ID": "4711", "BUILD_URL": "http://ci/7"}


@pytest.mark.parametrize(
    ("text", "more", "kept"),
    [
        (b"x" * 246, False, "x" * 246),
        (b"x" * 247, False, "x" * 247),
        (b"x" * 247, True, "x" * 244 + "…"),
        ("ä".encode() * 124, True, "ä" * 122 + "…"),
        (b"x" + "ä".encode() * 124, True, "x" + "ä" * 121 + "…"),
        (b"caf\xe9", False, "caf\\xe9"),
    ],
)
def test_what_was_cut_off_shows(text: bytes, more: bool, kept: str) -> None:
    assert decode(record(("BUILD_URL", text, more)), NAMES) == {"BUILD_URL": kept}
    assert len(kept.encode()) < CUT


def test_the_state_of_a_trace_is_cut_between_two_entries() -> None:
    state = b",".join(b"vendor%02d=0123456789" % n for n in range(20))
    (kept,) = decode(record(("TRACESTATE", state, True)), NAMES).values()
    assert kept == state[: len(kept)].decode()
    assert [len(entry) for entry in kept.split(",")] == [19] * 12


@pytest.mark.parametrize("size", [0, 1, 246, 247])
def test_what_is_encoded_is_decoded(size: int) -> None:
    variables = {"SLURM_JOB_ID": "4711", "BUILD_URL": "y" * size}
    assert decode(encode(variables, NAMES), NAMES) == variables


def test_a_cut_value_stays_what_it_was() -> None:
    once = decode(record(("BUILD_URL", b"z" * 247, True)), NAMES)
    assert decode(encode(once, NAMES), NAMES) == once


def test_names_that_the_configuration_no_longer_has_are_dropped() -> None:
    variables = {"NO_MORE": "1", "SLURM_JOB_ID": "4711"}
    assert decode(encode(variables, NAMES[2:]), NAMES[2:]) == {"SLURM_JOB_ID": "4711"}


def test_a_record_is_read_once_and_kept_after_the_kernel_side_forgot_it(maps: RecordedMaps) -> None:
    enter(maps, 7, record(("SLURM_JOB_ID", b"4711", False)))
    known = instances_of(maps)
    assert known.variables(7) == {"SLURM_JOB_ID": "4711"}
    maps.elements["instances"].clear()
    assert known.variables(7) == {"SLURM_JOB_ID": "4711"}
    assert known.lost == 0


def test_a_record_that_was_forgotten_before_is_counted_once(maps: RecordedMaps) -> None:
    known = instances_of(maps)
    assert (known.variables(7), known.variables(7)) == ({}, {})
    assert known.lost == 1


def test_what_is_kept_is_bounded(maps: RecordedMaps) -> None:
    known = instances_of(maps)
    for number in range(1, instances._KEPT + 2):
        enter(maps, number, record(("SLURM_JOB_ID", b"%d" % number, False)))
        known.variables(number)
        known.variables(1)
    maps.elements["instances"].clear()
    assert known.variables(1) == {"SLURM_JOB_ID": "1"}
    assert known.lost == 0
    assert known.variables(2) == {}
    assert known.lost == 1


def test_the_next_daemon_knows_what_is_referred_to(maps: RecordedMaps) -> None:
    for number in (7, 8, 9):
        enter(maps, number, record(("SLURM_JOB_ID", b"%d" % number, False)))
    referred = instances_of(maps).referred(
        [stage_of(8), stage_of(0)], task_of(7) + task_of(0) + task_of(8) + task_of(55)
    )
    assert referred == {8: {"SLURM_JOB_ID": "8"}, 7: {"SLURM_JOB_ID": "7"}}
    with closing(RecordedMaps()) as others:
        control = layout.Control()
        later = Instances(others, NAMES[2:], control)  # type: ignore[arg-type]
        later.restore(referred)
        assert later.variables(8) == {"SLURM_JOB_ID": "8"}
        # the kernel side forgets them as if it had found them itself, in this order
        assert [
            struct.unpack("=Q", key)[0] for key in others.elements["entered_instances"].values()
        ] == [8, 7]


def test_the_next_daemon_knows_what_only_a_stage_knows_still(maps: RecordedMaps) -> None:
    """A long run that starts nothing: its record is forgotten here and by the kernel side."""
    enter(maps, 7, record(("SLURM_JOB_ID", b"4711", False)))
    known, quiet, later = instances_of(maps), stage_of(7), stage_of(7)
    known.identify(quiet, None)
    maps.elements["instances"].clear()
    for number in range(8, 9 + instances._KEPT):
        known.variables(number)
    known.identify(later, None)
    assert later.variables == {}
    for stages in ([quiet, later], [later, quiet]):
        assert known.referred(stages, task_of(7)) == {7: {"SLURM_JOB_ID": "4711"}}


def test_no_more_are_handed_on_than_there_is_room_for(maps: RecordedMaps) -> None:
    known = instances_of(maps)
    numbers = range(1, layout.INSTANCES + 10)
    for number in numbers:
        enter(maps, number, record(("SLURM_JOB_ID", b"%d" % number, False)))
    assert list(known.referred(map(stage_of, numbers), b"")) == list(numbers[: layout.INSTANCES])


def test_a_stage_keeps_its_variables_as_long_as_it_refers_to_them(maps: RecordedMaps) -> None:
    enter(maps, 7, record(("SLURM_JOB_ID", b"4711", False)))
    known, before, stage, other = instances_of(maps), stage_of(7), stage_of(7), stage_of(8)
    known.identify(before, None)
    known._known.clear()
    maps.elements["instances"].clear()
    known.identify(stage, before)
    known.identify(other, before)
    assert (stage.variables, other.variables) == ({"SLURM_JOB_ID": "4711"}, {})
    known.identify(nothing := stage_of(0), before)
    assert nothing.variables is None


def test_each_start_has_a_secret_of_its_own(maps: RecordedMaps) -> None:
    one, other = layout.Control(), layout.Control()
    for control in (one, other):
        Instances(maps, NAMES, control)  # type: ignore[arg-type]
    assert len({*one.secret, *other.secret}) == 4
