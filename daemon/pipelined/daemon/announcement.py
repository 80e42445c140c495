# SPDX-License-Identifier: Apache-2.0
"""What the daemon says of itself: at the start, in its log, and to systemd."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from pipelined import __version__
from pipelined.config import Address

if TYPE_CHECKING:
    from pipelined.observer import Hook, Observer

__all__ = ["announce", "announcement", "hidden_arguments", "status", "tier_lines"]


def announce(text: str, out: IO[str]) -> None:
    """Write it as far as that is possible: a full disk ends no daemon."""
    with contextlib.suppress(OSError):
        out.write(text)
        out.flush()


def announcement(
    loader: str,
    hooks: Sequence[Hook],
    address: Address,
    *,
    scheme: str = "http",
    by_hand: bool = True,
) -> str:
    """The text that says what was attached, per tier, where to look, and `by_hand` how to stop."""
    lines = [f"pipelined {__version__} watches every pipeline on this host (loader {loader})."]
    lines += tier_lines(hooks)
    # An address that means every interface cannot be typed into a browser.
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)
    url = f"{scheme}://{Address(near, address.port)}"
    lines += [
        f"  {'page':<10} {url}/",
        f"  {'metrics':<10} {url}/metrics",
        f"  {'API':<10} {url}/api/v1/pipelines",
        *(["Ctrl-C stops it."] if by_hand else []),
    ]
    return "\n".join(lines) + "\n"


def tier_lines(hooks: Sequence[Hook]) -> list[str]:
    """For each tier, which hooks are attached, how many will be, and which are off, and why."""
    tiers: dict[str, list[Hook]] = {}
    for hook in hooks:
        tiers.setdefault(hook.tier, []).append(hook)
    lines = []
    for tier, members in tiers.items():
        tried = [hook for hook in members if not hook.pending]
        attached = [hook.name for hook in tried if hook.attached]
        state = "ok" if len(attached) == len(tried) else "ok, in part" if attached else "off"
        parts = [f"{state}: {len(attached)} of {len(tried)} hooks attached"] if tried else []
        if len(members) > len(tried):
            parts.append(
                f"{len(members) - len(tried)} {'to follow' if tried else 'hooks to follow'}"
            )
        lines.append(f"  {tier:<10} {', '.join(parts)}")
        if attached:
            lines.append(f"  {'':<10} {', '.join(attached)}")
        off: dict[str, list[str]] = {}
        for hook in tried:
            if not hook.attached:
                off.setdefault(hook.reason, []).append(hook.name)
        lines += [
            f"  {'':<10} off: {', '.join(dict.fromkeys(names))}: {reason}"
            for reason, names in off.items()
        ]
    return lines


def status(observer: Observer) -> str:
    """The state in one line: ``12 of 12 hooks, 3 pipelines live``."""
    hooks = observer.hooks()
    attached = sum(hook.attached for hook in hooks)
    pending = sum(hook.pending for hook in hooks)
    to_follow = f", {pending} to follow" if pending else ""
    live = observer.live()
    noun = "pipeline" if live == 1 else "pipelines"
    return f"{attached} of {len(hooks) - pending} hooks{to_follow}, {live} {noun} live"


def hidden_arguments() -> str | None:
    """The warning that `--show-arguments` shows few command lines; None if it shows them all."""
    if _sees_arguments():
        return None
    return (
        "--show-arguments shows only those of our own user: /proc hides the others';"
        " set ProtectProc=default in the unit, or mount /proc without hidepid"
    )


def _sees_arguments() -> bool:
    """Whether command lines of other users can be read; process 1, which is root's, shows it."""
    try:
        with open("/proc/1/cmdline", "rb"):
            return True
    except OSError:
        return False
