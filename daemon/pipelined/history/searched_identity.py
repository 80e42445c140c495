# SPDX-License-Identifier: Apache-2.0
"""How runs are searched by what identifies them: `NAME=VALUE`, or a value whatever it is of."""

from __future__ import annotations

import re

from pipelined.runs.identity import SHORT_ID

__all__ = ["searched_identity"]

#: What has a name; other text is a value, equals signs and all.
_NAMED = re.compile(r"(\w+)=(.+)", re.DOTALL)

#: Rows of `identities` are few beside those of `runs`, and each is a small object in JSON.
_AMONG = (
    "identity IN (SELECT identities.key FROM identities, json_each(identities.identity) AS one"
    " WHERE {})"
)
_EQUAL = "one.value = ?"
_SHORT = f"(one.key = 'container' AND substr(one.value, 1, {SHORT_ID}) = ?)"
_OF_CONTAINERS = ("container", "container_name")


def searched_identity(text: str | None) -> tuple[str, list[str]]:
    """The condition that a run is identified by `text`, and its values.

    A container is also found by the first digits of its id, and `container` is its name too.
    """
    if not text:
        return "1", []
    condition, values = f"({_EQUAL} OR {_SHORT})", [text, text]
    if named := _NAMED.fullmatch(text):
        name, value = named.groups()
        if name in _OF_CONTAINERS:
            condition += f" OR (one.key IN {_OF_CONTAINERS} AND ({_EQUAL} OR {_SHORT}))"
            values += [value, value]
        else:
            condition += f" OR (one.key = ? AND {_EQUAL})"
            values += [name, value]
    return _AMONG.format(condition), values
