# SPDX-License-Identifier: Apache-2.0
"""Types of keys: numbers with their units, and texts and objects of which all values are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pipelined.runs import LEVELS, PAGE_CLASSES, STALL_CLASSES, STATES

__all__ = [
    "AsDict",
    "ByLevel",
    "ByPageClass",
    "ByState",
    "Bytes",
    "CacheState",
    "Count",
    "CountByClass",
    "Cpus",
    "Described",
    "Keys",
    "OneOf",
    "Pages",
    "Ratio",
    "Seconds",
    "Side",
    "SomeStates",
    "Unit",
    "UnixTime",
]


@dataclass(frozen=True, slots=True)
class Unit:
    """Of a number."""

    name: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """All values of a text."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Keys:
    """All keys of an object whose values are alike."""

    names: tuple[str, ...]
    always: bool = True
    """Each of them is there."""


@dataclass(frozen=True, slots=True)
class AsDict:
    """The object is what `dataclasses.asdict` makes of this class."""

    of: type


Seconds = Annotated[float, Unit("seconds")]
UnixTime = Annotated[float, Unit("seconds since 1970-01-01 UTC")]
Bytes = Annotated[int, Unit("bytes")]
Pages = Annotated[int, Unit("pages of 4 KiB")]
Count = Annotated[int, Unit("count")]
Ratio = Annotated[float, Unit("ratio, 0 to 1")]
Cpus = Annotated[float, Unit("CPUs")]

ByLevel = Annotated[dict[str, Seconds], Keys(LEVELS)]
ByState = Annotated[dict[str, Seconds], Keys(STATES)]
SomeStates = Annotated[dict[str, Seconds], Keys(STATES, always=False)]
ByPageClass = Annotated[dict[str, Pages], Keys(PAGE_CLASSES)]
CountByClass = Annotated[dict[str, Count], Keys(STALL_CLASSES)]

Side = Annotated[str, OneOf(("read", "write"))]
CacheState = Annotated[str, OneOf(("cold", "warm", "mixed"))]

#: An object of which a dataclass is the description.
Described = dict[str, Any]
