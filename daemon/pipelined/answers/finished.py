# SPDX-License-Identifier: Apache-2.0
"""Finished runs in the order in which they were stored, for programs that follow them."""

from __future__ import annotations

from typing import TypedDict

from pipelined.analysis.machine import Host
from pipelined.answers.run import UsualJson
from pipelined.runs import Run
from pipelined.runs.fields import Count, with_keys_of

__all__ = ["BesideRunJson", "FinishedRunJson", "FinishedRunsJson"]


class BesideRunJson(UsualJson):
    """What the history stores beside a run, and its place in the order."""

    cursor: str
    """`after` of a request for the runs that were stored after this one."""
    bottleneck: str
    """In a few words; `-`: none."""
    finding_ids: list[str]
    """Ids of the [findings](FINDINGS.md) that it had when it was stored."""
    failure: str
    """Of a run that has failed or was interrupted, what ended the stage with the lowest position
    that did not succeed: `sh: exit 3`, `perl: SIGKILL`; else empty."""


@with_keys_of(Run)
class FinishedRunJson(BesideRunJson):
    """A finished run as it was stored."""


class FinishedRunsJson(TypedDict):
    """Finished runs in the order in which they were stored."""

    runs: list[FinishedRunJson]
    """The runs stored after the cursor, the first one first."""
    next: str
    """The cursor after them: `after` of the next request."""
    more: bool
    """Whether the next request would return runs at once."""
    missing: Count | None
    """How many runs that were stored between the two cursors are not in `runs`, because the history
    has them no longer; null if `restarted`."""
    machine: Host
    """The machine that findings about them are for."""
    restarted: bool
    """The cursor is of another history, or of a state of it that is gone: `runs` begin at the
    oldest one again."""
