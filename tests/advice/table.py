# SPDX-License-Identifier: Apache-2.0
"""Results in words: lines for the terminal, and the section of docs/FINDINGS.md. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from advice.judgement import Followed, Healthy, Spread, Untried
from advice.pairs import HEALTHY, PAIRS, WITHOUT_PAIRS
from document_section import put_section, section_of
from pipelined.analysis.rules.rule import WORTH_SHARE
from pipelined.wording import duration

__all__ = ["HEADING", "healthy_line", "joined", "line", "row_of", "section", "with_improved"]

HEADING = "## Followed"

_INTRODUCTION = """\
`sudo make advice` follows the advice. For each kind of finding it takes two pipelines or more that
have it, profiles each {rounds} times, and compares it with the same as advised in {rounds} rounds:
`PAIRS` in `tests/advice/pairs.py`, in this order (a figure that all share stands once). The figures
are from a machine with {machine}.

- **likely**: what the finding expects to save: the median share of the run.
- **gained**: the same of what `pipelined compare` measured, with the range.
- **gained / likely**: below {noise:.0%} of the run, both count as that much: less is chance.
- **gains nothing**: `compare` names no winner, or the other one."""
_IMPROVED = """\
**improve** is what [`pipelined improve`](COMPARE.md#improve) found, given the pipeline as it is and
a budget of {budget}, on a machine with {machine}: the share of the wall time
that it took. *refused*: it takes one pipeline of programs with their arguments,
and none that changes something. An empty place was not run."""
_HEALTHY = """\
{count} of the {all} ordinary pipelines in which there is nothing to improve (`HEALTHY` in
`tests/advice/pairs.py`) were profiled as often. {advised} got any advice."""
#: As a document has it.
_IMPROVED_ONCE = r"\*\*improve\*\* is what (?:.+\n)*.+"
_COLUMNS = ("finding", "likely", "gained", "gained / likely", "improve")


def line(result: Followed | Untried) -> str:
    """A pair's result at the terminal."""
    if isinstance(result, Untried):
        return f"{result.pair.id}: not tried: {result.reason}"
    likely, bound, gained, of_likely, of_bound, verdict = _figures(result)
    return (
        f"{result.pair.id}: likely {likely}, bound {bound}, gained {gained}: {of_likely} of what "
        f"was likely, {of_bound} of the bound: {verdict}\n"
        f"    {result.pair.before}\n    {result.after}"
    )


def healthy_line(healthy: Healthy) -> str:
    """A healthy pipeline's result at the terminal."""
    verdict = healthy.failure or "no advice"
    return f"healthy: {duration(healthy.wall_seconds)}: {verdict}\n    {healthy.command}"


def section(
    machine: str,
    rounds: int,
    results: Sequence[Followed | Untried],
    healthy: Sequence[Healthy],
    old: str = "",
) -> str:
    """The section of the document.

    What was not measured now, kinds or the healthy pipelines, is as in `old`: the document as it
    was, measured on the same machine.
    """
    old = section_of(old, HEADING)
    rows = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS)), *_by_kind(results, old)]
    reasons = "\n".join(f"- {id}: {reason}." for id, reason in WITHOUT_PAIRS.items())
    parts = [
        HEADING,
        _INTRODUCTION.format(rounds=rounds, machine=machine, noise=WORTH_SHARE),
        "\n".join(rows),
        *re.findall(_IMPROVED_ONCE, old),
        f"Not in the table:\n\n{reasons}",
        _healthy(healthy) if healthy else _healthy_of(old),
    ]
    return "\n\n".join(parts) + "\n"


def with_improved(document: str, budget: str, machine: str, found: Mapping[str, str]) -> str:
    """The document with what `improve` found for these kinds in the last column of its table."""
    text = section_of(document, HEADING)
    for kind, cell in found.items():
        row = row_of(kind, text)
        if row:
            text = text.replace(_line(row), _line([*row[:-1], cell]))
    text = re.sub(rf"{_IMPROVED_ONCE}\n\n", "", text)
    said = _IMPROVED.format(budget=budget, machine=machine)
    below = "Not in the table:"
    return put_section(document, text.replace(f"\n{below}", f"\n{said}\n\n{below}"))


def row_of(kind: str, text: str) -> list[str]:
    """The cells of a kind's row in the section; empty if there is none."""
    begin = f"| [{kind}](#{kind}) | "
    rows = (line for line in text.splitlines() if line.startswith(begin))
    return next((row[2:-2].split(" | ") for row in rows), [])


def joined(cells: Sequence[str]) -> str:
    """What stands in a row of each pair of a kind: once if it is the same of all."""
    return cells[0] if len(set(cells)) == 1 else "; ".join(cells)


def _by_kind(results: Sequence[Followed | Untried], old: str) -> Iterator[str]:
    """A row per kind, in the order of the pairs; of kinds that were not measured now the one of
    the section as it was."""
    for kind in dict.fromkeys(pair.id for pair in PAIRS):
        row = row_of(kind, old)
        measured = [_cells(result) for result in results if result.pair.id == kind]
        if measured:
            improved = row[-1] if row else ""
            row = [f"[{kind}](#{kind})", *map(joined, zip(*measured, strict=True)), improved]
        if row:
            yield _line(row)


def _cells(result: Followed | Untried) -> tuple[str, str, str]:
    if isinstance(result, Untried):
        return "-", f"not tried: {result.reason}", "-"
    *_, of_likely, _, verdict = _figures(result)
    gained = _median(result.gain_share) + _range(result.gain_share)
    return (
        _median(result.likely_share),
        gained if verdict == "gains" else f"{gained}, {verdict}",
        of_likely,
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _median(share: Spread | None) -> str:
    return "-" if share is None else f"{share.median:.0%}".replace("%", " %")


def _range(share: Spread | None) -> str:
    return "" if share is None else f" ({share.low * 100:.0f} to {share.high * 100:.0f})"


def _healthy(healthy: Sequence[Healthy]) -> str:
    advised = sum(bool(each.failure) for each in healthy)
    words = _HEALTHY.format(
        count=len(healthy),
        all=len(HEALTHY),
        advised=f"**{advised} of them**" if advised else "None of them",
    )
    lines = [f"    {each.command}" for each in healthy if each.failure]
    return "\n\n".join([words, *(["\n".join(lines)] if lines else [])])


def _healthy_of(old: str) -> str:
    """The paragraph of a document on healthy pipelines, with those below it that got advice."""
    began = re.escape(_HEALTHY.partition("{advised}")[0])
    began = re.sub(r"\\\{(?:count|all)\\\}", r"\\d+", began)
    found = re.search(rf"^{began}.*\n(?:\n(?:    .*\n)+)?", old, re.MULTILINE)
    return found[0].rstrip("\n") if found else "The healthy pipelines were not measured."


def _figures(result: Followed) -> tuple[str, str, str, str, str, str]:
    """Estimate, bound, gain, what that is of both, verdict."""
    likely = bound = gained = of_likely = of_bound = "-"
    if result.likely_seconds is not None and result.likely_share is not None:
        likely = _with_share(result.likely_seconds.median, result.likely_share)
    if result.bound_seconds is not None and result.bound_share is not None:
        bound = _with_share(result.bound_seconds.median, result.bound_share)
    if result.gain_seconds is not None and result.gain_share is not None:
        gained = _with_share(result.gain_seconds, result.gain_share)
    if result.of_likely is not None:
        of_likely = f"{result.of_likely:.2f}"
    if result.of_bound is not None:
        of_bound = f"{result.of_bound:.2f}"
    verdict = f"**{result.verdict}**" if result.failure else result.verdict
    return likely, bound, gained, of_likely, of_bound, verdict


def _with_share(seconds: float, share: Spread) -> str:
    size = duration(seconds) if seconds >= 0 else f"-{duration(-seconds)}"
    shares = f"{share.median:.0%}; {share.low:.0%} to {share.high:.0%}".replace("%", " %")
    return f"{size} ({shares})"
