# SPDX-License-Identifier: Apache-2.0
"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import pipelined

PACKAGE = Path(pipelined.__file__).parent
MODULES = sorted(
    ".".join(("pipelined", *path.relative_to(PACKAGE).with_suffix("").parts))
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_they_show_what_is_returned(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried and not failed
