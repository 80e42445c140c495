# SPDX-License-Identifier: Apache-2.0
"""How long a run usually takes, and when one is far from that. Pure.

A run is compared with earlier ones of the same pipeline and unit that had the same work to do: of
the same cache state, and that read about as many bytes and had about the same input. So neither a
cold cache nor a larger input makes a run slower than usual. If its input is another one than usual,
that is what is to be said first.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from pipelined.answers.run import Compared

__all__ = [
    "BYTES_FACTOR",
    "COMPARED",
    "LOOKED_THROUGH",
    "AgainstUsual",
    "against_usual",
    "is_other_input",
    "is_slower",
    "like_input",
    "usual",
]

#: Runs that a run is compared with: at least the first number, as the median of fewer is one of
#: chance's, and at most the second, so that what is usual follows a host that changes.
_LEAST, COMPARED = 5, 30
#: They are looked for among this number of the latest stored runs of the pipeline.
LOOKED_THROUGH = 200
#: They read at most this multiple of its bytes, and it at most this multiple of theirs.
BYTES_FACTOR = 2.0
#: So the inputs of two runs differ by this factor at most, or both are below these bytes, which
#: programs read to start.
_INPUT_FACTOR, _START_BYTES = 1.5, 1 << 16
#: A run is far from its usual if it took more than this multiple of it, as the same job on a host
#: that does other work besides varies by less; and these seconds more, which somebody may notice.
_TIMES, _SECONDS = 1.5, 1.0


def usual(walls: Sequence[float]) -> float | None:
    """What runs that took `walls` seconds usually take; None if these are too few."""
    if len(walls) < _LEAST:
        return None
    return median(walls)


def like_input(size: int | None) -> tuple[float | None, float | None]:
    """Inputs between which one is about `size` bytes; None: that is not known."""
    if size is None:
        return None, None
    least = size / _INPUT_FACTOR
    return (least if size > _START_BYTES else 0.0), max(size * _INPUT_FACTOR, float(_START_BYTES))


def is_other_input(size: int | None, usually: float | None) -> bool:
    """Whether an input of `size` bytes is known to be another one than usual."""
    least, most = like_input(size)
    if usually is None or least is None or most is None:
        return False
    return not least <= usually <= most


def is_slower(wall: float, usually: float | None) -> bool | None:
    """Whether a run of `wall` seconds is far from its usual; None if that is not known."""
    if usually is None:
        return None
    return wall > _TIMES * usually and wall - usually > _SECONDS


class AgainstUsual(NamedTuple):
    """How a run compares with earlier ones, as `wording.against_usual` says it."""

    times: float | None
    """How many times as long as usual it took; None: not known."""
    slower: bool | None
    other_input: float | None
    """How many times the usual input it had; None: about the usual one, or not known."""
    any_input: float | None
    """How many times as long as runs of any input it took; None: not known."""

    @property
    def is_unusual(self) -> bool:
        """It was slower than usual, or had another input."""
        return bool(self.slower) or self.other_input is not None


def against_usual(compared: Compared, wall: float, size: int | None) -> AgainstUsual:
    """How a run of `wall` seconds compares, whose input had `size` bytes; None: not known."""
    usually = compared.usual_input
    return AgainstUsual(
        times=wall / compared.usual if compared.usual else None,
        slower=compared.slower,
        other_input=(size or 0) / usually if usually and is_other_input(size, usually) else None,
        any_input=wall / compared.usual_any_input if compared.usual_any_input else None,
    )
