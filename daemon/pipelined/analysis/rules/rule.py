# SPDX-License-Identifier: Apache-2.0
"""What every rule takes (`Case`, `Part`), and what rules have in common.

A rule is a generator function of a `Case`. It yields nothing unless its numbers are large enough to
matter (`Case.worth`). Rules are registered in `analysis/findings.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipelined.analysis.bottleneck import Bottleneck, bottleneck
from pipelined.analysis.finding import Evidence, Rewrite
from pipelined.analysis.machine import Host
from pipelined.analysis.pipe_graph import Graph, build_graph
from pipelined.analysis.rewriting import Script, matching, rewrite
from pipelined.analysis.sentence import stage_label
from pipelined.analysis.shell_text import Command, Pipeline, parse
from pipelined.analysis.shell_words import Word
from pipelined.command_names import BARRIERS, BY_LINE, COMMON_SHELLS, COPIERS, FILTERS, WALKERS
from pipelined.runs import Readahead, Run, Stage, total_readahead

__all__ = [
    "BULK",
    "NOT_JOINED",
    "ORDERS_ALL",
    "PAGE",
    "PASSED_ON",
    "SAME_SIZE",
    "SED_BY_LINE",
    "SHRINKS",
    "WORTH_SECONDS",
    "WORTH_SHARE",
    "Case",
    "Part",
    "bytes_in",
    "bytes_out",
    "drops_bytes",
    "is_shell",
    "ratio",
    "readahead_evidence",
    "share_kept",
    "with_waits",
]

#: A gain below this share of the run, or below these seconds, is not worth a change.
WORTH_SHARE = 0.05
WORTH_SECONDS = 0.010
#: A stage that reads or writes less than this moves no data: libraries and locales are as much
#: (bytes).
BULK = 1 << 20
#: So many reads are more than what its start takes.
BULK_CALLS = 1000
#: A page of the page cache, as `Readahead` counts them (bytes).
PAGE = 4096
#: The mean read of a shell's `read` on a pipe is one byte; little else that it reads raises it
#: (bytes).
BYTE_BY_BYTE = 1.5
#: Sizes that differ by less than this share are one size: what a start reads is among them.
SAME_SIZE = 0.01
#: A stage that passes on a lower share of its input than this shrinks the data.
SHRINKS = 0.5
#: Less output than this is a result (a count, a sum), not lines passed on (bytes).
PASSED_ON = 4096
#: A condition on a sort whose output is the same for the same lines in another order.
ORDERS_ALL = "none of -s, -u, -m and -R"
#: A condition on scripts of sed, with which one stage and several are the same.
SED_BY_LINE = "each script is s/x/y/ without newlines, or /x/d"
#: What changes if another program than ``cat`` opens several files.
NOT_JOINED = "A file without a newline at its end is then no longer joined to the next one."
#: Programs that do the same whatever a shell could do.
_NO_SHELLS = BARRIERS | COPIERS | frozenset(FILTERS) | WALKERS


@dataclass(frozen=True, slots=True)
class Part:
    """A stage, or all parallel branches of one name: rules treat them as one."""

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
        """None if it was not counted from the start of the run."""
        return _readahead(self.run, self.stages)

    def sum(self, value: Callable[[Stage], float]) -> float:
        return sum(map(value, self.stages))

    @property
    def busy_seconds(self) -> float:
        """On CPU or waiting for one, all threads and children together."""
        return self.sum(lambda stage: stage.cpu_seconds + stage.states["runqueue"])

    @property
    def system_and_queue_seconds(self) -> float:
        """In the kernel, or waiting for a CPU: each wait for disk has its call and its wake-up."""
        return self.sum(lambda stage: stage.system_seconds + stage.states["runqueue"])

    def mean_read(self) -> float:
        return ratio(self.sum(lambda s: s.read_bytes), self.sum(lambda s: s.read_calls))

    def mean_write(self) -> float:
        return ratio(self.sum(lambda s: s.written_bytes), self.sum(lambda s: s.write_calls))


@dataclass(frozen=True, slots=True)
class Case:
    """A run, and what the rules share of its analysis."""

    run: Run
    host: Host
    graph: Graph
    bottleneck: Bottleneck | None
    parts: tuple[Part, ...]
    """All stages of the run, in their order."""
    script: Script | None = None
    """What is known of the run's command."""
    pipeline: Pipeline | None = None
    """Its commands, each with the index of its stage; None if they are not certain."""

    @classmethod
    def of(cls, run: Run, host: Host, script: Script | None = None) -> Case:
        parts = tuple(Part(run, tuple(indexes)) for indexes in run.by_place().values())
        pipeline = matching(script, run)
        return cls(run, host, build_graph(run), bottleneck(run), parts, script, pipeline)

    def words(self, index: int) -> Command | None:
        """The command of a stage; None if it is not known."""
        return self.pipeline.commands[index] if self.pipeline else None

    def seen(self, index: int) -> Command | None:
        """The command of a stage, by what it was started with if the rest of the pipeline is not
        certain: without what the shell did (redirections, variables in front of it)."""
        line = self.run.stages[index].whole_arguments
        found = parse(line) if line and not self.pipeline else None
        return found.commands[0] if found and len(found.commands) == 1 else self.words(index)

    def seen_pair(self, writer: int, reader: int) -> Pipeline | None:
        """Two stages as `seen`; None unless both are."""
        first, second = self.seen(writer), self.seen(reader)
        return Pipeline((first, second)) if first and second else None

    def attempt(
        self,
        new: Pipeline | None,
        *,
        reordered: bool = False,
        unpacked: str = "",
        cold: Sequence[Word] = (),
    ) -> Rewrite | None:
        """`new` in place of the run's pipeline; None if there is none.

        For the rest see `rewriting.rewrite`.
        """
        if self.script is None or self.pipeline is None or new is None:
            return None
        return rewrite(
            self.script, self.pipeline, new, reordered=reordered, unpacked=unpacked, cold=cold
        )

    def rewritten(self, index: int, command: Command | None) -> Pipeline | None:
        """The run's pipeline with another command at `index`."""
        if self.pipeline is None or command is None:
            return None
        commands = self.pipeline.commands
        return Pipeline((*commands[:index], command, *commands[index + 1 :]))

    @property
    def wall(self) -> float:
        return self.run.watched_seconds

    @property
    def readahead(self) -> Readahead | None:
        """None if it was not counted from the start of the run."""
        return _readahead(self.run, self.run.stages)

    def worth(self, seconds: float) -> bool:
        """Whether saving `seconds` of this run would be worth a change."""
        return seconds >= max(WORTH_SHARE * self.wall, WORTH_SECONDS)


def _readahead(run: Run, stages: Iterable[Stage]) -> Readahead | None:
    return None if "readahead" in run.partial_tiers else total_readahead(stages)


def readahead_evidence(readahead: Readahead) -> Iterator[Evidence]:
    """How well read-ahead worked, in the terms of docs/CONCEPTS.md, as far as it is known."""
    for name, value in (
        ("coverage", readahead.coverage),
        ("timeliness", readahead.timeliness),
        ("accuracy", readahead.accuracy),
        ("warm pages", readahead.warm_share),
    ):
        if value is not None:
            yield Evidence(name, value, "ratio")


def bytes_in(stage: Stage) -> int:
    """Bytes that a stage took in: from its pipes if what else it read is known apart."""
    return stage.read_bytes if stage.flow.taken is None else stage.flow.taken


def bytes_out(stage: Stage) -> int:
    """Bytes that a stage passed on: through its pipes if what else it wrote is known apart."""
    return stage.written_bytes if stage.flow.passed_on is None else stage.flow.passed_on


def drops_bytes(stage: Stage) -> bool:
    """Whether a stage passes on less than it takes in; what it writes may be a bound.

    One that still writes, or whose reader had enough, does not show that.
    """
    if stage.end is None or (stage.exit and stage.exit.signal):
        return False
    return bytes_out(stage) < (1 - SAME_SIZE) * bytes_in(stage)


def is_shell(stage: Stage) -> bool:
    """Whether a stage is a shell, or a script for one that was executed by its name.

    The record does not have the interpreter of such a script: its name ends in ``.sh``, or it is no
    program that is known and reads its pipe byte by byte, as only the ``read`` of a shell does.
    """
    if stage.command in COMMON_SHELLS or stage.command.endswith(".sh"):
        return True
    if stage.command in _NO_SHELLS or re.match("python|ruby|node|php", stage.command):
        return False
    piped = any(end.side == "read" for end in stage.ends)
    mean = ratio(stage.read_bytes, stage.read_calls)
    return piped and stage.read_calls >= BULK_CALLS and mean <= BYTE_BY_BYTE


def with_waits(stage: Stage, cpu: float) -> float:
    """Seconds that `cpu` seconds on CPU took a stage, with the waits for a free CPU among them.

    Without the work the waits are gone, too, whoever else used the CPUs.
    """
    return cpu * (1 + ratio(stage.states["runqueue"], stage.cpu_seconds))


def ratio(part: float, whole: float) -> float:
    """`part` as a share of `whole`; 0 if that is 0."""
    return part / whole if whole else 0.0


def share_kept(stage: Stage) -> float | None:
    """Share of its input that a stage passes on; None unless it works by line and shrinks it."""
    passed = ratio(bytes_out(stage), bytes_in(stage))
    shrinks = bytes_in(stage) >= BULK and passed <= SHRINKS
    shrinks = shrinks and bytes_out(stage) >= PASSED_ON
    return passed if shrinks and stage.command in BY_LINE else None
