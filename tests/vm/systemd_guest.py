# SPDX-License-Identifier: Apache-2.0
"""Runs in the virtual machine, as a unit: what systemd makes of the installed service.

Each claim prints a line; the last line is the result. Standard library only: the machine has
nothing else. Time is warped there: what is waited for has a wide deadline.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from claims import try_all

URL = "http://127.0.0.1:9905"
WEB_CONFIG = Path("/etc/pipelined/web.yml")
OPTIONS = Path("/etc/default/pipelined")
SENDER = "pipelined-export"
SENDER_OPTIONS = Path("/etc/default/pipelined-export")
SENDER_PLACE = Path("/var/lib/private/pipelined-export")
#: The highest exposure that systemd may find, by unit; docs/INSTALL.md has what it finds.
EXPOSURE = {"pipelined": 2.0, SENDER: 1.5}
#: Seconds to wait for anything.
PATIENCE = 300

_SYS_BPF = 321  # x86-64
_BPF_LINK_GET_FD_BY_ID = 30


def systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemctl", *words], capture_output=True, text=True)


def show(name: str, unit: str = "pipelined") -> str:
    return systemctl("show", "--value", "-p", name, unit).stdout.strip()


def journal(*words: str, unit: str = "pipelined") -> list[dict[str, Any]]:
    subprocess.run(["journalctl", "--sync"], check=True)
    command = ["journalctl", "-u", unit, "-o", "json", "--no-pager", *words]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    entries = [json.loads(line) for line in told.splitlines()]
    # beside the daemon's, the unit has entries of systemd itself
    return [entry for entry in entries if entry.get("_TRANSPORT") == "stdout"]


def messages(*words: str, unit: str = "pipelined") -> list[str]:
    return [str(entry["MESSAGE"]) for entry in journal(*words, unit=unit)]


def wait_until(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(1)  # each look costs the emulated processors a good part of that
    raise AssertionError(f"waited {PATIENCE} s in vain for {what}")


def scrape(url: str = URL) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
        assert answer.status == 200
        text: str = answer.read().decode()
        return text


def frame_options() -> str | None:
    """A header that the web config names."""
    with urllib.request.urlopen(f"{URL}/readyz", timeout=PATIENCE) as answer:
        value: str | None = answer.headers["X-Frame-Options"]
        return value


def links() -> set[int]:
    """Ids of the BPF links that the daemon holds, once every hook is attached or off."""
    wait_for_hooks()
    found = set()
    for file in Path(f"/proc/{main_pid()}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile: each sweep opens one
            match = re.search(r"^link_id:\s*(\d+)", file.read_text(), re.M)
            if match:
                found.add(int(match[1]))
    assert found
    return found


def wait_for_hooks() -> None:
    wait_until(lambda: "to follow" not in show("StatusText"), "the hooks that follow")


def attached(link: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = ctypes.create_string_buffer(struct.pack("=I", link), 128)
    descriptor = libc.syscall(_SYS_BPF, _BPF_LINK_GET_FD_BY_ID, attributes, 128)
    if descriptor >= 0:
        os.close(descriptor)
        return True
    assert ctypes.get_errno() == errno.ENOENT, os.strerror(ctypes.get_errno())
    return False


def main_pid(unit: str = "pipelined") -> int:
    return int(show("MainPID", unit))


@contextmanager
def back_end() -> Iterator[tuple[str, list[bytes]]]:
    """Takes OTLP over HTTP: its address, and what was sent to it."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """The console has the claims alone."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", bodies
        finally:
            server.shutdown()
            thread.join()


# -- the claims, in the order in which they are tried


def it_is_active_after_the_boot() -> None:
    wait_until(lambda: show("ActiveState") == "active", "the service")
    assert show("Type").startswith("notify")
    assert show("NRestarts") == "0"


def its_status_counts_every_hook() -> None:
    wait_for_hooks()
    match = re.fullmatch(r"(\d+) of (\d+) hooks, \d+ pipelines? live", show("StatusText"))
    assert match, show("StatusText")
    hooks = re.findall(r"^pipelined_hook_attached\{.*\} (.*)$", scrape(), re.M)
    assert [match[1], match[2]] == [f"{hooks.count('1.0')}", f"{len(hooks)}"], hooks
    # 6.1 has no tracepoint of direct I/O; a stock kernel lets every other hook attach
    assert hooks.count("0.0") <= (1 if os.uname().release.startswith("6.1.") else 0)


def it_counts_a_pipeline() -> None:
    names = {command: f"/tmp/{command}-vm" for command in ("seq", "sort", "tail")}
    for command, link in names.items():
        os.symlink(shutil.which(command) or command, link)
    line = f"{names['seq']} 20000 | {names['sort']} | {names['tail']} -n 1"
    subprocess.run(["bash", "-c", line], check=True, stdout=subprocess.DEVNULL)
    sample = r'^pipelined_runs_total\{.*pipeline="seq-vm\|sort-vm\|tail-vm".*\} 1\.0$'
    wait_until(lambda: re.search(sample, scrape(), re.M), "the run in /metrics")


def it_counts_what_systemd_run_starts() -> None:
    """Its output comes to us through a pipe; we are not its parent, and so no stage."""
    os.symlink("/tmp/sort-vm", "/tmp/unit-sort-vm")
    line = "/tmp/seq-vm 20000 | /tmp/unit-sort-vm"
    command = ["systemd-run", "--wait", "--quiet", "--pipe", "bash", "-c", line]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == 20000
    labels = r'(?=.*pipeline="seq-vm\|unit-sort-vm")(?=.*nested="false")'
    sample = rf"^pipelined_runs_total\{{{labels}.*\}} 1\.0$"
    wait_until(lambda: re.search(sample, scrape(), re.M), "the run in /metrics")


def it_tells_its_own_memory_and_age() -> None:
    values = dict(re.findall(r"^(process_\w+) (\S+)$", scrape(), re.M))
    assert 20e6 < float(values["process_resident_memory_bytes"]) < 100e6
    began = time.time() - time.monotonic() + int(show("ExecMainStartTimestampMonotonic")) / 1e6
    assert abs(float(values["process_start_time_seconds"]) - began) < 5


def it_keeps_it_in_the_history() -> None:
    def listed() -> bool:
        command = ["pipelined", "runs", "--json", "--command", "seq-vm"]
        told = subprocess.run(command, capture_output=True, text=True)
        return "seq-vm|sort-vm|tail-vm" in told.stdout

    wait_until(listed, "the run in the history")
    assert os.path.realpath("/var/lib/pipelined") == "/var/lib/private/pipelined"


def as_user(user: int, *words: str) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "pipelined", *words]


def two_users_measure_the_same_command_without_root() -> None:
    line = "for i in 1 2; do (/tmp/seq-vm 20000 | /tmp/sort-vm | /tmp/tail-vm -n 1); done; exit 3"
    started = [
        subprocess.Popen(
            as_user(user, "run", "--json", line),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for user in (65533, 65534)
    ]
    seen = set()
    for process in started:
        out, error = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (3, "9999\n" * 2), error
        report = json.loads(error)
        assert report["daemon"] == URL
        assert [run["pipeline"] for run in report["runs"]] == ["seq-vm|sort-vm|tail-vm"] * 2
        seen |= {stage["pid"] for run in report["runs"] for stage in run["stages"]}
    assert len(seen) == 12


def a_user_reads_the_history_by_the_daemon() -> None:
    wait_until(
        lambda: listed_by(["pipelined"]) == listed_by(as_user(65534)) != "", "the same history"
    )


def listed_by(command: list[str]) -> str:
    command = [*command, "runs", "--json", "--command", "seq-vm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_the_service_a_user_reads_what_to_do() -> None:
    done = subprocess.run(as_user(65534, "run", "true"), capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert f"no daemon answers at {URL}" in done.stderr
    assert "have the administrator install the service" in done.stderr


def doctor_says(name: str) -> str:
    """Status and detail of the line with this name."""
    done = subprocess.run(
        ["pipelined", "doctor"],
        env=os.environ | {"COLUMNS": "300"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(rf"^{name} +(\S.*)$", done.stdout, re.M)
    assert found, done.stdout
    return " ".join(found[1].split())


def doctor_finds_that_the_service_runs() -> None:
    assert doctor_says("service") == "ok pipelined.service is active (running)"


def doctor_finds_that_the_service_is_stopped_and_who_has_its_port() -> None:
    assert doctor_says("service") == "off pipelined.service is inactive (dead)"
    assert doctor_says("port 9905") == "ok free: nothing listens on 127.0.0.1:9905"
    with HTTPServer(("127.0.0.1", 9905), BaseHTTPRequestHandler):  # which never answers
        said = doctor_says("port 9905")
    taken = rf"off 127\.0\.0\.1:9905 is taken by PID {os.getpid()} \(\S+\)"
    assert re.fullmatch(taken, said), said


def no_thread_has_a_privilege_left() -> None:
    assert len(without_privileges("CapInh", "CapPrm", "CapEff", "CapAmb")) > 5


def without_privileges(*empty: str, unit: str = "pipelined") -> list[Path]:
    """The threads of the service: none is root's, and these sets of capabilities are empty."""
    tasks = []
    for task in Path(f"/proc/{main_pid(unit)}/task").iterdir():
        try:
            status = (task / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        tasks.append(task)
        values = dict(re.findall(r"^(\w+):\s*(.*)$", status, re.M))
        sets = {name: int(values[name], 16) for name in empty}
        assert not any(sets.values()), f"{task}: {sets}"
        assert (values["NoNewPrivs"], values["Seccomp"]) == ("1", "2"), task
        assert "0" not in values["Uid"].split(), task
    return tasks


def a_reload_reads_the_web_config_again() -> None:
    before = main_pid()
    assert frame_options() == "deny"
    # in place: owner, group and mode stay
    WEB_CONFIG.write_text(WEB_CONFIG.read_text().replace("deny", "sameorigin"))
    done = systemctl("reload", "pipelined")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: any("SIGHUP" in told for told in messages()), "the reload in the log")
    assert frame_options() == "sameorigin"
    wait_until(lambda: show("ActiveState") == "active", "the service after its reload")
    assert main_pid() == before


def the_journal_has_priorities_and_no_second_time_stamp() -> None:
    (entry,) = [entry for entry in journal() if "SIGHUP" in entry["MESSAGE"]]
    assert entry["PRIORITY"] == "6"
    assert entry["MESSAGE"].startswith("pipelined.daemon.signals: SIGHUP")
    assert messages("-p", "warning") == []


def a_bad_reload_changes_nothing_and_is_an_error() -> None:
    WEB_CONFIG.write_text(WEB_CONFIG.read_text().replace("headers", "haeders"))
    systemctl("reload", "pipelined")
    wait_until(lambda: any("haeders" in told for told in messages("-p", "err")), "the error")
    assert frame_options() == "sameorigin"
    WEB_CONFIG.write_text(WEB_CONFIG.read_text().replace("haeders", "headers"))


def the_units_are_verified_and_expose_little() -> None:
    for unit, most in EXPOSURE.items():
        verified = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", f"{unit}.service"],
            capture_output=True,
            text=True,
        )
        assert (verified.returncode, verified.stderr) == (0, ""), unit
        told = subprocess.run(
            ["systemd-analyze", "security", "--no-pager", f"{unit}.service"],
            capture_output=True,
            text=True,
        ).stdout
        level = re.search(rf"Overall exposure level for {unit}.service: ([\d.]+)", told)
        assert level, told
        print(f"guest: the exposure of {unit} is {level[1]}")
        assert float(level[1]) <= most, told


def the_sender_is_installed_and_off() -> None:
    assert systemctl("is-enabled", SENDER).stdout == "disabled\n"
    assert show("ActiveState", SENDER) == "inactive"
    assert not SENDER_OPTIONS.exists() and not SENDER_PLACE.exists()


def a_sender_that_is_enabled_sends_the_runs_without_privileges_and_keeps_its_place() -> None:
    with back_end() as (address, bodies):
        SENDER_OPTIONS.write_text(f"OTEL_EXPORTER_OTLP_ENDPOINT={address}\n")
        SENDER_OPTIONS.chmod(0o600)
        done = systemctl("enable", "--now", SENDER)
        assert done.returncode == 0, done.stderr
        for pipeline in (b"seq-vm|sort-vm|tail-vm", b"seq-vm|unit-sort-vm"):
            wait_until(lambda p=pipeline: any(p in body for body in bodies), f"{pipeline!r} there")  # type: ignore[misc]
        without_privileges("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", unit=SENDER)
        wait_until(lambda: (SENDER_PLACE / "cursor").exists(), "the place")
        assert os.path.realpath("/var/lib/pipelined-export") == str(SENDER_PLACE)
        metrics = scrape("http://127.0.0.1:9906")
        assert re.search(r"^pipelined_export_sent_runs_total [1-9]", metrics, re.M), metrics
        assert re.search(r'^pipelined_export_up\{at="back_end"\} 1\.0$', metrics, re.M), metrics
        print(f"guest: the sender uses {int(show('MemoryCurrent', SENDER)) / 1e6:.0f} MB")
        assert int(show("MemoryCurrent", SENDER)) < int(show("MemoryMax", SENDER)) / 2

        # what has arrived does not come again
        bodies.clear()
        assert systemctl("restart", SENDER).returncode == 0
        wait_until(lambda: "runs_total" in scraped_if_up("http://127.0.0.1:9906"), "the restart")
        subprocess.run(["bash", "-c", "/tmp/tail-vm -n 1 /etc/passwd | /tmp/sort-vm"], check=True)
        wait_until(lambda: any(b"tail-vm|sort-vm" in body for body in bodies), "the next run")
        assert not any(b"seq-vm" in body for body in bodies)

        assert systemctl("stop", SENDER).returncode == 0
        assert (show("ActiveState", SENDER), show("Result", SENDER)) == ("inactive", "success")
    assert messages("-p", "warning", unit=SENDER) == []


def scraped_if_up(url: str) -> str:
    try:
        return scrape(url)
    except OSError:
        return ""


def a_sender_with_a_wrong_variable_is_not_started_again() -> None:
    usual = SENDER_OPTIONS.read_text()
    SENDER_OPTIONS.write_text("OTEL_EXPORTER_OTLP_PROTOCOL=grpc\n")
    systemctl("start", SENDER)  # active as soon as the program runs
    wait_until(lambda: show("ActiveState", SENDER) == "failed", "the sender's end")
    assert show("ExecMainStatus", SENDER) == "2"
    assert any("grpc" in told for told in messages("-p", "err", unit=SENDER))
    systemctl("reset-failed", SENDER)
    SENDER_OPTIONS.write_text(usual)


def what_follows_is_dated_by_the_clock_that_was_set() -> None:
    for seconds, way, command in ((3600, "forward", "cksum"), (-3600, "back", "sum")):
        time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
        line = f"the clock was set {way} by "

        def told(line: str = line) -> bool:
            return any(line in message for message in messages())

        wait_until(told, f'"{line}" in the journal')
        began = time.time()
        subprocess.run(["bash", "-c", f"seq 9 | {command}"], check=True, stdout=subprocess.DEVNULL)

        def starts(command: str = command) -> list[float]:
            asked = ["pipelined", "runs", "--json", "--command", command]
            listed = subprocess.run(asked, capture_output=True, text=True)
            return [run["start_timestamp_seconds"] for run in json.loads(listed.stdout)["runs"]]

        (start,) = wait_until(starts, f"the run of {command} in the history")
        # the daemon may be up to 2 s behind: smaller steps are not followed
        assert began - 2 <= start <= time.time() + 2, (began, start)


def it_stays_far_below_its_bounds() -> None:
    memory, tasks = int(show("MemoryCurrent")), int(show("TasksCurrent"))
    print(f"guest: uses {memory / 1e6:.0f} MB and {tasks} tasks")
    assert memory < int(show("MemoryMax")) / 2
    assert tasks < int(show("TasksMax")) / 2


def signs_of_life_keep_it_running() -> None:
    watchdog = int(show("WatchdogUSec").removesuffix("s"))
    started = int(show("ActiveEnterTimestampMonotonic")) / 1e6
    while time.monotonic() < started + 2 * watchdog:
        time.sleep(1)
    assert (show("ActiveState"), show("NRestarts")) == ("active", "0")


def a_daemon_that_hangs_is_replaced() -> None:
    hung = main_pid()
    os.kill(hung, signal.SIGSTOP)
    wait_until(lambda: show("NRestarts") == "1", "the restart")
    wait_until(lambda: show("ActiveState") == "active", "the service that replaces it")
    assert main_pid() not in (0, hung)
    assert "pipelined_hook_attached" in scrape()
    # where it hung is in the log
    assert any("Fatal Python error: Aborted" in told for told in messages())


def a_stop_leaves_nothing_attached() -> None:
    held = links()
    assert all(map(attached, held))
    done = systemctl("stop", "pipelined")
    assert done.returncode == 0, done.stderr
    assert (show("ActiveState"), show("Result")) == ("inactive", "success")
    wait_until(lambda: not any(map(attached, held)), "the hooks' end")
    assert os.listdir("/sys/fs/bpf") == []
    assert messages()[-1] == "pipelined.daemon.serve: every hook is detached"


def a_wrong_flag_or_file_is_an_error_in_the_log_and_not_tried_again() -> None:
    usual = OPTIONS.read_text()
    for wrong in ("--no-such-flag", "--web.config.file /no/such/file.yml"):
        OPTIONS.write_text(f'OPTIONS="{wrong}"\n')
        assert systemctl("start", "pipelined").returncode != 0
        assert (show("ActiveState"), show("ExecMainStatus"), show("Result")) == (
            "failed",
            "2",
            "exit-code",
        )
        assert any(wrong.split()[-1] in told for told in messages("-p", "err"))
        expected = "off pipelined.service is failed (Result: exit-code)"
        assert doctor_says("service") == expected
        systemctl("reset-failed", "pipelined")
    OPTIONS.write_text(usual)


def dpkg(*words: str) -> None:
    done = subprocess.run(["dpkg", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def versions() -> tuple[str, str]:
    """What the daemon that runs says, and what the program says."""
    said = subprocess.run(["pipelined", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r'^pipelined_build_info\{.*\bversion="([^"]*)"', scrape(), re.M)
    assert found, "no pipelined_build_info"
    return found[1], said.stdout.split()[1]


def job() -> subprocess.Popen[bytes]:
    """A pipeline that lives until it is told to end, by the end of its input."""
    line = "/tmp/cat-vm | /tmp/sort-vm > /dev/null"
    return subprocess.Popen(["bash", "-c", line], stdin=subprocess.PIPE)


def live_job() -> str | None:
    """The id of its run, if the daemon has it as live."""
    with urllib.request.urlopen(f"{URL}/api/v1/pipelines?live=true", timeout=PATIENCE) as answer:
        runs = json.load(answer)["runs"]
    found = [run["id"] for run in runs if run["pipeline"] == "cat-vm|sort-vm"]
    return str(found[0]) if found else None


def an_upgrade_and_a_downgrade_go_on_with_the_live_run_of_a_job() -> None:
    os.symlink(shutil.which("cat") or "cat", "/tmp/cat-vm")
    assert systemctl("start", "pipelined").returncode == 0
    older = versions()
    with job() as pipeline:
        assert pipeline.stdin
        run = wait_until(live_job, "the live run")
        for package, expected in (
            ("/newer.deb", tuple(f"{version}.newer" for version in older)),
            ("/pipelined.deb", older),
        ):
            before = main_pid()
            dpkg("--force-confold", "--install", package)
            assert show("ActiveState") == "active"
            assert main_pid() != before
            assert versions() == expected
            assert wait_until(live_job, "the live run after dpkg") == run
            # enabled, but stopped: an upgrade leaves it so
            assert show("ActiveState", SENDER) == "inactive"
        pipeline.stdin.write(b"a line\n")
        pipeline.stdin.close()
        assert pipeline.wait() == 0
        command = ["pipelined", "show", "--json", run]
        wait_until(
            lambda: subprocess.run(command, capture_output=True).returncode == 0,
            "the run in the history",
        )


def a_removal_stops_it_and_leaves_jobs_history_and_configuration() -> None:
    held = links()
    with job() as pipeline:
        assert pipeline.stdin
        wait_until(live_job, "the live run")
        dpkg("--remove", "pipelined")
        wait_until(lambda: not any(map(attached, held)), "the hooks' end")
        assert systemctl("is-active", "pipelined").stdout == "inactive\n"
        pipeline.stdin.close()
        assert pipeline.wait() == 0
    assert Path("/var/lib/private/pipelined/history.db").stat().st_size > 0
    assert Path("/etc/pipelined/pipelined.toml").exists()
    # The next installation goes on with the history, and with the sender, which is enabled.
    dpkg("--force-confold", "--install", "/pipelined.deb")
    for unit in ("pipelined", SENDER):
        wait_until(lambda it=unit: show("ActiveState", it) == "active", unit)  # type: ignore[misc]
    assert "seq-vm|sort-vm|tail-vm" in listed_by(["pipelined"])


def a_purge_stops_it_and_takes_everything_away() -> None:
    held = links()
    WEB_CONFIG.unlink()  # not the package's
    with job() as pipeline:
        assert pipeline.stdin
        wait_until(live_job, "the live run")
        dpkg("--purge", "pipelined")
        pipeline.stdin.close()
        assert pipeline.wait() == 0
    wait_until(lambda: not any(map(attached, held)), "the hooks' end")
    SENDER_OPTIONS.unlink()
    left = (
        "/var/lib/pipelined-export",
        "/etc/systemd/system/multi-user.target.wants/pipelined-export.service",
        SENDER_PLACE,
        "/etc/pipelined",
        "/usr/lib/pipelined",
        "/var/lib/pipelined",
        "/var/lib/private/pipelined",
    )
    assert not any(map(os.path.lexists, left)), left
    assert systemctl("start", "pipelined").returncode != 0


CLAIMS = (
    it_is_active_after_the_boot,
    doctor_finds_that_the_service_runs,
    its_status_counts_every_hook,
    it_counts_a_pipeline,
    it_counts_what_systemd_run_starts,
    it_tells_its_own_memory_and_age,
    it_keeps_it_in_the_history,
    two_users_measure_the_same_command_without_root,
    a_user_reads_the_history_by_the_daemon,
    no_thread_has_a_privilege_left,
    a_reload_reads_the_web_config_again,
    the_journal_has_priorities_and_no_second_time_stamp,
    a_bad_reload_changes_nothing_and_is_an_error,
    the_units_are_verified_and_expose_little,
    the_sender_is_installed_and_off,
    a_sender_that_is_enabled_sends_the_runs_without_privileges_and_keeps_its_place,
    a_sender_with_a_wrong_variable_is_not_started_again,
    what_follows_is_dated_by_the_clock_that_was_set,
    it_stays_far_below_its_bounds,
    signs_of_life_keep_it_running,
    a_daemon_that_hangs_is_replaced,
    a_stop_leaves_nothing_attached,
    doctor_finds_that_the_service_is_stopped_and_who_has_its_port,
    without_the_service_a_user_reads_what_to_do,
    a_wrong_flag_or_file_is_an_error_in_the_log_and_not_tried_again,
    an_upgrade_and_a_downgrade_go_on_with_the_live_run_of_a_job,
    a_removal_stops_it_and_leaves_jobs_history_and_configuration,
    a_purge_stops_it_and_takes_everything_away,
)


def main() -> int:
    failures = try_all(CLAIMS, "guest")
    if failures:
        units = ("-u", "pipelined", "-u", SENDER)
        subprocess.run(["journalctl", *units, "--no-pager", "-n", "200"])
    print(f"guest: result failures={failures}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
