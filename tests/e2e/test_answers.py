# SPDX-License-Identifier: Apache-2.0
"""The answers of a real daemon and of real commands are as the schema has them, and the commands
with jq in the documents do what they are there for."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from answer_schema import SCHEMA, problems

if TYPE_CHECKING:
    from e2e.conftest import Daemon, StartDaemon

Wait = Callable[[Callable[[], Any], str], Any]
Shell = Callable[[str], str]

TOP = Path(__file__).parents[2]
DOCUMENTS = [TOP / "README.md", *sorted(TOP.glob("docs/*.md"))]
#: Commands in a document, in blocks that are indented or fenced, that pass JSON to jq.
EXAMPLES = [
    found[1]
    for document in DOCUMENTS
    for line in document.read_text().splitlines()
    if (found := re.match(r"(?: {4}|\$ )?((?:sudo )?(?:pipelined|curl) .*\bjq\b.*)", line))
]


@pytest.fixture
def daemon_with_a_run(
    start_daemon: StartDaemon, tmp_path: Path, log_file: Path, wait_until: Wait
) -> Daemon:
    """A daemon that has just stored a run of which there is something to say."""
    daemon = start_daemon("--state-directory", str(tmp_path / "state"), "--show-arguments")
    job = "for i in 1 2 3 4; do cat access.log; done | sort | uniq -c > counted"
    subprocess.run(["bash", "-c", job], cwd=tmp_path, check=True)
    subprocess.run(["gzip", "-k", log_file], check=True)
    wait_until(lambda: json.loads(daemon.get("/api/v1/runs"))["runs"], "a run in the history")
    return daemon


@pytest.fixture
def shell(daemon_with_a_run: Daemon, program: str, tmp_path: Path) -> Shell:
    """The output of a command line as a document has it, beside that daemon."""
    environment = {
        **os.environ,
        "PATH": f"{Path(program).parent}:{os.environ['PATH']}",
        "STATE_DIRECTORY": str(tmp_path / "state"),
        "LC_ALL": "C",
    }

    def run(line: str) -> str:
        here = line.replace("http://127.0.0.1:9905", daemon_with_a_run.url).replace("sudo ", "")
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", here],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, (here, done.stdout, done.stderr)
        return done.stdout

    return run


def test_the_commands_with_jq_in_the_documents_print_something(shell: Shell) -> None:
    printed = {line: shell(line).strip() for line in EXAMPLES}
    assert [line for line, text in printed.items() if text in ("", "null", "[]", "{}")] == []


def test_documents_have_such_commands_for_each_kind_of_json() -> None:
    kinds = ("run --json", "show", "runs", "compare --json", "curl")
    assert [kind for kind in kinds if not any(kind in line for line in EXAMPLES)] == []


def test_the_answers_of_a_daemon_are_as_the_schema_has_them(
    daemon_with_a_run: Daemon, wait_until: Wait
) -> None:
    def answer(path: str) -> Any:
        return json.loads(daemon_with_a_run.get(path))

    (last,) = answer("/api/v1/runs?limit=1")["runs"]
    with subprocess.Popen(["bash", "-c", "sleep 30 | cat"], start_new_session=True) as live:
        wait_until(lambda: answer("/api/v1/now")["live"], "a live run on the page")
        wrong = {
            path: found
            for path, name in {
                "/api/v1/pipelines": "Pipelines",
                "/api/v1/pipelines?conversations=true": "Pipelines",
                "/api/v1/runs?since=1h": "RunList",
                "/api/v1/runs/last": "RunWithTimeline",
                "/api/v1/now": "Now",
                "/api/v1/hooks": "Hooks",
                f"/api/v1/compare?a={last['id']}&b={last['id']}": "Comparison",
                "/healthz": "Health",
                "/readyz": "Readiness",
            }.items()
            if (found := problems(answer(path), name))
        }
        os.killpg(live.pid, 15)
    assert wrong == {}
    assert answer("/api/v1/schema") == SCHEMA


def test_what_commands_print_is_as_the_schema_has_it(shell: Shell) -> None:
    shell("pipelined run --json -o a.json 'zcat access.log.gz | sort | uniq -c > counted'")
    shell("pipelined run --json -o b.json 'sort access.log | uniq > sorted'")
    wrong = {
        line: found
        for line, name in {
            "cat a.json": "RunReport",
            "pipelined show last --json": "RunWithTimeline",
            "pipelined runs --since 1h --json": "RunList",
            "pipelined runs --json": "RunList",
            "pipelined compare --json a.json b.json": "Comparison",
            "pipelined compare --json last last": "Comparison",
            "pipelined compare --json -n 2 'sort access.log' 'sort -u access.log'": "Comparison",
        }.items()
        if (found := problems(json.loads(shell(line)), name))
    }
    assert wrong == {}
