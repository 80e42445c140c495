# SPDX-License-Identifier: Apache-2.0
"""Containers that run pipelines. docs/HOSTS.md has what is claimed of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import recorded
from recorded import PATIENCE, Run

IMAGE = "localhost/job:1"
#: A host may give even root no CAP_SYS_RESOURCE, and Podman raises these limits if left alone.
#: And cgroup v2 may have no controllers.
LIMITS = (*("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--pids-limit", "-1"),)
#: What the containers' scripts call.
PROGRAMS = ("cat", "head", "sh", "sleep", "sort", "tail", "tr", "wc")
#: The names of stages, which are links to sleep in the image: of each trial one.
STAGES = (
    *("podman-run", "podman-late", "podman-exec", "podman-out", "podman-pod", "podman-cold"),
    *("rootless-run", "ctr-run", "ctr-out", "runc-run", "nspawn-run", "pod-run", "pod-late"),
    *("cron-run", "cron-long", "job-run", "job-index", "deploy-run", "stateful-run"),
    *("daemon-run", "init-run", "kubectl-exec"),
    *("docker-run", "docker-late", "docker-exec", "docker-out", "machine-run", "machine-unit"),
)


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


def make_root(root: Path) -> None:
    """A root for containers with this host's programs, and what these are linked with."""
    for directory in ("usr/bin", "usr/lib", "usr/lib64", "etc", "tmp", "proc", "sys", "dev"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "lib64"):
        if not (root / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    (root / "etc/os-release").write_text("ID=job\n")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    programs = [f"/usr/bin/{name}" for name in PROGRAMS]
    libraries = set(re.findall(r"(?m)^\s.*?(/\S+) \(0x", call("ldd", *programs)))
    for file in (*programs, *libraries):
        target = root / ("usr" + file.removeprefix("/usr"))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def make_links(root: Path) -> None:
    """The stages' names in the root of an image."""
    for name in STAGES:
        assert len(name) <= 15, f"the kernel would cut {name}"
        link = root / "usr/bin" / name
        if not link.is_symlink():
            link.symlink_to("sleep")


def expect(run: Run, unit: str, **facts: object) -> None:
    """As `recorded.expect`; this program may be in a pipeline itself (`… | tee log`)."""
    recorded.expect(run, unit, inside=run["parent_pipeline"], **facts)


def container(runtime: str, number: str, name: str | None, image: str | None) -> dict[str, Any]:
    """As the JSON has it."""
    return {"runtime": runtime, "id": number, "name": name, "image": image}
