# SPDX-License-Identifier: Apache-2.0
"""tests/for_every.py: one test for a rule, and nothing that breaks it goes unreported."""

from __future__ import annotations

import pytest

from for_every import for_every


def test_every_case_that_breaks_the_rule_is_reported() -> None:
    @for_every([1, 2, 3, 4])
    def is_odd(number: int) -> None:
        assert number % 2 == 1, "even"

    with pytest.raises(AssertionError) as caught:
        is_odd()
    lines = [line for line in str(caught.value).splitlines() if not line.startswith(" ")]
    assert lines[:3] == [
        "2 of 4 break it:",
        "2: AssertionError: even",
        "4: AssertionError: even",
    ]


def test_another_exception_breaks_the_rule_as_well() -> None:
    @for_every([("a", {}), ("b", {"b": 1})], name=lambda case: case[0])
    def holds(key: str, found: dict[str, int]) -> None:
        assert found[key] == 1

    with pytest.raises(AssertionError, match="1 of 2 break it:\na: KeyError: 'a'"):
        holds()


def test_a_rule_that_all_keep_passes() -> None:
    @for_every([1, 3])
    def is_odd(number: int) -> None:
        assert number % 2 == 1

    is_odd()


def test_a_rule_over_nothing_fails() -> None:
    @for_every([])
    def never(case: object) -> None: ...

    with pytest.raises(AssertionError, match="nothing"):
        never()
