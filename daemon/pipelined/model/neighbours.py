# SPDX-License-Identifier: Apache-2.0
"""The host around runs: what its CPUs did, and which other runs lived, from sweep to sweep."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import nlargest
from itertools import islice
from pathlib import Path

from pipelined.model.cpu_accounts import CpuAccounts
from pipelined.model.sighting import Seen, Sighting, clock_of, lived
from pipelined.model.surroundings import Lived, Reading, Together, beside, surroundings
from pipelined.records.stage import NS, Group
from pipelined.runs import Surroundings

__all__ = ["Neighbours"]

#: Shorter runs have no surroundings (seconds). They are looked for among this number of the runs
#: that ended last, and of the pipelines that lived, those that used most CPUs at a time.
_SURROUNDED, _OTHERS = 0.25, 200
#: A run whose stages have joined late may have lived before the first accounts. If it did so for
#: more than this share of the time since, what others used is not known: nor is what it used since.
_LATE = 0.1
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
        self._crowd: _Crowd | None = None
        self._held: dict[Path, float] = {}
        """What limits had held the tasks of a live run's cgroup back at the last sweep."""

    def sweep(self, now: float, lived_before: list[Sighting]) -> None:
        """A sweep began at monotonic time `now` (seconds); so far these runs lived."""
        self._now = now
        self._lived_before, self._crowd = lived_before, None
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
        run = lived(sighting, self._now)
        late = before.time - run.start > _LATE * (after.time - before.time)
        if late and not any(stage.partial for stage in sighting.shape.records):
            before = before._replace(busy=None)

        def others() -> dict[str, float]:
            if sighting.end_ns is None:
                return {}
            self._crowd = self._crowd or _Crowd(self._lived_before, self._now, run_id)
            return self._crowd.beside(sighting, recent)

        return surroundings(run, before, after, others)

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


class _Crowd:
    """Other runs that lived at the last sweep, or ended since or shortly before.

    What lived is gone through once, however many runs have ended since.
    """

    def __init__(
        self, lived_before: Iterable[Sighting], now: float, run_id: Callable[[Sighting], str]
    ) -> None:
        self._now = now
        self._run_id = run_id
        self._known: dict[Sighting, tuple[str, Lived]] = {}
        self._before = {run_id(each): each for each in lived_before}
        pipelines: dict[str, list[Lived]] = {}
        for each in self._before.values():
            if not each.series.nested:
                pipelines.setdefault(each.series.pipeline, []).append(lived(each, now))
        self._used = {pipeline: Together(runs) for pipeline, runs in pipelines.items()}
        self._busiest = nlargest(_OTHERS, self._used, key=lambda its: self._used[its].most)

    def beside(self, sighting: Sighting, recent: deque[Sighting]) -> dict[str, float]:
        """CPU seconds that pipelines used while this run lived, which has ended.

        Those that enclose it are none: what they used is also what this one did.
        """
        ended = {self._of(each)[0]: each for each in islice(reversed(recent), _OTHERS)}
        apart, outer = {self._run_id(sighting)}, sighting.enclosing
        while outer and outer.run not in apart:
            apart.add(outer.run)
            enclosing = ended.get(outer.run) or self._before.get(outer.run)
            outer = enclosing.enclosing if enclosing else None
        run = lived(sighting, self._now)
        others = self._lives(each for run_id, each in ended.items() if run_id not in apart)
        pipelines = dict.fromkeys((*self._busiest, *(other.pipeline for other in others)))
        used = {
            pipeline: self._used[pipeline].between(run.start, run.end)
            for pipeline in pipelines
            if pipeline in self._used
        }
        # without those that are apart, or are counted as of their end
        less = (self._before[its] for its in apart | ended.keys() if its in self._before)
        for pipeline, seconds in beside(run, self._lives(less)).items():
            if pipeline in used:
                used[pipeline] -= seconds
        for pipeline, seconds in beside(run, others).items():
            used[pipeline] = used.get(pipeline, 0.0) + seconds
        return used

    def _lives(self, runs: Iterable[Sighting]) -> list[Lived]:
        return [self._of(each)[1] for each in runs if not each.series.nested]

    def _of(self, sighting: Sighting) -> tuple[str, Lived]:
        """Id and life of a run."""
        known = self._known.get(sighting)
        if known is None:
            known = (self._run_id(sighting), lived(sighting, self._now))
            self._known[sighting] = known
        return known
