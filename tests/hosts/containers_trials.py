# SPDX-License-Identifier: Apache-2.0
"""Containers that run pipelines, and what a daemon records of these.

Every pipeline has a stage of a name of its own, by which its run is found. docs/HOSTS.md has what
is claimed here.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Seconds to wait for anything: the host may be busy.
PATIENCE = 300
IMAGE = "localhost/job:1"
#: A host may give even root no CAP_SYS_RESOURCE, and Podman raises these limits if left alone.
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
#: The names of stages, which are links to sleep in the image: of each trial one.
STAGES = (
    *("podman-run", "podman-late", "podman-exec", "podman-out", "podman-pod", "podman-cold"),
    *("rootless-run", "ctr-run", "ctr-out", "runc-run", "nspawn-run", "pod-run", "pod-late"),
)

Run = dict[str, Any]


def call(*words: str | Path, text: str = "", user: str = "", **environment: str) -> str:
    """What a command prints on standard output."""
    command = ["setpriv", "--reuid", user, "--regid", user, "--init-groups"] if user else []
    done = subprocess.run(
        [*command, *map(str, words)],
        input=text,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        cwd="/",
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-1500:]} {done.stderr[-1500:]}"
    return done.stdout.strip()


def shell(script: str, **environment: str) -> str:
    return call("bash", "-o", "pipefail", "-c", script, **environment)


def pipeline(first: str, then: str = "sleep 2") -> str:
    """A script with a pipeline whose first stage has this name.

    It takes longer than others: of many that end at once the history has the longest.
    """
    return f"{first} 1.5 | sort | tail -n 1; {then}"


def make_links(root: Path) -> None:
    """The stages' names in the root of an image."""
    for name in STAGES:
        assert len(name) <= 15, f"the kernel would cut {name}"
        link = root / "usr/bin" / name
        if not link.is_symlink():
            link.symlink_to("sleep")


def wait_until(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(1)
    raise AssertionError(f"waited {PATIENCE} s in vain for {what}")


class Recorded:
    """The history of a daemon."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=PATIENCE) as answer:
            return json.load(answer)

    def is_ready(self) -> bool:
        try:
            answer = self.get("/readyz")
        except OSError:
            return False
        return not answer["pending_hooks"]

    def runs(self, command: str) -> list[Run]:
        """Those that have ended with a stage of this name, the newest first."""
        found: list[Run] = self.get(f"/api/v1/runs?limit=20&command={command}")["runs"]
        return found

    def run(self, command: str) -> Run:
        """The newest, in full."""
        found = wait_until(lambda: self.runs(command), f"a run of {command}")
        whole: Run = self.get(f"/api/v1/runs/{found[0]['id']}")
        return whole


def said(run: Run) -> str:
    """In a line what a run says of where it was."""
    identity = run["identity"]
    kept = ("uid", "user", "container", "pod")
    place = {name: identity[name] for name in kept if identity.get(name) is not None}
    return f"{run['pipeline']} unit={run['unit']} {json.dumps(place)}"


def expect(run: Run, unit: str, **wanted: object) -> None:
    """The unit, and keys of the identity, must be these."""
    found = {"unit": run["unit"]} | {name: run["identity"].get(name) for name in wanted}
    right = {"unit": unit} | wanted
    print(f"    {said(run)}", flush=True)
    assert found == right, f"{found} is not {right}"


def container(runtime: str, number: str, name: str | None, image: str | None) -> dict[str, Any]:
    """As the JSON has it."""
    return {"runtime": runtime, "id": number, "name": name, "image": image}
