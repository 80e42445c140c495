# SPDX-License-Identifier: Apache-2.0
"""The history of a daemon, read over its API: for users who may not read the file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from pipelined.history.counted_runs import CountedRuns
from pipelined.history.history import NoSuchRunError, StoredRun
from pipelined.history.jobs import JobsSummary
from pipelined.history.pipelines import PipelinesSummary
from pipelined.history.rows import Summary
from pipelined.history.run_list import RunList
from pipelined.history.run_order import RUN_SORTS
from pipelined.runs.codec import read
from pipelined.terminal.api_client import ApiError, Client

__all__ = ["DaemonHistory"]

#: Runs in one answer, at most.
_PAGE = 1000


class DaemonHistory:
    """Has the methods of `History` that the commands use (`Recorded`). All raise UserError."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def check(self) -> None:
        """Find out whether the daemon answers."""
        self.runs(limit=1)

    def runs(
        self,
        *,
        sort: str | None = None,
        before: str | None = None,
        limit: int = 100,
        **searched: Any,
    ) -> list[Summary]:
        """As `History.runs`."""
        found: list[Summary] = []
        # the default is not written: an older daemon may not know the parameter
        searched["sort"] = None if sort == RUN_SORTS[0] else sort
        while len(found) < limit:
            page = self._page(**searched, before=before, limit=min(limit - len(found), _PAGE))
            found += page.runs
            before = page.before
            if before is None:
                break
        return found

    def counted(self, *, since: float | None = None, **searched: Any) -> CountedRuns:
        """As `History.counted`."""
        # without `since` the API does not count
        counted = self._page(**searched, since=since or 0.0, limit=1).counted
        assert counted, "the API counts whatever is searched by pipeline and unit alone"
        return replace(counted, start=None) if since is None else counted

    def pipelines(self, **searched: Any) -> PipelinesSummary:
        """As `History.pipelines`, but without `since` of the last 7 days."""
        return self._client.get(
            f"pipelines/summary?{_query(searched)}", partial(read, PipelinesSummary)
        )

    def jobs(self, **searched: Any) -> JobsSummary:
        """As `History.jobs`, but without `since` of the last 7 days."""
        return self._client.get(f"jobs/summary?{_query(searched)}", partial(read, JobsSummary))

    def run(self, which: str) -> StoredRun:
        """As `History.run`; live runs and those that are not stored yet are found too.

        The last one is this user's own, except for root and on another host, which has other users.
        """
        own = which == "last" and os.geteuid() and self._client.is_near
        searched = f"?{_query({'identity': f'uid={os.geteuid()}'})}" if own else ""
        try:
            return self._client.get(
                f"runs/{quote(which, safe='')}{searched}", partial(read, StoredRun)
            )
        except ApiError as error:
            if error.status == 404:
                raise NoSuchRunError(error.message) from None
            raise

    def _page(self, **query: Any) -> RunList:
        return self._client.get(f"runs?{_query(query)}", partial(read, RunList))


def _query(values: Mapping[str, Any]) -> str:
    # a switch that is off is not written: an older daemon may not know it
    return urlencode(
        {
            name: _written(value)
            for name, value in values.items()
            if value is not None and value is not False
        }
    )


def _written(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9f}"  # a duration has no exponent
    return "true" if value is True else value
