# SPDX-License-Identifier: Apache-2.0
"""One observer on real BPF for the whole session, and the means to run pipelines under it.

Needs root and BPF; without them these tests are skipped, or fail when PIPELINED_REQUIRE_BPF=1.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from other_work import MISSED_EVENTS
from pipelined.config import Config
from pipelined.errors import UserError
from pipelined.model.units import find_cgroup2
from pipelined.observer import Observer
from pipelined.runs import STATES, Run, Series, Stage

PROGRAMS = Path(__file__).parent / "programs" / "build"

#: A test that waits longer than this for something has failed (seconds), also on a host where other
#: work has most of the CPUs.
PATIENCE = 20

#: Shell code that waits until the test makes the file `go` in the script's directory.
WAITS = "until [ -e go ]; do sleep 0.05; done"

_PR_SET_CHILD_SUBREAPER = 36


_FINISHED = pytest.StashKey[list[Series]]()


@dataclass(frozen=True)
class Observed:
    """What came of one command, and the runs that were seen of it."""

    runs: list[Run]
    """Runs newly finished, oldest first; outer ones before the inner ones that they began."""
    returncode: int
    stdout: str
    stderr: str
    rusage: resource.struct_rusage
    """Of the command and the children that it waited for."""
    wall_seconds: float

    def only(self, pipeline: str) -> Run:
        """The one run of this signature."""
        found = [run for run in self.runs if run.pipeline == pipeline]
        seen = [run.pipeline for run in self.runs]
        assert len(found) == 1, f"expected one {pipeline}, saw {seen}"
        return found[0]


def wait_for(look: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """What `look` returns, once it is true."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.05)
    return found


def count(seen: Iterable[Series]) -> Counter[tuple[str, bool]]:
    """How many runs there are of each pipeline, and whether nested."""
    return Counter((series.pipeline, series.nested) for series in seen)


class Started:
    """A command that goes on. `finish` waits for it and all that it left behind."""

    def __init__(self, watch: Watch, arguments: Sequence[str], environment: Mapping[str, str]):
        self._watch = watch
        self._stdout = watch.directory / "stdout"
        self._stderr = watch.directory / "stderr"
        self._began = time.monotonic()
        with open(self._stdout, "wb") as stdout, open(self._stderr, "wb") as stderr:
            self._process = subprocess.Popen(
                list(arguments),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=watch.directory,
                env=dict(environment),
                start_new_session=True,
            )
        self.pid = self._process.pid

    def kill(self) -> None:
        """End everything that the command started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def alive(self) -> bool:
        """Whether the command itself has not ended; its status is left for `finish`."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def stderr(self) -> str:
        """What it has written there so far."""
        return self._stderr.read_text(errors="replace")

    def finish(self, timeout: float = 120) -> Observed:
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self.kill()

        timer = threading.Timer(timeout, give_up)
        timer.start()
        try:
            _, status, usage = os.wait4(self.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
            wall = time.monotonic() - self._began
            while True:  # orphans of the command come to us, their subreaper
                try:
                    os.waitpid(-self.pid, 0)
                except ChildProcessError:
                    break
        finally:
            timer.cancel()
            timer.join()
        assert not late.is_set(), f"not over after {timeout} s, killed: {self._process.args}"
        self._watch.settle()
        return Observed(
            runs=self._watch.take_new(),
            returncode=self._process.returncode,
            stdout=self._stdout.read_text(errors="replace"),
            stderr=self.stderr(),
            rusage=usage,
            wall_seconds=wall,
        )


class Watch:
    """Runs commands under the session's observer."""

    def __init__(self, observer: Observer, directory: Path) -> None:
        self.observer = observer
        self.directory = directory
        self._known = {run.id for run in observer.runs()}

    def start(
        self, script: str, shell: str = "bash", environment: Mapping[str, str] | None = None
    ) -> Started:
        """Start a shell script in an empty directory, without any pipe of the test's own."""
        return self.start_command([*shell.split(), "-c", script], environment)

    def start_command(
        self, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Started:
        base = {
            "PATH": f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LC_ALL": "C",
            "SHELL": "/bin/bash",
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory),
        }
        return Started(self, arguments, base | dict(environment or {}))

    def run(
        self,
        script: str,
        shell: str = "bash",
        environment: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> Observed:
        """Run a shell script to its end and see what was observed of it."""
        return self.start(script, shell, environment).finish(timeout)

    def run_traced(self, script: str, prepare: Callable[[], None] = lambda: None) -> Observed:
        """Run a script until the kernel has traced every switch to its stages; see ARCHITECTURE.

        A host that hides some of them (`pipelined_missed_switches_total`) hides most of the
        time none of one run. Where it does, states are exact, but levels are not. `prepare` is
        called before each run.
        """
        for _ in range(30):
            prepare()
            before = self.observer.missed_switches()
            observed = self.run(script)
            if self.observer.missed_switches() == before:
                return observed
        pytest.fail("in each of 30 runs the kernel did not trace some switches")

    def run_command(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> Observed:
        """Run a program, without a shell, to its end and see what was observed of it."""
        return self.start_command(arguments, environment).finish(timeout)

    def drive(self, *arguments: str, live: Sequence[str] = (), timeout: float = 120) -> Observed:
        """Run a driver that, once its pipelines are over, reads the FIFO `gate` to its end.

        The gate is held until no run is live, except those of `live`: every other run must end
        while the driver lives, and the driver's own end must not make another run.
        """
        gate = self.directory / "gate"
        os.mkfifo(gate)
        started = self.start_command(arguments)
        try:
            writer = self._open_gate(gate, started, timeout)
            try:
                self._wait_for_live(live)
                meanwhile = self.take_new()
            finally:
                os.close(writer)
        except BaseException:
            started.kill()
            started.finish()
            raise
        observed = started.finish(timeout)
        assert sorted(run.pipeline for run in observed.runs) == sorted(live)
        return replace(observed, runs=meanwhile + observed.runs)

    def _open_gate(self, gate: Path, started: Started, timeout: float) -> int:
        """The end to write to, once the driver opens the other one."""
        end = time.monotonic() + timeout
        while True:
            try:
                return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
            assert started.alive(), f"the driver ended before its gate: {started.stderr()}"
            assert time.monotonic() < end, f"the driver is not at its gate after {timeout} s"
            time.sleep(0.01)

    def _wait_for_live(self, expected: Sequence[str], seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while True:
            self.observer.settle()
            live = [run.pipeline for run in self.observer.runs() if run.live]
            if sorted(live) == sorted(expected):
                return
            assert time.monotonic() < end, f"live while the driver idles: {live}"
            time.sleep(0.01)

    def counted(self) -> Counter[tuple[str, bool]]:
        """Runs that the totals have counted, as `count` says it."""
        counted: Counter[tuple[str, bool]] = Counter()
        for series, totals in self.observer.totals().items():
            counted[series.pipeline, series.nested] += totals.runs
        return counted

    def settle(self, seconds: float = 0.5, sweeps: int = 10) -> None:
        """Sweep until every run is over, or only such are left as go on.

        A process can be waited for a moment before it leaves its CPU for the last time. A host may
        stall for `seconds` in the first sweep, so there are at least `sweeps` of them.
        """
        end = time.monotonic() + seconds
        while True:
            self.observer.settle()
            sweeps -= 1
            if not any(run.live for run in self.observer.runs()):
                return
            if sweeps <= 0 and time.monotonic() > end:
                return
            time.sleep(0.01)

    def live(self, pipeline: str, seconds: float = PATIENCE) -> Run:
        """The live run of this signature, waited for."""
        end = time.monotonic() + seconds
        while True:
            self.observer.sweep()
            live = [run for run in self.observer.runs() if run.live]
            for run in live:
                if run.pipeline == pipeline:
                    return run
            seen = [run.pipeline for run in live]
            assert time.monotonic() < end, f"no live {pipeline} after {seconds} s, only {seen}"
            time.sleep(0.01)

    def take_new(self) -> list[Run]:
        """Finished runs not handed out before."""
        new = [run for run in self.observer.runs() if not run.live and run.id not in self._known]
        self._known.update(run.id for run in new)
        return sorted(new, key=lambda run: (run.start, run.series.nested, run.id))


def exec_by_a_thread(program: str) -> str:
    """A command that becomes this program by an exec of another thread than the first."""
    text = (
        "import os, threading, time\n"
        f"threading.Thread(target=os.execvp, args=('{program}', ['{program}'])).start()\n"
        "time.sleep(60)"
    )
    return f'python3 -c "{text}"'


def close_to(share: float, seconds: float) -> Callable[[float, float], bool]:
    """Whether two durations agree within a share of the second and some seconds."""
    return lambda seen, true: abs(seen - true) <= share * abs(true) + seconds


#: Seconds that may pass between two events that end or begin the same thing. An emulated processor
#: takes some ten times as long for the code between them.
GAP = 0.01 if os.environ.get("PIPELINED_EMULATED") == "1" else 0.002


def check_conservation(run: Run) -> None:
    """Every second of a run is in one level, every second of a thread in one state."""
    same = close_to(0.005, GAP)
    name = f"{run.pipeline} (run {run.id})"
    levels = sum(run.levels)
    assert same(levels, run.wall_seconds), f"{name}: levels {levels}, wall {run.wall_seconds}"
    assert min(run.levels) >= 0, f"{name}: levels {run.levels}"
    assert run.disk_overlapped_seconds >= 0 and run.disk_alone_seconds >= 0, name
    assert run.disk_wait_seconds <= run.wall_seconds * 1.005 + GAP, name
    if run.end is not None:
        lived = run.end - run.start
        assert same(run.wall_seconds, lived), f"{name}: wall {run.wall_seconds}, lived {lived}"
    for stage in run.stages:
        _check_stage(f"{name}, stage {stage.position} {stage.command}", run, stage)


def _check_stage(name: str, run: Run, stage: Stage) -> None:
    assert set(stage.states) == set(STATES), name
    assert min(stage.states.values()) >= 0, f"{name}: {dict(stage.states)}"
    same = close_to(0.01, GAP)
    mode = stage.user_seconds + stage.system_seconds
    # user and system time are what the scheduler's clock or its ticks say
    assert same(mode, stage.cpu_seconds) or abs(mode - stage.cpu_seconds) <= 0.02 + (
        0.2 * stage.cpu_seconds
    ), f"{name}: user + system {mode}, on CPU {stage.cpu_seconds}"
    assert stage.start >= run.start - GAP, f"{name}: began {run.start - stage.start} s early"
    for counter in (
        stage.read_bytes,
        stage.written_bytes,
        stage.read_calls,
        stage.write_calls,
        stage.sleeps_empty,
        stage.sleeps_full,
        stage.forks,
        stage.execs,
        stage.exited_children,
    ):
        assert counter >= 0, name
    if stage.end is not None:
        assert stage.end >= stage.start, name
        # the root's thread is there from the stage's start, maybe not to its end
        if not stage.forks and not run.partial:
            lived = stage.end - stage.start
            total = stage.lifetime_seconds
            allowed = 0.005 * lived + GAP
            assert total >= lived - allowed, f"{name}: states {total}, lived {lived}"


@pytest.fixture
def make_cgroup() -> Iterator[Callable[[str], Path]]:
    """Makes a cgroup of this name, below the root; it is removed in the end."""
    root = find_cgroup2()
    assert root, "no cgroup v2 is mounted"
    made = []

    def make(name: str) -> Path:
        made.append(path := root / name)
        path.mkdir()
        return path

    yield make
    for path in made:
        with contextlib.suppress(FileNotFoundError):  # a test may have removed it
            path.rmdir()


class Configure(Protocol):
    """Makes a configuration of these options, for the loader that is being tested."""

    def __call__(self, **options: Any) -> Config: ...


def has_functions(observer: Observer) -> bool:
    return all(hook.attached for hook in observer.hooks() if hook.tier == "functions")


@pytest.fixture
def functions(observer: Observer) -> None:
    """The `functions` tier is on; where it is expected its absence is a failure."""
    missing = [f"{h.name}: {h.reason}" for h in observer.hooks() if not h.attached]
    if not has_functions(observer):
        if os.environ.get("PIPELINED_REQUIRE_FUNCTIONS") == "1":
            pytest.fail(f"PIPELINED_REQUIRE_FUNCTIONS=1, but {missing}")
        pytest.skip(f"this kernel lets no program at its functions: {missing[0]}")


@pytest.fixture(scope="session", params=["libbpf", pytest.param("bcc", marks=pytest.mark.thorough)])
def configure(request: pytest.FixtureRequest) -> Configure:
    """Every test of this directory runs once with each loader: both must agree."""

    def configured(**options: Any) -> Config:
        return Config(loader=request.param, **options)

    return configured


@pytest.fixture(scope="session")
def observer(configure: Configure, request: pytest.FixtureRequest) -> Iterator[Observer]:
    """An observer of what this test session starts, and of nothing else on the host."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    finished: list[Series] = []
    request.session.stash[_FINISHED] = finished
    try:
        opened = Observer.open(
            configure(recent_runs=1000),
            own_only=True,
            on_finished=lambda run: finished.append(run.series),
        )
    except UserError as error:
        if os.environ.get("PIPELINED_REQUIRE_BPF") == "1":
            pytest.fail(f"PIPELINED_REQUIRE_BPF=1, but BPF cannot be used: {error}")
        pytest.skip(f"BPF cannot be used: {error}")
    with opened:
        opened.start()
        request.session.stash[MISSED_EVENTS] = lambda: sum(opened.missed_events().values())
        yield opened


@pytest.fixture
def finished(observer: Observer, request: pytest.FixtureRequest) -> list[Series]:
    """What was handed on as finished since the test began; it grows."""
    found = request.session.stash[_FINISHED]
    found.clear()
    return found


@pytest.fixture
def watch(observer: Observer, tmp_path: Path) -> Watch:
    """Runs commands in an empty directory under observation."""
    return Watch(observer, tmp_path)


@pytest.fixture(autouse=True)
def conserved(request: pytest.FixtureRequest, observer: Observer) -> Iterator[None]:
    """After every test: no second missing or counted twice, nothing lost, no failed sweep."""
    known = {run.id for run in observer.runs() if not run.live}
    lost = dict(observer.lost())
    failures = observer.sweep_stats.failures
    yield
    observer.settle()
    for run in observer.runs():
        if run.id not in known:
            check_conservation(run)
    assert observer.sweep_stats.failures == failures
    if not request.node.get_closest_marker("loses"):
        assert dict(observer.lost()) == lost


@pytest.fixture
def entries_left() -> Callable[[Observer], dict[str, int]]:
    """Entries by map once the records of what is over were given back, or after `PATIENCE`."""

    def wait(observer: Observer) -> dict[str, int]:
        end = time.monotonic() + PATIENCE
        while True:
            observer.settle()
            left = {use.name: use.entries for use in observer.maps() if use.name != "commands"}
            if not any(left.values()) or time.monotonic() > end:
                return left
            time.sleep(0.1)

    return wait


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A file of 2,000 short lines, unsorted."""
    path = tmp_path / "lines"
    path.write_text("".join(f"{i * 7919 % 2003} some words of text\n" for i in range(2000)))
    return path
