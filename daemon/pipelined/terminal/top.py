# SPDX-License-Identifier: Apache-2.0
"""The live view: pipelines now, in a terminal, refreshed in place.

`frame` is pure: what the two latest fetches hold becomes lines that fit a width and a height.
`run_top` is the edge: it fetches, draws, waits for a key, and gives the terminal back as it
found it. Shares and cores under *now* cover the time between two fetches, told apart by run id.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pipelined.analysis.bottleneck import bottleneck
from pipelined.analysis.readahead_words import cache
from pipelined.analysis.sentence import brief
from pipelined.errors import UserError
from pipelined.model.difference import difference
from pipelined.runs import STATES, Run, Stage
from pipelined.terminal.drawing import (
    STYLES,
    bar,
    glyphs,
    is_ascii,
    plain_marks,
    printable,
    printable_run,
    shorten,
)
from pipelined.wording import STATE_WORDS, duration, percent

__all__ = ["Snapshot", "frame", "run_top"]

#: How often a waiting view looks at the terminal's size (seconds).
RESIZE_POLL = 0.25
MIN_WIDTH = 60
MIN_HEIGHT = 8


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One answer of the daemon."""

    runs: Sequence[Run]
    time: float
    """Unix time of the answer."""
    problem: str = ""
    """Why the latest fetch failed, when these runs are those of an earlier one."""


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

    With `once`, or when the console is no terminal: one frame of any length, without control
    codes, its *now* columns measured over one interval. `keys` is where keys come from
    (standard input by default; a file that is no terminal is left alone).

    The first `fetch` may raise `UserError`, which goes to the caller. Later failures are
    shown in the header and the fetch is tried again.
    """
    name = socket.gethostname() if host is None else host
    first = Snapshot(fetch(), time.time())
    if once or not console.is_terminal:
        latest = first
        if any(run.live for run in first.runs):
            time.sleep(interval)
            latest = Snapshot(fetch(), time.time())
        ascii_only = is_ascii(console)
        for line in frame(latest, first, name, console.width, None, ascii_only=ascii_only):
            # Without spans rich prints no control codes, on a terminal either.
            console.print(Text(line.plain.rstrip()), soft_wrap=True, highlight=False)
        return
    try:
        with _terminated_politely(), _single_keys(sys.stdin if keys is None else keys) as pressed:
            _watch(fetch, console, interval, name, first, pressed)
    except KeyboardInterrupt:
        return


def _watch(
    fetch: Callable[[], list[Run]],
    console: Console,
    interval: float,
    host: str,
    first: Snapshot,
    pressed: Callable[[float], str],
) -> None:
    previous, latest = first, first

    def draw() -> Text:
        width, height = console.size
        shown = frame(latest, previous, host, width, height, ascii_only=is_ascii(console))
        return Text("\n", no_wrap=True, overflow="crop").join(shown)

    # With no fetch to compare yet, the second one follows soon.
    pause = min(interval, 0.5)
    with Live(draw(), console=console, screen=True, auto_refresh=False) as live:
        while True:
            deadline = time.monotonic() + pause
            size = console.size
            while (left := deadline - time.monotonic()) > 0:
                if pressed(min(left, RESIZE_POLL)) in ("q", "Q"):
                    return
                if console.size != size:
                    size = console.size
                    live.update(draw(), refresh=True)
            pause = interval
            try:
                previous, latest = latest, Snapshot(fetch(), time.time())
            except UserError as error:
                latest = replace(latest, problem=str(error))
            live.update(draw(), refresh=True)


@contextmanager
def _single_keys(keys: TextIO) -> Iterator[Callable[[float], str]]:
    """Keys one at a time, without echo; yields a function that waits up to some seconds."""
    try:
        descriptor = keys.fileno()
        terminal = os.isatty(descriptor)
    except (OSError, ValueError):
        terminal = False
    if not terminal:

        def sleep(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield sleep
        return

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        if not ready:
            return ""
        data = os.read(descriptor, 1)
        # The terminal is gone: leave as if asked to.
        return data.decode("latin-1") if data else "q"

    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _terminated_politely() -> Iterator[None]:
    """SIGTERM and SIGHUP leave the view as Ctrl-C does, so that the terminal is restored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, stack: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A run, and what it did since the fetch before."""

    run: Run
    recent: Run | None


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
    live: list[_Entry] = []
    finished: list[Run] = []
    for run in latest.runs:
        run = printable_run(run, ascii_only)
        if run.live:
            then = old.get(run.id)
            live.append(_Entry(run, difference(run, then) if then is not None else None))
        else:
            finished.append(run)
    live.sort(key=lambda entry: (-(entry.recent or entry.run).cores_used, -entry.run.start))
    finished.sort(key=lambda run: -(run.end or 0.0))

    out = _header(latest, printable(host, ascii_only), len(live), len(finished), width)
    footer = [] if room is None else [Text(shorten("q quit", width), "dim")]
    live_room, finished_room = _shares(live, finished, room, len(out) + len(footer))
    shown_live = _live_table(live, width, live_room, ascii_only)
    out += shown_live
    if finished and finished_room != 0:
        out += _finished_table(finished, latest.time, width, finished_room)
    if room is not None:
        out = out[: room - len(footer)]
        out += [Text()] * (room - len(out) - len(footer)) + footer
    return [plain_marks(_cropped(line, width), ascii_only) for line in out]


def _shares(
    live: Sequence[_Entry], finished: Sequence[Run], room: int | None, used: int
) -> tuple[int | None, int | None]:
    """Lines for the two tables; finished runs keep a third of a full screen."""
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


def _header(latest: Snapshot, host: str, live: int, finished: int, width: int) -> list[Text]:
    clock = time.strftime("%H:%M:%S", time.localtime(latest.time))
    counts = f"{live} live   {finished} finished lately   {clock}"
    name = shorten(f"pipelined top   {host}", max(10, width - len(counts) - 3))
    out = [Text(name, "bold") + Text("   ") + Text(counts)]
    if latest.problem:
        out.append(Text(shorten(f"No answer since {clock}: {latest.problem}", width), "red"))
    return out


@dataclass(frozen=True, slots=True)
class _Widths:
    """Columns of both tables; 0 hides one."""

    name: int
    unit: int
    held: int
    wall: int = 10
    cores: int = 10
    mean: int = 5
    overlap: int = 7


def _widths(width: int, names: int, units: int) -> _Widths:
    """Names get what they need up to a bound, units come and go, the verdict takes the rest."""
    fixed = 10 + 10 + 5 + 7 + 8
    unit = min(units, 24) if width >= 120 else 0
    fixed += 2 + unit if unit else 0
    held = 0 if width < 80 else 19 if width < 100 else 24 if width < 120 else 36
    fixed += 2 + held if held else 0
    name = max(12, min(names, width - fixed))
    if held:
        held += min(24, max(0, width - fixed - name))
    return _Widths(name, unit, held)


def _live_table(
    live: Sequence[_Entry], width: int, room: int | None, ascii_only: bool
) -> list[Text]:
    """Two lines a run: figures, then a small bar of states for every stage."""
    if not live:
        return [Text(), Text("No pipeline is running.")]
    names = max(len("LIVE"), *(Text(entry.run.pipeline).cell_len for entry in live))
    units = max(_unit_width(entry.run) for entry in live)
    widths = _widths(width, names, units)
    out = [
        Text(),
        _row(widths, ("LIVE", "unit", "wall", "cores", "mean", "overlap"), "held back by", "dim"),
    ]
    seen: set[str] = set()
    for index, entry in enumerate(live):
        rest = len(live) - index
        # The last line of a full table says how many runs it leaves out, and holds the legend.
        if room is not None and len(out) + 2 + (rest > 1) > room:
            out.append(Text(f"… {rest} more", "dim"))
            break
        run, recent = entry.run, entry.recent
        now = "-" if recent is None else f"{recent.cores_used:.1f}"
        figures = (
            run.pipeline,
            run.series.unit,
            duration(run.wall_seconds),
            now,
            f"{run.cores_used:.1f}",
            "-" if run.overlap is None else percent(run.overlap),
        )
        out.append(_row(widths, figures, brief(_telling(entry)), "bold"))
        out.append(_mini_bars(entry, width, ascii_only))
        seen |= _drawn(recent or run)
    if room is None or len(out) < room:
        out.append(_legend(seen, width, ascii_only))
    return out


def _finished_table(
    finished: Sequence[Run], now: float, width: int, room: int | None
) -> list[Text]:
    names = max(len("FINISHED"), *(Text(run.pipeline).cell_len for run in finished))
    units = max(_unit_width(run) for run in finished)
    widths = _widths(width, names, units)
    titles = ("FINISHED", "unit", "wall", "ended", "mean", "overlap")
    out = [Text(), _row(widths, titles, "held back by", "dim")]
    for run in finished if room is None else finished[: max(0, room - 2)]:
        ago = max(0.0, now - run.end) if run.end is not None else 0.0
        figures = (
            run.pipeline,
            run.series.unit,
            duration(run.wall_seconds),
            f"{_age(ago)} ago",
            f"{run.cores_used:.1f}",
            "-" if run.overlap is None else percent(run.overlap),
        )
        out.append(_row(widths, figures, brief(run), ""))
    return out


def _row(
    widths: _Widths, texts: tuple[str, str, str, str, str, str], held: str, style: str
) -> Text:
    name, unit, wall, cores, mean, overlap = texts
    line = _padded(name, widths.name, style)
    for text, width, right in (
        (unit, widths.unit, False),
        (wall, widths.wall, True),
        (cores, widths.cores, True),
        (mean, widths.mean, True),
        (overlap, widths.overlap, True),
        (held, widths.held, False),
    ):
        if width:
            plain = style if style == "dim" else ""
            line = line + Text("  ") + _padded(text, width, plain, right=right)
    return line


def _padded(text: str, width: int, style: str, *, right: bool = False) -> Text:
    cell = Text(shorten(text, width), style)
    space = Text(" " * max(0, width - cell.cell_len))
    return space + cell if right else cell + space


def _telling(entry: _Entry) -> Run:
    """The last interval, or the whole run where the interval names no bottleneck."""
    if entry.recent is not None and bottleneck(entry.recent) is not None:
        return entry.recent
    return entry.run


def _mini_bars(entry: _Entry, width: int, ascii_only: bool) -> Text:
    """``cat ▒▒▒▒█  >awk █████``: a bar for each place, the bottleneck marked by ``>``."""
    run = entry.recent or entry.run
    found = bottleneck(_telling(entry))
    places: dict[tuple[int, str], list[Stage]] = {}
    for stage in run.stages:
        places.setdefault((stage.position, stage.command), []).append(stage)
    if not places:
        return Text()
    space = (width - 2) // len(places)
    size = min(12, max(4, space - 12))
    line = Text("  ")
    for (position, command), group in places.items():
        name = shorten(command, max(4, min(15, space - size - 4)))
        if len(group) > 1:
            name += f"×{len(group)}"
        held = found is not None and (found.position, found.command) == (position, command)
        cell = Text(f">{name} ", "bold") if held else Text(f" {name} ", "dim")
        states = _together(group)
        total = max(run.wall_seconds * len(group), sum(states.values()))
        cell += bar(states, total, size, ascii_only)
        if line.cell_len + cell.cell_len + 1 > width:
            return line + Text("…", "dim")
        line = line + cell + Text(" ")
    return line + Text(shorten(_reads(entry.run), max(0, width - line.cell_len - 1)), "dim")


def _reads(run: Run) -> str:
    """The run's stall seconds, and how the pages of its files were come by."""
    found = run.readahead
    if found is None:
        return ""
    parts = [f"stalled {duration(found.stall_seconds)}"] if found.stall_seconds >= 0.001 else []
    how = cache(found)
    return ", ".join([*parts, *([how] if how else [])])


def _together(group: Sequence[Stage]) -> Mapping[str, float]:
    return {state: sum(stage.states.get(state, 0.0) for stage in group) for state in STATES}


def _drawn(run: Run) -> set[str]:
    """States large enough to show in a small bar."""
    found = set()
    for stage in run.stages:
        total = max(run.wall_seconds, stage.lifetime_seconds)
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
    return 0 if run.series.unit in ("", "-") else Text(run.series.unit).cell_len


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def _cropped(line: Text, width: int) -> Text:
    if line.cell_len > width:
        line.truncate(width)
    return line
