# SPDX-License-Identifier: Apache-2.0
"""`pipelined improve` is given the worse form of each pair: does it find the better one?

`make advice ARGS=--improve` runs it, with the disks and files of the pairs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advice.data import make, named_in
from advice.judgement import Untried
from advice.measure import ATTEMPTS, Bench, Failed
from advice.pairs import Pair
from advice.table import joined
from other_work import Quiet
from pipelined.analysis.shell_text import parse
from pipelined.run.page_cache import evict, files_below

__all__ = [
    "BUDGET",
    "Improved",
    "Improver",
    "improved_cells",
    "improved_line",
    "plain",
    "why_not",
    "why_untried",
]

#: For one pair.
BUDGET = "2m"
#: Of a comparison of what was found with the known better form: how good that is.
_AS_GOOD = {
    "faster": "another one, which is better than the known one",
    "same": "another one, which is as good as the known one",
    "undecided": "another one, which does not differ surely from the known one",
    "not-comparable": "another one; the page cache hides which is better",
    "slower": "another one; the known one is better",
}
_REFUSED = "refused"
_ANOTHER = "another one"


@dataclass(frozen=True, slots=True)
class Improved:
    """What came of a pair."""

    pair: Pair
    command: str
    """The command to use; empty if nothing better was found."""
    took: float | None
    """Share of the original's wall time; None if it was not measured."""
    verdict: str

    @property
    def found(self) -> bool:
        return bool(self.command)


class Improver(Bench):
    """A bench on which each pair is improved."""

    def improve(self, pair: Pair) -> Improved | Untried:
        result: Any = self.follow(pair)
        return result if isinstance(result, Untried | Improved) else Untried(pair, "not improved")

    def _follow(self, pair: Pair, directory: Path) -> Any:
        make(directory, named_in([pair.before, pair.after or ""]))
        for _ in range(ATTEMPTS):
            for path in files_below(directory / name for name in pair.cold):
                evict(path)
            quiet = Quiet()
            try:
                report = self._pipelined(
                    directory, "improve", "--yes", "--budget", BUDGET, pair.before
                )
            except Failed as error:
                return Improved(pair, "", None, f"{_REFUSED}: {_reason(error)}")
            if report["tried"] or pair.unsaid:
                break  # else that one run may have lacked a finding that others have
        won = [tried["command"] for tried in report["tried"] if tried["outcome"] == "won"]
        if won:
            verdict = self._judged(pair, won, report["unpacked"], directory)
            return Improved(pair, won[-1], _took(report), verdict)
        if report["tried"]:
            return Improved(pair, "", None, why_not(report, busy=not quiet))
        if pair.unsaid:
            return Improved(pair, "", None, pair.unsaid)
        busy = self.busy
        runs = self._profile(pair.before, directory, pair.cold)
        return Improved(pair, "", None, why_untried(pair.id, runs, busy=self.busy > busy))

    def _judged(self, pair: Pair, won: Sequence[str], unpacked: str, directory: Path) -> str:
        if pair.after is None:
            return "found"
        if plain(pair.after) in map(plain, won):
            more = "" if plain(won[-1]) == plain(pair.after) else ", and more"
            return f"the known one{more}"
        cold = [word for name in pair.cold for word in ("--cold", name)]
        behind = f" | {unpacked}" if unpacked else ""
        sides = [f"{plain(side)}{behind}" for side in (pair.after, won[-1])]
        try:
            found = self._compare([*cold, *sides], directory)
        except Failed as error:
            return f"another one; not compared with the known one: {_reason(error)}"
        return _AS_GOOD[found["outcome"]]


def why_untried(kind: str, runs: Sequence[Mapping[str, Any]], *, busy: bool = False) -> str:
    """Why there was nothing to try for a pair of a kind, given runs of its pipeline; `busy`: other
    work had the CPUs meanwhile."""
    found = [finding for run in runs for finding in run["findings"] if finding["id"] == kind]
    if not found:
        why = "other work used the CPUs" if busy else "the gain would not be worth it"
        return f"its run had no such finding: {why}"
    if any(finding["rewrite"] for finding in found):
        return "the runs of improve had no such finding, though another run had"
    return "the finding cannot say it as a command"


def plain(command: str) -> str:
    """A command as `improve` prints it: without the file that its output goes to."""
    parsed = parse(command)
    return " ".join((parsed.text if parsed else command).split())


def why_not(report: Mapping[str, Any], *, busy: bool = False) -> str:
    """Why nothing that `improve` tried is better, given its report; `busy`: other work had the CPUs
    meanwhile."""
    outcomes = {
        "not-faster": "what was tried is not faster",
        "undecided": "what was tried is not surely faster",
        "output": "what was tried prints something else",
        "failed": "what was tried fails",
    }
    seen = dict.fromkeys(tried["outcome"] for tried in report["tried"])
    why = "; ".join(outcomes[outcome] for outcome in seen)
    measured = not {"output", "failed"}.issuperset(seen)
    return f"{why}; other work used the CPUs meanwhile" if busy and measured else why


def improved_line(result: Improved | Untried) -> str:
    """A pair's result at the terminal."""
    if isinstance(result, Untried):
        return f"{result.pair.id}: not tried: {result.reason}"
    found = f"\n    {result.command}" if result.command else ""
    return f"{result.pair.id}: {result.verdict}{_share(result)}\n    {result.pair.before}{found}"


def improved_cells(results: Sequence[Improved | Untried]) -> dict[str, str]:
    """What the table of the document has of each kind."""
    cells: dict[str, list[str]] = {}
    for result in results:
        cells.setdefault(result.pair.id, []).append(_cell(result))
    return {kind: joined(of_pairs) for kind, of_pairs in cells.items()}


def _cell(result: Improved | Untried) -> str:
    if isinstance(result, Untried):
        return f"not tried: {result.reason}"
    if not result.found:
        return _REFUSED if result.verdict.startswith(_REFUSED) else result.verdict.replace(";", ",")
    took = "" if result.took is None else f"{result.took:.2f}"
    return f"{took} ({_ANOTHER})" if result.verdict.startswith(_ANOTHER) else took


def _took(report: Mapping[str, Any]) -> float | None:
    walls = [
        sorted(trial["wall_seconds"] for trial in side["trials"]) for side in report["measured"]
    ]
    if not walls:
        return None
    before, after = (each[len(each) // 2] for each in walls)
    return float(after / before)


def _share(result: Improved) -> str:
    return "" if result.took is None else f", in {result.took:.2f} of the time"


def _reason(error: Failed) -> str:
    """The first clause of an error."""
    reason = re.split(r", | \(|; ", str(error).rpartition("pipelined: ")[2])[0]
    return reason.replace("|", "\\|")
