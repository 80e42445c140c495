# SPDX-License-Identifier: Apache-2.0
"""What containers are called, from files such as their runtimes write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelined.model.containers import Container, ContainerFiles, container_of, pod_name
from pipelined.model.units import CgroupNames

ID = "3f2a9c81b0d4" + "5e" * 26
POD = "6c8d3a5e-1b2c-4d5e-8f90-0123456789ab"
SLICE = (
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice"
)


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        (f"/system.slice/docker-{ID}.scope", "docker"),
        (f"/system.slice/docker-{ID}.scope (deleted)", "docker"),
        (f"/system.slice/docker-{ID}.scope/init.scope", "docker"),
        (f"/docker/{ID}", "docker"),
        (f"/docker/{ID}/system.slice/nightly.service", "docker"),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope", "docker"),
        (f"/machine.slice/libpod-{ID}.scope/container", "podman"),
        (f"/libpod_parent/libpod-{ID}", "podman"),
        (f"/system.slice/nerdctl-{ID}.scope", "containerd"),
        (f"{SLICE}/cri-containerd-{ID}.scope", "pod"),
        (f"{SLICE}/crio-{ID}.scope/container", "pod"),
        (f"{SLICE}/docker-{ID}.scope", "pod"),
        (f"/kubepods/burstable/pod{POD}/{ID}", "pod"),
        (f"/system.slice/containerd.service/kubepods-pod{POD}.slice:cri-containerd:{ID}", "pod"),
    ],
)
def test_the_cgroup_of_a_container_has_its_id(path: str, runtime: str) -> None:
    assert container_of(path) == Container(runtime, ID)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/system.slice/docker.service",
        "/system.slice/docker-1234.scope",
        f"/machine.slice/libpod-conmon-{ID}.scope",
        f"/kubepods/burstable/pod{POD}",
        f"/other/{ID}",
        "/lxc/web12",
    ],
)
def test_other_cgroups_are_no_containers(path: str) -> None:
    assert container_of(path) is None


def test_a_container_inside_another_is_the_innermost() -> None:
    inner = "ab" * 32
    assert container_of(f"/docker/{ID}/docker/{inner}") == Container("docker", inner)


@pytest.mark.parametrize(
    ("pod", "name"),
    [
        ("web-7d4b9c6f58-x7k2p", "web"),
        ("my-app-7d4b9c6f58-x7k2p", "my-app"),
        ("etl-29381040-x7k2p", "etl"),
        ("etl-x7k2p", "etl"),
        ("etl-0-x7k2p", "etl"),
        ("db-0", "db"),
        ("kube-proxy-x7k2p", "kube-proxy"),
        ("web", "web"),
        ("batch-loader", "batch-loader"),
        ("web-nginx", "web-nginx"),
        ("x7k2p", "x7k2p"),
    ],
)
def test_what_kubernetes_adds_to_a_name_is_left_out(pod: str, name: str) -> None:
    assert pod_name(pod) == name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of three runtimes."""
    docker = tmp_path / "var/lib/docker/containers" / ID
    docker.mkdir(parents=True)
    docker.joinpath("config.v2.json").write_text(json.dumps({"ID": ID, "Name": "/shop-web-1"}))
    podman = tmp_path / "var/lib/containers/storage/overlay-containers"
    podman.mkdir(parents=True)
    other = {"id": "ab" * 32, "names": ["other"]}
    podman.joinpath("containers.json").write_text(json.dumps([other, {"id": ID, "names": ["db"]}]))
    podman.joinpath("volatile-containers.json").write_text(
        json.dumps([{"id": "cd" * 32, "names": ["once"]}, {"id": "ef" * 32}])
    )
    pods = tmp_path / "var/log/containers"
    pods.mkdir(parents=True)
    pods.joinpath(f"other_ns_main-{'ab' * 32}.log").symlink_to("/gone")
    pods.joinpath(f"web-7d4b9c6f58-x7k2p_prod_main-{ID}.log").symlink_to("/var/log/pods/x/0.log")
    return tmp_path


@pytest.mark.parametrize(
    ("runtime", "container_id", "name"),
    [
        ("docker", ID, "shop-web-1"),
        ("podman", ID, "db"),
        ("podman", "cd" * 32, "once"),
        ("pod", ID, "web.prod"),
        ("docker", "ab" * 32, None),
        ("podman", "ef" * 32, None),
        ("podman", "12" * 32, None),
        ("pod", "12" * 32, None),
        ("containerd", ID, None),
    ],
)
def test_names_are_in_the_runtimes_own_files(
    root: Path, runtime: str, container_id: str, name: str | None
) -> None:
    assert ContainerFiles(root).name(Container(runtime, container_id)) == name


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"Name": ""}', '{"Name": null}', "\xff"]
)
def test_a_file_in_another_format_has_no_name(root: Path, content: str) -> None:
    file = root / "var/lib/docker/containers" / ID / "config.v2.json"
    file.write_bytes(content.encode("latin-1"))
    assert ContainerFiles(root).name(Container("docker", ID)) is None


# As the label


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def cgroups(tmp_path: Path, path: str) -> tuple[Path, int]:
    """A tree of cgroups with this one, and its id."""
    tree = tmp_path / "cgroup"
    cgroup = tree / path.strip("/")
    cgroup.mkdir(parents=True)
    return tree, cgroup.stat().st_ino


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        (f"/system.slice/docker-{ID}.scope", "shop-web.docker"),
        (f"/machine.slice/libpod-{ID}.scope", "db.podman"),
        (f"{SLICE}/cri-containerd-{ID}.scope", "web.prod.pod"),
        (f"{SLICE}/cri-containerd-{'12' * 32}.scope", "121212121212.pod"),
        (f"/system.slice/nerdctl-{ID}.scope", "3f2a9c81b0d4.containerd"),
    ],
)
def test_the_unit_is_the_container_by_its_name_or_else_its_id(
    root: Path, tmp_path: Path, path: str, unit: str
) -> None:
    tree, cgroup = cgroups(tmp_path, path)
    assert CgroupNames(tree, containers=ContainerFiles(root)).unit(cgroup) == unit


def test_a_name_that_comes_later_is_taken_within_a_second_and_kept(
    root: Path, tmp_path: Path
) -> None:
    tree, cgroup = cgroups(tmp_path, f"{SLICE}/cri-containerd-{ID}.scope")
    link = root / f"var/log/containers/web-7d4b9c6f58-x7k2p_prod_main-{ID}.log"
    away = link.rename(root / "away")
    clock = Clock()
    names = CgroupNames(tree, containers=ContainerFiles(root), clock=clock)
    assert names.unit(cgroup) == "3f2a9c81b0d4.pod"
    away.rename(link)
    clock.now = 0.9
    assert names.unit(cgroup) == "3f2a9c81b0d4.pod"
    clock.now = 1.0
    assert names.unit(cgroup) == "web.prod.pod"
    link.unlink()
    clock.now = 9.0
    assert names.unit(cgroup) == "web.prod.pod"
