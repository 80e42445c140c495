# SPDX-License-Identifier: Apache-2.0
"""Docker, Podman and systemd-nspawn under systemd, with cgroup v2 alone.

    containers_guest.py URL

It runs as a unit there. URL is the port of a daemon that sees it all. Each claim prints a line; the
last line is the result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import containers_docker
import containers_runtimes as runtimes
from claims import try_all
from containers_docker import Docker
from containers_trials import IMAGE, LIMITS, call, container, expect, pipeline
from recorded import Recorded, wait_until

ARCHIVE = Path("/hosts/job.tar")
WORK = Path("/var/tmp/containers")

Claims = list[Callable[[], None]]


# -- systemd-nspawn


def machine_claims(recorded: Recorded) -> Claims:
    def a_machine_has_its_name() -> None:
        root = runtimes.unpacked(WORK, ARCHIVE)
        words = ("systemd-nspawn", "--quiet", "--directory", root, "--machine", "batch")
        call(*words, "sh", "-c", pipeline("machine-run"))
        expect(recorded.only("machine-run"), "batch.machine")

    def so_has_one_that_a_unit_runs() -> None:
        root, settings = Path("/var/lib/machines/night"), Path("/etc/systemd/nspawn/night.nspawn")
        call("cp", "-a", runtimes.unpacked(WORK, ARCHIVE), root)
        settings.parent.mkdir(parents=True, exist_ok=True)
        # a machine of systemd's is booted, has users of its own, and a network
        settings.write_text(
            f"[Exec]\nBoot=no\nPrivateUsers=no\nParameters=sh -c '{pipeline('machine-unit')}'\n"
            "[Network]\nVirtualEthernet=no\n"
        )
        call("machinectl", "start", "night")
        expect(recorded.only("machine-unit"), "night.machine")

    return [a_machine_has_its_name, so_has_one_that_a_unit_runs]


# -- Podman


@contextmanager
def user_with_manager() -> Iterator[tuple[str, dict[str, str]]]:
    """A user whose systemd runs without a session, and its environment."""
    with runtimes.user() as (name, home):
        call("loginctl", "enable-linger", name)
        runtime = f"/run/user/{home.stat().st_uid}"
        wait_until(Path(f"{runtime}/bus").exists, "the user's manager")
        yield name, {"HOME": str(home), "XDG_RUNTIME_DIR": runtime}
        call("loginctl", "disable-linger", name)
        wait_until(lambda: not Path(f"{runtime}/bus").exists(), "the end of the user's manager")


def users_claims(recorded: Recorded, name: str, variables: dict[str, str]) -> Claims:
    def a_user_s_container_with_a_cgroup_of_systemd_s_goes_by_its_id() -> None:
        copy = Path(variables["HOME"], "job.tar")
        copy.write_bytes(ARCHIVE.read_bytes())
        # in the user's manager, as from a session: from here nothing could be moved there
        unit = ("systemd-run", "--user", "--quiet", "--wait", "--collect", "--pipe")
        podman = [*unit, "podman", "--runtime", "runc"]
        call(*podman, "import", copy, IMAGE, user=name, **variables)
        words = [*podman, "run", *LIMITS, "--network", "none", "--log-driver", "k8s-file"]
        words += ["--name", "mine", IMAGE, "sh", "-c", pipeline("rootless-run")]
        call(*words, user=name, **variables)
        number = call(*podman, "inspect", "--format", "{{.Id}}", "mine", user=name, **variables)
        place = container("podman", number, None, None)
        run = recorded.only("rootless-run")
        # who that is on the host, which has other users
        user = run["identity"]["user"]
        expect(run, f"{number[:12]}.podman", container=place, user=user)
        assert run["identity"]["uid"] == Path(variables["HOME"]).stat().st_uid

    return [a_user_s_container_with_a_cgroup_of_systemd_s_goes_by_its_id]


def main(url: str) -> None:
    recorded = Recorded(url)
    WORK.mkdir()
    failures = 0

    def attempt(claims: Claims) -> None:
        nonlocal failures
        failures += try_all(claims, "guest")

    assert Path("/sys/fs/cgroup/cgroup.procs").exists(), "no cgroup v2"
    attempt(containers_docker.claims(Docker(), recorded, ARCHIVE))
    attempt(machine_claims(recorded))
    with runtimes.Podman(ARCHIVE, ["--runtime", "runc"]) as podman:
        attempt(runtimes.podman_claims(podman, recorded))
    with user_with_manager() as (name, variables):
        attempt(users_claims(recorded, name, variables))
    print(f"guest: result failures={failures}", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except BaseException as error:
        print(f"guest: {error!r}\nguest: result failures=1", flush=True)
        sys.exit(1)
