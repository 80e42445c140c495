# SPDX-License-Identifier: Apache-2.0
"""The sender of a real daemon: to a back end that comes and goes, as a user without privileges."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from e2e.conftest import PATIENCE
from otlp_back_end import KeptSpans, said

if TYPE_CHECKING:
    from e2e.conftest import Daemon, StartDaemon

Tool = Callable[[str], str]
Wait = Callable[[Callable[[], Any], str], Any]

NOBODY = 65534
TRACE, JOB = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def back_end() -> Iterator[KeptSpans]:
    found = KeptSpans()
    found.start()
    yield found
    found.stop()


@pytest.fixture
def daemon(start_daemon: StartDaemon, tmp_path: Path) -> Daemon:
    return start_daemon("--state-directory", str(tmp_path / "state"), "--sweep-interval", "50ms")


class Sender:
    """`pipelined export` as a user who owns nothing but the directory of its place."""

    def __init__(self, program: str, daemon: Daemon, back_end: KeptSpans, place: Path) -> None:
        self._command = [
            *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
            *("--bounding-set=-all", program, "export", "--url", daemon.url),
            *("--state-directory", str(place), "--web.listen-address", "127.0.0.1:0"),
        ]
        self._environment = {
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": back_end.url,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "10",
        }
        self.lines: list[str] = []
        self.announced = ""
        """The first line of the one that was started last."""
        self.process: subprocess.Popen[str] | None = None

    def start(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [*self._command, *flags], env=self._environment, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self.announced = self.process.stderr.readline()
        self.lines.append(self.announced)
        threading.Thread(target=self._read, args=[self.process.stderr]).start()

    def _read(self, stderr: Any) -> None:
        with stderr:
            self.lines += stderr

    def end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def metrics(self) -> str:
        address = self.announced.rpartition("its metrics: ")[2].strip()
        with urlopen(address, timeout=PATIENCE) as answer:
            text: str = answer.read().decode()
        return text


@pytest.fixture
def sender(program: str, daemon: Daemon, back_end: KeptSpans) -> Iterator[Sender]:
    if os.geteuid() != 0:
        pytest.fail("another user can be tried by root only")
    place = Path(tempfile.mkdtemp(dir="/var/tmp"))
    os.chown(place, NOBODY, NOBODY)
    found = Sender(program, daemon, back_end, place)
    yield found
    if found.process and found.process.poll() is None:
        found.end(signal.SIGKILL)
    shutil.rmtree(place)


def run(line: str, **environment: str) -> None:
    subprocess.run(["bash", "-c", line], env={**os.environ, **environment}, check=False)


def test_a_run_arrives_with_its_stages_in_the_trace_of_its_job(
    sender: Sender, back_end: KeptSpans, tool: Tool, wait_until: Wait
) -> None:
    seq, sort, wc = tool("seq"), tool("sort"), tool("wc")
    names = [Path(command).name for command in (seq, sort, wc)]
    run(f"{seq} 9 | {sort} | {wc} >&2", TRACEPARENT=f"00-{TRACE}-{JOB}-01")
    sender.start()
    signature = "|".join(names)
    wait_until(lambda: all(back_end.named(name) for name in (signature, *names)), "the spans")
    (whole,) = back_end.named(signature)
    assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (TRACE, JOB)
    stages = [back_end.named(name)[0] for name in names]
    assert {stage.parent_span_id for stage in stages} == {whole.span_id}
    assert {stage.trace_id for stage in stages} == {whole.trace_id}
    for stage in stages:
        assert whole.start_time_unix_nano <= stage.start_time_unix_nano
        assert stage.end_time_unix_nano <= whole.end_time_unix_nano


def test_a_nested_run_is_below_the_stage_around_it(
    sender: Sender, back_end: KeptSpans, tool: Tool, wait_until: Wait, tmp_path: Path
) -> None:
    seq, wc, cat = tool("seq"), tool("wc"), tool("cat")
    script = tmp_path / "nightly"
    script.write_text(f"#!/bin/bash\nsleep 0.5\n{seq} 9 | {wc}\n")
    script.chmod(0o755)
    run(f"{script} | {cat} >&2")
    sender.start()
    inner_name = f"{Path(seq).name}|{Path(wc).name}"
    outer_name = f"nightly|{Path(cat).name}"
    wait_until(lambda: back_end.named(inner_name) and back_end.named(outer_name), "both runs")
    (inner,), (outer,) = back_end.named(inner_name), back_end.named(outer_name)
    (around,) = (span for span in back_end.named("nightly") if span.trace_id == outer.trace_id)
    assert (inner.trace_id, inner.parent_span_id) == (outer.trace_id, around.span_id)


def test_a_run_that_failed_is_an_error(
    sender: Sender, back_end: KeptSpans, tool: Tool, wait_until: Wait
) -> None:
    seq, sh = tool("seq"), tool("bash")
    run(f"{seq} 9 | {sh} -c 'read a; exit 3'")
    sender.start()
    name = f"{Path(seq).name}|{Path(sh).name}"
    wait_until(lambda: back_end.named(name), "the run")
    (span,) = back_end.named(name)
    assert (span.status.code, said(span)["error.type"]) == (2, "exit 3")


def test_nothing_is_lost_while_the_back_end_is_down_and_the_sender_is_killed(
    sender: Sender, back_end: KeptSpans, daemon: Daemon, tool: Tool, wait_until: Wait
) -> None:
    seq, wc = tool("seq"), tool("wc")
    name = f"{Path(seq).name}|{Path(wc).name}"
    line = f"{seq} 9 | {wc} >&2"
    sender.start()
    run(line)
    wait_until(lambda: back_end.named(name), "the first run")
    back_end.status = 503
    run(line)
    wait_until(lambda: 'failures_total{at="back_end"} 0.0' not in sender.metrics(), "a failure")
    assert float(value(sender.metrics(), "pipelined_export_lag_seconds")) > 0
    back_end.stop()
    run(line)
    sender.end(signal.SIGKILL)
    run(line)
    sender.start()
    back_end.status = 200
    back_end.start()
    wait_until(lambda: len(back_end.runs(name)) == 4, "every run")
    stored = {run["id"] for run in json.loads(daemon.get("/api/v1/runs?limit=1000"))["runs"]}
    assert set(back_end.runs(name)) <= stored
    # the last request before the kill may have been taken, and not been noted
    spans = {(span.trace_id, span.span_id) for span in back_end.named(name)}
    assert len(spans) == 4
    assert sender.end(signal.SIGTERM) == 0


def value(metrics: str, name: str) -> str:
    return next(line.split()[-1] for line in metrics.splitlines() if line.startswith(name))


def test_a_sender_that_is_stopped_goes_on_where_it_was(
    sender: Sender, back_end: KeptSpans, tool: Tool, wait_until: Wait
) -> None:
    seq, wc = tool("seq"), tool("wc")
    name = f"{Path(seq).name}|{Path(wc).name}"
    for number in range(1, 4):
        sender.start()
        run(f"{seq} {number} | {wc} >&2")
        # its place may not be on disk yet: the stop waits for that
        wait_until(lambda count=number: len(back_end.runs(name)) == count, "the run")
        assert sender.end(signal.SIGTERM) == 0
    assert set(back_end.runs(name).values()) == {1}


def test_what_is_filtered_is_not_sent(
    sender: Sender, back_end: KeptSpans, tool: Tool, wait_until: Wait
) -> None:
    seq, wc, tail = tool("seq"), tool("wc"), tool("tail")
    run(f"{seq} 9 | {wc} >&2; {{ {seq} 9; sleep 5.2; }} | {tail} -n 1 >&2")
    sender.start("--min-duration", "5s")
    long = f"bash|{Path(tail).name}"
    wait_until(lambda: back_end.named(long), "the long run")
    assert back_end.named(f"{Path(seq).name}|{Path(wc).name}") == []


def test_runs_of_a_measured_script_have_one_root(
    sender: Sender,
    back_end: KeptSpans,
    program: str,
    tool: Tool,
    wait_until: Wait,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seq, wc, tail = tool("seq"), tool("wc"), tool("tail")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", back_end.url)
    line = f"{seq} 9 | {wc}; {seq} 9 | {tail} -n 1; exit 4"
    done = subprocess.run([program, "run", line], capture_output=True, text=True)
    assert done.returncode == 4, done.stderr
    sender.start()
    names = [f"{Path(seq).name}|{Path(command).name}" for command in (wc, tail)]
    wait_until(lambda: all(back_end.named(name) for name in names), "both runs")
    (root,) = back_end.named("pipelined run")
    assert (root.parent_span_id, said(root)["process.exit.code"]) == (b"", 4)
    runs = [back_end.named(name)[0] for name in names]
    assert {(of.trace_id, of.parent_span_id) for of in runs} == {(root.trace_id, root.span_id)}


def test_a_span_that_cannot_be_sent_leaves_command_and_report_alone(
    back_end: KeptSpans, program: str, monkeypatch: pytest.MonkeyPatch, bpf: None
) -> None:
    back_end.stop()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", back_end.url)
    done = subprocess.run(
        [program, "run", "seq 9 | tail -n 1; exit 5"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (5, "9\n")
    assert "seq|tail" in done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "pipelined: the span of this command is not sent"
    )
