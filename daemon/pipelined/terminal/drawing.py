# SPDX-License-Identifier: Apache-2.0
"""What all reports are drawn with: tables, bars and their marks, wrapping, plain ASCII.

Everything but `print_lines` is pure. A width is a number of terminal columns, as rich counts
them: a wide character takes two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from unicodedata import category

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segments
from rich.text import Text

from pipelined.nesting import Line
from pipelined.runs import STATES, Run, Stage
from pipelined.states import STATE_TABLE
from pipelined.wording import percent, printable

__all__ = [
    "HEIGHTS",
    "MIN_WIDTH",
    "OUTCOME_STYLES",
    "STYLES",
    "Column",
    "bar",
    "cells_by_state",
    "cropped",
    "fitted",
    "flow",
    "glyphs",
    "heading",
    "is_ascii",
    "is_squeezed",
    "line_name",
    "measured",
    "pasted",
    "percent_or_dash",
    "plain_marks",
    "print_lines",
    "printable_run",
    "report_width",
    "shorten",
    "table_row",
    "table_width",
    "wrap",
]

#: Narrower terminals than this get lines of this width.
MIN_WIDTH = 60

#: Style of each state, as rich names it.
STYLES: Mapping[str, str] = {state.name: state.style for state in STATE_TABLE}
#: Style of what has not succeeded, by outcome.
OUTCOME_STYLES: Mapping[str, str] = {"failed": "bold red", "interrupted": "bold"}
#: Marks for shares of a whole, from small to full.
HEIGHTS = "▁▂▃▄▅▆▇█"

_BLOCKS: Mapping[str, str] = {state.name: state.block for state in STATE_TABLE}
_LETTERS: Mapping[str, str] = {state.name: state.letter for state in STATE_TABLE}
_TO_ASCII = str.maketrans(
    {
        **{"…": "~", "µ": "u", "×": "x", "·": ",", "–": "-", "└": "`", "≤": "<"},
        **{"≈": "~", "▲": "!"},
    }
)
#: Kinds of characters that could control a terminal, order its text or end its lines, and of those
#: that stand for bytes which are no text.
_CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: A number and its unit stay on one line.
_TIED = re.compile(r"(?<=\d) (?=(?:%|µs|ms|s|min|h|d|more)\b|%)")
#: Blanks between the columns of a table.
_GAP = "  "


# -- tables

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a table."""

    title: str
    value: Callable[[Row], Text]
    right: bool = False
    """Aligned to the right."""
    rank: int = 0
    """If the table is too wide, columns of the highest rank are dropped first; 0 always stays."""
    width: int | None = None
    """None until `measured` has set it to that of the widest cell."""
    least: int | None = None
    """Given for the one column that shrinks below its `width`; columns with a rank are dropped
    before it gets narrower than this."""
    floor: int = 0
    """It never gets narrower than this."""


def measured(columns: Iterable[Column[Row]], rows: Sequence[Row]) -> list[Column[Row]]:
    """`columns`, those without a width as wide as their title or widest cell."""
    return [
        replace(column, width=_widest(column, rows)) if column.width is None else column
        for column in columns
    ]


def _widest(column: Column[Row], rows: Sequence[Row]) -> int:
    return max(cell_len(column.title), *(column.value(row).cell_len for row in rows), 0)


def fitted(columns: Iterable[Column[Row]], rows: Sequence[Row], width: int) -> list[Column[Row]]:
    """The columns that fit into `width`, measured; the one that shrinks gets what is left."""
    shown = measured(columns, rows)
    while _least_width(shown) > width and (rank := max(column.rank for column in shown)):
        shown = [column for column in shown if column.rank < rank]
    spare = width - table_width([column for column in shown if column.least is None])
    return [
        column
        if column.least is None
        else replace(column, width=max(column.floor, min(column.width or 0, spare - len(_GAP))))
        for column in shown
    ]


def is_squeezed(fitted_columns: Iterable[Column[Row]], rows: Sequence[Row]) -> bool:
    """Whether the column that shrinks has less than its least, and would need more."""
    return any(
        column.least is not None and (column.width or 0) < min(column.least, _widest(column, rows))
        for column in fitted_columns
    )


def table_width(columns: Sequence[Column[Row]]) -> int:
    """The width of a line of the table."""
    return sum(column.width or 0 for column in columns) + len(_GAP) * (len(columns) - 1)


def _least_width(columns: Sequence[Column[Row]]) -> int:
    """The width of a line in which the column that shrinks is at its least."""
    return table_width(columns) - sum(
        max(0, (column.width or 0) - column.least) for column in columns if column.least is not None
    )


def heading(columns: Sequence[Column[Row]], indent: str = "") -> Text:
    """The line with the titles."""
    line = _line(columns, [Text(column.title) for column in columns], indent)
    line.style = "dim"
    return line


def table_row(columns: Sequence[Column[Row]], row: Row, indent: str = "") -> Text:
    """The line for one row: its cells shortened and aligned to their columns."""
    return _line(columns, [column.value(row) for column in columns], indent)


def _line(columns: Sequence[Column[Row]], cells: Sequence[Text], indent: str) -> Text:
    line = Text(indent)
    for number, (column, cell) in enumerate(zip(columns, cells, strict=True)):
        width = column.width or 0
        if cell.cell_len > width:
            cell = Text(shorten(cell.plain, width), cell.style)
        padding = Text(" " * (width - cell.cell_len))
        line += Text(_GAP if number else "")
        line += padding + cell if column.right else cell + padding
    return line


def percent_or_dash(value: float | None) -> str:
    """A share as text; ``-`` if it is not known."""
    return "-" if value is None else percent(value)


# -- bars


def glyphs(ascii_only: bool) -> Mapping[str, str]:
    """The character that stands for each state in a bar."""
    return _LETTERS if ascii_only else _BLOCKS


def bar(states: Mapping[str, float], total: float, width: int, ascii_only: bool) -> Text:
    """Seconds by state as shares of `total` seconds; what is missing stays blank."""
    text = Text()
    marks = glyphs(ascii_only)
    for state, cells in cells_by_state(states, total, width).items():
        text.append(marks[state] * cells, STYLES[state])
    text.append(" " * (width - cell_len(text.plain)))
    return text


def cells_by_state(states: Mapping[str, float], total: float, width: int) -> dict[str, int]:
    """Terminal columns for each state in a bar, by the largest remainder, so that they add up."""
    if total <= 0:
        return {}
    exact = {state: states.get(state, 0.0) / total * width for state in STATES}
    cells = {state: int(value) for state, value in exact.items()}
    spare = min(width, round(sum(exact.values()))) - sum(cells.values())
    for state in sorted(exact, key=lambda name: cells[name] - exact[name])[: max(0, spare)]:
        cells[state] += 1
    return {state: count for state, count in cells.items() if count}


# -- lines


def shorten(text: str, width: int) -> str:
    """`text` cut to `width` columns, ending in ``…`` if something was cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def cropped(line: Text, width: int) -> Text:
    """`line` without blanks at its end, cut to `width` columns."""
    line.rstrip()
    line.truncate(width)
    return line


def wrap(text: str, width: int, style: str) -> list[Text]:
    """Lines of at most `width` columns; a number and its unit stay on one line."""
    out: list[str] = []
    for word in _TIED.sub("\0", text).split(" "):
        word = word.replace("\0", " ")
        if out and cell_len(out[-1]) + 1 + cell_len(word) <= width:
            out[-1] += " " + word
        else:
            out.append(word)
    return [Text(shorten(line, width), style) for line in out]


def flow(entries: Sequence[Text], gap: str, lead: str, width: int) -> list[Text]:
    """Entries side by side after `lead`; further lines have the same indent."""
    out: list[Text] = []
    for entry in entries:
        if out and out[-1].cell_len + len(gap) + entry.cell_len <= width:
            out[-1] = out[-1] + Text(gap) + entry
        else:
            out.append(Text(" " * len(lead) if out else lead) + entry)
    return out


# -- what a terminal can print


def is_ascii(console: Console) -> bool:
    """True when the console cannot print block characters."""
    return not console.encoding.lower().replace("-", "").startswith("utf")


def line_name(line: Line[Any], ascii_only: bool = False) -> str:
    """The pipeline of a line of a list, as deep as it lies: ``└ 12 × seq|sort``.

    If the run that encloses it is not listed, it is named behind: ``seq|sort in job.sh|tee``.
    """
    indent = "  " * (line.depth - 1) + "└ " if line.depth else ""
    name = printable(f"{line.run.pipeline} {line.inside}".rstrip(), ascii_only)
    return f"{indent}{line.times}{name}"


def printable_run(run: Run, ascii_only: bool) -> Run:
    """`run` with every name made `printable`."""
    return replace(
        run,
        series=replace(
            run.series,
            pipeline=printable(run.series.pipeline, ascii_only),
            unit=printable(run.series.unit, ascii_only),
        ),
        stages=tuple(_printable_stage(stage, ascii_only) for stage in run.stages),
        endpoints=tuple(
            replace(endpoint, command=printable(endpoint.command, ascii_only))
            for endpoint in run.endpoints
        ),
        parent_pipeline=run.parent_pipeline and printable(run.parent_pipeline, ascii_only),
        surroundings=run.surroundings
        and replace(
            run.surroundings,
            pipelines=tuple(
                replace(other, pipeline=printable(other.pipeline, ascii_only))
                for other in run.surroundings.pipelines
            ),
        ),
    )


def _printable_stage(stage: Stage, ascii_only: bool) -> Stage:
    return replace(
        stage,
        command=printable(stage.command, ascii_only),
        children=tuple(
            replace(child, command=child.command and printable(child.command, ascii_only))
            for child in stage.children
        ),
    )


def pasted(text: str, ascii_only: bool = False) -> str:
    """A command that is to be pasted, or a line of a patch: as it is, with its tabs, but with a
    ``?`` for each character that could control a terminal, or is not ASCII where only that can be
    printed.
    """
    return "".join(
        "?"
        if (category(character) in _CONTROLS and character != "\t")
        or (ascii_only and not character.isascii())
        else character
        for character in text
    )


def plain_marks(line: Text, ascii_only: bool) -> Text:
    """`line`, if only ASCII can be printed, with ``…``, ``µ``, ``×`` and the like replaced one
    for one, and ``?`` for anything else but tabs.
    """
    if ascii_only:
        line.plain = pasted(line.plain.translate(_TO_ASCII), ascii_only)
    return line


def report_width(console: Console) -> int:
    """The width for a report on `console`."""
    return max(MIN_WIDTH, console.width)


def print_lines(lines: Iterable[Text | str], console: Console) -> None:
    """Print lines as they are: rich neither wraps them nor looks for markup or numbers, and it
    makes no blanks of their tabs, as it does in a Text that it prints itself."""
    for line in lines:
        console.print(Segments((Text() + line).render(console, end="\n")), crop=False)
