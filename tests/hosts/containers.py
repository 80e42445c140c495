# SPDX-License-Identifier: Apache-2.0
"""Run pipelines in real containers, and hold what the daemon says of them against docs/HOSTS.md.

    tests/hosts/containers.py [--only podman] [--kubernetes FOLDER] [--work build/hosts/containers]

`systemd` boots a Debian with cgroup v2 alone, Docker and the others, in a container of
systemd-nspawn. The other parts run on this host itself, with state of their own under `--work`, but
for Podman's storage, Docker's, and the kubelet's links in /var/log/containers: the daemon reads
these where every host has them. Kubernetes is built elsewhere: without the option it is not tried.
Each claim prints a line. Exit code 0 only if every claim held. Needs root.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import containers_docker
import containers_kubernetes
import containers_runtimes as runtimes
from containers_kubernetes import Cluster
from containers_trials import call, make_links, make_root
from daemon_here import Daemon
from recorded import Recorded

_TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_TOP / "tests"), str(_TOP / "tests" / "vm")]

import containers_booted  # noqa: E402
import containers_image  # noqa: E402
from claims import try_all  # noqa: E402
from matrix import Unavailable  # noqa: E402
from systemd import base_root  # noqa: E402

PARTS = (
    *("systemd", "podman", "rootless", "docker", "containerd", "runc", "nspawn"),
    *("kubernetes", "image"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="this part")
    parser.add_argument(
        "--kubernetes",
        type=Path,
        metavar="FOLDER",
        help=f"with {', '.join(containers_kubernetes.PROGRAMS)}",
    )
    parser.add_argument("--cache", type=Path, default=_TOP / "build" / "vm")
    parser.add_argument("--work", type=Path, default=_TOP / "build" / "hosts" / "containers")
    options = parser.parse_args()
    if os.geteuid():
        print("containers: needs root", file=sys.stderr)
        return 1
    parts = list(options.only or PARTS)
    if "kubernetes" in parts and not options.kubernetes:
        print("kubernetes: not run: no --kubernetes", flush=True)
        parts.remove("kubernetes")
    if "image" in parts and not containers_image.is_built():
        print("image: not run: make image", flush=True)
        parts.remove("image")
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    failures = 0
    archive = image_root(work)
    if "systemd" in parts:
        parts.remove("systemd")
        failures += not boot(archive, work, options.cache.resolve())
    state = work / "state"
    call("rm", "-rf", state)
    pipelined = Path(sys.executable).with_name("pipelined")
    if parts:
        with Daemon(pipelined, state, "--host-name", containers_kubernetes.NODE) as daemon:
            recorded = Recorded(daemon.url)
            for part in parts:
                try:
                    with claims_of(part, recorded, work, archive, options.kubernetes) as claims:
                        failures += try_all(claims, part)
                except AssertionError as reason:  # what it takes cannot be had, or not be ended
                    print(f"{part}: FAILED {reason}", flush=True)
                    failures += 1
    print(f"containers: {f'{failures} failed' if failures else 'every claim held'}")
    return int(bool(failures))


@contextmanager
def claims_of(
    part: str, recorded: Recorded, work: Path, archive: Path, kubernetes: Path | None
) -> Iterator[list[Callable[[], None]]]:
    """What is tried with one runtime, which is there meanwhile."""
    match part:
        case "podman":
            with runtimes.Podman(archive, containers_image.PODMAN[1:]) as podman:
                yield runtimes.podman_claims(podman, recorded)
        case "image":
            with (
                runtimes.Podman(archive, containers_image.PODMAN[1:]) as podman,
                containers_image.daemon(work) as contained,
            ):
                yield containers_image.claims(podman, contained)
        case "rootless":
            with runtimes.user() as (name, home):
                yield runtimes.rootless_claims(recorded, name, home, archive)
        case "docker":
            with (
                runtimes.containerd(work, archive) as address,
                containers_docker.dockerd(work, address) as docker,
            ):
                yield containers_docker.claims(docker, recorded, archive)
        case "containerd":
            with runtimes.containerd(work, archive) as address:
                yield runtimes.ctr_claims(recorded, address)
        case "kubernetes" if kubernetes:
            with (
                containers_kubernetes.network() as inside,
                runtimes.containerd(work, archive, inside) as address,
                Cluster(work, kubernetes.resolve(), address, inside) as cluster,
            ):
                yield containers_kubernetes.claims(recorded, cluster)
        case "runc" | "nspawn":
            root = runtimes.unpacked(work, archive)
            claims = runtimes.runc_claims if part == "runc" else runtimes.nspawn_claims
            yield claims(recorded, root)


def boot(archive: Path, work: Path, cache: Path) -> bool:
    """Whether every claim held of the runtimes of a Debian that is booted in a container."""
    try:
        root = base_root("bookworm", cache, "containers", containers_booted.PACKAGES)
    except Unavailable as reason:
        print(f"systemd: not run: {reason}", flush=True)
        return False
    words = (containers_booted.__file__, root, archive, work / "booted")
    paths = os.pathsep.join(sys.path)
    command = ("unshare", "--mount", "--propagation", "private", sys.executable, *map(str, words))
    return not subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}).returncode


def image_root(work: Path) -> Path:
    """An archive of a small root with the stages' names."""
    archive, root = work / "job.tar", work / "root"
    call("rm", "-rf", root)
    make_root(root)
    make_links(root)
    call("tar", "-C", root, "-cf", archive, ".")
    return archive


if __name__ == "__main__":
    sys.exit(main())
