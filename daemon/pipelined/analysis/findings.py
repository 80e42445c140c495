# SPDX-License-Identifier: Apache-2.0
"""What keeps a run from being faster, what to try, and what that could save at most.

To add a finding, write its rule in the module of `analysis/rules/` that has its subject, add it to
`RULES` below, and give it a section in docs/FINDINGS.md: what it means, when it fires, what to try,
when to ignore it.

Every gain is an upper bound in seconds of wall time, from the run's own counters; beside it is an
estimate of what is likely to be saved (`analysis/estimates.py`). If one rests on a number that was
measured on other machines, the comment of that constant says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pipelined.analysis.finding import SEVERITIES, Finding
from pipelined.analysis.machine import Host
from pipelined.analysis.rewriting import Script
from pipelined.analysis.rules import (
    calls,
    characters,
    cpus,
    disk,
    ending,
    many_files,
    processes,
    shorter,
    sorting,
    stages,
    whole,
    writing,
)
from pipelined.analysis.rules.rule import Case
from pipelined.runs import Run

__all__ = ["RULES", "Rule", "findings"]

#: A shorter run than this is mostly the start of its programs (seconds).
MIN_WALL = 0.1


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding."""

    id: str
    """Of its findings, and of their section in docs/FINDINGS.md."""
    check: Callable[[Case], Iterator[Finding]]
    of_partial_runs: bool
    """Whether it holds for a run that was running before observation began: it rests on times
    only. The bytes, calls and pages of such a run may be older than its seconds."""
    hides: frozenset[str] = frozenset()
    """Ids that it explains more exactly: they are left out at the same stage, unless they are
    more severe."""
    severity: str = "advice"
    """Of its findings, in words: `advice or note` depends on what is known."""
    needs: str = ""
    """A tier, or a kind of hook, without which it has none."""


#: All rules. Findings of equal severity and gain keep this order.
RULES = (
    Rule(
        "disk-not-overlapped",
        disk.disk_not_overlapped,
        True,
        frozenset({"readahead-useless"}),
        severity="warning",
        needs="readahead",
    ),
    Rule("readahead-late", disk.readahead_late, True, needs="readahead"),
    Rule("ceiling", stages.ceiling, True, severity="advice or note"),
    Rule(
        "barrier",
        stages.barrier,
        True,
        frozenset({"ceiling", "filter-first", "idle-stage"}),
        severity="advice or note",
    ),
    Rule(
        "cpu-limit", cpus.cpu_limit, True, frozenset({"cpu-contention", "more-stages-than-cores"})
    ),
    Rule("cpu-contention", cpus.cpu_contention, True, severity="note"),
    Rule("join-stages", shorter.join_stages, True, frozenset({"more-stages-than-cores"})),
    Rule("more-stages-than-cores", cpus.more_stages_than_cores, True),
    Rule(
        "reads-on",
        ending.reads_on,
        False,
        frozenset({"cache-sized", "ceiling", "idle-copier", "idle-stage", "reader-costs"}),
    ),
    Rule(
        "round-trip", whole.round_trip, False, frozenset({"ceiling"}), severity="warning or advice"
    ),
    Rule(
        "sorted-twice",
        whole.sorted_twice,
        False,
        frozenset({"ceiling"}),
        severity="warning or advice",
    ),
    Rule(
        "sorted-count",
        whole.sorted_count,
        False,
        frozenset({"barrier", "ceiling", "filter-first", "sort-locale", "sort-spills"}),
        severity="warning or advice",
    ),
    Rule("filter-first", whole.filter_first, False),
    Rule("sort-unique", whole.sort_unique, False),
    Rule("idle-copier", whole.idle_copier, False),
    Rule("tee-waits", writing.tee_waits, True),
    Rule("sort-spills", sorting.sort_spills, False),
    Rule("sort-locale", sorting.sort_locale, False, severity="advice or note"),
    Rule("c-locale", characters.c_locale, False),
    Rule("count-in-hash", sorting.count_in_hash, False, frozenset({"barrier", "ceiling"})),
    Rule("grep-count", shorter.grep_count, False),
    Rule("fork-storm", processes.fork_storm, True, frozenset({"ceiling"}), severity="warning"),
    Rule("failed-execs", processes.failed_execs, True, severity="note", needs="fexit"),
    Rule("readahead-useless", disk.readahead_useless, False, needs="readahead"),
    Rule(
        "readahead-wasted",
        disk.readahead_wasted,
        False,
        frozenset({"readahead-late", "readahead-useless"}),
        needs="readahead",
    ),
    Rule("cold-run", disk.cold_run, False, severity="note", needs="readahead"),
    Rule(
        "reader-costs",
        calls.reader_costs,
        False,
        frozenset({"ceiling", "cache-sized"}),
        severity="advice or note",
        needs="readahead",
    ),
    Rule(
        "small-files",
        many_files.small_files,
        False,
        frozenset({"ceiling", "small-calls"}),
        needs="readahead",
    ),
    Rule("large-writes", calls.large_writes, False, frozenset({"cache-sized"}), severity="warning"),
    Rule("small-calls", calls.small_calls, False, frozenset({"ceiling"}), severity="warning"),
    Rule("cache-sized", calls.cache_sized, False),
    Rule("idle-stage", stages.idle_stage, False, frozenset({"ceiling"})),
)


def findings(run: Run, host: Host, script: Script | None = None) -> tuple[Finding, ...]:
    """What to report about `run`, which was on `host`: by severity, then by what they may save.

    `script` is what is known of its command: with it the findings name what can be changed, and the
    command that tries it. Nothing if the run is shorter than `MIN_WALL`, or has failed or was
    interrupted: to be faster would not have helped it. A finding that another one
    explains more exactly (`Rule.hides`) is left out.
    """
    if run.wall_seconds < MIN_WALL or not run.stages or not run.complete:
        return ()
    case = Case.of(run, host, script)
    found = [
        (rule, _within_bound(finding))
        for rule in RULES
        if rule.of_partial_runs or not run.partial
        for finding in rule.check(case)
    ]
    kept = [
        finding
        for _, finding in found
        if not any(_hides(rule, other, finding) for rule, other in found)
    ]
    return tuple(sorted(kept, key=_rank))


def _within_bound(finding: Finding) -> Finding:
    """With no more that is likely to be saved than what could be at most."""
    likely, most = finding.likely_seconds, finding.gain_seconds
    if likely is None or most is None or likely <= most:
        return finding
    return replace(finding, likely_seconds=most)


def _hides(rule: Rule, one: Finding, other: Finding) -> bool:
    """Whether `one`, a finding of `rule`, makes `other` superfluous."""
    return (
        other.id in rule.hides
        and (not other.stages or not set(one.stages).isdisjoint(other.stages))
        and SEVERITIES.index(one.severity) <= SEVERITIES.index(other.severity)
    )


def _rank(finding: Finding) -> tuple[int, float]:
    return SEVERITIES.index(finding.severity), -finding.expected_seconds
