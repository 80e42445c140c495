# SPDX-License-Identifier: Apache-2.0
"""The terminal report of one run: verdict first, then the evidence.

`lines` is pure (a run in, styled lines out) and `render` prints them. Every line fits the
width it is given; colours are a second carrier of what glyphs and words say already, so the
report reads the same without them (``NO_COLOR``, a file, a pipe).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from pipelined.analysis.bottleneck import share
from pipelined.analysis.findings import Finding, findings
from pipelined.analysis.machine import Host
from pipelined.analysis.readahead_words import cache, stalls
from pipelined.analysis.sentence import sentence
from pipelined.runs import LEVELS, STATES, Histogram, Readahead, Run, Stage
from pipelined.wording import STATE_WORDS, data_size, duration, mean_size, percent

__all__ = [
    "MIN_WIDTH",
    "STYLES",
    "bar",
    "data_size",
    "glyphs",
    "is_ascii",
    "lines",
    "mean_size",
    "plain_marks",
    "printable",
    "printable_run",
    "render",
    "shorten",
    "wrap",
]

#: Narrower terminals than this get lines of this width (columns).
MIN_WIDTH = 60
#: Wider than this a bar says no more (columns).
MAX_BAR = 60
MIN_BAR = 10
#: So many findings say what to try; --json has all of them.
TRIED = 3
#: More parallel branches of one name than this are shown as one row.
MAX_BRANCHES = 4

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
#: Key of the column that takes the space the others leave.
_BAR = "bar"
_HEIGHTS = "▁▂▃▄▅▆▇█"


def render(run: Run, console: Console, lost: int | None = 0, *, host: Host | None = None) -> None:
    """Print the report of `run` to `console`; `lost` is how many events were not counted,
    None where that is not known; `host` is the machine that it ran on, this one by default.
    """
    width = max(MIN_WIDTH, console.width)
    host = host or Host.read()
    for line in lines(run, lost, width, ascii_only=is_ascii(console), host=host):
        console.print(line, soft_wrap=True, highlight=False)


def lines(
    run: Run,
    lost: int | None,
    width: int,
    *,
    ascii_only: bool = False,
    host: Host | None = None,
) -> list[Text]:
    """The report as lines of at most `width` columns; what to try is told for `host`."""
    run = printable_run(run, ascii_only)
    out = _headline(run, lost, width)
    out.append(Text())
    out += [Text("  ") + line for line in wrap(sentence(run), width - 2, "bold")]
    out += [] if host is None else _advice(findings(run, host), width)
    if run.stages:
        out.append(Text())
        out += _table(run, width, ascii_only)
    out.append(Text())
    out += _facts(run, width, ascii_only)
    return [plain_marks(line, ascii_only) for line in out]


def _advice(found: Sequence[Finding], width: int) -> list[Text]:
    """What to try, first what matters most, and what it could save."""
    out = []
    for finding in [finding for finding in found if finding.advice][:TRIED]:
        text = finding.advice
        if finding.gain_seconds is not None:
            text += f" The bound is {duration(finding.gain_seconds)}."
        first, *rest = wrap(f"{text} [{finding.id}]", width - 7, "")
        out += [Text("  ") + first, *(Text(" " * 7) + line for line in rest)]
    return out


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


def glyphs(ascii_only: bool) -> Mapping[str, str]:
    """The character that stands for each state in a bar."""
    return _LETTERS if ascii_only else _BLOCKS


def shorten(text: str, width: int) -> str:
    """`text` cut to `width` columns, ending in ``…`` where something was cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…"


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


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of the table: a stage, or the sum of `count` parallel branches."""

    name: str
    stage: Stage
    count: int


def _rows(run: Run) -> list[_Row]:
    groups: dict[tuple[int, str], list[Stage]] = {}
    for stage in run.stages:
        groups.setdefault((stage.position, stage.command), []).append(stage)
    rows: list[_Row] = []
    for stage in run.stages:
        group = groups[stage.position, stage.command]
        if len(group) <= MAX_BRANCHES:
            rows.append(_Row(stage.command, stage, 1))
        elif stage is group[0]:
            rows.append(_Row(f"{stage.command} ×{len(group)}", _sum(group), len(group)))
    return rows


def _sum(group: Sequence[Stage]) -> Stage:
    def total(name: str) -> int:
        return sum(getattr(stage, name) for stage in group)

    return replace(
        group[0],
        states={state: sum(s.states.get(state, 0.0) for s in group) for state in STATES},
        read_bytes=total("read_bytes"),
        written_bytes=total("written_bytes"),
        read_calls=total("read_calls"),
        write_calls=total("write_calls"),
        forks=total("forks"),
    )


def _headline(run: Run, lost: int | None, width: int) -> list[Text]:
    figures = [duration(run.wall_seconds) + (" so far" if run.live else " wall")]
    figures.append(f"{run.cores_used:.1f} cores used")
    if run.overlap is not None:
        figures.append(f"overlap {percent(run.overlap)}")
    if run.readahead and run.readahead.cache_state:
        figures.append(f"cache {run.readahead.cache_state}")
    if run.partial:
        figures.append("partial")
    if lost is not None:
        figures.append(f"{lost:,} lost")
    entries = [Text(figure) for figure in figures]
    if lost:
        entries[-1].stylize("red")
    one_line = _flow([Text(run.pipeline, "bold"), *entries], "   ", "", width)
    if len(one_line) == 1:
        return one_line
    signature = Text(shorten(run.pipeline, width), "bold")
    return [signature, *_flow(entries, "   ", "  ", width)]


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    value: Callable[[_Row], Text]
    right: bool = False
    rank: int = 0
    """Columns of the highest rank are dropped first; 0 stays."""


def _columns(run: Run, width: int) -> list[_Column]:
    name_width = 10 if width < 80 else 16
    columns = [
        _Column("#", lambda row: Text(str(row.stage.position)), right=True),
        _Column("command", lambda row: Text(_short_name(row, name_width), "bold")),
        _Column("cpu", lambda row: Text(duration(row.stage.cpu_seconds)), right=True),
        _Column(_BAR, lambda row: Text()),
        _Column("longest wait", lambda row: _longest_wait(row, run.wall_seconds)),
        _Column("in", lambda row: Text(data_size(row.stage.read_bytes)), right=True, rank=1),
        _Column("out", lambda row: Text(data_size(row.stage.written_bytes)), right=True, rank=1),
        _Column("mean read", _mean_read, right=True, rank=4),
        _Column("mean write", _mean_write, right=True, rank=3),
    ]
    if any(stage.forks for stage in run.stages):
        columns.append(_Column("forks", lambda row: Text(f"{row.stage.forks:,}"), True, rank=2))
    return columns


def _table(run: Run, width: int, ascii_only: bool) -> list[Text]:
    """One line a stage under a heading, and the legend of the bars."""
    rows = _rows(run)
    columns = _columns(run, width)
    cells = {column.title: [column.value(row) for row in rows] for column in columns}
    widths = {
        title: max(cell_len(title), *(cell.cell_len for cell in column))
        for title, column in cells.items()
    }
    widths[_BAR] = MIN_BAR
    while _needed(columns, widths) > width and any(column.rank for column in columns):
        rank = max(column.rank for column in columns)
        columns = [column for column in columns if column.rank < rank]
    widths[_BAR] = 0
    space = widths[_BAR] = max(4, min(MAX_BAR, width - _needed(columns, widths)))
    cells[_BAR] = [_row_bar(row, run.wall_seconds, space, ascii_only) for row in rows]

    heading = f"states over {duration(run.wall_seconds)}"
    titles = {_BAR: heading if len(heading) <= space else "states"}
    heads = [Text(titles.get(column.title, column.title), "dim") for column in columns]
    grid = [heads, *([cells[c.title][index] for c in columns] for index in range(len(rows)))]
    out = []
    for texts in grid:
        line = Text()
        for column, text in zip(columns, texts, strict=True):
            line += Text("  ") + _aligned(text, widths[column.title], column.right)
        out.append(_cropped(line, width))
    return out + _legend(run, rows, space, width, ascii_only)


def _needed(columns: Sequence[_Column], widths: Mapping[str, int]) -> int:
    return sum(2 + widths[column.title] for column in columns)


def _short_name(row: _Row, width: int) -> str:
    if row.count == 1:
        return shorten(row.name, width)
    tail = f" ×{row.count}"
    return shorten(row.stage.command, width - len(tail)) + tail


def _mean_read(row: _Row) -> Text:
    return Text(mean_size(row.stage.read_bytes, row.stage.read_calls))


def _mean_write(row: _Row) -> Text:
    return Text(mean_size(row.stage.written_bytes, row.stage.write_calls))


def _longest_wait(row: _Row, wall: float) -> Text:
    total = wall * row.count
    waits = {state: share(row.stage, state, total) for state in STATES if state != "cpu"}
    state = max(waits, key=lambda name: waits[name])
    if waits[state] < 0.005:
        return Text("-")
    return Text(f"{STATE_WORDS[state]} {percent(waits[state])}", STYLES[state])


def _row_total(row: _Row, wall: float) -> float:
    return max(wall * row.count, row.stage.lifetime_seconds)


def _row_bar(row: _Row, wall: float, width: int, ascii_only: bool) -> Text:
    return bar(row.stage.states, _row_total(row, wall), width, ascii_only)


def _legend(run: Run, rows: Sequence[_Row], space: int, width: int, ascii_only: bool) -> list[Text]:
    """What the marks mean, for those that appear."""
    drawn = [_cells(row.stage.states, _row_total(row, run.wall_seconds), space) for row in rows]
    seen = {state for cells in drawn for state in cells}
    marks = glyphs(ascii_only)
    entries = [
        Text(marks[state], STYLES[state]) + Text(f" {STATE_WORDS[state]}")
        for state in STATES
        if state in seen
    ]
    if any(sum(cells.values()) < space for cells in drawn):
        entries.append(Text("blank: not alive"))
    return _flow(entries, "  ", "     ", width)


def _facts(run: Run, width: int, ascii_only: bool) -> list[Text]:
    """Levels, disk, and where the run belongs."""
    out = _flow(_levels(run, ascii_only), "   ", "  level   ", width)
    out += _fact("disk", _disk(run), width)
    for name, texts in (
        ("stalls", _each_reader(run, lambda found: stalls(found, run.wall_seconds))),
        ("cache", _each_reader(run, cache)),
        ("pipes", _pipe_writes(run)),
        ("files", _file_reads(run)),
    ):
        if texts:
            out += _fact(name, "; ".join(texts), width)
    sides = []
    for side, word in (("write", "input from"), ("read", "output to")):
        names = [endpoint.command for endpoint in run.endpoints if endpoint.side == side]
        if names:
            sides.append(f"{word} {', '.join(names)}")
    if sides:
        out += _fact("ends", "; ".join(sides), width)
    if run.parent is not None:
        out += _fact("inside", f"a stage of run {run.parent}", width)
    elif run.series.nested:
        out += _fact("inside", "a stage of another pipeline", width)
    if run.series.unit not in ("", "-"):
        out += _fact("unit", run.series.unit, width)
    return out


def _levels(run: Run, ascii_only: bool) -> list[Text]:
    total = sum(run.levels)
    if total <= 0:
        return [Text("nothing measured")]
    last = max(index for index, seconds in enumerate(run.levels) if seconds > 0)
    entries = []
    for label, seconds in list(zip(LEVELS, run.levels, strict=False))[: last + 1]:
        part = seconds / total
        entry = Text(label, "bold")
        if not ascii_only:
            height = _HEIGHTS[min(7, int(part * 8))] if part > 0 else " "
            entry.append(f" {height}", STYLES["cpu"])
        entries.append(entry.append(f" {percent(part)}", ""))
    return entries


def _pipe_writes(run: Run) -> list[str]:
    """How large each stage's writes to pipes were, and how full the pipe was."""
    return [
        f"{stage.command} writes {_half(found.pipe_writes)} into "
        f"{mean_size(found.pipe_capacity_bytes or 0, 1)}, {percent(found.pipe_fill.mean or 0)} full"
        for stage in run.stages
        if (found := stage.functions) and found.pipe_writes.count
    ]


def _each_reader(run: Run, words: Callable[[Readahead], str | None]) -> list[str]:
    """What there is to say of each stage that read files."""
    return [
        f"{stage.command} {said}"
        for stage in run.stages
        if stage.readahead and (said := words(stage.readahead))
    ]


def _file_reads(run: Run) -> list[str]:
    """How large each stage's reads of files were, and how long they took."""
    out = []
    for stage in run.stages:
        found = stage.functions
        if found and found.file_reads.count:
            within = found.file_read_seconds.within(0.99)
            took = f", 99 % within {duration(within)}" if within else ""
            out.append(f"{stage.command} reads {_half(found.file_reads)}{took}")
    return out


def _half(sizes: Histogram) -> str:
    """The size that half of the calls did not exceed."""
    median = sizes.within(0.5)
    word, edge = ("over", sizes.edges[-1]) if median is None else ("up to", median)
    return f"{word} {mean_size(edge, 1)}"


def _disk(run: Run) -> str:
    waited = run.disk_wait_seconds
    hidden = run.io_overlap
    if hidden is None or waited < 0.00005:
        return "no stalls"
    text = f"a stage waited for {duration(waited)}"
    if run.wall_seconds > 0:
        text += f", {percent(min(1.0, waited / run.wall_seconds))} of the run"
    return text + f"; another one computed in {percent(hidden)} of that"


def _fact(name: str, value: str, width: int) -> list[Text]:
    head = f"  {name:<6}  "
    wrapped = wrap(value, width - len(head), "")
    indents = [head] + [" " * len(head)] * (len(wrapped) - 1)
    return [Text(indent) + line for indent, line in zip(indents, wrapped, strict=True)]


def _flow(entries: Sequence[Text], gap: str, lead: str, width: int) -> list[Text]:
    """Entries side by side, continued under each other at the same indent."""
    out: list[Text] = []
    for entry in entries:
        if out and out[-1].cell_len + len(gap) + entry.cell_len <= width:
            out[-1] = out[-1] + Text(gap) + entry
        else:
            out.append(Text(" " * len(lead) if out else lead) + entry)
    return out


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


def _aligned(cell: Text, width: int, right: bool) -> Text:
    padding = Text(" " * max(0, width - cell.cell_len))
    return padding + cell if right else cell + padding


def _cropped(line: Text, width: int) -> Text:
    line.rstrip()
    if line.cell_len > width:
        line.truncate(width)
    return line
