# SPDX-License-Identifier: Apache-2.0
"""Objects of annotated classes, written as what `json.dumps` takes and read back (`fields`).

No library: msgspec has to be compiled for each version of Python, which one Debian package for
several releases cannot contain, and takes 1.1 MB of the daemon; cattrs takes 2.4 MB and 20 ms of
CPU at the start (docs/BENCHMARKS.md has the budgets). Neither writes computed figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from inspect import get_annotations
from types import UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pipelined.runs.fields import Group, Inline, Key, Keys, Rounded, Secret, Unwritten

__all__ = ["Member", "bare", "members", "read", "shape", "written"]

T = TypeVar("T")

Convert = Callable[[Any], Any]


class Member(NamedTuple):
    """A field or a computed figure of a class, as it stands in JSON."""

    name: str
    path: tuple[Group | str, ...]
    """Empty: its own members stand there."""
    kind: Any
    """Its annotation."""
    computed: bool
    secret: bool
    """It is written only on demand."""
    default: Any
    """What it is if its key is missing, or MISSING."""

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(step.key if isinstance(step, Group) else step for step in self.path)


@cache
def members(described: Any) -> tuple[Member, ...]:
    """Of a dataclass or a NamedTuple: its own first, then those of the classes that it extends."""
    found: dict[str, Member] = {}
    for owner in described.__mro__:
        for member in _own_members(owner, described):
            found.setdefault(member.name, member)
    return tuple(found.values())


def _own_members(owner: Any, described: Any) -> Iterator[Member]:
    hints = get_type_hints(described, include_extras=True)
    own = get_annotations(owner)
    if hasattr(described, "_fields"):
        for name in own:
            yield _member(name, hints[name], default=described._field_defaults.get(name, MISSING))
        return
    for field in fields(described):
        if field.name in own and not _is_unwritten(hints[field.name]):
            yield _member(field.name, hints[field.name], default=field.default)
    for name, value in owner.__dict__.items():
        if isinstance(value, property) and hasattr(value.fget, "is_key"):
            kind = get_type_hints(value.fget, include_extras=True)["return"]
            yield _member(name, kind, computed=True)


def _is_unwritten(kind: Any) -> bool:
    return any(isinstance(note, Unwritten) for note in bare(kind)[1])


def _member(name: str, kind: Any, *, computed: bool = False, default: Any = MISSING) -> Member:
    _, notes = bare(kind)
    path: tuple[Group | str, ...] = (name,)
    for note in notes:
        if isinstance(note, Key):
            path = note.path
        elif isinstance(note, Inline):
            path = ()
    secret = any(isinstance(note, Secret) for note in notes)
    return Member(name, path, kind, computed, secret, default)


# -- writing


def written(answer: Any, *, secrets: bool = False) -> dict[str, Any]:
    """The object as `json.dumps` takes it; its secret members only with `secrets`."""
    found: dict[str, Any] = {}
    for name, path, convert in _writers(cast(Any, type(answer)), secrets):
        value = getattr(answer, name)
        if convert is not None:
            value = convert(value)
        if not path:
            found |= value
        elif len(path) == 1:
            found[path[0]] = value
        else:
            found.setdefault(path[0], {})[path[1]] = value
    return found


@cache
def _writers(described: Any, secrets: bool) -> list[tuple[str, tuple[str, ...], Convert | None]]:
    return [
        (member.name, member.keys, _writer(member.kind, secrets))
        for member in members(described)
        if secrets or not member.secret
    ]


def _writer(kind: Any, secrets: bool) -> Convert | None:
    """What turns a value of this type into JSON; None: it is JSON already."""
    kind, notes = bare(kind)
    if inner := _optional(kind):
        return _or_null(_writer(inner, secrets))
    for note in notes:
        if isinstance(note, Rounded):
            digits = note.digits
            return lambda value: round(value, digits)
        if isinstance(note, Keys):
            return _object_writer(kind, note, secrets)
    if _is_described(kind):
        return lambda value: written(value, secrets=secrets)
    if get_origin(kind) in (tuple, list):
        write = _writer(get_args(kind)[0], secrets)
        return list if write is None else lambda values: [write(value) for value in values]
    return None


def _object_writer(kind: Any, keys: Keys, secrets: bool) -> Convert:
    names, is_tuple = keys.names, get_origin(kind) is tuple
    write = _writer(get_args(kind)[0 if is_tuple else 1], secrets) or (lambda value: value)
    if is_tuple:
        return lambda values: {n: write(v) for n, v in zip(names, values, strict=True)}
    if keys.always:
        return lambda values: {name: write(values[name]) for name in names}
    return lambda values: {name: write(value) for name, value in values.items()}


# -- reading


def read(described: type[T], answer: Any) -> T:
    """The object of which `written` made `answer`, also after a way through JSON.

    Keys that the class does not have are passed over, and those that have a default may be
    missing. A class with `from_older` is given the answer first, to add what an older version did
    not write. Raises KeyError, TypeError or ValueError for anything else.
    """
    upgrade, kind = getattr(described, "from_older", None), cast(Any, described)
    if upgrade is not None:
        answer = upgrade(answer)
    return described(**{name: value_in(answer) for name, value_in in _readers(kind)})


@cache
def _readers(described: Any) -> list[tuple[str, Convert]]:
    return [
        (member.name, _member_reader(member))
        for member in members(described)
        if not member.computed
    ]


def _member_reader(member: Member) -> Convert:
    keys, convert, default = member.keys, _reader(member.kind), member.default

    def found(answer: Any) -> Any:
        try:
            for key in keys:
                answer = answer[key]
        except KeyError:
            if default is MISSING:
                raise
            return default
        return answer if convert is None else convert(answer)

    return found


def _reader(kind: Any) -> Convert | None:
    kind, notes = bare(kind)
    if inner := _optional(kind):
        return _or_null(_reader(inner))
    for note in notes:
        if isinstance(note, Keys):
            return _object_reader(kind, note)
    if _is_described(kind):
        return lambda value: read(kind, value)
    if get_origin(kind) in (tuple, list):
        convert, gather = _reader(get_args(kind)[0]), get_origin(kind)
        return gather if convert is None else lambda values: gather(map(convert, values))
    return None


def _object_reader(kind: Any, keys: Keys) -> Convert:
    names, missing, is_tuple = keys.names, keys.missing, get_origin(kind) is tuple
    convert = _reader(get_args(kind)[0 if is_tuple else 1]) or (lambda value: value)
    if is_tuple:
        return lambda values: tuple([convert(values[name]) for name in names])
    if not keys.always:
        return lambda values: {name: convert(value) for name, value in values.items()}
    if missing is None:
        return lambda values: {name: convert(values[name]) for name in names}
    return lambda values: {name: convert(values.get(name, missing)) for name in names}


# -- types


def shape(kind: Any) -> Any:
    """What values of a type are in JSON: keys, and below them the same of what is there.

    Two versions of a class with the same shape write the same keys, in the same order.

    >>> shape(tuple[int, ...])
    ['int']
    """
    kind, notes = bare(kind)
    if inner := _optional(kind):
        return (shape(inner), None)
    for note in notes:
        if isinstance(note, Keys):
            of = shape(get_args(kind)[0 if get_origin(kind) is tuple else 1])
            return dict.fromkeys(note.names, of)
    if _is_described(kind):
        return [(member.keys, shape(member.kind)) for member in members(kind)]
    if get_origin(kind) in (tuple, list):
        return [shape(get_args(kind)[0])]
    return getattr(kind, "__name__", repr(kind))


def bare(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type, and the notes on it."""
    if get_origin(kind) is not Annotated:
        return kind, ()
    inner, *notes = get_args(kind)
    return inner, tuple(notes)


def _or_null(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    of_value = convert
    return lambda value: None if value is None else of_value(value)


def _optional(kind: Any) -> Any:
    """The type that a union has beside None; None if `kind` is no union."""
    if get_origin(kind) not in (Union, UnionType):
        return None
    (inner,) = (choice for choice in get_args(kind) if choice is not type(None))
    return inner


def _is_described(kind: Any) -> bool:
    return is_dataclass(kind) or (isinstance(kind, type) and hasattr(kind, "_fields"))
