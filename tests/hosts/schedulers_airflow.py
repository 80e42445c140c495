# SPDX-License-Identifier: Apache-2.0
"""Airflow on this host, from PyPI, in an environment of its own: LocalExecutor and SQLite.

API server, DAG processor and scheduler listen on 127.0.0.1 alone, and end with this program.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from claims import try_all
from daemon_here import Daemon, free_port
from environment import programs_of
from recorded import Recorded, Run, alive, expect, make_stages, said, wait_until

AIRFLOW = "apache-airflow==3.3.2"
_COUNTING = (
    *("air-bash", "air-env", "air-python", "air-captured", "air-traced", "air-tries"),
    "air-later",
)
_RUN = "nightly-2026-11-25"


class Airflow:
    """A scheduler with its API server and DAG processor."""

    def __init__(self, programs: Path, directory: Path, gate: int) -> None:
        self._airflow = str(programs / "airflow")
        self._directory = directory
        port = free_port()
        dags = directory / "dags"
        dags.mkdir()
        here = Path(__file__).parent
        (dags / "airflow_jobs.py").write_text((here / "airflow_jobs.py").read_text())
        make_stages(directory / "stages", _COUNTING, ["air-before", "air-long"])
        given = {
            "AIRFLOW_HOME": str(directory),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            "AIRFLOW__API_AUTH__JWT_SECRET": os.urandom(32).hex(),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "GATE": str(gate),
            "PATH": f"{directory / 'stages'}:{programs}:/usr/bin:/bin",
            "HOME": str(directory),
            "LANG": "C.UTF-8",
        }
        self._environment = given
        self._health = f"http://127.0.0.1:{port}/api/v2/monitor/health"

    def call(self, *words: str) -> str:
        done = subprocess.run(
            [self._airflow, *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        return done.stdout

    @contextmanager
    def running(self) -> Iterator[None]:
        self.call("db", "migrate")
        with ExitStack() as stack:
            for words in (["api-server"], ["dag-processor"], ["scheduler", "--skip-serve-logs"]):
                log = stack.enter_context((self._directory / f"{words[0]}.log").open("wb"))
                process = subprocess.Popen(
                    [self._airflow, *words],
                    env=self._environment,
                    cwd=self._directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                stack.callback(_end, process)
                if words == ["api-server"]:
                    wait_until(self._answers, "Airflow's API server")
            yield

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self._health, timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def start(self, dag: str, run: str) -> None:
        wait_until(lambda: dag in self.call("dags", "list"), f"the DAG {dag}")
        self.call("dags", "unpause", dag)
        self.call("dags", "trigger", "--run-id", run, dag)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_airflow(pipelined: Path, cache: Path) -> bool:
    """Whether every claim on Airflow held: of one younger than the daemon, and of an older one."""
    where = programs_of(cache / "airflow", AIRFLOW)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airflow-")))
        gate = stack.enter_context(subprocess.Popen(["sleep", "infinity"]))
        stack.callback(gate.terminate)
        airflow = Airflow(where, directory, gate.pid)
        with Daemon(pipelined, directory / "first") as daemon:
            stack.enter_context(airflow.running())
            print(f"airflow: {airflow.call('version').strip()}", flush=True)
            airflow.start("etl.daily", _RUN)
            failures = try_all(Younger(Recorded(daemon.url)).claims(), "airflow")
        airflow.start("held", "held-1")
        wait_until(lambda: alive("air-before"), "the job that is older than the daemon")
        daemon = stack.enter_context(Daemon(pipelined, directory / "second"))
        recorded = Recorded(daemon.url)
        wait_until(lambda: "air-before|sort|tail" in recorded.live(), "the older job, live")
        gate.terminate()
        gate.wait()
        airflow.start("later", _RUN)
        failures += try_all(Older(recorded).claims(), "airflow")
        return failures == 0


def _variables(task: str, run: Run, dag: str = "etl.daily") -> dict[str, str]:
    """What a run has to have. A task may have needed another try before it began."""
    attempt = run["identity"]["variables"].get("AIRFLOW_CTX_TRY_NUMBER", "")
    assert attempt.isdecimal(), said(run)
    return {
        "AIRFLOW_CTX_DAG_ID": dag,
        "AIRFLOW_CTX_TASK_ID": task,
        "AIRFLOW_CTX_DAG_RUN_ID": _RUN,
        "AIRFLOW_CTX_TRY_NUMBER": attempt,
    }


#: What a BashOperator makes of its shell; a process that runs tasks calls itself
#: `airflow worker -- …`.
OPERATOR = "bash|airflow worker"


class Younger:
    """Each claim is a method; the daemon was there before Airflow."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded

    def _expect(self, first: str, task: str, **facts: object) -> None:
        run = self._recorded.only(first)
        expect(run, "etl.daily.job", variables=_variables(task, run), **facts)

    def a_bash_operator_reads_what_its_shell_prints(self) -> None:
        """Its program is `airflow`, a script that names python3 in its first line."""
        self._expect("air-long", "long", inside=OPERATOR)

    def a_bash_operator_s_pipeline_has_dag_task_run_and_try(self) -> None:
        self._expect("air-bash", "bash", inside=OPERATOR)

    def with_an_environment_of_its_own_a_bash_operator_has_them_too(self) -> None:
        self._expect("air-env", "bash_env", inside=OPERATOR)

    def a_python_operator_s_subprocess_has_them_too(self) -> None:
        self._expect("air-python", "python")

    def a_subprocess_whose_output_is_read_has_them_too(self) -> None:
        self._expect("air-captured", "captured", inside="sh|airflow worker")

    def each_try_has_its_number(self) -> None:
        runs = self._recorded.wait_for("air-tries|sort|tail", 2)
        for run in runs:
            print(f"seen: {said(run)}", flush=True)
            expect(run, "etl.daily.job", variables=_variables("tries", run), inside=OPERATOR)
        tries = [int(run["identity"]["variables"]["AIRFLOW_CTX_TRY_NUMBER"]) for run in runs]
        assert tries == sorted(set(tries)), tries

    def a_task_that_hands_its_trace_on_is_in_it(self) -> None:
        (run,) = self._recorded.wait_for("air-traced|sort|tail")
        trace = run["identity"]["trace"]
        assert trace, said(run)
        self._expect("air-traced", "traced", trace=trace["trace_id"])

    def claims(self) -> list[Callable[[], None]]:
        return [
            self.a_bash_operator_reads_what_its_shell_prints,
            self.a_bash_operator_s_pipeline_has_dag_task_run_and_try,
            self.with_an_environment_of_its_own_a_bash_operator_has_them_too,
            self.a_python_operator_s_subprocess_has_them_too,
            self.a_subprocess_whose_output_is_read_has_them_too,
            self.each_try_has_its_number,
            self.a_task_that_hands_its_trace_on_is_in_it,
        ]


class Older:
    """Each claim is a method; Airflow was there before the daemon."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded

    def a_job_that_is_older_than_the_daemon_has_no_variables(self) -> None:
        run = self._recorded.only("air-before")
        expect(run, run["unit"], partial=True, inside=OPERATOR)
        assert not run["unit"].endswith(".job")

    def a_job_that_began_later_has_them(self) -> None:
        run = self._recorded.only("air-later")
        expect(run, "later.job", variables=_variables("bash", run, "later"), inside=OPERATOR)

    def claims(self) -> list[Callable[[], None]]:
        return [
            self.a_job_that_is_older_than_the_daemon_has_no_variables,
            self.a_job_that_began_later_has_them,
        ]
