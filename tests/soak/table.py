# SPDX-License-Identifier: Apache-2.0
"""A soak in words: its table, its verdicts, and the section of a document with both. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from soak.judgement import Verdict
from soak.readings import COLUMNS, Reading, Soak

__all__ = ["HEADING", "heads", "line", "section", "verdict_line"]

HEADING = "### Figures of the soak"

_DRIVER = "driver's "
_LIFE = ", life "


def heads() -> str:
    """The first line of the table at the terminal."""
    return "  ".join(column.heading.rjust(_width(column.heading)) for column in COLUMNS)


def line(reading: Reading) -> str:
    """A line of the table at the terminal."""
    return "  ".join(
        cell.rjust(_width(column.heading))
        for cell, column in zip(_cells(reading), COLUMNS, strict=True)
    )


def verdict_line(verdict: Verdict) -> str:
    return f"{'yes' if verdict.good else 'NO ':3} {verdict.about}: {verdict.figures}"


def section(soak: Soak, verdicts: Sequence[Verdict], picture: str | None) -> str:
    """The section of a Markdown document; `picture` is the link to the picture, if there is one."""
    judged = [
        ["claim", "holds", "figures"],
        ["---"] * 3,
        *_claims(verdicts),
    ]
    kept = [
        ["of the last", "runs made", "stored singly"],
        ["---:"] * 3,
        *(
            [
                f"{k.seconds / 60:.1f} min",
                f"{k.runs:,}",
                f"{k.stored:,} ({_form(k.stored / k.runs, '.1%')})",
            ]
            for k in soak.kept
        ),
    ]
    parts = [
        HEADING,
        f"{soak.machine}; `{soak.command}`: {soak.readings[-1].runs:,} runs of"
        f" {soak.readings[-1].pipelines:,} pipelines. The daemon was killed {len(soak.gaps)} times."
        f" {sum(gap.runs for gap in soak.gaps):,} runs were made from 5 s before until it was ready"
        f" again, {sum(gap.seconds for gap in soak.gaps):.1f} s in all, and are not accounted for.",
        *([f"![the daemon's figures over the night]({picture})"] if picture else []),
        _markdown(judged),
        f"The history may take {soak.history_max_bytes / 1e6:.1f} MB. At the end it had single runs"
        f" of {soak.stored_pipelines:,} of {soak.readings[-1].pipelines:,} pipelines:",
        _markdown(kept),
    ]
    return "\n\n".join(parts) + "\n"


def _claims(verdicts: Sequence[Verdict]) -> Iterator[list[str]]:
    """A row per claim: the daemon's lives share one, and so do the drivers."""
    for about, group in groupby(verdicts, _claim):
        same = list(group)
        good = "yes" if all(verdict.good for verdict in same) else "**no**"
        yield [_escaped(about), good, _escaped(" · ".join(map(_figures, same)))]


def _claim(verdict: Verdict) -> str:
    if verdict.about.startswith(_DRIVER):
        return "drivers"
    return verdict.about.partition(_LIFE)[0]


def _figures(verdict: Verdict) -> str:
    """Those of a driver with the name of its pipeline, those of a life with its number."""
    about = verdict.about
    if about.startswith(_DRIVER):
        return f"{about.removeprefix(_DRIVER)}: {verdict.figures}"
    _, life, number = about.partition(_LIFE)
    return f"life {number.partition(' ')[0]}: {verdict.figures}" if life else verdict.figures


def _cells(reading: Reading) -> list[str]:
    return [_form(column.read(reading), column.form) for column in COLUMNS]


def _form(value: float, form: str) -> str:
    """As `format` writes it, with a space before a percent sign."""
    return format(value, form).replace("%", " %")


def _width(heading: str) -> int:
    return max(len(heading), 9)


def _markdown(rows: Iterable[Iterable[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
