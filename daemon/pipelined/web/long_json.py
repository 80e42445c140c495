# SPDX-License-Identifier: Apache-2.0
"""Answers with long lists: as text of one item after the other, never as objects of all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

__all__ = ["Json", "long_json"]


class Json(NamedTuple):
    """An item that is JSON already."""

    text: str


def long_json(answer: Mapping[str, Any]) -> str:
    """What `json.dumps` makes of an object; values of it that are iterators become lists.

    A thousand runs as objects are several megabytes, ten times their text.

    Items of these may be `Json`.

    >>> long_json({"runs": iter([{"id": 1}, {"id": 2}]), "next": None})
    '{"runs": [{"id": 1}, {"id": 2}], "next": null}'
    """
    members = []
    for key, value in answer.items():
        is_long = isinstance(value, Iterator)
        text = f"[{', '.join(map(_text, value))}]" if is_long else json.dumps(value)
        members.append(f"{json.dumps(key)}: {text}")
    return f"{{{', '.join(members)}}}"


def _text(item: Any) -> str:
    return item.text if isinstance(item, Json) else json.dumps(item)
