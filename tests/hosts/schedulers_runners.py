# SPDX-License-Identifier: Apache-2.0
"""GitLab's runner with its shell executor, and act, which runs GitHub's workflows, on this host.

Both are built from their Go modules. The runner asks `coordinator` for jobs, in place of GitLab.
act is not GitHub's runner: it has the same variables, and starts the same shells.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from claims import try_all
from coordinator import Coordinator
from daemon_here import Daemon
from matrix import Unavailable
from recorded import Recorded, Run, alive, expect, held, make_stages, pipeline, said, wait_until

_COUNTING = (
    *("gl-job", "gl-named", "gl-after", "gl-failed", "gl-later", "gl-more"),
    *("gh-bash", "gh-sh", "gh-env", "gh-failed", "gh-later", "plain"),
)
_HOLDING = ("gl-before", "gh-before", "gl-cancelled")
_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
_PARENT = f"00-{_TRACE}-00f067aa0ba902b7-01"
_NAMED = {"PIPELINED_JOB": "etl", "TRACEPARENT": _PARENT}

_CONFIG = """concurrent = 1
check_interval = 1
[[runners]]
  name = "here"
  url = "{url}"
  token = "runner"
  executor = "shell"
  builds_dir = "{directory}/builds"
  cache_dir = "{directory}/cache"
"""
_WORKFLOW = """name: nightly
on: push
jobs:
  {job}:
    runs-on: ubuntu-latest
    steps:
{steps}"""
_STEP = "      - run: {run}\n"


def _built(cache: Path) -> Path:
    """Where the programs are; they are built once."""
    tools = Path(__file__).with_name("runners_tools.sh")
    done = subprocess.run([str(tools)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"building the runners: {done.stderr.strip()[-600:]}")
    return cache / "runners"


class GitLab:
    """The runner, and what stands for GitLab. It runs one job at a time."""

    def __init__(self, program: Path, directory: Path, coordinator: Coordinator) -> None:
        self._program = program
        self._directory = directory
        self._coordinator = coordinator
        config = _CONFIG.format(url=coordinator.url, directory=directory)
        (directory / "config.toml").write_text(config)

    @contextmanager
    def running(self) -> Iterator[None]:
        with (self._directory / "runner.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(str(self._program), "run", "--config", str(self._directory / "config.toml")),
                    *("--working-directory", str(self._directory)),
                ],
                env=_environment(self._directory),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait()

    def start(self, number: int, *script: str, **variables: str) -> dict[str, str]:
        """The variables that name the job."""
        given = {
            "CI_JOB_ID": str(number),
            "CI_JOB_URL": f"https://gitlab.example.org/etl/-/jobs/{number}",
            "CI_PIPELINE_ID": "42",
        }
        path = f'export PATH="{self._directory}/stages:$PATH"'  # a login shell sets its own
        self._coordinator.give(number, [path, *script], given | variables)
        return given

    def run(self, number: int, *script: str, **variables: str) -> dict[str, str]:
        given = self.start(number, *script, **variables)
        state, output = self._coordinator.end_of(number)
        assert state == "success", output
        return given

    def cancel(self, number: int) -> None:
        self._coordinator.cancel(number)

    def end_of(self, number: int) -> tuple[str, str]:
        return self._coordinator.end_of(number)


class GitHub:
    """act, which runs workflows on this host itself."""

    def __init__(self, program: Path, directory: Path) -> None:
        self._program = program
        self._directory = directory

    def begin(self, job: str, *steps: str, run: int = 1) -> subprocess.Popen[bytes]:
        """Start a workflow with these steps, in a repository of its own."""
        at = self._directory / job
        (at / "workflows").mkdir(parents=True)
        (at / "home").mkdir()
        text = _WORKFLOW.format(job=job, steps="".join(_STEP.format(run=step) for step in steps))
        (at / "workflows" / "nightly.yml").write_text(text)
        subprocess.run(["bash", "-ec", _REPOSITORY], cwd=at, env=_environment(at), check=True)
        with self._log(job).open("wb") as log:
            return subprocess.Popen(
                [
                    *(str(self._program), "push", "-P", "ubuntu-latest=-self-hosted"),
                    *("-W", "workflows", "--no-cache-server", "--env", f"GITHUB_RUN_ID={run}"),
                ],
                cwd=at,
                env=_environment(self._directory, HOME=str(at / "home")),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def run(self, job: str, *steps: str, run: int = 1) -> tuple[int, str]:
        """Its exit code, and what it printed."""
        code = self.begin(job, *steps, run=run).wait()
        return code, self._log(job).read_text()

    def _log(self, job: str) -> Path:
        return self._directory / f"{job}.log"


_REPOSITORY = """git init --quiet --initial-branch=main .
git remote add origin https://github.com/example/etl.git
git add workflows
git -c user.name=etl -c user.email=etl@example.org commit --quiet --message=etl"""


def _variables(job: str, run: int = 1) -> dict[str, str]:
    return {
        "GITHUB_REPOSITORY": "example/etl",
        "GITHUB_RUN_ID": str(run),
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_JOB": job,
    }


class Runners:
    """Each claim is a method. Without a variable that names it a job has this host's unit."""

    def __init__(
        self, recorded: Recorded, directory: Path, gitlab: GitLab, github: GitHub, gate: int
    ) -> None:
        self._recorded = recorded
        self._directory = directory
        self._gitlab = gitlab
        self._github = github
        self._gate = gate

    @cached_property
    def _plain(self) -> Run:
        """What this program starts itself: in its own cgroup, and in the pipeline that it is in."""
        command = ["sh", "-c", f"{pipeline('plain')}; true"]
        subprocess.run(command, env=_environment(self._directory), check=True)
        return self._recorded.only("plain")

    def _expect(self, first: str, unit: str = "", **facts: Any) -> None:
        usual = {"inside": self._plain["parent_pipeline"]}
        expect(self._recorded.only(first), unit or self._plain["unit"], **usual | facts)

    # GitLab's jobs

    def a_job_of_gitlab_has_its_number_and_is_inside_the_pipeline_that_evaluates_it(self) -> None:
        given = self._gitlab.run(4711, pipeline("gl-job"))
        self._expect("gl-job", variables=given, inside="bash|bash")

    def each_job_of_gitlab_has_its_own_number(self) -> None:
        wanted = [self._gitlab.run(number, pipeline("gl-more")) for number in (4712, 4713)]
        runs = self._recorded.wait_for("gl-more|sort|tail", 2)
        assert [run["identity"]["variables"] for run in runs] == wanted, [said(r) for r in runs]

    def variables_of_a_job_of_gitlab_name_job_and_trace(self) -> None:
        given = self._gitlab.run(4714, pipeline("gl-named"), **_NAMED)
        self._expect("gl-named", "etl.job", variables=given, trace=_TRACE, inside="bash|bash")

    def a_stage_that_fails_in_a_job_of_gitlab_is_a_failure(self) -> None:
        failing = "gl-failed 20000 | sort | sh -c 'cat > /dev/null; exit 3'"
        given = self._gitlab.start(4715, failing)
        state, output = self._gitlab.end_of(4715)
        assert state == "failed", output
        (run,) = self._recorded.wait_for("gl-failed|sort|sh")
        print(f"seen: {said(run)} {run['failure']}", flush=True)
        unit = self._plain["unit"]
        expect(run, unit, variables=given, outcome="failed", inside="bash|bash")
        assert run["failure"] == "sh: exit 3"

    def a_job_of_gitlab_that_is_cancelled_is_killed(self) -> None:
        given = self._gitlab.start(4716, held("gl-cancelled", self._gate))
        wanted = "gl-cancelled|sort|tail"
        wait_until(lambda: wanted in self._recorded.live(), "the job, live")
        self._gitlab.cancel(4716)
        run = self._recorded.only("gl-cancelled")
        assert run["failure"] == "gl-cancelled: SIGKILL", run["failure"]
        unit = self._plain["unit"]
        expect(run, unit, variables=given, outcome="failed", inside="bash|bash")

    # GitHub's steps

    def steps_of_a_workflow_have_repository_run_attempt_and_job(self) -> None:
        code, output = self._github.run(
            "etl", pipeline("gh-bash"), f"{pipeline('gh-sh')}\n        shell: sh", run=77
        )
        assert (code, output.count("9999")) == (0, 2), output
        for name in ("gh-bash", "gh-sh"):
            self._expect(name, variables=_variables("etl", 77))

    def variables_of_a_step_name_job_and_trace(self) -> None:
        environment = "".join(f"\n          {name}: {value}" for name, value in _NAMED.items())
        code, output = self._github.run("named", f"{pipeline('gh-env')}\n        env:{environment}")
        assert code == 0, output
        self._expect("gh-env", "etl.job", variables=_variables("named"), trace=_TRACE)

    def a_stage_that_fails_in_a_step_is_a_failure(self) -> None:
        failing = "gh-failed 20000 | sort | sh -c 'cat > /dev/null; exit 3'\n        shell: bash"
        code, output = self._github.run("failing", failing)
        assert code and "exit status 3" in output, output
        (run,) = self._recorded.wait_for("gh-failed|sort|sh")
        print(f"seen: {said(run)} {run['failure']}", flush=True)
        usual = {"inside": self._plain["parent_pipeline"], "variables": _variables("failing")}
        expect(run, self._plain["unit"], outcome="failed", **usual)
        assert run["failure"] == "sh: exit 3"

    def younger(self) -> list[Callable[[], None]]:
        return [
            self.a_job_of_gitlab_has_its_number_and_is_inside_the_pipeline_that_evaluates_it,
            self.each_job_of_gitlab_has_its_own_number,
            self.variables_of_a_job_of_gitlab_name_job_and_trace,
            self.a_stage_that_fails_in_a_job_of_gitlab_is_a_failure,
            self.a_job_of_gitlab_that_is_cancelled_is_killed,
            self.steps_of_a_workflow_have_repository_run_attempt_and_job,
            self.variables_of_a_step_name_job_and_trace,
            self.a_stage_that_fails_in_a_step_is_a_failure,
        ]

    # With a daemon that is younger than the jobs

    def jobs_that_are_older_than_the_daemon_have_no_variables(self) -> None:
        for name in ("gl-before", "gh-before"):
            self._expect(name, partial=True)

    def jobs_of_a_runner_that_is_older_than_the_daemon_have_them(self) -> None:
        given = self._gitlab.run(4718, pipeline("gl-later"))
        self._expect("gl-later", variables=given, inside="bash|bash")

    def a_workflow_that_began_later_has_them(self) -> None:
        code, output = self._github.run("later", pipeline("gh-later"))
        assert code == 0, output
        self._expect("gh-later", variables=_variables("later"))

    def older(self) -> list[Callable[[], None]]:
        return [
            self.jobs_that_are_older_than_the_daemon_have_no_variables,
            self.jobs_of_a_runner_that_is_older_than_the_daemon_have_them,
            self.a_workflow_that_began_later_has_them,
        ]


def _environment(directory: Path, **more: str) -> dict[str, str]:
    path = f"{directory / 'stages'}:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(directory), "LANG": "C.UTF-8"} | more


def run_runners(pipelined: Path, cache: Path) -> bool:
    """Whether every claim held: on jobs younger than the daemon, and on older ones."""
    programs = _built(cache)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runners-")))
        make_stages(directory / "stages", _COUNTING, _HOLDING)
        gate = stack.enter_context(subprocess.Popen(["sleep", "infinity"]))
        stack.callback(gate.terminate)
        coordinator = stack.enter_context(Coordinator())
        gitlab = GitLab(programs / "gitlab-runner", directory, coordinator)
        github = GitHub(programs / "act", directory)

        def jobs(daemon: Daemon) -> Runners:
            return Runners(Recorded(daemon.url), directory, gitlab, github, gate.pid)

        with Daemon(pipelined, directory / "first") as daemon:
            stack.enter_context(gitlab.running())
            failures = try_all(jobs(daemon).younger(), "runners")
        gitlab.start(4717, held("gl-before", gate.pid))
        workflow = github.begin("before", held("gh-before", gate.pid))
        stack.callback(workflow.wait)
        stack.callback(gate.terminate)
        for name in ("gl-before", "gh-before"):
            wait_until(lambda name=name: alive(name), name)  # type: ignore[misc]
        daemon = stack.enter_context(Daemon(pipelined, directory / "second"))
        wanted = {"gl-before|sort|tail", "gh-before|sort|tail"}
        recorded = Recorded(daemon.url)
        wait_until(lambda: wanted <= recorded.live(), f"live: {wanted}")
        gate.terminate()
        gate.wait()
        failures += try_all(jobs(daemon).older(), "runners")
        return failures == 0
