# SPDX-License-Identifier: Apache-2.0
"""How long a run usually takes, and when one is far from that. Pure.

A run is compared with earlier ones of the same pipeline and unit that had the same work to do: of
the same cache state, and that read about as many bytes. So neither a cold cache nor a larger
input makes a run slower than usual.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["BYTES_FACTOR", "COMPARED", "LOOKED_THROUGH", "is_slower", "usual"]

#: Runs that a run is compared with: at least so many, as the median of fewer is one of chance's,
#: and at most so many, so that what is usual follows a host that changes.
_LEAST, COMPARED = 5, 30
#: They are looked for among so many of the latest stored runs of the pipeline.
LOOKED_THROUGH = 200
#: They read at least this part of its bytes and at most so many times as many.
BYTES_FACTOR = 2.0
#: A run is far from its usual if it took so many times as long: the same job on a host that does
#: other work besides varies by less. And so many seconds longer, which somebody may care about.
_TIMES, _SECONDS = 1.5, 1.0


def usual(walls: Sequence[float]) -> float | None:
    """What runs that took `walls` seconds usually take; None if these are too few."""
    if len(walls) < _LEAST:
        return None
    ordered, half = sorted(walls), len(walls) // 2
    # not statistics.median: with its module the daemon would be half a megabyte larger
    return ordered[half] if len(walls) % 2 else (ordered[half - 1] + ordered[half]) / 2


def is_slower(wall: float, usually: float | None) -> bool | None:
    """Whether a run of `wall` seconds is far from its usual; None if that is not known."""
    if usually is None:
        return None
    return wall > _TIMES * usually and wall - usually > _SECONDS
