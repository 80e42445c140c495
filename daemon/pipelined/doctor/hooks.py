# SPDX-License-Identifier: Apache-2.0
"""Which hooks are attached, and what is absent without those that are off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from pipelined.doctor.check import Check
from pipelined.errors import UserError

__all__ = ["Hook", "HooksOfDaemon", "daemon_checks", "hook_checks"]


class Hook(Protocol):
    """What is known about a hook that was, or will be, tried."""

    @property
    def name(self) -> str: ...
    @property
    def tier(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def attached(self) -> bool: ...
    @property
    def pending(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def gives(self) -> str: ...


@dataclass(frozen=True, slots=True)
class HooksOfDaemon:
    """The hooks of a daemon that is running."""

    url: str
    hooks: Sequence[Hook]


def hook_checks(
    probe: Callable[[], Iterable[Hook]] | None, failed: Sequence[Check]
) -> Iterator[Check]:
    """What `probe` finds, which attaches the hooks; it is not called if a check has `failed`."""
    if probe is None or failed:
        why = f"not tried: fix {failed[0].name} first" if failed else "not tried"
        yield Check("hooks", "unknown", why, required=True)
        return
    try:
        hooks = list(probe())
    except UserError as error:
        yield Check("hooks", "missing", error.message, _without_doctor(error.hint), True)
        return
    yield from _each(hooks)
    # The probe has said whether the daemon can start; without any hook it would be of no use.
    if not any(hook.attached and hook.tier == "sched" for hook in hooks):
        yield Check("hooks", "missing", "no hook of the sched tier could be attached", "", True)


def _without_doctor(hint: str) -> str:
    """What a hint of the daemon's says to whoever has asked doctor already."""
    kept = [part for part in hint.split("; ") if "`pipelined doctor`" not in part]
    if hint and not kept:
        return "see what the kernel says: sudo env PIPELINED_DEBUG=1 pipelined doctor"
    return "; ".join(kept)


def daemon_checks(ask: Callable[[], HooksOfDaemon]) -> Iterator[Check]:
    """The hooks of the daemon that is running. None is required: that daemon does work."""
    try:
        daemon = ask()
    except UserError as error:
        fix = "; or ".join(
            filter(None, (error.hint, "run this as root to see which hooks are off"))
        )
        yield Check("hooks of a daemon", "unknown", error.message, fix)
        return
    yield Check("daemon", "ok", f"the hooks below are those of the daemon at {daemon.url}")
    yield from _each(daemon.hooks)


def _each(hooks: Iterable[Hook]) -> Iterator[Check]:
    for (name, tier, attached, pending, reason), those in groupby(
        hooks, lambda hook: (hook.name, hook.tier, hook.attached, hook.pending, hook.reason)
    ):
        alike = list(those)
        where = f"{tier}, {' and '.join(dict.fromkeys(hook.method for hook in alike))}"
        if attached:
            yield Check(f"hook {name}", "ok", where, tier=tier)
        elif pending:
            yield Check(f"hook {name}", "unknown", f"{where}: still to be attached")
        else:
            absent = "; ".join(dict.fromkeys(hook.gives for hook in alike if hook.gives))
            detail = f"{where}: {reason}"
            yield Check(f"hook {name}", "off", detail, absent=absent, reason=reason)
