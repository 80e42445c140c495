# SPDX-License-Identifier: Apache-2.0
"""The hosts of a simulated fleet: which jobs they run, and what their daemons export at a moment.

Only the figures are invented. Names, labels and which series there are come from the daemon's own
collectors, which render the figures as for any scrape: about 700 series a host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pipelined.model.views import Totals
from pipelined.observer import Hook, MapUse
from pipelined.runs import (
    FAILURES,
    LEVELS,
    STATES,
    Flow,
    Readahead,
    Series,
    StageCounters,
    Stalls,
    StallSeconds,
)
from pipelined.web.metrics import Metrics
from unit.observed import FakeObserver
from unit.test_metrics import STORED, FakeHistory, FakeSinks, FakeWebConfig

__all__ = ["DAY", "KINDS", "Host", "Job"]

DAY = 86400.0
#: Hosts that run the same jobs, at the same speed, are of one kind.
KINDS = 100
#: Before the range that is simulated each daemon has run for this long.
_BEFORE = DAY
#: So much longer a run takes, since a change, of a job that became slower.
SLOWER = 2.2


@dataclass(frozen=True)
class Job:
    """A pipeline that runs in a unit, over and over."""

    pipeline: str
    unit: str
    wall: float
    """Seconds of a run on a host of usual speed."""
    period: float
    """Seconds from one start to the next."""
    overlap: float
    """Of the time with a stage on CPU, the share with two."""
    held_back: int
    """Position of the stage that holds the others back."""
    disk: float = 0.0
    """Share of the run in which that stage waits for disk."""
    fails: int = 0
    """Of so many runs one fails; 0: none."""
    slower_for: float = 0.0
    """Days since its runs began to take longer; 0: they do not."""
    nested_in: str = ""
    """The pipeline that it runs inside."""
    first: bool = False
    """It runs once, and ends before its series are scraped for the first time."""
    typed: bool = False
    """Somebody types it: to the rules it is no job."""

    @property
    def series(self) -> Series:
        return Series(pipeline=self.pipeline, nested=bool(self.nested_in), unit=self.unit)


#: What all hosts run; what one in three hosts of a team does, under the team's name.
_EVERYWHERE = (
    Job("tar|zstd|rclone", "backup.service", 900, 3600, 0.35, 2, disk=0.2, slower_for=5),
    Job("cat|gzip", "logrotate.service", 40, 600, 0.02, 2, disk=0.1),
    Job("journalctl|grep|awk|sort|uniq", "report.sh.cron", 75, 900, 0.3, 4, fails=4),
    Job("bash|tee", "nightly.job", 300, 1800, 0.1, 1),
    Job("zcat|awk|sort|psql", "nightly.job", 240, 1800, 0.45, 3, fails=5, nested_in="bash|tee"),
)
_SOME = (
    Job("pg_dump|zstd", "pg-backup.service", 700, 3600, 0.55, 1, disk=0.3),
    Job("mysqldump|pigz|openssl", "mysql-backup.service", 500, 3600, 0.5, 2, slower_for=2),
    Job("find|xargs|md5sum|sort", "integrity.service", 400, 1800, 0.05, 2, disk=0.6),
    Job("kcat|jq|clickhouse", "ingest.service", 600, 700, 0.6, 2),
    Job("curl|tar|rsync", "mirror.service", 120, 1200, 0.2, 1, fails=9),
    Job("seq|xargs|convert", "thumbnails.service", 90, 600, 0.8, 3),
    Job("cut|sort|join|awk", "billing.job", 350, 3600, 0.08, 2, fails=3),
    Job("bzcat|parallel|wc", "corpus.job", 800, 3600, 0.9, 1),
    Job("python3|sort|head", "ranking.job", 200, 1800, 0.3, 1, first=True),
)
#: What people type, whoever is logged in.
_TYPED = (
    Job("cat|grep|less", "session.scope", 500, 900, 0.01, 1, typed=True),
    Job("dmesg|tail", "session.scope", 2, 300, 0.0, 1, typed=True),
    Job("history|fzf", "user@.service", 30, 450, 0.0, 2, typed=True),
)


@dataclass(frozen=True)
class Host:
    """One host of the fleet. The range that is simulated begins at the Unix time `begin`."""

    number: int
    begin: float

    @property
    def instance(self) -> str:
        return f"host{self.number:04}:9905"

    @property
    def kind(self) -> int:
        return self.number % KINDS

    @property
    def jobs(self) -> tuple[Job, ...]:
        """What it runs: the common ones, three of its team, and what its people type."""
        others = (job for n, job in enumerate(_SOME) if (self.kind + n) % 3 == 0)
        team = f"team{self.kind // 5:02}-"
        return (*_EVERYWHERE, *(replace(job, unit=team + job.unit) for job in others), *_TYPED)

    def took(self, job: Job, at: float, *, ends: float) -> float:
        """Seconds of a run of the job that begins at this time. `ends`: the range's last moment."""
        speed = 0.8 + 0.5 * ((self.kind * 37 + len(job.pipeline)) % KINDS) / KINDS
        if self.kind == 13 and job.disk:
            speed *= 1.9  # a slow disk
        slow = job.slower_for and at > ends - job.slower_for * DAY
        return min(job.wall * speed * (SLOWER if slow else 1.0), 0.95 * job.period)

    def exposition(self, at: float, ends: float) -> list[tuple[str, str]]:
        """What its daemon answers to a scrape: each series and its value, as text."""
        counted = {job.series: self._totals(job, at, ends) for job in self.jobs}
        totals = {series: total for series, total in counted.items() if total}
        observer = FakeObserver(totals=totals)
        observer.sweep_stats.count = int(at - self.begin + _BEFORE)
        observer.sweep_stats.seconds_total = 0.02 * observer.sweep_stats.count
        observer.found_hooks = [
            Hook("sched_switch", "sched", "tp_btf", True),
            Hook("sched_process_exit", "sched", "tp_btf", True),
            Hook("execve", "sched", "fexit", self.kind % 4 != 0, "lockdown"),
            Hook("filemap_add", "readahead", "tp_btf", True),
            Hook("pipe_write", "functions", "fentry", False, "no BTF for pipe_write"),
            Hook("pipe_read", "functions", "fentry", False, "no BTF for pipe_read"),
        ]
        observer.found_maps = [MapUse("stages", 30 + self.kind, 4096), MapUse("pipes", 40, 8192)]
        observer.other_losses = {"pipes": 4 if self.kind == 42 and at > self.begin + 900 else 0}
        dropped = int(1.5 * (at - self.begin)) if self.kind == 7 else 0
        metrics = Metrics(
            observer,  # type: ignore[arg-type]
            FakeHistory(replace(STORED, errors=0)),  # type: ignore[arg-type]
            FakeWebConfig(),  # type: ignore[arg-type]
            FakeSinks({"history": dropped}),  # type: ignore[arg-type]
        )
        lines = metrics.render()[0].decode().splitlines()
        series = [line.rpartition(" ") for line in lines if not line.startswith("#")]
        return [(head, value) for head, _, value in series]

    def ended(self, job: Job, since: float, until: float) -> Iterator[tuple[float, float]]:
        """When each complete run of the job ended in this time, and what it took."""
        start = since + self._phase(job)
        while (took := self.took(job, start, ends=until)) + start < until:
            yield start + took, took
            start += job.period

    def _phase(self, job: Job) -> float:
        return (self.kind * 61 + len(job.unit) * 97) % job.period

    def _totals(self, job: Job, at: float, ends: float) -> Totals | None:
        took = self.took(job, at, ends=ends)
        if job.first:
            began = self.begin + 1200 + self._phase(job) / 10
            if at < began + took:
                return None
            runs, live, last_end = 1, 0.0, began + took
        else:
            began = self.begin - _BEFORE + self._phase(job)
            runs, into = divmod(at - began, job.period)
            live = min(into, took)
            last_end = at - into + took - (job.period if live < took else 0)
            runs = int(runs) + (live == took)
        seconds = took * (runs - (0 < live == took)) + live
        failed = runs // job.fails if job.fails else 0
        failed_last = bool(job.fails and failed and runs % job.fails == 0)
        usual = SLOWER if job.slower_for and job.slower_for < 3 else 1.0
        ended = runs > 0
        return Totals(
            runs=runs,
            active=int(0 < live < took),
            outermost=job.nested_in or None,
            run_seconds=seconds,
            last_run_seconds=took if ended else None,
            last_run_end=last_end if ended else None,
            last_complete_end=last_end - (job.period if failed_last else 0) if ended else None,
            failed=dict.fromkeys(FAILURES, 0) | {"exit": failed},
            last_failed_end={"exit": last_end} if failed_last else {},
            interrupted=0,
            traced=None,
            failed_traced={},
            last_usual_ratio=usual * (0.9 + 0.2 * self.kind / KINDS) if runs > 3 else None,
            levels=_levels(job, seconds),
            disk_overlapped_seconds=0.3 * job.disk * seconds,
            disk_alone_seconds=0.7 * job.disk * seconds,
            stages=_stages(job, seconds, runs),
        )


def _levels(job: Job, seconds: float) -> tuple[float, ...]:
    busy = (1 - job.disk) * seconds
    levels = (job.disk * seconds, busy * (1 - job.overlap), busy * job.overlap)
    return (*levels, *[0.0] * (len(LEVELS) - len(levels)))


def _stages(job: Job, seconds: float, runs: int) -> Mapping[tuple[int, str], StageCounters]:
    commands = job.pipeline.split("|")
    return {
        (position, command): _stage(job, position, command, seconds, runs, len(commands))
        for position, command in enumerate(commands, start=1)
    }


def _stage(
    job: Job, position: int, command: str, seconds: float, runs: int, stages: int
) -> StageCounters:
    works = 0.95 - job.disk if position == job.held_back else max(job.overlap / stages, 0.01)
    states = dict.fromkeys(STATES, 0.0)
    states["cpu"] = works * seconds
    states["runqueue"] = 0.02 * seconds
    if position == job.held_back:
        states["disk"] = job.disk * seconds
    rest = seconds - sum(states.values())
    states["pipe_full" if position < job.held_back else "pipe_empty"] = max(rest, 0.0)
    children = 40 * runs if command in ("xargs", "parallel", "bash") else 0
    moved = int(seconds * 8e6)
    through = (moved if position > 1 else 0), (moved // 2 if position < stages else 0)
    return StageCounters(
        states=states,
        user_seconds=0.8 * states["cpu"],
        system_seconds=0.2 * states["cpu"],
        read_bytes=moved,
        written_bytes=moved // 2,
        flow=Flow(*through, 0 if position > 1 else moved, 0, exact=False),
        read_calls=moved // 65536,
        write_calls=moved // 131072,
        sleeps_empty=int(states["pipe_empty"] * 50),
        sleeps_full=int(states["pipe_full"] * 50),
        forks=children,
        execs=children + runs,
        exec_failures=None,
        exited_children=children,
        children_cpu_seconds=states["cpu"] if children else 0.0,
        children_lifetime_seconds=2 * seconds if children else 0.0,
        readahead=_readahead(job, seconds) if position == 1 else None,
    )


def _readahead(job: Job, seconds: float) -> Readahead:
    pages = int(seconds * 2000)
    cold = int(pages * job.disk)
    stalls = int(seconds * 20 * job.disk)
    return Readahead(
        pages={
            "warm": pages - cold,
            "hit": int(cold * 0.7),
            "late": int(cold * 0.2),
            "miss": int(cold * 0.1),
            "wasted": int(cold * 0.02),
        },
        inserted_pages=int(cold * 0.92),
        direct_bytes=0,
        faults={"miss": 0, "late": 0, "other": 0},
        stalls={"miss": Stalls(0, stalls), "late": Stalls(stalls, 0), "other": Stalls()},
        stall_seconds={
            "miss": StallSeconds(0.05 * job.disk * seconds, 0.3 * job.disk * seconds),
            "late": StallSeconds(0.25 * job.disk * seconds, 0.4 * job.disk * seconds),
            "other": StallSeconds(),
        },
    )
