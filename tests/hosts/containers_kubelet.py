# SPDX-License-Identifier: Apache-2.0
"""A kubelet without an API server: it runs the pods of a directory."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from containers_trials import IMAGE, call, expect, pipeline
from recorded import PATIENCE, Recorded

NODE = "node-7"
_ADDRESS = "10.99.0.1"
_LINKS = Path("/var/log/containers")
#: Made whatever `--root-dir` says.
_OWN = Path("/var/lib/kubelet")
#: What a kubelet sets for the whole host: afterwards it is as it was.
_SYSCTLS = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)


@contextmanager
def kubelet(work: Path, program: Path, containerd: Path) -> Iterator[None]:
    """It runs in a network of its own, in which it may change what it likes."""
    groups = Path("/sys/fs/cgroup")
    assert not _OWN.exists() and not [*groups.glob("*/kubepods")], "this host has a kubelet"
    state = work / "kubelet"
    manifests = state / "manifests"
    manifests.mkdir(parents=True, exist_ok=True)
    for file in manifests.iterdir():
        file.unlink()
    config = {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "staticPodPath": str(manifests),
        "containerRuntimeEndpoint": f"unix://{containerd}",
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "failCgroupV1": False,
        "enableServer": False,
        "podLogsDir": str(state / "pods"),
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "evictionHard": {"memory.available": "1Mi"},
        "localStorageCapacityIsolation": False,
        "oomScoreAdj": 0,
    }
    (state / "config.json").write_text(json.dumps(config))
    before = {name: Path("/proc/sys", name).read_text() for name in _SYSCTLS}
    words = ("--config", state / "config.json", "--root-dir", state / "root")
    words = (*words, "--hostname-override", NODE, "--node-ip", _ADDRESS)
    network = f'ip link set lo up; ip address add {_ADDRESS}/32 dev lo; exec "$@"'
    command = ("unshare", "--net", "sh", "-c", network, "sh", program, *words)
    with (state / "log").open("w") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            started.terminate()
            started.wait(PATIENCE)
            for name, value in before.items():
                Path("/proc/sys", name).write_text(value)
            ctr = ("ctr", "--address", containerd, "--namespace", "k8s.io")
            for task in call(*ctr, "tasks", "list", "--quiet").split():
                subprocess.run([*ctr, "tasks", "delete", "--force", task], check=False)
            for one in call(*ctr, "containers", "list", "--quiet").split():
                subprocess.run([*ctr, "containers", "delete", one], check=False)
            for link in _LINKS.glob(f"*-{NODE}_*.log"):
                link.unlink()
            for group in groups.glob("*/kubepods"):
                call("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";")
            subprocess.run(["umount", state / "root"], check=False)  # it mounts that on itself
            call("rm", "-rf", "--one-file-system", _OWN)


def _pod(name: str, script: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "prod"},
            "spec": {
                "hostNetwork": True,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "main",
                        "image": IMAGE,
                        "imagePullPolicy": "Never",
                        "command": ["sh", "-c", script],
                    }
                ],
            },
        }
    )


def claims(recorded: Recorded, work: Path) -> list[Callable[[], None]]:
    manifests = work / "kubelet" / "manifests"

    def run(name: str, command: str, script: str) -> None:
        (manifests / f"{name}.json").write_text(_pod(name, script))
        found = recorded.only(command)
        links = list(_LINKS.glob(f"{name}-{NODE}_prod_main-*.log"))
        number = links[0].stem[-64:]
        expect(
            found,
            f"{name}.prod.pod",
            container={"runtime": "pod", "id": number, "name": None, "image": None},
            pod={"name": f"{name}-{NODE}", "namespace": "prod", "container": "main", "node": NODE},
        )

    def a_static_pod_has_its_name_namespace_container_and_node() -> None:
        run("etl", "pod-run", pipeline("pod-run", "sleep 5"))

    def so_has_one_that_ends_with_its_pipeline() -> None:
        run("late", "pod-late", f"sleep 5; {pipeline('pod-late', 'true')}")

    return [
        a_static_pod_has_its_name_namespace_container_and_node,
        so_has_one_that_ends_with_its_pipeline,
    ]
