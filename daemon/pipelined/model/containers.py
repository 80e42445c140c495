# SPDX-License-Identifier: Apache-2.0
"""Which container or pod a cgroup is, and what it is called: the label `unit` of what runs in it.

Names come from files that the runtimes write for themselves; no runtime is asked. The kubelet's
may be read by everybody; Docker's and Podman's by root alone. Without a name a container goes by
its id, shortened as `docker ps` shows it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pipelined import runs
from pipelined.runs.identity import SHORT_ID

__all__ = ["Container", "ContainerFiles", "Described", "Place", "container_of", "pod_name"]

_ID = "[0-9a-f]{64}"
#: systemd's names of containers, those that runtimes make without systemd, and Podman's below the
#: unit that it was started in (`--cgroups=split`).
_CGROUP = re.compile(
    rf"(?:.*[-:])?(docker|libpod|cri-containerd|crio|nerdctl)(?:-payload)?[-:]({_ID})(?:\.scope)?"
)
_RUNTIMES = {"libpod": "podman", "cri-containerd": "pod", "crio": "pod", "nerdctl": "containerd"}
#: A link of the kubelet, which has it for each container of a pod: POD_NAMESPACE_CONTAINER-ID.log.
_POD_LOG = re.compile(rf"([^_]+)_([^_]+)_([^_]+)-({_ID})\.log")

#: Letters and figures of the ends that Kubernetes generates: no vowels, and nothing like one.
_GENERATED = "[bcdfghjklmnpqrstvwxz2456789]"
#: Those ends: of a replica set and its pod (web-7d4b9c6f58-x7k2p); of a cron job, with the minute,
#: and its pod (etl-29381040-x7k2p), or of an indexed one (etl-0-x7k2p), or both; of others
#: (etl-x7k2p), and of stateful sets (db-0).
_ENDS = re.compile(rf"(?:-{_GENERATED}{{8,10}}|(?:-[0-9]*)?-[0-9]+)?-{_GENERATED}{{5}}$|-[0-9]+$")
#: A generated name has at most 63 characters. What is before the last five is cut for that, also in
#: the middle of a minute or of a replica set's own end.
_CUT = re.compile(rf"(.{{57}}[^-]){_GENERATED}{{5}}")
_CUT_END = re.compile(rf"-(?:[0-9]+|{_GENERATED}{{1,10}})$")


class Container(NamedTuple):
    """A container in the life of a host."""

    runtime: str
    """``docker``, ``podman``, ``containerd``, or ``pod`` whatever runs the pods of Kubernetes."""
    id: str

    @property
    def short(self) -> str:
        return self.id[:SHORT_ID]


class Described(NamedTuple):
    """What a runtime's files say of a container; None or empty where they do not."""

    unit: str | None
    """What its label `unit` is made of; of a pod with the namespace: ``web.production``."""
    name: str | None = None
    image: str | None = None
    pod: tuple[str, str, str] | None = None
    """Name, namespace, and name of the container in it."""


UNKNOWN = Described(None)


@dataclass(frozen=True, slots=True)
class Place:
    """A container, and the pod that it is of."""

    container: runs.Container
    pod: runs.Pod | None

    @classmethod
    def of(cls, container: Container, described: Described, node: str) -> Place:
        """`node` is what the host is called."""
        known = runs.Container(container.runtime, container.id, described.name, described.image)
        return cls(known, runs.Pod(*described.pod, node) if described.pod else None)


def container_of(path: str) -> Container | None:
    """The innermost container that a cgroup path lies in; None if there is none.

    >>> container_of("/system.slice/docker-" + 64 * "a" + ".scope").runtime
    'docker'
    """
    parts = path.removesuffix(" (deleted)").split("/")
    in_pod = any(part.startswith("kubepods") for part in parts)
    for above, part in reversed(list(zip(["", *parts], parts, strict=False))):
        if found := _CGROUP.fullmatch(part):
            runtime, name = found.groups()
            return Container("pod" if in_pod else _RUNTIMES.get(runtime, runtime), name)
        if re.fullmatch(_ID, part) and (in_pod or above == "docker"):
            return Container("pod" if in_pod else "docker", part)
    return None


def pod_name(pod: str, node: str = "") -> str:
    """What the pods of one workload have in common; that of a static pod ends with its node.

    >>> pod_name("web-7d4b9c6f58-x7k2p"), pod_name("etl-29381040-x7k2p"), pod_name("db-0")
    ('web', 'etl', 'db')
    >>> pod_name("nightly-load-of-the-warehouse-in-the-second-region-b-29927jvj4m")
    'nightly-load-of-the-warehouse-in-the-second-region-b'
    >>> pod_name("etcd-node-7", "Node-7")
    'etcd'
    """
    static = pod.removesuffix(f"-{node.lower()}") if node else pod
    if static != pod:
        return static
    if cut := _CUT.fullmatch(pod):
        return _CUT_END.sub("", cut[1])
    return _ENDS.sub("", pod) or pod


class ContainerFiles:
    """The runtimes' own files, under `root`; what cannot be read is as if it were not there."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._pods = root / "var/log/containers"
        self._docker = root / "var/lib/docker/containers"
        self._podman = root / "var/lib/containers/storage/overlay-containers"

    def describe(self, container: Container, node: str = "") -> Described:
        """What the files say of it. `node` is what the host is called."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            match container.runtime:
                case "pod":
                    return self._pod(container.id, node)
                case "docker":
                    described = _json(self._docker / container.id / "config.v2.json")
                    name = (described["Name"] or "").strip("/") or None
                    return Described(name, name, image=_docker_image(described))
                case "podman":
                    return next(self._podman_containers(container.id), UNKNOWN)
        return UNKNOWN

    def _pod(self, container_id: str, node: str) -> Described:
        for name in os.listdir(self._pods):
            found = _POD_LOG.fullmatch(name)
            if found and found[4] == container_id:
                pod, namespace, of_pod, _ = found.groups()
                return Described(f"{pod_name(pod, node)}.{namespace}", pod=(pod, namespace, of_pod))
        return UNKNOWN

    def _podman_containers(self, container_id: str) -> Iterator[Described]:
        # those of `podman run --rm` are in the second file
        for file in ("containers.json", "volatile-containers.json"):
            with suppress(OSError):
                for one in _json(self._podman / file):
                    if one["id"] == container_id:
                        for name in one["names"][:1]:
                            yield Described(name, name, image=_podman_image(one))


def _docker_image(described: Any) -> str | None:
    with suppress(TypeError, KeyError):
        return _text(described["Config"]["Image"])
    return None


def _podman_image(described: Any) -> str | None:
    # text that is JSON itself
    with suppress(ValueError, TypeError, KeyError):
        return _text(json.loads(described["metadata"])["image-name"])
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())
