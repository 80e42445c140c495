# SPDX-License-Identifier: Apache-2.0
"""The finished runs of a daemon as it stores them, one after the other, for as long as it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode

from pipelined.analysis.machine import Host
from pipelined.errors import UserError
from pipelined.history.rows import Summary
from pipelined.history.run_query import searched_outcomes
from pipelined.history.searched_identity import is_identified_by
from pipelined.runs import Identity
from pipelined.runs.codec import read
from pipelined.terminal.api_client import ApiError, Client

__all__ = ["Followed", "FollowedPage", "fetch_finished", "follow", "matches", "pauses"]

#: How long the daemon is asked to wait for a run (seconds), and how much longer for its answer.
_WAIT, _PATIENCE = 30, 10.0
#: Seconds until the next request if the daemon does not wait: too many clients do.
_POLL = 2.0
#: Seconds until a daemon that does not answer is asked again: at first, and at most.
_RETRY, _LONGEST_RETRY = 1.0, 30.0


class Followed(NamedTuple):
    """A finished run."""

    row: Summary
    described: Mapping[str, Any]
    """As the daemon answers it, a `FinishedRunJson`."""


@dataclass(frozen=True, slots=True)
class FollowedPage:
    """As `FinishedRunsJson`."""

    runs: Sequence[Followed]
    next: str
    more: bool
    missing: int | None
    restarted: bool
    machine: Host


def fetch_finished(client: Client, after: str) -> FollowedPage:
    """The runs that were stored after the cursor; waits for some. Raises UserError."""
    query = urlencode({"after": after, "wait": f"{_WAIT}s"})
    try:
        return client.get(f"runs/finished?{query}", _page, timeout=_WAIT + _PATIENCE)
    except ApiError as error:
        if error.status != 404 or "--no-history" in error.message:
            raise
        raise UserError(
            f"the daemon at {client.base} is of an older version",
            "use the same version on both sides",
        ) from None


def _page(answer: Mapping[str, Any]) -> FollowedPage:
    return FollowedPage(
        [Followed(_row(described), described) for described in answer["runs"]],
        answer["next"],
        answer["more"],
        answer["missing"],
        answer["restarted"],
        read(Host, answer["machine"]),
    )


def _row(described: Mapping[str, Any]) -> Summary:
    outcome, identity = described["outcome"], described["identity"]
    of_list = {
        "findings": described["finding_ids"],
        "outcome": outcome["result"] if outcome else "unknown",
        "identity": read(Identity, identity).named if identity else {},
    }
    return read(Summary, {**described, **of_list})


def follow(
    fetch: Callable[[str], FollowedPage],
    after: str,
    report: Callable[[str], object],
    *,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Sequence[Followed]]:
    """The runs that `fetch` returns, from the cursor `after` on, without end.

    A UserError of the first `fetch` goes to the caller. After later ones it is tried again; these
    and runs that are missing are reported in a line.
    """
    page = fetch(after)
    missing = 0
    while True:
        if page.restarted:
            report("the history is another one, or an earlier state of it; its oldest run is next")
        missing += page.missing or 0
        if missing and not page.more:
            runs = "run that was stored is" if missing == 1 else "runs that were stored are"
            report(f"{missing:,} {runs} no longer in the history")
            missing = 0
        if page.runs:
            yield page.runs
        after, began = page.next, clock()
        page = _fetched(fetch, after, report, sleep)
        if not page.runs and clock() - began < _POLL:
            sleep(_POLL)


def _fetched(
    fetch: Callable[[str], FollowedPage],
    after: str,
    report: Callable[[str], object],
    sleep: Callable[[float], object],
) -> FollowedPage:
    """What `fetch` returns, in the end."""
    reported = ""
    for pause in pauses(_RETRY, _LONGEST_RETRY):
        try:
            page = fetch(after)
        except UserError as error:
            if error.message != reported:
                reported = error.message
                report(f"{reported}; it is asked again")
            sleep(pause)
            continue
        if reported:
            report("the daemon answers again")
        return page
    raise AssertionError("pauses have no end")


def pauses(first: float, longest: float) -> Iterator[float]:
    """Seconds between tries, each twice as long as the one before, without end."""
    while True:
        yield first
        first = min(2 * first, longest)


def matches(
    run: Followed,
    *,
    pipeline: str | None = None,
    unit: str | None = None,
    finding: str | None = None,
    command: str | None = None,
    identity: str | None = None,
    min_duration: float | None = None,
    top_level: bool = False,
    slower: bool = False,
    failed: bool = False,
    interrupted: bool = False,
) -> bool:
    """Whether `History.runs` would list it, asked for these."""
    row, stages = run.row, run.described["stages"]
    outcomes = searched_outcomes({"failed": failed, "interrupted": interrupted})
    return (
        pipeline in (None, row.pipeline)
        and unit in (None, row.unit)
        and (finding is None or finding in row.findings)
        and (command is None or command in {stage["command"] for stage in stages})
        and (not identity or is_identified_by(row.identity, identity))
        and (min_duration is None or row.wall >= min_duration)
        and not (top_level and row.nested)
        and (bool(row.slower) or not slower)
        and (not outcomes or row.outcome in outcomes)
    )
