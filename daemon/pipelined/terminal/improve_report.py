# SPDX-License-Identifier: Apache-2.0
"""The terminal report of `pipelined improve`.

`lines` is pure and `render` prints them. Commands are not broken, so that they can be pasted: their
lines may be longer than the width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from pipelined.analysis.comparison import Comparison
from pipelined.analysis.comparison_rows import Figure, times
from pipelined.analysis.findings import MIN_WALL
from pipelined.analysis.improvement import Improvement, ScriptImprovement, Tried
from pipelined.analysis.sentence import sentence
from pipelined.terminal.drawing import (
    is_ascii,
    pasted,
    plain_marks,
    print_lines,
    printable_run,
    report_width,
    wrap,
)
from pipelined.wording import duration, printable

__all__ = ["lines", "render", "script_lines"]

#: Before sentences, and before the commands below them.
_INDENT = "  "
_COMMAND_INDENT = "      "
#: Above what is to be pasted or applied, if something of it cannot be printed.
_NOT_EXACT = "A ? may stand for a character that cannot be printed here; --json has it."

_ENDED = {
    "nothing-left": "nothing is left to try",
    "budget": "the budget is used up (--budget)",
    "interrupted": "interrupted",
}


def render(found: Improvement | ScriptImprovement, console: Console) -> None:
    """Print the report to `console`."""
    width, ascii_only = report_width(console), is_ascii(console)
    if isinstance(found, ScriptImprovement):
        print_lines(script_lines(found, width, ascii_only=ascii_only), console)
    else:
        print_lines(lines(found, width, ascii_only=ascii_only), console)


def script_lines(found: ScriptImprovement, width: int, *, ascii_only: bool = False) -> list[Text]:
    """The report of a script: of each pipeline that was tried, the others, the changed script."""
    out = [Text(f"{printable(found.script)}   {duration(found.wall_seconds)}", "bold")]
    for part in found.pipelines:
        out += [Text(), Text(f"line {part.line}, {duration(part.seconds)}:", "bold")]
        out += lines(part.improvement, width, ascii_only=ascii_only)
    if found.not_tried:
        out += [Text(), Text("Not tried:", "bold")]
    for other in found.not_tried:
        line = "" if other.line is None else f"line {other.line}, "
        text = f"- {line}{pasted(other.pipeline)} ({duration(other.seconds)}): {other.reason}."
        out += _paragraph(text, "", width)
    if found.not_tried:
        advised = "What the findings advise for these is in the report of pipelined run."
        out += _paragraph(advised, "", width)
    if not found.pipelines and not found.not_tried:
        out += [
            Text(),
            *_paragraph("No pipeline in it takes long enough to be worth it.", "", width),
        ]
    out.append(Text())
    if not found.diff:
        nothing = not found.pipelines and found.not_tried
        text = (
            "Nothing was tried, so nothing is known."
            if nothing
            else "Nothing is known to be faster: keep the script as it is."
        )
        out.append(Text(text, "bold"))
        return [plain_marks(line, ascii_only) for line in out]
    out.append(Text("The script with what won:", "bold"))
    out += _to_paste(found.diff.split("\n")[:-1], "", width, ascii_only)
    return [plain_marks(line, ascii_only) for line in out]


def lines(found: Improvement, width: int, *, ascii_only: bool = False) -> list[Text]:
    """The report: the command to use and what it gains, the steps to it, and what did not win."""
    lead = "A  " if found.comparison else ""  # as the notes say
    out = [Text(lead, "bold") + Text(printable(" ".join(found.original.split()))), Text()]
    for paragraph, style in _verdict(found, ascii_only):
        out += _paragraph(paragraph, style, width)
    if found.steps:
        name = "Use B:" if found.comparison else "Use:"
        out += [Text(), Text(_INDENT + name)]
        out += _to_paste([found.command], "bold", width, ascii_only)
    for number, step in enumerate(found.steps, 1):
        out.append(Text())
        lead = f"Step {number}: {_took(step)}, {_times_of(step)} less. "
        out += _paragraph(lead + _advised(step), "", width)
        if len(found.steps) > 1:
            out.append(_command(step, ascii_only))
    others = {
        "Tried as well:": found.lost,
        "Not tried, as the script goes by the exit status:": found.kept_back,
    }
    for head, some in others.items():
        out += [Text(), Text(_INDENT + head, "dim")] if some else []
        for tried in some:
            out += _paragraph(f"- {_came_of(tried)}. {_advised(tried)}", "", width)
            out.append(_command(tried, ascii_only))
    runs = f"{found.executions} run{'' if found.executions == 1 else 's'}"
    ended = f"; {_ENDED[found.ended]}" if found.ended in _ENDED else ""
    last = f"{_INDENT}{runs} in {duration(found.wall_seconds)}{ended}."
    out += [Text(), Text(last, "dim")]
    return [plain_marks(line, ascii_only) for line in out]


def _verdict(found: Improvement, ascii_only: bool) -> Iterator[tuple[str, str]]:
    """Sentences and their styles."""
    if not found.steps:
        yield _why_nothing(found), "bold"
        if found.ended == "nothing-to-try" and (run := found.first_run) is not None:
            yield sentence(printable_run(run, ascii_only)), ""
        if found.error_line:
            yield f"On stderr it printed: {printable(found.error_line)}", "yellow"
        return
    comparison = found.comparison
    if comparison is None:
        yield "There is a faster way. What all steps gain together was not measured.", "bold"
    else:
        yield _gain(comparison), "bold"
    if found.unpacked:
        yield f"What {found.unpacked} makes of its output is the same.", ""
    elif not found.prints:
        yield "It prints nothing, as A: whether it does the same work was not compared.", "yellow"
    elif found.outputs == "lines":
        yield "It prints the same lines, but in another order.", "yellow"
    else:
        yield "It prints the same.", ""
    for caveat in comparison.caveats if comparison else ():
        if found.outputs != "lines" or "order" not in caveat:
            yield f"Note: {printable(caveat)}.", "yellow"


def _why_nothing(found: Improvement) -> str:
    run = found.first_run
    if found.ended in ("budget", "interrupted") and any(
        tried.outcome == "undecided" for tried in found.tried
    ):
        return "It ended before it was decided whether something is faster."
    if found.lost:
        return "Nothing that was tried is known to be faster: keep it as it is."
    if found.kept_back:
        return "Nothing was tried: all that the findings advise may change the exit status."
    if run is None:
        return "Nothing was tried: no pipeline was seen."
    if not run.complete:
        return "Nothing was tried: how a pipeline runs that fails is no measure of it."
    if run.wall_seconds < MIN_WALL:
        took = duration(run.wall_seconds)
        return (
            f"Nothing was tried: it took {took}, and below {duration(MIN_WALL)} nothing is found."
        )
    if found.ended == "nothing-to-try":
        return "Nothing was tried: no finding says how else to write it."
    return "Nothing was tried."


def _gain(comparison: Comparison) -> str:
    pair, (original, last) = comparison.pairs[0], comparison.sides
    medians = " against ".join(duration(side.wall_seconds.median) for side in (last, original))
    took = "took " + _of(pair.ratio, "the original's wall time") + f", {medians}"
    if pair.outcome == "faster":
        return f"There is a faster way: it {took}."
    return f"Each step won, but it is not certain that all together do: the last one {took}."


def _of(ratio: Figure, whole: str) -> str:
    low, high = times(ratio.low), times(ratio.high)
    spread = "in each round" if low == high else f"in the median ({low}–{high} round by round)"
    return f"{times(ratio.median)} of {whole} {spread}"


def _took(tried: Tried) -> str:
    assert tried.ratio is not None, "what won was measured"
    return _of(tried.ratio, "the time before")


def _times_of(tried: Tried) -> str:
    return duration(-(tried.seconds or 0.0))


def _came_of(tried: Tried) -> str:
    measured = ""
    if tried.ratio is not None:
        low, high = times(tried.ratio.low), times(tried.ratio.high)
        spread = "" if low == high else f", {low}–{high}"
        rounds = "1 round" if tried.rounds == 1 else f"{tried.rounds} rounds"
        measured = f" ({times(tried.ratio.median)} of the time{spread}, {rounds})"
    detail = f": {printable(tried.detail)}" if tried.detail else ""
    words = {
        "faster": "faster, but another one was still faster",
        "not-faster": "not faster",
        "undecided": "not decided",
        "output": "prints something else",
        "failed": "failed",
    }
    if tried.outcome in ("failed", "status"):
        return printable(tried.detail)
    return f"{words[tried.outcome]}{measured}{detail}"


def _advised(tried: Tried) -> str:
    return f"{pasted(tried.advice)} [{tried.finding}]"


def _command(tried: Tried, ascii_only: bool) -> Text:
    return Text(_COMMAND_INDENT + pasted(tried.command, ascii_only), "dim")


def _to_paste(texts: Sequence[str], style: str, width: int, ascii_only: bool) -> list[Text]:
    """A line for each of these, below a note if something of them cannot be printed."""
    shown = [pasted(text, ascii_only) for text in texts]
    note = [] if shown == texts else _paragraph(_NOT_EXACT, "yellow", width)
    return [*note, *(Text(text, style) for text in shown)]


def _paragraph(text: str, style: str, width: int) -> list[Text]:
    return [Text(_INDENT) + line for line in wrap(text, width - len(_INDENT), style)]
