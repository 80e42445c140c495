# SPDX-License-Identifier: Apache-2.0
"""What identifies a run, in words: whose it was, where it ran, which start of which job it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from pipelined.runs import Identity
from pipelined.runs.identity import NOT_VARIABLES, SHORT_ID

__all__ = [
    "ROOM",
    "Distinction",
    "Distinctions",
    "IdentityFact",
    "distinctions",
    "identity_facts",
    "is_of_a_job",
]

#: So many digits of a trace or an invocation tell it from others of the same days.
_DIGITS = 8
#: A value with fewer digits is a name, or counts tries or parts.
_NUMBER = 3
#: Characters that a list has for what tells a run from the others.
ROOM = 26
#: The title of a list's column with things of several kinds.
_SEVERAL = "identity"


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


class Distinction(NamedTuple):
    """What tells a run of a list from the others in it."""

    kind: str
    """`job`, `pod`, `container` or `user`."""
    value: str
    search: str
    """What finds the runs that share it, such as `SLURM_JOB_ID=4711`."""

    def words(self, room: int = ROOM) -> str:
        """``job 4711``, in at most `room` characters."""
        return f"{self.kind} {_cut(self.value, room - len(self.kind) - 1)}"


class Distinctions:
    """What tells the runs of a list from each other; nothing if they are all the same."""

    def __init__(self, by_run: Mapping[str, Distinction]) -> None:
        self.by_run = by_run
        """By the id of each run that differs from others by something that it has."""
        kinds = {one.kind for one in by_run.values()}
        self.title = _SEVERAL if len(kinds) > 1 else next(iter(kinds), "")
        """The heading of their column; empty if there is nothing to show in it."""

    def cell(self, run: str, room: int = ROOM) -> str:
        """For the run with this id, in at most `room` characters; empty if there is nothing.

        What the heading says is not repeated: ``4711`` below ``job``.
        """
        if (one := self.by_run.get(run)) is None:
            return ""
        return one.words(room) if self.title == _SEVERAL else _cut(one.value, room)

    def words(self, run: str) -> str:
        """The same where there is no heading: ``job 4711``."""
        return self.by_run[run].words() if run in self.by_run else ""


def distinctions(identities: Mapping[str, Mapping[str, str]]) -> Distinctions:
    """By the ids of the runs of a list, what each is found by (`Identity.named`).

    The start of its job tells a run from the others, else its pod or container, else its user;
    what all of them have tells nothing. Runs of older versions, of which nothing is known, do not
    count.
    """
    known = {run: named for run, named in identities.items() if named}
    jobs = _jobs({run: _variables(named) for run, named in known.items()})
    places = {run: _place(named) for run, named in known.items()}
    users = {run: _user(named) for run, named in known.items()}
    # Every run has a user; without one it is only not known.
    several_places = len(set(places.values())) > 1
    several_users = len(set(filter(None, users.values()))) > 1
    found = {}
    for run in known:
        if job := jobs.get(run):
            (name, first), *_ = job
            value = " ".join(value for _, value in job)
            found[run] = Distinction("job", value, f"{name}={first}")
        elif several_places and (place := places[run]):
            found[run] = place
        elif several_users and (user := users[run]):
            found[run] = user
    return Distinctions(found)


def _variables(named: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in named.items() if name not in NOT_VARIABLES}


def _jobs(variables: Mapping[str, Mapping[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Of each run the variable that tells it from others best, and then that which tells it from
    those that share this one, and so on; without runs whose variables all of them have.
    """
    shared = Counter(variable for of_run in variables.values() for variable in of_run.items())

    def rank(variable: tuple[str, str]) -> tuple[object, ...]:
        """The lowest for what looks like the number or the date of one start of a job."""
        name, value = variable
        number = sum(map(str.isdigit, value)) >= _NUMBER
        return not number, "://" in value, shared[variable], -len(value), name

    alike: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}
    for run, of_run in variables.items():
        tell = [variable for variable in of_run.items() if shared[variable] < len(variables)]
        if tell:
            best = min(tell, key=rank)
            rest = {name: value for name, value in of_run.items() if name != best[0]}
            alike.setdefault(best, {})[run] = rest
    found: dict[str, list[tuple[str, str]]] = {}
    for variable, runs in alike.items():
        further = _jobs(runs) if len(runs) > 1 else {}
        found |= {run: [variable, *further.get(run, ())] for run in runs}
    return found


def _place(named: Mapping[str, str]) -> Distinction | None:
    """Its pod or container."""
    if pod := named.get("pod"):
        return Distinction("pod", pod, f"pod={pod}")
    if container := named.get("container"):
        name = named.get("container_name") or container[:SHORT_ID]
        return Distinction("container", name, f"container={name}")
    return None


def _user(named: Mapping[str, str]) -> Distinction | None:
    if uid := named.get("uid"):
        return Distinction("user", named.get("user") or f"uid {uid}", f"uid={uid}")
    return None


def _cut(text: str, room: int) -> str:
    """The end of it, in which alike names differ: ``…40-x7k2p``."""
    return text if len(text) <= room else f"…{text[len(text) - room + 1 :]}"
