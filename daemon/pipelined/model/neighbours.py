# SPDX-License-Identifier: Apache-2.0
"""The host around runs: what its CPUs did, and which other runs lived, from sweep to sweep."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from pipelined.model.cpu_accounts import CpuAccounts
from pipelined.model.sighting import Seen, Sighting, clock_of, lived
from pipelined.model.surroundings import Lived, Reading, surroundings
from pipelined.records.stage import NS, Group
from pipelined.runs import Surroundings

__all__ = ["Neighbours"]

#: Shorter runs have no surroundings (seconds). They are looked for among what lives and this number
#: of the runs that ended last.
_SURROUNDED, _OTHERS = 0.25, 200
#: Of at most this number of cgroups each sweep reads what limits did to live runs, some 40 µs each.
_HELD = 100


class Neighbours:
    """Reads the accounts of the host at each sweep, and finds what surrounds a run."""

    def __init__(self, accounts: CpuAccounts | None = None, home: Path | None = None) -> None:
        """`accounts` are those of the host's CPUs; `home`: the cgroup in which runs begin."""
        self._accounts = accounts
        self._home = home
        self._now = 0.0
        self._before: Reading | None = None
        self._reading: Reading | None = None
        self._lived_before: list[Sighting] = []
        self._held: dict[Path, float] = {}
        """What limits had held the tasks of a live run's cgroup back at the last sweep."""

    def sweep(self, now: float, lived_before: list[Sighting]) -> None:
        """A sweep began at monotonic time `now` (seconds); so far these runs lived."""
        self._now = now
        self._lived_before = lived_before
        self._before, self._reading = self._reading, self._read(now)
        before = (each.before for each in lived_before if each.before)
        groups = dict.fromkeys(
            each.group for each in before if each.group and each.group != self._home
        )
        self._held = {
            group: throttled
            for group in islice(groups, _HELD)
            if (throttled := self._throttled(group)) is not None
        }

    def begun(self) -> Reading | None:
        """The accounts before a run that this sweep saw first."""
        return self._before or self._reading

    def met_live(self, seen: Seen, group: Group) -> None:
        """Add to the accounts before a run those of the cgroup that it is in."""
        live = next((stage for stage in group.stages if stage.live), None)
        if self._accounts is None or seen.before is None or live is None:
            return
        found = self._accounts.group(live.root, live.cgroup)
        if found is not None and found != seen.before.group:
            throttled = self._accounts.throttled(found)
            seen.before = seen.before._replace(group=found, throttled=throttled)

    def around(
        self, sighting: Sighting, recent: deque[Sighting], run_id: Callable[[Sighting], str]
    ) -> Surroundings | None:
        """What surrounds a run that is live or has just ended; None if it is too short to say.

        The others are named once it has ended: to look for those of each of many live runs at each
        look at them would cost too much.
        """
        before, after = sighting.before, self._reading
        if before is None or after is None or NS * sum(clock_of(sighting.group)) < _SURROUNDED:
            return None
        if self._accounts and before.group and before.group != after.group:
            throttled = self._throttled(before.group)
            after = after._replace(group=before.group, throttled=throttled)
        others = () if sighting.end_ns is None else self._others(sighting, recent, run_id)
        return surroundings(lived(sighting, self._now), before, after, others)

    def _others(
        self, sighting: Sighting, recent: deque[Sighting], run_id: Callable[[Sighting], str]
    ) -> Iterator[Lived]:
        """Other runs that lived at the last sweep, or ended since or shortly before.

        Those that enclose this one are none: what they used is also what this one did.
        """
        lately = islice(reversed(recent), _OTHERS)
        found = {run_id(each): each for each in (*self._lived_before, *lately)}
        found.pop(run_id(sighting), None)
        outer = sighting.enclosing
        while outer:
            enclosing = found.pop(outer.run, None)
            outer = enclosing.enclosing if enclosing else None
        yield from (lived(each, self._now) for each in found.values() if not each.series.nested)

    def _throttled(self, group: Path) -> float | None:
        """What limits have held a cgroup's tasks back; if it has ended, as of the last sweep."""
        throttled = self._accounts.throttled(group) if self._accounts else None
        return self._held.get(group) if throttled is None else throttled

    def _read(self, now: float) -> Reading | None:
        """The accounts of the host, with those of the home cgroup."""
        if self._accounts is None:
            return None
        throttled = self._accounts.throttled(self._home) if self._home else None
        return Reading(now, self._accounts.busy(), self._home, throttled)
