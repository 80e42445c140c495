# SPDX-License-Identifier: Apache-2.0
"""Can the figures be trusted, and what does watching cost?"""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.models import dashboard as model

from .answers import hosts_without_answer, not_recorded
from .frame import TO_ITS_OVERVIEW, TO_PAGE, Row, framed
from .panels import (
    BAD,
    GOOD,
    RUNS,
    WARN,
    Column,
    Help,
    Label,
    Limits,
    Query,
    Top,
    lines,
    number,
    rows,
    tier,
)
from .queries import HOST, HOSTS, Own, Scope, ranked

__all__ = ["itself"]

WHOLE = HOSTS.whole
OWN = Own(HOSTS.matchers)
NO_ANSWER = "No daemon answers"
NO_HISTORY = "No history (--no-history)"
_READ = "pipelined_config_last_reload_success_timestamp_seconds"
_EXPIRY = "pipelined_web_tls_certificate_expiry_timestamp_seconds"
_HOOK = ("tier", "hook", "method")
_ATTACHED = HOSTS.select("pipelined_hook_attached")
_LACKING = f"count by ({', '.join(_HOOK)}) ({_ATTACHED} == 0)"
_BUILD = ("instance", "version", "python", "loader")
_STARTED = (
    f"1000 * max by ({', '.join(_BUILD)}) (\n"
    f"{HOSTS.select('pipelined_build_info')}\n"
    "* on (job, instance) group_left ()\n"
    # other programs may be scraped at several paths, as the kubelet is
    f"{HOSTS.max('process_start_time_seconds', by=('job', 'instance'))}\n)"
)
_IN_USE = f"min by (instance) ({HOSTS.select('pipelined_config_last_reload_successful')})"
_INSTANCE = Label("instance", "Instance", links=[TO_ITS_OVERVIEW, TO_PAGE])


def itself() -> model.Dashboard:
    """The dashboard of the daemon."""
    return framed(
        "Itself",
        "Whether the daemon sees everything, and what watching costs.",
        [
            Row(
                "",
                [
                    not_recorded(width=3),
                    _not_stored(),
                    hosts_without_answer(),
                    _fullest_map(),
                    _hooks_missing(),
                    *(
                        tier(
                            name,
                            f"{what} come from it.",
                            HOSTS.select("pipelined_hook_attached", f'tier="{name}"'),
                            width=3,
                        )
                        for name, what in (
                            ("readahead", "Page classes and stalls"),
                            ("functions", "Sizes and latencies"),
                        )
                    ),
                ],
            ),
            Row("What is missing", [_missing(), _hooks()]),
            Row("What watching costs", [_cpu(), _memory(), _scrapes(), _samples()]),
            Row("Versions and settings", [_daemons(), _web()]),
            Row("Sweeps and collectors", [_sweeps(), _collectors()], collapsed=True),
            Row("Maps", [_fill_of_maps(), _entries()], collapsed=True),
            Row("Series and (other)", [_budget(), _folded(), _heaviest()], collapsed=True),
            Row("History and files", [_history_runs(), _history_size(), _files()], collapsed=True),
        ],
        variables=[v for top in (_LOST, _OFF, _DAEMONS, _WEB) for v in top.variables],
    )


# -- the answers


def _not_stored() -> stat.Panel:
    return number(
        "Runs not in the history",
        Help(
            "Finished runs that the history did not write in the time that is shown: too many at"
            " once, or its disk is full or slow. Figures and graphs have them all the same.",
            "none: each run can be looked up.",
            "any: lists of runs have gaps. RUNBOOK.md, PipelinedHistoryFails.",
        ),
        Query(HOSTS.losses((), "pipelined_sink_dropped_runs_total"), ""),
        RUNS,
        empty=NO_ANSWER,
        base=GOOD,
        steps={1: WARN},
        worded={"0": "None"},
    )


def _fullest_map() -> stat.Panel:
    return number(
        "Fullest map",
        Help(
            "How full the fullest BPF map of all hosts is.",
            "below 50 %.",
            "above 80 %: raise --max-stages, --max-pipes or --max-readers.",
        ),
        Query(f"max (\n{_fill(('instance', 'map'))}\n)", ""),
        Limits("percentunit", max=1, decimals=0),
        empty=NO_ANSWER,
        base=GOOD,
        steps={0.5: WARN, 0.8: BAD},
        width=3,
    )


def _hooks_missing() -> stat.Panel:
    missing = HOSTS.select("pipelined_hook_attached", 'tier="sched"')
    return number(
        "Hosts lacking a sched hook",
        Help(
            "Hosts on which a hook of the tier sched is not attached, including one that their"
            " kernel never had, such as execve under lockdown. The table below has the hooks of"
            " all tiers.",
            "none, or as many as after the installation.",
            "more than before: `pipelined doctor` says why.",
        ),
        Query(
            f"count(count by (instance) ({missing} == 0))\nor\n0 * count({missing})",
            "",
        ),
        Limits("none", decimals=0),
        empty=NO_ANSWER,
        base=GOOD,
        steps={1: "dark-yellow"},
        worded={"0": "None"},
        width=4,
    )


# -- what is missing


_MISSING = ("instance", "place", "what")


def _lost() -> str:
    """What is missing on each host, by where it is missing."""

    def named(expr: str, what: str, label: str = "", *, place: str = "the history") -> str:
        """The values of `expr` by instance, under a name made of the values of `label`."""
        pattern = "(.*)" if label else ""
        labelled = f'label_replace(\n{expr}\n, "what", "{what}", "{label}", "{pattern}")'
        placed = f'label_replace({labelled}, "place", "{place}", "", "")'
        return f"sum by ({', '.join(_MISSING)}) ({placed})"

    growth = WHOLE.growth
    collector = HOSTS.select("pipelined_collector_success")
    failed = f"count_over_time({collector}[$__range]) - sum_over_time({collector}[$__range])"
    found = "\nor\n".join(
        [
            named(HOSTS.missing(("instance", "what")), "$1", "what", place="figures"),
            named(
                HOSTS.losses(HOST, "pipelined_lost_total", 'what="instances"'),
                "variables",
                place="identity",
            ),
            named(
                growth("pipelined_missed_switches_total", by=HOST),
                "switches not traced",
                place="figures, corrected",
            ),
            named(
                growth("pipelined_missed_events_total", by=("instance", "hook")),
                "events passed over: $1",
                "hook",
                place="figures, corrected",
            ),
            named(
                growth("pipelined_sweep_failures_total", by=HOST),
                "sweeps failed",
                place="figures, till the next",
            ),
            named(failed, "collector failed: $1", "collector", place="a scrape"),
            named(growth("pipelined_history_errors_total", by=HOST), "history not written"),
            named(
                growth("pipelined_sink_dropped_runs_total", by=("instance", "sink")),
                "runs not in $1",
                "sink",
            ),
            named(
                growth("pipelined_history_disruptions_total", by=("instance", "reason")),
                "history: $1",
                "reason",
            ),
        ]
    )
    return f"({found}) > 0"


_LOST = Top(_MISSING, lambda _: _lost(), HOSTS, "lost")
_OFF = Top(_HOOK, lambda _: _LACKING, HOSTS, "off")
_DAEMONS = Top(_BUILD, lambda _: _STARTED, HOSTS, "daemons")
_WEB = Top(HOST, lambda _: f"-1 * {_IN_USE}", HOSTS, "web")


def _missing() -> table.Panel:
    return rows(
        "What is missing",
        Help(
            "What could not be recorded (stages, pipes, …), switches that the kernel did not"
            " trace, events for which it ran no program, failed sweeps and collectors, and runs"
            " that a sink (the history) did not write, in the time that is shown; and where it is"
            " missing. Only what is missing in figures counts at the top left.",
            "empty, or a few switches and events: figures are corrected for them.",
            "anything else: docs/RUNBOOK.md and docs/CONCEPTS.md, Bounds.",
        ),
        [
            _INSTANCE,
            Label("place", "Missing in", 150),
            Label("what", "What"),
            Column("How often", _lost(), RUNS, width=100),
        ],
        top=_LOST,
        worst="How often",
        empty="Nothing, or no daemon answers",
        width=12,
    )


def _hooks() -> table.Panel:
    names = ", ".join(_HOOK)
    one = f"topk by ({names}) (1,\n{_ATTACHED} == 0\n)"
    return rows(
        "Hooks not attached",
        Help(
            "Hooks of all tiers that were asked for and are not attached: on how many hosts, of how"
            " many that asked for them, and one of these hosts.",
            "empty, or the same few on every host of one kernel: that kernel never had them.",
            "hooks of the tier sched, or hooks that were there before.",
        ),
        [
            Label("tier", "Tier", 90),
            Label("hook", "Hook"),
            Label("method", "Method", 95),
            Column(
                "Hosts",
                f"max by ({names}, instance) ({one})\n+ on ({names}) group_left ()\n{_LACKING}",
                RUNS,
                width=70,
            ),
            Column("Of", f"count by ({names}) ({_ATTACHED})", RUNS, width=70),
            Label("instance", "One of them", 150, links=[TO_ITS_OVERVIEW, TO_PAGE]),
        ],
        top=_OFF,
        worst="Hosts",
        empty="All hooks are attached, or no daemon answers",
        width=12,
    )


# -- what watching costs


def _cpu() -> timeseries.Panel:
    metric = "process_cpu_seconds_total"
    return _by_host(
        "CPU of the daemon",
        Help(
            "CPU time of the daemon as a share of one core.",
            "below 0.3 % on an idle host, below 5 % with 1,000 live pipelines.",
            "above 15 %: a storm of short pipelines. It is counted all the same.",
        ),
        OWN.growth(metric, by=HOST),
        OWN.once.growth(metric, by=HOST),
        Limits("percentunit", decimals=1, at_least=0.01),
    )


def _memory() -> timeseries.Panel:
    return _gauge(
        "Memory of the daemon",
        Help(
            "Resident memory of the daemon.",
            "below 45 MB on an idle host.",
            "ever more over days.",
        ),
        "process_resident_memory_bytes",
        Limits("decbytes", decimals=1),
        scope=OWN,
    )


def _scrapes() -> timeseries.Panel:
    return _gauge(
        "Time of a scrape",
        Help(
            "How long a scrape took, as Prometheus saw it.",
            "below 100 ms.",
            "near the scrape's timeout, 10 s by default.",
        ),
        "scrape_duration_seconds",
        Limits("s", at_least=0.1),
        scope=OWN,
    )


def _samples() -> timeseries.Panel:
    return _gauge(
        "Series of a scrape",
        Help(
            "Samples of each scrape: what this host costs Prometheus.",
            "some hundred per host, some ten per stage of a pipeline.",
            "at --metrics.max-series for long, and heavy pipelines in (other).",
        ),
        "scrape_samples_scraped",
        RUNS,
        scope=OWN,
    )


# -- versions and settings


def _daemons() -> table.Panel:
    return rows(
        "Daemons",
        Help(
            "Version, Python and loader of each daemon, and when it started, the last one first.",
            "one version everywhere, started long ago.",
            "old versions left, or a start minutes ago that you did not ask for: RUNBOOK.md,"
            " PipelinedRestarting.",
        ),
        [
            _INSTANCE,
            Label("version", "Version", 110),
            Label("python", "Python", 110),
            Label("loader", "Loader", 90),
            Column("Started", _STARTED, Limits("dateTimeFromNow", min=None), width=140),
        ],
        top=_DAEMONS,
        worst="Started",
        empty=NO_ANSWER,
        width=12,
        height=6,
    )


def _web() -> table.Panel:
    return rows(
        "Web configuration",
        Help(
            "Whether the current content of --web.config.file is in force, when it was read, and"
            " when the port's certificate expires.",
            "yes, and a certificate that expires in weeks.",
            "no: the file has an error and its previous content is in force. The daemon's log says"
            " what is wrong.",
        ),
        [
            _INSTANCE,
            Column(
                "In use",
                _IN_USE,
                Limits("bool_yes_no", min=None),
                width=90,
            ),
            Column(
                "Read",
                f"1000 * {HOSTS.max(_READ, by=HOST)}",
                Limits("dateTimeFromNow", min=None),
                width=130,
            ),
            Column(
                "Certificate ends",
                f"1000 * min by (instance) ({HOSTS.select(_EXPIRY)})",
                Limits("dateTimeFromNow", min=None),
                width=140,
            ),
        ],
        top=_WEB,
        worst="In use",
        falling=False,
        empty="None: --web.config.file is not given",
        width=12,
        height=6,
    )


# -- rows that open on demand


def _sweeps() -> timeseries.Panel:
    seconds, count = "pipelined_sweep_seconds_sum", "pipelined_sweep_seconds_count"

    def mean(scope: Scope) -> str:
        return scope.ratio(scope.growth(seconds, by=HOST), scope.growth(count, by=HOST))

    return _by_host(
        "Time of a sweep",
        Help(
            "How long reading the BPF maps took, on average.",
            "below 50 ms.",
            "above 100 ms: very many live pipelines.",
        ),
        mean(HOSTS),
        mean(HOSTS.once),
        Limits("s", at_least=0.01),
    )


def _collectors() -> timeseries.Panel:
    return lines(
        "Time of each collector",
        Help(
            "Time that each collector of the daemon took in a scrape, without formatting its text,"
            " on the host where it took longest.",
            "milliseconds.",
            "one that grows: sweep with live pipelines, stages with series.",
        ),
        [
            Query(
                HOSTS.max("pipelined_collector_duration_seconds", by=("collector",)),
                "{{collector}}",
            )
        ],
        Limits("s", at_least=0.01),
        empty=NO_ANSWER,
    )


def _fill_of_maps() -> timeseries.Panel:
    return lines(
        "How full the maps are",
        Help(
            "Entries in use as a share of what each BPF map can hold, on the host where it is"
            " fullest.",
            "below 50 %.",
            "near 100 %: what does not fit is not recorded.",
        ),
        [Query(f"max by (map) (\n{_fill(('instance', 'map'))}\n)", "{{map}}")],
        Limits("percentunit", max=1, decimals=0),
        empty=NO_ANSWER,
    )


def _entries() -> timeseries.Panel:
    return lines(
        "Entries in maps",
        Help(
            "Entries in use in each BPF map of all hosts: live stages, pipes and readers, and those"
            " not yet added to the totals.",
            "it falls back when jobs end.",
            "it only rises.",
        ),
        [Query(HOSTS.sum("pipelined_map_entries", by=("map",)), "{{map}}")],
        RUNS,
        empty=NO_ANSWER,
    )


def _budget() -> timeseries.Panel:
    used, budget = "pipelined_series_used", "pipelined_series_budget"
    return _by_host(
        "Series budget in use",
        Help(
            "Series that pipelines have, as a share of what they may have.",
            "below 100 %: every pipeline has series of its own.",
            "100 %: light and idle pipelines are counted in (other).",
        ),
        f"{HOSTS.sum(used, by=HOST)}\n/\n{HOSTS.sum(budget, by=HOST)}",
        HOSTS.peak(used, by=HOST),
        Limits("percentunit", max=1, decimals=0),
        width=8,
    )


def _folded() -> timeseries.Panel:
    return _gauge(
        "Pipelines in (other)",
        Help(
            "Pipelines since the daemon's start that have no series of their own.",
            "0, or one-liners that nobody asks for.",
            "many, while the heaviest of them takes hours: see the next panel.",
        ),
        "pipelined_folded_pipelines",
        RUNS,
        width=8,
    )


def _heaviest() -> timeseries.Panel:
    return _gauge(
        "Heaviest pipeline in (other)",
        Help(
            "Run time of the heaviest pipeline without series of its own, halved every three days.",
            "seconds.",
            "hours. RUNBOOK.md, PipelinedHeavyPipelineFolded.",
        ),
        "pipelined_folded_heaviest_run_seconds",
        Limits("s", at_least=1),
        width=8,
    )


def _history_runs() -> timeseries.Panel:
    return _gauge(
        "Runs in the history",
        Help(
            "Finished runs that the history holds.",
            "it rises to its bound and stays.",
            "level while runs end: see What is missing.",
        ),
        "pipelined_history_runs",
        RUNS,
        empty=NO_HISTORY,
        width=8,
    )


def _history_size() -> timeseries.Panel:
    return _gauge(
        "Size of the history",
        Help(
            "What the history's files take on disk.",
            "below its bound.",
            "a disk that fills up.",
        ),
        "pipelined_history_size_bytes",
        Limits("decbytes", decimals=1),
        empty=NO_HISTORY,
        width=8,
    )


def _files() -> timeseries.Panel:
    used = "process_open_fds"
    return _by_host(
        "Open files of the daemon",
        Help(
            "File descriptors that the daemon has open, as a share of its limit.",
            "below 50 %.",
            "ever more over days.",
        ),
        f"{OWN.sum(used, by=HOST)}\n/\n{OWN.sum('process_max_fds', by=HOST)}",
        OWN.peak(used, by=HOST),
        Limits("percentunit", max=1, decimals=0),
        width=8,
    )


# -- what they share


def _gauge(
    title: str,
    help_: Help,
    metric: str,
    limits: Limits,
    *,
    scope: Scope = HOSTS,
    empty: str = NO_ANSWER,
    width: int = 12,
) -> timeseries.Panel:
    """A gauge of the ten hosts on which it was highest."""
    expr, rank = scope.max(metric, by=HOST), scope.peak(metric, by=HOST)
    return _by_host(title, help_, expr, rank, limits, empty=empty, width=width)


def _by_host(
    title: str,
    help_: Help,
    expr: str,
    rank: str,
    limits: Limits,
    *,
    empty: str = NO_ANSWER,
    width: int = 12,
) -> timeseries.Panel:
    """A line for each of the ten hosts that rank highest."""
    shows = f"{help_.shows} The ten highest hosts."
    return lines(
        title,
        Help(shows, help_.good, help_.bad),
        [Query(ranked(expr, HOST, rank), "{{instance}}")],
        limits,
        empty=empty,
        width=width,
    )


def _fill(by: tuple[str, ...]) -> str:
    return (
        f"{HOSTS.sum('pipelined_map_entries', by=by)}\n/\n"
        f"{HOSTS.sum('pipelined_map_capacity', by=by)}"
    )
