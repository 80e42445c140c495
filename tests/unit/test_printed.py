# SPDX-License-Identifier: Apache-2.0
"""Outputs: the same, the same lines in another order, and the first line that differs."""

from __future__ import annotations

import random

import pytest

from pipelined.run import printed
from pipelined.run.printed import PIECE, Printed, Printing, difference


def take_in(output: bytes, *cuts: int, any_order: bool = True) -> Printed:
    """The output, taken in as pieces that are cut at these places."""
    printing = Printing(any_order=any_order)
    for start, end in zip((0, *cuts), (*cuts, len(output)), strict=True):
        printing.add(output[start:end])
    return printing.result()


def differing(first: bytes, second: bytes) -> str:
    return difference(take_in(first), take_in(second), ("A prints", "B prints"))


def test_pieces_do_not_matter() -> None:
    output = b"one\n\ntwo\nand no newline"
    whole = take_in(output)
    assert all(take_in(output, at) == whole for at in range(len(output)))


@pytest.mark.parametrize("length", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 5])
def test_pieces_of_long_lines_do_not_matter(length: int) -> None:
    output = b"a\n" + b"x" * length + b"\nb\n"
    steps = (PIECE, PIECE - 3, 70_001)
    results = {take_in(output, *range(step, len(output), step)) for step in steps}
    assert len(results) == 1


def test_lines_in_another_order_have_the_same_lines() -> None:
    lines = [b"%d\n" % n for n in range(1000)] * 2
    random.Random(1).shuffle(lines)
    first, second = take_in(b"".join(sorted(lines))), take_in(b"".join(lines))
    assert first.digest != second.digest
    assert first.has_lines_of(second)


@pytest.mark.parametrize("other", [b"1\n2\n2\n", b"1\n1\n3\n", b"1\n2\n\n\n", b"1\n2\n3"])
def test_other_lines_are_other_lines(other: bytes) -> None:
    assert not take_in(b"1\n2\n1\n").has_lines_of(take_in(other))


def test_lines_that_were_not_taken_in_are_not_known_to_be_the_same() -> None:
    printed = take_in(b"1\n", any_order=False)
    assert not printed.has_lines_of(printed)


@pytest.mark.parametrize(
    ("first", "second", "where"),
    [
        (b"a\nb\n", b"a\nc\n", "in line 2 A prints 'b', B prints 'c'"),
        (b"a\n", b"a\nc\n", "in line 2 A prints nothing more, B prints 'c'"),
        (b"a\n", b"a\n\n", "in line 2 A prints nothing more, B prints ''"),
        (b"", b"c\n", "in line 1 A prints nothing more, B prints 'c'"),
        (b"a", b"a\n", "in the end of line 1"),
        (b"a\x1b[2J\n", b"a\xff\n", r"in line 1 A prints 'a\x1b[2J', B prints 'a\xff'"),
        ("é\n".encode(), b"e\n", "in line 1 A prints 'é', B prints 'e'"),
        (
            b"x" * 1000 + b"1" + b"y" * 1000,
            b"x" * 1000 + b"2",
            f"in line 1 A prints '…{'x' * 15}1{'y' * 34}…', B prints '…{'x' * 15}2'",
        ),
    ],
)
def test_the_first_line_that_differs_is_shown(first: bytes, second: bytes, where: str) -> None:
    assert differing(first, second) == where


def test_only_the_begin_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "KEPT", 4)
    assert take_in(b"a\nb\nc\n", 1, 3).begin == b"a\nb\n"
    assert differing(b"a\nb\nc\n", b"a\nb\nd\n") == "after the first 4 bytes"
    assert differing(b"a\nb\n", b"a\nb\nd\n") == "after the first 4 bytes"
