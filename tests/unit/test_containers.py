# SPDX-License-Identifier: Apache-2.0
"""What containers are called, from files such as their runtimes write."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from pipelined import runs
from pipelined.model.containers import Container, ContainerFiles, Place, container_of, pod_name
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
        (f"/system.slice/nginx.service/libpod-payload-{ID}", "podman"),
        (f"/system.slice/nginx.service/libpod-payload-{ID}/system.slice/db.service", "podman"),
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
        f"/system.slice/nginx.service/libpod-conmon-{ID}",
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
        ("etl-29381040-0-x7k2p", "etl"),
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


@pytest.mark.parametrize("length", range(40, 53))
@pytest.mark.parametrize("index", ["", "-0", "-117"])
def test_starts_of_a_cron_job_have_its_name_however_long_it_is(length: int, index: str) -> None:
    """As a job controller 1.34 makes them; a cron job's name has at most 52 characters."""
    name = ("nightly-" + "load-of-the-warehouse-" * 3)[: length - 1] + "b"
    before = f"{name}-29381040"[: 57 - len(index)] + index + "-"
    assert pod_name(before[:58] + "x7k2p") == name


@pytest.mark.parametrize("length", range(40, 64))
def test_pods_of_a_deployment_have_its_name_however_long_it_is(length: int) -> None:
    name = ("web-" + "of-the-warehouse-" * 4)[: length - 1] + "a"
    before = f"{name}-7d4b9c6f58-"[:58]
    assert pod_name(before + "x7k2p") == name[:58].rstrip("-")


@pytest.mark.parametrize(
    ("pod", "node", "name"),
    [
        ("etl-node-7", "node-7", "etl"),
        ("etl-node-7", "Node-7", "etl"),
        ("kube-apiserver-cp1.example.org", "cp1.example.org", "kube-apiserver"),
        ("etl-x7k2p", "node-7", "etl"),
        ("web-node-8", "node-7", "web-node"),
        ("etl", "etl", "etl"),
    ],
)
def test_the_node_is_no_part_of_the_name_of_a_static_pod(pod: str, node: str, name: str) -> None:
    """A kubelet 1.34 adds it: a workload has one name on all nodes."""
    assert pod_name(pod, node) == name


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
    assert ContainerFiles(root).describe(Container(runtime, container_id)).unit == name


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"Name": ""}', '{"Name": null}', "\xff"]
)
def test_a_file_in_another_format_has_no_name(root: Path, content: str) -> None:
    file = root / "var/lib/docker/containers" / ID / "config.v2.json"
    file.write_bytes(content.encode("latin-1"))
    assert ContainerFiles(root).describe(Container("docker", ID)).unit is None


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
        (f"/system.slice/nginx.service/libpod-payload-{ID}/init.scope", "nginx.service"),
        (f"/system.slice/nginx.service/libpod-payload-{'12' * 32}", "nginx.service"),
        (
            f"/system.slice/nginx.service/libpod-payload-{'12' * 32}/docker-{ID}.scope",
            "shop-web.docker",
        ),
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


# Image and pod


def podman_metadata(image: str) -> str:
    """As containers/storage keeps what Podman gives it: JSON in a text."""
    return json.dumps({"image-name": image, "image-id": "12" * 32, "name": "db"})


def test_images_are_in_the_runtimes_own_files(root: Path) -> None:
    docker = root / "var/lib/docker/containers" / ID / "config.v2.json"
    docker.write_text(json.dumps({"Name": "/shop-web-1", "Config": {"Image": "shop/web:1.4"}}))
    podman = root / "var/lib/containers/storage/overlay-containers/containers.json"
    one = {"id": ID, "names": ["db"], "metadata": podman_metadata("docker.io/library/db:16")}
    podman.write_text(json.dumps([one]))
    files = ContainerFiles(root)
    docker_says, podman_says = (
        files.describe(Container(runtime, ID)) for runtime in ("docker", "podman")
    )
    assert (docker_says.name, docker_says.image) == ("shop-web-1", "shop/web:1.4")
    assert (podman_says.name, podman_says.image) == ("db", "docker.io/library/db:16")


@pytest.mark.parametrize("image", ["", None, 7, []])
def test_a_container_without_an_image_keeps_its_name(root: Path, image: object) -> None:
    docker = root / "var/lib/docker/containers" / ID / "config.v2.json"
    docker.write_text(json.dumps({"Name": "/shop-web-1", "Config": {"Image": image}}))
    found = ContainerFiles(root).describe(Container("docker", ID))
    assert (found.name, found.image) == ("shop-web-1", None)


def test_the_kubelets_links_name_pod_namespace_and_container(root: Path, tmp_path: Path) -> None:
    tree, cgroup = cgroups(tmp_path, f"{SLICE}/cri-containerd-{ID}.scope")
    place = CgroupNames(tree, containers=ContainerFiles(root), node="node-7").place(cgroup)
    assert place and place.container == runs.Container("pod", ID)
    assert place.pod == runs.Pod("web-7d4b9c6f58-x7k2p", "prod", "main", "node-7")


def test_a_static_pod_has_one_unit_on_all_nodes(root: Path, tmp_path: Path) -> None:
    links = root / "var/log/containers"
    links.joinpath(f"etl-node-7_prod_main-{'12' * 32}.log").symlink_to("/var/log/pods/y/0.log")
    tree, cgroup = cgroups(tmp_path, f"/kubepods/besteffort/pod{POD}/{'12' * 32}")
    names = CgroupNames(tree, containers=ContainerFiles(root), node="node-7")
    place = names.place(cgroup)
    assert names.unit(cgroup) == "etl.prod.pod"
    assert place and place.pod == runs.Pod("etl-node-7", "prod", "main", "node-7")


def test_a_container_that_nobody_names_is_known_by_its_id(root: Path, tmp_path: Path) -> None:
    tree, cgroup = cgroups(tmp_path, f"/system.slice/nerdctl-{ID}.scope")
    place = CgroupNames(tree, containers=ContainerFiles(root)).place(cgroup)
    assert place == Place(runs.Container("containerd", ID), None)


def test_a_service_that_is_a_container_has_the_place_of_the_container(
    root: Path, tmp_path: Path
) -> None:
    """`podman run --cgroups=split`, as Quadlet writes it."""
    tree, cgroup = cgroups(tmp_path, f"/system.slice/nginx.service/libpod-payload-{ID}")
    place = CgroupNames(tree, containers=ContainerFiles(root)).place(cgroup)
    assert place == Place(runs.Container("podman", ID, "db"), None)


def test_what_is_in_no_container_has_no_place(root: Path, tmp_path: Path) -> None:
    tree, cgroup = cgroups(tmp_path, "/system.slice/nightly.service")
    assert CgroupNames(tree, containers=ContainerFiles(root)).place(cgroup) is None


def test_names_are_read_ahead_while_that_is_allowed(root: Path, tmp_path: Path) -> None:
    tree, cgroup = cgroups(tmp_path, f"/system.slice/docker-{ID}.scope")
    names = CgroupNames(tree, containers=ContainerFiles(root))
    names.read_names()
    shutil.rmtree(root / "var")  # as if it could not be read any more
    assert names.unit(cgroup) == "shop-web.docker"
    place = names.place(cgroup)
    assert place and place.container.name == "shop-web-1"


def test_a_container_that_starts_once_names_may_not_be_read_goes_by_its_id(
    root: Path, tmp_path: Path
) -> None:
    tree, earlier = cgroups(tmp_path, f"/system.slice/docker-{ID}.scope")
    names = CgroupNames(tree, containers=ContainerFiles(root), interval=0.0)
    names.read_names()
    shutil.rmtree(root / "var")  # as if it could not be read any more
    _, later = cgroups(tmp_path, f"/system.slice/docker-{'12' * 32}.scope")
    assert names.unit(later) == "121212121212.docker"
    assert names.place(later) == Place(runs.Container("docker", "12" * 32), None)
    assert names.unit(earlier) == "shop-web.docker"


def test_a_container_that_is_gone_when_its_pipeline_is_seen_has_its_name(
    root: Path, tmp_path: Path
) -> None:
    """Podman 4.3: `podman run --rm … sh -c 'sleep 3; seq 300 | sort'` is gone 50 ms after it."""
    clock = Clock()
    tree = tmp_path / "cgroup"
    tree.mkdir()
    names = CgroupNames(tree, containers=ContainerFiles(root), clock=clock)
    names.keep_up()
    _, cgroup = cgroups(tmp_path, f"/libpod_parent/libpod-{'cd' * 32}")
    clock.now = 1.0
    names.keep_up()
    shutil.rmtree(tree / "libpod_parent")
    shutil.rmtree(root / "var")
    clock.now = 2.0
    place = names.place(cgroup)
    assert names.unit(cgroup) == "once.podman"
    assert place and place.container == runs.Container("podman", "cd" * 32, "once")


class Counted(CgroupNames):
    """Counts how often all directories were read, each time for 50 ms of its clock."""

    scans = 0

    def scan(self) -> Mapping[int, str]:
        self.scans += 1
        cast(Clock, self._clock).now += 0.05
        return super().scan()


def looks(tmp_path: Path, *times: float, changing: bool) -> int:
    """How often the directories were read by `keep_up` at these times."""
    clock = Clock()
    names = Counted(tmp_path, clock=clock)
    for number, clock.now in enumerate(times):
        count = number if changing else 1
        (tmp_path / "cgroup.stat").write_text(f"nr_descendants {count}\nnr_dying_descendants 0\n")
        names.keep_up()
    return names.scans


def test_looking_ahead_takes_a_two_hundredth_of_the_time(tmp_path: Path) -> None:
    assert looks(tmp_path, 0.0, 1.0, 5.0, 9.9, changing=True) == 1
    assert looks(tmp_path, 0.0, 1.0, 5.0, 10.0, changing=True) == 2


def test_it_takes_a_thousandth_if_the_number_of_cgroups_is_the_same(tmp_path: Path) -> None:
    assert looks(tmp_path, 0.0, 10.0, 49.9, changing=False) == 1
    assert looks(tmp_path, 0.0, 10.0, 50.0, changing=False) == 2


def test_a_cgroup_that_is_asked_for_is_looked_for_however_long_that_takes(tmp_path: Path) -> None:
    clock = Clock()
    names = Counted(tmp_path, clock=clock)
    names.keep_up()
    (tmp_path / "late.slice").mkdir()
    assert names.unit((tmp_path / "late.slice").stat().st_ino) == "late.slice"


def test_the_next_daemon_knows_the_place_of_a_cgroup_that_is_gone(
    root: Path, tmp_path: Path
) -> None:
    tree, cgroup = cgroups(tmp_path, f"{SLICE}/cri-containerd-{ID}.scope")
    names = CgroupNames(tree, containers=ContainerFiles(root), node="node-7")
    place = names.place(cgroup)
    handed_on = json.loads(json.dumps(names.known([cgroup])[cgroup]))
    later = CgroupNames(tmp_path / "empty")
    later.remember({cgroup: handed_on, 5: ("/a", "a.service")})
    assert place and later.place(cgroup) == place
    assert later.unit(cgroup) == "web.prod.pod"
    assert (later.unit(5), later.place(5)) == ("a.service", None)
