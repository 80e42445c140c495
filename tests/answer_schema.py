# SPDX-License-Identifier: Apache-2.0
"""Holds answers of the program against its published schema, with unknown keys refused."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

__all__ = ["SCHEMA", "problems"]

#: The schema as it is published: with it later versions may add keys.
SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "daemon/pipelined/web/schema.json").read_text()
)


def problems(answer: Any, name: str) -> list[str]:
    """What of an answer is not as the schema of this name in ``$defs`` has it; empty if all is."""
    found = _validator(name).iter_errors(answer)
    return [f"{error.json_path}: {error.message[:200]}" for error in found]


@cache
def _validator(name: str) -> Draft202012Validator:
    definitions = _closed(SCHEMA["$defs"])
    return Draft202012Validator({**definitions[name], "$defs": definitions})


def _closed(schema: Any) -> Any:
    """The schema with unknown keys refused."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **closed} if schema.get("type") == "object" else closed
