# SPDX-License-Identifier: Apache-2.0
"""The order of the stored runs: which key each one gets, and what a place in that order is called.

Keys are whole numbers without a gap, in the order of storing. No key is given twice, also when the
run that had it is removed. But a file may go back to an earlier state, from which its keys go on
once more: a backup is restored, or a power cut takes the last transactions. So a place is named by
a key and by the *opening* in which it was given: the table `openings` has a row, with an id of its
own, for each time that a writer opened the file and stored a run. A place in an opening that the
file does not know, or behind its end, is not of this file's past.
"""

from __future__ import annotations

import sqlite3
import zlib
from functools import cache

from pipelined import __version__
from pipelined.runs import Run
from pipelined.runs.codec import shape

__all__ = ["KEPT", "Numbering", "stored_form"]

#: Openings that are kept. A place in an older one is no longer known.
KEPT = 1000


class Numbering:
    """Gives each run that is stored its key, within the transaction of its caller."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._opening: int | None = None
        self.next = 0
        """The key of the next run."""
        self.load()

    def load(self) -> None:
        """Read again which keys are given: after a transaction that was rolled back."""
        row = self._execute("SELECT max(last) + 1 FROM openings").fetchone()
        self.next = int(row[0])
        if (
            self._opening is not None
            and not self._execute(
                "SELECT 1 FROM openings WHERE key = ?", (self._opening,)
            ).fetchone()
        ):
            self._opening = None

    def take(self) -> None:
        """`next` was given to a run."""
        if self._opening is None:
            made = self._execute(
                "INSERT INTO openings (id, first, last, form)"
                " VALUES (lower(hex(randomblob(8))), ?, ?, ?)",
                (self.next, self.next, stored_form()),
            )
            self._opening = made.lastrowid or 0
            self._forget(self._opening - KEPT)
        self.next += 1

    def _forget(self, key: int) -> None:
        """Remove the openings up to this one; the next one takes over their runs."""
        if self._execute("DELETE FROM openings WHERE key <= ?", (key,)).rowcount:
            self._execute(
                "UPDATE openings SET first = 1, form = ''"
                " WHERE key = (SELECT min(key) FROM openings)"
            )

    def save(self) -> None:
        """Write down which keys were given."""
        if self._opening is not None:
            self._execute(
                "UPDATE openings SET last = ? WHERE key = ?", (self.next - 1, self._opening)
            )


@cache
def stored_form() -> str:
    """What the bulk of a run looks like: another version, or another class, is another form."""
    return f"{__version__} {zlib.crc32(repr(shape(Run)).encode()):08x}"
