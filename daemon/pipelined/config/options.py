# SPDX-License-Identifier: Apache-2.0
"""The daemon's options: each is described once, for flags, the TOML file and the defaults.

The file says the same things as the flags. A dot in a name is a table::

    max-signatures = 200
    wrappers = ["timeout", "sudo", "retry"]

    [web]
    listen-address = "[::1]:9905"

Flags win over the file, the file over the defaults.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from pipelined.command_names import SHELLS
from pipelined.errors import UserError, why

__all__ = [
    "DEFAULT_HISTORY_AGE",
    "DEFAULT_HISTORY_SIZE",
    "OPTIONS",
    "Address",
    "Config",
    "Option",
    "is_listed",
    "load",
    "merge",
    "parse_duration",
    "parse_listen_address",
]

#: How long finished runs are kept (seconds), and what their files may take (bytes).
DEFAULT_HISTORY_AGE = 30 * 86400.0
DEFAULT_HISTORY_SIZE = 256_000_000


class Address(NamedTuple):
    """Where the daemon listens. Port 0 lets the kernel choose one."""

    host: str
    """Name or IP address, IPv6 without brackets; ``0.0.0.0`` is every IPv4 address."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


Parser = Callable[[object], Any]
"""Turns what a file or a flag says into the option's value; ValueError says what it must be."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option, by whatever way it is given."""

    name: str
    """As a flag without its dashes, and as a path of TOML keys: ``web.listen-address``."""
    field: str
    """Name of its attribute in `Config`."""
    metavar: str
    """What stands for the value in help texts; empty for a yes/no option."""
    default: str
    """The default as help texts show it; empty when there is none."""
    help: str
    example: str
    """A value as the TOML file would have it."""
    parse: Parser

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def is_switch(self) -> bool:
        """True when the flag takes no value."""
        return not self.metavar


def parse_duration(text: str) -> float:
    """Seconds that a text such as ``500ms``, ``2m``, ``12h`` or ``30d`` names; no unit: seconds.

    Raises ValueError when it is no such text.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?", text)
    if match is None:
        raise ValueError("a duration such as 500ms, 2m, 12h or 30d")
    return float(match[1]) * _UNITS[match[2] or "s"]


def parse_listen_address(text: str) -> Address:
    """Read ``HOST:PORT``, ``[IPV6]:PORT`` or ``:PORT`` (every IPv4 address).

    >>> parse_listen_address("[::1]:9905")
    Address(host='::1', port=9905)

    Raises UserError when it is none of these.
    """
    try:
        return _address(text)
    except ValueError as error:
        raise UserError(
            f"listen address {text!r} must be {error}", "for example 127.0.0.1:9905"
        ) from None


def is_listed(command: str, names: Collection[str]) -> bool:
    """Whether a command is one of the names, also with a version: ``python3.11`` is ``python``.

    A command is what the kernel keeps of a name: its first 15 bytes.
    """
    if command in names:
        return True
    unversioned = re.sub(r"-?[0-9]+(\.[0-9]+)*$", "", command)
    if unversioned in names:
        return True
    return len(command.encode()) == _COMMAND_BYTES and any(
        name.startswith(command) for name in names
    )


def load(path: Path) -> Config:
    """Read a TOML file; options it does not name keep their defaults.

    Raises UserError, with file and line, for a file that cannot be read, is no TOML, or
    has a wrong key, type or value.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {why(error)}",
            "name a TOML file that exists and that this user may read",
        ) from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not UTF-8", "save the file as UTF-8") from None
    # TOML knows \n and \r\n only; other line breaks of Unicode may stand in strings.
    lines = text.replace("\r\n", "\n").split("\n")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, error, len(text.rstrip().split("\n"))) from None

    by_name = {option.name: option for option in OPTIONS}
    values: dict[str, Any] = {}
    for keys, value in _leaves(document, by_name):
        name = ".".join(keys)
        option = by_name.get(name)
        if option is None:
            raise UserError(
                f"{path}:{_line_of(lines, keys)}: {_unknown(name, value, by_name)}",
                _suggestion(name, value, by_name),
            )
        try:
            values[option.field] = option.parse(value)
        except ValueError as error:
            raise UserError(
                f"{path}:{_line_of(lines, keys)}: {name} must be {error}, not {_described(value)}",
                f"for example {name.rpartition('.')[2]} = {option.example}",
            ) from None
    return Config(**values)


def merge(config: Config, **flags: object) -> Config:
    """The configuration with the flags that were given (None: not given) laid over it.

    Values may be text as typed at the prompt; lists are separated by commas. Raises UserError
    naming the flag whose value is wrong.
    """
    by_field = {option.field: option for option in OPTIONS}
    values: dict[str, Any] = {}
    for name, value in flags.items():
        option = by_field[name]
        if value is None:
            continue
        try:
            values[name] = option.parse(value)
        except ValueError as error:
            shown = value if isinstance(value, str) else _described(value)
            raise UserError(
                f"{option.flag} must be {error}, not {shown}",
                f"see pipelined serve --help; the default is {option.default or 'none'}",
            ) from None
    return replace(config, **values)


# What a value must be. A parser takes text, and the type that TOML has for the thing.

_COMMAND_BYTES = 15
_LOG_LEVELS = ("debug", "info", "warning", "error")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {"": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}
_SIZES |= {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def _address(value: object) -> Address:
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


def _whole_number(low: int, high: int) -> Parser:
    must = f"a whole number from {low} to {high}"

    def parse(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(must)
        return value

    return parse


def _duration(low: float, high: float) -> Parser:
    must = f"a duration from {low:g} to {high:g} seconds such as 500ms, 1s or 2m"

    def parse(value: object) -> float:
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

    return parse


def _age(value: object) -> float:
    must = "an age from 1m to 3650d such as 12h or 30d"
    if not isinstance(value, str):
        raise ValueError(must)
    try:
        seconds = parse_duration(value)
    except ValueError:
        raise ValueError(must) from None
    if not 60 <= seconds <= 3650 * 86400:
        raise ValueError(must)
    return seconds


def _size(low: int) -> Parser:
    must = f"a size of {low // 1000**2}MB or more such as 256MB or 2GiB"

    def parse(value: object) -> int:
        size = value
        if isinstance(value, str):
            match = re.fullmatch(r"([0-9]{1,12})([A-Za-z]*)", value)
            if match is None or match[2] not in _SIZES:
                raise ValueError(must)
            size = int(match[1]) * _SIZES[match[2]]
        if isinstance(size, bool) or not isinstance(size, int) or not low <= size:
            raise ValueError(must)
        return size

    return parse


def _commands(value: object) -> tuple[str, ...]:
    must = "a list of command names"
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError(must)
    for item in value:
        if not isinstance(item, str) or not item or re.search(r"[/\s\x00]", item):
            raise ValueError(f"{must} without paths, arguments or blanks")
    return tuple(dict.fromkeys(value))


def _units(value: object) -> tuple[str, ...]:
    must = "a list of unit names, such as nightly.service"
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError(must)
    for item in value:
        if not isinstance(item, str) or not re.fullmatch(r"[^/\s\x00]+\.[a-z]+", item):
            raise ValueError(must)
        if len(item.encode()) >= 64:
            raise ValueError("unit names of less than 64 bytes")
    return tuple(dict.fromkeys(value))


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _log_level(value: object) -> str:
    if value == "warn":
        return "warning"
    if not isinstance(value, str) or value not in _LOG_LEVELS:
        raise ValueError("one of " + ", ".join(_LOG_LEVELS))
    return value


def _one_of(*choices: str) -> Parser:
    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return str(value)

    return parse


def _file(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value or "\x00" in value:
        raise ValueError("the path of a file")
    return Path(value)


def _directory(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value or "\x00" in value:
        raise ValueError("the path of a directory")
    return Path(value)


def _option(
    name: str, default: Any, shown: str, metavar: str, parse: Parser, example: str, text: str
) -> Any:
    """A field of `Config` that carries its own description."""
    described = Option(
        name=name,
        field=name.replace(".", "_").replace("-", "_"),
        metavar=metavar,
        default=shown,
        help=text,
        example=example,
        parse=parse,
    )
    return field(default=default, metadata={"option": described})


_INTERPRETERS = (
    "python",
    "pypy",
    "perl",
    "ruby",
    "node",
    "nodejs",
    "php",
    "awk",
    "gawk",
    "mawk",
    "original-awk",
)
# Those that stay as the parent of what they start. The ones that exec (nice, env, nohup,
# stdbuf, taskset …) become their command and need no entry.
_WRAPPERS = (
    "timeout",
    "time",
    "sudo",
    "doas",
    "su",
    "runuser",
    "flock",
    "setsid",
    "unshare",
    "nsenter",
    "strace",
    "ltrace",
    "perf",
    "script",
    "systemd-run",
    "systemd-inhibit",
    "xvfb-run",
    "dbus-run-session",
    "fakeroot",
    "firejail",
    "bwrap",
    "chronic",
    "cpulimit",
    "tini",
    "dumb-init",
)


@dataclass(frozen=True, slots=True)
class Config:
    """Everything the daemon can be told. Durations in seconds."""

    web_listen_address: Address = _option(
        "web.listen-address",
        Address("127.0.0.1", 9905),
        "127.0.0.1:9905",
        "HOST:PORT",
        _address,
        '"127.0.0.1:9905"',
        "Where to serve /metrics, the API and the page. :9905 is every IPv4 address.",
    )
    log_level: str = _option(
        "log.level",
        "info",
        "info",
        "LEVEL",
        _log_level,
        '"info"',
        "How much to log: debug, info, warning or error.",
    )
    web_config_file: Path | None = _option(
        "web.config.file",
        None,
        "",
        "FILE",
        _file,
        '"/etc/pipelined/web.yml"',
        "TLS, passwords and headers of the port, in the format of other Prometheus exporters.",
    )
    sweep_interval: float = _option(
        "sweep-interval",
        1.0,
        "1s",
        "DURATION",
        _duration(0.05, 60),
        '"1s"',
        "How often to read the kernel's counters between scrapes; each scrape reads them too.",
    )
    max_signatures: int = _option(
        "max-signatures",
        500,
        "500",
        "COUNT",
        _whole_number(1, 100_000),
        "500",
        "How many pipelines get series of their own; the rest are counted as (other).",
    )
    recent_runs: int = _option(
        "recent-runs",
        200,
        "200",
        "COUNT",
        _whole_number(0, 100_000),
        "200",
        "How many finished runs the API and the page remember.",
    )
    history: bool = _option(
        "history",
        True,
        "on",
        "",
        _switch,
        "true",
        "Keep finished runs in the state directory, for pipelined runs, pipelined show and the "
        "page. Where it cannot be written, pipelines are watched all the same.",
    )
    state_directory: Path | None = _option(
        "state-directory",
        None,
        "",
        "DIRECTORY",
        _directory,
        '"/var/lib/pipelined"',
        "Where the history is kept; made if it is not there. If not given: $STATE_DIRECTORY, which "
        "systemd sets, or /var/lib/pipelined.",
    )
    history_max_age: float = _option(
        "history-max-age",
        DEFAULT_HISTORY_AGE,
        "30d",
        "AGE",
        _age,
        '"30d"',
        "How long finished runs are kept.",
    )
    history_max_size: int = _option(
        "history-max-size",
        DEFAULT_HISTORY_SIZE,
        "256MB",
        "SIZE",
        _size(1_000_000),
        '"256MB"',
        "What the history may take on disk; the oldest runs make room.",
    )
    max_stages: int = _option(
        "max-stages",
        16384,
        "16384",
        "COUNT",
        _whole_number(1, (1 << 18) - 1),
        "16384",
        "How many stages can be followed at once; more are counted in pipelined_lost_total.",
    )
    max_pipes: int = _option(
        "max-pipes",
        16384,
        "16384",
        "COUNT",
        _whole_number(1, (1 << 18) - 1),
        "16384",
        "How many pipes can be followed at once; more are counted in pipelined_lost_total.",
    )
    interpreters: tuple[str, ...] = _option(
        "interpreters",
        _INTERPRETERS,
        ",".join(_INTERPRETERS),
        "NAME,…",
        _commands,
        '["python", "perl"]',
        "Commands that are a stage when they read from a child; any version counts (python3.11).",
    )
    wrappers: tuple[str, ...] = _option(
        "wrappers",
        _WRAPPERS,
        ",".join(_WRAPPERS),
        "NAME,…",
        _commands,
        '["timeout", "sudo"]',
        "Commands whose stage goes by the name of the command that they run.",
    )
    shells: tuple[str, ...] = _option(
        "shells",
        SHELLS,
        ",".join(SHELLS),
        "NAME,…",
        _commands,
        '["bash", "sh"]',
        "Commands that hold their children's pipes without using them.",
    )
    alone: tuple[str, ...] = _option(
        "alone",
        (),
        "",
        "NAME,…",
        _commands,
        '["awk", "sort"]',
        "Commands that are a pipeline of one stage when they read in no other. "
        "`pipelined run` takes every program for one.",
    )
    alone_units: tuple[str, ...] = _option(
        "alone-units",
        (),
        "",
        "NAME,…",
        _units,
        '["nightly.service", "backup@.service"]',
        "The same for every program but shells that runs in these systemd units. An instance "
        "counts as its template. Needs cgroup v2.",
    )
    show_arguments: bool = _option(
        "show-arguments",
        False,
        "off",
        "",
        _switch,
        "true",
        "Show command lines in the API and the page. They may hold secrets. Never in /metrics.",
    )
    functions: str = _option(
        "functions",
        "auto",
        "auto",
        "WHEN",
        _one_of("auto", "on", "off"),
        '"auto"',
        "Hook pipe_write, pipe_read, vfs_read and splice, for sizes, times of reads, and how full "
        "pipes are. auto: where the kernel allows it; on: refuse to start where it does not; off.",
    )
    readahead: str = _option(
        "readahead",
        "auto",
        "auto",
        "WHEN",
        _one_of("auto", "on", "off"),
        '"auto"',
        "Tell for each page read from a file whether it was cached, read ahead in time, or waited "
        "for. auto: where the kernel allows it; on: refuse to start where it does not; off.",
    )
    max_readers: int = _option(
        "max-readers",
        1024,
        "1024",
        "COUNT",
        _whole_number(1, 1 << 20),
        "1024",
        "How many tasks can have pages read ahead at once, 8 KiB of memory each; of more, the "
        "pages are counted in pipelined_lost_total.",
    )
    trace_exec_failures: bool = _option(
        "trace-exec-failures",
        False,
        "off",
        "",
        _switch,
        "true",
        "Count failed execs by system call tracepoints where fexit is not allowed. "
        "Every system call of the host then costs some 50 ns more.",
    )
    loader: str = _option(
        "loader",
        "auto",
        "auto",
        "LOADER",
        _one_of("auto", "libbpf", "bcc"),
        '"auto"',
        "libbpf: load the BPF object that came with the program; bcc: compile its source on this "
        "host (needs python3-bpfcc); auto: bcc where libbpf fails.",
    )
    object: Path | None = _option(
        "object",
        None,
        "",
        "FILE",
        _file,
        '"pipelined.bpf.o"',
        "Load this BPF object instead of the one that came with the program.",
    )


OPTIONS: tuple[Option, ...] = tuple(item.metadata["option"] for item in fields(Config))
"""Every option, in the order in which help shows them."""


# Errors in the file: which line, and what was probably meant.


def _leaves(
    document: Mapping[str, Any], known: Collection[str], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Key paths and values; goes into a table only where an option lies under it."""
    for key, value in document.items():
        keys = (*above, key)
        prefix = ".".join(keys) + "."
        if isinstance(value, dict) and any(name.startswith(prefix) for name in known):
            yield from _leaves(value, known, keys)
        else:
            yield keys, value


def _line_of(lines: list[str], keys: tuple[str, ...]) -> int:
    """The line on which a key is given: the first statement whose end makes the key exist.

    Statements end where the text up to there is valid TOML, so the grammar is left to tomllib.
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


def _syntax_error(path: Path, error: tomllib.TOMLDecodeError, last_line: int) -> UserError:
    message = str(error)
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message)
    if match is None:
        return UserError(f"{path}: not TOML: {message}")
    reason, line = match[1], match[2] or str(last_line)
    column = f":{match[3]}" if match[3] else ""
    return UserError(f"{path}:{line}{column}: not TOML: {reason.lower()}")


def _described(value: object) -> str:
    """A value as the user wrote it, kept short."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return '"' + (value if len(value) <= 40 else value[:39] + "…") + '"'
        case list():
            return "a list" if value else "an empty list"
        case dict():
            return "a table"
        case _:
            return str(value)


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
        # A right key in the wrong table is recognised by its last part.
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
