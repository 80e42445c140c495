# SPDX-License-Identifier: Apache-2.0
"""Reads the TOML file; a mistake is reported with its line and the key that was probably meant.

The file has the same options as the flags. A dot in a name is a table::

    max-stages = 200
    wrappers = ["timeout", "sudo", "retry"]

    [web]
    listen-address = "[::1]:9905"

`tomllib` names a line for wrong syntax only. The line of a wrong key or value is found here
(`_line_of`), because no library that is kept up gives it. Tried in November 2026:

- tomllib, tomli 2.5, rtoml 0.14: values without their place (python/cpython#115516, closed).
- tomlkit 0.15: the same (python-poetry/tomlkit#55, open since 2019). tomlkit-extras 0.2 adds lines
  to it, and raises KeyError for the dotted key `web.listen-address = …`.
- msgspec 0.22: the path of the key (`$.web.listen-address`). kaava 2026.10: the file. No line.
- spanned-toml 2.0: the place of keys, not of tables. A fork of tomli with one release, of 2022;
  its messages show its own objects: `Cannot declare (Spanned('a', 5:6),) twice`.
- toml-rs 0.4 (`load_with_metadata`): the line of keys, not of tables. tree-sitter-toml 0.7: a
  syntax tree with lines, a second grammar beside tomllib's. Both are compiled for one version of
  Python and are not in Debian, so the Debian package, which serves two, could not bring them.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelined.config.options import OPTIONS, Config
from pipelined.config.values import as_written
from pipelined.errors import ConfigurationError, why

__all__ = ["load"]

#: What Python's parser reports of `sweep-interval = 1s` and of `log.level = info`.
_UNQUOTED = ("Expected newline or end of document after a statement", "Invalid value")


def load(path: Path) -> Config:
    """Read a TOML file; options that it does not set keep their defaults.

    Raises ConfigurationError, with file and line, if the file cannot be read, is not TOML, or has a
    wrong key, type or value.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {why(error)}",
            "name a TOML file that exists and that this user may read",
        ) from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{path}:{line}: not UTF-8", "save the file as UTF-8") from None
    # TOML ends lines with \n or \r\n only; Unicode's other line breaks may occur in strings.
    lines = text.replace("\r\n", "\n").split("\n")
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # or too many digits, brackets in brackets
        raise _syntax_error(path, error, len(text.rstrip().split("\n"))) from None

    by_name = {option.name: option for option in OPTIONS}
    values: dict[str, Any] = {}
    for keys, value in _leaves(document, by_name):
        name = ".".join(keys)
        option = by_name.get(name)
        if option is None:
            raise ConfigurationError(
                f"{path}:{_line_of(lines, keys)}: {_unknown(name, value, by_name)}",
                _suggestion(name, value, by_name),
            )
        try:
            values[option.field] = option.parse(value)
        except ValueError as error:
            raise ConfigurationError(
                f"{path}:{_line_of(lines, keys)}: {name} must be {error}, not {as_written(value)}",
                f"for example {name.rpartition('.')[2]} = {option.example}",
            ) from None
    return Config(**values)


def _leaves(
    document: Mapping[str, Any], known: Collection[str], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Key paths and values; a table is entered only if an option lies under it."""
    for key, value in document.items():
        keys = (*above, key)
        prefix = ".".join(keys) + "."
        if isinstance(value, dict) and any(name.startswith(prefix) for name in known):
            yield from _leaves(value, known, keys)
        else:
            yield keys, value


def _line_of(lines: list[str], keys: tuple[str, ...]) -> int:
    """The first line, from 1, of the statement that sets a key.

    A statement ends where the text so far is valid TOML: tomllib decides, so there is no grammar
    here. It is the first one after which the key exists.
    """
    start = 1
    for end in range(1, len(lines) + 1):
        try:
            node: object = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        for key in keys:
            node = node.get(key) if isinstance(node, dict) else None
        if node is not None:
            return start
        start = end + 1
    return start


def _syntax_error(path: Path, error: Exception, last_line: int) -> ConfigurationError:
    message = str(error)
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message)
    if match is None:
        return ConfigurationError(f"{path}: not TOML: {message}")
    reason, line = match[1], match[2] or str(last_line)
    column = f":{match[3]}" if match[3] else ""
    return ConfigurationError(
        f"{path}:{line}{column}: not TOML: {reason.lower()}",
        "a value that is text needs quotes" if reason in _UNQUOTED else "",
    )


def _unknown(name: str, value: object, known: Collection[str]) -> str:
    if isinstance(value, dict):
        return f"unknown table [{name}]"
    if any(option.startswith(name + ".") for option in known):
        return f"{name} is a table, not a value"
    return f"unknown key {name}"


def _suggestion(name: str, value: object, known: Collection[str]) -> str:
    tables = sorted({option.rpartition(".")[0] for option in known if "." in option})
    if isinstance(value, dict):
        candidates = {table: f"[{table}]" for table in tables}
    elif name in tables:
        return f"write [{name}] and the keys under it"
    else:
        # A correct key in the wrong table is recognised by its last part.
        candidates = {option: option for option in known}
        last = name.rpartition(".")[2]
        for option in known:
            if option.rpartition(".")[2] == last:
                return _meant(option)
    spelled = name.lower().replace("_", "-")
    close = difflib.get_close_matches(spelled, list(candidates), n=1, cutoff=0.5)
    if not close:
        return "the keys are those of pipelined serve --help"
    return f"did you mean {candidates[close[0]]}?" if isinstance(value, dict) else _meant(close[0])


def _meant(option: str) -> str:
    table, _, key = option.rpartition(".")
    return f"did you mean {key} under [{table}]?" if table else f"did you mean {key}?"
