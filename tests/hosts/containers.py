# SPDX-License-Identifier: Apache-2.0
"""Run pipelines in real containers, and hold what the daemon says of them against docs/HOSTS.md.

    tests/hosts/containers.py [--only podman] [--kubelet FILE] [--work build/hosts/containers]

Podman, containerd, runc, systemd-nspawn and a kubelet run on this host, with state of their own
under `--work`, but for Podman's storage, and the kubelet's links in /var/log/containers: the daemon
reads these where every host has them. A kubelet is built elsewhere: without the option it is not
tried. Each claim prints a line. Exit code 0 only if every claim held. Needs root.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import containers_kubelet
import containers_runtimes as runtimes
from containers_trials import call, make_links
from daemon_here import Daemon
from recorded import Recorded

_TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_TOP / "tests" / "vm"))

from claims import try_all  # noqa: E402

PARTS = ("podman", "rootless", "containerd", "runc", "nspawn", "kubelet")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="this part")
    parser.add_argument("--kubelet", type=Path, help="this program")
    parser.add_argument("--work", type=Path, default=_TOP / "build" / "hosts" / "containers")
    options = parser.parse_args()
    if os.geteuid():
        print("containers: needs root", file=sys.stderr)
        return 1
    parts = list(options.only or PARTS)
    if "kubelet" in parts and not options.kubelet:
        print("kubelet: not run: no --kubelet", flush=True)
        parts.remove("kubelet")
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    failures = 0
    archive = image_root(work)
    state = work / "state"
    call("rm", "-rf", state)
    pipelined = Path(sys.executable).with_name("pipelined")
    with Daemon(pipelined, state, "--host-name", containers_kubelet.NODE) as daemon:
        recorded = Recorded(daemon.url)
        for part in parts:
            with claims_of(part, recorded, work, archive, options.kubelet) as claims:
                failures += try_all(claims, part)
    print(f"containers: {f'{failures} failed' if failures else 'every claim held'}")
    return int(bool(failures))


@contextmanager
def claims_of(
    part: str, recorded: Recorded, work: Path, archive: Path, kubelet: Path | None
) -> Iterator[list[Callable[[], None]]]:
    """What is tried with one runtime, which is there meanwhile."""
    match part:
        case "podman":
            with runtimes.Podman(
                archive, ["--cgroup-manager", "cgroupfs", "--runtime", "runc"]
            ) as podman:
                yield runtimes.podman_claims(podman, recorded)
        case "rootless":
            with runtimes.user() as (name, home):
                yield runtimes.rootless_claims(recorded, name, home, archive)
        case "containerd":
            with runtimes.containerd(work, archive) as address:
                yield runtimes.ctr_claims(recorded, address)
        case "kubelet" if kubelet:
            with (
                runtimes.containerd(work, archive) as address,
                containers_kubelet.kubelet(work, kubelet.resolve(), address),
            ):
                yield containers_kubelet.claims(recorded, work)
        case "runc" | "nspawn":
            root = runtimes.unpacked(work, archive)
            claims = runtimes.runc_claims if part == "runc" else runtimes.nspawn_claims
            yield claims(recorded, root)


def image_root(work: Path) -> Path:
    """An archive of a small Debian with the stages' names, made once."""
    archive = work / "job.tar"
    if not archive.exists():
        root, part = work / "root", work / "job.part.tar"
        call("mmdebstrap", "--variant=essential", "bookworm", root)
        for directory in ("usr/share", "var/cache", "var/lib/apt", "var/lib/dpkg"):
            call("rm", "-r", root / directory)
        make_links(root)
        call("tar", "-C", root, "--exclude=./dev/*", "-cf", part, ".")
        part.rename(archive)
    return archive


if __name__ == "__main__":
    sys.exit(main())
