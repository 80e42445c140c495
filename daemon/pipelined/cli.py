# SPDX-License-Identifier: Apache-2.0
"""The commands at the prompt: `pipelined serve`, `run`, `runs`, `show`, `compare`, `top` and so on.

The commands are in `commands/`. One is imported when it is asked for, so that the daemon does
without the others. An error is
one line on stderr. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration file, 130
interrupted; `run` passes on the status of the command that it ran.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections import UserDict
from importlib import import_module
from typing import Any

import click
from click.shell_completion import get_completion_class

from pipelined import __version__
from pipelined.commands.standard_error import DEBUG_VARIABLE, PROGRAM, complain
from pipelined.errors import INTERRUPTED_STATUS, UserError, why

__all__ = ["PROGRAM", "cli", "main"]

_NO_ROOM = "make room there, or write to another place"
#: What to do if the system refuses something wherever it is asked for.
_REFUSED = {
    errno.EMFILE: "allow more: LimitNOFILE= of the service, or `ulimit -n`",
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
}


def main() -> None:
    """Run the command that the arguments name, and exit with its status."""
    # Python sets a stream that was closed to None. The command of `run` still gets it closed.
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 (open until the end)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    sys.exit(_guarded(sys.argv[1:]))


def _guarded(arguments: list[str]) -> int:
    """Run a command and return its exit status; an error becomes one line on stderr."""
    try:
        status = cli.main(args=arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        return complain(_usage(error), error.exit_code)
    except click.ClickException as error:
        return complain(error.format_message(), error.exit_code)
    except UserError as error:
        return complain(str(error), getattr(error, "exit_status", 1))
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED_STATUS
    except BrokenPipeError:
        # The reader of our output has closed it: not an error, and nobody to report it to.
        _write_no_more()
        return 1
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        if isinstance(error, OSError) and (hint := _REFUSED.get(error.errno or 0)):
            _write_no_more()
            return complain(f"{why(error)}; {hint}", 1)
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        report = f"set {DEBUG_VARIABLE}=1, run it again, and report what it prints"
        return complain(f"internal error: {what}; {report}", 1)
    return status if isinstance(status, int) else 0


def _write_no_more() -> None:
    """Nothing that stdout still keeps is written at the end."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: click.UsageError) -> str:
    """What is wrong with the arguments, and which --help to read."""
    message = error.format_message().rstrip(".")
    # Names of options and files stay as they are typed.
    if message[:1].isupper() and message[1:2].islower():
        message = message[0].lower() + message[1:]
    if "--help" in message:
        return message
    return f"{message}; see {error.ctx.command_path if error.ctx else PROGRAM} --help"


class _Commands(UserDict[str, click.Command]):
    """Commands by name, imported when they are asked for."""

    def __getitem__(self, name: str) -> click.Command:
        command = super().__getitem__(name)
        if isinstance(command, str):
            module, _, attribute = command.partition(":")
            command = self[name] = getattr(import_module(f"pipelined.commands.{module}"), attribute)
        return command


#: Where each command is: module below `commands`, and name.
_COMMANDS: dict[str, Any] = {
    "compare": "compare:compare",
    "doctor": "doctor:doctor",
    "export": "export:export",
    "hash-password": "hash_password:hash_password",
    "improve": "improve:improve",
    "pipelines": "recorded_pipelines:list_pipelines",
    "run": "run:run",
    "runs": "recorded_runs:list_runs",
    "serve": "serve:serve",
    "show": "recorded_runs:show",
    "top": "top:top",
}


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(
    commands=_Commands(_COMMANDS),
    context_settings=_CONTEXT,
    invoke_without_command=True,
    epilog="""\b
Examples:
  sudo pipelined run 'zcat access.log.gz | sort | uniq -c'
  sudo pipelined serve
  pipelined top

Watching needs root, or a daemon on this host that has it. Each command has its own --help.""",
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
    epilog="""\b
Examples:
  pipelined completion bash > ~/.local/share/bash-completion/completions/pipelined
  pipelined completion zsh > "${fpath[1]}/_pipelined"
  pipelined completion fish > ~/.config/fish/completions/pipelined.fish""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    completer = get_completion_class(shell)
    assert completer is not None, shell
    script = completer(cli, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE")
    # Not `source()`, which starts a bash to ask for its version.
    click.echo(script.source_template % script.source_vars())
