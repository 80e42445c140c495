# SPDX-License-Identifier: Apache-2.0
"""A listening socket, or why there is none. Imports little: the port is opened before all else."""

from __future__ import annotations

import errno
import ipaddress
import socket
from contextlib import suppress

from pipelined.config import Address
from pipelined.errors import UserError, why

__all__ = ["BACKLOG", "is_of_this_host", "listen", "resolved"]

#: Connections that the kernel keeps until they are accepted; of more, clients try again later.
BACKLOG = 512
_UNKNOWN = ("the host is unknown", "give an address of this host, such as 127.0.0.1")


def resolved(address: Address) -> Address:
    """The address with a number in place of its host's name.

    Raises UserError if the host is unknown.
    """
    with suppress(ValueError):
        ipaddress.ip_address(address.host)
        return address  # with its zone, which the system's answer has not
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UserError(f"cannot listen on {address}: {_UNKNOWN[0]}", _UNKNOWN[1]) from error
    return Address(str(found[0][4][0]), address.port)


def is_of_this_host(address: Address) -> bool:
    """Whether the host has it now; `::1` is missing where IPv6 is off. The port may be taken."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address.host, 0, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.bind(where)
    except OSError as error:
        unknown = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
        return not isinstance(error, socket.gaierror) and error.errno not in unknown
    return True


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises UserError with the reason and what to do."""
    address = Address(host, port)
    if not 0 <= port <= 65535:
        raise UserError(f"cannot listen on {address}: there is no such port", "give 1 to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server(
            (host, port),
            family=family,
            backlog=BACKLOG,
            dualstack_ipv6=family == socket.AF_INET6 and host == "::",
        )
    except (OSError, UnicodeError) as error:
        reason, hint = _explain(error, port)
        raise UserError(f"cannot listen on {address}: {reason}", hint) from error
    # Accepted connections inherit it: a response is not held back for its last packet.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _explain(error: OSError | UnicodeError, port: int) -> tuple[str, str]:
    """Why listening failed, and what to do about it."""
    if isinstance(error, UnicodeError | socket.gaierror):
        return _UNKNOWN
    known = {
        errno.EADDRINUSE: (
            "the port is taken",
            f"see by whom with `ss -ltnp sport = :{port}`,"
            " or choose another with --web.listen-address",
        ),
        errno.EADDRNOTAVAIL: (
            "this host has no such address",
            "give one that `ip address` shows, or 0.0.0.0 for all of them",
        ),
        errno.EACCES: (
            "ports below 1024 need a privilege",
            "choose a port from 1024 on, or run as root",
        ),
    }
    return known.get(error.errno or 0, (why(error), ""))
