# SPDX-License-Identifier: Apache-2.0
"""The process that starts commands and asks the host's daemon how they ran.

`pipelined run` and `compare` without root are such processes. While they measure, they have the
name `STARTER_NAME`. The kernel side marks whatever such a process forks with its process id and
start time. Every descendant inherits the mark, also after the processes in between are gone. So
"started by" is a fact about processes: two users who run the same command at the same time each
get their own runs.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pipelined.errors import UserError, why

__all__ = ["NS_PER_TICK", "STARTER_NAME", "Starter", "boot_id", "host_mark", "start_ticks"]

#: The kernel keeps 15 bytes of a name. With a blank, it can be in no list of the configuration.
STARTER_NAME = "pipelined run"

NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
#: Inode numbers of the host's own namespaces (include/linux/proc_ns.h).
_HOST_NAMESPACES = {"pid": 0xEFFFFFFC, "time": 0xEFFFFFFA}


class Starter(NamedTuple):
    """One process in the life of the host."""

    pid: int
    """As the host counts."""
    start_ticks: int
    """When it started, in clock ticks since the boot (`start_ticks`)."""

    @classmethod
    def of(cls, pid: int, start_ns: int) -> Starter:
        """The process with this id and start (nanoseconds of CLOCK_BOOTTIME)."""
        return cls(pid, start_ns // NS_PER_TICK)

    @classmethod
    def become(cls, proc: Path = Path("/proc")) -> Starter:
        """Make this process one. Raises UserError if the daemon could not know it by its id."""
        try:
            for kind, ours in _HOST_NAMESPACES.items():
                namespace = proc / "self/ns" / kind
                if namespace.exists() and namespace.stat().st_ino != ours:
                    raise UserError(
                        f"this process is in a {kind} namespace of its own, such as a container's:"
                        " the daemon does not know it by its process id",
                        "run it on the host itself, or as root",
                    )
            ticks = start_ticks(proc / "self")
            (proc / "self/comm").write_text(STARTER_NAME)
        except OSError as error:
            raise UserError(f"cannot read {proc}/self: {why(error)}") from None
        return cls(os.getpid(), ticks)

    @classmethod
    def parse(cls, text: str) -> tuple[str, Starter]:
        """Boot id and starter of what `address` returns. Raises ValueError."""
        boot, *numbers = text.split(":")
        if not boot or len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
            raise ValueError(f"{text!r} is not BOOT_ID:PID:START_TICKS")
        return boot, cls(int(numbers[0]), int(numbers[1]))

    def address(self, boot: str) -> str:
        """How the API names it: unlike its id alone, that is unique among hosts and boots."""
        return f"{boot}:{self.pid}:{self.start_ticks}"


def start_ticks(entry: Path) -> int:
    """When the process of ``/proc/PID`` started: clock ticks since the boot (CLOCK_BOOTTIME).

    Raises OSError.
    """
    # The second field is the name, which may have blanks, parentheses, and, as the kernel cuts it
    # off after 15 bytes, half a character; the start is field 22.
    return int((entry / "stat").read_bytes().rpartition(b")")[2].split()[19])


def host_mark(name: str, root: Path = Path("/")) -> str:
    """What names this host in all its boots: made of its machine id (machine-id(5), which is not to
    be shown as it is); where it has none, as in a container, of its name."""
    with suppress(OSError):
        name = (root / "etc/machine-id").read_text().strip() or name
    return hashlib.sha256(f"pipelined\n{name}".encode()).hexdigest()[:16]


def boot_id(proc: Path = Path("/proc")) -> str:
    """What names this boot of this host, in containers too."""
    return (proc / "sys/kernel/random/boot_id").read_text().strip()
