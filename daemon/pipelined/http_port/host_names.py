# SPDX-License-Identifier: Apache-2.0
"""Which host names the port answers for: those of this host, and no others.

A page of another site can have its name resolve to an address of this host, and then read the port
as if it were a part of that site (DNS rebinding). The browser sends that name in `Host`. With an IP
address this cannot be done, so addresses need no check.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from pathlib import Path

__all__ = ["HostNames", "own_names"]


class HostNames:
    """The names `own`, and every IP address, `localhost` and name below `localhost`."""

    def __init__(self, own: Iterable[str] = ()) -> None:
        """`*.example.com` is every name below example.com; `*` is every name."""
        given = {name.lower().rstrip(".") for name in own} | {"localhost", "*.localhost"}
        self._all = "*" in given
        self._below = tuple(name[1:] for name in given if name.startswith("*."))
        self._exact = given

    def include(self, host: str) -> bool:
        """Whether they include what a `Host` header says, with a port or without.

        >>> HostNames(["host17"]).include("host17:9905")
        True
        >>> HostNames(["host17"]).include("host17.attacker.example")
        False
        """
        match = re.fullmatch(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<name>[^:]*))(?::[0-9]*)?", host)
        if match is None:
            return self._all
        name = (match["name"] or "").lower().removesuffix(".")
        return (
            self._all
            or _is_address(match["v6"] or name)
            or name in self._exact
            or name.endswith(self._below)
        )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def own_names(hosts: Path = Path("/etc/hosts"), name: str | None = None) -> set[str]:
    """The names of this host, without asking DNS: who answers there may be the attacker.

    `name` is the host's name, by default as the kernel has it. With it come its first part, that
    part under .local (multicast DNS), and what stands beside one of them in the file `hosts`.
    """
    name = (name if name is not None else socket.gethostname()).lower()
    short = name.partition(".")[0]
    names = {name, short, f"{short}.local"} if short else set()
    try:
        lines = hosts.read_text(errors="replace").lower().splitlines()
    except OSError:
        return names
    beside = [words for line in lines if (words := line.partition("#")[0].split()[1:])]
    return names.union(*(words for words in beside if not names.isdisjoint(words)))
