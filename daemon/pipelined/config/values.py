# SPDX-License-Identifier: Apache-2.0
"""Values of options: what text, or a TOML value, stands for which duration, size, address or list.

A parser takes text as typed at the prompt, or a value of the type that TOML has for the thing,
and returns the option's value. It raises ValueError with what the value must be, to follow
"must be": `a whole number from 1 to 100`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "Address",
    "Parser",
    "address",
    "age",
    "as_written",
    "command_names",
    "duration",
    "exit_codes",
    "host_names",
    "log_level",
    "one_of",
    "parse_duration",
    "path_of",
    "size",
    "switch",
    "unit_names",
    "whole_number",
]

Parser = Callable[[object], Any]

_LOG_LEVELS = ("debug", "info", "warning", "error")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
_BYTES |= {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
_UNIT_NAME_BYTES = 64
_VARIABLE_BYTES = 31


class Address(NamedTuple):
    """Where the daemon listens. Port 0 lets the kernel choose one."""

    host: str
    """Name or IP address, IPv6 without brackets; ``0.0.0.0`` is every IPv4 address."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def address(value: object) -> Address:
    """``HOST:PORT``, ``[IPV6]:PORT`` or ``:PORT`` (every IPv4 address).

    >>> address("[::1]:9905")
    Address(host='::1', port=9905)
    """
    must = "HOST:PORT, [IPV6]:PORT or :PORT"
    if not isinstance(value, str):
        raise ValueError(must)
    match = re.fullmatch(r"(\[(?P<v6>[^\[\]]+)\]|(?P<host>[^\[\]:/\s]*)):(?P<port>[0-9]+)", value)
    if match is None:
        raise ValueError(must)
    if int(match["port"]) > 65535:
        raise ValueError(f"{must} with a port from 0 to 65535")
    if match["v6"] is None:
        return Address(match["host"] or "0.0.0.0", int(match["port"]))
    try:
        ipaddress.IPv6Address(match["v6"])
    except ValueError:
        raise ValueError(f"{must} with an IPv6 address in the brackets") from None
    return Address(match["v6"], int(match["port"]))


def parse_duration(text: str) -> float:
    """Seconds of a text such as ``500ms``, ``2m``, ``12h`` or ``30d``; without a unit: seconds."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?", text)
    if match is None:
        raise ValueError("a duration such as 500ms, 2m, 12h or 30d")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def duration(low: float, high: float) -> Parser:
    """Seconds from `low` to `high`, with or without a unit."""
    must = f"a duration from {low:g} to {high:g} seconds such as 500ms, 1s or 2m"

    def parse(value: object) -> float:
        return _seconds(value, low, high, must)

    return parse


def age(value: object) -> float:
    """Seconds of an age of a minute or more. A number without quotes is not one: of what unit?"""
    must = "an age from 1m to 3650d such as 12h or 30d"
    if not isinstance(value, str):
        raise ValueError(must)
    return _seconds(value, 60, 3650 * 86400, must)


def _seconds(value: object, low: float, high: float, must: str) -> float:
    seconds = value
    if isinstance(value, str):
        try:
            seconds = parse_duration(value)
        except ValueError:
            raise ValueError(must) from None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ValueError(must)
    if not low <= seconds <= high:
        raise ValueError(must)
    return float(seconds)


def size(low: int) -> Parser:
    """Bytes, `low` or more: ``256MB``, ``2GiB``."""
    must = f"a size of {low // 1000**2}MB or more such as 256MB or 2GiB"

    def parse(value: object) -> int:
        count = value
        if isinstance(value, str):
            match = re.fullmatch(r"([0-9]{1,12})([A-Za-z]*)", value)
            if match is None or match[2] not in _BYTES:
                raise ValueError(must)
            count = int(match[1]) * _BYTES[match[2]]
        if isinstance(count, bool) or not isinstance(count, int) or not low <= count:
            raise ValueError(must)
        return count

    return parse


def whole_number(low: int, high: int) -> Parser:
    """A whole number from `low` to `high`."""
    must = f"a whole number from {low} to {high}"

    def parse(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(must)
        return value

    return parse


def command_names(value: object) -> tuple[str, ...]:
    """Names of commands: a list, or text with commas between them. Each is kept once."""
    must = "a list of command names"
    names = _items(value, must)
    if not all(isinstance(name, str) and re.fullmatch(r"[^/\s\x00]+", name) for name in names):
        raise ValueError(f"{must} without paths, arguments or blanks")
    return tuple(dict.fromkeys(names))


def unit_names(value: object) -> tuple[str, ...]:
    """Names of systemd units, given as `command_names` are."""
    must = "a list of unit names, such as nightly.service"
    names = _items(value, must)
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[^/\s\x00]+\.[a-z]+", name):
            raise ValueError(must)
        if len(name.encode()) >= _UNIT_NAME_BYTES:
            raise ValueError(f"unit names of less than {_UNIT_NAME_BYTES} bytes")
    return tuple(dict.fromkeys(names))


def variable_names(most: int, example: str) -> Parser:
    """Names of at most so many environment variables, given as `command_names` are."""
    must = "a list of names of environment variables"

    def parse(value: object) -> tuple[str, ...]:
        names = _items(value, must)
        for name in names:
            if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"{must}, such as {example}")
            if len(name) > _VARIABLE_BYTES:
                raise ValueError(f"{must} of at most {_VARIABLE_BYTES} letters")
        kept = tuple(dict.fromkeys(names))
        if len(kept) > most:
            raise ValueError(f"{must}, at most {most}")
        return kept

    return parse


def host_name(value: object) -> str:
    """What a host is called, as people and other programs know it."""
    if not isinstance(value, str) or not re.fullmatch(r"[^\s\x00-\x1f\x7f]{1,253}", value):
        raise ValueError("the name of a host, without blanks")
    return value


def exit_codes(value: object) -> tuple[str, ...]:
    """Commands with exit codes, given as `command_names` are: ``grep=1``. Each is kept once."""
    must = "a list of commands with exit codes, such as grep=1"
    items = _items(value, must)
    for item in items:
        match = isinstance(item, str) and re.fullmatch(r"([^/\s\x00=]+)=(\d{1,3})", item, re.ASCII)
        if not match or not 1 <= int(match[2]) <= 255:
            raise ValueError(f"{must}; a code is from 1 to 255")
    return tuple(dict.fromkeys(items))


def host_names(value: object) -> tuple[str, ...]:
    """Names of hosts, given as `command_names` are; ``*.`` before one is all names below it."""
    must = "a list of host names, such as host1.example.com or *.example.com, or *"
    names = _items(value, must)
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"\*|(\*\.)?\w[\w.-]*", name, re.ASCII):
            raise ValueError(must)
    return tuple(dict.fromkeys(names))


def _items(value: object, must: str) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError(must)
    return list(value)


def switch(value: object) -> bool:
    """Yes or no: as a flag it takes no value."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def log_level(value: object) -> str:
    """A level of `logging`, in lower case; ``warn`` is ``warning``."""
    return str(one_of(*_LOG_LEVELS)("warning" if value == "warn" else value))


def one_of(*choices: str) -> Parser:
    """One of these words."""

    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return str(value)

    return parse


def path_of(kind: str) -> Parser:
    """A path; `kind` is what lies there, with its article: ``a file``."""

    def parse(value: object) -> Path:
        if isinstance(value, Path):
            return value
        if not isinstance(value, str) or not value or "\x00" in value:
            raise ValueError(f"the path of {kind}")
        return Path(value)

    return parse


def as_written(value: object) -> str:
    """A refused value as a TOML file has it, kept short for a message."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return '"' + (value if len(value) <= 40 else value[:39] + "…") + '"'
        case list():
            shown = [as_written(part) for part in value[:3]] + ["…"] * (len(value) > 3)
            return f"[{', '.join(shown)}]"
        case dict():
            return "a table"
        case _:
            return str(value)
