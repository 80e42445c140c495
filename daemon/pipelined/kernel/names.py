# SPDX-License-Identifier: Apache-2.0
"""The names that the kernel side treats specially: of commands, units and variables."""

from __future__ import annotations

import os
import re
import struct
import sys
from collections.abc import Collection, Iterable, Sequence

from pipelined.command_names import MANY_IN_ONE
from pipelined.errors import UserError
from pipelined.kernel import layout
from pipelined.kernel.loader import Loaded
from pipelined.starter import STARTER_NAME

__all__ = ["command_key", "put_commands", "put_units", "put_variables"]

#: fish reads the last part of a pipeline at another descriptor than stdin. Other shells read
#: `$(…)` there; fish polls for that.
_READ_ANYWHERE = frozenset({"fish"})

#: The kernel's name of what is started as ``/proc/self/exe``. busybox starts itself so.
_SELF = "exe"

#: Scripts that are no interpreters though their file is one. pipelined reads what it measures, of
#: which it is no stage. GNU parallel is written in Perl, but what it reads from the programs that
#: it starts first (``hostname``, ``lscpu``, ``tput``) is no data of its pipeline.
_BY_NAME = ("pipelined", STARTER_NAME, "parallel")

#: By so many bytes of ``NAME=`` the kernel side finds a variable.
_CHAINED = 4


def put_commands(
    loaded: Loaded,
    *,
    interpreters: Iterable[str],
    wrappers: Iterable[str],
    shells: Collection[str],
    alone: Iterable[str],
    schedulers: Iterable[str],
) -> int:
    """Fill the map of commands, and return how many there are; `UserError` if they are too many."""
    listed = (
        (interpreters, layout.COMMAND_INTERPRETER),
        (wrappers, layout.COMMAND_WRAPPER),
        (shells, layout.COMMAND_SHELL),
        (alone, layout.COMMAND_ALONE),
        (_READ_ANYWHERE.intersection(shells), layout.COMMAND_READS_ANYWHERE),
        ([STARTER_NAME], layout.COMMAND_STARTER),
        (_BY_NAME, layout.COMMAND_BY_NAME),
        (schedulers, layout.COMMAND_SCHEDULER),
        ((*MANY_IN_ONE, _SELF), layout.COMMAND_APPLETS),
    )
    flags: dict[bytes, int] = {}
    for names, flag in listed:
        for name in names:
            key = command_key(name)
            flags[key] = flags.get(key, 0) | flag
    for key, value in flags.items():
        if not loaded.put("commands", key, struct.pack("=I", value)):
            raise UserError(
                f"too many command names: {len(flags)} interpreters, wrappers, shells, "
                "schedulers and commands alone",
                f"name at most {layout.MAX_COMMANDS}",
            )
    return len(flags)


def put_units(loaded: Loaded, names: Iterable[str]) -> int:
    """Fill the map of units alone, and return how many there are; `UserError` if too many."""
    keys = {re.sub("@.*(?=\\.)", "@", name).encode() for name in names}
    for key in keys:
        value = struct.pack("=I", 1)
        if not loaded.put("units", key.ljust(layout.UNIT_LEN, b"\0"), value):
            raise UserError(
                f"too many units alone: {len(keys)}", f"name at most {layout.MAX_UNITS}"
            )
    return len(keys)


def put_variables(loaded: Loaded, jobs: Sequence[str], instances: Sequence[str]) -> None:
    """Fill the maps of variables that name jobs, and of those that identify their instances.

    The configuration bounds both.
    """
    names = tuple(dict.fromkeys((*jobs, *instances)))
    chains, following = _chains(names)
    for at, name in enumerate(names):
        text = f"{name}=".encode()
        variable = layout.Variable(
            text,
            b"\xff" * len(text),
            len(text),
            following[at],
            jobs.index(name) + 1 if name in jobs else 0,
            instances.index(name) + 1 if name in instances else 0,
        )
        _put_number(loaded, "variables", at, bytes(variable))
    for chain, first in enumerate(chains):
        if first:
            _put_number(loaded, "variable_chains", chain, struct.pack("=I", first))


def _chains(names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Where each chain of the kernel side begins, and what follows each name: places from 1 on.

    A name of which fewer than four bytes are known may be behind any four: it is in each chain.
    """
    last = 0
    following = [0] * len(names)
    for at, name in enumerate(names):
        if len(name) < _CHAINED - 1:
            following[at], last = last, at + 1
    chains = [last] * (1 << layout.CHAIN_BITS)
    for at, name in enumerate(names):
        if len(name) >= _CHAINED - 1:
            begin = int.from_bytes(f"{name}=".encode()[:_CHAINED], sys.byteorder)
            chain = (begin * layout.CHAIN_FACTOR & 0xFFFFFFFF) >> (32 - layout.CHAIN_BITS)
            following[at], chains[chain] = chains[chain], at + 1
    return chains, following


def _put_number(loaded: Loaded, name: str, at: int, value: bytes) -> None:
    if not loaded.put(name, at.to_bytes(4, sys.byteorder), value):
        raise RuntimeError(f"no room for entry {at} of {name}")


def command_key(name: str) -> bytes:
    """The key of a command in the `commands` map: its first 15 bytes without a version.

    The kernel side leaves out the version of a name before it looks it up.

    >>> command_key("python3.11").rstrip(b"\\0")
    b'python'
    """
    kept = os.fsencode(name)[: layout.COMM_LEN - 1].rstrip(b"0123456789.")
    return kept.ljust(layout.COMM_LEN, b"\0")
