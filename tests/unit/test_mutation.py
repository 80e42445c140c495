# SPDX-License-Identifier: Apache-2.0
"""The changes that `make mutants` makes to a module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mutation.changes import mutants

MODULE = '''"""Text."""
from bisect import bisect_left

MOST = 5


def place(values, value):
    """More text."""
    if not values:
        raise ValueError("none")
    assert len(values) < 9
    return bisect_left(values, value) + 1


class Sums:
    total = 0

    @property
    def small(self):
        return all(one < MOST for one in (self.total,))
'''


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    return path


def changed(module: Path, change: str) -> dict[str, Any]:
    """What the module defines with this change."""
    (mutant,) = [one for one in mutants(module) if one.change == change]
    found: dict[str, Any] = {}
    exec(mutant.code(), found)
    return found


def test_every_change_has_its_line_and_that_of_its_function(module: Path) -> None:
    assert [(one.line, one.function, one.change) for one in mutants(module)] == [
        (4, 0, "5  →  6"),
        (9, 7, "not values  →  values"),
        (10, 7, "raise ValueError('none')  →  pass"),
        (12, 7, "return bisect_left(values, value) + 1  →  return None"),
        (12, 7, "bisect_left(values, value) + 1  →  bisect_left(values, value) - 1"),
        (12, 7, "bisect_left(values, value)  →  __import__('bisect').bisect_right(values, value)"),
        (12, 7, "1  →  2"),
        (16, 0, "0  →  1"),
        (
            20,
            18,
            "all((one < MOST for one in (self.total,)))  →  any((one < MOST for one in "
            "(self.total,)))",
        ),
        (20, 18, "one < MOST  →  one <= MOST"),
        (20, 18, "one < MOST  →  one >= MOST"),
    ]


def test_a_mutant_is_the_module_with_one_change(module: Path) -> None:
    right = "bisect_left(values, value)  →  __import__('bisect').bisect_right(values, value)"
    assert changed(module, "5  →  6")["MOST"] == 6
    found = changed(module, right)
    assert (found["MOST"], found["place"]([1, 2, 2], 2)) == (5, 4)
    assert module.read_text() == MODULE
