# SPDX-License-Identifier: Apache-2.0
"""Docker: on this host, or as a service of a virtual machine; and what is claimed of it."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from containers_trials import IMAGE, call, container, expect, pipeline, shell
from recorded import PATIENCE, Recorded, said, wait_until

#: Where every host has it, and so where the daemon reads names.
STATE = Path("/var/lib/docker")
#: Made whatever `--exec-root` says.
_RUN = Path("/run/docker")


class Docker:
    """A client with these options."""

    def __init__(self, *options: str) -> None:
        self.words = ["docker", *options]

    def __call__(self, *words: str) -> str:
        return call(*self.words, *words)

    def run_words(self, name: str, *options: str) -> list[str]:
        return [*self.words, "run", "--network", "none", "--name", name, *options, IMAGE]

    def run(self, name: str, script: str, *options: str) -> None:
        call(*self.run_words(name, *options), "sh", "-c", script)

    def place(self, name: str, number: str = "") -> dict[str, Any]:
        """A container, as the JSON has it."""
        number = number or self("inspect", "--format", "{{.Id}}", name)
        return container("docker", number, name, IMAGE)


@contextmanager
def dockerd(work: Path, containerd: Path) -> Iterator[Docker]:
    """Debian's dockerd, which is not installed, without a network."""
    groups = Path("/sys/fs/cgroup")
    assert not STATE.exists() and not [*groups.glob("*/docker")], "this host has Docker"
    state = work / "docker"
    call("rm", "-rf", state)
    (state / "package").mkdir(parents=True)
    call("sh", "-c", 'cd "$1" && apt-get -qq download docker.io', "sh", state)
    (package,) = state.glob("docker.io_*.deb")
    call("dpkg", "-x", package, state / "package")
    programs = [str(state / "package/usr" / name) for name in ("bin", "sbin")]
    path = os.environ["PATH"]
    os.environ["PATH"] = ":".join([*programs, path])
    socket = f"unix://{state}/docker.sock"
    command = [
        *("dockerd", "--host", socket, "--containerd", str(containerd)),
        *("--exec-root", str(state / "run"), "--pidfile", str(state / "pid")),
        *("--bridge=none", "--iptables=false", "--ip6tables=false", "--oom-score-adjust=0"),
    ]
    with (state / "log").open("w") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log)
    docker = Docker("--host", socket)
    try:
        version = [*docker.words, "version"]
        wait_until(lambda: subprocess.run(version, capture_output=True).returncode == 0, "dockerd")
        yield docker
        for name in docker("ps", "--all", "--quiet").split():
            docker("rm", "--force", name)
    finally:
        started.terminate()
        started.wait(PATIENCE)
        os.environ["PATH"] = path
        call("rm", "-rf", "--one-file-system", STATE, _RUN)
        for group in groups.glob("*/docker"):
            group.rmdir()


def claims(docker: Docker, recorded: Recorded, archive: Path) -> list[Callable[[], None]]:
    def docker_has_the_image() -> None:
        docker("import", str(archive), IMAGE)
        print(f"seen: {docker('info', '--format', '{{.ServerVersion}} {{.CgroupDriver}}')}")

    def a_run_has_the_name_id_and_image_of_docker() -> None:
        docker.run("nightly", pipeline("docker-run"))
        expect(recorded.only("docker-run"), "nightly.docker", container=docker.place("nightly"))

    def so_has_one_that_ends_with_a_container_that_is_removed() -> None:
        file = Path("/run/late.cid")
        file.unlink(missing_ok=True)
        script = f"sleep 5; {pipeline('docker-late', 'true')}"
        docker.run("late", script, "--rm", "--cidfile", str(file))
        place = docker.place("late", file.read_text().strip())
        expect(recorded.only("docker-late"), "late.docker", container=place)

    def what_docker_exec_starts_is_of_the_container() -> None:
        script = "for n in 3 1 2; do echo $n; done; exec sleep infinity"
        docker.run("served", script, "--detach")
        docker("exec", "served", "sh", "-c", pipeline("docker-exec"))
        expect(recorded.only("docker-exec"), "served.docker", container=docker.place("served"))

    def readers_of_docker_s_logs_are_pipelines_of_the_host() -> None:
        assert shell(f"{shlex.join(docker.words)} logs served | sort | uniq | tail -n 1") == "3"
        (run,) = recorded.wait_for("docker|sort|uniq|tail")
        assert not run["identity"]["container"], said(run)

    def a_pipe_to_the_host_does_not_enclose_that_of_docker_s_container() -> None:
        """The container is a child of containerd's shim, not of docker."""
        words = [*docker.run_words("source"), "sh", "-c", pipeline("docker-out", "echo end")]
        assert shell(f"{shlex.join(words)} | sort | tail -n 1") == "end"
        run, outer = recorded.only("docker-out"), recorded.only("docker")
        expect(run, "source.docker", container=docker.place("source"))
        assert run["parent"] != outer["id"] and not outer["identity"]["container"], said(outer)

    return [
        docker_has_the_image,
        a_run_has_the_name_id_and_image_of_docker,
        so_has_one_that_ends_with_a_container_that_is_removed,
        what_docker_exec_starts_is_of_the_container,
        readers_of_docker_s_logs_are_pipelines_of_the_host,
        a_pipe_to_the_host_does_not_enclose_that_of_docker_s_container,
    ]
