# SPDX-License-Identifier: Apache-2.0
"""Passwords of the port: user names and bcrypt hashes, without a bcrypt check for each scrape.

A check of cost 10 takes some 100 ms of a core on purpose; each step of the cost doubles it. The
result is remembered under a key that only this process can compute. Only one check runs at a time
and only a few of the server's threads may wait for one, so strangers who try passwords take one
core at most, and logins that are remembered as right never wait for them.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import bcrypt

from pipelined.http_port.sparing_log import SparingLog

__all__ = ["PASSWORD_BYTES", "Logins", "Verdict"]

#: Wrong logins that are remembered, so that a scraper with an old password costs little.
_REMEMBERED = 1024
#: Threads that may wait for a bcrypt check, for how many logins, and for how many of one address.
#: Further logins are refused as busy. The server has more threads than these.
_WAITING = 6
_LOGINS = 4
_LOGINS_OF_ONE = 2
#: bcrypt takes no more of a password; Go and htpasswd cut it there too.
PASSWORD_BYTES = 72


class Verdict(enum.Enum):
    """What to do with a request."""

    ADMITTED = enum.auto()
    NO_LOGIN = enum.auto()
    """There is no user name and password, or none that can be read."""
    WRONG = enum.auto()
    BUSY = enum.auto()
    """Too many logins are being checked already."""


@dataclass(slots=True)
class _Waiting:
    """Threads that wait for the check of one login."""

    address: str
    """Of the first of them."""
    threads: int = 0


class Logins:
    """Checks `Authorization` headers against `users`: names and their bcrypt hashes.

    Thread-safe. `check(password, hash)` returns whether they belong together; it may raise
    ValueError for a password that bcrypt does not take.
    """

    def __init__(
        self,
        users: Mapping[str, str],
        check: Callable[[bytes, bytes], bool] = bcrypt.checkpw,
    ) -> None:
        self._hashes = {name.encode(): hashed.encode() for name, hashed in users.items()}
        self._check = check
        self._key = os.urandom(32)
        # An unknown user costs as much as the dearest known one.
        dearest = max(self._hashes.values(), key=lambda hashed: hashed[4:6])
        self._nobody = dearest[:7] + b"." * 53
        self._lock = threading.Lock()
        self._one_check = threading.Lock()
        self._right: set[bytes] = set()  # one password a user: never more than there are users
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._waiting: dict[bytes, _Waiting] = {}
        self._log = SparingLog(logging.getLogger(__name__))

    def verdict(self, header: str, address: str) -> Verdict:
        """The verdict on a client's `Authorization` header, which is empty if there is none."""
        login = _login(header)
        if login is None:
            return Verdict.NO_LOGIN
        name, password = login
        key = self._remembered_as(name, password)
        if (known := self._recall(key)) is not None:
            return known
        if not self._may_wait(key, address):
            return Verdict.BUSY
        try:
            with self._one_check:
                # Somebody may have asked the same meanwhile, such as a page for its parts.
                return self._recall(key) or self._decide(key, name, password, address)
        finally:
            with self._lock:
                waiting = self._waiting[key]
                waiting.threads -= 1
                if not waiting.threads:
                    del self._waiting[key]

    def _may_wait(self, key: bytes, address: str) -> bool:
        """Count this thread among those that wait; False if there are enough."""
        with self._lock:
            if sum(waiting.threads for waiting in self._waiting.values()) >= _WAITING:
                return False
            if key not in self._waiting:
                of_address = sum(waiting.address == address for waiting in self._waiting.values())
                if len(self._waiting) >= _LOGINS or of_address >= _LOGINS_OF_ONE:
                    return False
                self._waiting[key] = _Waiting(address)
            self._waiting[key].threads += 1
            return True

    def _remembered_as(self, name: bytes, password: bytes) -> bytes:
        login = len(name).to_bytes(4, "big") + name + password
        return hmac.digest(self._key, login, hashlib.sha256)

    def _recall(self, key: bytes) -> Verdict | None:
        with self._lock:
            if any(hmac.compare_digest(key, right) for right in self._right):
                return Verdict.ADMITTED
            if key in self._wrong:
                self._wrong.move_to_end(key)
                return Verdict.WRONG
            return None

    def _decide(self, key: bytes, name: bytes, password: bytes, address: str) -> Verdict:
        hashed = self._hashes.get(name)
        try:
            right = self._check(password, hashed or self._nobody)
        except ValueError:
            right = False
        admitted = right and hashed is not None
        with self._lock:
            if admitted:
                self._right.add(key)
            else:
                self._wrong[key] = None
                if len(self._wrong) > _REMEMBERED:
                    self._wrong.popitem(last=False)
        if admitted:
            return Verdict.ADMITTED
        shown = name[:40].decode(errors="replace")
        self._log.info("login", f"wrong user name or password from {address} (user {shown!r})")
        return Verdict.WRONG


def _login(header: str) -> tuple[bytes, bytes] | None:
    """User name and password of a header; None when it has none."""
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(token.strip(), validate=True).partition(b":")
    except (ValueError, binascii.Error):
        return None
    return (name, password[:PASSWORD_BYTES]) if colon else None
