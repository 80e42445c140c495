# SPDX-License-Identifier: Apache-2.0
"""What a started process, a small call and a wake-up cost on this host: measured once, and kept.

A run says what its stages took in all, not what starting a program or one call takes. Two loops of
a shell and a ``dd`` of one byte at a time do, in about a tenth of a second of CPU. CPU time is what
counts: other work on the host does not change it much. How long a wake-up takes no CPU time shows:
of many short exchanges with a ``cat`` the quickest one counts, which no other work came between.
The figures are kept in a file until another kernel or another processor runs.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pipelined.analysis.machine import Costs, Host
from pipelined.config.state_directory import default_directory

__all__ = ["FILE", "keep", "kept_by_users", "this_host"]

#: The file with the figures.
FILE = "host-costs.json"
#: How often each loop goes round.
FORKS, PROGRAMS, BYTES = 60, 40, 40_000
#: How often a byte goes to a ``cat`` and back, in each of how many exchanges.
ECHOES, EXCHANGES = 20, 50
#: A file with figures has no more characters.
_MOST = 4096


def kept_by_users(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where the figures are looked for, and kept, when no daemon asks.

    The daemon's directory comes first, so that root is given the same estimates as by the daemon.
    """
    cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or "/", ".cache")
    return default_directory(environment), Path(cache) / "pipelined"


def this_host(directories: tuple[Path, ...] | None = None) -> Host:
    """This machine, with what it takes to start programs.

    The figures are those in the first of the directories that has them, by default those of users;
    if none has, they are measured, and kept in the last one if that exists. That of the user is
    made.
    """
    host = Host.read()
    if directories is None:
        directories = kept_by_users(os.environ)
        with suppress(OSError):
            directories[-1].mkdir(mode=0o700, parents=True, exist_ok=True)
    for directory in directories:
        if costs := _kept(directory, host):
            return replace(host, costs=costs)
    costs = _measured()
    host = replace(host, costs=costs)
    if directories:
        keep(host, directories[-1])
    return host


def keep(host: Host, directory: Path) -> None:
    """Keep what was measured in a directory, if that exists and has no figures of this machine.

    Others see the whole file or none. Without room or permission it is measured again. The file
    belongs to the owner of the directory: root may start what a service goes on with.
    """
    if host.costs is None or _kept(directory, host):
        return
    figures = {name: getattr(host.costs, name) for name in Costs.__slots__}
    new = directory / f"{FILE}.{os.getpid()}"
    with suppress(OSError):
        owner = directory.stat()
        new.unlink(missing_ok=True)
        try:
            with new.open("x") as file:  # the directory may be of another user: no link is followed
                file.write(json.dumps({"machine": _machine(host), "costs": figures}) + "\n")
                if os.geteuid() == 0:
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            new.replace(directory / FILE)
        finally:
            new.unlink(missing_ok=True)  # without room it is empty


def _kept(directory: Path, host: Host) -> Costs | None:
    """The figures of this machine that a directory has."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        with open(directory / FILE, opener=_no_link) as file:
            kept = json.loads(file.read(_MOST))
        if kept["machine"] == _machine(host):
            return Costs(**kept["costs"])
    return None


def _no_link(path: str, flags: int) -> int:
    """Whose directory it is may put there what he likes: no FIFO is waited for."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _machine(host: Host) -> list[object]:
    return [os.uname().release, _processor(), host.cores]


def _processor() -> str:
    """What the kernel calls the processor: the same after the next boot."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    named = ("model name", "CPU implementer", "CPU part")
    return " ".join(
        dict.fromkeys(line.partition(":")[2].strip() for line in lines if line.startswith(named))
    )


def _measured() -> Costs | None:
    """None if the host has no shell, ``cat`` or ``dd``, or does not let us start them."""
    program = shutil.which("cat")
    loop = "i=0; while [ $i -lt {} ]; do {}; i=$((i+1)); done"
    try:
        forks = _cpu_seconds(loop.format(FORKS, "(:)"))
        programs = _cpu_seconds(loop.format(PROGRAMS, f"{program} {os.devnull}"))
        copied = _cpu_seconds(f"dd if=/dev/zero of=/dev/null bs=1 count={BYTES}")
        echo = _echo_seconds(program) if program else None
    except OSError:
        return None
    if echo is None or None in (forks, programs, copied):
        return None
    call = (copied or 0.0) / (2 * BYTES)
    return Costs(
        fork_seconds=_rounded((forks or 0.0) / FORKS),
        program_seconds=_rounded((programs or 0.0) / PROGRAMS),
        call_seconds=_rounded(call),
        # there and back: each time a write, a wake-up and a read
        switch_seconds=_rounded(max(0.0, echo / 2 - 2 * call)),
    )


def _rounded(seconds: float) -> float:
    """As it is kept: who measures has the same figures as who reads them."""
    return float(f"{seconds:.3g}")


def _cpu_seconds(text: str) -> float | None:
    """CPU time of a shell and of all that it starts; None if it fails."""
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    shell = os.posix_spawn("/bin/sh", ["sh", "-c", text], os.environ, file_actions=null)
    _, status, used = os.wait4(shell, 0)
    return None if status else used.ru_utime + used.ru_stime


def _echo_seconds(cat: str) -> float | None:
    """Time that a byte takes to a ``cat`` and back, in the quickest exchange; None if it fails."""
    theirs, ours = os.pipe()
    back, sent = os.pipe()
    child = os.posix_spawn(
        cat,
        ["cat"],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, theirs, 0),
            (os.POSIX_SPAWN_DUP2, sent, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
    )
    os.close(theirs)
    os.close(sent)
    try:
        return min(_exchange(ours, back) for _ in range(EXCHANGES)) / ECHOES
    except OSError:  # it has ended
        return None
    finally:
        os.close(ours)
        os.close(back)
        os.waitpid(child, 0)


def _exchange(ours: int, back: int) -> float:
    began = time.perf_counter()
    for _ in range(ECHOES):
        os.write(ours, b"x")
        if not os.read(back, 1):
            raise BrokenPipeError
    return time.perf_counter() - began
