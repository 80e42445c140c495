# SPDX-License-Identifier: Apache-2.0
"""What a rule gets, `Case` and `Part`, and what it gives, `Finding` and `Evidence`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipelined.analysis.bottleneck import Bottleneck
from pipelined.analysis.machine import Host
from pipelined.analysis.pipe_graph import Graph
from pipelined.analysis.sentence import stage_label
from pipelined.commands import COPIERS
from pipelined.runs import Readahead, Run, Stage

__all__ = [
    "BULK",
    "DOCUMENTATION",
    "PAGE",
    "SEVERITIES",
    "WORTH_SECONDS",
    "WORTH_SHARE",
    "Case",
    "Evidence",
    "Finding",
    "Part",
    "ratio",
    "readahead_evidence",
]

#: The page with a section for each id; the id is its anchor.
DOCUMENTATION = "docs/FINDINGS.md"
#: The most severe first.
SEVERITIES = ("warning", "advice", "note")
#: A gain below this share of the run, or below these seconds, is not worth a change.
WORTH_SHARE = 0.05
WORTH_SECONDS = 0.010
#: Less than this from or to a stage is no data, but libraries, locales and small talk (bytes).
BULK = 1 << 20
#: Who spends a larger share of his CPU time in user mode does more than copy (dd conv=…).
COPYING = 0.25
PAGE = 4096


@dataclass(frozen=True, slots=True)
class Evidence:
    """A number that a finding stands on."""

    name: str
    value: float
    unit: str
    """``seconds``, ``bytes``, ``ratio`` (0 to 1), ``pages``, ``calls`` or ``count``."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to mend in a pipeline, or to know of a run."""

    id: str
    """Stable; also the anchor of its section in docs/FINDINGS.md."""
    severity: str
    """One of `SEVERITIES`: ``warning`` (change something), ``advice`` (worth trying), ``note``
    (know this when you read the numbers)."""
    sentence: str
    """What is wrong, with its numbers."""
    advice: str
    """What to do, beginning with ``Try:``; empty of a pure note."""
    stages: tuple[int, ...]
    """Indexes into `Run.stages`; empty when the whole run is meant."""
    evidence: tuple[Evidence, ...]
    gain_seconds: float | None = None
    """At most this much of the wall time could be saved; None: not known."""
    gain_reason: str = ""
    """How that bound was computed; empty without one."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stage, or the parallel branches of one name, which a rule takes together."""

    run: Run
    indexes: tuple[int, ...]

    @property
    def stages(self) -> list[Stage]:
        return [self.run.stages[index] for index in self.indexes]

    @property
    def name(self) -> str:
        return stage_label(self.run, self.indexes)

    @property
    def command(self) -> str:
        return self.stages[0].command

    @property
    def readahead(self) -> Readahead | None:
        found = [stage.readahead for stage in self.stages if stage.readahead]
        return sum(found[1:], found[0]) if found else None

    def sum(self, value: Callable[[Stage], float]) -> float:
        return sum(map(value, self.stages))

    def mean_read(self) -> float:
        return ratio(self.sum(lambda s: s.read_bytes), self.sum(lambda s: s.read_calls))

    def mean_write(self) -> float:
        return ratio(self.sum(lambda s: s.written_bytes), self.sum(lambda s: s.write_calls))


@dataclass(frozen=True, slots=True)
class Case:
    """What every rule looks at."""

    run: Run
    host: Host
    graph: Graph
    bottleneck: Bottleneck | None
    parts: tuple[Part, ...]

    @property
    def wall(self) -> float:
        return self.run.wall_seconds

    def worth(self, seconds: float) -> bool:
        """Whether so many seconds of the run are worth a change."""
        return seconds >= max(WORTH_SHARE * self.wall, WORTH_SECONDS)

    def copies_files(self, part: Part) -> bool:
        """The part stands in front, reads files, and passes on what it read."""
        stages, readahead = part.stages, part.readahead
        if part.command not in COPIERS or len(stages) > 1 or readahead is None:
            return False
        written = stages[0].written_bytes
        return (
            not self.graph.before[part.indexes[0]]
            and len(self.graph.after[part.indexes[0]]) == 1
            and written >= max(BULK, 0.9 * stages[0].read_bytes)
            and readahead.read_pages * PAGE >= 0.9 * written
            and stages[0].user_seconds <= COPYING * stages[0].cpu_seconds
        )


def readahead_evidence(readahead: Readahead) -> Iterator[Evidence]:
    """The terms of docs/CONCEPTS.md, as far as they are known."""
    for name, value in (
        ("coverage", readahead.coverage),
        ("timeliness", readahead.timeliness),
        ("accuracy", readahead.accuracy),
        ("warm pages", readahead.warm_share),
    ):
        if value is not None:
            yield Evidence(name, value, "ratio")


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
