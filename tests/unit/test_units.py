# SPDX-License-Identifier: Apache-2.0
"""How cgroups become the label `unit`."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelined.kernel.cgroups import NotedCgroups
from pipelined.kernel.layout import CgroupName
from pipelined.model.units import CgroupNames, find_cgroup2, normalise_unit

HEX64 = "3f" * 32
UUID = "6c8d3a5e-1b2c-4d5e-8f90-0123456789ab"
POD = "kubepods-burstable-pod" + UUID.replace("-", "_")
USER = "/user.slice/user-1000.slice/user@1000.service"


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("", "-"),
        ("/", "-"),
        ("/1234", "-"),
        ("/init.scope", "init.scope"),
        ("/system.slice", "system.slice"),
        ("/system.slice/nightly.service", "nightly.service"),
        ("/system.slice/nightly.service/worker", "nightly.service"),
        ("/system.slice/nightly.service (deleted)", "nightly.service"),
        ("/system.slice/php8.2-fpm.service", "php8.2-fpm.service"),
        ("/system.slice/x11-common.service", "x11-common.service"),
        ("/system.slice/e2scrub_all.service", "e2scrub_all.service"),
        ("/system.slice/system-backup.slice/backup@sda.service", "backup@.service"),
        ("/system.slice/system-getty.slice/getty@tty1.service", "getty@.service"),
        ("/system.slice/12345.scope", "system.slice"),
        ("/system.slice/run-u42.service", "run.service"),
        ("/system.slice/run-r0f1e2d3c4b5a69788796a5b4c3d2e1f0.service", "run.service"),
        ("/system.slice/run-p1234-i5678.service", "run.service"),
        ("/user.slice/user-1000.slice", "user.slice"),
        ("/user.slice/user-1000.slice/session-12.scope", "session.scope"),
        ("/user.slice/user-1000.slice/session-c2.scope", "session.scope"),
        (f"{USER}/init.scope", "user@.service"),
        (f"{USER}/app.slice/app-foo-1234.scope", "app-foo.scope"),
        (
            f"{USER}/app.slice/app-gnome-org.gnome.Terminal-1234.scope",
            "app-gnome-org.gnome.Terminal.scope",
        ),
        (f"{USER}/app.slice/app-firefox@{HEX64[:32]}.service", "app-firefox@.service"),
        (f"{USER}/app.slice/vte-spawn-{UUID}.scope", "vte-spawn.scope"),
        (f"{USER}/app.slice/dbus-:1.42-org.foo@0.service", "dbus-org.foo@.service"),
        (f"/system.slice/docker-{HEX64}.scope", "docker.scope"),
        (f"/system.slice/docker-{HEX64}.scope/init.scope", "docker.scope"),
        (f"/docker/{HEX64}", "docker"),
        (f"/machine.slice/libpod-{HEX64}.scope/container", "libpod.scope"),
        (f"/machine.slice/libpod-conmon-{HEX64}.scope", "libpod-conmon.scope"),
        (r"/machine.slice/machine-qemu\x2d1\x2dvm.scope", "machine-qemu-vm.scope"),
        ("/machine.slice/machine-batch.scope/payload", "batch.machine"),
        ("/machine.slice/machine-batch.scope/payload (deleted)", "batch.machine"),
        ("/machine.slice/machine-batch.scope/supervisor", "machine-batch.scope"),
        ("/machine.slice/systemd-nspawn@batch.service/payload/init.scope", "batch.machine"),
        (r"/machine.slice/systemd-nspawn@my\x2djob\x2d2.service/payload/sh", "my-job.machine"),
        ("/machine.slice/systemd-nspawn@42.service/payload", "systemd-nspawn@.service"),
        ("/machine.slice/systemd-nspawn@batch.service/supervisor", "systemd-nspawn@.service"),
        (
            "/machine.slice/machine-a.scope/payload/machine.slice/machine-b.scope/payload/x.service",
            "b.machine",
        ),
        (f"/kubepods.slice/{POD}.slice/cri-containerd-{HEX64}.scope", "cri-containerd.scope"),
        (f"/kubepods.slice/{POD}.slice/crio-{HEX64}.scope", "crio.scope"),
        (f"/kubepods/burstable/pod{UUID}/{HEX64}", "kubepods"),
        ("/lxc.payload.web1/init.scope", "lxc.payload.web"),
        ("/lxc/web12", "lxc"),
        ("/slurm/uid_1000/job_55/step_0", "slurm"),
        ("/system.slice/slurmstepd.scope/job_55/step_0/user/task_0", "slurmstepd.scope"),
    ],
)
def test_units(path: str, unit: str) -> None:
    assert normalise_unit(path) == unit


numbers = st.integers(0, 2**64).map(str)
hex_ids = st.text("0123456789abcdef", min_size=8, max_size=64)
uuids = st.uuids().map(str)
ids = st.one_of(numbers, hex_ids, uuids)
names = st.text("ghijklmnopqrstuvwxyz", min_size=1, max_size=12)


@given(name=names, one=ids, kind=st.sampled_from(["service", "scope"]))
def test_an_id_at_the_end_of_a_unit_never_survives(name: str, one: str, kind: str) -> None:
    assert normalise_unit(f"/system.slice/{name}-{one}.{kind}") == f"{name}.{kind}"


@given(name=names, one=ids)
def test_an_id_in_the_middle_of_a_unit_never_survives(name: str, one: str) -> None:
    assert normalise_unit(f"/a.slice/{name}-{one}-x.scope") == f"{name}-x.scope"


@given(name=names, one=st.text(max_size=20).filter(lambda text: "/" not in text))
def test_an_instance_never_survives(name: str, one: str) -> None:
    assert normalise_unit(f"/system.slice/{name}@{one}.service") == f"{name}@.service"


@given(name=names, one=ids, two=ids)
def test_ids_below_a_cgroup_that_is_no_unit_never_survive(name: str, one: str, two: str) -> None:
    assert normalise_unit(f"/{name}/{one}/{two}") == name


@given(path=st.text())
def test_any_path_has_a_name_without_slashes(path: str) -> None:
    unit = normalise_unit(path)

    assert unit
    assert "/" not in unit


# Ids to names


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "cgroup"
    (root / "system.slice" / "nightly.service").mkdir(parents=True)
    (root / "cgroup.procs").write_text("")
    return root


def id_of(directory: Path) -> int:
    return directory.stat().st_ino


def test_an_id_is_the_inode_of_a_directory(tree: Path) -> None:
    names = CgroupNames(tree)
    cgroup_id = id_of(tree / "system.slice" / "nightly.service")

    assert names.path(cgroup_id) == "/system.slice/nightly.service"
    assert names.unit(cgroup_id) == "nightly.service"


def test_the_root_has_no_unit(tree: Path) -> None:
    names = CgroupNames(tree)

    assert names.path(id_of(tree)) == "/"
    assert names.unit(id_of(tree)) == "-"


def test_an_unknown_id_has_no_unit(tree: Path) -> None:
    assert CgroupNames(tree).unit(2**63) == "-"


def test_files_are_no_cgroups(tree: Path) -> None:
    assert CgroupNames(tree).path(id_of(tree / "cgroup.procs")) is None


def test_a_new_cgroup_is_found_but_the_tree_is_read_once_a_second(tree: Path) -> None:
    clock = Clock()
    names = CgroupNames(tree, clock=clock)
    assert names.unit(2**63) == "-"
    new = tree / "system.slice" / "new.service"
    new.mkdir()

    clock.now = 0.9
    assert names.unit(id_of(new)) == "-"
    clock.now = 1.0
    assert names.unit(id_of(new)) == "new.service"


def test_a_cgroup_keeps_its_name_after_it_is_gone(tree: Path) -> None:
    clock = Clock()
    names = CgroupNames(tree, clock=clock)
    gone = tree / "system.slice" / "nightly.service"
    cgroup_id = id_of(gone)
    names.scan()
    gone.rmdir()

    clock.now = 10.0
    names.scan()

    assert names.unit(cgroup_id) == "nightly.service"


def test_what_an_earlier_daemon_knew_is_known(tree: Path) -> None:
    gone = tree / "system.slice" / "nightly.service"
    cgroup_id, clock = id_of(gone), Clock()
    before = CgroupNames(tree, clock=clock)
    before.unit(cgroup_id)
    known = before.known([cgroup_id, 2**63])
    assert known == {
        cgroup_id: ("/system.slice/nightly.service", "nightly.service"),
        2**63: (None, None),
    }
    gone.rmdir()
    after = CgroupNames(tree, clock=clock)
    after.remember(known)
    assert after.known([cgroup_id, 2**63]) == known
    assert (after.path(cgroup_id), after.unit(cgroup_id)) == known[cgroup_id]


def test_of_cgroups_that_are_gone_those_that_went_or_were_asked_for_last_are_known(
    tree: Path,
) -> None:
    names = CgroupNames(tree, limit=2)
    services = [tree / f"{name}.service" for name in "abcd"]
    for service in services:
        service.mkdir()
    a, b, c, d = map(id_of, services)
    names.scan()
    for asked in (a, b, c, d):
        names.unit(asked)

    for service in services[:2]:
        service.rename(tree.parent / service.name)  # an inode that comes again is another id
    names.scan()
    assert names.unit(a) == "a.service"
    services[2].rename(tree.parent / "c.service")
    names.scan()

    assert names.known([a, b, c, d]) == {
        a: ("/a.service", "a.service"),
        b: (None, None),
        c: ("/c.service", "c.service"),
        d: ("/d.service", "d.service"),
    }


def test_what_is_known_of_many_cgroups_that_have_gone_is_bounded(tree: Path) -> None:
    names = CgroupNames(tree, limit=3)
    pods = tree / "kubepods"
    ids: list[int] = []
    for number in range(20):
        pod = pods / f"pod{number}" / (f"{number:02d}" * 32)
        pod.mkdir(parents=True)
        ids += [id_of(pod.parent), id_of(pod)]
        names.read_names()
        pod.parent.rename(tree.parent / pod.parent.name)
    names.scan()
    assert sum(known != (None, None) for known in names.known(ids).values()) == 3


def test_a_host_may_have_more_cgroups_than_are_known_of_those_that_are_gone(tree: Path) -> None:
    names = CgroupNames(tree, limit=1)
    nightly = id_of(tree / "system.slice" / "nightly.service")
    for _ in range(2):
        names.scan()
        assert names.known([nightly])[nightly][0] == "/system.slice/nightly.service"


#: A container's cgroup in a pod, as the kernel side notes it: the last name, and what it is in.
NOTED = {
    1: ("", 0),
    2: ("kubepods.slice", 1),
    3: ("kubepods-podabc.slice", 2),
    4: ("nightly.service", 1),
    5: ("lost.service", 99),
}


def test_a_cgroup_that_nobody_has_read_has_the_name_that_the_kernel_side_noted(tree: Path) -> None:
    names = CgroupNames(tree, NOTED.get)

    assert names.path(3) == "/kubepods.slice/kubepods-podabc.slice"
    assert names.path(4) == "/nightly.service"
    assert names.unit(4) == "nightly.service"
    assert names.path(1) == "/"


def test_a_noted_cgroup_below_one_that_was_read_has_a_path_of_the_mount(tree: Path) -> None:
    above = id_of(tree / "system.slice" / "nightly.service")
    names = CgroupNames(tree, {7: ("inner", above)}.get)
    names.scan()

    assert names.path(7) == "/system.slice/nightly.service/inner"


@pytest.mark.parametrize(("length", "is_known"), [(126, True), (127, False)])
def test_a_name_that_may_have_been_cut_is_none(length: int, is_known: bool) -> None:
    """The kernel side keeps 127 bytes of it: the type of a unit may be behind them."""
    raw = bytes(CgroupName(above=1, name=b"x" * length))
    loaded: Any = SimpleNamespace(get=lambda *_: raw)
    assert (NotedCgroups(loaded)(7) is not None) is is_known


def test_a_noted_cgroup_is_unknown_if_what_is_around_it_is_forgotten(tree: Path) -> None:
    assert CgroupNames(tree, NOTED.get).unit(5) == "-"


def test_memory_of_noted_names_is_bounded(tree: Path) -> None:
    noted = {at: (f"unit{at}.service", 1) for at in range(2, 10)} | {1: ("", 0)}
    names = CgroupNames(tree, noted.get, limit=5)
    for at in noted:
        assert names.path(at)
        assert len(names.known(noted)) == len(noted)
        assert sum(path is not None for path, *_ in names.known(noted).values()) <= 5


def test_a_user_may_name_a_cgroup_with_any_bytes() -> None:
    """What sorts and stores units takes Unicode."""
    noted = {1: ("", 0), 2: (os.fsdecode(b"odd\xff.service"), 1)}
    assert CgroupNames(None, noted.get).unit(2).encode() == rb"odd\xff.service"


@pytest.mark.parametrize("root", [None, Path("/no/such/directory")])
def test_without_cgroup_v2_nothing_has_a_unit(root: Path | None) -> None:
    assert CgroupNames(root).unit(1) == "-"


def test_the_mount_is_found_among_others_with_its_blanks(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n"
        "cgroup2 /sys/fs/my\\040cgroups cgroup2 rw,relatime 0 0\n"
    )

    assert find_cgroup2(mounts) == Path("/sys/fs/my cgroups")


def test_no_mount_is_none(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("tmpfs /sys/fs/cgroup tmpfs rw 0 0\n")

    assert find_cgroup2(mounts) is None
