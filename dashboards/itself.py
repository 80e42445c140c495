# SPDX-License-Identifier: Apache-2.0
"""Can the figures be trusted, and what does watching cost?"""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from .frame import framed
from .palette import read_palette
from .panels import Column, Help, Limits, Query, lines, number, rows, tier
from .queries import HOSTS, OUTERMOST

__all__ = ["itself"]

WHOLE = HOSTS.whole
HOST = ("instance",)
NO_ANSWER = "No daemon answers"
NO_HISTORY = "No history (--no-history)"
_READ = "pipelined_config_last_reload_success_timestamp_seconds"
_EXPIRY = "pipelined_web_tls_certificate_expiry_timestamp_seconds"


def itself() -> model.Dashboard:
    """The dashboard of the daemon."""
    colours = read_palette()
    warn, bad = colours["state-runqueue"], colours["state-disk"]
    return framed(
        "Pipelined itself",
        "Whether the daemon sees everything, and what watching costs.",
        [
            (
                "",
                [
                    number(
                        "Not recorded",
                        Help(
                            "What could not be recorded in the time that is shown: a full map, or"
                            " no memory.",
                            "0.",
                            "any: figures of pipelines are too low. RUNBOOK.md, PipelinedLosing.",
                        ),
                        Query(WHOLE.growth("pipelined_lost_total"), ""),
                        Limits("short", decimals=0),
                        empty=NO_ANSWER,
                        steps={1: bad},
                        width=3,
                    ),
                    number(
                        "Fullest map",
                        Help(
                            "How full the fullest BPF map of all hosts is.",
                            "below 50 %.",
                            "above 80 %: raise --max-stages, --max-pipes or --max-readers.",
                        ),
                        Query(f"max (\n{_fill()}\n)", ""),
                        Limits("percentunit", max=1),
                        empty=NO_ANSWER,
                        steps={0.5: warn, 0.8: bad},
                        width=3,
                    ),
                    number(
                        "Sched hooks missing",
                        Help(
                            "Hooks of the tier sched that are not attached, on all hosts,"
                            " including those that a kernel never had, such as execve under"
                            " lockdown.",
                            "0, or as many as after the installation.",
                            "more than before: `pipelined doctor` says why.",
                        ),
                        Query(
                            "count("
                            f"{HOSTS.select('pipelined_hook_attached', _tier_is('sched'))} == 0"
                            ") or vector(0)",
                            "",
                        ),
                        Limits("none", decimals=0),
                        width=3,
                    ),
                    tier(
                        "readahead",
                        "Page classes and stalls come from it.",
                        HOSTS.select("pipelined_hook_attached", _tier_is("readahead")),
                    ),
                    tier(
                        "functions",
                        "Sizes and latencies come from it.",
                        HOSTS.select("pipelined_hook_attached", _tier_is("functions")),
                    ),
                    number(
                        "CPU",
                        Help(
                            "CPU time of the daemon as a share of one core; with several hosts,"
                            " the highest.",
                            "below 0.3 % on an idle host, below 5 % with 1,000 live pipelines.",
                            "above 15 %: a storm of short pipelines. It is counted all the same.",
                        ),
                        Query(
                            f"max ({WHOLE.growth('process_cpu_seconds_total', by=HOST)})"
                            " / $__range_s",
                            "",
                        ),
                        Limits("percentunit", decimals=2),
                        empty=NO_ANSWER,
                        width=3,
                    ),
                ],
            ),
            (
                "Hooks",
                [
                    rows(
                        "Hooks that are not attached",
                        Help(
                            "Hooks that were asked for and are not attached.",
                            "empty, or the same few on every host of one kernel: that kernel never"
                            " had them.",
                            "hooks of the tier sched, or hooks that were there before.",
                        ),
                        {
                            "instance": "Instance",
                            "tier": "Tier",
                            "hook": "Hook",
                            "method": "Method",
                        },
                        [
                            Column(
                                "Attached",
                                f"{_hooks()} == 0",
                                Limits("bool_yes_no", min=None),
                            )
                        ],
                        worst="Tier",
                        falling=True,
                        empty="All hooks are attached, or no daemon answers",
                        width=14,
                    ),
                    lines(
                        "Hooks attached by tier",
                        Help(
                            "Hooks that are attached, by host and tier.",
                            "level lines.",
                            "a step down: usually a new kernel.",
                        ),
                        [
                            Query(
                                HOSTS.sum("pipelined_hook_attached", by=("instance", "tier")),
                                "{{instance}}, {{tier}}",
                            )
                        ],
                        Limits("none", decimals=0),
                        empty=NO_ANSWER,
                        width=10,
                    ),
                ],
            ),
            (
                "What was not seen",
                [
                    lines(
                        "Not recorded",
                        Help(
                            "What could not be recorded, per second and by kind.",
                            "0 all the time.",
                            "any: raise the bound of that kind (docs/CONCEPTS.md, Bounds).",
                        ),
                        [
                            Query(
                                HOSTS.growth("pipelined_lost_total", by=("instance", "what")),
                                "{{instance}}: {{what}}",
                            )
                        ],
                        Limits("cps"),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "Switches not traced",
                        Help(
                            "Switches to stages that the kernel did not trace. States are"
                            " corrected for them; levels only in part.",
                            "0.",
                            "thousands per second: overlap is too low.",
                        ),
                        [
                            Query(
                                HOSTS.growth("pipelined_missed_switches_total", by=HOST),
                                "{{instance}}",
                            )
                        ],
                        Limits("cps"),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "Events passed over",
                        Help(
                            "Events for which the kernel did not run a program, by hook.",
                            "0, or a few.",
                            "many: forks, exits or pages are missing in the counts.",
                        ),
                        [
                            Query(
                                HOSTS.growth(
                                    "pipelined_missed_events_total", by=("instance", "hook")
                                ),
                                "{{instance}}: {{hook}}",
                            )
                        ],
                        Limits("cps"),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                ],
            ),
            (
                "Maps",
                [
                    lines(
                        "How full the maps are",
                        Help(
                            "Entries in use as a share of what each BPF map can hold.",
                            "below 50 %.",
                            "near 100 %: what does not fit is not recorded.",
                        ),
                        [Query(_fill(), "{{instance}}: {{map}}")],
                        Limits("percentunit", max=1),
                        empty=NO_ANSWER,
                    ),
                    lines(
                        "Entries in maps",
                        Help(
                            "Entries in use in each BPF map: live stages, pipes and readers, and"
                            " those not yet added to the totals.",
                            "it falls back when jobs end.",
                            "it only rises.",
                        ),
                        [
                            Query(
                                HOSTS.sum("pipelined_map_entries", by=("instance", "map")),
                                "{{instance}}: {{map}}",
                            )
                        ],
                        Limits("short", decimals=0),
                        empty=NO_ANSWER,
                    ),
                ],
            ),
            (
                "What watching costs",
                [
                    lines(
                        "Time of a sweep",
                        Help(
                            "How long reading the BPF maps took, on average.",
                            "below 50 ms.",
                            "above 100 ms: very many live pipelines.",
                        ),
                        [
                            Query(
                                HOSTS.ratio(
                                    HOSTS.growth("pipelined_sweep_seconds_sum", by=HOST),
                                    HOSTS.growth("pipelined_sweep_seconds_count", by=HOST),
                                ),
                                "{{instance}}",
                            )
                        ],
                        Limits("s"),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "Sweeps, and those that failed",
                        Help(
                            "Sweeps per second, and how many of them failed.",
                            "one or more per second, none failed.",
                            "any that failed: figures stand still. RUNBOOK.md,"
                            " PipelinedSweepsFail.",
                        ),
                        [
                            Query(
                                HOSTS.growth("pipelined_sweep_seconds_count", by=HOST),
                                "{{instance}}: sweeps",
                            ),
                            Query(
                                HOSTS.growth("pipelined_sweep_failures_total", by=HOST),
                                "{{instance}}: failed",
                            ),
                        ],
                        Limits("cps"),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "Time of a scrape",
                        Help(
                            "How long a scrape took, as Prometheus saw it.",
                            "below 100 ms.",
                            "near the scrape's timeout, 10 s by default.",
                        ),
                        [
                            Query(
                                f"max by (instance) ({HOSTS.select('scrape_duration_seconds')})",
                                "{{instance}}",
                            )
                        ],
                        Limits("s"),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "Time of each collector",
                        Help(
                            "Time that each collector of the daemon took in a scrape, without"
                            " formatting its text.",
                            "milliseconds.",
                            "one that grows: sweep with live pipelines, stages with series.",
                        ),
                        [
                            Query(
                                HOSTS.sum(
                                    "pipelined_collector_duration_seconds",
                                    by=("instance", "collector"),
                                ),
                                "{{instance}}: {{collector}}",
                            )
                        ],
                        Limits("s"),
                        stacked=True,
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "Collectors that report",
                        Help(
                            "1 while the collector reported in a scrape, 0 when it failed.",
                            "1 all the time.",
                            "0: its metrics are missing. RUNBOOK.md, PipelinedCollectorFails.",
                        ),
                        [
                            Query(
                                "min by (instance, collector)"
                                f" ({HOSTS.select('pipelined_collector_success')})",
                                "{{instance}}: {{collector}}",
                            )
                        ],
                        Limits("none", max=1, decimals=0),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "Series",
                        Help(
                            "Samples of each scrape: what this host costs Prometheus.",
                            "some hundred per host, some ten per stage of a pipeline.",
                            "at --metrics.max-series for long, and heavy pipelines in (other).",
                        ),
                        [
                            Query(
                                f"max by (instance) ({HOSTS.select('scrape_samples_scraped')})",
                                "{{instance}}",
                            )
                        ],
                        Limits("short", decimals=0),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "Series budget in use",
                        Help(
                            "Series that pipelines have, as a share of what they may have.",
                            "below 100 %: every pipeline has series of its own.",
                            "100 %: light and idle pipelines are counted in (other).",
                        ),
                        [
                            Query(
                                HOSTS.sum("pipelined_series_used", by=HOST)
                                + "\n/\n"
                                + HOSTS.sum("pipelined_series_budget", by=HOST),
                                "{{instance}}",
                            )
                        ],
                        Limits("percentunit", max=1),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "Pipelines in (other)",
                        Help(
                            "Pipelines that ran lately and have no series of their own.",
                            "0, or one-liners that nobody asks for.",
                            "many, while the heaviest of them takes hours: see the next panel.",
                        ),
                        [Query(HOSTS.sum("pipelined_folded_pipelines", by=HOST), "{{instance}}")],
                        Limits("short", decimals=0),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "Heaviest pipeline in (other)",
                        Help(
                            "Run time of the heaviest pipeline without series of its own, halved"
                            " every three days.",
                            "seconds.",
                            "hours. RUNBOOK.md, PipelinedHeavyPipelineFolded.",
                        ),
                        [
                            Query(
                                HOSTS.sum("pipelined_folded_heaviest_run_seconds", by=HOST),
                                "{{instance}}",
                            )
                        ],
                        Limits("s"),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "CPU of the daemon",
                        Help(
                            "CPU seconds per second of the daemon.",
                            "below 0.3 % on an idle host.",
                            "above 15 %.",
                        ),
                        [Query(HOSTS.growth("process_cpu_seconds_total", by=HOST), "{{instance}}")],
                        Limits("percentunit"),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "Memory of the daemon",
                        Help(
                            "Resident memory of the daemon.",
                            "below 45 MB on an idle host.",
                            "ever more over days.",
                        ),
                        [
                            Query(
                                HOSTS.sum("process_resident_memory_bytes", by=HOST),
                                "{{instance}}",
                            )
                        ],
                        Limits("bytes"),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                    lines(
                        "Open files of the daemon",
                        Help(
                            "File descriptors that the daemon has open, as a share of its limit.",
                            "below 50 %.",
                            "ever more over days.",
                        ),
                        [
                            Query(
                                HOSTS.sum("process_open_fds", by=HOST)
                                + "\n/\n"
                                + HOSTS.sum("process_max_fds", by=HOST),
                                "{{instance}}",
                            )
                        ],
                        Limits("percentunit", max=1),
                        empty=NO_ANSWER,
                        width=8,
                    ),
                ],
            ),
            (
                "History of runs",
                [
                    lines(
                        "Runs in the history",
                        Help(
                            "Finished runs that the history holds.",
                            "it rises to its bound and stays.",
                            "level while runs end: see the errors beside it.",
                        ),
                        [
                            Query(HOSTS.sum("pipelined_history_runs", by=HOST), "{{instance}}"),
                        ],
                        Limits("short", decimals=0),
                        empty=NO_HISTORY,
                        width=8,
                    ),
                    lines(
                        "Size of the history",
                        Help(
                            "What the history's files take on disk.",
                            "below its bound.",
                            "a disk that fills up.",
                        ),
                        [Query(HOSTS.sum("pipelined_history_size_bytes", by=HOST), "{{instance}}")],
                        Limits("bytes"),
                        empty=NO_HISTORY,
                        width=8,
                    ),
                    lines(
                        "History: errors and runs left out",
                        Help(
                            "How often per second the history could not be written, and finished"
                            " runs that are not in it.",
                            "0.",
                            "errors: RUNBOOK.md, PipelinedHistoryFails. Runs left out: a storm of"
                            " short runs, of which the longest are kept.",
                        ),
                        [
                            Query(
                                HOSTS.growth("pipelined_history_errors_total", by=HOST),
                                "{{instance}}: errors",
                            ),
                            Query(
                                HOSTS.growth("pipelined_history_dropped_runs_total", by=HOST),
                                "{{instance}}: runs left out",
                            ),
                        ],
                        Limits("cps"),
                        empty=NO_HISTORY,
                        width=8,
                    ),
                ],
            ),
            (
                "Versions and settings",
                [
                    rows(
                        "Daemons",
                        Help(
                            "Version, Python and loader of each daemon, and when it started.",
                            "one version everywhere, started long ago.",
                            "old versions left, or a start minutes ago that you did not ask for:"
                            " RUNBOOK.md, PipelinedRestarting.",
                        ),
                        {
                            "instance": "Instance",
                            "version": "Version",
                            "python": "Python",
                            "loader": "Loader",
                        },
                        [
                            Column(
                                "Started",
                                "1000 * max by (instance, version, python, loader) (\n"
                                f"{HOSTS.select('pipelined_build_info')}\n"
                                "* on (job, instance) group_left ()\n"
                                f"{HOSTS.select('process_start_time_seconds')}\n)",
                                Limits("dateTimeFromNow", min=None),
                            )
                        ],
                        worst="Started",
                        empty=NO_ANSWER,
                        width=14,
                    ),
                    rows(
                        "Web configuration",
                        Help(
                            "Whether the current content of --web.config.file is in force, when it"
                            " was read, and when the port's certificate expires.",
                            "yes, and a certificate that expires in weeks.",
                            "no: the file has an error and its previous content is in force. The"
                            " daemon's log says what is wrong.",
                        ),
                        {"instance": "Instance"},
                        [
                            Column(
                                "In use",
                                "min by (instance)"
                                f" ({HOSTS.select('pipelined_config_last_reload_successful')})",
                                Limits("bool_yes_no", min=None),
                            ),
                            Column(
                                "Read",
                                f"1000 * max by (instance) ({HOSTS.select(_READ)})",
                                Limits("dateTimeFromNow", min=None),
                            ),
                            Column(
                                "Certificate ends",
                                f"1000 * min by (instance) ({HOSTS.select(_EXPIRY)})",
                                Limits("dateTimeFromNow", min=None),
                            ),
                        ],
                        worst="In use",
                        falling=False,
                        empty="None: --web.config.file is not given",
                        width=10,
                    ),
                ],
            ),
        ],
        run_ends=HOSTS.only(OUTERMOST),
    )


def _tier_is(name: str) -> str:
    return f'tier="{name}"'


def _hooks() -> str:
    return f"max by (instance, tier, hook, method) ({HOSTS.select('pipelined_hook_attached')})"


def _fill() -> str:
    by = ("instance", "map")
    entries = HOSTS.sum("pipelined_map_entries", by=by)
    return f"{entries}\n/\n{HOSTS.sum('pipelined_map_capacity', by=by)}"
