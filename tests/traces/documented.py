# SPDX-License-Identifier: Apache-2.0
"""The queries of docs/TRACES.md and of deploy/opentelemetry, by the comment that begins each."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["DOCUMENT", "of_clickhouse", "of_prometheus"]

TOP = Path(__file__).parents[2]
DOCUMENT = TOP / "docs" / "TRACES.md"
CLICKHOUSE = TOP / "deploy" / "opentelemetry" / "clickhouse.sql"


def of_prometheus() -> dict[str, str]:
    """The blocks of PromQL in the document."""
    blocks = re.findall(r"^```promql\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
    return _by_question(blocks, "#")


def of_clickhouse() -> dict[str, str]:
    """The statements of the file, behind its head."""
    _, *blocks = CLICKHOUSE.read_text().split("\n\n")
    return _by_question(blocks, "--")


def _by_question(blocks: list[str], comment: str) -> dict[str, str]:
    """Each block without the first line, which is the key."""
    found = {}
    for block in blocks:
        first, _, rest = block.partition("\n")
        assert first.startswith(comment), f"say what is asked for: {first}"
        found[first.removeprefix(comment).strip()] = rest.rstrip().rstrip(";")
    return found
