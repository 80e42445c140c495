# SPDX-License-Identifier: Apache-2.0
"""Finished runs of a real daemon: listed, shown, and stored whatever happens to the daemon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2e.conftest import in_memory_of
from sqlite_locks import holders

if TYPE_CHECKING:
    from e2e.conftest import Daemon, StartDaemon

Tool = Callable[[str], str]
Wait = Callable[[Callable[[], Any], str], Any]


def shell(script: str) -> None:
    subprocess.run(["bash", "-c", script], check=True, stdout=subprocess.DEVNULL)


def signature(*commands: str) -> str:
    return "|".join(Path(command).name for command in commands)


@pytest.fixture
def pipelined(program: str, tmp_path: Path) -> Callable[..., str]:
    """The output of a command about the history in `tmp_path`."""

    def run(*words: str) -> str:
        state = ["--state-directory", str(tmp_path / "state")]
        done = subprocess.run([program, *words, *state], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


@pytest.fixture
def start(start_daemon: StartDaemon, tmp_path: Path) -> Callable[..., Daemon]:
    """Starts daemons that keep their history in `tmp_path`."""
    return lambda *flags: start_daemon("--state-directory", str(tmp_path / "state"), *flags)


@pytest.fixture
def no_slow_disk(tmp_path: Path) -> Iterator[None]:
    """Keeps the history on no disk: a daemon that stops has 3 s to write what waits."""
    with in_memory_of("64m", tmp_path / "state"):
        yield


def recorded(pipelined: Callable[..., str], pipeline: str) -> list[dict[str, Any]]:
    listed = json.loads(pipelined("runs", "--json", "--limit", "10000", "--pipeline", pipeline))
    found: list[dict[str, Any]] = listed["runs"]
    return found


def stored(daemon: Daemon, pipeline: str) -> list[dict[str, Any]]:
    """The stored runs of a pipeline, asked from a running daemon."""
    quoted = pipeline.replace("|", "%7C")
    found: list[dict[str, Any]] = json.loads(
        daemon.get(f"/api/v1/runs?limit=1000&pipeline={quoted}")
    )["runs"]
    return found


def test_a_run_is_listed_and_shown_while_the_daemon_runs_and_after(
    start: Callable[..., Daemon], pipelined: Callable[..., str], tool: Tool, wait_until: Wait
) -> None:
    daemon = start()
    seq, wc = tool("seq"), tool("wc")
    name = signature(seq, wc)
    shell(f"{seq} 100000 | {wc} -l")

    wait_until(lambda: stored(daemon, name), f"{name} in the history")
    (run,) = recorded(pipelined, name)
    assert daemon.value("pipelined_history_runs") >= 1
    daemon.stop()

    assert recorded(pipelined, name) == [run]
    assert run["id"] in pipelined("runs")
    assert pipelined("show", run["id"]).startswith(f"{name}   ")


def test_a_run_that_is_slower_than_usual_is_marked_wherever_it_is_listed(
    start: Callable[..., Daemon], pipelined: Callable[..., str], tool: Tool, wait_until: Wait
) -> None:
    daemon = start()
    sort = tool("sort")
    name = f"bash|{Path(sort).name}"
    for seconds in (0.3, 0.3, 0.3, 0.3, 0.3, 2.0):
        shell(f"{{ sleep {seconds}; echo a; }} | {sort}")

    def ratio() -> float | None:
        return daemon.value("pipelined_last_run_usual_ratio", pipeline=name)

    wait_until(lambda: (ratio() or 0) > 1.5, "the slow run to be compared with the others")
    slow, *others = stored(daemon, name)
    assert slow["slower_than_usual"] is True
    assert slow["usual_seconds"] == pytest.approx(0.3, abs=0.2)
    assert ratio() == pytest.approx(slow["wall_seconds"] / slow["usual_seconds"])
    assert [run["slower_than_usual"] for run in others] == [None] * 5
    found = json.loads(daemon.get("/api/v1/pipelines/summary?sort=slower"))["pipelines"][0]
    assert (found["pipeline"], found["runs"], found["last_run"]["id"]) == (name, 6, slow["id"])
    page = daemon.get("/history?slower=true", "text/html")
    assert slow["id"] in page
    assert not [run for run in others if run["id"] in page]
    (line,) = (line for line in pipelined("runs", "--slower").splitlines() if slow["id"] in line)
    assert "▲ slower:" in line
    assert "▲ slower:" in pipelined("pipelines", Path(sort).name)


def test_the_longest_run_comes_first_in_the_file_from_the_daemon_and_on_the_page(
    start: Callable[..., Daemon],
    pipelined: Callable[..., str],
    program: str,
    tool: Tool,
    wait_until: Wait,
) -> None:
    daemon = start()
    sort = tool("sort")
    name = f"bash|{Path(sort).name}"
    for seconds in (0.1, 1.0, 0.3):
        shell(f"{{ sleep {seconds}; echo a; }} | {sort}")
    wait_until(lambda: len(stored(daemon, name)) == 3, "three runs in the history")
    runs = sorted(stored(daemon, name), key=lambda run: (-run["wall_seconds"], run["id"]))
    longest_first = [run["id"] for run in runs]
    quoted, chosen = name.replace("|", "%7C"), ("runs", "--pipeline", name, "--sort", "wall")

    def page_by_page() -> list[str]:
        found, more = [], ""
        while True:
            path = f"/api/v1/runs?sort=wall&limit=1&pipeline={quoted}{more}"
            answer = json.loads(daemon.get(path))
            found += [run["id"] for run in answer["runs"]]
            if answer["next"] is None:
                return found
            more = f"&before={answer['next']}"

    def in_order(text: str) -> list[str]:
        return sorted(longest_first, key=text.index)

    asked = [program, *chosen, "--url", daemon.url]
    printed = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    assert page_by_page() == longest_first
    assert in_order(printed) == longest_first
    assert in_order(pipelined(*chosen)) == longest_first
    shown = daemon.get(f"/history?sort=wall&pipeline={quoted}", "text/html")
    assert in_order(shown) == longest_first


@pytest.mark.usefixtures("no_slow_disk")
def test_a_run_that_ended_just_before_the_daemon_is_recorded(
    start: Callable[..., Daemon], pipelined: Callable[..., str], tool: Tool
) -> None:
    daemon = start()
    seq, wc = tool("seq"), tool("wc")
    shell(f"{seq} 100000 | {wc} -l")

    daemon.stop()

    assert len(recorded(pipelined, signature(seq, wc))) == 1


def test_the_time_line_of_a_run_adds_up_to_the_run(
    start: Callable[..., Daemon], pipelined: Callable[..., str], tool: Tool, wait_until: Wait
) -> None:
    daemon = start("--sweep-interval", "50ms")
    seq, sort = tool("seq"), tool("sort")
    name = f"bash|{Path(sort).name}"
    shell(f"{{ for i in 1 2 3 4; do sleep 0.2; {seq} 50000; done; }} | {sort} -n")
    wait_until(lambda: stored(daemon, name), f"{name} in the history")

    (found,) = stored(daemon, name)
    run = json.loads(pipelined("show", found["id"], "--json"))

    points = run["timeline"]
    assert 1 <= len(points) <= 300
    for level, seconds in run["level_seconds"].items():
        total = sum(point["level_seconds"][level] for point in points)
        assert total == pytest.approx(seconds, abs=1e-6)
    for index, stage in enumerate(run["stages"]):
        at = [point["stages"][index] for point in points]
        assert sum(point["read_bytes"] for point in at) == stage["read_bytes"]
        assert sum(point["written_bytes"] for point in at) == stage["written_bytes"]
        for state, seconds in stage["state_seconds"].items():
            total = sum(point["state_seconds"].get(state, 0.0) for point in at)
            assert total == pytest.approx(seconds, abs=1e-6)


def test_a_live_run_can_be_requested(
    start: Callable[..., Daemon], tool: Tool, wait_until: Wait
) -> None:
    daemon = start("--sweep-interval", "50ms")
    cat, wc = tool("cat"), tool("wc")
    with subprocess.Popen(
        ["bash", "-c", f"{{ read line; }} | {cat} | {wc}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as job:

        def live() -> list[dict[str, Any]]:
            runs = json.loads(daemon.get("/api/v1/pipelines?live=true&limit=1000"))["runs"]
            return [run for run in runs if Path(wc).name in run["pipeline"]]

        (seen, *_) = wait_until(live, "the run")
        run = wait_until(
            lambda: (
                (found := json.loads(daemon.get(f"/api/v1/runs/{seen['id']}")))
                and len(found["timeline"]) > 1
                and found
            ),
            "its time line",
        )
        assert job.stdin is not None
        job.stdin.close()
    assert run["live"] is True
    assert "verdict" in run


def test_a_run_that_began_before_the_daemon_is_marked_as_partial(
    start: Callable[..., Daemon], pipelined: Callable[..., str], tool: Tool, wait_until: Wait
) -> None:
    cat, wc = tool("cat"), tool("wc")
    name = signature(cat, wc)
    with subprocess.Popen(
        ["bash", "-c", f"{cat} | {wc}"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as job:
        daemon = start()
        wait_until(lambda: daemon.runs(name, "&live=true"), f"{name} to be met")
        assert job.stdin is not None
        job.stdin.close()
    wait_until(lambda: stored(daemon, name), f"{name} in the history")

    (run,) = recorded(pipelined, name)
    assert run["partial"] is True
    assert "partial" in pipelined("show", run["id"]).splitlines()[0]
    assert "partial" in next(line for line in pipelined("runs").splitlines() if run["id"] in line)


def test_what_a_killed_daemon_had_written_survives(
    start: Callable[..., Daemon], pipelined: Callable[..., str], tool: Tool, wait_until: Wait
) -> None:
    seq, wc = tool("seq"), tool("wc")
    name = signature(seq, wc)
    daemon = start("--sweep-interval", "50ms")
    loop = f"trap 'exit 0' TERM; while :; do {seq} 10 | {wc} -l; done"
    with subprocess.Popen(
        ["bash", "-c", loop], stdout=subprocess.DEVNULL, start_new_session=True
    ) as job:
        try:
            wait_until(lambda: len(stored(daemon, name)) >= 20, "20 runs in the history")
            before = {run["id"] for run in stored(daemon, name)}
            daemon.stop(signal.SIGKILL)
        finally:
            os.killpg(job.pid, signal.SIGKILL)

    assert before <= {run["id"] for run in recorded(pipelined, name)}
    again = start()
    wait_until(lambda: again.value("pipelined_history_runs"), "the history of the next daemon")
    assert before <= {run["id"] for run in stored(again, name)}
    assert "set aside" not in again.log.read_text()


@pytest.mark.usefixtures("no_slow_disk")
def test_a_long_run_outlives_thousands_of_short_ones(
    start: Callable[..., Daemon], pipelined: Callable[..., str], tool: Tool, wait_until: Wait
) -> None:
    daemon = start("--history-max-size", "1MB")
    sort, seq, tr, wc = tool("sort"), tool("seq"), tool("tr"), tool("wc")
    long, short = f"bash|{Path(sort).name}", signature(seq, tr, wc)
    shell(f"{{ seq 1000; sleep 2; }} | {sort} -n")
    wait_until(lambda: stored(daemon, long), f"{long} in the history")
    runs = 1500

    shell(f"for i in {{1..{runs}}}; do {seq} 9 | {tr} 1 2 | {wc} -c; done")
    wait_until(
        lambda: daemon.value("pipelined_runs_total", pipeline=short) == runs, "them to be counted"
    )
    daemon.stop()

    assert len(recorded(pipelined, long)) == 1
    assert 100 < len(recorded(pipelined, short)) < runs
    counted = json.loads(pipelined("runs", "--json", "--pipeline", short))["counted"]
    assert counted["runs"] == runs
    assert counted["stored_runs"] == len(recorded(pipelined, short))
    assert f"Of {runs:,} runs that ended, " in pipelined("runs", "--pipeline", short)


def test_a_damaged_history_is_set_aside(
    start: Callable[..., Daemon], tmp_path: Path, wait_until: Wait
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "history.db").write_bytes(b"no database\n" * 1000)

    daemon = start()

    wait_until(lambda: daemon.value("pipelined_history_runs") is not None, "a new history")
    assert len(list((tmp_path / "state").glob("history.db.damaged-*"))) == 1
    assert "set aside as history.db.damaged-" in daemon.log.read_text()


def test_no_request_and_no_command_takes_the_daemon_its_locks(
    start: Callable[..., Daemon],
    pipelined: Callable[..., str],
    tool: Tool,
    tmp_path: Path,
    wait_until: Wait,
) -> None:
    daemon = start()
    seq, wc = tool("seq"), tool("wc")
    shell(f"{seq} 10 | {wc} -l; {seq} 10 | {wc} -l")
    wait_until(lambda: len(stored(daemon, signature(seq, wc))) == 2, "two runs in the history")
    first, second = (run["id"] for run in stored(daemon, signature(seq, wc)))
    requests = (
        *("/metrics", "/readyz", "/", "/history", "/pipelines", f"/run/{first}", "/run/last"),
        *(f"/compare?a={first}&b={second}", f"/api/v1/compare?a={first}&b={second}"),
        *("/api/v1/runs", f"/api/v1/runs/{first}", "/api/v1/runs/last", "/api/v1/now"),
        *("/api/v1/pipelines", "/api/v1/pipelines/summary"),
    )
    commands = (
        *(("runs",), ("runs", "--json"), ("show", "last"), ("show", first, "--json")),
        *(("pipelines",), ("compare", first, second)),
    )
    file, held = tmp_path / "state" / "history.db", (daemon.process.pid,) * 2
    for path in requests:
        daemon.get(path)
        assert holders(file) == held, path
    for words in commands:
        pipelined(*words)
        assert holders(file) == held, words


def test_backups_of_a_running_daemon_cost_no_run(
    start: Callable[..., Daemon],
    pipelined: Callable[..., str],
    tool: Tool,
    tmp_path: Path,
    wait_until: Wait,
) -> None:
    daemon = start("--sweep-interval", "50ms")
    seq, wc = tool("seq"), tool("wc")
    name, state = signature(seq, wc), tmp_path / "state"
    wait_until(lambda: daemon.value("pipelined_history_runs") is not None, "the history")
    log = (state / "history.db-wal").stat().st_ino
    for count in range(1, 11):
        shell(f"{seq} 10 | {wc} -l")
        wait_until(lambda count=count: len(stored(daemon, name)) == count, "the run")
        backup = ["sqlite3", state / "history.db", f".backup {tmp_path / 'copy.db'}"]
        subprocess.run(backup, check=True)
    assert (state / "history.db-wal").stat().st_ino == log
    daemon.stop(signal.SIGKILL)

    assert len(recorded(pipelined, name)) == 10
    check = ["sqlite3", state / "history.db", "PRAGMA integrity_check"]
    assert subprocess.run(check, check=True, capture_output=True, text=True).stdout == "ok\n"


def test_a_history_that_is_removed_is_counted_and_shown_and_a_new_one_begins(
    start: Callable[..., Daemon], tool: Tool, tmp_path: Path, wait_until: Wait
) -> None:
    daemon = start("--sweep-interval", "50ms")
    seq, wc = tool("seq"), tool("wc")
    name = signature(seq, wc)
    shell(f"{seq} 10 | {wc} -l")
    wait_until(lambda: stored(daemon, name), f"{name} in the history")
    assert daemon.value("pipelined_history_disruptions_total") == 0

    (tmp_path / "state" / "history.db").unlink()

    def counted() -> bool:
        return bool(daemon.value("pipelined_history_disruptions_total", reason="database_removed"))

    wait_until(counted, "it to be noticed")
    shell(f"{seq} 10 | {wc} -l")
    wait_until(lambda: len(stored(daemon, name)) == 1, "the next run in a new history")
    assert "was removed; a new one begins." in daemon.get("/history", "text/html")
    assert "was removed; a new one begins" in daemon.log.read_text()
    assert '"ready"' in daemon.get("/readyz")


def test_a_log_that_is_removed_costs_no_run_even_if_the_daemon_is_killed(
    start: Callable[..., Daemon],
    pipelined: Callable[..., str],
    tool: Tool,
    tmp_path: Path,
    wait_until: Wait,
) -> None:
    daemon = start("--sweep-interval", "50ms")
    seq, wc = tool("seq"), tool("wc")
    name = signature(seq, wc)
    shell(f"for i in {{1..20}}; do {seq} 10 | {wc} -l; done")
    wait_until(lambda: len(stored(daemon, name)) == 20, f"{name} in the history")

    daemon.process.send_signal(signal.SIGSTOP)  # it shall not look between the two
    for suffix in ("wal", "shm"):
        (tmp_path / "state" / f"history.db-{suffix}").unlink()
    daemon.process.send_signal(signal.SIGCONT)

    def counted() -> bool:
        return daemon.value("pipelined_history_disruptions_total", reason="log_removed") == 1

    wait_until(counted, "it to be noticed")
    daemon.stop(signal.SIGKILL)
    assert len(recorded(pipelined, name)) == 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    with in_memory_of("1m", tmp_path / "state") as place:
        yield place


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as out:
        while True:
            try:
                out.write(bytes(4096))
            except OSError:
                return


def test_a_full_disk_stops_the_writing_and_nothing_else(
    small_disk: Path,
    start: Callable[..., Daemon],
    pipelined: Callable[..., str],
    tool: Tool,
    wait_until: Wait,
) -> None:
    seq, wc = tool("seq"), tool("wc")
    name = signature(seq, wc)
    daemon = start("--sweep-interval", "50ms")
    wait_until(lambda: daemon.value("pipelined_history_runs") is not None, "a history")
    fill(small_disk / "filler")

    def failed() -> bool:
        shell(f"for i in 1 2 3 4 5; do {seq} 1000 | {wc} -l; done")
        return bool(daemon.value("pipelined_history_errors_total"))

    wait_until(failed, "the disk to be full")
    assert '"ready"' in daemon.get("/readyz")
    assert daemon.value("pipelined_runs_total", pipeline=name) >= 1
    logged = [line for line in daemon.log.read_text().splitlines() if "cannot be written" in line]
    assert len(logged) == 1
    assert "full" in logged[0]

    (small_disk / "filler").unlink()
    ended = daemon.value("pipelined_runs_total", pipeline=name)
    wait_until(lambda: len(stored(daemon, name)) >= ended, "all runs to be written after all")


def test_if_the_history_cannot_be_written_pipelines_are_still_observed(
    start: Callable[..., Daemon], tmp_path: Path, tool: Tool, wait_until: Wait
) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    daemon = start()
    seq, wc = tool("seq"), tool("wc")
    shell(f"{seq} 1000 | {wc} -l")
    daemon.wait_for_runs(signature(seq, wc), 1)
    wait_until(lambda: daemon.value("pipelined_history_errors_total"), "it to be counted")
    assert daemon.value("pipelined_history_runs") is None
    assert "cannot be written: file exists" in daemon.log.read_text()


def test_without_a_history_nothing_is_written(
    start: Callable[..., Daemon], tmp_path: Path, tool: Tool
) -> None:
    daemon = start("--no-history")
    seq, wc = tool("seq"), tool("wc")
    shell(f"{seq} 1000 | {wc} -l")
    daemon.wait_for_runs(signature(seq, wc), 1)
    daemon.stop()
    assert not (tmp_path / "state").exists()
