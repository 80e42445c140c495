# SPDX-License-Identifier: Apache-2.0
"""Kubernetes with one node: the pods of its workloads, and what is claimed of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from containers_trials import IMAGE, call, expect, pipeline
from recorded import Recorded, Run, wait_until

NODE = "node-7"
PROGRAMS = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("kubelet", "kubectl"),
)
NAMESPACE = "prod"

_ADDRESS = "10.99.0.1"
_SERVER = "https://127.0.0.1:6443"
_TOKEN = "of-a-host-that-is-gone-soon"
_LINKS = Path("/var/log/containers")
_GROUPS = Path("/sys/fs/cgroup")
#: Made whatever `--root-dir` says.
_OWN = Path("/var/lib/kubelet")
#: What a kubelet sets for the whole host: afterwards it is as it was.
_SYSCTLS = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)
_CONTROLLERS = ("cronjob", "job", "deployment", "replicaset", "statefulset", "daemonset")
#: With the minute of the start it is cut, because a pod's name has at most 63 characters.
LONGEST = "nightly-load-of-the-warehouse-in-the-second-region-b"


@contextmanager
def network() -> Iterator[list[str]]:
    """A network of its own, in which Kubernetes may change what it likes: what to run there by."""
    script = f"ip link set lo up; ip address add {_ADDRESS}/32 dev lo; echo"
    script += "; exec sleep infinity > /dev/null"
    with subprocess.Popen(["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE) as one:
        try:
            assert one.stdout and one.stdout.readline(), "no network namespace"
            yield ["nsenter", f"--net=/proc/{one.pid}/ns/net", "--"]
        finally:
            one.terminate()


class Cluster:
    """The programs of `folder` in this network, with the containerd at this socket."""

    def __init__(self, work: Path, folder: Path, containerd: Path, inside: list[str]) -> None:
        self._state = work / "kubernetes"
        self._folder = folder
        self._containerd = containerd
        self._inside = inside
        self._access = self._state / "access.json"
        self.manifests = self._state / "manifests"
        self._stack = ExitStack()

    def kubectl(self, *words: str, text: str = "") -> str:
        program = [*self._inside, self._folder / "kubectl", "--kubeconfig", self._access]
        return call(*program, *words, text=text)

    def apply(self, described: dict[str, Any]) -> None:
        self.kubectl("apply", "--filename", "-", text=json.dumps(described))

    def __enter__(self) -> Cluster:
        assert not _OWN.exists() and not [*_GROUPS.glob("*/kubepods")], "this host has a kubelet"
        call("rm", "-rf", "--one-file-system", self._state)
        self.manifests.mkdir(parents=True)
        with self._stack as stack:
            # what ends last
            stack.callback(self._clean)
            stack.callback(_write_sysctls, {n: Path("/proc/sys", n).read_text() for n in _SYSCTLS})
            self._start_control_plane(stack)
            stack.enter_context(self._running("kubelet", *self._kubelet_options()))
            self.kubectl("create", "namespace", NAMESPACE)
            wait_until(lambda: NODE in self.kubectl("get", "nodes"), "the node")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_control_plane(self, stack: ExitStack) -> None:
        state = self._state
        key, token, data = state / "key.pem", state / "tokens.csv", state / "etcd"
        call("openssl", "genrsa", "-out", key, "2048")
        token.write_text(f"{_TOKEN},root,1,system:masters\n")
        user = {"name": "root", "user": {"token": _TOKEN}}
        cluster = {
            "name": "here",
            "cluster": {"server": _SERVER, "insecure-skip-tls-verify": True},
        }
        context = {"name": "here", "context": {"cluster": "here", "user": "root"}}
        access = {"apiVersion": "v1", "kind": "Config", "current-context": "here"}
        access |= {"users": [user], "clusters": [cluster], "contexts": [context]}  # type: ignore[dict-item]
        self._access.write_text(json.dumps(access))
        stack.enter_context(self._running("etcd", f"--data-dir={data}"))
        options = (
            *("--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443"),
            *(f"--advertise-address={_ADDRESS}", "--bind-address=127.0.0.1"),
            *(f"--cert-dir={state / 'certificates'}", f"--token-auth-file={token}"),
            *("--authorization-mode=AlwaysAllow", "--endpoint-reconciler-type=none"),
            *("--disable-admission-plugins=ServiceAccount", "--allow-privileged"),
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            *("--service-account-issuer=https://here", "--service-cluster-ip-range=10.96.0.0/24"),
            *("--kubelet-preferred-address-types=InternalIP",),
        )
        stack.enter_context(self._running("kube-apiserver", *options))
        ready = [*self._inside, self._folder / "kubectl", "--kubeconfig", self._access]
        wait_until(
            lambda: (
                subprocess.run([*ready, "get", "--raw", "/readyz"], capture_output=True).stdout
                == b"ok"
            ),
            "the API server",
        )
        access_option = f"--kubeconfig={self._access}"
        names = ",".join(f"{name}-controller" for name in _CONTROLLERS)
        fixed = ("--leader-elect=false", access_option)
        for program, options in {
            "kube-controller-manager": (f"--controllers={names}",),
            "kube-scheduler": (),
        }.items():
            certificates = f"--cert-dir={state / program}"
            stack.enter_context(self._running(program, *fixed, certificates, *options))

    def _kubelet_options(self) -> list[str]:
        state = self._state
        config = {
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "staticPodPath": str(self.manifests),
            "containerRuntimeEndpoint": f"unix://{self._containerd}",
            "cgroupDriver": "cgroupfs",
            "failSwapOn": False,
            "failCgroupV1": False,
            "podLogsDir": str(state / "pods"),
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "evictionHard": {"memory.available": "1Mi"},
            "localStorageCapacityIsolation": False,
            "enableControllerAttachDetach": False,
            "oomScoreAdj": 0,
        }
        (state / "config.json").write_text(json.dumps(config))
        return [
            *("--config", str(state / "config.json"), "--root-dir", str(state / "root")),
            *("--hostname-override", NODE, "--node-ip", _ADDRESS),
            *("--kubeconfig", str(self._access), "--cert-dir", str(state / "kubelet")),
        ]

    @contextmanager
    def _running(self, program: str, *options: str) -> Iterator[None]:
        """It runs in the network; its log is in the state's folder."""
        with (self._state / f"{program}.log").open("w") as log:
            command = [*self._inside, self._folder / program, *options]
            started = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._state)
        try:
            yield
        finally:
            started.terminate()
            try:
                started.wait(60)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()

    def _clean(self) -> None:
        ctr = ("ctr", "--address", self._containerd, "--namespace", "k8s.io")
        for kind, options in (("tasks", ["--force"]), ("containers", [])):
            for one in call(*ctr, kind, "list", "--quiet").split():
                words = [*ctr, kind, "delete", *options, one]
                subprocess.run(words, check=False, capture_output=True)  # it may be gone by now
        for link in _LINKS.glob(f"*_{NAMESPACE}_*.log"):
            link.unlink()
        for group in _GROUPS.glob("*/kubepods"):
            call("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";")
        # the kubelet mounts that on itself
        subprocess.run(["umount", self._state / "root"], check=False, capture_output=True)
        call("rm", "-rf", "--one-file-system", _OWN)


def _write_sysctls(values: dict[str, str]) -> None:
    for name, value in values.items():
        Path("/proc/sys", name).write_text(value)


def _container(name: str, script: str) -> dict[str, Any]:
    command = ["sh", "-c", script]
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": command}


def _pod(script: str, restart: str = "Always", **more: Any) -> dict[str, Any]:
    """The specification of a pod with one container."""
    return {
        "hostNetwork": True,
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 1,
        # the node is never ready: nothing provides a network for pods
        "tolerations": [{"operator": "Exists"}],
        "containers": [_container("main", script)],
        **more,
    }


def _described(kind: str, name: str, version: str = "v1", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _long_lived(kind: str, name: str, script: str, **spec: Any) -> dict[str, Any]:
    """A workload whose pods are to live for ever."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": _pod(f"{script}; exec sleep infinity")}
    selector = {"matchLabels": labels}
    return _described(kind, name, "apps/v1", selector=selector, template=template, **spec)


def claims(recorded: Recorded, cluster: Cluster) -> list[Callable[[], None]]:
    def expect_pod(run: Run, unit: str, container: str = "main") -> str:
        """The pod's own name, which the links and the API server have too."""
        pod = run["identity"]["pod"]
        assert pod, f"{run['unit']} {run['identity']}"
        (link,) = _LINKS.glob(f"{pod['name']}_{NAMESPACE}_{container}-*.log")
        expect(
            run,
            unit,
            container={"runtime": "pod", "id": link.stem[-64:], "name": None, "image": None},
            pod={
                "name": pod["name"],
                "namespace": NAMESPACE,
                "container": container,
                "node": NODE,
            },
        )
        return str(pod["name"])

    def runs(first: str, count: int = 1) -> list[Run]:
        return recorded.wait_for(f"{first}|sort|tail", count)

    def static(name: str, script: str) -> None:
        described = _described("Pod", name, **_pod(script, "Never"))
        (cluster.manifests / f"{name}.json").write_text(json.dumps(described))

    def a_static_pod_has_its_name_namespace_container_and_node() -> None:
        static("etl", pipeline("pod-run", "sleep 5"))
        (run,) = runs("pod-run")
        assert expect_pod(run, f"etl.{NAMESPACE}.pod") == f"etl-{NODE}"

    def so_has_one_that_ends_with_its_pipeline() -> None:
        static("late", f"sleep 5; {pipeline('pod-late', 'true')}")
        (run,) = runs("pod-late")
        assert expect_pod(run, f"late.{NAMESPACE}.pod") == f"late-{NODE}"

    def cron_job(name: str, first: str) -> None:
        template = {"spec": {"template": {"spec": _pod(pipeline(first, "sleep 5"), "Never")}}}
        schedule = "* * * * *"
        cluster.apply(
            _described("CronJob", name, "batch/v1", schedule=schedule, jobTemplate=template)
        )

    def starts_of_a_cron_job_are_pods_of_one_unit() -> None:
        cron_job("nightly", "cron-run")
        cron_job(LONGEST, "cron-long")
        names = {expect_pod(run, f"nightly.{NAMESPACE}.pod") for run in runs("cron-run", 2)}
        assert len(names) == 2, names

    def so_are_those_of_one_with_the_longest_name() -> None:
        names = {expect_pod(run, f"{LONGEST}.{NAMESPACE}.pod") for run in runs("cron-long", 2)}
        assert len(names) == 2, names
        for name in ("nightly", LONGEST):
            cluster.kubectl("--namespace", NAMESPACE, "delete", "cronjob", name)

    def pods_of_a_parallel_job_are_of_one_unit() -> None:
        for name, first, mode in (
            ("batch", "job-run", "NonIndexed"),
            ("shards", "job-index", "Indexed"),
        ):
            template = {"spec": _pod(pipeline(first, "sleep 5"), "Never")}
            parts = {"parallelism": 2, "completions": 2, "completionMode": mode}
            cluster.apply(_described("Job", name, "batch/v1", template=template, **parts))
        for name, first in (("batch", "job-run"), ("shards", "job-index")):
            names = {expect_pod(run, f"{name}.{NAMESPACE}.pod") for run in runs(first, 2)}
            assert len(names) == 2, names

    def a_deployment_names_the_pods_of_its_replica_set() -> None:
        script = pipeline("deploy-run")
        cluster.apply(_long_lived("Deployment", "web", script, replicas=2))
        names = {expect_pod(run, f"web.{NAMESPACE}.pod") for run in runs("deploy-run", 2)}
        assert len(names) == 2, names

    def so_do_stateful_and_daemon_sets() -> None:
        script = pipeline("stateful-run")
        cluster.apply(_long_lived("StatefulSet", "db", script, replicas=1, serviceName="db"))
        cluster.apply(_long_lived("DaemonSet", "agent", pipeline("daemon-run")))
        (run,) = runs("stateful-run")
        assert expect_pod(run, f"db.{NAMESPACE}.pod") == "db-0"
        (run,) = runs("daemon-run")
        assert expect_pod(run, f"agent.{NAMESPACE}.pod").startswith("agent-")

    def an_init_container_is_a_container_of_the_pod() -> None:
        first = _container("prepare", pipeline("init-run", "sleep 5"))
        spec = _pod("sleep 5", "Never", initContainers=[first])
        cluster.apply(_described("Pod", "steps", **spec))
        (run,) = runs("init-run")
        assert expect_pod(run, f"steps.{NAMESPACE}.pod", "prepare") == "steps"

    def what_kubectl_exec_starts_is_of_the_container() -> None:
        script = pipeline("kubectl-exec", "echo end")
        where = ("--namespace", NAMESPACE, "exec", "statefulset/db", "--")
        wait_until(lambda: "db-0" in cluster.kubectl(*where[:2], "get", "pods"), "the pod db-0")
        assert "end" in cluster.kubectl(*where, "sh", "-c", script)
        (run,) = runs("kubectl-exec")
        assert expect_pod(run, f"db.{NAMESPACE}.pod") == "db-0"

    def a_run_is_found_by_its_pod() -> None:
        found = recorded.get("/api/v1/runs?identity=pod%3Ddb-0")["runs"]
        assert {run["pipeline"].split("|")[0] for run in found} == {"stateful-run", "kubectl-exec"}

    return [
        a_static_pod_has_its_name_namespace_container_and_node,
        so_has_one_that_ends_with_its_pipeline,
        starts_of_a_cron_job_are_pods_of_one_unit,
        so_are_those_of_one_with_the_longest_name,
        pods_of_a_parallel_job_are_of_one_unit,
        a_deployment_names_the_pods_of_its_replica_set,
        so_do_stateful_and_daemon_sets,
        an_init_container_is_a_container_of_the_pod,
        what_kubectl_exec_starts_is_of_the_container,
        a_run_is_found_by_its_pod,
    ]
