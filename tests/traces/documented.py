# SPDX-License-Identifier: Apache-2.0
"""The queries of deploy/opentelemetry, by the comment that begins each."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DOCUMENT", "of_clickhouse", "of_prometheus"]

TOP = Path(__file__).parents[2]
DOCUMENT = TOP / "docs" / "TRACES.md"
QUERIES = TOP / "deploy" / "opentelemetry"


def of_prometheus() -> dict[str, str]:
    return _by_question(QUERIES / "spanmetrics.promql", "#")


def of_clickhouse() -> dict[str, str]:
    return _by_question(QUERIES / "clickhouse.sql", "--")


def _by_question(file: Path, comment: str) -> dict[str, str]:
    """Each block behind the head of a file, without its first line, which is the key."""
    _, *blocks = file.read_text().split("\n\n")
    found = {}
    for block in blocks:
        first, _, rest = block.partition("\n")
        assert first.startswith(comment), f"say what is asked for: {first}"
        found[first.removeprefix(comment).strip()] = rest.rstrip().rstrip(";")
    return found
