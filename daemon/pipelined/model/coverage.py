# SPDX-License-Identifier: Apache-2.0
"""Since when the hooks are attached that not every kernel allows, and what they count."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from pipelined.records.stage import NS, StageRecord

__all__ = ["Coverage"]


class Coverage:
    """What the optional hooks count, and of which stages they saw the begin."""

    def __init__(
        self,
        *,
        exec_failures: bool = False,
        pipe_bytes: bool = False,
        pending_tiers: Collection[str] | None = None,
    ) -> None:
        """`exec_failures`, `pipe_bytes`: hooks that count them are attached.

        `pending_tiers` are those whose hooks may still be attached; None: no hook will follow.
        """
        self.exec_failures = exec_failures
        self.pipe_bytes = pipe_bytes
        self._tiers = tuple(sorted(pending_tiers or ()))
        self._complete_ns = 0.0 if pending_tiers is None else math.inf
        self._missed = 0
        self._missed_ns = 0.0

    @property
    def pending(self) -> bool:
        """Hooks of optional tiers may still be attached: what the tiers counted is not read yet."""
        return bool(self._tiers) and math.isinf(self._complete_ns)

    def complete(
        self, now: float, tiers: Collection[str], *, exec_failures: bool, pipe_bytes: bool
    ) -> None:
        """All hooks are attached at monotonic time `now` (seconds), of the optional `tiers` these.

        Figures of these tiers are partial for a stage that began before, and in no totals.
        """
        self._tiers = tuple(sorted(tiers))
        self._complete_ns = now / NS
        self.exec_failures = exec_failures
        self.pipe_bytes = pipe_bytes

    def misses_begin_of(self, stage: StageRecord) -> bool:
        """Whether it began after the observation, and before the optional hooks were attached."""
        return stage.start_ns < self._complete_ns and not stage.partial

    def missed(self, now: float, pipe_events: int) -> None:
        """Until monotonic time `now` (seconds) the kernel has left out so many that count bytes.

        It does not say whose they were: of each stage that lived when there were more, some may be.
        """
        if pipe_events > self._missed:
            self._missed = pipe_events
            self._missed_ns = now / NS

    def counts_pipes_of(self, stage: StageRecord) -> bool:
        """Whether every byte at the ends of its pipes is counted."""
        seen = self.pipe_bytes and not self.misses_begin_of(stage)
        return seen and stage.start_ns >= self._missed_ns

    def partial_tiers(self, stages: Iterable[StageRecord]) -> tuple[str, ...]:
        """The optional tiers that have only a part of these stages of a run."""
        return self._tiers if any(map(self.misses_begin_of, stages)) else ()
