# SPDX-License-Identifier: Apache-2.0
"""The terminal report of a comparison, and the progress bar while one is made.

`lines` is pure and `render` prints them. Every line fits its width, and colours only repeat what
the words say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from pipelined.analysis.comparison import Comparison, Side
from pipelined.analysis.comparison_rows import (
    GROUPS,
    Figure,
    Row,
    StageFigures,
    amount,
    is_worth_a_row,
    times,
)
from pipelined.terminal.drawing import (
    STYLES,
    Column,
    cropped,
    is_ascii,
    measured,
    plain_marks,
    print_lines,
    report_width,
    shorten,
    table_row,
    table_width,
    wrap,
)
from pipelined.wording import STATE_WORDS, duration, printable

if TYPE_CHECKING:
    from pipelined.run.trials import Advance

__all__ = ["lines", "progress", "render"]

#: Redraws of the progress bar per second: few, because redrawing takes CPU from what is measured.
_REFRESHES = 1
#: Before a heading, and before a row below it.
_HEADING_INDENT = "  "
_ROW_INDENT = "    "


@contextlib.contextmanager
def progress(console: Console, total: int) -> Iterator[Advance]:
    """A progress bar on `console`, if that is a terminal.

    Yields a function to call before each of `total` steps, with a description of the step.
    """
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        refresh_per_second=_REFRESHES,
        disable=not console.is_terminal,
    )
    with shown:
        task = shown.add_task("", total=total)
        begun = 0

        def advance(what: str) -> None:
            nonlocal begun
            shown.update(task, description=what, completed=begun, refresh=True)
            begun += 1

        yield advance


def render(comparison: Comparison, console: Console) -> None:
    """Print the report of `comparison` to `console`."""
    print_lines(lines(comparison, report_width(console), ascii_only=is_ascii(console)), console)


def lines(comparison: Comparison, width: int, *, ascii_only: bool = False) -> list[Text]:
    """The report as lines of at most `width` columns: verdict, caveats, then the figures."""
    out = [_side_line(side, width) for side in comparison.sides]
    out.append(Text())
    out += _paragraph(comparison.verdict, "bold", width)
    if comparison.why:
        out += _paragraph(f"Why: {printable(comparison.why)}", "", width)
    for caveat in comparison.caveats:
        out += _paragraph(f"Note: {printable(caveat)}.", "yellow", width)
    for block in filter(None, _blocks(comparison, width)):
        out += [Text(), *_grid(block, width)]
    return [plain_marks(line, ascii_only) for line in out]


def _side_line(side: Side, width: int) -> Text:
    name = printable(" ".join(side.name.split()))
    tail = f"   run {side.run}" if side.run else ""
    return Text(f"{side.label}  ", "bold") + Text(shorten(name, width - 3 - len(tail)) + tail)


def _paragraph(text: str, style: str, width: int) -> list[Text]:
    return [Text("  ") + line for line in wrap(text, width - 2, style)]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a grid: a heading, or a row of cells after a name."""

    name: Text
    cells: tuple[Text, ...] = ()


def _blocks(comparison: Comparison, width: int) -> Iterator[list[_Line]]:
    """The figures of the first side beside as many others as fit, then beside the next ones.

    Rows have their terms behind their words if all sides fit even so.
    """
    others = list(range(1, len(comparison.sides)))
    terms = _width(_block(comparison, others, terms=True)) <= width
    while others:
        fitting = max(
            (
                count
                for count in range(1, len(others) + 1)
                if _width(_block(comparison, others[:count], terms=terms)) <= width
            ),
            default=1,
        )
        yield _block(comparison, others[:fitting], terms=terms)
        yield _stage_block(comparison, [0, *others[:fitting]])
        others = others[fitting:]


def _block(comparison: Comparison, others: Sequence[int], *, terms: bool) -> list[_Line]:
    """All rows with something to report about the first side and the `others`."""
    first = comparison.sides[0].label
    heads = [Text(first, "bold")]
    for other in others:
        label = comparison.sides[other].label
        heads += [Text(label, "bold"), Text(f"{label}/{first}", "dim")]
    out = [_Line(Text(), tuple(heads))]
    longest = max(side.wall_seconds.median for side in comparison.sides)
    for group, title in GROUPS.items():
        rows = [
            row for row in comparison.rows if row.group == group and is_worth_a_row(row, longest)
        ]
        if not rows:
            continue
        if group != "time":
            out.append(_Line(Text(title, "dim")))
        for row in rows:
            cells = [_cell(row.values[0], row.unit)]
            for other in others:
                cells += [_cell(row.values[other], row.unit), _ratio(row, other)]
            name = row.words_and_term if terms else row.words
            out.append(_Line(Text(name), tuple(cells)))
    return out


def _cell(figure: Figure | None, unit: str) -> Text:
    if figure is None:
        return Text("-", "dim")
    text = Text(amount(figure.median, unit))
    low, high = amount(figure.low, unit), amount(figure.high, unit)
    if low != high:
        # If both have the same unit, it is printed once.
        number, _, of_low = low.partition(" ")
        low = number if of_low and high.endswith(f" {of_low}") and "min" not in high else low
        text.append(f" ({low}–{high})", "dim")
    return text


def _ratio(row: Row, side: int) -> Text:
    figure = row.ratios[side]
    if figure is None:
        return Text("-", "dim")
    text = Text(times(figure.median), "bold" if row.name == "wall" else "")
    if row.name == "wall" and times(figure.low) != times(figure.high):
        text.append(f" ({times(figure.low)}–{times(figure.high)})", "dim")
    return text


def _stage_block(comparison: Comparison, shown: Sequence[int]) -> list[_Line]:
    """CPU time and longest wait of each stage, side by side."""
    rows = [row for row in comparison.stages if any(row.sides[index] for index in shown)]
    if not rows:
        return []
    heads = []
    for index in shown:
        heads += [Text(f"{comparison.sides[index].label} cpu", "dim"), Text("longest wait", "dim")]
    out = [_Line(Text("stage", "dim"), tuple(heads))]
    for row in rows:
        cells: list[Text] = []
        for index in shown:
            cells += _stage_cells(row.sides[index])
        out.append(_Line(Text(shorten(printable(row.command), 16), "bold"), tuple(cells)))
    return out


def _stage_cells(figures: StageFigures | None) -> list[Text]:
    if figures is None:
        return [Text("-", "dim"), Text("-", "dim")]
    waits = {state: s for state, s in figures.state_seconds.items() if state != "cpu"}
    state = max(waits, key=lambda name: waits[name])
    wait = Text(f"{STATE_WORDS[state]} {duration(waits[state])}", STYLES[state])
    cpu = duration(figures.cpu_seconds)
    if figures.branches > 1:
        cpu = f"{figures.branches:.0f} × together {cpu}"
    return [Text(cpu), wait if waits[state] > 0 else Text("-")]


def _columns(block: Sequence[_Line]) -> list[Column[_Line]]:
    """The name and the cells of the rows, each as wide as its widest one."""
    rows = [line for line in block if line.cells]
    columns: list[Column[_Line]] = [Column("", lambda line: line.name)]
    for index in range(max((len(line.cells) for line in rows), default=0)):
        columns.append(Column("", partial(_cell_at, index)))
    return measured(columns, rows)


def _cell_at(index: int, line: _Line) -> Text:
    return line.cells[index]


def _width(block: Sequence[_Line]) -> int:
    return len(_ROW_INDENT) + table_width(_columns(block))


def _grid(block: Sequence[_Line], width: int) -> list[Text]:
    """Lines of at most `width` columns: headings, and rows in columns."""
    columns = _columns(block)
    return [
        cropped(
            table_row(columns, line, _ROW_INDENT)
            if line.cells
            else Text(_HEADING_INDENT) + line.name,
            width,
        )
        for line in block
    ]
