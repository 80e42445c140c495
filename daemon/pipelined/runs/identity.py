# SPDX-License-Identifier: Apache-2.0
"""Whose run it is, where it ran, and of which start of which job it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["NOT_VARIABLES", "SHORT_ID", "Container", "Identity", "Pod", "Trace"]

#: So many digits of a container's id are enough to name it, as for `docker ps`.
SHORT_ID = 12
#: Names in `Identity.named` that are not those of variables.
NOT_VARIABLES = frozenset(
    (
        *("uid", "user", "container", "container_name", "image", "pod", "namespace"),
        *("invocation", "trace"),
    )
)


@dataclass(frozen=True, slots=True)
class Container:
    """A container."""

    runtime: str
    """`docker`, `podman`, `containerd`; `pod` in Kubernetes, whatever runs its pods."""
    id: str
    """64 digits."""
    name: str | None = None
    """Null if the runtime's files do not tell, or may not be read."""
    image: str | None = None
    """As it was asked for, such as `etl:1.4`; null for pods."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of Kubernetes."""

    name: str
    """Such as `etl-29381040-x7k2p`."""
    namespace: str
    """Where it is."""
    container: str
    """Which of its containers."""
    node: str
    """The name that the daemon has for its host."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace that a run is a part of, by `TRACEPARENT` and `TRACESTATE` of its environment."""

    trace_id: str
    """32 hexadecimal digits."""
    parent_span_id: str
    """16 hexadecimal digits: the span that started it."""
    sampled: bool
    """Whoever started it records its trace."""
    state: str | None = None
    """What vendors pass on, as `TRACESTATE` has it; null if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells a run from all others of its pipeline."""

    host: str
    """Name of the host: `--host-name`, or its own."""
    boot_id: str
    """Which boot of that host."""
    uid: int | None = None
    """Effective user id of the first stage as of its last exec."""
    user: str | None = None
    """Its name in the host's user database; null if it has none there."""
    container: Container | None = None
    """Null outside containers."""
    pod: Pod | None = None
    """Null outside pods, and if the kubelet's files do not tell."""
    invocation_id: str | None = None
    """systemd's `INVOCATION_ID`: which start of which unit; null if the environment has none."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The other `--instance-variables` of its environment, by name: which start of which job."""
    trace: Trace | None = None
    """Null without a valid `TRACEPARENT`."""

    @property
    def named(self) -> dict[str, str]:
        """What runs are found by: all but host and boot, which those of a history share."""
        fixed = {
            "uid": None if self.uid is None else str(self.uid),
            "user": self.user,
            "container": self.container and self.container.id,
            "container_name": self.container and self.container.name,
            "image": self.container and self.container.image,
            "pod": self.pod and self.pod.name,
            "namespace": self.pod and self.pod.namespace,
            "invocation": self.invocation_id,
            "trace": self.trace and self.trace.trace_id,
        }
        return dict(self.variables) | {name: value for name, value in fixed.items() if value}
