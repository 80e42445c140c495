# SPDX-License-Identifier: Apache-2.0
"""How runs are searched by what identifies them: `NAME=VALUE`, or a value whatever it is of."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pipelined.runs.identity import SHORT_ID

__all__ = ["has_identity", "is_identified_by"]

#: What has a name; other text is a value, equals signs and all.
_NAMED = re.compile(r"(\w+)=(.+)", re.DOTALL)
_OF_CONTAINERS = ("container", "container_name")


def is_identified_by(named: Mapping[str, str], text: str) -> bool:
    """Whether a run with these values (`Identity.named`) is searched by `text`.

    A container is also found by the first digits of its id, and `container` is its name too.
    """
    searched = _NAMED.fullmatch(text)
    for name, value in named.items():
        values = (value, value[:SHORT_ID]) if name == "container" else (value,)
        if text in values:
            return True
        if searched and searched[2] in values:
            wanted = searched[1]
            if wanted == name or (wanted in _OF_CONTAINERS and name in _OF_CONTAINERS):
                return True
    return False


def has_identity(identity: str, text: str) -> bool:
    """The same, for SQLite: of a row of `identities`."""
    return is_identified_by(json.loads(identity), text)
