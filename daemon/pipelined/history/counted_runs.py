# SPDX-License-Identifier: Apache-2.0
"""How many runs there were in some hours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pipelined.runs.fields import Count, Key, Seconds, UnixTime

__all__ = ["CountedRuns"]


@dataclass(frozen=True, slots=True)
class CountedRuns:
    """How many runs there were in whole hours by the end of the runs, from the hour of `since` to
    that of `until`, stored or [only counted](HISTORY.md#what-is-kept)."""

    start: Annotated[UnixTime | None, Key("start_timestamp_seconds")]
    """Start of the first hour; null for all that is kept."""
    runs: Count
    """Top-level runs that ended: a nested run's time is also that of its enclosing run."""
    stored: Annotated[Count, Key("stored_runs")]
    """How many of them are stored. With `pipeline` or `unit`, without those merged into
    `(other)`."""
    median: Annotated[Seconds | None, Key("median_wall_seconds")]
    """Wall time that half of them did not exceed, within a factor of 2; null without runs."""
    most_frequent: Annotated[str | None, Key("most_frequent_pipeline")]
    """Signature of the pipeline that ran most often."""
    nested: Annotated[Count, Key("nested_runs")] = 0
    """Nested runs that ended, which no other key counts."""
    stored_nested: Annotated[Count, Key("stored_nested_runs")] = 0
    """How many of them are stored."""

    @property
    def all_stored(self) -> bool:
        """Every run, nested or not, is stored singly."""
        return (self.runs, self.nested) == (self.stored, self.stored_nested)
