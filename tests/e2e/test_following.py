# SPDX-License-Identifier: Apache-2.0
"""The finished runs of a real daemon, followed: also long ones, and while the daemon goes away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2e.conftest import PATIENCE

if TYPE_CHECKING:
    from e2e.conftest import Daemon, StartDaemon

Tool = Callable[[str], str]
Wait = Callable[[Callable[[], Any], str], Any]


@pytest.fixture
def start(start_daemon: StartDaemon, tmp_path: Path) -> Callable[..., Daemon]:
    """Starts daemons that keep their history in `tmp_path`, on a port of their own or a given."""
    flags = ("--state-directory", str(tmp_path / "state"), "--sweep-interval", "50ms")
    return lambda address="127.0.0.1:0": start_daemon(*flags, address=address)


def finished(daemon: Daemon, query: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(daemon.get(f"/api/v1/runs/finished?{query}"))
    return found


def line(daemon: Daemon, pipeline: str) -> list[str]:
    """Ids of what is stored, in its order."""
    found: list[str] = []
    after, more = "oldest", True
    while more:
        page = finished(daemon, f"after={after}&limit=1000")
        found += [run["id"] for run in page["runs"] if run["pipeline"] == pipeline]
        after, more = page["next"], page["more"]
    return found


def ids(lines: list[str]) -> list[str]:
    return [json.loads(run)["id"] for run in lines]


@contextmanager
def running(loop: str) -> Iterator[None]:
    """A shell that runs pipelines one after the other."""
    with subprocess.Popen(
        ["bash", "-c", f"while :; do {loop}; done"],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as job:
        try:
            yield
        finally:
            os.killpg(job.pid, signal.SIGKILL)


def test_a_run_that_began_before_the_cursor_comes_when_it_is_stored(
    start: Callable[..., Daemon], tool: Tool, tmp_path: Path, wait_until: Wait
) -> None:
    daemon, sort, seq, wc = start(), tool("sort"), tool("seq"), tool("wc")
    long, short = f"bash|{Path(sort).name}", f"{Path(seq).name}|{Path(wc).name}"
    go = tmp_path / "go"
    waits = f"echo a; sleep 3; until [ -e {go} ]; do sleep 0.1; done"
    with (
        subprocess.Popen(
            ["bash", "-c", f"{{ {waits}; }} | {sort} > /dev/null"], start_new_session=True
        ),
        ExitStack() as last,
    ):
        last.callback(go.touch)
        wait_until(lambda: daemon.runs(long, "&live=true"), "the long run")
        after = finished(daemon, "after=now")["next"]
        subprocess.run(["bash", "-c", f"{seq} 9 | {wc} > /dev/null"], check=True)
        seen: list[dict[str, Any]] = []
        until = time.monotonic() + PATIENCE
        while long not in [run["pipeline"] for run in seen] and time.monotonic() < until:
            page = finished(daemon, f"after={after}&wait=10s")
            seen, after = seen + page["runs"], page["next"]
            if short in [run["pipeline"] for run in seen]:
                go.touch()
    assert [run["pipeline"] for run in seen if run["pipeline"] in (long, short)] == [short, long]
    (run,) = (run for run in seen if run["pipeline"] == long)
    assert run["wall_seconds"] >= 3
    # when it was stored, and not when the 10 s were over
    assert time.time() - run["end_timestamp_seconds"] < 9
    assert (page["missing"], page["restarted"]) == (0, False)


def test_a_stop_and_a_kill_cost_the_follower_nothing_and_bring_nothing_twice(
    start: Callable[..., Daemon], tool: Tool, wait_until: Wait
) -> None:
    seq, wc = tool("seq"), tool("wc")
    name = f"{Path(seq).name}|{Path(wc).name}"
    seen: list[str] = []
    after = "oldest"
    with running(f"{seq} 9 | {wc}; sleep 0.05"):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
            daemon, before, until = start(), len(seen), time.monotonic() + PATIENCE
            while len(seen) < before + 10 and time.monotonic() < until:
                page = finished(daemon, f"after={after}&wait=5s&limit=7")
                assert (page["missing"], page["restarted"]) == (0, False)
                seen += [run["id"] for run in page["runs"] if run["pipeline"] == name]
                after = page["next"]
            assert len(seen) >= before + 10
            daemon.stop(number)
    daemon = start()
    wait_until(lambda: not daemon.runs(name, "&live=true"), "the last run to end")
    more = True
    while more:
        page = finished(daemon, f"after={after}")
        seen += [run["id"] for run in page["runs"] if run["pipeline"] == name]
        after, more = page["next"], page["more"]
    assert seen == line(daemon, name)[: len(seen)]
    assert len(set(seen)) == len(seen) >= 40


def test_the_command_follows_a_daemon_that_is_killed_and_comes_back(
    start: Callable[..., Daemon], program: str, tmp_path: Path, tool: Tool, wait_until: Wait
) -> None:
    seq, wc = tool("seq"), tool("wc")
    name = f"{Path(seq).name}|{Path(wc).name}"
    daemon = start()
    options = ["--follow", "--after", "oldest", "--json", "--pipeline", name, "--url", daemon.url]
    with (tmp_path / "stderr").open("w") as errors:
        followed = subprocess.Popen(
            [program, "runs", *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    lines: list[str] = []
    assert followed.stdout is not None
    out = followed.stdout
    reader = threading.Thread(target=lambda: lines.extend(iter(out.readline, "")), daemon=True)
    reader.start()
    try:
        with running(f"{seq} 9 | {wc}; sleep 0.1"):
            wait_until(lambda: len(lines) >= 3, "three runs")
            daemon.stop(signal.SIGKILL)
            count = len(lines)
            again = start(daemon.url.removeprefix("http://"))
            wait_until(lambda: len(lines) >= count + 3, "three more runs")
        wait_until(lambda: again.runs(name, "&live=true") == [], "the last one to end")
        wait_until(lambda: ids(lines) == line(again, name), "all that is stored, in that order")
    finally:
        followed.send_signal(signal.SIGINT)
        followed.wait(PATIENCE)
        reader.join(PATIENCE)
        out.close()
    assert followed.returncode == 130
    # It may be asked while the next daemon starts, which is one more reason to ask again.
    *gone, back, end = (tmp_path / "stderr").read_text().splitlines()
    assert gone[0].startswith("pipelined: no daemon answers at")
    assert all(each.endswith("; it is asked again") for each in gone)
    assert (back, end) == ("pipelined: the daemon answers again", "")
    assert len(lines) == len(set(ids(lines)))
    assert {json.loads(run)["pipeline"] for run in lines} == {name}
