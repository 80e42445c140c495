# SPDX-License-Identifier: Apache-2.0
"""What the optional tiers count for a stage: rows of integers, and what these amount to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from pipelined.records.stage import NS
from pipelined.runs import (
    HISTOGRAMS,
    PAGE_CLASSES,
    STALL_CLASSES,
    Functions,
    Histogram,
    Readahead,
    Stalls,
    StallSeconds,
)

__all__ = [
    "FUNCTIONS",
    "HISTOGRAM_FIELDS",
    "NO_READAHEAD",
    "PIPE_IN",
    "PIPE_OUT",
    "PIPE_READS",
    "PIPE_WRITES",
    "READAHEAD",
    "cached_bytes",
    "functions_of",
    "places",
    "readahead_of",
]

T = TypeVar("T")
S = TypeVar("S")

#: What the kernel side calls the histograms, in the order of `runs.HISTOGRAMS`.
HISTOGRAM_FIELDS = ("pipe_writes", "pipe_reads", "file_reads", "file_read_time", "pipe_fill")

#: What the `functions` tier counts, in this order, and how many values each is: of a histogram its
#: buckets and the sum.
FUNCTIONS: Mapping[str, int] = MappingProxyType(
    {
        **{name: kind.buckets + 1 for name, kind in zip(HISTOGRAM_FIELDS, HISTOGRAMS, strict=True)},
        "pipe_in_bytes": 1,
        "pipe_out_bytes": 1,
        "pipe_slots": 1,
    }
)

#: The same of the `readahead` tier. Stalls are counted twice by class: alone and overlapped.
READAHEAD: Mapping[str, int] = MappingProxyType(
    {
        "pages": len(PAGE_CLASSES),
        "inserted": 1,
        "direct_bytes": 1,
        "faults": len(STALL_CLASSES),
        "stalls": 2 * len(STALL_CLASSES),
        "stall_ns": 2 * len(STALL_CLASSES),
        "not_input": 1,
        "files": 1,
    }
)


def places(counted: Mapping[str, int]) -> dict[str, slice]:
    """Where the values of each are in a row of `FUNCTIONS` or `READAHEAD`.

    >>> places(READAHEAD)["inserted"]
    slice(5, 6, None)
    """
    found, at = {}, 0
    for name, values in counted.items():
        found[name] = slice(at, at + values)
        at += values
    return found


_FUNCTIONS, _READAHEAD = places(FUNCTIONS), places(READAHEAD)
PIPE_IN, PIPE_OUT, _PIPE_SLOTS = (
    _FUNCTIONS[name].start for name in ("pipe_in_bytes", "pipe_out_bytes", "pipe_slots")
)
#: The sums of these histograms: bytes.
PIPE_WRITES, PIPE_READS = (_FUNCTIONS[name].stop - 1 for name in ("pipe_writes", "pipe_reads"))
#: What 1 in the sum of a histogram is worth, if it is not 1.
_SUM_UNITS = {"file_read_seconds": NS, "pipe_fill": 2**-16}
_HISTOGRAMS = tuple(
    (kind, _SUM_UNITS.get(kind.field, 1), slice(_FUNCTIONS[name].start, _FUNCTIONS[name].stop - 1))
    for name, kind in zip(HISTOGRAM_FIELDS, HISTOGRAMS, strict=True)
)
_PAGES, _FAULTS, _STALLS, _STALL_NS = (
    _READAHEAD[name] for name in ("pages", "faults", "stalls", "stall_ns")
)
_INSERTED, _DIRECT_BYTES, _NOT_INPUT, _FILES = (
    _READAHEAD[name].start for name in ("inserted", "direct_bytes", "not_input", "files")
)

#: What most stages of a storm of short processes read through the page cache.
NO_READAHEAD = (0,) * sum(READAHEAD.values())

#: Most stages never wait for a read: one object for all of them.
_NO_STALLS = dict.fromkeys(STALL_CLASSES, Stalls())
_NO_STALL_SECONDS = dict.fromkeys(STALL_CLASSES, StallSeconds())

_PAGE = os.sysconf("SC_PAGE_SIZE")


def functions_of(values: Sequence[int]) -> Functions:
    """What a row of `FUNCTIONS`, or the sum of several, amounts to."""
    histograms = {
        kind.field: Histogram.of(kind.edges, values[counts], values[counts.stop] * unit)
        for kind, unit, counts in _HISTOGRAMS
    }
    return Functions(**histograms, pipe_capacity_bytes=values[_PIPE_SLOTS] * _PAGE or None)


def readahead_of(values: Sequence[int]) -> Readahead:
    """What a row of `READAHEAD`, or the sum of several, amounts to."""
    stalls, stall_ns = values[_STALLS], values[_STALL_NS]
    return Readahead(
        pages=dict(zip(PAGE_CLASSES, values[_PAGES], strict=True)),
        inserted_pages=values[_INSERTED],
        direct_bytes=values[_DIRECT_BYTES],
        faults=dict(zip(STALL_CLASSES, values[_FAULTS], strict=True)),
        stalls=_by_class(Stalls, stalls) if any(stalls) else _NO_STALLS,
        stall_seconds=_by_class(StallSeconds, [NS * ns for ns in stall_ns])
        if any(stall_ns)
        else _NO_STALL_SECONDS,
        not_input_pages=values[_NOT_INPUT],
        files=values[_FILES],
    )


def cached_bytes(values: Sequence[int]) -> tuple[int, int]:
    """What was read through the page cache, by a row of `READAHEAD`; and how much of that is no
    input: of files that the run wrote, and of programs."""
    found = readahead_of(values)
    return found.read_pages * _PAGE, found.not_input_pages * _PAGE


def _by_class(split: Callable[[T, T], S], values: Sequence[T]) -> dict[str, S]:
    """Of the kernel side's values for each class, alone and overlapped."""
    return {
        name: split(values[at + 1], values[at])
        for at, name in zip(range(0, len(values), 2), STALL_CLASSES, strict=True)
    }
