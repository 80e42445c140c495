# SPDX-License-Identifier: Apache-2.0
"""Who listens where a daemon of this host would: a daemon, another program, or nobody.

No answer makes a host unfit: the daemon that runs may be the one that listens, and the port can be
chosen.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pipelined.config import Address, Config
from pipelined.config.state_directory import SERVICE_CONFIG
from pipelined.config.toml_file import load
from pipelined.doctor.check import Check
from pipelined.doctor.port import has_flag, is_closed, service_config
from pipelined.errors import UserError
from pipelined.http_port.listening import is_of_this_host, resolved
from pipelined.model.users import Users

__all__ = ["Reply", "listener_check"]

#: The state of a socket that listens, in the kernel's tables.
_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a port was heard to say."""

    is_daemon: bool
    """It answers as a daemon does."""
    is_silent: bool = False
    """It does not answer at all."""
    refusal: str = ""
    """Why it is not known to be a daemon."""


class _Owner(NamedTuple):
    """The process that has a socket."""

    pid: int
    command: str
    is_daemon: bool

    def __str__(self) -> str:
        return f"PID {self.pid} ({self.command})"


def listener_check(root: Path, ask: Callable[[Address], Reply] | None) -> Iterator[Check]:
    """Nothing if it is not known where a daemon would listen. Without `ask` nobody is asked."""
    address = _listen_address(root)
    if address is None:
        return
    name = f"port {address.port}"
    sockets = _listening(root / "proc/net", address)
    if sockets is None:
        yield Check(name, "unknown", "no /proc/net/tcp")
        return
    if not sockets and not is_of_this_host(address):
        yield Check(
            name,
            "off",
            f"this host has no such address: {address.host}",
            f"give one that `ip address` shows: {_option(root)}",
        )
        return
    if not sockets:
        yield Check(name, "ok", f"free: nothing listens on {address}")
        return
    reply = ask(address) if ask else Reply(is_daemon=False, refusal="not asked")
    users = _named(sockets.values())
    if reply.is_daemon:
        yield Check(name, "ok", f"a daemon of {users} answers at {address}")
        return
    owner = _owner(root / "proc", sockets)
    if owner is None:
        yield Check(
            name,
            "unknown",
            f"taken, and not known to be a daemon: {reply.refusal}",
            f"see by whom it is taken: sudo ss -ltnp sport = :{address.port}",
        )
    elif not owner.is_daemon:
        yield Check(
            name,
            "off",
            f"{address} is taken by {owner}",
            f"stop that program, or choose another port: {_option(root)}",
        )
    elif reply.is_silent:
        yield Check(
            name,
            "off",
            f"the daemon of {users}, {owner}, has {address} and does not answer",
            "see why in its log, for the service: journalctl -u pipelined",
        )
    else:
        found = f"the daemon of {users}, {owner}, listens on {address}: {reply.refusal}"
        yield Check(name, "ok", found)


def _option(root: Path) -> str:
    """What chooses the port."""
    if os.path.exists(service_config(root)):
        return f"listen-address in {SERVICE_CONFIG}"
    return "--web.listen-address"


def _listen_address(root: Path) -> Address | None:
    """Where the service listens, or without its configuration any daemon by default.

    None if flags may say where, if that may not be read or is wrong (`port_check` reports it), or
    any free port.
    """
    file = service_config(root)
    if is_closed(file.parent) or has_flag(root, r"config\b|web\.listen-address"):
        return None
    try:
        config = load(file) if os.path.exists(file) else Config()
        address = resolved(config.web_listen_address)
    except UserError:
        return None
    return address if address.port else None


def _named(uids: Iterable[int]) -> str:
    """Users, whose program may call itself a daemon: ``user root``."""
    known = Users()
    return " and ".join(f"user {known.name(uid) or uid}" for uid in dict.fromkeys(uids))


def _listening(tables: Path, address: Address) -> dict[str, int] | None:
    """The sockets that keep a daemon from listening there: their inodes, and whose they are.

    None if the kernel's tables cannot be read.
    """
    wanted = ipaddress.ip_address(address.host.partition("%")[0])
    found: dict[str, int] | None = None
    for table in ("tcp", "tcp6"):
        try:
            lines = (tables / table).read_text().splitlines()[1:]
        except OSError:
            continue
        found = found or {}
        for line in lines:
            # sl, local address, remote one, state, queues, timer, retransmissions, uid, …, inode
            _, local, _, state, _, _, _, uid, _, inode = line.split()[:10]
            host, _, port = local.partition(":")
            if (state, int(port, 16)) == (_LISTEN, address.port) and _collide(_ip(host), wanted):
                found[inode] = int(uid)
    return found


_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def _ip(digits: str) -> _Ip:
    """An address of the tables: words of 32 bits in the byte order of this host."""
    words = (int(digits[at : at + 8], 16) for at in range(0, len(digits), 8))
    ip = ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
    return getattr(ip, "ipv4_mapped", None) or ip


def _collide(taken: _Ip, wanted: _Ip) -> bool:
    """Whether a socket at `taken` keeps another from `wanted`, both of one port.

    All addresses of IPv6 include those of IPv4, as a daemon at `::` has them. A program may have
    left them out, which the tables do not show.
    """
    for one, other in ((taken, wanted), (wanted, taken)):
        if one.is_unspecified and (one.version == 6 or other.version == 4):
            return True
    return taken == wanted


def _owner(proc: Path, inodes: Iterable[str]) -> _Owner | None:
    """The first process, by its id, that has one of these sockets open.

    None if there is none among those whose files this user may see.
    """
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for pid in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()):
        with suppress(OSError):  # it has ended, or is another user's
            for descriptor in (proc / f"{pid}/fd").iterdir():
                if os.readlink(descriptor) in sockets:
                    return _described(proc / str(pid), pid)
    return None


def _described(process: Path, pid: int) -> _Owner:
    command = (process / "comm").read_text(errors="replace").removesuffix("\n")
    words = (process / "cmdline").read_text(errors="replace").split("\0")
    # `pipelined serve`, whether a script or the interpreter was started
    names = [Path(word).name for word in words]
    is_daemon = any(pair == ("pipelined", "serve") for pair in zip(names, words[1:], strict=False))
    return _Owner(pid, command, is_daemon)
