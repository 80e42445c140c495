# SPDX-License-Identifier: Apache-2.0
"""Plugins of pytest: which functions each test calls, and running some tests of a file only."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from hypothesis import Phase, settings

__all__ = ["Chosen", "Recorder", "Test", "Where"]

#: A function: its file and the line where it begins. Line 0: anything of the file.
Where = tuple[str, int]


class Test:
    """A test that passed: what it calls, and how much CPU time it took (seconds)."""

    def __init__(self, nodeid: str, calls: Collection[Where], seconds: float) -> None:
        self.nodeid = nodeid
        self.calls = frozenset(calls)
        self.seconds = seconds

    @property
    def file(self) -> str:
        return self.nodeid.partition("::")[0]


class _Repeatable:
    """Hypothesis makes up the same examples each time, and does not look for simpler ones."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        settings.register_profile(
            "mutants",
            settings.default,
            phases=(Phase.explicit, Phase.generate),
            database=None,
            derandomize=True,
        )
        settings.load_profile("mutants")


class Recorder(_Repeatable):
    """Which functions of a package the tests call."""

    def __init__(self, package: Path) -> None:
        self._package = str(package)
        self.tests: list[Test] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._passed = True
        codes: set[CodeType] = set()
        generated: set[str] = set()
        hook = _profiler(codes, generated)
        begun = time.process_time()
        threading.setprofile(hook)
        sys.setprofile(hook)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            if self._passed:
                calls = self._calls(codes, generated)
                self.tests.append(Test(item.nodeid, calls, time.process_time() - begun))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed &= report.outcome == "passed"

    def _calls(self, codes: set[CodeType], generated: set[str]) -> set[Where]:
        own = {code for code in codes if code.co_filename.startswith(self._package)}
        # what dataclasses generate has no file, but the module's globals
        files = {getattr(sys.modules.get(name), "__file__", None) for name in generated}
        return (
            {(code.co_filename, code.co_firstlineno) for code in own}
            | {(code.co_filename, 0) for code in own}
            | {(file, 0) for file in files if file}
        )


def _profiler(codes: set[CodeType], generated: set[str]) -> Callable[[FrameType, str, Any], None]:
    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            codes.add(code)
            if code.co_filename == "<string>":
                name = frame.f_globals.get("__name__", "")
                if name.startswith("pipelined"):
                    generated.add(name)

    return called


class Chosen(_Repeatable):
    """Of the tests that are found, those that are given run."""

    def __init__(self, nodeids: Collection[str]) -> None:
        self._nodeids = frozenset(nodeids)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._nodeids]
