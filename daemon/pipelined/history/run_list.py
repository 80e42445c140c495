# SPDX-License-Identifier: Apache-2.0
"""A page of finished runs, as the API answers with it and clients read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pipelined.history.counted_runs import CountedRuns
from pipelined.history.rows import Summary
from pipelined.history.run_order import RUN_SORTS, place
from pipelined.runs.fields import Key

__all__ = ["RunList"]


@dataclass(frozen=True, slots=True)
class RunList:
    """Finished runs from the history, in the order of `sort`."""

    runs: tuple[Summary, ...]
    """Runs that match the parameters."""
    before: Annotated[str | None, Key("next")]
    """`before` of the next request, which has the same `sort`; null at the end."""
    counted: CountedRuns | None
    """How many runs there were. From the API null without `since`, and with `finding`,
    `command`, `identity`, `min_duration`, `slower`, `failed`, `interrupted` or `before`."""

    @classmethod
    def page(
        cls,
        found: Sequence[Summary],
        limit: int,
        counted: CountedRuns | None,
        sort: str = RUN_SORTS[0],
    ) -> RunList:
        """The first `limit` of the runs found; one more of them shows that there are more."""
        shown = tuple(found[:limit])
        return cls(shown, place(shown[-1], sort) if len(found) > limit else None, counted)
