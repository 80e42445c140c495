# SPDX-License-Identifier: Apache-2.0
"""A host that is made up: processes, pipes and system calls, and the truth about them.

A process is a generator that yields where another one may run: `None` if it could go on, a `Sleep`
if it cannot. All ids and addresses come again as soon as they can: process ids and memory at once,
the number of a pipe's inode with another address, that of a FIFO with another generation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from signal import SIGPIPE

from hypothesis import reject

from unit.simulated.library import FILES, PIPES, TASKS

# System calls of x86-64 by what they wait for.
READ, WRITE, OPEN, WAIT, NANOSLEEP, PAUSE = 0, 1, 257, 61, 230, 34
DISK = -1
"""No system call: a page of a mapped file."""

CAPACITY = 2
"""Of a pipe, in writes."""

STEP_NS = 20_000
"""What a process does between two places where it may be stopped."""

END_OF_TIME = 1 << 62


class BrokenPipe(Exception):
    """The process is killed by SIGPIPE."""


@dataclass(frozen=True)
class Sleep:
    """What a process sleeps in, and until when."""

    call: int
    fd: int
    over: Callable[[], bool]


Program = Generator["Sleep | None", None, None]


@dataclass(eq=False)
class Pipe:
    at: int
    inode: int
    generation: int = 0
    named: bool = False
    filled: int = 0
    head: int = 0
    tail: int = 0
    readers: int = 0
    writers: int = 0
    opened: list[int] = field(default_factory=lambda: [0, 0])
    """How often for reading, for writing."""
    unlinked: bool = False


@dataclass(eq=False)
class OpenFile:
    at: int
    pipe: Pipe
    writes: bool
    references: int = 0


@dataclass(eq=False)
class Process:
    slot: int
    """Its place in the kernel's memory."""
    pid: int
    start_ns: int
    forked_by: Process | None
    names: list[str]
    """All that it ever had, its parent's first."""
    files: dict[int, OpenFile] = field(default_factory=dict)
    private: set[int] = field(default_factory=set)
    """Descriptors that an exec closes."""
    children: list[Process] = field(default_factory=list)
    life: Program | None = None
    sleep: Sleep | None = None
    zombie: bool = False
    """Its parent may reap it; it may still be on its CPU."""
    reaped: bool = False
    """Its id is free."""
    alive: bool = True
    held_standard: bool = False
    """It ever had a pipe as its stdin or stdout, or used one as a program that is joined by it."""
    settled_ns: int = END_OF_TIME
    """It has the pipes that it uses since then, or is another program."""
    end_ns: int = END_OF_TIME
    exit_status: int = 0
    """What wait() says of it, once it has begun to exit."""
    exit_ns: int = END_OF_TIME

    def above(self) -> Iterator[Process]:
        """This process, the one that forked it, and so on."""
        at: Process | None = self
        while at:
            yield at
            at = at.forked_by

    def __repr__(self) -> str:
        return f"{'>'.join(self.names)}[{self.pid}]"


class Host:
    """All processes and pipes; each method is what a process does while it runs."""

    def __init__(self, programs: ctypes.CDLL) -> None:
        self.kernel = programs
        self.processes: list[Process] = []
        """All that ever were, in the order of their forks."""
        self._alive: list[Process] = []
        self._pids = set(range(2, TASKS + 2))
        self._slots = list(range(TASKS))[::-1]
        self._places = list(range(PIPES))[::-1]
        self._file_places = list(range(FILES))[::-1]
        self._inodes = dict.fromkeys(range(PIPES), 0)
        self._generations = 0
        self._kept: list[Callable[[], None]] | None = None
        """What to give back once the program that is stopped has ended."""
        slot = self._slots.pop()
        self.init = Process(slot, 1, self.kernel.fork_task(slot, 1, -1), None, ["init"])
        self.kernel.exec_begins(slot, b"init", b"init")
        self._add(self.init)

    @property
    def now(self) -> float:
        return self.kernel.now() * 1e-9

    # -- scheduling

    def runnable(self) -> list[Process]:
        return [process for process in self._alive if process.life and not process.sleep]

    def is_idle(self) -> bool:
        """Nothing will happen any more."""
        return len(self._alive) == 1 and self.init.life is None

    def pass_time(self, ns: int) -> None:
        self.kernel.pass_time(ns)
        self._wake()

    def step(self, process: Process) -> None:
        """The process runs to the next place where another one may, or until it sleeps or ends."""
        assert process.life
        cpu = process.slot % 2
        self.kernel.switch_to(cpu, process.slot)
        self.kernel.pass_time(STEP_NS)
        try:
            sleep = next(process.life)
            while sleep and sleep.over():
                sleep = next(process.life)
        except StopIteration:
            process.life = None
            if process is self.init:
                self._sleep(process, Sleep(PAUSE, 0, lambda: False))
            else:
                self._end(process)
        else:
            if sleep:
                self._sleep(process, sleep)
        self._wake()

    def _sleep(self, process: Process, sleep: Sleep) -> None:
        process.sleep = sleep
        self.kernel.fall_asleep(process.slot, sleep.call, sleep.fd)
        self.kernel.switch_to(process.slot % 2, -1)

    def _wake(self) -> None:
        for process in self._alive:
            if process.sleep and process.sleep.over():
                process.sleep = None
                self.kernel.wake(process.slot, (process.slot + len(self.processes)) % 2)

    # -- processes

    def fork(self, parent: Process, program: Callable[[Process], Program]) -> Process:
        for file in parent.files.values():
            self._refer(file, 1)
        if not self._slots:
            reject()  # more processes at once than there are places
        slot, pid = self._slots.pop(), min(self._pids)
        self._pids.remove(pid)
        start = self.kernel.fork_task(slot, pid, parent.slot)
        child = Process(
            slot, pid, start, parent, parent.names[-1:], dict(parent.files), set(parent.private)
        )
        child.held_standard = any(fd in child.files for fd in (0, 1))
        child.life = self._life(child, program(child))
        parent.children.append(child)
        self._add(child)
        return child

    def _add(self, process: Process) -> None:
        self.processes.append(process)
        self._alive.append(process)

    def exec(
        self, process: Process, name: str, arguments: str = "", script: bool = False
    ) -> Program:
        for fd in sorted(process.private & process.files.keys()):
            self.close(process, fd)
        process.names.append(name)
        self.kernel.exec_begins(process.slot, name.encode(), (arguments or name).encode())
        yield None
        self.kernel.exec_ends(process.slot, script)
        process.settled_ns = min(process.settled_ns, self.kernel.now())
        yield None

    def reap_ended(self, process: Process) -> None:
        """As a shell does whenever a child ends."""
        for child in [child for child in process.children if child.zombie]:
            self._reap(process, child)

    def wait(self, process: Process, child: Process) -> Program:
        if not child.zombie:
            yield Sleep(WAIT, 0, lambda: child.zombie)
        if child in process.children:
            self._reap(process, child)

    def _life(self, process: Process, program: Program) -> Program:
        process.exit_status = len(self.processes) * 37 % 256 << 8
        try:
            yield from program
        except BrokenPipe:
            process.exit_status = SIGPIPE
        process.exit_ns = self.kernel.now()
        self.kernel.exit_begins(process.slot, process.exit_status, len(self.processes) % 2)
        yield None
        for fd in sorted(process.files):
            self.close(process, fd)
        yield None
        for child in process.children:
            self.kernel.set_parent(child.slot, self.init.slot)
            self.init.children.append(child)
        process.children = []
        process.zombie = True
        self.reap_ended(self.init)
        yield None
        self.kernel.exit_ends(process.slot)

    def _end(self, process: Process) -> None:
        self.kernel.switch_to(process.slot % 2, -1)
        process.alive = False
        process.end_ns = self.kernel.now()
        self._alive.remove(process)
        if process.reaped:
            self._free(process)

    def _reap(self, parent: Process, child: Process) -> None:
        parent.children.remove(child)
        child.reaped = True
        self.kernel.unlist_task(child.slot)
        self._pids.add(child.pid)
        if not child.alive:
            self._free(child)

    def _free(self, process: Process) -> None:
        if self._kept is not None:
            self._kept.append(lambda: self._free(process))
            return
        self.kernel.free_task(process.slot)
        self._slots.append(process.slot)

    @contextmanager
    def nothing_reused(self) -> Iterator[None]:
        """While a program may be stopped, memory that it has found stays as it is (RCU)."""
        self._kept = kept = []
        yield
        self._kept = None
        for free in kept:
            free()

    def _reuse(self, places: list[int], place: int) -> None:
        if self._kept is not None:
            self._kept.append(lambda: places.append(place))
        else:
            places.append(place)

    # -- files

    def pipe(self, process: Process) -> tuple[int, int]:
        """A new pipe; descriptors that read and write it."""
        at = self._places.pop()
        self._inodes[at] += 1
        pipe = Pipe(at, 100 + self._inodes[at])
        self.kernel.make_pipe(at, pipe.inode, 0, 0)
        return self._open(process, pipe, False), self._open(process, pipe, True)

    def fifo(self) -> Pipe:
        """A new FIFO of the file system, whose inode numbers are few."""
        self._generations += 1
        at = self._places.pop()
        pipe = Pipe(at, 7 + self._generations % 2, self._generations, named=True)
        self.kernel.make_pipe(at, pipe.inode, pipe.generation, 1)
        return pipe

    def unlink(self, fifo: Pipe) -> None:
        fifo.unlinked = True
        self._forget(fifo)

    def open(
        self, process: Process, fifo: Pipe, writes: bool
    ) -> Generator[Sleep | None, None, int]:
        """Open a FIFO, which waits for the other side."""
        fd = self._open(process, fifo, writes)
        others = fifo.opened[not writes]
        if not (fifo.readers if writes else fifo.writers):
            yield Sleep(OPEN, 0, lambda: fifo.opened[not writes] != others)
        return fd

    def _open(self, process: Process, pipe: Pipe, writes: bool) -> int:
        file = OpenFile(self._file_places.pop(), pipe, writes)
        pipe.opened[writes] += 1
        if writes:
            pipe.writers += 1
        else:
            pipe.readers += 1
        self.kernel.open_file(file.at, pipe.at, writes)
        self._show(pipe)
        fd = next(fd for fd in range(3, 64) if fd not in process.files)
        self._install(process, fd, file)
        return fd

    def _install(self, process: Process, fd: int, file: OpenFile) -> None:
        self._refer(file, 1)
        process.files[fd] = file
        process.private.discard(fd)
        process.held_standard |= fd < 2
        self.kernel.set_descriptor(process.slot, fd, file.at)

    def move(self, process: Process, fd: int, to: int) -> None:
        """dup2 and close."""
        file = process.files[fd]
        self.close(process, to)
        self._install(process, to, file)
        self.close(process, fd)

    def close(self, process: Process, fd: int) -> None:
        file = process.files.pop(fd, None)
        if file:
            self.kernel.set_descriptor(process.slot, fd, -1)
            self._refer(file, -1)

    def _refer(self, file: OpenFile, change: int) -> None:
        file.references += change
        self.kernel.set_references(file.at, file.references)
        if file.references:
            return
        self._reuse(self._file_places, file.at)
        if file.writes:
            file.pipe.writers -= 1
        else:
            file.pipe.readers -= 1
        self._show(file.pipe)
        self._forget(file.pipe)

    def _show(self, pipe: Pipe) -> None:
        self.kernel.set_pipe(pipe.at, pipe.head, pipe.tail, pipe.readers, pipe.writers)

    def _forget(self, pipe: Pipe) -> None:
        if not (pipe.readers or pipe.writers):
            pipe.filled = pipe.head = pipe.tail = 0
            if pipe.unlinked or not pipe.named:
                self._reuse(self._places, pipe.at)

    def read(self, process: Process, fd: int) -> Generator[Sleep | None, None, int]:
        """How many writes came through the pipe; 0 at its end. All other files are empty."""
        pipe = process.files[fd].pipe if fd in process.files else None
        if pipe and not pipe.filled and pipe.writers:
            yield Sleep(READ, fd, lambda: bool(pipe.filled) or not pipe.writers)
        got = 0
        if pipe:
            got, pipe.filled = pipe.filled, 0
            pipe.tail += got
            self._show(pipe)
        self.kernel.count_call(process.slot, False, got * 4096)
        return got

    def write(self, process: Process, fd: int) -> Program:
        pipe = process.files[fd].pipe if fd in process.files else None
        if pipe and pipe.filled == CAPACITY and pipe.readers:
            yield Sleep(WRITE, fd, lambda: pipe.filled < CAPACITY or not pipe.readers)
        if pipe:
            if not pipe.readers:
                raise BrokenPipe
            pipe.filled += 1
            pipe.head += 1
            self._show(pipe)
        self.kernel.count_call(process.slot, True, 4096)

    def until(self, over: Callable[[], bool]) -> Program:
        yield Sleep(NANOSLEEP, 0, over)

    def pause(self, seconds: float) -> Program:
        until = self.kernel.now() + round(seconds * 1e9)
        yield from self.until(lambda: self.kernel.now() >= until)

    def wait_for_disk(self) -> Program:
        until = self.kernel.now() + 3_000_000
        yield Sleep(DISK, 0, lambda: self.kernel.now() >= until)
