# SPDX-License-Identifier: Apache-2.0
"""When what lives is saved, so that the next daemon goes on with it (`kernel.checkpoint`)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

from pipelined.kernel.checkpoint import Checkpoint
from pipelined.kernel.checkpoint_file import CheckpointFile
from pipelined.kernel.sweep import Sweep
from pipelined.model.units import CgroupNames
from pipelined.model.watched import Watched
from pipelined.records.stage import Group

__all__ = ["Saver"]

#: What has lived for this time is saved at this interval (seconds), or less often: saving may take
#: this share of one core.
_SAVE_INTERVAL = 5.0
_SAVE_SHARE = 0.01


class Saver:
    """Leaves what lives to the next daemon, from time to time and at the end."""

    def __init__(
        self,
        file: CheckpointFile,
        watched: Watched,
        cgroups: CgroupNames,
        mark: str,
        *,
        is_empty: bool,
    ) -> None:
        """`watched` as in `Model`, `mark` as in `Identities`.

        `is_empty`: nothing is in the file.
        """
        self._file = file
        self._watched = watched
        self._cgroups = cgroups
        self._mark = mark
        self._is_empty = is_empty
        self._next = 0.0
        self._oldest = math.inf
        self._worked = 0.0

    def seen(self, unfinished: Iterable[Group]) -> None:
        """What the last sweep saw."""
        self._oldest = min((1e-9 * group.clock.start_ns for group in unfinished), default=math.inf)

    def is_due(self) -> bool:
        """Whether to save at the next sweep."""
        now = time.monotonic()
        return now >= self._next and (not self._is_empty or now - self._oldest >= _SAVE_INTERVAL)

    def checkpoint(self, sweep: Sweep, unfinished: Sequence[Group]) -> Checkpoint | None:
        """What is to be written; None if nothing lives."""
        self._worked = time.thread_time()
        if not unfinished:
            return None
        return sweep.checkpoint(
            unfinished,
            unix=self._watched.unix,
            gaps=self._watched.gaps,
            cgroups=self._cgroups.known,
            origin=self._mark,
        )

    def write(self, checkpoint: Checkpoint | None) -> None:
        """Write that, and set the time for the next one."""
        if checkpoint:
            self._file.write(checkpoint)
        elif not self._is_empty:
            self._file.clear()
        self._is_empty = checkpoint is None
        worked = time.thread_time() - self._worked
        self._next = time.monotonic() + max(_SAVE_INTERVAL, worked / _SAVE_SHARE)

    def close(self) -> None:
        self._file.close()
