# SPDX-License-Identifier: Apache-2.0
"""The queries that docs/TRACES.md has, by the comment that each begins with."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["queries"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "TRACES.md"


def queries(language: str, comment: str) -> dict[str, str]:
    """The blocks of code of a language, without the first line; that is the key."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
    found = {}
    for block in blocks:
        first, _, rest = block.partition("\n")
        assert first.startswith(comment), f"say what is asked for: {first}"
        found[first.removeprefix(comment).strip()] = rest.rstrip().rstrip(";")
    return found
