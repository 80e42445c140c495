# SPDX-License-Identifier: Apache-2.0
"""Alternatives run in turn under observation, and a table of the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import fill
from typing import TYPE_CHECKING

from pipelined.analysis.comparison import compare_trials
from pipelined.analysis.comparison_reasons import Trial as Measured
from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Host
from pipelined.analysis.sentence import sentence
from pipelined.run.profile import report_order
from pipelined.runs import Readahead, Run
from pipelined.wording import duration

if TYPE_CHECKING:
    from kernel.conftest import Watch

    from .disk import Disk

__all__ = [
    "Column",
    "Trial",
    "ahead",
    "alternate",
    "column",
    "explain",
    "finding_ids",
    "mostly",
    "print_table",
    "readahead",
]

#: At most this many trials until one had no hidden switch (see docs/ARCHITECTURE.md).
ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of one alternative."""

    run: Run
    """The longest of its outermost pipelines."""
    disk_reads: tuple[int, ...]
    """Reads that each disk did during the run, by its own count."""
    stdout: str


#: Trials by the name of the alternative, in the order of the rounds.
Tried = Mapping[str, Sequence[Trial]]


def alternate(
    watch: Watch,
    commands: Mapping[str, str],
    *,
    rounds: int = 5,
    prepare: Callable[[str], object] = lambda name: None,
    disks: Sequence[Disk] = (),
) -> Tried:
    """Run each command of each round after `prepare(name)`; every second round goes backwards.

    A trial in which the host hid switches from tracing is repeated: its page counts may be short.
    """
    tried: dict[str, list[Trial]] = {name: [] for name in commands}
    for number in range(rounds):
        for name in list(commands)[:: 1 if number % 2 == 0 else -1]:
            tried[name].append(_attempt(watch, commands[name], partial(prepare, name), disks))
    return tried


def _attempt(
    watch: Watch, command: str, prepare: Callable[[], object], disks: Sequence[Disk]
) -> Trial:
    for _ in range(ATTEMPTS):
        prepare()
        watch.take_new()  # what it ran is no trial
        missed = watch.observer.missed_switches()
        before = [disk.reads() for disk in disks]
        observed = watch.run(command)
        reads = tuple(disk.reads() - then for disk, then in zip(disks, before, strict=True))
        assert (observed.returncode, observed.stderr) == (0, ""), (command, observed)
        assert observed.runs, f"no run seen of {command}"
        trial = Trial(report_order(observed.runs)[0], reads, observed.stdout)
        if watch.observer.missed_switches() == missed:
            break
    return trial


def readahead(trial: Trial) -> Readahead:
    """What the `readahead` tier counted for the first stage, which reads the file."""
    found = trial.run.stages[0].readahead
    assert found is not None
    return found


def ahead(trial: Trial) -> int:
    """Pages that were read ahead for the first stage."""
    pages = readahead(trial).pages
    return pages["hit"] + pages["late"]


@dataclass(frozen=True, slots=True)
class Column:
    """A heading of a table, and the text of its cell for a trial."""

    title: str
    text: Callable[[Trial], str]


def column(title: str, value: Callable[[Trial], float | int]) -> Column:
    """A column of seconds if the value is a float, of counts if it is an integer."""

    def text(trial: Trial) -> str:
        found = value(trial)
        return duration(found) if isinstance(found, float) else f"{found:,}"

    return Column(title, text)


def print_table(title: str, tried: Tried, columns: Sequence[Column]) -> None:
    """Each alternative's median trial, and the range of its wall times, as a Markdown table."""
    rows = [["", "wall", "range", *(each.title for each in columns)]]
    for name, trials in tried.items():
        walls = [trial.run.wall_seconds for trial in trials]
        chosen = _median(trials)
        spread = f"{duration(min(walls))} to {duration(max(walls))}"
        cells = [each.text(chosen) for each in columns]
        rows.append([name.replace("|", r"\|"), duration(chosen.run.wall_seconds), spread, *cells])
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    print(f"\n{title} (medians of {len(trials)})\n")
    for row in rows:
        first, *rest = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        print(f"| {first.strip():<{widths[0]}} | " + " | ".join(rest) + " |")


def explain(tried: Tried, host: Host, names: Sequence[str] = ()) -> None:
    """Print what the tool reports: the comparison, and the median trial of each alternative."""
    shown = {name: tried[name] for name in names or tried}
    print()
    if len(shown) > 1:
        found = compare_trials(list(shown), [list(map(_measured, shown[n])) for n in shown])
        for text in filter(None, (found.verdict, found.why, *found.caveats)):
            _say(text, "")
    for name, trials in shown.items():
        run = _median(trials).run
        _say(f"{name}: {sentence(run)}", "")
        for finding in findings(run, host):
            if finding.id != "cold-run":  # half of the trials are cold, as the table shows
                _say(f"{finding.severity} {finding.id}: {finding.sentence} {finding.advice}", "  ")


def mostly(trials: Sequence[Trial], holds: Callable[[Trial], bool]) -> bool:
    """Whether something holds for more than half of the trials, which noise may change."""
    return sum(map(holds, trials)) > len(trials) / 2


def finding_ids(trial: Trial, host: Host) -> set[str]:
    """Ids of the findings in a trial."""
    return {finding.id for finding in findings(trial.run, host)}


def _median(trials: Sequence[Trial]) -> Trial:
    """The trial whose wall time is in the middle."""
    return sorted(trials, key=lambda trial: trial.run.wall_seconds)[len(trials) // 2]


def _measured(trial: Trial) -> Measured:
    return Measured(trial.run.wall_seconds, trial.run.cpu_seconds, trial.run)


def _say(text: str, indent: str) -> None:
    print(fill(text, 110, initial_indent=indent, subsequent_indent=indent + "    "))
