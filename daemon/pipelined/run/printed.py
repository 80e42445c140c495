# SPDX-License-Identifier: Apache-2.0
"""What a command printed: not all of it, but enough to compare it with what another one printed."""

from __future__ import annotations

import hashlib
from bisect import bisect
from dataclasses import dataclass

__all__ = ["PIECE", "Printed", "Printing", "difference"]

#: Bytes of an output that are added at once, at most.
PIECE = 1 << 20
#: Bytes from the begin of an output that are kept, to show the first line that differs.
KEPT = 4 << 20
#: Characters of a line that are shown, and how many of them precede the first one that differs.
_SHOWN = 50
_BEFORE = 15


@dataclass(frozen=True, slots=True)
class Printed:
    """An output."""

    size: int
    """In bytes."""
    digest: str
    lines: int | None
    """Alike for the same lines in any order; None if it was not computed."""
    begin: bytes
    """The first `KEPT` bytes."""

    def has_lines_of(self, other: Printed) -> bool:
        """Whether it is known to have the same lines, in whatever order."""
        return self.lines is not None and (self.size, self.lines) == (other.size, other.lines)


class Printing:
    """Takes in an output piece by piece. With `any_order` it computes `Printed.lines` too."""

    def __init__(self, *, any_order: bool) -> None:
        self._size = 0
        self._digest = hashlib.sha256()
        self._lines = 0 if any_order else None
        self._rest = b""
        """The begin of a line that has not ended; less than `PIECE`."""
        self._begin = bytearray()

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        self._digest.update(piece)
        if len(self._begin) < KEPT:
            self._begin += piece[: KEPT - len(self._begin)]
        if self._lines is None:
            return
        text = self._rest + piece
        if len(text) >= PIECE and text.find(b"\n", 0, PIECE) < 0:
            # a long line counts as several, so that no more than two pieces are held
            self._lines += hash(text[:PIECE])
            text = text[PIECE:]
        *lines, self._rest = text.split(b"\n")
        # an empty line adds nothing, but sizes are compared too
        self._lines += sum(map(hash, lines))

    def result(self) -> Printed:
        lines = None if self._lines is None else self._lines + hash(self._rest)
        return Printed(self._size, self._digest.hexdigest(), lines, bytes(self._begin))


def difference(first: Printed, second: Printed, leads: tuple[str, str]) -> str:
    """Where two outputs that are not the same begin to differ, and what is there.

    ``in line 2 A prints 'b', B prints 'c'`` if the `leads` are ``A prints`` and ``B prints``.
    """
    a, b = first.begin, second.begin
    if a == b:
        return f"after the first {len(a):,} bytes"
    common = bisect(range(1, min(len(a), len(b)) + 1), False, key=lambda n: a[:n] != b[:n])
    number, start = a.count(b"\n", 0, common) + 1, a.rfind(b"\n", 0, common) + 1
    lines = [_line(printed, start) for printed in (first, second)]
    if lines[0] == lines[1]:
        return f"in the end of line {number:,}"
    texts = [None if line is None else _text(line) for line in lines]
    same = len(_text(a[start:common]))
    shown = [f"{lead} {_quoted(text, same)}" for lead, text in zip(leads, texts, strict=True)]
    return f"in line {number:,} {', '.join(shown)}"


def _line(printed: Printed, start: int) -> bytes | None:
    """The line that begins there, without its newline; None if the output ends before."""
    if start == printed.size:
        return None
    end = printed.begin.find(b"\n", start)
    return printed.begin[start:] if end < 0 else printed.begin[start:end]


def _text(line: bytes) -> str:
    text = line.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _quoted(text: str | None, same: int) -> str:
    """A line, or its part around what follows the first characters, which are the `same`."""
    if text is None:
        return "nothing more"
    start = max(0, same - _BEFORE) if len(text) > _SHOWN else 0
    end = start + _SHOWN
    return f"'{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}'"
