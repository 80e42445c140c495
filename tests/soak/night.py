# SPDX-License-Identifier: Apache-2.0
"""The made-up night: everything on the host that makes pipelines, and how many it made.

All of it are processes of their own without a pipe to the harness, so that the harness is no
stage of anything.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipelined.model.ledger import OTHER
from pipelined.model.units import find_cgroup2

__all__ = [
    *("CONTAINED", "DRIVERS", "FAILING", "JOBS", "TURNS"),
    *("Failed", "Made", "Night", "Started", "container_id", "may_be_made"),
]

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"

#: How often each job may come back: every 16 of the night's minutes.
TURNS = 30
#: Jobs, by the pipeline that each is.
JOBS = tuple(f"dump-{n:02d}|pack-{n:02d}" for n in range(20))
#: Names of the stages of one-liners: enough for 4 million pipelines.
TOOLS = 2000
#: Of the jobs, those that fail in every third turn, with this exit code.
FAILING, EXIT_CODE = JOBS[4::5], 3
#: Of the jobs, those that run in a container: in a cgroup with the name of one of Docker's, with
#: process ids of their own.
CONTAINED = JOBS[2::5]
#: Drivers' pipelines, and whether they are nested: those in `… | tee log` are.
DRIVERS = {"plan|record": False, "compile|assemble": False, "fetch|filter": True}
#: How long whatever was started may take to end (seconds).
PATIENCE = 15.0


class Failed(Exception):
    """Something that the soak needs did not work; the message says what."""


@dataclass(frozen=True)
class Made:
    """How many runs have ended so far."""

    one_liners: int = 0
    pipelines: int = 0
    """Different ones, jobs and drivers included."""
    named: dict[str, int] = field(default_factory=dict)
    """Runs of each job and of each driver's pipeline."""
    failed: dict[str, int] = field(default_factory=dict)
    """Of the runs of each job that fails sometimes, those that did."""

    @property
    def runs(self) -> int:
        return self.one_liners + sum(self.named.values())


class Started:
    """A process in a session of its own; its whole group is ended, and nothing else."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        log: Path,
        directory: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [str(argument) for argument in arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=directory,
                env=environment,
                start_new_session=True,
            )
        self.arguments, self.log = arguments, log

    def ended_well(self, expected: int = 0) -> bool:
        """Whether it has ended; raises Failed if it did with another status than expected."""
        code = self.process.poll()
        if code not in (None, expected):
            end = self.log.read_text(errors="replace")[-500:]
            raise Failed(f"{self.arguments[0]} ended with status {code}: {end}")
        return code is not None

    def ask_to_end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()

    def close(self) -> None:
        """End what is left of its group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is not None:
                break
            os.killpg(self.process.pid, number)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                continue
        # A process whose parent has ended may be left in the group.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


class Night:
    """Makes pipelines in `directory` from `start` to `end`; call `tick` about twice a second."""

    def __init__(self, directory: Path, seconds: float, rate: float, pipelines: int) -> None:
        """For so long; so many one-liners in a second, of so many different pipelines."""
        self._directory = directory
        self._tools = directory / "tools"
        self._stop = directory / "stop"
        self._counts = directory / "one-liners"
        self._rate, self._pipelines = rate, pipelines
        self._turn = seconds / TURNS
        self._began = 0.0
        self._started: list[Started] = []
        self._making: list[Started] = []
        """What makes one pipeline after the other: the one-liners first, then the drivers."""
        self._lasting: list[Started] = []
        self._running: dict[int, tuple[Started, int]] = {}
        """Jobs that are live, with the status that they will end with."""
        self._due = list(due_times(self._turn))
        self._finished, self._failed = dict.fromkeys(JOBS, 0), dict.fromkeys(FAILING, 0)
        root = find_cgroup2()
        if root is None:
            raise Failed("it needs cgroup v2, for the containers")
        self._containers = root / "pipelined-soak.slice"

    def start(self) -> None:
        names = [tool_name(number) for number in range(TOOLS)]
        named = [part for pipeline in (*JOBS, *DRIVERS) for part in pipeline.split("|")]
        self._tools.mkdir()
        tool = self._tools / "tool"
        tool.write_bytes((BUILD / "tool").read_bytes())
        tool.chmod(0o755)
        for name in (*names, *named):
            os.link(tool, self._tools / name)
        self._began = time.monotonic()
        workers = str(len(os.sched_getaffinity(0)))
        one_liners: list[str | Path] = [str(self._rate), str(self._pipelines), workers]
        one_liners += [self._counts, self._tools, *names]
        drivers = HERE / "drivers"
        logged = ["bash", "-c", '"$0" "$@" 2>&1 | tee log >/dev/null']
        self._making = [
            self._start("one-liners", [BUILD / "one_liners", *one_liners]),
            self._start("scheduler", ["python3", drivers / "scheduler.py", *self._driver(0)]),
            self._start("builds", [drivers / "builds.sh", *self._driver(1)]),
            self._start(
                "loop",
                [*logged, drivers / "loop.sh", *self._driver(2)],
            ),
        ]
        (self._directory / "log").touch()
        self._lasting = [
            self._start("sleeps", ["bash", "-c", "sleep infinity | cat; true"]),
            self._start("follows", ["bash", "-c", "tail -f log | grep --line-buffered x; true"]),
        ]

    def tick(self) -> None:
        """Start jobs that are due, count those that ended. Raises Failed if anything failed."""
        passed = time.monotonic() - self._began
        while self._due and self._due[0][0] <= passed:
            self._start_job(*self._due.pop(0)[1:])
        for job, (started, status) in list(self._running.items()):
            if started.ended_well(status):
                self._started.remove(started)
                self._count(job)
        for started in (*self._making, *self._lasting):
            if started.ended_well():
                raise Failed(f"{started.arguments[0]} ended too early: see {started.log}")

    def made(self) -> Made:
        counted = self._counts.read_bytes() if self._counts.exists() else b""
        runs, pipelines = struct.unpack("=QQ", counted) if len(counted) == 16 else (0, 0)
        drivers = {name: _size(self._made(name)) for name in DRIVERS}
        named = {**self._finished, **drivers}
        pipelines += sum(count > 0 for count in named.values())
        return Made(runs, pipelines, named, dict(self._failed))

    def begun(self) -> Made:
        """What was made, with the jobs that are live."""
        made = self.made()
        live = {JOBS[job]: made.named[JOBS[job]] + 1 for job in self._running}
        failing = {
            JOBS[job]: made.failed[JOBS[job]] + 1
            for job, (_, status) in self._running.items()
            if status
        }
        return replace(made, named={**made.named, **live}, failed={**made.failed, **failing})

    def end(self) -> None:
        """End everything between two runs, so that every run that was begun is counted."""
        self._stop.touch()
        self._making[0].ask_to_end()
        waiting = [*((started, 0) for started in self._making), *self._running.values()]
        end = time.monotonic() + PATIENCE
        while not all(started.ended_well(status) for started, status in waiting):
            if time.monotonic() > end:
                raise Failed("the pipelines do not end")
            time.sleep(0.1)
        for job in list(self._running):
            self._count(job)
        self.close()

    def _count(self, job: int) -> None:
        """A job has ended, as it was to end."""
        _, status = self._running.pop(job)
        self._finished[JOBS[job]] += 1
        if status:
            self._failed[JOBS[job]] += 1

    def close(self) -> None:
        """Kill whatever still runs."""
        while self._started:
            self._started.pop().close()
        for cgroup in [*self._containers.glob("docker-*"), self._containers]:
            if cgroup.is_dir():
                cgroup.rmdir()

    def _start(self, name: str, arguments: Sequence[str | Path]) -> Started:
        started = Started(arguments, self._directory / f"{name}.log", self._directory)
        self._started.append(started)
        return started

    def _start_job(self, job: int, turn: int) -> None:
        if job in self._running:
            return  # the host is slow: a job is left out, as cron with a lock does
        name = JOBS[job]
        dump, pack = (self._tools / part for part in name.split("|"))
        status = EXIT_CODE if name in FAILING and turn % 3 == 0 else 0
        line = f"{dump} work {2 + job % 4} | {pack}{f' fail {status}' if status else ''} >/dev/null"
        if name in CONTAINED:
            cgroup = self._containers / f"docker-{container_id(name)}.scope"
            cgroup.mkdir(parents=True, exist_ok=True)
            line = (
                f"echo $$ >{cgroup}/cgroup.procs"
                f" && exec unshare --pid --fork --mount-proc sh -c '{line}'"
            )
        self._running[job] = self._start("jobs", ["sh", "-c", line]), status

    def _made(self, pipeline: str) -> Path:
        return self._directory / f"made-{pipeline.partition('|')[0]}"

    def _driver(self, number: int) -> list[str | Path]:
        return [self._tools, self._made(list(DRIVERS)[number]), self._stop]


def due_times(turn: float) -> Iterator[tuple[float, int, int]]:
    """When each job is due (seconds from the start), its number, and in which turn; in order."""
    for number in range(TURNS):
        for job in range(len(JOBS)):
            if number >= first_turn(job):
                yield (number + job / len(JOBS)) * turn, job, number


def first_turn(job: int) -> int:
    """Five jobs run from the start; the others come when the budget of series is full."""
    return job // 5 * 4


def container_id(job: str) -> str:
    """The id of a job's container, the same in each turn."""
    return hashlib.sha256(job.encode()).hexdigest()


def may_be_made(pipeline: str) -> bool:
    """Whether a pipeline in the metrics may be one that is counted in `Made`: by its name."""
    return (
        pipeline in (OTHER, *JOBS, *DRIVERS)
        or re.fullmatch(r"tool[a-j]{4}(\|tool[a-j]{4}){1,2}", pipeline) is not None
    )


def tool_name(number: int) -> str:
    """A name of letters alone."""
    letters = "abcdefghij"
    return "tool" + "".join(letters[int(digit)] for digit in f"{number:04d}")


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
