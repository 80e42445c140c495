# SPDX-License-Identifier: Apache-2.0
"""`pipelined run`: run one command under observation, and return the runs of its pipelines.

`trials` observes its commands with the same private observer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Protocol, Self

from pipelined.analysis.machine import Host
from pipelined.analysis.parts import Part, Parts
from pipelined.analysis.rewriting import Script
from pipelined.analysis.script_lines import ScriptFile
from pipelined.answers.described import describe_run
from pipelined.answers.lists import CommandPart, TopFinding
from pipelined.config import Config
from pipelined.errors import UserError
from pipelined.kernel.pace import Fine
from pipelined.run.child import Ended, execute
from pipelined.run.host_costs import this_host
from pipelined.runs import Run, Timeline
from pipelined.runs.codec import written

if TYPE_CHECKING:
    from pipelined.observer import Observer

__all__ = [
    "NewRuns",
    "NoReport",
    "Observing",
    "Profile",
    "command_cpu_seconds",
    "open_private",
    "profile",
    "report_order",
    "write_json",
]

#: Finished runs that are kept for the report.
KEPT_RUNS = 10_000
#: Seconds to wait for stages that outlive the command, such as that of ``cmd > >(gzip)``.
GRACE = 1.0
#: Seconds between checks whether they have ended.
GRACE_POLL = 0.01
#: Runs whose time lines are kept for the report: more than it has in full.
_MOST_LANES = 10
#: What runs lack then is what identifies them: no figure is too low.
_NO_FIGURE = "instances"


class Observing(Protocol):
    """What `run` and `compare` need of an observer: `Observer` or `DaemonObserver`."""

    @property
    def daemon(self) -> str | None: ...
    def start(self) -> None: ...
    def settle(self) -> None: ...
    def runs(self) -> list[Run]: ...
    def ended(self) -> int: ...
    def lost(self) -> Mapping[str, int]: ...
    def timeline(self, run_id: str) -> Timeline | None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...


class NoReport(UserError):
    """The command has ended, but how it ran is not known; `exit_status` is the command's."""

    def __init__(self, error: UserError, exit_status: int) -> None:
        super().__init__(error.message, error.hint)
        self.exit_status = exit_status


@dataclass(frozen=True, slots=True)
class Profile:
    """A command that has ended, and what was observed."""

    arguments: tuple[str, ...]
    ended: Ended
    runs: tuple[Run, ...]
    """The runs of its pipelines, in the order of `report_order`."""
    lost: Mapping[str, int]
    """How many events could not be recorded, by kind; `runs` are runs that are no longer kept."""
    script: Script | None = None
    """What is known of a command that a shell ran; None of others."""
    daemon: str | None = None
    """Address of the daemon that observed it; None: this process did."""
    timelines: Mapping[str, Timeline] = field(default_factory=dict)
    """Of the longest of `runs`, by id, how they went over time."""
    file: ScriptFile | None = None
    """The shell script that it ran, as it was before that; None: it ran none."""

    def script_of(self, run: Run) -> Script | None:
        """What is known of the command of one of its runs."""
        known = Script.of_run(run, self.script)
        return self.file.with_locale(known, run) if self.file and known else known

    def parts(self, host: Host) -> Parts:
        """What its runs add up to; `host` is the machine on which they ran."""
        ended = self.ended
        wall = ended.wall_seconds
        return Parts.of(self.runs, ended.start, wall, host, self.script_of, self.file)


def profile(
    arguments: Sequence[str],
    *,
    script: Script | None = None,
    file: ScriptFile | None = None,
    open_observer: Callable[[], Observing] | None = None,
) -> Profile:
    """Run a command under observation and wait for it; `script` is what a shell makes of it, and
    `file` the shell script that it runs.

    Raises UserError if nothing can be observed; then the command is not started. Raises
    NotStarted if the command cannot be started, and NoReport if it ran in vain.
    """
    with (open_observer or partial(open_private, lanes=True))() as observer:
        ended = execute(arguments, before_start=observer.start)
        try:
            runs, lost = NewRuns(observer).collect()
        except UserError as error:
            raise NoReport(error, ended.status) from None
        ended = replace(ended, cpu_seconds=command_cpu_seconds(ended.cpu_seconds, runs))
        longest = sorted(runs, key=lambda run: -run.wall_seconds)[:_MOST_LANES]
        lanes = {run.id: points for run in longest if (points := observer.timeline(run.id))}
        ordered, daemon = tuple(report_order(runs)), observer.daemon
        return Profile(tuple(arguments), ended, ordered, lost, script, daemon, lanes, file)


def command_cpu_seconds(waited_for: float, runs: Sequence[Run]) -> float:
    """CPU time of a command: of those of its descendants that were waited for, or of its runs.

    That is the larger of the two: bash does not wait for the processes of ``<(…)`` and ``>(…)``.
    """
    ids = {run.id for run in runs}
    return max(waited_for, sum(run.cpu_seconds for run in runs if run.parent not in ids))


def open_private(*, lanes: bool = False) -> Observer:
    """An observer of only what this process will start; `lanes`: also of short runs over time."""
    from pipelined.observer import Observer  # 5 MB, which a run that a daemon measures saves

    # the command lines of what we start ourselves are no secret to who starts it
    config = Config(recent_runs=KEPT_RUNS, show_arguments=True)
    pace = Fine(config.sweep_interval) if lanes else None
    return Observer.open(config, own_only=True, all_alone=True, pace=pace)


class NewRuns:
    """The runs that an observer has seen since the previous call: it serves several commands."""

    def __init__(self, observer: Observing) -> None:
        self._observer = observer
        self._collected: set[str] = set()
        self._lost: Mapping[str, int] = {}

    def collect(self) -> tuple[list[Run], dict[str, int]]:
        """The runs since the previous call, and how many events were lost since then, by kind.

        `runs` among these are runs that ended but are no longer kept. Waits up to `GRACE` seconds
        for stages that outlive the command.
        """
        deadline = time.monotonic() + GRACE
        while True:
            self._observer.settle()
            known = self._observer.runs()
            new = [run for run in known if run.id not in self._collected]
            if time.monotonic() >= deadline or not any(run.live for run in new):
                break
            time.sleep(GRACE_POLL)
        self._collected.update(run.id for run in new)
        live = sum(run.live for run in known)
        dropped = max(0, self._observer.ended() + live - len(self._collected))
        lost = {kind: n for kind, n in self._observer.lost().items() if kind != _NO_FIGURE}
        before, self._lost = self._lost, {**lost, "runs": dropped}
        return new, {kind: count - before.get(kind, 0) for kind, count in self._lost.items()}


def report_order(runs: Iterable[Run]) -> list[Run]:
    """Outer pipelines before those inside them, then programs alone; the longest first."""
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
    """Write the report as JSON."""
    host = this_host()
    parts = found.parts(host)
    described = {
        "exit_status": found.ended.status,
        "start_timestamp_seconds": found.ended.start,
        "wall_seconds": found.ended.wall_seconds,
        "cpu_seconds": found.ended.cpu_seconds,
        "covered_seconds": parts.covered_seconds,
        "repeated": parts.repeated,
        "parts": [written(_described(part)) for part in parts.parts],
        "runs": [
            describe_run(
                run,
                host,
                script=found.script_of(run),
                timeline=found.timelines.get(run.id, ()),
            )
            for run in found.runs
        ],
        "lost": dict(found.lost),
        "daemon": found.daemon,
    }
    file.write(json.dumps(described, indent=2) + "\n")


def _described(part: Part) -> CommandPart:
    advice = part.advice
    return CommandPart(
        pipeline=part.longest.pipeline,
        depth=part.line.depth,
        lines=list(part.lines),
        runs=part.line.runs,
        wall_seconds=part.wall_seconds,
        cpu_seconds=part.cpu_seconds,
        longest_run=part.longest.id,
        failed_runs=sum(run.result == "failed" for run in part.incomplete),
        interrupted_runs=sum(run.result == "interrupted" for run in part.incomplete),
        bottleneck=part.bottleneck,
        bottleneck_ratio=part.bottleneck_share,
        advice=advice.text if advice else "",
        top_finding=TopFinding(advice.id, advice.runs, advice.expected) if advice else None,
    )
