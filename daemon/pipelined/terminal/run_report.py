# SPDX-License-Identifier: Apache-2.0
"""The terminal report of one run: verdict first, then the evidence.

`lines` is pure (a run in, styled lines out) and `render` prints them. Every line fits the
width it is given; colours are a second carrier of what glyphs and words say already, so the
report reads the same without them (``NO_COLOR``, a file, a pipe).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pipelined.analysis.bottleneck import share
from pipelined.analysis.findings import Finding, findings
from pipelined.analysis.machine import Host
from pipelined.analysis.readahead_words import cache, stalls
from pipelined.analysis.sentence import brief, sentence
from pipelined.runs import LEVELS, STATES, Histogram, Readahead, Run, Stage
from pipelined.terminal.drawing import (
    _HEIGHTS,
    MIN_WIDTH,
    STYLES,
    _aligned,
    _cells,
    _cropped,
    _flow,
    bar,
    glyphs,
    is_ascii,
    plain_marks,
    printable_run,
    shorten,
    wrap,
)
from pipelined.wording import STATE_WORDS, data_size, duration, mean_size, percent

if TYPE_CHECKING:
    from pipelined.run.profile import Profile

__all__ = [
    "lines",
    "render",
    "write_report",
]

#: Wider than this a bar says no more (columns).
MAX_BAR = 60
MIN_BAR = 10
#: So many findings say what to try; --json has all of them.
TRIED = 3
#: More parallel branches of one name than this are shown as one row.
MAX_BRANCHES = 4


#: Key of the column that takes the space the others leave.
_BAR = "bar"


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


#: Runs of one command that are each reported in full; of more, only the first one is.
FULL_REPORTS = 3
#: Lines for the runs that are not reported in full.
LISTED = 20


def write_report(found: Profile, console: Console) -> None:
    """Print the report of every run, or of the first one and a list where there are many."""
    lost = sum(found.lost.values())
    if not found.runs:
        console.print(
            f"pipelined: {_nothing_seen(found, lost)}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
        return
    many = len(found.runs) > FULL_REPORTS
    for index, run in enumerate(found.runs[:1] if many else found.runs):
        if index:
            console.print()
        render(run, console, lost)
    if many:
        console.print()
        for line in _listed(found.runs[1:], max(MIN_WIDTH, console.width), is_ascii(console)):
            console.print(line, soft_wrap=True, highlight=False, markup=False)


def _nothing_seen(found: Profile, lost: int) -> str:
    if lost:
        return f"no pipeline seen, and {lost:,} events were lost; see pipelined doctor"
    reason = "no two processes of the command were joined by a pipe, and none read 64 KiB alone"
    if "|" in found.arguments[-1]:
        return f"no pipeline seen: {reason}, or not long enough to run or wait for anything"
    return f"no pipeline seen: {reason}; quote the whole pipeline: pipelined run 'a | b'"


def _listed(runs: Sequence[Run], width: int, ascii_only: bool) -> list[str]:
    """A line for each signature: how many runs, their time, and who held the longest one back."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        printed = printable_run(run, ascii_only)
        groups.setdefault(printed.pipeline, []).append(printed)
    ordered = sorted(groups.items(), key=lambda item: -sum(run.wall_seconds for run in item[1]))
    shown = ordered[:LISTED]
    name_width = min(40, max(len(name) for name, _ in shown))
    out = [f"  {len(runs):,} more runs; --json has each of them:"]
    for name, group in shown:
        total = sum(run.wall_seconds for run in group)
        longest = max(group, key=lambda run: run.wall_seconds)
        times = "x" if ascii_only else "×"
        line = (
            f"  {len(group):>6,} {times}  {shorten(name, name_width):<{name_width}}"
            f"  {duration(total):>8} in all  held back by {brief(longest)}"
        )
        out.append(shorten(line, width))
    if len(ordered) > LISTED:
        out.append(f"  {len(ordered) - LISTED:,} more pipelines")
    return out
