# SPDX-License-Identifier: Apache-2.0
"""Podman, containerd, runc and systemd-nspawn on this host, and what is claimed of each."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from containers_trials import IMAGE, LIMITS, call, container, expect, pipeline, shell
from recorded import PATIENCE, Recorded, said, wait_until

_USER = "pipelined-job"


class Podman:
    """Podman with these options, and the image."""

    def __init__(self, archive: Path, options: list[str]) -> None:
        self.words = ["podman", *options]
        self._archive = archive

    def __enter__(self) -> Podman:
        self(*("import", "--change", 'CMD=["sleep","infinity"]', str(self._archive), IMAGE))
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("nightly", "late", "served", "source", "filler", "cold", "other"):
            self("rm", "--force", "--ignore", "--time", "0", name)
        for image in (f"{IMAGE}-big", IMAGE):
            subprocess.run(
                [*self.words, "image", "unmount", "--force", image],
                capture_output=True,
                check=False,
            )
            subprocess.run([*self.words, "rmi", "--force", image], capture_output=True, check=False)

    def __call__(self, *words: str) -> str:
        return call(*self.words, *words)

    def run_words(self, name: str, *options: str) -> list[str]:
        fixed = ("--network", "none", "--log-driver", "k8s-file", "--name", name)
        return [*self.words, "run", *LIMITS, *fixed, *options, IMAGE]

    def run(self, name: str, script: str, *options: str) -> str:
        return call(*self.run_words(name, *options), "sh", "-c", script)

    def id(self, name: str) -> str:
        return self("inspect", "--format", "{{.Id}}", name)


def podman_claims(podman: Podman, recorded: Recorded) -> list[Callable[[], None]]:
    def a_run_has_the_containers_name_id_and_image() -> None:
        podman.run("nightly", pipeline("podman-run"))
        place = container("podman", podman.id("nightly"), "nightly", IMAGE)
        expect(recorded.only("podman-run"), "nightly.podman", container=place)

    def so_has_one_that_ends_with_a_container_that_is_removed() -> None:
        """It takes too short a time for that a sweep sees it run."""
        id_file = Path("/run/pipelined-job.cid")
        numbers = []
        while not recorded.runs("podman-late") and len(numbers) < 5:
            id_file.unlink(missing_ok=True)
            script = "sleep 3; podman-late 0.2 | sort | tail -n 1"
            podman.run("late", script, "--rm", "--cidfile", str(id_file))
            numbers.append(id_file.read_text().strip())
            time.sleep(2)
        id_file.unlink()
        run = recorded.runs("podman-late")[-1]
        number = (run["identity"]["container"] or {}).get("id")
        expect(run, "late.podman", container=container("podman", number, "late", IMAGE))
        assert number in numbers

    def what_exec_starts_is_of_the_container() -> None:
        podman.run("served", "sleep infinity", "--detach")
        podman("exec", "served", "sh", "-c", pipeline("podman-exec"))
        place = container("podman", podman.id("served"), "served", IMAGE)
        expect(recorded.only("podman-exec"), "served.podman", container=place)

    def a_pod_of_podmans_is_known_by_its_containers() -> None:
        podman("pod", "create", "--name", "bundle", "--infra=false")
        try:
            words = [*podman.words, "run", *LIMITS, "--pod", "bundle", "--name", "bundled", IMAGE]
            call(*words, "sh", "-c", pipeline("podman-pod"))
            place = container("podman", podman.id("bundled"), "bundled", IMAGE)
            expect(recorded.only("podman-pod"), "bundled.podman", container=place)
        finally:
            podman("pod", "rm", "--force", "bundle")

    def a_pipe_to_the_host_is_a_pipeline_around_that_of_the_container() -> None:
        words = podman.run_words("source", "--rm")
        inner = pipeline("podman-out", "echo end")
        shell(f"{shlex.join([*words, 'sh', '-c', inner])} | sort | tail -n 1")
        run = recorded.only("podman-out")
        outer = recorded.only("podman")
        assert run["unit"] == "source.podman", said(run)
        assert outer["identity"]["container"] is None
        assert run["parent"] == outer["id"], f"{run['parent']} is not {outer['id']}"

    def readers_of_logs_are_pipelines_of_the_host() -> None:
        shell(f"{' '.join(podman.words)} logs served | sort | uniq -c | wc -l")
        (run,) = recorded.wait_for("podman|sort|uniq|wc")
        assert run["identity"]["container"] is None, said(run)

    def pages_of_an_image_are_read_from_disk_once() -> None:
        podman.run("filler", "head -c 40000000 /dev/zero | tr '\\0' x > /big")
        podman("commit", "-q", "filler", f"{IMAGE}-big")
        mount = podman("image", "mount", f"{IMAGE}-big")
        shell(f"sync; dd if={mount}/big iflag=nocache count=0 status=none")
        _drop_layers()
        words = podman.run_words("cold", "--rm")[:-1]
        script = "podman-cold 1.5 | cat - /big | tail -c 1 | wc -c; sleep 2"
        call(*words, f"{IMAGE}-big", "sh", "-c", script)
        (run,) = recorded.wait_for("podman-cold|cat|tail|wc")
        stage = next(s for s in run["stages"] if s["command"] == "cat")
        print(f"    cat: {json.dumps(stage['readahead'])}"[:400])
        pages = stage["readahead"]["pages"]
        read = sum(pages[name] for name in ("miss", "hit", "late", "warm"))
        assert 9_600 <= read <= 10_200, pages  # of 40 MB
        assert pages["warm"] < 0.05 * read, pages

    return [
        a_run_has_the_containers_name_id_and_image,
        so_has_one_that_ends_with_a_container_that_is_removed,
        what_exec_starts_is_of_the_container,
        a_pod_of_podmans_is_known_by_its_containers,
        a_pipe_to_the_host_is_a_pipeline_around_that_of_the_container,
        readers_of_logs_are_pipelines_of_the_host,
        pages_of_an_image_are_read_from_disk_once,
    ]


def _drop_layers() -> None:
    """The file is cached by the inode of its layer, not by that of the mount."""
    for file in Path("/var/lib/containers/storage/overlay").glob("*/diff/big"):
        call("dd", f"if={file}", "iflag=nocache", "count=0", "status=none")


@contextmanager
def user() -> Iterator[tuple[str, Path]]:
    """A user with subordinate ids, for as long as it takes."""
    call("useradd", "--create-home", "--shell", "/bin/bash", _USER)
    home = Path("/home") / _USER
    try:
        yield _USER, home
    finally:
        # Podman leaves a process that holds the user's namespaces
        for pause in home.glob("run/libpod/tmp/pause.pid"):
            os.kill(int(pause.read_text()), signal.SIGKILL)
        call("rm", "-rf", "--one-file-system", home)
        subprocess.run(["userdel", _USER], check=False)


def rootless_claims(
    recorded: Recorded, name: str, home: Path, archive: Path
) -> list[Callable[[], None]]:
    def without_a_cgroup_of_its_own_a_users_container_is_what_else_the_user_runs() -> None:
        runtime = home / "run"
        runtime.mkdir(mode=0o700)
        uid = home.stat().st_uid
        os.chown(runtime, uid, uid)
        copy = home / "job.tar"
        copy.write_bytes(archive.read_bytes())
        variables = {"HOME": str(home), "XDG_RUNTIME_DIR": str(runtime)}
        podman = ["podman", "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
        call(*podman, "import", copy, IMAGE, user=name, **variables)
        words = [*podman, "run", *LIMITS, "--network", "none", "--name", "mine", IMAGE]
        call(*words, "sh", "-c", pipeline("rootless-run"), user=name, **variables)
        expect(recorded.only("rootless-run"), "-", user=name)

    return [without_a_cgroup_of_its_own_a_users_container_is_what_else_the_user_runs]


def save_image(layer: Path, image: Path) -> None:
    """An archive as `docker save` writes it, with this one layer."""
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["sleep", "infinity"], "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(layer.read_bytes()).hexdigest()}"],
        },
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    with tarfile.open(image, "w") as archive:
        for name, content in (("config.json", config), ("manifest.json", manifest)):
            data = json.dumps(content).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        archive.add(layer, "layer.tar")


def _mounts_below(directory: Path) -> list[str]:
    """Where something is mounted there, the innermost first."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return [
        at for at in (one.split()[1] for one in reversed(mounts)) if at.startswith(f"{directory}/")
    ]


@contextmanager
def containerd(work: Path, archive: Path, inside: Sequence[str] = ()) -> Iterator[Path]:
    """containerd with a state of its own, and the image for each client: its socket.

    `inside` is what it is to be started by.
    """
    state = work / "containerd"
    state.mkdir(exist_ok=True)
    address = state / "containerd.sock"
    (state / "config.toml").write_text(
        f'version = 2\nroot = "{state}/root"\nstate = "{state}/run"\n'
        f'[grpc]\naddress = "{address}"\n'
        f'[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "{IMAGE}"\n'
        "restrict_oom_score_adj = true\n"
    )
    image = state / "image.tar"
    with (state / "log").open("w") as log:
        started = subprocess.Popen(
            [*inside, "containerd", "-c", state / "config.toml"], stdout=log, stderr=log
        )
        try:
            ctr = ["ctr", "--address", address]
            wait_until(
                lambda: subprocess.run([*ctr, "version"], capture_output=True).returncode == 0,
                "containerd",
            )
            save_image(archive, image)
            for namespace in ("default", "k8s.io"):
                call(*ctr, "--namespace", namespace, "images", "import", image)
            yield address
        finally:
            started.terminate()
            started.wait(PATIENCE)
            # such as the memory that the containers of a pod shared
            for mount in _mounts_below(state):
                subprocess.run(["umount", mount], check=False)


def ctr_claims(recorded: Recorded, address: Path) -> list[Callable[[], None]]:
    words = ["ctr", "--address", str(address), "run", "--rm", IMAGE]

    def of_ctr_only_the_namespace_is_known() -> None:
        call(*words, "nightly", "sh", "-c", pipeline("ctr-run"))
        expect(recorded.only("ctr-run"), "default")

    def a_pipe_to_the_host_does_not_enclose_that_of_the_container() -> None:
        """The container is a child of containerd's shim, not of ctr."""
        inner = pipeline("ctr-out")
        shell(f"{shlex.join([*words, 'source', 'sh', '-c', inner])} | sort | tail -n 1")
        run = recorded.only("ctr-out")
        outer = recorded.only("ctr")
        assert run["parent"] != outer["id"]
        assert run["pipeline"].endswith("|sort|tail"), said(run)

    return [
        of_ctr_only_the_namespace_is_known,
        a_pipe_to_the_host_does_not_enclose_that_of_the_container,
    ]


def unpacked(work: Path, archive: Path) -> Path:
    """The image's root in a directory, for runtimes that know no images."""
    root = work / "bundle" / "rootfs"
    call("rm", "-rf", "--one-file-system", root)
    root.mkdir(parents=True)
    call("tar", "-C", root, "-xf", archive)
    return root


def runc_claims(recorded: Recorded, root: Path) -> list[Callable[[], None]]:
    bundle = root.parent

    def of_runc_the_name_of_the_container_is_the_unit() -> None:
        (bundle / "config.json").unlink(missing_ok=True)
        call("runc", "spec", "--bundle", bundle)
        config = json.loads((bundle / "config.json").read_text())
        config["process"] |= {
            "terminal": False,
            "args": ["sh", "-c", pipeline("runc-run")],
            "rlimits": [],
        }
        (bundle / "config.json").write_text(json.dumps(config))
        call("runc", "run", "--bundle", bundle, "nightly")
        expect(recorded.only("runc-run"), "nightly")

    return [of_runc_the_name_of_the_container_is_the_unit]


def nspawn_claims(recorded: Recorded, root: Path) -> list[Callable[[], None]]:
    def without_systemd_nspawn_has_its_own_cgroup_alone() -> None:
        words = ("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "-D", root)
        call(*words, "sh", "-c", pipeline("nspawn-run"))
        expect(recorded.only("nspawn-run"), "payload")

    return [without_systemd_nspawn_has_its_own_cgroup_alone]
