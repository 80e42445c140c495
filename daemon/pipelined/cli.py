# SPDX-License-Identifier: Apache-2.0
"""The commands at the prompt: `pipelined serve`, `run`, `runs`, `show`, `compare`, `top` and so on.

Everything a command needs is imported when it runs, so that `--help` and completion are
quick. What goes wrong is one line on stderr. Exit codes: 0 done, 1 failed, 2 wrong usage,
130 interrupted; `run` passes on the status of the command that it ran.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from pipelined import __version__
from pipelined.errors import UserError, why

if TYPE_CHECKING:
    from rich.console import Console

    from pipelined.analysis.comparison import Comparison
    from pipelined.config import Option
    from pipelined.history.history import History
    from pipelined.runs import Run

__all__ = ["cli", "main"]

PROGRAM = "pipelined"
DEFAULT_URL = "http://127.0.0.1:9905"
#: Set (to anything) it brings the log of everything and the tracebacks of our own faults.
DEBUG_VARIABLE = "PIPELINED_DEBUG"
#: Columns of a report that does not go to a terminal.
FILE_WIDTH = 100
#: Words of `compare` that name a run: an id or its beginning, `last`, a file of `run --json`.
RUN_WORD = re.compile(r"last|\d+(-\d*)?|\S+\.json")


def main() -> None:
    """Run the command that the arguments name, and exit with its status."""
    # Python has None for a stream that came closed. The command of `run` still gets it closed.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (open until the end)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    sys.exit(_guarded(sys.argv[1:]))


def _guarded(arguments: list[str]) -> int:
    """The exit status; whatever goes wrong becomes one line on stderr."""
    try:
        status = cli.main(args=arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        return _complain(_usage(error), error.exit_code)
    except click.ClickException as error:
        return _complain(error.format_message(), error.exit_code)
    except UserError as error:
        return _complain(str(error), getattr(error, "exit_status", 1))
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # Whoever read our output has had enough: nothing to complain about, nobody to tell.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        hint = f"set {DEBUG_VARIABLE}=1, run it again, and report what it prints"
        return _complain(f"internal error: {what}; {hint}", 1)
    return status if isinstance(status, int) else 0


def _complain(message: str, status: int) -> int:
    priority = "<3>" if _logs_to_journal() else ""
    with contextlib.suppress(OSError):
        click.echo(f"{priority}{PROGRAM}: {' '.join(message.split())}", err=True)
    return status


def _logs_to_journal() -> bool:
    if "JOURNAL_STREAM" not in os.environ:
        return False
    from pipelined.daemon.systemd import logs_to_journal

    return logs_to_journal(os.environ)


def _usage(error: click.UsageError) -> str:
    """What is wrong with the arguments, and where to read on."""
    message = error.format_message().rstrip(".")
    # Names of options and files stay as they are typed.
    if message[:1].isupper() and message[1:2].islower():
        message = message[0].lower() + message[1:]
    if "--help" in message:
        return message
    return f"{message}; see {error.ctx.command_path if error.ctx else PROGRAM} --help"


def _log_to_stderr(level: str) -> None:
    """Send log records of `level` and above to stderr."""
    import logging

    if os.environ.get(DEBUG_VARIABLE):
        level = "debug"
    handler = logging.StreamHandler(sys.stderr)
    if _logs_to_journal():
        from pipelined.daemon.systemd import JournalFormatter

        handler.setFormatter(JournalFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


class _Serve(click.Command):
    """The command whose flags are the daemon's options (`config.OPTIONS`)."""

    _made: list[click.Parameter] | None = None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if self._made is None:
            from pipelined.config import OPTIONS

            self._made = [_flag(option) for option in OPTIONS]
        inherited = super().get_params(ctx)
        # `--config` first, `--help` last.
        return [*inherited[:-1], *self._made, *inherited[-1:]]


def _flag(option: Option) -> click.Option:
    """A daemon option as a flag; not given, it is None, so that the file can say it."""
    default = f" [default: {option.default}]" if option.default else ""
    described = option.help + default
    if option.is_switch:
        return click.Option(
            [f"{option.flag}/--no-{option.name}", option.field], default=None, help=described
        )
    kind: click.ParamType[Any] = (
        click.Path() if option.metavar in ("FILE", "DIRECTORY") else click.STRING
    )
    return click.Option(
        [option.flag, option.field], type=kind, metavar=option.metavar, help=described
    )


class _Run(click.Command):
    """The command that ends its own options at the first word of another command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = len(ctx.params.get("command") or ())
        # Behind `--` stand a command and its arguments, even if it is one word with blanks.
        ctx.meta["direct"] = words < len(given) and given[-words - 1] == "--"
        return rest


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_color = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="When to use colours. auto: on a terminal, unless NO_COLOR is set.",
)
_state_directory = click.option(
    "--state-directory",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, readable=False),  # what cannot be read is told later
    help="Where the daemon keeps its history. [default: $STATE_DIRECTORY, else /var/lib/pipelined]",
)


@click.group(
    context_settings=_CONTEXT,
    invoke_without_command=True,
    epilog="""\b
Examples:
  sudo pipelined run 'zcat access.log.gz | sort | uniq -c'
  sudo pipelined serve
  pipelined top

Watching needs root. Each command has a --help of its own.""",
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> int | None:
    """Is your pipeline actually pipelined?

    Watches shell pipelines with eBPF and says how many stages really ran at once, where each
    one's time went, and which stage holds the others back.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        return 2
    return None


@cli.command(
    cls=_Serve,
    epilog="""\b
Examples:
  sudo pipelined serve
  sudo pipelined serve --web.listen-address :9905
  sudo pipelined serve --config /etc/pipelined.toml --log.level debug

\b
The file says the same things as the flags, and the flags win:
  max-signatures = 200
  [web]
  listen-address = "[::1]:9905"

SIGTERM and Ctrl-C detach everything within a second. SIGHUP reads the web config again.""",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(),
    metavar="FILE",
    help="TOML file with these options.",
)
def serve(config_file: str | None, **flags: object) -> int:
    """Watch every pipeline; serve metrics and a page.

    All pipelines of this host, as Prometheus metrics, as JSON, and as a page to look at.
    Runs in the foreground until it is told to stop, and logs to stderr.
    """
    from pipelined.config import Config, merge
    from pipelined.config.toml_file import load

    config = load(Path(config_file)) if config_file is not None else Config()
    try:
        config = merge(config, **flags)
    except UserError as error:
        raise click.UsageError(str(error)) from None
    _log_to_stderr(config.log_level)
    from pipelined.daemon.capabilities import drop
    from pipelined.daemon.serve import serve as run_daemon
    from pipelined.daemon.systemd import Supervisor

    run_daemon(config, sys.stdout, give_up=drop, supervisor=Supervisor.take(os.environ))
    return 0


@cli.command(
    cls=_Run,
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Examples:
  sudo pipelined run 'cat big.log | cut -d " " -f 1 | sort | uniq -c'
  sudo pipelined run -o report.txt 'zcat f.gz | wc -l' > count
  sudo pipelined run --shell zsh 'sort a b |& tee log'
  sudo pipelined run --json -o run.json -- ./nightly.sh --full

Quote a pipeline, or your own shell takes it apart and only its first command is seen. One
string is run by bash, or by sh where there is no bash; several words are run as they are.""",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="Write the report to FILE instead of stderr.",
)
@click.option("--json", "as_json", is_flag=True, help="Report as JSON, for machines.")
@click.option(
    "--shell",
    metavar="SHELL",
    help="The shell that runs a one-string command. [default: bash, else sh]",
)
@_color
@click.argument("command", nargs=-1, required=True)
@click.pass_context
def run(
    ctx: click.Context,
    command: tuple[str, ...],
    output: str | None,
    as_json: bool,
    shell: str | None,
    color: str,
) -> int:
    """Run a command and report how its pipelines ran.

    The command's input, output and exit status are its own; the report goes to stderr when
    it has ended. Signals sent to pipelined reach the command.
    """
    from pipelined.run import profile

    if shell is not None and (ctx.meta["direct"] or len(command) > 1):
        raise click.UsageError("--shell takes the pipeline as one quoted string", ctx)
    arguments = profile.command_line(command, shell=shell, direct=bool(ctx.meta["direct"]))
    _log_to_stderr("critical")
    with _report_file(output, sys.stderr) as file:
        found = profile.profile(arguments)
        # Whatever becomes of the report, the status is the command's.
        with contextlib.suppress(BrokenPipeError):
            try:
                if as_json:
                    profile.write_json(found, file)
                else:
                    profile.write_report(found, _console(file, color))
                file.flush()
            except OSError as error:
                if output is None:
                    raise
                _complain(f"cannot write {output}: {why(error)}", 1)
    return found.status


@contextlib.contextmanager
def _report_file(output: str | None, default: IO[str]) -> Iterator[IO[str]]:
    """Where the report goes; opened before the command runs, so that a wrong name fails first."""
    if output is None:
        yield default
        return
    try:
        file = open(output, "w", encoding="utf-8")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise UserError(
            f"cannot write {output}: {why(error)}", "give -o a file that can be written"
        ) from None
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # told when it was written
            file.close()


@cli.command(
    cls=_Run,
    epilog="""\b
Examples:
  sudo pipelined compare 'sort log | uniq' 'sort -u log'
  sudo pipelined compare -n 9 --cold big.log 'awk "{n++}" big.log' 'cat big.log | awk "{n++}"'
  pipelined compare 1763809200123-4711 last
  pipelined compare tuesday.json wednesday.json

A word such as 1763809200123-4711, its beginning, `last`, or the name of a .json file is a run;
anything else is a command. Behind -- every word is a command.""",
)
@click.option(
    "-n",
    "--rounds",
    metavar="ROUNDS",
    type=click.IntRange(1, 10_000),
    default=5,
    show_default=True,
    help="How often each command is measured.",
)
@click.option(
    "--warm-up",
    metavar="ROUNDS",
    type=click.IntRange(0, 10_000),
    default=1,
    show_default=True,
    help="How often each command runs before that, without being measured.",
)
@click.option(
    "--cold",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Drop FILE, or all files in a directory, from the page cache before each execution.",
)
@click.option(
    "--warm",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Read FILE, or all files in a directory, into the page cache before each execution.",
)
@click.option(
    "--shell",
    metavar="SHELL",
    help="The shell that runs the commands. [default: bash, else sh]",
)
@click.option("--json", "as_json", is_flag=True, help="Report as JSON, for machines.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="Write the report to FILE instead of stdout.",
)
@_state_directory
@_color
@click.argument("command", nargs=-1, required=True)
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    command: tuple[str, ...],
    output: str | None,
    as_json: bool,
    state_directory: Path | None,
    color: str,
    **plan: Any,
) -> int:
    """Run commands in turn, or take two recorded runs, and say which wins and why.

    Each command runs as often as the others, in turns, with no input; what it prints is not
    shown, but has to be the same each time. Shows medians, spread, and the ratio round by round.
    """
    from pipelined.analysis.comparison import LABELS

    runs = [not ctx.meta["direct"] and RUN_WORD.fullmatch(word) is not None for word in command]
    if any(runs) and not all(runs):
        raise click.UsageError(
            "compare runs with runs, or commands with commands; behind -- every word is a command",
            ctx,
        )
    most = 2 if all(runs) else len(LABELS)
    if not 2 <= len(command) <= most:
        things = "two runs" if all(runs) else f"two to {most} commands, each as one quoted string"
        raise click.UsageError(f"compare takes {things}", ctx)
    given = [name for name in (*plan, "state_directory") if _was_given(ctx, name)]
    wrong = [name for name in given if all(runs) != (name == "state_directory")]
    if wrong:
        flag = f"--{wrong[0].replace('_', '-')}"
        raise click.UsageError(f"{flag} is for {'commands' if all(runs) else 'runs'}", ctx)
    _log_to_stderr("critical")
    with _report_file(output, sys.stdout) as file:
        if all(runs):
            from pipelined.analysis.comparison import compare_runs

            first, second = (_recorded_run(word, state_directory) for word in command)
            found = compare_runs(first, second)
        else:
            found = _compare_commands(command, plan, color)
        try:
            if as_json:
                import json

                from pipelined.analysis.comparison import comparison_as_dict

                json.dump(comparison_as_dict(found), file, indent=2)
                file.write("\n")
            else:
                from pipelined.terminal.comparison_report import render

                render(found, _console(file, color))
            file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UserError(f"cannot write {output or 'the report'}: {why(error)}") from None
    return 0


def _was_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE


def _compare_commands(commands: tuple[str, ...], plan: Mapping[str, Any], color: str) -> Comparison:
    from pipelined.run.trials import Plan, run_trials
    from pipelined.terminal.comparison_report import progress

    console = _console(sys.stderr, color)
    return run_trials(Plan(commands, **plan), show_progress=lambda total: progress(console, total))


def _recorded_run(word: str, state_directory: Path | None) -> Run:
    """The run that a word of `compare` names. Raises UserError when there is none."""
    if word.endswith(".json"):
        return _run_from_file(Path(word))
    return _recorded(state_directory).run(word).run


def _run_from_file(path: Path) -> Run:
    """The first run of a report by `run --json`, or the run that `show --json` described."""
    import json

    from pipelined.schema import run_from_dict

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        runs = document.get("runs", [document])
        if runs:
            return run_from_dict(runs[0])
        reason, hint = "it has no run", "give the report of a command with a pipeline"
    except OSError as error:
        reason, hint = why(error), "name a file that can be read"
    except (KeyError, TypeError, ValueError, AttributeError):
        reason, hint = "it describes no run", "write one with: pipelined run --json -o FILE"
    raise UserError(f"cannot read a run from {path}: {reason}", hint)


@cli.command(
    "runs",
    epilog="""\b
Examples:
  sudo pipelined runs
  sudo pipelined runs --since 2h --command sort
  sudo pipelined runs --finding barrier --since 2026-11-21 --json

Reads the history itself: the daemon need not run. The newest start comes first.""",
)
@click.option("--pipeline", metavar="SIGNATURE", help="Runs with exactly this signature.")
@click.option("--unit", metavar="UNIT", help="Runs of this systemd unit or cgroup.")
@click.option("--finding", metavar="ID", help="Runs that have this finding.")
@click.option("--command", metavar="NAME", help="Runs with a stage of this name.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Started then or later: 2h (ago), 2026-11-21, '2026-11-21 03:00'.",
)
@click.option("--until", metavar="WHEN", help="Started before.")
@click.option(
    "--limit",
    metavar="COUNT",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="At most so many runs.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for machines.")
@_state_directory
@_color
def list_runs(
    state_directory: Path | None,
    since: str | None,
    until: str | None,
    limit: int,
    as_json: bool,
    color: str,
    **searched: Any,
) -> None:
    """List finished runs that the daemon has recorded."""
    searched |= {"since": _moment("--since", since), "until": _moment("--until", until)}
    # One more tells whether there are more.
    found = _recorded(state_directory).runs(**searched, limit=limit + 1)
    shown, more = found[:limit], len(found) > limit
    if as_json:
        import json

        from pipelined.history.history import summary_as_dict

        described = [summary_as_dict(run) for run in shown]
        click.echo(
            json.dumps({"runs": described, "next": shown[-1].id if more else None}, indent=2)
        )
        return
    if not shown:
        click.echo("no finished run fits" if any(searched.values()) else "no run yet")
        return
    import time

    from pipelined.terminal.history_report import run_table
    from pipelined.terminal.run_report import MIN_WIDTH, is_ascii

    console = _console(sys.stdout, color)
    width = max(MIN_WIDTH, console.width)
    for line in run_table(shown, width, time.time(), ascii_only=is_ascii(console)):
        console.print(line, soft_wrap=True, highlight=False)
    if more:
        console.print(f"There are more: --limit {2 * limit}", highlight=False)


def _moment(flag: str, text: str | None) -> float | None:
    from pipelined.history.history import moment

    try:
        return None if text is None else moment(text)
    except ValueError as error:
        raise click.UsageError(f"{flag}: {error}") from None


def _recorded(state_directory: Path | None) -> History:
    """The history as the daemon left it in this directory, for reading."""
    from pipelined.analysis.machine import Host
    from pipelined.history.history import History, default_directory

    return History(state_directory or default_directory(os.environ), host=Host.read())


@cli.command(
    epilog="""\b
Examples:
  sudo pipelined show
  sudo pipelined show 1763736801204
  sudo pipelined show last --json > run.json""",
)
@click.option("--json", "as_json", is_flag=True, help="Report as JSON, for machines.")
@_state_directory
@_color
@click.argument("run", default="last")
def show(run: str, as_json: bool, state_directory: Path | None, color: str) -> None:
    """Show the report of a recorded run.

    RUN is an id that pipelined runs lists, or as much of its beginning as tells it from the
    others, or last (which it is if not given): the run that ended last.
    """
    found = _recorded(state_directory).run(run)
    if as_json:
        import json

        from pipelined.analysis.machine import Host
        from pipelined.model.timeline import timeline_as_dict
        from pipelined.schema import describe_run

        # What was not to be shown has not been recorded.
        recorded = any(stage.arguments is not None for stage in found.run.stages)
        described = describe_run(found.run, Host.read(), show_arguments=recorded)
        described["timeline"] = timeline_as_dict(found.timeline)
        click.echo(json.dumps(described, indent=2))
        return
    from pipelined.terminal.history_report import time_lines
    from pipelined.terminal.run_report import MIN_WIDTH, is_ascii, render

    console = _console(sys.stdout, color)
    render(found.run, console, None)
    width = max(MIN_WIDTH, console.width)
    drawn = time_lines(found.run, found.timeline, width, ascii_only=is_ascii(console))
    for line in [*([""] if drawn else []), *drawn]:
        console.print(line, soft_wrap=True, highlight=False)


@cli.command(
    epilog="""\b
Examples:
  pipelined top
  pipelined top --url http://host1:9905 --interval 5
  pipelined top --url https://host1:9905 --http.config.file client.yml
  pipelined top --once

Needs no root, only a daemon that answers: sudo pipelined serve. q or Ctrl-C leaves.""",
)
@click.option(
    "--url", metavar="URL", default=DEFAULT_URL, show_default=True, help="Where the daemon serves."
)
@click.option(
    "--http.config.file",
    "http_config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Password, CA and client certificate, in the format of promtool's option of that name.",
)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Time between refreshes.",
)
@click.option("--once", is_flag=True, help="Print one picture, plain, and leave.")
@_color
def top(url: str, http_config: Path | None, interval: float, once: bool, color: str) -> None:
    """Show the pipelines that run now, refreshed in place."""
    from pipelined.terminal.api_client import Client, HttpConfig
    from pipelined.terminal.top import run_top

    client = Client(_base_url(url), HttpConfig.read(http_config) if http_config else HttpConfig())
    run_top(
        client.runs,
        _console(sys.stdout, color),
        interval,
        once or not sys.stdout.isatty(),
        host=None if client.is_near else client.host,
    )


def _base_url(url: str) -> str:
    """`url` without a path; `host:port` is enough."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        valid = None
    if not valid or parts.path.strip("/") or parts.query:
        raise click.UsageError(f"--url must be like {DEFAULT_URL}, not {url}")
    return f"{parts.scheme}://{parts.netloc}"


@cli.command(
    epilog="""\b
Examples:
  sudo pipelined doctor
  sudo pipelined doctor --loader bcc
  sudo pipelined doctor && sudo pipelined serve""",
)
@click.option(
    "--loader",
    type=click.Choice(["auto", "libbpf", "bcc"]),
    default="auto",
    show_default=True,
    help="Try this one, as the same option of serve.",
)
@_color
def doctor(loader: str, color: str) -> int:
    """Check whether this host can be watched, and say what to mend.

    Attaches every hook once and lets it go. Exit code 0 only if the daemon would work.
    """
    from pipelined.doctor import checks, exit_code, render
    from pipelined.kernel.loader import default_object, probe_hooks

    _log_to_stderr("critical")
    found = checks(
        bpf_object=default_object(),
        loader=loader,
        probe_hooks=functools.partial(probe_hooks, loader),
    )
    render(found, _console(sys.stdout, color))
    return exit_code(found)


@cli.command(
    epilog="""\b
Examples:
  pipelined completion bash > ~/.local/share/bash-completion/completions/pipelined
  pipelined completion zsh > "${fpath[1]}/_pipelined"
  pipelined completion fish > ~/.config/fish/completions/pipelined.fish""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    completer = get_completion_class(shell)
    assert completer is not None, shell
    script = completer(cli, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE")
    # Not `source()`, which starts a bash to ask for its version.
    click.echo(script.source_template % script.source_vars())


def _console(file: IO[str], color: str) -> Console:
    """A console on `file`; `auto` leaves colours to rich, which honours NO_COLOR."""
    from rich.console import Console

    width = None
    if not file.isatty():
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdigit() and int(columns) > 0 else FILE_WIDTH
    if color == "always":
        return Console(
            file=file, width=width, color_system="standard", force_terminal=True, no_color=False
        )
    if color == "never":
        return Console(file=file, width=width, color_system=None)
    # FORCE_COLOR is for terminals: a file given with -o stays plain.
    return Console(file=file, width=width, force_terminal=None if file.isatty() else False)
