# SPDX-License-Identifier: Apache-2.0
"""What cannot work: one line that says what to do, the right exit code, nothing left behind."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2e.conftest import PATIENCE

if TYPE_CHECKING:
    from e2e.conftest import StartDaemon

Done = subprocess.CompletedProcess[str]
Program = Callable[..., Done]


@pytest.fixture
def pipelined(program: str) -> Program:
    """Runs the program with the given words to its end."""

    def run(*words: str, wrapper: tuple[str, ...] = (), **options: Any) -> Done:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **options.pop("env", {})}
        return subprocess.run(
            [*wrapper, program, *words],
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            env=environment,
            **options,
        )

    return run


@pytest.fixture
def unprivileged(program: str) -> tuple[str, ...]:
    """Runs what follows as a user who may not load BPF programs."""
    if os.geteuid() != 0:
        return ()
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    if subprocess.run([*nobody, program, "--version"], capture_output=True).returncode == 0:
        return nobody
    # If user nobody may not read this checkout: root without any capability.
    return ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


def complaint(done: Done, status: int) -> str:
    """The one line on stderr of a program that failed with this status."""
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("pipelined: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    return done.stderr


# -- without privileges


def test_serve_without_privileges(pipelined: Program, unprivileged: tuple[str, ...]) -> None:
    done = pipelined("serve", "--web.listen-address", "127.0.0.1:0", wrapper=unprivileged)
    assert "root" in complaint(done, 1)


def test_serve_without_privileges_where_a_daemon_has_left_its_state(
    pipelined: Program, unprivileged: tuple[str, ...], tmp_path: Path
) -> None:
    """A saved checkpoint that this user may not read is no second line, nor is it touched."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    for name in ("live.lock", "live.checkpoint"):
        (state / name).touch(mode=0o600)
    where = ("--web.listen-address", "127.0.0.1:0")
    done = pipelined("serve", *where, "--state-directory", str(state), wrapper=unprivileged)
    assert "root" in complaint(done, 1)
    assert sorted(path.name for path in state.iterdir()) == ["live.checkpoint", "live.lock"]


def test_run_without_privileges_does_not_start_the_command(
    pipelined: Program, unprivileged: tuple[str, ...], tmp_path: Path
) -> None:
    started = tmp_path / "started"
    tmp_path.chmod(0o777)
    done = pipelined("run", f"touch {started}", wrapper=unprivileged)
    said = complaint(done, 1)
    assert "root" in said and said.startswith("pipelined: this user may not load BPF programs")
    assert not started.exists()


def test_doctor_without_privileges(pipelined: Program, unprivileged: tuple[str, ...]) -> None:
    done = pipelined("doctor", wrapper=unprivileged)
    assert done.returncode == 1
    assert done.stderr == ""
    assert "run it with sudo" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("serve", "--help")])
def test_help_needs_no_privileges(
    pipelined: Program, unprivileged: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert pipelined(*words, wrapper=unprivileged).returncode == 0


# -- the port


@pytest.mark.undisturbed
def test_a_taken_port(pipelined: Program, tmp_path: Path) -> None:
    """It is noticed at once: little later than the configuration is read, however busy the host."""
    (tmp_path / "p.toml").touch()

    def serve(*words: str) -> tuple[Done, float]:
        began = time.monotonic()
        done = pipelined("serve", *words)
        return done, time.monotonic() - began

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        _, reading = serve("--config", str(tmp_path / "p.toml"), "--check-config")
        done, took = serve("--web.listen-address", f"127.0.0.1:{port}")
    line = complaint(done, 1)
    assert f"cannot listen on 127.0.0.1:{port}: the port is taken" in line
    assert "--web.listen-address" in line
    assert took < reading + 2


def test_a_second_daemon_on_the_same_port(pipelined: Program, start_daemon: StartDaemon) -> None:
    first = start_daemon()
    address = first.url.removeprefix("http://")
    assert "the port is taken" in complaint(pipelined("serve", "--web.listen-address", address), 1)
    assert '"ready"' in first.get("/readyz")


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace")
def test_doctor_names_the_program_that_has_the_port(pipelined: Program) -> None:
    """In a network of its own, where the port is free whatever runs on this host."""
    holder = (
        "import socket, subprocess, sys\n"
        "with socket.create_server(('', 9905)):\n"
        "    sys.exit(subprocess.call(sys.argv[1:]))\n"
    )
    wrapper = ("unshare", "--net", sys.executable, "-c", holder)
    done = pipelined("doctor", wrapper=wrapper, env={"COLUMNS": "300"})
    assert (done.returncode, done.stderr) == (0, "")
    taken = r"^port 9905 +off +127\.0\.0\.1:9905 is taken by PID \d+ \(python"
    assert re.search(taken, done.stdout, re.M), done.stdout
    assert done.stdout.splitlines()[-1].startswith("pipelined works here, without: ")


def test_an_address_that_is_not_ours(pipelined: Program) -> None:
    where = ("--web.listen-address", "192.0.2.1:9905", "--web.allow-unauthenticated")
    assert "no such address" in complaint(pipelined("serve", *where), 1)


@pytest.mark.parametrize("command", ["serve", "export"])
def test_a_port_that_everybody_could_read(pipelined: Program, command: str) -> None:
    line = complaint(pipelined(command, "--web.listen-address", ":0"), 2)
    assert "will not listen on 0.0.0.0:0 without a password" in line
    assert "--web.allow-unauthenticated" in line


# -- flags and the file


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--no-such-flag"], "--no-such-flag"),
        (["--max-stages", "many"], "--max-stages must be a whole number"),
        (["--web.listen-address", "9905"], "--web.listen-address must be HOST:PORT"),
        (["--log.level", "loud"], "--log.level must be one of debug, info, warning, error"),
        (["extra"], "extra"),
    ],
)
def test_a_bad_flag(pipelined: Program, words: list[str], expected: str) -> None:
    line = complaint(pipelined("serve", *words), 2)
    assert expected in line
    assert "pipelined serve --help" in line


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("max-stages = 5\nmax-stage = 6\n", 2, "unknown key max-stage"),
        ("[web]\n\nlisten-address = 9905\n", 3, "web.listen-address must be HOST:PORT"),
        ("\nrecent-runs = -1\n", 2, "recent-runs must be a whole number from 0"),
        ("show-arguments = 'yes'\n", 1, "show-arguments must be true or false"),
        ("max-stages = \n", 1, "not TOML"),
    ],
)
def test_a_bad_file_is_named_with_its_line(
    pipelined: Program, tmp_path: Path, text: str, line: int, expected: str
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(text)
    for check in ([], ["--check-config"]):
        said = complaint(pipelined("serve", "--config", str(file), *check), 2)
        assert f"{file}:{line}:" in said
        assert expected in said


def test_a_bad_web_config_is_named_with_its_line(pipelined: Program, tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text("tls_server_config:\n  cert_fil: server.crt\n")
    for check in ([], ["--check-config"]):
        said = complaint(pipelined("serve", "--web.config.file", str(file), *check), 2)
        assert f"{file}:2: unknown key cert_fil" in said


def test_configuration_is_checked_by_a_user_without_privileges(
    pipelined: Program, unprivileged: tuple[str, ...]
) -> None:
    file = Path(__file__).parents[2] / "deploy" / "pipelined.toml"
    done = pipelined("serve", "--config", str(file), "--check-config", wrapper=unprivileged)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{file}: ok\n", "")


def test_a_file_that_is_not_there(pipelined: Program) -> None:
    said = complaint(pipelined("serve", "--config", "/no/such/file.toml"), 2)
    assert "cannot read /no/such/file.toml: no such file or directory" in said


# -- what is loaded


@pytest.mark.usefixtures("bpf")
def test_an_object_that_is_not_there(pipelined: Program) -> None:
    done = pipelined(
        "serve", "--web.listen-address", "127.0.0.1:0", "--object", "/no/such/object.o"
    )
    assert "/no/such/object.o" in complaint(done, 1)


@pytest.mark.usefixtures("bpf")
@pytest.mark.parametrize("content", [b"", b"no object at all", b"\x7fELF" + bytes(200)])
def test_an_object_that_is_none(pipelined: Program, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "object.o"
    file.write_bytes(content)
    done = pipelined("serve", "--web.listen-address", "127.0.0.1:0", "--object", str(file))
    assert str(file) in complaint(done, 1)


@pytest.mark.usefixtures("bpf")
def test_an_object_of_another_program(pipelined: Program, tmp_path: Path) -> None:
    # A valid ELF file of this host, but not BPF.
    done = pipelined("serve", "--web.listen-address", "127.0.0.1:0", "--object", "/bin/true")
    assert "/bin/true" in complaint(done, 1)


def test_a_library_that_cannot_be_loaded(pipelined: Program, tmp_path: Path) -> None:
    (tmp_path / "libbpf.so.1").write_bytes(b"")
    done = pipelined("run", "true | true", env={"LD_LIBRARY_PATH": str(tmp_path)})
    line = complaint(done, 1)
    assert "libbpf" in line
    assert "apt-get install libbpf1" in line


# -- the other commands


def test_top_without_a_daemon(pipelined: Program) -> None:
    with socket.socket() as nobody:  # has the port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        line = complaint(pipelined("top", "--url", f"http://127.0.0.1:{port}"), 1)
    assert "start it with: sudo systemctl start pipelined" in line


@pytest.mark.usefixtures("bpf")
@pytest.mark.parametrize(
    ("words", "status"), [(["no-such-command", "-x"], 127), (["/etc/passwd", "-x"], 126)]
)
def test_a_command_that_cannot_be_run(pipelined: Program, words: list[str], status: int) -> None:
    assert f"cannot run {words[0]}: " in complaint(pipelined("run", "--", *words), status)


def test_a_reader_that_has_enough_is_no_error(program: str) -> None:
    done = subprocess.run(
        f"'{program}' serve --help | head -n 1", shell=True, capture_output=True, text=True
    )
    assert done.stdout == "Usage: pipelined serve [OPTIONS]\n"
    assert done.stderr == ""


@pytest.mark.usefixtures("bpf")
def test_functions_that_must_be_hooked_and_cannot_be(pipelined: Program) -> None:
    if not re.search(r"^hook vfs_read +off ", pipelined("doctor").stdout, re.M):
        pytest.skip("this kernel allows hooks on its functions: there is nothing to refuse")
    done = pipelined("serve", "--web.listen-address", "127.0.0.1:0", "--functions=on")
    assert "--functions=on, but " in complaint(done, 1)
