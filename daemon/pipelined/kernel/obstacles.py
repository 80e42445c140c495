# SPDX-License-Identifier: Apache-2.0
"""What keeps a kernel from running any of the programs, as far as it shows that itself.

The kernel and libbpf answer with an error number, or with a line of the verifier's. These name
the cause. Files are looked up under a root directory, which tests replace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelined.errors import NotPermittedError, UserError, why

__all__ = ["HELPERS", "OLDEST_TRIED", "Obstacle", "explained", "obstacles"]

#: The oldest kernel that all was run on (docs/HOSTS.md). Vendors backport: older ones may work.
OLDEST_TRIED = (6, 1)

#: Helpers without which no state can be determined. The last of them came with Linux 5.15.
HELPERS = ("task_pt_regs", "get_current_task_btf", "task_storage_get")

_BTF = "/sys/kernel/btf/vmlinux"
_LOCKDOWN = "/sys/kernel/security/lockdown"
#: A helper that every kernel has: without its name, the names in a BTF show nothing.
_ALWAYS = "map_lookup_elem"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One cause, in the words of `pipelined doctor`."""

    check: str
    """The name of its check."""
    detail: str
    fix: str


def obstacles(root: Path = Path("/")) -> Iterator[Obstacle]:
    """All that this kernel shows, the one that fails first being first."""
    names = b""
    try:
        names = (root / _BTF.lstrip("/")).read_bytes()
    except FileNotFoundError:
        fix = "use a kernel built with CONFIG_DEBUG_INFO_BTF=y; Debian's and Ubuntu's are"
        yield Obstacle("BTF", f"no {_BTF}", fix)
    except OSError as error:
        yield Obstacle("BTF", f"{_BTF}: {why(error)}", "run it as root")
    else:
        if names[:2] not in (b"\x9f\xeb", b"\xeb\x9f"):
            yield Obstacle("BTF", f"{_BTF} is not BTF", "use another kernel")
    if _names(names, _ALWAYS):
        lacking = [f"bpf_{name}" for name in HELPERS if not _names(names, name)]
        if lacking:
            oldest = ".".join(map(str, OLDEST_TRIED))
            detail = f"the kernel has no {', '.join(lacking)}"
            yield Obstacle("BPF helpers", detail, f"use Linux {oldest} or newer")
    yield from _lockdown(root)


def explained(error: UserError, root: Path = Path("/")) -> UserError | None:
    """The error to raise instead when a load failed, if the kernel shows the cause.

    To a user without privileges only lockdown is a cause: root may not load programs either then.
    """
    permitted = not isinstance(error, NotPermittedError)
    for found in obstacles(root) if permitted else _lockdown(root):
        return UserError(f"this kernel cannot run the BPF programs: {found.detail}", found.fix)
    return None


def _names(btf: bytes, helper: str) -> bool:
    return f"BPF_FUNC_{helper}\0".encode() in btf


def _lockdown(root: Path) -> Iterator[Obstacle]:
    try:
        text = (root / _LOCKDOWN.lstrip("/")).read_text()
    except OSError:
        return  # not mounted, or a kernel without it
    if "[confidentiality]" in re.findall(r"\[\w+\]", text):
        detail = "lockdown=confidentiality: BPF may not read kernel memory"
        yield Obstacle("lockdown", detail, "boot with lockdown=integrity or none")
