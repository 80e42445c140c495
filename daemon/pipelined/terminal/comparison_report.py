# SPDX-License-Identifier: Apache-2.0
"""The terminal report of a comparison, and the progress bar while one is made.

`lines` is pure and `render` prints them. As in `report`, every line fits its width, and colours
only repeat what the words say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
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
    MIN_WIDTH,
    STYLES,
    is_ascii,
    plain_marks,
    printable,
    shorten,
    wrap,
)
from pipelined.wording import STATE_WORDS, duration

if TYPE_CHECKING:
    from pipelined.run.trials import Advance

__all__ = ["lines", "progress", "render"]

#: Redraws of the progress bar for each second: it must not be what is measured.
_REFRESHES = 1
_GAP = "  "


@contextlib.contextmanager
def progress(console: Console, total: int) -> Iterator[Advance]:
    """A bar on `console` that moves on when it is called; nothing where that is no terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

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
    width = max(MIN_WIDTH, console.width)
    for line in lines(comparison, width, ascii_only=is_ascii(console)):
        console.print(line, soft_wrap=True, highlight=False)


def lines(comparison: Comparison, width: int, *, ascii_only: bool = False) -> list[Text]:
    """The report as lines of at most `width` columns: verdict, caveats, then the figures."""
    out = [_named(side, width) for side in comparison.sides]
    out.append(Text())
    out += _paragraph(comparison.verdict, "bold", width)
    if comparison.why:
        out += _paragraph(f"Why: {comparison.why}", "", width)
    for caveat in comparison.caveats:
        out += _paragraph(f"Note: {printable(caveat)}.", "yellow", width)
    for block in filter(None, _blocks(comparison, width)):
        out += [Text(), *_grid(block, width)]
    return [plain_marks(_plain(line, ascii_only), ascii_only) for line in out]


def _plain(line: Text, ascii_only: bool) -> Text:
    """`line` without what the terminal cannot print: command lines may hold anything."""
    if ascii_only:
        line.plain = "".join(
            "-" if c == "–" else c if ord(c) < 127 or c in "…µ×·" else "?" for c in line.plain
        )
    return line


def _named(side: Side, width: int) -> Text:
    name = printable(" ".join(side.name.split()))
    tail = f"   run {side.run}" if side.run else ""
    return Text(f"{side.label}  ", "bold") + Text(shorten(name, width - 3 - len(tail)) + tail)


def _paragraph(text: str, style: str, width: int) -> list[Text]:
    return [Text("  ") + line for line in wrap(text, width - 2, style)]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a grid: a heading, or the cells behind a name."""

    name: Text
    cells: tuple[Text, ...] = ()


def _blocks(comparison: Comparison, width: int) -> Iterator[list[_Line]]:
    """The figures of as many sides as fit beside the first one, then those of the next ones."""
    others = list(range(1, len(comparison.sides)))
    while others:
        fitting = max(
            (
                count
                for count in range(1, len(others) + 1)
                if _width(_block(comparison, others[:count])) <= width
            ),
            default=1,
        )
        yield _block(comparison, others[:fitting])
        yield _stage_block(comparison, [0, *others[:fitting]])
        others = others[fitting:]


def _block(comparison: Comparison, others: Sequence[int]) -> list[_Line]:
    """All rows that say something, of the first side and the `others`."""
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
            out.append(_Line(Text(row.name), tuple(cells)))
    return out


def _cell(figure: Figure | None, unit: str) -> Text:
    if figure is None:
        return Text("-", "dim")
    text = Text(amount(figure.median, unit))
    low, high = amount(figure.low, unit), amount(figure.high, unit)
    if low != high:
        # The unit once is enough where it is the same.
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


def _widths(block: Sequence[_Line]) -> list[int]:
    """Of the columns, the first one's name included."""
    columns = max((len(line.cells) for line in block), default=0)
    names = max((line.name.cell_len for line in block if line.cells), default=0)
    return [names] + [
        max(line.cells[index].cell_len for line in block if line.cells) for index in range(columns)
    ]


def _width(block: Sequence[_Line]) -> int:
    widths = _widths(block)
    return 4 + sum(widths) + len(_GAP) * (len(widths) - 1)


def _grid(block: Sequence[_Line], width: int) -> list[Text]:
    """Lines of at most `width` columns: names, and cells in columns."""
    widths = _widths(block)
    out = []
    for line in block:
        text = Text("  ") + line.name if not line.cells else Text("    ") + line.name
        for cell, space in zip((line.name, *line.cells), widths, strict=False):
            if cell is not line.name:
                text += Text(_GAP) + cell
            text.append(" " * (space - cell.cell_len))
        text.rstrip()
        if cell_len(text.plain) > width:
            text.truncate(width)
        out.append(text)
    return out
