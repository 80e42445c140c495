# SPDX-License-Identifier: Apache-2.0
"""A page of finished runs, as the API answers with it and clients read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pipelined.history.counted_runs import CountedRuns
from pipelined.history.rows import Summary
from pipelined.runs.fields import Key

__all__ = ["RunList"]


@dataclass(frozen=True, slots=True)
class RunList:
    """Finished runs from the history, newest start first."""

    runs: tuple[Summary, ...]
    """Runs that match the parameters."""
    before: Annotated[str | None, Key("next")]
    """`before` of the next request; null at the end."""
    counted: CountedRuns | None
    """How many runs there were. From the API null without `since`, and with `finding`,
    `command`, `identity`, `min_duration`, `slower`, `failed` or `before`."""

    @classmethod
    def page(cls, found: Sequence[Summary], limit: int, counted: CountedRuns | None) -> RunList:
        """The first `limit` of the runs found; one more of them shows that there are more."""
        shown = tuple(found[:limit])
        return cls(shown, shown[-1].id if len(found) > limit else None, counted)
