# SPDX-License-Identifier: Apache-2.0
"""Fields of the classes that are answered as JSON objects: their keys, units and values.

A field's annotation is its description: `Seconds` is a number with a unit, `Side` a text of which
all values are known. Its key in JSON has the same name unless `Key` gives another one, or a place
in an object of its own. The string below it is its meaning, in docs/API.md, too.

    start: Annotated[UnixTime, Key("start_timestamp_seconds")]
    disk_alone_seconds: Annotated[Seconds, Key(DISK_WAIT, "alone")]
    series: Annotated[Series, Inline()]

A property under `computed` is a key that is written, and not read back. `codec` writes and reads,
``make api`` makes the JSON Schema and the tables of docs/API.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

from pipelined.states import STATE_TABLE

__all__ = [
    "LEVELS",
    "PAGE_CLASSES",
    "STALL_CLASSES",
    "STATES",
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
    "ExactLevels",
    "ExactSeconds",
    "Group",
    "Inline",
    "Key",
    "Keys",
    "OneOf",
    "Pages",
    "Ratio",
    "Rounded",
    "Seconds",
    "Secret",
    "Side",
    "SomeStates",
    "Unit",
    "UnixTime",
    "Unwritten",
    "computed",
    "with_keys_of",
]

#: The names of the states of a thread, in the kernel side's order.
STATES = tuple(state.name for state in STATE_TABLE)

#: Labels of the levels; the last one gathers everything from 8 on.
LEVELS = ("0", "1", "2", "3", "4", "5", "6", "7", "8+")

#: What became of pages, in the order of the kernel side's `enum page_class`. All but the last
#: one add up to the pages that were read.
PAGE_CLASSES = ("warm", "hit", "late", "miss", "wasted")

#: By the page that ended a wait, or that a fault was for: brought in by that very read or
#: fault; brought in ahead of it; the rest. In the order of `enum stall_class`.
STALL_CLASSES = ("miss", "late", "other")


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Unit(NamedTuple):
    """Of a number."""

    name: str


class Rounded(NamedTuple):
    """A number is written with this many decimal places."""

    digits: int


class OneOf(NamedTuple):
    """All values of a text."""

    values: tuple[str, ...]


class Keys(NamedTuple):
    """All keys of an object whose values are alike: a mapping, or a tuple in this order."""

    names: tuple[str, ...]
    always: bool = True
    """Each of them is there."""
    missing: float | None = None
    """What a key is worth that an older version did not write; None: it wrote all of them."""


class AsDict(NamedTuple):
    """The object is what `dataclasses.asdict` makes of this class."""

    of: type


class Group(NamedTuple):
    """An object that has some of the fields of a class."""

    key: str
    name: str
    """In the JSON Schema."""
    meaning: str


class Key:
    """The place of a field in JSON, if it is not its name: a key, or one in a group's object."""

    def __init__(self, *path: Group | str) -> None:
        self.path = path


# No NamedTuples: empty ones are equal, whatever their class, and `Annotated` would mix them up.
class Inline:
    """The fields of this field's value are keys of the object that the field is in."""


class Unwritten:
    """The field is no key: what is read back has its default."""


class Secret:
    """The field is written on demand only."""


Seconds = Annotated[float, Unit("seconds")]
#: Whole nanoseconds, as they were counted: a float's last digits only take space.
ExactSeconds = Annotated[float, Unit("seconds"), Rounded(9)]
UnixTime = Annotated[float, Unit("seconds since 1970-01-01 UTC")]
Bytes = Annotated[int, Unit("bytes")]
Pages = Annotated[int, Unit("pages of 4 KiB")]
Count = Annotated[int, Unit("count")]
Ratio = Annotated[float, Unit("ratio, 0 to 1")]
Cpus = Annotated[float, Unit("CPUs")]

ByLevel = Annotated[tuple[Seconds, ...], Keys(LEVELS)]
ExactLevels = Annotated[tuple[ExactSeconds, ...], Keys(LEVELS)]
ByState = Annotated[Mapping[str, Seconds], Keys(STATES, missing=0.0)]
SomeStates = Annotated[Mapping[str, ExactSeconds], Keys(STATES, always=False)]
ByPageClass = Annotated[Mapping[str, Pages], Keys(PAGE_CLASSES)]
CountByClass = Annotated[Mapping[str, Count], Keys(STALL_CLASSES)]

Side = Annotated[str, OneOf(("read", "write"))]
CacheState = Annotated[str, OneOf(("cold", "warm", "mixed"))]

#: An object of which a dataclass is the description.
Described = dict[str, Any]


def with_keys_of(
    described: type, *, only: Collection[str] = (), without: Collection[str] = ()
) -> Callable[[type[T]], type[T]]:
    """The decorated TypedDict also has the keys of this class: `only` these, or `without` these."""

    def mark(answer: type[T]) -> type[T]:
        answer.__keys_of__ = (described, frozenset(only), frozenset(without))  # type: ignore[attr-defined]
        return answer

    return mark


def computed(get: F) -> F:
    """Marks the getter of a property that is a key in JSON: written, and not read back."""
    get.is_key = True  # type: ignore[attr-defined]
    return get
