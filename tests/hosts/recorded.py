# SPDX-License-Identifier: Apache-2.0
"""What a daemon has recorded of jobs, and whether that is what started them gave them.

Every job has a first stage of a name of its own, by which its runs are found. Standard library
only: it also runs in a virtual machine that has nothing else.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

#: Seconds to wait for anything: emulated processors are slow.
PATIENCE = 300

Run = dict[str, Any]


def pipeline(first: str) -> str:
    """A shell's pipeline whose first stage has this name; it prints one line."""
    return f"{first} 20000 | sort | tail -n 1"


def held(first: str, gate: int) -> str:
    """One that lives as long as the process `gate`."""
    return f"{first} -f --pid={gate} /dev/null | sort | tail -n 1"


def make_stages(directory: Path, counting: Iterable[str] = (), holding: Iterable[str] = ()) -> None:
    """Programs for the first stages of `pipeline` and of `held`."""
    directory.mkdir(parents=True, exist_ok=True)
    for program, names in (("/usr/bin/seq", counting), ("/usr/bin/tail", holding)):
        for name in names:
            assert len(name) <= 15, f"the kernel would cut {name}"
            (directory / name).symlink_to(program)


def wait_until(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(1)  # each look costs emulated processors a good part of that
    raise AssertionError(f"waited {PATIENCE} s in vain for {what}")


def alive(name: str) -> int:
    """How many processes have this name."""
    found = 0
    for file in Path("/proc").glob("[0-9]*/comm"):
        try:
            found += file.read_text().strip() == name
        except OSError:  # it has ended
            continue
    return found


class Recorded:
    """The runs of a daemon."""

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}{path}", timeout=PATIENCE) as answer:
            return json.load(answer)

    def is_ready(self) -> bool:
        """It answers, and has attached every hook."""
        try:
            return not self.get("/readyz")["pending_hooks"]
        except OSError:
            return False

    def live(self) -> set[str]:
        """Signatures of the pipelines that run now."""
        answer = self.get("/api/v1/pipelines?live=true&limit=1000")
        return {run["pipeline"] for run in answer["runs"]}

    def runs(self, command: str) -> list[Run]:
        """Those that have ended with a stage of this name, in full, by start.

        Of the history and of the latest ones: where CPU time is short, the history leaves out some.
        """
        latest = self.get("/api/v1/pipelines?live=false&limit=1000")["runs"]
        stored = self.get(f"/api/v1/runs?limit=1000&command={quote(command)}")["runs"]
        found = {
            run["id"]: run
            for run in latest
            if command in (stage["command"] for stage in run["stages"])
        }
        for run in stored:
            found[run["id"]] = run | self.get(f"/api/v1/runs/{run['id']}")
        return sorted(found.values(), key=lambda run: float(run["start_timestamp_seconds"]))

    def wait_for(self, signature: str, count: int = 1) -> list[Run]:
        """The runs of this pipeline, once there are so many."""
        first = signature.split("|")[0]

        def found() -> list[Run]:
            runs = [run for run in self.runs(first) if run["pipeline"] == signature]
            return runs if len(runs) >= count else []

        try:
            runs: list[Run] = wait_until(found, f"{count} of {signature}")
        except AssertionError as error:
            there = [f"live {live}" for live in self.live() if first in live]
            there += [said(run) for run in self.runs(first)]
            there.append(f"{alive(first)} processes named {first}")
            raise AssertionError(f"{error}; there are: {'; '.join(there)}") from None
        return runs

    def only(self, first: str) -> Run:
        """The one run of a pipeline like `pipeline(first)` or `held(first)`."""
        runs = self.wait_for(f"{first}|sort|tail")
        assert len(runs) == 1, [said(run) for run in runs]
        print(f"seen: {said(runs[0])}", flush=True)
        return runs[0]


def said(run: Run) -> str:
    """What a run says of where it belongs, in a line."""
    identity = run["identity"]
    facts = [run["pipeline"], f"unit={run['unit']}", f"user={identity['user']}"]
    facts += [f"{name}={value}" for name, value in identity["variables"].items()]
    if identity["invocation_id"]:
        facts.append(f"invocation={identity['invocation_id']}")
    if identity["trace"]:
        facts.append(f"trace={identity['trace']['trace_id']}")
    for name in ("container", "pod"):
        if identity[name]:
            facts.append(f"{name}={json.dumps(identity[name])}")
    if run["nested"]:
        facts.append(f"in={run['parent_pipeline']}")
    if run["partial"]:
        facts.append("partial")
    facts.append(run["outcome"]["result"])
    return " ".join(facts)


def expect(run: Run, unit: str, **facts: Any) -> None:
    """Of `facts` those that are not given have their usual value."""
    usual = {
        "user": "root",
        "variables": {},
        "invocation": None,
        "trace": None,
        "container": None,
        "pod": None,
        "partial": False,
        "inside": None,
        "outcome": "succeeded",
    }
    assert facts.keys() <= usual.keys(), facts
    identity = run["identity"]
    seen = {
        "unit": run["unit"],
        "user": identity["user"],
        "variables": identity["variables"],
        "invocation": identity["invocation_id"],
        "trace": identity["trace"] and identity["trace"]["trace_id"],
        "container": identity["container"],
        "pod": identity["pod"],
        "partial": run["partial"],
        "inside": run["parent_pipeline"],
        "outcome": run["outcome"]["result"],
    }
    wanted = {"unit": unit, **usual, **facts}
    differences = [
        f"{key}: {seen[key]!r}, not {wanted[key]!r}" for key in seen if seen[key] != wanted[key]
    ]
    assert not differences, f"{said(run)}: {'; '.join(differences)}"
