# SPDX-License-Identifier: Apache-2.0
"""The terminal report of a command: what it took in all, its parts, and the longest runs in full.

A command that is one pipeline gets the report of that run alone (`run_report`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Host
from pipelined.analysis.outcome_words import brief_outcome, marked_outcome, not_run
from pipelined.analysis.parts import Advice, Part, Parts
from pipelined.analysis.sentence import brief
from pipelined.run.host_costs import this_host
from pipelined.run.profile import Profile
from pipelined.runs import Run
from pipelined.terminal.drawing import (
    OUTCOME_STYLES,
    STYLES,
    Column,
    cropped,
    fitted,
    flow,
    heading,
    is_ascii,
    line_name,
    pasted,
    plain_marks,
    print_lines,
    report_width,
    shorten,
    table_row,
    wrap,
)
from pipelined.terminal.history_report import time_lines
from pipelined.terminal.run_report import render
from pipelined.wording import (
    duration,
    listing,
    percent,
    printable,
    saves,
)

__all__ = ["command_lines", "write_report"]

#: Up to this many runs, one in another, are each reported in full, without a table.
FEW = 3
#: Parts of which the longest run is reported in full.
FULL_REPORTS = 3
#: But only if they took at least this share of the command's wall time; the longest one always is.
FULL_SHARE = 0.05
#: What no run covers is worth a table if it is this share of the command, and these seconds: to
#: start a shell may take some tenths on a busy host.
REST_SHARE, REST_SECONDS = 0.1, 0.5
#: Lines of the table.
LISTED = 20
#: How many lines, the first ones, have what to try below them.
TRIED = 5
#: What the rest of a command consists of.
_REST = (
    "the shell, waiting, and programs in no pipeline that read and compute little or start others"
)

_INDENT = "  "
_TRY_INDENT = "      "


def write_report(found: Profile, console: Console) -> None:
    """Print the report of a command."""
    lost = sum(count for kind, count in found.lost.items() if kind != "runs")
    if status := not_run(found.ended.status):
        # what is missing in what follows is said before it
        print_lines([f"pipelined: the command's exit status is {status}"], console)
    if not found.runs:
        print_lines([f"pipelined: {_nothing_seen(found, lost)}"], console)
        _print_status(found, console)
        return
    host = this_host()
    parts = found.parts(host)
    if not _has_parts(found, parts):
        _print_runs(found.runs, found, console, lost, host)
        _print_status(found, console)
        return
    in_full = _in_full(found, parts)
    width, ascii_only = report_width(console), is_ascii(console)
    print_lines(command_lines(found, parts, in_full, lost, width, ascii_only=ascii_only), console)
    console.print()
    _print_runs(in_full, found, console, None, host, noticed=bool(parts.notice))


def _print_runs(
    runs: Sequence[Run],
    found: Profile,
    console: Console,
    lost: int | None,
    host: Host,
    *,
    noticed: bool = False,
) -> None:
    for index, run in enumerate(runs):
        if index:
            console.print()
        script = found.script_of(run)
        render(run, console, lost, host=host, script=script, own=True, noticed=noticed)
        drawn = time_lines(
            run,
            found.timelines.get(run.id, ()),
            report_width(console),
            findings(run, host, script),
            ascii_only=is_ascii(console),
        )
        print_lines([*([""] if drawn else []), *drawn], console)


def _print_status(found: Profile, console: Console) -> None:
    """What the headline of a report of several parts says."""
    if found.ended.status and not not_run(found.ended.status):
        print_lines([f"pipelined: the command's exit status is {found.ended.status}"], console)


def _has_parts(found: Profile, parts: Parts) -> bool:
    """Whether there is more to report than a pipeline, with those in it."""
    if parts.outermost_runs > 1 or len(found.runs) > FEW or found.lost.get("runs"):
        return True
    rest = found.ended.wall_seconds - parts.covered_seconds
    return rest >= max(REST_SECONDS, REST_SHARE * found.ended.wall_seconds)


def _in_full(found: Profile, parts: Parts) -> list[Run]:
    """The longest runs, in the order of the table."""
    least = FULL_SHARE * found.ended.wall_seconds
    longest = sorted((part.longest for part in parts.parts), key=lambda run: -run.wall_seconds)
    chosen = {
        run.id for run in longest[:FULL_REPORTS] if run is longest[0] or run.wall_seconds >= least
    }
    return [part.longest for part in parts.parts if part.longest.id in chosen]


def command_lines(
    found: Profile,
    parts: Parts,
    in_full: Sequence[Run],
    lost: int,
    width: int,
    *,
    ascii_only: bool = False,
) -> list[Text]:
    """What the command took, what its runs cover, and its parts: lines of at most `width`.

    The reports of the runs `in_full` will follow; `lost` is how many events were not counted.
    """
    out = _headline(found, lost, width, ascii_only)
    notice = printable(parts.notice, ascii_only)
    out += [Text(_INDENT) + line for line in wrap(notice, width - 2, STYLES["runqueue"]) if notice]
    out.append(Text())
    for paragraph in filter(None, (_cover(found, parts), pasted(parts.repeated))):
        out += [Text(_INDENT) + line for line in wrap(paragraph, width - 2, "")]
        out.append(Text())
    out += _table(found, parts, width, ascii_only)
    if len(in_full) < len(found.runs):
        out.append(Text())
        follow = printable(_follow(found, in_full), ascii_only)
        out += [Text(_INDENT) + line for line in wrap(follow, width - 2, "")]
    return [plain_marks(line, ascii_only) for line in out]


def _headline(found: Profile, lost: int, width: int, ascii_only: bool) -> list[Text]:
    ended = found.ended
    entries = [
        Text(f"{duration(ended.wall_seconds)} wall"),
        Text(f"{duration(ended.cpu_seconds)} CPU"),
        Text(f"{ended.cpu_seconds / (ended.wall_seconds or 1.0):.1f} cores used"),
        Text(f"{lost:,} lost", "red" if lost else ""),
    ]
    if ended.status:
        entries.insert(0, Text(f"exit status {ended.status}", OUTCOME_STYLES["failed"]))
    name = Text(printable(_name(found), ascii_only), "bold")
    one_line = flow([name, *entries], "   ", "", width)
    if len(one_line) == 1:
        return one_line
    return [Text(shorten(name.plain, width), "bold"), *flow(entries, "   ", _INDENT, width)]


def _name(found: Profile) -> str:
    """The command as it was given, on one line."""
    text = found.script.text if found.script else shlex.join(found.arguments)
    return " ".join(text.split())


def _cover(found: Profile, parts: Parts) -> str:
    """How much of the command the runs account for, and what the rest is."""
    wall, covered = found.ended.wall_seconds, parts.covered_seconds
    runs = "1 run covers" if len(found.runs) == 1 else f"{len(found.runs):,} runs cover"
    text = f"{runs} {duration(covered)}, {percent(covered / (wall or 1.0))} of the wall time."
    total = sum(part.wall_seconds for part in parts.parts if not part.line.depth)
    if total > 1.01 * parts.alive_seconds:
        text += f" Some ran at the same time: together they took {duration(total)}."
    cpu = max(0.0, found.ended.cpu_seconds - parts.cpu_seconds)
    text += f" The rest, {duration(max(0.0, wall - covered))} with {duration(cpu)} of CPU: {_REST}."
    if dropped := found.lost.get("runs", 0):
        text += f" {dropped:,} more runs were not kept: they are missing below and count as rest."
    return text


def _table(found: Profile, parts: Parts, width: int, ascii_only: bool) -> list[Text]:
    """A line per part under a heading, and what to try below the first of them."""
    wall = found.ended.wall_seconds or 1.0
    shown = parts.parts[:LISTED]
    marked = any(part.incomplete for part in shown)
    columns: list[Column[Part]] = [
        Column(
            "part", lambda part: Text(line_name(part.line, ascii_only), "bold"), least=24, floor=8
        ),
        Column("line", lambda part: Text(_lines(part)), right=True, rank=1),
        Column("wall", lambda part: Text(duration(part.wall_seconds)), right=True),
        Column("share", lambda part: Text(percent(part.wall_seconds / wall)), right=True),
        Column("CPU", lambda part: Text(duration(part.cpu_seconds)), right=True, rank=1),
        Column("longest run", lambda part: Text(duration(part.longest.wall_seconds)), True, rank=2),
        Column(
            "bottleneck",
            lambda part: Text(printable(_bottleneck(part), ascii_only)),
            width=16 if width < (100 if marked else 80) else 32,
        ),
    ]
    if not any(part.lines for part in shown):
        del columns[1]
    if marked:
        columns.insert(-1, Column("outcome", _outcome))
    columns = fitted(columns, shown, width - len(_INDENT))
    out = [heading(columns, _INDENT)]
    for number, part in enumerate(shown):
        out.append(table_row(columns, part, _INDENT))
        if part.incomplete and part.line.runs > 1:
            run = part.incomplete[0]
            text = printable(f"{run.result.capitalize()}: {_which(run, part)}", ascii_only)
            out += [Text(_TRY_INDENT) + line for line in wrap(text, width - len(_TRY_INDENT), "")]
        if part.advice and number < TRIED:
            text = pasted(_try(part.advice, part, wall), ascii_only)
            out += [Text(_TRY_INDENT) + line for line in wrap(text, width - len(_TRY_INDENT), "")]
    if len(parts.parts) > LISTED:
        out.append(Text(f"{_INDENT}{len(parts.parts) - LISTED:,} more parts; --json has them"))
    return [cropped(line, width) for line in out]


def _follow(found: Profile, in_full: Sequence[Run]) -> str:
    """Which runs are reported below, and where the others are."""
    names = listing([run.pipeline for run in in_full])
    return f"In full: the longest run of {names}. --json has all {len(found.runs):,}."


def _lines(part: Part) -> str:
    """The lines of the script that it may be, the first two of more."""
    more = ", …" if len(part.lines) > 3 else ""
    return ", ".join(map(str, part.lines[: 2 if more else 3])) + more


def _outcome(part: Part) -> Text:
    """How one run ended, or how many of several did not succeed; nothing if all did."""
    if not part.incomplete:
        return Text()
    results = [run.result for run in part.incomplete]
    worst = "failed" if "failed" in results else "interrupted"
    if part.line.runs == 1:
        return Text(marked_outcome(part.incomplete[0]), OUTCOME_STYLES[worst])
    counts = [f"{results.count(one):,} {one}" for one in OUTCOME_STYLES if one in results]
    return Text(", ".join(counts), OUTCOME_STYLES[worst])


def _which(run: Run, part: Part) -> str:
    """How a run ended, and its id where it is the longest of several."""
    others = len(part.incomplete) - 1
    return f"{brief_outcome(run)}, run {run.id}" + (f" and {others:,} more" if others else "")


def _bottleneck(part: Part) -> str:
    """Of one run with the share of its time; of several, for how much of their time it was that."""
    if part.line.runs == 1:
        return brief(part.longest)
    if part.bottleneck is None:
        return "-"
    return f"{part.bottleneck} ({percent(part.bottleneck_share or 0.0)})"


def _try(advice: Advice, part: Part, wall: float) -> str:
    text = advice.text
    if gain := saves(advice.likely, advice.bound, wall):
        some = (
            f" in {advice.runs:,} of {part.line.runs:,} runs"
            if advice.runs < part.line.runs
            else ""
        )
        text += f" {gain}{some}."
    return f"{text} [{advice.id}]"


def _nothing_seen(found: Profile, lost: int) -> str:
    if lost := lost + found.lost.get("runs", 0):
        return f"no pipeline seen, and {lost:,} events were lost; see pipelined doctor"
    took = (
        f"in {duration(found.ended.wall_seconds)} with {duration(found.ended.cpu_seconds)} of CPU"
    )
    reason = (
        f"{took} no two processes of the command were joined by a pipe, and none read 64 KiB or"
        " computed for 0.1 s alone"
    )
    if "|" in found.arguments[-1]:
        return f"no pipeline seen: {reason}, or not long enough to run or wait for anything"
    return f"no pipeline seen: {reason}; quote the whole pipeline: pipelined run 'a | b'"
