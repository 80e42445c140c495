# SPDX-License-Identifier: Apache-2.0
"""The checks of this host, in the order in which the daemon would fail.

They only read; files are looked up under a root directory, which tests replace. Exceptions are
attaching the hooks, which the loader does, and asking systemd and whoever listens on the port.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from pipelined.config import Address
from pipelined.doctor.check import Check, Status
from pipelined.doctor.hooks import Hook, HooksOfDaemon, daemon_checks, hook_checks
from pipelined.doctor.listeners import Reply, listener_check
from pipelined.doctor.port import port_check
from pipelined.doctor.service import service_check, service_properties
from pipelined.kernel.libbpf_loader import INSTALL_AGAIN
from pipelined.kernel.obstacles import HELPERS, OLDEST_TRIED, Obstacle, obstacles
from pipelined.kernel.privileges import NEEDED, SYS_ADMIN, effective, lacking
from pipelined.model.units import find_cgroup2, mounts_of

__all__ = ["checks", "libbpf_version"]


def checks(
    root: Path = Path("/"),
    *,
    bpf_object: Path | None = None,
    loader: str = "auto",
    probe_hooks: Callable[[], Iterable[Hook]] | None = None,
    ask_daemon: Callable[[], HooksOfDaemon] | None = None,
    always_ask: bool = False,
    ask_port: Callable[[Address], Reply] | None = None,
    service: Callable[[], Mapping[str, str]] | None = None,
    libbpf: Callable[[], str] | None = None,
    machine: str | None = None,
) -> list[Check]:
    """Run every check, in the order in which the daemon would fail.

    `bpf_object` is the file that the daemon would load with this `loader`. `probe_hooks` attaches
    the hooks, detaches them, and raises UserError if the daemon could not start; it is not called
    if an earlier check shows that it must fail. `ask_daemon` asks a running daemon for its hooks,
    and raises UserError if there is no answer; it is called if this user lacks the capabilities, or
    if `always_ask`. `ask_port` finds out whether a daemon answers at an address; it is called if
    somebody listens there. `service` has what systemd reports of the service. `libbpf` returns the
    library's version or raises OSError, `machine` is the architecture. The last three default to
    the real ones.
    """
    bcc = list(_bcc(root, loader))
    shown = {obstacle.check: obstacle for obstacle in obstacles(root)}
    privileges = _capabilities(root)
    found = [
        _kernel(root),
        _architecture(machine or platform.machine()),
        _btf(root, shown),
        _helpers(shown),
        _lockdown(root, shown),
        privileges,
        _memory_lock(root),
        _libbpf(libbpf or libbpf_version),
        *([] if loader == "bcc" else [_object(bpf_object, instead=bool(bcc))]),
        *bcc,
        _pid_namespace(root),
        _accounting(root),
        _schedstat(root),
        _cgroup2(root),
        _kprobes(root),
    ]
    failed = [check for check in found if check.failed]
    found.extend(listener_check(root, ask_port))
    found.extend(service_check(service() if service else service_properties(root)))
    found.extend(hook_checks(probe_hooks, failed))
    found.extend(port_check(root))
    if ask_daemon and (always_ask or privileges.failed):
        found.extend(daemon_checks(ask_daemon))
    return found


def libbpf_version() -> str:
    """The version of the system's libbpf, ``1.1``. Raises OSError if there is none."""
    library = ctypes.CDLL("libbpf.so.1")
    library.libbpf_version_string.restype = ctypes.c_char_p
    text: bytes = library.libbpf_version_string()
    return text.decode().removeprefix("v")


# From linux/capability.h.
_CAP_SYS_RESOURCE = 24

# Inodes of the namespaces that the kernel starts with, from linux/proc_ns.h.
_FIRST_USER_NAMESPACE = 0xEFFFFFFD
_FIRST_PID_NAMESPACE = 0xEFFFFFFC

_OLDEST_LIBBPF = (1, 1)

_CGROUPS = "/sys/fs/cgroup"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else ()


def _kernel(root: Path) -> Check:
    """Never required: vendors backport, so the version does not decide what the kernel can do."""
    release = (_read(root / "proc/sys/kernel/osrelease") or "").strip()
    if not release:
        return Check("kernel", "unknown", "no /proc/sys/kernel/osrelease")
    if _numbers(release) < OLDEST_TRIED:
        oldest = ".".join(map(str, OLDEST_TRIED))
        return Check(
            "kernel",
            "unknown",
            f"Linux {release}, older than the oldest that was tried ({oldest})",
            f"if a hook of the sched tier is refused, use Linux {oldest} or newer",
        )
    return Check("kernel", "ok", f"Linux {release}")


def _architecture(machine: str) -> Check:
    if machine in ("x86_64", "aarch64"):
        return Check("architecture", "ok", machine, required=True)
    return Check(
        "architecture", "missing", f"{machine} is not supported", "use x86-64 or arm64", True
    )


def _btf(root: Path, found: Mapping[str, Obstacle]) -> Check:
    if "BTF" in found:
        return _missing(found["BTF"])
    size = (root / "sys/kernel/btf/vmlinux").stat().st_size
    return Check("BTF", "ok", f"/sys/kernel/btf/vmlinux, {size / 1e6:.1f} MB", required=True)


def _helpers(found: Mapping[str, Obstacle]) -> Check:
    """The helpers without which no state can be determined, by their names in the kernel's BTF."""
    if "BPF helpers" in found:
        return _missing(found["BPF helpers"])
    if "BTF" in found:
        return Check("BPF helpers", "unknown", "the kernel's BTF cannot be read")
    return Check("BPF helpers", "ok", ", ".join(f"bpf_{name}" for name in HELPERS))


def _lockdown(root: Path, found: Mapping[str, Obstacle]) -> Check:
    text = _read(root / "sys/kernel/security/lockdown")
    match = re.search(r"\[(\w+)\]", text or "")
    if match is None:
        return Check("lockdown", "unknown", "no /sys/kernel/security/lockdown")
    if "lockdown" in found:
        return _missing(found["lockdown"], "off")
    return Check("lockdown", "ok", match[1])


def _missing(obstacle: Obstacle, status: Status = "missing") -> Check:
    return Check(obstacle.check, status, obstacle.detail, obstacle.fix, required=True)


def _capability_set(root: Path) -> int | None:
    return effective(root / "proc/self/status")


def _has(capabilities: int | None, bit: int) -> bool:
    return capabilities is not None and bool(capabilities >> bit & 1)


def _capabilities(root: Path) -> Check:
    held = _capability_set(root)
    if held is None:
        return Check("capabilities", "unknown", "no CapEff in /proc/self/status", required=True)
    user_namespace = _namespace(root, "user")
    if user_namespace is not None and user_namespace != _FIRST_USER_NAMESPACE:
        return Check(
            "capabilities",
            "missing",
            "they apply only inside a user namespace",
            "start it as the host's root, not in a rootless container",
            True,
        )
    if missing := lacking(held):
        return Check(
            "capabilities",
            "missing",
            "no " + " and no ".join(missing),
            f"run it with sudo, or give it {' and '.join(missing)}",
            True,
        )
    names = "CAP_SYS_ADMIN" if _has(held, SYS_ADMIN) else " and ".join(NEEDED)
    return Check("capabilities", "ok", names, required=True)


def _memory_lock(root: Path) -> Check:
    name = "memory lock"
    match = re.search(r"^Max locked memory\s+(\S+)", _read(root / "proc/self/limits") or "", re.M)
    if match is None:
        return Check(name, "unknown", "no limit in /proc/self/limits")
    if match[1] == "unlimited":
        return Check(name, "ok", "unlimited")
    limit = f"{int(match[1]) // 1024} KiB"
    if _has(_capability_set(root), _CAP_SYS_RESOURCE):
        return Check(name, "ok", f"{limit}; may be raised (CAP_SYS_RESOURCE)")
    return Check(
        name,
        "unknown",
        f"{limit} and no CAP_SYS_RESOURCE; kernels since 5.11 do not count BPF maps here",
        "if maps are refused, run: ulimit -l unlimited",
    )


def _libbpf(version: Callable[[], str]) -> Check:
    try:
        found = version()
    except (OSError, AttributeError):
        return Check(
            "libbpf", "missing", "no libbpf.so.1", "run: sudo apt-get install libbpf1", True
        )
    if _numbers(found) < _OLDEST_LIBBPF:
        return Check(
            "libbpf", "missing", f"{found} is too old", "install libbpf 1.1 or newer", True
        )
    return Check("libbpf", "ok", found, required=True)


def _bcc(root: Path, loader: str) -> Iterator[Check]:
    """Whether bcc is installed; no check if it is neither installed nor asked for."""
    place = "usr/lib/python3/dist-packages/bcc"
    required = loader == "bcc"
    if (root / place / "__init__.py").is_file() and loader != "libbpf":
        version = re.search(r"'([\d.]+)", _read(root / place / "version.py") or "")
        yield Check("bcc", "ok", version[1] if version else "installed", required=required)
    elif required:
        fix = "run: sudo apt-get install python3-bpfcc"
        yield Check("bcc", "missing", f"no /{place}", fix, required=True)


def _object(path: Path | None, *, instead: bool) -> Check:
    """`instead`: if this fails, bcc is tried."""
    name, required = "BPF object", not instead
    if path is None:
        return Check(name, "unknown", "not looked for")
    try:
        with path.open("rb") as file:
            start = file.read(20)
        size = path.stat().st_size
    except OSError as error:
        return Check(name, "missing", f"{path}: {error.strerror}", INSTALL_AGAIN, required)
    # An ELF file whose machine is BPF (247), in the byte order that its sixth byte names.
    order: Literal["little", "big"] = "big" if start[5:6] == b"\x02" else "little"
    if start[:4] != b"\x7fELF" or int.from_bytes(start[18:20], order) != 247:
        return Check(name, "missing", f"{path} is not a BPF object", INSTALL_AGAIN, required)
    return Check(name, "ok", f"{path}, {size / 1024:.0f} KiB", required=required)


def _namespace(root: Path, kind: str) -> int | None:
    try:
        target = os.readlink(root / "proc/self/ns" / kind)
    except OSError:
        return None
    match = re.fullmatch(rf"{kind}:\[(\d+)\]", target)
    return int(match[1]) if match else None


def _pid_namespace(root: Path) -> Check:
    name = "PID namespace"
    inode = _namespace(root, "pid")
    if inode is None:
        return Check(name, "unknown", "no /proc/self/ns/pid")
    if inode == _FIRST_PID_NAMESPACE:
        return Check(name, "ok", "the host's")
    return Check(
        name,
        "off",
        "this container's own: processes of the host have other ids in it",
        "start the container with --pid=host",
    )


def _accounting(root: Path) -> Check:
    if (root / "proc/self/io").exists():
        return Check("I/O accounting", "ok", "/proc/PID/io")
    return Check(
        "I/O accounting",
        "off",
        "no /proc/PID/io: bytes and calls of stages are unknown",
        "use a kernel built with CONFIG_TASK_IO_ACCOUNTING=y",
    )


def _schedstat(root: Path) -> Check:
    if (root / "proc/self/schedstat").exists():
        return Check("schedstat", "ok", "/proc/PID/schedstat", required=True)
    return Check(
        "schedstat",
        "missing",
        "no /proc/PID/schedstat: the time that tasks wait for a CPU is unknown",
        "use a kernel built with CONFIG_SCHED_INFO=y",
        required=True,
    )


def _cgroup2(root: Path) -> Check:
    mounts = root / "proc/self/mounts"
    try:
        mount = find_cgroup2(mounts)
        in_use = any(
            kind == "cgroup" or path.is_relative_to(_CGROUPS) for path, kind, _ in mounts_of(mounts)
        )
    except OSError:
        return Check("cgroup v2", "unknown", "no /proc/self/mounts")
    if mount is None:
        # a mount over those of v1 would hide them from systemd and from container runtimes
        boot = "boot the host with cgroup v2 in place of v1: systemd.unified_cgroup_hierarchy=1"
        return Check(
            "cgroup v2",
            "off",
            "not mounted: the label unit is -, but for jobs with a variable and those of cron",
            boot if in_use else f"run: mount -t cgroup2 none {_CGROUPS}",
        )
    return Check("cgroup v2", "ok", str(mount))


def _kprobes(root: Path) -> Check:
    if (root / "sys/bus/event_source/devices/kprobe").exists():
        return Check("kprobes", "ok", "for function hooks; the scheduler hooks do not need them")
    return Check(
        "kprobes",
        "off",
        "only function hooks would use them; the scheduler hooks do not need them",
        "for function hooks use a kernel built with CONFIG_KPROBE_EVENTS=y",
    )
