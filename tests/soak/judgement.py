# SPDX-License-Identifier: Apache-2.0
"""Whether a soak was passed: what grows, what exceeds its bound, what is missing. Pure.

Growth is judged within the last life of the daemon, which takes five eighths of the soak: the
median of its last quarter may exceed that of its second one by a tolerance and a slack at most. The
first quarter is left out, because caches and tables fill then.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pipelined.history.writer import QUEUE
from soak.readings import Gap, Named, Reading, Soak

__all__ = ["BOUNDED", "Bounded", "Verdict", "failed_scrapes_allowed", "grows", "judge"]

#: Counted runs may exceed those made by this share, beside those that have the name of another
#: pipeline: short ones of the host are in `(other)` too.
OTHERS = 0.01
#: Share of the history's size that the file itself may take; the rest is for its log.
FULL = 0.75
#: Runs that may wait to be stored: while one queue of them is being written, another fills.
WAITING = 2 * QUEUE
#: Lines that daemon and sender may log in a night of faults: what goes wrong for long is said once.
MOST_LINES = 1000
#: Seconds between two scrapes of Prometheus.
SCRAPE_INTERVAL = 5.0


class Verdict(NamedTuple):
    """One claim: what it is about, whether it holds, and the figures."""

    about: str
    good: bool
    figures: str


class Bounded(NamedTuple):
    """A figure that must not grow."""

    about: str
    read: Callable[[Reading], float]
    unit: str
    scale: float
    """How many of the reading's units (seconds, bytes) one of `unit` is."""
    bound: float | None
    """In `unit`, of any reading (docs: the budgets); None: only growth is judged."""
    tolerance: float
    """By which share it may grow."""
    slack: float
    """What it may grow by beyond its tolerance, in `unit`: what measuring it varies by."""


BOUNDED = (
    Bounded("resident memory", lambda r: r.resident_bytes, "MB", 1e6, 64, 0.05, 0),
    Bounded("open files", lambda r: r.files, "files", 1, None, 0, 2),
    Bounded("threads", lambda r: r.threads, "threads", 1, None, 0, 1),
    Bounded("series", lambda r: r.series, "series", 1, 10_000, 0.05, 0),
    Bounded("size of a scrape", lambda r: r.scrape_bytes, "MB", 1e6, 1.5, 0.1, 0),
    Bounded("CPU of a scrape", lambda r: r.scrape_cpu_seconds, "ms", 1e-3, 100, 0.3, 5),
    Bounded("sweep", lambda r: r.sweep_seconds, "ms", 1e-3, None, 0.5, 5),
    Bounded("slowest query", lambda r: r.query_seconds, "ms", 1e-3, None, 0.5, 20),
)


def judge(soak: Soak) -> list[Verdict]:
    """Every claim of a soak, in the order in which they are reported."""
    return [
        *(_bounded(figure, soak.readings) for figure in BOUNDED),
        _history_size(soak),
        _lost(soak),
        *(_counted(number, soak) for number in range(len(soak.accounts))),
        *(_rolled_up(number, soak) for number in range(len(soak.accounts))),
        _stored(soak),
        _with_series(soak),
        _jobs_counted(soak),
        _jobs_stored(soak),
        _failures(soak),
        _contained(soak),
        *(_driver(driver) for driver in soak.drivers),
        _scraped(soak),
        Verdict("live page", not soak.complaints, _some(soak.complaints) or "no errors"),
        _sent(soak),
        _backed_up(soak),
        _disk_filled(soak),
        _logged(soak),
    ]


def grows(values: Sequence[float], tolerance: float, slack: float) -> tuple[bool, float, float]:
    """Whether values over time grow, and the medians of their second and their last quarter.

    >>> grows([9, 9, 5, 5, 6, 6, 7, 7], 0.2, 1)
    (False, 5.0, 7.0)
    """
    quarter = len(values) // 4
    if not quarter:
        raise ValueError(f"{len(values)} readings are too few to judge growth")
    before = statistics.median(values[quarter : 2 * quarter])
    last = statistics.median(values[-quarter:])
    return last > before * (1 + tolerance) + slack, float(before), float(last)


def failed_scrapes_allowed(gaps: Sequence[Gap]) -> int:
    """How many scrapes may fail because the daemon was killed."""
    return sum(int(gap.seconds // SCRAPE_INTERVAL) + 1 for gap in gaps)


def _bounded(figure: Bounded, readings: Sequence[Reading]) -> Verdict:
    values = [figure.read(reading) / figure.scale for reading in readings]
    last_life = readings[-1].life
    lasting = [
        value for value, reading in zip(values, readings, strict=True) if reading.life == last_life
    ]
    growing, before, last = grows(lasting, figure.tolerance, figure.slack)
    most = max(values)
    exceeded = figure.bound is not None and most > figure.bound
    bound = "" if figure.bound is None else f" (bound {figure.bound:,g})"
    figures = (
        f"{before:,.4g} {figure.unit} in the second quarter, {last:,.4g} in the last,"
        f" at most {most:,.4g}{bound}"
    )
    words = [word for word, bad in (("grows", growing), ("exceeds its bound", exceeded)) if bad]
    return Verdict(figure.about, not words, ": ".join([*words, figures]))


def _history_size(soak: Soak) -> Verdict:
    most = max(reading.history_bytes for reading in soak.readings)
    full = most >= FULL * soak.history_max_bytes
    good = full and most <= soak.history_max_bytes
    figures = f"at most {most / 1e6:.2f} MB of {soak.history_max_bytes / 1e6:.2f}"
    return Verdict("history's size", good, figures if full else f"never full: {figures}")


def _lost(soak: Soak) -> Verdict:
    kinds = [f"{count:.0f} {what}" for what, count in soak.lost.items() if count]
    return Verdict("lost", not kinds, ", ".join(kinds) or "nothing, by pipelined_lost_total")


def _counted(number: int, soak: Soak) -> Verdict:
    account = soak.accounts[number]
    missing = account.made - account.counted
    most = account.made * (1 + OTHERS) + account.others
    figures = f"{account.counted:,} counted, {account.others:,} of others; {account.made:,} made"
    about = f"runs in the metrics, {_life(number, soak)}"
    return _complete(about, missing, account.counted, most, figures)


def _rolled_up(number: int, soak: Soak) -> Verdict:
    """A life's account is closed before the gap: in the roll-up are some runs more."""
    account = soak.accounts[number]
    later = soak.gaps[number].runs if number < len(soak.gaps) else 0
    missing = account.counted - later - account.rolled_up
    most = account.counted * (1 + OTHERS) + later
    figures = (
        f"{account.rolled_up:,} of {account.counted:,}, {account.not_stored:,} of them not stored"
    )
    about = f"runs in the roll-up, {_life(number, soak)}"
    return _complete(about, missing, account.rolled_up, most, figures)


def _complete(about: str, missing: int, found: int, most: float, figures: str) -> Verdict:
    """Whether none is missing, and there are no more than can be explained."""
    if missing > 0:
        return Verdict(about, False, f"{missing:,} are missing: {figures}")
    if found > most:
        too_many = "too many, of others without a name or counted twice"
        return Verdict(about, False, f"{too_many}: {figures}")
    return Verdict(about, True, figures)


def _stored(soak: Soak) -> Verdict:
    if soak.unexplained is None:
        return Verdict("single runs", False, "the file was full before the first reading")
    figures = (
        f"at most {soak.unexplained:,} were neither stored nor counted as not stored, before the"
        f" file was full; {WAITING} may wait"
    )
    return Verdict("single runs", soak.unexplained <= WAITING, figures)


def _with_series(soak: Soak) -> Verdict:
    fell = [job for job, resets in soak.resets.items() if resets > len(soak.gaps)]
    trouble = [f"none: {job}" for job in soak.without_series] + [f"fell: {job}" for job in fell]
    figures = f"{len(soak.jobs)} jobs kept theirs in {len(soak.readings)} readings"
    return Verdict("series of nightly jobs", not trouble, _some(trouble) or figures)


def _jobs_counted(soak: Soak) -> Verdict:
    return _every_run("runs of nightly jobs in the roll-up", soak.jobs, lambda job: job.rolled_up)


def _jobs_stored(soak: Soak) -> Verdict:
    return _every_run("runs of nightly jobs stored", soak.jobs, lambda job: job.stored)


def _failures(soak: Soak) -> Verdict:
    """Every failed run is said to have failed, but those in the gaps, and no other is."""
    wrong = [
        f"{job.pipeline}: {job.reported} of {job.failed}"
        for job in soak.jobs
        if not job.failed - job.failed_gap <= job.reported <= job.failed
    ]
    made, gap = (sum(job.failed for job in soak.jobs), sum(job.failed_gap for job in soak.jobs))
    reported = sum(job.reported for job in soak.jobs)
    figures = f"{reported} of {made} ({gap} in the gaps); no other run of a job"
    return Verdict("failures of jobs", not wrong and made > 0, _some(wrong) or figures)


def _contained(soak: Soak) -> Verdict:
    """A container's id is known from its cgroup, which the kernel side notes: of every run."""
    elsewhere = [f"{job.pipeline}: {job.elsewhere}" for job in soak.jobs if job.elsewhere]
    figures = "every run of a job in a container has its unit"
    return Verdict("units of containers", not elsewhere, _some(elsewhere) or figures)


def _driver(driver: Named) -> Verdict:
    return _every_run(f"driver's {driver.pipeline}", [driver], lambda named: named.rolled_up)


def _every_run(about: str, expected: Sequence[Named], found: Callable[[Named], int]) -> Verdict:
    """Every run, but those that fell into the gap, and none twice."""
    wrong = [
        f"{named.pipeline}: {found(named)} of {named.made}"
        for named in expected
        if not named.made - named.gap <= found(named) <= named.made
    ]
    made, gap = sum(named.made for named in expected), sum(named.gap for named in expected)
    figures = f"{sum(found(named) for named in expected):,} of {made:,} ({gap} in the gaps)"
    return Verdict(about, not wrong and made > 0, _some(wrong) or figures)


def _scraped(soak: Soak) -> Verdict:
    allowed = failed_scrapes_allowed(soak.gaps)
    figures = f"{soak.failed_scrapes:.0f} failed; {allowed} may, when the daemon was killed"
    return Verdict("Prometheus' scrapes", soak.failed_scrapes <= allowed, figures)


def _sent(soak: Soak) -> Verdict:
    """Each run that is stored at the end has come, and none twice."""
    sent = soak.sent
    good = not sent.twice and not sent.not_come and sent.said == sent.runs and sent.outages > 0
    figures = (
        f"{sent.runs:,} came, {sent.twice:,} more than once, in spite of {sent.outages} outages;"
        f" {sent.not_come:,} of the {sent.stored:,} stored at the end did not; the sender says"
        f" {sent.said:,}, and {sent.missed:,} removed before they were sent"
    )
    return Verdict("runs at the back end", good, figures)


def _backed_up(soak: Soak) -> Verdict:
    happened = soak.happened
    figures = f"{happened.backups}, each intact; the slowest took {happened.slowest_backup:.1f} s"
    return Verdict("backups", happened.backups > 0, figures)


def _disk_filled(soak: Soak) -> Verdict:
    """It was full for its time, and the history was written again after it."""
    start, end = soak.happened.full_from, soak.happened.full_until
    counts = [reading.history_errors for reading in soak.readings if reading.seconds > end]
    full = 0 < start < end and counts and counts[0] > 0
    figures = (
        f"for {(end - start) / 60:.1f} minutes; {counts[0] if counts else 0:,.0f} errors of the"
        " history until it could be written, none later"
    )
    return Verdict("full disk", bool(full) and counts[0] == counts[-1], figures)


def _logged(soak: Soak) -> Verdict:
    happened = soak.happened
    figures = (
        f"{happened.log_lines} lines of daemon and sender in {happened.rotations + 1} files,"
        f" {happened.tracebacks} tracebacks"
    )
    good = happened.rotations > 0 and not happened.tracebacks and happened.log_lines < MOST_LINES
    return Verdict("logs", good, figures)


def _some(trouble: Sequence[str]) -> str:
    """The first three."""
    more = f"; {len(trouble) - 3} more" if len(trouble) > 3 else ""
    return "; ".join(trouble[:3]) + more


def _life(number: int, soak: Soak) -> str:
    return f"life {number + 1} of {len(soak.gaps) + 1}"
