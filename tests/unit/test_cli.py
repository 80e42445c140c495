# SPDX-License-Identifier: Apache-2.0
"""The commands at the prompt, with a made-up observer: words, exit codes, signals."""

from __future__ import annotations

import base64
import errno
import http.client
import io
import json
import os
import pty
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pipelined.observer
from pipelined import __version__, cli
from pipelined.analysis.machine import Host
from pipelined.commands import standard_error
from pipelined.config import OPTIONS, Address, Config
from pipelined.daemon.announcement import announcement
from pipelined.daemon.serve import serve
from pipelined.errors import NotPermittedError, UserError
from pipelined.history.history import History
from pipelined.http_port.basic_auth import Logins, Verdict
from pipelined.http_port.server import HttpServer
from pipelined.kernel import hooks
from pipelined.kernel.pace import Fine, Steady
from pipelined.run import child, profile
from pipelined.run.child import NotStarted, command_line, execute
from pipelined.run.profile import report_order
from pipelined.runs import Run, Series
from pipelined.runs.codec import read
from pipelined.web.app import create_app
from unit import invented
from unit.invented import START
from unit.observed import FakeObserver, hook

Program = Callable[..., int]


def make_run(name: str, *commands: str, wall: float = 1.0, parent: str | None = None) -> Run:
    stages = [
        invented.make_stage(n, command, end=START + 1, cpu=0.75, pipe_empty=0.25)
        for n, command in enumerate(commands, 1)
    ]
    return invented.make_run(
        stages,
        wall,
        id=name,
        series=Series(pipeline="|".join(commands), nested=parent is not None, unit="-"),
        end=START + wall,
        parent=parent,
    )


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PIPELINED_DEBUG", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    # The log of this process is the test runner's.
    monkeypatch.setattr(standard_error, "log_to_stderr", lambda level: None)


@pytest.fixture
def program() -> Program:
    """Runs `pipelined` with the given words and returns its exit status."""
    return lambda *words: cli._guarded(list(words))


@pytest.fixture
def observe(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeObserver]:
    """Makes `run` see the given runs."""

    def see(*runs: Run, lost: int = 0) -> FakeObserver:
        observer = FakeObserver(*runs)
        observer.lost_stages, observer.other_losses = lost, {"pipes": 0}
        opener = SimpleNamespace(open=lambda config, *, own_only, all_alone, pace: observer)
        monkeypatch.setattr(pipelined.observer, "Observer", opener)
        return observer

    return see


# -- the program as a whole


def test_version(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    assert program("--version") == 0
    assert capsys.readouterr().out == f"pipelined {__version__}\n"


@pytest.mark.parametrize(
    "command", ["serve", "run", "top", "doctor", "hash-password", "completion"]
)
def test_help_of_every_command_has_examples(
    program: Program, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert program(command, "--help") == 0
    text = capsys.readouterr().out
    assert "Examples:\n" in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_help_of_serve_has_every_option(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    program("serve", "--help")
    text = capsys.readouterr().out
    assert [option.flag for option in OPTIONS if f"  {option.flag} " not in text] == []


@pytest.mark.parametrize(
    "command", ["run", "compare", "improve", "runs", "show", "pipelines", "top", "export"]
)
def test_what_asks_a_daemon_takes_its_address_from_the_environment_too(
    program: Program, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert program(command, "--help") == 0
    shown = "".join(capsys.readouterr().out.split())
    for variable in ("PIPELINED_URL", "PIPELINED_HTTP_CONFIG_FILE"):
        assert f"[envvar:{variable}" in shown


def test_a_wrong_address_in_the_environment_is_named_as_such(
    program: Program, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINED_URL", "ftp://host")
    assert program("top") == 2
    assert "PIPELINED_URL must be like http://127.0.0.1:9905" in capsys.readouterr().err


@pytest.mark.parametrize("from_environment", [False, True])
@pytest.mark.parametrize(
    "address",
    [
        "http://alice:hunter2@db1:9905",
        "alice:hunter2@db1:9905",
        "https://hunter2@db1",
        "ftp://alice:hunter2@db1/x",
        "http://alice:hunter2/[?@db1:9905",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_shown(
    program: Program,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    from_environment: bool,
) -> None:
    name, words = "--url", ["--url", address]
    if from_environment:
        name, words = "PIPELINED_URL", []
        monkeypatch.setenv(name, address)
    assert program("runs", "--follow", *words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"pipelined: {name} must have no user or password: ")
    assert error.count("\n") == 1 and "hunter2" not in error


@pytest.mark.parametrize(
    "words",
    [
        ["run", "true"],
        ["compare", "true", "false"],
        ["improve", "last"],
        ["runs"],
        ["show", "last"],
        ["pipelines"],
        ["top"],
        ["export"],
    ],
    ids=" ".join,
)
def test_every_command_refuses_an_address_with_a_password(
    program: Program, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert program(words[0], "--url", "http://alice:hunter2@db1:9905", *words[1:]) == 2
    assert "hunter2" not in capsys.readouterr().err


def test_without_a_command_the_help_goes_to_stderr(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program() == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("Usage: pipelined ")


def test_help_loads_neither_server_nor_terminal_library() -> None:
    code = """
        import sys
        from pipelined.cli import _guarded
        assert _guarded(["--help"]) == 0
        heavy = {"flask", "rich", "prometheus_client", "asyncio", "ctypes"}
        sys.exit(f"loaded: {heavy & set(sys.modules)}" if heavy & set(sys.modules) else 0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run"], "missing argument"),
        (["serve", "--sweep-intervall", "1s"], "--sweep-intervall"),
        (["serve", "--sweep-interval", "1 banana"], "--sweep-interval must be a duration"),
        (["serve", "--web.listen-address", "here"], "--web.listen-address must be HOST:PORT"),
        (["top", "--interval", "0"], "0"),
        (["top", "--url", "ftp://host"], "--url must be like http://127.0.0.1:9905"),
        (["top", "--url", "http://host:port"], "--url must be like http://127.0.0.1:9905"),
        (["completion", "csh"], "csh"),
        (["run", "--shell", "zsh", "a", "b"], "one quoted string"),
        (["run", "--color", "blue", "a"], "blue"),
        (["watch"], "watch"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    program: Program, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    assert program(*words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("pipelined: ")
    assert printed.err.count("\n") == 1
    assert expected in printed.err
    assert "--help" in printed.err


def test_a_wrong_config_file_is_one_line_with_file_and_line(
    program: Program, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "p.toml"
    file.write_text("[web]\nlisten-adress = ':1'\n")
    assert program("serve", "--config", str(file)) == 2
    error = capsys.readouterr().err
    assert error == (
        f"pipelined: {file}:2: unknown key web.listen-adress;"
        " did you mean listen-address under [web]?\n"
    )


# -- checking the configuration without starting


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A configuration file, and the web configuration that it names."""
    web, file = tmp_path / "web.yml", tmp_path / "p.toml"
    web.write_text("http_server_config: {http2: false}\n")
    file.write_text(f'max-stages = 5\n[web]\nconfig.file = "{web}"\n')
    return file, web


def test_checking_names_each_file_that_is_right(
    program: Program, capsys: pytest.CaptureFixture[str], files: tuple[Path, Path]
) -> None:
    file, web = files
    assert program("serve", "--check-config", "--config", str(file)) == 0
    assert capsys.readouterr() == (f"{file}: ok\n{web}: ok\n", "")


def test_checking_starts_and_binds_nothing(
    program: Program, monkeypatch: pytest.MonkeyPatch, files: tuple[Path, Path]
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("started")

    monkeypatch.setattr("pipelined.daemon.serve.serve", started)
    monkeypatch.setattr(socket.socket, "bind", started)
    assert program("serve", "--check-config", "--config", str(files[0])) == 0


@pytest.mark.parametrize("words", [("--check-config",), ()])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("basic_auth_users: {alice: secret}\n", "{}:1: basic_auth_users: what alice has is no bc"),
        ("tls_server_config: {cert_file: a}\n", "{}:1: tls_server_config has no key_file"),
        ("tls_server_config: {cert_file: a, key_file: a}\n", "{}:1: cannot read cert_file "),
        ("tls_server_config: {cert: no, key: no}\n", "{}:1: cert: holds no certificate"),
        ('tls_server_config: {cert_file: "\\0", key_file: a}\n', "{}:1: cert_file must be the "),
        ("[\n", "{}:2: not YAML: "),
        (None, "cannot read {}: no such file or directory"),
    ],
)
def test_an_error_in_the_web_config_is_one_line_and_status_2(
    program: Program,
    capsys: pytest.CaptureFixture[str],
    files: tuple[Path, Path],
    words: tuple[str, ...],
    text: str | None,
    expected: str,
) -> None:
    file, web = files
    if text is None:
        web.unlink()
    else:
        web.write_text(text)
    assert program("serve", "--config", str(file), *words) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith(f"pipelined: {expected.format(web)}")
    assert error.count("\n") == 1


def test_a_port_for_others_without_a_password_is_one_line_and_status_2(
    program: Program, capsys: pytest.CaptureFixture[str], files: tuple[Path, Path]
) -> None:
    file, web = files
    file.write_text('[web]\nlisten-address = ":9905"\n')
    for words in (("--check-config",), (), ("--web.config.file", str(web))):
        assert program("serve", "--config", str(file), *words) == 2
        out, error = capsys.readouterr()
        assert out == ""
        assert error.startswith("pipelined: will not listen on 0.0.0.0:9905 without a password: ")
        assert error.count("\n") == 1
    file.write_text('[web]\nlisten-address = ":9905"\nallow-unauthenticated = true\n')
    assert program("serve", "--config", str(file), "--check-config") == 0
    refused = ("--no-web.allow-unauthenticated", "--check-config")
    assert program("serve", "--config", str(file), *refused) == 2


def test_checking_without_a_file_is_wrong_usage(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("serve", "--check-config") == 2
    assert "give --config or --web.config.file" in capsys.readouterr().err


def test_a_wrong_client_configuration_is_status_2_also_without_privileges(
    program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(**_: Any) -> Any:
        raise NotPermittedError("cannot load BPF programs: not root", "run it with sudo")

    monkeypatch.setattr("pipelined.run.profile.open_private", refused)
    assert program("run", "--http.config.file", "/lost.yml", "true") == 2
    assert "cannot read /lost.yml: no such file or directory" in capsys.readouterr().err


def test_an_internal_error_is_one_line(
    program: Program, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "command_line", lambda *_, **__: 1 / 0)
    assert program("run", "true") == 1
    error = capsys.readouterr().err
    assert error.startswith("pipelined: internal error: ZeroDivisionError: division by zero; set ")
    assert error.count("\n") == 1


def test_an_error_sends_no_control_codes_to_the_terminal(
    program: Program, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise UserError("no run of cat|\x1b]0;evil\x07x\udce9", "see\nthere \x9b2J")

    monkeypatch.setattr(child, "command_line", refused)
    assert program("run", "true") == 1
    assert capsys.readouterr().err == "pipelined: no run of cat|?]0;evil?x?; see there ?2J\n"


def test_a_line_of_the_log_sends_no_control_codes_either() -> None:
    code = (
        "import logging; from pipelined.commands.standard_error import log_to_stderr;"
        "log_to_stderr('info'); logging.info('the daemon answers: %s', 'a\x1b[2J\\n  b')"
    )
    logged = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert logged.stderr.endswith(b"the daemon answers: a?[2J\n  b\n")


def test_too_few_files_are_no_internal_error(
    program: Program, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "usual.py")

    monkeypatch.setattr(child, "command_line", refused)
    assert program("run", "true") == 1
    assert capsys.readouterr().err == (
        "pipelined: too many open files; allow more: LimitNOFILE= of the service, or `ulimit -n`\n"
    )


MAIN = "from pipelined.cli import main; main()"


def redirected(redirection: str, *words: str, main: str = MAIN) -> tuple[int, str]:
    """Exit status and stderr of a process that a shell starts with this redirection."""
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", main]
    ended = subprocess.run([*shell, *words], check=False, capture_output=True, text=True)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    "words", [("--version",), ("completion", "bash"), ("hash-password", "--cost=4")]
)
def test_output_that_finds_no_room_is_no_internal_error(words: tuple[str, ...]) -> None:
    assert redirected("< /etc/passwd > /dev/full", *words) == (
        1,
        "pipelined: no space left on device; make room there, or write to another place\n",
    )


def test_a_quota_is_no_internal_error(
    program: Program, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(child, "command_line", full)
    assert program("run", "true") == 1
    assert capsys.readouterr().err.startswith("pipelined: disk quota exceeded; make room")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("hash-password",), "the password is empty; give it as the first line of the input"),
        (("improve", "true < /dev/null | wc"), "if that does no harm, add --yes"),
    ],
)
def test_a_closed_input_is_an_empty_one(words: tuple[str, ...], error: str) -> None:
    status, printed = redirected("<&-", *words)
    assert status == 1
    assert error in printed
    assert "internal" not in printed


def test_the_keys_of_top_need_no_input() -> None:
    keys = (
        "from pipelined import cli; from pipelined.terminal import keys; import sys;"
        "cli._guarded = lambda _: len(keys.single_keys(sys.stdin).__enter__()(0)); cli.main()"
    )
    assert redirected("<&-", main=keys) == (0, "")


@pytest.mark.parametrize(
    ("redirection", "closed"), [("<&-", "0"), ("<&- >&-", "[01]"), (">&- 2>&-", "[12]")]
)
def test_what_is_closed_is_closed_for_the_command_too(redirection: str, closed: str) -> None:
    execute = (
        "from pipelined import cli; from pipelined.run.child import execute; import sys;"
        "cli._guarded = lambda words: execute(words).status; cli.main()"
    )
    command = f"for fd in /proc/$$/fd/{closed}; do [ -e $fd ] && exit 3; done; exit 4"
    assert redirected(redirection, "sh", "-c", command, main=execute) == (4, "")


def test_an_internal_error_shows_its_traceback_if_asked(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINED_DEBUG", "1")
    monkeypatch.setattr(child, "command_line", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        program("run", "true")


def test_ctrl_c_leaves_no_traceback(
    program: Program, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(child, "command_line", interrupted)
    assert program("run", "true") == 130
    assert capsys.readouterr().err.strip() == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(
    program: Program, capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    assert program("completion", shell) == 0
    assert "_PIPELINED_COMPLETE" in capsys.readouterr().out


def test_the_completion_script_completes_in_bash(
    program: Program, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program("completion", "bash")
    script = tmp_path / "completion"
    script.write_text(capsys.readouterr().out)
    stub = tmp_path / "pipelined"
    stub.write_text(
        f"#!{sys.executable}\nimport sys\nfrom pipelined.cli import main\nsys.exit(main())\n"
    )
    stub.chmod(0o755)
    asked = f"""
        source {script}
        COMP_WORDS=(pipelined serve --web.l) COMP_CWORD=2
        _pipelined_completion pipelined && echo "${{COMPREPLY[@]}}"
    """
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    answer = subprocess.run(["bash", "-c", asked], env=environment, capture_output=True, text=True)
    assert answer.stdout.strip() == "--web.listen-address"


# -- run: what is executed


def test_one_string_goes_to_bash() -> None:
    assert command_line(["a | b"]) == ("bash", "-c", "a | b")


def test_without_bash_one_string_goes_to_sh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert command_line(["a | b"]) == ("sh", "-c", "a | b")


def test_a_shell_can_be_named() -> None:
    assert command_line(["a |& b"], shell="zsh") == ("zsh", "-c", "a |& b")


def test_several_words_are_executed_as_they_are(
    program: Program, observe: Callable[..., FakeObserver], capfd: pytest.CaptureFixture[str]
) -> None:
    observe()
    assert program("run", "printf", "%s.", "a b", "$HOME", "--json") == 0
    assert capfd.readouterr().out == "a b.$HOME.--json."


def test_one_word_behind_two_dashes_is_executed_as_it_is(
    program: Program, observe: Callable[..., FakeObserver], tmp_path: Path
) -> None:
    observe()
    script = tmp_path / "my script; exit 1"
    script.write_text("#!/bin/sh\nexit 7\n")
    script.chmod(0o755)
    assert program("run", "--", str(script)) == 7


@pytest.mark.parametrize(
    ("command", "status"),
    [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -PIPE $$", 141), ("nosuch", 127)],
)
def test_the_exit_status_passes_through(
    program: Program, observe: Callable[..., FakeObserver], command: str, status: int
) -> None:
    observe(make_run("1", "cat", "awk"))
    assert program("run", command) == status


def test_a_command_that_is_not_there_is_127(
    program: Program, observe: Callable[..., FakeObserver], capsys: pytest.CaptureFixture[str]
) -> None:
    observer = observe()
    assert program("run", "--", "no-such-command") == 127
    assert capsys.readouterr().err == (
        "pipelined: cannot run no-such-command: not found; check its name and PATH\n"
    )
    assert observer.calls[-1] == "close"


@pytest.mark.parametrize(
    ("text", "status"), [("ls | wc -l", 127), ("ls>files", 127), (f"ls {'x' * 300} | wc -l", 126)]
)
def test_text_for_a_shell_behind_two_dashes_is_recognized(
    program: Program,
    observe: Callable[..., FakeObserver],
    capsys: pytest.CaptureFixture[str],
    text: str,
    status: int,
) -> None:
    observe()
    assert program("run", "--", text) == status
    assert capsys.readouterr().err.endswith(
        "; it looks like text for a shell: leave out the --, and a shell runs it\n"
    )


def test_a_command_that_may_not_run_is_126(
    program: Program, observe: Callable[..., FakeObserver], tmp_path: Path
) -> None:
    observe()
    file = tmp_path / "data"
    file.write_text("data")
    assert program("run", "--", str(file)) == 126


def test_without_an_observer_the_command_is_not_started(
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def refuse(config: Config, **_: Any) -> FakeObserver:
        raise UserError("cannot load BPF programs: not root", "run it with sudo")

    monkeypatch.setattr(pipelined.observer, "Observer", SimpleNamespace(open=refuse))
    started = tmp_path / "started"
    assert program("run", f"touch {started}") == 1
    assert not started.exists()
    assert capsys.readouterr().err == (
        "pipelined: cannot load BPF programs: not root; run it with sudo\n"
    )


def test_a_report_that_cannot_be_written_stops_it_before_the_command(
    program: Program,
    observe: Callable[..., FakeObserver],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    observe()
    started = tmp_path / "started"
    assert program("run", "-o", str(tmp_path / "no" / "file"), f"touch {started}") == 1
    assert not started.exists()
    assert "cannot write" in capsys.readouterr().err


def test_a_full_disk_does_not_change_the_exit_status(
    program: Program, observe: Callable[..., FakeObserver], capsys: pytest.CaptureFixture[str]
) -> None:
    observe(make_run("1", "cat", "awk"))
    assert program("run", "-o", "/dev/full", "exit 5") == 5
    assert "cannot write /dev/full: no space left on device" in capsys.readouterr().err


def test_the_observer_is_private_and_watches_this_process(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = []

    def note(
        config: Config, *, own_only: bool, all_alone: bool, pace: Steady | None
    ) -> FakeObserver:
        assert all_alone
        assert isinstance(pace, Fine)
        watched.append(own_only)
        return FakeObserver()

    monkeypatch.setattr(pipelined.observer, "Observer", SimpleNamespace(open=note))
    program("run", "true")
    assert watched == [True]


# -- run: what the command is given


EXECUTE = """
import sys
from pipelined.run.child import execute
sys.exit(execute(sys.argv[1:]).status)
"""


def run_execute(
    *arguments: str, wrapper: tuple[str, ...] = (), **popen: Any
) -> subprocess.Popen[str]:
    """`execute` in a process of its own, which exits with the status."""
    return subprocess.Popen(
        [*wrapper, sys.executable, "-c", EXECUTE, *arguments],
        text=True,
        stdout=subprocess.PIPE,
        **popen,
    )


def test_input_and_output_are_the_commands_own() -> None:
    with run_execute("tr", "a-z", "A-Z", stdin=subprocess.PIPE) as process:
        assert process.communicate("text\n")[0] == "TEXT\n"
        assert process.returncode == 0


def test_descriptors_reach_the_command(tmp_path: Path) -> None:
    file = tmp_path / "third"
    wrapper = ("sh", "-c", f'exec 3>{file} && exec "$@"', "sh")
    with run_execute("sh", "-c", "echo third >&3", wrapper=wrapper) as process:
        process.communicate()
    assert file.read_text() == "third\n"


def test_the_command_starts_with_no_signal_blocked_or_ignored() -> None:
    with run_execute("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status") as process:
        out = process.communicate()[0]
    assert [signal_set(text) for text in out.split()[1::2]] == [set(), set()]


def signal_set(text: str) -> set[int]:
    """Signals of a line of /proc/PID/status, but for the two that the C library keeps (32, 33)."""
    return {number for number in range(1, 32) if int(text, 16) >> (number - 1) & 1}


def test_a_broken_pipe_kills_the_command_silently() -> None:
    with run_execute("sh", "-c", "yes | head -n 1", stderr=subprocess.PIPE) as process:
        assert process.communicate() == ("y\n", "")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    with run_execute(
        "grep", "SigIgn", "/proc/self/status", wrapper=("nohup",), stdin=subprocess.DEVNULL
    ) as process:
        out = process.communicate()[0]
    assert signal_set(out.split()[1]) == {signal.SIGHUP}


def test_a_parent_that_ignores_its_children_does_not_hide_the_status() -> None:
    wrapper = (sys.executable, "-c", "import os, signal, sys\n"
               "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
               "os.execvp(sys.argv[1], sys.argv[1:])")  # fmt: skip
    with run_execute("sh", "-c", "exit 4", wrapper=wrapper) as process:
        process.communicate()
        assert process.returncode == 4


COUNT_SIGNALS = """
trap 'echo {name}' {name}
echo ready
end=$((SECONDS + 60))
while [ "$SECONDS" -lt "$end" ] && ! [ -e "$1" ]; do sleep 0.02; done
exit 3
"""


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"])
def test_a_signal_sent_to_us_reaches_the_command_once(name: str, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    script = COUNT_SIGNALS.format(name=name)
    with run_execute("bash", "-c", script, "bash", str(stop)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.Signals[f"SIG{name}"])
        assert process.stdout.readline() == f"{name}\n"
        stop.touch()
        assert process.communicate()[0] == ""
        assert process.returncode == 3


def test_of_two_signals_in_a_row_each_reaches_the_command(tmp_path: Path) -> None:
    """The second one may be meant: the first may have been for a clean-up."""
    stop = tmp_path / "stop"
    script = COUNT_SIGNALS.format(name="TERM")
    with run_execute("bash", "-c", script, "bash", str(stop)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(2):
            process.terminate()
            assert process.stdout.readline() == "TERM\n"
        stop.touch()
        assert process.communicate()[0] == ""


def test_a_command_that_dies_of_the_signal_gives_128_and_its_number() -> None:
    with run_execute("sh", "-c", "echo ready; exec sleep 10") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        process.communicate()
        assert process.returncode == 128 + signal.SIGTERM


def test_a_command_that_may_not_be_sent_a_signal_has_its_own_exit_status() -> None:
    """As sudo's, to which only root may send one."""
    refused = "import os\ndef kill(*_): raise PermissionError(1, 'not permitted')\nos.kill = kill\n"
    words = ("sh", "-c", "echo ready; sleep 0.3; exit 3")
    with subprocess.Popen(
        [sys.executable, "-c", refused + EXECUTE, *words], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.wait(30) == 3


LEAVE_GROUP = """
import os, sys
os.setpgid(0, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize(
    "wrapper",
    [
        pytest.param([], id="in our process group"),
        pytest.param([sys.executable, "-c", LEAVE_GROUP], id="in its own, as timeout is"),
    ],
)
def test_ctrl_c_of_the_terminal_reaches_the_command_once(
    wrapper: list[str], tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    child, terminal = pty.fork()
    if child == 0:
        script = COUNT_SIGNALS.format(name="INT")
        command = [*wrapper, "bash", "-c", script, "bash", str(stop)]
        os.execv(sys.executable, [sys.executable, "-c", EXECUTE, *command])
    try:
        printed = read_until(terminal, b"ready")
        os.write(terminal, b"\x03")
        printed += read_until(terminal, b"INT")
        time.sleep(0.2)  # long enough for another one to show
        stop.touch()
        printed += read_until(terminal, None)
        assert printed.count(b"INT") == 1
    finally:
        _, status = os.waitpid(child, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 3


def test_a_terminal_that_goes_away_reaches_the_command_through_the_leader_of_its_session(
    tmp_path: Path,
) -> None:
    """As behind `ssh -t HOST pipelined run`: the kernel hangs up on us alone."""
    seen = tmp_path / "seen"
    child, terminal = pty.fork()
    if child == 0:
        script = f"trap 'echo HUP >> {seen}; exit 3' HUP\n{COUNT_SIGNALS.format(name='USR1')}"
        os.execv(sys.executable, [sys.executable, "-c", EXECUTE, "bash", "-c", script])
    try:
        read_until(terminal, b"ready")
    finally:
        os.close(terminal)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert seen.read_text() == "HUP\n"


def read_until(descriptor: int, wanted: bytes | None) -> bytes:
    """What comes up to and with `wanted`, or to the end of the terminal."""
    read = b""
    while wanted is None or wanted not in read:
        try:
            chunk = os.read(descriptor, 1024)
        except OSError:
            break
        if not chunk:
            break
        read += chunk
    return read


def test_after_the_command_our_own_signals_are_as_before() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    execute(["true"])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_threads_started_meanwhile_never_get_a_signal() -> None:
    blocked: set[int] = set()

    def note() -> None:
        blocked.update(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    execute(["true"], before_start=note)
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD} <= blocked


def test_a_thread_that_takes_our_sigchld_does_not_hide_the_end_of_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start_and_be_slow(*given: Any) -> int:
        pid = started(*given)
        time.sleep(0.1)  # the command ends before we wait for it
        return pid

    started = child.start
    monkeypatch.setattr(child, "start", start_and_be_slow)
    monkeypatch.setattr(child, "CHECK_INTERVAL", 0.05)
    done = threading.Event()
    thread = threading.Thread(target=done.wait)  # with SIGCHLD not blocked
    thread.start()
    try:
        assert execute(["sh", "-c", "exit 3"]).status == 3
    finally:
        done.set()
        thread.join()


def test_times_are_those_of_the_command_and_of_what_it_waited_for() -> None:
    compute = "import time\nwhile time.process_time() < 0.2: pass"
    before = time.time()
    ended = execute(["sh", "-c", f"{sys.executable} -c '{compute}'; sleep 0.3"])
    assert before <= ended.start <= time.time() - ended.wall_seconds
    assert ended.wall_seconds >= ended.cpu_seconds + 0.3 >= 0.5


def test_a_missing_program_says_so() -> None:
    with pytest.raises(NotStarted) as error:
        execute(["no-such-program"])
    assert error.value.exit_status == 127


# -- run: what is reported


def test_the_report_goes_to_stderr_and_nothing_to_stdout(
    program: Program, observe: Callable[..., FakeObserver], capfd: pytest.CaptureFixture[str]
) -> None:
    observe(make_run("1", "cat", "awk"))
    program("run", "echo output")
    printed = capfd.readouterr()
    assert printed.out == "output\n"
    assert printed.err.startswith("cat|awk   1.0 s wall")


def test_a_report_can_go_to_a_file(
    program: Program,
    observe: Callable[..., FakeObserver],
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    observe(make_run("1", "cat", "awk"))
    file = tmp_path / "report"
    program("run", "-o", str(file), "true")
    assert file.read_text().startswith("cat|awk   1.0 s wall")
    assert capfd.readouterr().err == ""


def test_json_has_every_run_and_what_was_lost(
    program: Program, observe: Callable[..., FakeObserver], tmp_path: Path
) -> None:
    runs = [make_run(str(n), "cat", "awk", wall=9 - n) for n in range(5)]
    observe(*runs, lost=2)
    file = tmp_path / "report.json"
    program("run", "--json", "-o", str(file), "true")
    document = json.loads(file.read_text())
    assert [read(Run, run) for run in document["runs"]] == runs
    assert document["lost"] == {"stages": 2, "pipes": 0, "runs": 0}


def test_json_without_a_pipeline_is_still_json(
    program: Program, observe: Callable[..., FakeObserver], capfd: pytest.CaptureFixture[str]
) -> None:
    observe()
    program("run", "--json", "true")
    assert json.loads(capfd.readouterr().err)["runs"] == []


def test_no_pipeline_is_said_in_one_line_with_the_mend(
    program: Program, observe: Callable[..., FakeObserver], capfd: pytest.CaptureFixture[str]
) -> None:
    observe()
    assert program("run", "true") == 0
    assert re.fullmatch(
        r"pipelined: no pipeline seen: in \S+ m?s with \S+ [mµ]?s of CPU no two processes of the"
        r" command were joined by a pipe, and none read 64 KiB or computed for 0\.1 s alone;"
        r" quote the whole pipeline: pipelined run 'a \| b'\n",
        capfd.readouterr().err,
    )


def test_no_pipeline_because_of_losses_is_said(
    program: Program, observe: Callable[..., FakeObserver], capfd: pytest.CaptureFixture[str]
) -> None:
    observe(lost=3)
    program("run", "a | b")
    assert "3 events were lost" in capfd.readouterr().err


def test_a_few_runs_are_each_reported_in_full(
    program: Program, observe: Callable[..., FakeObserver], capfd: pytest.CaptureFixture[str]
) -> None:
    observe(make_run("1", "a", "b"), make_run("2", "c", "d", wall=2.0))
    program("run", "true")
    report = capfd.readouterr().err
    headlines = [line.split()[0] for line in report.splitlines() if "used   overlap" in line]
    assert headlines == ["c|d", "a|b"]
    assert report.startswith("true   ")


def test_many_runs_are_lines_and_the_longest_ones_reported(
    program: Program, observe: Callable[..., FakeObserver], capfd: pytest.CaptureFixture[str]
) -> None:
    inner = [make_run(f"i{n}", "seq", "wc", wall=3.0, parent="0") for n in range(1000)]
    observe(*inner, make_run("0", "job", "tee", wall=2.0))
    program("run", "true")
    report = capfd.readouterr().err
    assert "\njob|tee   2.0 s wall" in report
    assert "1,001 runs cover" in report
    assert "  └ 1,000 × seq|wc  " in report
    assert report.count("\nseq|wc   3.0 s wall") == 1
    assert len(report.splitlines()) < 50


def test_outer_pipelines_come_before_longer_inner_ones() -> None:
    inner = make_run("1", "a", "b", wall=9.0, parent="2")
    outer = make_run("2", "c", "d", wall=1.0)
    other = make_run("3", "e", "f", wall=2.0)
    assert report_order([inner, outer, other]) == [other, outer, inner]


def test_runs_that_claim_to_lie_in_each_other_are_still_ordered() -> None:
    runs = [make_run("1", "a", "b", parent="2"), make_run("2", "c", "d", parent="1")]
    assert len(report_order(runs)) == 2


@pytest.mark.parametrize(
    ("color", "coloured"), [("always", True), ("never", False), ("auto", False)]
)
def test_colours_are_as_asked(
    program: Program,
    observe: Callable[..., FakeObserver],
    capfd: pytest.CaptureFixture[str],
    color: str,
    coloured: bool,
) -> None:
    observe(make_run("1", "cat", "awk"))
    program("run", "--color", color, "true")
    assert ("\x1b[" in capfd.readouterr().err) is coloured


def test_stages_that_outlive_the_command_are_waited_for(
    program: Program, observe: Callable[..., FakeObserver], capfd: pytest.CaptureFixture[str]
) -> None:
    finished = make_run("1", "cat", "gzip")
    observer = observe(replace(finished, end=None))
    settled = []

    def settle() -> None:
        settled.append(1)
        if len(settled) == 3:
            observer.seen = [finished]

    observer.settle = settle  # type: ignore[method-assign]
    program("run", "true")
    assert "1.0 s wall" in capfd.readouterr().err


def test_stages_that_go_on_are_reported_so_far(
    program: Program,
    observe: Callable[..., FakeObserver],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profile, "GRACE", 0.05)
    observe(replace(make_run("1", "cat", "gzip"), end=None))
    program("run", "true")
    assert "1.0 s so far" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["grep x /dev/null | wc -l"], True),
        (["--json", "grep x /dev/null | wc -l"], True),
        (["--shell", "sh", "grep x /dev/null | wc -l"], False),
        (["grep x /dev/null | wc -l; true"], False),
        (["--", "sh", "-c", "grep x /dev/null | wc -l"], False),
    ],
)
def test_a_finding_about_a_command_that_is_known_ends_with_one_to_paste(
    program: Program,
    observe: Callable[..., FakeObserver],
    capfd: pytest.CaptureFixture[str],
    words: list[str],
    offered: bool,
) -> None:
    values: dict[str, Any] = {"read_bytes": 1 << 24, "end": invented.START + 10}
    stages = [
        invented.make_stage(1, "grep", cpu=8.0, system_seconds=1.0, **values),
        invented.make_stage(2, "wc", cpu=2.0, **values),
    ]
    observe(invented.make_run(stages, 10.0, end=invented.START + 10))
    program("run", *words)
    printed = capfd.readouterr().err
    assert "grep -c in place of grep | wc -l" in printed
    command = "pipelined compare 'grep x /dev/null | wc -l' 'grep -c x /dev/null'"
    assert (command in printed) == offered


def test_a_locale_that_is_not_installed_sorts_bytes(
    program: Program,
    observe: Callable[..., FakeObserver],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values: dict[str, Any] = {"end": invented.START + 10}
    stages = [
        invented.make_stage(1, "sort", cpu=8.0, **values),
        invented.make_stage(2, "cat", cpu=0.1, **values),
    ]
    observe(invented.make_run(stages, 10.0, end=invented.START + 10))
    program("run", "--shell", "sh", "sort /dev/null | cat")  # nothing is known of it
    assert "LC_ALL=C sort" in capfd.readouterr().err
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    program("run", "sort /dev/null | cat")
    assert "LC_ALL=C sort" not in capfd.readouterr().err


# -- top


@pytest.fixture
def daemon() -> Iterator[str]:
    """Address of a daemon that knows two runs."""
    live = replace(make_run("1", "cat", "sort"), end=None)
    observer: Any = FakeObserver(live, make_run("2", "seq", "wc"))
    with HttpServer(create_app(observer, host=Host(2, None)), "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.port}"


def test_top_shows_the_daemons_runs(
    program: Program, daemon: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("top", "--once", "--interval", "0.1", "--url", daemon) == 0
    shown = capsys.readouterr().out
    assert "1 live   1 finished lately" in shown
    assert "cat|sort" in shown
    assert "seq|wc" in shown


def test_top_asks_this_host_directly_whatever_proxy_there_is(
    program: Program, daemon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert program("top", "--once", "--interval", "0.1", "--url", f"http://{daemon}/") == 0


def test_top_without_a_daemon_says_how_to_start_one(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as nobody:  # has the port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        assert program("top", "--url", f"http://127.0.0.1:{port}") == 1
    assert capsys.readouterr().err == (
        f"pipelined: no daemon answers at http://127.0.0.1:{port}: connection refused;"
        " start it with: sudo systemctl start pipelined,"
        " or without the service: sudo pipelined serve\n"
    )


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        ("<html>", 200, "does not answer in JSON"),
        ("[]", 200, "not as pipelined"),
        ('{"runs": [{}]}', 200, "not as pipelined"),
        ("{}", 404, "HTTP status 404"),
        ("{}", 503, "it is starting"),
    ],
)
def test_top_at_something_else_says_so(
    program: Program, capsys: pytest.CaptureFixture[str], body: str, status: int, expected: str
) -> None:
    from flask import Flask

    other = Flask("other")

    @other.get("/api/v1/pipelines")
    def pipelines() -> tuple[str, int]:
        return body, status

    with HttpServer(other, "127.0.0.1", 0) as server:
        assert program("top", "--once", "--url", f"127.0.0.1:{server.port}") == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert expected in error


# -- hash-password


class _Bytes(io.TextIOWrapper):
    """Standard input that is no terminal."""

    def __init__(self, given: bytes) -> None:
        super().__init__(io.BytesIO(given))


def test_the_hash_of_a_password_admits_it(
    program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", _Bytes("pässword \nmore\n".encode()))
    assert program("hash-password", "--cost", "4") == 0
    (hashed,) = capsys.readouterr().out.splitlines()
    assert hashed.startswith("$2b$04$")
    logins = Logins({"alice": hashed})
    right, wrong = (
        "Basic " + base64.b64encode(f"alice:{password}".encode()).decode()
        for password in ("pässword ", "pässword")
    )
    assert logins.verdict(right, "127.0.0.1") is Verdict.ADMITTED
    assert logins.verdict(wrong, "127.0.0.1") is Verdict.WRONG


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (b"", "the password is empty"),
        (b"\n", "the password is empty"),
        (b"a\0b\n", "byte 0"),
        (b"a" * 73, "the password has 73 bytes, and bcrypt takes 72"),
    ],
)
def test_a_password_that_cannot_be_hashed_is_one_line(
    given: bytes,
    words: str,
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", _Bytes(given))
    assert program("hash-password") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_password_is_asked_for_twice_and_not_shown() -> None:
    reader, terminal = pty.openpty()
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from pipelined.cli import main; main()",
            "hash-password",
            "--cost=4",
        ],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=terminal,
        start_new_session=True,
    )
    shown = b""
    for prompt in (b"Password: ", b"Repeat for confirmation: "):
        while not shown.endswith(prompt):
            shown += os.read(reader, 1000)
        os.write(reader, b"secret\n")
    hashed, _ = process.communicate(timeout=30)
    assert hashed.startswith(b"$2b$04$")
    assert b"secret" not in shown
    os.close(reader)
    os.close(terminal)


# -- doctor


@pytest.mark.parametrize(("attached", "status"), [(True, 0), (False, 1)])
def test_doctor_is_0_only_if_the_daemon_would_work(
    program: Program,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    attached: bool,
    status: int,
) -> None:
    import pipelined.doctor
    import pipelined.kernel.loader
    from pipelined.doctor import Check

    def checks(**given: Any) -> list[Check]:
        assert given["probe_hooks"].func is pipelined.kernel.loader.probe_hooks
        assert given["loader"] == given["probe_hooks"].args[0] == "auto"
        assert given["bpf_object"] == pipelined.kernel.loader.default_object()
        return [Check("hooks", "ok" if attached else "missing", "details", required=True)]

    monkeypatch.setattr(pipelined.doctor, "checks", checks)
    assert program("doctor") == status
    assert "hooks" in capsys.readouterr().out


# -- serve


class Announced(io.StringIO):
    """Standard output that calls back when the daemon has announced itself."""

    def __init__(self, then: Callable[[str], object]) -> None:
        super().__init__()
        self._then = then

    def flush(self) -> None:
        self._then(self.getvalue())


def local(**changed: Any) -> Config:
    return Config(web_listen_address=Address("127.0.0.1", 0), history=False, **changed)


@pytest.mark.parametrize("history", [True, False])
def test_serve_counts_no_run_again_that_is_in_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: bool
) -> None:
    stored, state = invented.make_ended(1), tmp_path / "state"
    kept = History(state, host=Host(2, None), max_age=1e12)
    kept.sink.put(invented.make_finished(stored))
    kept.sink.start()
    kept.sink.close()
    found: list[bool] = []

    def open_observer(config: Config, *, is_stored: Callable[[str], bool], **_: Any) -> Any:
        found.extend(map(is_stored, (stored.id, "1-1")))
        shutil.rmtree(state)
        found.append(is_stored(stored.id))
        return FakeObserver()

    monkeypatch.setattr(pipelined.observer.Observer, "open", open_observer)
    stop = Announced(lambda _: signal.raise_signal(signal.SIGTERM))
    serve(replace(local(), history=history, state_directory=state), stop)
    assert found == [history, False, False]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_stops_cleanly_at_a_signal(number: signal.Signals) -> None:
    observer: Any = FakeObserver()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    serve(
        local(), Announced(lambda _: signal.raise_signal(number)), open_observer=lambda _: observer
    )
    assert observer.calls == ["start", "close"]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_a_full_disk_ends_no_daemon() -> None:
    """`serve > log`."""
    observer: Any = SlowTier()
    observer.may_attach.set()

    class Full(Announced):
        def flush(self) -> None:
            super().flush()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def announced(text: str) -> None:
        if "Every hook is attached" in text:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    serve(local(), Full(announced), open_observer=lambda _: observer)
    assert observer.calls == ["start", "attach_optional", "close"]


def test_a_stop_asked_for_while_hooks_are_attached_is_not_forgotten() -> None:
    observer: Any = FakeObserver()

    def open_slowly(config: Config) -> Any:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        return observer

    serve(local(), io.StringIO(), open_observer=open_slowly)
    assert observer.calls == ["start", "close"]


def test_an_ignored_hangup_stays_ignored() -> None:
    observer: Any = FakeObserver()
    seen = []

    def announced(_: str) -> None:
        seen.append(signal.SIGHUP in signal.pthread_sigmask(signal.SIG_BLOCK, []))
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        serve(local(), Announced(announced), open_observer=lambda _: observer)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert seen == [False]


def test_serve_answers_where_it_says() -> None:
    observer: Any = FakeObserver(make_run("1", "cat", "awk"))
    answers = []

    def ask(text: str) -> None:
        url = next(word for word in text.split() if word.endswith("/api/v1/pipelines"))
        with urllib.request.urlopen(url, timeout=5) as answer:
            answers.append(json.load(answer)["runs"][0]["pipeline"])
        signal.raise_signal(signal.SIGTERM)

    serve(local(), Announced(ask), open_observer=lambda _: observer)
    assert answers == ["cat|awk"]


def test_probes_do_not_wait_for_lists() -> None:
    go = threading.Event()
    seen = []

    class Slow(FakeObserver):
        def sweep(self) -> None:
            assert go.wait(20)

    def ask(text: str) -> None:
        address = next(word for word in text.split() if word.endswith("/metrics")).split("/")[2]
        with ExitStack() as opened:
            opened.callback(go.set)
            for _ in range(60):
                connection = http.client.HTTPConnection(address, timeout=5)
                opened.callback(connection.close)
                connection.request("GET", "/api/v1/pipelines")
            for path in ("healthz", "readyz"):
                with urllib.request.urlopen(f"http://{address}/{path}", timeout=5) as answer:
                    seen.append(answer.status)
        signal.raise_signal(signal.SIGTERM)

    observer: Any = Slow()
    serve(local(), Announced(ask), open_observer=lambda _: observer)
    assert seen == [200, 200]


@pytest.mark.parametrize(
    ("host", "status"), [("host17.example.org", 200), (socket.gethostname(), 200), ("a.b", 421)]
)
def test_serve_answers_for_its_own_name_and_for_those_of_its_options(
    host: str, status: int
) -> None:
    seen = []

    def ask(text: str) -> None:
        address = next(word for word in text.split() if word.endswith("/metrics")).split("/")[2]
        connection = http.client.HTTPConnection(address, timeout=5)
        connection.request("GET", "/healthz", headers={"Host": host})
        seen.append(connection.getresponse().status)
        connection.close()
        signal.raise_signal(signal.SIGTERM)

    observer: Any = FakeObserver()
    names = ("*.example.org",)
    serve(local(web_allowed_hosts=names), Announced(ask), open_observer=lambda _: observer)
    assert seen == [status]


def test_a_taken_port_fails_before_anything_is_attached() -> None:
    def never(config: Config) -> Any:
        raise AssertionError("opened")

    with socket.create_server(("127.0.0.1", 0)) as other:
        address = Address("127.0.0.1", other.getsockname()[1])
        with pytest.raises(UserError, match="the port is taken"):
            serve(
                Config(web_listen_address=address, history=False),
                io.StringIO(),
                open_observer=never,
            )


def test_what_cannot_be_observed_leaves_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = []
    start = HttpServer.start

    def note(server: HttpServer) -> None:
        start(server)
        servers.append(server.port)

    def refuse(config: Config) -> Any:
        raise UserError("not root")

    monkeypatch.setattr(HttpServer, "start", note)
    with pytest.raises(UserError, match="not root"):
        serve(local(), io.StringIO(), open_observer=refuse)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", servers[0]), timeout=1)


def test_while_hooks_are_attached_the_page_says_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    ports: queue.Queue[int] = queue.Queue()
    start = HttpServer.start

    def note(server: HttpServer) -> None:
        start(server)
        ports.put(server.port)

    monkeypatch.setattr(HttpServer, "start", note)
    answers = []

    def open_slowly(config: Config) -> Any:
        base = f"http://127.0.0.1:{ports.get(timeout=10)}"
        with urllib.request.urlopen(f"{base}/healthz", timeout=5) as answer:
            answers.append(answer.status)
        for path in ("/readyz", "/metrics"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(base + path, timeout=5)
            answers.append(refused.value.code)
            assert "starting" in json.load(refused.value)["error"]["message"]
            refused.value.close()
        return FakeObserver()

    serve(
        local(),
        Announced(lambda _: signal.raise_signal(signal.SIGTERM)),
        open_observer=open_slowly,
    )
    assert answers == [200, 503, 503]


def test_the_announcement_says_what_is_on_what_is_off_and_where_to_look() -> None:
    hooks = [
        hook("sched_switch"),
        hook("sched_wakeup"),
        hook("sys_execve", attached=False, reason="fexit is not allowed"),
        hook("filemap", attached=False, reason="no such function", tier="readahead"),
    ]
    text = announcement("libbpf", hooks, Address("0.0.0.0", 9905))
    assert "sched      ok, in part: 2 of 3 hooks attached" in text
    assert "off: sys_execve: fexit is not allowed" in text
    assert "readahead  off: 0 of 1 hooks attached" in text
    assert "http://127.0.0.1:9905/metrics" in text
    assert max(map(len, text.splitlines())) <= 80


def test_hooks_that_are_still_to_come_are_announced_as_such() -> None:
    found = [
        hook("sched_switch"),
        hooks.Program("sys_execve").pending(),
        hooks.Program("vfs_read", "functions", "fentry").pending(),
    ]
    text = announcement("libbpf", found, Address("127.0.0.1", 9905))
    assert "sched      ok: 1 of 1 hooks attached, 1 to follow" in text
    assert "functions  1 hooks to follow" in text
    assert "off" not in text


class SlowTier(FakeObserver):
    """Attaches its one hook of the `functions` tier when it may."""

    def __init__(self) -> None:
        super().__init__()
        program = hooks.Program("vfs_read", "functions", "fentry")
        self.found_hooks = [hook("sched_switch"), program.pending()]
        self.hooks_to_come = [program.attached()]
        self.may_attach = threading.Event()

    def attach_optional(self) -> None:
        assert self.may_attach.wait(10)
        super().attach_optional()


def test_the_daemon_is_ready_before_a_slow_tier_is_attached() -> None:
    observer: Any = SlowTier()
    announced: queue.Queue[str] = queue.Queue()
    pending: list[list[dict[str, str]]] = []

    def look() -> None:
        try:
            url = re.search(r"http://\S+:\d+", announced.get(timeout=10))
            assert url
            for _ in range(2):
                with urllib.request.urlopen(f"{url[0]}/readyz", timeout=5) as answer:
                    pending.append(json.load(answer)["pending_hooks"])
                if not observer.may_attach.is_set():
                    observer.may_attach.set()
                    announced.get(timeout=10)
        finally:
            observer.may_attach.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    out = Announced(announced.put)
    asking = threading.Thread(target=look)
    asking.start()
    serve(local(), out, open_observer=lambda _: observer)
    asking.join()
    assert pending == [[{"hook": "vfs_read", "tier": "functions", "method": "fentry"}], []]
    first, _, second = out.getvalue().partition("Every hook is attached or off:\n")
    assert "functions  1 hooks to follow" in first
    assert "functions  ok: 1 of 1 hooks attached" in second
    assert observer.calls == ["start", "attach_optional", "close"]


def test_a_stop_waits_for_the_hooks_that_are_being_attached() -> None:
    """Nothing may be detached while something is being attached."""
    observer: Any = SlowTier()
    threading.Timer(0.2, observer.may_attach.set).start()
    stop = Announced(lambda _: signal.raise_signal(signal.SIGTERM))
    serve(local(), stop, open_observer=lambda _: observer)
    assert observer.calls == ["start", "attach_optional", "close"]


def test_an_ipv6_address_is_announced_as_a_url() -> None:
    assert "http://[::1]:9905/metrics" in announcement("libbpf", [], Address("::", 9905))
