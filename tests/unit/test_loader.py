# SPDX-License-Identifier: Apache-2.0
"""Which optional programs the loader goes without, and that it comes to an end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelined import loader
from pipelined.errors import UserError


@pytest.mark.parametrize("trace_exec_failures", [False, True])
@pytest.mark.parametrize("functions", [False, True])
@pytest.mark.parametrize("kprobes", [False, True])
def test_where_everything_is_forbidden_it_gives_up(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trace_exec_failures: bool,
    functions: bool,
    kprobes: bool,
) -> None:
    tried: list[frozenset[str]] = []

    def refuse(lib: object, path: Path, sizes: object, optional: Mapping[str, Any]) -> None:
        assert frozenset(optional) not in tried, "tried before, in vain"
        tried.append(frozenset(optional))
        if optional:
            raise loader._OptionalRefused("on_switch", "not permitted", forbidden=True)
        raise UserError("not permitted")

    monkeypatch.setattr(loader, "_load", refuse)
    monkeypatch.setattr(loader, "_KPROBES", tmp_path if kprobes else tmp_path / "none")
    built = tmp_path / "pipelined.bpf.o"
    built.touch()
    with pytest.raises(UserError, match="not permitted"):
        loader.load(built, {}, trace_exec_failures=trace_exec_failures, functions=functions)
    assert tried[-1] == frozenset()
