# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: the programs it uses, how signals reach it, how long it may take.

What the tests use of Prometheus is the host's, or else what `make setup` has unpacked.

A test that exceeds its limit (`timeout` in pyproject.toml, or `_LIMITS`) fails with the stacks of
all threads, and its fixtures clean up: pytest-timeout does that with SIGALRM. If no Python code
runs that could take the signal (a call into C hangs), the process ends with the stacks a quarter of
the limit later. All runs of a test (`pytest_runtest_protocol`) share its limit.
"""

from __future__ import annotations

import atexit
import faulthandler
import math
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from _pytest.runner import runtestprotocol

from other_work import MISSED_EVENTS, Quiet

_TESTS = Path(__file__).parent
_TOOLS = _TESTS.parent / "build" / "tools" / "usr" / "bin"

os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:{_TOOLS}"
# what the person who runs the tests has set for the commands at the prompt, and whoever traces them
for _name in (
    *("PIPELINED_URL", "PIPELINED_HTTP_CONFIG_FILE", "TRACEPARENT", "TRACESTATE"),
    *(name for name in os.environ if name.startswith("OTEL_")),
):
    os.environ.pop(_name, None)

# what a host takes to start programs is measured once for all tests, and kept for them alone
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="pipelined-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

#: Seconds that each test below a path may take, its fixtures included, if it is not the default.
_LIMITS = {
    "container": 900,  # the first one fills the store of the engine with the image
    "e2e/test_improve.py": 1500,  # a pipeline of a second, run tens of times, on a busy host
    "e2e/test_package.py": 1800,  # makes Debian root directories, and upgrades in them
    "e2e/test_rules_elsewhere.py": 900,
    "experiments": 3600,  # each is measured many times over
    "release": 5400,  # each package is built twice, for two architectures; images too
    "unit/test_rules.py": 900,  # promtool computes for half a minute, if it has a CPU to itself
    "traces": 900,  # Jaeger is away for a minute, and senders come back after another
}

#: Python itself ignores these, and gives programs that it starts the default action.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


@pytest.fixture(scope="session", autouse=True)
def signals_as_usual() -> None:
    """No signal is blocked or ignored, whatever pytest was started from.

    A background job of a script ignores SIGINT and SIGQUIT, what nohup starts SIGHUP, and programs
    that tests start would, too. A handler that does nothing is not inherited: pytest itself goes on
    as if it ignored the signal, and outlives its terminal under nohup. SIGINT gets Python's own.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - set(_IGNORED_BY_PYTHON):
        if signal.getsignal(number) == signal.SIG_IGN:
            interrupts = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if interrupts else lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for path, seconds in _LIMITS.items():
            if item.path.is_relative_to(_TESTS / path):
                item.add_marker(pytest.mark.timeout(seconds))


#: Until when a test may be run again, by `time.monotonic`: then half of its limit is used.
_AGAIN_UNTIL = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, Any, Any]:
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    item.stash[_AGAIN_UNTIL] = time.monotonic() + settings.timeout / 2
    # on a busy host the report of a test that is late takes some seconds
    later = max(1.25 * settings.timeout, settings.timeout + 10)
    faulthandler.dump_traceback_later(later, exit=True, file=stderr)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> Generator[None, Any, Any]:
    faulthandler.cancel_dump_traceback_later()
    return (yield)


#: Runs of one test.
_RUNS_AT_MOST = 12
#: Other work that takes a larger share of the time than this has disturbed a test: the closest
#: bounds of those that are marked are some hundredths of what they measure.
_DISTURBED = 0.03


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a test again if it failed while the kernel itself says why it may.

    A kernel that can preempt a tracepoint's program (7.3) does not run it for other tasks
    meanwhile, and counts that (`pipelined_missed_events_total`): no test can ask for what they
    would have shown. And what is marked `undisturbed` claims shares of a time that other work on
    the machine changes. A failure without either is one, and so is the twelfth, or one that comes
    when half of the limit is used: another run might not end in time.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for left in reversed(range(_RUNS_AT_MOST)):
        before, quiet = _missed_events(item.session), Quiet(_DISTURBED)
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        missed = _missed_events(item.session) - before
        disturbed = item.get_closest_marker("undisturbed") is not None and not quiet
        failed = any(report.failed for report in reports)
        late = time.monotonic() > item.stash.get(_AGAIN_UNTIL, math.inf)
        if not failed or not left or late or not (missed or disturbed):
            break
        why = f"the kernel left out {missed} events" if missed else "other work had the CPUs"
        print(f"\n{item.nodeid}: failed, but {why}: once more")
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _missed_events(session: pytest.Session) -> int:
    return session.stash[MISSED_EVENTS]() if MISSED_EVENTS in session.stash else 0
