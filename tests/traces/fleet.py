# SPDX-License-Identifier: Apache-2.0
"""Hosts with a daemon and a sender each, jobs that run on them, and what Jaeger has of those."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
import subprocess
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.conftest import Daemon
from e2e.workload import no_subreaper
from traces.jaeger_server import Jaeger, Span

__all__ = [
    "Host",
    "Job",
    "Sender",
    "Shell",
    "assert_sent_once",
    "eventually",
    "of_host",
    "sent_runs",
    "stored_runs",
    "wait_for_all",
]

#: Seconds until what has ended is stored, sent and found, on a busy machine.
PATIENCE = 60.0
#: Seconds without another run of a job after which it has no more.
SETTLED = 10.0
#: What the tests themselves may have been started with.
_NOT_INHERITED = ("OTEL_", "TRACEPARENT", "TRACESTATE", "PIPELINED_JOB", "CI_", "GITHUB_", "BUILD")

#: Runs each script that it finds, at once, until it is to end.
_SHELL = """
until [ -e end ]; do
    for script in *.sh; do
        [ -e "$script" ] || continue
        name=${script%.sh}
        mv "$script" "$name.running"
        {
            bash "$name.running" > "$name.output" 2> "$name.errors"
            mv "$name.output" "$name.done"
        } &
    done
    sleep 0.05
done
wait
touch ended
"""


class Sender:
    """`pipelined export`, until it is closed."""

    def __init__(self, program: str, daemon: Daemon, directory: Path, otlp: str) -> None:
        self._directory = directory
        self._command = [
            *(program, "export", "--url", daemon.url, "--state-directory", str(directory)),
            *("--web.listen-address", "127.0.0.1:0"),
        ]
        self._environment = _clean_environment() | {"OTEL_EXPORTER_OTLP_ENDPOINT": otlp}
        self._log = directory.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def start(self) -> None:
        self._starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self, *, forget: bool = False) -> None:
        """With SIGKILL; `forget` its place, too."""
        assert self._process is not None and self._process.poll() is None, self.log()
        self._process.kill()
        self._process.wait()
        if forget:
            (self._directory / "cursor").unlink()

    def wait_until_sent(self, runs: int) -> None:
        """Since it was started."""
        eventually(self._sent, lambda sent: sent >= runs, f"{runs} runs sent: {self.log()}")

    def _sent(self) -> float:
        listening = re.findall(r"its metrics: (http://\S+)", self.log())
        if len(listening) < self._starts:
            return 0
        with urllib.request.urlopen(listening[-1], timeout=PATIENCE) as answer:
            text = answer.read().decode()
        found = re.search(r"^pipelined_export_sent_runs_total (\S+)$", text, re.M)
        assert found, text
        return float(found[1])

    def close(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")


class Host:
    """A daemon and its sender."""

    def __init__(self, name: str, daemon: Daemon, sender: Sender) -> None:
        self.name = name
        self.daemon = daemon
        self.sender = sender

    def runs(self, unit: str = "") -> list[str]:
        """Ids of all runs that its daemon has stored, of one unit or of all."""
        found: list[str] = []
        before = ""
        while True:
            given = {"limit": "1000", "unit": unit, "before": before}
            query = urllib.parse.urlencode({name: value for name, value in given.items() if value})
            page: dict[str, Any] = json.loads(self.daemon.get(f"/api/v1/runs?{query}"))
            found += [run["id"] for run in page["runs"]]
            if page["next"] is None:
                return found
            before = page["next"]


def _clean_environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)
    }


class Shell:
    """Starts what jobs run, outside of whatever pipeline the tests themselves run in.

    Make it before the daemons (`e2e.workload` says why). It is given scripts as files, because a
    pipe to it would make it a stage.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count()
        with no_subreaper():
            subprocess.run(
                ["bash", "-c", 'setsid bash -c "$1" &', "start", _SHELL],
                cwd=directory,
                env=_clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> Callable[[], str]:
        """Start it. The function that is returned waits for its end and returns its output."""
        name = self._directory / str(next(self._numbers))
        variables = [f"{name}={value}" for name, value in environment.items()]
        written = name.with_suffix(".new")
        written.write_text(shlex.join(["exec", "env", *variables, *command]))
        written.rename(name.with_suffix(".sh"))
        done = name.with_suffix(".done")
        return lambda: eventually(
            lambda: done.read_text() if done.exists() else None,
            lambda output: output is not None,
            f"the end of {command}",
        )

    def close(self) -> None:
        (self._directory / "end").touch()
        eventually((self._directory / "ended").exists, bool, "the end of the jobs' shell")


class Job:
    """Pipelines with a unit of their own, so that they are told from whatever else runs here."""

    def __init__(self, shell: Shell, name: str) -> None:
        self.unit = f"{name}.job"
        self._shell = shell
        self._environment = {"PIPELINED_JOB": name}

    def run(self, script: str, **environment: str) -> str:
        """What a shell prints that runs this."""
        return self.output("bash", "-c", script, **environment)

    def output(self, *command: str, **environment: str) -> str:
        """What a command prints."""
        return self._shell.start(command, self._environment | environment)()

    @contextlib.contextmanager
    def repeated(self, script: str, directory: Path) -> Iterator[None]:
        """A shell starts this again every half second meanwhile, and waits for all in the end."""
        stop = directory / "stop"
        loop = f"until [ -e {stop} ]; do ({script}) & sleep 0.5; done; wait"
        wait = self._shell.start(("bash", "-c", loop), self._environment)
        try:
            yield
        finally:
            stop.touch()
            wait()


def sent_runs(jaeger: Jaeger, host: Host, **tags: str) -> Counter[str]:
    """How often Jaeger has each run of a host."""
    found = of_host(jaeger.spans(**{"host.name": host.name}, **tags), host.name)
    return Counter(
        span.tags["pipelined.run.id"]
        for span in found
        if span.tags["pipelined.kind"] == "run" and span.tags.items() >= tags.items()
    )


def of_host(spans: list[Span], host: str) -> list[Span]:
    """Those that the host's sender has sent."""
    return [span for span in spans if span.resource.get("host.name") == host]


def stored_runs(host: Host, unit: str) -> list[str]:
    """The ids of a unit's runs, once the daemon has stored all that it will.

    On a host where hundreds end per second it stores the longest ones only.
    """
    seen: list[tuple[float, list[str]]] = []

    def look() -> bool:
        found = host.runs(unit)
        if not seen or seen[-1][1] != found:
            seen.append((time.monotonic(), found))
        return bool(found) and time.monotonic() - seen[-1][0] > SETTLED

    eventually(look, bool, f"runs of {unit}")
    return seen[-1][1]


def assert_sent_once(
    jaeger: Jaeger, host: Host, unit: str, stored: list[str], patience: float = PATIENCE
) -> None:
    """Jaeger gets each of these runs of a unit, and no other, once."""
    found = eventually(
        lambda: sent_runs(jaeger, host, **{"pipelined.unit": unit}),
        lambda sent: sent.keys() >= set(stored),
        f"{len(stored)} runs of {unit} on {host.name} in Jaeger",
        patience,
    )
    assert found == Counter(stored)


def wait_for_all(jaeger: Jaeger, host: Host, unit: str, count: int) -> None:
    """Wait until Jaeger has each of that many runs of a unit, once."""
    stored = eventually(
        lambda: host.runs(unit), lambda found: len(found) >= count, f"{count} runs of {unit}"
    )
    assert len(stored) == count
    assert_sent_once(jaeger, host, unit, stored)


def eventually(
    look: Callable[[], Any],
    is_enough: Callable[[Any], bool],
    what: str,
    patience: float = PATIENCE,
) -> Any:
    """What `look` returns, once it is enough."""
    deadline = time.monotonic() + patience
    while True:
        found = look()
        if is_enough(found):
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience} s in vain for {what}; last: {found}")
        time.sleep(0.5)
