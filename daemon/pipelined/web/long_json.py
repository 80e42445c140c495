# SPDX-License-Identifier: Apache-2.0
"""Answers with long lists: as text of one item after the other, never as objects of all of them,
and one answer at a time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from flask import Response

__all__ = ["Json", "long_answer", "long_json", "one_at_a_time"]

P = ParamSpec("P")
T = TypeVar("T")

#: The separators of `flask.jsonify`.
_COMPACT = (",", ":")


class Json(NamedTuple):
    """An item that is JSON already."""

    text: str


def long_json(answer: Mapping[str, Any], separators: tuple[str, str] = (", ", ": ")) -> str:
    """What `json.dumps` makes of an object; values of it that are iterators become lists.

    A thousand runs as objects are several megabytes, ten times their text.

    Items of these may be `Json`.

    >>> long_json({"runs": iter([{"id": 1}, {"id": 2}]), "next": None})
    '{"runs": [{"id": 1}, {"id": 2}], "next": null}'
    """
    comma, colon = separators

    def text(value: Any) -> str:
        return value.text if isinstance(value, Json) else json.dumps(value, separators=separators)

    members = []
    for key, value in answer.items():
        is_long = isinstance(value, Iterator)
        listed = f"[{comma.join(map(text, value))}]" if is_long else text(value)
        members.append(f"{text(key)}{colon}{listed}")
    return f"{{{comma.join(members)}}}"


def long_answer(answer: Mapping[str, Any]) -> Response:
    """What `flask.jsonify` makes of an object; values of it that are iterators become lists."""
    return Response(long_json(answer, _COMPACT) + "\n", mimetype="application/json")


def one_at_a_time(view: Callable[P, T]) -> Callable[P, T]:
    """The view, for one request at a time: to make a long answer takes several times its memory,
    and several threads make them no sooner."""
    free = threading.Lock()

    @wraps(view)
    def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        with free:
            return view(*args, **kwargs)

    return alone
