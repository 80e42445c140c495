# SPDX-License-Identifier: Apache-2.0
"""What identifies a run, in words: whose it was, where it ran, which start of which job it was."""

from __future__ import annotations

from typing import NamedTuple

from pipelined.runs import Identity
from pipelined.runs.identity import SHORT_ID

__all__ = ["IdentityFact", "identity_facts", "is_of_a_job"]

#: So many digits of a trace or an invocation tell it from others of the same days.
_DIGITS = 8


class IdentityFact(NamedTuple):
    """One of the things that identify a run."""

    name: str
    """Such as `user`, or that of a variable."""
    value: str
    brief: str
    """The value as a line of a report has room for it."""
    search: str
    """What finds the runs that share it; empty if that is no search: all do."""


def is_of_a_job(identity: Identity) -> bool:
    """Whether more is known than what a command that somebody types has: user, host, session."""
    return bool(identity.container or identity.pod or identity.variables or identity.trace)


def identity_facts(identity: Identity) -> list[IdentityFact]:
    """Those that are known, from the whole to the part: user, host, container, job, trace."""
    found = []
    if identity.uid is not None:
        user = identity.user or f"uid {identity.uid}"
        found.append(_fact("user", user, f"uid={identity.uid}"))
    found.append(IdentityFact("host", identity.host, identity.host, ""))
    if pod := identity.pod:
        found.append(_fact("pod", f"{pod.namespace}/{pod.name}", f"pod={pod.name}"))
    if container := identity.container:
        image = f" ({container.image})" if container.image else ""
        name = container.name or (pod.container if pod else None)
        brief = f"{name or container.id[:SHORT_ID]}{image}"
        whole = f"{name + ' ' if name else ''}{container.id}{image}"
        found.append(IdentityFact("container", whole, brief, f"container={container.id}"))
    found += [_fact(name, value, f"{name}={value}") for name, value in identity.variables.items()]
    for name, digits in (
        ("invocation", identity.invocation_id),
        ("trace", identity.trace and identity.trace.trace_id),
    ):
        if digits:
            brief = f"{digits[:_DIGITS]}…"
            found.append(IdentityFact(name, digits, brief, f"{name}={digits}"))
    return found


def _fact(name: str, value: str, search: str) -> IdentityFact:
    return IdentityFact(name, value, value, search)
