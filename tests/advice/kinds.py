# SPDX-License-Identifier: Apache-2.0
"""The first table of docs/FINDINGS.md: a line per kind of finding.

What a kind means is what its rule says of itself; what following it gained is in the section that
`make advice` writes. Run as a program, this writes the table.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

from advice.table import HEADING, row_of
from document_section import section_of
from pipelined.analysis.findings import RULES, Rule

__all__ = ["DOCUMENT", "kinds", "with_kinds"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "FINDINGS.md"
_COLUMNS = (
    *("finding", "severity", "fires when", "needs"),
    "gained",
)
_TABLE = re.compile(r"^\| finding \| severity \|.*\n(?:\|.*\n)+", re.MULTILINE)


def kinds(document: str) -> str:
    """The table, in the order of the sections of the document."""
    sections = re.findall(r"^## ([\w-]+)$", document, re.MULTILINE)
    if without := [rule.id for rule in RULES if rule.id not in sections]:
        raise SystemExit(
            f"docs/FINDINGS.md has no section for {', '.join(without)}: write it first"
        )
    rules = sorted(RULES, key=lambda rule: sections.index(rule.id))
    rows = [_COLUMNS, ("---",) * 4 + ("---:",), *(_row(r, document) for r in rules)]
    return "".join(re.sub(r"(?<=\|)  (?=\|)", " ", f"| {' | '.join(cells)} |\n") for cells in rows)


def with_kinds(document: str) -> str:
    """The document with the table as it should be."""
    return _TABLE.sub(lambda _: kinds(document), document, count=1)


def _row(rule: Rule, document: str) -> tuple[str, ...]:
    meaning = " ".join((rule.check.__doc__ or "").split()).split(". ")[0].rstrip(".")
    needs = f"`{rule.needs}`" if rule.needs else ""
    return (
        f"[{rule.id}](#{rule.id})",
        rule.severity,
        (meaning[:1].lower() + meaning[1:]).replace("``", "`"),
        needs,
        _gained(rule.id, document),
    )


def _gained(id: str, document: str) -> str:
    """The median gain of a kind, as a share of the run."""
    cells = row_of(id, section_of(document, HEADING))
    gains = [int(gain) for gain in re.findall(r"(-?\d+) % \(", cells[2])] if cells else []
    return f"{median(gains):.0f} %" if gains else ""


if __name__ == "__main__":
    DOCUMENT.write_text(with_kinds(DOCUMENT.read_text()))
