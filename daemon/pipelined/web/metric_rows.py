# SPDX-License-Identifier: Apache-2.0
"""Rows of the tables of metrics (`pipeline_metrics`), and how they read their samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelined.web.exposition import NO_LABELS, Labels

if TYPE_CHECKING:
    from pipelined.model.sums import EndedRun

__all__ = [
    "Row",
    "Samples",
    "Value",
    "counter",
    "each",
    "gauge",
    "known",
    "not_0",
    "one",
    "only_if",
    "split",
]

Value = Callable[[Any], float | None]
Samples = tuple[tuple[Labels, Value], ...]
Example = Callable[[Any, Labels], "EndedRun | None"]


class Row(NamedTuple):
    """One metric."""

    kind: str
    name: str
    help: str
    samples: Samples
    example: Example | None = None
    """Of an owner's sample with these labels of its own, one of the runs that it counts."""


counter = partial(Row, "counter")
gauge = partial(Row, "gauge")


def one(field: str) -> Samples:
    """A single sample, without a label of its own."""
    return ((NO_LABELS, attrgetter(field)),)


def split(label: str, **fields: str) -> Samples:
    """A sample per value of `label`, each from a field of its own."""
    return tuple((Labels({label: value}), attrgetter(field)) for value, field in fields.items())


def each(label: str, field: str, keys: Iterable[str] | Mapping[str, int]) -> Samples:
    """A sample per item of `field`: `keys` has the label's values, and their indexes if given."""
    indexes = keys if isinstance(keys, Mapping) else {key: key for key in keys}
    return tuple((Labels({label: value}), _item(field, at)) for value, at in indexes.items())


def _item(field: str, index: str | int) -> Value:
    return lambda owner: getattr(owner, field)[index]


def known(label: str, field: str, keys: Iterable[str]) -> Samples:
    """A sample per item of the mapping `field`; none of those of `keys` that are not in it."""

    def reader(key: str) -> Value:
        return lambda owner: getattr(owner, field).get(key)

    return tuple((Labels({label: key}), reader(key)) for key in keys)


def not_0(samples: Samples) -> Samples:
    """These samples, each of them only if it is not 0."""

    def reader(value_of: Value) -> Value:
        return lambda owner: value_of(owner) or None

    return tuple((labels, reader(value_of)) for labels, value_of in samples)


def only_if(happened: Callable[[Any], object], samples: Samples) -> Samples:
    """These samples, all of them if this is true of their owner, else none."""

    def reader(value_of: Value) -> Value:
        return lambda owner: value_of(owner) if happened(owner) else None

    return tuple((labels, reader(value_of)) for labels, value_of in samples)
