# SPDX-License-Identifier: Apache-2.0
"""Query parameters of a request: converted, or refused with a message that says what they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from flask import abort, request

from pipelined.config import parse_duration

__all__ = ["as_bool", "as_count", "as_duration", "as_limit", "as_one_of", "as_text", "parameter"]

T = TypeVar("T")
D = TypeVar("D")


def parameter(name: str, convert: Callable[[str], T], default: D) -> T | D:
    """The request's parameter, converted; `convert` may raise ValueError, which is status 400."""
    text = request.args.get(name)
    if text is None:
        return default
    try:
        return convert(text)
    except ValueError as error:
        abort(400, description=f"parameter {name!r}: {error}")


def as_bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def as_limit(text: str) -> int:
    return _whole_number(text, 1)


def as_count(text: str) -> int:
    return _whole_number(text, 0)


def _whole_number(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= least):
        raise ValueError(f"{text!r} is not a whole number from {least} to 999999999")
    return int(text)


def as_duration(text: str) -> float:
    """Seconds."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not {error}") from None


def as_one_of(*words: str) -> Callable[[str], str]:
    """Accepts one of these words."""

    def convert(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is none of {', '.join(words)}")
        return text

    return convert


def as_text(example: str) -> Callable[[str], str]:
    """Accepts any text but an empty one; the error then shows the example."""

    def convert(text: str) -> str:
        if not text:
            raise ValueError(f"it is empty; give {example}")
        return text

    return convert
