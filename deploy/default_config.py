#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the configuration file that packages install: every option, commented out.

.venv/bin/python deploy/default_config.py > deploy/pipelined.toml
"""

from __future__ import annotations

import textwrap
from itertools import groupby

from pipelined.config import OPTIONS, Config, Option

_WIDTH = 96
_HEAD = """\
# Configuration of pipelined: pipelined.toml(5), or `pipelined serve --help`.
#
# Every option is commented out and shows its default, or an example if it has none. Flags of
# `pipelined serve` win over this file. After a change: systemctl restart pipelined
"""


def main() -> None:
    print(_HEAD, end="")
    # A key below a [table] would belong to it: options without a table come first.
    by_table = sorted(OPTIONS, key=_table)
    for table, options in groupby(by_table, key=_table):
        if table:
            print(f"\n[{table}]")
        for option in options:
            print(f"\n{_described(option)}")


def _table(option: Option) -> str:
    return option.name.rpartition(".")[0]


def _described(option: Option) -> str:
    value = default_as_toml(option)
    text = option.help if value else f"{option.help} Not set; for example:"
    comment = textwrap.fill(
        text,
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_on_hyphens=False,
    )
    line = f"{option.name.rpartition('.')[2]} = {value or option.example}"
    if len(line) > _WIDTH:  # only lists are long
        opening, items = line.removesuffix("]").split("[", 1)
        indented = textwrap.fill(items, _WIDTH - 6, initial_indent="    ", subsequent_indent="    ")
        line = f"{opening}[\n{indented},\n]"
    return f"{comment}\n{textwrap.indent(line, '#')}"


def default_as_toml(option: Option) -> str:
    """The default in TOML syntax; empty if there is none."""
    value = getattr(Config(), option.field)
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() if option.default.isdigit():
            return option.default
        case tuple() if not hasattr(value, "_fields"):
            return "[" + ", ".join(f'"{item}"' for item in value) + "]"
        case _:
            return f'"{option.default}"'


if __name__ == "__main__":
    main()
