# SPDX-License-Identifier: Apache-2.0
"""The result of a check, and how all of them are printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelined.wording import printable

__all__ = ["Check", "Status", "exit_code", "render"]

Status = Literal["ok", "off", "missing", "unknown"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    status: Status
    detail: str
    """What was found, one line."""
    fix: str = ""
    """What to do about it; empty if all is well or nothing can be done."""
    required: bool = False
    """Whether the daemon needs the status to be ``ok``."""
    absent: str = ""
    """The figures that are absent or less exact because it is not ``ok``."""
    reason: str = ""
    """The end of `detail`, if it may be that of other checks too: it is printed once."""
    tier: str = ""
    """Of an attached hook: hooks of one tier share a line."""

    @property
    def failed(self) -> bool:
        return self.required and self.status != "ok"


def exit_code(found: Iterable[Check]) -> int:
    """0 only if the daemon would work, else 1."""
    return int(any(check.failed for check in found))


def render(found: Sequence[Check], console: Console) -> None:
    """Print a table of the checks, and below it the conclusion in one line."""
    found = [_printable(check) for check in found]
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for before, check in pairwise([None, *_in_lines(found)]):
        assert check
        repeated = before and check.reason and before.reason == check.reason
        detail = Text(check.detail)
        if repeated:
            detail = Text(check.detail.removesuffix(check.reason) + "as above")
        if check.absent:
            detail.append(f"\nabsent: {check.absent}")
        if check.fix and check.status != "ok":
            detail.append(f"\n→ {check.fix}", style="bold" if check.failed else "")
        table.add_row(Text(check.name), Text(check.status, style=_style(check)), detail)
    console.print(table)
    console.print()
    console.print(_closing_line(found), soft_wrap=True)


def _printable(check: Check) -> Check:
    """Names of programs, and what a daemon says of its hooks, may hold anything."""
    return replace(
        check,
        name=printable(check.name),
        detail=printable(check.detail),
        fix=printable(check.fix),
        absent=printable(check.absent),
        reason=printable(check.reason),
        tier=printable(check.tier),
    )


def _in_lines(found: Iterable[Check]) -> Iterator[Check]:
    """The checks, and one in place of all attached hooks of a tier."""
    for tier, those in groupby(found, lambda check: check.tier):
        if tier:
            names = dict.fromkeys(check.name.removeprefix("hook ") for check in those)
            yield Check(f"hooks of {tier}", "ok", ", ".join(names))
        else:
            yield from those


_STYLES: dict[Status, str] = {
    "ok": "green",
    "off": "yellow",
    "missing": "yellow",
    "unknown": "dim",
}


def _style(check: Check) -> str:
    return "bold red" if check.failed else _STYLES[check.status]


def _closing_line(found: Sequence[Check]) -> Text:
    failed = [check for check in found if check.failed]
    if failed:
        first = failed[0]
        known = any(check.status != "unknown" for check in failed)
        verdict = (
            "pipelined would not work here" if known else "cannot tell if pipelined works here"
        )
        line = f"{verdict}: {first.name}: {first.detail}"
        return Text(f"{line}; {first.fix}" if first.fix else line, style="bold red")
    off = [check for check in found if check.status in ("off", "missing")]
    lacking = [check.name for check in off if not check.absent]
    if any(check.absent for check in off):
        lacking.append("what is marked absent above")
    if lacking:
        return Text(f"pipelined works here, without: {', '.join(lacking)}.", style="bold green")
    return Text("pipelined works here.", style="bold green")
