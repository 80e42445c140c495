# SPDX-License-Identifier: Apache-2.0
"""`pipelined run`: start one command, watch what it starts, and report its pipelines.

The command gets our standard input, output, error, environment and signal mask as they are.
Signals that are sent to us are sent on to it; those that the terminal sends reach it by
themselves, because it stays in our process group. `trials` starts and watches its commands by
the same means, but in process groups of their own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from pipelined.run.child import execute
from pipelined.runs import Run

if TYPE_CHECKING:
    from pipelined.observer import Observer

__all__ = [
    "Profile",
    "Sightings",
    "open_private",
    "profile",
    "report_order",
    "write_json",
]

#: Finished runs that are kept for the report.
KEPT_RUNS = 10_000
#: Seconds to wait for stages that outlive the command, such as those of ``cmd > >(gzip)``.
GRACE = 1.0
GRACE_POLL = 0.01


@dataclass(frozen=True, slots=True)
class Profile:
    """What came of a command."""

    arguments: tuple[str, ...]
    status: int
    """Its exit status, or 128 + the number of the signal that killed it."""
    runs: tuple[Run, ...]
    """The runs of its pipelines, in the order of `report_order`."""
    lost: Mapping[str, int]
    """What could not be recorded, by kind."""


def profile(
    arguments: Sequence[str], *, open_observer: Callable[[], Observer] | None = None
) -> Profile:
    """Run a command under observation and wait for it.

    Raises UserError when nothing can be observed (the command is not started then), and
    NotStarted when the command cannot be started.
    """
    with (open_observer or open_private)() as observer:
        status = execute(arguments, before_start=observer.start)
        runs, lost = Sightings(observer).collect()
        return Profile(tuple(arguments), status, tuple(report_order(runs)), lost)


def open_private() -> Observer:
    """An observer of nothing but what this process will start."""
    from pipelined.config import Config
    from pipelined.observer import Observer

    return Observer.open(Config(recent_runs=KEPT_RUNS), own_only=True, all_alone=True)


class Sightings:
    """What an observer has newly seen, for one that serves several commands in turn."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._told: set[str] = set()
        self._lost: Mapping[str, int] = {}

    def collect(self) -> tuple[list[Run], dict[str, int]]:
        """The runs, and how many events were lost by kind, since it was asked last.

        Waits up to `GRACE` for stages that outlive the command.
        """
        deadline = time.monotonic() + GRACE
        while True:
            self._observer.settle()
            new = [run for run in self._observer.runs() if run.id not in self._told]
            if time.monotonic() >= deadline or not any(run.live for run in new):
                break
            time.sleep(GRACE_POLL)
        self._told.update(run.id for run in new)
        before, self._lost = self._lost, dict(self._observer.lost())
        return new, {kind: count - before.get(kind, 0) for kind, count in self._lost.items()}


def report_order(runs: Iterable[Run]) -> list[Run]:
    """Outer pipelines before those inside them, then programs alone; long before short."""
    by_id = {run.id: run for run in runs}

    def depth(run: Run) -> int:
        steps = 0
        while run.parent in by_id and steps < len(by_id):
            run = by_id[run.parent]
            steps += 1
        return steps

    def order(run: Run) -> tuple[int, bool, float, float]:
        return depth(run), len(run.stages) == 1, -run.wall_seconds, run.start

    return sorted(by_id.values(), key=order)


def write_json(found: Profile, file: IO[str]) -> None:
    """Write the runs in the schema of the API: ``{"runs": […], "lost": {…}}``."""
    from pipelined.analysis.machine import Host
    from pipelined.schema import describe_run

    host = Host.read()
    described = {"runs": [describe_run(run, host) for run in found.runs], "lost": dict(found.lost)}
    file.write(json.dumps(described, indent=2) + "\n")
