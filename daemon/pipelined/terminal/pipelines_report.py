# SPDX-License-Identifier: Apache-2.0
"""Pipelines over a time at a prompt: a table, and below it what its marks mean.

Pure: values in, styled lines out. Every line fits its width.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from rich.text import Text

from pipelined.history.pipelines import PipelinesSummary, PipelineSummary, TrendBar
from pipelined.history.rollup import Sums
from pipelined.nesting import Line
from pipelined.terminal.drawing import (
    HEIGHTS,
    OUTCOME_STYLES,
    STYLES,
    Column,
    fitted,
    heading,
    line_name,
    plain_marks,
    shorten,
    table_row,
    wrap,
)
from pipelined.terminal.history_report import (
    DIGITS,
    LEAST_SIGNATURE,
    MIN_SIGNATURE,
    usual_words,
    when,
)
from pipelined.wording import about, data_size, duration, expected, percent, printable, step_words

__all__ = ["failed", "not_overlapped", "pipelines_lines", "times"]

#: Columns of a trend, at most: neighbouring bars are one.
_TREND = 16


def pipelines_lines(
    found: PipelinesSummary, width: int, now: float, *, ascii_only: bool = False
) -> list[Text]:
    """The table of all that is listed, each line of at most `width` columns; `now` is Unix time."""
    columns: list[Column[Line[PipelineSummary]]] = [
        Column(
            "pipeline",
            lambda line: Text(line_name(line, ascii_only)),
            least=MIN_SIGNATURE,
            floor=LEAST_SIGNATURE,
        ),
        Column("unit", lambda line: Text(printable(line.run.series.unit, ascii_only)), rank=3),
        Column("runs", lambda line: Text(f"{line.run.sums.runs:,}"), right=True),
        Column("total", lambda line: Text(duration(line.run.sums.wall)), right=True),
        Column("CPU", lambda line: Text(duration(line.run.sums.cpu)), right=True, rank=5),
        Column(
            "not overlapped", lambda line: Text(not_overlapped(line.run.sums)), right=True, rank=4
        ),
        Column("median", lambda line: Text(_about(line.run, line.run.median)), right=True),
        Column("95 %", lambda line: Text(_about(line.run, line.run.p95)), right=True, rank=6),
        Column(
            "trend",
            lambda line: Text(_trend(line.run.trend, ascii_only), STYLES["cpu"]),
            rank=2,
        ),
        Column("last run", lambda line: Text(_last(line.run))),
        Column("bottleneck", lambda line: Text(_bottleneck(line.run, ascii_only)), rank=1),
        Column("finding", lambda line: Text(_finding(line.run)), rank=1),
    ]
    if any(one.sums.failed for one in found.listed):
        columns.insert(3, Column("failed", lambda line: failed(line.run.sums), right=True))
    if found.with_input:
        place = [column.title for column in columns].index("trend")
        columns.insert(place, Column("input", lambda line: Text(_input(line.run)), True, rank=3))
    lines = found.lines
    shown = fitted(columns, lines, width)
    rows = [heading(shown), *(table_row(shown, line) for line in lines)]
    for row in rows:
        row.rstrip()
    cut = [row if row.cell_len <= width else Text(shorten(row.plain, width)) for row in rows]
    words = wrap(_words(found, now, {column.title for column in shown}), width, "dim")
    return [plain_marks(line, ascii_only) for line in (*cut, *words)]


def _words(found: PipelinesSummary, now: float, titles: Set[str]) -> str:
    """What is summed up, and what the marks mean, in the columns of these titles."""
    text = times(found.start, found.end, now)
    if "trend" in titles:
        text += f" Trend: what a run took on average, a column is {_column_words(found)}."
    if "input" in titles:
        text += " Input: of half of the runs no more, and what a second of a run took in."
    if any(not one.exact for one in found.listed):
        text += " ≈: within a factor of 2, as not every run is read."
    if any(one.sums.failed and one.sums.unknown for one in found.listed):
        text += " Failed: the share is one of the runs whose outcome is known."
    return text


def times(start: float | None, end: float | None, now: float) -> str:
    """The sentence on when the runs ended that are summed up."""
    return f"Runs that ended from {when(start or 0.0, now)} to {when(min(end or now, now), now)}."


def _column_words(found: PipelinesSummary) -> str:
    bars = len(found.listed[0].trend) if found.listed else 1
    return step_words(found.step * _merged(bars))


def _merged(bars: int) -> int:
    """How many bars are one column."""
    return -(-bars // _TREND)


def _about(one: PipelineSummary, seconds: float | None) -> str:
    return about(seconds, one.exact)


def failed(sums: Sums) -> Text:
    """How many runs have failed, and their share."""
    if not sums.failed:
        return Text("-")
    share = percent(sums.failed_share or 0.0)
    return Text(f"{sums.failed:,} ({share})", OUTCOME_STYLES["failed"])


def not_overlapped(sums: Sums) -> str:
    """How long at most one stage was on CPU, and its share of the wall time."""
    share = sums.not_overlapped / sums.wall if sums.wall else 0.0
    return f"{duration(sums.not_overlapped)} ({percent(share)})"


def _input(one: PipelineSummary) -> str:
    """The median of its runs' inputs, and how fast they took it in; the mean if none is stored."""
    if one.median_input is None:
        mean = one.sums.mean_input
        return "-" if mean is None else f"mean {data_size(mean)}"
    return f"{data_size(one.median_input)} ({data_size(one.input_rate or 0.0)}/s)"


def _last(one: PipelineSummary) -> str:
    """How long the last run took, and how that compares with its usual."""
    if one.last is None:
        return "-"
    return ", ".join(filter(None, (duration(one.last.wall), usual_words(one.last))))


def _bottleneck(one: PipelineSummary, ascii_only: bool) -> str:
    if one.bottleneck is None:
        return "-"
    return f"{printable(one.bottleneck, ascii_only)} ({percent(one.bottleneck_share or 0.0)})"


def _finding(one: PipelineSummary) -> str:
    if one.finding is None:
        return "-"
    return f"{one.finding.id} {expected(one.finding.expected)}".rstrip()


def _trend(bars: Sequence[TrendBar], ascii_only: bool) -> str:
    """A mark for each bar, as high as its mean; blank where nothing ended."""
    merged = _merged(len(bars))
    means = []
    for first in range(0, len(bars), merged):
        part = bars[first : first + merged]
        runs = sum(bar.runs for bar in part)
        means.append(sum(bar.wall for bar in part) / runs if runs else 0.0)
    top = max(means, default=0.0) or 1.0
    marks = DIGITS if ascii_only else HEIGHTS
    return "".join(
        marks[min(len(marks) - 1, int(mean / top * len(marks)))] if mean else " " for mean in means
    )
