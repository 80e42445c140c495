# SPDX-License-Identifier: Apache-2.0
"""How many short runs ended lately, by pipeline: they are too many to be listed one by one."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from pipelined.model.ledger import OTHER

__all__ = ["SHORT", "WINDOW", "ShortRuns"]

#: Shorter runs are counted here, and are in no list of live runs (seconds of wall time).
SHORT = 1.0
#: How long a run is counted after its end (seconds); it is forgotten up to one step later.
WINDOW, _STEP = 60.0, 5.0
#: Pipelines of one step that are counted by name; the others of that step are `OTHER` together.
_MAX_NAMES = 500


class ShortRuns:
    """Times are seconds of any clock that does not go back."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, Counter[str]]] = deque()

    def add(self, pipeline: str, wall_seconds: float, now: float) -> None:
        """Count a run that has just ended, if it is short."""
        if wall_seconds >= SHORT:
            return
        if not self._steps or now - self._steps[-1][0] >= _STEP:
            self._forget(now)
            self._steps.append((now, Counter()))
        counted = self._steps[-1][1]
        counted[pipeline if pipeline in counted or len(counted) < _MAX_NAMES else OTHER] += 1

    def counted(self, now: float) -> Mapping[str, int]:
        """Runs of the last `WINDOW` by signature."""
        self._forget(now)
        total: Counter[str] = Counter()
        for _, counted in self._steps:
            total.update(counted)
        return total

    def _forget(self, now: float) -> None:
        while self._steps and now - self._steps[0][0] >= WINDOW + _STEP:
            self._steps.popleft()
