# SPDX-License-Identifier: Apache-2.0
"""When what lives is saved, so that the next daemon goes on with it (`kernel.checkpoint`).

Or finishes it, if the host went down in between.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from pipelined.kernel.checkpoint import Checkpoint, Restored, cut_off
from pipelined.kernel.checkpoint_file import CheckpointFile
from pipelined.kernel.sweep import Sweep
from pipelined.model.identities import Identities, origin_mark
from pipelined.model.tracker import Lookups, Model
from pipelined.model.units import CgroupNames
from pipelined.model.users import Users
from pipelined.model.watched import Watched
from pipelined.records.stage import NS, Gap, Group

__all__ = ["Saver", "finish_cut_off"]

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
        host: str,
        is_empty: bool,
    ) -> None:
        """`watched` as in `Model`, `mark` as in `Identities`, `host` as in `Checkpoint`.

        `is_empty`: nothing is in the file.
        """
        self._file = file
        self._watched = watched
        self._cgroups = cgroups
        self._mark = mark
        self._host = host
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
        found = sweep.checkpoint(
            unfinished,
            unix=self._watched.unix,
            gaps=self._watched.gaps,
            cgroups=self._cgroups.known,
            origin=self._mark,
        )
        return replace(found, host=self._host)

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


def finish_cut_off(
    checkpoint: Checkpoint, what: Restored, host: str, new_model: Callable[..., Model]
) -> int:
    """Finish each run of a checkpoint of another boot, as ended unwatched at its moment.

    `what` is what can be restored of it, `host` what the host is called. `new_model` makes a model
    of what is particular to that boot: its clock, its cgroups, its ids. So no other model mixes
    them with those of this boot, nor counts these runs. Returns how many are finished: those
    that the earlier daemon has stored are not.
    """
    cgroups = CgroupNames(None, node=host)
    cgroups.remember(checkpoint.cgroups)
    # everything ended before this gap: the earlier daemon may have stored it
    last = Gap(checkpoint.watched_ns, checkpoint.watched_ns, checkpoint.unix)
    mark = checkpoint.origin or origin_mark(host, checkpoint.boot_id)
    model = new_model(
        Watched(checkpoint.unix, (*checkpoint.gaps, last)),
        Lookups(cgroups.unit, place_of=cgroups.place),
        recent_runs=0,
        identities=Identities(host, checkpoint.boot_id, mark, Users().name),
    )
    model.update(cut_off(what), NS * checkpoint.watched_ns, settle=True)
    return model.ended_runs
