# SPDX-License-Identifier: Apache-2.0
"""What a soak measured: readings over time, and the accounts of its runs at the end. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

__all__ = [
    *("COLUMNS", "Account", "Column", "Gap", "Happened", "Kept", "Named", "Reading", "Sent", "Soak")
]


@dataclass(frozen=True)
class Reading:
    """The state at one moment. Seconds and bytes."""

    seconds: float
    """Since the start of the soak."""
    life: int
    """How often the daemon had been killed."""
    runs: int
    """Made since the start."""
    pipelines: int
    """Different ones that ran since the start."""
    resident_bytes: float
    files: int
    """Open file descriptors."""
    threads: int
    series: int
    budget_ratio: float
    """Share of the budget of series that is in use."""
    scrape_bytes: int
    scrape_cpu_seconds: float
    sweep_seconds: float
    """Mean since the previous reading, as are those of the next one."""
    cpu_ratio: float
    """CPU of the daemon, as a share of one core."""
    lost: float
    history_bytes: float
    history_errors: float
    """By pipelined_history_errors_total."""
    stored_runs: int
    query_seconds: float
    """The slowest query of the history."""


@dataclass(frozen=True)
class Account:
    """Runs of one life of the daemon, from when it was ready to when the account was closed."""

    made: int
    counted: int
    """By pipelined_runs_total, over all series."""
    rolled_up: int
    """By the history's roll-up."""
    others: int
    """Of them, runs of pipelines that the soak does not count, as far as they have a name."""
    not_stored: int
    """By pipelined_sink_dropped_runs_total."""


@dataclass(frozen=True)
class Named:
    """Runs of one pipeline that has a name: a nightly job, or a driver's."""

    pipeline: str
    made: int
    gap: int
    """How many of them fell into the gaps around a kill -9."""
    rolled_up: int
    """In the roll-up, nested or not as they should be."""
    stored: int
    """Stored singly."""
    failed: int = 0
    """Of those made, the ones that failed."""
    failed_gap: int = 0
    """How many of them fell into the gaps."""
    reported: int = 0
    """By the roll-up: that failed."""
    elsewhere: int = 0
    """In the roll-up under another unit than that of the job's container; 0 if it has none."""


@dataclass(frozen=True)
class Gap:
    """From 5 s before a kill -9 until the new daemon was ready."""

    at: float
    """When the daemon was killed (seconds since the start)."""
    seconds: float
    runs: int
    """Made in it."""


@dataclass(frozen=True)
class Sent:
    """What came to the back end that comes and goes."""

    outages: int
    runs: int
    twice: int
    """Runs that came more than once."""
    stored: int
    """In the history at the end."""
    not_come: int
    """Of these, runs that did not come."""
    missed: int
    """By the sender: removed from the history before they were sent."""
    said: int
    """By the sender: taken by the back end."""


@dataclass(frozen=True)
class Happened:
    """What else came over the daemon, in seconds since the start."""

    backups: int
    """Each copy intact."""
    slowest_backup: float
    full_from: float
    full_until: float
    """The disk was full until then."""
    rotations: int
    log_lines: int
    """Of daemon and sender together."""
    tracebacks: int


@dataclass(frozen=True)
class Kept:
    """What the history has of the last part of the soak."""

    seconds: float
    runs: int
    """Made then."""
    stored: int
    """Of them, singly."""


@dataclass(frozen=True)
class Soak:
    """All that is judged, and that the table and the picture are made of."""

    machine: str
    command: str
    history_max_bytes: int
    readings: list[Reading]
    accounts: list[Account]
    gaps: list[Gap]
    sent: Sent
    happened: Happened
    unexplained: int | None
    """The most runs that were neither stored nor counted as not stored, while there was room; None:
    there was no reading then."""
    jobs: list[Named]
    drivers: list[Named]
    kept: list[Kept]
    """Of the last twentieth, of the last quarter, and of all of it."""
    stored_pipelines: int
    """Different pipelines of which a run is stored singly."""
    lost: dict[str, float]
    """By kind: the most that a reading had in pipelined_lost_total."""
    without_series: list[str] = field(default_factory=list)
    """Jobs that had run and had no series, with when."""
    resets: dict[str, float] = field(default_factory=dict)
    """By job: how often Prometheus saw its counter of runs fall."""
    failed_scrapes: float = 0
    """Of Prometheus."""
    complaints: list[str] = field(default_factory=list)
    """Of the page in the browser."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Soak:
        found: dict[str, Any] = json.loads(text)
        for name, kind in (
            ("readings", Reading),
            ("accounts", Account),
            ("jobs", Named),
            ("drivers", Named),
            ("kept", Kept),
            ("gaps", Gap),
        ):
            found[name] = [kind(**fields) for fields in found[name]]
        found["sent"], found["happened"] = Sent(**found["sent"]), Happened(**found["happened"])
        return cls(**found)


class Column(NamedTuple):
    """A column of the table."""

    heading: str
    read: Callable[[Reading], float]
    form: str
    """How a value is written, as for `format`."""


COLUMNS = (
    Column("minute", lambda r: r.seconds / 60, ".1f"),
    Column("runs made", lambda r: r.runs, ",.0f"),
    Column("pipelines seen", lambda r: r.pipelines, ",.0f"),
    Column("resident, MB", lambda r: r.resident_bytes / 1e6, ".1f"),
    Column("files", lambda r: r.files, ".0f"),
    Column("threads", lambda r: r.threads, ".0f"),
    Column("series", lambda r: r.series, ",.0f"),
    Column("budget in use", lambda r: r.budget_ratio, ".0%"),
    Column("MB per scrape", lambda r: r.scrape_bytes / 1e6, ".2f"),
    Column("CPU per scrape, ms", lambda r: r.scrape_cpu_seconds * 1e3, ".0f"),
    Column("sweep, ms", lambda r: r.sweep_seconds * 1e3, ".1f"),
    Column("CPU of a core", lambda r: r.cpu_ratio, ".1%"),
    Column("lost", lambda r: r.lost, ".0f"),
    Column("history, MB", lambda r: r.history_bytes / 1e6, ".2f"),
    Column("stored runs", lambda r: r.stored_runs, ",.0f"),
    Column("slowest query, ms", lambda r: r.query_seconds * 1e3, ".0f"),
)
