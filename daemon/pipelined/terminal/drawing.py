# SPDX-License-Identifier: Apache-2.0
"""What all reports are drawn with: bars and their marks, wrapping, columns, plain ASCII."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from pipelined.runs import STATES, Run

__all__ = [
    "MIN_WIDTH",
    "STYLES",
    "bar",
    "glyphs",
    "is_ascii",
    "plain_marks",
    "printable",
    "printable_run",
    "shorten",
    "wrap",
]

#: Narrower terminals than this get lines of this width (columns).
MIN_WIDTH = 60
#: Style of each state, as rich names it.
STYLES: Mapping[str, str] = {
    "cpu": "green",
    "runqueue": "yellow",
    "pipe_empty": "blue",
    "pipe_full": "magenta",
    "disk": "red",
    "child": "cyan",
    "lock": "bright_yellow",
    "poll": "bright_black",
    "net": "bright_cyan",
    "sleep": "bright_black",
    "stopped": "bright_red",
    "other": "bright_black",
}
_BLOCKS: Mapping[str, str] = dict(zip(STATES, "█▓░▒▚▄▌▖▞·▬-", strict=True))
_LETTERS: Mapping[str, str] = dict(zip(STATES, "#%.+Dclpnzx-", strict=True))
#: A number and its unit stay on one line.
_TIED = re.compile(r"(?<=\d) (?=(?:%|µs|ms|s|min|h|d|more)\b|%)")
_TO_ASCII = str.maketrans({"…": "~", "µ": "u", "×": "x", "·": ","})
_HEIGHTS = "▁▂▃▄▅▆▇█"


def is_ascii(console: Console) -> bool:
    """True when the console cannot print block characters."""
    return not console.encoding.lower().replace("-", "").startswith("utf")


def printable(name: str, ascii_only: bool = False) -> str:
    """A name without characters that would harm or puzzle a terminal.

    Command names come from other users' processes and may hold anything.

    >>> printable("evil\\x1b[2J"), printable("größe", ascii_only=True)
    ('evil?[2J', 'gr??e')
    """
    return "".join(
        character if character.isprintable() and not (ascii_only and ord(character) > 126) else "?"
        for character in name
    )


def printable_run(run: Run, ascii_only: bool) -> Run:
    """`run` with every name made `printable`."""
    return replace(
        run,
        series=replace(
            run.series,
            pipeline=printable(run.series.pipeline, ascii_only),
            unit=printable(run.series.unit, ascii_only),
        ),
        stages=tuple(
            replace(stage, command=printable(stage.command, ascii_only)) for stage in run.stages
        ),
        endpoints=tuple(
            replace(endpoint, command=printable(endpoint.command, ascii_only))
            for endpoint in run.endpoints
        ),
    )


def plain_marks(line: Text, ascii_only: bool) -> Text:
    """`line` with our own non-ASCII marks (``…``, ``µ``, ``×``) replaced one for one."""
    if ascii_only:
        line.plain = line.plain.translate(_TO_ASCII)
    return line


def shorten(text: str, width: int) -> str:
    """`text` cut to `width` columns, ending in ``…`` where something was cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def wrap(text: str, width: int, style: str) -> list[Text]:
    """Lines of at most `width` columns; a number keeps its unit beside it."""
    out: list[str] = []
    for word in _TIED.sub("\0", text).split(" "):
        word = word.replace("\0", " ")
        if out and cell_len(out[-1]) + 1 + cell_len(word) <= width:
            out[-1] += " " + word
        else:
            out.append(word)
    return [Text(shorten(line, width), style) for line in out]


def _flow(entries: Sequence[Text], gap: str, lead: str, width: int) -> list[Text]:
    """Entries side by side, continued under each other at the same indent."""
    out: list[Text] = []
    for entry in entries:
        if out and out[-1].cell_len + len(gap) + entry.cell_len <= width:
            out[-1] = out[-1] + Text(gap) + entry
        else:
            out.append(Text(" " * len(lead) if out else lead) + entry)
    return out


def glyphs(ascii_only: bool) -> Mapping[str, str]:
    """The character that stands for each state in a bar."""
    return _LETTERS if ascii_only else _BLOCKS


def bar(states: Mapping[str, float], total: float, width: int, ascii_only: bool) -> Text:
    """States as shares of `total` seconds, `width` columns wide; what is missing stays blank."""
    text = Text()
    marks = glyphs(ascii_only)
    for state, cells in _cells(states, total, width).items():
        text.append(marks[state] * cells, STYLES[state])
    text.append(" " * (width - cell_len(text.plain)))
    return text


def _cells(states: Mapping[str, float], total: float, width: int) -> dict[str, int]:
    """Columns for each state by the largest remainder, so that they add up."""
    if total <= 0:
        return {}
    exact = {state: states.get(state, 0.0) / total * width for state in STATES}
    cells = {state: int(value) for state, value in exact.items()}
    spare = min(width, round(sum(exact.values()))) - sum(cells.values())
    for state in sorted(exact, key=lambda name: cells[name] - exact[name])[: max(0, spare)]:
        cells[state] += 1
    return {state: count for state, count in cells.items() if count}


def _aligned(cell: Text, width: int, right: bool) -> Text:
    padding = Text(" " * max(0, width - cell.cell_len))
    return padding + cell if right else cell + padding


def _cropped(line: Text, width: int) -> Text:
    line.rstrip()
    if line.cell_len > width:
        line.truncate(width)
    return line
