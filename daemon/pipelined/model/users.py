# SPDX-License-Identifier: Apache-2.0
"""The names of users, in the user database of the host that the daemon sees."""

from __future__ import annotations

import pwd
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from pipelined.wording import valid_text

__all__ = ["Users"]

#: How long a name is known, and that there is none (seconds).
_KNOWN, _UNKNOWN = 3600.0, 60.0
#: How long is waited for the database, which may be on another host (seconds).
_PATIENCE = 0.1
#: Users that are remembered, and that are asked for at once.
_MOST, _ASKED_AT_ONCE = 4096, 4


class _Answer(NamedTuple):
    name: str | None
    until: float


def _name_in_database(uid: int) -> str | None:
    try:
        return valid_text(pwd.getpwuid(uid).pw_name)
    except (KeyError, OverflowError):
        return None


class Users:
    """Names by user id. For any thread.

    A database that does not answer at once is asked in a thread of its own: who asks meanwhile
    gets no name, and no further user is asked for if several wait for it.
    """

    def __init__(
        self,
        look_up: Callable[[int], str | None] = _name_in_database,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look_up = look_up
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[int, _Answer] = {}
        self._asking: set[int] = set()

    def name(self, uid: int) -> str | None:
        """None if the user has none, or it is not known yet."""
        with self._lock:
            answer = self._answers.get(uid)
            is_fresh = answer is not None and self._clock() < answer.until
            if is_fresh or uid in self._asking or len(self._asking) >= _ASKED_AT_ONCE:
                return answer.name if answer else None
            self._asking.add(uid)
        asking = threading.Thread(target=self._ask, args=(uid,), name="user", daemon=True)
        asking.start()
        asking.join(_PATIENCE)
        with self._lock:
            answer = self._answers.get(uid, answer)
            return answer.name if answer else None

    def _ask(self, uid: int) -> None:
        name = None
        try:
            name = self._look_up(uid)
        finally:
            with self._lock:
                if len(self._answers) >= _MOST:
                    self._answers.clear()
                kept = _UNKNOWN if name is None else _KNOWN
                self._answers[uid] = _Answer(name, self._clock() + kept)
                self._asking.discard(uid)
