# SPDX-License-Identifier: Apache-2.0
"""What a scrape shows of pipelines is what ran, and what it says of its budget is what it shows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from signal import SIGKILL, SIGTERM

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelined.model.ledger import _SERIES_PER_OTHER, OTHER
from pipelined.model.tracker import SeriesUse
from pipelined.model.views import Totals
from pipelined.records.stage import (
    EXIT_OOM,
    EXIT_SEEN,
    JOB_VARIABLE,
    Group,
    Job,
    PipelineRecord,
)
from pipelined.records.tiers import NO_READAHEAD
from pipelined.runs import FAILURES, LEVELS, Series
from pipelined.web.metrics import Metrics
from pipelined.web.pipeline_metrics import series_count
from unit.observed import FakeObserver
from unit.test_tracker import FUNCTIONS_WORDS, group, model, ns, stage

SAMPLE = re.compile(r"(?P<name>\w+){(?P<labels>.*)} (?P<value>\S+)")
LABEL = re.compile(r'(\w+)="([^"]*)"')
#: Seconds from a run's end to the sweep that finishes it.
GRACE = 0.2

#: How the last stage of a run ends, by what its run counts as.
STATUSES = {
    "": EXIT_SEEN,
    "unknown": 0,
    "exit": EXIT_SEEN | 3 << 8,
    "signal": EXIT_SEEN | SIGKILL,
    "out_of_memory": EXIT_SEEN | EXIT_OOM | SIGKILL,
    "interrupted": EXIT_SEEN | SIGTERM,
}

Sample = tuple[str, frozenset[tuple[str, str]]]


@dataclass
class Made:
    """A run of two stages."""

    number: int
    pipeline: int
    unit: str
    start: float
    end: float = 0
    ending: str = ""
    """Of `STATUSES`."""

    def group(self, now: float) -> Group:
        took = ns((self.end or now) - self.start)
        idle = (0,) * (len(LEVELS) - 2)
        clock = PipelineRecord((0, took, *idle), (0, 0, *idle), ns(self.start))
        first = 2 * self.number
        stages = []
        for index, command, side in (
            (first, f"cat{self.pipeline}", "write"),
            (first + 1, "wc", "read"),
        ):
            made = stage(index, command, side, end=self.end)
            job = Job(JOB_VARIABLE, self.unit.encode())
            stages.append(
                replace(
                    made,
                    alias=0 if index == first else first,
                    counted=[took, *[0] * (len(made.counted) - 1)],
                    start_ns=clock.start_ns,
                    job=job,
                    exit_status=STATUSES[self.ending] if index != first else EXIT_SEEN,
                )
            )
        return Group(first, clock, tuple(stages), closed=True)


class Host(FakeObserver):
    """The observer of a host whose runs are made up."""

    def __init__(self, budget: int) -> None:
        super().__init__()
        self.budget = budget
        self.model = model(max_series=budget, series_of=series_count)
        self.live: list[Made] = []
        self.ended: list[Made] = []
        self.now = 100.0
        self._swept = 0.0

    def begin(self, pipeline: int, unit: str) -> Made:
        number = len(self.live) + len(self.ended) + 1
        self.live.append(Made(number, pipeline, unit, self.now))
        return self.live[-1]

    def pass_time(
        self,
        seconds: float,
        ending: Collection[Made] = (),
        *,
        at_once: bool = False,
        how: str = "",
    ) -> None:
        """Let `seconds` pass; the runs of `ending` end in one sweep, the next one finishes them.

        With `at_once` one sweep does both. They end as `how` says (`STATUSES`).
        """
        self.now += seconds
        for run in ending:
            run.end, run.ending = self.now, how
        groups = [run.group(self.now) for run in self.live]
        self._swept = self.now
        for now in (self.now, self.now + GRACE)[at_once:]:
            self.model.update(groups, now)
        self.now += GRACE
        self.ended += [run for run in self.live if run.end]
        self.live = [run for run in self.live if not run.end]

    def ran(self) -> dict[str, float]:
        """Seconds of run time by unit, as of the last sweep."""
        seconds: dict[str, float] = defaultdict(float)
        for run in (*self.live, *self.ended):
            seconds[f"{run.unit}.job"] += (run.end or max(run.start, self._swept)) - run.start
        return seconds

    def counted(self) -> tuple[dict[Series, Totals], SeriesUse]:
        return self.model.totals(), self.model.series_use()


def scraped(host: Host) -> dict[Sample, float]:
    """A scrape as Prometheus reads it."""
    text, _ = Metrics(host).render()  # type: ignore[arg-type]
    found = {}
    for line in text.decode().splitlines():
        if sample := SAMPLE.fullmatch(line):
            labels = frozenset(LABEL.findall(sample["labels"]))
            found[sample["name"], labels] = float(sample["value"])
        elif not line.startswith("#"):
            name, _, value = line.partition(" ")
            found[name, frozenset()] = float(value)
    return found


def of_pipelines(samples: dict[Sample, float]) -> dict[Sample, float]:
    return {key: value for key, value in samples.items() if "pipeline" in dict(key[1])}


def owners(samples: dict[Sample, float]) -> dict[tuple[str | None, ...], list[float]]:
    """The values of each pipeline and of each stage."""
    found: dict[tuple[str | None, ...], list[float]] = defaultdict(list)
    for (_, labels), value in of_pipelines(samples).items():
        of = ("pipeline", "nested", "unit", "position", "command")
        found[tuple(map(dict(labels).get, of))].append(value)
    return found


def sums(samples: dict[Sample, float], metric: str, by: str) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for (name, labels), value in samples.items():
        if name == metric:
            found[dict(labels)[by]] += value
    return found


def of_owner(samples: dict[Sample, float], metric: str) -> dict[tuple[str, str], float]:
    """The sum of a metric by pipeline and unit."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for (name, labels), value in samples.items():
        if name == metric:
            of = dict(labels)
            found[of["pipeline"], of["unit"]] += value
    return found


def untrue_of_failures(samples: dict[Sample, float]) -> list[tuple[str, object]]:
    """What contradicts itself of pipelines' failures and of the ends of their runs."""
    untrue: list[tuple[str, object]] = []
    owned = of_owner(samples, "pipelined_runs_total")
    reasons: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, labels in samples:
        if name == "pipelined_failed_runs_total":
            of = dict(labels)
            reasons[of["pipeline"], of["unit"]].add(of["reason"])
    untrue += [("reasons", owner) for owner in owned if reasons[owner] != set(FAILURES)]
    for name, labels in samples:
        of = dict(labels)
        if name == "pipelined_last_failed_run_end_timestamp_seconds":
            failed = samples["pipelined_failed_runs_total", labels]
            last = samples[
                "pipelined_last_run_end_timestamp_seconds", labels - {("reason", of["reason"])}
            ]
            if not failed or samples[name, labels] > last:
                untrue.append(("last failed", of))
        if name == "pipelined_last_complete_run_end_timestamp_seconds":
            last = samples["pipelined_last_run_end_timestamp_seconds", labels]
            if samples[name, labels] > last:
                untrue.append(("last complete", of))
        if name == "pipelined_interrupted_runs_total" and not samples[name, labels]:
            untrue.append(("interrupted", of))
    incomplete = (
        of_owner(samples, "pipelined_failed_runs_total"),
        of_owner(samples, "pipelined_interrupted_runs_total"),
    )
    untrue += [
        ("more than ran", owner)
        for owner, runs in owned.items()
        if sum(found[owner] for found in incomplete) > runs
    ]
    return untrue


# -- one claim each


@pytest.fixture(scope="module")
def storm() -> list[dict[Sample, float]]:
    """Scrapes while 500 different pipelines run once each, on a budget for twenty."""
    host, scrapes = Host(budget=700), []
    for number in range(500):
        host.begin(number, "batch")
        if number % 10 == 9:
            host.pass_time(0.1 + number % 7, [*host.live], at_once=True)
            scrapes.append(scraped(host))
    return scrapes


def test_what_is_used_of_the_budget_is_what_is_there(storm: list[dict[Sample, float]]) -> None:
    for samples in storm:
        assert samples["pipelined_series_used", frozenset()] == len(of_pipelines(samples)) <= 700


def test_no_pipeline_that_has_series_did_nothing(storm: list[dict[Sample, float]]) -> None:
    for samples in storm:
        assert [owner for owner, values in owners(samples).items() if not any(values)] == []


def test_every_run_is_in_the_sum(storm: list[dict[Sample, float]]) -> None:
    runs = [sum(sums(samples, "pipelined_runs_total", "unit").values()) for samples in storm]
    assert runs == [*range(10, 501, 10)]


def test_the_sums_of_a_unit_are_complete_though_its_pipelines_are_folded() -> None:
    host = Host(budget=1_000)
    for number in range(200):
        host.begin(number, "abcd"[number % 4])
        host.pass_time(1 + number % 5, [*host.live])
    samples = scraped(host)
    assert sums(samples, "pipelined_run_seconds_total", "pipeline")[OTHER] > 0
    assert sums(samples, "pipelined_run_seconds_total", "unit") == pytest.approx(host.ran())


def test_a_live_pipeline_that_has_no_time_yet_has_no_series() -> None:
    host = Host(budget=1_000)
    host.begin(1, "batch")
    host.pass_time(0.0)
    assert host.model.live == 1
    assert of_pipelines(scraped(host)) == {}
    host.pass_time(1.0)
    assert sums(scraped(host), "pipelined_runs_active", "pipeline") == {"cat1|wc": 1}


def test_a_stage_that_was_over_before_its_pipeline_had_series_has_none() -> None:
    host = Host(budget=50)  # for one, and (other)
    for number in (1, 2):
        host.begin(number, "batch")
    host.pass_time(1.0, host.live[:1])
    (run,) = host.live
    before = run.group(host.now - GRACE)
    host.now += 1000.0  # of its second stage alone: it takes the place of the other pipeline
    after = run.group(host.now)
    over = replace(before.stages[0], end_ns=ns(host.now - 999), live=0)
    host.model.update([replace(after, stages=(over, after.stages[1]))], host.now)
    of_stages = sums(scraped(host), "pipelined_state_seconds_total", "command")
    assert of_stages == {"wc": pytest.approx(1000.2), OTHER: pytest.approx(4.0)}


def test_the_first_failure_of_a_pipeline_is_one_that_its_counter_grows_by() -> None:
    """So increase() sees it: the series is there, at 0, before the run has failed."""
    host = Host(budget=1_000)
    host.begin(1, "batch")
    host.pass_time(1.0)
    before = sums(scraped(host), "pipelined_failed_runs_total", "reason")
    host.pass_time(1.0, host.live, how="signal")
    assert before == dict.fromkeys(FAILURES, 0)
    after = sums(scraped(host), "pipelined_failed_runs_total", "reason")
    assert after == {"exit": 0, "signal": 1, "out_of_memory": 0}


def test_of_a_pipeline_that_has_no_series_no_failure_is_exported_as_0() -> None:
    host = Host(budget=1_000)
    host.begin(1, "batch")
    host.pass_time(0.0)
    assert not sums(scraped(host), "pipelined_failed_runs_total", "reason")


def test_failures_of_folded_pipelines_are_in_the_sum_of_their_unit() -> None:
    host, hows = Host(budget=1_000), ["exit", "signal", "out_of_memory", "interrupted", ""]
    for number in range(200):
        host.begin(number, "ab"[number % 2])
        host.pass_time(1 + number % 5, [*host.live], how=hows[number % 5])
    samples = scraped(host)
    assert (OTHER, "a.job") in of_owner(samples, "pipelined_failed_runs_total")
    assert sums(samples, "pipelined_failed_runs_total", "reason") == dict.fromkeys(FAILURES, 40)
    assert sums(samples, "pipelined_failed_runs_total", "unit") == {"a.job": 60, "b.job": 60}
    assert sums(samples, "pipelined_interrupted_runs_total", "unit") == {"a.job": 20, "b.job": 20}
    assert untrue_of_failures(samples) == []


def test_an_account_of_other_costs_at_most_half_of_what_the_budget_has_for_it() -> None:
    """With every value of every tier."""
    made = model(max_series=1, series_of=series_count, exec_failures=True)
    every = [
        replace(
            one,
            counted=[ns(1)] * len(one.counted),
            functions=(1,) * FUNCTIONS_WORDS,
            readahead=(1,) * len(NO_READAHEAD),
        )
        for one in group(end=105.0).stages
    ]
    clock = PipelineRecord((1,) * len(LEVELS), (1,) * len(LEVELS), ns(100))
    made.update([replace(group(end=105.0), clock=clock, stages=tuple(every))], 107.0)
    ((series, totals),) = made.totals().items()
    assert series.pipeline == OTHER
    assert 80 < series_count(totals) <= _SERIES_PER_OTHER / 2


# -- all of them, whatever runs


sweeps = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abcdefg")), max_size=3),  # begin
        st.sampled_from([0.0, 0.05, 1.0, 60.0, 400.0, 90_000.0]),  # seconds pass
        st.integers(0, 7),  # which of those that live end, as bits
        st.booleans(),  # in one sweep
        st.sampled_from([*STATUSES]),  # how they end
        st.none() | st.tuples(st.integers(0, 9), st.sampled_from([None, 1.5])),  # compared
    ),
    max_size=25,
)


@given(sweeps=sweeps, budget=st.integers(100, 600))
@settings(max_examples=60, deadline=None)
def test_whatever_runs_a_scrape_is_true(
    sweeps: list[
        tuple[list[tuple[int, str]], float, int, bool, str, tuple[int, float | None] | None]
    ],
    budget: int,
) -> None:
    host = Host(budget)
    before: dict[Sample, float] = {}
    for begun, seconds, ends, at_once, how, compared in sweeps:
        for pipeline, unit in begun:
            host.begin(pipeline, unit)
        ending = [run for at, run in enumerate(host.live) if ends >> at & 1]
        host.pass_time(seconds, ending, at_once=at_once, how=how)
        if compared:
            pipeline, ratio = compared
            host.model.compared(
                Series(pipeline=f"cat{pipeline}|wc", nested=False, unit="a.job"), ratio
            )
        samples = scraped(host)
        there = of_pipelines(samples)
        assert samples["pipelined_series_used", frozenset()] == len(there) <= budget
        assert [owner for owner, values in owners(samples).items() if not any(values)] == []
        assert sum(sums(samples, "pipelined_runs_total", "unit").values()) == len(host.ended)

        hows = [run.ending for run in host.ended]
        failed = sums(samples, "pipelined_failed_runs_total", "reason")
        assert [failed[reason] for reason in FAILURES] == [*map(hows.count, FAILURES)]
        interrupted = sums(samples, "pipelined_interrupted_runs_total", "unit")
        assert sum(interrupted.values()) == hows.count("interrupted")
        assert untrue_of_failures(samples) == []

        total, ran = sums(samples, "pipelined_run_seconds_total", "unit"), host.ran()
        assert sum(total.values()) == pytest.approx(sum(ran.values()))
        own = {dict(of)["unit"] for _, of in there if dict(of)["pipeline"] == OTHER} - {OTHER}
        complete = ran.keys() if OTHER not in total else own
        assert {unit: total[unit] for unit in complete} == pytest.approx(
            {unit: ran[unit] for unit in complete}
        )

        fallen = [
            (key, value, there.get(key))
            for key, value in before.items()
            if key[0].endswith("_total") and there.get(key, value) < value
        ]
        assert fallen == []
        assert not [key for key in before.keys() - there.keys() if ("pipeline", OTHER) in key[1]]
        before = there
