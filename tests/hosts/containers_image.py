# SPDX-License-Identifier: Apache-2.0
"""The daemon itself in a container of Podman's, as docs/CONTAINER.md starts it."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import containers_runtimes as runtimes
from containers_trials import call, expect, pipeline, shell
from recorded import Recorded, wait_until

from container.test_image import DOCUMENT, IMAGE, PODMAN, adapted, documented

_NAME = "pipelined-observer"
_PORT = "127.0.0.1:19907"
_FILES = "/var/lib/containers/storage/overlay-containers"


def is_built() -> bool:
    return not subprocess.run(["podman", "image", "exists", IMAGE], check=False).returncode


@contextmanager
def daemon(work: Path) -> Iterator[Recorded]:
    """It reads the files of the other containers, and is on the network of the host."""
    state, seccomp = work / "image-state", work / "seccomp.json"
    call("rm", "-rf", state)
    state.mkdir()
    profile = DOCUMENT.parents[1] / "deploy/container/podman-seccomp.jq"
    seccomp.write_text(call("jq", "-f", profile, "/usr/share/containers/seccomp.json"))
    names = f"--volume {_FILES}:{_FILES}:ro"
    assert names in DOCUMENT.read_text(), f"not documented: {names}"
    others = {
        "--publish 127.0.0.1:9905:9905": f"--network host --log-driver k8s-file {names}",
        "--web.listen-address :9905": f"--web.listen-address {_PORT}",
        "--security-opt no-new-privileges": "--security-opt no-new-privileges "
        f"--security-opt seccomp={shlex.quote(str(seccomp))}",
        "--volume pipelined:": f"--volume {state}:",
        " pipelined serve": f" {IMAGE} serve",
    }
    call(*adapted(documented(), _NAME, others))
    try:
        recorded = Recorded(f"http://{_PORT}")
        wait_until(recorded.is_ready, "the daemon in its container")
        yield recorded
    finally:
        call(*PODMAN, "rm", "--force", "--time", "10", _NAME)


def claims(podman: runtimes.Podman, recorded: Recorded) -> list[Callable[[], None]]:
    def a_daemon_in_a_container_sees_what_the_host_runs(tmp: Path = Path("/run/of-host")) -> None:
        tmp.mkdir(exist_ok=True)
        program = tmp / "of-host"
        program.unlink(missing_ok=True)
        program.symlink_to("/usr/bin/sleep")
        try:
            shell(pipeline(str(program), "true"))
            run = recorded.only("of-host")
            expect(run, run["unit"])
        finally:
            call("rm", "-r", tmp)

    return [
        a_daemon_in_a_container_sees_what_the_host_runs,
        *runtimes.podman_claims(podman, recorded),
    ]
