# SPDX-License-Identifier: Apache-2.0
"""The history at a prompt: a table of runs, and how one run went over time.

Pure: values in, styled lines out. Every line fits its width, and colours only repeat what the
words say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import groupby

from rich.cells import cell_len
from rich.text import Text

from pipelined.analysis.finding import Finding, FindingTime
from pipelined.analysis.finding_times import finding_times
from pipelined.analysis.identity_words import ROOM, Distinctions, distinctions
from pipelined.history.counted_runs import CountedRuns
from pipelined.history.history import StoredRun
from pipelined.history.rollup import HOUR
from pipelined.history.rows import Summary
from pipelined.nesting import Line
from pipelined.runs import Point, Run, Stage, Timeline
from pipelined.terminal.drawing import (
    HEIGHTS,
    STYLES,
    Column,
    cropped,
    fitted,
    heading,
    is_squeezed,
    line_name,
    measured,
    percent_or_dash,
    plain_marks,
    shorten,
    table_row,
    table_width,
)
from pipelined.wording import against_usual, duration, printable, run_input

__all__ = [
    "DIGITS",
    "LEAST_SIGNATURE",
    "MIN_SIGNATURE",
    "counted_line",
    "followed_table",
    "run_table",
    "time_lines",
    "usual_words",
    "when",
]

#: Columns of the table are dropped before a signature gets less than this (terminal columns).
MIN_SIGNATURE = 20
#: The least that a signature gets when no column is left that may be dropped.
LEAST_SIGNATURE = 8
#: Terminal columns of a time line, at most.
MAX_COLUMNS = 60
#: Stages that get a time line of their own: those with the most CPU time.
MAX_STAGES = 8
#: Terminal columns of a stage's or finding's name before its time line, at most.
MAX_LABEL = 22
#: Room for findings, or how a run ended, before what tells runs apart has a column.
_LEAST_FINDINGS = 22
#: A run that began longer ago than this is shown with its year instead of its time (seconds).
LONG_AGO = 180 * 86400.0
#: The year 9998, and 1970, bound what a date can be (seconds).
_LATEST = 253_370_000_000.0
#: Less than this is drawn as a blank (stages, or CPUs).
LEAST = 0.005
#: Added before rounding: equal parts differ in the last digits of a float, and must look equal.
ROUNDING = 1e-6

#: Heights in ASCII.
DIGITS = "0123456789"


#: Widths of the columns for runs that are not known yet.
_FOLLOWED_WIDTHS: Mapping[str, int] = {
    **{"started": 11, "pipeline": 60, "wall": 7, "input": 8},
    **{"cores": 5, "overlap": 7, "cache": 5, "bottleneck": 18, "findings": 14},
}
#: That of an id with a process id of 7 digits; the beginning in which ids of a host differ, and the
#: width below which lines have only that.
_FOLLOWED_ID, _FOLLOWED_ID_BEGINNING, _WIDE = 30, 20, 100
#: That of what tells them apart, whatever its heading.
_FOLLOWED_IDENTITY = 15


def run_table(
    lines: Sequence[Line[Summary]], width: int, now: float, *, ascii_only: bool = False
) -> list[Text]:
    """The lines under a heading, each of at most `width` columns; `now` is Unix time."""
    distinct = distinctions({line.run.id: line.run.identity for line in lines})
    with_input = any(line.run.input_bytes is not None for line in lines)
    columns = _run_columns(now, ascii_only, distinct, with_input=with_input)
    if len({line.run.unit for line in lines}) > 1:
        columns.insert(3, _unit_column(ascii_only))
    *columns, last = measured(columns, lines)
    # Whose they are, and their input, get room before the last of several findings.
    short = replace(last, width=min(last.width or 0, _LEAST_FINDINGS))
    shown = fitted([*columns, short], lines, width)
    if not any(column.title in ("unit", distinct.title, "input") for column in shown):
        full = fitted([*columns, last], lines, width)
        # nor is a signature shortened for the sake of the last of several findings
        if not is_squeezed(full, lines):
            shown = full
    return _run_table(_filled(shown, width), lines, width, ascii_only)


def followed_table(
    lines: Sequence[Line[Summary]],
    width: int,
    now: float,
    distinct: Distinctions,
    *,
    ascii_only: bool = False,
) -> list[Text]:
    """As `run_table`, with columns that have the same widths whatever is in them.

    So later lines can stand below earlier ones, as long as their headings are equal. The last
    column gets what is left. `distinct` is what tells these runs from each other and earlier ones.
    """
    widths = {"run": _FOLLOWED_ID if width >= _WIDE else _FOLLOWED_ID_BEGINNING, **_FOLLOWED_WIDTHS}
    columns = [
        replace(column, width=widths.get(column.title, _FOLLOWED_IDENTITY))
        for column in _run_columns(now, ascii_only, distinct, _FOLLOWED_IDENTITY, with_input=True)
    ]
    shown = fitted(columns, lines, width)
    return _run_table(_filled(shown, width), lines, width, ascii_only)


def _filled(
    columns: Sequence[Column[Line[Summary]]], width: int
) -> Sequence[Column[Line[Summary]]]:
    """The columns, of which the last gets what is left of `width`."""
    *others, last = columns
    left = max(0, width - table_width(columns))
    return [*others, replace(last, width=(last.width or 0) + left)]


def _run_table(
    shown: Sequence[Column[Line[Summary]]],
    lines: Sequence[Line[Summary]],
    width: int,
    ascii_only: bool,
) -> list[Text]:
    rows = [heading(shown), *(table_row(shown, line) for line in lines)]
    return [plain_marks(_shortened(row, width), ascii_only) for row in rows]


def _run_columns(
    now: float, ascii_only: bool, distinct: Distinctions, room: int = ROOM, *, with_input: bool
) -> list[Column[Line[Summary]]]:
    """What tells the runs apart has a column if there is anything, in `room`."""

    def taken(line: Line[Summary]) -> Text:
        return Text(run_input(line.run.input_bytes, line.run.input_exact))

    def identity(line: Line[Summary]) -> Text:
        return Text(printable(distinct.cell(line.run.id, room)) or "-")

    columns: list[Column[Line[Summary]]] = [
        Column("run", lambda line: Text(line.run.id)),
        Column("started", lambda line: Text(when(line.run.start, now))),
        Column(
            "pipeline",
            lambda line: Text(line_name(line, ascii_only)),
            least=MIN_SIGNATURE,
            floor=LEAST_SIGNATURE,
        ),
        Column("wall", lambda line: Text(duration(line.run.wall)), right=True),
        Column("cores", lambda line: Text(f"{line.run.cores:.1f}"), right=True, rank=5),
        Column("overlap", lambda line: Text(percent_or_dash(line.run.overlap)), True, rank=2),
        Column("cache", lambda line: Text(line.run.cache or "-"), rank=4),
        Column("bottleneck", lambda line: Text(printable(line.run.bottleneck, ascii_only)), rank=1),
        Column("findings", lambda line: Text(_notes(line))),
    ]
    if with_input:
        columns.insert(4, Column("input", taken, right=True, rank=4))
    if distinct.title:
        columns.insert(3, Column(distinct.title, identity, rank=3))
    return columns


def _unit_column(ascii_only: bool) -> Column[Line[Summary]]:
    """Of which job each run is."""

    def unit(line: Line[Summary]) -> Text:
        return Text(printable(shorten(line.run.unit, ROOM), ascii_only))

    return Column("unit", unit, rank=3)


def counted_line(
    counted: CountedRuns, now: float, *, until: float | None = None, ascii_only: bool = False
) -> Text:
    """How many runs there were, and how many are stored singly.

    `now` is Unix time, and so is `until`, before the end of whose hour those counted ended.
    """
    since = "" if counted.start is None else f" since {when(counted.start, now)}"
    if until is not None:
        since += f" before {when(HOUR * math.ceil(until / HOUR), now)}"
    stored, nested = counted.stored, counted.nested
    text = f"Of {counted.runs:,} runs that ended{since}, {_stored(stored, counted.runs)}"
    if counted.runs:
        text += (
            f". Half of all took at most about {duration(counted.median or 0.0)};"
            f" the most frequent pipeline is {printable(counted.most_frequent or '-', ascii_only)}"
        )
    if nested:
        text += f". Not among these: {nested:,} nested runs, of which"
        text += f" {_stored(counted.stored_nested, nested)}"
    return plain_marks(Text(text), ascii_only)


def _stored(stored: int, runs: int) -> str:
    return f"{stored:,} are stored and {runs - stored:,} only counted"


def _shortened(line: Text, width: int) -> Text:
    line.rstrip()
    return line if line.cell_len <= width else Text(shorten(line.plain, width), line.style)


def when(start: float, now: float) -> str:
    """The time of day if `start` is today, else with the date; the date and year if long ago."""
    began, today = (datetime.fromtimestamp(min(max(at, 0.0), _LATEST)) for at in (start, now))
    if began.date() == today.date():
        return began.strftime("%H:%M:%S")
    return began.strftime("%Y-%m-%d" if abs(now - start) > LONG_AGO else "%m-%d %H:%M")


def usual_words(run: Summary | StoredRun) -> str:
    """How it compares with its usual; empty if that is not known."""
    return against_usual(*run.against_usual)


def _notes(line: Line[Summary]) -> str:
    """How it ended if not well, whether its input or its time was not the usual one, whether it was
    observed only in part, and the ids of its findings."""
    run = line.run
    notes = [f"{run.outcome} ({run.failure})"] if run.failure else []
    notes += filter(None, [line.of_several])
    notes += [usual_words(run)] if run.against_usual.is_unusual else []
    return ", ".join([*notes, *(["partial"] if run.partial else []), *run.findings]) or "-"


def time_lines(
    run: Run,
    timeline: Timeline,
    width: int,
    found: Sequence[Finding] = (),
    *,
    ascii_only: bool = False,
) -> list[Text]:
    """The level and each stage's CPU over time, as rows of bars; none for a single point.

    Below them, when the findings that are `found` show, and at which stages.
    """
    if len(timeline) < 2:
        return []
    names = _names(run, ascii_only)
    marked = [
        (finding.id, run.stages[stage], list(stretches))
        for finding, times in zip(found, finding_times(run, timeline, found), strict=True)
        for stage, stretches in groupby(times, lambda stretch: stretch.stage)
    ]
    gaps = [FindingTime(0, point.start, point.end) for point in timeline if point.unwatched > 0]
    heads = [
        "level",
        *(["no daemon"] if gaps else []),
        *names.values(),
        *(shorten(finding, MAX_LABEL) for finding, _, _ in marked),
    ]
    label = max(cell_len(head) for head in heads)
    columns = max(10, min(MAX_COLUMNS, width - label - 4 - len("  max 00.0")))
    begin, end = timeline[0].start, timeline[-1].end
    level = _per_column(timeline, columns, _stage_seconds)
    step = (end - begin) / columns
    lines = [
        Text(f"  over time: stages on CPU, and CPUs of each stage; a column is {duration(step)}")
    ]
    lines.append(_row("level", level, label, ascii_only))
    if gaps:
        marks = _marks(gaps, begin, step, columns, "x")
        lines.append(Text(f"  {'no daemon'.ljust(label)}  {marks}"))
    for index, name in names.items():
        cpu = _per_column(timeline, columns, partial(_cpu_seconds, index))
        lines.append(_row(name, cpu, label, ascii_only))
    for finding, stage, stretches in marked:
        marks = _marks(stretches, begin, step, columns, "=" if ascii_only else "━")
        head = shorten(finding, MAX_LABEL).ljust(label)
        lines.append(Text(f"  {head}  {marks}  {_name(stage, ascii_only)}"))
    return [plain_marks(cropped(line, width), ascii_only) for line in lines]


def _stage_seconds(point: Point) -> float:
    """Seconds on CPU, each stage counted once."""
    return sum(count * seconds for count, seconds in enumerate(point.levels))


def _cpu_seconds(index: int, point: Point) -> float:
    return point.stages[index].states.get("cpu", 0.0)


def _names(run: Run, ascii_only: bool) -> dict[int, str]:
    """Names of the stages that are shown, by index, in data order."""
    busiest = sorted(range(len(run.stages)), key=lambda at: -run.stages[at].cpu_seconds)
    return {at: _name(run.stages[at], ascii_only) for at in sorted(busiest[:MAX_STAGES])}


def _name(stage: Stage, ascii_only: bool) -> str:
    return shorten(f"{stage.position} {printable(stage.command, ascii_only)}", MAX_LABEL)


def _marks(
    stretches: Sequence[FindingTime], begin: float, step: float, columns: int, mark: str
) -> str:
    """A mark in each column in whose middle one of the stretches is, or that one is all in."""
    out = [" "] * columns
    for stretch in stretches:
        first = min(columns - 1, int((stretch.start - begin) / step + 0.5 - ROUNDING))
        last = max(first + 1, int((stretch.end - begin) / step + 0.5 + ROUNDING))
        out[first:last] = mark * (min(last, columns) - first)
    return "".join(out)


def _per_column(timeline: Timeline, columns: int, seconds: Callable[[Point], float]) -> list[float]:
    """The mean rate in each of `columns` equal parts of the time.

    The seconds of a point count as spread evenly over it.
    """
    begin, end = timeline[0].start, timeline[-1].end
    step = (end - begin) / columns
    sums = [0.0] * columns
    for point in timeline:
        length = point.end - point.start
        value = seconds(point)
        for column, share in _shares(point, begin, step, columns):
            sums[column] += value * share / length
    return [value / step for value in sums]


def _shares(point: Point, begin: float, step: float, columns: int) -> Iterator[tuple[int, float]]:
    """The columns that a point lies in, and its seconds in each."""
    first = min(columns - 1, max(0, int((point.start - begin) / step)))
    for column in range(first, columns):
        left = max(point.start, begin + column * step)
        right = min(point.end, begin + (column + 1) * step)
        if right <= left:
            return
        yield column, right - left


def _row(name: str, values: Sequence[float], label: int, ascii_only: bool) -> Text:
    """Bars, of which the highest stands for the largest value, or for 1 if that is larger."""
    marks = DIGITS if ascii_only else HEIGHTS
    top = max(1.0, *values)
    heights = [int(value / top * len(marks) + ROUNDING) for value in values]
    bars = "".join(
        " " if value < LEAST else marks[min(len(marks) - 1, height)]
        for value, height in zip(values, heights, strict=True)
    )
    text = Text(f"  {name}{' ' * (label - cell_len(name))}  ")
    text.append(bars, STYLES["cpu"])
    return text.append(f"  max {max(values):.1f}")
