# SPDX-License-Identifier: Apache-2.0
"""Figures of the documents that are constants of the code: each is the one that the code has."""

from __future__ import annotations

import re
from ctypes import sizeof
from functools import cache
from math import ceil
from pathlib import Path

import pytest

from advice.pairs import HEALTHY, PAIRS
from pipelined import observer, saver, sinks, wording
from pipelined.analysis import (
    bottleneck,
    comparison,
    comparison_cache,
    comparison_caveats,
    comparison_reasons,
    finding_times,
    findings,
    readahead_words,
)
from pipelined.analysis.rules import calls, cpus, disk, faster, processes, rule, sorting, stages
from pipelined.cli import cli
from pipelined.commands.export import _PATIENCE as STOP_PATIENCE
from pipelined.config.options import Config
from pipelined.daemon import signals
from pipelined.history import database, history, opening, pipelines, rollup, usual, writer
from pipelined.http_port import basic_auth, messages
from pipelined.http_port.server import HttpServer
from pipelined.kernel import layout, pace, sweep
from pipelined.kernel.hooks import REQUIRED, optional_hooks
from pipelined.model import (
    ledger,
    neighbours,
    short_runs,
    started,
    surroundings,
    timeline,
    tracker,
)
from pipelined.records import stage
from pipelined.run import improving, improving_script, printed, profile
from pipelined.runs import stage as run_stage
from pipelined.runs.identity import SHORT_ID
from pipelined.terminal import command_report, run_report
from pipelined.web import history_api, live_events, pipeline_metrics, recorded_pages
from soak import judgement

ROOT = Path(__file__).parents[2]
CONFIG = Config()

_WORDS = {
    **{"a": 1, "an": 1, "one": 1, "two": 2, "twice": 2, "three": 3, "four": 4, "five": 5},
    **{"six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10},
    **{"half": 0.5, "a quarter": 0.25, "a tenth": 0.1},
}
_TIMES = {"s": 1, "second": 1, "m": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86400}
_UNITS = {"": 1, "%": 0.01, "µs": 1e-6, "ms": 1e-3, "day": 86400, "week": 7 * 86400, **_TIMES}
_UNITS |= {"B": 1, "bytes": 1, "kB": 1e3, "MB": 1e6, "KiB": 1 << 10, "MiB": 1 << 20}
_UNITS |= {"kb": 1e3, "M": 1 << 20}

#: A figure: digits or a word, with a unit or none.
_NUMBER = rf"(?:\d[\d,]*(?:\.\d+)?|\b(?:{'|'.join(sorted(_WORDS, key=len, reverse=True))})\b)"
_UNIT = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True) if unit)
_FIGURE = rf"({_NUMBER}(?: ?(?:{_UNIT})s?(?!\w))?)"


def quantity(figure: str) -> float:
    """The value of a figure, in seconds, bytes or as a share if it has a unit: `1,000`, `5 %`."""
    number, unit = re.fullmatch(rf"({_NUMBER}) ?(.*)", figure).groups()
    amount = _WORDS[number] if number in _WORDS else float(number.replace(",", ""))
    return amount * _UNITS[unit if unit in _UNITS else unit.removesuffix("s")]


#: Of what says a figure and is not in docs/.
_FOLDERS = {
    "README.md": ".",
    "alerts.rules.yml": "deploy/prometheus",
    "schema.json": "daemon/pipelined/web",
}


@cache
def text_of(document: str) -> str:
    """The text of a document, each stretch of white space as one blank."""
    text = (ROOT / _FOLDERS.get(document, "docs") / document).read_text()
    if document.endswith(".yml"):
        text = re.sub(r"(?m)^ *# ", "", text)
    return " ".join(text.split())


def figures_in(document: str, sentence: str) -> list[str]:
    """What stands in the place of `{}` wherever `document` has `sentence`."""
    before, after = (re.escape(part) for part in sentence.split("{}"))
    return re.findall(before + _FIGURE + after, text_of(document))


@cache
def _defined() -> dict[str, str]:
    headers = "\n".join(file.read_text() for file in sorted((ROOT / "bpf").glob("*.h")))
    return dict(re.findall(r"(?m)^#define (\w+)[ \t]+([^\n]*?)[ \t]*(?:/\*.*)?$", headers))


def defined(name: str) -> int:
    """The value of a macro of bpf/: numbers, products, sums and shifts of them and of macros."""
    text = re.sub(r"\b[A-Z_]+\b", lambda word: str(defined(word[0])), _defined()[name])
    text = re.sub(r"(?<=\d)U?L*\b", "", text)
    assert re.fullmatch(r"[\da-fx\s()*+<-]+", text), f"{name} is {text}"
    return int(eval(text))


def matched(file: str, pattern: str) -> float:
    """The figure that a pattern's group has in a file of the repository."""
    return quantity(re.search(pattern, (ROOT / file).read_text())[1])


def alert(name: str, pattern: str) -> float:
    """The figure that a pattern's group has in an alert rule."""
    file = ROOT / "deploy/prometheus/alerts.rules.yml"
    rules = re.sub(r"(?m)^ *#.*\n", "", file.read_text())
    rule_text = rules.split(f"- alert: {name}\n")[1].split("- alert:")[0]
    return quantity(re.search(pattern, rule_text)[1])


def recorded(name: str) -> float:
    """For how many days a recording rule keeps its value."""
    pattern = rf"- record: {name}\n(?:.*\n)*?.*time\(\) - (\d+) \* 86400"
    return matched("deploy/prometheus/recording.rules.yml", pattern)


def service(key: str, unit: str = "pipelined") -> float:
    return matched(f"deploy/systemd/{unit}.service", rf"(?m)^{key}=(\S+)$")


def default_of(command: str, parameter: str) -> float:
    """The default of a numeric option of a command."""
    return next(p.default for p in cli.commands[command].params if p.name == parameter)


def megabytes(size: int) -> float:
    """What records of `size` bytes take for all stages by default, to a tenth of a MB."""
    return round((CONFIG.max_stages + 1) * size, -5)


LAST_FAILED = "pipeline:pipelined_last_failed_run_end_timestamp_seconds:latest"
LAST_COMPLETE = "pipeline:pipelined_last_complete_run_end_timestamp_seconds:latest"
LIVE_JS = "daemon/pipelined/web/static/live.js"
RUN_JS = "daemon/pipelined/web/static/run.js"
PORT = CONFIG.web_listen_address.port
SENDER = "pipelined-export"
JOB_NAME = stage.JOB_TEXT - 1
PAGE = rule.PAGE
#: Units that have series for `(other)`, by default.
OTHERS = ceil((CONFIG.metrics_max_series - observer._OWN_SERIES) / ledger._SERIES_PER_OTHER)
#: Runs that ended before this are in the file when the daemon is killed: the writer's longest
#: pause, and a sweep.
KILLED = writer.LONGEST_PAUSE + CONFIG.sweep_interval
#: Hooks by default, on a current kernel.
OPTIONAL = len(optional_hooks(functions=True, readahead=True, trace_exec_failures=False))
HOOKS = len(REQUIRED) + OPTIONAL
#: What a stage takes of the kernel's memory, in bytes: without the tier `functions`, and in all.
WITHOUT_FUNCTIONS = sum(
    map(sizeof, (layout.Stage, layout.Children, layout.ReadaheadCounters)),
)
OF_A_STAGE = WITHOUT_FUNCTIONS + sizeof(layout.Functions)

#: Document, sentence, value. Figures of one sentence are one row each.
FIGURES = [
    ("README.md", "http://127.0.0.1:{}/", PORT),
    ("README.md", "keeps finished runs for {}, in", CONFIG.history_max_age),
    ("README.md", "for 30 days, in at most {} of", CONFIG.history_max_size),
    ("README.md", "runs both in turn, {} times each", default_of("compare", "rounds")),
    ("README.md", "`sudo make advice` follows it on {} pipelines", len(PAIRS)),
    # -- METRICS
    ("METRICS.md", "`--metrics.max-series`, {} by default", CONFIG.metrics_max_series),
    ("METRICS.md", "`/metrics` has at most. {} of them are", observer._OWN_SERIES),
    ("METRICS.md", "`--metrics.max-series`, less {} for", observer._OWN_SERIES),
    ("METRICS.md", "used most run time lately (halved every {})", ledger.HALF_LIFE),
    ("METRICS.md", "heaviest of them, halved every {}", ledger.HALF_LIFE),
    ("METRICS.md", "weigh less than {} as much", 1 / ledger._HEAVIER),
    ("METRICS.md", "at the latest {} and a sweep", tracker._STARTING),
    ("METRICS.md", "one unit per {} series", ledger._SERIES_PER_OTHER),
    ("METRICS.md", "series of the budget, {} by default", OTHERS),
    ("METRICS.md", "has at most {} series, so about half", ledger._SERIES_PER_OTHER / 2),
    ("METRICS.md", "At most {} are remembered", 2 * ledger._REMEMBERED),
    ("METRICS.md", "last slash, up to {}.", JOB_NAME),
    ("METRICS.md", "begin within the first {} of the command", JOB_NAME),
    ("METRICS.md", "the first {} digits of its id", SHORT_ID),
    ("METRICS.md", "first {} strings of an environment", defined("MAX_STRINGS")),
    ("METRICS.md", "where each {} of a long one", defined("STRING_LEN") - 1),
    ("METRICS.md", "before {} comparable runs", usual._LEAST),
    ("METRICS.md", "Histogram: at most {} (lines)", pipeline_metrics._SIZES[0]),
    ("METRICS.md", "512 B (lines), {}, 4 KiB", pipeline_metrics._SIZES[1]),
    ("METRICS.md", "2 KiB, {} (what stdio", pipeline_metrics._SIZES[2]),
    ("METRICS.md", "at a time), {}, and more", pipeline_metrics._SIZES[3]),
    # -- CONCEPTS
    ("CONCEPTS.md", "exec'd and is younger than {};", defined("YOUNG_NS") / 1e9),
    ("CONCEPTS.md", "at most {} processes up", defined("MAX_CLIMB")),
    ("CONCEPTS.md", "has read {} or more through", stage.READS_ALONE),
    ("CONCEPTS.md", "been on CPU for {} or more", stage.COMPUTES_ALONE / 1e9),
    ("CONCEPTS.md", "counts in both, up to {} deep", defined("MAX_DEPTH")),
    ("CONCEPTS.md", "more than {} children in one run", defined("MAX_OWN_CHILDREN")),
    (
        "CONCEPTS.md",
        "stages of one run, those that have ended too | {} |",
        defined("MAX_PIPELINE_STAGES"),
    ),
    ("CONCEPTS.md", "its first {} characters", layout.COMM_LEN - 1),
    ("CONCEPTS.md", "pipes moves more than {} beside them", run_report._MUCH_BESIDE),
    ("CONCEPTS.md", "has more than {} pipe ends", stage.STAGE_ENDS),
    ("CONCEPTS.md", "up to {} of consecutive reads", defined("MAX_QUIET") * PAGE),
    ("CONCEPTS.md", "what is not input: over {} `warm`", run_stage._ONE_KIND),
    ("CONCEPTS.md", "`warm`, under {} `cold`", 1 - run_stage._ONE_KIND),
    ("CONCEPTS.md", "Unknown below {} pages", run_stage._MIN_PAGES),
    ("CONCEPTS.md", "Of {} files that is remembered", defined("WRITTEN_FILES")),
    ("CONCEPTS.md", "`--max-stages`, {} |", CONFIG.max_stages),
    ("CONCEPTS.md", "`--max-pipes`, {} |", CONFIG.max_pipes),
    ("CONCEPTS.md", "one side of one pipe | {} |", layout.PIPE_SLOTS),
    ("CONCEPTS.md", "pipe ends of one stage | {} |", stage.STAGE_ENDS),
    ("CONCEPTS.md", "`--max-readers`, {}, of", CONFIG.max_readers),
    ("CONCEPTS.md", "words of {} pages that a task", 1 << defined("WORD_SHIFT")),
    (
        "CONCEPTS.md",
        "pages that a task remembers | {}, in sets",
        defined("WINDOW_SETS") * defined("WINDOW_WAYS"),
    ),
    ("CONCEPTS.md", "| 480, in sets of {};", defined("WINDOW_WAYS")),
    ("CONCEPTS.md", "in which a reader's stalls count | {} |", defined("STALL_DEPTH")),
    ("CONCEPTS.md", "in which a thread's time counts | {} |", defined("MAX_DEPTH")),
    ("CONCEPTS.md", "stages one in another | {} |", defined("MAX_NESTED")),
    ("CONCEPTS.md", "after the first {}, counted with the interpreter", layout.PIPE_SLOTS),
    ("CONCEPTS.md", "merges in a chain | {} |", defined("MAX_ALIASES")),
    ("CONCEPTS.md", "can be preempted | {} | lost", defined("SCRATCH_PAGES")),
    ("CONCEPTS.md", "among its first {} strings", defined("MAX_STRINGS")),
    ("CONCEPTS.md", "substitutions of one command | {}, in", defined("MAX_NAMED")),
    ("CONCEPTS.md", "in the first {} of its arguments", defined("ARGUMENTS_LEN")),
    ("CONCEPTS.md", "`--metrics.max-series`, {} |", CONFIG.metrics_max_series),
    ("CONCEPTS.md", "`--recent-runs`, {} |", CONFIG.recent_runs),
    ("CONCEPTS.md", "A descriptor above {} of a parent", defined("MAX_FDS") - 1),
    ("CONCEPTS.md", "only the {} with the highest descriptors", defined("FED_PIPES")),
    (
        "CONCEPTS.md",
        "that end with the other stages of their run | {} |",
        defined("PIPELINE_DRIVERS"),
    ),
    ("CONCEPTS.md", "A live run is shown from {} after", tracker._STARTING),
    # -- BENCHMARKS
    ("BENCHMARKS.md", "more than {} runs are neither stored", judgement.WAITING),
    ("BENCHMARKS.md", "the history is full: {} may wait", writer.QUEUE),
    ("BENCHMARKS.md", "may wait while the {} before them", writer.QUEUE),
    # -- ARCHITECTURE
    ("ARCHITECTURE.md", "a descriptor from 3 to {},", defined("MAX_FDS") - 1),
    ("ARCHITECTURE.md", "up to {} of its command line", defined("ARGUMENTS_LEN")),
    ("ARCHITECTURE.md", "into use, {} each: a stage", sizeof(layout.Stage)),
    ("ARCHITECTURE.md", "as `stages` is, {} each: histograms", sizeof(layout.Functions)),
    ("ARCHITECTURE.md", "as `stages` is, {} each: pages", sizeof(layout.ReadaheadCounters)),
    ("ARCHITECTURE.md", "as `stages` is, {} each: what ran", sizeof(layout.Children)),
    (
        "ARCHITECTURE.md",
        "inode and incarnation, {} each",
        sizeof(layout.Pipe) + sizeof(layout.PipeKey),
    ),
    ("ARCHITECTURE.md", "a stage wrote | {} |", defined("WRITTEN_FILES")),
    ("ARCHITECTURE.md", "of the thread id | {} |", defined("BUCKETS")),
    ("ARCHITECTURE.md", "hash, {} each: values of variables", sizeof(layout.Instance)),
    ("CONCEPTS.md", "the first {} variables that are set", layout.INSTANCE_VALUES),
    ("CONCEPTS.md", "of a value {} (of a longer", layout.INSTANCE_TEXT - 1),
    ("CONCEPTS.md", "remembers {} different environments", layout.INSTANCES),
    ("ARCHITECTURE.md", "| array | {}: variables that name", defined("MAX_VARIABLES")),
    ("ARCHITECTURE.md", "At the default of {} the array", CONFIG.max_stages),
    ("ARCHITECTURE.md", "the array takes {}, and", megabytes(sizeof(layout.Stage))),
    ("ARCHITECTURE.md", "and `children` {};", megabytes(sizeof(layout.Children))),
    ("ARCHITECTURE.md", "maps the first {} records", sweep._MAPPED),
    ("ARCHITECTURE.md", "18 bits: at most {} stages", layout.INDEX_MASK),
    ("ARCHITECTURE.md", "An index has {} bits", defined("GENERATION_SHIFT")),
    ("ARCHITECTURE.md", "stops at the first {} that were", sweep._CHUNK),
    ("ARCHITECTURE.md", "generation, of {} bits", 64 - defined("GENERATION_SHIFT")),
    ("ARCHITECTURE.md", "After {} lost attempts only", defined("PIPELINE_TRIES")),
    ("ARCHITECTURE.md", "until it execs or is {} old", defined("YOUNG_NS") / 1e9),
    ("ARCHITECTURE.md", "sleeps are looked at {} times", defined("FIRST_LOOKS")),
    ("ARCHITECTURE.md", "*window*: words of {} pages", 1 << defined("WORD_SHIFT")),
    ("ARCHITECTURE.md", "in a set of {}, with", defined("WINDOW_WAYS")),
    ("ARCHITECTURE.md", "with their neighbours, {} at most", defined("MAX_QUIET")),
    ("ARCHITECTURE.md", "`--sweep-interval` ({})", CONFIG.sweep_interval),
    ("ARCHITECTURE.md", "no more than {} of one core", pace._SWEEP_SHARE),
    ("ARCHITECTURE.md", "stored in the history, {} after", tracker._GRACE),
    ("ARCHITECTURE.md", "none can, and {} is enough", tracker._GRACE_CLOSED),
    ("ARCHITECTURE.md", "{} in each sweep: a stage", defined("RELEASED_AT_ONCE")),
    # -- HISTORY
    ("HISTORY.md", "a time line of at most {} points", timeline.MAX_POINTS),
    ("HISTORY.md", "would have more than {} points", timeline.MAX_POINTS),
    ("HISTORY.md", "compared with the last {} stored runs", usual.COMPARED),
    ("HISTORY.md", "With fewer than {} of them", usual._LEAST),
    ("HISTORY.md", "looked for among the last {} ", usual.LOOKED_THROUGH),
    ("HISTORY.md", "read from half to {} as many bytes", usual.BYTES_FACTOR),
    ("HISTORY.md", "inputs differ by more than a factor of {},", usual._INPUT_FACTOR),
    ("HISTORY.md", "All that is below {} is alike", usual._START_BYTES),
    ("HISTORY.md", "took more than {} times its usual", usual._TIMES),
    ("HISTORY.md", "its usual, and more than {} longer", usual._SECONDS),
    ("HISTORY.md", "by wall time in {} buckets", len(rollup.BOUNDS) + 1),
    ("HISTORY.md", "16 buckets: up to {}, 4 ms", rollup.BOUNDS[0]),
    ("HISTORY.md", "within a factor of {}. The longest", rollup._MIDDLE),
    ("HISTORY.md", "roll-up takes at most {} of `--", database._ROLLUP_SHARE),
    ("HISTORY.md", "(of a few MB up to {})", database._ROLLUP_MOST),
    ("HISTORY.md", "One time line takes at most {} of memory", tracker._TRACK_BYTES),
    ("HISTORY.md", "all live runs together about {}:", tracker._TRACKS_BYTES),
    ("HISTORY.md", "the {} runs that ended last; older", tracker._TRACKED),
    ("HISTORY.md", "`--history-max-age AGE` | `{}` |", CONFIG.history_max_age),
    ("HISTORY.md", "`--history-max-size SIZE` | `{}` |", CONFIG.history_max_size),
    ("HISTORY.md", "within {} a new one begins", sinks.LOOK_EVERY),
    ("HISTORY.md", "within {} that file is used", sinks.LOOK_EVERY),
    ("HISTORY.md", "within {} what they had is saved", sinks.LOOK_EVERY),
    ("HISTORY.md", "does not let go of it for {}", opening.BUSY_TIMEOUT),
    ("HISTORY.md", "writes runs up to {} at a time", writer.BATCH),
    ("HISTORY.md", "pauses so as to use {} of one CPU", writer.SHARE),
    ("HISTORY.md", "not for more than {} while runs wait", writer.LONGEST_PAUSE),
    ("HISTORY.md", "of its 1 % in {} it may use", writer.SAVED / writer.SHARE),
    ("HISTORY.md", "Up to {} runs wait", writer.QUEUE),
    ("HISTORY.md", "can be written within {}, but", writer.LONGEST_PAUSE),
    ("HISTORY.md", "but {} in any case", writer.LEAST),
    ("HISTORY.md", "that ended in the last {} at most", KILLED),
    ("HISTORY.md", "if a run is lost that ended more than {} before", KILLED),
    ("HISTORY.md", "tries again every {} with", sinks.RETRY),
    ("HISTORY.md", "the runs that wait: at most {}, the", writer.QUEUE),
    ("HISTORY.md", "keeps counting: at most {} rows wait", writer.PENDING),
    ("HISTORY.md", "show the last such event for {} or", history.SHOW_DISRUPTION),
    # -- CLI
    ("CLI.md", "are waited for up to {}; then", profile.GRACE),
    ("CLI.md", "the last {} are kept", profile.KEPT_RUNS),
    ("CLI.md", "for a shell, {} times each", default_of("compare", "rounds")),
    ("COMPARE.md", "that took {} and 5 %", improving_script.WORTH_SECONDS),
    ("COMPARE.md", "took 0.10 s and {} of the wall", improving_script.WORTH_SHARE),
    ("COMPARE.md", "the costliest {} are improved", improving_script.MOST_PARTS),
    ("COMPARE.md", "Up to {} ways and", improving.MOST_WAYS),
    ("COMPARE.md", "was an exception, after {}.", improving.MOST_ROUNDS),
    ("CLI.md", "or there are more than {} |", pipelines._MOST_EXACT),
    ("CLI.md", "by default that on `http://127.0.0.1:{}`", PORT),
    # -- REPORT
    ("REPORT.md", "waits at least {} of the run more", bottleneck.NOTABLE),
    ("REPORT.md", "less than {} of CPU time", bottleneck.SHORT_CPU),
    ("REPORT.md", "CPU time and {} of wall time", bottleneck.SHORT_WALL),
    ("REPORT.md", "More than {} parallel branches", run_report.MAX_BRANCHES),
    ("REPORT.md", "`readahead` tier, from {} of the run", readahead_words.WORTH_A_WORD),
    ("REPORT.md", "moved more than {} to or from files", run_report._MUCH_BESIDE),
    ("REPORT.md", "that {} and 0.5 s are left", command_report.REST_SHARE),
    ("REPORT.md", "that 10 % and {} are left", command_report.REST_SECONDS),
    ("REPORT.md", "longest runs of up to {} parts", command_report.FULL_REPORTS),
    ("REPORT.md", "took at least {} of the command", command_report.FULL_SHARE),
    ("REPORT.md", "{} or more alike runs", bottleneck.STORM),
    ("REPORT.md", "that took at most {} on average", processes.SHORT_LIFE),
    ("REPORT.md", "below {} the calls cost more", calls.SMALL_CALL),
    # -- COMPARE
    ("COMPARE.md", "- at least {} rounds", comparison.MIN_ROUNDS),
    ("COMPARE.md", "differs from 1 by more than {},", comparison.SAME_WALL),
    ("COMPARE.md", "chance does that in less than {} of", comparison_reasons.SIGNIFICANT),
    ("COMPARE.md", "At most {} parts are reasons", comparison_reasons.MAX_REASONS),
    ("COMPARE.md", "each at least {} of the difference", comparison_reasons.MIN_SHARE),
    ("COMPARE.md", "of the difference and {}, with", comparison_reasons.MIN_SECONDS),
    ("COMPARE.md", "more than {} of the difference stays", comparison.MUCH_UNEXPLAINED),
    ("COMPARE.md", "if one side has {} as many", comparison_reasons.COUNT_FACTOR),
    ("COMPARE.md", "stages read is more than {} apart", comparison_caveats.SAME_INPUT),
    ("COMPARE.md", "So {} times what is seen", comparison_cache.SURE),
    ("COMPARE.md", "The first {} of two outputs", printed.KEPT),
    # -- FINDINGS
    ("FINDINGS.md", "A run below {} has none", findings.MIN_WALL),
    ("FINDINGS.md", "A gain above {} of the run", wording.TELLING),
    ("FINDINGS.md", "*worth it* from {} of the run", rule.WORTH_SHARE),
    ("FINDINGS.md", "or of more than {} times what is likely", wording.TIGHT),
    ("FINDINGS.md", "Less than {} of the run is *little*", wording.LITTLE),
    ("FINDINGS.md", "an `awk` takes {} of what a shell", faster.LOOP_IN_AWK),
    ("FINDINGS.md", "by the rules of a language {} of what a sort", sorting.BY_RULES),
    ("FINDINGS.md", "in `C.UTF-8` {}, a hash", sorting.BY_CODE_POINTS),
    ("FINDINGS.md", "a hash {} of what", sorting.HASHED),
    ("FINDINGS.md", "locale `C`, in `C.UTF-8` {} and", sorting.HASHED_BY_CODE_POINTS),
    ("FINDINGS.md", "and in that of a language {} (with", sorting.HASHED_BY_RULES),
    ("FINDINGS.md", "(with `gawk` {} times as much", sorting.BY_GAWK),
    ("FINDINGS.md", "{} more for each hundredth of the bytes", sorting.OF_KEPT / 100),
    ("FINDINGS.md", "bzip2's and xz's {} of the time", faster.OTHER_FORMAT),
    ("FINDINGS.md", "spare a sort {} of what fewer", stages.SHORTER),
    ("FINDINGS.md", "of the run and {} on", rule.WORTH_SECONDS),
    ("FINDINGS.md", "wait behind it | pipe empty | {} |", finding_times.MOST),
    ("FINDINGS.md", "| the stage | disk | {} |", bottleneck.LARGE),
    ("FINDINGS.md", "Gaps of up to {} of the run", finding_times.BRIDGED),
    ("FINDINGS.md", "stretches below {} left out", finding_times.LEAST),
    ("FINDINGS.md", "at least {} times for pages", disk.TURNS),
    ("FINDINGS.md", "direct I/O); it got {} from disk", rule.BULK),
    ("FINDINGS.md", "or {} of its faults on mapped files", disk.BULK_FAULTS),
    ("FINDINGS.md", "with at most {} of its CPU time in user", calls.COPYING),
    ("FINDINGS.md", "large as the pipe ({};", calls.PIPE_CAPACITY),
    ("FINDINGS.md", "sleeps on the full pipe for {} of", calls.IN_TURN),
    ("FINDINGS.md", "write of a stage is below {} and", calls.SMALL_CALL),
    ("FINDINGS.md", "or waits for one, for {} of the run; is", stages.CEILING),
    ("FINDINGS.md", "on CPU for 10 % to {} of it", stages.PARALLEL),
    ("FINDINGS.md", "on an empty pipe for {} of the run", stages.IDLE),
    ("FINDINGS.md", "passed on at most {} of its input", rule.SHRINKS),
    ("FINDINGS.md", "but more than {} (less is a count", rule.PASSED_ON),
    ("FINDINGS.md", "waits for one, for {} of the run, `uniq`", sorting.MUCH),
    ("FINDINGS.md", "keeps at most {} of its", sorting.REPEATS),
    ("FINDINGS.md", "`sort` wrote {} or more to temporary", rule.BULK),
    ("FINDINGS.md", "about {} times the input", sorting.MEMORY),
    ("FINDINGS.md", "the pipeline uses {} of them", cpus.SATURATED),
    ("FINDINGS.md", "kept {} of a CPU busy or more", cpus.TAKEN),
    ("FINDINGS.md", "{} or more children exited", bottleneck.STORM),
    ("FINDINGS.md", "they lived at most {} on average", processes.SHORT_LIFE),
    ("FINDINGS.md", "reads of {} and more, larger", disk.LARGE_READ),
    ("FINDINGS.md", "less than {} of the pages from disk were read ahead", disk.LOW_COVERAGE),
    ("FINDINGS.md", "and {} as long as for pages that were not", disk.LATE_DOMINATES),
    ("FINDINGS.md", "with no stage on CPU, for {} of the run, and", disk.DISK_LIMIT),
    ("FINDINGS.md", "of the {} ordinary pipelines", len(HEALTHY)),
    # -- API
    ("API.md", "| limit | {} | maximum number of runs", history_api.DEFAULT_LIMIT),
    ("API.md", "maximum number of pipelines, from 1; more than {}", history_api.MAX_LIMIT),
    ("API.md", "maximum number of runs, from 1; more than {} count", history_api.MAX_LIMIT),
    ("API.md", "more than {} count as 1000", history_api.MAX_LIMIT),
    ("API.md", "for runs shorter than {}.", neighbours._SURROUNDED),
    ("API.md", "up to {} other pipelines, busiest", surroundings._NAMED),
    ("API.md", "Finished runs are kept for {}:", started.KEPT_SECONDS),
    ("API.md", "asked for) together the last {}, and", started.KEPT),
    ("API.md", "and {} of all users; beyond", started.KEPT_IN_ALL),
    ("schema.json", "Live runs of at least {},", live_events.MIN_AGE),
    ("schema.json", "latest first, in at most {} lines", live_events.MAX_RECENT),
    ("schema.json", "The {} of them that started first", live_events.MAX_LIVE),
    ("schema.json", "Runs of less than {},", short_runs.SHORT),
    ("schema.json", "last minute, to within {}.", short_runs._STEP),
    ("schema.json", "At most {} that had most", live_events.MAX_SHORT),
    ("schema.json", "beyond the first {} in 5 s", short_runs._MAX_NAMES),
    ("API.md", "after {} without another event", live_events.HEARTBEAT),
    ("API.md", "There are at most {} streams", live_events.MAX_STREAMS),
    ("API.md", "does not read for {} is disconnected", HttpServer.client_timeout),
    ("schema.json", "`same` (within {})", comparison.SAME_WALL),
    ("API.md", "request is larger than {} (plain", messages._MAX_HEADER),
    # -- PAGE
    ("PAGE.md", "has ended stays for {}, marked", matched(LIVE_JS, r"STAYS = (\d+)") / 1e3),
    ("PAGE.md", "for up to {} while the pointer", matched(LIVE_JS, r"POINTER = (\d+)") / 1e3),
    ("PAGE.md", "At most {} runs are listed", live_events.MAX_LIVE),
    ("PAGE.md", "until {} after the end", matched(RUN_JS, r"STORED_AFTER = (\d+)") / 1e3),
    ("PAGE.md", "newest first, {} lines per page", recorded_pages._PAGE),
    (
        "PAGE.md",
        "runs shorter than {} are hidden",
        quantity(recorded_pages._HIDING["min_duration"]),
    ),
    # -- SECURITY
    ("SECURITY.md", "127.0.0.1:{}: every user of this host", PORT),
    ("SECURITY.md", "pages of the history and of pipelines | {} entries", history_api.MAX_LIMIT),
    ("SECURITY.md", "of the first {} the program's name", JOB_NAME),
    ("SECURITY.md", "as finished, up to {} early", tracker._GRACE),
    ("SECURITY.md", "bcrypt takes at most {}.", basic_auth.PASSWORD_BYTES),
    ("SECURITY.md", "of wrong ones the last {}.", basic_auth._REMEMBERED),
    ("SECURITY.md", "While {} logins are being checked", basic_auth._LOGINS),
    ("SECURITY.md", "or {} from one address", basic_auth._LOGINS_OF_ONE),
    ("SECURITY.md", "| connections | {}.", HttpServer.max_connections),
    ("SECURITY.md", "a request's header | {} (", messages._MAX_HEADER),
    ("SECURITY.md", "and {} from its first byte", HttpServer.client_timeout),
    ("SECURITY.md", "an idle connection | {} |", HttpServer.client_timeout),
    ("SECURITY.md", "An idle connection ends after {}.", HttpServer.client_timeout),
    ("SECURITY.md", "is not read | {} without progress", HttpServer.client_timeout),
    ("SECURITY.md", "without progress; {} of answers", HttpServer.max_kept),
    ("SECURITY.md", "| `/api/v1/events` | {} at once", live_events.MAX_STREAMS),
    # -- INSTALL
    ("INSTALL.md", "the history, {} at most", CONFIG.history_max_size),
    ("INSTALL.md", "systemd tries again after {}, five", service("RestartSec")),
    ("INSTALL.md", "after 5 s, {} times in five minutes", service("StartLimitBurst")),
    ("INSTALL.md", "five times in {};", service("StartLimitIntervalSec")),
    ("INSTALL.md", "keep-alive message {} times in", signals._MESSAGES_PER_INTERVAL),
    ("INSTALL.md", "times in the {} of `WatchdogSec=`", service("WatchdogSec")),
    ("INSTALL.md", "`MemoryMax={}`, `TasksMax", service("MemoryMax")),
    ("INSTALL.md", "`TasksMax={}`", service("TasksMax")),
    ("INSTALL.md", "It is started again after {}, but", service("RestartSec", SENDER)),
    ("INSTALL.md", "is under way, {} at most", STOP_PATIENCE),
    ("INSTALL.md", "the last {} may be missing from the history", KILLED),
    ("INSTALL.md", "a stop, and every {} while", saver._SAVE_INTERVAL),
    ("INSTALL.md", "a run is older than {}, or less", saver._SAVE_INTERVAL),
    ("INSTALL.md", "saving takes at most {} of one core", saver._SAVE_SHARE),
    ("INSTALL.md", 'Status: "{} of 21 hooks', HOOKS),
    ("INSTALL.md", 'Status: "21 of {} hooks', HOOKS),
    ("INSTALL.md", 'reads "{} of 6 hooks', len(REQUIRED)),
    ("INSTALL.md", "6 of 6 hooks, {} to follow", OPTIONAL),
    ("INSTALL.md", "each takes [{}](", round(OF_A_STAGE, -2)),
    ("INSTALL.md", "without the `functions` tier {}", round(WITHOUT_FUNCTIONS, -2)),
    # -- CONTAINER
    ("CONTAINER.md", "the history, {} at most", CONFIG.history_max_size),
    # -- RUNBOOK
    (
        "alerts.rules.yml",
        "Half (`{}`): overlap differs",
        alert("PipelineStoppedBeingParallel", r"< ([\d.]+) \* \(avg_over"),
    ),
    (
        "alerts.rules.yml",
        "`{}`: a past overlap below",
        alert("PipelineStoppedBeingParallel", r"1d\) > ([\d.]+)\)"),
    ),
    (
        "alerts.rules.yml",
        "a past overlap below {} is nothing",
        alert("PipelineStoppedBeingParallel", r"1d\) > ([\d.]+)\)"),
    ),
    (
        "alerts.rules.yml",
        "`{}`: the median run of the day",
        alert("PipelineStoppedBeingParallel", r"> ([\d.]+) \* quantile"),
    ),
    (
        "alerts.rules.yml",
        "`1.5`: the past is the worst of the last {},",
        alert("PipelineWaitsForDisk", r"\[(7d):1d\]"),
    ),
    (
        "alerts.rules.yml",
        "For {} requests of pipelined export",
        alert("PipelinedExportFails", r"for: (\w+)"),
    ),
    (
        "alerts.rules.yml",
        "`{}`: runs are stored some",
        alert("PipelinedExportLags", r"> (\d+)"),
    ),
    (
        "alerts.rules.yml",
        "five minutes (`{}`): a first cold",
        alert("PipelineWaitsForDisk", r">= (\d+)"),
    ),
    ("alerts.rules.yml", "{} a second take", alert("PipelineForkStorm", r"> (\d+)")),
    (
        "alerts.rules.yml",
        "they lived less than {} each",
        alert("PipelineForkStorm", r"< ([\d.]+)"),
    ),
    ("alerts.rules.yml", "{} is the limit of the finding `fork-storm`", processes.SHORT_LIFE),
    (
        "alerts.rules.yml",
        "`{}` times the longest pause",
        alert("PipelineOverdue", r"\+ ([\d.]+) \*"),
    ),
    ("alerts.rules.yml", "`{}` s are added for one", alert("PipelineOverdue", r"> (\d+) \+")),
    ("alerts.rules.yml", "`{}`: Prometheus must have", alert("PipelineOverdue", r"> (0[\d.]+)")),
    ("RUNBOOK.md", "for longer than {} none has", alert("PipelineFailed", r"for: (\w+)")),
    ("alerts.rules.yml", "`{}` (`for`): a job", alert("PipelineFailed", r"for: (\w+)")),
    ("RUNBOOK.md", "or {} after the last failure", 86400 * recorded(LAST_FAILED)),
    ("RUNBOOK.md", "longer ago, at most {}, and no run", 86400 * recorded(LAST_FAILED)),
    ("RUNBOOK.md", "within the {} before. It ends", 86400 * recorded(LAST_COMPLETE)),
    (
        "alerts.rules.yml",
        "More than {} of the last day's runs",
        alert("PipelineFailsMoreOften", r", (0[\d.]+)\)"),
    ),
    (
        "alerts.rules.yml",
        "runs failed, and at least {}.",
        alert("PipelineFailsMoreOften", r">= (\d+)"),
    ),
    ("alerts.rules.yml", "`{}` failures: a job", alert("PipelineFailsMoreOften", r">= (\d+)")),
    (
        "alerts.rules.yml",
        "PipelineFailed. `{}`:",
        alert("PipelineFailsMoreOften", r", (0[\d.]+)\)"),
    ),
    (
        "alerts.rules.yml",
        "each minute, 72 a day. `{}`:",
        alert("PipelineFailsMoreOften", r"\((\d+) \*"),
    ),
    (
        "alerts.rules.yml",
        "A day (`{}`): a second",
        alert("PipelineOutOfMemory", r"time\(\) - (\d+)"),
    ),
    (
        "RUNBOOK.md",
        "run that ended last took {} or more",
        alert("PipelineSlowerThanUsual", r">= (\d+)"),
    ),
    (
        "RUNBOOK.md",
        "and more than {} [its usual]",
        alert("PipelineSlowerThanUsual", r"\} > (\d+)"),
    ),
    ("alerts.rules.yml", "marked in the lists from {} times its usual", usual._TIMES),
    (
        "alerts.rules.yml",
        "$labels.instance }} for {}. What runs",
        alert("PipelinedDown", r"for: (\w+)"),
    ),
    ("alerts.rules.yml", "For {} there has been no target", alert("PipelinedAbsent", r"\[(\w+)\]")),
    (
        "RUNBOOK.md",
        "two starts: {} in an hour fire",
        alert("PipelinedRestarting", r">= (\d+)"),
    ),
    (
        "alerts.rules.yml",
        "alert ends {} after the last loss",
        alert("PipelinedLosing", r"\[(\w+)\]\) > 0"),
    ),
    ("RUNBOOK.md", "to which more than {} services write", layout.PIPE_SLOTS),
    ("alerts.rules.yml", "{}: a restart with", alert("PipelinedTierMissing", r"for: (\w+)")),
    (
        "RUNBOOK.md",
        "costs nothing; {} in ten",
        alert("PipelinedSweepsFail", r">= (\d+)"),
    ),
    (
        "alerts.rules.yml",
        "have failed in {}. Figures",
        alert("PipelinedSweepsFail", r"\[(\w+)\]"),
    ),
    (
        "alerts.rules.yml",
        "For {} scrapes of",
        alert("PipelinedCollectorFails", r"for: (\w+)"),
    ),
    (
        "alerts.rules.yml",
        "three days: {} is one nightly job",
        alert("PipelinedHeavyPipelineFolded", r"> (\d+)"),
    ),
    ("alerts.rules.yml", "Run time is halved every {}:", ledger.HALF_LIFE),
    ("alerts.rules.yml", "idle ones that are {} as heavy", 1 / ledger._HEAVIER),
    (
        "alerts.rules.yml",
        "`{}` in a row are",
        alert("PipelinedHistoryFails", r">= (\d+)"),
    ),
    ("RUNBOOK.md", "The daemon tries every {};", sinks.RETRY),
    ("RUNBOOK.md", "up to {} finished runs wait", writer.QUEUE),
    ("alerts.rules.yml", "the page shows the event for {}.", history.SHOW_DISRUPTION),
]


@pytest.mark.parametrize(
    ("document", "sentence", "value"),
    [pytest.param(*row, id=f"{row[0]}: {row[1]}") for row in FIGURES],
)
def test_a_figure_of_a_document_is_the_constant_of_the_code(
    document: str, sentence: str, value: float
) -> None:
    found = figures_in(document, sentence)
    assert found, "the sentence is not in the document"
    for figure in found:
        assert abs(quantity(figure) - value) < 1e-9 * max(1.0, value), f"{figure}, code: {value}"


def test_a_unit_scales_a_figure() -> None:
    figures = ["1,000", "four", "5 %", "an hour", "three days", "256 KiB", "15m", "a quarter"]
    assert [quantity(figure) for figure in figures] == [
        1000, 4, 0.05, 3600, 3 * 86400, 256 << 10, 900, 0.25,
    ]  # fmt: skip
