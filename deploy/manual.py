#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a manual page, made from the program's own help texts.

    SOURCE_DATE_EPOCH=1795000000 deploy/manual.py pipelined.1
    SOURCE_DATE_EPOCH=1795000000 deploy/manual.py pipelined.toml.5

The texts on commands and options are all in the program; here would be a second copy.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from pipelined import __version__
from pipelined.cli import PROGRAM, cli
from pipelined.config import OPTIONS, Option

_COMMON = """\
.SH EXIT STATUS
0 done, 1 failed, 2 wrong usage, 130 interrupted. An error is one line on standard error.
.B pipelined run
exits with the status of the command that it ran.
.SH FILES
.TP
.I /etc/pipelined/pipelined.toml
configuration of the service, see
.BR pipelined.toml (5)
.TP
.I /var/lib/pipelined
history of finished runs
.TP
.I /usr/share/doc/pipelined
documentation: reports, findings, metrics, the API
.SH SEE ALSO
.BR pipelined.toml (5),
.BR perf-stat (1),
.BR pipe (7)"""


def main() -> None:
    pages = {"pipelined.1": program_page, "pipelined.toml.5": configuration_page}
    if len(sys.argv) != 2 or sys.argv[1] not in pages:
        sys.exit(__doc__)
    moment = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    print("\n".join(pages[sys.argv[1]](f"{moment:%Y-%m-%d}")))


def program_page(date: str) -> Iterator[str]:
    """The page of the program, all its commands included, as lines of roff."""
    context = click.Context(cli, info_name=PROGRAM, **cli.context_settings)
    yield _title(PROGRAM, 1, date, "User Commands")
    yield ".SH NAME"
    yield rf"{PROGRAM} \- is your pipeline actually pipelined?"
    yield ".SH SYNOPSIS"
    yield from _usage(cli, context)
    yield ".SH DESCRIPTION"
    yield from _paragraphs(cli.help)
    yield from _paragraphs(cli.epilog)
    yield from _options(cli, context)
    yield ".SH COMMANDS"
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None, name
        if command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        yield f".SS {_escaped(f'{PROGRAM} {name}')}"
        yield from _usage(command, inner)
        yield from _paragraphs(command.help)
        yield from _options(command, inner)
        yield from _paragraphs(command.epilog)
    yield _COMMON


def configuration_page(date: str) -> Iterator[str]:
    """The page of the configuration file, as lines of roff."""
    yield _title("pipelined.toml", 5, date, "File Formats")
    yield ".SH NAME"
    yield r"pipelined.toml \- configuration of the pipelined daemon"
    yield ".SH SYNOPSIS"
    yield ".I /etc/pipelined/pipelined.toml"
    yield ".SH DESCRIPTION"
    yield "A TOML file with options of"
    yield '.BR "pipelined serve" .'
    yield "Options that it does not set keep their defaults; flags win over it."
    yield "A dot in a name is a table:"
    yield "web.listen\\-address is the key"
    yield ".B listen\\-address"
    yield "of the table"
    yield ".BR [web] ,"
    yield "and tables come after all other keys. After a change:"
    yield '.BR "systemctl restart pipelined" .'
    yield "A wrong key, type or value is an error that names the line; the daemon does not start."
    yield ".SH OPTIONS"
    for option in OPTIONS:
        yield ".TP"
        yield rf"\fB{_escaped(option.name)}\fR = \fI{_escaped(_kind(option))}\fR"
        yield _escaped(option.help)
        default = _escaped(option.default) or "none"
        yield rf"Default: {default}. Example: {_escaped(option.example)}"
    yield ".SH SEE ALSO"
    yield ".BR pipelined (1)"


def _title(name: str, section: int, date: str, kind: str) -> str:
    # Left-aligned and without hyphenation: options and names stay whole.
    return f'.TH {name.upper()} {section} {date} "pipelined {__version__}" "{kind}"\n.ad l\n.nh'


def _kind(option: Option) -> str:
    return option.metavar or "true|false"


def _usage(command: click.Command, context: click.Context) -> Iterator[str]:
    pieces = " ".join(command.collect_usage_pieces(context))
    yield rf"\fB{_escaped(context.command_path)}\fR {_escaped(pieces)}"


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None:
            names, text = record
            yield ".TP"
            yield rf"\fB{_escaped(names)}\fR"
            # Lists as typed at the prompt cannot be wrapped: add blanks.
            yield _escaped(re.sub(r"(?<=[a-z0-9]),(?=[a-z[])", ", ", text))


def _paragraphs(text: str | None) -> Iterator[str]:
    """A help text: filled paragraphs, and unfilled those that click does not fill."""
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        yield ".PP"
        if lines[0] == "\b":
            yield ".nf"
            yield from (_escaped(line) for line in lines[1:])
            yield ".fi"
        else:
            yield _escaped(" ".join(lines))


def _escaped(text: str) -> str:
    text = text.replace("\\", r"\e").replace("-", r"\-")
    # A dot or a quote at the start of a line would be a request; a bare ' is set as a curly one.
    text = text.replace("'", r"\(aq").replace("`", r"\(ga").replace('"', r"\(dq")
    text = re.sub(r"^\.", r"\&.", text)
    return re.sub(r",(?=\S)", r",\:", text)  # a long list may be broken between its words


if __name__ == "__main__":
    main()
