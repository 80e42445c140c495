# SPDX-License-Identifier: Apache-2.0
"""PromQL of the dashboards, from the daemon's own metrics: no recording rule is needed.

A ratio is made of summed seconds, never of other ratios, and divisors of 0 are filtered out: if
nothing ran there is no value, neither 0 nor NaN. docs/METRICS.md describes the metrics;
deploy/prometheus/recording.rules.yml records the same ratios for alerts and for long ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["HOSTS", "OUTERMOST", "PIPELINE", "PIPELINES", "SERIES", "STAGE", "UNITS", "Scope"]

#: Labels that name a pipeline of a host, and one of its stages.
PIPELINE = ("instance", "unit", "pipeline", "nested")
STAGE = ("position", "command")

#: A nested pipeline's time is its outer stage's time too: sums over a host leave it out.
OUTERMOST = 'nested="false"'


@dataclass(frozen=True, slots=True)
class Scope:
    """The series that a dashboard asks for, and the time over which it takes counters' growth.

    Panels over time take rates; stats and tables take the whole range that is shown (`whole`).
    """

    matchers: tuple[str, ...]
    function: str = "rate"
    window: str = "$__rate_interval"

    @property
    def whole(self) -> Scope:
        """The same series, over the whole time range that the dashboard shows."""
        return replace(self, function="increase", window="$__range")

    def only(self, *matchers: str) -> Scope:
        """Of these series those that match, such as ``nested="false"``."""
        return replace(self, matchers=(*self.matchers, *matchers))

    def select(self, metric: str, *matchers: str) -> str:
        """A selector: ``up{job=~"$job", instance=~"$instance"}``."""
        return f"{metric}{{{', '.join((*self.matchers, *matchers))}}}"

    def sum(self, metric: str, *matchers: str, by: tuple[str, ...] = ()) -> str:
        """The sum of gauges."""
        return f"{_summed(by)} ({self.select(metric, *matchers)})"

    def growth(self, metric: str, *matchers: str, by: tuple[str, ...] = ()) -> str:
        """By how much counters grew: per second, or over the whole range."""
        return f"{_summed(by)} ({self.function}({self.select(metric, *matchers)}[{self.window}]))"

    def shares(self, metric: str, *matchers: str, of: str, by: tuple[str, ...] = ()) -> str:
        """The share of each value of the label `of` in all of them: together 1."""
        parts = self.growth(metric, *matchers, by=(*by, of))
        whole = self.growth(metric, *matchers, by=by)
        return f"{parts}\n/ ignoring ({of}) group_left ()\n({whole} > 0)"

    def ratio(self, above: str, below: str) -> str:
        """Two sums of the same labels divided; absent where the second is 0."""
        return f"{above}\n/\n({below} > 0)"

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

    def at_work(self, by: tuple[str, ...] = PIPELINE) -> str:
        """Share of wall time that a stage did not sleep on a pipe, for a child or for a lock."""
        working = 'state!~"pipe_empty|pipe_full|child|lock"'
        return self.per_run_second("pipelined_state_seconds_total", working, by=by, also=STAGE)


def _summed(by: tuple[str, ...]) -> str:
    return f"sum by ({', '.join(by)})" if by else "sum"


HOSTS = Scope(('job=~"$job"', 'instance=~"$instance"'))
UNITS = HOSTS.only('unit=~"$unit"')
#: Of the pipelines that are chosen: any number, or one.
PIPELINES = UNITS.only('pipeline=~"$pipeline"')
SERIES = UNITS.only('pipeline="$pipeline"')
