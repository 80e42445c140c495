# SPDX-License-Identifier: Apache-2.0
"""Prefect, Dagster, Celery and Luigi on this host, from PyPI, in an environment of their own.

The daemon reads Prefect's variables because its options name them. Prefect's server, its worker and
Celery's are older than the daemon; they listen on 127.0.0.1 alone, and end with this program.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from claims import try_all
from daemon_here import Daemon, free_port
from environment import programs_of
from recorded import Recorded, Run, alive, expect, make_stages, pipeline, said, wait_until

PACKAGES = (
    "prefect==3.9.1",
    "dagster==1.13.29",
    "celery==5.7.0",
    "luigi==3.8.1",
)
_COUNTING = (
    *("pf-task", "dg-op", "dg-captured", "dg-pipes", "plain"),
    *("ce-task", "ce-captured", "ce-named", "lu-task", "lu-named"),
)
_BEFORE = ("pf-before", "dg-before", "ce-before", "lu-before")
_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
_PARENT = f"00-{_TRACE}-00f067aa0ba902b7-01"
_OPTIONS = (
    "--job-variables=PIPELINED_JOB,PREFECT__FLOW_NAME",
    "--instance-variables=PREFECT__FLOW_RUN_ID",
)


class Workflows:
    """The four of them, in a directory of their own."""

    def __init__(self, programs: Path, directory: Path, gate: int) -> None:
        self._programs = programs
        self._directory = directory
        jobs = Path(__file__).parent / "workflows"
        for path in jobs.glob("*_jobs.py"):
            (directory / path.name).write_text(path.read_text())
        (directory / "recorded.py").write_text(Path(__file__).with_name("recorded.py").read_text())
        (directory / "queue").mkdir()
        (directory / "dagster").mkdir()
        (directory / "dagster" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        make_stages(directory / "stages", _COUNTING, _BEFORE)
        self._port = free_port()
        self.environment = {
            "PATH": f"{directory / 'stages'}:{programs}:/usr/bin:/bin",
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(directory),
            "GATE": str(gate),
            "PARENT": _PARENT,
            "QUEUE": str(directory / "queue"),
            "DAGSTER_HOME": str(directory / "dagster"),
            "PREFECT_HOME": str(directory / "prefect"),
            "PREFECT_API_URL": f"http://127.0.0.1:{self._port}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "DO_NOT_TRACK": "1",
        }

    def begin(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start one of the programs; what it prints is in a file of this name."""
        with (self._directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [str(self._programs / words[0]), *words[1:]],
                cwd=self._directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def call(self, name: str, *words: str) -> str:
        code = self.begin(name, *words).wait()
        output = (self._directory / f"{name}.log").read_text()
        assert code == 0, f"{words}: {output[-2000:]}"
        return output

    def start_services(self, stack: ExitStack) -> None:
        at = ("--host", "127.0.0.1", "--port", str(self._port))
        server = self.begin("server", "prefect", "server", "start", "--no-services", *at)
        stack.callback(_end, server)
        wait_until(self._answers, "Prefect's server")
        self.call("pool", "prefect", "work-pool", "create", "here", "--type", "process")
        self.call("deploy", "python", "prefect_jobs.py")
        worker = self.begin("worker", "prefect", "worker", "start", "--pool", "here")
        stack.callback(_end, worker)
        usual = ("--concurrency", "2", "--without-mingle", "--without-gossip")
        celery = self.begin("celery", "celery", "-A", "celery_jobs", "worker", *usual)
        stack.callback(_end, celery)

    def _answers(self) -> bool:
        health = f"{self.environment['PREFECT_API_URL']}/health"
        try:
            with urllib.request.urlopen(health, timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def start_flow(self, name: str) -> str:
        """The number of its run."""
        text = "import sys; from prefect.deployments import run_deployment as run; "
        text += "print('number', run(sys.argv[1], timeout=0).id)"
        output = self.call(f"flow-{name}", "python", "-c", text, f"{name}/nightly")
        return output.split()[-1]

    def start_task(self, name: str, first: str, **variables: str) -> None:
        given = (f"--args={json.dumps([first])}", f"--kwargs={json.dumps(variables)}")
        self.call(f"send-{first}", "celery", "-A", "celery_jobs", "call", name, *given)

    def begin_luigi(self, task: str, first: str) -> subprocess.Popen[bytes]:
        usual = ("--local-scheduler", "--workers", "2")
        words = ("--module", "luigi_jobs", task, "--first", first)
        return self.begin(first, "luigi", *words, *usual)

    def begin_dagster(self, job: str) -> subprocess.Popen[bytes]:
        return self.begin(
            f"job-{job}", "dagster", "job", "execute", "-f", "dagster_jobs.py", "-j", job
        )

    def begin_before(self, stack: ExitStack) -> None:
        self.start_flow("held")
        self.start_task("wait", "ce-before")
        for process in (self.begin_luigi("Waits", "lu-before"), self.begin_dagster("waits")):
            stack.callback(process.wait)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Claims:
    """Each claim is a method. Without a variable that names it a job has this host's unit."""

    def __init__(self, recorded: Recorded, workflows: Workflows) -> None:
        self._recorded = recorded
        self._workflows = workflows

    @cached_property
    def _unit(self) -> str:
        """Of what this program starts itself, in its own cgroup."""
        command = ["sh", "-c", f"{pipeline('plain')}; true"]
        subprocess.run(command, env=self._workflows.environment, check=True)
        run: Run = self._recorded.only("plain")
        return str(run["unit"])

    def _expect(self, first: str, unit: str = "", **facts: Any) -> None:
        expect(self._recorded.only(first), unit or self._unit, **facts)

    def what_began_before_the_daemon_has_no_variables(self) -> None:
        for name in _BEFORE:
            self._expect(name, partial=True)

    def a_flow_of_prefect_s_worker_has_its_name_and_its_run(self) -> None:
        """The options name the variables."""
        number = self._workflows.start_flow("etl-daily")
        self._expect("pf-task", "etl-daily.job", variables={"PREFECT__FLOW_RUN_ID": number})

    def an_op_of_dagster_has_no_variables(self) -> None:
        assert self._workflows.begin_dagster("etl").wait() == 0
        self._expect("dg-op")

    def what_an_op_of_dagster_reads_is_nested(self) -> None:
        run = self._recorded.only("dg-captured")
        assert str(run["parent_pipeline"]).startswith("sh|python"), said(run)
        expect(run, self._unit, inside=run["parent_pipeline"])

    def an_op_of_dagster_names_job_and_trace_of_what_it_starts(self) -> None:
        self._expect("dg-pipes", "etl.job", trace=_TRACE)

    def a_task_of_celery_has_no_variables(self) -> None:
        self._workflows.start_task("call", "ce-task")
        self._expect("ce-task")

    def what_a_task_of_celery_reads_is_nested(self) -> None:
        self._workflows.start_task("capture", "ce-captured")
        self._expect("ce-captured", inside="sh|celery")

    def a_task_of_celery_names_job_and_trace_of_what_it_starts(self) -> None:
        self._workflows.start_task("call", "ce-named", PIPELINED_JOB="etl", TRACEPARENT=_PARENT)
        self._expect("ce-named", "etl.job", trace=_TRACE)

    def a_task_of_luigi_has_no_variables(self) -> None:
        assert self._workflows.begin_luigi("Daily", "lu-task").wait() == 0
        self._expect("lu-task")

    def a_task_of_luigi_names_job_and_trace_of_what_it_starts(self) -> None:
        assert self._workflows.begin_luigi("Named", "lu-named").wait() == 0
        self._expect("lu-named", "Named.job", trace=_TRACE)

    def claims(self) -> list[Callable[[], None]]:
        return [
            self.what_began_before_the_daemon_has_no_variables,
            self.a_flow_of_prefect_s_worker_has_its_name_and_its_run,
            self.an_op_of_dagster_has_no_variables,
            self.what_an_op_of_dagster_reads_is_nested,
            self.an_op_of_dagster_names_job_and_trace_of_what_it_starts,
            self.a_task_of_celery_has_no_variables,
            self.what_a_task_of_celery_reads_is_nested,
            self.a_task_of_celery_names_job_and_trace_of_what_it_starts,
            self.a_task_of_luigi_has_no_variables,
            self.a_task_of_luigi_names_job_and_trace_of_what_it_starts,
        ]


def run_workflows(pipelined: Path, cache: Path) -> bool:
    """Whether every claim held."""
    programs = programs_of(cache / "workflows", *PACKAGES)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="workflows-")))
        gate = stack.enter_context(subprocess.Popen(["sleep", "infinity"]))
        stack.callback(gate.terminate)
        workflows = Workflows(programs, directory, gate.pid)
        workflows.start_services(stack)
        workflows.begin_before(stack)
        stack.callback(gate.terminate)
        for name in _BEFORE:
            wait_until(lambda name=name: alive(name), name)  # type: ignore[misc]
        daemon = stack.enter_context(Daemon(pipelined, directory / "state", *_OPTIONS))
        recorded = Recorded(daemon.url)
        wanted = {f"{name}|sort|tail" for name in _BEFORE}
        wait_until(lambda: wanted <= recorded.live(), f"live: {wanted}")
        gate.terminate()
        gate.wait()
        failures = try_all(Claims(recorded, workflows).claims(), "workflows")
        if failures:
            for log in sorted(directory.glob("*.log")):
                print(f"{log.name}\n{log.read_text()[-2000:]}", flush=True)
        return failures == 0
