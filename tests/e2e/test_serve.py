# SPDX-License-Identifier: Apache-2.0
"""The daemon watching real pipelines: what it says, what it counts, how it stops."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2e.conftest import PATIENCE
from pipelined.runs import STATES
from pipelined.states import STATE_TABLE

if TYPE_CHECKING:
    from e2e.conftest import Daemon, StartDaemon

OPENMETRICS = "application/openmetrics-text;version=1.0.0"

Tool = Callable[[str], str]


def shell(script: str) -> str:
    """What a pipeline prints; it must not fail nor complain."""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def signature(*commands: str) -> str:
    return "|".join(Path(command).name for command in commands)


# -- what it says


def test_it_says_what_it_attached_and_where_to_look(daemon: Daemon) -> None:
    assert "sched_switch" in daemon.announced
    assert "hooks attached" in daemon.announced
    assert ":0/" not in daemon.announced
    assert "pipelined" in daemon.get("/")


def test_pipelines_are_counted_as_soon_as_it_is_ready(
    start_daemon: StartDaemon, tool: Tool
) -> None:
    """By the hooks of the sched tier; the others are pending, and attached a moment later."""
    daemon = start_daemon(wait_for_hooks=False)
    seq, wc = tool("seq"), tool("wc")
    shell(f"for i in $(seq 100); do {seq} 10 | {wc} > /dev/null; done")
    runs = daemon.wait_for_runs(signature(seq, wc), 100)
    assert len(runs) == 100
    assert daemon.value("pipelined_runs_total", pipeline=signature(seq, wc)) == 100
    daemon.wait_until_attached()
    assert json.loads(daemon.get("/readyz")) == {"status": "ready", "pending_hooks": []}


def test_it_is_ready_when_it_says_so(daemon: Daemon) -> None:
    assert '"ready"' in daemon.get("/readyz")


def test_promtool_has_nothing_to_say(daemon: Daemon, tool: Tool) -> None:
    seq, wc = tool("seq"), tool("wc")
    shell(f"{seq} 1000 | {wc}")
    daemon.wait_for_runs(signature(seq, wc), 1)
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; make test brings it")
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=daemon.get("/metrics"),
        capture_output=True,
        text=True,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


# -- what it counts


def test_bytes_are_those_that_went_through_the_pipe(
    daemon: Daemon, tool: Tool, log_file: Path
) -> None:
    cat, wc = tool("cat"), tool("wc")
    assert shell(f"{cat} {log_file} | {wc} -c") == "3000000\n"
    daemon.wait_for_runs(signature(cat, wc), 1)
    written = daemon.value("pipelined_written_bytes_total", command=Path(cat).name)
    read = daemon.value("pipelined_read_bytes_total", command=Path(wc).name)
    assert written == 3_000_000
    # The reader also read the libraries that it is linked to.
    assert read is not None
    assert 3_000_000 <= read < 3_100_000


def test_every_short_run_is_counted(daemon: Daemon, tool: Tool) -> None:
    seq, wc = tool("seq"), tool("wc")
    shell(f"for i in $(seq 100); do {seq} 10 | {wc} > /dev/null; done")
    runs = daemon.wait_for_runs(signature(seq, wc), 100)
    assert len(runs) == 100
    assert daemon.value("pipelined_runs_total", pipeline=signature(seq, wc)) == 100
    assert daemon.value("pipelined_runs_active", pipeline=signature(seq, wc)) == 0


def test_every_run_that_does_not_succeed_is_counted_by_why(daemon: Daemon, tool: Tool) -> None:
    seq, sort = tool("seq"), tool("sort")
    name = signature(seq, sort)
    # two of these end within a second, in which they may be counted in another order
    sorts = f"until read n < /proc/$!/comm; [ $n = {Path(sort).name} ]; do sleep 0.05; done"
    stopped = f"{seq} inf | {sort} > /dev/null & {sorts}; {{ kill -%s $!; wait; }} 2> /dev/null"
    shell(f"{seq} 9 | {sort} > /dev/null")
    shell(f"{seq} 9 | {sort} --key=0 2> /dev/null; true")
    for number in ("KILL", "KILL", "TERM"):
        shell(stopped % number)
    daemon.wait_for_runs(name, 5)
    reasons = ("exit", "signal", "out_of_memory")
    failed = [
        daemon.value("pipelined_failed_runs_total", pipeline=name, reason=reason)
        for reason in reasons
    ]
    assert failed == [1, 2, 0]
    assert daemon.value("pipelined_interrupted_runs_total", pipeline=name) == 1
    last, exited, killed, out_of_memory = (
        daemon.value(f"pipelined_last_{of}_timestamp_seconds", pipeline=name, **reason)
        for of, reason in (
            ("complete_run_end", {}),
            *(("failed_run_end", {"reason": reason}) for reason in reasons),
        )
    )
    stopped_at = daemon.value("pipelined_last_run_end_timestamp_seconds", pipeline=name)
    assert (last or 0) < (exited or 0) < (killed or 0) < (stopped_at or 0)
    assert out_of_memory is None


def test_a_writer_whose_reader_had_what_it_wanted_has_not_failed(
    daemon: Daemon, tool: Tool
) -> None:
    seq, head = tool("seq"), tool("head")
    shell(f"{seq} inf | {head} -n 1 > /dev/null")
    daemon.wait_for_runs(signature(seq, head), 1)
    assert daemon.value("pipelined_failed_runs_total", pipeline=signature(seq, head)) == 0
    assert daemon.value("pipelined_interrupted_runs_total", pipeline=signature(seq, head)) is None


METRIC_OF = {
    "read_calls": "pipelined_read_calls_total",
    "write_calls": "pipelined_write_calls_total",
    "forks": "pipelined_forks_total",
    "execs": "pipelined_execs_total",
    "exited_children": "pipelined_exited_children_total",
}
#: Of what went through pipes, and of the rest.
FLOW_OF = {
    "pipelined_read_bytes_total": ("in", "read"),
    "pipelined_written_bytes_total": ("out", "written"),
}


def run_traced(daemon: Daemon, run: Callable[[int], list[str]]) -> list[str]:
    """Call `run` with 0, 1, … until the kernel has traced every switch to stages meanwhile.

    `run` runs another pipeline for each number, and returns its commands. While a thread's arrival
    is unseen, the level is one too low (see ARCHITECTURE); what a scrape then adds to the totals
    stays there.
    """
    for number in range(30):
        before = daemon.value("pipelined_missed_switches_total")
        commands = run(number)
        if daemon.value("pipelined_missed_switches_total") == before:
            return commands
    pytest.fail("in each of 30 tries the kernel did not trace some switches")


def test_the_counters_are_the_sums_of_the_runs(daemon: Daemon, tool: Tool, log_file: Path) -> None:
    cat, awk, sort = tool("cat"), tool("awk"), tool("sort")

    def run_thrice(number: int) -> list[str]:
        first = f"{cat}.{number}"
        Path(first).symlink_to(cat)
        for _ in range(3):
            shell(f"{first} {log_file} | {awk} '{{ print $3 }}' | {sort} -u > /dev/null")
        daemon.wait_for_runs(signature(first, awk, sort), 3)
        return [first, awk, sort]

    commands = run_traced(daemon, run_thrice)
    name = signature(*commands)
    runs, samples = daemon.runs(name), daemon.samples()

    def metric(metric_name: str, **labels: str) -> float:
        found = [
            value
            for (sample, has), value in samples.items()
            if sample == metric_name and has >= {("pipeline", name), *labels.items()}
        ]
        assert len(found) <= 1, (metric_name, labels, found)
        return found[0] if found else 0.0  # what never happened has no series

    assert metric("pipelined_run_seconds_total") == pytest.approx(
        sum(run["wall_seconds"] for run in runs)
    )
    for level in ("0", "1", "2", "3"):
        assert metric("pipelined_level_seconds_total", level=level) == pytest.approx(
            sum(run["level_seconds"][level] for run in runs), abs=1e-9
        )
    for index, command in enumerate(commands):
        stages = [run["stages"][index] for run in runs]
        labels = {"command": Path(command).name, "position": str(index + 1)}
        for key, metric_name in METRIC_OF.items():
            assert metric(metric_name, **labels) == sum(stage[key] for stage in stages), key
        for metric_name, (pipe, file) in FLOW_OF.items():
            through = sum(stage["pipe_bytes"][pipe] or 0 for stage in stages)
            assert metric(metric_name, via="pipe", **labels) == through, pipe
            # what a live run's writer had not been credited with yet counted as its reader's files
            beside = sum(stage["file_bytes"][file] for stage in stages)
            assert beside <= metric(metric_name, via="file", **labels) <= beside + 1_000_000, file
        system = metric("pipelined_system_cpu_seconds_total", **labels)
        cpu = metric("pipelined_state_seconds_total", state="cpu", **labels)
        for mode, seconds in (("user", cpu - system), ("system", system)):
            assert seconds == pytest.approx(
                sum(stage[f"{mode}_seconds"] for stage in stages), abs=1e-9
            )
        for state in STATES:
            assert metric("pipelined_state_seconds_total", state=state, **labels) == pytest.approx(
                sum(stage["state_seconds"][state] for stage in stages), abs=1e-9
            )
        for side in ("empty", "full"):
            assert metric("pipelined_pipe_sleeps_total", side=side, **labels) == sum(
                stage["pipe_sleeps"][side] for stage in stages
            )


def test_both_formats_say_the_same(daemon: Daemon, tool: Tool) -> None:
    seq, wc = tool("seq"), tool("wc")
    name = signature(seq, wc)
    shell(f"{seq} 100000 | {wc} -l")
    daemon.wait_for_runs(name, 1)

    def of_this(accept: str) -> dict[Any, float]:
        return {
            key: value
            for key, value in daemon.samples(accept).items()
            if ("pipeline", name) in key[1]
        }

    text = of_this("")
    assert len(text) > 30
    assert of_this(OPENMETRICS) == text


def test_a_stage_of_a_usual_pipeline_has_at_most_24_series(
    daemon: Daemon, tool: Tool, log_file: Path
) -> None:
    """Cold files, sleeps on both sides of pipes, and a sort that spills, in one pipeline.

    Whether a stage slept for anything else is up to the host: a map of a file's blocks that was not
    in memory makes stalls of class ``other``, a lock a state. Those series come on top, and are
    named here.
    """
    dd, cat, sort, gzip, wc = (tool(name) for name in ("dd", "cat", "sort", "gzip", "wc"))
    name = signature(cat, sort, gzip, wc)
    # by their own names: what the host has evicted of the programs is no input of the pipeline
    shell("cat /dev/null | sort | gzip | wc -c")
    os.sync()
    for _ in range(2):
        shell(f"{dd} if={log_file} iflag=nocache count=0 status=none")
        shell(f"{cat} {log_file} | {sort} -S 1M | {gzip} | {wc} -c")
    daemon.wait_for_runs(name, 2)
    unusual = {("class", "other")} | {
        ("state", state.name) for state in STATE_TABLE if not state.from_start
    }
    per_stage = Counter(
        dict(labels)["command"]
        for metric, labels in daemon.samples()
        if ("pipeline", name) in labels and "position" in dict(labels)
        if not re.match(r"pipelined_(pipe_(write|read|fill|capacity)|file_read)_", metric)
        if not labels & unusual
    )
    assert len(per_stage) == 4
    assert max(per_stage.values()) <= 24, per_stage


def test_times_add_up(daemon: Daemon, tool: Tool, log_file: Path) -> None:
    cat, sort, tail = tool("cat"), tool("sort"), tool("tail")
    shell(f"{cat} {log_file} {log_file} | {sort} -r | {tail} -n 1 > /dev/null")
    (run,) = daemon.wait_for_runs(signature(cat, sort, tail), 1)
    wall = run["end_timestamp_seconds"] - run["start_timestamp_seconds"]
    assert sum(run["level_seconds"].values()) == pytest.approx(wall, rel=0.005, abs=0.002)
    for stage in run["stages"]:
        lived = stage["end_timestamp_seconds"] - stage["start_timestamp_seconds"]
        # sort may have threads, which live for themselves.
        assert stage["lifetime_seconds"] >= lived * 0.995 - 0.002


def test_counters_never_go_back(daemon: Daemon, tool: Tool, log_file: Path) -> None:
    cat, gzip, wc = tool("cat"), tool("gzip"), tool("wc")
    name = signature(cat, gzip, wc)
    script = f"for i in 1 2 3 4 5 6; do {cat} {log_file} | {gzip} | {wc} -c > /dev/null; done"
    latest: dict[Any, float] = {}
    all_counted = False
    with subprocess.Popen(["bash", "-c", script]) as job:
        while not all_counted:
            job_over = job.poll() is not None
            all_counted = job_over and daemon.value("pipelined_runs_total", pipeline=name) == 6
            now = {
                key: value
                for key, value in daemon.samples().items()
                if ("pipeline", name) in key[1] and key[0].endswith("_total")
            }
            assert {key for key in latest if now[key] < latest[key]} == set()
            latest = now
    assert latest


def test_a_live_run_is_shown_and_ends(
    daemon: Daemon, tool: Tool, wait_until: Callable[..., Any]
) -> None:
    sleep, cat = tool("sleep"), tool("cat")
    name = signature(sleep, cat)
    with subprocess.Popen(["bash", "-c", f"{sleep} 30 | {cat}"], start_new_session=True) as job:
        try:
            (run,) = wait_until(lambda: daemon.runs(name, "&live=true"), "the live run")
            assert run["end_timestamp_seconds"] is None
            assert daemon.value("pipelined_runs_active", pipeline=name) == 1
            again = daemon.runs(name, "&live=true")[0]
            assert again["wall_seconds"] > run["wall_seconds"]
        finally:
            subprocess.run(["kill", "--", f"-{job.pid}"], check=True)
    daemon.wait_for_runs(name, 1)
    assert daemon.value("pipelined_runs_active", pipeline=name) == 0


def test_a_pipeline_that_ran_before_the_daemon_is_partial(
    start_daemon: StartDaemon, tool: Tool, wait_until: Callable[..., Any]
) -> None:
    yes, grep = tool("yes"), tool("grep")
    script = f"{yes} | {grep} no"
    with subprocess.Popen(["bash", "-c", script], start_new_session=True) as job:
        try:
            time.sleep(0.3)
            daemon = start_daemon()
            (run,) = wait_until(
                lambda: daemon.runs(signature(yes, grep)), "the run that was there before"
            )
            assert run["partial"] is True
        finally:
            subprocess.run(["kill", "--", f"-{job.pid}"], check=True)


def test_past_the_budget_pipelines_are_counted_as_other_and_keep_their_names(
    start_daemon: StartDaemon, tool: Tool, wait_until: Callable[..., Any]
) -> None:
    seq, wc, cat = tool("seq"), tool("wc"), tool("cat")
    daemon = start_daemon("--metrics.max-series", "1000")
    chains = [[seq, *[cat] * length, wc] for length in range(1, 16)]
    for chain in chains:
        shell(" | ".join(chain).replace(seq, f"{seq} 9"))
    wait_until(
        lambda: (daemon.value("pipelined_runs_total", pipeline="(other)") or 0) >= 1, "(other)"
    )
    for chain in chains:
        name = signature(*chain)
        wait_until(lambda name=name: daemon.runs(name, "&live=false"), name)
    samples = [line for line in daemon.get("/metrics").splitlines() if not line.startswith("#")]
    assert len(samples) <= 1000
    assert daemon.value("pipelined_folded_pipelines") > 0


def test_while_hundreds_of_pipelines_run_once_each_scrape_is_true(
    start_daemon: StartDaemon, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    cat = shutil.which("cat")
    assert cat
    for number in range(400):
        (tmp_path / f"once{number}").symlink_to(cat)
    daemon = start_daemon("--metrics.max-series", "1000")
    script = f"for n in $(seq $0 2 399); do echo hello | {tmp_path}/once$n | wc -c; done"
    jobs = [
        subprocess.Popen(
            ["bash", "-c", script, first],
            env=os.environ | {"PIPELINED_JOB": job},
            stdout=subprocess.DEVNULL,
        )
        for first, job in (("0", "even"), ("1", "odd"))
    ]

    def all_counted() -> bool:
        """Every look is a scrape that has to be true."""
        samples = daemon.samples()
        there = {key: value for key, value in samples.items() if "pipeline" in dict(key[1])}
        assert samples["pipelined_series_used", frozenset()] == len(there)
        assert len(there) <= samples["pipelined_series_budget", frozenset()] == 500
        of_owner: dict[tuple[str | None, ...], list[float]] = {}
        runs: Counter[str] = Counter()
        for (name, pairs), value in there.items():
            labels = dict(pairs)
            owner = (labels["pipeline"], labels["unit"], labels.get("position"))
            of_owner.setdefault(owner, []).append(value)
            if name == "pipelined_runs_total":
                runs[labels["unit"]] += int(value)
        assert [owner for owner, values in of_owner.items() if not any(values)] == []
        assert max(runs["even.job"], runs["odd.job"]) <= 200
        return runs["even.job"] == runs["odd.job"] == 200

    try:
        wait_until(all_counted, "400 runs, by unit")
    finally:
        for job in jobs:
            job.kill()
            job.wait()


# -- secrets


def test_command_lines_are_not_shown(daemon: Daemon, tool: Tool) -> None:
    seq, cat = tool("seq"), tool("cat")
    shell(f"{seq} -s hunter2 9 | {cat} > /dev/null")
    (run,) = daemon.wait_for_runs(signature(seq, cat), 1)
    assert all("arguments" not in stage for stage in run["stages"])
    assert "hunter2" not in daemon.get("/metrics")


def test_command_lines_are_shown_to_the_api_when_asked(
    start_daemon: StartDaemon, tool: Tool, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    tail, cat = tool("tail"), tool("cat")
    secret = tmp_path / "hunter2"
    secret.touch()
    daemon = start_daemon("--show-arguments")
    script = f"{tail} -f {secret} | {cat}"
    with subprocess.Popen(["bash", "-c", script], start_new_session=True) as job:
        try:
            (run,) = wait_until(lambda: daemon.runs(signature(tail, cat)), "the live run")
            assert run["stages"][0]["arguments"] == f"{tail} -f {secret}"
            assert "hunter2" not in daemon.get("/metrics")
        finally:
            subprocess.run(["kill", "--", f"-{job.pid}"], check=True)


# -- several, and the file


def test_two_daemons_count_the_same(start_daemon: StartDaemon, tool: Tool) -> None:
    first, second = start_daemon(), start_daemon()
    seq, wc = tool("seq"), tool("wc")
    shell(f"for i in 1 2 3; do {seq} 10 | {wc} > /dev/null; done")
    for daemon in (first, second):
        assert len(daemon.wait_for_runs(signature(seq, wc), 3)) == 3


def test_the_file_is_read_and_flags_win(start_daemon: StartDaemon, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('recent-runs = 7\nlog.level = "debug"\n[web]\nlisten-address = "[::1]:0"\n')
    daemon = start_daemon("--config", str(file), "--log.level", "error", address=None)
    assert daemon.url.startswith("http://[::1]:")
    assert '"alive"' in daemon.get("/healthz")
    assert "DEBUG" not in daemon.log.read_text()


# -- how it stops


@pytest.mark.undisturbed
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_within_a_second_and_detaches_everything(
    start_daemon: StartDaemon,
    attached: Callable[[set[int]], set[int]],
    wait_until: Callable[..., Any],
    in_memory: Path,
    number: signal.Signals,
) -> None:
    daemon = start_daemon("--state-directory", str(in_memory))
    links = daemon.links()
    assert attached(links) == links != set()
    took = daemon.stop(number)
    assert daemon.process.returncode == 0
    assert took < 1
    # The kernel frees a link a little after its last user has gone.
    wait_until(lambda: not attached(links), "the links to be freed")
    assert "Traceback" not in daemon.log.read_text()


@pytest.mark.undisturbed
def test_it_stops_within_a_second_while_clients_hold_on(
    start_daemon: StartDaemon, in_memory: Path
) -> None:
    daemon = start_daemon("--state-directory", str(in_memory))
    host, port = daemon.url.removeprefix("http://").split(":")
    clients = [socket.create_connection((host, int(port))) for _ in range(20)]
    for client in clients[:10]:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n")  # and never the end of it
    try:
        assert daemon.stop() < 1
        assert daemon.process.returncode == 0
    finally:
        for client in clients:
            client.close()


@pytest.mark.undisturbed
def test_it_stops_within_a_second_in_the_middle_of_work(
    start_daemon: StartDaemon, tool: Tool, in_memory: Path
) -> None:
    daemon = start_daemon("--state-directory", str(in_memory))
    seq, wc = tool("seq"), tool("wc")
    script = f"while :; do {seq} 10 | {wc} > /dev/null; done"
    with subprocess.Popen(["bash", "-c", script], start_new_session=True) as job:
        try:
            time.sleep(0.5)
            assert daemon.stop() < 1
        finally:
            subprocess.run(["kill", "--", f"-{job.pid}"], check=True)
    assert daemon.process.returncode == 0
    assert "Traceback" not in daemon.log.read_text()


@pytest.mark.usefixtures("bpf")
@pytest.mark.parametrize("delay", [0.1, 0.2, 0.3, 0.5, 0.8, 1.2])
def test_it_stops_however_early_it_is_asked_to(program: str, delay: float, tmp_path: Path) -> None:
    with (
        (tmp_path / "log").open("w+") as log,
        subprocess.Popen(
            [
                *(program, "serve", "--web.listen-address", "127.0.0.1:0"),
                *("--state-directory", str(tmp_path / "state")),
            ],
            stdout=subprocess.DEVNULL,
            stderr=log,
        ) as process,
    ):
        time.sleep(delay)
        process.terminate()
        try:
            # Before it can listen to the signal, the signal ends it as any process.
            assert process.wait(PATIENCE) in (0, -signal.SIGTERM)
        finally:
            process.kill()
        log.seek(0)
        assert "Traceback" not in log.read()


def test_a_daemon_that_is_killed_leaves_nothing_and_harms_no_pipeline(
    start_daemon: StartDaemon,
    tool: Tool,
    attached: Callable[[set[int]], set[int]],
    wait_until: Callable[..., Any],
    log_file: Path,
) -> None:
    daemon = start_daemon()
    cat, sort, wc = tool("cat"), tool("sort"), tool("wc")
    script = f"set -o pipefail; for i in 1 2 3 4; do {cat} {log_file}; done | {sort} | {wc} -l"
    links = daemon.links()
    with subprocess.Popen(
        ["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        time.sleep(0.1)
        daemon.stop(signal.SIGKILL)
        assert job.communicate() == ("240000\n", "")
        assert job.returncode == 0
    wait_until(lambda: not attached(links), "the links to be freed")
