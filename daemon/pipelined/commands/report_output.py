# SPDX-License-Identifier: Apache-2.0
"""Where a report goes and how it is coloured: --output, --color, widths."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

import click

from pipelined.errors import UserError, why

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["color_option", "json_option", "open_console", "output_option", "report_file"]

#: Columns of a report that does not go to a terminal.
FILE_WIDTH = 100

color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="When to use colours. auto: on a terminal, unless NO_COLOR is set.",
)


json_option = click.option("--json", "as_json", is_flag=True, help="Report as JSON, for machines.")
output_option = click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="Write the report to FILE instead of stdout.",
)


@contextlib.contextmanager
def report_file(output: str | None, default: IO[str]) -> Iterator[IO[str]]:
    """The file that the report goes to, open before the command runs: a wrong name fails first."""
    if output is None:
        yield default
        return
    try:
        file = open(output, "w", encoding="utf-8")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise UserError(
            f"cannot write {output}: {why(error)}", "give -o a file that can be written"
        ) from None
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # reported when it was written
            file.close()


def open_console(file: IO[str], color: str) -> Console:
    """A console that writes to `file`; with `auto` rich decides on colours (NO_COLOR)."""
    from rich.console import Console as RichConsole

    class Console(RichConsole):
        def on_broken_pipe(self) -> None:
            """Who prints decides (rich 13.8 and newer: exit status 1)."""
            raise

    width = None
    if not file.isatty():
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdigit() and int(columns) > 0 else FILE_WIDTH
    if color == "always":
        return Console(
            file=file, width=width, color_system="standard", force_terminal=True, no_color=False
        )
    if color == "never":
        return Console(file=file, width=width, color_system=None)
    # FORCE_COLOR applies to terminals: a file given with -o stays plain.
    return Console(file=file, width=width, force_terminal=None if file.isatty() else False)
