# SPDX-License-Identifier: Apache-2.0
"""The live view: pipelines now, in a terminal, refreshed in place.

`frame` is pure: it makes lines that fit a width and a height of the two latest fetches. `run_top`
fetches, draws, waits for keys (`keys`), and restores the terminal. Bars, cores and bottlenecks of a
live run cover the time between two fetches, in which a run is known by its id.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.text import Text

from pipelined.analysis.bottleneck import bottleneck
from pipelined.analysis.identity_words import Distinctions, distinctions
from pipelined.analysis.outcome_words import brief_outcome, exits, marked_outcome
from pipelined.analysis.sentence import brief
from pipelined.errors import UserError
from pipelined.model.difference import difference
from pipelined.nesting import Line, in_order, nested_lines
from pipelined.run.child import take_pending
from pipelined.runs import STATES, Run
from pipelined.terminal.drawing import (
    MIN_WIDTH,
    OUTCOME_STYLES,
    STYLES,
    Column,
    bar,
    glyphs,
    heading,
    is_ascii,
    line_name,
    percent_or_dash,
    plain_marks,
    print_lines,
    printable_run,
    shorten,
    table_row,
)
from pipelined.terminal.keys import signals_taken, single_keys
from pipelined.wording import STATE_WORDS, duration, printable

__all__ = ["Snapshot", "frame", "run_top"]

#: Seconds between checks of the terminal's size.
RESIZE_POLL = 0.25
#: Columns in which it can be said how a run ended, such as `failed (perl: out of memory)`.
_HOW_IT_ENDED = 28
#: A name keeps so many columns, if it has them, beside what tells its run from others.
_NAME_BESIDE = 20
#: Lower terminals than this get frames of this height (lines).
MIN_HEIGHT = 8


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One answer of the daemon."""

    runs: Sequence[Run]
    time: float
    """Unix time of the answer."""
    problem: str = ""
    """Why the latest fetch failed; then these runs are those of an earlier one."""


def run_top(
    fetch: Callable[[], list[Run]],
    console: Console,
    interval: float,
    once: bool = False,
    *,
    host: str | None = None,
    keys: TextIO | None = None,
) -> None:
    """Show the runs that `fetch` returns every `interval` seconds until ``q`` or Ctrl-C.

    With `once`, or if the console is not a terminal, one frame of any length is printed without
    control codes; its figures for the time between fetches cover one interval. `keys` is where
    keys come from: standard input by default; a file that is not a terminal is left alone.

    A UserError of the first `fetch` goes to the caller. Later ones are shown in the header, and
    the fetch is tried again.
    """
    name = socket.gethostname() if host is None else host
    first = Snapshot(fetch(), time.time())
    if once or not console.is_terminal:
        latest = first
        if any(run.live for run in first.runs):
            time.sleep(interval)
            latest = Snapshot(fetch(), time.time())
        shown = frame(latest, first, name, console.width, None, ascii_only=is_ascii(console))
        # Without styles rich prints no control codes, even on a terminal.
        print_lines([Text(line.plain.rstrip()) for line in shown], console)
        return
    try:
        with signals_taken():
            start: Snapshot | None = first
            while start is not None:
                with single_keys(sys.stdin if keys is None else keys) as pressed:
                    start = _watch(fetch, console, interval, name, start, pressed)
                take_pending(signal.SIGTSTP)
    except KeyboardInterrupt:
        return


def _watch(
    fetch: Callable[[], list[Run]],
    console: Console,
    interval: float,
    host: str,
    first: Snapshot,
    pressed: Callable[[float], str],
) -> Snapshot | None:
    """Show the runs until they are to be shown no longer; after Ctrl-Z it returns the last ones."""
    previous, latest = first, first

    def draw() -> Text:
        width, height = console.size
        shown = frame(latest, previous, host, width, height, ascii_only=is_ascii(console))
        return Text("\n", no_wrap=True, overflow="crop").join(shown)

    # The first frame has nothing to compare with, so the second follows soon.
    pause = min(interval, 0.5)
    with Live(draw(), console=console, screen=True, auto_refresh=False) as live:
        while True:
            deadline = time.monotonic() + pause
            size = console.size
            while (left := deadline - time.monotonic()) > 0:
                if "q" in pressed(min(left, RESIZE_POLL)).lower():
                    return None
                if signal.SIGTSTP in signal.sigpending():
                    return latest
                if console.size != size:
                    size = console.size
                    live.update(draw(), refresh=True)
            pause = interval
            try:
                previous, latest = latest, Snapshot(fetch(), time.time())
            except UserError as error:
                latest = replace(latest, problem=str(error))
            live.update(draw(), refresh=True)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line, and for a live run what it did since the previous fetch, if it was in that."""

    line: Line[Run]
    name: str
    recent: Run | None = None

    @property
    def run(self) -> Run:
        return self.line.run


def frame(
    latest: Snapshot,
    previous: Snapshot,
    host: str,
    width: int,
    height: int | None,
    *,
    ascii_only: bool = False,
) -> list[Text]:
    """The view as lines: at most `width` columns, at most `height` lines (None: no limit)."""
    width = max(MIN_WIDTH, width)
    room = None if height is None else max(MIN_HEIGHT, height)
    old = {run.id: run for run in previous.runs}
    runs = [printable_run(run, ascii_only) for run in latest.runs]
    recent = {
        run.id: difference(run, old[run.id]) if run.id in old else None for run in runs if run.live
    }
    live, finished = (
        [
            _Entry(line, line_name(line, ascii_only), recent.get(line.run.id))
            for line in nested_lines(listed)
        ]
        for listed in in_order(runs)
    )

    distinct = distinctions({run.id: run.identity.named for run in runs if run.identity})

    out = _header(latest, printable(host, ascii_only), width)
    footer = [] if room is None else [Text(shorten("q quit", width), "dim")]
    live_room, finished_room = _shares(live, finished, room, len(out) + len(footer))
    shown_live = _live_table(live, distinct, width, live_room, ascii_only)
    out += shown_live
    if finished and finished_room != 0:
        out += _finished_table(finished, distinct, latest.time, width, finished_room)
    if room is not None:
        out = out[: room - len(footer)]
        out += [Text()] * (room - len(out) - len(footer)) + footer
    for line in out:
        line.truncate(width)
    return [plain_marks(line, ascii_only) for line in out]


def _shares(
    live: Sequence[_Entry], finished: Sequence[_Entry], room: int | None, used: int
) -> tuple[int | None, int | None]:
    """Lines for the two tables; finished runs get a third of a full screen."""
    if room is None:
        return None, None
    left = room - used
    wanted_live = 3 + 2 * len(live) if live else 2
    wanted_finished = 2 + len(finished) if finished else 0
    if wanted_live + wanted_finished <= left:
        return wanted_live, wanted_finished
    kept = min(wanted_finished, max(left // 3, left - wanted_live))
    if kept < 3:
        kept = 0
    return left - kept, kept


def _header(latest: Snapshot, host: str, width: int) -> list[Text]:
    clock = time.strftime("%H:%M:%S", time.localtime(latest.time))
    live = _counted([run for run in latest.runs if run.live])
    finished = _counted([run for run in latest.runs if not run.live])
    counts = f"{live[0]} live{live[1]}   {finished[0]} finished lately{finished[1]}   {clock}"
    title = "pipelined top   "
    room = width - len(counts) - 3
    if room > len(title):
        out = [Text(shorten(title + host, room), "bold") + Text(f"   {counts}")]
    else:
        out = [Text(shorten(title + host, width), "bold"), Text(shorten(counts, width))]
    if latest.problem:
        problem = f"No answer since {clock}: {printable(latest.problem)}"
        out.append(Text(shorten(problem, width), "red"))
    return out


def _counted(runs: Sequence[Run]) -> tuple[int, str]:
    """How many of them are top-level, and in words how many are nested."""
    nested = sum(run.nested for run in runs)
    return len(runs) - nested, f" + {nested} nested" if nested else ""


def _columns(
    entries: Sequence[_Entry],
    distinct: Distinctions,
    width: int,
    titles: tuple[str, str],
    fourth: Callable[[_Entry], str],
) -> list[Column[_Entry]]:
    """Columns for `width`: those of both tables are alike but for two titles and the fourth column.

    Names get what they need up to a bound, units and bottlenecks need a wide terminal, what tells
    runs apart gets a column if they leave room for it, and the bottleneck takes the rest.
    """
    title, fourth_title = titles
    names = max(cell_len(title), *(cell_len(entry.name) for entry in entries))
    fixed = 10 + 10 + 5 + 7 + 8
    unit = min(max(_unit_width(entry.run) for entry in entries), 24) if width >= 120 else 0
    fixed += 2 + unit if unit else 0
    held = 0 if width < 80 else 19 if width < 100 else 24 if width < 120 else 36
    fixed += 2 + held if held else 0
    identity = max(cell_len(_distinction(entry, distinct)) for entry in entries)
    identity = max(identity, cell_len(distinct.title)) if identity else 0
    if width - fixed - 2 - identity < min(names, _NAME_BESIDE):
        identity = 0
    fixed += 2 + identity if identity else 0
    name = max(12, min(names, width - fixed))
    if held:
        held += min(24, max(0, width - fixed - name))
    columns: list[Column[_Entry]] = [
        Column(title, lambda entry: Text(entry.name), width=name),
        Column("unit", lambda entry: Text(entry.run.series.unit), width=unit),
        Column(distinct.title, lambda entry: Text(_distinction(entry, distinct)), width=identity),
        Column("wall", lambda entry: Text(duration(entry.run.wall_seconds)), True, width=10),
        Column(fourth_title, lambda entry: Text(fourth(entry)), True, width=10),
        Column("mean", lambda entry: Text(f"{entry.run.cores_used:.1f}"), True, width=5),
        Column("overlap", lambda entry: Text(percent_or_dash(entry.run.overlap)), True, width=7),
        Column("held back by", _held_back, width=held),
    ]
    if held < _HOW_IT_ENDED and any(entry.line.incomplete for entry in entries):
        # there is no room for all: how a run ended is worth more
        if held:
            columns[6:] = [replace(columns[7], width=held + 2 + 7)]
        else:
            columns[5:] = [Column("failure", _failure, width=5 + 2 + 7)]
    return [column for column in columns if column.width]


def _distinction(entry: _Entry, distinct: Distinctions) -> str:
    """What tells its run from others, as its column has it."""
    return printable(distinct.cell(entry.run.id))


def _held_back(entry: _Entry) -> Text:
    """How it ended if it has not succeeded, and the bottleneck."""
    held = brief(_informative(entry))
    ended = [part for part in (marked_outcome(entry.run), entry.line.of_several) if part]
    if not ended:
        return Text(held)
    style = OUTCOME_STYLES.get(entry.run.result, OUTCOME_STYLES["failed"])
    return Text(", ".join(ended if held == "-" else [*ended, held]), style)


def _failure(entry: _Entry) -> Text:
    """In a few columns."""
    line = entry.line
    several = f"{line.incomplete} of {line.runs}" if line.of_several else ""
    style = OUTCOME_STYLES.get(entry.run.result, OUTCOME_STYLES["failed"])
    return Text(brief_outcome(entry.run) or several, style)


def _live_table(
    live: Sequence[_Entry], distinct: Distinctions, width: int, room: int | None, ascii_only: bool
) -> list[Text]:
    """Two lines per run: figures, then a small bar of states for every stage."""
    if not live:
        return [Text(), Text("No pipeline is running.")]
    columns = _columns(live, distinct, width, ("LIVE", "cores"), _recent_cores)
    has_column = any(column.title == distinct.title for column in columns)
    out = [Text(), heading(columns)]
    seen: set[str] = set()
    for index, entry in enumerate(live):
        rest = len(live) - index
        # The last line of a full table shows how many runs are left out, or is the legend.
        if room is not None and len(out) + 2 + (rest > 1) > room:
            out.append(Text(f"… {rest} more", "dim"))
            break
        row = table_row(columns, entry)
        row.style = "bold"
        words = "" if has_column else printable(distinct.words(entry.run.id))
        out += [row, _mini_bars(entry, words, width, ascii_only)]
        seen |= _drawn(entry.recent or entry.run)
    if room is None or len(out) < room:
        out.append(_legend(seen, width, ascii_only))
    return out


def _recent_cores(entry: _Entry) -> str:
    return "-" if entry.recent is None else f"{entry.recent.cores_used:.1f}"


def _finished_table(
    finished: Sequence[_Entry], distinct: Distinctions, now: float, width: int, room: int | None
) -> list[Text]:
    def ended(entry: _Entry) -> str:
        end = entry.run.end
        return f"{_age(0.0 if end is None else max(0.0, now - end))} ago"

    columns = _columns(finished, distinct, width, ("FINISHED", "ended"), ended)
    shown = finished if room is None else finished[: max(0, room - 2)]
    return [Text(), heading(columns), *(table_row(columns, entry) for entry in shown)]


def _informative(entry: _Entry) -> Run:
    """The run in the last interval, or the whole run if the interval has no bottleneck."""
    if entry.recent is not None and bottleneck(entry.recent) is not None:
        return entry.recent
    return entry.run


def _mini_bars(entry: _Entry, words: str, width: int, ascii_only: bool) -> Text:
    """``cat ▒▒▒▒█  >awk █████``: a bar for each place; ``>`` marks the bottleneck.

    Behind them, as far as there is room, the `words` that tell it from others, and what it read.
    """
    run = entry.recent or entry.run
    found = bottleneck(_informative(entry))
    places = run.by_place()
    if not places:
        return Text()
    indent = "  " * (1 + entry.line.depth)
    space = (width - len(indent)) // len(places)
    size = min(12, max(4, space - 12))
    line = Text(indent)
    for (position, command), branches in places.items():
        name = shorten(command, max(4, min(15, space - size - 4)))
        if len(branches) > 1:
            name += f"×{len(branches)}"
        held = found is not None and (found.position, found.command) == (position, command)
        cell = Text(f">{name} ", "bold") if held else Text(f" {name} ", "dim")
        if ended := exits(run.stages[index] for index in branches):
            cell += Text(f"{ended} ", OUTCOME_STYLES["failed"])
        states = {
            state: sum(run.stages[index].states.get(state, 0.0) for index in branches)
            for state in STATES
        }
        total = max(run.watched_seconds * len(branches), sum(states.values()))
        cell += bar(states, total, size, ascii_only)
        if line.cell_len + cell.cell_len + 1 > width:
            return line + Text("…", "dim")
        line = line + cell + Text(" ")
    behind = ", ".join(filter(None, (words, _reads(entry.run))))
    return line + Text(shorten(behind, max(0, width - line.cell_len - 1)), "dim")


def _reads(run: Run) -> str:
    """The run's stall seconds, and the state of the page cache."""
    found = run.readahead
    if found is None:
        return ""
    waited = f"waited {duration(found.all_stall_seconds)} for disk"
    state = f"cache {found.cache_state}"
    shown = ((waited, found.all_stall_seconds >= 0.001), (state, found.cache_state is not None))
    return ", ".join(text for text, known in shown if known)


def _drawn(run: Run) -> set[str]:
    """States that are large enough to show in a small bar."""
    found = set()
    for stage in run.stages:
        total = max(run.watched_seconds, stage.lifetime_seconds)
        found |= {state for state in STATES if stage.states.get(state, 0.0) * 24 >= total > 0}
    return found


def _legend(seen: set[str], width: int, ascii_only: bool) -> Text:
    marks = glyphs(ascii_only)
    line = Text("  ")
    for state in STATES:
        entry = f" {STATE_WORDS[state]}  "
        if state in seen and line.cell_len + 1 + len(entry) <= width:
            line = line + Text(marks[state], STYLES[state]) + Text(entry, "dim")
    return line


def _unit_width(run: Run) -> int:
    return 0 if run.series.unit in ("", "-") else cell_len(run.series.unit)


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
