# SPDX-License-Identifier: Apache-2.0
"""Results in words: lines for the terminal, and the section of docs/FINDINGS.md. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from advice.judgement import CHANCE, FACTOR, Followed, Healthy, Spread, Untried
from advice.pairs import PAIRS, WITHOUT_PAIRS, Pair
from document_section import section_of
from pipelined.analysis.rules.rule import WORTH_SHARE
from pipelined.wording import duration

__all__ = ["HEADING", "by_kind", "code", "healthy_line", "line", "numbered", "section"]

HEADING = "## Followed"

_INTRODUCTION = """\
`sudo make advice` follows the advice. For each kind of finding it takes two pipelines that have it,
profiles each {rounds} times, and compares it with the same as advised in {rounds} rounds. The
figures are from a machine with {machine}.

- **likely**, **bound**: what the finding expects to save, and what it promises at most: median
  share of the run.
- **gained**: the same of what `pipelined compare` measured, with the range.
- **gained / likely**: below {noise:.0%} of the run, both count as that much: less is chance.
- **gains nothing**: `compare` names no winner, or the other one.

The test fails if a kind gains nothing in any of its pairs, if a bound is below the gain of each
round or more than {chance:.0%} below their median, or if an estimate is off by more than a factor
of {factor:g} in the median of a kind's pairs."""
_HEALTHY = """\
{count} ordinary pipelines in which there is nothing to improve (`HEALTHY` in
`tests/advice/pairs.py`) were profiled as often. {advised} got any advice."""
_COLUMNS = (
    *("finding", "as it is", "as advised"),
    *("likely", "bound", "gained", "gained / likely"),
    "verdict",
)


class _OfPair(Protocol):
    @property
    def pair(self) -> Pair: ...


_Result = TypeVar("_Result", bound=_OfPair)


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
    rows = [
        f"| {' | '.join(cells)} |" for cells in (_COLUMNS, ("---",) * 3 + ("---:",) * 4 + ("---",))
    ]
    rows += by_kind(
        [(result.pair.id, _row(name, result)) for name, result in numbered(results)], old
    )
    reasons = "\n".join(f"- {id}: {reason}." for id, reason in WITHOUT_PAIRS.items())
    parts = [
        HEADING,
        _INTRODUCTION.format(
            rounds=rounds, machine=machine, factor=FACTOR, noise=WORTH_SHARE, chance=CHANCE - 1
        ),
        "\n".join(rows),
        f"Not in the table:\n\n{reasons}",
        _healthy(healthy) if healthy else _healthy_of(old),
    ]
    return "\n\n".join(parts) + "\n"


def by_kind(measured: Sequence[tuple[str, str]], old: str) -> list[str]:
    """Rows of a table in the order of the pairs, given kinds and rows that were measured now; of
    the other kinds those of its section as it was."""
    rows, kinds = [], {kind for kind, _ in measured}
    for id in dict.fromkeys(pair.id for pair in PAIRS):
        if id in kinds:
            rows += [row for kind, row in measured if kind == id]
        else:
            rows += re.findall(rf"^\| \[{id}\]\(#{id}\) \d.*$", old, re.MULTILINE)
    return rows


def numbered(results: Iterable[_Result]) -> Iterator[tuple[str, _Result]]:
    """Each result with its name in a table: its kind, and its place among the pairs of the kind."""
    seen: Counter[str] = Counter()
    for result in results:
        id = result.pair.id
        seen[id] += 1
        yield f"[{id}](#{id}) {seen[id]}", result


def _row(name: str, result: Followed | Untried) -> str:
    if isinstance(result, Untried):
        cells = code(result.pair.before), *[""] * 5, f"not tried: {result.reason}"
    else:
        cells = code(result.pair.before), code(result.after), *_shares(result)
    return f"| {name} | {' | '.join(cells)} |"


def _shares(result: Followed) -> tuple[str, ...]:
    *_, of_likely, _, verdict = _figures(result)
    return (
        _median(result.likely_share),
        _median(result.bound_share),
        _median(result.gain_share) + _range(result.gain_share),
        of_likely,
        "" if verdict == "gains" else verdict,
    )


def _median(share: Spread | None) -> str:
    return "-" if share is None else f"{share.median:.0%}".replace("%", " %")


def _range(share: Spread | None) -> str:
    return "" if share is None else f" ({share.low * 100:.0f} to {share.high * 100:.0f})"


def _healthy(healthy: Sequence[Healthy]) -> str:
    advised = sum(bool(each.failure) for each in healthy)
    words = _HEALTHY.format(
        count=len(healthy), advised=f"**{advised} of them**" if advised else "None of them"
    )
    lines = [f"    {each.command}" for each in healthy if each.failure]
    return "\n\n".join([words, *(["\n".join(lines)] if lines else [])])


def _healthy_of(old: str) -> str:
    """The paragraph of a document on healthy pipelines, with those below it that got advice."""
    began = _HEALTHY.partition("{count}")[2].partition("{advised}")[0]
    found = re.search(rf"^\d+{re.escape(began)}.*\n(?:\n(?:    .*\n)+)?", old, re.MULTILINE)
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


def code(command: str) -> str:
    """A command in a cell."""
    return f"`{command}`".replace("|", r"\|") if command else ""
