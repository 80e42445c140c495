# SPDX-License-Identifier: Apache-2.0
"""The daemon's options: each is described once, here, for all places where it is given or shown.

A flag of `pipelined serve` and its help, a key of the TOML file (`toml_file`), the defaults, the
manual pages (deploy/manual.py) and the installed file (deploy/default_config.py) all come from the
fields of `Config`. To add an option, add a field. Flags win over the file, the file over the
defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pipelined.command_names import SHELLS, WRAPPERS
from pipelined.config import values
from pipelined.config.values import Address, Parser
from pipelined.errors import UserError

__all__ = [
    "DEFAULT_HISTORY_AGE",
    "DEFAULT_HISTORY_SIZE",
    "OPTIONS",
    "Config",
    "Option",
    "merge",
]

#: How long finished runs are kept (seconds), and what their files may take (bytes).
DEFAULT_HISTORY_AGE = 30 * 86400.0
DEFAULT_HISTORY_SIZE = 256_000_000


@dataclass(frozen=True, slots=True)
class Option:
    """One option, whether given by flag or by file."""

    name: str
    """The flag without its dashes, and the path of TOML keys: ``web.listen-address``."""
    field: str
    """Name of its attribute in `Config`."""
    metavar: str
    """Placeholder for the value in help texts; empty for a yes/no option."""
    default: str
    """The default as help texts show it; empty if there is none."""
    help: str
    example: str
    """A value in TOML syntax."""
    parse: Parser

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value."""
        return not self.metavar


def _option(
    name: str, *, default: Any, shown: str, metavar: str, parse: Parser, example: str, help: str
) -> Any:
    """A field of `Config` that carries its own description."""
    described = Option(
        name=name,
        field=name.replace(".", "_").replace("-", "_"),
        metavar=metavar,
        default=shown,
        help=help,
        example=example,
        parse=parse,
    )
    return field(default=default, metadata={"option": described})


_INTERPRETERS = (
    *("python", "pypy", "perl", "ruby", "node", "nodejs", "php"),
    *("awk", "gawk", "mawk", "original-awk"),
)
_WRAPPERS = tuple(name for name, wrapper in WRAPPERS.items() if wrapper.forks)
#: Nothing matches; the inputs differ; the expression is false.
_HARMLESS_EXITS = tuple(
    f"{name}=1"
    for name in (
        *("grep", "egrep", "fgrep", "zgrep", "bzgrep", "xzgrep", "zstdgrep", "rg", "ag", "ack"),
        *("pgrep", "pidof", "diff", "zdiff", "xzdiff", "sdiff", "diff3", "cmp", "zcmp", "xzcmp"),
        *("test", "[", "expr"),
    )
)
_JOB_VARIABLES = ("PIPELINED_JOB", "SLURM_JOB_NAME", "AIRFLOW_CTX_DAG_ID")
_INSTANCE_VARIABLES = (
    "INVOCATION_ID",
    *("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"),
    *("AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_TASK_ID", "AIRFLOW_CTX_DAG_RUN_ID"),
    "AIRFLOW_CTX_TRY_NUMBER",
    *("BUILD_URL", "BUILD_TAG"),
    *("CI_JOB_ID", "CI_JOB_URL", "CI_PIPELINE_ID"),
    *("GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "GITHUB_JOB"),
    *("BUILDKITE_BUILD_ID", "BUILDKITE_JOB_ID"),
    *("PBS_JOBID", "LSB_JOBID", "LSB_JOBINDEX"),
)
#: Of OpenTelemetry's environment carriers, in the format of W3C's trace context.
_TRACE_VARIABLES = ("TRACEPARENT", "TRACESTATE")
# run-parts runs the scripts of /etc/cron.daily and the like: each is a job.
_SCHEDULERS = ("cron", "crond", "anacron", "fcron", "run-parts")


@dataclass(frozen=True, slots=True)
class Config:
    """The value of every option. Durations in seconds, sizes in bytes."""

    web_listen_address: Address = _option(
        "web.listen-address",
        default=Address("127.0.0.1", 9905),
        shown="127.0.0.1:9905",
        metavar="HOST:PORT",
        parse=values.address,
        example='"127.0.0.1:9905"',
        help="Address of /metrics, the API and the page. :9905 listens on every IPv4 address.",
    )
    log_level: str = _option(
        "log.level",
        default="info",
        shown="info",
        metavar="LEVEL",
        parse=values.log_level,
        example='"info"',
        help="How much to log: debug, info, warning or error.",
    )
    web_config_file: Path | None = _option(
        "web.config.file",
        default=None,
        shown="",
        metavar="FILE",
        parse=values.path_of("a file"),
        example='"/etc/pipelined/web.yml"',
        help="TLS, passwords and headers of the port, in the format of other Prometheus exporters.",
    )
    web_allowed_hosts: tuple[str, ...] = _option(
        "web.allowed-hosts",
        default=(),
        shown="",
        metavar="NAME,…",
        parse=values.host_names,
        example='["host1.example.com", "*.example.org"]',
        help=(
            "Further host names that the port answers for, besides the host's own name, localhost "
            "and IP addresses. *.example.org is every name below example.org, * is every name."
        ),
    )
    web_allow_unauthenticated: bool = _option(
        "web.allow-unauthenticated",
        default=False,
        shown="off",
        metavar="",
        parse=values.switch,
        example="true",
        help=(
            "Listen for other hosts without a password or client certificates. Whoever reaches the "
            "port reads it: only where a firewall, a network policy or the like keeps others out."
        ),
    )
    sweep_interval: float = _option(
        "sweep-interval",
        default=1.0,
        shown="1s",
        metavar="DURATION",
        parse=values.duration(0.05, 60),
        example='"1s"',
        help="How often to read the kernel's counters between scrapes; each scrape reads them too.",
    )
    metrics_max_series: int = _option(
        "metrics.max-series",
        default=10_000,
        shown="10000",
        metavar="COUNT",
        parse=values.whole_number(1_000, 10_000_000),
        example="10000",
        help=(
            "How many series /metrics has at most. If that is too few, the pipelines that used "
            "least run time lately are counted as (other) there; they keep their names elsewhere."
        ),
    )
    traces_exported: bool = _option(
        "traces-exported",
        default=False,
        shown="off",
        metavar="",
        parse=values.switch,
        example="true",
        help=(
            "The finished runs of this host are sent to a store of traces, by pipelined export or "
            "another program. Reports and the page then show the trace of a run, and /metrics in "
            "OpenMetrics has exemplars with it."
        ),
    )
    recent_runs: int = _option(
        "recent-runs",
        default=100,
        shown="100",
        metavar="COUNT",
        parse=values.whole_number(0, 100_000),
        example="100",
        help="How many finished runs the API and the page remember.",
    )
    history: bool = _option(
        "history",
        default=True,
        shown="on",
        metavar="",
        parse=values.switch,
        example="true",
        help=(
            "Record finished runs in the state directory, for pipelined runs, pipelined show and "
            "the page. If it cannot be written, the daemon watches pipelines all the same."
        ),
    )
    state_directory: Path | None = _option(
        "state-directory",
        default=None,
        shown="",
        metavar="DIRECTORY",
        parse=values.path_of("a directory"),
        example='"/var/lib/pipelined"',
        help=(
            "Directory of the history, and of what lives when the daemon stops; created if "
            "missing. If not given: $STATE_DIRECTORY, which systemd sets, or /var/lib/pipelined."
        ),
    )
    history_max_age: float = _option(
        "history-max-age",
        default=DEFAULT_HISTORY_AGE,
        shown="30d",
        metavar="AGE",
        parse=values.age,
        example='"30d"',
        help="How long finished runs are kept.",
    )
    history_max_size: int = _option(
        "history-max-size",
        default=DEFAULT_HISTORY_SIZE,
        shown="256MB",
        metavar="SIZE",
        parse=values.size(1_000_000),
        example='"256MB"',
        help="Largest size of the history on disk; short and frequent runs are deleted first.",
    )
    max_stages: int = _option(
        "max-stages",
        default=16384,
        shown="16384",
        metavar="COUNT",
        parse=values.whole_number(1, (1 << 18) - 1),
        example="16384",
        help="How many stages can be followed at once; more are counted in pipelined_lost_total.",
    )
    max_pipes: int = _option(
        "max-pipes",
        default=16384,
        shown="16384",
        metavar="COUNT",
        parse=values.whole_number(1, (1 << 18) - 1),
        example="16384",
        help="How many pipes can be followed at once; more are counted in pipelined_lost_total.",
    )
    interpreters: tuple[str, ...] = _option(
        "interpreters",
        default=_INTERPRETERS,
        shown=",".join(_INTERPRETERS),
        metavar="NAME,…",
        parse=values.command_names,
        example='["python", "perl"]',
        help=(
            "Commands that are a stage when they read from a child process, in any version "
            "(python3.11)."
        ),
    )
    wrappers: tuple[str, ...] = _option(
        "wrappers",
        default=_WRAPPERS,
        shown=",".join(_WRAPPERS),
        metavar="NAME,…",
        parse=values.command_names,
        example='["timeout", "sudo"]',
        help="Commands whose stage is named after the command that they run.",
    )
    shells: tuple[str, ...] = _option(
        "shells",
        default=SHELLS,
        shown=",".join(SHELLS),
        metavar="NAME,…",
        parse=values.command_names,
        example='["bash", "sh"]',
        help="Commands that hold their children's pipes without using them.",
    )
    alone: tuple[str, ...] = _option(
        "alone",
        default=(),
        shown="",
        metavar="NAME,…",
        parse=values.command_names,
        example='["awk", "sort"]',
        help=(
            "Commands reported as a one-stage pipeline when they read data or compute and are in "
            "no other pipeline. `pipelined run` does this for every program."
        ),
    )
    alone_units: tuple[str, ...] = _option(
        "alone-units",
        default=(),
        shown="",
        metavar="NAME,…",
        parse=values.unit_names,
        example='["nightly.service", "backup@.service"]',
        help=(
            "Systemd units in which every program except shells is reported as the commands of "
            "--alone are. An instance counts as its template. Needs cgroup v2."
        ),
    )
    job_variables: tuple[str, ...] = _option(
        "job-variables",
        default=_JOB_VARIABLES,
        shown=",".join(_JOB_VARIABLES),
        metavar="NAME,…",
        parse=values.variable_names(8, "SLURM_JOB_NAME"),
        example='["PIPELINED_JOB", "SLURM_JOB_NAME"]',
        help=(
            "Environment variables whose value names a job in the label unit (NAME.job); of "
            "several that are set, the first in this list counts. No other variable is read but "
            "those of --instance-variables; an empty list reads none. At most 8."
        ),
    )
    instance_variables: tuple[str, ...] = _option(
        "instance-variables",
        default=_INSTANCE_VARIABLES,
        shown=",".join(_INSTANCE_VARIABLES),
        metavar="NAME,…",
        parse=values.variable_names(22, "SLURM_JOB_ID"),
        example='["INVOCATION_ID", "SLURM_JOB_ID"]',
        help=(
            "Environment variables that identify the instance of a job; kept with each run, never "
            "in /metrics. Of one process up to 12 that are set, the first ones of this list, with "
            "up to 247 bytes each. TRACEPARENT and TRACESTATE are read first, unless the list is "
            "empty: that reads none. At most 22. Name none that holds a secret."
        ),
    )
    host_name: str | None = _option(
        "host-name",
        default=None,
        shown="",
        metavar="NAME",
        parse=values.host_name,
        example='"web-3"',
        help=(
            "What runs say of the host that they ran on; it is in their ids too. If not given: the "
            "host's own name. In a container that is the container's: give the node's."
        ),
    )
    schedulers: tuple[str, ...] = _option(
        "schedulers",
        default=_SCHEDULERS,
        shown=",".join(_SCHEDULERS),
        metavar="NAME,…",
        parse=values.command_names,
        example='["cron", "crond"]',
        help=(
            "Commands that start jobs: each command that they run has a unit of its own, named "
            "after its program (backup.sh.cron)."
        ),
    )
    harmless_exits: tuple[str, ...] = _option(
        "harmless-exits",
        default=_HARMLESS_EXITS,
        shown=",".join(_HARMLESS_EXITS),
        metavar="NAME=CODE,…",
        parse=values.exit_codes,
        example='["grep=1", "diff=1", "rsync=24"]',
        help=(
            "Exit codes that are no failure of the command: grep exits with 1 if nothing matches, "
            "diff if the files differ. An empty list: every code but 0 is a failure."
        ),
    )
    show_arguments: bool = _option(
        "show-arguments",
        default=False,
        shown="off",
        metavar="",
        parse=values.switch,
        example="true",
        help=(
            "Show command lines in the API and on the page, never in /metrics. They may hold "
            "secrets."
        ),
    )
    functions: str = _option(
        "functions",
        default="auto",
        shown="auto",
        metavar="WHEN",
        parse=values.one_of("auto", "on", "off"),
        example='"auto"',
        help=(
            "Hook pipe_write, pipe_read, vfs_read and splice, for sizes, times of reads, and how "
            "full pipes are. auto: if the kernel allows it; on: refuse to start if it does not; "
            "off."
        ),
    )
    readahead: str = _option(
        "readahead",
        default="auto",
        shown="auto",
        metavar="WHEN",
        parse=values.one_of("auto", "on", "off"),
        example='"auto"',
        help=(
            "Report for each page read from a file whether it was cached, read ahead in time, or "
            "waited for. auto: if the kernel allows it; on: refuse to start if it does not; off."
        ),
    )
    max_readers: int = _option(
        "max-readers",
        default=1024,
        shown="1024",
        metavar="COUNT",
        parse=values.whole_number(1, 1 << 20),
        example="1024",
        help=(
            "How many tasks can have their readahead followed at once, 8 KiB of memory each; the "
            "pages of further tasks are counted in pipelined_lost_total."
        ),
    )
    trace_exec_failures: bool = _option(
        "trace-exec-failures",
        default=False,
        shown="off",
        metavar="",
        parse=values.switch,
        example="true",
        help=(
            "Count failed execs with system call tracepoints if fexit is not allowed. Every "
            "system call on the host then costs about 50 ns more."
        ),
    )
    loader: str = _option(
        "loader",
        default="auto",
        shown="auto",
        metavar="LOADER",
        parse=values.one_of("auto", "libbpf", "bcc"),
        example='"auto"',
        help=(
            "libbpf: load the BPF object that came with the program; bcc: compile its source on "
            "this host (needs python3-bpfcc); auto: bcc if libbpf fails."
        ),
    )
    object: Path | None = _option(
        "object",
        default=None,
        shown="",
        metavar="FILE",
        parse=values.path_of("a file"),
        example='"pipelined.bpf.o"',
        help="Load this BPF object instead of the one that came with the program.",
    )

    @property
    def kept_variables(self) -> tuple[str, ...]:
        """Those whose values are kept with a run, in the order in which they win."""
        if not self.instance_variables:
            return ()
        return tuple(dict.fromkeys((*_TRACE_VARIABLES, *self.instance_variables)))


OPTIONS: tuple[Option, ...] = tuple(item.metadata["option"] for item in fields(Config))
"""Every option, in the order in which help shows them."""


def merge(config: Config, **flags: object) -> Config:
    """`config` with the values of the flags that were given; None means not given.

    Values may be text as typed at the prompt, lists with commas between the items. Raises
    UserError that names the flag whose value is wrong.
    """
    by_field = {option.field: option for option in OPTIONS}
    given: dict[str, Any] = {}
    for name, value in flags.items():
        option = by_field[name]
        if value is None:
            continue
        try:
            given[name] = option.parse(value)
        except ValueError as error:
            shown = value if isinstance(value, str) else values.as_written(value)
            raise UserError(
                f"{option.flag} must be {error}, not {shown}",
                f"see pipelined serve --help; the default is {option.default or 'none'}",
            ) from None
    return replace(config, **given)
