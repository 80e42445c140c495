# SPDX-License-Identifier: Apache-2.0
"""A user without privileges beside a real daemon: `run`, `compare`, `runs`, `show`, `doctor`.

That `run` by way of a daemon does all that `run` as root does is tested in test_run.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2e.conftest import PATIENCE, names_in, wait_until
from pipelined.model.started import KEPT

if TYPE_CHECKING:
    from e2e.conftest import Daemon, StartDaemon

#: Two users who own nothing.
USERS = (65534, 65533)


def as_user(user: int) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


Client = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def shared(program: str) -> Iterator[Path]:
    """A directory that both users may write to."""
    if os.geteuid() != 0:
        pytest.fail("other users can be tried by root only")
    for user in USERS:
        done = subprocess.run([*as_user(user), program, "--version"], capture_output=True)
        assert done.returncode == 0, f"user {user} may not read this checkout: {done.stderr!r}"
    directory = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        directory.chmod(0o1777)
        yield directory
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def begin(program: str, daemon: Daemon, shared: Path) -> Iterator[Client]:
    """Starts `pipelined` as a user, with the daemon's address; ends all that a test left."""
    started: list[subprocess.Popen[str]] = []

    def begin(
        command: str,
        *words: str,
        user: int = USERS[0],
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*as_user(user), program, command, "--url", daemon.url, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=shared,
            env=env,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)


def finish(process: subprocess.Popen[str], status: int = 0) -> tuple[str, str]:
    out, error = process.communicate(timeout=4 * PATIENCE)
    assert process.returncode == status, error
    return out, error


def described(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.undisturbed
def test_the_report_of_a_user_is_roots(begin: Client, daemon: Daemon) -> None:
    out, error = finish(begin("run", "seq 300000 | sort -n | tail -n 1; exit 4"), 4)
    assert out == "300000\n"
    assert re.match(r"seq\|sort\|tail +[\d.]+ m?s wall .* 0 lost\n", error)
    assert re.search(r"Try: .*\[sort-memory\]|sort (is the bottleneck|holds the others)", error)
    assert error.endswith(f"Measured by the daemon at {daemon.url}\n")


def test_two_users_with_the_same_command_get_their_own_runs(begin: Client, shared: Path) -> None:
    script = "for i in $(seq {}); do (seq 2000 | sort -n | tail -n 1); done > /dev/null"
    counts = dict(zip(USERS, (30, 40), strict=True))
    started = [
        begin("run", "--json", "-o", str(shared / str(user)), script.format(count), user=user)
        for user, count in counts.items()
    ]
    for process in started:
        finish(process)
    pids = {}
    for user, count in counts.items():
        runs = described(shared / str(user))["runs"]
        assert [run["pipeline"] for run in runs] == ["seq|sort|tail"] * count
        pids[user] = {(s["pid"], s["start_timestamp_seconds"]) for r in runs for s in r["stages"]}
        assert len(pids[user]) == 3 * count
    assert not pids[USERS[0]] & pids[USERS[1]]


def test_what_goes_on_without_the_shell_is_still_the_users(begin: Client, shared: Path) -> None:
    file = shared / "report"
    inner = "(sleep 0.3; seq 100000 | sort -n | tail -n 1 > /dev/null; : > over) &"
    until = "until [ -e over ]; do sleep 0.1; done"
    finish(begin("run", "--json", "-o", str(file), f"setsid bash -c '{inner}'; {until}"))
    assert "seq|sort|tail" in [run["pipeline"] for run in described(file)["runs"]]


def test_of_more_runs_than_the_daemon_keeps_none_is_missed_in_silence(
    begin: Client, shared: Path
) -> None:
    file, count = shared / "report", 2 * KEPT
    script = f"for ((i = 0; i < {count}; i++)); do echo | cat; done > /dev/null"
    finish(begin("run", "--json", "-o", str(file), script))
    report = described(file)
    assert len(report["runs"]) + report["lost"]["runs"] == count
    assert {run["pipeline"] for run in report["runs"]} == {"bash|cat"}
    assert len(report["runs"]) >= KEPT


def test_a_single_program_is_reported(begin: Client, shared: Path) -> None:
    (shared / "lines").write_text("some words\n" * 100_000)
    assert finish(begin("run", "wc -l lines"))[1].startswith("wc   ")


def test_a_user_in_a_pipeline_is_not_reported_himself(
    program: str, daemon: Daemon, shared: Path
) -> None:
    (shared / "lines").write_text("some words\n" * 200_000)
    for script, expected in (("cat lines | sort", "cat|sort"), ("sort lines", "sort")):
        line = (
            f"{program} run --url {daemon.url} --json -o report '{script}' | tail -n 1 > /dev/null"
        )
        subprocess.run([*as_user(USERS[0]), "bash", "-c", line], check=True, cwd=shared)
        (run,) = described(shared / "report")["runs"]
        assert (run["pipeline"], run["nested"], run["parent"]) == (expected, False, None)


def test_commands_are_compared_as_with_root(begin: Client, shared: Path, daemon: Daemon) -> None:
    (shared / "lines").write_text("".join(f"{n % 997}\n" for n in range(200_000)))
    own = shared / "own"
    shutil.copy(shared / "lines", own)
    os.chown(own, USERS[0], USERS[0])
    words = ("-n", "2", "--warm-up", "1", "--cold", "own", "--json")
    out, error = finish(begin("compare", *words, "sort own | uniq", "cat own | sort -u"))
    sides = json.loads(out)["sides"]
    assert [side["pipeline"] for side in sides] == ["sort|uniq", "cat|sort"]
    assert error.endswith(f"Measured by the daemon at {daemon.url}\n")


def test_files_of_others_cannot_be_made_cold(begin: Client, shared: Path) -> None:
    (shared / "roots").write_text("some words\n")
    out, error = finish(begin("compare", "--cold", "roots", "cat roots", "cat < roots"), 1)
    assert out == ""
    assert "roots is cached: it is another user's, and read-only for you; copy it" in error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_the_report_comes(
    begin: Client, number: signal.Signals
) -> None:
    process = begin("run", "trap 'exit 5' INT TERM; echo ready; yes | grep no & wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    wait_until(lambda: {"yes", "grep"} <= names_in(process.pid), "yes and grep")
    process.send_signal(number)
    assert process.wait(PATIENCE) == 5
    os.killpg(process.pid, signal.SIGKILL)  # the pipeline in the background is nobody's any more
    assert finish(process, 5)[1].startswith("yes|grep   ")


def test_runs_and_show_are_what_the_daemon_recorded(
    program: str, start_daemon: StartDaemon, tmp_path: Path, shared: Path
) -> None:
    state = tmp_path / "state"
    watching = start_daemon("--state-directory", str(state))

    def ask(*words: str, user: int | None = None) -> str:
        command = [*(as_user(user) if user else ()), program, *words]
        return subprocess.check_output(command, text=True, cwd=shared, stderr=subprocess.STDOUT)

    by_file, by_api = ("--state-directory", str(state)), ("--url", watching.url)
    ask("run", *by_api, "seq 300000 | sort -n | tail -n 1", user=USERS[0])
    # other runs come meanwhile: asking is a pipeline too
    mine = ("runs", "--json", "--pipeline", "seq|sort|tail")
    wait_until(lambda: json.loads(ask(*mine, *by_file))["runs"], "the run in the history")
    (run,) = json.loads(ask(*mine, *by_file))["runs"]
    for words in (
        mine,
        ("runs", "--pipeline", "seq|sort|tail"),
        ("show", run["id"]),
        ("show", "--json", run["id"]),
    ):
        assert ask(*words, *by_api, user=USERS[0]) == ask(*words, *by_file), words
    assert state.stat().st_mode & 0o007 == 0
    done = subprocess.run(
        [*as_user(USERS[0]), program, "runs", *by_file], capture_output=True, text=True
    )
    assert (done.returncode, "permission denied; run it as root" in done.stderr) == (1, True)


def hook_lines(printed: str) -> list[str]:
    """What doctor says of hooks, their lines `absent: …` too, without the width of its columns."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    first = next(n for n, line in enumerate(lines) if line.startswith("hook "))
    return lines[first : lines.index("", first)]


def test_doctor_shows_the_hooks_of_the_daemon_as_it_shows_roots(
    program: str, daemon: Daemon, begin: Client
) -> None:
    wide = os.environ | {"COLUMNS": "500"}
    roots = subprocess.run([program, "doctor"], capture_output=True, text=True, env=wide)
    out, error = finish(begin("doctor", env=wide), 1)
    assert error == ""
    assert f"the hooks below are those of the daemon at {daemon.url} " in out
    assert hook_lines(out) == hook_lines(roots.stdout)
    assert out.splitlines()[-1].startswith("pipelined would not work here: capabilities: ")


def test_doctor_shows_what_is_absent_as_a_daemon_has_a_tier_turned_off(
    program: str, start_daemon: StartDaemon, shared: Path
) -> None:
    watching = start_daemon("--functions", "off")
    done = subprocess.run(
        [*as_user(USERS[0]), program, "doctor"],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "500", "PIPELINED_URL": watching.url},
        cwd=shared,
    )
    assert (done.returncode, done.stderr) == (1, "")
    lines = hook_lines(done.stdout)
    assert [line for line in lines if line.endswith(": the daemon runs with --functions=off")]
    off = "hook vfs_read off functions, fentry and fexit: as above"
    assert lines[lines.index(off) + 1] == "absent: sizes and times of reads of files"
    watching.stop()
    done = subprocess.run(
        [*as_user(USERS[0]), program, "doctor", "--url", watching.url],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "500"},
        cwd=shared,
    )
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("hooks of a daemon ")]
    assert f"no daemon answers at {watching.url}: connection refused" in line
    assert "or run this as root to see which hooks are off" in done.stdout


def test_a_daemon_that_ends_meanwhile_leaves_the_command_alone(
    program: str, start_daemon: StartDaemon, shared: Path
) -> None:
    watching = start_daemon()
    script = "echo ready; until [ -e stopped ]; do sleep 0.1; done; exit 6"
    process = subprocess.Popen(
        [*as_user(USERS[0]), program, "run", "--url", watching.url, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=shared,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        watching.stop()
    finally:
        (shared / "stopped").touch()
    _, error = finish(process, 6)
    assert error.startswith(f"pipelined: no daemon answers at {watching.url}: ")
    assert error.count("\n") == 1


def test_in_a_pid_namespace_of_its_own_nothing_is_started(
    program: str, daemon: Daemon, tmp_path: Path
) -> None:
    """As in a container: the daemon would look for a process of another number."""
    started = tmp_path / "started"
    client = [program, "run", "--url", daemon.url, f"touch {started}"]
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", *client], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "is in a pid namespace of its own" in done.stderr
    assert not started.exists()
