# SPDX-License-Identifier: Apache-2.0
"""make and ninja on this host, and shells as CI runners start them.

Neither Jenkins nor the newest of GitLab's runner comes from a package registry; an older one does:
schedulers_runners.py runs it. What stands for them here is how they are known to start shells.
Jenkins' plugin durable-task starts a script, detached, with its output in a file. GitLab's shell
executor, as of 19.4, starts a login shell, which reads the script from a pipe and evaluates it in
a subshell.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from claims import try_all
from daemon_here import Daemon
from recorded import Recorded, Run, alive, expect, held, make_stages, pipeline, wait_until

_COUNTING = (
    *("make-one", "make-two", "make-named", "make-teed", "make-listed", "ninja-one", "ninja-two"),
    *("jenkins-sh", "gitlab-sh", "plain"),
)
_BEFORE = ("make-before", "ninja-before")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"

_MAKEFILE = """all: one two
one:
	{one}
two:
	{two}
named:
	{named}
teed:
	{teed}
before:
	{before}
listed:
	@echo $(shell {listed})
"""
_NINJA = """rule run
  command = $command
build one: run
  command = {one}
build two: run
  command = {two}
build before: run
  command = {before}
"""
#: What Jenkins' durable-task has `nohup sh -c` do for a step `sh`, in the folder {at}.
_JENKINS = """(\
{{ while [ -d '{at}' -a ! -f '{at}/result.txt' ]; do touch '{at}/log.txt'; sleep 3; done }} & \
jsc=durable-1; JENKINS_SERVER_COOKIE=$jsc 'sh' -xe '{at}/script.sh' > '{at}/log.txt' 2>&1; \
echo $? > '{at}/result.txt.tmp'; mv '{at}/result.txt.tmp' '{at}/result.txt'; wait) >&- 2>&- &"""
#: What GitLab's runner writes to `bash -l`: the variables, then each line of the job.
_GITLAB = r"""#!/usr/bin/env bash

trap 'exit 1' TERM

case "$(set -o)" in *"pipefail"*) set -o pipefail;; esac; set -o errexit
set +o noclobber
(trap 'exit 1' TERM; eval $'export CI_JOB_ID=4711\nexport CI_PIPELINE_ID=42\n{line}\n') < /dev/null
exit 0
"""
#: Feeds a shell and reads what it prints, as programs in Go do; {0} is the script.
_FEEDER = """import subprocess, sys
done = subprocess.run(["bash", "-l"], input=sys.argv[1], text=True, stdout=subprocess.PIPE,
                      stderr=subprocess.STDOUT)
print(done.stdout)
sys.exit(done.returncode)
"""


class Drivers:
    """Each claim is a method; without a variable that names it a job has this host's unit."""

    def __init__(self, recorded: Recorded, directory: Path) -> None:
        self._recorded = recorded
        self._directory = directory

    def call(self, *words: str, **variables: str) -> str:
        done = subprocess.run(
            words,
            cwd=self._directory,
            env=environment(self._directory, **variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
        return done.stdout

    @cached_property
    def plain(self) -> Run:
        """What this program starts itself: in its own cgroup, and in the pipeline that it is in."""
        self.call("sh", "-c", f"{pipeline('plain')}; true")
        return self._recorded.only("plain")

    def expect(self, first: str, unit: str = "", **facts: Any) -> None:
        usual = {"inside": self.plain["parent_pipeline"]}
        expect(self._recorded.only(first), unit or self.plain["unit"], **usual | facts)

    def what_make_and_ninja_started_before_the_daemon_is_no_part_of_them(self) -> None:
        for name in _BEFORE:
            self.expect(name, partial=True)

    def recipes_of_make_are_pipelines_of_their_own(self) -> None:
        """Also with a job server, a pipe that all of make's processes hold."""
        self.call("make", "-j2")
        for name in ("make-one", "make-two"):
            self.expect(name)

    def variables_of_make_name_job_instance_and_trace(self) -> None:
        url = "https://ci.example.org/job/etl/7/"
        given = {"PIPELINED_JOB": "build", "BUILD_URL": url, "TRACEPARENT": PARENT}
        self.call("make", "named", **given)
        self.expect("make-named", "build.job", variables={"BUILD_URL": url}, trace=TRACE)

    def in_a_pipeline_make_is_a_stage_around_what_it_starts(self) -> None:
        self.call("sh", "-c", "make teed | cat > /dev/null; true")
        self.expect("make-teed", inside="make|cat")

    def what_make_reads_by_shell_is_a_pipeline_without_make(self) -> None:
        assert self.call("make", "listed") == "9999\n"
        self.expect("make-listed")

    def edges_of_ninja_are_pipelines_of_their_own(self) -> None:
        """ninja reads what they print; it is no stage."""
        self.call("ninja", "-j2", "one", "two", PIPELINED_JOB="build")
        for name in ("ninja-one", "ninja-two"):
            self.expect(name, "build.job")

    def a_step_of_jenkins_has_the_build_s_address(self) -> None:
        """Started as the plugin durable-task does; Jenkins itself was not to be had."""
        at = self._directory / "durable-1"
        at.mkdir()
        (at / "script.sh").write_text(f"{pipeline('jenkins-sh')}\n")
        given = {"BUILD_URL": "https://ci.example.org/job/etl/7/", "BUILD_TAG": "jenkins-etl-7"}
        self.call("nohup", "sh", "-c", _JENKINS.format(at=at), **given)
        wait_until((at / "result.txt").exists, "the step's end")
        assert (at / "result.txt").read_text() == "0\n"
        self.expect("jenkins-sh", variables=given)

    def a_job_of_gitlab_has_its_number(self) -> None:
        """Started as the shell executor of 19.4 does, which was not to be had."""
        runner = self._directory / "stages" / "gitlab-runner"
        runner.symlink_to(os.path.realpath(sys.executable))
        text = _GITLAB.format(line=f"{self._directory}/stages/{pipeline('gitlab-sh')}")
        self.call(str(runner), "-c", _FEEDER, text)
        given = {"CI_JOB_ID": "4711", "CI_PIPELINE_ID": "42"}
        self.expect("gitlab-sh", variables=given)

    def claims(self) -> list[Callable[[], None]]:
        return [
            self.what_make_and_ninja_started_before_the_daemon_is_no_part_of_them,
            self.recipes_of_make_are_pipelines_of_their_own,
            self.variables_of_make_name_job_instance_and_trace,
            self.in_a_pipeline_make_is_a_stage_around_what_it_starts,
            self.what_make_reads_by_shell_is_a_pipeline_without_make,
            self.edges_of_ninja_are_pipelines_of_their_own,
            self.a_step_of_jenkins_has_the_build_s_address,
            self.a_job_of_gitlab_has_its_number,
        ]


def environment(directory: Path, **more: str) -> dict[str, str]:
    path = f"{directory / 'stages'}:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(directory), "LANG": "C"} | more


def run_drivers(pipelined: Path) -> bool:
    """Whether every claim on what drives pipelines from this host held."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drivers-")))
        make_stages(directory / "stages", _COUNTING, _BEFORE)
        gate = stack.enter_context(subprocess.Popen(["sleep", "infinity"]))
        stack.callback(gate.terminate)
        for file, text, tool in (("Makefile", _MAKEFILE, "make"), ("build.ninja", _NINJA, "ninja")):
            names = ("one", "two", "named", "teed", "listed")
            commands = {name: pipeline(f"{tool}-{name}") for name in names}
            commands["before"] = held(f"{tool}-before", gate.pid)
            (directory / file).write_text(text.format(**commands))
            print(f"{tool}: {_version(tool)}", flush=True)
            older = subprocess.Popen(
                [tool, "before"],
                cwd=directory,
                env=environment(directory),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            stack.callback(older.wait)
        stack.callback(gate.terminate)
        for name in _BEFORE:
            wait_until(lambda name=name: alive(name), name)  # type: ignore[misc]
        daemon = stack.enter_context(Daemon(pipelined, directory / "state"))
        recorded = Recorded(daemon.url)
        wanted = {f"{name}|sort|tail" for name in _BEFORE}
        wait_until(lambda: wanted <= recorded.live(), f"live: {wanted}")
        gate.terminate()
        gate.wait()
        return try_all(Drivers(recorded, directory).claims(), "drivers") == 0


def _version(tool: str) -> str:
    return subprocess.run([tool, "--version"], capture_output=True, text=True).stdout.split("\n")[0]
