# SPDX-License-Identifier: Apache-2.0
"""PromQL of the dashboards, from the daemon's own metrics: no recording rule is needed.

A ratio is made of summed seconds, never of other ratios, and divisors of 0 are filtered out: if
nothing ran there is no value, neither 0 nor NaN. docs/METRICS.md describes the metrics;
deploy/prometheus/recording.rules.yml records the same ratios for alerts and for long ranges.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Self

from pipelined.states import STATE_TABLE

__all__ = [
    "HOST",
    "HOSTS",
    "MOST",
    "OUTERMOST",
    "PIPELINE",
    "PIPELINES",
    "SERIES",
    "STAGE",
    "UNITS",
    "Own",
    "Recorded",
    "Scope",
    "in_order",
    "ranked",
    "units_without_jobs",
]

#: Labels that name a host, a pipeline of a host, and one of its stages.
HOST = ("instance",)
PIPELINE = ("instance", "unit", "pipeline", "nested")
STAGE = ("position", "command")

#: A nested pipeline's time is its outer stage's time too: sums over a host leave it out.
OUTERMOST = 'nested="false"'

#: A graph of pipelines, stages of many pipelines or hosts draws this many of them.
MOST = 10

#: A stage that is in one of these is at work: only with it does the pipeline go on.
_AT_WORK = f'state=~"{"|".join(state.name for state in STATE_TABLE if state.at_work)}"'
#: What has no series of its own has no stages of its own.
_NAMED = 'pipeline!="(other)"'
#: States in which a thread that has nothing to do waits, such as those of a pool.
IDLE = "|".join(state.name for state in STATE_TABLE if state.idle)


@dataclass(frozen=True, slots=True)
class Scope:
    """The series that a dashboard asks for, and the time over which it takes counters' growth.

    Panels over time take rates; stats and tables take the whole range that is shown (`whole`).
    """

    matchers: tuple[str, ...]
    function: str = "rate"
    window: str = "$__rate_interval"
    moment: str = ""

    @property
    def whole(self) -> Self:
        """These series over the whole time range that the dashboard shows."""
        return replace(self, function="increase", window="$__range")

    @property
    def once(self) -> Self:
        """As `whole`, with the same value at every step of a graph: for ranking what it draws."""
        return replace(self.whole, moment=" @ end()")

    @property
    def ever(self) -> Self:
        """These series since their daemon started."""
        return replace(self, function="", window="", moment="")

    def only(self, *matchers: str) -> Self:
        """Of these series those that match, such as ``nested="false"``."""
        return replace(self, matchers=(*self.matchers, *matchers))

    def select(self, metric: str, *matchers: str) -> str:
        """A selector: ``up{job=~"$job", instance=~"$instance"}``."""
        return f"{metric}{{{', '.join((*self.matchers, *matchers))}}}"

    def sum(self, metric: str, *matchers: str, by: tuple[str, ...] = ()) -> str:
        """The sum of gauges."""
        return self._aggregated("sum", by, self.select(metric, *matchers))

    def max(self, metric: str, *matchers: str, by: tuple[str, ...] = ()) -> str:
        """The highest of gauges."""
        return self._aggregated("max", by, self.select(metric, *matchers))

    def peak(self, metric: str, by: tuple[str, ...]) -> str:
        """The highest that a gauge was in the whole range, the same at every step of a graph."""
        highest = f"max_over_time({self.select(metric)}[$__range] @ end())"
        return self._aggregated("max", by, highest)

    def growth(self, metric: str, *matchers: str, by: tuple[str, ...] = ()) -> str:
        """By how much counters grew: per second, over the whole range, or ever."""
        if not self.function:
            return self.sum(metric, *matchers, by=by)
        taken = f"{self.select(metric, *matchers)}[{self.window}]{self.moment}"
        return self._aggregated("sum", by, f"{self.function}({taken})")

    def _aggregated(self, operator: str, by: tuple[str, ...], series: str) -> str:
        """One value for each set of the labels `by`."""
        return f"{_per(operator, by)} ({series})"

    def shares(self, metric: str, *matchers: str, of: str, by: tuple[str, ...] = ()) -> str:
        """The share of each value of the label `of` in all of them: together 1."""
        parts = self.growth(metric, *matchers, by=(*by, of))
        whole = self.growth(metric, *matchers, by=by)
        return f"{parts}\n/ ignoring ({of}) group_left ()\n({whole} > 0)"

    def ratio(self, above: str, below: str) -> str:
        """Two sums of the same labels divided; absent where the second is 0."""
        return f"{above}\n/\n({below} > 0)"

    def failures(self, by: tuple[str, ...] = ()) -> str:
        """Of the runs that ended, the share that failed."""
        return self.ratio(
            self.growth("pipelined_failed_runs_total", by=by),
            self.growth("pipelined_runs_total", by=by),
        )

    def missing(self, by: tuple[str, ...] = ()) -> str:
        """What is missing in figures: all losses but those of variables that identify runs."""
        return self.losses(by, "pipelined_lost_total", 'what!="instances"')

    def losses(self, by: tuple[str, ...], metric: str, *matchers: str) -> str:
        """What could not be recorded in the whole range, in whole numbers."""
        return f"ceil({self.events(metric, *matchers, by=by)})"

    def events(self, metric: str, *matchers: str, by: tuple[str, ...] = ()) -> str:
        """What counters counted in the whole range, with what they began with in it.

        That may be what a daemon counted before its first scrape, or the first event of a series
        that is absent until then: increase() sees neither.
        """
        counted = self.select(metric, *matchers)
        began = f"{counted} unless {counted} offset $__range"
        return self._aggregated("sum", by, f"{began} or increase({counted}[$__range])")

    # -- the ratios of docs/CONCEPTS.md

    def overlap(self, by: tuple[str, ...] = ()) -> str:
        """Of the time with a stage on CPU, the share with two or more."""
        metric = "pipelined_level_seconds_total"
        return self.ratio(
            self.growth(metric, 'level!~"0|1"', by=by), self.growth(metric, 'level!="0"', by=by)
        )

    def per_run_second(
        self, metric: str, *matchers: str, by: tuple[str, ...] = (), also: tuple[str, ...] = ()
    ) -> str:
        """A counter's growth per second that the pipelines ran; split by `also` too."""
        run = self.growth("pipelined_run_seconds_total", by=by)
        above = self.growth(metric, *matchers, by=(*by, *also))
        if not also:
            return self.ratio(above, run)
        return f"{above}\n/ ignoring ({', '.join(also)}) group_left ()\n({run} > 0)"

    def cores_used(self, by: tuple[str, ...] = ()) -> str:
        """CPU seconds per second of wall time."""
        return self.per_run_second("pipelined_state_seconds_total", 'state="cpu"', by=by)

    def disk_alone(self, by: tuple[str, ...] = ()) -> str:
        """The share of wall time in which a stage waited for disk and none was on CPU."""
        return self.per_run_second("pipelined_disk_wait_seconds_total", 'overlapped="false"', by=by)

    def io_overlap(self, by: tuple[str, ...] = ()) -> str:
        """Of the time in which a stage waited for disk, the share with another on CPU."""
        metric = "pipelined_disk_wait_seconds_total"
        return self.ratio(
            self.growth(metric, 'overlapped="true"', by=by), self.growth(metric, by=by)
        )

    def stalled(self, by: tuple[str, ...] = ()) -> str:
        """Seconds that readers slept for disk per second of wall time."""
        return self.per_run_second("pipelined_stall_seconds_total", by=by)

    def pages(self, above: str, below: str, by: tuple[str, ...] = ()) -> str:
        """Pages of the classes `above` as a share of those of the classes `below`."""
        metric = "pipelined_readahead_pages_total"
        return self.ratio(
            self.growth(metric, f'class=~"{above}"', by=by),
            self.growth(metric, f'class=~"{below}"', by=by),
        )

    # -- who holds the others back

    def at_work(self, by: tuple[str, ...] = PIPELINE) -> str:
        """Share of wall time that each stage was on CPU, or waited for a CPU, disk or socket.

        At most 1: a stage of several threads has them at work at once.
        """
        metric, one = "pipelined_state_seconds_total", self.only(_NAMED)
        return f"clamp_max(\n{one.per_run_second(metric, _AT_WORK, by=by, also=STAGE)}\n, 1)"

    def held_back(self, by: tuple[str, ...] = PIPELINE) -> str:
        """Of each pipeline the stage that was at work most. None if none was for 1 %."""
        most = f"{_per('topk', by)} (1,\n{self.at_work(by)}\n)"
        return f"max by ({', '.join((*by, 'command'))}) (\n{most}\n) > 0.01"

    def slowest_stage(self) -> str:
        """The one stage, of all pipelines, that was at work longest, in seconds."""
        labels = ("pipeline", *STAGE)
        worked = self.only(_NAMED).growth("pipelined_state_seconds_total", _AT_WORK, by=labels)
        return f"topk(1,\n{worked} > 0\n)"

    def wait_for_others(self) -> str:
        """Share of wall time that each stage of one pipeline slept on its pipes, at most 1."""
        metric = "pipelined_state_seconds_total"
        matcher = 'state=~"pipe_empty|pipe_full"'
        return f"clamp_max(\n{self.per_run_second(metric, matcher, also=STAGE)}\n, 1)"

    def stage_states(self) -> str:
        """Seconds in each state per second of wall time, of each stage of one pipeline.

        Idle threads count only for what is left of the wall time once the others are counted. A
        stage of one thread adds up to 1, or to less if it ended before the others did; one with
        eight threads at work to 8, and its idle pool to nothing.
        """
        metric = "pipelined_state_seconds_total"
        run = f"({self.growth('pipelined_run_seconds_total')} > 0)"
        stage = ", ".join(STAGE)
        idles, others = f'state=~"{IDLE}"', f'state!~"{IDLE}"'
        busy, idle = (self.growth(metric, which, by=STAGE) for which in (others, idles))
        left = f"clamp_min(-({busy} - ignoring ({stage}) group_left () {run}), 0)"
        counted = f"clamp_max({left} / ({idle} > 0), 1)"
        return (
            f"{self.growth(metric, others, by=(*STAGE, 'state'))}\n"
            f"/ ignoring ({stage}, state) group_left () {run}\n"
            "or\n"
            f"{self.growth(metric, idles, by=(*STAGE, 'state'))}\n"
            f"* ignoring (state) group_left () {counted}\n"
            f"/ ignoring ({stage}, state) group_left () {run}"
        )


@dataclass(frozen=True, slots=True)
class Recorded(Scope):
    """Series that the recording rules make of pipelines: a quarter of the daemons' own.

    What they record once a minute are seconds per second over five minutes: the whole range is
    their sum.
    """

    def seconds(self, name: str, by: tuple[str, ...] = ()) -> str:
        """Per second; of the whole range in minutes, which ratios do not show."""
        found = self.select(f"pipeline:pipelined_{name}:rate5m")
        if self.function == "increase":
            found = f"sum_over_time({found}[{self.window}]{self.moment})"
        return f"{_per('sum', by)} ({found})"

    def overlap(self, by: tuple[str, ...] = ()) -> str:
        return self.ratio(self.seconds("overlapped_seconds", by), self.seconds("busy_seconds", by))

    def cores_used(self, by: tuple[str, ...] = ()) -> str:
        return self.ratio(self.seconds("cpu_seconds", by), self.seconds("run_seconds", by))

    def disk_alone(self, by: tuple[str, ...] = ()) -> str:
        waited, hidden = "disk_wait_seconds", "overlapped_disk_wait_seconds"
        alone = f"({self.seconds(waited, by)} - {self.seconds(hidden, by)})"
        # of what never waited for disk nothing is recorded
        return self.ratio(
            f"({alone} or 0 * {self.seconds('run_seconds', by)})", self.seconds("run_seconds", by)
        )

    def io_overlap(self, by: tuple[str, ...] = ()) -> str:
        return self.ratio(
            self.seconds("overlapped_disk_wait_seconds", by),
            self.seconds("disk_wait_seconds", by),
        )

    def stalled(self, by: tuple[str, ...] = ()) -> str:
        return self.ratio(self.seconds("stall_seconds", by), self.seconds("run_seconds", by))


@dataclass(frozen=True, slots=True)
class Own(Scope):
    """Of series that any program may have, such as ``process_*``, those of the daemons.

    An instance alone does not name a daemon: other jobs may scrape other programs of the host under
    the same one.
    """

    def _aggregated(self, operator: str, by: tuple[str, ...], series: str) -> str:
        # of the whole range: a scrape that fails has a duration, and nothing of the daemon's
        daemons = f"max_over_time({self.select('pipelined_build_info')}[$__range] @ end())"
        return f"{_per(operator, by)} (\n{series}\nand on (job, instance)\n{daemons}\n)"


def _per(operator: str, by: tuple[str, ...]) -> str:
    return f"{operator} by ({', '.join(by)})" if by else operator


def ranked(expr: str, by: tuple[str, ...], rank: str, *, least: bool = False) -> str:
    """Of a graph's series those that rank highest, or lowest, over the whole range.

    `rank` has one value for each set of the labels `by`, the same at every step (`Scope.once`).
    A plain topk would choose anew at every step, and draw parts of many series.
    """
    choose = "bottomk" if least else "topk"
    return f"{expr}\nand on ({', '.join(by)})\n{choose}({MOST},\n{rank}\n)"


def in_order(expr: str) -> str:
    """The stages of a query in the order of the data: `at` sorts before the other labels.

    Prometheus sorts the series of a graph by their labels, as text: ``10`` before ``2``. So `at`
    is the position with two digits.
    """
    return (
        "label_replace(label_replace(\n"
        f"{expr}\n"
        ', "at", "$1", "position", "(..+)"), "at", "0$1", "position", "(.)")'
    )


@cache
def units_without_jobs() -> str:
    """A regular expression: the units that are no job to the rules, and so to the alerts."""
    rules = Path(__file__).parents[1] / "deploy" / "prometheus" / "recording.rules.yml"
    (found,) = set(re.findall(r'unit!~"(.*)"', rules.read_text()))
    return str(found)


HOSTS = Scope(('job=~"$job"', 'instance=~"$instance"'))
UNITS = HOSTS.only('unit!~"$left_out"', 'unit=~"$unit"')
#: Of the pipelines that are chosen: any number, or one.
PIPELINES = UNITS.only('pipeline=~"$pipeline"')
SERIES = UNITS.only('pipeline="$pipeline"')
