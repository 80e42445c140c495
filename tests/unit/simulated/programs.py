# SPDX-License-Identifier: Apache-2.0
"""What runs on the simulated host, and which pipelines that makes by the rules of docs/CONCEPTS.md.

A command is executed by a process that a shell has forked for it, or by the shell itself if it
forks children.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipelined.model.signature import arrange
from unit.simulated.host import Host, Pipe, Process, Program


@dataclass(frozen=True)
class Run:
    """A program: reads its stdin to the end, writes as often itself."""

    name: str
    writes: int = 1
    seconds: float = 0
    """It sleeps."""
    disk: bool = False
    closes: bool = False
    """Its stdin, before it exits."""
    only_first: bool = False
    """It reads once, as head does."""


@dataclass(frozen=True)
class Builtin:
    """A program without an exec: a function or a loop of the shell."""

    writes: int = 1


@dataclass(frozen=True)
class Wrapped:
    """A program that forks another one and waits for it, as timeout does."""

    wrapper: str
    command: Run


@dataclass(frozen=True)
class Pipeline:
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Group:
    """A list of commands, in a subshell if it is a part of a pipeline."""

    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Background:
    """`command &`: the shell goes on, and may end."""

    command: Command
    quiet: bool = False
    """Its output goes elsewhere."""


@dataclass(frozen=True)
class Capture:
    """`x=$(command)`."""

    command: Command


@dataclass(frozen=True)
class Tee:
    """`tee >(reader) …`: the shell forks the readers, then becomes tee."""

    readers: tuple[Run, ...]
    writes: int = 1


@dataclass(frozen=True)
class Reader:
    """A python3 that reads from children of its own, one after the other."""

    children: tuple[Run, ...]


@dataclass(frozen=True)
class Feeder:
    """A python3 that writes to children of its own, one after the other."""

    children: tuple[Run, ...]
    writes: int = 2


@dataclass(frozen=True)
class Conversation:
    """A python3 that asks a child and reads its answer."""

    child: Run


@dataclass(frozen=True)
class Jobs:
    """`writer > fifo & reader < fifo`, job after job through the same FIFO."""

    writer: Run
    reader: Run
    count: int = 1


Command = (
    Run
    | Builtin
    | Wrapped
    | Pipeline
    | Group
    | Background
    | Capture
    | Tee
    | Reader
    | Feeder
    | Conversation
    | Jobs
)


@dataclass(eq=False)
class Started:
    """A pipeline that was started, as the rules have it."""

    around: Started | None
    certain: bool = True
    """It must be seen; else it may."""
    stages: list[Process] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)

    @property
    def signature(self) -> str:
        return arrange(self.names, self.edges).signature

    def add(self, stage: Process, name: str) -> int:
        """The stage's place."""
        self.stages.append(stage)
        self.names.append(name)
        return len(self.stages) - 1


def _name(command: Command, shell: Process) -> str:
    """What the stage is called that executes the command in the end."""
    match command:
        case Run(name):
            return name
        case Wrapped(_, inner):
            return inner.name
        case Tee():
            return "tee"
        case Reader() | Feeder() | Conversation():
            return "python3"
        case _:
            return shell.names[-1]


class Shells:
    """Executes commands on a host and notes the pipelines that they make."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.started: list[Started] = []
        self._part_of: dict[Process, Started] = {}

    def boot(self, scripts: Sequence[tuple[str, Command]]) -> Program:
        """What process 1 does: a shell for each script."""
        host = self._host
        for shell, command in scripts:
            host.fork(
                host.init, lambda p, shell=shell, command=command: self._login(p, shell, command)
            )
            yield None

    def _login(self, p: Process, shell: str, command: Command) -> Program:
        yield from self._host.exec(p, shell)
        yield from self.execute(p, command)

    def execute(self, p: Process, command: Command) -> Program:
        match command:
            case Run():
                yield from self._run(p, command)
            case Builtin(writes):
                yield from self._filter(p, writes)
            case Wrapped(wrapper, inner):
                yield from self._host.exec(p, wrapper)
                child = self._host.fork(p, lambda c: self._run(c, inner))
                yield from self._host.wait(p, child)
            case Pipeline(commands):
                yield from self._pipeline(p, commands)
            case Group(commands):
                for each in commands:
                    yield from self._in_shell(p, each)
            case Tee():
                yield from self._tee(p, command, self._start(p))
            case Reader(children):
                yield from self._reader(p, children)
            case Feeder(children, writes):
                yield from self._feeder(p, children, writes)
            case Conversation(child):
                yield from self._conversation(p, child)
            case _:
                yield from self._in_shell(p, command)

    def _in_shell(self, shell: Process, command: Command) -> Program:
        """A command of the shell's own list."""
        host = self._host
        match command:
            case Pipeline(commands):
                yield from self._pipeline(shell, commands)
            case Builtin(writes):
                yield from self._filter(shell, writes)
            case Background(inner, quiet):
                host.fork(shell, lambda c: self._background(c, inner, quiet))
                yield None
            case Capture(inner):
                yield from self._capture(shell, inner)
            case Jobs():
                yield from self._jobs(shell, command)
            case _:
                child = host.fork(shell, lambda c: self.execute(c, command))
                yield from host.wait(shell, child)

    # -- programs

    def _run(self, p: Process, run: Run) -> Program:
        yield from self._host.exec(p, run.name)
        yield from self._work(p, run)

    def _work(self, p: Process, run: Run) -> Program:
        host = self._host
        if run.seconds:
            yield from host.pause(run.seconds)
        if run.disk:
            yield from host.wait_for_disk()
        yield from self._filter(p, run.writes, run.only_first)
        if run.closes:
            host.close(p, 0)
            yield None

    def _filter(self, p: Process, writes: int, only_first: bool = False) -> Program:
        host = self._host
        while 0 in p.files:
            got = yield from host.read(p, 0)
            yield None
            if not got:
                break
            if 1 in p.files:
                yield from host.write(p, 1)
            if only_first:
                break
        for _ in range(writes):
            yield from host.write(p, 1)
            yield None

    # -- what shells do

    def _start(self, by: Process, *, certain: bool = True) -> Started:
        around = next((self._part_of[p] for p in by.above() if p in self._part_of), None)
        started = Started(around, certain)
        self.started.append(started)
        return started

    def _pipeline(self, shell: Process, commands: tuple[Command, ...]) -> Program:
        host, started = self._host, self._start(shell)
        before: int | None = None
        children: list[Process] = []
        for i, command in enumerate(commands):
            ends = host.pipe(shell) if i < len(commands) - 1 else None
            child = host.fork(shell, self._part(command, before, ends, started))
            place = started.add(child, _name(command, shell))
            self._part_of[child] = started
            if children:
                started.edges.append((started.stages.index(children[-1]), place))
            children.append(child)
            if before is not None:
                host.close(shell, before)
            if ends:
                host.close(shell, ends[1])
                before = ends[0]
            yield None
            host.reap_ended(shell)
        for child in children:
            yield from host.wait(shell, child)

    def _part(
        self,
        command: Command,
        stdin: int | None,
        stdout: tuple[int, int] | None,
        started: Started,
    ) -> Callable[[Process], Program]:
        def program(p: Process) -> Program:
            host = self._host
            yield None
            if stdin is not None:
                host.move(p, stdin, 0)
            if stdout:
                host.close(p, stdout[0])
                host.move(p, stdout[1], 1)
            yield None
            p.settled_ns = host.kernel.now()
            if isinstance(command, Tee):
                yield from self._tee(p, command, started)
            else:
                yield from self.execute(p, command)

        return program

    def _background(self, p: Process, command: Command, quiet: bool) -> Program:
        host = self._host
        host.close(p, 0)
        if quiet:
            host.close(p, 1)
        yield None
        yield from self.execute(p, command)

    def _capture(self, shell: Process, command: Command) -> Program:
        host = self._host
        reads, writes = host.pipe(shell)

        def program(p: Process) -> Program:
            host.close(p, reads)
            host.move(p, writes, 1)
            yield None
            yield from self.execute(p, command)

        child = host.fork(shell, program)
        host.close(shell, writes)
        while (yield from host.read(shell, reads)):
            yield None
        host.close(shell, reads)
        yield from host.wait(shell, child)

    def _tee(self, p: Process, tee: Tee, started: Started) -> Program:
        host = self._host
        if p not in started.stages:
            started.add(p, "tee")
            self._part_of[p] = started
        place = started.stages.index(p)
        fds = []
        for run in tee.readers:
            reads, fd = host.pipe(p)
            child = host.fork(p, self._substituted(run, reads, fd))
            started.edges.append((place, started.add(child, run.name)))
            self._part_of[child] = started
            host.close(p, reads)
            fds.append(fd)
            yield None
        p.held_standard = True
        yield from host.exec(p, "tee", " ".join(["tee", *(f"/dev/fd/{fd}" for fd in fds)]))
        for _ in range(tee.writes):
            for fd in fds:
                yield from host.write(p, fd)
            if 1 in p.files:
                yield from host.write(p, 1)
        while 0 in p.files and (yield from host.read(p, 0)):
            for fd in fds:
                yield from host.write(p, fd)

    def _substituted(self, run: Run, reads: int, writes: int) -> Callable[[Process], Program]:
        def program(p: Process) -> Program:
            self._host.close(p, writes)
            self._host.move(p, reads, 0)
            yield None
            self._host.close(p, 1)  # `> file`, after a moment in which tee's stdout is its own
            yield None
            yield from self._run(p, run)

        return program

    def _jobs(self, shell: Process, jobs: Jobs) -> Program:
        host = self._host
        fifo = host.fifo()
        for _ in range(jobs.count):
            started = self._start(shell)
            children = [
                host.fork(shell, self._job(jobs.writer, fifo, True)),
                host.fork(shell, self._job(jobs.reader, fifo, False)),
            ]
            for child, run in zip(children, (jobs.writer, jobs.reader), strict=True):
                started.add(child, run.name)
                self._part_of[child] = started
            started.edges.append((0, 1))
            for child in children:
                yield from self._wait_long(shell, child)
        host.unlink(fifo)

    def _job(self, run: Run, fifo: Pipe, writes: bool) -> Callable[[Process], Program]:
        def program(p: Process) -> Program:
            fd = yield from self._host.open(p, fifo, writes)
            self._host.move(p, fd, int(writes))
            yield None
            yield from self._run(p, run)

        return program

    def _wait_long(self, p: Process, child: Process) -> Program:
        """Until the child has left its CPU: its stage lives till then, and may be joined."""
        yield from self._host.wait(p, child)
        yield from self._host.until(lambda: not child.alive)

    # -- drivers

    def _reader(self, p: Process, children: tuple[Run, ...]) -> Program:
        host = self._host
        yield from host.exec(p, "python3")
        p.held_standard = True
        for run in children:
            reads, writes = host.pipe(p)
            p.private |= {reads, writes}
            child = host.fork(p, self._child(run, {1: writes}))
            self._driven(p, child, run, (1, 0))
            host.close(p, writes)
            while (yield from host.read(p, reads)):
                yield None
            host.close(p, reads)
            yield from self._wait_long(p, child)

    def _feeder(self, p: Process, children: tuple[Run, ...], count: int) -> Program:
        host = self._host
        yield from host.exec(p, "python3")
        p.held_standard = True
        for run in children:
            reads, writes = host.pipe(p)
            p.private |= {reads, writes}
            child = host.fork(p, self._child(run, {0: reads}))
            self._driven(p, child, run, (0, 1))
            host.close(p, reads)
            for _ in range(count):
                yield from host.write(p, writes)
                yield None
            host.close(p, writes)
            yield from self._wait_long(p, child)

    def _driven(self, p: Process, child: Process, run: Run, edge: tuple[int, int]) -> None:
        started = self._start(p, certain=False)
        started.add(p, "python3")
        started.add(child, run.name)
        started.edges.append(edge)
        self._part_of[child] = started

    def _child(self, run: Run, standard: dict[int, int]) -> Callable[[Process], Program]:
        def program(p: Process) -> Program:
            for to, fd in standard.items():
                self._host.move(p, fd, to)
            yield None
            yield from self._run(p, run)

        return program

    def _conversation(self, p: Process, run: Run) -> Program:
        host = self._host
        yield from host.exec(p, "python3")
        asked, asks = host.pipe(p)
        answers, answered = host.pipe(p)
        failures, fails = host.pipe(p)  # Popen's own, to learn of a failed exec
        p.private |= {asked, asks, answers, answered, failures, fails}
        child = host.fork(p, self._child(run, {0: asked, 1: answered}))
        for fd in (asked, answered, fails):
            host.close(p, fd)
        yield from host.read(p, failures)
        host.close(p, failures)
        yield from host.write(p, asks)
        host.close(p, asks)
        while (yield from host.read(p, answers)):
            yield None
        host.close(p, answers)
        yield from host.wait(p, child)
