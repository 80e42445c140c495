# SPDX-License-Identifier: Apache-2.0
"""The terminal report of one run. `command_report` has that of all runs of a command.

The verdict comes first, then the evidence. `lines` is pure (a run in, styled lines out), `render`
prints. Every line fits the width it is given. Colours only repeat what marks and words show, so the
report reads the same without them (``NO_COLOR``, a file, a pipe).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from pipelined.analysis.bottleneck import share
from pipelined.analysis.children_words import inside
from pipelined.analysis.finding import Finding
from pipelined.analysis.findings import findings
from pipelined.analysis.identity_words import identity_facts, is_of_a_job
from pipelined.analysis.machine import Host
from pipelined.analysis.outcome_words import exits
from pipelined.analysis.readahead_words import WORTH_A_WORD, cache, meanwhile, stalls
from pipelined.analysis.rewriting import Script
from pipelined.analysis.sentence import partial_figures, sentence, stage_label
from pipelined.runs import LEVELS, SIZE_EDGES, STATES, Histogram, Readahead, Run, Stage, total_flow
from pipelined.terminal.drawing import (
    HEIGHTS,
    OUTCOME_STYLES,
    STYLES,
    Column,
    bar,
    cells_by_state,
    cropped,
    fitted,
    flow,
    glyphs,
    heading,
    is_ascii,
    plain_marks,
    print_lines,
    printable_run,
    report_width,
    shorten,
    table_row,
    wrap,
)
from pipelined.wording import (
    STATE_WORDS,
    data_size,
    duration,
    input_size,
    mean_size,
    output_size,
    percent,
    printable,
    run_input,
    saves,
)

__all__ = ["lines", "render"]

#: A longer bar shows nothing more (terminal columns).
MAX_BAR = 60
#: Columns of the table are dropped before the bar gets shorter than this.
MIN_BAR = 10
#: The shortest bar, when no column is left that may be dropped.
LEAST_BAR = 4
#: This many findings get a `Try:`; --json has all of them.
TRIED = 3
#: More parallel branches of one name than this are shown as one row.
MAX_BRANCHES = 4
#: What a stage moves beside its pipes is named if it is more than this (bytes).
_MUCH_BESIDE = 1 << 20

#: Title of the column with the bars, which takes the space that the others leave.
_BAR = "states"
_INDENT = "  "


def render(
    run: Run,
    console: Console,
    lost: int | None = 0,
    *,
    host: Host | None = None,
    script: Script | None = None,
    own: bool = False,
    noticed: bool = False,
    usual: str = "",
) -> None:
    """Print the report of `run` to `console`.

    `lost` is how many events were not counted, None if that is not known; `host` is the machine
    on which it ran, this one by default; `script` is what is known of its command; `own`: whoever
    reads the report has started it here and now; `noticed`: that the host was busy is said already;
    `usual` is how it compares with earlier runs, in words.
    """
    width, ascii_only = report_width(console), is_ascii(console)
    host = host or Host.read()
    shown = lines(
        run,
        lost,
        width,
        ascii_only=ascii_only,
        host=host,
        script=script,
        own=own,
        noticed=noticed,
        usual=usual,
    )
    print_lines(shown, console)


def lines(
    run: Run,
    lost: int | None,
    width: int,
    *,
    ascii_only: bool = False,
    host: Host | None = None,
    script: Script | None = None,
    own: bool = False,
    noticed: bool = False,
    usual: str = "",
) -> list[Text]:
    """The report as lines of at most `width` columns; with a `host`, also what to try on it.

    A command to try is not broken, so that it can be pasted: its line may be longer.
    """
    run = printable_run(run, ascii_only)
    found = findings(run, host, script) if host else ()
    out = _headline(run, lost, width)
    out += _identity(run, own, width, ascii_only)
    out += [Text("  ") + line for line in wrap(usual, width - 2, "bold") if usual]
    out += [Text("  ") + line for line in _notices(found, noticed, width - 2)]
    out.append(Text())
    out += [Text("  ") + line for line in wrap(sentence(run), width - 2, "bold")]
    out += _advice(found, run.wall_seconds, width, ascii_only)
    if run.stages:
        out.append(Text())
        out += _table(run, width, ascii_only)
    out.append(Text())
    out += _facts(run, width, ascii_only)
    return [plain_marks(line, ascii_only) for line in out]


def _identity(run: Run, own: bool, width: int, ascii_only: bool) -> list[Text]:
    """Whose run it is, and of what. One's own is of a user and on a host that one knows."""
    if run.identity is None or (own and not is_of_a_job(run.identity)):
        return []
    entries = [
        shorten(f"{fact.name} {printable(fact.brief, ascii_only)}", width - 2)
        for fact in identity_facts(run.identity)
        if not own or fact.name not in ("user", "host", "invocation")
        if fact.name != "trace" or run.stored_trace_id is None  # else it is beside the run's id
    ]
    return flow([Text(entry) for entry in entries], " · ", "  ", width)


def _notices(found: Sequence[Finding], noticed: bool, width: int) -> list[Text]:
    """What to keep in mind when reading any figure of the report."""
    return [
        line
        for finding in found
        if finding.notice and not (noticed and finding.id == "cpu-contention")
        for line in wrap(finding.notice, width, STYLES["runqueue"])
    ]


def _advice(found: Sequence[Finding], wall: float, width: int, ascii_only: bool) -> list[Text]:
    """What to try and what it could save, most important first."""
    out = []
    for finding in [finding for finding in found if finding.advice][:TRIED]:
        gain = saves(finding.likely_seconds, finding.gain_seconds, wall)
        text = f"{finding.advice} {gain}." if gain else finding.advice
        first, *rest = wrap(f"{text} [{finding.id}]", width - 7, "")
        out += [Text("  ") + first, *(Text(" " * 7) + line for line in rest)]
        if finding.command and (finding.command.isascii() or not ascii_only):
            out.append(Text(" " * 7 + finding.command))
    return out


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of the table: a stage, or the sum of `count` parallel branches."""

    stage: Stage
    count: int
    exit: Text
    """How it ended if it has not succeeded."""


def _rows(run: Run) -> list[_Row]:
    places = run.by_place()
    rows: list[_Row] = []
    for index, stage in enumerate(run.stages):
        branches = places[stage.place]
        if len(branches) <= MAX_BRANCHES:
            rows.append(_Row(stage, 1, _exit([stage])))
        elif index == branches[0]:
            group = [run.stages[at] for at in branches]
            rows.append(_Row(_sum(group), len(group), _exit(group)))
    return rows


def _exit(group: Sequence[Stage]) -> Text:
    failed = any(stage.outcome == "failed" for stage in group)
    return Text(exits(group), OUTCOME_STYLES["failed" if failed else "interrupted"])


def _sum(group: Sequence[Stage]) -> Stage:
    def total(name: str) -> int:
        return sum(getattr(stage, name) for stage in group)

    return replace(
        group[0],
        states={state: sum(s.states.get(state, 0.0) for s in group) for state in STATES},
        read_bytes=total("read_bytes"),
        written_bytes=total("written_bytes"),
        flow=total_flow(group),
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
    figures += partial_figures(run)
    if lost is not None:
        figures.append(f"{lost:,} lost")
    entries = [Text(figure) for figure in figures]
    if lost:
        entries[-1].stylize("red")
    one_line = flow([Text(run.pipeline, "bold"), *entries], "   ", "", width)
    if len(one_line) == 1:
        return one_line
    signature = Text(shorten(run.pipeline, width), "bold")
    return [signature, *flow(entries, "   ", "  ", width)]


def _columns(run: Run, rows: Sequence[_Row], width: int) -> list[Column[_Row]]:
    name_width = 10 if width < 80 else 16
    columns: list[Column[_Row]] = [
        Column("#", lambda row: Text(str(row.stage.position)), right=True),
        Column("command", lambda row: Text(_short_name(row, name_width), "bold")),
        Column("cpu", lambda row: Text(duration(row.stage.cpu_seconds)), right=True),
        Column(_BAR, lambda row: Text(), width=MAX_BAR, least=MIN_BAR, floor=LEAST_BAR),
        Column("longest wait", lambda row: _longest_wait(row, run.watched_seconds)),
        Column("in", lambda row: Text(input_size(row.stage.flow)), right=True, rank=1),
        Column("out", lambda row: Text(output_size(row.stage.flow)), right=True, rank=1),
        Column("mean read", _mean_read, right=True, rank=4),
        Column("mean write", _mean_write, right=True, rank=3),
    ]
    if any(stage.forks for stage in run.stages):
        columns.append(Column("forks", lambda row: Text(f"{row.stage.forks:,}"), True, rank=2))
    if any(row.exit for row in rows):
        columns.insert(2, Column("ended", lambda row: row.exit))
    return columns


def _table(run: Run, width: int, ascii_only: bool) -> list[Text]:
    """One line per stage under a heading, and the legend of the bars."""
    rows = _rows(run)
    columns = fitted(_columns(run, rows, width), rows, width - len(_INDENT))
    bars = next(index for index, column in enumerate(columns) if column.title == _BAR)
    space = columns[bars].width or 0
    title = f"{_BAR} over {duration(run.watched_seconds)}"
    columns[bars] = replace(
        columns[bars],
        title=title if len(title) <= space else _BAR,
        value=lambda row: _row_bar(row, run.watched_seconds, space, ascii_only),
    )
    lines = [heading(columns, _INDENT), *(table_row(columns, row, _INDENT) for row in rows)]
    return [cropped(line, width) for line in lines] + _legend(run, rows, space, width, ascii_only)


def _short_name(row: _Row, width: int) -> str:
    if row.count == 1:
        return shorten(row.stage.command, width)
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
    wall = run.watched_seconds
    drawn = [cells_by_state(row.stage.states, _row_total(row, wall), space) for row in rows]
    seen = {state for cells in drawn for state in cells}
    marks = glyphs(ascii_only)
    entries = [
        Text(marks[state], STYLES[state]) + Text(f" {STATE_WORDS[state]}")
        for state in STATES
        if state in seen
    ]
    if any(sum(cells.values()) < space for cells in drawn):
        entries.append(Text("blank: not alive"))
    return flow(entries, "  ", "     ", width)


def _facts(run: Run, width: int, ascii_only: bool) -> list[Text]:
    """Levels, disk, and where the run belongs."""
    out = flow(_levels(run, ascii_only), "   ", "  level   ", width)
    if run.input_bytes:
        out += _fact("input", _input(run), width)
    out += _fact("disk", _disk(run), width)
    for name, texts in (
        ("stalls", _each_reader(run, lambda found: stalls(found, run.watched_seconds))),
        ("cache", _each_reader(run, cache)),
        ("pipes", _pipe_writes(run)),
        ("files", _file_reads(run)),
        ("beside", _beside_pipes(run)),
        ("ran", _children(run)),
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
    if run.nested:
        outer = [run.parent_pipeline or "", f"run {run.parent}" if run.parent else ""]
        known = ", ".join(filter(None, outer)) or "another pipeline"
        out += _fact("inside", f"a stage of {known}", width)
    if run.series.unit not in ("", "-"):
        out += _fact("unit", run.series.unit, width)
    ids = [run.id, *([f"trace {run.stored_trace_id}"] if run.stored_trace_id else [])]
    return out + flow([Text(name) for name in ids], "  ", f"  {'run':<6}  ", width)


def _input(run: Run) -> str:
    """What the first stages took in, and how much of it in a second."""
    size = run_input(run.input_bytes, run.input_exact)
    if not run.watched_seconds > 0:
        return size
    return f"{size}, {data_size((run.input_bytes or 0) / run.watched_seconds)} a second"


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
            height = HEIGHTS[min(7, int(part * 8))] if part > 0 else " "
            entry.append(f" {height}", STYLES["cpu"])
        entries.append(entry.append(f" {percent(part)}", ""))
    return [*entries, Text("(stages on CPU at once)")]


def _pipe_writes(run: Run) -> list[str]:
    """How large each stage's writes to pipes were, and how full the pipe was."""
    return [
        f"half of the writes of {stage.command} {_half(found.pipe_writes)}, into a pipe of "
        f"{mean_size(found.pipe_capacity_bytes or 0, 1)} that was "
        f"{percent(found.pipe_fill.mean or 0)} full on average"
        for stage in run.stages
        if (found := stage.functions) and found.pipe_writes.count
    ]


def _each_reader(run: Run, words: Callable[[Readahead], str | None]) -> list[str]:
    """`words` about each stage that read files, if there are any: parallel branches at once."""
    out = []
    for place in run.by_place().values():
        found: dict[str, list[int]] = {}
        for index in place:
            readahead = run.stages[index].readahead
            if readahead and (text := words(readahead)):
                found.setdefault(text, []).append(index)
        out += [f"{stage_label(run, indexes)} {text}" for text, indexes in found.items()]
    return out


def _file_reads(run: Run) -> list[str]:
    """How large each stage's reads of files were, and how long they took."""
    out = []
    for stage in run.stages:
        found = stage.functions
        if found and found.file_reads.count:
            within = found.file_read_seconds.within(0.99)
            took = f", 99 % of them within {duration(within)}" if within else ""
            out.append(f"half of the reads of {stage.command} {_half(found.file_reads)}{took}")
    return out


def _beside_pipes(run: Run) -> list[str]:
    """What stages that have pipes moved beside them, if it is much; and which of them splice."""
    out = []
    for rows in run.by_place().values():
        stages = [run.stages[index] for index in rows]
        through = total_flow(stages)
        name = stages[0].command
        files = "temporary files" if name == "sort" else "files"
        if through.inner_read is None:
            files += " or between its own processes"
        moved = [
            f"{data_size(size)} {preposition}"
            for pipes, size, preposition in (
                (through.pipe_out, through.file_written, "to"),
                (through.pipe_in, through.file_read, "from"),
            )
            if pipes is not None and size is not None and size >= _MUCH_BESIDE
        ]
        if moved:
            least = "" if through.exact else "at least "
            out.append(f"{name} moved {least}{' and '.join(moved)} {files}")
        if through.splices:
            out.append(f"{name} moves bytes by splice: only what its neighbour counts is known")
    return out


def _children(run: Run) -> list[str]:
    """Which programs ran inside each stage: parallel branches at once."""
    return [
        f"{stage_label(run, indexes)}: {text}"
        for indexes in run.by_place().values()
        if (text := inside([run.stages[index] for index in indexes]))
    ]


def _half(sizes: Histogram) -> str:
    """The size that half of the calls did not exceed, in words."""
    median = sizes.within(0.5)
    word, edge = ("over", SIZE_EDGES[-1]) if median is None else ("up to", median)
    return f"{word} {mean_size(edge, 1)}"


def _disk(run: Run) -> str:
    waited = run.disk_wait_seconds
    hidden = run.io_overlap
    if hidden is None or waited < 0.00005:
        return "no stage waited for it"
    text = f"a stage waited for {duration(waited)}"
    if run.watched_seconds > 0:
        text += f", {percent(min(1.0, waited / run.watched_seconds))} of the run"
    return text if waited < WORTH_A_WORD * run.watched_seconds else f"{text}; {meanwhile(hidden)}"


def _fact(name: str, value: str, width: int) -> list[Text]:
    head = f"  {name:<6}  "
    wrapped = wrap(value, width - len(head), "")
    indents = [head] + [" " * len(head)] * (len(wrapped) - 1)
    return [Text(indent) + line for indent, line in zip(indents, wrapped, strict=True)]
