# SPDX-License-Identifier: Apache-2.0
"""/metrics: names, labels, values, formats, and what happens when a collector fails."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from dashboard_files import METRICS, documented
from pipelined import __version__
from pipelined.export.statistics import Statistics
from pipelined.history.files import Reason
from pipelined.history.writer import HistoryStats
from pipelined.kernel.hooks import Program
from pipelined.model.sums import EndedRun
from pipelined.model.tracker import SeriesUse
from pipelined.observer import Hook, MapUse
from pipelined.runs import (
    FAILURES,
    HISTOGRAMS,
    PAGE_CLASSES,
    STALL_CLASSES,
    STATES,
    Flow,
    Functions,
    Readahead,
    Series,
    Stalls,
    StallSeconds,
)
from pipelined.web.exposition import choose_format
from pipelined.web.metrics import Metrics
from pipelined.web.pipeline_metrics import EXPORTED_EDGES, series_count
from pipelined.web.scrape import GuardedCollectors
from unit.invented import make_functions, make_histogram, make_readahead
from unit.observed import FakeObserver

OPENMETRICS = "application/openmetrics-text;version=1.0.0"


MOVED = Flow(4096, 1 << 53, 12, 0, exact=True)


@dataclass(frozen=True)
class FakeStage:
    states: dict[str, float] = field(
        default_factory=lambda: {state: 0.5 + n for n, state in enumerate(STATES)}
    )
    user_seconds: float = 0.25
    system_seconds: float = 0.125
    read_bytes: int = 4096
    written_bytes: int = 1 << 53
    flow: Flow = MOVED
    read_calls: int = 3
    write_calls: int = 0
    sleeps_empty: int = 7
    sleeps_full: int = 8
    forks: int = 2
    execs: int = 1
    exec_failures: int | None = 5
    exited_children: int = 9
    children_cpu_seconds: float = 1.5
    children_lifetime_seconds: float = 2.5
    functions: Functions | None = field(default_factory=make_functions)
    readahead: Readahead | None = field(default_factory=make_readahead)


@dataclass(frozen=True)
class FakeTotals:
    runs: int = 2
    active: int = 1
    outermost: str | None = None
    run_seconds: float = 12.5
    last_run_seconds: float | None = 3.5
    last_run_end: float | None = 1_700_000_000.25
    last_complete_end: float | None = 1_700_000_000.125
    failed: dict[str, int] = field(
        default_factory=lambda: {"exit": 1, "signal": 0, "out_of_memory": 3}
    )
    last_failed_end: dict[str, float] = field(
        default_factory=lambda: {"exit": 1_700_000_000.25, "out_of_memory": 1_700_000_000.0}
    )
    traced: EndedRun | None = None
    failed_traced: dict[str, EndedRun] = field(default_factory=dict)
    interrupted: int = 4
    last_usual_ratio: float | None = 1.75
    levels: tuple[float, ...] = (1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5)
    disk_overlapped_seconds: float = 0.75
    disk_alone_seconds: float = 0.5
    stages: dict[tuple[int, str], FakeStage] = field(
        default_factory=lambda: {(1, "cat"): FakeStage(), (2, "awk"): FakeStage()}
    )


class MeasuredObserver(FakeObserver):
    """An observer with figures; it has no totals before the first sweep."""

    def __init__(self, totals: dict[Series, FakeTotals] | None = None) -> None:
        super().__init__(totals={CAT_AWK: FakeTotals()} if totals is None else totals)
        self.loader = "bcc"
        self.sweep_stats.seconds_total = 0.5
        self.found_hooks = [
            Hook("sched_switch", "sched", "tp_btf", True),
            Hook("pipe_write", "functions", "fentry", False, "no BTF for pipe_write"),
        ]
        self.found_maps = [MapUse("stages", 12, 4096), MapUse("pipes", 3, 8192)]
        self.other_losses = {"pipes": 4}
        self.switches_missed = 3
        self.events_missed = {"sched_process_exec": 2}


CAT_AWK = Series(pipeline="cat|awk", nested=False, unit="session.scope")
KEYS = {"pipeline": "cat|awk", "nested": "false", "unit": "session.scope"}
AWK = {**KEYS, "position": "2", "command": "awk"}


STORED = HistoryStats(
    runs=7,
    size_bytes=8192,
    errors=2,
    disruptions=dict.fromkeys(Reason, 0) | {Reason.DAMAGED: 2},
)


@dataclass(frozen=True)
class FakeHistory:
    """Stands in for the history of a daemon."""

    reported: HistoryStats

    def stats(self) -> HistoryStats:
        return self.reported


@dataclass(frozen=True)
class FakeSinks:
    """Stands in for the ways out for finished runs."""

    reported: dict[str, int] = field(default_factory=lambda: {"history": 3})

    def dropped(self) -> dict[str, int]:
        return self.reported


class FakeWebConfig:
    last_reload_successful = False
    last_reload_success_time = 1_700_000_000.5
    certificate_expiry = 1_800_000_000.0


def scrape(
    observer: Any, history: Any = None, web_config: Any = None, sinks: Any = None
) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """One scrape, parsed back from the text that Prometheus would read."""
    text, _ = Metrics(observer, history, web_config, sinks).render()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_text(text.decode())
        for sample in family.samples
    }


def scrape_sender() -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """One scrape of a sender that has asked the daemon and the back end."""
    statistics = Statistics()
    statistics.answered("daemon")
    statistics.failed("back_end")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in statistics.registry.collect()
        for sample in family.samples
    }


def value(samples: dict[Any, float], name: str, /, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def names(samples: dict[Any, float]) -> set[str]:
    return {name for name, _ in samples}


def several_series() -> dict[Series, FakeTotals]:
    never_ended = FakeTotals(
        runs=0,
        outermost='job "a".sh|tee',
        last_run_seconds=None,
        last_run_end=None,
        last_complete_end=None,
    )
    no_exec_hook = replace(FakeTotals(), stages={(1, "sh"): FakeStage(exec_failures=None)})
    return {
        CAT_AWK: FakeTotals(),
        replace(CAT_AWK, nested=True): never_ended,
        Series(pipeline="tee|(gzip,wc)", nested=False, unit="-"): no_exec_hook,
        Series(pipeline='a"b\\|c\n|naïve|\udcff', nested=False, unit="cron.service"): FakeTotals(
            stages={(1, 'a"b\\'): FakeStage(), (2, "c\n"): FakeStage(), (4, "\udcff"): FakeStage()}
        ),
        Series(pipeline="(other)", nested=False, unit="-"): FakeTotals(stages={}),
    }


def promtool(text: bytes) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("promtool")
    assert program, "promtool is missing: run make setup (Debian: apt-get install prometheus)"
    return subprocess.run(
        [program, "check", "metrics"], input=text, capture_output=True, check=False, timeout=60
    )


# -- values and labels


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("pipelined_runs_total", KEYS, 2),
        ("pipelined_runs_active", KEYS, 1),
        ("pipelined_run_seconds_total", KEYS, 12.5),
        ("pipelined_last_run_seconds", KEYS, 3.5),
        ("pipelined_last_run_end_timestamp_seconds", KEYS, 1_700_000_000.25),
        ("pipelined_last_complete_run_end_timestamp_seconds", KEYS, 1_700_000_000.125),
        (
            "pipelined_last_failed_run_end_timestamp_seconds",
            {**KEYS, "reason": "exit"},
            1_700_000_000.25,
        ),
        ("pipelined_last_run_usual_ratio", KEYS, 1.75),
        ("pipelined_failed_runs_total", {**KEYS, "reason": "exit"}, 1),
        ("pipelined_failed_runs_total", {**KEYS, "reason": "signal"}, 0),
        ("pipelined_failed_runs_total", {**KEYS, "reason": "out_of_memory"}, 3),
        ("pipelined_interrupted_runs_total", KEYS, 4),
        ("pipelined_level_seconds_total", {**KEYS, "level": "0"}, 1.0),
        ("pipelined_level_seconds_total", {**KEYS, "level": "2"}, 3.0),
        ("pipelined_level_seconds_total", {**KEYS, "level": "8+"}, 0.5),
        ("pipelined_disk_wait_seconds_total", {**KEYS, "overlapped": "true"}, 0.75),
        ("pipelined_disk_wait_seconds_total", {**KEYS, "overlapped": "false"}, 0.5),
        ("pipelined_state_seconds_total", {**AWK, "state": "cpu"}, 0.5),
        ("pipelined_state_seconds_total", {**AWK, "state": "pipe_empty"}, 2.5),
        ("pipelined_system_cpu_seconds_total", AWK, 0.125),
        ("pipelined_read_bytes_total", {**AWK, "via": "pipe"}, 4096),
        ("pipelined_read_bytes_total", {**AWK, "via": "file"}, 12),
        ("pipelined_written_bytes_total", {**AWK, "via": "pipe"}, 1 << 53),
        ("pipelined_read_calls_total", AWK, 3),
        ("pipelined_write_calls_total", AWK, 0),
        ("pipelined_pipe_sleeps_total", {**AWK, "side": "empty"}, 7),
        ("pipelined_pipe_sleeps_total", {**AWK, "side": "full"}, 8),
        ("pipelined_forks_total", AWK, 2),
        ("pipelined_execs_total", AWK, 1),
        ("pipelined_exec_failures_total", AWK, 5),
        ("pipelined_exited_children_total", AWK, 9),
        ("pipelined_exited_children_cpu_seconds_total", AWK, 1.5),
        ("pipelined_exited_children_lifetime_seconds_total", AWK, 2.5),
        (
            "pipelined_stall_seconds_total",
            {**AWK, "class": "late", "overlapped": "true"},
            0.12,
        ),
        (
            "pipelined_stall_seconds_total",
            {**AWK, "class": "late", "overlapped": "false"},
            0.4,
        ),
        ("pipelined_stalls_total", {**AWK, "class": "late"}, 100),
        ("pipelined_readahead_pages_total", {**AWK, "class": "hit"}, 9000),
        ("pipelined_readahead_pages_total", {**AWK, "class": "wasted"}, 200),
        ("pipelined_readahead_inserted_pages_total", AWK, 10_000),
        ("pipelined_direct_read_bytes_total", AWK, 4096),
        ("pipelined_file_faults_total", {**KEYS, "class": "late"}, 4),
        ("pipelined_pipe_fill_ratio_sum", AWK, 2.0625),
        ("pipelined_pipe_fill_ratio_count", AWK, 4),
        ("pipelined_pipe_capacity_bytes", AWK, 65536),
        (
            "pipelined_hook_attached",
            {"hook": "sched_switch", "tier": "sched", "method": "tp_btf"},
            1,
        ),
        (
            "pipelined_hook_attached",
            {"hook": "pipe_write", "tier": "functions", "method": "fentry"},
            0,
        ),
        ("pipelined_lost_total", {"what": "stages"}, 0),
        ("pipelined_lost_total", {"what": "pipes"}, 4),
        ("pipelined_missed_switches_total", {}, 3),
        ("pipelined_missed_events_total", {"hook": "sched_process_exec"}, 2),
        ("pipelined_map_entries", {"map": "stages"}, 12),
        ("pipelined_map_capacity", {"map": "stages"}, 4096),
        ("pipelined_sweep_seconds_count", {}, 1),
        ("pipelined_sweep_seconds_sum", {}, 0.5),
        ("pipelined_sweep_failures_total", {}, 0),
        ("pipelined_collector_success", {"collector": "stages"}, 1),
    ],
)
def test_sample_has_the_value_the_observer_gave(
    name: str, labels: dict[str, str], expected: float
) -> None:
    assert value(scrape(MeasuredObserver()), name, **labels) == expected


def test_a_hook_that_is_still_to_come_has_no_series() -> None:
    observer = MeasuredObserver()
    observer.found_hooks.append(Program("vfs_read", "functions", "fentry").pending())
    shown = {
        dict(labels)["hook"]
        for name, labels in scrape(observer)
        if name == "pipelined_hook_attached"
    }
    assert shown == {"sched_switch", "pipe_write"}


def test_every_state_that_a_stage_was_in_has_a_series() -> None:
    states = {
        dict(labels)["state"]
        for name, labels in scrape(MeasuredObserver())
        if name == "pipelined_state_seconds_total"
    }
    assert states == set(STATES)


def test_build_info_names_the_version() -> None:
    labels = next(
        dict(labels)
        for name, labels in scrape(MeasuredObserver())
        if name == "pipelined_build_info"
    )
    assert labels["version"] == __version__
    assert labels["loader"] == "bcc"


def test_process_metrics_are_on_our_own_registry() -> None:
    samples = scrape(MeasuredObserver())
    assert value(samples, "process_resident_memory_bytes") > 0
    assert "python_info" not in names(samples)


def test_nested_pipeline_is_a_series_of_its_own() -> None:
    samples = scrape(MeasuredObserver(several_series()))
    assert value(samples, "pipelined_runs_total", **KEYS) == 2
    assert value(samples, "pipelined_runs_total", **{**KEYS, "nested": "true"}) == 0


# -- what is absent


#: A stage that did nothing but wait: what it shares with every other stage is at 0.
QUIET = FakeStage(
    states=dict.fromkeys(STATES, 0.0),
    user_seconds=0.0,
    system_seconds=0.0,
    read_bytes=0,
    written_bytes=0,
    flow=Flow(0, 0, 0, 0, exact=False),
    read_calls=0,
    sleeps_empty=0,
    sleeps_full=0,
    forks=0,
    execs=0,
    exec_failures=0,
    exited_children=0,
    children_cpu_seconds=0.0,
    children_lifetime_seconds=0.0,
    functions=Functions(
        **{kind.field: make_histogram(kind.edges, past=kind.overflow) for kind in HISTOGRAMS},
        pipe_capacity_bytes=None,
    ),
    readahead=make_readahead(
        pages=dict.fromkeys(PAGE_CLASSES, 0),
        inserted_pages=0,
        direct_bytes=0,
        faults=dict.fromkeys(STALL_CLASSES, 0),
        stalls=dict.fromkeys(STALL_CLASSES, Stalls()),
        stall_seconds=dict.fromkeys(STALL_CLASSES, StallSeconds()),
    ),
)


def of_stage(stage: FakeStage) -> set[tuple[str, str]]:
    """Name, and the values of its own labels, of each series of a stage."""
    return {
        (name, "".join(sorted(value for label, value in labels if label not in AWK)))
        for name, labels in scrape(
            MeasuredObserver({CAT_AWK: FakeTotals(stages={(2, "awk"): stage})})
        )
        if dict(labels).get("position") == "2"
    }


def test_a_quiet_stage_has_the_series_that_ratios_are_made_of_and_no_other() -> None:
    assert of_stage(QUIET) == {
        *(
            ("pipelined_state_seconds_total", state)
            for state in ("cpu", "runqueue", "pipe_empty", "pipe_full", "disk")
        ),
        ("pipelined_system_cpu_seconds_total", ""),
        ("pipelined_read_bytes_total", "file"),
        ("pipelined_written_bytes_total", "file"),
        ("pipelined_read_calls_total", ""),
        ("pipelined_write_calls_total", ""),
    }


def test_what_happened_once_adds_its_own_series_and_those_it_is_divided_by() -> None:
    quiet = QUIET.readahead
    assert quiet
    children = "pipelined_exited_children"
    pages, stall = "pipelined_readahead_pages_total", "pipelined_stall_seconds_total"
    inserted = "pipelined_readahead_inserted_pages_total"
    no_pages, no_stalls = dict(quiet.pages), dict(quiet.stalls)
    a_fork = {
        ("pipelined_forks_total", ""),
        (f"{children}_total", ""),
        (f"{children}_cpu_seconds_total", ""),
        (f"{children}_lifetime_seconds_total", ""),
    }
    missed = {(pages, name) for name in ("hit", "late", "miss", "warm")}
    cases: list[tuple[dict[str, Any], set[tuple[str, str]]]] = [
        ({"states": QUIET.states | {"net": 0.5}}, {("pipelined_state_seconds_total", "net")}),
        (
            {"flow": replace(QUIET.flow, pipe_in=1)},
            {("pipelined_read_bytes_total", "pipe")},
        ),
        (
            {"flow": replace(QUIET.flow, pipe_out=1)},
            {("pipelined_written_bytes_total", "pipe")},
        ),
        ({"sleeps_full": 1}, {("pipelined_pipe_sleeps_total", "full")}),
        ({"execs": 1}, {("pipelined_execs_total", "")}),
        ({"exec_failures": 1}, {("pipelined_exec_failures_total", "")}),
        ({"forks": 1}, a_fork),
        ({"exited_children": 1}, a_fork),
        ({"readahead": replace(quiet, pages=no_pages | {"warm": 1})}, {(pages, "warm")}),
        ({"readahead": replace(quiet, pages=no_pages | {"miss": 1})}, missed),
        ({"readahead": replace(quiet, inserted_pages=1)}, {(inserted, ""), (pages, "wasted")}),
        (
            {"readahead": replace(quiet, direct_bytes=512)},
            {("pipelined_direct_read_bytes_total", "")},
        ),
        (
            {
                "readahead": replace(
                    quiet,
                    stalls=no_stalls | {"late": Stalls(alone=1)},
                    stall_seconds=quiet.stall_seconds | {"late": StallSeconds(alone=0.1)},
                )
            },
            {
                (stall, "falselate"),
                (stall, "latetrue"),
                ("pipelined_stalls_total", "late"),
            },
        ),
    ]
    for happened, added in cases:
        assert of_stage(replace(QUIET, **happened)) - of_stage(QUIET) == added, happened


def test_a_level_that_was_never_reached_and_a_fault_that_never_came_have_no_series() -> None:
    quiet = FakeTotals(levels=(0.0,) * 9, stages={(2, "awk"): QUIET})
    samples = scrape(MeasuredObserver({CAT_AWK: quiet}))
    levels = {
        dict(labels)["level"] for name, labels in samples if name == "pipelined_level_seconds_total"
    }
    assert levels == {"0", "1", "2"}
    assert "pipelined_file_faults_total" not in names(samples)


def test_a_stage_has_at_most_30_series_of_functions() -> None:
    """A usual stage's series without them are counted by tests/e2e on a real host."""
    off = replace(FakeStage(), functions=None)
    assert len(of_stage(FakeStage()) - of_stage(off)) == 30


def test_buckets_are_sums_of_those_that_the_kernel_counts() -> None:
    for kind in HISTOGRAMS:
        assert set(EXPORTED_EDGES[kind.field]) <= set(kind.edges)


def test_exec_failures_are_absent_if_no_hook_sees_them() -> None:
    unseen = FakeTotals(stages={(1, "sh"): FakeStage(exec_failures=None)})
    assert "pipelined_exec_failures_total" not in names(scrape(MeasuredObserver({CAT_AWK: unseen})))


def of_runs(**given: Any) -> set[tuple[str, str]]:
    """Name and reason of each series of a pipeline's runs that fail or do not."""
    found = scrape(MeasuredObserver({CAT_AWK: FakeTotals(**given)}))
    which = re.compile(r"pipelined_(failed|interrupted|last_complete|last_failed)_run.*")
    return {(name, dict(of).get("reason", "")) for name, of in found if which.fullmatch(name)}


def test_a_pipeline_that_never_failed_has_each_reason_at_0_and_no_time_of_a_failure() -> None:
    never = of_runs(failed=dict.fromkeys(FAILURES, 0), last_failed_end={}, interrupted=0)
    assert never == {
        *(("pipelined_failed_runs_total", reason) for reason in FAILURES),
        ("pipelined_last_complete_run_end_timestamp_seconds", ""),
    }


def test_a_pipeline_that_never_succeeded_has_no_time_of_a_complete_run() -> None:
    name = "pipelined_last_complete_run_end_timestamp_seconds"
    assert of_runs() - of_runs(last_complete_end=None) == {(name, "")}


def test_last_run_is_absent_until_a_run_has_ended() -> None:
    first = replace(FakeTotals(), last_run_seconds=None, last_run_end=None, last_usual_ratio=None)
    found = names(scrape(MeasuredObserver({CAT_AWK: first})))
    assert not {name for name in found if name.startswith("pipelined_last_run")}


def test_a_nested_pipeline_names_the_outermost_one() -> None:
    nested = replace(CAT_AWK, nested=True)
    series = {CAT_AWK: FakeTotals(), nested: FakeTotals(outermost="nightly.sh|tee")}
    found = [
        labels
        for name, labels in scrape(MeasuredObserver(series))
        if name == "pipelined_nested_info"
    ]
    assert [dict(labels) for labels in found] == [
        {**KEYS, "nested": "true", "outermost": "nightly.sh|tee"}
    ]


def test_host_without_pipelines_reports_itself_only() -> None:
    found = names(scrape(MeasuredObserver({})))
    assert "pipelined_hook_attached" in found
    assert "pipelined_runs_total" not in found


def test_history_metrics_are_absent_without_a_history() -> None:
    assert not {name for name in names(scrape(MeasuredObserver())) if "history" in name}


def test_history_metrics_that_are_not_known_yet_are_absent() -> None:
    found = names(scrape(MeasuredObserver(), FakeHistory(HistoryStats(None, None, 2))))
    assert "pipelined_history_errors_total" in found
    assert not found & {"pipelined_history_runs", "pipelined_history_size_bytes"}


def test_the_history_reports_what_it_stores_and_what_it_could_not() -> None:
    samples = scrape(MeasuredObserver(), FakeHistory(STORED))
    assert value(samples, "pipelined_history_runs") == 7
    assert value(samples, "pipelined_history_size_bytes") == 8192
    assert value(samples, "pipelined_history_errors_total") == 2


def test_each_sink_reports_what_it_dropped() -> None:
    samples = scrape(MeasuredObserver(), sinks=FakeSinks({"history": 3, "other": 0}))
    assert value(samples, "pipelined_sink_dropped_runs_total", sink="history") == 3
    assert value(samples, "pipelined_sink_dropped_runs_total", sink="other") == 0


def test_what_happens_to_the_files_of_the_history_is_counted_from_the_start() -> None:
    samples = scrape(MeasuredObserver(), FakeHistory(STORED))
    name = "pipelined_history_disruptions_total"
    assert {labels for found, labels in samples if found == name} == {
        frozenset({("reason", reason.value)}) for reason in Reason
    }
    assert value(samples, name, reason="database_removed") == 0
    assert value(samples, name, reason="damaged") == 2


# -- one scrape


def test_scrape_sweeps_once_and_takes_the_totals_once() -> None:
    observer = MeasuredObserver()
    Metrics(observer).render()  # type: ignore[arg-type]
    assert (observer.sweep_stats.count, observer.totals_taken) == (1, 1)


def test_what_a_pipeline_costs_is_how_many_series_it_is_exported_as() -> None:
    totals = several_series()
    samples = scrape(MeasuredObserver(totals))
    of_pipelines = [
        labels for _, labels in samples if any(name == "pipeline" for name, _ in labels)
    ]
    assert sum(map(series_count, totals.values())) == len(of_pipelines) > 0


def test_the_budget_of_series_is_reported_with_what_is_folded_away() -> None:
    observer = MeasuredObserver()
    observer.use = SeriesUse(9_500, 9_480, 31, 5400.0)
    samples = scrape(observer)
    assert value(samples, "pipelined_series_budget") == 9_500
    assert value(samples, "pipelined_series_used") == 9_480
    assert value(samples, "pipelined_folded_pipelines") == 31
    assert value(samples, "pipelined_folded_heaviest_run_seconds") == 5400.0


class WatchedLock:
    """A lock that counts who has come to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.came = threading.Semaphore(0)

    def __enter__(self) -> None:
        self.came.release()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_scrapes_that_wait_share_one_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    observer, lock, go_on = MeasuredObserver(), WatchedLock(), threading.Event()
    metrics = Metrics(observer)
    sweep = observer.sweep

    def slow_sweep() -> None:
        assert go_on.wait(60)
        sweep()

    monkeypatch.setattr(metrics, "_one_scrape", lock)
    monkeypatch.setattr(observer, "sweep", slow_sweep)
    with ThreadPoolExecutor(6) as pool:
        scrapes = [pool.submit(metrics.render)]
        assert lock.came.acquire(timeout=60)
        while not metrics._begun:
            time.sleep(0.001)
        scrapes += [pool.submit(metrics.render) for _ in range(5)]
        for _ in range(5):
            assert lock.came.acquire(timeout=60)
        go_on.set()
        texts = [scrape.result(60)[0] for scrape in scrapes]
    assert observer.sweep_stats.count == 2, "one for the first, one for all who waited"
    assert len(set(texts[1:])) == 1


def test_failing_sweep_leaves_the_last_known_totals(caplog: pytest.LogCaptureFixture) -> None:
    observer = MeasuredObserver()
    metrics = Metrics(observer)  # type: ignore[arg-type]
    metrics.render()

    def fail() -> None:
        observer.sweep_stats.failures = 7
        raise OSError("map is gone")

    observer.sweep = fail  # type: ignore[method-assign]
    text = metrics.render()[0].decode()
    assert 'pipelined_collector_success{collector="sweep"} 0.0' in text
    assert "pipelined_sweep_failures_total 7.0" in text, "which an alert reads"
    assert "pipelined_runs_total{" in text
    assert "map is gone" in caplog.text


class Breaks:
    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("half", "Reported before the failure.", value=1)
        raise RuntimeError("no such map")


class Works:
    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("whole", "Fine.", value=1)


def test_failing_collector_does_not_fail_the_others(caplog: pytest.LogCaptureFixture) -> None:
    ticks = count()
    guarded = GuardedCollectors(
        {"breaks": Breaks(), "works": Works()}, clock=lambda: float(next(ticks))
    )
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in guarded.collect()
        for sample in family.samples
    }
    assert samples == {
        ("whole",): 1,
        ("pipelined_collector_success", "breaks"): 0,
        ("pipelined_collector_success", "works"): 1,
        ("pipelined_collector_duration_seconds", "breaks"): 1.0,
        ("pipelined_collector_duration_seconds", "works"): 1.0,
    }
    assert "no such map" in caplog.text


# -- formats


@pytest.mark.parametrize(
    "totals", [{}, {CAT_AWK: FakeTotals()}, several_series()], ids=["none", "one", "several"]
)
def test_promtool_finds_nothing_wrong(totals: dict[Series, FakeTotals]) -> None:
    metrics = Metrics(MeasuredObserver(totals), FakeHistory(STORED))  # type: ignore[arg-type]
    text, _ = metrics.render()
    checked = promtool(text)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_promtool_check_is_able_to_fail() -> None:
    assert promtool(b"# TYPE wrong_total gauge\nwrong_total 1\n").returncode != 0


def test_plain_text_is_the_default() -> None:
    _, content_type = Metrics(MeasuredObserver()).render()  # type: ignore[arg-type]
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"


def test_openmetrics_on_request_parses_to_the_same_samples() -> None:
    metrics = Metrics(MeasuredObserver(several_series()))  # type: ignore[arg-type]
    text, content_type = metrics.render(OPENMETRICS)
    parsed = {
        (sample.name, frozenset(sample.labels.items()))
        for family in parse_openmetrics(text.decode())
        for sample in family.samples
    }
    assert content_type.startswith("application/openmetrics-text")
    assert parsed == set(scrape(MeasuredObserver(several_series())))


#: Of the longest id that there is.
RUN = EndedRun("1763809200123-4194303-5f3c9a01", "4bf9" * 8, 3.5, 1_700_000_000.25)
KILLED = RUN._replace(run_id="1763809100000-4711-5f3c9a01", end=1_700_000_000.0)


def traced_series() -> dict[Series, FakeTotals]:
    return {CAT_AWK: FakeTotals(traced=RUN, failed_traced={"signal": KILLED})}


def exemplars(text: bytes) -> dict[str, Any]:
    """Of each sample that has one, by its name and reason."""
    return {
        f"{sample.name} {sample.labels.get('reason', '')}".rstrip(): sample.exemplar
        for family in parse_openmetrics(text.decode())
        for sample in family.samples
        if sample.exemplar
    }


def test_openmetrics_has_the_trace_of_the_last_run_and_of_the_last_failed_one() -> None:
    metrics = Metrics(MeasuredObserver(traced_series()))  # type: ignore[arg-type]
    found = exemplars(metrics.render(OPENMETRICS)[0])
    assert {name: exemplar.labels["run_id"] for name, exemplar in found.items()} == {
        "pipelined_runs_total": RUN.run_id,
        "pipelined_failed_runs_total signal": KILLED.run_id,
    }
    ended = found["pipelined_runs_total"]
    assert ended.labels == {"trace_id": RUN.trace_id, "run_id": RUN.run_id}
    assert (ended.value, float(ended.timestamp)) == (RUN.wall_seconds, RUN.end)


def test_the_labels_of_an_exemplar_have_no_more_characters_than_openmetrics_allows() -> None:
    metrics = Metrics(MeasuredObserver(traced_series()))  # type: ignore[arg-type]
    for exemplar in exemplars(metrics.render(OPENMETRICS)[0]).values():
        assert len("".join([*exemplar.labels, *exemplar.labels.values()])) <= 128


def test_without_a_trace_to_name_openmetrics_has_no_exemplar() -> None:
    text, _ = Metrics(MeasuredObserver(several_series())).render(OPENMETRICS)  # type: ignore[arg-type]
    assert exemplars(text) == {}


def test_the_plain_text_is_the_same_with_exemplars_and_without() -> None:
    def families(totals: dict[Series, FakeTotals]) -> list[str]:
        text, _ = Metrics(MeasuredObserver(totals), clock=lambda: 0.0).render()  # type: ignore[arg-type]
        return [line for line in text.decode().splitlines() if "{pipeline=" in line]

    assert families(traced_series()) == families({CAT_AWK: FakeTotals()})


#: As Prometheus 2 and 3 ask.
ACCEPTED = (
    "",
    "text/plain;version=0.0.4",
    "text/plain;version=1.0.0;escaping=allow-utf-8",
    OPENMETRICS,
    f"{OPENMETRICS};escaping=underscores",
    f"{OPENMETRICS};escaping=allow-utf-8",
)


class Collected:
    """What one scrape collected, to be encoded twice."""

    def __init__(self, registry: Any) -> None:
        self._families = list(registry.collect())

    def collect(self) -> list[Metric]:
        return self._families


@pytest.mark.parametrize("accept", ACCEPTED)
def test_the_text_has_the_samples_that_prometheus_client_would_write(accept: str) -> None:
    totals = several_series() | traced_series()
    collected = Collected(Metrics(MeasuredObserver(totals)).registry)  # type: ignore[arg-type]
    encode, content_type = choose_format(accept)
    reference, reference_type = choose_encoder(accept)
    parse = parse_openmetrics if "openmetrics" in content_type else parse_text

    def parsed(text: bytes) -> set[Any]:
        return {
            (family.name, family.type, family.documentation, sample.name, sample.value, *more)
            for family in parse(text.decode())
            for sample in family.samples
            for more in [(frozenset(sample.labels.items()), exemplar_of(sample))]
        }

    def exemplar_of(sample: Any) -> object:
        if not (found := sample.exemplar):
            return None
        return frozenset(found.labels.items()), found.value, float(found.timestamp)

    assert content_type == reference_type
    assert parsed(encode(collected)) == parsed(reference(collected))  # type: ignore[arg-type]


@pytest.mark.parametrize("escaping", ["dots", "values"])
def test_escaped_names_are_those_of_prometheus_client(escaping: str) -> None:
    accept = f"{OPENMETRICS};escaping={escaping}"
    collected: Any = Collected(Metrics(MeasuredObserver(several_series())).registry)  # type: ignore[arg-type]
    assert choose_format(accept)[0](collected) == choose_encoder(accept)[0](collected)


@pytest.mark.parametrize("version", ["latest", "\xa01.0.0", "1.\xe9"])
def test_unparsable_accept_header_gets_plain_text(version: str) -> None:
    metrics = Metrics(MeasuredObserver())  # type: ignore[arg-type]
    text, content_type = metrics.render(f"application/openmetrics-text;version={version}")
    assert b"pipelined_runs_total{" in text
    assert content_type == metrics.render()[1]


def test_a_histogram_counts_up_to_each_edge() -> None:
    samples = scrape(MeasuredObserver({CAT_AWK: FakeTotals(stages={(1, "cat"): FakeStage()})}))
    name = "pipelined_pipe_write_size_bytes"
    found = {
        dict(labels)["le"]: value
        for (sample, labels), value in samples.items()
        if sample == f"{name}_bucket"
    }
    assert found == {"512.0": 1, "2048.0": 1, "4096.0": 2, "32768.0": 3, "+Inf": 4}
    (total,) = (value for (sample, _), value in samples.items() if sample == f"{name}_sum")
    assert total == 1 + 4096 + 4097 + 3_000_000


def test_without_the_functions_tier_its_series_are_absent() -> None:
    off = FakeTotals(stages={(1, "cat"): FakeStage(functions=None)})
    found = names(scrape(MeasuredObserver({CAT_AWK: off})))
    assert not [name for name in found if "size_bytes" in name or "fill" in name]
    assert "pipelined_pipe_capacity_bytes" not in found


def test_a_failed_reload_of_the_web_config_is_reported() -> None:
    samples = scrape(MeasuredObserver(), web_config=FakeWebConfig())
    assert value(samples, "pipelined_config_last_reload_successful") == 0
    reloaded = value(samples, "pipelined_config_last_reload_success_timestamp_seconds")
    assert reloaded == 1_700_000_000.5


def test_without_a_web_config_its_metrics_are_absent() -> None:
    assert not {name for name in names(scrape(MeasuredObserver())) if "config" in name}


def test_the_page_names_every_collector() -> None:
    found = scrape(MeasuredObserver(), FakeHistory(STORED), FakeWebConfig(), FakeSinks())
    collectors = {
        dict(labels)["collector"] for name, labels in found if name == "pipelined_collector_success"
    }
    row = next(
        line
        for line in METRICS.read_text().splitlines()
        if line.startswith("| `pipelined_collector_success` |")
    )
    assert set(re.findall(r"`(\w+)`", row.split(" | ")[1])) == {"collector", *collectors}


def test_every_metric_is_documented_and_every_documented_metric_exists() -> None:
    exposed = {
        re.sub(r"_(sum|count|bucket)$", "", name)
        for name in names(
            scrape(
                MeasuredObserver(several_series()),
                FakeHistory(STORED),
                FakeWebConfig(),
                FakeSinks(),
            )
        )
        if name.startswith("pipelined_")
    }
    assert set(documented()) == exposed


def test_the_table_of_the_sender_has_its_metrics_with_their_labels_and_values() -> None:
    page = (Path(__file__).parents[2] / "docs" / "METRICS.md").read_text()
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]*)\|",
        page.split("\n## The sender\n")[1].split("\n## ")[0],
        re.MULTILINE,
    )
    exposed: dict[str, dict[str, set[str]]] = {}
    for name, labels in scrape_sender():
        if name.startswith("pipelined_"):
            of_metric = exposed.setdefault(name, {})
            for label, of_label in labels:
                of_metric.setdefault(label, set()).add(of_label)
    assert {name for name, _ in rows} == set(exposed)
    for name, cell in rows:
        label, *values = re.findall(r"`(\w+)`", cell) or [None]
        assert exposed[name].keys() == ({label} if label else set()), name
        if values:
            assert exposed[name][label] == set(values), name
