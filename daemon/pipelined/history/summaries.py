# SPDX-License-Identifier: Apache-2.0
"""What is listed of a run, as JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pipelined.history.database import COLUMNS
from pipelined.history.database import Row as Summary

if TYPE_CHECKING:
    from pipelined.answers.lists import SummaryJson

__all__ = ["Summary", "summary_as_dict", "summary_from_dict"]

#: Columns whose key in JSON is another word; those of `schema.run_as_dict`, with units.
_KEYS = {
    "start": "start_timestamp_seconds",
    "end": "end_timestamp_seconds",
    "wall": "wall_seconds",
    "cores": "cores_used",
    "overlap": "overlap_ratio",
    "cache": "cache_state",
    "usual": "usual_seconds",
    "slower": "slower_than_usual",
}


def summary_as_dict(summary: Summary) -> SummaryJson:
    """What is listed of a run, ready for `json.dumps`, with the keys of `schema.run_as_dict`."""
    named = {_KEYS.get(column, column): getattr(summary, column) for column in COLUMNS}
    return cast("SummaryJson", {**named, "findings": list(summary.findings)})


def summary_from_dict(described: Mapping[str, Any]) -> Summary:
    """What `summary_as_dict` described. Raises KeyError or TypeError for anything else."""
    named = {column: described[_KEYS.get(column, column)] for column in COLUMNS}
    return Summary(**{**named, "findings": tuple(named["findings"])})
