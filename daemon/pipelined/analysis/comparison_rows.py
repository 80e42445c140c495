# SPDX-License-Identifier: Apache-2.0
"""Figures side by side: one row per quantity, and one per place of the pipelines.

To add a row, add it to `_QUANTITIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from statistics import median
from typing import Annotated

from pipelined.analysis.comparison_reasons import Trial
from pipelined.runs import PAGE_CLASSES, STALL_CLASSES, STATES, Run, Stage
from pipelined.runs.fields import Seconds, Unit
from pipelined.wording import STATE_WORDS, data_size, duration, percent

__all__ = [
    "GROUPS",
    "Figure",
    "Row",
    "StageFigures",
    "StageRow",
    "amount",
    "figure_of",
    "is_worth_a_row",
    "quantity_rows",
    "stage_rows",
    "times",
    "warm_share",
]

#: Groups of rows in their order, with their titles.
GROUPS: Mapping[str, str] = {
    "time": "time",
    "waits": "waits, all threads of all stages",
    "disk": "waiting for disk",
    "pages": "file pages read, of 4 KiB",
    "data": "data and calls",
}
#: Rows whose name is a term: in plain words. By group and name.
_WORDS: Mapping[tuple[str, str], str] = {
    ("time", "level 0"): "no stage on CPU",
    ("time", "level 1"): "one stage on CPU",
    ("time", "level 2 and up"): "more on CPU",
    ("disk", "stalls"): "waits of reads",
    ("disk", "stalled: miss"): "not read ahead",
    ("disk", "stalled: late"): "read ahead late",
    ("disk", "stalled: other"): "other waits",
    ("pages", "warm"): "in memory before",
    ("pages", "hit"): "read ahead",
    ("pages", "late"): "read ahead late",
    ("pages", "miss"): "not read ahead",
    ("pages", "wasted"): "never used",
    ("pages", "warm share"): "input in memory",
}
#: A time below this share of the longest wall time is not shown.
_WORTH = 0.01
#: Higher ratios are all printed alike.
MOST_TIMES = 1000


@dataclass(frozen=True, slots=True)
class Figure:
    """A value over all rounds."""

    median: float
    """The middle one."""
    low: float
    """The lowest."""
    high: float
    """The highest."""


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity, side by side."""

    group: str
    """``time``, ``waits``, ``disk``, ``pages`` or ``data``."""
    name: str
    """Of the quantity, for people."""
    unit: str
    """``seconds``, ``bytes``, ``pages``, ``ratio``, ``cores`` or ``count``."""
    values: tuple[Figure | None, ...]
    """By side; None if it is not known."""
    ratios: tuple[Figure | None, ...]
    """By side: its value over the first side's, round by round; None unless both are known."""

    @property
    def words(self) -> str:
        """What it is, in plain words."""
        return _WORDS.get((self.group, self.name), self.name)

    @property
    def words_and_term(self) -> str:
        """What it is, in plain words, with the term behind them."""
        return self.name if self.words == self.name else f"{self.words} ({self.name})"


@dataclass(frozen=True, slots=True)
class StageFigures:
    """A place in a pipeline: sums over its parallel branches, medians over the rounds."""

    position: int
    """From 1."""
    branches: Annotated[float, Unit("count")]
    """How many parallel branches it has."""
    cpu_seconds: Seconds
    """CPU time."""
    user_seconds: Seconds
    """CPU time in user mode."""
    system_seconds: Seconds
    """CPU time in the kernel."""
    state_seconds: Mapping[str, Seconds]
    """Time of all threads by state."""
    read_bytes: Annotated[float, Unit("bytes")]
    """Bytes that read calls returned."""
    written_bytes: Annotated[float, Unit("bytes")]
    """Bytes that write calls wrote."""
    read_calls: Annotated[float, Unit("count")]
    """Read-like system calls."""
    write_calls: Annotated[float, Unit("count")]
    """Write-like system calls."""
    forks: Annotated[float, Unit("count")]
    """Processes that were started."""


@dataclass(frozen=True, slots=True)
class StageRow:
    """The stages of one name that stand at corresponding places."""

    command: str
    """Command name."""
    sides: tuple[StageFigures | None, ...]
    """By side; None if it has no such stage."""


def times(ratio: float) -> str:
    """A ratio as text. A large one only means that one side had next to nothing.

    >>> times(0.638), times(12.34), times(250.0), times(8e6)
    ('0.64', '12.3', '250', 'over 1,000')
    """
    if ratio > MOST_TIMES:
        return f"over {MOST_TIMES:,}"
    return f"{ratio:.{2 if ratio < 9.995 else 1 if ratio < 99.95 else 0}f}"


def amount(value: float, unit: str) -> str:
    """A value of a `Row` as text, with its unit."""
    if unit == "seconds":
        return duration(value)
    if unit == "bytes":
        return data_size(value)
    if unit == "ratio":
        return percent(value)
    return times(value) if unit == "cores" else f"{value:,.0f}"


def is_worth_a_row(row: Row, longest: float) -> bool:
    """Whether to show a row; `longest` is the longest wall time of all sides (seconds)."""
    if row.name == "wall":
        return True
    known = [figure.median for figure in row.values if figure is not None]
    least = _WORTH * longest if row.unit == "seconds" else 0.0
    return any(value > least for value in known)


def warm_share(trial: Trial) -> float | None:
    """Share of the input's pages that were in the page cache before; None if not known."""
    return trial.run.readahead.warm_share if trial.run and trial.run.readahead else None


def _of_run(value: Callable[[Run], float | None]) -> Callable[[Trial], float | None]:
    return lambda trial: None if trial.run is None else value(trial.run)


def _summed(value: Callable[[Stage], float]) -> Callable[[Trial], float | None]:
    return _of_run(lambda run: sum(value(stage) for stage in run.stages))


def _in_state(state: str) -> Callable[[Trial], float | None]:
    return _summed(lambda stage: stage.states[state])


def _pages(name: str) -> Callable[[Trial], float | None]:
    return _of_run(lambda run: run.readahead.pages[name] if run.readahead else None)


def _stalled(name: str) -> Callable[[Trial], float | None]:
    return _of_run(lambda run: sum(run.readahead.stall_seconds[name]) if run.readahead else None)


def _cores(trial: Trial) -> float | None:
    if trial.wall_seconds <= 0:
        return None
    return trial.cpu_seconds / trial.wall_seconds


#: Group, name, unit, and its value in a trial.
_QUANTITIES: tuple[tuple[str, str, str, Callable[[Trial], float | None]], ...] = (
    ("time", "wall", "seconds", lambda trial: trial.wall_seconds),
    ("time", "pipeline", "seconds", _of_run(lambda run: run.wall_seconds)),
    ("time", "CPU", "seconds", lambda trial: trial.cpu_seconds),
    ("time", "user CPU", "seconds", _summed(lambda stage: stage.user_seconds)),
    ("time", "system CPU", "seconds", _summed(lambda stage: stage.system_seconds)),
    ("time", "cores used", "cores", _cores),
    ("time", "overlap", "ratio", _of_run(lambda run: run.overlap)),
    ("time", "level 0", "seconds", _of_run(lambda run: run.levels[0])),
    ("time", "level 1", "seconds", _of_run(lambda run: run.levels[1])),
    ("time", "level 2 and up", "seconds", _of_run(lambda run: sum(run.levels[2:]))),
    *(
        ("waits", STATE_WORDS[state], "seconds", _in_state(state))
        for state in STATES
        if state != "cpu"
    ),
    ("disk", "no stage on CPU", "seconds", _of_run(lambda run: run.disk_alone_seconds)),
    ("disk", "a stage on CPU", "seconds", _of_run(lambda run: run.disk_overlapped_seconds)),
    (
        "disk",
        "stalls",
        "count",
        _of_run(lambda run: run.readahead.stall_count if run.readahead else None),
    ),
    *(("disk", f"stalled: {name}", "seconds", _stalled(name)) for name in STALL_CLASSES),
    *(("pages", name, "pages", _pages(name)) for name in PAGE_CLASSES),
    ("pages", "warm share", "ratio", warm_share),
    ("data", "read", "bytes", _summed(lambda stage: stage.read_bytes)),
    ("data", "written", "bytes", _summed(lambda stage: stage.written_bytes)),
    ("data", "read calls", "count", _summed(lambda stage: stage.read_calls)),
    ("data", "write calls", "count", _summed(lambda stage: stage.write_calls)),
    ("data", "forks", "count", _summed(lambda stage: stage.forks)),
)


def quantity_rows(trials: Sequence[Sequence[Trial]]) -> tuple[Row, ...]:
    """A row for each quantity; `trials[side][round]`."""
    return tuple(_row(*quantity, trials) for quantity in _QUANTITIES)


def _row(
    group: str,
    name: str,
    unit: str,
    value: Callable[[Trial], float | None],
    trials: Sequence[Sequence[Trial]],
) -> Row:
    values = [[value(trial) for trial in of_side] for of_side in trials]
    return Row(
        group,
        name,
        unit,
        tuple(figure_of(of_side) for of_side in values),
        (None, *(figure_of(_divided(values[0], of_side)) for of_side in values[1:])),
    )


def _divided(a: Sequence[float | None], b: Sequence[float | None]) -> list[float | None]:
    return [None if y is None or not x else y / x for x, y in zip(a, b, strict=True)]


def figure_of(values: Iterable[float | None]) -> Figure | None:
    """Median, lowest and highest of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return Figure(median(known), min(known), max(known)) if known else None


def stage_rows(trials: Sequence[Sequence[Trial]]) -> tuple[StageRow, ...]:
    """The stages of all sides: those of one name at corresponding places share a row."""
    sides = [_places(of_side) for of_side in trials]
    merged: list[tuple[str, list[StageFigures | None]]] = []
    for index, places in enumerate(sides):
        before = [command for command, _ in merged]
        here = [command for command, _ in places]
        rows: list[tuple[str, list[StageFigures | None]]] = []
        for kind, i1, i2, j1, j2 in SequenceMatcher(a=before, b=here, autojunk=False).get_opcodes():
            if kind == "equal":
                pairs = zip(merged[i1:i2], places[j1:j2], strict=True)
                rows += [(command, [*found, figures]) for (command, found), (_, figures) in pairs]
                continue
            rows += [(command, [*found, None]) for command, found in merged[i1:i2]]
            rows += [(command, [*[None] * index, figures]) for command, figures in places[j1:j2]]
        merged = rows
    return tuple(StageRow(command, tuple(found)) for command, found in merged)


def _places(trials: Sequence[Trial]) -> list[tuple[str, StageFigures]]:
    """Command and figures of each place of the pipeline that most rounds had."""
    rounds = [
        {place: [run.stages[i] for i in indexes] for place, indexes in run.by_place().items()}
        for run in (trial.run for trial in trials)
        if run is not None
    ]
    shapes = [tuple(found) for found in rounds]
    if not shapes:
        return []
    usual = max(shapes, key=shapes.count)
    alike = [found for found in rounds if tuple(found) == usual]
    return [
        (command, _figures(position, [found[position, command] for found in alike]))
        for position, command in usual
    ]


def _figures(position: int, rounds: Sequence[Sequence[Stage]]) -> StageFigures:
    def middle(value: Callable[[Stage], float]) -> float:
        return median(sum(value(stage) for stage in stages) for stages in rounds)

    def in_state(state: str) -> float:
        return middle(lambda stage: stage.states[state])

    return StageFigures(
        position=position,
        branches=median(len(stages) for stages in rounds),
        cpu_seconds=middle(lambda stage: stage.cpu_seconds),
        user_seconds=middle(lambda stage: stage.user_seconds),
        system_seconds=middle(lambda stage: stage.system_seconds),
        state_seconds={state: in_state(state) for state in STATES},
        read_bytes=middle(lambda stage: stage.read_bytes),
        written_bytes=middle(lambda stage: stage.written_bytes),
        read_calls=middle(lambda stage: stage.read_calls),
        write_calls=middle(lambda stage: stage.write_calls),
        forks=middle(lambda stage: stage.forks),
    )
