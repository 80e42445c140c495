# SPDX-License-Identifier: Apache-2.0
"""The terminal's view of the history: a table of runs, and how one run went on over time.

Pure: values in, styled lines out. As in `report`, every line fits its width, and colours only
repeat what the words say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from rich.cells import cell_len
from rich.text import Text

from pipelined.history.history import Summary
from pipelined.model.timeline import Point, Timeline
from pipelined.runs import Run
from pipelined.terminal.drawing import STYLES, plain_marks, printable, shorten
from pipelined.wording import duration, percent

__all__ = ["run_table", "time_lines"]

#: A signature gets at least so many columns, and no more than it has to.
MIN_SIGNATURE = 20
#: Columns of a time line, at most.
MAX_COLUMNS = 60
#: Stages that get a time line of their own: those that computed most.
MAX_STAGES = 8
#: A run that began longer ago than this is shown with its year instead of its time (seconds).
LONG_AGO = 180 * 86400.0

#: Less than this is drawn as nothing (stages, or CPUs).
LEAST = 0.005
#: So that equal parts look equal: they differ in the last digits of a float.
ROUNDING = 1e-6

_HEIGHTS = "▁▂▃▄▅▆▇█"
_DIGITS = "0123456789"


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    value: Callable[[Summary], str]
    right: bool = False
    rank: int = 0
    """Columns of the highest rank go first where there is little room; 0 stays."""


def run_table(
    summaries: Sequence[Summary], width: int, now: float, *, ascii_only: bool = False
) -> list[Text]:
    """One line a run under a heading, each of at most `width` columns; `now` is Unix time."""
    columns = (
        _Column("run", lambda run: run.id),
        _Column("started", lambda run: _when(run.start, now)),
        _Column("pipeline", lambda run: printable(run.pipeline, ascii_only)),
        _Column("wall", lambda run: duration(run.wall), True),
        _Column("cores", lambda run: f"{run.cores:.1f}", True, 4),
        _Column(
            "overlap", lambda run: "-" if run.overlap is None else percent(run.overlap), True, 2
        ),
        _Column("cache", lambda run: run.cache or "-", False, 3),
        _Column("bottleneck", lambda run: printable(run.bottleneck, ascii_only), False, 1),
        _Column("findings", _notes),
    )
    cells = {column.title: [column.value(run) for run in summaries] for column in columns}
    widths = {
        title: max(cell_len(title), *map(cell_len, values), 0) for title, values in cells.items()
    }
    shown = list(columns)
    while _room(shown, widths, width) < min(MIN_SIGNATURE, widths["pipeline"]) and any(
        column.rank for column in shown
    ):
        shown.remove(max(shown, key=lambda column: column.rank))
    widths["pipeline"] = max(8, min(widths["pipeline"], _room(shown, widths, width)))
    lines = []
    for at in range(-1, len(summaries)):
        line = "  ".join(
            _padded(
                column.title if at < 0 else cells[column.title][at], widths[column.title], column
            )
            for column in shown
        )
        text = Text(shorten(line.rstrip(), width), "dim" if at < 0 else "")
        lines.append(plain_marks(text, ascii_only))
    return lines


def _room(columns: Sequence[_Column], widths: Mapping[str, int], width: int) -> int:
    """What the other columns leave to the signature."""
    taken = sum(widths[column.title] for column in columns if column.title != "pipeline")
    return width - taken - 2 * (len(columns) - 1)


def _padded(value: str, width: int, column: _Column) -> str:
    value = shorten(value, width)
    padding = " " * (width - cell_len(value))
    return padding + value if column.right else value + padding


def _when(start: float, now: float) -> str:
    """The time of day; with the date unless it is today, and with the year when long ago."""
    began, today = datetime.fromtimestamp(start), datetime.fromtimestamp(now)
    if began.date() == today.date():
        return began.strftime("%H:%M:%S")
    return began.strftime("%Y-%m-%d" if abs(now - start) > LONG_AGO else "%m-%d %H:%M")


def _notes(run: Summary) -> str:
    """What to know of a run: that it was seen in part only, and the ids of its findings."""
    return ", ".join([*(["partial"] if run.partial else []), *run.findings]) or "-"


def time_lines(run: Run, timeline: Timeline, width: int, *, ascii_only: bool = False) -> list[Text]:
    """The level and each stage's CPU over time, as rows of bars; nothing for a single point."""
    if len(timeline) < 2:
        return []
    names = _names(run, ascii_only)
    label = max(len("level"), *(cell_len(name) for name in names.values()))
    columns = max(10, min(MAX_COLUMNS, width - label - 4 - len("  max 00.0")))
    begin, end = timeline[0].start, timeline[-1].end
    level = _per_column(timeline, columns, _stage_seconds)
    step = (end - begin) / columns
    lines = [
        Text(f"  over time: stages on CPU, and CPUs of each stage; a column is {duration(step)}")
    ]
    lines.append(_row("level", level, label, ascii_only))
    for index, name in names.items():
        cpu = _per_column(timeline, columns, partial(_cpu_seconds, index))
        lines.append(_row(name, cpu, label, ascii_only))
    return [plain_marks(Text("").join([line[:width]]), ascii_only) for line in lines]


def _stage_seconds(point: Point) -> float:
    """Seconds on CPU, each stage counted once."""
    return sum(count * seconds for count, seconds in enumerate(point.levels))


def _cpu_seconds(index: int, point: Point) -> float:
    return point.stages[index].states.get("cpu", 0.0)


def _names(run: Run, ascii_only: bool) -> dict[int, str]:
    """Names of the stages that are shown, by index, in data order."""
    busiest = sorted(range(len(run.stages)), key=lambda at: -run.stages[at].cpu_seconds)
    return {
        at: shorten(
            f"{run.stages[at].position} {printable(run.stages[at].command, ascii_only)}", 18
        )
        for at in sorted(busiest[:MAX_STAGES])
    }


def _per_column(timeline: Timeline, columns: int, seconds: Callable[[Point], float]) -> list[float]:
    """The mean rate in each of so many equal parts of the time, spread evenly over a point."""
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
    """Bars up to the largest value, at least 1, and what that is."""
    marks = _DIGITS if ascii_only else _HEIGHTS
    top = max(1.0, *values)
    heights = [int(value / top * len(marks) + ROUNDING) for value in values]
    bars = "".join(
        " " if value < LEAST else marks[min(len(marks) - 1, height)]
        for value, height in zip(values, heights, strict=True)
    )
    text = Text(f"  {name}{' ' * (label - cell_len(name))}  ")
    text.append(bars, STYLES["cpu"])
    return text.append(f"  max {max(values):.1f}")
