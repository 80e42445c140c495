# SPDX-License-Identifier: Apache-2.0
"""Jobs over a time at a prompt: a table, and below it what is summed up.

Pure: values in, styled lines out. Every line fits its width.
"""

from __future__ import annotations

from rich.text import Text

from pipelined.history.jobs import JobsSummary, JobSummary
from pipelined.terminal.drawing import (
    Column,
    fitted,
    heading,
    plain_marks,
    shorten,
    table_row,
    wrap,
)
from pipelined.terminal.history_report import LEAST_SIGNATURE, MIN_SIGNATURE
from pipelined.terminal.pipelines_report import failed, not_overlapped, times
from pipelined.wording import data_size, duration, percent, printable

__all__ = ["jobs_lines"]


def jobs_lines(
    found: JobsSummary, width: int, now: float, *, ascii_only: bool = False
) -> list[Text]:
    """The table of all that is listed, each line of at most `width` columns; `now` is Unix time."""
    columns: list[Column[JobSummary]] = [
        Column("unit", lambda one: Text(printable(one.unit, ascii_only))),
        Column("runs", lambda one: Text(f"{one.sums.runs:,}"), right=True),
        Column("total", lambda one: Text(duration(one.sums.wall)), right=True),
        Column("CPU", lambda one: Text(duration(one.sums.cpu)), right=True),
        Column("not overlapped", lambda one: Text(not_overlapped(one.sums)), right=True, rank=2),
        Column("pipelines", lambda one: Text(f"{one.pipelines:,}"), right=True, rank=1),
        Column(
            "most time in",
            lambda one: Text(_costliest(one, ascii_only)),
            least=MIN_SIGNATURE,
            floor=LEAST_SIGNATURE,
        ),
    ]
    if found.with_input:
        columns.insert(4, Column("input", lambda one: Text(_input(one)), right=True, rank=3))
    if any(one.sums.failed for one in found.listed):
        columns.insert(2, Column("failed", lambda one: failed(one.sums), right=True))
    shown = fitted(columns, found.listed, width)
    rows = [heading(shown), *(table_row(shown, one) for one in found.listed)]
    for row in rows:
        row.rstrip()
    cut = [row if row.cell_len <= width else Text(shorten(row.plain, width)) for row in rows]
    words = wrap(
        f"{times(found.start, found.end, now)} Nested runs are not added: their time is in that of"
        f" the run around them.{_of_inputs(found)} {found.caveat}".rstrip(),
        width,
        "dim",
    )
    return [plain_marks(line, ascii_only) for line in (*cut, *words)]


def _input(one: JobSummary) -> str:
    """What its runs took in together, as far as that is known."""
    sums = one.sums
    if not sums.input_runs:
        return "-"
    return f"{'≥ ' if sums.input_runs < sums.runs else ''}{data_size(sums.input_bytes)}"


def _of_inputs(found: JobsSummary) -> str:
    """What the mark of an input means, if one has it."""
    if not any(0 < one.sums.input_runs < one.sums.runs for one in found.listed):
        return ""
    return " ≥: of a part of the runs the input is not known."


def _costliest(one: JobSummary, ascii_only: bool) -> str:
    """The pipeline with the most wall time, and its share if there are others."""
    name = printable(one.costliest, ascii_only)
    return name if one.pipelines == 1 else f"{percent(one.costliest_share)} {name}"
