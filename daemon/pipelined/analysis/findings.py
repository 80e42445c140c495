# SPDX-License-Identifier: Apache-2.0
"""What keeps a run from being faster, what to try, and what that could save at most.

Pure functions of a `Run` and the `Host` it was on. A rule says nothing unless its numbers are
large enough to matter (`MIN_WALL`, `WORTH_SHARE`, `WORTH_SECONDS`) and speak for one story.
docs/FINDINGS.md has a section for each id: what it means, when it fires, when to ignore it.

Every gain is an upper bound in seconds of wall time, from the run's own counters; where a number
that was measured on other machines comes in, its constant says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pipelined.analysis.bottleneck import bottleneck
from pipelined.analysis.machine import Host
from pipelined.analysis.pipe_graph import joined
from pipelined.analysis.rules.calls import cache_sized, large_writes, reader_costs, small_calls
from pipelined.analysis.rules.disk import (
    cold_run,
    disk_not_overlapped,
    readahead_late,
    readahead_useless,
    readahead_wasted,
)
from pipelined.analysis.rules.processes import failed_execs, fork_storm
from pipelined.analysis.rules.rule import DOCUMENTATION, SEVERITIES, Case, Evidence, Finding, Part
from pipelined.analysis.rules.stages import barrier, ceiling, idle_stage, more_stages_than_cores
from pipelined.runs import Run

__all__ = ["DOCUMENTATION", "SEVERITIES", "Evidence", "Finding", "findings"]

#: A shorter run than this is mostly the starting of its programs (seconds).
MIN_WALL = 0.1


def findings(run: Run, host: Host) -> tuple[Finding, ...]:
    """What there is to say of `run`: most severe first, then by gain.

    Nothing of a run below `MIN_WALL`. Of a partial run only what stands on times: its bytes,
    calls and pages may be of another time than its seconds. A finding that tells the story of
    another one less exactly is left out.
    """
    if run.wall_seconds < MIN_WALL or not run.stages:
        return ()
    case = Case(run, host, joined(run), bottleneck(run), _parts(run))
    rules = _OF_TIMES if run.partial else (*_OF_TIMES, *_OF_WHOLE_RUNS)
    found = [finding for rule in rules for finding in rule(case)]
    kept = [finding for finding in found if not any(_hides(other, finding) for other in found)]
    return tuple(sorted(kept, key=_rank))


Check = Callable[[Case], Iterator[Finding]]
_OF_TIMES: tuple[Check, ...] = (
    disk_not_overlapped,
    readahead_late,
    ceiling,
    barrier,
    more_stages_than_cores,
    fork_storm,
    failed_execs,
)
_OF_WHOLE_RUNS: tuple[Check, ...] = (
    readahead_useless,
    readahead_wasted,
    cold_run,
    reader_costs,
    large_writes,
    small_calls,
    cache_sized,
    idle_stage,
)
#: Which findings tell the story of others about the same stage more exactly.
_HIDES: Mapping[str, frozenset[str]] = {
    "disk-not-overlapped": frozenset({"readahead-useless"}),
    "readahead-wasted": frozenset({"readahead-late", "readahead-useless"}),
    "reader-costs": frozenset({"ceiling", "cache-sized"}),
    "large-writes": frozenset({"cache-sized"}),
    "small-calls": frozenset({"ceiling"}),
    "idle-stage": frozenset({"ceiling"}),
    "barrier": frozenset({"ceiling", "idle-stage"}),
    "fork-storm": frozenset({"ceiling"}),
}


def _hides(one: Finding, other: Finding) -> bool:
    """Whether `other` need not be told beside `one`, which is no less severe."""
    return (
        other.id in _HIDES.get(one.id, ())
        and not set(one.stages).isdisjoint(other.stages)
        and SEVERITIES.index(one.severity) <= SEVERITIES.index(other.severity)
    )


def _rank(finding: Finding) -> tuple[int, float]:
    return SEVERITIES.index(finding.severity), -(finding.gain_seconds or 0.0)


def _parts(run: Run) -> tuple[Part, ...]:
    places: dict[tuple[int, str], list[int]] = {}
    for index, stage in enumerate(run.stages):
        places.setdefault((stage.position, stage.command), []).append(index)
    return tuple(Part(run, tuple(indexes)) for indexes in places.values())
