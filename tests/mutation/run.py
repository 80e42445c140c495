# SPDX-License-Identifier: Apache-2.0
"""Change the code in one place, run the unit tests that call it, and see whether one fails.

The tests run once as the code is, which shows what each of them calls. Then each mutant runs in a
fork, with the tests that call the fewest functions first. No file is changed.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import pickle
import random
import re
import resource
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

# What is imported here need not be imported in each fork; nothing of the package is.
import flask  # noqa: F401
import pytest
import rich.console  # noqa: F401

from mutation.changes import Mutant, mutants
from mutation.reached import Chosen, Recorder, Test

_ROOT = Path(__file__).parents[2]
_PACKAGE = _ROOT / "daemon" / "pipelined"
_BUILT = _ROOT / "build" / "mutants"
_LIVED = _BUILT / "lived"

#: Modules and folders of the package that are changed.
SUBJECTS = (
    "records",
    "kernel/decoding.py",
    "model",
    "history/rollup.py",
    "history/usual.py",
    "analysis",
)
#: The tests that run are in files that import one of them.
_IMPORTS = re.compile(
    rf"pipelined\.({'|'.join(s.removesuffix('.py').replace('/', '.') for s in SUBJECTS)})\b"
)
#: Seconds of CPU time, as measured before, of the tests that a mutant has to survive. A test that
#: takes longer than the second number runs for none.
_BUDGET, _LONGEST = 6.0, 4.0
#: A mutant that takes longer than this loops: seconds of CPU time, and by the clock.
_CPU_LIMIT, _LIMIT = 20, 200
_MEMORY_LIMIT = 4 << 30

_QUIET = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=short"]
_QUIET += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what is imported here already
_QUIET += ["--assert=plain"]  # why a test failed is of no interest


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="modules whose path has one of these, by comma")
    parser.add_argument("--sample", type=int, help="number of mutants, chosen at random; all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample; 1")
    parser.add_argument("--again", action="store_true", help="of these, those that lived last time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at once; CPUs")
    parser.add_argument("--least", type=float, default=90.0, help="% to be killed, else 1; 90")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    os.chdir(_ROOT)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(_BUILT / "hypothesis")
    _BUILT.mkdir(parents=True, exist_ok=True)

    found = [
        mutant
        for path in _modules()
        if any(part in str(path) for part in options.only.split(","))
        for mutant in mutants(path)
    ]
    if options.sample is not None and options.sample < len(found):
        kept = random.Random(options.seed).sample(range(len(found)), options.sample)
        found = [found[index] for index in sorted(kept)]
    if options.again:
        before = frozenset(_LIVED.read_text().splitlines())
        found = [mutant for mutant in found if _described(mutant) in before]
    tests = _recorded()
    print(f"{len(found)} mutants, {len(tests)} tests", flush=True)
    killed = _try(found, tests, options.jobs)
    lived = [
        _described(mutant) for mutant, is_killed in zip(found, killed, strict=True) if not is_killed
    ]
    _LIVED.write_text("".join(f"{line}\n" for line in lived))
    return _report(found, killed, options.least)


def _modules() -> list[Path]:
    paths = [_PACKAGE / subject for subject in SUBJECTS]
    return [file for path in paths for file in (sorted(path.rglob("*.py")) or [path])]


# -- which tests call what


def _recorded() -> list[Test]:
    """What the tests call: recorded anew for a file of tests that has changed since, or for all."""
    package = max(file.stat().st_mtime for file in _PACKAGE.rglob("*.py"))
    files = {
        path: _BUILT / "calls" / f"{path.stem}.pickle"
        for path in sorted((_ROOT / "tests" / "unit").glob("test_*.py"))
        if _IMPORTS.search(path.read_text())
    }
    stale = {
        path: calls
        for path, calls in files.items()
        if not calls.exists() or calls.stat().st_mtime < max(package, path.stat().st_mtime)
    }
    if stale:
        print(f"running {len(stale)} files of tests as the code is", flush=True)
        if os.waitpid(_fork(lambda: _record(stale)), 0)[1]:
            sys.exit(f"tests fail as the code is: {_BUILT / 'log'}")
    tests = [test for calls in files.values() for test in pickle.loads(calls.read_bytes())]
    again = {str(path.relative_to(_ROOT)) for path in stale}
    # as the mutants run them, where nothing may fail but for a mutant
    if os.waitpid(_fork(lambda: _run(None, [t for t in tests if t.file in again])), 0)[1]:
        sys.exit("tests that passed fail when they run again")
    return tests


def _record(files: Mapping[Path, Path]) -> int:
    recorder = Recorder(_PACKAGE)
    arguments = [*_QUIET, "-m", "not slow", *map(str, files)]
    with (_BUILT / "log").open("w") as log, redirect_stdout(log), redirect_stderr(log):
        code = pytest.main(arguments, plugins=[recorder])
    if code == pytest.ExitCode.OK:
        for path, calls in files.items():
            name = str(path.relative_to(_ROOT))
            calls.parent.mkdir(exist_ok=True)
            calls.write_bytes(pickle.dumps([test for test in recorder.tests if test.file == name]))
    return int(code)


def _tests_of(mutant: Mutant, tests: Sequence[Test]) -> list[Test]:
    """Those that call the mutant's function, the most specific first, up to the budget."""
    short = [test for test in tests if test.seconds < _LONGEST]
    calling = [test for test in short if (str(mutant.path), mutant.function) in test.calls]
    if mutant.function == 0 or not calling:
        # what is made at import is read without a call
        files, module = _importers(mutant.path), (str(mutant.path), 0)
        calling = [test for test in short if module in test.calls or test.file in files]
    left, chosen = _BUDGET, []
    for test in sorted(calling, key=lambda test: len(test.calls)):
        left -= test.seconds
        if left > 0:
            chosen.append(test)
    return chosen


@cache
def _importers(module: Path) -> frozenset[str]:
    """The files of tests that name a module."""
    *package, name = module.relative_to(_PACKAGE.parent).with_suffix("").parts
    dotted = r"\.".join(package)
    naming = re.compile(rf"{dotted}\.{name}\b|from {dotted} import [^)]*\b{name}\b")
    files = (_ROOT / "tests" / "unit").glob("test_*.py")
    return frozenset(str(f.relative_to(_ROOT)) for f in files if naming.search(f.read_text()))


# -- the mutants


@dataclass
class _Running:
    mutant: int
    since: float


def _try(found: Sequence[Mutant], tests: Sequence[Test], jobs: int) -> list[bool]:
    """Whether each was killed."""
    killed = [False] * len(found)
    waiting = list(range(len(found)))
    random.Random(0).shuffle(waiting)  # an interrupted run has tried some of each module
    running: dict[int, _Running] = {}
    done = 0
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                index = waiting.pop()
                mutant, chosen = found[index], _tests_of(found[index], tests)
                child = _fork(lambda mutant=mutant, chosen=chosen: _run(mutant, chosen))
                running[child] = _Running(index, time.monotonic())
            for child, one in list(running.items()):
                ended, status = os.waitpid(child, os.WNOHANG)
                if not ended and time.monotonic() - one.since > _LIMIT:
                    os.killpg(child, signal.SIGKILL)
                    ended, status = os.waitpid(child, 0)
                if ended:
                    del running[child]
                    done += 1
                    killed[one.mutant] = status != 0
                    if not killed[one.mutant]:
                        print(f"[{done}] lives: {_described(found[one.mutant])}", flush=True)
            time.sleep(0.02)
    finally:
        for child in running:
            os.killpg(child, signal.SIGKILL)
    return killed


def _fork(what: Callable[[], int]) -> int:
    """Call it in a process, whose id this is; its status is the result, 1 if it is an error."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        code = what()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class _Changed(importlib.abc.MetaPathFinder):
    """Imports a module from the mutant's code."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        relative = mutant.path.relative_to(_PACKAGE.parent).with_suffix("")
        self._name = ".".join(relative.parts).removesuffix(".__init__")

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = importlib.machinery.SourceFileLoader(fullname, str(self._mutant.path))
        loader.get_code = lambda fullname: self._mutant.code()  # type: ignore[method-assign]
        return importlib.util.spec_from_file_location(fullname, self._mutant.path, loader=loader)


def _run(mutant: Mutant | None, chosen: Sequence[Test]) -> int:
    """0 if all tests pass."""
    if mutant is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_LIMIT, _CPU_LIMIT + 5))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
        sys.meta_path.insert(0, _Changed(mutant))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)
    order = list(dict.fromkeys(test.file for test in chosen))
    by_file = sorted(chosen, key=lambda test: order.index(test.file))
    for file, group in groupby(by_file, key=lambda test: test.file):
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            failed = pytest.main([*_QUIET, file], plugins=[Chosen([t.nodeid for t in group])])
        if failed not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return 1
    return 0


# -- the result


def _described(mutant: Mutant) -> str:
    return f"{mutant.path.relative_to(_PACKAGE)}:{mutant.line}: {mutant.change}"


def _report(found: Sequence[Mutant], killed: Sequence[bool], least: float) -> int:
    tried: Counter[str] = Counter()
    by_module: dict[str, int] = defaultdict(int)
    for mutant, is_killed in zip(found, killed, strict=True):
        module = str(mutant.path.relative_to(_PACKAGE))
        tried[module] += 1
        by_module[module] += is_killed
    for module in sorted(tried):
        print(f"{by_module[module]:5} of {tried[module]:5}  {module}")
    share = 100 * sum(killed) / max(1, len(killed))
    print(f"{sum(killed)} of {len(killed)} mutants were killed: {share:.1f} %")
    return 0 if share >= least else 1


if __name__ == "__main__":
    sys.exit(main())
