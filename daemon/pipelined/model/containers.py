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
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Container", "ContainerFiles", "container_of", "pod_name"]

_ID = "[0-9a-f]{64}"
#: systemd's names of containers, and those that runtimes make without systemd.
_CGROUP = re.compile(
    rf"(?:.*[-:])?(docker|libpod|cri-containerd|crio|nerdctl)[-:]({_ID})(?:\.scope)?"
)
_RUNTIMES = {"libpod": "podman", "cri-containerd": "pod", "crio": "pod", "nerdctl": "containerd"}
#: A link of the kubelet, which has it for each container of a pod: POD_NAMESPACE_CONTAINER-ID.log.
_POD_LOG = re.compile(rf"([^_]+)_([^_]+)_[^_]+-({_ID})\.log")

#: Letters and figures of the ends that Kubernetes generates: no vowels, and nothing like one.
_GENERATED = "[bcdfghjklmnpqrstvwxz2456789]"
#: Those ends: of a replica set and its pod (web-7d4b9c6f58-x7k2p); of a cron job, with the minute,
#: and its pod (etl-29381040-x7k2p), or of an indexed one (etl-0-x7k2p); of others (etl-x7k2p), and
#: of stateful sets (db-0).
_ENDS = re.compile(rf"(?:-{_GENERATED}{{8,10}}|-[0-9]+)?-{_GENERATED}{{5}}$|-[0-9]+$")

_SHORT = 12


class Container(NamedTuple):
    """A container in the life of a host."""

    runtime: str
    """``docker``, ``podman``, ``containerd``, or ``pod`` whatever runs the pods of Kubernetes."""
    id: str

    @property
    def short(self) -> str:
        return self.id[:_SHORT]


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


def pod_name(pod: str) -> str:
    """What the pods of one workload have in common.

    >>> pod_name("web-7d4b9c6f58-x7k2p"), pod_name("etl-29381040-x7k2p"), pod_name("db-0")
    ('web', 'etl', 'db')
    """
    return _ENDS.sub("", pod) or pod


class ContainerFiles:
    """The runtimes' own files, under `root`; what cannot be read is as if it were not there."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._pods = root / "var/log/containers"
        self._docker = root / "var/lib/docker/containers"
        self._podman = root / "var/lib/containers/storage/overlay-containers"

    def name(self, container: Container) -> str | None:
        """Its name; a pod's with the namespace: ``web.production``. None if that is not known."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            match container.runtime:
                case "pod":
                    return self._pod(container.id)
                case "docker":
                    described = _json(self._docker / container.id / "config.v2.json")
                    return (described["Name"] or "").strip("/") or None
                case "podman":
                    return next(self._podman_names(container.id), None)
        return None

    def _pod(self, container_id: str) -> str | None:
        for name in os.listdir(self._pods):
            found = _POD_LOG.fullmatch(name)
            if found and found[3] == container_id:
                return f"{pod_name(found[1])}.{found[2]}"
        return None

    def _podman_names(self, container_id: str) -> Iterator[str]:
        # those of `podman run --rm` are in the second file
        for file in ("containers.json", "volatile-containers.json"):
            with suppress(OSError):
                for one in _json(self._podman / file):
                    if one["id"] == container_id:
                        yield from one["names"][:1]


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())
